"""Differences between actual and expected items, as text: item, attribute, both values, rule."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from projections.engine.store import Image, ItemKey, Value
from projections.language.facts import EVERY, creators, origins
from projections.language.program import Program
from projections.language.values import changed_attributes
from projections.local.items import key_words, value_words
from projections.printable import printable

__all__ = ["Comparison", "aligned"]

Items = Mapping[ItemKey, Image]


class Comparison:
    """Compares items under rules. Numbers are compared by value, sets without order."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._origins = origins(program.typed)
        self._creators = creators(program.typed)
        self._several = len(program.tables) > 1

    def differences(self, actual: Items, expected: Items, listed: frozenset[ItemKey], *, guards: bool) -> list[str]:
        """Return a text of one or more lines for each item that differs.

        `listed` are the items that a test names; the others should be as the application wrote them. `guards` are
        compared if wanted.
        """
        found = []
        for key in sorted(actual.keys() | expected.keys(), key=lambda key: tuple(part or "" for part in key)):
            lines = list(self._item(key, actual.get(key), expected.get(key), key in listed, guards))
            if lines:
                found.append("\n".join(map(printable, lines)))
        return found

    def _item(
        self, key: ItemKey, actual: Image | None, expected: Image | None, listed: bool, guards: bool
    ) -> Iterator[str]:
        actual, expected = self._seen(actual, guards), self._seen(expected, guards)
        entity = self._entity(key, actual if actual is not None else expected or {})
        title = f"{key_words(key, several=self._several)}  ({entity or 'no entity'})"
        maker = self._creators.get(entity)
        if expected is None:
            assert actual is not None
            by = f", created by rule {maker}" if maker else ""
            yield f"{title} exists{by}, but should not:"
            yield from self._attributes(key, actual)
        elif actual is None:
            by = f", rule {maker} should create it" if maker else ""
            yield f"{title} is missing{by}:" if listed else f"{title} is missing, although the application wrote it:"
            yield from self._attributes(key, expected)
        else:
            rows = [
                (name, value_words(actual.get(name)), value_words(expected.get(name)), self._rule(entity, name))
                for name in sorted(changed_attributes(expected, actual))
            ]
            if rows:
                yield title + (
                    "" if listed else "  is not listed in `then`, so it should be as the application wrote it"
                )
                yield from aligned(rows)

    def _seen(self, image: Image | None, guards: bool) -> dict[str, Value] | None:
        if image is None:
            return None
        return {n: value for n, value in image.items() if guards or not n.startswith(self._program.guard_prefix)}

    def _entity(self, key: ItemKey, image: Image) -> str:
        recognised = self._program.recognise(key, image)
        return recognised.entity.name if recognised else ""

    def _attributes(self, key: ItemKey, image: Image) -> Iterator[str]:
        names = self._program.tables[key.table].key_attributes
        for name, value in image.items():
            if name not in names:
                yield f"    {name} {value_words(value)}"

    def _rule(self, entity: str, attribute: str) -> str:
        if attribute == self._program.guard_prefix:
            return "the mark of items that a rule created"
        if attribute.startswith(self._program.guard_prefix):
            return f"rule {attribute.removeprefix(self._program.guard_prefix)}"
        known = self._origins.get(entity, {})
        origin = known.get(attribute, known.get(EVERY))
        return f"rule {origin.rule}: {origin.how}" if origin else ""


def aligned(rows: list[tuple[str, str, str, str]]) -> Iterator[str]:
    """Yield a line for each attribute: its name, actual value, expected value, and rule."""
    widths = [min(40, max(len(row[column]) for row in rows)) for column in range(3)]
    for name, actual, expected, rule in rows:
        yield (f"    {name:<{widths[0]}}  is {actual:<{widths[1]}}  expected {expected:<{widths[2]}}  {rule}").rstrip()
