"""Writes to the application's items. This module alone decides what such a write is conditional on.

- The item is still of the entity that the rule writes to: its *kind*, see `engine.kinds`.
- The rule's guard is as it was read, or absent, or older: see `engine.guards`.
- An item is created only where there is none, and then marked as created.
- An item is deleted only if a rule created it and nothing but rules' attributes is on it. No condition can ask that, so the
  item is read first, and the deletion returns the item that it removed: attributes that the application added in between
  are put back at once, if there is still no item. They are lost if the process dies between these two requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from projections.engine.guards import Guard, Guards, as_read
from projections.engine.kinds import kind_as_read, kind_condition
from projections.engine.store import (
    AllOf,
    Condition,
    Delete,
    Equal,
    Exists,
    Image,
    ItemKey,
    Missing,
    Purpose,
    Store,
    Update,
    Value,
)
from projections.errors import BadInput, ConditionFailed, Occupied, Transient
from projections.language.entity import Entity
from projections.language.keys import decode_key
from projections.language.program import Program
from projections.language.rules import CopyRule, Rule
from projections.language.values import same

__all__ = ["ApplicationItems", "Release", "occupied", "purpose_of"]

_MOST_TRIES = 20

_RESTORE = Purpose("restore")


@dataclass(frozen=True, slots=True)
class Release:
    """What the rules of an entity set on an item that has left the entity.

    `values` gives, by attribute, the guard of the rule that published there (none of an index rule) and what it published:
    an attribute is removed only if it still has such a value, and the guard is still on the item as in `guards`: with
    another one, the item has been of the entity again since, and a later record tells what was set on it. `copied` names the
    copy of all attributes that adopted the item, and its source: only that tells what was copied.

    `after` is the item as it left. Where it shows neither that nor what the rule published, the guard stays: a rule may have
    taken the item back under the same guard, and then a later record tells of its leaving again.
    """

    key: ItemKey
    entity: Entity
    guards: Mapping[str, Value]
    values: Mapping[str, Sequence[tuple[str | None, Value]]]
    sequence: str = ""
    copied: tuple[CopyRule, str] | None = None
    after: Image = field(default_factory=dict)
    whole: bool = False
    """Whether nothing is removed unless the item shows such a value in each of these attributes, and no other value."""
    rules: tuple[str, ...] = ()
    """The rules that set what is removed."""


def occupied(entity: Entity) -> Occupied:
    """The error for a key that holds an item of another kind."""
    return Occupied(
        f"occupied: there is an item of another kind under this key, so that no {entity.name} is created. It is created as "
        "soon as that item is removed"
    )


def purpose_of(rule: Rule) -> Purpose:
    """Return why a rule writes to the items that its guard is on."""
    return Purpose("publish" if rule.recorded else "copy" if rule.creates else "embed", (rule.name,))


class ApplicationItems:
    """Judges the application's items under the rules of a program, and writes to them."""

    def __init__(self, program: Program, store: Store, guards: Guards) -> None:
        self.guards = guards
        self._program = program
        self._store = store
        self._attributes: dict[str, frozenset[str] | None] = {}

    # Judging

    def is_of(self, entity: Entity, key: ItemKey, image: Image | None) -> bool:
        """Whether an item is of an entity, by key and `match`."""
        item = self._program.recognise(key, image) if image is not None else None
        return item is not None and item.entity is entity

    def guard(self, rule: Rule, key: ItemKey, image: Image | None) -> Guard | None:
        """The valid guard of a rule on an item."""
        return self.guards.read(rule.name, key, image)

    def created(self, key: ItemKey, image: Image | None) -> bool:
        """Whether an item is marked as created by a rule."""
        return self.guards.created(key, image)

    def may_write(self, rule: Rule, entity: Entity, key: ItemKey, image: Image) -> bool:
        """Whether an item is of the entity, or was created by the rule and only lacks what `match` asks for.

        The second is an item that the rule created, and from which the application removed the attribute that `match` reads:
        it has nothing of the application on it.
        """
        if self.is_of(entity, key, image):
            return True
        return (
            self.guard(rule, key, image) is not None
            and self.created(key, image)
            and self._program.recognise(key, image) is None
            and not self.foreign(entity, image)
        )

    def foreign(self, entity: Entity, image: Image) -> dict[str, Value]:
        """The attributes on an item of an entity that rules create which are not the rules'."""
        owned, constants = self._owned(entity), entity.constants
        if owned is None:  # but for another kind that the application gave it
            return {n: image[n] for n, value in constants.items() if n in image and not same(image[n], value)}
        return {
            name: value
            for name, value in image.items()
            if name not in owned
            and not self.guards.is_guard(name)
            and not (name in constants and same(value, constants[name]))
        }

    def _owned(self, entity: Entity) -> frozenset[str] | None:
        """The attributes that rules write on items of an entity, its key included; None if all."""
        if entity.name not in self._attributes:
            rules = self._program.rules.values()
            copies_all = any(rule.copies_all for rule in rules if rule.into is entity and rule.mode != "shadow")
            derived = self._program.derived_attributes(entity.name, shadow=False) - entity.constants.keys()
            self._attributes[entity.name] = None if copies_all else derived | set(entity.schema.key_attributes)
        return self._attributes[entity.name]

    # Writes

    def exists(self, key: ItemKey) -> Condition:
        return Exists((self._store.schema(key.table).partition[0],))

    def create(self, key: ItemKey, values: Mapping[str, Value | None], rule: Rule) -> None:
        """Creates an item where there is none, and marks it. Raises ConditionFailed with the item that is there."""
        self._put(key, {**values, self.guards.mark: self.guards.mark_of(key)}, purpose_of(rule))

    def _put(self, key: ItemKey, values: Mapping[str, Value | None], why: Purpose) -> None:
        absent = Missing((self._store.schema(key.table).partition[0],))
        self._store.write(Update(key, set=_present(values), condition=absent, purpose=why))

    def change(
        self,
        entity: Entity,
        key: ItemKey,
        values: Mapping[str, Value | None],
        condition: Condition,
        why: Purpose,
        image: Image | None = None,
    ) -> Update | None:
        """An update of an item that exists and is of the entity; None values are removed.

        With `image`, what `match` reads has to be as in this image; without, `match` itself is the condition: then None is
        returned if no condition can express it.
        """
        kind: Iterable[Condition]
        if image is not None:
            kind = kind_as_read((entity,), image)
        else:
            compiled = kind_condition(entity, key)
            if compiled is None:
                return None
            kind = compiled.conditions if isinstance(compiled, AllOf) else (compiled,)
        return Update(
            key,
            set=_present(values),
            remove=tuple(sorted(name for name, value in values.items() if value is None)),
            condition=AllOf((self.exists(key), *kind, condition)),
            purpose=why,
        )

    def change_as_read(
        self,
        entity: Entity,
        key: ItemKey,
        values: Mapping[str, Value | None],
        condition: Condition,
        why: Purpose,
        image: Image,
    ) -> None:
        """Changes an item that exists, and of which what `match` reads is as in `image`. Raises ConditionFailed."""
        update = self.change(entity, key, values, condition, why, image)
        assert update is not None
        self._store.write(update)

    def write(self, entity: Entity, key: ItemKey, values: Mapping[str, Value | None], rule: Rule, image: Image) -> None:
        """Changes an item as it was read: its kind and the rule's guard are as in `image`. Raises ConditionFailed."""
        self.change_as_read(entity, key, values, self.guards.as_read(rule.name, image), purpose_of(rule), image)

    def delete(
        self,
        entity: Entity,
        key: ItemKey,
        image: Image,
        *,
        rules: Iterable[str] = (),
        without: Iterable[str] = (),
    ) -> None:
        """Deletes an item that a rule created, as it was read: its kind, all guards on it and those of `rules`.

        What the application added in the meantime is put back, with the constants of the entity. Attributes named in
        `without` are not the application's. Raises ConditionFailed.
        """
        names = {name for name in image if self.guards.is_guard(name)} | {self.guards.name(rule) for rule in rules}
        guards = [as_read(name, image.get(name)) for name in sorted(names)]
        condition = AllOf((self.exists(key), *kind_as_read((entity,), image), *guards))
        why = Purpose("delete", tuple(rule for rule in self._program.rules if self.guards.name(rule) in names))
        removed = self._store.write(Delete(key, condition, why))
        added = self.foreign(entity, removed) if removed is not None else {}
        added = {name: value for name, value in added.items() if name not in set(without)}
        if removed is None or not added:
            return None
        constants = {name: removed[name] for name in entity.constants if name in removed}
        failure: Transient | None = None
        for _ in range(_MOST_TRIES):
            try:
                return self._put(key, {**constants, **added}, _RESTORE)
            except ConditionFailed as failed:
                return self._put_back(key, added, failed.item)
            except Transient as error:
                failure = error
        raise failure or Transient("what the application added to a deleted item could not be put back")

    def _put_back(self, key: ItemKey, added: Mapping[str, Value], item: Image | None) -> None:
        """Puts what the application added to a deleted item on the one that a rule created there since.

        If the application has put an item there, it decides what that holds.
        """
        if item is None or not self.created(key, item):
            return
        absent = [Missing((name,)) for name in sorted(added)]
        condition = AllOf((self.exists(key), as_read(self.guards.mark, item[self.guards.mark]), *absent))
        with suppress(ConditionFailed):
            self._store.write(Update(key, set=added, condition=condition, purpose=_RESTORE))

    def remove(
        self,
        key: ItemKey,
        names: Iterable[str],
        image: Image,
        entities: Iterable[Entity],
        guards: Iterable[str],
        rules: Iterable[str],
    ) -> None:
        """Removes attributes that `rules` set from an item as it was read: they, these guards and what these entities'
        `match` reads are unchanged. Raises ConditionFailed.
        """
        gone = [name for name in names if name in image]
        read = sorted({*gone, *(name for name in guards if name in image)})
        unchanged = [Equal((name,), image[name]) for name in read]
        condition = AllOf((self.exists(key), *kind_as_read(entities, image), *unchanged))
        why = Purpose("release", tuple(rules))
        self._store.write(Update(key, remove=tuple(gone), condition=condition, purpose=why))

    def release(self, release: Release) -> bool:
        """Removes from an item what the rules of an entity set on it that it has left. Whether anything was removed."""
        key, entity = release.key, release.entity
        for _ in range(_MOST_TRIES):
            image = self._store.get(key)
            if image is None or self.is_of(entity, key, image):
                return False
            if any(
                guard in image and self._restores(guard, entity, key, image) for guard in release.guards
            ):  # healed instead
                return False
            item = self._program.recognise(key, image)
            others = self._program.derived_attributes(item.entity.name) if item is not None else frozenset()
            values = {**release.values, **self._copied(release)}
            there = release.guards.keys() & image.keys()
            held = {guard for guard in there if same(image[guard], release.guards[guard])}
            if held != there:
                held -= {self.guards.mark}
            names = [
                name
                for name, published in sorted(values.items())
                if name in image
                and name not in others
                and any((guard is None or guard in held) and same(image[name], value) for guard, value in published)
            ]
            if release.whole and any(
                (name in image or published) and name not in names and name not in others
                for name, published in values.items()
            ):
                return False
            now = item.entity if item is not None else None
            strange = {
                guard
                for name, published in values.items()
                if name in image and name not in names and name not in others and name not in entity.constants
                for guard, _ in published
                if not self._copies_all(guard)
                and (name not in release.after or not same(image[name], release.after[name]))
            }
            guards = [name for name in sorted(held - strange) if not self._writes(name, now)]
            if not names and not guards:
                return False
            with suppress(ConditionFailed):
                self.remove(key, sorted([*names, *guards]), image, (entity,), (), release.rules)
                return True
        raise Transient("an item kept changing while what rules set on it was removed")

    def _copied(self, release: Release) -> dict[str, Sequence[tuple[str | None, Value]]]:
        """What a copy of all attributes shows of its source now."""
        rule, by = release.copied or (None, "")
        if rule is None or not by:
            return {}
        source = decode_key(by)
        image = self._store.get(source)
        item = self._program.recognise(source, image) if image is not None else None
        try:
            copy = rule.copies(item).get(release.key, {}) if item is not None and item.entity is rule.source else {}
        except BadInput:
            return {}
        return {name: [(self.guards.name(rule.name), value)] for name, value in copy.items()}

    def _rule(self, guard: str) -> Rule | None:
        """The rule whose guard an attribute is."""
        return self._program.rules.get(guard.removeprefix(self._program.guard_prefix))

    def _copies_all(self, guard: str | None) -> bool:
        """Whether a guard is that of a copy of all attributes, to which any attribute of the item may belong."""
        rule = self._rule(guard) if guard is not None else None
        return rule is not None and rule.copies_all

    def _restores(self, guard: str, entity: Entity, key: ItemKey, image: Image) -> bool:
        rule = self._rule(guard)
        return rule is not None and self.may_write(rule, entity, key, image)

    def _writes(self, guard: str, entity: Entity | None) -> bool:
        """Whether the rule of a guard writes to an entity."""
        rule = self._rule(guard)
        return rule is not None and entity is not None and rule.into is entity


def _present(values: Mapping[str, Value | None]) -> dict[str, Value]:
    return {name: value for name, value in values.items() if value is not None}
