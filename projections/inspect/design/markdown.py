"""The table-design page as Markdown (GitHub's)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from projections.inspect.access_patterns import access_patterns
from projections.inspect.design.blocks import Badge, Block, Cell, Code, Heading, Line, Listing, Paragraph, Span, Table
from projections.inspect.design.content import content
from projections.inspect.design.matrix import matrix_table
from projections.inspect.design.model import Design
from projections.language.access.questions import Query
from projections.language.canonical import Document
from projections.printable import printable

__all__ = ["markdown", "matrix"]

_MARKS = {"good": "✓", "fair": "?", "bad": "✗"}
_SPECIAL = re.compile(r"([\\`*_\[\]<>|&~])")


def markdown(design: Design) -> str:
    """Return the page."""
    return "\n\n".join(map(_block, content(design))) + "\n"


def matrix(document: Document, queries: Mapping[str, Query]) -> str:
    """Return the access pattern matrix alone, as a table."""
    return _table(matrix_table(access_patterns(document, queries))) + "\n"


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_text(block.text)}"
        case Paragraph():
            return _line(block.line)
        case Table():
            return _table(block)
        case Listing():
            fence = _fence(block.text, 3)
            return f"{fence}{block.language}\n{printable(block.text, lines=True)}\n{fence}"


def _table(block: Table) -> str:
    rows = [[_text(column) for column in block.columns], ["---"] * len(block.columns)]
    rows += [[_cell(cell) for cell in row] for row in block.rows]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def _cell(cell: Cell) -> str:
    # A pipe ends a cell even in code: GitHub reads \| as a pipe there.
    return "<br>".join(_line(line, cell=True) for line in cell)


def _line(line: Line, *, cell: bool = False) -> str:
    return "".join(_span(span, cell=cell) for span in line)


def _span(span: Span, *, cell: bool) -> str:
    match span:
        case Code():
            return _code(span.text, cell=cell)
        case Badge():
            return f"{_MARKS[span.tone]} {_text(span.text)}"
    return _text(span)


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", printable(text))


def _code(text: str, *, cell: bool) -> str:
    safe = printable(text)
    fence = _fence(safe, 1)
    padded = f" {safe} " if safe.startswith("`") or safe.endswith("`") or not safe.strip() else safe
    return fence + (padded.replace("|", "\\|") if cell else padded) + fence


def _fence(text: str, least: int) -> str:
    """Return backticks that do not occur in a text."""
    return "`" * max([least, *(len(run) + 1 for run in re.findall("`+", text))])
