"""Lambda's event filters, as Lambda evaluates them on a stream record.

A pattern names leaves: only values that are not objects are compared. So `exists` does not match `NewImage.status`, only
`NewImage.status.S`. Of the comparisons, those with equality, `prefix` and `exists` are judged, which filters on keys need.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

LONGEST = 4096
"""The maximum number of characters of a pattern."""


class FilterError(ValueError):
    """Lambda would refuse to create a mapping with this pattern."""


class NotJudgedError(ValueError):
    """A pattern with a comparison that is not judged here."""


class Filter:
    """One pattern of a mapping's FilterCriteria. A record passes a mapping if any of its patterns matches."""

    def __init__(self, pattern: Mapping[str, Any]) -> None:
        if len(json.dumps(pattern, separators=(",", ":"), ensure_ascii=False)) > LONGEST:
            raise FilterError(f"a filter pattern is at most {LONGEST} characters long")
        _check(pattern, "")
        self.pattern = pattern

    def matches(self, record: Mapping[str, Any]) -> bool:
        return _object(self.pattern, record)


def _check(pattern: Any, path: str) -> None:
    if not isinstance(pattern, Mapping) or not pattern:
        raise FilterError(f"{path or 'pattern'}: expected an object with at least one field")
    for name, part in pattern.items():
        place = f"{path}.{name}" if path else str(name)
        if name == "$or" and isinstance(part, list):
            raise NotJudgedError(f"{place}: alternatives are not judged")
        if isinstance(part, Mapping):
            _check(part, place)
        elif not isinstance(part, list) or not part:
            raise FilterError(f"{place}: expected an object, or a list of values to match")
        else:
            for rule in part:
                _check_rule(rule, place)


def _check_rule(rule: Any, place: str) -> None:
    if isinstance(rule, list):
        raise FilterError(f"{place}: a list inside a list of values")
    if not isinstance(rule, Mapping):
        return
    if len(rule) != 1:
        raise FilterError(f"{place}: one comparison per object")
    ((name, operand),) = rule.items()
    match name:
        case "prefix":
            fits = isinstance(operand, str)
        case "exists":
            fits = isinstance(operand, bool)
        case _:
            raise NotJudgedError(f"{place}: the comparison {name!r} is not judged")
    if not fits:
        raise FilterError(f"{place}: {name} does not take {json.dumps(operand)}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _object(pattern: Mapping[str, Any], event: Any) -> bool:
    """Return whether every field of the pattern matches. In a list of objects, one element must match all of them."""
    if isinstance(event, list):
        return any(_object(pattern, element) for element in event if isinstance(element, Mapping | list))
    fields = event if isinstance(event, Mapping) else {}
    for name, part in pattern.items():
        if isinstance(part, Mapping):
            if not _object(part, fields.get(name)):
                return False
        elif not _leaf(part, list(_leaves(fields[name])) if name in fields else []):
            return False
    return True


def _leaves(value: Any) -> Iterator[Any]:
    """Return the values at a path that are not objects; none for an object or an empty list, as if the field were absent."""
    if isinstance(value, list):
        for element in value:
            yield from _leaves(element)
    elif not isinstance(value, Mapping):
        yield value


def _leaf(rules: Sequence[Any], leaves: Sequence[Any]) -> bool:
    if not leaves:
        return any(rule == {"exists": False} for rule in rules if isinstance(rule, Mapping))
    return any(_compare(rule, leaf) for rule in rules for leaf in leaves)


def _compare(rule: Any, leaf: Any) -> bool:
    if not isinstance(rule, Mapping):
        return _equal(rule, leaf)
    ((name, operand),) = rule.items()
    return bool(operand) if name == "exists" else isinstance(leaf, str) and leaf.startswith(operand)


def _equal(expected: Any, leaf: Any) -> bool:
    """Return whether JSON values are equal. A number never equals a boolean or a text."""
    if _is_number(expected) and _is_number(leaf):
        return bool(expected == leaf)
    return type(expected) is type(leaf) and bool(expected == leaf)
