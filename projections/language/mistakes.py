"""A mistake in a rule file, with its path in the document; its line is found later."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from projections.language.syntax import suggest

Location = tuple[str | int, ...]
"""A path in the document: names of mapping entries and positions in lists, from the top."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake at a place of the document.

    `offset` counts characters in the text at that place; `at_key` refers to the name of the entry instead of its value.
    `file` is the name of the file, if rules consist of several and the path does not say which one.
    """

    path: Location
    message: str
    offset: int | None = None
    at_key: bool = False
    file: str = ""
    others: tuple[Location, ...] = ()
    """Other parts that a correction could change instead: the second writer of an attribute."""


def no_entity(name: str, entities: Collection[str], place: Location) -> Mistake:
    """Return the mistake that a rule or query names an unknown entity."""
    hint = suggest(name, entities) or f"; the entities are {', '.join(entities)}"
    return Mistake(place, f'unknown entity "{name}"{hint}')


def dotted(path: Location) -> str:
    """Return a location as text: `projections.published.index[0].where`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "(top)"
