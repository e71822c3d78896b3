"""`asks` of case files: queries with the items that they give, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from projections.api import ask
from projections.language.mistakes import Location, Mistake
from projections.language.syntax import suggest
from projections.language.values import plain_item, plain_items
from projections.local.items import json_words, wire_item
from projections.printable import printable
from projections.testing.scenario import Scenario

__all__ = ["answered", "ask_differences", "ask_mistakes", "differing_names"]

_NAMES = ("query", "with", "gives", "limit", "page")


def ask_mistakes(asks: object, path: Location) -> Iterator[Mistake]:
    """Yield the mistakes in the form of `asks`."""
    if not isinstance(asks, list):
        yield Mistake(path, "expected a list of `{query: NAME, with: {…}, gives: […]}`")
        return
    for number, one in enumerate(asks):
        place = (*path, number)
        if not isinstance(one, dict) or not isinstance(one.get("query"), str) or "gives" not in one:
            yield Mistake(place, "expected `{query: NAME, with: {…}, gives: […]}`")
            continue
        for name in one:
            if name not in _NAMES:
                hint = suggest(name, _NAMES) or f"; allowed are {', '.join(_NAMES)}"
                yield Mistake((*place, name), f"unknown{hint}", at_key=True)
        if not isinstance(one.get("with", {}), dict):
            yield Mistake((*place, "with"), "expected parameters, such as `{userId: u1}`")
        if not (isinstance(one["gives"], list) and all(isinstance(item, dict) for item in one["gives"])):
            yield Mistake((*place, "gives"), "expected a list of items, each with some of its attributes")
        for name in ("limit", "page"):
            if type(one.get(name, 1)) is not int or one.get(name, 1) < 1:
                yield Mistake((*place, name), "expected a number, 1 or more")


def answered(scenario: Scenario, one: Mapping[str, Any]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the items in `gives`, and those that the query gives, in the same form."""
    answer = ask(scenario.store, scenario.rules, one["query"], one.get("with"))
    found = answer.page(one.get("limit"))
    for _ in range(one.get("page", 1) - 1):
        found = type(found)([]) if found.token is None else answer.page(one.get("limit"), found.token)
    given = [plain_item(wire_item(item, f"gives of query {one['query']}")) for item in one["gives"]]
    return given, plain_items(found.items)


def differing_names(given: Mapping[str, Any], found: Mapping[str, Any]) -> list[str]:
    """Return the names of the attributes in `given` that differ."""
    return [name for name in given if _words(given, name) != _words(found, name)]


def ask_differences(scenario: Scenario, one: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line with the query, and below it the differences from `gives`; nothing if there are none.

    Items are compared in order, each by the attributes that `gives` lists.
    """
    given, found = answered(scenario, one)
    variables = {
        name for entity in scenario.program.entities.values() for pattern in entity.patterns for name in pattern.names
    }
    lines: list[str] = []
    for number in range(max(len(given), len(found))):
        if number >= len(found):
            lines.append(f"  - item {number + 1}: {json_words(given[number])}")
        elif number >= len(given):
            lines.append(f"  + item {number + 1}: {json_words(found[number])}")
        else:
            names = differing_names(given[number], found[number])
            lines += [f"  item {number + 1}:"] if names else []
            for name in names:
                hint = f" ({name} is a variable of the key: compare the key, or list it in `attributes` of the query)"
                key = name in variables and name not in found[number]
                lines.append(f"  - {name}: {_words(given[number], name)}")
                lines.append(f"  + {name}: {_words(found[number], name)}{hint if key else ''}")
    if lines:
        values = [f"{name}={json_words(value)}" for name, value in one.get("with", {}).items()]
        yield from map(
            printable,
            [f"{' '.join(['query', one['query'], *values])} gives other items (- expected, + found):", *lines],
        )


def _words(item: Mapping[str, Any], name: str) -> str:
    return json.dumps(item[name], ensure_ascii=False, sort_keys=True) if name in item else "absent"
