"""The task queue: standard SQS, that is any order, sometimes twice, again if not done in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from greenlet import getcurrent

from projections.engine.embeds import SETTLE_SECONDS
from projections.local.functions import LONGEST_CHAIN
from projections.testing.simulation.workers import Thread, carry_out

__all__ = ["SETTLED", "TaskQueue"]

SETTLED = 200
"""Steps of a history that take `SETTLE_SECONDS`. No index lags by more."""


@dataclass(slots=True)
class _Message:
    body: str
    visible: int
    """The first step at which it can be received."""
    chain: int = 0
    """The number of invocations in the chain that led to it."""


class TaskQueue:
    """Messages by id. The history sets `now`, its current step.

    `recursive_loop` is the setting of the function that receives them: with "Terminate" long chains of messages are dropped.
    """

    def __init__(self, rng: Random, recursive_loop: str = "Allow") -> None:
        self.now = 0
        self._recursive_loop = recursive_loop
        self._rng = rng
        self._messages: dict[str, _Message] = {}
        self._sent = 0

    def send(self, bodies: Sequence[str], delays: Sequence[float]) -> None:
        """Send messages, as an invocation does: it stops before and after, and may meet a fault."""
        carry_out("send", bodies, lambda: self._take(bodies, delays))

    def _take(self, bodies: Sequence[str], delays: Sequence[float]) -> None:
        for body, seconds in zip(bodies, delays, strict=True):
            self._sent += 1
            visible = self.now + int(SETTLED * seconds / SETTLE_SECONDS) + 1
            thread = getcurrent()
            chain = thread.invocation.chain if isinstance(thread, Thread) else 0
            self._messages[str(self._sent)] = _Message(body, visible, chain)

    @property
    def next(self) -> int | None:
        """The step at which the next message can be received, None if the queue is empty."""
        return min((message.visible for message in self._messages.values()), default=None)

    def receive(self) -> dict[str, Any] | None:
        """Return an event with a few visible messages in any order, or None. Most of them are hidden afterwards."""
        if self._recursive_loop != "Allow":
            self._messages = {name: one for name, one in self._messages.items() if one.chain < LONGEST_CHAIN}
        visible = [name for name, message in self._messages.items() if message.visible <= self.now]
        if not visible:
            return None
        chosen = self._rng.sample(visible, self._rng.randint(1, min(3, len(visible))))
        for name in chosen:
            if self._rng.random() < 0.9:
                self._messages[name].visible = self.now + 100_000
        return {"Records": [{"messageId": name, "body": self._messages[name].body} for name in chosen]}

    def chain_of(self, event: dict[str, Any]) -> int:
        """Return the length of the chain of invocations that ends with the one for an event."""
        return 1 + max(self._messages[one["messageId"]].chain for one in event["Records"])

    def finish(self, event: dict[str, Any], answer: Any) -> None:
        """Remove the messages that were done. Those that failed, or all without an answer, can be received again."""
        failed = None if answer is None else {one["itemIdentifier"] for one in answer["batchItemFailures"]}
        for record in event["Records"]:
            name = record["messageId"]
            if failed is None or name in failed or "" in failed:
                if name in self._messages:
                    self._messages[name].visible = self.now
            else:
                self._messages.pop(name, None)
