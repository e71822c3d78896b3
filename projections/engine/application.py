"""Writes to the application's items. This module alone decides what such a write is conditional on.

- The item is still of the entity that the rule writes to: its *kind*.
- The rule's guard is as it was read, or absent, or older (`engine.guards`).
- An item is created only if there is no item under the key, and then marked as created.
- An item is deleted only if a rule created it and it has no attributes of the application. DynamoDB has no condition for
  that, so the item is read first, and the deletion returns the item that it removed. Attributes that the application added
  in between are restored at once, if there is still no item. They are lost if the process stops between these two requests.

The kind is the `match` of an entity, compiled to a condition. It is sound: where it holds, the item is of the entity. It
need not hold for every item of the entity: a pattern also matches a list or set if one of its elements matches, and `suffix`
cannot be expressed. Where the condition fails and the write has to be exact, the item is read, and written under the
condition that the attributes that `match` reads are as they were read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache
from typing import assert_never

from projections.engine.guards import Guard, Guards, as_read
from projections.engine.running import tries
from projections.engine.store import (
    Above,
    AllOf,
    AnyOf,
    Below,
    Condition,
    Delete,
    Equal,
    Exists,
    Image,
    ItemKey,
    Missing,
    Path,
    Purpose,
    Records,
    Store,
    Update,
    Value,
    Values,
)
from projections.errors import ConditionFailed, Occupied, Transient
from projections.language.entity import Entity
from projections.language.patterns.tree import Affix, Alternative, AnythingBut, Compares, Either, Equals, Named, Test
from projections.language.patterns.tree import Condition as PatternCondition
from projections.language.patterns.tree import Exists as Presence
from projections.language.program import Program
from projections.language.rules import Rule
from projections.language.syntax import root, steps
from projections.language.values import same, wire


def occupied_error(entity: Entity) -> Occupied:
    """Return the error for a key that holds an item of another kind."""
    return Occupied(
        f"occupied: an item of another kind has this key, so no {entity.name} is created. It is created as soon as that "
        "item is removed"
    )


def purpose_of(rule: Rule, records: Records = ()) -> Purpose:
    """Return why a rule writes to the items that its guard is on, because of these records."""
    return Purpose("publish" if rule.recorded else "copy" if rule.creates else "embed", (rule.name,), "", records)


class ApplicationItems:
    """Judges the application's items by the rules of a program, and writes to them."""

    def __init__(self, program: Program, store: Store, guards: Guards) -> None:
        self.guards = guards
        self._program = program
        self.store = store
        self._attributes: dict[str, frozenset[str]] = {}

    # What an item is

    def is_of(self, entity: Entity, key: ItemKey, image: Image | None) -> bool:
        """Whether an item is of an entity, by key and `match`."""
        return self._program.recognise_as(entity, key, image) is not None

    def guard(self, rule: Rule, key: ItemKey, image: Image | None) -> Guard | None:
        """The valid guard of a rule on an item."""
        return self.guards.read(rule.name, key, image)

    def may_write(self, rule: Rule, entity: Entity, key: ItemKey, image: Image) -> bool:
        """Whether an item is of the entity, or was created by the rule and only lacks an attribute that `match` reads.

        The application removed that attribute, and the item has no attributes of the application.
        """
        if self.is_of(entity, key, image):
            return True
        return (
            self.guard(rule, key, image) is not None
            and self._program.recognise(key, image) is None
            and self.may_delete(entity, key, image)
        )

    def foreign(self, entity: Entity, key: ItemKey, image: Image, known: Collection[str] = ()) -> dict[str, Value]:
        """The attributes of the application on an item of an entity that rules create.

        Of a copy of all attributes, those of which its guard does not show that the rule wrote them, but for `known` ones.
        """
        owned, constants = self._owned_attributes(entity), entity.constants
        whole = self._program.whole_copies.get(entity.name)
        if whole is not None:  # and another kind that the application gave it
            unproven = self.guards.unproven(whole, key, image, known)
            changed_constants = {n for n, value in constants.items() if n in image and not same(image[n], value)}
            return {name: image[name] for name in sorted(unproven | changed_constants)}
        return {
            name: value
            for name, value in image.items()
            if name not in owned
            and not self.guards.is_guard(name)
            and not (name in constants and same(value, constants[name]))
        }

    def may_delete(self, entity: Entity, key: ItemKey, image: Image, known: Collection[str] = ()) -> bool:
        """Whether a rule created an item, and nothing of the application is on it."""
        return self.guards.is_marked(key, image) and not self.foreign(entity, key, image, known)

    def _owned_attributes(self, entity: Entity) -> frozenset[str]:
        """The attributes that rules write on items of an entity, its key included."""
        if entity.name not in self._attributes:
            derived = self._program.derived_attributes(entity.name, held=False) - entity.constants.keys()
            self._attributes[entity.name] = derived | set(entity.schema.key_attributes)
        return self._attributes[entity.name]

    # Writes

    def exists(self, key: ItemKey) -> Condition:
        return Exists((self.store.schema(key.table).partition[0],))

    def create(self, key: ItemKey, values: Values, why: Purpose) -> None:
        """Create an item and mark it as created. Raise ConditionFailed with the item that has the key, if there is one."""
        self._put(key, {**values, self.guards.mark: self.guards.mark_of(key)}, why)

    def _put(self, key: ItemKey, values: Values, why: Purpose) -> None:
        absent = Missing((self.store.schema(key.table).partition[0],))
        self.store.write(Update(key, set=_present(values), condition=absent, purpose=why))

    def change(self, entity: Entity, key: ItemKey, values: Values, condition: Condition, why: Purpose) -> Update | None:
        """Return the update of an item that exists and that `match` recognises; None values are removed.

        Return None if no condition can express the `match` of the entity: then the item has to be read.
        """
        kind = kind_condition(entity, key)
        if kind is None:
            return None
        parts = kind.conditions if isinstance(kind, AllOf) else (kind,)
        return self._update(key, values, (*parts, condition), why)

    def change_as_read(
        self, entity: Entity, key: ItemKey, values: Values, condition: Condition, why: Purpose, image: Image
    ) -> Update:
        """Return the update of an item that exists and whose attributes that `match` reads are as in `image`."""
        values = {**values, **self.guards.renewed_mark(key, image)}
        return self._update(key, values, (*kind_as_read((entity,), image), condition), why)

    def _update(self, key: ItemKey, values: Values, conditions: Iterable[Condition], why: Purpose) -> Update:
        gone = tuple(sorted([name for name, value in values.items() if value is None]))
        condition = AllOf((self.exists(key), *conditions))
        return Update(key, _present(values), gone, condition=condition, purpose=why)

    def write(self, entity: Entity, key: ItemKey, values: Values, rule: Rule, image: Image, why: Purpose) -> None:
        """Change an item if its kind and the rule's guard are as in `image`. Raise ConditionFailed otherwise."""
        guard = self.guards.as_read(rule.name, image)
        self.store.write(self.change_as_read(entity, key, values, guard, why, image))

    def delete(
        self,
        entity: Entity,
        key: ItemKey,
        image: Image,
        why: Purpose,
        *,
        rules: Iterable[str] = (),
        without: Iterable[str] = (),
    ) -> None:
        """Delete an item that a rule created, if its kind, all guards on it and those of `rules` are as in `image`.

        The purpose of the deletion names the rules in `why`, then the others with such a guard.
        Attributes that the application added in the meantime are restored, with the constants of the entity. Attributes in
        `without` are not the application's. Raise ConditionFailed.
        """
        names = {name for name in image if self.guards.is_guard(name)} | {self.guards.name(rule) for rule in rules}
        guards = [as_read(name, image.get(name)) for name in sorted(names)]
        condition = AllOf((self.exists(key), *kind_as_read((entity,), image), *guards))
        others = [self.guards.rule(name) for name in sorted(names) if name != self.guards.mark]
        why = Purpose("delete", tuple(dict.fromkeys([*why.rules, *others])), "", why.records)
        removed = self.store.write(Delete(key, condition, why))
        if removed is not None:
            foreign = self.foreign(entity, key, removed, known=image.keys())
            added = {name: value for name, value in foreign.items() if name not in frozenset(without)}
            constants = {name: removed[name] for name in entity.constants if name in removed}
            self._restore(key, constants, added, why._replace(kind="restore"))

    def _restore(self, key: ItemKey, constants: Image, added: Image, why: Purpose) -> None:
        """Put back what the application had added to an item before it was deleted, with the constants of the entity."""
        if not added:
            return None
        for _ in tries("attributes that the application added to a deleted item could not be restored"):
            with suppress(Transient):
                try:
                    return self._put(key, {**constants, **added}, why)
                except ConditionFailed as failed:
                    return self._put_back(key, added, failed.item, why)
        return None

    def _put_back(self, key: ItemKey, added: Mapping[str, Value], item: Image | None, why: Purpose) -> None:
        """Restore the attributes of a deleted item on the item that a rule has created there since.

        If the application has put an item there, nothing is restored: the application decided what that item has.
        """
        if item is None or not self.guards.is_created(key, item):
            return
        absent = [Missing((name,)) for name in sorted(added)]
        condition = AllOf((self.exists(key), as_read(self.guards.mark, item[self.guards.mark]), *absent))
        with suppress(ConditionFailed):
            self.store.write(Update(key, set=added, condition=condition, purpose=why))

    def unmark(self, key: ItemKey, mark: Value, records: Records) -> None:
        """Remove a mark from an item, if it is as it was read. Raise ConditionFailed."""
        condition = AllOf((self.exists(key), as_read(self.guards.mark, mark)))
        why = Purpose("release", (), "", records)
        self.store.write(Update(key, remove=(self.guards.mark,), condition=condition, purpose=why))

    def remove(
        self,
        key: ItemKey,
        names: Iterable[str],
        image: Image,
        entities: Iterable[Entity],
        guards: Iterable[str],
        why: Purpose,
    ) -> None:
        """Remove attributes that rules set from an item, if they, these guards and the attributes that the `match` of
        these entities reads are as in `image`. Raise ConditionFailed.
        """
        gone = [name for name in names if name in image]
        read = sorted({*gone, *(name for name in guards if name in image)})
        unchanged = [Equal((name,), image[name]) for name in read]
        condition = AllOf((self.exists(key), *kind_as_read(entities, image), *unchanged))
        self.store.write(Update(key, remove=tuple(gone), condition=condition, purpose=why))


def _present(values: Values) -> dict[str, Value]:
    return {name: value for name, value in values.items() if value is not None}


_LAST = "\U0010ffff"
"""The greatest character: a text sorts after its prefix followed by this character only if it continues with it."""


def kind_as_read(entities: Iterable[Entity], image: Image) -> list[Condition]:
    """Return the conditions that the attributes that the `match` of these entities reads are as in this image."""
    names = {root(name) for entity in entities for name in entity.match_names}
    names |= {name for entity in entities for name in entity.match_names}  # an attribute may be called like a path
    keys = {name for entity in entities for name in entity.schema.key_attributes}
    return [as_read(name, image.get(name)) for name in sorted(names - keys)]


def kind_condition(entity: Entity, key: ItemKey) -> Condition | None:
    """Return a condition that holds only for an item of the entity under this key; None if it cannot be expressed.

    The condition does not include that the item exists.
    """
    if entity.pattern is None:
        return AllOf(())
    if entity.match_reads_key:
        return _all(entity.pattern.conditions, _values_of_key(entity, key))
    return _static(entity)


@lru_cache(maxsize=512)
def _static(entity: Entity) -> Condition | None:
    assert entity.pattern is not None
    return _all(entity.pattern.conditions, {})


def _values_of_key(entity: Entity, key: ItemKey) -> dict[str, tuple[Value, bool]]:
    """The values that the key gives to names in `match`, and whether an attribute of that name comes first."""
    values: dict[str, tuple[Value, bool]] = {}
    for pattern, text in zip(entity.patterns, (key.partition, key.sort), strict=False):
        for name, value in (pattern.match(text or "") or {}).items():
            values[name] = {"S": value}, True
    values.update((name, (value, False)) for name, value in entity.schema.wire(key).items())
    return values


def _all(conditions: Iterable[PatternCondition], values: Mapping[str, tuple[Value, bool]]) -> Condition | None:
    parts = []
    for condition in conditions:
        part = _test(condition, values) if isinstance(condition, Test) else _either(condition, values)
        if part is None:
            return None
        if part != AllOf(()):
            parts.append(part)
    return parts[0] if len(parts) == 1 else AllOf(tuple(parts))


def _either(condition: Either, values: Mapping[str, tuple[Value, bool]]) -> Condition | None:
    """At least one of those branches that can be expressed holds."""
    branches = [part for branch in condition.branches if (part := _all(branch, values)) is not None]
    return AnyOf(tuple(branches)) if branches else None


def _test(test: Test, values: Mapping[str, tuple[Value, bool]]) -> Condition | None:
    present = [alternative for alternative in test.alternatives if alternative != Presence(False)]
    value, attribute_first = values.get(test.name, (None, True))
    if value is not None:
        fits = test.compile()(lambda name, stored=False: value)
        if not attribute_first:
            return AllOf(()) if fits else AnyOf(())
        attribute = _at((test.name,), [each for each in present if each != Equals(None)])  # NULL: the key has the value
        if not fits:
            return attribute
        return AnyOf((Missing((test.name,)), *(() if attribute is None else (attribute,))))
    path = steps(test.name)
    # a decimal step may be the position in a list, which a path of names never finds
    in_list = any(step.isdecimal() for step in path[1:])
    return _at(path, present if in_list else test.alternatives)


def _at(path: Path, alternatives: Iterable[Alternative]) -> Condition | None:
    conditions = [condition for alternative in alternatives for condition in _alternative(path, alternative)]
    if len(conditions) > 1:
        return AnyOf(tuple(conditions))
    return conditions[0] if conditions else None


def _alternative(path: Path, alternative: Alternative) -> Iterator[Condition]:
    match alternative:
        case Presence(exists):
            yield Exists(path) if exists else Missing(path)
        case Equals(value):
            yield Equal(path, wire(value))
        case Affix("prefix", text, False):
            yield _beginning(path, text)
        case Affix("equals-ignore-case", text, _):
            yield Equal(path, {"S": text})
        case Compares(bounds):
            if not alternative.names:  # a store compares no two attributes of an item
                yield AllOf(tuple(_bound(path, sign, value) for sign, value in bounds if not isinstance(value, Named)))
        case AnythingBut(excluded):
            yield from _anything_but(path, [each.value for each in excluded if isinstance(each, Equals)], len(excluded))
        case Affix():
            pass  # a suffix, and case
        case _:
            assert_never(alternative)


def _beginning(path: Path, prefix: str) -> Condition:
    longer = AllOf((Above(path, {"S": prefix}), Below(path, {"S": prefix + _LAST})))
    return AnyOf((Equal(path, {"S": prefix}), longer))


def _bound(path: Path, sign: str, limit: Decimal | str) -> Condition:
    value = wire(limit)
    if sign == "!=":
        return AnyOf((Below(path, value), Above(path, value)))
    conditions: list[Condition] = []
    if sign != "=":
        conditions.append(Below(path, value) if sign[0] == "<" else Above(path, value))
    if "=" in sign:
        conditions.append(Equal(path, value))
    return conditions[0] if len(conditions) == 1 else AnyOf(tuple(conditions))


def _anything_but(path: Path, values: list[object], number: int) -> Iterator[Condition]:
    """Any other text or number. DynamoDB's `<>` would also hold for a list with an excluded element."""
    if len(values) < number:
        return
    for kind in (str, Decimal):
        of_kind = [wire(value) for value in values if isinstance(value, kind)]
        if of_kind:
            yield AllOf(tuple(AnyOf((Below(path, value), Above(path, value))) for value in of_kind))
