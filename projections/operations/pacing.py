"""The pace of pushes: a writer of millions must leave the application its share of a partition."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from projections.engine.deadline import OutOfTime

__all__ = ["Pacer"]


class Pacer:
    """Keeps writes to a rate: writes that begin now make the next ones wait until so many may have been made.

    Whoever comes first does not wait, so that a small push is done at once. The rate is that of one function instance;
    a push is one chain of pages, so it is also the most that one push writes. Safe for threads.
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
        """From now on nobody waits longer than `left` gives in seconds."""
        self._left = left

    def __call__(self, writes: int) -> None:
        """Waits until so many writes may be made. Raises OutOfTime, without a wait, if that is too late."""
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
