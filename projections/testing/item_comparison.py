"""Differences between expected and found items, as text: item, attribute, both values, rule."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from projections.engine.store import Image, ItemKey, Value
from projections.language.facts import EVERY, creators, origins
from projections.language.program import Program
from projections.language.values import changed_attributes
from projections.local.items import different_words, key_words, value_words
from projections.printable import printable

LEGEND = "Differences: - expected, + found"

Items = Mapping[ItemKey, Image]


@dataclass(frozen=True, slots=True)
class Difference:
    """An item that differs. `compared` are the names of its differing attributes, `listed` whether a test names it."""

    key: ItemKey
    entity: str
    expected: Image | None
    actual: Image | None
    compared: tuple[str, ...]
    listed: bool


class Comparison:
    """Compares items under rules. Numbers are compared by value, sets without order.

    With `partial`, only the attributes that a test names are compared, and no other items.
    """

    def __init__(self, program: Program, *, partial: bool = False) -> None:
        self._program = program
        self._origins = origins(program.model)
        self._creators = creators(program.model)
        self._several = len(program.tables) > 1
        self._partial = partial

    def differences(
        self, actual: Items, expected: Items, listed: Mapping[ItemKey, Collection[str]]
    ) -> list[Difference]:
        """Return the items that differ, in the order of their keys.

        `listed` are the items that a test names, with their attributes; the others should be as the application wrote
        them.
        """
        keys = sorted(actual.keys() | expected.keys(), key=lambda key: tuple(part or "" for part in key))
        differences = (self._difference(key, actual.get(key), expected.get(key), listed.get(key)) for key in keys)
        return [difference for difference in differences if difference is not None]

    def _difference(
        self, key: ItemKey, actual: Image | None, expected: Image | None, listed: Collection[str] | None
    ) -> Difference | None:
        actual, expected = self._seen(actual), self._seen(expected)
        entity = self._entity(key, actual if actual is not None else expected or {})
        if expected is None and listed is None and self._partial:
            return None
        keys = self._program.tables[key.table].key_attributes
        changed = [name for name in sorted(changed_attributes(expected, actual)) if name not in keys]
        names = tuple(name for name in changed if not self._partial or name in (listed or ()))
        if actual is not None and expected is not None and not names:
            return None
        return Difference(key, entity, expected, actual, names, listed is not None)

    def lines(self, difference: Difference) -> list[str]:
        """Return a difference as text: a title, and a line for each value."""
        return list(map(printable, self._lines(difference)))

    def _lines(self, difference: Difference) -> Iterator[str]:
        title = f"{key_words(difference.key, several=self._several)}  ({difference.entity or 'no entity'})"
        maker = self._creators.get(difference.entity)
        if difference.expected is None:
            by = f", created by rule {maker}" if maker else ""
            yield f"{title} exists{by}, but should not:"
            yield from self._attributes(difference.key, difference.actual or {}, "+")
        elif difference.actual is None:
            by = f", rule {maker} should create it" if maker else ""
            yield f"{title} is missing{by if difference.listed else ', although the application wrote it'}:"
            yield from self._attributes(difference.key, difference.expected, "-")
        else:
            yield title + (
                "" if difference.listed else "  is not listed in `then`, so it should be as the application wrote it"
            )
            for name in difference.compared:
                rule = self._rule(difference.entity, name)
                # of lists and maps, only the parts that differ
                for path, wanted, got in _parts(name, difference.expected.get(name), difference.actual.get(name)):
                    words = zip("-+", (wanted, got), different_words(wanted, got), strict=True)
                    lines = [f"  {sign} {path}: {text}" for sign, part, text in words if part is not None]
                    yield from lines[:-1]
                    yield lines[-1] + (f"    {rule}" if rule else "")

    def _seen(self, image: Image | None) -> dict[str, Value] | None:
        if image is None:
            return None
        return {n: value for n, value in image.items() if not n.startswith(self._program.guard_prefix)}

    def _entity(self, key: ItemKey, image: Image) -> str:
        recognised = self._program.recognise(key, image)
        return recognised.entity.name if recognised else ""

    def _attributes(self, key: ItemKey, image: Image, sign: str) -> Iterator[str]:
        names = self._program.tables[key.table].key_attributes
        for name, value in image.items():
            if name not in names:
                yield f"  {sign} {name}: {value_words(value)}"

    def _rule(self, entity: str, attribute: str) -> str:
        known = self._origins.get(entity, {})
        origin = known.get(attribute, known.get(EVERY))
        return f"rule {origin.rule}: {origin.how}" if origin else ""


def _parts(path: str, expected: Value | None, actual: Value | None) -> Iterator[tuple[str, Value | None, Value | None]]:
    if expected is not None and actual is not None:
        if "M" in expected and "M" in actual:
            for name in sorted(changed_attributes(expected["M"], actual["M"])):
                yield from _parts(f"{path}.{name}", expected["M"].get(name), actual["M"].get(name))
            return
        if "L" in expected and "L" in actual:
            for number in range(max(len(expected["L"]), len(actual["L"]))):
                wanted, got = _at(expected["L"], number), _at(actual["L"], number)
                if changed_attributes({"": wanted} if wanted else {}, {"": got} if got else {}):
                    yield from _parts(f"{path}[{number}]", wanted, got)
            return
    yield path, expected, actual


def _at(elements: list[Any], number: int) -> Value | None:
    return elements[number] if number < len(elements) else None
