"""How long to try: the time that remains, and pauses that grow and scatter."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from projections.errors import Transient

__all__ = ["Effort", "OutOfTime", "Run", "one_by_one"]

T = TypeVar("T")
Run = Callable[[Sequence[Callable[[], T]]], list[T]]
"""Runs independent pieces of work, at once or one after another, and gives their results in order."""


def one_by_one(pieces: Sequence[Callable[[], T]]) -> list[T]:
    """Runs pieces of work one after another."""
    return [piece() for piece in pieces]


class OutOfTime(Transient):
    """The invocation ends soon; what is left is reported for retry."""


class Effort:
    """The time an invocation has, in seconds, less a margin in which its answer is written.

    Pauses follow "full jitter" (Exponential Backoff And Jitter, AWS Architecture Blog, 2015).
    """

    def __init__(
        self,
        remaining: Callable[[], float],
        *,
        margin: float = 1.0,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._remaining = remaining
        self._margin = margin
        self._sleep = sleep
        self._chance = chance

    @property
    def over(self) -> bool:
        return self._remaining() <= self._margin

    @property
    def left(self) -> float:
        """Seconds until no further piece of work should begin."""
        return self._remaining() - self._margin

    def check(self) -> None:
        """Raises OutOfTime if no further piece of work should begin."""
        if self.over:
            raise OutOfTime("the invocation's time is nearly up")

    def pause(self, attempt: int) -> None:
        """Waits before attempt number `attempt` (from 1) is repeated. Raises OutOfTime if the time would not suffice."""
        seconds = self._chance() * min(2.0, 0.02 * 2 ** min(attempt, 10))
        if self._remaining() - seconds <= self._margin:
            raise OutOfTime("the invocation's time is nearly up")
        self._sleep(seconds)
