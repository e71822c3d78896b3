"""Which other items a key range holds: those of other entities, and of the same entity under another case."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.access.paths import KeyPart, Path, access_paths, pattern_of
from projections.language.access.plan import Buckets, KeyEquals, Periods, Request, Text
from projections.language.canonical import Document
from projections.language.templates import Field, KeyPattern, Template, overlap

__all__ = ["sharing"]


def sharing(document: Document, request: Request, own: Path) -> Iterator[str]:
    """Yield the entities, other than those of the request, whose items can be in its key range.

    An entity that has native keys in an index may or may not be there: it is left out.
    """
    table = document.entities[own.entity].table
    separator = document.tables[table].separator
    for name, entity in document.entities.items():
        if entity.table != table or name in request.entities:
            continue
        variables = frozenset(n for text in entity.key.values() for n in Template.parse(text).names)
        for path in access_paths(document, name):
            if path.index == request.index and not path.native and _meet(request, path, variables, separator):
                yield name
                break


def _meet(request: Request, path: Path, variables: frozenset[str], separator: str) -> bool:
    """Return whether an item of a path can be in the key range of a request."""
    parts = {part.attribute: part for part in path.parts}
    for key in (*request.partition, *request.fixed):
        if not _may_equal(key, parts[key.attribute], variables, separator):
            return False
    sort = request.sort
    if sort is None or sort.kind != "S":
        return True
    other = pattern_of(parts[sort.attribute].template, separator, variables)
    literal = _shape(sort.prefix, separator)
    if not literal.parts:
        return True
    longer = KeyPattern(Template("", (*literal.parts, Field("…", (), True))), separator)
    return overlap(literal, other) is not None or overlap(longer, other) is not None


def _may_equal(key: KeyEquals, part: KeyPart, variables: frozenset[str], separator: str) -> bool:
    if key.kind != "S":
        return True
    return overlap(_shape(key.text, separator), pattern_of(part.template, separator, variables)) is not None


def _shape(text: Text, separator: str) -> KeyPattern:
    """Return the texts that the key of a request can have: a given value can be any text."""
    parts: list[str | Field] = []
    for number, piece in enumerate(text):
        if isinstance(piece, Buckets | Periods):
            parts.append(Field(f"{number}"))
        elif isinstance(piece, Field):
            parts.append(Field(f"{number}", (), True))
        elif parts and isinstance(parts[-1], str):
            parts[-1] += piece
        else:
            parts.append(piece)
    return KeyPattern(Template("", tuple(parts)), separator)
