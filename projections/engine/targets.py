"""Bringing one target to its group: what to write to the item, under which conditions, or why to delete it.

The caller gives the group, and the item either as it was read or not at all. Each method makes at most one write that
changes values, conditional on the item as it was read or on an older guard; when it fails, the caller reads again. Which
write it is depends on the item:

    no item                 created, if the rule creates its targets and anything contributes
    an item of the kind     updated; deleted if a rule created it, nothing contributes, and nothing else is on it
    of another kind         the application's: only values are removed that the rule had set before the item changed its kind
    key of another entity   an earlier version of the rule recorded the target: its values go, and items that it created

An item may have several rules' guards. It is deleted when each of them records that nothing contributes. To delete it with
the publish of the zeros would need one condition on all guards; instead the item is read after the zeros are written: of
several rules that publish zeros at once, the last one reads all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from projections.engine.application import ApplicationItems, occupied
from projections.engine.groups import Group
from projections.engine.guards import Guard
from projections.engine.releases import Release, Releaser
from projections.engine.report import Counters
from projections.engine.store import Image, ItemKey, Purpose, Store, Update, Value
from projections.errors import ConditionFailed
from projections.language.entity import Entity
from projections.language.program import Program
from projections.language.rules import LedgerRule, Members
from projections.language.values import differing


class Publication(NamedTuple):
    """A group that its target is to show, and why. `members` was read after `group`."""

    rule: LedgerRule
    key: ItemKey
    group: Group
    members: Members
    why: Purpose


class TargetWriter:
    """Brings targets to their groups."""

    def __init__(self, program: Program, store: Store, items: ApplicationItems, counters: Counters) -> None:
        self._program = program
        self._store = store
        self._items = items
        self._guards = items.guards
        self._counters = counters

    def read(self, key: ItemKey) -> Image | None:
        """Return an item; None too if it is in a table that only another version of the rules has."""
        return self._store.get(key) if key.table in self._program.tables else None

    def read_many(self, keys: Iterable[ItemKey]) -> Mapping[ItemKey, Image]:
        """Return the items that exist in tables of these rules."""
        return self._store.get_many(list(dict.fromkeys(key for key in keys if key.table in self._program.tables)))

    def unread(self, publication: Publication) -> Update | None:
        """Return the update of an item that was not read, if its guard is older; None if the item has to be read."""
        rule, key, group, _, why = publication
        if not rule.into.at(key):
            return None
        wanted = self._wanted(publication)
        if rule.claimed:
            wanted = {**_removed(rule.owned(), wanted), **wanted}
        older = self._guards.older(rule.name, key, group.at)
        return self._items.change(rule.into, key, wanted, older, why)

    def bring(self, publication: Publication, item: Image | None, *, heals: bool) -> bool:
        """Bring an item to its group. Return whether anything was written. Raise ConditionFailed, Occupied.

        When it `heals`, the item was read before the group, and the version of its guard does not count. Otherwise the item
        was read after the group, and stays as it is if its guard is as new.
        """
        rule, key, group, members, _ = publication
        if not self._is_into(rule, key):
            return item is not None and self._bring_elsewhere(publication, item, heals=heals)
        if item is None:
            return self._may_create(rule, group, members) and self._create(publication)
        if not self._may_write(rule, key, item):
            return self._leave(publication, item)
        guard = self._items.guard(rule, key, item)
        published = guard is not None and guard.at >= group.at and not heals and not guard.former
        if rule.claimed and not contributed(rule, group, members):
            return not published and self._retract_claim(publication, item, guard)
        if published:  # the function that published zeros may have stopped before it deleted the item
            return rule.creates and group.totals.n == 0 and self.delete_empty(publication)
        return self._update(publication, item)

    # What may be done

    def _is_into(self, rule: LedgerRule, key: ItemKey) -> bool:
        """Whether the rule writes to items with such keys. Another version of the rule may have recorded other targets."""
        return rule.into.at(key)

    def _may_create(self, rule: LedgerRule, group: Group, members: Members) -> bool:
        return rule.creates and contributed(rule, group, members)

    def _may_write(self, rule: LedgerRule, key: ItemKey, item: Image) -> bool:
        return self._items.may_write(rule, rule.into, key, item)

    def _may_release(self, rule: LedgerRule, key: ItemKey, group: Group, members: Members, item: Image) -> bool:
        """Whether the group shows which values the rule published on an item of another kind.

        Otherwise the guard stays. On an item that the rule created and that no entity recognises, its constants may be
        those of another version of the entity: its retirement finds the guard, and deletes the item. And where rules without
        guards have set attributes, only the record of the leaving item shows which, as long as the item has a guard.
        """
        if self._items.guard(rule, key, item) is None:
            return False
        if any(not item.keys().isdisjoint(one.owned()) for one in self._program.item_rules.get(rule.into.name, ())):
            return False
        former = self._items.created(key, item) and self._program.recognise(key, item) is None
        return not former and self._knows_published(rule, group, members)

    def _knows_published(self, rule: LedgerRule, group: Group, members: Members) -> bool:
        """Whether the group shows the published values. Without a claim, only the record of the leaving item does."""
        return not rule.claimed or contributed(rule, group, members)

    # What an item should show

    def _wanted(self, publication: Publication) -> dict[str, Value | None]:
        """The attributes that a group gives its target, including the guard."""
        rule, key, group, members, _ = publication
        values = rule.published(group.totals, members)
        by, wrote = rule.claimant(members), self._guards.names(rule, key, values)
        stamp = self._guards.stamp(rule.name, key, group.at, by=by, n=group.totals.n, wrote=wrote)
        if rule.cut(members):
            self._counters.add("cut")
        return {**values, self._guards.name(rule.name): stamp}

    def _completed(
        self, rule: LedgerRule, key: ItemKey, item: Image, wanted: Mapping[str, Value | None]
    ) -> dict[str, Value | None]:
        """These attributes, with the constants of the entity, and without attributes of an earlier copy."""
        gone = _removed(self._guards.owned(rule, key, item), wanted) if rule.claimed else {}
        return {**self._constants(rule), **gone, **wanted}

    def _constants(self, rule: LedgerRule) -> Mapping[str, Value]:
        """The constants that the rule restores on items that it creates."""
        return rule.created_with

    # Writes

    def _create(self, publication: Publication) -> bool:
        wanted = {**publication.rule.created_with, **self._wanted(publication)}
        self._items.create(publication.key, wanted, publication.why)
        return True

    def _update(self, publication: Publication, item: Image) -> bool:
        rule, key, group, _, why = publication
        wanted = self._completed(rule, key, item, self._wanted(publication))
        differs = bool(differing(item, wanted))
        if differs:
            self._items.write(rule.into, key, wanted, rule, item, why)
        if rule.creates and group.totals.n == 0:
            self.delete_empty(publication)
        return differs

    def _leave(self, publication: Publication, item: Image) -> bool:
        """Remove from an item of another kind what the rule published on it. Raise Occupied if the key is needed."""
        rule, key, group, members, _ = publication
        releaser = Releaser(self._program, self._store, self._items)
        released = self._may_release(rule, key, group, members, item) and releaser.release(
            self._left(publication, item)
        )
        if self._may_create(rule, group, members):
            raise occupied(rule.into)
        return released

    def _left(self, publication: Publication, item: Image) -> Release:
        """The release of an item that shows exactly what the group says: without a record, nothing else is known."""
        rule, key, group, members, why = publication
        created = self._items.created(key, item)
        published = {**(rule.into.constants if created else {}), **rule.published(group.totals, members)}
        guard = self._guards.name(rule.name)
        values = {name: [(guard, value)] if value is not None else [] for name, value in published.items()}
        held = (guard, self._guards.mark) if created else (guard,)
        guards = {name: item[name] for name in held}
        return Release(key, rule.into, guards, values, why.records, after=item, whole=True, rules=why.rules)

    def _bring_elsewhere(self, publication: Publication, item: Image, *, heals: bool) -> bool:
        """Bring an item to its group under the key of another entity, which another version of the rule recorded.

        The rule owns no attribute there, and the values of that version go when it is retired. But an item that only rules
        create has to be deleted with its last contribution. So if the item has the rule's guard, attributes that the rule
        may have set under the same names are removed, and the guard records how many contributions are left.
        """
        rule, key, group, _, why = publication
        n, guard = group.totals.n, self._items.guard(rule, key, item)
        if guard is None or (guard.at >= group.at and not heals):
            return False
        entities = self._program.entities_at(key)
        entity = next((one for one in entities if self._items.is_of(one, key, item)), None)
        if rule.claimed and n == 0 and entity is not None and _all_are(entities, lambda one: one.copied):
            if not self._items.may_delete(entity, key, item):
                return False
            self._items.delete(entity, key, item, why)
            return True
        if entity is None or not _all_are(entities, lambda one: one.created_by_publishes):
            return False
        stamp = self._guards.stamp(rule.name, key, group.at, n=n)
        wanted: dict[str, Value | None] = {self._guards.name(rule.name): stamp}
        if not rule.claimed:
            others = set(self._store.schema(key.table).key_attributes)
            for one in entities:
                others |= self._program.derived_attributes(one.name) | one.constants.keys()
            wanted |= {name: None for name in rule.owned() if name not in others}
        differs = bool(differing(item, wanted))
        if differs:
            self._items.write(entity, key, wanted, rule, item, why)
        if n == 0:
            self.delete_empty(publication, entity)
        return differs

    def delete_empty(self, publication: Publication, entity: Entity | None = None) -> bool:
        """Delete an item that rules created, if no rule's guard on it records contributions and nothing else is on it.

        Return whether it was deleted. The item is read after this rule's zeros were written: of several rules that write
        zeros at once, the last one reads all of them.
        """
        rule, key, _, _, why = publication
        entity = entity or rule.into
        item = self.read(key) if entity.created_by_publishes else None
        if item is None:
            return False
        rules = {one.name: one for one in self._program.ledger_rules_into.get(entity.name, ())} | {rule.name: rule}
        if self._contributes(rules.values(), key, item) or not self._items.may_delete(entity, key, item):
            return False
        try:
            self._items.delete(entity, key, item, why, rules=rules)
        except ConditionFailed:  # another rule contributes now, or the item is deleted already
            return False
        return True

    def _contributes(self, rules: Iterable[LedgerRule], key: ItemKey, item: Image) -> bool:
        """Whether the guard of any of these rules records contributions."""
        found = (self._items.guard(rule, key, item) for rule in rules)
        return any(guard is not None and guard.n != 0 for guard in found)

    def _retract_claim(self, publication: Publication, item: Image, guard: Guard | None) -> bool:
        """Delete a copy without a claim, if the rule created it; else remove what the rule set, if its guard is there."""
        rule, key, group, _, why = publication
        if self._items.may_delete(rule.into, key, item):
            self._items.delete(rule.into, key, item, why, rules=(rule.name,))
            return True
        if guard is None:
            return False
        owned = set(rule.owned()) - rule.into.constants.keys()
        wrote = self._guards.names(rule, key, ())
        stamp = self._guards.stamp(rule.name, key, group.at, n=0, wrote=wrote)
        wanted: dict[str, Value | None] = {**dict.fromkeys(sorted(owned)), self._guards.name(rule.name): stamp}
        if not differing(item, wanted):
            return False
        self._items.write(rule.into, key, wanted, rule, item, why)
        return True


def contributed(rule: LedgerRule, group: Group, members: Members) -> bool:
    """Whether anything contributes to the target: of a copy, what was read as its claim decides."""
    return rule.claimant(members) is not None if rule.claimed else group.totals.n > 0


def _removed(owned: Iterable[str], wanted: Mapping[str, Value | None]) -> dict[str, Value | None]:
    """The attributes of a copy that it does not show any more, to be removed."""
    return {name: None for name in sorted(owned) if name not in wanted}


def _all_are(entities: Sequence[Entity], kind: Callable[[Entity], bool]) -> bool:
    """Whether all of these entities are of a kind, and there is at least one."""
    return bool(entities) and all(map(kind, entities))
