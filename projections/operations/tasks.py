"""Tasks: work for the worker, as messages of a queue: a page of a push, a page of a backfill, or the refresh of an item.

    {"push": {"rule": …, "parent": …, "version": …, "after": …, "again": …}}
    {"backfill": {"run": …, "phase": …, "table": …, "number": …}}
    {"refresh": {"source": …, "version": …, "gone": …, "rule": …, "signature": …}}

A worker that has no time left sends the rest of a task as a new message. The messages of such a chain are numbered, except
for the first: `"hop": 3`.

The queue may deliver a task twice, late, or before an older one. A push checks the fence of its parent, and a page of a
backfill continues at the position that the ledger has. A refresh reads the item as it is.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias

from projections.engine.budget import Refresh
from projections.engine.embeds import Push
from projections.errors import BadInput
from projections.language.keys import decode_key

MOST_HOPS = 10_000
"""The maximum length of a chain of messages. At the slowest pace (25 children a second, one minute for each message) it
updates 15 million children. AWS has no limit for functions that are allowed to call themselves.
"""

_VERSION = re.compile("[^/]*/[0-9]{40}")
"""See `engine.records.version_of`."""


@dataclass(frozen=True, slots=True)
class BackfillTask:
    """The next page of a segment of a scan, in one phase of a run. The ledger has its position."""

    run: str
    phase: str
    table: str
    number: int


Task: TypeAlias = Push | BackfillTask | Refresh

_KINDS: Mapping[str, Callable[..., Task]] = {"push": Push, "backfill": BackfillTask, "refresh": Refresh}


class DelayedSender(Protocol):
    """A queue that can delay messages: `aws.queues.Queue`, or a fake in tests."""

    def send(self, bodies: Sequence[str], delays: Sequence[float]) -> None: ...


class TaskSender(Protocol):
    """The task queue: `Tasks`."""

    def send(self, tasks: Sequence[tuple[Task, float]]) -> None: ...


class Tasks:
    """Sends tasks to the task queue. If it raises, the sender has to repeat its work.

    `connect` is called before the first task. Safe for threads.
    """

    def __init__(self, connect: Callable[[], DelayedSender]) -> None:
        self._connect = connect
        self._queue: DelayedSender | None = None
        self._lock = threading.Lock()

    def __call__(self, task: Push | Refresh, seconds: float) -> None:
        self.send([(task, seconds)])

    def send(self, tasks: Sequence[tuple[Task, float]], hops: Sequence[int] = ()) -> None:
        """Send tasks, each with its delay in seconds; `hops` has their positions in their chains, if they do not begin one.

        Raises what `DelayedSender.send` raises.
        """
        if not tasks:
            return
        with self._lock:
            self._queue = self._queue or self._connect()
        bodies = [write(task, hop) for (task, _), hop in zip(tasks, hops or [0] * len(tasks), strict=True)]
        self._queue.send(bodies, [seconds for _, seconds in tasks])


def write(task: Task, hop: int = 0) -> str:
    """Return the body of a message. It is ASCII, because SQS refuses some characters that keys can have."""
    content: dict[str, Any]
    match task:
        case Push():
            content = {"push": task._replace(last="")._asdict()}  # the fence is raised by then
        case Refresh():
            content = {"refresh": task._asdict()}
        case BackfillTask():
            content = {"backfill": asdict(task)}
    if hop:
        content["hop"] = hop
    return json.dumps(content, separators=(",", ":"))


def hop_of(body: object) -> int:
    """Return the position of a message in its chain; 0 if it begins one, or is not a task."""
    content = _content(body)
    hop = content.get("hop") if isinstance(content, dict) else None
    return hop if type(hop) is int and hop > 0 else 0


def _content(body: object) -> object:
    try:
        return json.loads(body) if isinstance(body, str) else None
    except (ValueError, RecursionError):
        return None


def read(body: object) -> Task:
    """Return the task that `write` wrote. Raises BadInput for any other message."""
    content = _content(body)
    fields = [field for field in content.items() if field[0] != "hop"] if isinstance(content, dict) else []
    try:
        task: Task = _KINDS[fields[0][0]](**fields[0][1])
        match task:
            case Push(rule, parent, version):
                valid = _are_texts(rule, version) and bool(decode_key(parent))
            case Refresh(source, version, gone, rule, signature):
                right = _VERSION.fullmatch(version) is not None and type(gone) is bool
                valid = right and _are_texts(rule, signature) and bool(decode_key(source))
            case BackfillTask(run, phase, table, number):
                valid = _are_texts(run, phase, table) and type(number) is int
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        valid = False
    if not valid or len(fields) > 1:
        raise BadInput("the message is not a task. Only this package writes to its task queue")
    return task


def _are_texts(*values: object) -> bool:
    return all(isinstance(value, str) for value in values)
