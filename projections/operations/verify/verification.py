"""A verification from beginning to end: everything, or a sample of it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence, Set
from functools import partial
from itertools import chain, islice
from typing import Any

from projections.engine.application import ApplicationItems
from projections.engine.ledger_items import LEDGER
from projections.engine.running import Run, one_by_one
from projections.engine.store import Image, Store
from projections.language.keys import encode_key
from projections.operations.verify.drift import Drift, with_all_sources
from projections.operations.verify.examine import Examiner
from projections.operations.verify.facts import Facts
from projections.operations.verify.groups import Groups
from projections.operations.verify.reading import Reading
from projections.operations.verify.scanning import Scanner, Segment
from projections.operations.verify.scope import Scope
from projections.operations.verify.scratch import Scratch
from projections.operations.verify.subject import COPY, GROUP, TARGET, Subject, merged, of_items, of_ledger
from projections.operations.verify.suspects import AT_ONCE, BUSY, DRIFTS, LEFT, Suspects
from projections.operations.verify.views import misfits

__all__ = ["PATIENCE", "Verification"]

PATIENCE = 20.0
"""Seconds after which a change has had its last effect, as a rule."""

_PICKED = 10
"""How many segments a sample reads of each table."""

_MOST_SEGMENTS = 1_000_000


class Verification:
    """Verifies the rules of a scope. Reads only. What it finds is in `suspects`, what it read in `counts`.

    `patience` is the pause in seconds before a suspect is looked at again. `told` hears of every page that is read: the
    table, and how many items; and of what comes next, with no items.
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
        told: Callable[[str, int], None] = lambda what, items: None,
        page: int = 1000,
    ) -> None:
        self.scope = scope
        self.counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._scratch = scratch
        self._patience = patience
        self._sleep = sleep
        self._told = told
        self._judge = ApplicationItems(scope.program, store, scope.guards)
        self._examiner = Examiner(scope, store, sleep)
        self.suspects = Suspects(self._examiner, scratch, patience=patience, sleep=self._pause, run=run)
        self._scanner = Scanner(store, threads=threads, told=self._count, sleep=sleep, page=page)
        self._groups = Groups(scope, store, scratch, self.suspects, self._scanner)
        self._facts = Facts(scratch)
        self.compares_sources = False
        """Whether all source items are compared with the ledger, which tells which side of a difference is wrong."""

    def all(self) -> None:
        """Verifies everything."""
        self.compares_sources = True
        if self.scope.offline:
            self._offline()
            return
        self._read()
        self._told("comparing", 0)
        self.suspects.add(self._unfit())
        self._facts.clear()
        self.examine()

    def compared(self) -> Iterator[Drift]:
        """Read everything once, without a ledger, and yield where published values differ from what the items add up to.

        Nothing is looked at again: what changes meanwhile may be among it.
        """
        self._read()
        for _, drifts in misfits(self.scope, self._facts):
            yield from drifts
        self._facts.clear()

    def examine(self) -> None:
        """Looks at all suspects until they are settled, and at all suspected groups."""
        self._told("examining", 0)
        self.suspects.settle()
        self._told("comparing groups", 0)
        self._groups.settle(sources=self.compares_sources)
        if self.compares_sources:
            self.suspects.change(TARGET, self._groups.judged)
            self.suspects.change(COPY, with_all_sources)

    def compare_groups(self) -> None:
        """Compares the groups of all targets that differ with their entries, so that a repair publishes no damaged group."""
        targets = (one._replace(kind=GROUP) for one in self.suspects.subjects() if one.kind == TARGET)
        while some := list(islice(targets, AT_ONCE)):
            self.suspect_groups(some)
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
                    self.suspects.replace(subject)

    def suspect_groups(self, subjects: Sequence[Subject]) -> None:
        """Groups to be compared with their entries by the next `examine`."""
        self._groups.add(subjects)

    def sample(self, share: float, chance: random.Random | None = None) -> None:
        """Verifies a share of the items and of the ledger (0 to 1), drawn by lot.

        What only all entries together tell, the sums of groups, is not compared.
        """
        chance = chance or random.Random()
        of = min(_MOST_SEGMENTS, max(_PICKED, round(_PICKED / share)))
        picked = max(1, round(share * of))
        wanted: list[Segment] = []
        for table in self.scope.tables:
            each = partial(self._sampled, partial(of_items, self.scope, table))
            wanted += [Segment(table, number, of, each) for number in chance.sample(range(of), picked)]
        if self.scope.ledger:
            each = partial(self._sampled, partial(of_ledger, self.scope))
            wanted += [Segment(LEDGER, number, of, each) for number in chance.sample(range(of), picked)]
        self._scanner.segments(wanted)
        self._told("examining", 0)
        self.suspects.settle()

    def drifts(self) -> Iterator[Drift]:
        """All drift, rule by rule."""
        return self.suspects.drifts(DRIFTS)

    def left_over(self) -> Iterator[Drift]:
        """What rules wrote and correct no more. It is no drift: nothing tells whose it is."""
        return self.suspects.drifts(LEFT)

    def busy(self) -> Iterator[Drift]:
        """What kept changing while it was looked at, so that nothing can be told of it."""
        return self.suspects.drifts(BUSY)

    def _sampled(self, subjects: Callable[[Sequence[Image]], Iterator[Subject]], images: Sequence[Image]) -> None:
        some: list[Subject] = []
        for subject in subjects(images):
            some.append(subject)
            if len(some) == AT_ONCE:
                self.suspects.look_at(some)
                some = []
        self.suspects.look_at(some)

    def _read(self) -> None:
        """One pass through all tables."""
        reading = Reading(self.scope, self._judge)
        tables = [(table, partial(self._page, partial(reading.items, table))) for table in self.scope.tables]
        if self.scope.ledger:
            tables.append((LEDGER, partial(self._page, reading.ledger)))
        self._scanner.whole(tables)

    def _page(self, read: Callable[[Sequence[Image]], Any], images: Sequence[Image]) -> None:
        page, wrong = read(images)
        self._facts.keep(page)
        if wrong:
            self.suspects.add(wrong)

    def _unfit(self) -> Iterator[str]:
        """The texts of subjects that do not fit; groups are put aside."""
        groups: list[Subject] = []
        unfit = chain(
            (merged(texts) for texts in self._facts.unbalanced()),
            (Subject.read(text) for text, _ in misfits(self.scope, self._facts)),
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
        """Without a ledger: what groups would say is computed from the items, twice. What differs in both is drift."""
        seen = "CREATE TABLE seen (subject TEXT PRIMARY KEY, drifts TEXT)"
        self._scratch.run(seen)
        for again in (False, True):
            if again:
                self._pause(self._patience)
            self._read()
            for text, drifts in misfits(self.scope, self._facts):
                self._differs(text, drifts, again)
            self.suspects.add(merged(texts).text() for texts in self._facts.unbalanced())
            self._facts.clear()
        self.suspects.settle()

    def _differs(self, text: str, drifts: Sequence[Drift], again: bool) -> None:
        drifts = [self.scope.sided(drift) for drift in drifts]
        if not drifts:  # of what is not published from groups
            self.suspects.add([text])
            return
        told = "\n".join(drift.text() for drift in drifts)
        if not again:
            self._scratch.run("INSERT OR REPLACE INTO seen VALUES (?, ?)", (text, told))
            return
        before = self._scratch.one("SELECT drifts FROM seen WHERE subject = ?", (text,))
        if before is not None:
            self.suspects.drift(text, drifts, DRIFTS if before == told else BUSY)

    def _count(self, table: str, items: int) -> None:
        with self._lock:
            self.counts[table] += items
        if items:
            self._told(table, items)

    def _pause(self, seconds: float) -> None:
        if seconds > 0:
            self._told(f"waiting {seconds:g} s", 0)
            self._sleep(seconds)
