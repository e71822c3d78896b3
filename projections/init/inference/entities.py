"""Entities from shapes of keys: key templates, `match` for overlapping ones, attributes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

from projections.init.inference.indexes import index_keys
from projections.init.inference.names import entity_names, named_after_values, snake_case, variable_names
from projections.init.inference.proposal import Attribute, Entity, Unknown, overlapping
from projections.init.inference.rows import Group, Position, Row, attributes_of, jaccard
from projections.init.inference.shapes import Shape, shapes_of
from projections.init.inference.words import TIME, form_of, masked, words
from projections.init.table import Table
from projections.language.syntax import LanguageError
from projections.language.templates import KeyPattern

__all__ = ["group_of", "understand"]

_HOMOGENEOUS = 0.3
_MOST_ATTRIBUTES = 40


def understand(
    rows: Sequence[Row], table: Table, separator: str, type_attribute: str | None
) -> tuple[list[Group], list[Unknown]]:
    """Return the entities of these rows, and the rows that belong to no entity."""
    unknown: list[Unknown] = []
    shapes = []
    found = shapes_of(rows, type_attribute)
    for shape in found:
        why = _not_understood(shape, alone=len(found) == 1)
        if why:
            unknown.append(_unknown(shape, table, why))
        else:
            shapes.append(shape)
    snake = snake_case(rows)
    entities = entity_names(shapes, table)
    names = [variable_names(shape, name, table, snake) for shape, name in zip(shapes, entities, strict=True)]
    groups = [
        _group(shape, name, table, separator, variables, type_attribute)
        for shape, name, variables in zip(shapes, entities, named_after_values(shapes, names), strict=True)
    ]
    sound = []
    for group, shape in zip(groups, shapes, strict=True):
        try:
            for text in group.entity.key.values():
                KeyPattern.parse(text, separator)
        except LanguageError as error:
            unknown.append(_unknown(shape, table, f"no unambiguous template fits them: {error}"))
        else:
            sound.append((group, shape))
    return _distinguished(sound, unknown, table, separator)


def _not_understood(shape: Shape, alone: bool) -> str:
    """Return why a shape is not understood as an entity, empty if it is."""
    if any(shape.constants.values()) or shape.kinds:
        return ""
    if not alone:
        return "neither the key nor an attribute identifies the kind of item"
    attributes = attributes_of(shape.rows)
    likeness = sum(jaccard(row.attributes, attributes) for row in shape.rows) / len(shape.rows)
    if attributes and likeness < _HOMOGENEOUS:
        return "neither the keys nor the attributes have anything in common"
    return ""


def _unknown(shape: Shape, table: Table, why: str) -> Unknown:
    example = shape.rows[0].item
    shown = {name: masked(str(example[name][kind])) if kind != "B" else "(binary)" for name, kind in table.key}
    return Unknown(shown, len(shape.rows), why)


def _group(
    shape: Shape, name: str, table: Table, separator: str, names: Mapping[Position, str], type_attribute: str | None
) -> Group:
    for row in shape.rows:
        row.variables = {variable: row.parts[position] for position, variable in names.items()}
    key = {attribute: _template(shape, number, names, separator) for number, (attribute, _) in enumerate(table.key)}
    kind = shape.kinds.most_common(1)[0][0] if shape.kinds else None
    group = group_of(name, key, tuple(dict.fromkeys(names.values())), shape.rows, table, separator)
    if type_attribute is not None and kind is not None:
        group.entity = replace(group.entity, kind=(type_attribute, kind))
    return group


def group_of(
    name: str, key: Mapping[str, str], variables: tuple[str, ...], rows: list[Row], table: Table, separator: str
) -> Group:
    """Return the entity with this key and these rows, whose variables are set."""
    entity = Entity(
        name,
        key,
        variables,
        tuple(_attributes(rows, table)),
        len(rows),
        expires=table.ttl is not None and any(table.ttl in row.item for row in rows),
    )
    index_key = index_keys(entity, rows, table, separator)
    # Some keys of indexes are ordinary attributes, such as a productId with an index.
    plain = {name for name in table.index_names if _is_plain(rows, name, separator)}
    for row in rows:
        row.attributes |= plain & row.item.keys()
    return Group(replace(entity, index_key=index_key, attributes=tuple(_attributes(rows, table))), rows)


def _is_plain(rows: Sequence[Row], name: str, separator: str) -> bool:
    texts = [text for row in rows if (text := row.text(name)) is not None]
    technical = {"pk", "sk"} & {words(name)[-1]} if words(name) else True
    return bool(texts) and not technical and not any(separator in TIME.sub("", text) for text in texts)


def _template(shape: Shape, attribute: int, names: Mapping[Position, str], separator: str) -> str:
    glue = (*(shape.rows[0].glue[attribute] or ()), "")
    text = ""
    for position in shape.positions:
        if position[0] != attribute:
            continue
        constant = shape.constants.get(position)
        if constant is None:
            anything = any(separator in row.parts[position] for row in shape.rows)
            text += "{" + names[position] + "*" * anything + "}"
        else:
            text += _escaped(constant)
        text += _escaped(glue[position[1]])
    return text


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _attributes(rows: Sequence[Row], table: Table) -> Iterator[Attribute]:
    counts = Counter(name for row in rows for name in row.attributes)
    for name, seen in sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:_MOST_ATTRIBUTES]:
        values = [row.item[name] for row in rows if name in row.item]
        type_ = Counter(next(iter(value)) for value in values).most_common(1)[0][0]
        texts = [value["S"] for value in values if "S" in value][:200] if type_ == "S" else []
        yield Attribute(name, type_, "ttl" if name == table.ttl else form_of(texts), seen, len(rows))


# Entities with overlapping keys


def _distinguished(
    sound: Sequence[tuple[Group, Shape]], unknown: list[Unknown], table: Table, separator: str
) -> tuple[list[Group], list[Unknown]]:
    """Add a `match` to groups with overlapping keys. Without a type attribute, the smaller one becomes unknown."""
    groups = [group for group, _ in sound]
    shapes = {group.entity.name: shape for group, shape in sound}
    dropped: set[str] = set()
    for one, other in combinations(groups, 2):
        if {one.entity.name, other.entity.name} & dropped or not overlapping(one.entity, other.entity, separator):
            continue
        if one.entity.kind and other.entity.kind and one.entity.kind != other.entity.kind:
            for group in (one, other):
                group.entity = replace(group.entity, match=group.entity.kind)
            continue
        less = min((other, one), key=lambda group: len(group.rows))
        more = one if less is other else other
        dropped.add(less.entity.name)
        why = f"their keys could also be keys of {more.entity.name}, and no attribute distinguishes them"
        unknown.append(_unknown(shapes[less.entity.name], table, why))
    return [group for group in groups if group.entity.name not in dropped], unknown
