"""A batch after its admission: its stages, and its outcome.

Contributions: commit → publish → forget. An entry names its pending publishes from the commit on, until they are made. An
invocation that ends in between leaves them written down, and the records are delivered again. With publish before commit, a
lost commit would leave a value that no entry accounts for; with forget before publish, an end in between would leave a
target wrong for good, because the redelivery is a duplicate.

The others are copies, index attributes, releases, heals and embeds. Each is one conditional write that is right whatever the
others do, so they need no order among them.

What fails is in the batch's report: a record is delivered again, or rejected.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar

from projections.engine.application import ApplicationItems
from projections.engine.budget import Budget, Refresh
from projections.engine.changes import Change, ChangeState, Result
from projections.engine.clearing import Past, clear
from projections.engine.copier import Copier
from projections.engine.copies import CopyHeal, CopyWrite
from projections.engine.embeds import NOT_KEPT, SETTLE_SECONDS, Embedder, Push
from projections.engine.guards import Guards
from projections.engine.indexes import IndexWrite, write_index
from projections.engine.lanes import NO_LANES, Handover, LaneCounter, Parts, Split
from projections.engine.ledger import Ledger
from projections.engine.ledger_items import Entry, Target
from projections.engine.plan import Plan, Pull
from projections.engine.publishing import Publisher, forget, pending_entries, unpublished_targets
from projections.engine.records import WHOLE_BATCH, Record, sequence_of
from projections.engine.registry import RegistrySnapshot, Version
from projections.engine.rejections import (
    INTERNAL,
    Rejected,
    distinct,
    internal,
    is_internal,
    of_child,
    rejected_by,
    rejection_of,
    sequence_order,
    trace_of,
)
from projections.engine.releases import Release, Releaser
from projections.engine.rivals import WAIT, Overwrites
from projections.engine.running import Counters, Deadline, Run, one_by_one, slices
from projections.engine.store import Image, ItemKey, Records, Store, Value
from projections.engine.value_counters import ValueCounters
from projections.errors import ConditionFailed, InvalidRequest, StoreError, Transient
from projections.language.embeds import ListEmbedRule
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program

T = TypeVar("T")

_NOT_PUBLISHED = ("standby", "leaving", "gone")
"""States of versions that were published."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a batch.

    `failed` is the lowest sequence number to be delivered again (or WHOLE_BATCH), None if everything was done. `rejected`
    are the records that no delivery can apply; those `repeated` are not sent to the quarantine again. `counts` are for
    metrics. `internal` are the traces of unexpected exceptions of the whole batch that did not occur again when each record
    was applied alone; where they did, they are in `rejected`. `freshness` has, by rule, the ages in seconds of the oldest
    and of the newest change that it read, at the end of the batch.
    """

    failed: str | None
    failed_reason: str | None
    rejected: tuple[Rejected, ...]
    counts: Mapping[str, int]
    internal: tuple[str, ...] = ()
    freshness: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    repeated: tuple[Rejected, ...] = ()
    healing: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    """Of heals, by rule, reason and attributes: how many there were, and the encoded key of one target."""


class Report:
    """Gathers failures and rejections of records, by their sequence numbers. Safe for the threads of a batch."""

    def __init__(self) -> None:
        self.counters = Counters()
        self.rejected: list[Rejected] = []
        self._failures: dict[str, str] = {}
        self._internal: list[str] = []
        self._stale: list[str] = []
        self.times: dict[str, tuple[float, float]] = {}
        """By entity: when the oldest and the newest change of its items was made."""
        self.healing: dict[str, tuple[int, str]] = {}

    def give_up(self, records: Sequence[Any], reason: str) -> None:
        """Report all records, as Lambda passed them, as failed and none as rejected: they are delivered again."""
        self.rejected.clear()
        sequences = [sequence for sequence in map(sequence_of, records) if sequence is not None]
        self.fail(sequences or [WHOLE_BATCH], reason)

    @property
    def repeats(self) -> bool:
        """Whether records are to be delivered again."""
        return bool(self._failures)

    def fail(self, sequences: Iterable[str], reason: str) -> None:
        """Report records to be delivered again."""
        for sequence in sequences:
            self._failures.setdefault(sequence, reason)

    def refuse(
        self,
        sequences: Iterable[str],
        error: StoreError,
        *,
        rule: str | None,
        key: str,
        target: str | None = None,
        source: str | None = None,
    ) -> None:
        """Report records whose write failed: as rejected if DynamoDB refuses it (`rejected_by`), else as failed."""
        if isinstance(error, InvalidRequest):
            for sequence in sequences:
                self.rejected.append(rejected_by(error, rule, key, sequence, target=target, source=source))
        else:
            self.fail(sequences, str(error))

    def unusable(self, record: Record, error: Exception) -> None:
        """Report a record at which a stage raised any error."""
        if isinstance(error, Transient):
            return self.fail([record.sequence], str(error))
        key = encode_key(record.key)
        if is_internal(error):
            self.rejected.append(internal(error, key, record.sequence, event=record.event))
        else:
            self.rejected.append(Rejected(None, str(error), key, record.sequence, record.key.table, record.event))
        return None

    def note_unexpected(self, error: Exception) -> None:
        """Note an error of the batch as a whole, if it is an internal one. The record that causes it is found alone."""
        if is_internal(error):
            self._internal.append(trace_of(error))

    def note_stale(self, versions: Sequence[str]) -> None:
        """Note versions of rules that are maintained no longer, because this package cannot read them."""
        self._stale += [
            f"internal error: {name} is stale: this package cannot read its rule, which a newer one has registered. Deploy "
            "functions of that package, and run `projections apply`"
            for name in versions
        ]

    def saw(self, times: Mapping[str, tuple[float, float]]) -> None:
        """Note when changes were made, by entity."""
        for entity, (first, last) in times.items():
            before = self.times.get(entity, (first, last))
            self.times[entity] = min(before[0], first), max(before[1], last)

    def outcome(
        self,
        quarantine: Callable[[Sequence[Rejected]], None] | None,
        freshness: Mapping[str, tuple[float, float]] | None = None,
    ) -> Outcome:
        """Pass what was rejected to the quarantine, and return the outcome.

        Rejected records that the quarantine does not take are reported as failed: no record is lost.
        """
        rejections = distinct(self.rejected) if self.rejected else []
        rejected = [rejection for rejection in rejections if not rejection.repeated]
        repeated = tuple(rejection for rejection in rejections if rejection.repeated)
        if rejected:
            reason = "no quarantine queue is configured (QUARANTINE_QUEUE_URL); a record was rejected: "
            reason += rejected[0].reason
            try:
                if quarantine is not None:
                    quarantine(rejected)
            except StoreError as error:
                reason, quarantine = f"the quarantine could not be written: {error}", None
            if quarantine is None:
                self.fail([r.sequence for r in rejected if r.sequence is not None], reason)
                if any(r.sequence is None for r in rejected):
                    self.fail([WHOLE_BATCH], reason)
        first = min(self._failures, key=sequence_order, default=None)
        self.counters.add("rejected", len(rejected))
        self.counters.add("repeated", len(repeated))
        at_records = sum(rejection.fault == INTERNAL for rejection in rejected)
        traces = (*self._stale, *(() if at_records else self._internal))
        self.counters.add("internal", at_records + len(traces))
        return Outcome(
            failed=first,
            failed_reason=self._failures[first] if first is not None else None,
            rejected=tuple(rejected),
            repeated=repeated,
            counts=self.counters.counts,
            internal=traces,
            freshness=freshness or {},
            healing=self.healing if self.counters.counts["healed"] else {},  # the record of a heal requires another one
        )


PART = 1000
"""Targets or items that are read or published together: some tens of milliseconds of computing."""

_COUNTED: Mapping[ChangeState, str] = {"applied": "applied", "duplicate": "duplicates", "deferred": "deferred"}


@dataclass(eq=False)
class Batch:
    """A batch whose rules are active, as the registry was when it was read; see `Processor` for the other fields."""

    program: Program
    store: Store
    run: Run[Any]
    clock: Callable[[], float]
    tasks: Callable[[Push | Refresh, float], None] | None
    budget: Budget
    pace: Callable[[int], None]
    values: ValueCounters
    snapshot: RegistrySnapshot
    guards: Guards
    deadline: Deadline
    report: Report
    documents: Callable[[Sequence[Version]], Mapping[str, Mapping[str, Any]]]
    """Returns the documents of versions, by name."""
    handover: Handover
    split: Split = NO_LANES
    read: Mapping[Target, Image] = field(default_factory=dict)
    """Groups that were read with the registry."""
    gaps: set[str] = field(default_factory=set)
    """The versions of which something was not counted."""

    @cached_property
    def lane_counter(self) -> LaneCounter | None:
        """Counts by the lane of the batch's shard; None without versions that lanes count."""
        if self.split.lane is None:
            return None
        lane, counters = self.split.lane, self.report.counters
        return LaneCounter(self.program, self.store, lane, run=self.run, clock=self.clock, counters=counters)

    def note_gaps(self, versions: Iterable[str], reason: str) -> None:
        """Record that something of versions was not counted, which lanes cannot count later. Raises Transient."""
        new = set(versions) - self.gaps
        self.handover.note_gaps([self.snapshot.versions[name] for name in sorted(new)], reason, self.deadline)
        self.gaps |= new

    def note_unusable(self, error: Exception) -> None:
        """Note that a record could not be planned: it is delivered again before the next ones, or it was rejected."""
        if isinstance(error, Transient):
            if self.lane_counter is not None:
                self.lane_counter.stop()
        else:
            self.note_gaps(self.program.lanes, "a record was rejected, which lanes could not count")

    @cached_property
    def publisher(self) -> Publisher:
        counters = self.report.counters
        return Publisher(self.program, self.store, self.snapshot, self.guards, self.run, counters=counters)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(
            self.program,
            self.store,
            run=self.run,
            chance=self.deadline.chance,
            snapshot=self.snapshot,
            values=self.values,
            counters=self.report.counters,
            budget=self.budget if self.tasks is not None else None,
            read=self.read,
        )

    # Most batches need none of these.

    @cached_property
    def copier(self) -> Copier:
        return Copier(self.program, self.store, self.guards, self.report.counters)

    @cached_property
    def items(self) -> ApplicationItems:
        return ApplicationItems(self.program, self.store, self.guards)

    def leave(self, task: Refresh) -> None:
        """Sign and send a task. What it does is then done for the batch."""
        assert self.tasks is not None  # else there is no budget
        self.tasks(task._replace(signature=self.guards.sign(task.text)), self.budget.wait)

    def attempt(self, work: Callable[[], T], sequence: str, rule: str, key: str) -> T | None:
        """Do one independent piece of work for a record, again while it fails for a reason that passes.

        Return its result; None if it failed, which is reported.
        """
        if self.deadline.over:
            self.report.fail([sequence], str(self.deadline.out_of_time))
            return None
        try:
            return self.deadline.retry(work)
        except (Transient, InvalidRequest) as error:
            self.report.refuse([sequence], error, rule=rule, key=key)
        return None

    def leave_item(self, record: Record, overwrites: Overwrites) -> None:
        """Leave what rules wrote on an item to the worker. Without a signature, the task has no version (`Refresh`)."""
        assert self.tasks is not None
        source = encode_key(record.key)
        task = partial(self.tasks, Refresh(source, record.version), WAIT)
        self.attempt(partial(overwrites.send, record.key, task), record.sequence, "", source)

    # Contributions

    def apply_changes(self, changes: Sequence[Change], parts: Parts, later: Sequence[Sequence[Change]] = ()) -> None:
        """Commit changes, count parts, publish what they touch, and forget what was published.

        Of an item with a change that failed, none of the `later` ones is committed: it would make the first a duplicate.
        """
        results = list(self.commit(changes))
        for following in later:
            failed = {result.change.source for result in results if result.state == "failed"}
            for change in following:
                if change.source in failed:
                    self.report.fail(change.sequences, "an earlier record of the item has to be applied first")
            results += self.commit([change for change in following if change.source not in failed])
        self.run([partial(self._defer, result.change) for result in results if result.state == "deferred"])
        done = [result for result in results if result.state not in ("failed", "deferred")]
        counted = self._count(parts)
        if done or counted:
            self.publish(done, counted)

    def _count(self, parts: Parts) -> dict[Target, tuple[list[str], Image | None]]:
        """Count parts by the shard's lane. Return the groups that they change: records, and the group if it is known."""
        if not parts:
            return {}
        assert self.lane_counter is not None
        counted = self.lane_counter.count(parts, self.deadline)
        for target, error in counted.errors.items():
            sequences = list(dict.fromkeys(part.sequence for part in parts[target]))
            self.report.refuse(sequences, error, rule=target[0], key=target[1], target=target[1])
            if isinstance(error, InvalidRequest):
                self.note_gaps(target[:1], f"DynamoDB refuses to count in a group: {error}")
        return {
            target: ([part.sequence for part in changes], counted.groups.get(target))
            for target, changes in parts.items()
            if target not in counted.errors
        }

    def commit(self, changes: Sequence[Change]) -> Sequence[Result]:
        """Commit changes to the ledger."""
        results = self._commit_with_room(changes)
        for result in results:
            if result.state == "failed":
                self.report.fail(result.change.sequences, str(result.error))
            for refusal in result.refused:
                if refusal.rule in self.program.lanes:
                    self.note_gaps([refusal.rule], f"the ledger refuses a contribution: {refusal.reason}")
                self.report.rejected.append(rejection_of(result.change.source, refusal, result.change.sequences[-1]))
        for state, number in Counter(result.state for result in results).items():
            self.report.counters.add(_COUNTED.get(state, "failed"), number)
        return results

    def _commit_with_room(self, changes: Sequence[Change]) -> list[Result]:
        """Commit changes. Where an entry is full, make its pending publishes, and commit the change again."""
        results = {result.change.source: result for result in self.ledger.commit(changes, self.deadline)}
        stuck: set[str] = set()
        while full := [result for result in results.values() if result.state == "full"]:
            again: list[Change] = []
            for result in full:
                relieve = partial(self.publisher.relieve, result, self.clock(), self.deadline)
                try:
                    if not self.deadline.retry(relieve):
                        stuck.add(result.change.source)
                    again.append(result.change)
                except Transient as error:
                    results[result.change.source] = result._replace(state="failed", error=error)
            for result in self.ledger.commit(again, self.deadline, stuck):
                results[result.change.source] = result
        return [results[change.source] for change in changes]

    def _defer(self, change: Change) -> None:
        """Leave a change to the worker. The record is done when the task is sent."""
        task = Refresh(change.source, change.version, change.gone)
        self.attempt(partial(self.leave, task), change.sequences[0], "", change.source)

    def publish(self, results: Sequence[Result], counted: Mapping[Target, tuple[Sequence[str], Image | None]]) -> None:
        """Publish the targets of results and of what lanes counted, while there is time, and forget what was published."""
        try:
            pending: dict[str, Entry] = {}
            for part in slices(results, PART):
                pending |= pending_entries(self.store, part, self.deadline)
        except Transient as error:
            for result in results:
                self.report.fail(result.change.sequences, str(error))
            for sequences, _ in counted.values():
                self.report.fail(sequences, str(error))
            return
        done: set[Target] = set()
        failures: dict[Target, StoreError] = {}
        records = _records(results, pending)
        for target, (sequences, _) in counted.items():
            records.setdefault(target, []).extend(sequences)
        of_lanes = {target: group for target, (_, group) in counted.items() if group is not None}
        groups = self.ledger.transactions.groups | of_lanes
        for targets in slices(records, PART):
            if self.deadline.over:
                break
            failures.update(self.publisher.publish(targets, self.deadline, records, groups))
            done.update(targets)
        if self.publisher.lost:
            self.note_gaps(self.publisher.lost, "a target shows more than the ledger has: it was restored")
        published = done - unpublished_targets(failures)

        def report_unpublished(sequences: Sequence[str], touched: Set[Target], source: str | None = None) -> None:
            """Report the first of some records if a target that it leads to was not published."""
            first = sequences[:1]
            for rule, target in sorted(failures.keys() & touched):
                error = failures[rule, target]
                self.report.refuse(first, error, rule=rule, key=target, target=target, source=source)
            if touched - published - failures.keys():  # they were not tried
                self.report.fail(first, str(self.deadline.out_of_time))

        if failures or len(done) < len(records):
            for result in results:
                report_unpublished(result.change.sequences, _touched_by(result, pending), result.change.source)
            for target, (sequences, _) in counted.items():
                report_unpublished(sequences, {target})
        self._forget({result.change.source: result.change.sequences for result in results}, pending, published)

    def _forget(self, records: Mapping[str, Records], pending: Mapping[str, Entry], published: Set[Target]) -> None:
        """Remove published targets from the entries that name them. Without time left, they stay pending."""
        if not pending:
            return
        if self.deadline.over:
            for source in pending:
                self.report.fail(records[source][:1], str(self.deadline.out_of_time))
            return
        entries = [(source, entry, entry.pending & published) for source, entry in pending.items()]
        failures = forget(self.store, entries, self.clock(), self.deadline, self.run, records)
        for source, error in failures.items():
            self.report.refuse(records[source][:1], error, rule=None, key=source)

    # The other writes to items of the application

    def other_writes(self, plan: Plan) -> Iterator[Callable[[], object]]:
        """Yield the steps that make the other writes of a plan."""
        yield partial(self.run, [partial(self._unmark, *mark) for mark in plan.unmarked])
        yield partial(self.run, [partial(self._release, release) for release in plan.releases])
        yield partial(self.run, [partial(self._clear, *stray) for stray in plan.strays])
        pieces: list[Callable[[], None]] = [partial(self._copy, copy) for copy in plan.copies]
        pieces += [partial(self._index, write) for write in plan.indexes]
        yield partial(self.run, pieces)
        yield partial(self.run, [partial(self._heal_copy, heal) for heal in _distinct(plan.copy_heals)])
        yield partial(self._heal, plan.heals)
        if plan.pushes or plan.pulls:
            yield partial(self._embed, plan)

    def _release(self, release: Release) -> None:
        def apply() -> None:
            if Releaser(self.program, self.store, self.items).release(release):
                self.report.counters.add("released")

        self.attempt(apply, release.sequences[0], release.entity.name, encode_key(release.key))

    def _clear(self, key: ItemKey, rule: str, sequence: str) -> None:
        """Remove what versions of a rule have left on an item that are not published."""

        def apply() -> None:
            image = self.store.get(key)
            versions = [version for version in self.snapshot.of(rule) if version.state in _NOT_PUBLISHED]
            versions = [version for version in versions if version.state != "standby" or not version.held]
            past = [Past(name, document, self.program) for name, document in self.documents(versions).items()]
            clear(past, key, image, self.program, self.store, self.guards)

        self.attempt(apply, sequence, rule, encode_key(key))

    def _unmark(self, key: ItemKey, mark: Value, sequence: str) -> None:
        """Remove a mark that an update added, so that no rule deletes an item that the application has."""

        def apply() -> None:
            with suppress(ConditionFailed):
                self.items.unmark(key, mark, (sequence,))

        self.attempt(apply, sequence, "", encode_key(key))

    def _copy(self, copy: CopyWrite) -> None:
        at_once = not copy.copies or self.tasks is None or self.budget.affords_copies(copy)
        work = partial(self.copier.write, copy, self.deadline) if at_once else partial(self._leave, copy)
        self.attempt(work, copy.sequences[0], copy.rule.name, copy.source)

    def _leave(self, copy: CopyWrite) -> None:
        """Leave the copies of a source to the worker. The record is done when the task is sent."""
        self.copier.write(copy.removals, self.deadline)
        self.leave(Refresh(copy.source, copy.version, rule=copy.rule.name))
        self.report.counters.add("deferred")

    def _index(self, write: IndexWrite) -> None:
        record, key = write.sequences[0], encode_key(write.key)

        def apply() -> None:
            written, refused = write_index(self.items, write)
            if written:
                self.report.counters.add("indexed")
            for rule, error in refused:
                self.report.refuse([record], error, rule=rule, key=key)

        self.attempt(apply, record, ", ".join(write.rules), key)

    def _heal_copy(self, heal: CopyHeal) -> None:
        work = partial(self.copier.heal, heal, self.deadline)
        self.attempt(work, heal.sequences[0], heal.rule.name, encode_key(heal.target))

    def _heal(self, heals: Mapping[Target, str]) -> None:
        for part in slices(heals, PART):
            if self.deadline.over:
                self.report.fail([heals[target] for target in part], str(self.deadline.out_of_time))
                continue
            records = {target: (heals[target],) for target in part}
            for target, error in self.publisher.heal(part, self.deadline, records).items():
                self.report.refuse([heals[target]], error, rule=target[0], key=target[1], target=target[1])

    def _embed(self, plan: Plan) -> None:
        # many parents at once, or the children of one: never both, because what runs at once must not wait for itself
        embed_run = self.run if len(plan.pushes) == 1 else one_by_one
        counters = self.report.counters
        embedder = Embedder(self.program, self.store, self.guards, pace=self.pace, counters=counters, run=embed_run)
        waiting: list[tuple[Push, Records]] = []
        self.run([partial(self._push, embedder, push, records, waiting) for push, records in plan.pushes.items()])
        lists = {name for name, rule in self.program.embeds.items() if isinstance(rule, ListEmbedRule)}
        for several in (False, True):  # children of several parents last
            pulls = [(at, pull) for at, pull in plan.pulls.items() if (at[0] in lists) is several]
            self.run([partial(self._pull, embedder, *at, pull) for at, pull in pulls])
        if waiting:  # without a queue the second pass over an index is made here, after a wait for the index
            if self.deadline.left <= SETTLE_SECONDS:  # next time the first pass has little left to do
                for push, records in waiting:
                    self.report.fail(records[:1], f"{push.rule}: not enough time left to wait for the index")
                return
            self.deadline.sleep(SETTLE_SECONDS)
            self.run([partial(self._push, embedder, push, records, waiting) for push, records in waiting[:]])

    def _push(self, embedder: Embedder, push: Push, records: Records, waiting: list[tuple[Push, Records]]) -> None:
        """Push the first page at once; the rest as tasks, or at once where there is no queue."""
        page: Push | None = push
        while page is not None:
            work = partial(self._push_page, embedder, page, records, waiting)
            page = self.attempt(work, records[0], push.rule, push.parent)

    def _push_page(
        self, embedder: Embedder, page: Push, records: Records, waiting: list[tuple[Push, Records]]
    ) -> Push | None:
        """Push one page. Return the page to push next; None if there is none, or if it is left to a task or to `waiting`."""
        if page.after is None and not page.again and not embedder.raise_fence(page, records):
            table = decode_key(page.parent).table
            self.report.rejected.append(Rejected(page.rule, NOT_KEPT, page.parent, records[0], table))
        next_page, hopeless = embedder.push_page(page, self.deadline, records)
        for key, reason in hopeless:
            self.report.rejected.append(of_child(page.rule, page.parent, key, reason, records[0]))
        following, later = embedder.following(page, next_page) or (None, False)
        if following is not None and self.tasks is not None:
            self.tasks(following, SETTLE_SECONDS if later else 0.0)
            return None
        if following is not None and later:
            waiting.append((following, records))
            return None
        return following

    def _pull(self, embedder: Embedder, name: str, key: ItemKey, pull: Pull) -> None:
        rule, records = self.program.embeds[name], (pull.sequence,)
        work = partial(embedder.pull, rule, key, self.deadline, records)
        if isinstance(rule, ListEmbedRule):
            links = {"added": pull.added, "removed": pull.removed}
            work = partial(embedder.lists.pull, rule, key, self.deadline, records, **links)
        self.attempt(work, pull.sequence, name, encode_key(key))


def _records(results: Sequence[Result], pending: Mapping[str, Entry]) -> dict[Target, list[str]]:
    """Return the targets to publish, each with the sequence numbers of the records that lead to it."""
    sequences: dict[Target, list[str]] = {}
    for result in results:
        for target in _touched_by(result, pending):
            sequences.setdefault(target, []).extend(result.change.sequences)
    return sequences


def _touched_by(result: Result, pending: Mapping[str, Entry]) -> Set[Target]:
    """Return the targets of a result: those that its change and its entry name."""
    entry = pending.get(result.change.source)
    return result.touched | entry.targets if entry is not None else result.touched


def _distinct(heals: Iterable[CopyHeal]) -> list[CopyHeal]:
    """Return one heal per copy: all sources named, each with its newest version, and the records of all."""
    by_target: dict[ItemKey, CopyHeal] = {}
    for heal in heals:
        known = by_target.get(heal.target)
        if known is None:
            by_target[heal.target] = heal
            continue
        newest = {source: max(at, known.sources.get(source, "")) for source, at in heal.sources.items()}
        by_target[heal.target] = known._replace(
            sources={**known.sources, **newest},
            sequences=tuple(dict.fromkeys([*known.sequences, *heal.sequences])),
            freed=known.freed or heal.freed,
        )
    return list(by_target.values())
