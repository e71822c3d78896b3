"""The time that an invocation has, and pauses between attempts."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from projections.errors import Transient

__all__ = ["UNLIMITED", "Deadline", "OutOfTime"]

_BETWEEN_CHECKS = 64
"""Pieces of computing between two checks of the time: some milliseconds of work."""

T = TypeVar("T")


class OutOfTime(Transient):
    """The invocation ends soon; what is left is reported for retry."""


class Deadline:
    """The time that an invocation has left, in seconds, less a margin for writing its answer.

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
        # processes that start from one snapshot share the state of `random`, and tokens must never be equal
        self._token_chance = random.SystemRandom().random if chance is random.random else chance

    @classmethod
    def after(
        cls,
        seconds: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> Deadline:
        """Return the deadline that is so many seconds from now, without a margin."""
        end = clock() + seconds
        return cls(lambda: end - clock(), margin=0.0, sleep=sleep, chance=chance)

    @property
    def over(self) -> bool:
        return self._remaining() <= self._margin

    @property
    def left(self) -> float:
        """Seconds until no further piece of work should begin."""
        return self._remaining() - self._margin

    @property
    def out_of_time(self) -> OutOfTime:
        """Return the reason to begin no further piece of work."""
        return OutOfTime("the invocation's time is nearly up")

    def check(self) -> None:
        """Raises OutOfTime if no further piece of work should begin."""
        if self.over:
            raise self.out_of_time

    def checked(self, some: Iterable[T]) -> Iterator[T]:
        """Yield what is given, and raise OutOfTime if no further piece of work should begin."""
        for number, one in enumerate(some):
            if not number % _BETWEEN_CHECKS:
                self.check()
            yield one

    def token(self) -> str:
        """Return a text that no other call returns, in any process."""
        return f"{int(self._token_chance() * 2**52):013x}"

    def pause(self, attempt: int) -> None:
        """Wait before attempt number `attempt` (from 1) is repeated. Raises OutOfTime if the time would not suffice."""
        seconds = self._chance() * min(2.0, 0.02 * 2 ** min(attempt, 10))
        if self._remaining() - seconds <= self._margin:
            raise self.out_of_time
        self._sleep(seconds)

    def retry(self, work: Callable[[], T], *, tries: int | None = None) -> T:
        """Return what `work` returns. While it raises Transient, call it again after a pause, at most `tries` times in all.

        Raises the last Transient when tries or time are up, OutOfTime only if nothing failed before; other errors at once.
        """
        reason: Transient | None = None
        attempt = 0
        while True:
            try:
                self.check()
                return work()
            except Transient as error:
                if reason is None or not isinstance(error, OutOfTime):
                    reason = error
            attempt += 1
            if attempt == tries:
                raise reason
            try:
                self.pause(attempt)
            except OutOfTime:
                raise reason from None


UNLIMITED = Deadline(lambda: math.inf)
"""For work without a time limit."""
