"""Entities from shapes of keys: key templates, `match` for overlapping ones, attributes, keys of indexes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from projections.init.inference.names import entity_names, named_after_values, snake_case, variable_names
from projections.init.inference.proposal import Attribute, Entity, Unknown, Variable
from projections.init.inference.rows import Position, Row, attributes_of, cut, jaccard
from projections.init.inference.shapes import Shape, shapes_of
from projections.init.inference.words import TIME, form_of, is_marker, masked, words
from projections.init.table import Table
from projections.language.syntax import LanguageError
from projections.language.templates import KeyPattern, overlap

__all__ = ["Group", "Understood", "group_of", "understand"]

_INDEXED = 0.95
_HOMOGENEOUS = 0.3
_MOST_ATTRIBUTES = 40


@dataclass
class Group:
    """An entity and its rows, with `variables` for its key."""

    entity: Entity
    rows: list[Row]


@dataclass(frozen=True)
class Understood:
    groups: list[Group]
    unknown: list[Unknown]


def understand(rows: Sequence[Row], table: Table, separator: str, type_attribute: str | None) -> Understood:
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
    return Understood(*_distinguished(sound, unknown, table, separator))


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
    kinds = {variable: table.key[position[0]][1] for position, variable in names.items()}
    group = group_of(name, key, kinds, shape.rows, table, separator)
    if type_attribute is not None and kind is not None:
        group.entity = replace(group.entity, kind=(type_attribute, kind))
    return group


def group_of(
    name: str, key: Mapping[str, str], kinds: Mapping[str, str], rows: list[Row], table: Table, separator: str
) -> Group:
    """Return the entity with this key and these rows, whose variables are set. `kinds` has the types of the variables."""
    variables = tuple(
        Variable(variable, form_of(row.variables[variable] for row in rows[:200]), kind)
        for variable, kind in kinds.items()
    )
    entity = Entity(
        name,
        key,
        variables,
        tuple(_attributes(rows, table)),
        len(rows),
        expires=table.ttl is not None and any(table.ttl in row.item for row in rows),
    )
    index_key = _index_key(entity, rows, table, separator)
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
            anything = position in shape.joined or any(separator in row.parts[position] for row in shape.rows)
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
        numbers = [str(value["N"]) for value in values if "N" in value]
        yield Attribute(
            name,
            type_,
            "ttl" if name == table.ttl else form_of(texts),
            seen,
            len(rows),
            _element_type(values, type_),
            all(number.isdecimal() for number in numbers),
        )


def _element_type(values: Sequence[Mapping[str, object]], type_: str) -> str:
    if type_ == "L":
        elements = [element for value in values for element in value.get("L", ())]  # type: ignore[attr-defined]
        kinds = Counter(next(iter(element)) for element in elements)
        return kinds.most_common(1)[0][0] if kinds else "S"
    return "S"


# Keys of indexes that the application writes


def _index_key(entity: Entity, rows: Sequence[Row], table: Table, separator: str) -> dict[str, str]:
    """Return templates for index keys that (nearly) all items of an entity have and that follow from other attributes."""
    found: dict[str, str] = {}
    for partition, sort in table.indexes.values():
        templates = {name: _follows(name, kind, entity, rows, table, separator) for name, kind in partition}
        if not all(text and "{" in text for text in templates.values()):
            continue  # a partition with all items does not lead to the children of a parent
        found |= {name: text for name, text in templates.items() if text}
        for name, kind in sort:
            if text := _follows(name, kind, entity, rows, table, separator):
                found[name] = text
    return found


def _follows(name: str, kind: str, entity: Entity, rows: Sequence[Row], table: Table, separator: str) -> str | None:
    """Return the template that gives the index key of all items that have it, or None."""
    if name in table.key_names:
        return None
    with_it = [row for row in rows if kind in row.item.get(name, {})]
    if len(with_it) < _INDEXED * len(rows) or not with_it:
        return None
    if kind != "S":
        return "{" + name + "}"
    variables = [variable.name for variable in entity.variables]
    readable = [*variables, *(one.name for one in entity.attributes if one.type in ("S", "N"))]
    cuts = [cut(row.item[name]["S"], separator) for row in with_it]
    if len({between for _, between in cuts}) != 1:
        return "{" + name + "}" if len({row.item[name]["S"] for row in with_it}) > 1 else None
    text = ""
    glue = (*cuts[0][1], "")
    for number, sign in enumerate(glue):
        texts = [parts[number] for parts, _ in cuts]
        source = next((n for n in readable if all(r.text(n) == t for r, t in zip(with_it, texts, strict=True))), None)
        constant = len(set(texts)) == 1 and (is_marker(texts[0]) or not texts[0])
        if constant and (source is None or number == 0):
            text += _escaped(texts[0])
        elif source is not None:
            text += "{" + source + "}"
        elif len(glue) == 1:
            return "{" + name + "}"
        else:
            return None
        text += _escaped(sign)
    return text


# Entities with overlapping keys


def _distinguished(
    sound: Sequence[tuple[Group, Shape]], unknown: list[Unknown], table: Table, separator: str
) -> tuple[list[Group], list[Unknown]]:
    """Add a `match` to groups with overlapping keys. Without a type attribute, the smaller one becomes unknown."""
    groups = [group for group, _ in sound]
    shapes = {group.entity.name: shape for group, shape in sound}
    dropped: set[str] = set()
    for one, other in combinations(groups, 2):
        if {one.entity.name, other.entity.name} & dropped or not _overlap(one.entity, other.entity, separator):
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


def _overlap(one: Entity, other: Entity, separator: str) -> bool:
    return all(
        overlap(KeyPattern.parse(one.key[name], separator), KeyPattern.parse(other.key[name], separator)) is not None
        for name in one.key
    )
