"""The application under simulation: it writes what applications write, and does to derived values what they should not.

It puts items of other kinds under keys that rules write to, changes the kind of items, uses keys of items that rules
create, and writes guards that it cloned, forged or made up. All of it is put right by the stream alone, except what nothing
in a record tells from a write of ours:

- A guard with a later version, put on an item together with other values of ours and nothing else, looks like a publish.
  So who forges or clones guards here also changes an attribute of its own, as applications that do so do; and where all
  attributes are ours (a copy of all), a guard never goes forward by the application.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from projections.engine.guards import at_of
from projections.engine.store import Image, ItemKey, Update, Value
from projections.errors import BadInput, InvalidRequest
from projections.language.entity import Entity, resolver
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.language.rules import Rule
from projections.stores.memory import MemoryStore
from projections.testing.simulation.pools import FOREIGN, Kind, Pools

__all__ = ["OPERATIONS", "Application"]

OPERATIONS: dict[str, int] = {
    "put": 10,
    "update": 10,
    "annotate": 2,
    "delete": 5,
    "expire": 4,
    "read": 5,
    "put_back": 6,
    "meddle": 3,
    "strip": 2,
    "forge": 2,
    "clone": 3,
    "destroy": 2,
    "overwrite": 2,
    "insert": 1,
    "unname": 1,
    "occupy": 4,
    "vacate": 2,
    "turn": 6,
    "inhabit": 4,
    "malform": 4,
    "again": 4,
}
"""What the application does, with how often; each history leaves some out and prefers others."""

_HELD = 6
_KEYS = 5
"""Items of one entity in a history at most: few enough that they are written again and again."""


class Application:
    """Random writes to the tables of a program, decided by `rng` alone.

    `rules` are all that ever write to them. `items` is what the tables hold now, kept by whoever listens to their streams;
    `made` are the keys that rules ever made items under, by entity.
    """

    def __init__(
        self,
        program: Program,
        rules: Sequence[Rule],
        pools: Pools,
        store: MemoryStore,
        rng: Random,
        items: Mapping[ItemKey, Image],
        made: Mapping[str, Mapping[ItemKey, None]],
        without: frozenset[str] = frozenset(),
    ) -> None:
        self._program = program
        self._rules = rules
        self._store = store
        self._bad = rng.random() < 0.4
        self._width = rng.choice((1, 1, 2, 3))
        self._rng = rng
        self._items = items
        self._made = made
        self._kind_of = {name: self._narrowed(kind, pools, rng) for name, kind in pools.kinds.items()}
        self._kinds = list(self._kind_of.values())
        self._places = [
            (kind.entity, key)
            for kind in (self._narrowed(kind, pools, rng) for kind in pools.created.values())
            for key, _ in kind.keys
        ]
        """Keys of items that rules create, or may create."""
        self._targets = [
            *self._places,
            *((self._kind_of[n].entity, k) for n in pools.targets for k, _ in self._kind_of[n].keys),
        ]
        """Keys that rules write to."""
        self._clones: list[tuple[ItemKey, Image]] = []
        """Clones that are to be put again."""
        self._first: list[tuple[Kind, ItemKey, Mapping[str, str]]] = []
        """What is written before all else: targets, in most histories."""
        if rng.random() < 0.7:
            targets = [self._kind_of[name] for name in pools.targets]
            self._first = [(kind, key, variables) for kind in targets for key, variables in kind.keys[:3]]
        self._pools = pools
        self._held: list[tuple[ItemKey, Image]] = []
        self._writes = 0
        self._forging = False
        """Whether there may be guards that no write of ours made."""
        self.touched: dict[ItemKey, None] = {}
        """Items on which it has written what is the rules' to write."""
        self.own: dict[ItemKey, None] = {}
        """Items on which it has written attributes that rules own, of items that are its own."""
        self.tampering = False
        """Whether it has written any guard, if only one that it had read."""
        operations: dict[str, Callable[[], bool]] = {name: getattr(self, "_" + name) for name in OPERATIONS}
        self._operations: list[Callable[[], bool]] = []
        for name, weight in OPERATIONS.items():
            times = 1 if name == "put" else rng.choice((0, 1, 1, 3))
            if name not in without:
                self._operations += [operations[name]] * (weight * times)

    def write(self) -> str:
        """One write, or one read of what is to be put back; what it was."""
        if self._first:
            kind, key, variables = self._first.pop()
            with suppress(InvalidRequest):
                self._store.put(key.table, self._new(kind, key, variables))
            return "put"
        for _ in range(8):
            operation = self._operations[int(self._rng.random() * len(self._operations))]
            try:
                if operation():
                    return operation.__name__[1:]
            except InvalidRequest:  # DynamoDB refuses it, as a key of an index in the wrong type
                continue
        return "nothing"

    def _narrowed(self, kind: Kind, pools: Pools, rng: Random) -> Kind:
        """A part of the keys and values, so that some histories work on one target and others on many."""
        seen: dict[str, dict[str, None]] = {}
        keys = []
        for key, variables in kind.keys:
            near = True
            for name, text in variables.items():
                if name in pools.meeting:
                    known = seen.setdefault(name, {})
                    known.setdefault(text)
                    near = near and list(known).index(text) < self._width
            if near:
                keys.append((key, variables))
        rng.shuffle(keys)
        narrowed = Kind(kind.entity, keys[:_KEYS])
        narrowed.variables = kind.variables
        narrowed.index_key = kind.index_key
        for path, pool in kind.attributes.items():
            narrowed.attributes[path] = pool[: self._width] if path in pools.meeting else pool
        return narrowed

    # What every application does

    def _put(self) -> bool:
        kind = self._any(self._kinds)
        key, variables = self._any(kind.keys)
        self._store.put(key.table, self._new(kind, key, variables))
        return True

    def _update(self) -> bool:
        found = self._existing(lambda entity: not entity.owned_by_rules)
        if found is None:
            return False
        key, entity = found
        kind = self._kind_of[entity.name]
        image = self._items[key]
        change: dict[str, Value] = {}
        remove: list[str] = []
        for _ in range(self._rng.choice((1, 1, 2))):
            if not kind.attributes or self._rng.random() < 0.15:
                change[FOREIGN] = self._foreign()
                continue
            path = self._any(list(kind.attributes))
            top, value = path.split(".", 1)[0], self._value(kind, path)
            if value is None or self._rng.random() < 0.15:
                remove.append(top)
            else:
                change[top] = _placed(image.get(top), path, value)
        edited = {name: value for name, value in image.items() if name not in remove} | change
        edited = self._kept(key, edited)
        change = {name: value for name, value in edited.items() if image.get(name) != value}
        self._store.write(Update(key, set=change, remove=[name for name in image if name not in edited]))
        return True

    def _annotate(self) -> bool:
        """Adds an attribute of its own to an item that rules made."""
        found = self._existing(lambda entity: entity.owned_by_rules)
        if found is not None:
            self._store.write(Update(found[0], set={FOREIGN: self._foreign()}))
        return found is not None

    def _delete(self) -> bool:
        found = self._existing(lambda entity: not entity.owned_by_rules)
        if found is not None:
            self._store.remove(found[0])
        return found is not None

    def _expire(self) -> bool:
        found = self._existing(lambda entity: entity.expires and not entity.owned_by_rules)
        if found is not None:
            self._store.remove(found[0], by_ttl=True)
        return found is not None

    def _read(self) -> bool:
        """Holds a whole item, to put it back later."""
        found = self._existing(lambda entity: True)
        if found is not None:
            self._held = [*self._held[-_HELD + 1 :], (found[0], self._items[found[0]])]
        return found is not None

    def _put_back(self) -> bool:
        """The whole item as it was read, ours included, edited or not."""
        if not self._held:
            return False
        key, image = self._held.pop(int(self._rng.random() * len(self._held)))
        edited = dict(image)
        if self._rng.random() < 0.7:
            edited[FOREIGN] = self._foreign()
            item = self._program.recognise(key, image)
            kind = self._kind_of.get(item.entity.name) if item is not None else None
            if kind is not None and kind.attributes and self._rng.random() < 0.5:
                path = self._any(list(kind.attributes))
                value = self._value(kind, path)
                if value is not None:
                    top = path.split(".", 1)[0]
                    edited[top] = _placed(edited.get(top), path, value)
        return self._put_whole(key, edited)

    # What applications should not do

    def _meddle(self) -> bool:
        """Changes values of ours, and leaves the guard as it is."""
        found = self._existing(self._derives)
        if found is None:
            return False
        key, entity = found
        image = self._items[key]
        names = self._ours(entity, image)
        if not names:
            return False
        self.touched[key] = None
        name = self._any(names)
        value = image.get(name)
        if value is not None and self._rng.random() < 0.3:
            self._store.write(Update(key, remove=(name,)))
        else:
            self._store.write(Update(key, set={name: _other(value, self._rng)}))
        return True

    def _strip(self) -> bool:
        """Takes a guard away, with or without the values it guards."""
        found = self._guarded()
        if found is None:
            return False
        key, entity, guard = found
        names = self._ours(entity, self._items[key]) if self._rng.random() < 0.3 else []
        self.touched[key] = None
        self._store.write(Update(key, remove=[guard, *(name for name in names if name in self._items[key])]))
        return True

    def _forge(self) -> bool:
        """Changes what a guard says, and an attribute of its own beside it."""
        found = self._guarded()
        if found is None:
            return False
        key, entity, guard = found
        forged = self._forged(self._items[key][guard])
        change = {guard: forged}
        if self._rng.random() < 0.5:
            change.update({name: _other(self._items[key].get(name), self._rng) for name in self._ours(entity, {})[:1]})
        return self._put_whole(key, {**self._items[key], **change, FOREIGN: self._foreign()})

    def _clone(self) -> bool:
        """Puts one item's attributes, guards included, under another key of its entity."""
        found = self._existing(lambda entity: True)
        if found is None:
            return False
        key, entity = found
        kind = self._kind_of.get(entity.name)
        places = [place for place, _ in kind.keys] if kind is not None else list(self._made.get(entity.name, ()))
        places = [place for place in places if place != key]
        if not places:
            return False
        place = self._any(places)
        image = {**self._items[key], **entity.schema.wire(place), FOREIGN: self._foreign()}
        for name in [name for name in image if name.startswith(self._program.guard_prefix)]:
            if self._rng.random() < 0.5:
                image[name] = self._forged(image[name])
        self._clones += [(place, image)] * self._any([0, 1, 2])
        return self._put_whole(place, image)

    def _again(self) -> bool:
        """Puts a clone again, whatever has become of it."""
        if not self._clones:
            return False
        place, image = self._clones.pop()
        if self._rng.random() < 0.5:
            image = {**image, FOREIGN: self._foreign()}
        return self._put_whole(place, image)

    def _malform(self) -> bool:
        """Writes a guard that does not parse, or that no write of the engine could have made."""
        found = self._existing(self._derives)
        if found is None:
            return False
        key, entity = found
        rules = [rule for rule in self._rules_into(entity) if rule.has_guard]
        if not rules:
            return False
        rule = self._any(rules)
        name = self._program.guard(rule.name)
        held = self._items[key].get(name, {}).get("M", {"at": {"S": "1"}, "d": {"S": "AAAAAAAA"}})
        self.touched[key] = None
        self.tampering = self._forging = True
        value = self._any(_malformed(held, key.table, forward=not rule.copies_all))
        self._store.write(Update(key, set={name: value, FOREIGN: self._foreign()}))
        return True

    # Kinds

    def _occupy(self) -> bool:
        """Puts an item of another kind under a key that rules write to, whatever is there."""
        if not self._targets:
            return False
        entity, key = self._any(self._targets)
        others = [self._kind_of[one.name] for one in self._program.entities_at(key) if one.name in self._kind_of]
        others = [kind for kind in others if kind.entity is not entity]
        image: Image | None = {**entity.schema.wire(key), FOREIGN: self._foreign()}
        if others and self._rng.random() < 0.7:
            kind = self._any(others)
            variables: Mapping[str, str] = next((known for one, known in kind.keys if one == key), {})
            image = self._new(kind, key, {**dict.fromkeys(kind.variables, "x"), **variables})
        elif image is not None:
            image = self._of_kind(entity, key, image, fits=False)
        if image is None or self._is(key, image, entity):
            return False
        self._store.put(key.table, {**image, **self._own_values(entity, key, 0.4)})
        return True

    def _vacate(self) -> bool:
        """Deletes an item of none of the entities."""
        keys = [key for key, image in self._items.items() if self._program.recognise(key, image) is None]
        if not keys:
            return False
        self._store.remove(self._any(keys))
        return True

    def _inhabit(self) -> bool:
        """Puts an item of its own, of their kind, where rules create items, before or after they do."""
        if not self._places:
            return False
        entity, key = self._any(self._places)
        image: dict[str, Value] = {**entity.schema.wire(key), **entity.constants}
        if self._rng.random() < 0.7:
            image[FOREIGN] = self._foreign()
        image.update(self._own_values(entity, key, 0.3))
        of_kind = self._of_kind(entity, key, image, fits=True)
        if of_kind is None:
            return False
        self._store.put(key.table, of_kind)
        return True

    def _turn(self) -> bool:
        """Changes the kind of an item, or changes it back, with an update or by a put."""
        keys = [key for key in self._items if any(one.match is not None for one in self._program.entities_at(key))]
        if not keys:
            return False
        key = self._any(keys)
        entity = self._any([one for one in self._program.entities_at(key) if one.match is not None])
        image = self._items[key]
        turned = self._of_kind(entity, key, image, fits=not self._is(key, image, entity))
        if turned is None:
            return False
        own = self._own_values(entity, key, 0.3)
        if own:
            self.touched[key] = None
        turned = {**turned, **own}
        if self._rng.random() < 0.5:
            gone = [name for name in image if name not in turned]
            change = {name: value for name, value in turned.items() if image.get(name) != value}
            self._store.write(Update(key, set=change, remove=gone))
            return True
        if self._rng.random() < 0.7:
            turned = {name: value for name, value in turned.items() if not name.startswith(self._program.guard_prefix)}
        self._store.put(key.table, {**turned, FOREIGN: self._foreign()})
        return True

    def come_between(self, key: ItemKey, *, turns: bool, inhabits: bool) -> str:
        """Writes to an item that the engine is about to write to; what it did."""
        image = self._items.get(key)
        if image is None:
            return "nothing"
        if inhabits and self._rng.random() < 0.4:
            made = [one for one in self._program.entities_at(key) if one.owned_by_rules]
            if made:
                own = {**made[0].schema.wire(key), **made[0].constants, FOREIGN: self._foreign()}
                self._store.put(key.table, own)
                return "inhabit"
        if turns and self._rng.random() < 0.4:
            entities = [one for one in self._program.entities_at(key) if one.match is not None]
            turned = self._of_kind(self._any(entities), key, image, fits=False) if entities else None
            if turned is not None:
                with suppress(InvalidRequest):
                    if self._rng.random() < 0.5:
                        prefix = self._program.guard_prefix
                        turned = {name: value for name, value in turned.items() if not name.startswith(prefix)}
                    self._store.put(key.table, {**turned, FOREIGN: self._foreign()})
                return "turn"
        self._store.write(Update(key, set={FOREIGN: self._foreign()}))
        return "annotate"

    def _is(self, key: ItemKey, image: Image, entity: Entity) -> bool:
        item = self._program.recognise(key, image)
        return item is not None and item.entity is entity

    def _of_kind(self, entity: Entity, key: ItemKey, image: Image, *, fits: bool) -> dict[str, Value] | None:
        """The item with other values of what `match` reads, so that it is of the entity, or is not; None if that fails."""
        matches = self._pools.matches.get(entity.name, [])
        for attempt in range(12):
            changed = dict(image)
            if fits and attempt < 2:
                changed.update(entity.constants)
            else:
                for path, values in matches if fits else [self._any(matches)] if matches else ():
                    top = path.split(".", 1)[0]
                    dice = self._rng.random()
                    if dice < 0.2:
                        changed.pop(top, None)
                    elif dice < 0.3:
                        changed[top] = self._any(_ODD)
                    else:
                        changed[top] = _placed(changed.get(top), path, self._any(values))
            keys = {name: image[name] for name in entity.schema.key_attributes if name in image}
            if self._is(key, {**changed, **keys}, entity) is fits:
                return {**changed, **keys}
        return None

    def _own_values(self, entity: Entity, key: ItemKey, rate: float) -> dict[str, Value]:
        """Values of the application for attributes that rules own on items of the entity; often none."""
        if self._rng.random() >= rate:
            return {}
        read = {name for name, _ in self._pools.matches.get(entity.name, ())}
        names = [name for name in self._ours(entity, {}) if name not in read]
        if not names:
            return {}
        self.own[key] = None
        return {self._any(names): self._any([{"S": "mine"}, {"N": "77"}, {"N": "0"}])}

    def _destroy(self) -> bool:
        """Deletes an item that rules made."""
        found = self._existing(lambda entity: entity.owned_by_rules)
        if found is not None:
            self._store.remove(found[0])
        return found is not None

    def _overwrite(self) -> bool:
        """Puts something else in the place of an item that rules made: guards gone, some values left."""
        found = self._existing(lambda entity: entity.owned_by_rules)
        if found is None:
            return False
        key, entity = found
        keep = {*entity.schema.key_attributes, *entity.constants}
        self.touched[key] = None
        image = {
            name: value
            for name, value in self._items[key].items()
            if name in keep or (not name.startswith(self._program.guard_prefix) and self._rng.random() < 0.5)
        }
        self._store.put(key.table, {**image, FOREIGN: self._foreign()})
        return True

    def _insert(self) -> bool:
        """Puts an item of its own where only rules make items."""
        names = [name for name, keys in self._made.items() if keys]
        if not names:
            return False
        entity = self._program.entities[self._any(names)]
        key = self._any(list(self._made[entity.name]))
        if key in self._items:
            return False
        self._store.put(key.table, {**entity.schema.wire(key), **entity.constants, FOREIGN: self._foreign()})
        return True

    def _unname(self) -> bool:
        """Changes an attribute by which an item is recognised."""
        found = self._existing(lambda entity: bool(entity.constants))
        if found is None:
            return False
        name = self._any(list(found[1].constants))
        if self._rng.random() < 0.5:
            self._store.write(Update(found[0], remove=(name,)))
        else:
            self._store.write(Update(found[0], set={name: {"S": "Else"}}))
        return True

    def _put_whole(self, key: ItemKey, image: Image) -> bool:
        """Puts an item with guards in it, unless the record could not be told from one of a rule's own writes."""
        self.tampering = True
        self.touched[key] = None
        before = self._items.get(key)
        item = self._program.recognise(key, image)
        if before is not None and item is not None:
            changed = {name for name in before.keys() | image.keys() if before.get(name) != image.get(name)}
            for rule in self._rules_into(item.entity):
                guard = self._program.guard(rule.name)
                ours = _owned(rule, before, image)
                forward = guard in image and at_of(before.get(guard)) < at_of(image[guard])
                if forward and (guard in before or self._forging) and changed <= {guard, *ours}:
                    return False
        self._store.put(key.table, self._kept(key, image))
        return True

    def _kept(self, key: ItemKey, image: Image) -> dict[str, Value]:
        """The item with the index keys that the application has promised to keep on it."""
        kept = dict(image)
        item = self._program.recognise(key, image)
        kind = self._kind_of.get(item.entity.name) if item is not None else None
        if item is None or kind is None or not kind.index_key:
            return kept
        for name in kind.index_key:
            kept.pop(name, None)
        try:
            texts = {name: render(resolver(item)) for name, (_, render) in kind.index_key.items()}
        except BadInput:
            return kept
        if all(texts.values()):
            kept.update({name: {kind.index_key[name][0]: text} for name, text in texts.items()})
        return kept

    # Choices

    def _any(self, choices: list[Any]) -> Any:
        return choices[int(self._rng.random() * len(choices))]

    def _existing(self, fits: Callable[[Entity], bool]) -> tuple[ItemKey, Entity] | None:
        keys = list(self._items)
        for _ in range(min(5, len(keys))):
            key = self._any(keys)
            item = self._program.recognise(key, self._items[key])
            if item is not None and fits(item.entity):
                return key, item.entity
        return None

    def _guarded(self) -> tuple[ItemKey, Entity, str] | None:
        found = self._existing(self._derives)
        if found is None:
            return None
        key, entity = found
        guards = [name for name in self._items[key] if name.startswith(self._program.guard_prefix)]
        return (key, entity, self._any(guards)) if guards else None

    def _derives(self, entity: Entity) -> bool:
        return entity.owned_by_rules or bool(self._program.derived_attributes(entity.name))

    def _ours(self, entity: Entity, image: Image) -> list[str]:
        """The attributes that rules write on an item, without guards and keys."""
        names = [name for rule in self._rules_into(entity) for name in _owned(rule, image)]
        keep = {*entity.schema.key_attributes, *entity.constants}
        return [name for name in dict.fromkeys(names) if name not in keep]

    def _rules_into(self, entity: Entity) -> list[Rule]:
        """The rules that write on items of an entity."""
        return [rule for rule in self._rules if rule.into.name == entity.name]

    def _new(self, kind: Kind, key: ItemKey, variables: Mapping[str, str]) -> dict[str, Any]:
        image: dict[str, Any] = {}
        entity = kind.entity
        for _ in range(4):
            image = dict(entity.schema.wire(key))
            for path in kind.attributes:
                top = path.split(".", 1)[0]
                value = self._value(kind, path)
                if value is not None:
                    image[top] = _placed(image.get(top), path, value)
            for name in kind.variables:
                dice = self._rng.random()
                if dice < 0.2:
                    image[name] = {"N" if name in entity.numeric else "S": variables[name]}
                elif dice < 0.22 and self._bad:
                    image[name] = {"S": "not what the key says"}
            if self._rng.random() < 0.97:
                image.update(entity.constants)
            if entity.schema.ttl and entity.expires:
                image.setdefault(entity.schema.ttl, {"N": "1735690000"})
            image = self._kept(key, image)
            found = self._program.recognise(key, image)
            if found is not None and found.entity is entity:
                break
        if self._rng.random() < 0.3:
            image[FOREIGN] = self._foreign()
        return image

    def _value(self, kind: Kind, path: str) -> Value | None:
        dice = self._rng.random()
        if dice < 0.12:
            return None
        if dice < 0.14 and self._bad:
            return self._pools.wrong(int(self._rng.random() * 8))
        pool = kind.attributes[path]
        value: Value = self._any(pool) if pool else {"S": "a"}
        return value

    def _foreign(self) -> Value:
        self._writes += 1
        return {"N": str(self._writes)}

    def _forged(self, guard: Value) -> Value:
        """A guard from elsewhere, from the past or from the future."""
        self._forging = True
        fields: dict[str, Any] = dict(guard.get("M", {}))
        at = fields.get("at", {}).get("S", "")
        place = max(at.rfind("/"), at.rfind(".")) + 1  # versions are text: the digits at the end keep their number
        number = at[place:]
        if number.isdecimal():
            # of a copy never exactly the number of a change to come: that would be taken for applied already
            step = self._any([-1, -1000, 7000, 7001] if "by" in fields else [-1, 1, 5, 1000])
            fields["at"] = {"S": at[:place] + str(max(0, int(number) + step)).zfill(len(number))}
        if "by" in fields and self._rng.random() < 0.3:
            fields["by"] = {"S": self._any([encode_key(key) for kind in self._kinds for key, _ in kind.keys])}
        if "n" in fields and self._rng.random() < 0.3:
            fields["n"] = {"N": str(self._any([0, 1, 7]))}
        return {"M": fields}


_ODD: list[Value] = [
    {"L": [{"S": "x"}]},
    {"SS": ["x", "y"]},
    {"NULL": True},
    {"N": "7"},
    {"M": {"x": {"S": "y"}}},
]
"""Values of types that an attribute which tells kinds apart hardly has."""


def _malformed(guard: Mapping[str, Value], table: str, *, forward: bool) -> list[Value]:
    """Guards that do not parse, and such as were written for nothing. `forward` is whether their versions may be later."""
    shapes: list[Value] = [{"S": "x"}, {"N": "1"}, {"L": []}, {"M": {}}, {"NULL": True}, {"BOOL": True}]
    changes: list[dict[str, Value]] = [
        {"by": {"N": "1"}},
        {"by": {"L": [{"S": "x"}]}},
        {"by": {"S": "nowhere|x|y"}},
        {"by": {"S": "%|%|"}},
        {"by": {"S": ""}},
        {"by": {"S": f"{table}|x"}},
        {"at": {"N": "5"}},
        {"at": {"L": []}},
        {"d": {"S": "AAAAAAAA"}},
        {"d": {"N": "1"}},
        {"n": {"S": "many"}},
        {"n": {"N": "-1"}},
    ]
    if forward:
        changes.append({"at": {"S": "9" * 500}})
    shapes += [{"M": {**guard, **change}} for change in changes]
    shapes += [{"M": {name: value for name, value in guard.items() if name != gone}} for gone in ("at", "d")]
    return shapes


def _placed(before: Value | None, path: str, value: Value) -> Value:
    """The value of a path's top-level attribute when the path has this value."""
    steps = path.split(".")[1:]
    if not steps:
        return value
    held = dict(before["M"]) if before is not None and "M" in before else {}
    held[steps[0]] = _placed(held.get(steps[0]), ".".join(steps), value)
    return {"M": held}


def _other(value: Value | None, rng: Random) -> Value:
    """Another value of the same type."""
    for kind, content in (value or {}).items():
        if kind == "N":
            return {"N": rng.choice(("0", "999", content + "1"))}
        if kind == "S":
            return {"S": content + "!"}
    return {"N": "999"} if value is None else {"S": "999"}


def _owned(rule: Rule, *images: Image) -> list[str]:
    """The attributes that a rule writes on its targets, without its guard."""
    names = rule.owned(*images)
    return sorted(names) if isinstance(names, frozenset) else list(names)
