"""Parallel scans: all segments of a table at once, or some of many; and reads that are repeated while they are throttled."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from typing import NamedTuple, TypeVar

from projections.engine.running import Deadline
from projections.engine.store import Image, Store

__all__ = ["PAGE", "Scanner", "Segment", "patiently"]

PAGE = 1000
"""Items read at a time: what a thread holds in memory."""

_MOST_TRIES = 17
"""Pauses of 20 seconds in all."""

T = TypeVar("T")
Each = Callable[[Sequence[Image]], None]


def patiently(read: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """Return what `read` returns. While it raises Transient, repeat it with growing pauses; raise it after 20 seconds."""
    deadline = Deadline(lambda: math.inf, margin=0.0, sleep=sleep, chance=lambda: 1.0)
    return deadline.retry(read, tries=_MOST_TRIES)


class Segment(NamedTuple):
    """One segment of a parallel scan, and what is to be called for every page of it."""

    table: str
    number: int
    of: int
    each: Each


class Scanner:
    """Scans tables in `threads` segments at once. `report` hears of every page: the table, and how many items it had."""

    def __init__(
        self,
        store: Store,
        *,
        threads: int = 4,
        report: Callable[[str, int], None] = lambda table, items: None,
        sleep: Callable[[float], None] = time.sleep,
        page: int = PAGE,
    ) -> None:
        self._store = store
        self._threads = threads
        self._report = report
        self._sleep = sleep
        self._page = page

    def whole(self, tables: Sequence[tuple[str, Each]]) -> None:
        """Scans tables, calling for every page, from several threads. Raises what a page raises."""
        self.segments([Segment(name, n, self._threads, each) for name, each in tables for n in range(self._threads)])

    def segments(self, wanted: Sequence[Segment]) -> None:
        """Scans these segments."""
        stop = threading.Event()
        if self._threads == 1:
            for segment in wanted:
                self._segment(segment, stop)
            return
        with ThreadPoolExecutor(self._threads) as pool:
            futures = [pool.submit(self._segment, segment, stop) for segment in wanted]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                stop.set()
                raise

    def _segment(self, segment: Segment, stop: threading.Event) -> None:
        after = None
        while not stop.is_set():
            read = partial(
                self._store.scan,
                segment.table,
                segment=segment.number,
                segments=segment.of,
                limit=self._page,
                after=after,
            )
            page = patiently(read, self._sleep)
            segment.each(page.items)
            self._report(segment.table, len(page.items))
            after = page.after
            if after is None:
                return
