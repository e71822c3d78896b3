"""A mistake in a rule file, before it is known on which line it stands."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Location", "Mistake", "dotted"]

Location = tuple[str | int, ...]
"""Where in the document: names of mapping entries and positions in lists, from the top."""


@dataclass(frozen=True, slots=True)
class Mistake:
    """What is wrong at a place of the document.

    `offset` counts characters into the text standing there; `at_key` means the name of the entry, not its value.
    """

    path: Location
    message: str
    offset: int | None = None
    at_key: bool = False


def dotted(path: Location) -> str:
    """A location as people write it: `projections.published.index[0].where`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "(top)"
