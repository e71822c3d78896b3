"""Repairs drift with the engine's own refreshes, whose writes are conditional.

First, rules with a group that differs from its entries, or with a gap, are recounted: each gets a new version of the same
meaning, which is filled and promoted. Then items: their contributions, copies, index attributes and the attributes of their
parents. Published values come last. A repair may be stopped at any point and started again.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, TypeVar

from projections.engine.copier import Copier
from projections.engine.copies import CopyHeal
from projections.engine.guards import Guards
from projections.engine.ledger_items import Target
from projections.engine.refresh import Refresher
from projections.engine.registry import Registry, RegistrySnapshot
from projections.engine.rejections import internal_reason
from projections.engine.running import Deadline, Reload, Run, at_once, one_by_one, slices
from projections.engine.store import ItemKey, Store
from projections.engine.value_counters import ValueCounters
from projections.errors import InvalidRequest, Misconfigured, Transient, UsageError
from projections.language.keys import decode_key
from projections.language.program import Program
from projections.language.rules import public_name
from projections.operations.backfill.backfill_runs import Backfill, unpublished_gaps
from projections.operations.backfill.runner import Runner, backfill_with_threads
from projections.operations.dry import Cautious
from projections.operations.verify.candidates import AT_ONCE, BUSY, DRIFTS, EXPLAINED, Candidates
from projections.operations.verify.scanning import Scratch, patiently
from projections.operations.verify.verification import PATIENCE, Verification
from projections.operations.verify.verify_scope import CHILD, COPY, GROUP, INDEX, SOURCE, TARGET, Scope, Subject

_MOST_EXAMPLES = 20
_MOST_TRIES = 5
_SECONDS = 300.0
"""The time for a few subjects. Those that are not done then have failed."""

T = TypeVar("T")


@dataclass(eq=False)
class Repair:
    """Repairs what a verification found. `store` may withhold deletions (`operations.dry.Cautious`).

    `packaged` are rules that begin an empty registry. `backfill` recounts rules, with deletions if `allow_delete`.
    `counts` has the repaired subjects by kind, `rules` the rules with fewer differences than before, `recounted` those
    that were recounted, `removed` damaged versions that were not published. `failed` and `rejected` have the first few
    that could not be repaired, by key, with their reasons.
    """

    scope: Scope
    packaged: Program
    store: Store
    candidates: Candidates
    backfill: Backfill
    _: KW_ONLY
    allow_delete: bool = False
    segments: int = 4
    run: Run[Any] = one_by_one
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random
    counts: Counter[str] = field(default_factory=Counter, init=False)
    rules: frozenset[str] = field(default=frozenset(), init=False)
    recounted: list[str] = field(default_factory=list, init=False)
    removed: list[str] = field(default_factory=list, init=False)
    failed: dict[str, str] = field(default_factory=dict, init=False)
    rejected: dict[str, str] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self._registry = Registry(self.packaged, self.store, filled=False, now=self.clock)
        self._values = ValueCounters()
        self._enter(*self._registry.current())

    def _enter(self, snapshot: RegistrySnapshot, program: Program) -> None:
        """Write by this registry from now on."""
        self._snapshot, self._program = snapshot, program
        self._refresher = partial(
            Refresher,
            program,
            self.store,
            snapshot,
            values=self._values,
            run=self.run,
            clock=self.clock,
            chance=self.chance,
        )
        guards = Guards(program, snapshot.identity, snapshot.promotions, snapshot.replaced)
        self._copier = Copier(program, self.store, guards)

    def all(self) -> None:
        """Repair everything. Groups first: a damaged one may refuse what an item contributes."""
        subjects = (subject for table in (DRIFTS, EXPLAINED, BUSY) for subject in self.candidates.subjects(table))
        groups = {subject for subject in subjects if subject.kind == GROUP}
        self._recount({group.rule for group in groups} | self.scope.gaps.keys())
        self.counts[GROUP] += len(groups)
        for batch in slices(self.candidates.subjects(DRIFTS), AT_ONCE):
            items = [subject for subject in batch if subject.kind in (SOURCE, COPY, INDEX, CHILD)]
            self.counts.update(subject.kind for subject in items)
            self._refresh([decode_key(subject.key) for subject in items if subject.kind == SOURCE])
            self._copies([subject for subject in items if subject.kind == COPY])
            self._own_values([decode_key(subject.key) for subject in items if subject.kind in (INDEX, CHILD)])
        published = (subject for subject in self.candidates.subjects(DRIFTS) if subject.kind == TARGET)
        for batch in slices(published, AT_ONCE):
            self._publish({(subject.rule, subject.key) for subject in batch})
            self.counts[TARGET] += len(batch)

    # Items

    def _refresh(self, keys: Sequence[ItemKey]) -> None:
        items = dict.fromkeys(keys)
        self._patiently(lambda refresher, deadline: refresher.sources(items, deadline, publish=True))

    def _own_values(self, keys: Sequence[ItemKey]) -> None:
        """Write what items have of themselves and of their parents, and no values of groups, which may be damaged."""
        images = patiently(lambda: self.store.get_many(keys), self.sleep)
        self._patiently(lambda refresher, deadline: refresher.refresh_scanned(images, deadline))

    def _copies(self, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            self._attempt(subject.key, partial(self._heal_copy, subject))

    def _heal_copy(self, subject: Subject, deadline: Deadline) -> None:
        rule = self._program.guarded_copies.get(subject.rule)
        if rule is None:
            return  # it is removed by now
        try:
            self._copier.heal(CopyHeal(rule, decode_key(subject.key), dict.fromkeys(subject.sources, "")), deadline)
        except Reload as reload:
            self._read_again(reload)
            raise Transient(str(reload)) from reload

    def _read_again(self, reload: Reload) -> None:
        self._registry.overtake(reload)
        self._enter(*self._registry.current())

    # Groups

    def _recount(self, damaged: set[str]) -> None:
        """Count rules with wrong groups again. Versions of them that are not published are removed."""
        if not damaged:
            return
        active = {version.name: version.rule for version in self._snapshot.active.values()}
        self.recounted = sorted(active[name] for name in damaged & active.keys())
        if self.recounted:
            _, versions = self._registry.recount(self.recounted)
            backfill = Runner(self.backfill, clock=self.clock, sleep=self.sleep)
            names = [version.name for version in versions.values()]
            backfill.work(
                self.backfill.begin(
                    versions=names, segments=self.segments, allow_delete=self.allow_delete, restart=True
                )
            )
            self._note(self.failed, backfill.failed)
            for record in backfill.rejected:
                if record.fault != "group" or record.rule not in self.recounted:  # the damaged groups refuse to the end
                    self._note(self.rejected, {record.key or "": record.reason})
        self.removed = sorted(damaged - active.keys())
        if self.removed:
            self._registry.remove(self.removed)
        self._enter(*self._registry.current())
        left = unpublished_gaps(self._snapshot)
        self._note(self.failed, left)
        self.recounted = [rule for rule in self.recounted if rule not in map(public_name, left)]

    def _publish(self, targets: set[Target]) -> None:
        now = {version.rule: version.name for version in self._snapshot.active.values()}
        renamed = [(now.get(public_name(rule), rule), target) for rule, target in targets]
        self._patiently(lambda refresher, deadline: refresher.publish(renamed, deadline))

    # Failures

    def _patiently(self, work: Callable[[Refresher, Deadline], object]) -> None:
        """Refresh, and repeat failed refreshes, also by the registry as it is meanwhile. Record those that still fail."""
        if any(version.lanes == 0 for version in self._snapshot.maintained):  # when the fill ends, lanes count
            self._enter(*self._registry.current())
        refresher = self._refresher()
        for _ in range(_MOST_TRIES):
            refresher.failed.clear()
            try:
                work(refresher, Deadline.after(_SECONDS, sleep=self.sleep, chance=self.chance))
            except Reload as reload:
                self._read_again(reload)
                refresher = self._refresher()
                refresher.failed[""] = str(reload)
            if not refresher.failed:
                break
        self._note(self.failed, refresher.failed)
        self._note(self.rejected, {record.key or "": record.reason for record in refresher.rejected})

    def _attempt(self, key: str, work: Callable[[Deadline], object]) -> None:
        deadline = Deadline.after(_SECONDS, sleep=self.sleep, chance=self.chance)
        try:
            deadline.retry(partial(work, deadline), tries=_MOST_TRIES)
        except Misconfigured:
            raise
        except Transient as error:
            self._note(self.failed, {key: str(error)})
        except Exception as error:
            reason = str(error) if isinstance(error, InvalidRequest) else internal_reason(error)
            self._note(self.rejected, {key: reason})

    def _note(self, where: dict[str, str], reasons: Mapping[str, str]) -> None:
        self.counts["failed" if where is self.failed else "rejected"] += len(reasons)
        for key, reason in reasons.items():
            if len(where) < _MOST_EXAMPLES:
                where[key] = reason


def _by_rule(verification: Verification) -> Counter[str]:
    return Counter(public_name(drift.rule) for drift in verification.drifts())


@dataclass(frozen=True, slots=True)
class Verified:
    """A verification that has ended, and its repair. `differences` counts them before the repair, `withheld` has
    the encoded keys of the first items that were not deleted.
    """

    verification: Verification
    differences: int
    repair: Repair | None
    withheld: list[str]


@contextmanager
def verify_and_repair(
    packaged: Program,
    store: Store,
    *,
    ledger: bool = True,
    only: Iterable[str] = (),
    sample: float | None = None,
    repair: bool = False,
    allow_delete: bool = False,
    patience: float = PATIENCE,
    segments: int = 4,
    report: Callable[[str, int], None] = lambda what, items: None,
) -> Iterator[Verified]:
    """Verify, then repair if asked to, and verify again: what differed, or everything if there are other versions now.

    The findings are in a temporary file until the context ends. `ledger` is whether there is one, `sample` the share of the
    tables to read. `report` is called as by `Verification`. Raises UsageError for a repair of a sample, and if there is
    nothing to repair yet.
    """
    if repair and sample is not None:
        raise UsageError("--repair reads everything: omit --sample")
    registry = Registry(packaged, store, filled=False)

    def scope_now() -> Scope:
        stored = registry.read() if ledger else None
        snapshot, program = registry.readable(stored) if stored is not None else (None, packaged)
        return Scope(program, snapshot, only)

    scope = scope_now()
    if repair and scope.offline:
        raise UsageError(
            "no active rules, so there is nothing to repair. If the rules are deployed, pass --ledger NAME or --stack NAME. "
            "Otherwise deploy them, and run `projections apply`"
        )
    run = at_once(3 * segments)
    verify = partial(Verification, threads=segments, patience=patience, run=run, report=report)
    with Scratch() as scratch, ExitStack() as stack:
        verification = verify(scope, store, scratch)
        if sample is None:
            verification.all()
        else:
            verification.sample(sample)
        if scope.offline:
            _leave_out_followers(verification)
        number, cautious = verification.candidates.count(), Cautious(store, deletes=allow_delete)
        done: Repair | None = None
        if repair and (number or scope.gaps or any(True for _ in verification.busy())):
            report("repairing", 0)
            backfill = backfill_with_threads(packaged, store, segments=segments)
            of_scope = scope, packaged, cautious, verification.candidates, backfill
            done = Repair(*of_scope, allow_delete=allow_delete, segments=segments, run=run)
            before = _by_rule(verification)
            done.all()
            after = scope_now()
            if after.snapshot != scope.snapshot:  # other versions, for example of rules that were recounted
                verification = verify(after, store, stack.enter_context(Scratch()))
                verification.all()
            else:
                verification.candidates.reset()
                verification.examine()
            done.rules = frozenset((before - _by_rule(verification)).keys())
        yield Verified(verification, number, done, list(cautious.examples))


def _leave_out_followers(verification: Verification) -> None:
    """Report nothing of rules that read what other rules would write, where that is not yet, or not right, in the tables.

    The values that such a rule would write follow from values that no item has. If the first rules of a chain have no
    differences, the items have all that the following rule reads, and its comparison is exact.
    """
    from projections.language.ruleset import readers  # not above: the functions have no pydantic

    scope, causes = verification.scope, dict[str, dict[str, None]]()
    for first in sorted(verification.candidates.rules()):
        following = [first]
        for name in following:
            following += [reader for reader in readers(scope.program.model, [name]) if reader not in following]
        for name in following[1:]:
            causes.setdefault(name, {})[first] = None
    verification.uncompared = {name: list(names) for name, names in sorted(causes.items()) if name in scope.states}
    for name in verification.uncompared:
        verification.candidates.forget(name)
