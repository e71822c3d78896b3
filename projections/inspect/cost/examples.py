"""Values that items need to be recognised or to match a rule, and how they are put into an item."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from projections.language.keys import Value
from projections.language.patterns import Affix, AnythingBut, Compares, Either, Equals, Exists, Named, Numeric, Test
from projections.language.syntax import steps
from projections.language.values import number_text, wire

__all__ = ["compared", "examples_of", "put"]


def put(image: dict[str, Value], path: str, value: Value) -> None:
    """Set the value at a dotted path of an item, in maps that replace other values. A map is kept for its elements."""
    *before, last = steps(path)
    place: Any = image
    for step in before:
        if "M" not in place.get(step, {}):
            place[step] = {"M": {}}
        place = place[step]["M"]
    if "M" not in place.get(last, {}):
        place[last] = value


def examples_of(conditions: Iterable[Test | Either]) -> Iterator[tuple[str, list[Value | None]]]:
    """Values to try for each name in a pattern; None leaves it as it is."""
    for condition in conditions:
        if isinstance(condition, Either):
            for branch in condition.branches:
                yield from examples_of(branch)
            continue
        values: list[Value | None] = [None]
        for alternative in condition.alternatives:
            match alternative:
                case Equals():
                    values.append(wire(alternative.value))
                case Affix():
                    values.append({"S": alternative.text})
                case Numeric():
                    values += [{"N": number_text(n + step)} for _, n in alternative.bounds for step in (0, 1, -1)]
                case Compares():
                    values += compared(alternative)
                case Exists() | AnythingBut():
                    values.append({"S": "there"})
        yield condition.name, values
        for name in condition.names[1:]:
            yield name, [None, *_COMPARED]


_COMPARED: tuple[Value, ...] = ({"N": "2"}, {"S": "m"})
"""Values to compare with."""


def compared(alternative: Compares) -> list[Value]:
    """Return values that are below, at, and above what an alternative compares with."""
    found: list[Value] = []
    for _, operand in alternative.bounds:
        if isinstance(operand, Named):
            found += [{"N": "2"}, {"N": "1"}, {"N": "3"}, {"S": "m"}, {"S": "a"}, {"S": "z"}]
        elif isinstance(operand, str):
            found += [{"S": text} for text in (operand, operand + "0", operand[:-1] or "!")]
        else:
            found += [{"N": number_text(operand + step)} for step in (0, 1, -1)]
    return found
