"""Refreshing entries: bringing what the ledger records of source items up to the items, and publishing what changed.

    1. Read the entry, then the item, both consistently, and commit the change under the condition that the entry is as read.
    2. If the entry has changed meanwhile, read both again.
    3. Publish, and forget the pending publishes of the entry.

There is no condition on the item: if it has changed since it was read, a record is on its way that will find this entry.
With the item read first, that record could be processed between the two reads, and the refresh would commit an older item
over it. Where an item was read before its entry, as by a scan, that is enough in two cases:

- There is no entry. A record of the item that was processed since would have left one, even if nothing contributes.
- The entry agrees with the item. Then there is nothing to commit.

All other items are read again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, TypeAlias

from projections.engine.changes import Change, Result
from projections.engine.goals import DiscardedRecord, Goals
from projections.engine.guards import Guards
from projections.engine.ledger import Ledger
from projections.engine.ledger_items import Entry, Target, entry_key
from projections.engine.publishing import Publisher, forget, pending_entries, unpublished_targets
from projections.engine.registry import RegistrySnapshot
from projections.engine.rejections import Failures, internal, internal_reason, is_internal, refusal, rejection_of
from projections.engine.running import Counters, Deadline, Reload, Run
from projections.engine.store import Image, ItemKey, Store
from projections.engine.transactions import check_epoch
from projections.engine.value_counters import ValueCounters
from projections.errors import InvalidRequest, StoreError, Transient
from projections.language.contribution import Evaluated
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program

_MOST_ROUNDS = 20

COMMIT_SECONDS = 300
"""How long after the registry was read changes are committed at most, while versions fill that lanes will count."""

Discarded: TypeAlias = Mapping[ItemKey, Sequence[DiscardedRecord]]
"""Records that Lambda discarded, by item."""


@dataclass(eq=False)
class EntryRefresher:
    """Refreshes entries, many at a time, and publishes the groups that they name."""

    program: Program
    store: Store
    snapshot: RegistrySnapshot
    guards: Guards
    values: ValueCounters
    failures: Failures
    counters: Counters
    _: KW_ONLY
    run: Run[Any]
    clock: Callable[[], float]
    chance: Callable[[], float]
    pace: Callable[[int], None] | None

    def __post_init__(self) -> None:
        self._ledger = Ledger(
            self.program,
            self.store,
            snapshot=self.snapshot,
            run=self.run,
            chance=self.chance,
            values=self.values,
            counters=self.counters,
            pace=self.pace,
        )
        self._until = self.clock() + COMMIT_SECONDS if any(v.lanes == 0 for v in self.snapshot.maintained) else None
        self._publisher = Publisher(
            self.program, self.store, self.snapshot, self.guards, run=self.run, counters=self.counters
        )
        is_right = self._ledger.is_right
        self._goals = Goals(self.program, self.snapshot, self.failures, is_right=is_right, clock=self.clock)

    def refresh(
        self,
        images: Mapping[ItemKey, Image | None],
        deadline: Deadline,
        *,
        publish: bool = False,
        removed: Collection[ItemKey] = (),
        discarded: Discarded | None = None,
        deferred: Mapping[ItemKey, str] | None = None,
    ) -> None:
        """Bring the entries of source items up to date; None for an item that was not read. See `Refresher.keys`.

        `deferred` has the versions of records that were left to this refresh (`engine.budget`).

        Publish all targets that these entries name, or without `publish` those that something was retracted from.
        """
        self.failures.isolate(
            list(images.items()),
            lambda part: self._refresh(dict(part), deadline, publish, removed, discarded or {}, deferred or {}),
            lambda pair: encode_key(pair[0]),
        )

    def publish(self, targets: Iterable[Target], deadline: Deadline) -> dict[Target, StoreError]:
        """Bring targets up to their groups, whatever their guards. Return the failures, which are noted too."""
        failures: dict[Target, StoreError] = {}

        def heal(targets: Sequence[Target]) -> None:
            failures.update(self._publisher.heal(targets, deadline))

        broken: dict[Target, StoreError] = {}
        for target, error in self.failures.apart(list(targets), heal):
            if is_internal(error):
                self.failures.rejected[internal(error, target[1])] = None
                broken[target] = InvalidRequest(internal_reason(error))
            else:
                failures[target] = InvalidRequest(str(error))
        for (rule, key), failure in failures.items():
            self.failures.note(rule, key, failure)
        return failures | broken

    def _refresh(
        self,
        images: Mapping[ItemKey, Image | None],
        deadline: Deadline,
        publish: bool,
        removed: Collection[ItemKey],
        discarded: Discarded,
        deferred: Mapping[ItemKey, str],
    ) -> None:
        unread = {key: image for key, image in images.items() if image is None or self._contributes(key, image)}
        done: list[Result] = []
        stuck: set[str] = set()
        rounds = 0
        while unread:
            soon = deadline
            if self._until is not None:  # lanes count the records that are made long enough after a fill
                soon = deadline.until(self._until, self.clock)
                if soon.over:
                    raise Reload(0)  # the fill may have ended
            try:
                deadline.check()
                changes = self._changes(unread, done, removed, discarded, deferred)
            except Transient as error:
                return self.failures.fail(unread, error)
            results = self._ledger.commit(changes, soon, stuck)
            applied = self._note_failures(results)
            done += applied
            moved = [decode_key(result.change.source) for result in results if result.state == "moved"]
            moved += self._relieve([result for result in results if result.state == "full"], stuck, deadline)
            unread = dict.fromkeys(moved)
            rounds += 1
            if unread and rounds == _MOST_ROUNDS:
                return self.failures.fail(unread, Transient("its entry keeps changing"))
        self._publish(done, deadline, publish)
        return None

    def _relieve(self, results: Sequence[Result], stuck: set[str], deadline: Deadline) -> list[ItemKey]:
        """Make the pending publishes of full entries. Return the items to be read again; `stuck` are added to."""
        again = []
        for result in results:
            source = result.change.source
            relieve = partial(self._publisher.relieve, result, self.clock(), deadline, heals=True)
            try:
                if not deadline.retry(relieve):
                    stuck.add(source)
                again.append(decode_key(source))
            except Transient as error:
                self.failures.failed[source] = str(error)
        return again

    def _note_failures(self, results: Sequence[Result]) -> list[Result]:
        """The results of changes that are committed. Note those that failed, and refused contributions of rules."""
        applied = []
        for result in results:
            source = result.change.source
            if result.state == "failed":
                self.failures.failed[source] = str(result.error)
            elif result.state == "applied":
                self.counters.add("applied")
                applied.append(result)
            for each in result.refused:
                self.failures.rejected[rejection_of(source, each)] = None
        return applied

    def _contributes(self, key: ItemKey, image: Image) -> bool:
        """Whether an item may have an entry, or should have one."""
        item, rules = self.program.recognise(key, image), self.program.ledger_rules
        if item is not None and item.entity.name in rules:
            return True
        return any(item.entity.name in rules for item in self.program.alternative_items(key, image))

    def _changes(
        self,
        images: Mapping[ItemKey, Image | None],
        done: list[Result],
        removed: Collection[ItemKey],
        discarded: Discarded,
        deferred: Mapping[ItemKey, str],
    ) -> list[Change]:
        """The changes to commit. Entries that need none, but may have pending publishes, are added to `done`."""
        of = {key: entry_key(encode_key(key)) for key in images}
        read = self.store.get_many(list(of.values()))
        entries = {key: Entry.read(read[where]) for key, where in of.items() if where in read}
        changes: list[Change] = []
        again: dict[ItemKey, Entry | None] = {}
        for key, image in images.items():
            entry = entries.get(key)
            check_epoch(entry, self.snapshot.epoch)
            if image is None:
                again[key] = entry
                continue
            change = self._goals.change(key, image, entry, may_have_expired=True)
            if change is None:
                self._add_unchanged(key, entry, done)
            elif entry is None:
                changes.append(change)
            else:
                again[key] = entry
        now = self.store.get_many(list(again))  # after their entries
        for key, entry in again.items():
            item, expires = now.get(key), key not in removed
            records, version = discarded.get(key, ()), deferred.get(key, "")
            change = self._goals.change(key, item, entry, may_have_expired=expires, discarded=records, version=version)
            if change is not None:
                changes.append(change)
            else:
                self._add_unchanged(key, entry, done)
        return changes

    def _add_unchanged(self, key: ItemKey, entry: Entry | None, done: list[Result]) -> None:
        """Add an entry that is right: its pending publishes are made, and it expires if it records nothing."""
        if entry is None:
            return
        change = Change(encode_key(key), "", entry.contributions, Evaluated(entry.contributions), entry)
        may_have_pending = not (entry.contributions or entry.kept) or bool(entry.recent)
        done.append(Result(change, "applied", entry.targets, may_have_pending))

    def _publish(self, results: Sequence[Result], deadline: Deadline, everything: bool) -> None:
        """Publish the targets of changes, or only those with a pending publish, and forget what was published."""
        try:
            entries = pending_entries(self.store, results)
        except Transient as error:
            return self.failures.fail((decode_key(result.change.source) for result in results), error)
        targets = {target for entry in entries.values() for target in (entry.targets if everything else entry.pending)}
        if everything:
            targets.update(*[result.touched for result in results])
        failures = self.publish(targets, deadline)
        pending = unpublished_targets(failures)
        published = [(source, entry, targets - pending) for source, entry in entries.items()]
        for source, failure in forget(self.store, published, self.clock(), deadline, self.run).items():
            if isinstance(failure, InvalidRequest):
                self.failures.reject(None, refusal(str(failure)), source)
            else:
                self.failures.failed[source] = str(failure)
        return None
