"""`asks` of case files: queries with the items that they give, in order."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from projections.api import ask
from projections.language.mistakes import Location, Mistake
from projections.language.syntax import suggest
from projections.language.values import plain_item
from projections.local.items import json_words, wire_item
from projections.printable import printable
from projections.testing.scenario import Scenario

__all__ = ["ask_differences", "ask_mistakes"]

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


def ask_differences(scenario: Scenario, one: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line with the query, and below it the differences from `gives`; nothing if there are none.

    Items are compared in order, each by the attributes that `gives` lists.
    """
    answer = ask(scenario.store, scenario.rules, one["query"], one.get("with"))
    found = answer.page(one.get("limit"))
    for _ in range(one.get("page", 1) - 1):
        found = type(found)([]) if found.token is None else answer.page(one.get("limit"), found.token)
    given = [plain_item(wire_item(item, f"gives of query {one['query']}")) for item in one["gives"]]
    variables = {name for entity in scenario.program.entities.values() for one in entity.patterns for name in one.names}
    lines: list[str] = []
    for number in range(max(len(given), len(found.items))):
        if number >= len(found.items):
            lines.append(f"  - item {number + 1}: {json_words(given[number])}")
        elif number >= len(given):
            lines.append(f"  + item {number + 1}: {json_words(found.items[number])}")
        else:
            rows = [
                (name, _words(given[number], name), _words(found.items[number], name))
                for name in given[number]
                if _words(given[number], name) != _words(found.items[number], name)
            ]
            lines += [f"  item {number + 1}:"] if rows else []
            for name, expected, actual in rows:
                key = actual == "absent" and name in variables
                hint = f" ({name} is a variable of the key: compare the key, or list it in `attributes` of the query)"
                lines += [f"  - {name}: {expected}", f"  + {name}: {actual}{hint if key else ''}"]
    if lines:
        values = [f"{name}={json_words(value)}" for name, value in one.get("with", {}).items()]
        yield from map(
            printable,
            [f"{' '.join(['query', one['query'], *values])} gives other items (- expected, + found):", *lines],
        )


def _words(item: Mapping[str, Any], name: str) -> str:
    return json.dumps(item[name], ensure_ascii=False, sort_keys=True) if name in item else "absent"
