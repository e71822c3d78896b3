"""Publishing groups to their targets, healing targets that the application overwrote, and forgetting what was published.

A publish reads the group's version, then its totals and members, and writes under the condition that the target has no
guard or an older one. To write without it would let a slow function replace newer values by those it read a while ago.

A heal cannot use that condition: a guard from the future (on a cloned item, or of a ledger that was restored) would lock
the target forever. It writes if the guard is as it was read, whatever its version. So the item has to be read before the
group: with the group read first, a publish in between would leave an old group behind a guard that is as read.

Both write only to items of the target's kind. Each attempt makes at most one write that changes values, conditional on the
item as it was read or on an older guard. Which write it is depends on the item:

    no item                 created, if the rule creates its targets and anything contributes
    an item of the kind     updated; deleted if a rule created it, nothing contributes, and nothing else is on it
    of another kind         the application's: only values are removed that the rule had set before the item changed its kind

Guards are ordered by promotion and version of the group. A guard of a newer promotion than the registry has shows that
another version of the rule is published by now: nothing is written (`Reload`), not by a heal either.

An item may have several rules' guards. It is deleted when each of them records that nothing contributes. To delete it with
the publish of the zeros would need one condition on all guards; instead the item is read after the zeros are written: of
several rules that publish zeros at once, the last one reads all of them.

Once a contribution is removed from an entry, the entry does not name its target any more. If the process stops between
commit and publish, nothing would lead to that target. So a commit adds it to the entry (`Entry.recent`), and it is removed
after the publish, on condition that the revision of the entry is as it was before the publish: after a commit in between,
the target has to be published again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from functools import cached_property, partial
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from projections.engine.application import ApplicationItems, occupied_error, purpose_of
from projections.engine.changes import Result
from projections.engine.groups import Group, damaged_group, read_groups, read_members, sum_group
from projections.engine.guards import Guard, Guards
from projections.engine.ledger_items import LEDGER, Entry, Target, entry_key, read_recent, recent_element
from projections.engine.registry import REGISTRY, RegistrySnapshot, epoch_of
from projections.engine.releases import Release, Releaser
from projections.engine.running import UNLIMITED, Counters, Deadline, Reload, Run, one_by_one, send_all, slices, tries
from projections.engine.store import AllOf, Equal, Exists, Purpose, Records, Store, Update, Values
from projections.errors import ConditionFailed, InvalidRequest, Occupied, StoreError, Transient
from projections.language.keys import Image, ItemKey, Value, decode_key, encode_key, is_range
from projections.language.program import Program
from projections.language.rules import LedgerRule, Members, public_name
from projections.language.values import differing

RULES_PER_WRITE = 20
"""The most rules that one write publishes to an item: of the 300 operators of a condition each takes 5."""

Causes = Mapping[Target, Sequence[str]]
"""By target, the sequence numbers of the records for which it is published."""

_NO_RECORDS: Mapping[Any, Records] = MappingProxyType({})


class Publication(NamedTuple):
    """A group that its target is to show, and why. `members` was read after `group`."""

    rule: LedgerRule
    key: ItemKey
    group: Group
    members: Members
    why: Purpose


class Publisher:
    """Publishes groups to targets. Failures are returned by target, so that one target does not stop the others.

    Nothing is written for versions that are not published. Methods raise Reload.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        snapshot: RegistrySnapshot,
        guards: Guards,
        run: Run[Any] = one_by_one,
        *,
        counters: Counters | None = None,
    ) -> None:
        self._program = program
        self._store = store
        self._snapshot = snapshot
        self._contested = snapshot.contested
        self._run = run
        self._counters = counters or Counters()
        self.lost: set[str] = set()
        """The versions with lanes of which the ledger has lost a group that was published, or a part of it."""
        self._guards = guards
        self._items = ApplicationItems(program, store, guards)

    @cached_property
    def _published(self) -> Mapping[str, LedgerRule]:
        """By name: the rules that publish to items."""
        rules = self._program.recorded.items()
        return {name: rule for name, rule in rules if rule.writes_items and self._snapshot.publishes(rule)}

    def publish(
        self,
        targets: Iterable[Target],
        deadline: Deadline,
        records: Causes = _NO_RECORDS,
        read: Mapping[Target, Image] = MappingProxyType({}),
    ) -> dict[Target, StoreError]:
        """Bring targets with an older guard up to their groups. Return the failures. `read` has groups that were read."""
        targets = set(targets)
        known, contested = self.publishing_rules(targets), self._contested_targets(targets)
        failures: dict[Target, StoreError] = {}
        if not known and not contested:
            return failures
        try:
            deadline.check()
            self._check_registry(contested)
            unread, promotion = [target for target in known if target not in read], self._snapshot.promotion
            groups = read_groups(self._store, unread, promotion) if unread else {}
        except Transient as error:
            return dict.fromkeys([*known, *contested], error)
        groups |= {target: sum_group(promotion(target[0]), [read[target]]) for target in known if target in read}
        sharing = {n for n, rule in self._published.items() if shares_calls(rule) and n not in self._contested}
        publications: dict[Target, Publication] = {}
        shared: dict[tuple[ItemKey, str], list[Target]] = {}
        for target, rule in known.items():
            group = groups[target]
            if group.damaged:
                failures[target] = damaged_group(group.damaged)
            else:
                why = purpose_of(rule, tuple(records.get(target, ())))
                publication = publications[target] = Publication(rule, decode_key(target[1]), group, {}, why)
                if rule.name in sharing:
                    shared.setdefault((publication.key, rule.into.name), []).append(target)
        updates: dict[tuple[Target, ...], Update] = {}
        for part in (part for together in shared.values() for part in slices(together, RULES_PER_WRITE)):
            update = self._unread([publications[target] for target in part])
            if update is not None:
                updates[tuple(part)] = update
        joint = set(chain.from_iterable(updates))
        alone = {
            target: partial(self._publish_one, target, publication)
            for target, publication in publications.items()
            if target not in joint
        }
        return failures | self._each(alone, deadline) | self._publish_together(publications, updates, deadline)

    def heal(
        self, targets: Iterable[Target], deadline: Deadline, records: Causes = _NO_RECORDS
    ) -> dict[Target, StoreError]:
        """Bring targets up to their groups, whatever the versions of their guards. Return the failures."""
        known = self.publishing_rules(targets)
        if not known:
            return {}
        keys = {target: decode_key(target[1]) for target in known}
        try:
            deadline.check()
            self._check_registry(self._contested_targets(known))
            read = dict.fromkeys(key for key in keys.values() if key.table in self._program.tables)
            items = self._store.get_many(list(read))  # with their guards; then the groups
            groups = read_groups(self._store, list(keys), self._snapshot.promotion)
        except Transient as error:
            return dict.fromkeys(known, error)
        works = {}
        for target, rule in known.items():
            first = (items.get(keys[target]), groups[target])
            why = purpose_of(rule, tuple(records.get(target, ())))
            works[target] = partial(self._heal_one, rule, target, [first], deadline, why)
        return self._each(works, deadline)

    def publishing_rules(self, targets: Iterable[Target]) -> dict[Target, LedgerRule]:
        """The targets that are items, and whose rules exist and publish, with these rules."""
        return {
            target: rule
            for target in sorted(set(targets))
            if (rule := self._published.get(target[0])) is not None and not is_range(target[1])
        }

    def _contested_targets(self, targets: Iterable[Target]) -> list[Target]:
        """The targets of rules that have several maintained versions, also of versions that are not published."""
        return [target for target in targets if target[0] in self._contested and not is_range(target[1])]

    def _check_registry(self, contested: Collection[Target]) -> None:
        """Read the registry again after commits to rules with several maintained versions. Raises Reload.

        Another one may be published by now. The process that promoted it publishes the groups that it found; of a group
        whose first commit came later, the target may show neither version.
        """
        if contested:
            item = self._store.get(REGISTRY)
            if item is not None and (epoch := epoch_of(item)) > self._snapshot.epoch:
                raise Reload(epoch)

    def _each(self, works: Mapping[Target, Callable[[], None]], deadline: Deadline) -> dict[Target, StoreError]:
        """Do independent pieces of work, each again while it fails for a reason that passes. Return the failures."""

        def attempt(work: Callable[[], None]) -> StoreError | None:
            try:
                deadline.retry(work)
            except (Transient, InvalidRequest) as error:
                return error
            return None

        errors = self._run([partial(attempt, work) for work in works.values()])
        return {target: error for target, error in zip(works, errors, strict=True) if error is not None}

    # Publishing

    def _publish_one(self, target: Target, publication: Publication) -> None:
        rule, key, group = publication.rule, publication.key, publication.group
        members = read_members(self._store, rule, target[1])
        publication = publication._replace(members=members)
        item: Image | None = None
        # Only the item shows which attributes to remove from a copy of all attributes, and where there is no claim any
        # more, perhaps since the group was read; and whether another version has published it before.
        suffices = rule.name not in self._contested and (
            not rule.claimed or (has_contributions(rule, group, members) and not rule.copies_all)
        )
        update = self._unread([publication]) if suffices else None
        if update is None:
            item = self._read(key)
        elif not rule.creates or group.version != 1:  # at the first version there is no item yet
            try:
                self._store.write(update)
            except ConditionFailed as failed:
                item = failed.item
            else:
                if rule.creates and group.totals.n == 0:
                    self._delete_empty(publication)
                return self._counters.add("published")
        return self._publish_read(publication, item)

    def _publish_together(
        self,
        publications: Mapping[Target, Publication],
        updates: Mapping[tuple[Target, ...], Update],
        deadline: Deadline,
    ) -> dict[Target, StoreError]:
        """Publish to many items in few requests, each with one write for several rules.

        If that fails, the item is read, and each rule whose guard is older publishes alone: neither a newer guard of another
        rule nor a value that DynamoDB refuses stops it.
        """
        failures: dict[Target, StoreError] = {}
        unsure: list[Target] = []
        answers = send_all(self._store.write_each, list(updates.values()), deadline, self._run)
        for part, answer in zip(updates, answers, strict=True):
            if answer is None:
                self._counters.add("published", len(part))
            elif isinstance(answer, ConditionFailed) or (isinstance(answer, InvalidRequest) and len(part) > 1):
                unsure += part
            else:
                failures |= dict.fromkeys(part, answer)
        if not unsure:
            return failures
        try:
            deadline.check()
            items = self._store.get_many(list(dict.fromkeys(publications[target].key for target in unsure)))
        except Transient as error:
            return failures | dict.fromkeys(unsure, error)
        works = {}
        for target in unsure:
            rule, key, group, _, _ = publications[target]
            item = items.get(key)
            guard = self._items.guard(rule, key, item)
            if self._items.is_of(rule.into, key, item) and (guard is None or guard.at < group.at):
                works[target] = partial(self._publish_read, publications[target], item)
            elif guard is not None and self._is_ahead(rule, guard, group):
                works[target] = partial(self._compare_again, target, guard)
        return failures | self._each(works, deadline)

    def _is_ahead(self, rule: LedgerRule, guard: Guard, group: Group) -> bool:
        """Whether a target shows what the group of a rule with lanes does not have."""
        if rule.name not in self._program.lanes:
            return False
        return guard.at > group.at or (guard.at == group.at and guard.n != group.totals.n)

    def _compare_again(self, target: Target, guard: Guard) -> None:
        """Note a group that is older than what its target shows: no entry can tell what a restored ledger has lost."""
        group = read_groups(self._store, [target], self._snapshot.promotion)[target]
        if self._is_ahead(self._program.recorded[target[0]], guard, group):
            self.lost.add(target[0])

    def _publish_read(self, publication: Publication, item: Image | None) -> None:
        """Publish to an item that was read after its group."""
        rule, key, group, _, _ = publication
        for _ in tries(f"{rule.name}: a target kept changing while it was published"):
            guard = self._items.guard(rule, key, item)
            if guard is not None and self._is_ahead(rule, guard, group):
                self._compare_again((rule.name, encode_key(key)), guard)
            try:
                if self._bring(publication, item, heals=False):
                    self._counters.add("published")
                return
            except ConditionFailed as failed:
                item = failed.item

    # Healing

    def _heal_one(
        self, rule: LedgerRule, target: Target, read: list[tuple[Image | None, Group]], deadline: Deadline, why: Purpose
    ) -> None:
        """Heal one target. `read` has the item and the group for the first try."""
        key = decode_key(target[1])
        for _ in tries(f"{rule.name}: the guard of a target kept changing while it was healed", deadline):
            if read:
                item, group = read.pop()
            else:  # the item with its guard, then the group
                item = self._read(key)
                group = read_groups(self._store, [target], self._snapshot.promotion)[target]
            if item is None and not rule.creates:
                return
            if group.damaged:
                raise damaged_group(group.damaged)
            if item is None and group.totals.n == 0:
                return
            members = read_members(self._store, rule, target[1])
            try:
                if self._bring(Publication(rule, key, group, members, why), item, heals=True):
                    self._counters.add("healed")
                return
            except ConditionFailed:
                continue

    # Making room

    def relieve(self, result: Result, now: float, deadline: Deadline, *, heals: bool = False) -> bool:
        """Make the pending publishes of a full entry, and remove them from it. `now` as in `forget`.

        Return whether any was removed. Raise Transient.
        """
        source, records, entry = result.change.source, result.change.sequences, result.entry
        assert entry is not None
        publish = self.heal if heals else self.publish
        failures = dict(publish(entry.pending, deadline, dict.fromkeys(entry.pending, records)))
        published = entry.pending - failures.keys()
        if published:
            forgotten = forget(self._store, [(source, entry, published)], now, deadline, one_by_one, {source: records})
            failures.update({("", source): error for source, error in forgotten.items()})
        for failure in failures.values():
            if isinstance(failure, Transient):
                raise failure
        return bool(published) and ("", source) not in failures

    # Bringing a target to its group

    def _read(self, key: ItemKey) -> Image | None:
        """Return an item; None too if it is in a table that only another version of the rules has."""
        return self._store.get(key) if key.table in self._program.tables else None

    def _unread(self, publications: Sequence[Publication]) -> Update | None:
        """Return the update of an item that was not read, if the guards of all these rules are older.

        Return None if the item has to be read.
        """
        wanted: dict[str, Value | None] = {}
        stamps: list[tuple[LedgerRule, Value | None]] = []
        for publication in publications:
            rule, shown = publication.rule, self._wanted_attributes(publication)
            stamps.append((rule, shown[self._guards.name(rule.name)]))
            wanted |= {**_attributes_to_remove(rule.owned(), shown), **shown} if rule.claimed else shown
        rule, key, _, _, why = publications[0]
        older = [self._guards.older(each, key, stamp) for each, stamp in stamps if stamp is not None]
        if len(publications) > 1:
            records = dict.fromkeys(chain.from_iterable(each.why.records for each in publications))
            why = why._replace(rules=tuple(each.rule.name for each in publications), records=tuple(records))
        return self._items.change(rule.into, key, wanted, older[0] if len(older) == 1 else AllOf(tuple(older)), why)

    def _bring(self, publication: Publication, item: Image | None, *, heals: bool) -> bool:
        """Bring an item to its group. Return whether anything was written. Raise ConditionFailed, Occupied.

        When it `heals`, the item was read before the group, and the version of its guard does not count. Otherwise the item
        was read after the group, and stays as it is if its guard is as new.
        """
        rule, key, group, members, _ = publication
        if item is None:
            if not rule.creates or not has_contributions(rule, group, members):
                return False
            wanted = {**rule.created_with, **self._wanted_attributes(publication)}
            self._items.create(key, wanted, publication.why)
            return True
        if not self._items.may_write(rule, rule.into, key, item):
            return self._leave(publication, item)
        guard = self._items.guard(rule, key, item)
        published = guard is not None and guard.at >= group.at and not heals and not guard.former
        if rule.claimed and not has_contributions(rule, group, members):
            return not published and self._retract_claim(publication, item, guard)
        if published:  # the function that published zeros may have stopped before it deleted the item
            return rule.creates and group.totals.n == 0 and self._delete_empty(publication)
        return self._update(publication, item)

    def _may_release(self, rule: LedgerRule, key: ItemKey, group: Group, members: Members, item: Image) -> bool:
        """Whether the group shows which values the rule published on an item of another kind.

        Otherwise the guard stays. What another version of the rule published is removed when its promotion is finished.
        On an item that the rule created and that no entity recognises, its constants may be those of another version of
        the entity. And where rules without guards have set attributes, only the record of the leaving item shows which,
        as long as the item has a guard.
        """
        guard = self._items.guard(rule, key, item)
        if guard is None or guard.promotion != self._snapshot.promotion(rule.name):
            return False
        if any(not item.keys().isdisjoint(each.owned()) for each in self._program.item_rules.get(rule.into.name, ())):
            return False
        former = self._guards.is_created(key, item) and self._program.recognise(key, item) is None
        # Without a claim, only the record of the leaving item shows the published values.
        return not former and (not rule.claimed or has_contributions(rule, group, members))

    # What an item should show

    def _wanted_attributes(self, publication: Publication) -> dict[str, Value | None]:
        """The attributes that a group gives its target, including the guard."""
        rule, key, group, members, _ = publication
        values = rule.published(group.totals, members)
        n = group.totals.n
        if rule.claimed:
            by, wrote = rule.claimant(members), self._guards.names(rule, key, values)
            stamp = self._guards.stamp(rule.name, key, group.at, by=by, n=n, wrote=wrote)
        else:
            stamp = self._guards.stamp_group(rule.name, key, group.at, n)
        if rule.cut(members):
            self._counters.add("cut")
        return {**values, self._guards.name(rule.name): stamp}

    # Writes

    def _update(self, publication: Publication, item: Image) -> bool:
        """Update an item, with the constants of the entity, and without attributes of an earlier copy."""
        rule, key, group, _, why = publication
        shown = self._wanted_attributes(publication)
        gone = _attributes_to_remove(self._guards.owned_attributes(rule, key, item), shown) if rule.claimed else {}
        wanted = {**rule.created_with, **gone, **self._of_other_versions(publication, item), **shown}
        differs = bool(differing(item, wanted))
        if differs:
            self._items.write(rule.into, key, wanted, rule, item, why)
        if rule.creates and group.totals.n == 0:
            self._delete_empty(publication)
        return differs

    def _of_other_versions(self, publication: Publication, item: Image) -> Values:
        """The attributes that only other versions of the rule set, to be removed, if one of them was published last."""
        rule, key = publication.rule, publication.key
        guard = self._items.guard(rule, key, item)
        if guard is None or guard.promotion == self._snapshot.promotion(rule.name):
            return {}
        name = public_name(rule.name)
        others = [
            other
            for other in self._program.recorded.values()
            if other is not rule and public_name(other.name) == name and self._items.is_of(other.into, key, item)
            if not self._snapshot.versions[other.name].held  # its values are the application's
        ]
        owned = {attribute for other in others for attribute in set(other.owned()) - other.into.constants.keys()}
        owned -= self._program.derived_attributes(rule.into.name, held=False) | rule.into.constants.keys()
        return dict.fromkeys(sorted(owned - set(rule.into.schema.key_attributes)))

    def _leave(self, publication: Publication, item: Image) -> bool:
        """Remove from an item of another kind what the rule published on it. Raise Occupied if the key is needed."""
        rule, key, group, members, _ = publication
        releaser = Releaser(self._program, self._store, self._items)
        may_release = self._may_release(rule, key, group, members, item)
        released = may_release and releaser.release(self._release_of(publication, item))
        if rule.creates and has_contributions(rule, group, members):
            raise occupied_error(rule.into)
        return released

    def _release_of(self, publication: Publication, item: Image) -> Release:
        """The release of an item that shows exactly what the group says: without a record, nothing else is known."""
        rule, key, group, members, why = publication
        created = self._guards.is_created(key, item)
        published = {**(rule.into.constants if created else {}), **rule.published(group.totals, members)}
        guard = self._guards.name(rule.name)
        values = {name: [(guard, value)] if value is not None else [] for name, value in published.items()}
        held = (guard, self._guards.mark) if created else (guard,)
        guards = {name: item[name] for name in held}
        return Release(key, rule.into, guards, values, why.records, after=item, whole=True, rules=why.rules)

    def _delete_empty(self, publication: Publication) -> bool:
        """Delete an item that rules created, if no rule's guard on it records contributions and nothing else is on it.

        Return whether it was deleted. The item is read after this rule's zeros were written: of several rules that write
        zeros at once, the last one reads all of them.
        """
        rule, key, _, _, why = publication
        rules = {each.name: each for each in (*self._program.ledger_rules_into.get(rule.into.name, ()), rule)}
        for _ in tries("an item without contributions kept changing while it was deleted"):
            item = self._read(key) if rule.into.created_by_publishes else None
            guards = [self._items.guard(each, key, item) for each in rules.values()]
            contributes = any(guard is not None and guard.n != 0 for guard in guards)
            if item is None or contributes or not self._items.may_delete(rule.into, key, item):
                break
            with suppress(ConditionFailed):  # another rule contributes now, or an embed has just written to the item
                self._items.delete(rule.into, key, item, why, rules=rules)
                return True
        return False

    def _retract_claim(self, publication: Publication, item: Image, guard: Guard | None) -> bool:
        """Delete a copy without a claim, if the rule created it; else remove what the rule set, if its guard is there."""
        rule, key, group, _, why = publication
        if self._items.may_delete(rule.into, key, item):
            self._items.delete(rule.into, key, item, why, rules=(rule.name,))
            return True
        if guard is None:
            return False
        owned = set(rule.owned()) - rule.into.constants.keys()
        # what a former version wrote stays to be cleared: with the constants of then, which are none of this version's copy
        former = guard.promotion != self._snapshot.promotion(rule.name)
        wrote = guard.wrote if former else self._guards.names(rule, key, ())
        stamp = self._guards.stamp(rule.name, key, group.at, n=0, wrote=wrote)
        wanted: dict[str, Value | None] = {**dict.fromkeys(sorted(owned)), self._guards.name(rule.name): stamp}
        if not differing(item, wanted):
            return False
        self._items.write(rule.into, key, wanted, rule, item, why)
        return True


def has_contributions(rule: LedgerRule, group: Group, members: Members) -> bool:
    """Whether anything contributes to the target: of a copy, what was read as its claim decides."""
    return rule.claimant(members) is not None if rule.claimed else group.totals.n > 0


def _attributes_to_remove(owned: Iterable[str], wanted: Values) -> Values:
    """The attributes of a copy that it does not show any more, to be removed."""
    return {name: None for name in sorted(owned) if name not in wanted}


def unpublished_targets(failures: Mapping[Target, StoreError]) -> set[Target]:
    """Return the targets with a pending publish: not occupied keys, which the record of that item's removal publishes."""
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
    keys = {source: entry_key(source) for source in sources}
    items = store.get_many(list(keys.values()))
    return {source: Entry.read(items[key]) for source, key in deadline.check_each(keys.items()) if key in items}


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
        ended = not (entry.contributions or entry.kept) and done == entry.recent and not entry.expires
        if not done and not ended:
            continue
        rules = tuple(sorted({read_recent(element)[0] for element in done}))
        partly = done != entry.recent  # all of it is removed as a whole: while the revision stays, nothing is added
        updates[source] = Update(
            entry_key(source),
            set={"ttl": expiry} if ended else {},
            remove=("recent",) if done and not partly else (),
            discard={"recent": {"SS": sorted(done)}} if partly else {},
            condition=AllOf((exists, Equal(("revision",), {"N": str(entry.revision)}))),
            purpose=Purpose("forget", rules, source, records.get(source, ())),
        )
    answers = send_all(store.write_each, list(updates.values()), deadline, run)
    return {
        source: answer
        for source, answer in zip(updates, answers, strict=True)
        if answer is not None and not isinstance(answer, ConditionFailed)
    }
