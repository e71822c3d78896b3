"""Entities from shapes of keys: names, key templates, `match` for overlapping ones, attributes.

A part of a key is a constant if the rest of the item depends on it: its kind, its attributes, its other key parts. If the
rest is alike for all values of the part (ids of users, names of tenants), the part is a variable.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from projections.init.data_model import distinguish_entities
from projections.init.inferred_indexes import index_keys
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
    group_by,
    is_marker,
    is_shouting,
    is_usable,
    jaccard,
    kinds_of,
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
_MOST_CONSTANTS = 40
"""A part with more different values is a variable."""
_ALIKE_AROUND = 0.5
_ALIKE_ATTRIBUTES = 0.6
_ECHOED = 0.95
_HOMOGENEOUS = 0.3
_MOST_ATTRIBUTES = 40


# Shapes


@dataclass
class Shape:
    """Rows whose keys have the same structure. `constants` has the text of each constant part, `names` will have the name of
    each other part, and `entity` that of the entity.
    """

    constants: dict[Position, str]
    rows: list[Row]
    names: dict[Position, str] = field(default_factory=dict)
    entity: str = ""

    def positions(self, attribute: int) -> list[Position]:
        """Return the parts of a key attribute."""
        return [position for position in self.rows[0].parts if position[0] == attribute]

    def texts(self, position: Position) -> list[str]:
        """Return a part of the keys of all rows."""
        return [row.parts[position] for row in self.rows]

    @property
    def variables(self) -> list[Position]:
        return [position for position in self.rows[0].parts if position not in self.constants]

    @property
    def kinds(self) -> Counter[str]:
        return kinds_of(self.rows)


def shapes_of(rows: Sequence[Row]) -> list[Shape]:
    """Return the shapes of all rows, the most frequent first. Rows whose keys have other numbers of parts, or other empty
    parts, never have the same shape.
    """
    shapes: list[Shape] = []
    for alike in group_by(rows, lambda row: tuple((at, not text) for at, text in row.parts.items())).values():
        positions = sorted(alike[0].parts, key=lambda position: (position[1], position[0]))
        shapes += _split(alike, positions, {})
    return sorted((part for shape in shapes for part in _by_kind(shape)), key=lambda shape: -len(shape.rows))


def _split(rows: list[Row], positions: Sequence[Position], constants: dict[Position, str]) -> Iterator[Shape]:
    if not positions:
        yield Shape(constants, rows)
        return
    first, *later = positions
    for constant, part in _decide(rows, first, constants):
        known = constants if constant is None else {**constants, first: constant}
        yield from _split(part, later, known)


def _decide(rows: list[Row], at: Position, constants: Mapping[Position, str]) -> Iterator[tuple[str | None, list[Row]]]:
    """Yield the rows by the constant at a position, None for the rows where it is a variable."""
    by_text = {str(text): same for text, same in group_by(rows, lambda row: row.parts[at]).items()}
    if len(by_text) == 1:
        (text,) = by_text
        yield (text if not text or _is_only_constant(text, rows, at, constants) else None), rows
        return
    if _has_echo(rows, at):
        yield None, rows
        return
    candidates = {text: same for text, same in by_text.items() if is_marker(text)}
    if len(candidates) > _MOST_CONSTANTS:
        candidates = {}
    varying = [row for text, same in by_text.items() if text not in candidates for row in same]
    for alike in _alike(candidates, at):
        for text in list(alike):
            same = candidates[text]
            alone = len(alike) == 1 or _are_names(alike, candidates, at)
            if alone and _is_constant(text, same, at, constants, varying):
                yield text, same
            else:
                varying += same
    if varying:
        yield None, varying


def _is_only_constant(text: str, rows: Sequence[Row], at: Position, constants: Mapping[Position, str]) -> bool:
    """Return whether the only text at a position is a constant, not the name of the only user in the sample."""
    if not is_marker(text):
        return False
    attribute, number = at
    last = (attribute, number + 1) not in rows[0].parts
    if number and constants.get((attribute, number - 1)):
        return is_shouting(text) and not last
    if last and number == 0:
        others = {tuple(t for p, t in row.parts.items() if p[0] != attribute) for row in rows}
        return is_shouting(text) or (len(others) > 1 and attribute > 0)
    return is_shouting(text) or len(rows) > 1


def _is_constant(
    text: str, rows: Sequence[Row], at: Position, constants: Mapping[Position, str], varying: Sequence[Row]
) -> bool:
    attribute, number = at
    after_constant = number > 0 and bool(constants.get((attribute, number - 1)))
    if not is_shouting(text) and (len(rows) < 2 or after_constant or (attribute == 0 and (0, 1) not in rows[0].parts)):
        return False
    if after_constant and len(rows) < 2:
        return False
    return not varying or not _like(rows, varying, at)


def _has_echo(rows: Sequence[Row], at: Position) -> bool:
    """Return whether an attribute equals this part, such as `status` for OPEN: then it is a value, not a kind."""
    names = {name for row in rows[:20] for name in row.attributes if row.text(name) == row.parts[at]}
    return any(sum(row.text(name) == row.parts[at] for row in rows) >= _ECHOED * len(rows) for name in names)


def _alike(candidates: Mapping[str, list[Row]], at: Position) -> list[list[str]]:
    """Return the texts in groups whose rows are alike otherwise."""
    groups: list[list[str]] = []
    for text in candidates:
        for group in groups:
            if _like(candidates[group[0]], candidates[text], at):
                group.append(text)
                break
        else:
            groups.append([text])
    return groups


def _like(rows: Sequence[Row], others: Sequence[Row], at: Position) -> bool:
    kinds, other_kinds = kinds_of(rows).keys(), kinds_of(others).keys()
    if kinds and other_kinds:
        return jaccard(kinds, other_kinds) >= _ALIKE_AROUND
    around, other_around = ({_around(row, at) for row in each} for each in (rows, others))
    attributes = jaccard(attributes_of(rows), attributes_of(others))
    return jaccard(around, other_around) >= _ALIKE_AROUND and attributes >= _ALIKE_ATTRIBUTES


def _around(row: Row, at: Position) -> str:
    """Return the form of the other parts of a row's keys."""
    parts = [text if is_shouting(text) else form_of(text) for position, text in row.parts.items() if position != at]
    return "\0".join(parts)


def _are_names(alike: Sequence[str], candidates: Mapping[str, list[Row]], at: Position) -> bool:
    """Return whether texts whose rows are alike are names of kinds all the same, such as LIKE and FOLLOW: they begin a key,
    are in capitals, and the rows of each are alike.
    """
    return (
        at[1] == 0
        and len(alike) <= 12
        and all(is_shouting(text) for text in alike)
        and at[1] + 1 in {number for _, number in next(iter(candidates.values()))[0].parts}
        and all(len({(_around(row, at), row.attributes) for row in candidates[text]}) == 1 for text in alike)
    )


def _by_kind(shape: Shape) -> Iterator[Shape]:
    """Yield a shape for each frequent kind of items in it, and one for the rest."""
    kinds = shape.kinds
    least = max(2, len(shape.rows) * 0.02)
    several = [kind for kind, count in kinds.items() if count >= least]
    if len(several) < 2:
        yield shape
        return
    for kind in several:
        yield Shape(shape.constants, [row for row in shape.rows if row.kind == kind])
    others = [row for row in shape.rows if row.kind not in several]
    if others:
        yield Shape(shape.constants, others)


# Names


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


# Entities


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
