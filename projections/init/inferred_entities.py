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

_PRESENT = 0.5
_SHARED = 0.6
_LEAST = 3
_TIMES = ("time", "date", "month")


def name_entities(shapes: Sequence[Shape], table: Table) -> None:
    """Give each shape a different name, beginning with the plainest keys."""
    taken: set[str] = set()
    for shape in sorted(shapes, key=lambda shape: 0 if not shape.kinds and _is_parent(shape) else len(shape.variables)):
        shape.entity = next(name for name in _entity_names(shape, table) if name and name not in taken)
        taken.add(shape.entity)


def _is_parent(shape: Shape) -> bool:
    """Return whether the sort key is a constant such as PROFILE: the partition is named after the item."""
    return all(normal(shape.constants.get(position, "")) in GENERIC for position in shape.positions(1))


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
    for position in shape.positions(attribute):
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


def name_variables(shape: Shape, table: Table, snake: bool) -> None:
    """Give each variable a name. An attribute of that name has the same value, as rules require."""
    names = shape.names
    for position in shape.variables:
        texts = shape.texts(position)
        twins = {earlier: shape.texts(earlier) == texts for earlier in names if earlier[0] != position[0]}
        same = next((earlier for earlier, equal in twins.items() if equal), None)
        if same is not None and len(set(texts)) >= _LEAST:  # as in USER#42 · PROFILE#42
            names[position] = names[same]
            continue
        for name in _variable_names(shape, position, table, snake):
            taken = any(known == name and not twins.get(earlier) for earlier, known in names.items())
            if not taken and is_usable(name) and _consistent(shape.rows, name, texts):
                names[position] = name
                break


def name_by_values(shapes: Sequence[Shape]) -> None:
    """Replace unconfirmed names by the name of a variable with the same values: in `LIKE#{likeId}` the values may be ids of
    users.
    """
    known: dict[str, set[str]] = {}
    for shape in shapes:
        if len(shape.names) == 1:
            ((position, name),) = shape.names.items()
            known.setdefault(name, set()).update(shape.texts(position))
    for shape in (shape for shape in shapes if len(shape.names) > 1):
        for position, name in list(shape.names.items()):
            texts = shape.texts(position)
            same = _same_values(set(texts), known)
            confirmed = name in known or any(name in row.item for row in shape.rows)
            if same and not confirmed and same not in shape.names.values() and _consistent(shape.rows, same, texts):
                shape.names[position] = same


def _same_values(texts: set[str], known: Mapping[str, set[str]]) -> str | None:
    shared = {name: len(texts & values) for name, values in known.items()}
    shares = {name: count / min(len(texts), len(known[name])) for name, count in shared.items() if count >= _LEAST}
    best = max(shares, key=lambda name: shares[name], default=None)
    return best if best is not None and shares[best] >= _SHARED and not small_numbers(texts) else None


def _consistent(rows: Sequence[Row], name: str, texts: Sequence[str]) -> bool:
    return all(name not in row.item or row.text(name) == text for row, text in zip(rows, texts, strict=True))


def _variable_names(shape: Shape, position: Position, table: Table, snake: bool) -> Iterator[str]:
    attribute, number = position
    before = [shape.constants.get((attribute, earlier)) for earlier in range(number)]
    marker = next((text for text in reversed(before) if text), "")
    texts = shape.texts(position)
    forms = {form_of(text) for text in texts}
    form = forms.pop() if len(forms) == 1 else ""
    key_name = table.key[attribute][0]
    last_choice = {*table.index_names, *table.key_names}
    echoes = sorted(
        (name for name in _echoes(shape.rows, texts) if not _INDEX_KEY.fullmatch(normal(name))),
        key=lambda name: (name in last_choice, normal(name) == "id", len(name), name),
    )
    whole = len(shape.positions(attribute)) == 1
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
    stem = _join_words([*words(marker or shape.entity), "part"], snake) or "part"
    yield from (f"{stem}{number}" for number in count(1))


def _join_words(parts: Sequence[str], snake: bool) -> str:
    return "_".join(parts) if snake else lower_camel(" ".join(parts))


def _echoes(rows: Sequence[Row], texts: Sequence[str]) -> set[str]:
    """Return the attributes that equal a variable, and that most items have."""
    names = {name for row in rows[:10] for name in row.item}
    for row, text in zip(rows, texts, strict=True):
        names -= {name for name in names & row.item.keys() if row.text(name) != text}
    return {name for name in names if sum(name in row.item for row in rows) >= _PRESENT * len(rows)}


_HOMOGENEOUS = 0.3
_MOST_ATTRIBUTES = 40


def understand(
    rows: Sequence[Row], table: Table, separator: str, type_attribute: str | None
) -> tuple[list[Group], list[Unknown]]:
    """Return the entities of these rows, and the rows that belong to no entity."""
    all_shapes = shapes_of(rows)
    shapes = []
    unknown = []
    for shape in all_shapes:
        if _is_kind(shape, alone=len(all_shapes) == 1):
            shapes.append(shape)
        else:
            unknown.append(_unknown(shape.rows, table, "neither the key nor an attribute identifies the kind of item"))
    name_entities(shapes, table)
    snake = snake_case(rows)
    for shape in shapes:
        name_variables(shape, table, snake)
    name_by_values(shapes)
    groups = []
    for shape in shapes:
        for row in shape.rows:
            row.variables = {variable: row.parts[position] for position, variable in shape.names.items()}
        key = {name: _template(shape, number, separator) for number, name in enumerate(table.key_names)}
        variables = tuple(dict.fromkeys(shape.names.values()))
        group = group_of(shape.entity, key, variables, shape.rows, table, separator)
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


def _template(shape: Shape, attribute: int, separator: str) -> str:
    parts = []
    for position in shape.positions(attribute):
        constant = shape.constants.get(position)
        anything = any(separator in text for text in shape.texts(position))
        name = "{" + shape.names.get(position, "") + "*" * anything + "}"
        parts.append(name if constant is None else escape_braces(constant))
    return separator.join(parts)


def _attributes(rows: Sequence[Row]) -> Iterator[Attribute]:
    counts = Counter(name for row in rows for name in row.attributes)
    for name, seen in sorted(counts.items(), key=lambda count: (-count[1], count[0]))[:_MOST_ATTRIBUTES]:
        types = Counter(next(iter(row.item[name])) for row in rows if name in row.item)
        yield Attribute(name, types.most_common(1)[0][0], seen)
