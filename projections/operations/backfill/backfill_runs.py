"""A backfill from beginning to end: runs and their phases. `pages` has the work of a page.

A phase begins when all segments of the previous phase are done. Everything here may be done twice, and by several
processes at once, however late they wake up: the state in the ledger decides, and each page reads the registry.

    items, entries   fill: all that versions read, and what entries record of items that are gone
    promote          the filled versions are published from now on
    groups, targets  publish, also where only former versions have published, and clear what these have left
"""

from __future__ import annotations

import random
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

from projections.engine import rivals
from projections.engine.lanes import FORGOTTEN_HOURS
from projections.engine.ledger_items import LEDGER
from projections.engine.registry import GAP_TODO, Registry, RegistrySnapshot, Version
from projections.engine.rejections import Rejected
from projections.engine.running import MOST_TRIES, Deadline, Reload, one_by_one, tries
from projections.engine.running import Run as RunPieces
from projections.engine.store import Store
from projections.errors import UsageError
from projections.language.program import Program
from projections.language.rules import LedgerRule, Totals, public_name
from projections.operations.backfill.pages import PAGE, Page, Pages
from projections.operations.backfill.progress import MOST_SECONDS, PHASES, STANDBY_SECONDS, Progress, Run, Segment
from projections.operations.dry import Adoption, DryStore, compute


class Overtaken(UsageError):
    """Another backfill began."""

    def __init__(self) -> None:
        super().__init__("another backfill replaced this one. `projections status` shows which")


class Done(NamedTuple):
    """The segment after a page, and the page. If any key failed, the segment has not advanced. `ours` if this page advanced
    the segment; otherwise another process works on the segment, and has advanced it.
    """

    segment: Segment
    page: Page
    ours: bool = True


class Backfill:
    """The backfill of one registry on the tables of a store. Safe for threads. `packaged` begins an empty registry.

    `now` gives the time with its zone. `run` runs the requests of a page, `page` is the number of items that it reads.
    `pace` is called before writes with their number, and may wait. `quarantine` gets rejected records before the page is
    done. `dismissed` returns those that nobody needs to see again: they are counted apart. A `dry` backfill writes nothing.
    `named` returns unique names of runs.
    """

    def __init__(
        self,
        packaged: Program,
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
    ) -> None:
        self._packaged = packaged
        self._store = store
        self._quarantine = quarantine
        self._named_next = named
        self.now = now
        self._dry = dry
        self.registry = Registry(packaged, store, filled=False, now=self._clock)
        self.progress = Progress(store)
        self._pages = Pages(
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
        self._planned: RegistrySnapshot | None = None
        """Of a dry run: the registry as it would be."""

    def _clock(self) -> float:
        return self.now().timestamp()

    # Runs

    def begin(
        self,
        *,
        versions: Collection[str] | None = None,
        promotes: bool = True,
        fills: bool = True,
        segments: int = 4,
        allow_delete: bool = False,
        restart: bool = False,
        new_secret: bool = False,
    ) -> Run:
        """Start a run, or continue an equal one that has not ended and is less than 24 hours old.

        It fills `versions`, refreshes all that depends on items, and `promotes` the filled ones that are not held. Without
        `versions`, it fills all that are filling, and counts those again that lanes count (`lanes_to_recount`), because a
        refresh does not correct them; these are promoted in any case. Without `fills` it only promotes. With `new_secret`,
        it begins again and signs all guards with a new secret of the ledger. Raises UsageError and Misconfigured.
        """
        known = self.progress.run()
        snapshot, program = self.registry.current()
        if new_secret:
            restart = restart or len(snapshot.identity.secrets) == 1
            snapshot = self.registry.rotate()
        if versions is None:
            names = _waiting(snapshot)
        else:
            names = tuple(name for name in versions if self._is_waiting(snapshot, name))
        going = known if known is not None and not known.done and not restart else None
        if going is not None and (self.now() - datetime.fromisoformat(going.began)).total_seconds() > MOST_SECONDS:
            going = None  # it is older than the records of a stream: its results may be outdated
        if going is not None and (going.promotes, going.allow_delete) == (promotes, allow_delete):
            waiting = tuple(name for name in going.versions if self._is_waiting(snapshot, name))
            if waiting == names and not any(version.promoted > going.epoch for version in unread(snapshot)):
                return going
        if versions is None and fills and (rules := lanes_to_recount(snapshot)):
            snapshot = self.registry.recount(rules).snapshot
            names = _waiting(snapshot)
        if fills and (cleaned := cleanable_versions(snapshot, self._clock())):
            snapshot = self.registry.remove((), cleaned)
        run = Run(
            name=self._named_next(),
            versions=names,
            tables=tuple(program.tables),
            segments=segments,
            phase=PHASES[0] if fills else "promote",
            began=self.now().isoformat(timespec="seconds"),
            promotes=promotes,
            scans=fills or bool(incomplete(snapshot)) or _shows_other_zeros(program, snapshot, names),
            allow_delete=allow_delete,
            rotates=new_secret,
            epoch=snapshot.epoch,
        )
        for _ in range(MOST_TRIES):
            if self.progress.begin(run, known):
                return run
            newest = self.progress.run()
            if newest is None or known is None or newest.name != known.name:
                break
            known = newest  # it makes progress
        raise UsageError("another backfill began at the same time. `projections status` shows its progress")

    def apply(
        self,
        program: Program,
        fates: Mapping[str, str] | None = None,
        *,
        hold: bool = False,
        segments: int = 4,
        allow_delete: bool = False,
        restart: bool = False,
        streams: Mapping[str, str] = MappingProxyType({}),
    ) -> Run | None:
        """Register the rules of a file, and start or continue the run that fills and publishes them.

        Returns None if nothing is to be filled, published or removed. `fates` and `hold` are as in `Registry.register`; with
        `hold`, filled versions are not published. `streams` has the label of each table's stream, from which lanes count:
        records of another one are a gap. Raises UsageError and Misconfigured.
        """
        snapshot, chosen = self.registry.register(program, fates, hold=hold)
        by_lanes = self.registry.program(snapshot).lanes_from
        for table, label in streams.items():
            if label and (names := by_lanes.get(table)):
                snapshot = self.registry.note_stream(names, table, label)
        versions = [v.name for v in chosen.values() if v.state == "filling" or (v.state != "active" and not v.held)]
        fills = restart or bool(unread(snapshot)) or any(version.state == "filling" for version in chosen.values())
        if not (versions or fills or incomplete(snapshot)):
            snapshot = self.registry.remove(spare_versions(snapshot, self._clock()))  # none takes over what they kept
            if not cleanable_versions(snapshot, self._clock()):
                return None
            fills = True
        return self.begin(
            versions=versions,
            promotes=not hold,
            fills=fills,
            segments=segments,
            allow_delete=allow_delete,
            restart=restart,
        )

    @staticmethod
    def _is_waiting(snapshot: RegistrySnapshot, name: str) -> bool:
        """Return whether a version can be filled or promoted."""
        return name in snapshot.versions and snapshot.versions[name].state in ("filling", "ready", "standby")

    def unrecorded_run(self, planned: RegistrySnapshot, segments: int) -> Run:
        """Return a run that is not recorded, for a dry backfill: the registry is as `planned`."""
        self._planned = planned
        program = self.registry.program(planned)
        self._pages.adoption = Adoption(program, self.registry.read())
        filling = tuple(name for name, version in planned.versions.items() if version.state == "filling")
        now, scans = self.now().isoformat(timespec="seconds"), bool(program.recorded)
        return Run("dry", filling, tuple(program.tables), segments, PHASES[0], now, scans=scans)

    @property
    def adoption(self) -> Adoption | None:
        """For a dry backfill: the values of the application that would change."""
        return self._pages.adoption

    def compute(self, run: Run, report: Callable[[str, int], None] = lambda what, items: None) -> Counter[str]:
        """Record in `adoption` what filling versions would change when this run is complete. Return the cost."""
        store = DryStore(self._store)
        assert self.adoption is not None
        snapshot, program = self._current()
        compute(program, store, snapshot, self.adoption, threads=run.segments, report=report)
        return store.done

    def _current(self) -> tuple[RegistrySnapshot, Program]:
        if self._planned is not None:
            return self._planned, self.registry.program(self._planned)
        return self.registry.current()

    def tables_of(self, run: Run, phase: str) -> Sequence[str]:
        """Return the tables that a phase scans."""
        if phase == "items":
            return run.tables
        if phase in ("entries", "groups"):
            return (LEDGER,)
        return run.tables if phase == "targets" and run.scans else ()

    def segments(self, run: Run) -> list[Segment]:
        """Return the segments of the run's phase with their progress."""
        return self.progress.segments(run, run.phase, self.tables_of(run, run.phase))

    def decline(self, run: Run) -> Run:
        """Let a run promote nothing. What it has filled stays ready."""
        return self.progress.move(run, promotes=False)[0]

    def forward(self, run: Run) -> tuple[Run, bool]:
        """Advance a run whose phase is done. Return False if another process did it."""
        following = PHASES[PHASES.index(run.phase) + 1]
        if run.phase == "entries":
            self.registry.fill(run.versions)
        elif run.phase == "promote":
            return self._promote(run)
        if following == PHASES[-1]:
            self._finish(run)
            return self.progress.move(run, phase=following, ended=self.now().isoformat(timespec="seconds"))
        return self.progress.move(run, phase=following)

    def _promote(self, run: Run) -> tuple[Run, bool]:
        snapshot = self.registry.read_or_create()
        there = [snapshot.versions[name] for name in run.versions if name in snapshot.versions]
        promoted = [v.name for v in there if not v.held and (run.promotes or is_recount(snapshot, v))]
        if promoted:
            snapshot = self.registry.promote(promoted)
        late = {version.name for version in unread(snapshot) if version.promoted > run.epoch}
        published = [v for v in snapshot.versions.values() if v.state == "active" and v.name not in late]
        unfinished = {version.rule for version in published if version.unfinished}
        former = [
            version.name
            for version in snapshot.versions.values()
            if (version.state == "leaving" and version.rule not in snapshot.unreadable)
            or (version.state == "standby" and version.rule in unfinished and not version.held)
        ]
        return self.progress.move(
            run,
            phase="groups",
            scans=run.scans and bool(former or self.registry.program(snapshot).ledger_rules_into),
            published=tuple((version.name, version.promoted) for version in published),
            former=tuple(former),
        )

    def _finish(self, run: Run) -> None:
        versions = self.registry.read_or_create().versions.values()
        published, withheld = dict(run.published), self._withheld(run)
        done = [version for version in versions if version.rule not in withheld]
        active = [v for v in done if v.state == "active" and published.get(v.name) == v.promoted]
        snapshot = self.registry.finish(active + [v for v in done if v.state != "active" and v.name in run.former])
        self.registry.remove(spare_versions(snapshot, self._clock()))
        if run.rotates:
            self.registry.drop_former_secret()
        rivals.forget(self._store, datetime.fromisoformat(run.began).timestamp())

    def _withheld(self, run: Run) -> set[str]:
        """The rules whose traces stay, because their deletion is not allowed. A deletion may concern others, too."""
        counts = Counter[str]()
        for counted in self.report(run).values():
            counts.update(counted)
        kept = ["withheld"] if run.allow_delete else ["withheld", "unmade"]
        rules = {public_name(name) for name in run.former}
        return {rule for rule in rules if any(counts[f"{why}|{rule}"] for why in kept)}

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
        for _ in tries("the registry keeps changing"):
            snapshot, program = self._current()
            if not self._dry:
                newest = self.progress.run()
                if newest is None or newest.name != run.name:
                    raise Overtaken
            try:
                page = self._pages.do(run, segment, snapshot, program, deadline)
                break
            except Reload as reload:
                if self._planned is not None:
                    self._planned = self.registry.overtaken(self._planned, reload)
                else:
                    self.registry.overtake(reload)
        if page.failed:
            return Done(segment, page)
        if page.rejected and self._quarantine is not None:
            self._quarantine(page.rejected)
        after = segment.after_page(page.after, page.counts, page.rejected)
        if self._dry or self.progress.keep(run, segment, after):
            return Done(after, page)
        after = self.progress.segment(run, segment.phase, segment.table, segment.number)
        return Done(after, page, ours=False)


def _waiting(snapshot: RegistrySnapshot) -> tuple[str, ...]:
    return tuple(name for name, version in snapshot.versions.items() if version.state in ("filling", "ready"))


def lanes_to_recount(snapshot: RegistrySnapshot) -> list[str]:
    """Return the rules whose published versions lanes count, except those that are being counted again."""
    return [
        active.rule
        for active in snapshot.active.values()
        if active.lanes and not any(is_recount(snapshot, version) for version in snapshot.of(active.rule))
    ]


def spare_versions(snapshot: RegistrySnapshot, now: float) -> list[str]:
    """Return the versions that have been on standby for as long as a roll back is possible."""
    finished = {v.rule for v in snapshot.active.values() if not v.unfinished}
    standby = (v for v in snapshot.versions.values() if v.state == "standby" and v.rule in finished)
    return [version.name for version in standby if version.changed < now - STANDBY_SECONDS]


def cleanable_versions(snapshot: RegistrySnapshot, now: float, spare: Collection[str] = ()) -> list[str]:
    """Return the versions whose part of entries a fill can remove, because no record is left that entries count. While
    another version of the rule counts with entries, for a roll back, they are needed, unless it is `spare`.
    """
    due = now - (FORGOTTEN_HOURS + 1) * 3600  # clocks differ
    needed = {v.rule for v in snapshot.maintained if v.recorded and v.lanes is None and v.name not in spare}
    handed_over = (v for v in snapshot.maintained if v.lanes and 1 < v.lanes <= due)
    return [version.name for version in handed_over if version.lanes == 2 or version.rule not in needed]


def is_recount(snapshot: RegistrySnapshot, version: Version) -> bool:
    """Return whether a version is to replace one of the same meaning whose groups may be wrong."""
    active = snapshot.active.get(version.rule)
    if active is None or version.state not in ("filling", "ready") or version.gap:
        return False
    return active.doubted and active.fingerprint == version.fingerprint


def unpublished_gaps(snapshot: RegistrySnapshot) -> dict[str, str]:
    """Return the filled versions that were not published because their groups may be wrong, each with the reason."""
    ready = [v for v in snapshot.versions.values() if v.state == "ready" and v.gap and not v.held]
    return {version.name: f"not published: {version.gap}. {GAP_TODO}" for version in ready}


def unread(snapshot: RegistrySnapshot) -> list[Version]:
    """Return the published versions that record nothing, and for which not all items have been read."""
    return [v for v in snapshot.versions.values() if v.state == "active" and v.unfinished and not v.recorded]


def incomplete(snapshot: RegistrySnapshot) -> list[Version]:
    """Return the versions whose promotion or removal has not been carried out."""
    return [v for v in snapshot.versions.values() if v.state == "leaving" or v.unfinished]


def _shows_other_zeros(program: Program, snapshot: RegistrySnapshot, versions: Collection[str]) -> bool:
    """Return whether targets to which nothing contributes show other values under these versions than under the active ones.

    Such targets have no group, so only a scan of the application's tables finds them.
    """
    for name in versions:
        rule, active = program.recorded.get(name), snapshot.active.get(public_name(name))
        former = program.recorded.get(active.name) if active is not None else None
        if rule is None or former is None or rule.into is not former.into or zeros(rule) != zeros(former):
            return True
    return False


def zeros(rule: LedgerRule) -> Mapping[str, Any]:
    """Return what a rule shows on a target to which nothing contributes."""
    return rule.published(Totals(0, {}), {query.name: [] for query in rule.member_queries})
