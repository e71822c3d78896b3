"""Which other items a key range holds: those of other entities, and of the same entity under another case."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from projections.language.access.paths import Path, access_paths, pattern_of
from projections.language.access.plan import Buckets, Periods, Request, SortRange, Text
from projections.language.access.presence import bare_variables
from projections.language.canonical import Document, once
from projections.language.templates import Field, KeyPattern, Template, overlap

__all__ = ["Neighbour", "neighbours", "sharing"]


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Items that can be in a key range beside those that are asked for, if they have the attributes `native`."""

    name: str
    native: tuple[str, ...]


def neighbours(
    document: Document, request: Request, own: Path, bare: frozenset[str] = frozenset()
) -> Iterator[Neighbour]:
    """Yield the entities, other than those of the request, whose items can be in its key range.

    `bare` are names of which the caller's values lack the separator.
    """
    table = document.entities[own.entity].table
    separator = document.tables[table].separator
    keys = [key for key in (*request.partition, *request.fixed) if key.kind == "S"]
    shapes = [(key.attribute, _shape(key.text, separator, bare)) for key in keys]
    found: set[str] = set()
    for path, patterns in _held(document, table, request.index):
        name = path.entity
        if name in found or (name in request.entities and name != own.entity):
            continue
        if name == own.entity and (path.rule, path.case) == (own.rule, own.case):
            continue
        if any(overlap(shape, patterns[attribute]) is None for attribute, shape in shapes):
            continue
        if request.sort is None or _in_range(request.sort, patterns, separator, bare):
            found.add(name)
            native = dict.fromkeys(part.attribute for part in path.parts if part.native)
            shown = name if name != own.entity else f"other {name} items, by another case of {path.rule}"
            yield Neighbour(shown, tuple(one for one in native if one not in document.entities[name].required))


@once
def _held(document: Document, table: str, index: str | None) -> tuple[tuple[Path, Mapping[str, KeyPattern]], ...]:
    """Return the paths through an index, or the table, with the texts that each key attribute can have."""
    separator = document.tables[table].separator
    paths = [
        path
        for name, entity in document.entities.items()
        if entity.table == table
        for path in access_paths(document, name)
        if path.index == index
    ]
    return tuple(
        (path, {part.attribute: pattern_of(part.template, separator, variables) for part in path.parts})
        for path in paths
        for variables in (bare_variables(document, path.entity),)
    )


def sharing(document: Document, request: Request, own: Path) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the neighbours that are certainly there, and for the others the assumption that they are not.

    A variable of a key lacks the separator: no item has a value with it, so it is assumed that the caller gives none.
    """
    bare = bare_variables(document, own.entity)
    found = list(neighbours(document, request, own, bare))
    absent: dict[tuple[str, ...], list[str]] = {}
    for one in found:
        if one.native:
            absent.setdefault(one.native, []).append(one.name)
    assumed = [f"{', '.join(names)} items lack {' or '.join(native)}" for native, names in absent.items()]
    if found != list(neighbours(document, request, own)):
        separator = document.tables[document.entities[own.entity].table].separator
        assumed += [f"{name} has no {separator}" for name in _given(request) if name in bare]
    return tuple(one.name for one in found if not one.native), tuple(assumed)


def _given(request: Request) -> Iterator[str]:
    """Yield the names of the caller's values in a request."""
    sort = () if request.sort is None else request.sort.prefix
    for text in (*(key.text for key in (*request.partition, *request.fixed)), sort):
        yield from (piece.name for piece in text if isinstance(piece, Field) and piece.plain)


def _in_range(sort: SortRange, patterns: Mapping[str, KeyPattern], separator: str, bare: frozenset[str]) -> bool:
    """Return whether a sort key with these texts can be in a range."""
    if sort.kind != "S":
        return True
    other = patterns[sort.attribute]
    if sort.until is not None:
        return _between(sort, other, separator, bare)
    literal = _shape(sort.prefix, separator, bare)
    if not literal.parts:
        return True
    longer = KeyPattern(Template("", (*literal.parts, Field("…", (), True))), separator)
    return overlap(literal, other) is not None or overlap(longer, other) is not None


def _between(sort: SortRange, other: KeyPattern, separator: str, bare: frozenset[str]) -> bool:
    """Return whether a text of a pattern can be in a range of keys with a common beginning."""
    assert sort.until is not None
    common = tuple(a for a, b in zip(sort.prefix, sort.until, strict=False) if a == b)
    shape = _shape(common, separator, bare)
    longer = KeyPattern(Template("", (*shape.parts, Field("…", (), True))), separator)
    if common and overlap(longer, other) is None and overlap(shape, other) is None:
        return False
    if common:
        return True
    (least,), (most,), own = sort.prefix, sort.until, other.literal_prefix
    assert isinstance(least, str)
    assert isinstance(most, str)
    below = own < least and not least.startswith(own)
    return not (below or (own > most and not (sort.rest and own.startswith(most)) and not most.startswith(own)))


def _shape(text: Text, separator: str, bare: frozenset[str]) -> KeyPattern:
    """Return the texts that the key of a request can have: a given value can be any text, unless it is in `bare`."""
    parts: list[str | Field] = []
    for number, piece in enumerate(text):
        if isinstance(piece, Buckets | Periods):
            parts.append(Field(f"{number}"))
        elif isinstance(piece, Field):
            parts.append(Field(f"{number}", (), not piece.plain or piece.name not in bare))
        elif parts and isinstance(parts[-1], str):
            parts[-1] += piece
        else:
            parts.append(piece)
    return KeyPattern(Template("", tuple(parts)), separator)
