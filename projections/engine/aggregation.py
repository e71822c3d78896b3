"""Contributions of a batch: commit → publish → forget, round by round.

An entry names its pending publishes from the commit on, until they are made. An invocation that ends in between leaves
them written down, and the records are delivered again. With publish before commit, a lost commit would leave a value that
no entry accounts for; with forget before publish, an end in between would leave a target wrong for good, because the
redelivery is a duplicate.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from functools import partial
from typing import NamedTuple

from projections.engine.attempts import Attempt
from projections.engine.batch import Admitted
from projections.engine.budget import Refresh
from projections.engine.changes import Change, ChangeState, Result
from projections.engine.deadline import Deadline
from projections.engine.ledger import Ledger
from projections.engine.ledger_items import Entry, Target
from projections.engine.publishing import unpublished
from projections.engine.recent import forget, pending_entries, relieved
from projections.engine.rejections import refused
from projections.engine.running import one_by_one, slices
from projections.errors import StoreError, Transient

__all__ = ["PART", "Aggregation", "Published"]

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

    def __init__(self, batch: Admitted) -> None:
        setup = batch.setup
        self._batch = batch
        self._store = setup.store
        self._deadline = batch.deadline
        self._report = batch.report
        self._publisher = batch.publisher()
        self._ledger = Ledger(
            setup.program,
            setup.store,
            run=setup.run,
            chance=setup.chance,
            generations=setup.generations,
            counters=batch.report.counters,
            relieve=self._relieve,
            spend=self._affords,
        )

    def apply(self, rounds: Sequence[Sequence[Change]]) -> None:
        """Apply rounds of changes, one after another. A change whose item failed in an earlier round is not tried."""
        failed: set[str] = set()
        setup = self._batch.setup
        for changes in rounds:
            if failed:
                for change in changes:
                    if change.source in failed:
                        self._report.fail(change.sequences, "an earlier change of the same item failed")
                changes = [change for change in changes if change.source not in failed]
            results = self.commit(changes)
            failed.update(result.change.source for result in results if result.state == "failed")
            left = [result.change for result in results if result.state == "deferred"]
            setup.run([partial(self._defer, change) for change in left])
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

    def _affords(self, attempt: Attempt) -> bool:
        setup = self._batch.setup
        return setup.tasks is None or setup.budget.affords(setup.program, attempt)

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
        now, run = self._batch.setup.clock(), self._batch.setup.run
        failures = forget(self._store, entries, now, self._deadline, run, records)
        for source, error in failures.items():
            self._report.refuse(records[source][:1], error, rule=None, key=source)

    def _relieve(self, change: Change, entry: Entry, deadline: Deadline) -> Entry | None:
        publish = self._batch.publisher(one_by_one).publish  # it may be one of the pieces that run at once
        return relieved(self._store, publish, change, entry, self._batch.setup.clock(), deadline)


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
