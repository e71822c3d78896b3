"""Publishing groups to their targets, healing targets that the application overwrote, and forgetting what was published.

A publish reads the group's version, then its totals and members, and writes under the condition that the target has no
guard or an older one. To write without it would let a slow function replace newer values by those it read a while ago.

A heal cannot use that condition: a guard from the future (on a cloned item, or of a ledger that was restored) would lock
the target forever. It writes if the guard is as it was read, whatever its version. So the item has to be read before the
group: with the group read first, a publish in between would leave an old group behind a guard that is as read.

Both write only to items of the target's kind, and each attempt is one conditional write: see `engine.targets`.

Once a contribution is removed from an entry, the entry does not name its target any more. If the process stops between
commit and publish, nothing would lead to that target. So a commit adds it to the entry (`Entry.recent`), and it is removed
after the publish, on condition that the revision of the entry is as it was before the publish: after a commit in between,
the target has to be published again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import Any

from projections.engine.application import ApplicationItems, purpose_of
from projections.engine.changes import Change, Result
from projections.engine.groups import Generations, Group, damaged_group, read_groups, read_members
from projections.engine.guards import Guards
from projections.engine.ledger_items import LEDGER, Entry, Target, entry_key, group_at, read_recent, recent_element
from projections.engine.report import Counters
from projections.engine.running import UNLIMITED, Deadline, Run, one_by_one, write_all
from projections.engine.store import AllOf, Equal, Exists, Image, ItemKey, Purpose, Records, Store, Update, Value
from projections.engine.targets import Publication, TargetWriter, contributed
from projections.errors import ConditionFailed, InvalidRequest, Occupied, StoreError, Transient
from projections.language.keys import decode_key, is_range
from projections.language.program import Program
from projections.language.rules import LedgerRule

_MOST_TRIES = 20

Causes = Mapping[Target, Sequence[str]]
"""By target, the sequence numbers of the records for which it is published."""

_NO_RECORDS: Mapping[Any, Records] = MappingProxyType({})


class Publisher:
    """Publishes groups to targets. Failures are returned by target, so that one target does not stop the others.

    Nothing is written for rules that do not publish now, and for groups that are being rebuilt.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        generations: Generations,
        guards: Guards,
        run: Run[Any] = one_by_one,
        *,
        counters: Counters | None = None,
        publishes: Callable[[LedgerRule], bool] = lambda rule: True,
    ) -> None:
        self._program = program
        self._store = store
        self._generations = generations
        self._run = run
        self._publishes = publishes
        self._counters = counters or Counters()
        self._items = ApplicationItems(program, store, guards)
        self._writer = TargetWriter(program, store, self._items, self._counters)

    def publish(
        self, targets: Iterable[Target], deadline: Deadline, records: Causes = _NO_RECORDS
    ) -> dict[Target, StoreError]:
        """Bring targets with an older guard up to their groups. Return the failures."""
        known = self._known(targets)
        failures: dict[Target, StoreError] = {}
        if not known:
            return failures
        try:
            deadline.check()
            groups = read_groups(self._store, list(known), self._generations)
        except Transient as error:
            return dict.fromkeys(known, error)
        updates: dict[Target, Update] = {}
        publications: dict[Target, Publication] = {}
        for target, rule in known.items():
            group = groups[target]
            if group.damaged:
                failures[target] = damaged_group(group.damaged)
            elif not group.rebuilding:
                why = purpose_of(rule, tuple(records.get(target, ())))
                publication = publications[target] = Publication(rule, decode_key(target[1]), group, {}, why)
                update = self._writer.unread(publication) if shares_calls(rule) else None
                if update is not None:
                    updates[target] = update
        pieces = [
            partial(self._try, target, partial(self._publish_one, target, publication), deadline, failures)
            for target, publication in publications.items()
            if target not in updates
        ]
        self._run(pieces)
        self._publish_each(publications, updates, deadline, failures)
        return failures

    def heal(
        self, targets: Iterable[Target], deadline: Deadline, records: Causes = _NO_RECORDS
    ) -> dict[Target, StoreError]:
        """Bring targets up to their groups, whatever the versions of their guards. Return the failures."""
        known = self._known(targets)
        failures: dict[Target, StoreError] = {}
        if not known:
            return failures
        keys = {target: decode_key(target[1]) for target in known}
        try:
            deadline.check()
            items, groups = self._read_many(keys)
        except Transient as error:
            return dict.fromkeys(known, error)
        pieces = []
        for target, rule in known.items():
            first = (items.get(keys[target]), groups[target])
            why = purpose_of(rule, tuple(records.get(target, ())))
            work = partial(self._heal_one, rule, target, [first], deadline, why)
            pieces.append(partial(self._try, target, work, deadline, failures))
        self._run(pieces)
        return failures

    def _known(self, targets: Iterable[Target]) -> dict[Target, LedgerRule]:
        """The targets that are items, and whose rules exist and publish, with these rules."""
        return {
            target: rule
            for target in sorted(set(targets))
            if not is_range(target[1])
            and (rule := self._program.recorded.get(target[0])) is not None
            and rule.writes_items
            and self._publishes(rule)
        }

    def _try(
        self, target: Target, work: Callable[[], None], deadline: Deadline, failures: dict[Target, StoreError]
    ) -> None:
        try:
            deadline.retry(work)
        except (Transient, InvalidRequest) as error:
            failures[target] = error

    # Publishing

    def _publish_one(self, target: Target, publication: Publication) -> None:
        rule, key, group = publication.rule, publication.key, publication.group
        members = read_members(self._store, rule, target[1], group)
        publication = publication._replace(members=members)
        item: Image | None = None
        # Only the item shows which attributes to remove from a copy of all attributes, and where there is no claim any
        # more, perhaps since the group was read.
        suffices = not rule.claimed or (contributed(rule, group, members) and not rule.copies_all)
        update = self._writer.unread(publication) if suffices else None
        if update is None:
            item = self._writer.read(key)
        elif not rule.creates or group.at != group_at(group.generation, 1):  # at the first version there is no item yet
            try:
                self._store.write(update)
            except ConditionFailed as failed:
                item = failed.item
            else:
                if rule.creates and group.totals.n == 0:
                    self._writer.delete_empty(publication)
                return self._counters.add("published")
        return self._publish_read(publication, item)

    def _publish_each(
        self,
        publications: Mapping[Target, Publication],
        updates: Mapping[Target, Update],
        deadline: Deadline,
        failures: dict[Target, StoreError],
    ) -> None:
        """Publish to many targets in few requests. Rules that create or delete items need a request for each target."""
        unsure: list[Target] = []
        answers = write_all(self._store, list(updates.values()), deadline, self._run)
        for target, answer in zip(updates, answers, strict=True):
            if answer is None:
                self._counters.add("published")
            elif not isinstance(answer, ConditionFailed):
                failures[target] = answer
            elif publications[target].rule.into.pattern is not None:  # no condition can express every `match`
                unsure.append(target)
        if not unsure:  # the others do not exist, or have a guard that is as new
            return
        try:
            deadline.check()
            items = self._store.get_many([publications[target].key for target in unsure])
        except Transient as error:
            failures.update(dict.fromkeys(unsure, error))
            return
        pieces = []
        for target in unsure:
            rule, key, group, _, _ = publications[target]
            item = items.get(key)
            guard = self._items.guard(rule, key, item)
            if self._items.is_of(rule.into, key, item) and (guard is None or guard.at < group.at):
                work = partial(self._publish_read, publications[target], item)
                pieces.append(partial(self._try, target, work, deadline, failures))
        self._run(pieces)

    def _publish_read(self, publication: Publication, item: Image | None) -> None:
        """Publish to an item that was read after its group."""
        for _ in range(_MOST_TRIES):
            try:
                if self._writer.bring(publication, item, heals=False):
                    self._counters.add("published")
                return
            except ConditionFailed as failed:
                item = failed.item
        raise Transient(f"{publication.rule.name}: a target kept changing while it was published")

    # Healing

    def _heal_one(
        self,
        rule: LedgerRule,
        target: Target,
        read: list[tuple[Image | None, Group]],
        deadline: Deadline,
        why: Purpose,
    ) -> None:
        """Heal one target. `read` has the item and the group for the first attempt, as `_read_many` read them."""
        key = decode_key(target[1])
        for _ in range(_MOST_TRIES):
            deadline.check()
            item, group = read.pop() if read else self._read_one(target, key)
            if group.rebuilding or (item is None and not rule.creates):
                return
            if group.damaged:
                raise damaged_group(group.damaged)
            if item is None and group.totals.n == 0:
                return
            members = read_members(self._store, rule, target[1], group)
            try:
                if self._writer.bring(Publication(rule, key, group, members, why), item, heals=True):
                    self._counters.add("healed")
                return
            except ConditionFailed:
                continue
        raise Transient(f"{rule.name}: the guard of a target kept changing while it was healed")

    def _read_many(self, keys: Mapping[Target, ItemKey]) -> tuple[Mapping[ItemKey, Image], Mapping[Target, Group]]:
        """The items with their guards, then the groups."""
        items = self._writer.read_many(keys.values())
        return items, read_groups(self._store, list(keys), self._generations)

    def _read_one(self, target: Target, key: ItemKey) -> tuple[Image | None, Group]:
        """The item with its guard, then the group."""
        item = self._writer.read(key)
        return item, read_groups(self._store, [target], self._generations)[target]


def unpublished(failures: Mapping[Target, StoreError]) -> set[Target]:
    """Return the targets that have a pending publish. A key that is occupied has none: the record of that item's removal
    publishes.
    """
    return {target for target, error in failures.items() if not isinstance(error, Occupied)}


def shares_calls(rule: LedgerRule) -> bool:
    """Whether publishes of a rule share requests: they create no items and need no reads."""
    return not rule.creates and not rule.member_queries


TOMBSTONE_SECONDS = 7 * 24 * 3600
"""How long the entry of a removed item is kept: well beyond the 24 hours for which a stream keeps its records."""


def pending_entries(store: Store, results: Sequence[Result], deadline: Deadline = UNLIMITED) -> dict[str, Entry]:
    """Return the entries with pending publishes, or that should expire, by source, as they are before publishing.

    Raises Transient; OutOfTime is one.
    """
    sources = [result.change.source for result in results if result.may_have_pending]
    if not sources:
        return {}
    deadline.check()
    items = store.get_many([entry_key(source) for source in sources])
    return {
        source: Entry.read(item)
        for source in deadline.checked(sources)
        if (item := items.get(entry_key(source))) is not None
    }


def relieved(
    store: Store,
    publish: Callable[[Iterable[Target], Deadline, Mapping[Target, Records]], Mapping[Target, StoreError]],
    change: Change,
    entry: Entry,
    now: float,
    deadline: Deadline,
) -> Entry | None:
    """Make the pending publishes of an entry and remove them, so that it has room for a change. `now` as in `forget`.

    Return the entry as it is then, None if none could be removed. Raises Transient.
    """
    source, records = change.source, change.sequences
    failures = dict(publish(entry.pending, deadline, dict.fromkeys(entry.pending, records)))
    published = entry.pending - failures.keys()
    if published:
        forgotten = forget(store, [(source, entry, published)], now, deadline, one_by_one, {source: records})
        failures.update({("", source): error for source, error in forgotten.items()})
    for failure in failures.values():
        if isinstance(failure, Transient):
            raise failure
    if not published or ("", source) in failures:
        return None
    return entry._replace(recent=entry.recent - {recent_element(target) for target in published})


def forget(
    store: Store,
    published: Iterable[tuple[str, Entry, Set[Target]]],
    now: float,
    deadline: Deadline,
    run: Run[list[StoreError | None]],
    records: Mapping[str, Records] = _NO_RECORDS,
) -> dict[str, StoreError]:
    """Remove published targets from `recent`, and let entries without contributions expire. `now` is in seconds since 1970.

    `published` has sources with their entries and the targets that were published. An entry with a newer commit is left as
    it is: that commit's invocation publishes. `records` has the sequence numbers of the records by source. Return the
    failures by source.
    """
    expiry: Value = {"N": str(int(now) + TOMBSTONE_SECONDS)}
    exists = Exists((store.schema(LEDGER).partition[0],))
    updates: dict[str, Update] = {}
    for source, entry, targets in published:
        done = {recent_element(target) for target in targets} & entry.recent
        ended = not entry.contributions and done == entry.recent and not entry.expires
        if not done and not ended:
            continue
        rules = tuple(sorted({read_recent(element)[0] for element in done}))
        some = done != entry.recent  # all of it is removed as a whole: while the revision stays, nothing is added
        updates[source] = Update(
            entry_key(source),
            set={"ttl": expiry} if ended else {},
            remove=("recent",) if done and not some else (),
            discard={"recent": {"SS": sorted(done)}} if some else {},
            condition=AllOf((exists, Equal(("revision",), {"N": str(entry.revision)}))),
            purpose=Purpose("forget", rules, source, records.get(source, ())),
        )
    answers = write_all(store, list(updates.values()), deadline, run)
    return {
        source: answer
        for source, answer in zip(updates, answers, strict=True)
        if answer is not None and not isinstance(answer, ConditionFailed)
    }
