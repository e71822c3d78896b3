"""The shapes of keys: which of their parts are constants, and which are variables.

A part is a constant if the rest of the item depends on it: its kind, its attributes, its other key parts. If the rest is
alike for all values of the part (ids of users, names of tenants), the part is a variable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from projections.init.rows import (
    Position,
    Row,
    attributes_of,
    form_of,
    group_by,
    is_marker,
    is_shouting,
    jaccard,
    kinds_of,
)

_MOST_CONSTANTS = 40
"""A part with more different values is a variable."""
_ALIKE_AROUND = 0.5
_ALIKE_ATTRIBUTES = 0.6
_ECHOED = 0.95


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
    """Return the shapes of all rows, the most frequent first."""
    shapes: list[Shape] = []
    for alike in group_by(rows, lambda row: row.signature).values():
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


# Kinds that keys do not distinguish


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
