"""A JSON document whose parts know their place, so that every complaint about one names it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from projections.errors import UsageError
from projections.language.mistakes import Location, dotted
from projections.language.shapes import shown

__all__ = ["Part", "WrongPart", "parsed"]


class WrongPart(UsageError):
    """A part of a document that cannot be used: its place, and the reason."""

    def __init__(self, part: Part, reason: str) -> None:
        super().__init__(f"{part.file}: {part.place}: {reason}")
        self.place, self.reason = part.place, reason


@dataclass(frozen=True)
class Part:
    """A value of a document, with the name of its file and its path in it."""

    file: str
    value: Any
    path: Location = ()

    @property
    def place(self) -> str:
        return dotted(self.path)

    def wrong(self, reason: str) -> WrongPart:
        """Return the error that this part cannot be used, for the caller to raise."""
        return WrongPart(self, reason)

    def get(self, name: str) -> Part | None:
        """Return a member; None if it is absent or null. Raises WrongPart if this is not a mapping."""
        value = self._mapping().get(name)
        return None if value is None else Part(self.file, value, (*self.path, name))

    def need(self, name: str, instead: str = "") -> Part:
        """Return a member. Raises WrongPart if it is absent; `instead` says what to do then."""
        found = self.get(name)
        if found is None:
            raise self.wrong(f"{name} is missing{': ' + instead if instead else ''}")
        return found

    def members(self) -> Iterator[tuple[str, Part]]:
        """Yield the members of a mapping. Raises WrongPart if it is none."""
        for name, value in self._mapping().items():
            yield name, Part(self.file, value, (*self.path, name))

    def elements(self) -> list[Part]:
        """Return the elements of a list. Raises WrongPart if it is none."""
        if not isinstance(self.value, list):
            raise self.wrong(f"expected a list, found {shown(self.value)}")
        return [Part(self.file, value, (*self.path, number)) for number, value in enumerate(self.value)]

    def all(self, name: str) -> list[Part]:
        """Return the elements of a member; none if it is absent."""
        found = self.get(name)
        return [] if found is None else found.elements()

    def text(self) -> str:
        """Return a text that is not empty. Raises WrongPart."""
        if not isinstance(self.value, str) or not self.value:
            raise self.wrong(f"expected a text, found {shown(self.value)}")
        return self.value

    def one_of(self, *texts: str) -> str:
        """Return one of these texts. Raises WrongPart."""
        if self.value not in texts:
            raise self.wrong(f"expected {', '.join(texts[:-1])} or {texts[-1]}, found {shown(self.value)}")
        return str(self.value)

    def _mapping(self) -> Mapping[str, Any]:
        if not isinstance(self.value, dict):
            raise self.wrong(f"expected a mapping, found {shown(self.value)}")
        return self.value


def parsed(text: str, file: str) -> Part:
    """Return the document in a JSON text. Raises UsageError with the place of the mistake."""
    try:
        return Part(file, json.loads(text))
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg}. Export the model again"
        ) from None
    except RecursionError:
        raise UsageError(f"{file}: nested too deeply. Export the model again") from None
