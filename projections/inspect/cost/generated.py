"""Generated values: each leads back to the number of the item, element or edit that it was generated for."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from projections.inspect.cost.reads import Shapes
from projections.language.keys import Value

__all__ = ["EDITED", "ELEMENT", "FLOW", "KEPT", "Values", "digits"]

# Digits of a number, from the right: six for a place in a flow, three for the flow, then these.
EDITED = 10**9
"""An edited value, or the target that an edit moves a contribution to."""
KEPT = 10**10
"""Other sources of the same targets, so that a move neither creates nor empties one."""
ELEMENT = 10**11
"""Elements of an `each`."""

FLOW = 10**6
_EPOCH = datetime(2001, 1, 1, tzinfo=UTC)
_CHARACTERS = 16
"""Of a text."""
_WIDE = 8
"""Digits that any number has at most."""


class Values:
    """The values of a batch. `numbers` gives the number of each text in them."""

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._places = {path: place for place, path in enumerate(sorted(shapes.forms))}
        self.numbers: dict[str, int] = {}

    def text(self, variable: str, number: int) -> str:
        """The value of a key's variable."""
        form, width = self._shapes.forms.get(("", variable), ("", 0))
        text = digits(number)
        if form == "date":
            text = _time(number)
            if variable in self._shapes.numeric:
                text = str(int(datetime.fromisoformat(text).timestamp()))
        elif form == "ulid":
            text = f"{number:026d}"
        elif form in ("pad", "invert", "ms"):
            text = str(1 + number % 10 ** (width or 13))
        self.numbers[text] = max(number, self.numbers.get(text, 0))
        return text

    def value(self, entity: str, path: str, number: int, edited: bool) -> Value:
        if path in self._shapes.everywhere:
            return {"S": self.text(path, number + EDITED * edited)}
        form, width = self._shapes.forms.get((entity, path), ("", 0))
        if form == "number" or (form in ("pad", "invert") and width >= _WIDE):
            return {"N": str(self._number(self._places[entity, path], number, edited))}
        if form in ("pad", "invert", "ms"):
            most = 10 ** min(width or 3, 3) // 2 - 1
            return {"N": str(2 * (number % max(1, most)) + edited + (1_700_000_000_000 if form == "ms" else 0))}
        text = f"{path} {number}{'-' if edited else '+'}".rjust(_CHARACTERS)
        if form == "date":
            text = _time(number + 400_000_000 * edited)
        elif form == "ulid":
            text = f"{number + EDITED * edited:026d}"
        self.numbers[text] = number + EDITED * edited
        return {"S": text}

    def _number(self, place: int, number: int, edited: bool) -> int:
        """An even number, odd if edited, with which expressions have values, and other ones after an edit.

        It is not 0, and differs from those of the item's other attributes. An edit multiplies it, each attribute by a factor
        of its own.
        """
        even = 2 * (1 + (number + 37 * place) % 499)
        return even * 100 * (2 + place % 64) + 1 if edited else even

    def number(self, value: Value | None) -> int:
        """The number that a value leads back to; -1 if it leads nowhere."""
        if value is None:
            return -1
        ((kind, content),) = value.items()
        if kind in ("S", "N"):
            return self.numbers.get(content, -1)
        parts: Iterable[Value] = content.values() if kind == "M" else content if kind == "L" else ()
        return max(map(self.number, parts), default=-1)

    def edited(self, value: Value | None, derived: bool = False) -> bool:
        """Whether a value is what an edit makes of it; of derived numbers nobody can tell."""
        if value is None:
            return False
        ((kind, content),) = value.items()
        if kind == "N" and content not in self.numbers:
            return not derived and content.isdecimal() and int(content) % 2 == 1
        if kind in ("M", "L"):
            return any(map(self.edited, content.values() if kind == "M" else content))
        return kind == "S" and self.numbers.get(content, 0) // EDITED % 10 > 0


def digits(number: int) -> str:
    """Return twenty digits; lower ones for items that others follow, as they are older."""
    return str(number + (1 if number // KEPT % 10 else 2) * 10**19)


def _time(number: int) -> str:
    older = timedelta(days=10_000) if number // KEPT % 10 else timedelta()
    return (_EPOCH + timedelta(seconds=number % EDITED) - older).strftime("%Y-%m-%dT%H:%M:%SZ")
