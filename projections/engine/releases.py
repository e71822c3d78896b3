"""Releasing an item: removing what rules set on it while it was of an entity that it has left.

The stream record of the item's leaving shows what the rules had set until then. To remove these attributes by name is
wrong: since that record, the application may have given one of them a value of its own, and the item may have been of the
entity again, under the same guards. So the item is read, compared with the record, and written as it was read:

- An attribute is removed only if it still has the value that a rule published and that it had when the item left, and the
  guard under which the rule published it is still on the item.
- Of an item that has lost all guards that it had, nothing is removed: the application put it whole, so nothing on it is the
  rules', whatever values equal theirs.
- Attributes that belong together are removed together or not at all: the key attributes of one index, and the attributes of
  one rule without guards. If the item lacks one of their values, or has another one, the application has set them.
- Attributes that the rules of the item's present entity own stay.
- A guard is removed with the values, unless the item has a value that neither the record nor the rule explains: then the
  rule may have adopted the item again under the same guard, and a later record reports that it left again.
- An item that is of the entity again, or that a rule is going to restore, is not released. A heal corrects it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeAlias

from projections.engine.application import ApplicationItems
from projections.engine.copies import copies_of
from projections.engine.running import tries
from projections.engine.store import Image, ItemKey, Purpose, Records, Store, Value
from projections.errors import ConditionFailed
from projections.language.entity import Entity
from projections.language.keys import decode_key
from projections.language.program import Program
from projections.language.rules import CopyRule, Rule
from projections.language.values import same

_NOTHING: Image = {}

Published: TypeAlias = Mapping[str, Sequence[tuple[str | None, Value]]]
"""By attribute, values that rules published, each with the guard of its rule; index rules have no guard."""


class Release(NamedTuple):
    """An item that has left an entity, and the attributes that the rules of the entity set on it."""

    key: ItemKey
    entity: Entity
    guards: Mapping[str, Value]
    """The guards on the item before it left. With another guard, the item has been of the entity again since."""
    values: Published
    sequences: Records = ()
    """The sequence numbers of the records that it follows from."""
    copied: tuple[CopyRule, str] | None = None
    """The copy of all attributes that adopted the item, and its source, which has the values that were copied."""
    after: Image = _NOTHING
    """The item as it left."""
    whole: bool = False
    """Whether to remove nothing unless the item shows such a value in each of these attributes, and no other value."""
    rules: tuple[str, ...] = ()
    """The rules that set what is removed."""


def belonging_together(program: Program, entity: Entity) -> list[frozenset[str]]:
    """Return sets of attributes that rules set on items of an entity together: on one index, or by a rule without guards."""
    owned = program.derived_attributes(entity.name)
    indexes = [frozenset(name for part in keys for name, _ in part) & owned for keys in entity.schema.indexes.values()]
    return [*indexes, *(frozenset(rule.owned()) for rule in program.item_rules.get(entity.name, ()) if rule.removes)]


class Releaser:
    """Releases items that left their entity."""

    def __init__(self, program: Program, store: Store, items: ApplicationItems) -> None:
        self._program = program
        self._store = store
        self._items = items

    def release(self, release: Release) -> bool:
        """Remove from an item what rules set on it. Return whether anything was removed. Raise Transient."""
        why = Purpose("release", release.rules, "", release.sequences)
        for _ in tries("an item kept changing while the attributes that rules set on it were removed"):
            image = self._store.get(release.key)
            if image is None or self._is_restored(release, image):
                break
            names = self._removable(release, image)
            if not names:
                break
            with suppress(ConditionFailed):
                self._items.remove(release.key, names, image, (release.entity,), (), why)
                return True
        return False

    def _is_restored(self, release: Release, image: Image) -> bool:
        """Whether the item is of the entity again, or a rule that created it restores what it lacks of the entity."""
        entity, key = release.entity, release.key
        if self._items.is_of(entity, key, image):
            return True
        rules = (self._rule(guard) for guard in release.guards if guard in image)
        return any(rule is not None and self._items.may_write(rule, entity, key, image) for rule in rules)

    def _removable(self, release: Release, image: Image) -> list[str]:
        """The attributes and guards to remove from the item as it was read."""
        if release.guards and not any(self._items.guards.valid(guard, release.key, image) for guard in release.guards):
            return []  # the application has put the item whole since
        item = self._program.recognise(release.key, image)
        entity = item.entity if item is not None else None
        theirs = self._program.derived_attributes(entity.name) if entity is not None else frozenset()
        published = {**release.values, **self._copied_attributes(release)}
        published = {name: values for name, values in published.items() if name not in theirs}
        held = self._unchanged_guards(release, image)
        names = [
            name
            for name, values in published.items()
            if name in image and _shows(image[name], values, held) and _has_stayed(name, image, release.after)
        ]
        together = [unit - theirs for unit in belonging_together(self._program, release.entity)]
        names = _complete(names, together, lambda name: name not in image and not published.get(name))
        kept = {name: values for name, values in published.items() if name not in names}
        if release.whole and any(name in image or values for name, values in kept.items()):
            return []
        guards = held - self._adopted_again(release, image, kept)
        guards = {guard for guard in guards if not self._writes(guard, entity)}
        if entity is not None and entity.public_name == release.entity.public_name:  # it has left another version of it
            valid = [name for name in image if self._items.guards.valid(name, release.key, image)]
            makes = [rule.creates and rule.into is entity for rule in map(self._rule, valid) if rule is not None]
            guards = guards - {self._items.guards.mark} if any(makes) else guards
        return sorted([*names, *guards])

    def _unchanged_guards(self, release: Release, image: Image) -> set[str]:
        """The guards that are still as they were when the item left; the mark only if all of them are."""
        there = release.guards.keys() & image.keys()
        held = {guard for guard in there if same(image[guard], release.guards[guard])}
        return held if held == there else held - {self._items.guards.mark}

    def _adopted_again(self, release: Release, image: Image, kept: Published) -> set[str | None]:
        """The guards of rules whose attributes have a value that they did not have when the item left."""
        return {
            guard
            for name, values in kept.items()
            if name in image and name not in release.entity.constants
            for guard, _ in values
            if not (guard and (rule := self._rule(guard)) and rule.copies_all)
            and not _has_stayed(name, image, release.after)
        }

    def _copied_attributes(self, release: Release) -> Published:
        """The attributes that a copy of all attributes has of its source now."""
        rule, by = release.copied or (None, "")
        if rule is None or not by:
            return {}
        source = decode_key(by)
        copy = copies_of(rule, self._program.recognise(source, self._store.get(source))).get(release.key, {})
        return {name: [(self._items.guards.name(rule.name), value)] for name, value in copy.items()}

    def _rule(self, guard: str) -> Rule | None:
        """The rule whose guard an attribute is."""
        return self._program.published.get(self._items.guards.rule(guard))

    def _writes(self, guard: str, entity: Entity | None) -> bool:
        """Whether the rule of a guard writes to an entity."""
        rule = self._rule(guard)
        return rule is not None and entity is not None and rule.into is entity


def _complete(names: Sequence[str], together: Sequence[frozenset[str]], absent: Callable[[str], bool]) -> list[str]:
    """Return the names without those of sets that are not complete: each other name of them has to be rightly absent."""
    complete = list(names)
    while True:
        parted = [unit for unit in together if any(name not in complete and not absent(name) for name in unit)]
        kept = [name for name in complete if not any(name in unit for unit in parted)]
        if kept == complete:
            return complete
        complete = kept


def _has_stayed(name: str, image: Image, former: Image) -> bool:
    """Whether an attribute of an item has the value that it had when the item left."""
    return name in former and same(image[name], former[name])


def _shows(value: Value, published: Sequence[tuple[str | None, Value]], held: Collection[str]) -> bool:
    """Whether a value is one that a rule published under a guard that is still on the item."""
    return any((guard is None or guard in held) and same(value, each) for guard, each in published)
