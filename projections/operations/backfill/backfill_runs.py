"""A backfill from beginning to end: runs, their phases and waits. `pages` has the work of a page.

A phase begins when all segments of the previous phase are done. Before the first, and between `live` and `groups`, the
backfill waits for one function timeout, so that all invocations with older state have ended. Everything here may be done
twice, and by several processes at once: the state in the ledger decides.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from projections.engine import rebuild, rivals
from projections.engine.groups import Generations
from projections.engine.ledger_items import LEDGER
from projections.engine.registry import FILLING, RETIRING, Registry, RegistrySnapshot, Replaced, close_leases
from projections.engine.rejections import Rejected
from projections.engine.running import Deadline, one_by_one
from projections.engine.running import Run as RunPieces
from projections.engine.store import Store
from projections.errors import ConditionFailed, UsageError
from projections.language.program import Program
from projections.operations.backfill.pages import PAGE, Pages, creates, rebuilds
from projections.operations.backfill.progress import DONE, MOST_SECONDS, PHASES, Progress, Run, Segment
from projections.operations.dry import Adoption, DryStore, compute
from projections.operations.fenced import LEASE_SECONDS, Fenced

_SECONDS = 300.0
"""How long throttled work between phases is retried."""

_MOST_TRIES = 20
"""Attempts to replace a run that makes progress at the same time."""


class Overtaken(Replaced):
    """Another backfill began, or other rules became active."""

    def __init__(self) -> None:
        super().__init__("another backfill, or other rules, replaced this backfill. `projections status` shows which")


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a page: the segment after it, failed, rejected and withheld keys, and rejections that were `dismissed`.

    If any key failed, the segment has not advanced. `ours` if this page advanced the segment; otherwise another process
    works on the segment, and has advanced it.
    """

    segment: Segment
    failed: Mapping[str, str]
    rejected: Sequence[Rejected]
    withheld: Sequence[str]
    ours: bool = True
    dismissed: Sequence[Rejected] = ()


class Backfill:
    """The backfill of one program on the tables of a store. Safe for threads.

    `now` gives the time with its zone. `run` runs the requests of a page, `page` is the number of items that it reads.
    `pace` is called before writes with their number, and may wait. `quarantine` gets rejected records before the page is
    done. `dismissed` returns those that nobody needs to see again: they are counted apart. A `dry` backfill writes nothing.
    `named` returns unique names of runs.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        *,
        now: Callable[[], datetime],
        run: RunPieces[Any] = one_by_one,
        page: int = PAGE,
        pace: Callable[[int], None] = lambda writes: None,
        quarantine: Callable[[Sequence[Rejected]], None] | None = None,
        dismissed: Callable[[Sequence[Rejected]], Sequence[Rejected]] = lambda rejected: (),
        dry: bool = False,
        named: Callable[[], str] = lambda: uuid.uuid4().hex[:8],
        chance: Callable[[], float] = random.random,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._program = program
        self._store = store
        self._sleep = sleep
        self._chance = chance
        self._fences = threading.Lock()
        self._fence: tuple[str, Fenced] | None = None
        self._quarantine = quarantine
        self._named_next = named
        self.now = now
        self._dry = dry
        self.registry = Registry(program, store, FILLING)
        self.progress = Progress(store)
        self._pages = Pages(
            program,
            store,
            self.registry,
            run=run,
            size=page,
            pace=pace,
            dry=dry,
            dismissed=dismissed,
            clock=self._clock,
            chance=chance,
        )

    def _clock(self) -> float:
        return self.now().timestamp()

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the rules."""
        return self._program.fingerprint

    # Runs

    def begin(
        self,
        *,
        rules: Iterable[str] = (),
        segments: int = 4,
        wait: float = 60.0,
        allow_delete: bool = False,
        restart: bool = False,
        new_secret: bool = False,
    ) -> Run:
        """Activate the rules and start a run, or continue an equal one that has not ended and is less than 24 hours old.

        With `new_secret`, the run begins again and signs all guards with a new secret of the ledger.

        Its first page may begin at `ready`. Raises UsageError and Misconfigured.
        """
        names = self._rule_names(rules)
        known = self.progress.run()
        if names and (now := self.registry.read()) is not None and now.provisional(self._program):
            raise UsageError(
                "functions have worked with rules that are not active (`projections status` shows which), perhaps on items "
                "of all rules. Run the backfill of all rules first"
            )
        snapshot = self.registry.activate()
        if new_secret:
            if names:
                raise UsageError("--new-secret concerns the guards of all rules. Run it without --select")
            restart = restart or len(snapshot.identity.secrets) == 1
            snapshot = self.registry.rotate()
        wanted = (self.fingerprint, snapshot.active_since, names, allow_delete)
        going = known if known is not None and not known.done and not restart and not self._is_expired(known) else None
        if going is not None and (going.program, going.epoch, going.rules, going.allow_delete) == wanted:
            return going
        # In the first epoch no function had other rules. Later a function may still have them, also if the epoch was raised
        # by a backfill that died before it recorded its run.
        mixed = snapshot.active_since > 1 and any(rule.state in (FILLING, RETIRING) for rule in snapshot.rules.values())
        ready = self.now().timestamp() + wait if mixed or new_secret else 0.0
        run = self._run(
            self._named_next(), snapshot, names, segments, allow_delete=allow_delete, wait=wait, ready=ready
        )
        run = self._instead(run, known, snapshot)
        # those of the previous run, and of processes that died
        close_leases(
            self._store,
            run=known.name if known is not None else None,
            opened_before=self.now().timestamp() - LEASE_SECONDS,
        )
        return run

    def _instead(self, run: Run, known: Run | None, snapshot: RegistrySnapshot) -> Run:
        """Make a run the newest one, instead of the known run, which may advance to other phases at the same time."""
        newest = known
        for _ in range(_MOST_TRIES):
            run = replace(run, replaces=known.name if known is not None else "")
            with suppress(ConditionFailed):
                self._adopt(run, newest, snapshot)
                if self.progress.begin(run, newest):
                    return run
            newest = self.progress.run()
            if newest is None or known is None or newest.name != known.name:
                break
        self.release()
        raise UsageError("another backfill began at the same time. `projections status` shows its progress")

    def _is_expired(self, run: Run) -> bool:
        """Return whether a run is older than the records of a stream: its results may be outdated."""
        return (self.now() - datetime.fromisoformat(run.began)).total_seconds() > MOST_SECONDS

    def _adopt(self, run: Run, newest: Run | None, snapshot: RegistrySnapshot) -> None:
        """Take over the rebuilds that have not ended: close their groups, so that pages can move the entries.

        If several backfills start at the same time, the one that succeeds ends the rebuilds that any of them took over.
        Raises ConditionFailed if another one succeeded.
        """
        notes = list(rebuild.notes(self._store))
        if not notes:
            return
        store = self._fenced_store(run, snapshot)
        store.open()
        claim = rebuild.Claim(run.replaces, self.progress.unchanged_check(newest))
        for note in notes:  # one after another: transactions that check the same item conflict
            if note.target[0] in self._program.rules:
                rebuild.close(store, self._program, note.target, Generations(), self._deadline(), self._clock, claim)
            else:  # its entries are removed with it
                with suppress(ConditionFailed):
                    store.write(rebuild.forgotten(note))

    def unrecorded_run(self, rules: Iterable[str], segments: int) -> Run:
        """Return a run that is not recorded, for a dry backfill. Raises UsageError and Misconfigured."""
        self._pages.adoption = Adoption(self._program, self.registry.read())
        return self._run("dry", self.registry.preview(), self._rule_names(rules), segments)

    @property
    def adoption(self) -> Adoption | None:
        """For a dry backfill: the values of the application that would change."""
        return self._pages.adoption

    def compute(self, run: Run, report: Callable[[str, int], None] = lambda what, items: None) -> Counter[str]:
        """Record in `adoption` what filling rules would change when this run is complete. Return the cost."""
        store = DryStore(self._store)
        assert self.adoption is not None
        after = self.registry.preview()
        compute(self._program, store, after, self.adoption, only=run.rules, threads=run.segments, report=report)
        return store.done

    def _run(
        self, name: str, snapshot: RegistrySnapshot, rules: tuple[str, ...], segments: int, **settings: Any
    ) -> Run:
        retiring = [] if rules else [name for name, rule in snapshot.rules.items() if rule.state == RETIRING]
        return Run(
            name=name,
            program=self.fingerprint,
            epoch=snapshot.active_since,
            rules=rules,
            retiring=tuple(sorted(retiring)),
            tables=tuple(self._tables(rules)),
            segments=segments,
            phase=PHASES[0],
            began=self.now().isoformat(timespec="seconds"),
            **settings,
        )

    def _rule_names(self, rules: Iterable[str]) -> tuple[str, ...]:
        names = tuple(sorted(set(rules)))
        for name in names:
            if name not in self._program.rules:
                raise UsageError(f'unknown rule "{name}"; the rules are {", ".join(self._program.rules)}')
        return names

    def _tables(self, rules: Sequence[str]) -> list[str]:
        """Return the application's tables with items that these rules, or all, read or write."""
        if not rules:
            return list(self._program.tables)
        chosen = [self._program.rules[name] for name in rules]
        tables = {entity.table for rule in chosen for entity in (*rule.sources, rule.into)}
        return [name for name in self._program.tables if name in tables]

    def tables_of(self, run: Run, phase: str) -> Sequence[str]:
        """Return the tables that a phase scans."""
        if phase == "items":
            return run.tables
        if phase == "entries":
            return (LEDGER,)
        into = self._program.ledger_rules_into
        if phase == "groups":
            made = any(creates(rule) for rules in into.values() for rule in rules)
            alone = {name for name, rule in self._program.recorded.items() if not rule.writes_items}
            return (LEDGER,) if made or not alone.isdisjoint(name.partition("@")[0] for name in run.retiring) else ()
        if phase == "targets":
            published = {self._program.entities[name].table for name in into}
            return tuple(name for name in run.tables if name in published or run.retiring)
        return ()

    def segments(self, run: Run) -> list[Segment]:
        """Return the segments of the run's phase with their progress."""
        return self.progress.segments(run, run.phase, self.tables_of(run, run.phase))

    def forward(self, run: Run) -> tuple[Run, bool]:
        """Advance a run whose phase is done. The next phase may begin at `ready`. Return False if another process did it."""
        following = PHASES[PHASES.index(run.phase) + 1]
        if following == "live":
            snapshot = self._snapshot(run)
            filling = [name for name, rule in snapshot.rules.items() if rule.state == FILLING]
            filled = tuple(name for name in filling if not run.rules or name in run.rules)
            for note in rebuilds(self._store, run):
                rebuild.reopen(self._fenced_store(run, snapshot), note.target, note.generation)
            return self.progress.move(run, phase=following, filled=filled)
        if run.phase == "live":
            self.registry.complete(run.filled)
            ready = self.now().timestamp() + run.wait if run.filled else 0.0
            return self.progress.move(run, phase=following, ready=ready)
        if run.phase == "groups" and rebuilds(self._store, run):
            snapshot = self._snapshot(run)
            self._pages.rebuilt(run, snapshot, self._deadline(), self._fenced_store(run, snapshot))
        if following == DONE:
            self.registry.forget(self._retired_rules(run))
            if not run.rules:
                self.registry.drop_former_secret()
                rivals.forget(self._store, datetime.fromisoformat(run.began).timestamp())
            return self.progress.move(run, phase=following, ended=self.now().isoformat(timespec="seconds"))
        return self.progress.move(run, phase=following)

    def _retired_rules(self, run: Run) -> list[str]:
        """Return the rules whose traces are all removed. A withheld deletion counts for one rule, but may concern others."""
        counts = self.report(run).get("targets", Counter())
        kept = ["withheld"] if run.allow_delete else ["withheld", "unmade"]
        return [name for name in run.retiring if not any(counts[f"{why}|{name.partition('@')[0]}"] for why in kept)]

    def report(self, run: Run) -> dict[str, Counter[str]]:
        """Return the counts so far by phase; see `pages`."""
        counts: dict[str, Counter[str]] = {}
        for phase in PHASES:
            if tables := self.tables_of(run, phase):
                counts[phase] = Counter()
                for segment in self.progress.segments(run, phase, tables):
                    counts[phase].update(segment.counts)
        return counts

    # Pages

    def page(self, run: Run, segment: Segment, deadline: Deadline) -> Done:
        """Do the next page of a segment. Raises Transient if it cannot be read, and Overtaken."""
        snapshot = self._snapshot(run)
        fenced = self._fenced_store(run, snapshot) if not self._dry else None
        if fenced is not None:
            fenced.open()
        page = self._pages.do(run, segment, snapshot, deadline, fenced)
        if page.failed:
            return Done(segment, page.failed, page.rejected, page.withheld)
        if page.rejected and self._quarantine is not None:
            self._quarantine(page.rejected)
        after = segment.after_page(page.after, page.counts, page.rejected)
        if fenced is None or Progress(fenced).keep(run, segment, after):
            return Done(after, {}, page.rejected, page.withheld, dismissed=page.dismissed)
        after = self.progress.segment(run, segment.phase, segment.table, segment.number)
        return Done(after, {}, page.rejected, page.withheld, ours=False, dismissed=page.dismissed)

    def _snapshot(self, run: Run) -> RegistrySnapshot:
        """Return the current registry. Rules that are not live in it publish nothing."""
        if self._dry:
            return self.registry.preview()
        snapshot, newest = self.registry.read(), self.progress.run()
        if snapshot is None or (snapshot.program, snapshot.active_since) != (run.program, run.epoch):
            raise Overtaken
        if newest is None or newest.name != run.name:
            raise Overtaken
        return snapshot

    # Leases

    def _fenced_store(self, run: Run, snapshot: RegistrySnapshot) -> Fenced:
        """Return the store for this run, which writes only while the registry is as in `snapshot`."""
        with self._fences:
            if self._fence is not None:
                name, fenced = self._fence
                if (name, fenced.snapshot.epoch) == (run.name, snapshot.epoch):
                    return fenced
            fenced = Fenced(self._store, snapshot, run.name, clock=self._clock, named=self._named_next)
            self._fence = run.name, fenced
            return fenced

    def release(self) -> None:
        """Close the leases of this process, which has no more work now. It may continue later."""
        with self._fences:
            held, self._fence = self._fence, None
        if held is not None:
            held[1].close()

    def _deadline(self) -> Deadline:
        return Deadline.after(_SECONDS, clock=lambda: self.now().timestamp(), sleep=self._sleep, chance=self._chance)
