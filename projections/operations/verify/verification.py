"""A verification from beginning to end: of everything, or of a sample."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from itertools import chain
from typing import Any

from projections.engine.application import ApplicationItems
from projections.engine.ledger_items import LEDGER
from projections.engine.running import Run, one_by_one, slices
from projections.engine.store import Image, Store
from projections.language.keys import encode_key
from projections.operations.verify.candidates import AT_ONCE, BUSY, DRIFTS, LEFT, Candidates
from projections.operations.verify.drift import Drift, with_all_sources
from projections.operations.verify.examine import Examiner
from projections.operations.verify.groups import Groups
from projections.operations.verify.reading import Reading
from projections.operations.verify.scanning import Facts, Scanner, Scratch, Segment
from projections.operations.verify.scope import COPY, GROUP, TARGET, Scope, Subject, merged, of_items, of_ledger
from projections.operations.verify.views import mismatches

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
        self._scratch = scratch
        self._patience = patience
        self._sleep = sleep
        self._report = report
        self._judge = ApplicationItems(scope.program, store, scope.guards)
        self._examiner = Examiner(scope, store, sleep)
        self.candidates = Candidates(self._examiner, scratch, patience=patience, sleep=self._pause, run=run)
        self._scanner = Scanner(store, threads=threads, report=self._count, sleep=sleep, page=page)
        self._groups = Groups(scope, store, scratch, self.candidates, self._scanner)
        self._facts = Facts(scratch)
        self.compares_sources = False
        """Whether all source items are compared with the ledger, so that the wrong side of a difference is known."""
        self.uncompared: dict[str, list[str]] = {}
        """Without a ledger: the rules that were not compared, each with those before it whose values differ."""
        self.guarded = False
        """Whether items have guards, although they were compared without a ledger: functions with a ledger wrote them."""

    def all(self) -> None:
        """Verify everything."""
        self.compares_sources = True
        if self.scope.offline:
            self._offline()
            return
        self._read()
        self._report("comparing", 0)
        self.candidates.add(self._mismatched())
        self._facts.clear()
        self.examine()

    def compared(self) -> Iterator[Drift]:
        """Read everything once, without a ledger, and yield published values that differ from the totals of the items.

        Differences are not examined again: some may be due to changes at the same time.
        """
        self._read()
        for _, drifts in mismatches(self.scope, self._facts):
            yield from drifts
        self._facts.clear()

    def examine(self) -> None:
        """Examine all candidates until each has a verdict, then compare groups."""
        self._report("examining", 0)
        self.candidates.resolve()
        self._report("comparing groups", 0)
        self._groups.compare(sources=self.compares_sources)
        if self.compares_sources:
            self.candidates.change(TARGET, self._groups.judged)
            self.candidates.change(COPY, with_all_sources)

    def compare_groups(self) -> None:
        """Compare the groups of all targets that differ with their entries, so that a repair publishes no damaged group."""
        targets = (one._replace(kind=GROUP) for one in self.candidates.subjects() if one.kind == TARGET)
        for some in slices(targets, AT_ONCE):
            self.add_groups(some)
        self.examine()

    def compare_copies(self) -> None:
        """Read all items that may be the source of a copy that seems to have none, so that a repair deletes no copy whose
        guard names a former source.
        """
        extra = frozenset((one.rule, one.target) for one in self.drifts() if one.kind == "copy extra")
        sources = {self.scope.program.rules[rule].source.table for rule, _ in extra}
        self._scanner.whole([(table, partial(self._find_sources, extra, table)) for table in sorted(sources)])
        self.examine()

    def _find_sources(self, copies: Set[tuple[str, str]], table: str, images: Sequence[Image]) -> None:
        """Examine some copies again, with the sources that this page has for them."""
        schema = self.scope.program.tables[table]
        for image in images:
            source = encode_key(schema.key(table, image))
            for subject in of_items(self.scope, table, [image]):
                made = subject.kind == COPY and subject.sources == (source,)
                if made and (subject.rule, subject.key) in copies:
                    self.candidates.replace(subject)

    def add_groups(self, subjects: Sequence[Subject]) -> None:
        """Add groups, which the next `examine` compares with their entries."""
        self._groups.add(subjects)

    def sample(self, share: float, chance: random.Random | None = None) -> None:
        """Verify a random share of the items and of the ledger (0 to 1).

        Sums of groups are not compared, because that takes all entries.
        """
        chance = chance or random.Random()
        of = min(_MOST_SEGMENTS, max(_PICKED, round(_PICKED / share)))
        picked = max(1, round(share * of))
        wanted: list[Segment] = []
        for table in self.scope.tables:
            each = partial(self._items, table, partial(self._sampled, partial(of_items, self.scope, table)))
            wanted += [Segment(table, number, of, each) for number in chance.sample(range(of), picked)]
        if self.scope.ledger:
            each = partial(self._sampled, partial(of_ledger, self.scope))
            wanted += [Segment(LEDGER, number, of, each) for number in chance.sample(range(of), picked)]
        self._scanner.segments(wanted)
        self._report("examining", 0)
        self.candidates.resolve()

    def drifts(self) -> Iterator[Drift]:
        """Yield all drift, rule by rule."""
        return self.candidates.drifts(DRIFTS)

    def left_over(self) -> Iterator[Drift]:
        """Yield values that rules wrote and no longer correct. They are not drift, because the application may use them."""
        return self.candidates.drifts(LEFT)

    def busy(self) -> Iterator[Drift]:
        """Yield the differences of subjects that kept changing, so that they have no verdict."""
        return self.candidates.drifts(BUSY)

    def _sampled(self, subjects: Callable[[Sequence[Image]], Iterator[Subject]], images: Sequence[Image]) -> None:
        some: list[Subject] = []
        for subject in subjects(images):
            some.append(subject)
            if len(some) == AT_ONCE:
                self.candidates.examine(some)
                some = []
        self.candidates.examine(some)

    def _read(self) -> None:
        """Read all tables once."""
        reading = Reading(self.scope, self._judge)
        tables = [
            (table, partial(self._items, table, partial(self._page, partial(reading.items, table))))
            for table in self.scope.tables
        ]
        if self.scope.ledger:
            tables.append((LEDGER, partial(self._page, reading.ledger)))
        self._scanner.whole(tables)

    def _items(self, table: str, each: Callable[[Sequence[Image]], None], images: Sequence[Image]) -> None:
        """Process a page of an application's table."""
        if self.scope.offline and not self.guarded:
            guards, schema = self.scope.guards, self.scope.program.tables[table]
            self.guarded = any(
                guards.parse(guards.rule(name), schema.key(table, image), value) is not None
                for image in images
                for name, value in image.items()
                if guards.is_guard(name)
            )
        each(images)

    def _page(self, read: Callable[[Sequence[Image]], Any], images: Sequence[Image]) -> None:
        page, wrong = read(images)
        self._facts.keep(page)
        if wrong:
            self.candidates.add(wrong)

    def _mismatched(self) -> Iterator[str]:
        """Yield the texts of subjects with differences, except for groups, which are added to `_groups`."""
        groups: list[Subject] = []
        unfit = chain(
            (merged(texts) for texts in self._facts.unbalanced()),
            (Subject.read(text) for text, _ in mismatches(self.scope, self._facts)),
        )
        for subject in unfit:
            if subject.kind != GROUP:
                yield subject.text()
                continue
            groups.append(subject)
            if len(groups) == AT_ONCE:
                self._groups.add(groups)
                groups = []
        self._groups.add(groups)

    def _offline(self) -> None:
        """Verify without a ledger: compute the groups from the items, twice. Values that differ both times are drift."""
        seen = "CREATE TABLE seen (subject TEXT PRIMARY KEY, drifts TEXT)"
        self._scratch.run(seen)
        for again in (False, True):
            if again:
                self._pause(self._patience)
            self._read()
            for text, drifts in mismatches(self.scope, self._facts):
                self._differs(text, drifts, again)
            self.candidates.add(merged(texts).text() for texts in self._facts.unbalanced())
            self._facts.clear()
        self.candidates.resolve()

    def _differs(self, subject: str, drifts: Sequence[Drift], again: bool) -> None:
        drifts = [self.scope.sided(drift) for drift in drifts]
        if not drifts:  # not published from groups
            self.candidates.add([subject])
            return
        text = "\n".join(drift.text() for drift in drifts)
        if not again:
            self._scratch.run("INSERT OR REPLACE INTO seen VALUES (?, ?)", (subject, text))
            return
        before = self._scratch.one("SELECT drifts FROM seen WHERE subject = ?", (subject,))
        if before is not None:
            self.candidates.drift(subject, drifts, DRIFTS if before == text else BUSY)

    def _count(self, table: str, items: int) -> None:
        with self._lock:
            self.counts[table] += items
        if items:
            self._report(table, items)

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            self._report(f"waiting {seconds:g} s", 0)
            self._sleep(seconds)
