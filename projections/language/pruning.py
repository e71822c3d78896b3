"""Removes invalid parts from the data of a rule file, so that the rest can be validated."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

from projections.language.mistakes import Location, Mistake, no_entity

__all__ = ["without"]

_NAMED = ("entities", "projections", "retired", "queries", "writes")
"""The sections of a rule file that have entries by name."""


def without(data: dict[str, Any], broken: Iterable[Location]) -> tuple[dict[str, Any], list[Mistake]] | None:
    """Return the data without its invalid parts and the rules that need them; None if nothing useful remains.

    Removed rules are not analysed later, so unknown entities in them are reported here.
    """
    data = dict(data)
    known: Collection[str] = tuple(data["entities"]) if isinstance(data.get("entities"), dict) else ()
    lost: set[str] = set()
    mistakes: list[Mistake] = []
    for path in broken:
        first = str(path[0]) if path else "table"
        entries = data.get(first)
        if first in ("table", "tables") or (first == "entities" and len(path) < 2):
            return None
        if (
            first in ("entities", "projections", "retired", "queries", "writes")
            and len(path) > 1
            and isinstance(entries, dict)
        ):
            if path[1] not in entries:
                continue
            if first == "entities":
                lost.add(str(path[1]))
            elif first == "projections":
                mistakes += _strangers(entries[path[1]], known, path[:2])
            data[first] = {name: value for name, value in entries.items() if name != path[1]}
        else:
            data.pop(first, None)
    if not data.get("entities"):
        return None
    if isinstance(data.get("projections"), dict):
        data["projections"] = {
            name: rule
            for name, rule in data["projections"].items()
            if lost.isdisjoint(entity for _, entity in _entities_of(rule))
        }
    return data, mistakes


def _strangers(rule: Any, known: Collection[str], place: Location) -> Iterator[Mistake]:
    for inner, name in _entities_of(rule):
        if name not in known:
            yield no_entity(name, known, (*place, *inner))


def _entities_of(rule: Any) -> Iterator[tuple[Location, str]]:
    """Yield the entities that a rule names, with their places, even if the rule is invalid."""
    if not isinstance(rule, dict):
        return
    if isinstance(rule.get("from"), str):
        yield ("from",), rule["from"]
    for kind, action in rule.items():
        if isinstance(action, dict) and isinstance(action.get("into"), str):
            yield (kind, "into"), action["into"]
