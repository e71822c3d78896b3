"""The kind of an item as a condition: the `match` of an entity, compiled to the condition of a write.

A compiled condition is sound: where it holds, the item is of the entity. It need not hold for every item of the entity: a
pattern also matches a list or set if one of its elements matches, and `suffix` cannot be expressed. Where the condition
fails and the write has to be exact, the item is read, and written under the condition that the attributes that `match`
reads are as they were read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from functools import lru_cache

from projections.engine.guards import as_read
from projections.engine.store import Above, AllOf, AnyOf, Below, Condition, Equal, Exists, Image, ItemKey, Missing, Path
from projections.language.entity import Entity
from projections.language.patterns import (
    Affix,
    Alternative,
    AnythingBut,
    Compares,
    Either,
    Equals,
    Named,
    Numeric,
    Test,
)
from projections.language.patterns import Condition as PatternCondition
from projections.language.patterns import Exists as Presence
from projections.language.syntax import root, steps
from projections.language.values import Value, wire

__all__ = ["kind_as_read", "kind_condition"]

_LAST = "\U0010ffff"
"""The greatest character. A text that begins with a prefix does not sort after the prefix followed by this character, unless
it continues with this character.
"""


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
        return _all(entity.pattern.conditions, _given(entity, key))
    return _static(entity)


@lru_cache(maxsize=512)
def _static(entity: Entity) -> Condition | None:
    assert entity.pattern is not None
    return _all(entity.pattern.conditions, {})


def _given(entity: Entity, key: ItemKey) -> dict[str, tuple[Value, bool]]:
    """The values that the key gives to names in `match`, and whether an attribute of that name comes first."""
    given: dict[str, tuple[Value, bool]] = {}
    for pattern, text in zip(entity.patterns, (key.partition, key.sort), strict=False):
        for name, value in (pattern.match(text or "") or {}).items():
            given[name] = {"S": value}, True
    given.update((name, (value, False)) for name, value in entity.schema.wire(key).items())
    return given


def _all(conditions: Iterable[PatternCondition], given: Mapping[str, tuple[Value, bool]]) -> Condition | None:
    found = []
    for condition in conditions:
        one = _test(condition, given) if isinstance(condition, Test) else _either(condition, given)
        if one is None:
            return None
        if one != AllOf(()):
            found.append(one)
    return found[0] if len(found) == 1 else AllOf(tuple(found))


def _either(condition: Either, given: Mapping[str, tuple[Value, bool]]) -> Condition | None:
    """At least one of those branches that can be expressed holds."""
    branches = [one for branch in condition.branches if (one := _all(branch, given)) is not None]
    return AnyOf(tuple(branches)) if branches else None


def _test(test: Test, given: Mapping[str, tuple[Value, bool]]) -> Condition | None:
    present = [one for one in test.alternatives if one != Presence(False)]
    value, attribute_first = given.get(test.name, (None, True))
    if value is not None:
        fits = test.compile()(lambda name, stored=False: value)
        if not attribute_first:
            return AllOf(()) if fits else AnyOf(())
        attribute = _at((test.name,), [one for one in present if one != Equals(None)])  # NULL: the key has the value
        if not fits:
            return attribute
        return AnyOf((Missing((test.name,)), *(() if attribute is None else (attribute,))))
    path = steps(test.name)
    # a decimal step may be the position in a list, which a path of names never finds
    in_list = any(step.isdecimal() for step in path[1:])
    return _at(path, present if in_list else test.alternatives)


def _at(path: Path, alternatives: Iterable[Alternative]) -> Condition | None:
    found = [one for alternative in alternatives for one in _alternative(path, alternative)]
    if len(found) > 1:
        return _one_of(found)
    return found[0] if found else None


def _one_of(conditions: Iterable[Condition]) -> Condition:
    return AnyOf(tuple(conditions))


def _alternative(path: Path, alternative: Alternative) -> Iterator[Condition]:
    match alternative:
        case Presence(exists):
            yield _presence(path, exists)
        case Equals(value):
            yield Equal(path, wire(value))
        case Affix("prefix", text, False):
            yield _beginning(path, text)
        case Affix("equals-ignore-case", text, _):
            yield Equal(path, {"S": text})
        case Numeric(bounds):
            yield AllOf(tuple(_bound(path, sign, number) for sign, number in bounds))
        case Compares(bounds):  # a store compares no two attributes of an item
            constants = [(sign, value) for sign, value in bounds if not isinstance(value, Named)]
            if len(constants) == len(bounds):
                yield AllOf(tuple(_bound(path, sign, value) for sign, value in constants))
        case AnythingBut(excluded):
            yield from _anything_but(path, [one.value for one in excluded if isinstance(one, Equals)], len(excluded))


def _presence(path: Path, exists: bool) -> Condition:
    return Exists(path) if exists else Missing(path)


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
        some = [wire(value) for value in values if isinstance(value, kind)]
        if some:
            yield AllOf(tuple(AnyOf((Below(path, value), Above(path, value))) for value in some))
