"""The way of a batch of stream records: decode → admit → plan → commit → publish → forget.

    decode    records as they came → `Record`s, by item in the order of their versions
    admit     the registry → `RegistrySnapshot`: may these rules be applied now? Else the whole batch is delivered again
    plan      records → `Plan`, pure (`engine.plan`)
    commit    changes of contributions → the ledger, many source items per transaction (`engine.ledger`)
    publish   what groups say → their targets (`engine.publishing`)
    forget    what was published → no longer owed by the entries (`engine.recent`)
    others    copies, indexes, releases, heals, pushes and pulls: one conditional write each, in no order among them

Invariants:

- Nothing is planned before the rules are admitted: what means nothing to old rules may mean something to those in force.
- An entry owes its publications from the commit on, until they are made. Whoever dies in between leaves that written down,
  and the records come again. With publish before commit, a lost commit would leave a value that no entry accounts for; with
  forget before publish, a death in between would leave a target wrong for good, because the redelivery is a duplicate.
- A record is reported as failed, rejected or done; never two of these without the earlier records of its item.
- A batch is applied as a whole first, because that takes the fewest requests. If that fails in a way that names no record,
  each record is applied for itself, so that one bad record does not stop the shard. What was done before is found done.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, TypeVar

from projections.engine.application import ApplicationItems, Release
from projections.engine.copies import Copier, CopyHeal, CopyWrite
from projections.engine.counters import Counters
from projections.engine.deadline import Deadline, OutOfTime
from projections.engine.embeds import Embedder, Push
from projections.engine.garbage import full_collections
from projections.engine.groups import Generations
from projections.engine.guards import Guards
from projections.engine.indexes import IndexWrite, write_index
from projections.engine.ledger import Change, ChangeState, Ledger
from projections.engine.ledger_items import Entry, Target
from projections.engine.plan import INTERNAL, Plan, Rejected, plan
from projections.engine.publishing import Publisher, unpublished
from projections.engine.recent import forget, owing, relieved
from projections.engine.records import WHOLE_BATCH, Record, decode, is_sequence
from projections.engine.registry import LIVE, Registry, RegistrySnapshot, RuleState
from projections.engine.rejections import distinct, internal, is_internal, of_child, refused, rejected_by, trace_of
from projections.engine.running import Run, in_few_pieces, one_by_one
from projections.engine.store import ItemKey, Store
from projections.errors import BadInput, InvalidRequest, Misconfigured, StoreError, Transient
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.language.rules import Rule

__all__ = ["Outcome", "Processor", "Rejected"]

OUTDATED = (
    "other rules are in force than this function was deployed with: deploy those, or run `projections backfill` with these "
    "to put them in force again"
)

SETTLE_SECONDS = 5.0
"""After a push through an index, how long until it is looked through once more for children it did not show yet."""


_PART = 1000
"""Targets or items that are read or published together: some tens of milliseconds of computing."""

_COUNTED: Mapping[ChangeState, str] = {"applied": "applied", "duplicate": "duplicates"}

_LARGE = 100
"""Records from which a batch is large."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a batch.

    `failed` is the lowest sequence number to be delivered again (or WHOLE_BATCH), None if everything was done. `rejected` is
    what no delivery will ever achieve. `counts` are for metrics. `internal` are the traces of unexpected exceptions of the
    whole batch that did not occur again when each record was applied for itself; where they did, they are in `rejected`.
    """

    failed: str | None
    failed_reason: str | None
    rejected: tuple[Rejected, ...]
    counts: Mapping[str, int]
    internal: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Setup:
    """What every batch of a processor works with; see `Processor` for the fields. It outlives the batches."""

    program: Program
    store: Store
    tables: Mapping[str, str]
    labels: Mapping[str, str]
    fixed_label: str
    quarantine: Callable[[Sequence[Rejected]], None] | None
    run: Run[Any]
    clock: Callable[[], float]
    sleep: Callable[[float], None]
    chance: Callable[[], float]
    tasks: Callable[[Push, float], None] | None
    pace: Callable[[int], None]
    generations: Generations
    registry: Registry


class Processor:
    """Applies batches of stream records under a program of rules.

    `tables` maps table names in stream ARNs to logical names. `labels` gives each logical table's stream label for records
    whose ARN has none; `fixed_label` replaces the label of all records (for emulators whose ARN is not stable).
    `quarantine` takes what is rejected; without it, rejected records are reported as failed. `run` runs independent
    requests (at once, in Lambda). `clock` gives seconds since 1970. `tasks` takes the pages of a push that are left after
    the first, with the seconds they should wait; without it everything is done at once. `pace` is told of every few writes
    to children before they are made, and may wait. `new_rules` is the state in which rules start where the registry is
    empty.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        *,
        tables: Mapping[str, str],
        labels: Mapping[str, str] | None = None,
        fixed_label: str = "",
        quarantine: Callable[[Sequence[Rejected]], None] | None = None,
        run: Run[Any] = one_by_one,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
        margin: float = 1.0,
        tasks: Callable[[Push, float], None] | None = None,
        pace: Callable[[int], None] = lambda writes: None,
        new_rules: RuleState = LIVE,
    ) -> None:
        self._margin = margin
        self._setup = _Setup(
            program=program,
            store=store,
            tables=dict(tables),
            labels=dict(labels or {}),
            fixed_label=fixed_label,
            quarantine=quarantine,
            run=in_few_pieces(run),
            clock=clock,
            sleep=sleep,
            chance=chance,
            tasks=tasks,
            pace=pace,
            generations=Generations(),
            registry=Registry(program, store, new_rules),
        )

    def process(self, records: Sequence[Any], *, remaining: Callable[[], float]) -> Outcome:
        """Applies a batch. `remaining` gives the seconds until the invocation is stopped.

        Raises `errors.Misconfigured` if the tables cannot be used at all; nothing else.
        """
        setup = self._setup
        deadline = Deadline(remaining, margin=self._margin, sleep=setup.sleep, chance=setup.chance)
        batch = _Batch(setup, deadline)
        batch.counters.add("records", len(records))
        try:
            with full_collections.postponed() if len(records) >= _LARGE else nullcontext():
                batch.process(records)
        except OutOfTime as error:
            batch.give_up(records, str(error))
        return batch.outcome()


class _Batch:
    """One batch on its way: what failed, what was rejected, what was done."""

    def __init__(self, setup: _Setup, deadline: Deadline) -> None:
        self._setup = setup
        self._program = setup.program
        self._store = setup.store
        self._run = setup.run
        self.deadline = deadline
        self._snapshot: RegistrySnapshot | None = None
        self.failures: dict[str, str] = {}
        self.rejected: list[Rejected] = []
        self.internal: list[str] = []
        self.counters = Counters()

    def process(self, records: Sequence[Any]) -> None:
        """Takes the records through all stages. Raises OutOfTime, Misconfigured."""
        decoded = self.decode(records)
        if not self.admitted(records):
            return None
        made = self.plan(decoded)
        if made is None:
            return self.apply_singly(decoded)
        self.counters.add("ignored", made.ignored)
        if made.idle and not self.rejected:
            return None
        try:
            self.apply(made)
        except Misconfigured:
            raise
        except Exception as error:
            self.unexpected(error)
            self.apply_singly(decoded)
        return None

    def plan(self, decoded: Sequence[Record]) -> Plan | None:
        """What the records ask for together; None if no plan can be made of all of them. Raises OutOfTime."""
        try:
            return plan(self._program, decoded, self.guards, self.settles, self.deadline)
        except OutOfTime:
            raise
        except Exception as error:
            self.unexpected(error)
            return None

    def admitted(self, records: Sequence[Any]) -> bool:
        """Whether the rules are in force; if not, or if that cannot be told now, all records are reported as failed."""
        reason = OUTDATED
        try:
            self._snapshot = self.deadline.retry(self._setup.registry.admit)
            if not self._snapshot.outdated(self._program):
                return True
        except Misconfigured:
            raise
        except StoreError as error:
            reason = f"the registry could not be read or written: {error}"
        self.give_up(records, reason)  # also what was rejected, by rules that may not be in force
        return False

    @cached_property
    def guards(self) -> Guards:
        """The guards of the rules on the items of this ledger. Once the registry was read."""
        assert self._snapshot is not None
        return Guards(self._program, self._snapshot.ledger)

    def give_up(self, records: Sequence[Any], reason: str) -> None:
        """Reports all records as failed, and none as rejected: they are delivered again."""
        self.rejected.clear()
        self._fail(_sequences(records), reason)

    def _publishes(self, rule: Rule) -> bool:
        return self._snapshot is None or self._snapshot.publishes(rule)

    def settles(self, rule: Rule) -> bool:
        """Return whether an expiry under the rule is settled. Known once the batch is admitted."""
        return self._snapshot is not None and self._snapshot.settles(rule)

    def decode(self, records: Sequence[Any]) -> list[Record]:
        decoded = []
        for record in self.deadline.checked(records):
            try:
                decoded.append(self._decode(record))
            except BadInput as reason:
                self.rejected.append(Rejected(None, str(reason), sequence=_sequence(record)))
            except Exception as error:
                self.rejected.append(internal(error, None, _sequence(record)))
        return _in_order(decoded)

    def _decode(self, record: Any) -> Record:
        setup = self._setup
        return decode(record, setup.tables, self._program.tables, setup.labels, setup.fixed_label)

    def apply(self, made: Plan) -> None:
        self.rejected.extend(made.rejected)
        for step in self._steps(made):
            step()

    def apply_singly(self, records: Sequence[Record]) -> None:
        """Each record for itself, and each step of it: what cannot be done for one is rejected, the others are done.

        For what must not happen: values that a rule or the store cannot digest, a request of ours that DynamoDB refuses.
        What was done before is found done.
        """
        for record in records:
            if self.deadline.over:
                self._fail([record.sequence], str(self.deadline.out_of_time))
                continue
            try:
                made = plan(self._program, [record], self.guards, self.settles)
            except Exception as error:
                self._undigested(record, error)
                continue
            self.rejected.extend(made.rejected)
            for step in self._steps(made):
                try:
                    step()
                except Misconfigured:
                    raise
                except Exception as error:
                    self._undigested(record, error)

    def _undigested(self, record: Record, error: Exception) -> None:
        if isinstance(error, Transient):
            return self._fail([record.sequence], str(error))
        key = encode_key(record.key)
        if is_internal(error):
            self.rejected.append(internal(error, key, record.sequence, event=record.event))
        else:
            self.rejected.append(Rejected(None, str(error), key, record.sequence, record.key.table, record.event))
        return None

    def unexpected(self, error: Exception) -> None:
        """Notes an error of the batch as a whole, if it is an internal one. The record that has it is found singly."""
        if is_internal(error):
            self.internal.append(trace_of(error))

    def _steps(self, made: Plan) -> Iterator[Callable[[], None]]:
        """What a plan asks for, in order."""
        copier = Copier(self._program, self._store, self.guards, self.counters)
        items = ApplicationItems(self._program, self._store, self.guards)
        yield partial(self._ledger, made.changes)
        yield partial(self._run_all, [partial(self._release, items, release) for release in made.releases])
        pieces: list[Callable[[], None]] = [partial(self._copy, copier, copy) for copy in made.copies]
        pieces += [partial(self._index, items, write) for write in made.indexes]
        yield partial(self._run_all, pieces)
        yield partial(self._run_all, [partial(self._heal_copy, copier, heal) for heal in _distinct(made.copy_heals)])
        yield partial(self._heal, made.heals)
        if made.pushes or made.pulls:
            yield partial(self._embed, made)

    def _run_all(self, pieces: Sequence[Callable[[], None]]) -> None:
        self._run(pieces)

    def _heal(self, heals: Mapping[Target, str]) -> None:
        publisher = self._publisher()
        for some in _slices(heals):
            if self.deadline.over:
                self._fail([heals[target] for target in some], str(self.deadline.out_of_time))
                continue
            for target, error in publisher.heal(some, self.deadline).items():
                self._failed([heals[target]], error, rule=target[0], key=target[1], target=target[1])

    def _embed(self, made: Plan) -> None:
        setup = self._setup
        # many parents at once, or the children of one: never both, because what runs at once must not wait for itself
        inner = self._run if len(made.pushes) == 1 else one_by_one
        embedder = Embedder(self._program, self._store, self.guards, pace=setup.pace, counters=self.counters, run=inner)
        waiting: list[tuple[Push, str]] = []
        self._run_all([partial(self._push, embedder, push, first, waiting) for push, first in made.pushes.items()])
        self._run_all([partial(self._pull, embedder, *pull, first) for pull, first in made.pulls.items()])
        if waiting:  # without a queue the second pass over an index is made at once, as soon as it has settled
            if self.deadline.left <= SETTLE_SECONDS:  # next time the first pass has little left to do
                for push, first in waiting:
                    self._fail([first], f"{push.rule}: too little time to wait until the index has settled")
                return
            setup.sleep(SETTLE_SECONDS)
            self._run_all([partial(self._push, embedder, push, first, waiting) for push, first in waiting[:]])

    def _push(self, embedder: Embedder, push: Push, first: str, waiting: list[tuple[Push, str]]) -> None:
        """The first page at once; the rest as tasks, or at once where there is no queue."""
        tasks = self._setup.tasks

        def one(page: Push) -> Push | None:
            if page is push and not push.again:
                embedder.raise_fence(push)
            more, hopeless = embedder.push_page(page, self.deadline)
            for key, reason in hopeless:
                self.rejected.append(of_child(push, key, reason, first))
            following = embedder.following(page, more)
            if following is None:
                return None
            step, later = following
            if tasks is not None:
                tasks(step, SETTLE_SECONDS if later else 0.0)
                return None
            if later:
                waiting.append((step, first))
                return None
            return step

        page: Push | None = push
        while page is not None:
            steps: list[Push | None] = [None]

            def work(now: Push = page, steps: list[Push | None] = steps) -> None:
                steps[0] = one(now)

            self._attempt(work, first, push.rule, push.parent)
            page = steps[0]

    def _pull(self, embedder: Embedder, name: str, key: ItemKey, first: str) -> None:
        rule = self._program.embeds[name]
        self._attempt(partial(embedder.pull, rule, key, self.deadline), first, name, encode_key(key))

    def _publisher(self, run: Run[Any] | None = None) -> Publisher:
        return Publisher(
            self._program,
            self._store,
            self._setup.generations,
            guards=self.guards,
            run=run or self._run,
            counters=self.counters,
            publishes=self._publishes,
        )

    # Aggregates: commit, publish, and only then forget what was to be published.

    def _ledger(self, waves: Sequence[Sequence[Change]]) -> None:
        setup = self._setup
        ledger = Ledger(
            self._program,
            self._store,
            run=self._run,
            chance=setup.chance,
            generations=setup.generations,
            counters=self.counters,
            relieve=self._relieve,
        )
        publisher = self._publisher()
        failed: set[str] = set()
        for wave in waves:
            changes = []
            for change in wave:
                if change.source in failed:  # an earlier change of the same item has to come first
                    self._fail(change.sequences, "an earlier change of the same item failed")
                else:
                    changes.append(change)
            ledger.commit(changes, self.deadline)
            for change in changes:
                if change.state == "failed":
                    failed.add(change.source)
                    self._fail(change.sequences, str(change.error))
                for rule, reason in change.rejected:
                    self.rejected.append(refused(change, rule, reason, change.sequences[-1]))
            for state, number in Counter(change.state for change in changes).items():
                self.counters.add(_COUNTED.get(state, "failed"), number)
            done = [change for change in changes if change.state != "failed"]
            if done:
                self._publish(done, publisher)

    def _relieve(self, source: str, entry: Entry, deadline: Deadline) -> Entry | None:
        publish = self._publisher(one_by_one).publish  # it may be one of the pieces that run at once
        return relieved(self._store, publish, source, entry, self._setup.clock(), deadline)

    def _publish(self, changes: Sequence[Change], publisher: Publisher) -> None:
        """Publishes the targets of changes, in parts: between two of them the time is looked at."""
        try:
            indebted = [one for some in _slices(changes) for one in owing(self._store, some, self.deadline)]
        except Transient as error:
            for change in changes:
                self._fail(change.sequences, str(error))
            return None
        done: set[Target] = set()
        failures: dict[Target, StoreError] = {}
        for some in _slices(set().union(*[change.touched for change in changes])):
            if self.deadline.over:
                break
            failures.update(publisher.publish(some, self.deadline))
            done.update(some)
        done -= unpublished(failures)
        late = str(self.deadline.out_of_time)
        for change in changes:
            if failures.keys() & change.touched or not change.touched <= done:
                for target in sorted(failures.keys() & change.touched):
                    self._failed(
                        change.sequences[:1],
                        failures[target],
                        rule=target[0],
                        key=target[1],
                        target=target[1],
                        source=change.source,
                    )
                if any(target not in done and target not in failures for target in change.touched):
                    self._fail(change.sequences[:1], late)
        if self.deadline.over:  # what they owe stays written down
            return self._fail([change.sequences[0] for change, _ in indebted], late)
        published = [(change.source, entry, entry.owed & done) for change, entry in indebted]
        owing_still = forget(self._store, published, self._setup.clock(), self.deadline, self._run)
        for change, _ in indebted:
            if change.source in owing_still:
                self._failed(change.sequences[:1], owing_still[change.source], rule=None, key=change.source)
        return None

    # Copies and indexes.

    def _copy(self, copier: Copier, copy: CopyWrite) -> None:
        self._attempt(partial(copier.write, copy, self.deadline), copy.sequence, copy.rule.name, copy.source)

    def _heal_copy(self, copier: Copier, heal: CopyHeal) -> None:
        self._attempt(partial(copier.heal, heal, self.deadline), heal.sequence, heal.rule.name, encode_key(heal.target))

    def _index(self, items: ApplicationItems, write: IndexWrite) -> None:
        def apply() -> None:
            if write_index(items, write):
                self.counters.add("indexed")

        self._attempt(apply, write.sequence, ", ".join(write.rules), encode_key(write.key))

    def _release(self, items: ApplicationItems, release: Release) -> None:
        def apply() -> None:
            if items.release(release):
                self.counters.add("released")

        self._attempt(apply, release.sequence, release.entity.name, encode_key(release.key))

    def _attempt(self, work: Callable[[], None], sequence: str, rule: str, key: str) -> None:
        if self.deadline.over:
            return self._fail([sequence], str(self.deadline.out_of_time))
        try:
            self.deadline.retry(work)
        except (Transient, InvalidRequest) as error:
            self._failed([sequence], error, rule=rule, key=key)

    # The answer.

    def _failed(
        self,
        sequences: Iterable[str],
        error: StoreError,
        *,
        rule: str | None,
        key: str,
        target: str | None = None,
        source: str | None = None,
    ) -> None:
        if isinstance(error, InvalidRequest):
            for sequence in sequences:
                self.rejected.append(rejected_by(error, rule, key, sequence, target=target, source=source))
        else:
            self._fail(sequences, str(error))

    def _fail(self, sequences: Iterable[str], reason: str) -> None:
        for sequence in sequences:
            self.failures.setdefault(sequence, reason)

    def outcome(self) -> Outcome:
        quarantine = self._setup.quarantine
        rejected = distinct(self.rejected)
        if rejected:
            reason = (
                "no quarantine queue is configured (QUARANTINE_QUEUE_URL); a record was rejected: " + rejected[0].reason
            )
            try:
                if quarantine is not None:
                    quarantine(rejected)
            except StoreError as error:
                reason, quarantine = f"the quarantine could not be written: {error}", None
            if quarantine is None:
                self._fail([r.sequence for r in rejected if r.sequence is not None], reason)
                if any(r.sequence is None for r in rejected):
                    self._fail([WHOLE_BATCH], reason)
        lowest = min(self.failures, key=lambda sequence: (len(sequence), sequence), default=None)
        self.counters.add("rejected", len(rejected))
        at_records = sum(one.fault == INTERNAL for one in rejected)
        internal = () if at_records else tuple(self.internal)
        self.counters.add("internal", at_records or len(internal))
        return Outcome(
            failed=lowest,
            failed_reason=self.failures[lowest] if lowest is not None else None,
            rejected=tuple(rejected),
            counts=self.counters.counts,
            internal=internal,
        )


def _slices(some: Iterable[T]) -> Iterator[list[T]]:
    left = iter(some)
    while part := list(islice(left, _PART)):
        yield part


def _sequence(record: Any) -> str | None:
    """The sequence number of a record as it came, if it has one."""
    change = record.get("dynamodb") if isinstance(record, Mapping) else None
    sequence = change.get("SequenceNumber") if isinstance(change, Mapping) else None
    return sequence if is_sequence(sequence) else None


def _sequences(records: Sequence[Any]) -> list[str]:
    """The sequence numbers of records as they came; the whole batch, as Lambda takes it, where there is none."""
    return [sequence for sequence in map(_sequence, records) if sequence is not None] or [WHOLE_BATCH]


def _in_order(records: list[Record]) -> list[Record]:
    """As a shard has them: no item's change before an older one of it, and each once. From a shard they come like that."""
    newest: dict[ItemKey, str] = {}
    for record in records:
        if record.version <= newest.get(record.key, ""):
            break
        newest[record.key] = record.version
    else:
        return records
    return list({(one.key, one.version): one for one in sorted(records, key=lambda one: one.version)}.values())


def _distinct(heals: Iterable[CopyHeal]) -> list[CopyHeal]:
    """One heal per copy: all sources named, each with the newest version shown, and the first sequence number that asked."""
    found: dict[ItemKey, CopyHeal] = {}
    for heal in heals:
        known = found.setdefault(heal.target, heal)
        newest = {source: max(at, known.sources.get(source, "")) for source, at in heal.sources.items()}
        found[heal.target] = replace(known, sources={**known.sources, **newest}, freed=known.freed or heal.freed)
    return list(found.values())
