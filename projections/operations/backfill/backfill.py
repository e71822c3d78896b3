"""The work of a backfill, page by page: every page may be done twice, by anybody, in any order within its phase.

    items     scan of the application's tables: entries, copies, index attributes, children; traces of retired rules
    entries   scan of the ledger: entries of items that are gone, or that no rule wants any more
    live      what was filling goes live
    groups    scan of the ledger: items that rules create
    targets   scan of the application's tables: what groups say of the items that exist

A phase begins when all segments of the one before are done. Before the first, and between `live` and `groups`, all
invocations that knew less have to end, so that there is a wait of one function time-out.
"""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from projections.engine.effort import Effort, one_by_one
from projections.engine.effort import Run as RunPieces
from projections.engine.groups import Generations
from projections.engine.ledger_items import CLOSED, LEDGER, Target
from projections.engine.plan import Rejected
from projections.engine.refresh import Refresher
from projections.engine.registry import FILLING, RETIRING, Registry, Standing
from projections.engine.store import Image, ItemKey, Store
from projections.errors import UsageError
from projections.language.keys import decode_key
from projections.language.program import Program
from projections.language.rules import CopyRule, Rule
from projections.operations.backfill.progress import PHASES, Progress, Run, Segment
from projections.operations.backfill.retirement import Retirement
from projections.operations.caution import Cautious

__all__ = ["Backfill", "Done"]

PAGE = 500
"""Items read at a time: five requests for entries, and at most as many transactions' worth of writes."""

_MOST_EXAMPLES = 20
_MOST_TRIES = 5


@dataclass(frozen=True, slots=True)
class Done:
    """What a page did: the segment after it, what stays failed by key, what was rejected."""

    segment: Segment
    failed: Mapping[str, str]
    rejected: Sequence[Rejected]


class Backfill:
    """Does the pages of one program's backfill. Safe for threads; each thread works with a refresher of its own.

    `store` does the work (a `Cautious` one withholds deletions); `books` keeps progress and registry. A `dry` one, whose
    store withholds everything, writes no books either.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        books: Store,
        *,
        now: Callable[[], datetime],
        run: RunPieces[Any] = one_by_one,
        page: int = PAGE,
        dry: bool = False,
    ) -> None:
        self._program = program
        self._store = store
        self.now = now
        self._run = run
        self._page = page
        self._dry = dry
        self.registry = Registry(program, books, FILLING)
        self.progress = Progress(books)
        self._generations = Generations()
        self._local = threading.local()
        self._retirements: dict[str, Retirement | None] = {}

    # Runs

    def begin(
        self,
        *,
        rules: Iterable[str] = (),
        segments: int = 4,
        wait: float = 60.0,
        allow_delete: bool = False,
        restart: bool = False,
    ) -> Run:
        """Puts the rules in force and begins a run, or goes on with one of these rules that has not ended.

        Its first page may be done at `ready`. Raises UsageError and Misconfigured.
        """
        names = self._named(rules)
        known = self.progress.run()
        wanted = (self._program.fingerprint, names, allow_delete)
        goes_on = known is not None and known.phase != "done" and not restart
        if goes_on and known and (known.program, known.rules, known.allow_delete) == wanted and self._in_force():
            return known
        before = self.registry.look()
        standing = self.registry.enforce()
        raised = before is not None and before.epoch != standing.epoch
        now = self.now()
        run = Run(
            name=uuid.uuid4().hex[:8],
            program=self._program.fingerprint,
            rules=names,
            tables=tuple(self._tables(names)),
            segments=segments,
            phase=PHASES[0],
            began=now.isoformat(timespec="seconds"),
            allow_delete=allow_delete,
            wait=wait,
            ready=now.timestamp() + (wait if raised else 0.0),
        )
        if not self.progress.begin(run, known):
            raise UsageError("another backfill began at the same time; look at `projections status`")
        if known is not None:
            self.progress.clear(known, self._all_tables())
        return run

    def _in_force(self) -> bool:
        standing = self.registry.look()
        return standing is not None and standing.program == self._program.fingerprint

    def _named(self, rules: Iterable[str]) -> tuple[str, ...]:
        names = tuple(sorted(set(rules)))
        for name in names:
            if name not in self._program.rules:
                raise UsageError(f"no rule is called {name!r}; there are {', '.join(self._program.rules)}")
        return names

    def _tables(self, rules: Sequence[str]) -> list[str]:
        """The application's tables with items that these rules, or all, read or write."""
        chosen = [self._program.rules[name] for name in rules] or list(self._program.rules.values())
        found = {rule.source.table for rule in chosen} | {into.table for rule in chosen if (into := _into(rule))}
        return [name for name in self._program.tables if name in found or not rules]

    def _all_tables(self) -> list[str]:
        return [*self._program.tables, LEDGER]

    def tables_of(self, run: Run, phase: str) -> Sequence[str]:
        """What a phase scans."""
        return {"items": run.tables, "targets": run.tables, "entries": (LEDGER,), "groups": (LEDGER,)}.get(phase, ())

    def segments(self, run: Run) -> list[Segment]:
        """The segments of the run's phase, as far as each has come."""
        return self.progress.segments(run, run.phase, self.tables_of(run, run.phase))

    def forward(self, run: Run) -> tuple[Run, bool]:
        """Moves a run whose phase is done to the next, which may begin when it is `ready`; False if somebody else did."""
        phase = PHASES[PHASES.index(run.phase) + 1]
        if phase == "live":
            filling = [name for name, one in self.registry.standing().rules.items() if one.state == FILLING]
            chosen = [name for name in filling if not run.rules or name in run.rules]
            self.registry.complete(chosen)
            wait = run.wait if chosen else 0.0
            return self.progress.move(run, phase="groups", ready=self.now().timestamp() + wait)
        if phase != "done":
            return self.progress.move(run, phase=phase)
        withheld = any(one.counts.get("withheld") for one in self.progress.segments(run, "items", run.tables))
        if not run.rules and not withheld:
            standing = self.registry.standing()
            self.registry.forget([name for name, one in standing.rules.items() if one.state == RETIRING])
        return self.progress.move(run, phase=phase, ended=self.now().isoformat(timespec="seconds"))

    def report(self, run: Run) -> dict[str, Counter[str]]:
        """What was counted so far, by phase."""
        found: dict[str, Counter[str]] = {}
        for phase in PHASES:
            tables = self.tables_of(run, phase)
            if tables:
                counted = Counter[str]()
                for segment in self.progress.segments(run, phase, tables):
                    counted.update(segment.counts)
                found[phase] = counted
        return found

    def rehearse(self, rules: Iterable[str], segments: int) -> Run:
        """A run that is not noted anywhere, for a dry backfill."""
        names = self._named(rules)
        now = self.now().isoformat(timespec="seconds")
        return Run("dry", self._program.fingerprint, names, tuple(self._tables(names)), segments, "items", now)

    # Pages

    def page(self, run: Run, segment: Segment, effort: Effort) -> Done:
        """Does the next page of a segment. What fails is tried again a few times; it never holds up the rest.

        Raises Transient if the page cannot be read.
        """
        page = self._store.scan(
            segment.table, segment=segment.number, segments=segment.of, limit=self._page, after=segment.after
        )
        refresher = self._refresher()
        counts = Counter({"items": len(page.items)})
        failed: dict[str, str] = {}
        rejected: dict[Rejected, None] = {}
        for _ in range(_MOST_TRIES):
            refresher.failed.clear()
            refresher.rejected.clear()
            counts.update(self._do(segment, page.items, refresher, effort))
            failed, rejected = dict(refresher.failed), {**rejected, **refresher.rejected}
            if not failed:
                break
        counts.update(failed=len(failed), rejected=len(rejected))
        after = segment.advanced(page.after, counts)
        if not self._dry:
            self.progress.keep(run, after)
        return Done(after, failed, list(rejected))

    def _do(self, segment: Segment, items: Sequence[Image], refresher: Refresher, effort: Effort) -> Mapping[str, int]:
        before, withheld = Counter(refresher.tally.counts), self._withheld()
        more: Counter[str] = Counter()
        if segment.table == LEDGER and segment.phase == "entries":
            refresher.sources(dict.fromkeys(_sources(items)), effort)
        elif segment.table == LEDGER:
            targets = set(_groups(items)) & self._created(items)
            more["targets"] += len(targets)
            refresher.publish(targets, effort)
        else:
            schema = self._program.tables[segment.table]
            images = {schema.key(segment.table, image): image for image in items}
            if segment.phase == "items":
                refresher.scanned(images, effort)
                more["retired"] += sum(one.remove(images) for one in self._retiring())
            else:
                recognised = (self._program.recognise(key, image) for key, image in images.items())
                known = {item.key: item for item in recognised if item is not None}
                into = self._program.ledger_rules_into
                wanted = [key for key, item in known.items() if item.entity.name in into]
                more["targets"] += len(wanted)
                if self._dry:  # what their groups would say nobody knows
                    wanted = []
                refresher.targets(wanted, effort, known)
        done = Counter(refresher.tally.counts)
        done.subtract(before)
        more["withheld"] += self._withheld() - withheld
        return {name: count for name, count in (done + more).items() if name in _TOLD}

    def _withheld(self) -> int:
        """Deletions that were asked for and not made; other threads' may be among them."""
        return self._store.withheld["delete"] if isinstance(self._store, Cautious) else 0

    def _created(self, items: Sequence[Image]) -> set[Target]:
        """Of groups, those whose targets their rules create; the others are looked at where they stand."""
        found = set()
        for rule, target in _groups(items):
            known = self._program.rules.get(rule)
            into = _into(known) if known is not None else None
            if isinstance(known, CopyRule) or (into is not None and into.derived and not into.copied):
                found.add((rule, target))
        return found

    def _refresher(self) -> Refresher:
        """This thread's. It asks the registry anew for every page, so that nothing is published of what is not live."""
        refresher: Refresher | None = getattr(self._local, "refresher", None)
        if refresher is None:
            refresher = self._local.refresher = Refresher(
                self._program,
                self._store,
                publishes=lambda rule: self._local.standing.publishes(rule),
                generations=self._generations,
                run=self._run,
            )
        self._local.standing = self._standing()
        return refresher

    def _standing(self) -> Standing:
        if self._dry:
            return self.registry.preview()
        standing = self.registry.look()
        if standing is None or standing.outdated(self._program):
            raise UsageError("other rules were put in force meanwhile; run the backfill with those")
        return standing

    def _retiring(self) -> list[Retirement]:
        standing: Standing = self._local.standing
        for name, one in standing.rules.items():
            if one.state == RETIRING and name not in self._retirements:
                definition = self.registry.definition(name)
                self._retirements[name] = (
                    Retirement(name, definition, self._program, self._store) if definition is not None else None
                )
        return [one for one in self._retirements.values() if one is not None]


_TOLD = frozenset({"applied", "published", "copies", "indexed", "healed", "pulled", "retired", "targets", "withheld"})


def _into(rule: Rule) -> Any:
    return getattr(rule, "into", None)


def _sources(items: Sequence[Image]) -> list[ItemKey]:
    """The items whose entries these are, as far as these are entries that say something."""
    found = []
    for item in items:
        partition = item["pk"]["S"]
        if not partition.startswith("E|"):
            continue
        if item.get("contributions", {}).get("S", "{}") == "{}" and "recent" not in item:
            continue
        found.append(decode_key(item["key"]["S"] if "key" in item else partition[2:]))
    return found


def _groups(items: Sequence[Image]) -> list[Target]:
    """The groups that these items are the open first shards of."""
    found = []
    for item in items:
        kind, _, rest = item["pk"]["S"].partition("|")
        rule, _, target = rest.partition("|")
        if kind == "G" and item["sk"]["S"].endswith("|00") and CLOSED not in item:
            found.append((rule, item["key"]["S"] if "key" in item else target))
    return found
