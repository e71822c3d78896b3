"""Removes invalid parts from the data of a rule file, so that the rest can be validated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from projections.language.mistakes import Location, Mistake, no_entity

__all__ = ["SECTIONS", "entities_of", "entities_read", "without"]

SECTIONS = ("entities", "projections", "retired", "queries", "writes")
"""The sections of a rule file that have entries by name."""

_OPERATIONS = ("get", "find", "put", "update", "delete", "check")
"""The names in queries and writes whose values are entities."""


def without(data: dict[str, Any], broken: Iterable[Location]) -> tuple[dict[str, Any], list[Mistake]] | None:
    """Return the data without its invalid parts and the parts that need them; None if nothing useful remains.

    Removed parts are not analysed later, so unknown entities in them are reported here.
    """
    data = dict(data)
    known: Collection[str] = tuple(data["entities"]) if isinstance(data.get("entities"), dict) else ()
    lost: set[str] = set()
    mistakes: list[Mistake] = []

    def remove(section: str, name: str) -> None:
        entries = data[section]
        found = entities_of(entries[name]) if section == "projections" else entities_read(entries[name])
        if section not in ("entities", "retired"):
            for inner, entity in found:
                if entity not in known:
                    mistakes.append(no_entity(entity, known, (section, name, *inner)))
        data[section] = {other: entry for other, entry in entries.items() if other != name}

    for path in broken:
        first = str(path[0]) if path else "table"
        entries = data.get(first)
        if first in ("table", "tables") or (first == "entities" and len(path) < 2):
            return None
        if first in SECTIONS and len(path) > 1 and isinstance(entries, dict):
            if path[1] in entries:
                remove(first, str(path[1]))
                if first == "entities":
                    lost.add(str(path[1]))
        else:
            data.pop(first, None)
    if not data.get("entities"):
        return None
    for section, named in (("projections", entities_of), ("queries", entities_read), ("writes", entities_read)):
        entries = data.get(section)
        for name, entry in entries.items() if isinstance(entries, dict) else ():
            if not lost.isdisjoint(entity for _, entity in named(entry)):
                remove(section, name)
    return data, mistakes


def entities_of(rule: Any) -> Iterator[tuple[Location, str]]:
    """Yield the entities that a rule names, with their places, even if the rule is invalid."""
    if not isinstance(rule, dict):
        return
    yield from _texts(rule, "from", ())
    sources = rule.get("from")
    if isinstance(sources, dict):
        yield from ((("from", name), name) for name in sources if isinstance(name, str))
    for kind, action in rule.items():
        if isinstance(action, dict) and isinstance(action.get("into"), str):
            yield (kind, "into"), action["into"]


def entities_read(entry: Any) -> Iterator[tuple[Location, str]]:
    """Yield the entities that a query or a write names, with their places, even if it is invalid."""
    if not isinstance(entry, dict):
        return
    for name in _OPERATIONS:
        yield from _texts(entry, name, ())
    steps = entry.get("items")
    for position, step in enumerate(steps if isinstance(steps, list) else ()):
        for name in _OPERATIONS if isinstance(step, dict) else ():
            yield from _texts(step, name, ("items", position))


def _texts(form: dict[str, Any], name: str, place: Location) -> Iterator[tuple[Location, str]]:
    """Yield the texts of a part that is a text or a list of texts."""
    value = form.get(name)
    if isinstance(value, str):
        yield (*place, name), value
    for position, text in enumerate(value if isinstance(value, list) else ()):
        if isinstance(text, str):
            yield (*place, name, position), text
