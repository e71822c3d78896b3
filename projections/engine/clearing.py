"""Clearing: removes what versions of rules have written that are not published any more.

An item with the guard of a rule that is removed loses the guard, and the attributes that the version wrote and that no
published rule owns. If it created the item and no published rule needs it, the item is deleted. Index attributes and
computed attributes have no guard: on items of the rule's source entity they are the rule's. What a rule set `once` stays.

Clearing comes after the versions that replace them have been published, so no attribute is absent in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from projections.engine.application import ApplicationItems
from projections.engine.copies import copies_of
from projections.engine.embed_lists import references_of
from projections.engine.embeds import reference_of
from projections.engine.guards import Guards, contributions_of
from projections.engine.running import tries
from projections.engine.store import Image, ItemKey, Purpose, Store
from projections.errors import ConditionFailed
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Entity, Item
from projections.language.keys import decode_key
from projections.language.program import Program
from projections.language.rules import CopyRule, public_name
from projections.language.values import same


class Past:
    """A version that is not published any more: by its name, with its document."""

    def __init__(self, version: str, closed: Mapping[str, Any], today: Program) -> None:
        self._version, self.rule = version, public_name(version)
        document = {
            **today.document,
            **{name: part for name, part in closed.items() if name != "rule"},
            "projections": {self.rule: {**closed["rule"], "hold": False}},
            "retired": {},
        }
        rule = Program.from_document(_with_found_children(document, closed["rule"])).rules[self.rule]
        self._guarded = rule.has_guard
        self.guard: str = closed["guard_prefix"] + self.rule
        self.makes = rule.creates
        self._copy = rule if rule.copies_all else None
        self.attributes = None if rule.copies_all else frozenset(rule.owned()) - rule.into.constants.keys()
        """The attributes that it wrote; None for all."""
        self._idle = not rule.removes  # what is set once stays
        self._table = rule.into.table
        self._entity = rule.into.name
        self._now = today.published.get(self.rule)
        """The published version of the rule."""
        self._today = today
        self._then = Program.from_document({**document, "projections": {}})
        self.into = self._then.entities[self._entity]
        """The entity that it wrote to, as it was then."""

    def wrote(self, key: ItemKey, image: Image, guards: Guards) -> bool:
        """Return whether an item may have traces of the rule. A cloned or edited guard does not count."""
        if self._idle or key.table != self._table:
            return False
        if self._guarded:
            held = image.get(self.guard)
            guard = guards.parse(guards.rule(self.guard), key, held) if held is not None else None
            if guard is None or (self._now is None and guards.is_of_another(guard, self._version)):
                return False  # what only this version had set has been removed, and may be the application's by now
        # The guard alone may be that of the current version, also on an item that has left the rule's entity: the record of
        # that change removes what the rule had set, if the guard is there.
        return self._is_its(key, image) or (self._guarded and not (self._now is not None and self._now.into.at(key)))

    def _is_its(self, key: ItemKey, image: Image) -> bool:
        """Return whether an item is of the entity that the rule wrote to."""
        if self.fits(key, image):
            return True
        if not self.makes or not self.into.at(key):
            return False
        item = self._today.recognise(key, image)  # its constants differ now if the entity's `match` has changed
        return item is not None and item.entity.name == self._entity

    def fits(self, key: ItemKey, image: Image) -> bool:
        item = self._then.recognise(key, image)
        return item is not None and item.entity.name == self._entity

    def stays(self, key: ItemKey, image: Image) -> bool:
        """Return whether an item of another kind has values that the rule wrote: they may be the application's by now."""
        wrote = self.attributes is None or not self.attributes.isdisjoint(image)
        return wrote and not self._is_its(key, image)

    def makes_still(self, item: Item | None) -> bool:
        """Return whether the current version of the rule creates such items."""
        return self.writes_still(item) and self._now is not None and self._now.creates

    def writes_still(self, item: Item | None) -> bool:
        """Return whether the current version of the rule writes to the item: then the guard belongs to that."""
        return self._now is not None and item is not None and self._now.into is item.entity

    def is_without_parent(self, key: ItemKey, image: Image, guards: Guards) -> bool:
        """Return whether an item has the guard of the rule only to show what this version had embedded."""
        now, item = self._now, self._today.recognise(key, image)
        if not isinstance(now, EmbedRule) or item is None or item.entity is not now.into:
            return False
        if references_of(now, item)[0] if isinstance(now, ListEmbedRule) else reference_of(now, item)[0]:
            return False
        guard = guards.read(self.rule, key, image)
        return guard is not None and guard.promotion < guards.promotion(self.rule)

    def remains(self, key: ItemKey, image: Image, item: Item | None, guards: Guards, store: Store) -> frozenset[str]:
        """Return the attributes on an item that the rule wrote and that no current rule owns. On an item that rules created,
        the constants of a former `match` are among them.

        There are none if the item is of another kind by now, because its values may be the application's, and none of a copy
        of all attributes if its guard does not show that the rule wrote them all.
        """
        owned = _owned_attributes(item, self._today)
        if owned is None and item is not None:
            return self._remains_of_copy(key, image, item, guards, store)
        if owned is None or not self._is_its(key, image):
            return frozenset()
        others = {name: value for name, value in image.items() if name not in owned}
        if self._copy is not None and guards.unproven(self._copy, key, others):
            return frozenset()
        everything = frozenset(name for name in image if not guards.is_guard(name))
        wrote = everything if self.attributes is None else self.attributes
        if self.makes and self._now is not None and item is not None and guards.is_marked(key, image):
            former = self.into.constants.keys() - item.entity.match_attributes  # by these it is one of the entity still
            wrote = wrote.union(n for n in former if n in image and same(image[n], self.into.constants[n]))
        return (wrote - owned - set(self._today.tables[self._table].key_attributes)) & image.keys()

    def _remains_of_copy(self, key: ItemKey, image: Image, item: Item, guards: Guards, store: Store) -> frozenset[str]:
        """Return what the rule wrote on an item that has a copy of all attributes now: its values and constants of then.

        Only where the guard shows that the current version copied all others, or that it has removed its copy from the item,
        which stays because it has other attributes.
        """
        guard = guards.read(self.rule, key, image)
        if self._now is None or guard is None:
            return frozenset()
        owned = self._today.derived_attributes(item.entity.name, held=False) | item.entity.constants.keys()
        wrote = frozenset(self._copy.owned()) if self._copy is not None else self.attributes or frozenset()
        if guard.n == 0 and self._copy is not None:
            copied = frozenset(self._copy.owned(image)) if not guards.unproven(self._copy, key, image) else wrote
            return copied & image.keys() - owned
        names = image.keys() & (wrote | self.into.constants.keys()) - owned
        if names and guard.by and isinstance(self._now, CopyRule):  # it may copy some of them too
            source = decode_key(guard.by)
            names -= copies_of(self._now, self._today.recognise(source, store.get(source))).get(key, {}).keys()
        others = {name: value for name, value in image.items() if name not in names}
        return frozenset() if guards.unproven(self._now, key, others) else frozenset(names)


def clear(
    past: Sequence[Past], key: ItemKey, image: Image | None, today: Program, store: Store, guards: Guards
) -> Sequence[str]:
    """Remove traces of versions from an item that was just read. Return `retired|<rule>` for each, `left|<rule>` if values
    stay, or `unmade|<rule>` if the item is deleted, where the store allows it. Raises StoreError.
    """
    for _ in tries("an item kept changing while the values of retired rules were removed"):
        past = [trace for trace in past if image is not None and trace.wrote(key, image, guards)]
        if image is None or not past:
            break
        try:
            return _remove(key, image, past, today, store, guards)
        except ConditionFailed:  # changed since it was read
            image = store.get(key)
    return ()


def _remove(
    key: ItemKey, image: Image, traces: Sequence[Past], today: Program, store: Store, guards: Guards
) -> Sequence[str]:
    item, items = today.recognise(key, image), ApplicationItems(today, store, guards)
    makers = _makers(item.entity, today) if item is not None else frozenset[str]()
    rules = [today.published[name.removeprefix(today.guard_prefix)].name for name in sorted(makers)]
    gone = [trace for trace in traces if not trace.writes_still(item)]
    held = {
        trace.guard for trace in traces if trace in gone or trace.is_without_parent(key, image, guards)
    } & image.keys()
    wrote = {name for trace in traces for name in trace.remains(key, image, item, guards, store)}
    left = [trace for trace in traces if trace.makes and not trace.makes_still(item)]
    created = [trace for trace in left if trace.fits(key, image) and guards.is_created(key, image)]
    if created:
        entity = item.entity if item is not None else created[0].into
        ours = wrote | created[0].into.constants.keys()
        foreign = items.foreign(entity, key, image).keys() - ours
        if not _is_needed(image, held, makers, today) and not foreign:
            unmade = [trace.rule for trace in traces if trace in gone or trace in left]
            items.delete(entity, key, image, Purpose("delete", tuple(unmade)), rules=rules, without=ours)
            return [f"unmade|{rule}" for rule in unmade]
    names = held | wrote
    if not names:
        return ()
    if (gone or left) and not makers and guards.is_created(key, image):
        names |= {guards.mark}  # no current rule creates such items
    guarded, retired = {trace.guard for trace in traces}, tuple(trace.rule for trace in traces)
    items.remove(key, sorted(names), image, {trace.into for trace in traces}, guarded, Purpose("release", retired))
    remaining: Image | None = {name: value for name, value in image.items() if name not in names}
    for _ in tries("an item kept changing while it was deleted"):
        item = today.recognise(key, remaining) if makers else None  # it may have stayed only for what was just removed
        if item is None or remaining is None or not guards.is_created(key, remaining):
            break
        if _is_needed(remaining, set(), makers, today) or items.foreign(item.entity, key, remaining):
            break
        try:
            items.delete(item.entity, key, remaining, Purpose("delete", retired), rules=rules)
            break
        except ConditionFailed:
            remaining = store.get(key)
    return [f"{'left' if trace.stays(key, image) else 'retired'}|{trace.rule}" for trace in traces]


def _makers(entity: Entity, today: Program) -> frozenset[str]:
    """Return the guards of the rules that create items of an entity."""
    names = [rule.name for rule in today.ledger_rules_into.get(entity.name, ()) if rule.creates]
    if copier := today.copy_rule_into.get(entity.name):
        names.append(copier.name)
    return frozenset(map(today.guard, names))


def _is_needed(image: Image, guards: set[str], makers: frozenset[str], today: Program) -> bool:
    """Return whether a rule whose guard stays needs an item: a current one that creates it, or a retired one, kept."""
    known = {today.guard(name) for name in today.published}
    for name in image.keys() - guards:
        if name in makers and contributions_of(image[name]) != 0:
            return True
        if name.startswith(today.guard_prefix) and name != today.guard_prefix and name not in known:
            return True
    return False


def _owned_attributes(item: Item | None, today: Program) -> frozenset[str] | None:
    """Return the attributes that published rules write on an item; None for all."""
    if item is None:
        return frozenset()
    if any(rule.copies_all and rule.into is item.entity for rule in today.published.values()):
        return None
    return today.derived_attributes(item.entity.name, held=False) | item.entity.constants.keys()


def _with_found_children(document: Mapping[str, Any], rule: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a document in which an embed rule compiles without the index rule by which it found its children."""
    if "embed" not in rule:
        return document
    child = document["entities"][rule["embed"]["into"]]
    indexes = document["tables"][child["table"]]["indexes"].values()
    keys = {name: "-" for keys in indexes for name in keys.get("partition", ())}
    return {**document, "entities": {**document["entities"], rule["embed"]["into"]: {**child, "index_key": keys}}}
