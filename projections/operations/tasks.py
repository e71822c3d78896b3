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
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias

from projections.engine.budget import Refresh
from projections.engine.embeds import Push
from projections.errors import BadInput
from projections.language.keys import decode_key

__all__ = ["MOST_HOPS", "BackfillTask", "DelayedSender", "Task", "Tasks", "hop_of", "read", "write"]

MOST_HOPS = 10_000
"""The maximum length of a chain of messages. At the slowest pace (25 children a second, one minute for each message) it
updates 15 million children. AWS has no limit for functions that are allowed to call themselves.
"""

_VERSION = re.compile("[^/]*/[0-9]{40}")
"""See `engine.records.version_of`."""

_NO_TASK = "the message is not a task. Only this package writes to its task queue"


@dataclass(frozen=True, slots=True)
class BackfillTask:
    """The next page of a segment of a scan, in one phase of a run. The ledger has its position."""

    run: str
    phase: str
    table: str
    number: int


Task: TypeAlias = Push | BackfillTask | Refresh


class DelayedSender(Protocol):
    """A queue that can delay messages: `aws.queues.Queue`, or a fake in tests."""

    def send(self, bodies: Sequence[str], delays: Sequence[float]) -> None: ...


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
            content = {"push": json.loads(task.text())}
        case Refresh():
            content = {"refresh": task._asdict()}
        case _:
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
    """Return the task that `write` wrote. Raises BadInput with the reason."""
    content = _content(body)
    if isinstance(content, dict):
        content.pop("hop", None)
    if isinstance(content, dict) and content.keys() == {"backfill"}:
        return _backfill(content["backfill"])
    if isinstance(content, dict) and content.keys() == {"refresh"}:
        return _refresh(content["refresh"])
    if not isinstance(content, dict) or content.keys() != {"push"}:
        raise BadInput(_NO_TASK)
    push = Push.read(json.dumps(content["push"]))
    try:
        decode_key(push.parent)
    except ValueError as error:
        raise BadInput(f"the task has no valid parent: {error}") from None
    return push


def _refresh(fields: object) -> Refresh:
    try:
        task = Refresh(**fields)  # type: ignore[arg-type]
        decode_key(task.source)
        valid = _VERSION.fullmatch(task.version) is not None and type(task.gone) is bool
        if not valid or type(task.rule) is not str or type(task.signature) is not str:
            raise BadInput(_NO_TASK)
    except (TypeError, ValueError, AttributeError):
        raise BadInput(_NO_TASK) from None
    return task


def _backfill(fields: object) -> BackfillTask:
    try:
        task = BackfillTask(**fields)  # type: ignore[arg-type]
    except TypeError:
        raise BadInput(_NO_TASK) from None
    if not all(isinstance(part, str) for part in (task.run, task.phase, task.table)) or type(task.number) is not int:
        raise BadInput(_NO_TASK)
    return task
