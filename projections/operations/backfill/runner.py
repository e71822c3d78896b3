"""Runs a backfill: in this process, with the segments of a phase in threads; or by messages to the worker function.

Each message names a segment, whose progress is in the ledger. Messages may be delivered twice, late, or after they were
done. The process that advances a segment, or the run to its next phase, acknowledges its message only after it has sent
the next one. So a message that finds its segment advanced may be dropped, and a message that finds its phase done sends
the messages of the current phase.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from projections.engine.rejections import Rejected
from projections.engine.running import Deadline, OutOfTime, Pacer, at_once
from projections.engine.store import Store
from projections.errors import Transient
from projections.language.program import Program
from projections.operations.backfill.backfill_runs import Backfill, Done, Overtaken
from projections.operations.backfill.pages import PAGE
from projections.operations.backfill.progress import DONE, Run, Segment
from projections.operations.dismissal import among
from projections.operations.dry import MOST_EXAMPLES
from projections.operations.tasks import BackfillTask, TaskSender

_PAGE_SECONDS = 300.0
"""The time for a page. If it is not done then, it has failed and is repeated."""

_MOST_TRIES = 8
"""Attempts for a page, with pauses that grow to 10 seconds. Then its segment is left for the next run of the command."""


def backfill_with_threads(
    packaged: Program, store: Store, *, segments: int, rate: int | None = None, dry: bool = False
) -> Backfill:
    """Return a backfill for a Runner with so many segments, and at most `rate` writes per second."""
    return Backfill(
        packaged,
        store,
        now=lambda: datetime.now(UTC),
        run=at_once(3 * segments),
        page=min(PAGE, 12 * rate) if rate else PAGE,  # a page should take a minute at most
        pace=Pacer(rate) if rate else (lambda writes: None),
        dismissed=partial(among, store),
        dry=dry,
    )


@dataclass(eq=False)
class Runner:
    """Runs a backfill. `report` is called with every page, `report_read` with pages that a dry backfill reads to compute
    totals.

    It can be stopped at any point, and another runner continues. `failed`, `rejected` and `dismissed` have the first few
    items that could not be done, `withheld` those that were not deleted, and `left` those of another kind on which values of
    a removed rule stay; the counts of segments have all.
    """

    backfill: Backfill
    _: KW_ONLY
    report: Callable[[Run, Done], None] = lambda run, done: None
    report_read: Callable[[str, int], None] = lambda what, items: None
    clock: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    failed: dict[str, str] = field(default_factory=dict, init=False)
    rejected: dict[Rejected, None] = field(default_factory=dict, init=False)
    dismissed: dict[Rejected, None] = field(default_factory=dict, init=False)
    withheld: dict[str, None] = field(default_factory=dict, init=False)
    left: dict[str, None] = field(default_factory=dict, init=False)

    def work(self, run: Run, until: str = DONE) -> Run:
        """Do the rest of a run as far as possible, or until a phase, and return it: it may be `done` or not.

        Raises Misconfigured, and KeyboardInterrupt after the pages in progress.
        """
        while not run.done and run.phase != until:
            if not all(segment.done for segment in self._phase(run, self.backfill.segments(run))):
                return run
            run, _ = self.backfill.forward(run)
        return run

    def rehearse(self, run: Run) -> dict[str, Counter[str]]:
        """Do the pages of a dry backfill. Return the counts by phase. `Backfill.adoption` has values that would change."""
        counted: dict[str, Counter[str]] = {}
        for phase in ("items", "entries", "groups", "targets"):
            segments = [
                Segment(phase, table, number, run.segments)
                for table in self.backfill.tables_of(run, phase)
                for number in range(run.segments)
            ]
            counted[phase] = Counter()
            for segment in self._phase(replace(run, phase=phase), segments):
                counted[phase].update(segment.counts)
        counted["targets"].update(self.backfill.compute(run, self.report_read))
        return counted

    def _phase(self, run: Run, segments: Sequence[Segment]) -> list[Segment]:
        remaining = [segment for segment in segments if not segment.done]
        if not remaining:
            return []
        stop = threading.Event()
        with ThreadPoolExecutor(min(len(remaining), run.segments)) as pool:
            futures = [pool.submit(self._segment, run, segment, stop) for segment in remaining]
            try:
                wait(futures, return_when=FIRST_EXCEPTION)
            finally:
                stop.set()
            return [future.result() for future in futures]

    def _segment(self, run: Run, segment: Segment, stop: threading.Event) -> Segment:
        """Do the pages of a segment as far as possible."""
        attempt = 0
        while not segment.done and not stop.is_set():
            failed = {}
            try:
                deadline = Deadline.after(_PAGE_SECONDS, clock=self.clock, sleep=self.sleep)
                done = self.backfill.page(run, segment, deadline)
            except Transient as error:
                failed = {f"segment {segment.number} of {segment.of} of {segment.table}": str(error)}
            else:
                segment, page, _ = done
                failed = dict(page.failed)
                for name in ("rejected", "dismissed", "withheld", "left"):
                    for each in getattr(page, name):
                        _keep(getattr(self, name), each, None)
                if not failed:
                    self.report(run, done)
            attempt = attempt + 1 if failed else 0
            if attempt == _MOST_TRIES:
                for key, reason in failed.items():
                    _keep(self.failed, key, reason)
                break
            if attempt and not stop.is_set():
                self.sleep(min(10.0, 0.1 * 2**attempt))
        return segment


def _keep(examples: dict[Any, Any], key: Any, value: Any) -> None:
    if len(examples) < MOST_EXAMPLES:
        examples[key] = value


def send_tasks(backfill: Backfill, run: Run, send: TaskSender) -> None:
    """Send the messages of a run's phase: one for each segment that is not done."""
    name = run.name
    while run.name == name and not run.done:
        segments = [segment for segment in backfill.segments(run) if not segment.done]
        if segments:
            tasks = [BackfillTask(name, segment.phase, segment.table, segment.number) for segment in segments]
            return send.send([(task, 0.0) for task in tasks])
        run, _ = backfill.forward(run)
    return None


def do_task(backfill: Backfill, task: BackfillTask, deadline: Deadline, send: TaskSender) -> BackfillTask | None:
    """Do one page of a segment. Return the task of the next page, None if there is none.

    Raises Transient if the page has to be repeated.
    """
    run = backfill.progress.run()
    if run is None or run.name != task.run:
        return None  # replaced by another
    if run.phase != task.phase:
        send_tasks(backfill, run, send)
        return None
    segment = backfill.progress.segment(run, task.phase, task.table, task.number)
    if not segment.done:
        try:
            segment, page, ours = backfill.page(run, segment, deadline)
        except Overtaken:  # the other backfill sends its own messages
            return None
        if page.failed:
            key, reason = next(iter(page.failed.items()))
            kind = OutOfTime if deadline.over else Transient
            raise kind(f"a page could not be done, for example because of {key}: {reason}")
        if not segment.done:
            return task if ours else None
    if all(segment.done for segment in backfill.segments(run)):
        send_tasks(backfill, run, send)
    return None
