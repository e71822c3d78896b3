"""A mistake in a rule file, with its path in the document; its line is found later."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Location", "Mistake", "dotted"]

Location = tuple[str | int, ...]
"""A path in the document: names of mapping entries and positions in lists, from the top."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """A mistake at a place of the document.

    `offset` counts characters in the text at that place; `at_key` refers to the name of the entry instead of its value.
    """

    path: Location
    message: str
    offset: int | None = None
    at_key: bool = False


def dotted(path: Location) -> str:
    """Return a location as text: `projections.published.index[0].where`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "(top)"
