"""The parts of a page: headings, paragraphs, tables and listings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = [
    "Badge",
    "Block",
    "Cell",
    "Code",
    "Heading",
    "Line",
    "Listing",
    "Paragraph",
    "Span",
    "Table",
    "line",
    "table",
]


@dataclass(frozen=True, slots=True)
class Code:
    """A name, key template or condition."""

    text: str


@dataclass(frozen=True, slots=True)
class Badge:
    """A state in a fixed word."""

    text: str
    tone: Literal["good", "fair", "bad"]


Span: TypeAlias = str | Code | Badge
Line: TypeAlias = tuple[Span, ...]
Cell: TypeAlias = tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of level 1 to 3."""

    level: int
    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    line: Line


@dataclass(frozen=True, slots=True)
class Table:
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True, slots=True)
class Listing:
    text: str
    language: Literal["json", "yaml"]


Block: TypeAlias = Heading | Paragraph | Table | Listing


def line(*spans: Span) -> Line:
    """Return a line without empty spans."""
    return tuple(span for span in spans if span)


def table(columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Table:
    """Return a table without columns that are empty in all rows. Empty lines of cells are left out."""
    filled = [[tuple(one for one in cell if one) for cell in row] for row in rows]
    kept = [number for number in range(len(columns)) if any(row[number] for row in filled)]
    return Table(
        tuple(columns[number] for number in kept), tuple(tuple(row[number] for number in kept) for row in filled)
    )
