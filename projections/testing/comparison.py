"""Differences between expected and found items, as text: item, attribute, both values, rule."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from projections.engine.store import Image, ItemKey, Value
from projections.language.facts import EVERY, creators, origins
from projections.language.program import Program
from projections.language.values import changed_attributes
from projections.local.items import key_words, value_words
from projections.printable import printable

__all__ = ["LEGEND", "Comparison", "diff_lines"]

LEGEND = "Differences: - expected, + found"

Items = Mapping[ItemKey, Image]


class Comparison:
    """Compares items under rules. Numbers are compared by value, sets without order.

    With `partial`, only the attributes that a test names are compared, and no other items. With `rules`, these and the
    attributes that these rules write are compared, also on other items.
    """

    def __init__(self, program: Program, *, partial: bool = False, rules: Collection[str] = ()) -> None:
        self._program = program
        self._origins = origins(program.typed)
        self._creators = creators(program.typed)
        self._several = len(program.tables) > 1
        self._partial = partial
        self._rules = frozenset(rules)

    def differences(
        self, actual: Items, expected: Items, listed: Mapping[ItemKey, Collection[str]], *, guards: bool
    ) -> list[str]:
        """Return a text of one or more lines for each item that differs.

        `listed` are the items that a test names, with their attributes; the others should be as the application wrote
        them. `guards` are compared if wanted.
        """
        found = []
        for key in sorted(actual.keys() | expected.keys(), key=lambda key: tuple(part or "" for part in key)):
            lines = list(self._item(key, actual.get(key), expected.get(key), listed.get(key), guards))
            if lines:
                found.append("\n".join(map(printable, lines)))
        return found

    def differs(
        self, key: ItemKey, actual: Image | None, expected: Image | None, listed: Collection[str] | None
    ) -> bool:
        """Return whether an item differs, guards aside."""
        return any(self._item(key, actual, expected, listed, guards=False))

    def _item(
        self,
        key: ItemKey,
        actual: Image | None,
        expected: Image | None,
        listed: Collection[str] | None,
        guards: bool,
    ) -> Iterator[str]:
        actual, expected = self._seen(actual, guards), self._seen(expected, guards)
        entity = self._entity(key, actual if actual is not None else expected or {})
        title = f"{key_words(key, several=self._several)}  ({entity or 'no entity'})"
        maker = self._creators.get(entity)
        if expected is None:
            assert actual is not None
            if listed is None and (self._rules or self._partial) and maker not in self._rules:
                return
            by = f", created by rule {maker}" if maker else ""
            yield f"{title} exists{by}, but should not:"
            yield from self._attributes(key, actual, "+")
        elif actual is None:
            by = f", rule {maker} should create it" if maker else ""
            yield (
                f"{title} is missing{by}:"
                if listed is not None
                else (f"{title} is missing, although the application wrote it:")
            )
            yield from self._attributes(key, expected, "-")
        else:
            rows = [
                (name, expected.get(name), actual.get(name), self._rule(entity, name))
                for name in sorted(changed_attributes(expected, actual))
                if self._compared(entity, name, listed)
            ]
            if rows:
                yield title + (
                    ""
                    if listed is not None
                    else "  is not listed in `then`, so it should be as the application wrote it"
                )
                yield from diff_lines(rows)

    def _compared(self, entity: str, name: str, listed: Collection[str] | None) -> bool:
        """Return whether an attribute of an item is compared, by the names that a test lists for the item."""
        if not self._partial and not self._rules:
            return True
        if listed is not None and (name in listed or self._partial):
            return name in listed
        if name.startswith(self._program.guard_prefix):
            return name.removeprefix(self._program.guard_prefix) in self._rules
        known = self._origins.get(entity, {})
        origin = known.get(name, known.get(EVERY))
        return origin is not None and origin.rule in self._rules

    def _seen(self, image: Image | None, guards: bool) -> dict[str, Value] | None:
        if image is None:
            return None
        return {n: value for n, value in image.items() if guards or not n.startswith(self._program.guard_prefix)}

    def _entity(self, key: ItemKey, image: Image) -> str:
        recognised = self._program.recognise(key, image)
        return recognised.entity.name if recognised else ""

    def _attributes(self, key: ItemKey, image: Image, sign: str) -> Iterator[str]:
        names = self._program.tables[key.table].key_attributes
        for name, value in image.items():
            if name not in names:
                yield f"  {sign} {name}: {value_words(value)}"

    def _rule(self, entity: str, attribute: str) -> str:
        if attribute == self._program.guard_prefix:
            return "the mark of items that a rule created"
        if attribute.startswith(self._program.guard_prefix):
            return f"rule {attribute.removeprefix(self._program.guard_prefix)}"
        known = self._origins.get(entity, {})
        origin = known.get(attribute, known.get(EVERY))
        return f"rule {origin.rule}: {origin.how}" if origin else ""


def diff_lines(rows: list[tuple[str, Value | None, Value | None, str]]) -> Iterator[str]:
    """Yield the differences of attributes, each with its name, the expected value, the one found, and the rule.

    Of lists and maps, only the parts that differ.
    """
    for name, expected, found, rule in rows:
        for path, one, other in _parts(name, expected, found):
            lines = [
                f"  {sign} {path}: {value_words(part)}" for sign, part in (("-", one), ("+", other)) if part is not None
            ]
            yield from lines[:-1]
            yield lines[-1] + (f"    {rule}" if rule else "")


def _parts(path: str, expected: Value | None, found: Value | None) -> Iterator[tuple[str, Value | None, Value | None]]:
    if expected is not None and found is not None:
        if "M" in expected and "M" in found:
            for name in sorted(changed_attributes(expected["M"], found["M"])):
                yield from _parts(f"{path}.{name}", expected["M"].get(name), found["M"].get(name))
            return
        if "L" in expected and "L" in found:
            for number in range(max(len(expected["L"]), len(found["L"]))):
                one, other = _at(expected["L"], number), _at(found["L"], number)
                if changed_attributes({"": one} if one else {}, {"": other} if other else {}):
                    yield from _parts(f"{path}[{number}]", one, other)
            return
    yield path, expected, found


def _at(elements: list[Any], number: int) -> Value | None:
    return elements[number] if number < len(elements) else None
