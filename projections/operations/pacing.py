"""The pace of pushes: a push to millions of children must leave capacity of a partition to the application."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from projections.engine.deadline import OutOfTime

__all__ = ["Pacer"]


class Pacer:
    """Limits the rate of writes: writes that begin now delay the next ones by the time that the rate allows for them.

    The first caller does not wait, so a small push is done at once. The rate is that of one function instance. A push is
    one chain of pages, so it is also the maximum of one push. Safe for threads.
    """

    def __init__(
        self,
        per_second: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._per_second = per_second
        self._clock = clock
        self._sleep = sleep
        self._free = clock()
        self._left: Callable[[], float] = lambda: float("inf")
        self._lock = threading.Lock()

    def within(self, left: Callable[[], float]) -> None:
        """Limit all waits from now on to the seconds that `left` returns."""
        self._left = left

    def __call__(self, writes: int) -> None:
        """Wait until so many writes may be made. Raises OutOfTime, without a wait, if there is not enough time."""
        if not writes:
            return
        with self._lock:
            now = self._clock()
            begin = max(now, self._free)
            if begin > now and begin - now > self._left():
                raise OutOfTime(
                    "the pace of pushes (PUSH_WRITES_PER_SECOND) leaves no writes before the invocation ends"
                )
            self._free = begin + writes / self._per_second
        if begin > now:
            self._sleep(begin - now)
