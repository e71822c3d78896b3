"""Entities from shapes of keys: names, key templates, `match` for overlapping ones, attributes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from projections.init.data_model import distinguish_entities
from projections.init.inferred_indexes import index_keys
from projections.init.key_shapes import Shape, shapes_of
from projections.init.proposal import Attribute, Entity, Table, Unknown, overlapping
from projections.init.rows import (
    GENERIC,
    TIME,
    Group,
    Position,
    Row,
    attributes_of,
    escape_braces,
    form_of,
    is_usable,
    jaccard,
    lower_camel,
    mask,
    normal,
    pascal,
    singular,
    small_numbers,
    words,
)

_NO_NAME = frozenset({"pk", "sk", "hash", "range", "hashkey", "rangekey", "partitionkey", "sortkey", "key"})
_INDEX_KEY = re.compile(r"(?:gsi|lsi|gs|ls|index|idx|i)?\d*(?:" + "|".join(sorted(_NO_NAME)) + r")\d*")
"""Names as GSI1SK, made comparable: the attribute may show other values in each entity, and rules may write it."""

_SAME = 0.95
_PRESENT = 0.5
_SHARED = 0.6
_LEAST = 3
_TIMES = ("time", "date", "month")


def entity_names(shapes: Sequence[Shape], table: Table) -> list[str]:
    """Return a different name for each shape, beginning with the plainest keys."""
    names: dict[int, str] = {}
    order = sorted(range(len(shapes)), key=lambda number: (_plainness(shapes[number]), number))
    for number in order:
        taken = set(names.values())
        for name in _entity_names(shapes[number], table):
            if name and name not in taken:
                names[number] = name
                break
    return [names[number] for number in range(len(shapes))]


def _plainness(shape: Shape) -> int:
    return len(shape.variables) if shape.kinds or not _is_parent(shape) else 0


def _is_parent(shape: Shape) -> bool:
    """Return whether the sort key is a constant such as PROFILE: the partition is named after the item."""
    sort = [text for position, text in shape.constants.items() if position[0] == 1 and text]
    own = [position for position in shape.positions if position[0] == 1]
    return len(own) == len(sort) and all(normal(text) in GENERIC for text in sort)


def _entity_names(shape: Shape, table: Table) -> Iterator[str]:
    kinds = shape.kinds
    partition, sort = pascal(singular(_thing(shape, 0))), pascal(singular(_thing(shape, 1)))
    if kinds and kinds.most_common(1)[0][1] >= 0.8 * len(shape.rows):
        yield pascal(kinds.most_common(1)[0][0])
    name = partition if _is_parent(shape) or not sort or sort == partition else partition + sort
    if name != partition and any(position[0] == 1 for position in shape.variables):
        yield sort
    name = name or pascal(singular(table.name)) or "Item"
    yield name
    yield partition + sort
    yield from (f"{name}{number}" for number in count(2))


def _thing(shape: Shape, attribute: int) -> str:
    """Return the constant that names the subject of a key attribute: the first of the last run of constants."""
    subject, run = "", False
    for position in shape.positions:
        if position[0] != attribute:
            continue
        text = shape.constants.get(position)
        if text and not run:
            subject = text
        run = bool(text) or (text == "" and run)
    return subject


def snake_case(rows: Sequence[Row]) -> bool:
    """Return whether attributes are named like `user_id`, not like `userId`."""
    names = {name for row in rows for name in row.attributes}
    snake = sum("_" in name.strip("_") and name == name.lower() for name in names)
    camel = sum(name != name.lower() and "_" not in name for name in names)
    return snake > camel


def variable_names(shape: Shape, entity: str, table: Table, snake: bool) -> dict[Position, str]:
    """Return a name for each variable. An attribute of that name has the same value, as rules require."""
    names: dict[Position, str] = {}
    for position in shape.variables:
        texts = [row.parts[position] for row in shape.rows]
        same = next((earlier for earlier in names if _twins(shape, earlier, position)), None)
        if same is not None and len(set(texts)) >= _LEAST:  # as in USER#42 · PROFILE#42
            names[position] = names[same]
            continue
        for name in _variable_names(shape, position, entity, table, snake):
            usable = is_usable(name) and _consistent(shape.rows, name, texts)
            twin = next((earlier for earlier, known in names.items() if known == name), None)
            if usable and (twin is None or _twins(shape, twin, position)):
                names[position] = name
                break
    return names


def names_by_values(shapes: Sequence[Shape], names: Sequence[dict[Position, str]]) -> list[dict[Position, str]]:
    """Return the names, with unconfirmed ones replaced by the name of a variable with the same values: in `LIKE#{likeId}`
    the values may be ids of users.
    """
    known: dict[str, set[str]] = {}
    for shape, own in zip(shapes, names, strict=True):
        if len(own) == 1:
            ((position, name),) = own.items()
            known.setdefault(name, set()).update(row.parts[position] for row in shape.rows)
    changed_names = []
    for shape, own in zip(shapes, names, strict=True):
        changed = dict(own)
        for position, name in own.items():
            texts = [row.parts[position] for row in shape.rows]
            same_name = _same_values(set(texts), known) if len(own) > 1 and name not in known else None
            if same_name and same_name not in own.values() and not any(name in row.item for row in shape.rows):
                changed[position] = same_name if _consistent(shape.rows, same_name, texts) else name
        changed_names.append(changed)
    return changed_names


def _same_values(texts: set[str], known: Mapping[str, set[str]]) -> str | None:
    shared = {name: len(texts & values) for name, values in known.items()}
    shares = {name: count / min(len(texts), len(known[name])) for name, count in shared.items() if count >= _LEAST}
    best = max(shares, key=lambda name: shares[name], default=None)
    return best if best is not None and shares[best] >= _SHARED and not small_numbers(texts) else None


def _twins(shape: Shape, first: Position, second: Position) -> bool:
    """Return whether two variables of different key attributes are always equal, as in two keys USER#42."""
    return first[0] != second[0] and all(row.parts[first] == row.parts[second] for row in shape.rows)


def _consistent(rows: Sequence[Row], name: str, texts: Sequence[str]) -> bool:
    return all(name not in row.item or row.text(name) == text for row, text in zip(rows, texts, strict=True))


def _variable_names(shape: Shape, position: Position, entity: str, table: Table, snake: bool) -> Iterator[str]:
    attribute, _ = position
    marker = _marker(shape, position)
    texts = [row.parts[position] for row in shape.rows]
    form = form_of(texts[:200])
    key_name = table.key[attribute][0]
    last_choice = {*table.index_names, *table.key_names}
    echoes = sorted(
        (name for name in _echoes(shape.rows, texts) if not _INDEX_KEY.fullmatch(normal(name))),
        key=lambda name: (name in last_choice, normal(name) == "id", len(name), name),
    )
    whole = [at for at in shape.positions if at[0] == attribute] == [position]
    if whole and normal(key_name) not in _NO_NAME:
        yield key_name
    default = _join_words([*words(singular(marker)), "id"], snake) if marker and form not in _TIMES else ""
    if default:
        stem = normal(singular(marker))
        yield from (name for name in echoes if stem in normal(name))
        yield default
    yield from echoes
    if default:
        yield _join_words(["other", *words(default)], snake)
    elif form in _TIMES:
        yield form
    elif whole:
        yield key_name
    elif attribute == 0:
        yield from ("tenant", "tenantId")
    stem = _join_words([*words(marker or entity), "part"], snake) or "part"
    yield from (f"{stem}{number}" for number in count(1))


def _join_words(parts: Sequence[str], snake: bool) -> str:
    return "_".join(parts) if snake else lower_camel(" ".join(parts))


def _marker(shape: Shape, position: Position) -> str:
    """Return the nearest constant before a variable in the same key attribute."""
    attribute, number = position
    before: Mapping[int, str] = {p[1]: text for p, text in shape.constants.items() if p[0] == attribute and text}
    nearest = [at for at in before if at < number]
    return before[max(nearest)] if nearest else ""


def _echoes(rows: Sequence[Row], texts: Sequence[str]) -> set[str]:
    """Return the attributes that equal a variable, in nearly all items."""
    names = {
        name for row, text in list(zip(rows, texts, strict=True))[:10] for name in row.item if row.text(name) == text
    }
    echoing = set()
    for name in names:
        present = [row.text(name) == text for row, text in zip(rows, texts, strict=True) if name in row.item]
        if len(present) >= _PRESENT * len(rows) and all(present) and sum(present) >= _SAME * len(present):
            echoing.add(name)
    return echoing


_HOMOGENEOUS = 0.3
_MOST_ATTRIBUTES = 40


def understand(
    rows: Sequence[Row], table: Table, separator: str, type_attribute: str | None
) -> tuple[list[Group], list[Unknown]]:
    """Return the entities of these rows, and the rows that belong to no entity."""
    all_shapes = shapes_of(rows)
    shapes = [shape for shape in all_shapes if _is_kind(shape, alone=len(all_shapes) == 1)]
    why = "neither the keys nor the attributes identify the kind of item"
    unknown = [_unknown(shape.rows, table, why) for shape in all_shapes if shape not in shapes]
    snake = snake_case(rows)
    entities = entity_names(shapes, table)
    names = [variable_names(shape, name, table, snake) for shape, name in zip(shapes, entities, strict=True)]
    groups = []
    for shape, name, variables in zip(shapes, entities, names_by_values(shapes, names), strict=True):
        for row in shape.rows:
            row.variables = {variable: row.parts[position] for position, variable in variables.items()}
        key = {attribute: _template(shape, n, variables, separator) for n, attribute in enumerate(table.key_names)}
        group = group_of(name, key, tuple(dict.fromkeys(variables.values())), shape.rows, table, separator)
        if type_attribute is not None and shape.kinds:
            group.entity = replace(group.entity, kind=(type_attribute, shape.kinds.most_common(1)[0][0]))
        groups.append(group)
    entities_apart = distinguish_entities([group.entity for group in groups], separator)
    kept: list[Group] = []
    for group, entity in zip(groups, entities_apart, strict=True):
        group.entity = entity
        larger = next((other.entity for other in kept if _same_items(other.entity, entity, separator)), None)
        if larger is None:
            kept.append(group)
        else:
            why = f"their keys could also be keys of {larger.name}, and no attribute distinguishes them"
            unknown.append(_unknown(group.rows, table, why))
    return kept, unknown


def _is_kind(shape: Shape, alone: bool) -> bool:
    """Return whether the items of a shape are of one kind: their keys or a type attribute name it, or it is the only one
    and the attributes are alike.
    """
    if any(shape.constants.values()) or shape.kinds:
        return True
    attributes = attributes_of(shape.rows)
    likeness = sum(jaccard(row.attributes, attributes) for row in shape.rows) / len(shape.rows)
    return alone and likeness >= _HOMOGENEOUS


def _same_items(first: Entity, second: Entity, separator: str) -> bool:
    """Return whether an item may belong to both entities."""
    return (not first.match or not second.match or first.match == second.match) and overlapping(
        first, second, separator
    )


def _unknown(rows: Sequence[Row], table: Table, why: str) -> Unknown:
    example = rows[0].item
    masked_key = {name: mask(str(example[name][kind])) if kind != "B" else "(binary)" for name, kind in table.key}
    return Unknown(masked_key, len(rows), why)


def group_of(
    name: str, key: Mapping[str, str], variables: tuple[str, ...], rows: list[Row], table: Table, separator: str
) -> Group:
    """Return the entity with this key and these rows, whose variables are set."""
    # Some keys of indexes are ordinary attributes, such as a productId with an index.
    plain = {name for name in table.index_names if is_usable(name) and _is_plain(rows, name, separator)}
    for row in rows:
        row.attributes |= plain & row.item.keys()
    expires = table.ttl is not None and any(table.ttl in row.item for row in rows)
    entity = Entity(name, key, variables, tuple(_attributes(rows)), len(rows), expires=expires)
    return Group(replace(entity, index_key=index_keys(entity, rows, table, separator)), rows)


def _is_plain(rows: Sequence[Row], name: str, separator: str) -> bool:
    texts = [text for row in rows if (text := row.text(name)) is not None]
    technical = {"pk", "sk"} & {words(name)[-1]} if words(name) else True
    return bool(texts) and not technical and not any(separator in TIME.sub("", text) for text in texts)


def _template(shape: Shape, attribute: int, names: Mapping[Position, str], separator: str) -> str:
    parts = []
    for position in (position for position in shape.positions if position[0] == attribute):
        constant = shape.constants.get(position)
        if constant is None:
            anything = any(separator in row.parts[position] for row in shape.rows)
            parts.append("{" + names[position] + "*" * anything + "}")
        else:
            parts.append(escape_braces(constant))
    return separator.join(parts)


def _attributes(rows: Sequence[Row]) -> Iterator[Attribute]:
    counts = Counter(name for row in rows for name in row.attributes)
    for name, seen in sorted(counts.items(), key=lambda count: (-count[1], count[0]))[:_MOST_ATTRIBUTES]:
        types = Counter(next(iter(row.item[name])) for row in rows if name in row.item)
        yield Attribute(name, types.most_common(1)[0][0], seen, len(rows))
