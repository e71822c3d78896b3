"""Mistakes in tables and entities: keys that do not match the table, items that could be of two entities."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from itertools import combinations
from typing import Any

from projections.language.document import Rules, key_variables
from projections.language.mistakes import Location, Mistake
from projections.language.models import Entity, Table
from projections.language.patterns import Pattern
from projections.language.patterns.tree import Equals, Exists, Test
from projections.language.shapes import index_attributes, is_local, key_attributes, projected, syntax
from projections.language.syntax import suggest
from projections.language.templates import KeyPattern, Template, overlap

ABSENT = Exists(False)

PROJECTED_ATTRIBUTES = 100
"""DynamoDB's limit of listed attributes of all indexes of a table; one that two indexes list counts twice."""


def key_names(table: Table) -> list[str]:
    """The attributes of a table's primary key."""
    return [name for name, _ in key_attributes(table.key)]


def attribute_types(table: Table) -> dict[str, str]:
    """The types of all attributes that are keys of the table or of its indexes."""
    types = dict(key_attributes(table.key))
    for form in table.indexes.values():
        for part in index_attributes(table.key, form):
            types.update(part)
    return types


def table_mistakes(rules: Rules) -> Iterator[Mistake]:
    """Yield attributes declared with two types, and indexes that the table cannot have."""
    for name, table in rules.all_tables.items():
        place: Location = ("table",) if rules.table is not None else ("tables", name)
        types = dict(key_attributes(table.key))
        for index, form in table.indexes.items():
            for attribute, kind in (pair for part in index_attributes(table.key, form) for pair in part):
                if types.setdefault(attribute, kind) != kind:
                    message = (
                        f"{attribute} has type {kind} here and type {types[attribute]} before: write {{{attribute}: …}}"
                    )
                    yield Mistake((*place, "indexes", index), message)
            if is_local(form):
                yield from _local(table, form, (*place, "indexes", index))
        yield from _projected(table, (*place, "indexes"))


def _local(table: Table, form: Any, place: Location) -> Iterator[Mistake]:
    """Yield mistakes of a local index, which sorts the items of the table's partitions by another attribute."""
    _, ((attribute, _),) = index_attributes(table.key, form)
    names = key_names(table)
    if len(names) == 1:
        message = "the table has no sort key, so it cannot have a local index: give it `partition` instead of `local`"
        yield Mistake((*place, "local"), message, at_key=True)
    if attribute in names:
        which = "partition key" if attribute == names[0] else "sort key"
        message = f"{attribute} is the {which} of the table: a local index sorts by another attribute"
        yield Mistake((*place, "sort"), message)


def _projected(table: Table, place: Location) -> Iterator[Mistake]:
    """Yield attributes that are projected in any case, and more of them than DynamoDB projects."""
    total = 0
    for index, form in table.indexes.items():
        listed = projected(form)
        if isinstance(listed, str):
            continue
        total += len(listed)
        keys = {*key_names(table), *(name for part in index_attributes(table.key, form) for name, _ in part)}
        for position, name in enumerate(listed):
            if name in keys:
                message = f"{name} is a key attribute, and these are always projected: remove it"
                yield Mistake((*place, index, "projection", position), message)
    if total > PROJECTED_ATTRIBUTES:
        yield Mistake(
            place,
            f"all indexes of a table together can list {PROJECTED_ATTRIBUTES} attributes in `projection`, and these list "
            f"{total}: list fewer, or use `projection: all`",
            at_key=True,
        )


def entity_mistakes(rules: Rules) -> Iterator[Mistake]:
    """Yield the mistakes of each entity, then those of pairs of entities of one table."""
    sound: dict[str, list[str]] = {}
    for name, entity in rules.entities.items():
        place = ("entities", name)
        tables = rules.all_tables
        table = rules.table_of(name)
        if table is None:
            yield Mistake(place, f"needs `table`: one of {', '.join(tables)}", at_key=True)
        elif table not in tables:
            yield Mistake((*place, "table"), f'unknown table "{table}"{suggest(table, tables)}')
        else:
            found = list(_key_mistakes(entity, tables[table], table, place))
            yield from found
            yield from _index_key_mistakes(entity, tables[table], table, place)
            if not found:
                sound.setdefault(table, []).append(name)
        if entity.id is not None and entity.id not in key_variables(entity):
            variables = key_variables(entity)
            hint = suggest(entity.id, variables) or f": its variables are {', '.join(variables)}"
            yield Mistake((*place, "id"), f'the key has no variable "{entity.id}"{hint}')
    for table, names in sound.items():
        yield from _overlaps(rules, table, names)


def _key_mistakes(entity: Entity, table: Table, name: str, place: Location) -> Iterator[Mistake]:
    expected = dict(key_attributes(table.key))
    place = (*place, "key")
    lacking = [attribute for attribute in expected if attribute not in entity.key]
    for attribute in lacking:
        yield Mistake(place, f"{attribute} is missing: the key of table {name} is {', '.join(expected)}", at_key=True)
    for attribute, text in entity.key.items():
        if attribute not in expected:
            hint = suggest(attribute, lacking) or f": its key is {', '.join(expected)}"
            yield Mistake((*place, attribute), f"is not a key attribute of table {name}{hint}", at_key=True)
            continue
        found = syntax(partial(KeyPattern.parse, text, table.separator), (*place, attribute))
        yield from found
        if not found and expected[attribute] != "S" and not Template.parse(text).single:
            yield Mistake((*place, attribute), typed(attribute, expected[attribute]))


def typed(attribute: str, kind: str, computed: bool = False) -> str:
    """Return why an attribute that is not text cannot have this template; a number may be `computed`."""
    word = "a number (N)" if kind == "N" else "binary (B)"
    one = "variable or expression" if kind == "N" and computed else "variable"
    return f"{attribute} is {word}: its template must be one {one}, nothing else"


def _index_key_mistakes(entity: Entity, table: Table, name: str, place: Location) -> Iterator[Mistake]:
    types = attribute_types(table)
    for attribute, text in entity.index_key.items():
        if attribute not in types or attribute in key_names(table):
            hint = suggest(attribute, sorted(types.keys() - set(key_names(table))))
            yield Mistake(
                (*place, "index_key", attribute),
                f"is not a key attribute of an index of table {name}{hint}",
                at_key=True,
            )
        elif types[attribute] != "S" and not Template.parse(text).single:
            yield Mistake((*place, "index_key", attribute), typed(attribute, types[attribute]))


def shared_key(rules: Rules, name: str, first: str, second: str) -> str:
    """Return a key that items of two entities of a table could have, in words; empty if they cannot."""
    table = rules.all_tables[name]
    witness = {}
    for attribute in key_names(table):
        patterns = (KeyPattern.parse(rules.entities[one].key[attribute], table.separator) for one in (first, second))
        text = overlap(*patterns)
        if text is None:
            return ""
        witness[attribute] = text
    return ", ".join(f'{attribute} "{text}"' for attribute, text in witness.items())


def _overlaps(rules: Rules, table: str, names: list[str]) -> Iterator[Mistake]:
    """Yield entities whose items could be those of others: one mistake for an entity with several others."""
    beside: dict[str, dict[str, str]] = {name: {} for name in names}
    for first, second in _neighbours(rules, table, names):
        if key := _overlap(rules, table, first, second):
            beside[first][second] = beside[second][first] = key
    while any(beside.values()):
        name = max(reversed(names), key=lambda one: len(beside[one]))
        shared, beside[name] = beside[name], {}
        for other in shared:
            del beside[other][name]
        nearest, *also = others = list(shared)
        first, second = sorted((name, nearest), key=names.index)
        message = f"an item with {shared[nearest]} could be {first} or {second}"
        message += f" ({name} also shares keys with {' and '.join(also)})" if also else ""
        message += ": use different keys, or give both a `match` on one attribute with different values"
        yield Mistake(("entities", name), message, at_key=True, others=tuple(("entities", one) for one in others))


def _neighbours(rules: Rules, table: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of entities whose keys have literal prefixes that agree. Few pairs of many entities do."""
    found = rules.all_tables[table]
    prefixes = {
        name: [
            KeyPattern.parse(rules.entities[name].key[one], found.separator).literal_prefix for one in key_names(found)
        ]
        for name in names
    }
    for first, second in combinations(names, 2):
        if all(a.startswith(b) or b.startswith(a) for a, b in zip(prefixes[first], prefixes[second], strict=True)):
            yield first, second


def _overlap(rules: Rules, name: str, first: str, second: str) -> str:
    """Return a key under which an item could be of both entities, in words; empty if there is none."""
    one, two = rules.entities[first], rules.entities[second]
    key = shared_key(rules, name, first, second)
    mine, other = listed_values(one.match), listed_values(two.match)
    if key and any(not mine[attribute] & other[attribute] for attribute in mine.keys() & other.keys()):
        return ""
    return key


def listed_values(pattern: Mapping[str, Any] | None) -> dict[str, set[tuple[type, Any]]]:
    """Return the names that a pattern limits to certain values, as (type, value); `ABSENT` for no value."""
    found: dict[str, set[tuple[type, Any]]] = {}
    for condition in Pattern.parse(pattern or {}).conditions:
        if isinstance(condition, Test) and all(
            isinstance(one, Equals) or one == ABSENT for one in condition.alternatives
        ):
            values: list[Any] = [one.value if isinstance(one, Equals) else ABSENT for one in condition.alternatives]
            found[condition.name] = {(type(value), value) for value in values}
    return found
