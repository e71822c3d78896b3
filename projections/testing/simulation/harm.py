"""The second oracle: no write of the engine may change or remove data of the application.

It keeps what the application wrote, item by item, and compares after every write of the engine. Of the rules, it uses only
the attributes that they own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from projections.engine.store import Image, ItemKey, Value
from projections.language.entity import Entity
from projections.language.keys import encode_key
from projections.language.program import Program

HARM = "harm: "
"""How each problem of this oracle begins."""


class _Owned:
    """The attributes of one entity that the rules of one program own."""

    def __init__(self, program: Program, entity: Entity) -> None:
        self.guards: dict[str, list[str]] = {}
        """Attribute → the guards of its rules; an empty list where a rule without guards owns it."""
        self.everything: list[str] = []
        """The guards of copies of all attributes."""
        for rule in program.rules.values():
            if rule.into.name != entity.name:
                continue
            guard = program.guard(rule.name)
            if not rule.has_guard:
                self.guards.update({name: [] for name in rule.owned()})
                continue
            if rule.copies_all:
                self.everything.append(guard)
            for name in rule.owned():
                self.guards.setdefault(name, []).append(guard)
        self.constants = entity.constants if entity.owned_by_rules else {}
        if entity.owned_by_rules:
            self.guards[program.guard_prefix] = [program.guard_prefix]  # the mark of created items

    def __contains__(self, name: str) -> bool:
        return name in self.guards


class Ownership:
    """The attributes that rules own, under all rules that are deployed in a history."""

    def __init__(self, programs: Sequence[Program]) -> None:
        self.programs = programs
        self._entities: dict[tuple[int, str], _Owned] = {}
        self._lasting: dict[str, frozenset[str]] = {}
        self._together: dict[tuple[ItemKey, str], frozenset[str]] = {}

    @cached_property
    def held(self) -> set[str]:
        """The rules that are held in a program."""
        return {rule.name for program in self.programs for rule in program.rules.values() if rule.held}

    @cached_property
    def copied_whole(self) -> set[str]:
        """The sources of copies of all attributes."""
        return {rule.source.name for program in self.programs for rule in program.rules.values() if rule.copies_all}

    def is_whole_copy(self, key: ItemKey) -> bool:
        """Return whether an item may be, or may have been, a copy of all attributes: it has what its source has."""
        return any(owner.everything for owner in self.of_created(key))

    def lasting(self, table: str) -> frozenset[str]:
        """Return the attributes that rules set once on items of a table, and that no rule writes otherwise in any program.

        No rule removes them. Of others, a backfill may remove what a former rule wrote on items of another entity.
        """
        if table not in self._lasting:
            rules = [rule for program in self.programs for rule in program.rules.values() if rule.into.table == table]
            others = {name for rule in rules if rule.removes for name in rule.owned()}
            self._lasting[table] = set_once(self.programs, table) - others
        return self._lasting[table]

    def together(self, key: ItemKey, name: str) -> frozenset[str]:
        """Return the attributes that rules of each program set together with one, on items that such a key may have.

        Attributes of one index, and of one rule without guards.
        """
        if (key, name) not in self._together:
            units = [
                _together(program, entity, name)
                for program in self.programs
                for entity in program.entities_at(key)
                if name in program.derived_attributes(entity.name)
            ]
            together = frozenset.intersection(*units) if units else frozenset()
            self._together[key, name] = together - {name}
        return self._together[key, name]

    def of(self, key: ItemKey, image: Image) -> list[_Owned]:
        """Return the attributes that rules own on an item, for its entity in each program."""
        items = [program.recognise(key, image) for program in self.programs]
        return [self._of(position, item.entity) for position, item in enumerate(items) if item is not None]

    def of_created(self, key: ItemKey) -> list[_Owned]:
        """Return the attributes that rules own on items that they create under a key."""
        return [
            self._of(position, entity)
            for position, program in enumerate(self.programs)
            for entity in program.entities_at(key)
            if entity.owned_by_rules
        ]

    def attributes(self, program: Program, key: ItemKey) -> set[str]:
        """Return the attributes that rules own on items of any entity with such a key."""
        position = next(number for number, candidate in enumerate(self.programs) if candidate is program)
        return {name for entity in program.entities_at(key) for name in self._of(position, entity).guards}

    def _of(self, position: int, entity: Entity) -> _Owned:
        place = position, entity.name
        if place not in self._entities:
            self._entities[place] = _Owned(self.programs[position], entity)
        return self._entities[place]


@dataclass(slots=True)
class _Shadow:
    """The application's data on one item."""

    wrote: dict[str, Value] = field(default_factory=dict)
    """The attributes as the application left them, without those that rules have published since."""
    unclear: set[str] = field(default_factory=set)
    """Attributes of index rules, which have no guards, as the application left them: a rule may remove them, or not."""
    whole: set[str] = field(default_factory=set)
    """Attributes of an item that the application put whole, without the guards that the item had: they are its own."""
    created: bool = False
    """Whether the item is the application's, and only the application may delete it."""


class Harm:
    """The application's data in one history, and the harm that writes of the engine do to it."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        self._owned = ownership.of
        self._programs = programs = ownership.programs
        self._prefix = programs[0].guard_prefix
        self._shadows: dict[ItemKey, _Shadow] = {}
        self._genuine: dict[tuple[ItemKey, str], list[Value]] = {}
        """The guards and marks that the engine wrote on each item."""
        self._deleted: dict[ItemKey, tuple[Any, dict[str, Value], dict[str, Value]]] = {}
        """By deleted item: who deleted it, what may be put back of it, and what has to be, until that process has done so.

        Of an item whose attributes were all a copy's, what the application added since may be put back, and need not be.
        """
        self._made: set[ItemKey] = set()
        """Items that the engine created, and that still exist."""
        self._values: dict[tuple[ItemKey, str], list[Value]] = {}
        """The values that the engine ever wrote into attributes."""
        self._stripped: set[ItemKey] = set()
        """Items from which the application removed guards, so that values of rules cannot be recognised."""
        self.meddled: set[ItemKey] = set()
        """Items that the application has written to since they appeared."""
        self._planted: set[ItemKey] = set()
        """Items to which the application added a mark that a rule had written there before."""
        self._taken: dict[tuple[ItemKey, str], list[Value]] = {}
        """Attributes of the application that deletions took, with their values: they may be put back."""
        self._unguarded: dict[tuple[ItemKey, str], list[Value]] = {}
        """Values of rules without guards on items when these left their entity, and had no guards."""
        self.stays: dict[ItemKey, set[str]] = {}
        """Attributes of items of another kind that may be values of a former version of a rule, or the application's."""
        self._sourced: dict[str, None] = {}
        """Attributes that sources of copies of all attributes ever had."""

    # Guards

    def genuine(self, key: ItemKey, name: str, guard: Value) -> bool:
        """Return whether the engine wrote such a guard or mark on this item, rather than the application."""
        return guard in self._genuine.get((key, name), ())

    def _guards(self, key: ItemKey, image: Image) -> set[str]:
        return {name for name in image if name.startswith(self._prefix) and self.genuine(key, name, image[name])}

    def _is_marked(self, key: ItemKey, image: Image) -> bool:
        """Whether the item is marked as created by a rule."""
        return self._prefix in image and self.genuine(key, self._prefix, image[self._prefix])

    # The application's writes

    def note_write(self, key: ItemKey, before: Image | None, after: Image | None) -> None:
        """Note a write of the application."""
        self._deleted.pop(key, None)
        self.meddled.add(key)
        if before is None or after is None:
            self._made.discard(key)
            self._planted.discard(key)
        if after is None:
            self._shadows.pop(key, None)
            return
        shadow = self._shadows.setdefault(key, _Shadow())
        had = self._guards(key, before) if before is not None else set()
        if before is not None and not had:
            self._note_unguarded(key, before, after)
        if had and had.isdisjoint(self._guards(key, after)):
            shadow.wrote = {name: value for name, value in after.items() if not name.startswith(self._prefix)}
            shadow.whole = set(shadow.wrote)
        elif before is None:
            shadow.wrote = {name: value for name, value in after.items() if not name.startswith(self._prefix)}
        else:
            for name, value in after.items():
                if before.get(name) != value and not name.startswith(self._prefix):
                    shadow.wrote[name] = value
                    shadow.unclear |= self._ownership.together(key, name)
            for name in before:
                if name not in after:
                    shadow.wrote.pop(name, None)
                    shadow.unclear |= self._ownership.together(key, name)
        if self._guards(key, after):
            shadow.whole.clear()  # it put back what it had read, with the guards
        shadow.created = not self._is_marked(key, after)
        if before is not None and not shadow.created and not self._is_marked(key, before):
            self._planted.add(key)
        elif shadow.created:
            self._planted.discard(key)
        if before is not None and any(name.startswith(self._prefix) and name not in after for name in before):
            self._stripped.add(key)
        if self._prefix not in after:
            self._made.discard(key)  # whatever was there before, this is the application's
        self._forget_published(key, after, shadow)
        self._note_source(key, after)

    def _note_unguarded(self, key: ItemKey, before: Image, after: Image) -> None:
        """Note what rules without guards had set on an item that leaves their entity without guards.

        If the record of that is late, nothing shows that the application has put the same values since.
        """
        now = self._owned(key, after)
        for owned in self._owned(key, before):
            for name, guards in owned.guards.items():
                if not guards and name in before and not any(name in owner for owner in now):
                    self._unguarded.setdefault((key, name), []).append(before[name])

    def _note_source(self, key: ItemKey, image: Image) -> None:
        """Note the attributes of an item of which there may be a copy of all attributes."""
        whole = self._ownership.copied_whole
        if whole and any(
            item is not None and item.entity.name in whole
            for item in (program.recognise(key, image) for program in self._programs)
        ):
            self._sourced.update(dict.fromkeys(image))

    def _forget_published(self, key: ItemKey, image: Image, shadow: _Shadow) -> None:
        """Forget attributes that a rule has published on the item: their values are the rule's from now on."""
        guards: set[str] | None = None
        for owned in self._owned(key, image):
            for name in [name for name in shadow.wrote if name in owned]:
                if guards is None:
                    guards = self._guards(key, image)
                owners = owned.guards[name]
                if not owners or not guards.isdisjoint(owners):
                    del shadow.wrote[name]
                    shadow.whole.discard(name)
                    if not owners:
                        shadow.unclear.add(name)

    # The engine's writes

    def check_write(
        self, key: ItemKey, before: Image | None, after: Image | None, by: Any, *, answered: bool = True
    ) -> Iterator[str]:
        """Yield the harm that a write of the engine did. `answered` is false if its answer is lost on the way."""
        for name, value in (after or {}).items():
            if not name.startswith(self._prefix):
                if before is None or before.get(name) != value:
                    self._values.setdefault((key, name), []).append(value)
            elif before is None or before.get(name) != value:
                self._genuine.setdefault((key, name), []).append(value)
        if after is None or not self._is_marked(key, after):
            self._planted.discard(key)
        if after is not None:
            self._note_source(key, after)  # what rules set on a source is copied too
        if before is None:
            assert after is not None
            self.meddled.discard(key)
            self._made.add(key)
            self._restore(key, after)
        elif after is None:
            yield from self._check_removal(key, before, by, answered)
        else:
            yield from self._check_change(key, before, after)

    def _restore(self, key: ItemKey, after: Image) -> None:
        shadow = self._shadows[key] = _Shadow()
        if key in self._deleted:
            _, plain, _ = self._deleted.pop(key)
            shadow.wrote = {name: value for name, value in plain.items() if after.get(name) == value}
            shadow.created = not self._is_marked(key, after)

    def restores(self, key: ItemKey, after: Image) -> bool:
        """Return whether a creation puts attributes of the application back that a deletion took."""
        _, plain, _ = self._deleted.get(key, (None, {}, {}))
        return not self._is_marked(key, after) and any(after.get(name) == value for name, value in plain.items())

    def _check_removal(self, key: ItemKey, before: Image, by: Any, answered: bool) -> Iterator[str]:
        shadow = self._shadows.pop(key, None)
        self._made.discard(key)
        if shadow is None:
            return
        if shadow.created:
            yield f"{HARM}{encode_key(key)}: the engine deleted an item of the application"
            return
        owned = self._owned(key, before)
        if not owned and self._is_marked(key, before):
            owned = self._ownership.of_created(key)
        names = self._programs[0].tables[key.table].key_attributes
        lost = {
            name: value
            for name, value in shadow.wrote.items()
            if name not in names and not any(name in owner or owner.constants.get(name) == value for owner in owned)
        }
        for name, value in lost.items():
            self._taken.setdefault((key, name), []).append(value)
        if any(owner.everything for owner in owned):
            plain = {n: value for n, value in before.items() if n not in names and not n.startswith(self._prefix)}
            foreign = {name: value for name, value in lost.items() if name not in self._sourced}
            self._deleted[key] = (by, plain, foreign if answered else {})
        elif lost and answered:
            self._deleted[key] = (by, lost, lost)

    def check_end(self, by: Any) -> Iterator[str]:
        """Yield what a process that came to its end took and did not restore."""
        for key, (who, _, lost) in list(self._deleted.items()):
            if who is by:
                del self._deleted[key]
                if lost:
                    names = ", ".join(lost)
                    yield f"{HARM}{encode_key(key)}: deleted with the application's {names}, which were not restored"

    def forget(self, by: Any) -> None:
        """Forget what a process took that died before it could restore it."""
        self._deleted = {key: held for key, held in self._deleted.items() if held[0] is not by}

    def _check_change(self, key: ItemKey, before: Image, after: Image) -> Iterator[str]:
        shadow = self._shadows.setdefault(key, _Shadow())
        names = [name for name in before.keys() | after.keys() if before.get(name) != after.get(name)]
        names = [name for name in names if not name.startswith(self._prefix)]
        if names:
            owned = self._owned(key, before)
            if self._is_marked(key, before):  # without what `match` reads now, it still is the rules'
                owned = [*owned, *(self._owned(key, after) or self._ownership.of_created(key))]
            gone = [name for name in names if name not in after and not any(name in owner for owner in owned)]
            parted = [name for name in gone if self._is_parted(key, name, before, after, owned, shadow)]
            for name in sorted(names):
                yield from self._attribute(key, name, before.get(name), after.get(name), owned, shadow)
            for name in sorted(parted):
                yield f"{HARM}{encode_key(key)}: the application set what belongs to {name}, and the engine removed it"
        if shadow.wrote:
            self._forget_published(key, after, shadow)
        if key not in self._made and self._is_marked(key, after) and not self._is_marked(key, before):
            yield f"{HARM}{encode_key(key)}: the engine marked an item as created that it did not create"

    def _is_parted(
        self, key: ItemKey, name: str, before: Image, after: Image, owned: Sequence[_Owned], shadow: _Shadow
    ) -> bool:
        """Whether the application wrote another value than rules did into an attribute that belongs to one."""
        return any(
            each in after and each in shadow.wrote and before.get(each) not in self._values.get((key, each), ())
            for each in self._ownership.together(key, name)
            if not any(each in owner for owner in owned)
        )

    def _attribute(
        self,
        key: ItemKey,
        name: str,
        before: Value | None,
        after: Value | None,
        owned: Sequence[_Owned],
        shadow: _Shadow,
    ) -> Iterator[str]:
        if any(name in owner for owner in owned):
            shadow.wrote.pop(name, None)
            shadow.whole.discard(name)
            shadow.unclear -= {name, *self._ownership.together(key, name)}
            return
        known = after is not None or name not in shadow.wrote or name in self._sourced
        if known and any(owner.everything for owner in owned):
            shadow.wrote.pop(name, None)
            return
        if before is None and after is not None and after in self._taken.get((key, name), ()):
            shadow.wrote[name] = after
            return
        whole = name in shadow.whole and before not in self._unguarded.get((key, name), ())
        if after is None and not whole and before in self._values.get((key, name), ()):
            shadow.wrote.pop(name, None)  # it still has, or has again, a value that a rule published there
            return
        if name in shadow.wrote:
            what = "removed it" if after is None else f"changed it to {after}"
            yield f"{HARM}{encode_key(key)}: the application wrote {name} = {before}, and the engine {what}"
        elif after is not None and not (before is None and after in self._constants(key, name)):
            yield f"{HARM}{encode_key(key)}: no rule owns {name} on this item, and the engine set it to {after}"

    def _constants(self, key: ItemKey, name: str) -> list[Value]:
        """Return the values of an attribute by which items that rules create are recognised."""
        return [
            entity.constants[name]
            for program in self._programs
            for entity in program.entities_at(key)
            if entity.owned_by_rules and name in entity.constants
        ]

    # At the end

    def planted_marks(self) -> Iterator[str]:
        """Yield items whose mark the application added, so that rules would delete them as their own."""
        for key in sorted(self._planted):
            yield f"{HARM}{encode_key(key)}: a mark that no rule wrote was left on it"

    def leftovers(self, items: Mapping[ItemKey, Image], touched: Collection[ItemKey], last: Program) -> Iterator[str]:
        """Yield values and guards that rules set on items which are not of their entity any more.

        Items in `touched`, on which the application changed values of rules, are left out, and so are values of rules that
        `last`, the rules at the end, do not have.
        """
        for key, image in items.items():
            if key in touched:
                continue
            owned = self._owned(key, image)
            guarding = [name.removeprefix(self._prefix) for name in image if name.startswith(self._prefix)]
            # rules that are gone, or that have been held: then they wrote nothing
            former = any(rule and (rule not in last.rules or rule in self._ownership.held) for rule in guarding)
            if former or any(owner.everything for owner in owned):
                continue
            shadow = self._shadows.get(key) or _Shadow()
            guards = {guard for owner in owned for owners in owner.guards.values() for guard in owners}
            keys = self._programs[0].tables[key.table].key_attributes
            names = [
                name
                for name, value in image.items()
                if (
                    name not in guards and self.genuine(key, name, value)
                    if name.startswith(self._prefix)
                    else key not in self._stripped
                    and name not in self.stays.get(key, ())
                    and name not in shadow.wrote
                    and name not in shadow.unclear
                    and name not in keys
                    and not any(name in owner for owner in owned)
                    and name in self._ownership.attributes(last, key)
                    and value not in self._constants(key, name)
                    and name not in set_once(self._programs, key.table)
                )
            ]
            if names:
                yield f"{encode_key(key)}: {', '.join(names)} was set by a rule, and no rule owns it on this item"


def _together(program: Program, entity: Entity, name: str) -> frozenset[str]:
    """Return the attributes that rules set together with one, on items of an entity."""
    owned = program.derived_attributes(entity.name)
    names: set[str] = set()
    for parts in entity.schema.indexes.values():
        keys = {attribute for part in parts for attribute, _ in part}
        if name in keys:
            names |= keys & owned
    for rule in program.rules.values():
        if rule.into.name == entity.name and not rule.has_guard and name in rule.owned():
            names |= set(rule.owned())
    return frozenset(names) - set_once([program], entity.table)


def set_once(programs: Iterable[Program], table: str) -> frozenset[str]:
    """Return the attributes that rules set once on items of a table. They stay on items that have left their entity."""
    rules = (rule for program in programs for rule in program.rules.values() if rule.into.table == table)
    return frozenset(name for rule in rules if not rule.removes for name in rule.owned())
