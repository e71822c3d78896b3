"""Items as an application under simulation writes them, and what it remembers of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from projections.engine.guards import at_of, digits_of, parts_of_text
from projections.engine.ledger_items import group_at
from projections.engine.store import Image, ItemKey, Value
from projections.errors import BadInput
from projections.language.entity import Entity, resolver
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.language.rules import Rule
from projections.language.syntax import joined, root, steps
from projections.stores.memory import MemoryStore
from projections.testing.pools import FOREIGN, WRONG, Kind, Pools

_KEYS = 5
"""The most items of one entity in a history: few enough that they are written again and again."""


@dataclass(eq=False)
class ItemWriter:
    """Random items and values for the tables of a program, decided by `rng` alone.

    `rules` are all rules that ever write to the tables. `items` is what the tables hold now, `made` has the keys under which
    rules ever created items, by entity; the caller keeps both up to date.
    """

    program: Program
    rules: Sequence[Rule]
    pools: Pools
    store: MemoryStore
    rng: Random
    items: Mapping[ItemKey, Image]
    made: Mapping[str, Mapping[ItemKey, None]]
    clones: list[tuple[ItemKey, Image]] = field(default_factory=list, init=False)
    """Clones that will be put again."""
    held: list[tuple[ItemKey, Image]] = field(default_factory=list, init=False)
    """Items that were read and may be put back."""
    forging: bool = field(default=False, init=False)
    """Whether there may be guards that the engine did not write."""
    touched: dict[ItemKey, None] = field(default_factory=dict, init=False)
    """Items on which the application wrote to attributes that rules own."""
    own: dict[ItemKey, None] = field(default_factory=dict, init=False)
    """Items of the application that it wrote with attributes that rules own."""
    tampering: bool = field(default=False, init=False)
    """Whether it has written any guard, even one that it had read."""

    def __post_init__(self) -> None:
        self._bad = self.rng.random() < 0.4
        self._width = self.rng.choice((1, 1, 2, 3))
        self._nulls = Random(f"nulls {self.rng.getstate()[1][:9]}")  # so that the other draws are as without them
        self._null_rate = self._nulls.choice((0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.2))
        self.kinds = {name: self._narrow(kind) for name, kind in self.pools.kinds.items()}
        """What the application writes, by entity."""
        self.kind_list = list(self.kinds.values())
        self.created_keys = [
            (kind.entity, key) for kind in map(self._narrow, self.pools.created.values()) for key, _ in kind.keys
        ]
        """Keys of items that rules create, or may create."""
        self.target_keys = [
            *self.created_keys,
            *((self.kinds[name].entity, key) for name in self.pools.targets for key, _ in self.kinds[name].keys),
        ]
        """Keys that rules write to."""
        self._remarks = 0

    def targets(self) -> list[tuple[Kind, ItemKey, Mapping[str, str]]]:
        """Return items of the application that rules write to."""
        return [(self.kinds[n], key, known) for n in self.pools.targets for key, known in self.kinds[n].keys[:3]]

    # Choices

    def pick(self, choices: list[Any]) -> Any:
        """Return one of some choices."""
        return choices[int(self.rng.random() * len(choices))]

    def existing(self, fits: Callable[[Entity], bool]) -> tuple[ItemKey, Entity] | None:
        """Return an item of an entity that fits, None after a few attempts."""
        keys = list(self.items)
        for _ in range(min(5, len(keys))):
            key = self.pick(keys)
            item = self.program.recognise(key, self.items[key])
            if item is not None and fits(item.entity):
                return key, item.entity
        return None

    def remove(self, fits: Callable[[Entity], bool], *, by_ttl: bool = False) -> bool:
        """Remove an item of an entity that fits; return whether there was one."""
        if (chosen := self.existing(fits)) is not None:
            self.store.remove(chosen[0], by_ttl)
        return chosen is not None

    def any_guard(self) -> tuple[ItemKey, Entity, str] | None:
        """Return an item with guards, and one of them."""
        if (chosen := self.existing(self.derives)) is None:
            return None
        key, entity = chosen
        guards = [name for name in self.items[key] if name.startswith(self.program.guard_prefix)]
        return (key, entity, self.pick(guards)) if guards else None

    def is_of(self, key: ItemKey, image: Image, entity: Entity) -> bool:
        item = self.program.recognise(key, image)
        return item is not None and item.entity is entity

    def derives(self, entity: Entity) -> bool:
        """Return whether rules write on items of an entity."""
        return entity.owned_by_rules or bool(self.program.derived_attributes(entity.name))

    def derived_names(self, entity: Entity, image: Image) -> list[str]:
        """Return the attributes that rules write on an item, without guards and keys."""
        names = [name for rule in self.rules_into(entity) for name in _owned_names(rule, image)]
        keep = {*entity.schema.key_attributes, *entity.constants}
        return [name for name in dict.fromkeys(names) if name not in keep]

    def rules_into(self, entity: Entity) -> list[Rule]:
        """Return the rules that write on items of an entity."""
        return [rule for rule in self.rules if rule.into.name == entity.name]

    def new(self, kind: Kind, key: ItemKey, variables: Mapping[str, str]) -> dict[str, Any]:
        """Return a new item, with key variables as in its key."""
        image: dict[str, Any] = {}
        entity = kind.entity
        for _ in range(4):
            image = dict(entity.schema.wire(key))
            for path in kind.attributes:
                top = root(path)
                value = self.value(kind, path)
                if value is not None:
                    image[top] = place(image.get(top), path, value)
            for name in kind.variables:
                dice = self.rng.random()
                if dice < 0.2:
                    image[name] = entity.variable(name, variables[name])
                elif dice < 0.22 and self._bad:
                    image[name] = {"S": "not what the key says"}
            if self.rng.random() < 0.97:
                image.update(entity.constants)
            if entity.schema.ttl and entity.expires:
                image.setdefault(entity.schema.ttl, {"N": "1735690000"})
            image = self.keep_index_keys(key, image)
            recognised = self.program.recognise(key, image)
            if recognised is not None and recognised.entity is entity:
                break
        if self.rng.random() < 0.3:
            image[FOREIGN] = self._null_or(self.remark()) if self._null_rate else self.remark()
        return image

    def value(self, kind: Kind, path: str) -> Value | None:
        """Return a value for a path, None if the attribute should be absent. Some applications write NULL instead."""
        value = self._value(kind, path)
        if not self._null_rate:
            return value
        if self._nulls.random() < (self._null_rate if value is not None else 0.7):
            return {"NULL": True}
        return self._with_nulls(value) if value is not None else None

    def _with_nulls(self, value: Value) -> Value:
        """Return the value with NULL for some elements of lists and attributes of maps, and between elements."""
        ((kind, content),) = value.items()
        if kind == "M":
            return {"M": {name: self._null_or(self._with_nulls(inner)) for name, inner in content.items()}}
        if kind != "L":
            return value
        elements = [self._null_or(self._with_nulls(inner)) for inner in content]
        if self._nulls.random() < self._null_rate:
            elements.insert(self._nulls.randint(0, len(elements)), {"NULL": True})
        return {"L": elements}

    def _null_or(self, value: Value) -> Value:
        return {"NULL": True} if self._nulls.random() < self._null_rate else value

    def _value(self, kind: Kind, path: str) -> Value | None:
        dice = self.rng.random()
        if dice < 0.12:
            return None
        if dice < 0.14 and self._bad:
            return WRONG[int(self.rng.random() * 8) % len(WRONG)]
        pool = kind.attributes[path]
        value: Value = self.pick(pool) if pool else {"S": "a"}
        return value

    def remark(self) -> Value:
        """Return another value of the attribute that no rule reads."""
        self._remarks += 1
        return {"N": str(self._remarks)}

    def of_kind(self, entity: Entity, key: ItemKey, image: Image, *, fits: bool) -> dict[str, Value] | None:
        """Return an item with values for `match` with which it belongs to the entity, or does not; None if that fails."""
        matches = self.pools.matches.get(entity.name, [])
        for attempt in range(12):
            changed = dict(image)
            if fits and attempt < 2:
                changed.update(entity.constants)
            else:
                for path, values in matches if fits else [self.pick(matches)] if matches else ():
                    top = root(path)
                    dice = self.rng.random()
                    if dice < 0.2:
                        changed.pop(top, None)
                    elif dice < 0.3:
                        changed[top] = self.pick(_ODD)
                    else:
                        changed[top] = place(changed.get(top), path, self.pick(values))
            keys = {name: image[name] for name in entity.schema.key_attributes if name in image}
            if self.is_of(key, {**changed, **keys}, entity) is fits:
                return {**changed, **keys}
        return None

    def own_values(self, entity: Entity, key: ItemKey, rate: float) -> dict[str, Value]:
        """Return the application's values for attributes that rules own on items of the entity; often none."""
        if self.rng.random() >= rate:
            return {}
        read = {name for name, _ in self.pools.matches.get(entity.name, ())}
        names = [name for name in self.derived_names(entity, {}) if name not in read]
        if not names:
            return {}
        self.own[key] = None
        own = {self.pick(names): self.pick([{"S": "mine"}, {"N": "77"}, {"N": "0"}])}
        return {name: self._null_or(value) for name, value in own.items()} if self._null_rate else own

    def forge(self, guard: Value) -> Value:
        """Return a guard with other fields, as of another item or of an earlier or later version."""
        self.forging = True
        if (parts := parts_of_text(guard)) is not None:
            promotion, _, version = parts.guard.at.partition(".")
            at = group_at(int(promotion), max(0, int(version) + self.pick([-1, 1, 5, 1000])))
            n = self.pick([0, 1, 7]) if self.rng.random() < 0.3 else parts.guard.n or 0
            return {"S": f"{parts.digest}{digits_of(at, n)}{parts.signature}"}
        fields: dict[str, Any] = dict(guard.get("M", {}))
        at = fields.get("at", {}).get("S", "")
        end = max(at.rfind("/"), at.rfind(".")) + 1  # versions are text: their last digits keep their number
        number = at[end:]
        if number.isdecimal():
            # of a copy never the number of a later change: the engine would consider that change as applied
            step = self.pick([-1, -1000, 7000, 7001] if "by" in fields else [-1, 1, 5, 1000])
            fields["at"] = {"S": at[:end] + str(max(0, int(number) + step)).zfill(len(number))}
        if "by" in fields and self.rng.random() < 0.3:
            fields["by"] = {"S": self.pick([encode_key(key) for kind in self.kind_list for key, _ in kind.keys])}
        if "n" in fields and self.rng.random() < 0.3:
            fields["n"] = {"N": str(self.pick([0, 1, 7]))}
        return {"M": fields}

    def put_whole(self, key: ItemKey, image: Image) -> bool:
        """Put an item with guards in it, unless its record would look like a publish."""
        self.tampering = True
        self.touched[key] = None
        before = self.items.get(key)
        item = self.program.recognise(key, image)
        if before is not None and item is not None:
            changed = {name for name in before.keys() | image.keys() if before.get(name) != image.get(name)}
            for rule in self.rules_into(item.entity):
                guard = self.program.guard(rule.name)
                own_names = _owned_names(rule, before, image)
                forward = guard in image and at_of(before.get(guard)) < at_of(image[guard])
                if forward and (guard in before or self.forging) and changed <= {guard, *own_names}:
                    return False
        self.store.put(key.table, self.keep_index_keys(key, image))
        return True

    def keep_index_keys(self, key: ItemKey, image: Image) -> dict[str, Value]:
        """Return the item with the index keys that the rule file requires of the application (`index_key`)."""
        item = self.program.recognise(key, image)
        kind = self.kinds.get(item.entity.name) if item is not None else None
        if item is None or kind is None or not kind.index_key:
            return dict(image)
        kept = {name: value for name, value in image.items() if name not in kind.index_key}
        try:
            texts = {name: render(resolver(item)) for name, (_, render) in kind.index_key.items()}
        except BadInput:
            return kept
        if all(texts.values()):
            kept.update({name: {kind.index_key[name][0]: text} for name, text in texts.items()})
        return kept

    def _narrow(self, kind: Kind) -> Kind:
        """Return a part of the keys and values: some histories work on one target, others on many."""
        seen: dict[str, dict[str, None]] = {}
        keys = []
        for key, variables in kind.keys:
            near = True
            for name, text in variables.items():
                if name in self.pools.meeting:
                    known = seen.setdefault(name, {})
                    known.setdefault(text)
                    near = near and list(known).index(text) < self._width
            if near:
                keys.append((key, variables))
        self.rng.shuffle(keys)
        narrowed = Kind(kind.entity, keys[:_KEYS])
        narrowed.variables = kind.variables
        narrowed.index_key = kind.index_key
        for path, pool in kind.attributes.items():
            narrowed.attributes[path] = pool[: self._width] if path in self.pools.meeting else pool
        return narrowed


def place(before: Value | None, path: str, value: Value) -> Value:
    """Return the top-level attribute of a path in which the path has this value."""
    below = steps(path)[1:]
    if not below:
        return value
    held = dict(before["M"]) if before is not None and "M" in before else {}
    held[below[0]] = place(held.get(below[0]), joined(below), value)
    return {"M": held}


_ODD: list[Value] = [{"L": [{"S": "x"}]}, {"SS": ["x", "y"]}, {"NULL": True}, {"N": "7"}, {"M": {"x": {"S": "y"}}}]
"""Values of types that are unusual for attributes which `match` reads."""


def _owned_names(rule: Rule, *images: Image) -> list[str]:
    """Return the attributes that a rule writes on its targets, without its guard."""
    names = rule.owned(*images)
    return sorted(names) if isinstance(names, frozenset) else list(names)
