"""Tasks: work that is left for later, as messages of a queue. There are two kinds: the page of a push, and of a backfill.

    {"push": {"rule": …, "parent": …, "version": …, "after": …, "again": …}}
    {"backfill": {"run": …, "phase": …, "table": …, "number": …}}

A worker that has no time left sends the rest of a task as a new message. Each message of such a chain but the first has its
place in it: `"hop": 3`.

The queue may deliver a task twice, late, or before an older one: a push is done against the fence of its parent, a segment
of a backfill from where the ledger says it has come.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, TypeAlias

from projections.engine.embeds import Push
from projections.errors import BadInput
from projections.language.keys import decode_key

__all__ = ["MOST_HOPS", "BackfillTask", "DelayedSender", "Task", "Tasks", "hop_of", "read", "write"]

MOST_HOPS = 10_000
"""How many messages one task may become, one after the other, before it fails. At the least pace (25 children a second for a
minute at a time) they update 15 million children. AWS has no bound for functions that are allowed to call themselves.
"""

_NO_TASK = "the message is no task; only this package writes to its task queue"


@dataclass(frozen=True, slots=True)
class BackfillTask:
    """The next page of a segment of a scan, in one phase of a run. Where it goes on, the ledger knows."""

    run: str
    phase: str
    table: str
    number: int


Task: TypeAlias = Push | BackfillTask


class DelayedSender(Protocol):
    """What takes messages and holds them back: `stores.queues.Queue`, or a list in tests."""

    def send(self, bodies: Sequence[str], delays: Sequence[float]) -> None: ...


class Tasks:
    """Sends tasks to the task queue. What it raises makes the sender do its part again.

    `connect` is called when there is something to send for the first time. Safe for threads.
    """

    def __init__(self, connect: Callable[[], DelayedSender]) -> None:
        self._connect = connect
        self._queue: DelayedSender | None = None
        self._lock = threading.Lock()

    def __call__(self, push: Push, seconds: float) -> None:
        self.send([(push, seconds)])

    def send(self, tasks: Sequence[tuple[Task, float]], hops: Sequence[int] = ()) -> None:
        """All of them, each with the seconds it should wait; `hops` has their places in their chains, if they begin none.

        Raises what `DelayedSender.send` raises.
        """
        if not tasks:
            return
        with self._lock:
            self._queue = self._queue or self._connect()
        bodies = [write(task, hop) for (task, _), hop in zip(tasks, hops or [0] * len(tasks), strict=True)]
        self._queue.send(bodies, [seconds for _, seconds in tasks])


def write(task: Task, hop: int = 0) -> str:
    """The body of a message. In ASCII: SQS refuses some characters that keys may hold."""
    content: dict[str, Any] = (
        {"push": json.loads(task.text())} if isinstance(task, Push) else {"backfill": asdict(task)}
    )
    if hop:
        content["hop"] = hop
    return json.dumps(content, separators=(",", ":"))


def hop_of(body: object) -> int:
    """The place of a message in its chain; 0 if it begins one, or is no task."""
    content = _content(body)
    hop = content.get("hop") if isinstance(content, dict) else None
    return hop if type(hop) is int and hop > 0 else 0


def _content(body: object) -> object:
    try:
        return json.loads(body) if isinstance(body, str) else None
    except (ValueError, RecursionError):
        return None


def read(body: object) -> Task:
    """What `write` wrote. Raises BadInput, saying what is wrong."""
    content = _content(body)
    if isinstance(content, dict):
        content.pop("hop", None)
    if isinstance(content, dict) and content.keys() == {"backfill"}:
        return _backfill(content["backfill"])
    if not isinstance(content, dict) or content.keys() != {"push"}:
        raise BadInput(_NO_TASK)
    push = Push.read(json.dumps(content["push"]))
    try:
        decode_key(push.parent)
    except ValueError as error:
        raise BadInput(f"the task names no parent: {error}") from None
    return push


def _backfill(fields: object) -> BackfillTask:
    try:
        task = BackfillTask(**fields)  # type: ignore[arg-type]
    except TypeError:
        raise BadInput(_NO_TASK) from None
    if not all(isinstance(part, str) for part in (task.run, task.phase, task.table)) or type(task.number) is not int:
        raise BadInput(_NO_TASK)
    return task
