"""Repairs drift with the engine's own refreshes, whose writes are conditional.

Items come first: their contributions, copies, index attributes and the attributes of their parents. Then the groups that
differ from their entries, or whose rebuild has not ended: all are closed, one scan moves the entries that name them into the
new generations, and they are opened again. Items whose contributions such a group refused are refreshed once more. Published
values come last. A repair may be stopped at any point and started again.

A repair writes under leases: it stops when the active rules, or the state of one of them, change.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from projections.engine import rebuild
from projections.engine.copier import Copier
from projections.engine.copies import CopyHeal
from projections.engine.groups import Generations
from projections.engine.ledger_items import LEDGER, Target
from projections.engine.refresh import Refresher
from projections.engine.registry import Registry, RegistrySnapshot
from projections.engine.rejections import GROUP as IN_GROUP
from projections.engine.rejections import Rejected, internal_reason
from projections.engine.running import Deadline, Run, at_once, one_by_one, slices
from projections.engine.store import Image, ItemKey, Store
from projections.errors import InvalidRequest, Misconfigured, Transient, UsageError
from projections.language.contribution import Contributions
from projections.language.keys import decode_key
from projections.language.program import Program
from projections.operations.dry import Cautious
from projections.operations.fenced import RESERVED, Fenced, name_of_lease
from projections.operations.verify.candidates import AT_ONCE, BUSY, DRIFTS, EXPLAINED, Candidates
from projections.operations.verify.scanning import Scanner, Scratch, patiently
from projections.operations.verify.verification import PATIENCE, Verification
from projections.operations.verify.verify_scope import (
    CHILD,
    COPY,
    GROUP,
    INDEX,
    REBUILD,
    SOURCE,
    TARGET,
    Scope,
    Subject,
    source_of,
)

_MOST_GROUPS = 100_000
"""Groups rebuilt by one scan of the ledger: each takes a few hundred bytes of memory."""

_MOST_EXAMPLES = 20
_MOST_TRIES = 5
_SECONDS = 300.0
"""The time for a few subjects. Those that are not done then have failed."""

T = TypeVar("T")


class Repair:
    """Repairs what a verification found. `store` may withhold deletions (`operations.dry.Cautious`).

    `counts` has the repaired subjects by kind, `rules` the rules with fewer differences than before. `failed` and `rejected`
    have the first few that could not be repaired, by key, with their reasons. Raises UsageError if these rules are not
    active, and Replaced if that changes.
    """

    def __init__(
        self,
        scope: Scope,
        store: Store,
        candidates: Candidates,
        *,
        threads: int = 4,
        run: Run[Any] = one_by_one,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
        named: Callable[[], str] = name_of_lease,
    ) -> None:
        if scope.snapshot is None or scope.snapshot.program != scope.program.fingerprint:
            raise UsageError(
                "these rules are not active: repair with the active rules, or activate these with `projections backfill`"
            )
        self._scope = scope
        self._program = scope.program
        self._candidates = candidates
        self._sleep = sleep
        self._clock = clock
        self._chance = chance
        self._named = named
        self._scanner = Scanner(store, threads=threads, sleep=sleep)
        self._generations = Generations()
        self._run = run
        self._unfenced = store
        self._enter(scope.snapshot)
        self.counts: Counter[str] = Counter()
        self.rules: frozenset[str] = frozenset()
        self.failed: dict[str, str] = {}
        self.rejected: dict[str, str] = {}
        self._refused: list[Rejected] | None = None
        """Contributions that a group refused, until groups are rebuilt: they are repeated then."""

    def all(self) -> list[Subject]:
        """Repair everything. Return the groups that were rebuilt, so that they can be compared again."""
        snapshot = Registry(self._program, self._unfenced).read_or_create()
        if snapshot.program != self._program.fingerprint:
            raise UsageError("other rules have become active. Repair with those")
        self._enter(snapshot)
        with self._store:
            return self._all()

    def _enter(self, snapshot: RegistrySnapshot) -> None:
        """Write from now on only while the registry is as in `snapshot`."""
        self._store = Fenced(self._unfenced, snapshot, "repair", clock=self._clock, named=self._named)
        self._refresher = partial(
            Refresher,
            self._program,
            self._store,
            snapshot,
            generations=self._generations,
            run=self._run,
            clock=self._clock,
            chance=self._chance,
            reserved=RESERVED,
        )
        self._copier = Copier(self._program, self._store, self._scope.guards)

    def _all(self) -> list[Subject]:
        self._refused = []
        for batch in slices(self._candidates.subjects(DRIFTS), AT_ONCE):
            items = [subject for subject in batch if subject.kind in (SOURCE, COPY, INDEX, CHILD)]
            self.counts.update(subject.kind for subject in items)
            self._refresh([decode_key(subject.key) for subject in items if subject.kind == SOURCE])
            self._copies([subject for subject in items if subject.kind == COPY])
            self._own_values([decode_key(subject.key) for subject in items if subject.kind in (INDEX, CHILD)])
        tables = ((table, each) for table in (DRIFTS, EXPLAINED, BUSY) for each in self._candidates.subjects(table))
        wrong = (each for table, each in tables if each.kind == GROUP or (each.kind, table) == (REBUILD, DRIFTS))
        groups = list(dict.fromkeys(wrong))
        known = {(group.rule, group.key) for group in groups}
        abandoned = abandoned_groups(self._scope, self._store)
        groups += [Subject(REBUILD, *target) for target in abandoned if target not in known]
        for start in range(0, len(groups), _MOST_GROUPS):
            self._rebuild([(group.rule, group.key) for group in groups[start : start + _MOST_GROUPS]])
        self.counts[GROUP] += len(groups)
        refused, self._refused = self._refused, None
        for again in slices(refused, AT_ONCE):
            self._refresh([decode_key(record.key) for record in again if record.key and record.key != record.target])
            self._publish({(record.rule, record.target) for record in again if record.rule and record.target})
        published = (subject for subject in self._candidates.subjects(DRIFTS) if subject.kind == TARGET)
        for batch in slices(published, AT_ONCE):
            self._publish({(subject.rule, subject.key) for subject in batch})
            self.counts[TARGET] += len(batch)
        return [subject._replace(kind=GROUP) for subject in groups]

    # Items

    def _refresh(self, keys: Sequence[ItemKey]) -> None:
        items = dict.fromkeys(keys)
        self._patiently(lambda refresher, deadline: refresher.sources(items, deadline, publish=True))

    def _own_values(self, keys: Sequence[ItemKey]) -> None:
        """Write what items have of themselves and of their parents, and no values of groups, which may be damaged."""
        images = patiently(lambda: self._store.get_many(keys), self._sleep)
        self._patiently(lambda refresher, deadline: refresher.refresh_scanned(images, deadline))

    def _copies(self, subjects: Sequence[Subject]) -> None:
        for subject in subjects:
            rule = self._program.guarded_copies[subject.rule]
            heal = CopyHeal(rule, decode_key(subject.key), dict.fromkeys(subject.sources, ""))
            self._attempt(subject.key, partial(self._copier.heal, heal))

    # Groups

    def _rebuild(self, targets: Sequence[Target]) -> None:
        opened: dict[Target, int] = {}
        for target in targets:
            self._attempt(target[1], partial(self._close, target, opened))
        failed = self.counts["failed"]
        self._scanner.whole([(LEDGER, partial(self._move, opened))])
        if self.counts["failed"] > failed:
            return  # the next repair finds groups that are not opened, and ends their rebuild
        for target, generation in opened.items():
            self._attempt(target[1], partial(self._each, rebuild.reopen, target, generation))
        for batch in slices(opened, AT_ONCE):
            self._publish(set(batch))
        for target, generation in opened.items():
            self._attempt(target[1], partial(self._each, rebuild.sweep, target, generation))

    def _close(self, target: Target, opened: dict[Target, int], deadline: Deadline) -> None:
        opened[target] = rebuild.close(self._store, self._program, target, self._generations, deadline, self._clock)

    def _each(
        self, step: Callable[[Store, Target, int], None], target: Target, generation: int, deadline: Deadline
    ) -> None:
        deadline.check()
        step(self._store, target, generation)

    def _move(self, opened: Mapping[Target, int], images: Sequence[Image]) -> None:
        """Refresh the entries on a page that name a group which is being rebuilt."""
        sources: dict[ItemKey, None] = {}
        for image in images:
            if not image["pk"]["S"].startswith("E|"):
                continue
            contributions: Contributions = json.loads(image["contributions"]["S"])
            if any((rule, target) in opened for rule, targets in contributions.items() for target in targets):
                sources[decode_key(source_of(image))] = None
        if sources:
            self._patiently(lambda refresher, deadline: refresher.sources(sources, deadline))

    def _publish(self, targets: set[Target]) -> None:
        self._patiently(lambda refresher, deadline: refresher.publish(targets, deadline))

    # Failures

    def _patiently(self, work: Callable[[Refresher, Deadline], object]) -> None:
        """Refresh, and repeat failed refreshes. Record those that still fail."""
        refresher = self._refresher()
        for _ in range(_MOST_TRIES):
            refresher.failed.clear()
            work(refresher, Deadline.after(_SECONDS, sleep=self._sleep, chance=self._chance))
            if not refresher.failed:
                break
        self._note(self.failed, refresher.failed)
        for record in refresher.rejected:
            if self._refused is not None and record.fault == IN_GROUP:
                self._refused.append(record)
            else:
                self._note(self.rejected, {record.key or "": record.reason})

    def _attempt(self, key: str, work: Callable[[Deadline], object]) -> None:
        deadline = Deadline.after(_SECONDS, sleep=self._sleep, chance=self._chance)
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


def abandoned_groups(scope: Scope, store: Store) -> list[Target]:
    """Return the groups of a scope's rules whose rebuild was started and has not ended."""
    return [note.target for note in rebuild.notes(store) if note.target[0] in scope.grouped]


def _by_rule(verification: Verification) -> Counter[str]:
    return Counter(drift.rule for drift in verification.drifts())


@dataclass(frozen=True, slots=True)
class Verified:
    """A verification that has ended, and its repair. `found` counts the differences before the repair, `withheld` has the
    encoded keys of the first items that were not deleted.
    """

    verification: Verification
    differences: int
    repair: Repair | None
    withheld: list[str]


@contextmanager
def verify_and_repair(
    program: Program,
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
    """Verify, then repair if asked to, and verify again what differed.

    The findings are in a temporary file until the context ends. `ledger` is whether there is one, `sample` the share of the
    tables to read. `report` is called as by `Verification`. Raises UsageError for a repair of a sample, and if there is
    nothing to repair yet.
    """
    if repair and sample is not None:
        raise UsageError("--repair reads everything: omit --sample")
    scope = Scope(program, Registry(program, store).read() if ledger else None, only)
    if repair and scope.offline:
        raise UsageError(
            "no active rules, so there is nothing to repair. If the rules are deployed, pass --ledger NAME or --stack NAME. "
            "Otherwise deploy them, or run `projections backfill`"
        )
    run = at_once(3 * segments)
    with Scratch() as scratch:
        verification = Verification(scope, store, scratch, threads=segments, patience=patience, run=run, report=report)
        if sample is None:
            verification.all()
        else:
            verification.sample(sample)
        if scope.offline:
            _leave_out_followers(verification)
        number, cautious = verification.candidates.count(), Cautious(store, deletes=allow_delete)
        done: Repair | None = None
        if repair and (number or any(True for _ in verification.busy()) or abandoned_groups(scope, store)):
            report("repairing", 0)
            done = Repair(scope, cautious, verification.candidates, threads=segments, run=run)
            before = _by_rule(verification)
            groups = done.all()
            verification.candidates.reset()
            verification.add_groups(groups)
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
