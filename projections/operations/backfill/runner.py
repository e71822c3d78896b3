"""A backfill in this process: the segments of a phase at once, one thread each, and the phases one after another."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import replace
from typing import Any

from projections.engine.deadline import Deadline
from projections.engine.rejections import Rejected
from projections.errors import Transient
from projections.operations.backfill.backfill import Backfill, Done
from projections.operations.backfill.progress import Run, Segment
from projections.operations.caution import MOST_EXAMPLES

__all__ = ["Runner"]

_PAGE_SECONDS = 300.0
"""After so long what is not done of a page has failed, and the page is tried again."""

_MOST_TRIES = 8
"""Of a page, with pauses that grow to 10 seconds; then its segment is left for the next time."""


class Runner:
    """Works off a run. `told` hears of every page, `waiting` of seconds in which nothing is done, `reading` of pages
    that a dry one reads to compute totals.

    Stopping is safe at any point, and another runner goes on from there. `failed` and `rejected` have the first few items
    that could not be done, by key, and `withheld` those that were not deleted; the counts of segments say how many.
    """

    def __init__(
        self,
        backfill: Backfill,
        *,
        told: Callable[[Run, Done], None] = lambda run, done: None,
        waiting: Callable[[float], None] = lambda seconds: None,
        reading: Callable[[str, int], None] = lambda what, items: None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._backfill = backfill
        self._told = told
        self._waiting = waiting
        self._reading = reading
        self._clock = clock
        self._sleep = sleep
        self.failed: dict[str, str] = {}
        self.rejected: dict[Rejected, None] = {}
        self.withheld: dict[str, None] = {}

    def work(self, run: Run) -> Run:
        """All that is left of a run, as far as it can be done: see whether it is `done`.

        Raises Misconfigured, and KeyboardInterrupt after the pages under way.
        """
        try:
            return self._work(run)
        finally:
            self._backfill.release()

    def _work(self, run: Run) -> Run:
        while not run.done:
            if (seconds := run.ready - self._clock()) > 0:
                self._waiting(seconds)
                self._sleep(seconds)
            if not all(segment.done for segment in self._phase(run, self._backfill.segments(run))):
                return run
            run, _ = self._backfill.forward(run)
        return run

    def rehearse(self, run: Run) -> dict[str, Counter[str]]:
        """The pages of a dry backfill; gives what was counted by phase. `Backfill.adoption` has what was kept by hand."""
        counted: dict[str, Counter[str]] = {}
        for phase in ("items", "entries", "groups", "targets"):
            segments = [
                Segment(phase, table, number, run.segments)
                for table in self._backfill.tables_of(run, phase)
                for number in range(run.segments)
            ]
            counted[phase] = Counter()
            for segment in self._phase(replace(run, phase=phase), segments):
                counted[phase].update(segment.counts)
        counted["targets"].update(self._backfill.compute(run, self._reading))
        return counted

    def _phase(self, run: Run, segments: Sequence[Segment]) -> list[Segment]:
        left = [segment for segment in segments if not segment.done]
        if not left:
            return []
        stop = threading.Event()
        with ThreadPoolExecutor(min(len(left), run.segments)) as pool:
            futures = [pool.submit(self._segment, run, segment, stop) for segment in left]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                stop.set()
            return [future.result() for future in futures]

    def _segment(self, run: Run, segment: Segment, stop: threading.Event) -> Segment:
        """Works a segment off, as far as it can be done."""
        attempt = 0
        while not segment.done and not stop.is_set():
            failed = {}
            try:
                done = self._backfill.page(
                    run, segment, Deadline.after(_PAGE_SECONDS, clock=self._clock, sleep=self._sleep)
                )
            except Transient as error:
                failed = {f"segment {segment.number} of {segment.of} of {segment.table}": str(error)}
            else:
                failed, segment = dict(done.failed), done.segment
                for one in done.rejected:
                    _keep(self.rejected, one, None)
                for key in done.withheld:
                    _keep(self.withheld, key, None)
                if not failed:
                    self._told(run, done)
            attempt = attempt + 1 if failed else 0
            if attempt == _MOST_TRIES:
                for key, reason in failed.items():
                    _keep(self.failed, key, reason)
                break
            if attempt and not stop.is_set():
                self._sleep(min(10.0, 0.1 * 2**attempt))
        return segment


def _keep(examples: dict[Any, Any], key: Any, value: Any) -> None:
    if len(examples) < MOST_EXAMPLES:
        examples[key] = value
