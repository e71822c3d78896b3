"""What every measurement gives: figures, each with its case, way and unit; and how they are shown and kept."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["LANES", "OURS", "Figure", "as_json", "commit", "lines", "text"]

OURS = {100: "ours (100)", 1000: "ours (1000)"}
LANES = {100: "lanes (100)", 1000: "lanes (1000)"}
"""With `ledger: lanes`."""
"""Our ways by the records of a batch. To the others a batch means nothing: they do for each record what they do for one."""

_CASE, _CELL = 50, 12


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value: a cell in the part of its group and unit, the row of its case, the column of its way."""

    group: str
    unit: str
    case: str
    way: str
    value: float


def lines(figures: Iterable[Figure]) -> Iterator[str]:
    """One table: a part for each group and unit, a row for each case, a column for each way."""
    found = list(figures)
    ways = list(dict.fromkeys(figure.way for figure in found))
    yield " " * _CASE + "".join(f"{_head(way):>{_CELL}}" for way in ways)
    for part in dict.fromkeys((figure.group, figure.unit) for figure in found):
        cells = {(one.case, one.way): text(one.value) for one in found if (one.group, one.unit) == part}
        yield f"{part[0]}: {part[1]}"
        for case in dict.fromkeys(case for case, _ in cells):
            row = "".join(f"{cells.get((case, way), ''):>{_CELL}}" for way in ways)
            yield f"  {case:<{_CASE - 2}}{row}".rstrip()
    yield "; ".join(way for way in ways if _head(way) != way)


def _head(way: str) -> str:
    """The letter of a way that has one: what it stands for is told below the table."""
    return way[:3] if way.startswith("(") else way


def text(value: float) -> str:
    """A value with the digits that mean something: three of them, or all before the point."""
    if value % 1 == 0:
        return f"{value:,.0f}"
    for least, digits in ((100, 0), (10, 1), (1, 2)):
        if abs(value) >= least:
            return f"{value:,.{digits}f}"
    return f"{value:.3f}"


def as_json(figures: Sequence[Figure]) -> list[dict[str, Any]]:
    return [{**asdict(figure), "value": round(figure.value, 6)} for figure in figures]


def commit() -> str:
    """Return the commit of this clone, `unknown` without git."""
    asked = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(
            asked, cwd=Path(__file__).parent, check=True, capture_output=True, text=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
