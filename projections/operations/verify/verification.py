"""A verification from beginning to end: of everything, or of a sample."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from projections.engine.ledger_items import LEDGER
from projections.engine.running import Run, one_by_one, slices
from projections.engine.store import Image, Store
from projections.operations.verify.candidates import AT_ONCE, BUSY, DRIFTS, LEFT, Candidates
from projections.operations.verify.drift import Drift, with_all_sources
from projections.operations.verify.examine import Examiner
from projections.operations.verify.group_comparison import Groups, evaluate_items
from projections.operations.verify.scanning import PAGE, Scanner, Scratch, Segment, TableCopy
from projections.operations.verify.verify_scope import COPY, TARGET, Scope, of_items, of_ledger

PATIENCE = 20.0
"""Seconds after which a change has usually had all its effects."""

_PICKED = 10
"""The number of segments of each table that a sample reads."""

_MOST_SEGMENTS = 1_000_000


class Verification:
    """Verifies the rules of a scope. It only reads. Its findings are in `candidates`, the numbers of items read in `counts`.

    `patience` is the pause in seconds before a candidate is examined again. `report` is called with each page: the table and
    the number of items; and with the name of each step, with 0 items.
    """

    def __init__(
        self,
        scope: Scope,
        store: Store,
        scratch: Scratch,
        *,
        threads: int = 4,
        patience: float = PATIENCE,
        run: Run[Any] = one_by_one,
        sleep: Callable[[float], None] = time.sleep,
        report: Callable[[str, int], None] = lambda what, items: None,
        page: int = 1000,
    ) -> None:
        self.scope = scope
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._patience = patience
        self._sleep = sleep
        self._report = report
        self._copied = TableCopy(store, scratch, [*scope.tables, LEDGER])
        self._copy = cast(Store, self._copied)
        self._copy_examiner = Examiner(scope, self._copy)
        examiner = self._copy_examiner if scope.offline else Examiner(scope, store, sleep)
        self.candidates = Candidates(examiner, scratch, patience=patience, sleep=self._pause, run=run)
        self._scanner = Scanner(store, threads=threads, report=self._count, sleep=sleep, page=page)
        pause = partial(self._pause, patience)
        self._groups = Groups(scope, store, scratch, self.candidates, self._scanner, pause)
        self.compares_sources = False
        """Whether all source items are compared with the ledger, so that the wrong side of a difference is known."""
        self.uncompared: dict[str, list[str]] = {}
        """Without a ledger: the rules that were not compared, each with those before it whose values differ."""
        self.guarded = False
        """Whether items have guards, although they were compared without a ledger: functions with a ledger wrote them."""

    def all(self) -> None:
        """Verify everything: first in a copy of the tables, then what differs there in the tables themselves."""
        self.compares_sources = True
        self._read()
        self._report("comparing", 0)
        for _ in self.candidates.differing(self._copy_examiner):
            pass
        self._groups.screen(self._copy)
        self.examine()

    def differences(self) -> Iterator[Drift]:
        """Read everything once, without a ledger, and yield published values that differ from the totals of the items.

        Differences are not examined again: some may be due to changes at the same time.
        """
        self._read()
        for finding in self.candidates.differing(self._copy_examiner):
            yield from finding.drifts

    def examine(self) -> None:
        """Examine all candidates until each has a verdict, then compare groups."""
        self._report("examining", 0)
        self.candidates.resolve()
        self._report("comparing groups", 0)
        self._groups.compare(sources=self.compares_sources)
        if self.compares_sources:
            self.candidates.change(TARGET, self._groups.with_source_side)
            self.candidates.change(COPY, with_all_sources)

    def sample(self, share: float, chance: random.Random | None = None) -> None:
        """Verify a random share of the items and of the ledger (0 to 1).

        Sums of groups are not compared, because that takes all entries; without a ledger, neither are published totals.
        """
        chance = chance or random.Random()
        of = min(_MOST_SEGMENTS, max(_PICKED, round(_PICKED / share)))
        picked = max(1, round(share * of))
        wanted: list[Segment] = []
        for table in self.scope.tables:
            each = partial(self._examine_page, table)
            wanted += [Segment(table, number, of, each) for number in chance.sample(range(of), picked)]
        if self.scope.ledger:
            each = partial(self._examine_page, LEDGER)
            wanted += [Segment(LEDGER, number, of, each) for number in chance.sample(range(of), picked)]
        self._scanner.segments(wanted)
        self._report("examining", 0)
        self.candidates.resolve()

    def drifts(self) -> Iterator[Drift]:
        """Yield all drift, rule by rule, each named as by `Scope.shown_name`."""
        return self._shown_drifts(DRIFTS)

    def left_over(self) -> Iterator[Drift]:
        """Yield values that rules wrote and no longer correct. They are not drift, because the application may use them."""
        return self._shown_drifts(LEFT)

    def busy(self) -> Iterator[Drift]:
        """Yield the differences of subjects that kept changing, so that they have no verdict."""
        return self._shown_drifts(BUSY)

    def by_lanes(self) -> dict[str, tuple[int, int]]:
        """Return how many groups were compared with items, by version, and how many of them kept changing."""
        shown_name, groups = self.scope.shown_name, self._groups
        return {shown_name(name): (groups.numbers[name], groups.busy[name]) for name in sorted(self.scope.lanes)}

    def _shown_drifts(self, table: str) -> Iterator[Drift]:
        return (replace(drift, rule=self.scope.shown_name(drift.rule)) for drift in self.candidates.drifts(table))

    def _examine_page(self, table: str, images: Sequence[Image]) -> None:
        subjects = of_ledger(self.scope, images) if table == LEDGER else of_items(self.scope, table, images)
        if self.scope.offline:
            self._find_guards(table, images)
            subjects = (subject for subject in subjects if subject.kind != TARGET)
        for batch in slices(subjects, AT_ONCE):
            self.candidates.examine(batch)

    def _find_guards(self, table: str, images: Sequence[Image]) -> None:
        guards, schema = self.scope.guards, self.scope.program.tables[table]
        self.guarded = self.guarded or any(
            guards.parse(guards.rule(name), schema.key(table, image), value) is not None
            for image in images
            for name, value in image.items()
            if guards.is_guard(name)
        )

    def _read(self, *, again: bool = False) -> None:
        """Copy all tables, and make everything in them a candidate, unless they are read again."""
        self._copied.clear()
        tables = [*self.scope.tables, *([LEDGER] if self.scope.ledger else [])]
        self._scanner.whole([(table, partial(self._page, table, again)) for table in tables])
        if self.scope.offline:
            for images in slices(self._groups.computed_items(), PAGE):
                self._page(LEDGER, again, images)
        self._copied.index()

    def _page(self, table: str, again: bool, images: Sequence[Image]) -> None:
        self._copied.keep(table, images)
        if table != LEDGER and self.scope.offline:
            self._contribute(table, images)
        elif table == LEDGER and not self.scope.offline:
            self._groups.add_all(images)
        elif table in self._groups.read_from:
            sources, failing = evaluate_items(self.scope.program, table, images)
            self.candidates.add(failing)
            self._groups.add_of_items(sources)
        if not again:
            subjects = of_ledger(self.scope, images) if table == LEDGER else of_items(self.scope, table, images)
            self.candidates.add(subjects)

    def _contribute(self, table: str, images: Sequence[Image]) -> None:
        """Without a ledger: add what the items of a page contribute to the groups that are computed."""
        self._find_guards(table, images)
        sources, failing = evaluate_items(self.scope.program, table, images)
        self.candidates.add(failing)
        self._copied.keep(LEDGER, self._groups.contribute(sources))

    def _count(self, table: str, items: int) -> None:
        with self._lock:
            self.counts[table] += items
        if items:
            self._report(table, items)

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            self._report(f"waiting {seconds:g} s", 0)
            self._sleep(seconds)
        if self.scope.offline and self.compares_sources:
            self._read(again=True)
