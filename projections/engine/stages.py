"""The stages of a batch after its admission: contributions, and the other writes to the application's items.

Contributions: commit → publish → forget, round by round. An entry names its pending publishes from the commit on, until
they are made. An invocation that ends in between leaves them written down, and the records are delivered again. With publish
before commit, a lost commit would leave a value that no entry accounts for; with forget before publish, an end in between
would leave a target wrong for good, because the redelivery is a duplicate.

The others are copies, index attributes, releases, heals and embeds. Each is one conditional write that is right whatever the
others do, so they need no order among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

from projections.engine.application import ApplicationItems
from projections.engine.budget import Budget, Refresh
from projections.engine.changes import Change, ChangeState, Result
from projections.engine.copier import Copier
from projections.engine.copies import CopyHeal, CopyWrite
from projections.engine.embeds import SETTLE_SECONDS, Embedder, Push
from projections.engine.groups import Generations
from projections.engine.guards import Guards
from projections.engine.indexes import IndexWrite, write_index
from projections.engine.ledger import Ledger
from projections.engine.ledger_items import Entry, Target
from projections.engine.plan import ListPull, Plan
from projections.engine.publishing import Publisher, forget, pending_entries, relieved, unpublished
from projections.engine.registry import RegistrySnapshot
from projections.engine.rejections import of_child, refused
from projections.engine.releases import Release, Releaser
from projections.engine.report import Report
from projections.engine.running import Deadline, Run, one_by_one, slices
from projections.engine.store import ItemKey, Records, Store, Value
from projections.errors import ConditionFailed, InvalidRequest, StoreError, Transient
from projections.language.embeds import ListEmbedRule
from projections.language.keys import encode_key
from projections.language.program import Program

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch whose rules are active, as the registry was when it was read; see `Processor` for the other fields."""

    program: Program
    store: Store
    run: Run[Any]
    clock: Callable[[], float]
    tasks: Callable[[Push | Refresh, float], None] | None
    budget: Budget
    pace: Callable[[int], None]
    generations: Generations
    snapshot: RegistrySnapshot
    guards: Guards
    deadline: Deadline
    report: Report

    def publisher(self, run: Run[Any] | None = None) -> Publisher:
        """Return a publisher; `run` replaces that of the batch."""
        return Publisher(
            self.program,
            self.store,
            self.generations,
            guards=self.guards,
            run=run or self.run,
            counters=self.report.counters,
            publishes=self.snapshot.publishes,
        )

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


PART = 1000
"""Targets or items that are read or published together: some tens of milliseconds of computing."""

_COUNTED: Mapping[ChangeState, str] = {"applied": "applied", "duplicate": "duplicates", "deferred": "deferred"}


class Published(NamedTuple):
    """The targets of results that were published, and the entries with pending publishes as they were before.

    `failures` has the targets that were tried and failed; other targets that are not `done` were not tried.
    """

    results: Sequence[Result]
    pending: Mapping[str, Entry]
    done: Set[Target]
    failures: Mapping[Target, StoreError]

    def touched(self, result: Result) -> Set[Target]:
        """Return the targets of a result: those that its change and its entry name."""
        entry = self.pending.get(result.change.source)
        return result.touched | entry.targets if entry is not None else result.touched


class Aggregation:
    """Applies the changes of a plan to the ledger and publishes their targets. Failures are in the batch's report."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._store = batch.store
        self._deadline = batch.deadline
        self._report = batch.report
        self._publisher = batch.publisher()
        self._ledger = Ledger(
            batch.program,
            batch.store,
            run=batch.run,
            chance=batch.deadline.chance,
            generations=batch.generations,
            counters=batch.report.counters,
            relieve=self._relieve,
            spend=lambda attempt: batch.tasks is None or batch.budget.affords(batch.program, attempt),
        )

    def apply(self, rounds: Sequence[Sequence[Change]]) -> None:
        """Apply rounds of changes, one after another. A change whose item failed in an earlier round is not tried."""
        failed: set[str] = set()
        for changes in rounds:
            if failed:
                for change in changes:
                    if change.source in failed:
                        self._report.fail(change.sequences, "an earlier change of the same item failed")
                changes = [change for change in changes if change.source not in failed]
            results = self.commit(changes)
            failed.update(result.change.source for result in results if result.state == "failed")
            left = [result.change for result in results if result.state == "deferred"]
            self._batch.run([partial(self._defer, change) for change in left])
            done = [result for result in results if result.state not in ("failed", "deferred")]
            if done:
                published = self.publish(done)
                if published is not None:
                    self.forget(published)

    def commit(self, changes: Sequence[Change]) -> Sequence[Result]:
        """Commit changes to the ledger."""
        results = self._ledger.commit(changes, self._deadline)
        for result in results:
            if result.state == "failed":
                self._report.fail(result.change.sequences, str(result.error))
            for no in result.refused:
                self._report.rejected.append(refused(result.change.source, no, result.change.sequences[-1]))
        for state, number in Counter(result.state for result in results).items():
            self._report.counters.add(_COUNTED.get(state, "failed"), number)
        return results

    def _defer(self, change: Change) -> None:
        """Leave a change to the worker. The record is done when the task is sent."""
        task = Refresh(change.source, change.version, change.gone and not change.expired)
        self._batch.attempt(partial(self._batch.leave, task), change.sequences[0], "", change.source)

    def publish(self, results: Sequence[Result]) -> Published | None:
        """Publish the targets of results, in parts: the time is checked between two. None if entries could not be read."""
        try:
            pending: dict[str, Entry] = {}
            for some in slices(results, PART):
                pending |= pending_entries(self._store, some, self._deadline)
        except Transient as error:
            for result in results:
                self._report.fail(result.change.sequences, str(error))
            return None
        done: set[Target] = set()
        failures: dict[Target, StoreError] = {}
        records = _records(results, pending)
        for some_targets in slices(records, PART):
            if self._deadline.over:
                break
            failures.update(self._publisher.publish(some_targets, self._deadline, records))
            done.update(some_targets)
        published = Published(results, pending, done - unpublished(failures), failures)
        if failures or len(done) < len(records):
            self._report_unpublished(published)
        return published

    def _report_unpublished(self, published: Published) -> None:
        done, failures = published.done, published.failures
        for result in published.results:
            change, touched = result.change, published.touched(result)
            if touched <= done and not failures.keys() & touched:
                continue
            for target in sorted(failures.keys() & touched):
                self._report.refuse(
                    change.sequences[:1],
                    failures[target],
                    rule=target[0],
                    key=target[1],
                    target=target[1],
                    source=change.source,
                )
            if any(target not in done and target not in failures for target in touched):
                self._report.fail(change.sequences[:1], str(self._deadline.out_of_time))

    def forget(self, published: Published) -> None:
        """Remove published targets from the entries that name them. Without time left, they stay pending."""
        if not published.pending:
            return
        records = {result.change.source: result.change.sequences for result in published.results}
        if self._deadline.over:
            for source in published.pending:
                self._report.fail(records[source][:1], str(self._deadline.out_of_time))
            return
        entries = [(source, entry, entry.pending & published.done) for source, entry in published.pending.items()]
        now, run = self._batch.clock(), self._batch.run
        failures = forget(self._store, entries, now, self._deadline, run, records)
        for source, error in failures.items():
            self._report.refuse(records[source][:1], error, rule=None, key=source)

    def _relieve(self, change: Change, entry: Entry, deadline: Deadline) -> Entry | None:
        publish = self._batch.publisher(one_by_one).publish  # it may be one of the pieces that run at once
        return relieved(self._store, publish, change, entry, self._batch.clock(), deadline)


def _records(results: Sequence[Result], pending: Mapping[str, Entry]) -> dict[Target, list[str]]:
    """Return the targets to publish, each with the sequence numbers of the records that lead to it."""
    found: dict[Target, list[str]] = {}
    for result in results:
        change, touched = result.change, result.touched
        if change.source in pending:
            touched = touched | pending[change.source].targets
        for target in touched:
            found.setdefault(target, []).extend(change.sequences)
    return found


class ItemWrites:
    """Makes the writes of a plan to application items. Failures are in the batch's report."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._program = batch.program
        self._store = batch.store
        self._run = batch.run
        self._report = batch.report
        self._deadline = batch.deadline

    # Most batches need none of these.

    @cached_property
    def _copier(self) -> Copier:
        return Copier(self._program, self._store, self._batch.guards, self._report.counters)

    @cached_property
    def _items(self) -> ApplicationItems:
        return ApplicationItems(self._program, self._store, self._batch.guards)

    def steps(self, plan: Plan) -> Iterator[Callable[[], object]]:
        """Yield the steps of a plan."""
        yield partial(self._run, [partial(self._unmark, *mark) for mark in plan.unmarked])
        yield partial(self._run, [partial(self._release, release) for release in plan.releases])
        pieces: list[Callable[[], None]] = [partial(self._copy, copy) for copy in plan.copies]
        pieces += [partial(self._index, write) for write in plan.indexes]
        yield partial(self._run, pieces)
        yield partial(self._run, [partial(self._heal_copy, heal) for heal in _distinct(plan.copy_heals)])
        yield partial(self._heal, plan.heals)
        if plan.pushes or plan.pulls or plan.list_pulls:
            yield partial(self._embed, plan)

    def _release(self, release: Release) -> None:
        def apply() -> None:
            if Releaser(self._program, self._store, self._items).release(release):
                self._report.counters.add("released")

        self._batch.attempt(apply, release.sequences[0], release.entity.name, encode_key(release.key))

    def _unmark(self, key: ItemKey, mark: Value, sequence: str) -> None:
        """Remove a mark that an update added, so that no rule deletes an item that the application has."""

        def apply() -> None:
            with suppress(ConditionFailed):
                self._items.unmark(key, mark, (sequence,))

        self._batch.attempt(apply, sequence, "", encode_key(key))

    def _copy(self, copy: CopyWrite) -> None:
        batch = self._batch
        at_once = not copy.copies or batch.tasks is None or batch.budget.affords_copies(copy)
        work = partial(self._copier.write, copy, self._deadline) if at_once else partial(self._leave, copy)
        self._batch.attempt(work, copy.sequences[0], copy.rule.name, copy.source)

    def _leave(self, copy: CopyWrite) -> None:
        """Leave the copies of a source to the worker. The record is done when the task is sent."""
        self._copier.write(copy.removals, self._deadline)
        self._batch.leave(Refresh(copy.source, copy.version, rule=copy.rule.name))
        self._report.counters.add("deferred")

    def _index(self, write: IndexWrite) -> None:
        record, key = write.sequences[0], encode_key(write.key)

        def apply() -> None:
            written, refused = write_index(self._items, write)
            if written:
                self._report.counters.add("indexed")
            for rule, error in refused:
                self._report.refuse([record], error, rule=rule, key=key)

        self._batch.attempt(apply, record, ", ".join(write.rules), key)

    def _heal_copy(self, heal: CopyHeal) -> None:
        work = partial(self._copier.heal, heal, self._deadline)
        self._batch.attempt(work, heal.sequences[0], heal.rule.name, encode_key(heal.target))

    def _heal(self, heals: Mapping[Target, str]) -> None:
        publisher = self._batch.publisher()
        for some in slices(heals, PART):
            if self._deadline.over:
                self._report.fail([heals[target] for target in some], str(self._deadline.out_of_time))
                continue
            records = {target: (heals[target],) for target in some}
            for target, error in publisher.heal(some, self._deadline, records).items():
                self._report.refuse([heals[target]], error, rule=target[0], key=target[1], target=target[1])

    def _embed(self, plan: Plan) -> None:
        # many parents at once, or the children of one: never both, because what runs at once must not wait for itself
        inner = self._run if len(plan.pushes) == 1 else one_by_one
        embedder = Embedder(
            self._program,
            self._store,
            self._batch.guards,
            pace=self._batch.pace,
            counters=self._report.counters,
            run=inner,
        )
        waiting: list[tuple[Push, Records]] = []
        self._run([partial(self._push, embedder, push, records, waiting) for push, records in plan.pushes.items()])
        self._run([partial(self._pull, embedder, *pull, first) for pull, first in plan.pulls.items()])
        self._run([partial(self._pull_list, embedder, *pull, of) for pull, of in plan.list_pulls.items()])
        if waiting:  # without a queue the second pass over an index is made at once, as soon as it has settled
            if self._deadline.left <= SETTLE_SECONDS:  # next time the first pass has little left to do
                for push, records in waiting:
                    self._report.fail(records[:1], f"{push.rule}: not enough time left to wait for the index")
                return
            self._deadline.sleep(SETTLE_SECONDS)
            self._run([partial(self._push, embedder, push, records, waiting) for push, records in waiting[:]])

    def _push(self, embedder: Embedder, push: Push, records: Records, waiting: list[tuple[Push, Records]]) -> None:
        """Push the first page at once; the rest as tasks, or at once where there is no queue."""
        page: Push | None = push
        while page is not None:
            work = partial(self._push_page, embedder, page, records, waiting)
            page = self._batch.attempt(work, records[0], push.rule, push.parent)

    def _push_page(
        self, embedder: Embedder, page: Push, records: Records, waiting: list[tuple[Push, Records]]
    ) -> Push | None:
        """Push one page. Return the page to push next; None if there is none, or if it is left to a task or to `waiting`."""
        if page.after is None and not page.again:
            embedder.raise_fence(page, records)
        more, hopeless = embedder.push_page(page, self._deadline, records)
        for key, reason in hopeless:
            self._report.rejected.append(of_child(page.rule, page.parent, key, reason, records[0]))
        following, later = embedder.following(page, more) or (None, False)
        if following is not None and self._batch.tasks is not None:
            self._batch.tasks(following, SETTLE_SECONDS if later else 0.0)
            return None
        if following is not None and later:
            waiting.append((following, records))
            return None
        return following

    def _pull(self, embedder: Embedder, name: str, key: ItemKey, first: str) -> None:
        work = partial(embedder.pull, self._program.embeds[name], key, self._deadline, (first,))
        self._batch.attempt(work, first, name, encode_key(key))

    def _pull_list(self, embedder: Embedder, name: str, key: ItemKey, of: ListPull) -> None:
        rule = self._program.embeds[name]
        assert isinstance(rule, ListEmbedRule)
        work = partial(
            embedder.lists.pull,
            rule,
            key,
            self._deadline,
            (of.sequence,),
            added=of.added,
            removed=of.removed,
        )
        self._batch.attempt(work, of.sequence, name, encode_key(key))


def _distinct(heals: Iterable[CopyHeal]) -> list[CopyHeal]:
    """Return one heal per copy: all sources named, each with its newest version, and the records of all."""
    found: dict[ItemKey, CopyHeal] = {}
    for heal in heals:
        known = found.get(heal.target)
        if known is None:
            found[heal.target] = heal
            continue
        newest = {source: max(at, known.sources.get(source, "")) for source, at in heal.sources.items()}
        found[heal.target] = known._replace(
            sources={**known.sources, **newest},
            sequences=tuple(dict.fromkeys([*known.sequences, *heal.sequences])),
            freed=known.freed or heal.freed,
        )
    return list(found.values())
