"""Tasks: work that is left for later, as messages of a queue. So far there is one kind, the page of a push.

    {"push": {"rule": …, "parent": …, "version": …, "after": …, "again": …}}

The queue may deliver a task twice, late, or before an older one: each is done against the fence of its parent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from projections.engine.embeds import Push
from projections.errors import BadInput
from projections.language.keys import decode_key

__all__ = ["DelayedSender", "Tasks", "read", "write"]


class DelayedSender(Protocol):
    """What takes messages and holds them back: `stores.queues.Queue`, or a list in tests."""

    def send(self, bodies: Sequence[str], delays: Sequence[float]) -> None: ...


class Tasks:
    """Sends pages of pushes to the task queue. What it raises makes the sender do its part again.

    `connect` is called when there is something to send for the first time. Safe for threads.
    """

    def __init__(self, connect: Callable[[], DelayedSender]) -> None:
        self._connect = connect
        self._queue: DelayedSender | None = None
        self._lock = threading.Lock()

    def __call__(self, push: Push, seconds: float) -> None:
        self.send([(push, seconds)])

    def send(self, tasks: Sequence[tuple[Push, float]]) -> None:
        """All of them, each with the seconds it should wait. Raises what `DelayedSender.send` raises."""
        if not tasks:
            return
        with self._lock:
            self._queue = self._queue or self._connect()
        self._queue.send([write(push) for push, _ in tasks], [seconds for _, seconds in tasks])


def write(push: Push) -> str:
    """The body of a message. In ASCII: SQS refuses some characters that keys may hold."""
    return json.dumps({"push": json.loads(push.text())}, separators=(",", ":"))


def read(body: object) -> Push:
    """What `write` wrote. Raises BadInput, saying what is wrong."""
    try:
        content = json.loads(body) if isinstance(body, str) else None
    except ValueError:
        content = None
    if not isinstance(content, dict) or content.keys() != {"push"}:
        raise BadInput("the message is no task; only this package writes to its task queue")
    push = Push.read(json.dumps(content["push"]))
    try:
        decode_key(push.parent)
    except ValueError as error:
        raise BadInput(f"the task names no parent: {error}") from None
    return push
