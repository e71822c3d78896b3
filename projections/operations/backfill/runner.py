"""A backfill in this process: the segments of a phase at once, one thread each, and the phases one after another."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace

from projections.engine.effort import Effort
from projections.engine.plan import Rejected
from projections.errors import Transient
from projections.operations.backfill.backfill import Backfill, Done
from projections.operations.backfill.progress import Run, Segment

__all__ = ["Runner"]

_PAGE_SECONDS = 300.0
"""After so long what is not done of a page is noted as failed, and tried again."""

_MOST_EXAMPLES = 20
_MOST_TRIES = 8
"""Of a page that cannot be read, with pauses that grow to 10 seconds."""


class Runner:
    """Works off a run. `told` hears of every page; stopping is safe at any point, and another runner goes on from there.

    `failed` and `rejected` have examples of what could not be done, by key; the counts of segments say how many.
    """

    def __init__(
        self,
        backfill: Backfill,
        *,
        told: Callable[[Run, Done], None] = lambda run, done: None,
        waiting: Callable[[float], None] = lambda seconds: None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._backfill = backfill
        self._told = told
        self._waiting = waiting
        self._clock = clock
        self._sleep = sleep
        self.failed: dict[str, str] = {}
        self.rejected: dict[Rejected, None] = {}

    def work(self, run: Run) -> Run:
        """All that is left of a run. Raises KeyboardInterrupt after the pages under way, and what a page raises."""
        while run.phase != "done":
            if (seconds := run.ready - self._clock()) > 0:
                self._waiting(seconds)
                self._sleep(seconds)
            segments = [segment for segment in self._backfill.segments(run) if not segment.done]
            if segments:
                self._phase(run, segments)
            run, _ = self._backfill.forward(run)
        return run

    def rehearse(self, run: Run) -> dict[str, Counter[str]]:
        """The pages of a dry backfill; gives what was counted by phase."""
        counted: dict[str, Counter[str]] = {}
        for phase in ("items", "entries", "targets"):
            run = replace(run, phase=phase)
            of = [
                Segment(phase, table, number, run.segments)
                for table in self._backfill.tables_of(run, phase)
                for number in range(run.segments)
            ]
            counted[phase] = Counter()
            for segment in self._phase(run, of):
                counted[phase].update(segment.counts)
        return counted

    def _phase(self, run: Run, segments: list[Segment]) -> list[Segment]:
        stop = threading.Event()
        with ThreadPoolExecutor(len(segments)) as pool:
            futures = [pool.submit(self._segment, run, segment, stop) for segment in segments]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                stop.set()
            return [future.result() for future in futures]

    def _segment(self, run: Run, segment: Segment, stop: threading.Event) -> Segment:
        attempt = 0
        while not segment.done and not stop.is_set():
            try:
                done = self._backfill.page(run, segment, Effort(_within(_PAGE_SECONDS), margin=0.0, sleep=self._sleep))
            except Transient:
                attempt += 1
                if attempt == _MOST_TRIES:
                    raise
                self._sleep(min(10.0, 0.1 * 2**attempt))
                continue
            attempt = 0
            segment = done.segment
            for key, reason in done.failed.items():
                if len(self.failed) < _MOST_EXAMPLES:
                    self.failed[key] = reason
            for one in done.rejected:
                if len(self.rejected) < _MOST_EXAMPLES:
                    self.rejected[one] = None
            self._told(run, done)
        return segment


def _within(seconds: float) -> Callable[[], float]:
    """What is left of so many seconds from now."""
    end = time.monotonic() + seconds
    return lambda: end - time.monotonic()
