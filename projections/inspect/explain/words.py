"""The engine's values as text for people: keys, attribute values, versions, contributions, conditions and records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from projections.engine.guards import at_of
from projections.engine.store import (
    Above,
    AllOf,
    AnyOf,
    Below,
    Condition,
    Equal,
    Exists,
    Image,
    ItemKey,
    Missing,
    NotEqual,
    Schema,
    Value,
)
from projections.language.keys import decode_key, is_range
from projections.language.ranks import range_of
from projections.language.values import plain, plain_words
from projections.stores.condition_expressions import holds, value_at

_GROUP = re.compile(r"\d{10}\.(\d{15})")
_LONGEST = 60


def key_words(key: ItemKey) -> str:
    """Return a key for people: `POST#p1 · METADATA`."""
    return " · ".join(part for part in key[1:] if part is not None)


def encoded_words(text: str) -> str:
    """Return an encoded key for people, with the digits of a group of a `rank`; other texts unchanged."""
    if is_range(text):
        board, digits = range_of(text)
        return f"{encoded_words(board)}, {f'scores {digits}…' if digits else 'all scores'}"
    try:
        return key_words(decode_key(text))
    except ValueError:
        return text


def camel(name: str) -> str:
    """Return a name as JSON has it: `writeUnits` for `write_units`."""
    first, *others = name.split("_")
    return first + "".join(map(str.capitalize, others))


# Values


def short(text: str, most: int = _LONGEST) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def json_words(value: Any, most: int = _LONGEST, *, absent: str = "absent") -> str:
    """Return a plain value as JSON of limited length, or `absent` for None."""
    return absent if value is None else short(plain_words(value), most)


def value_words(value: Value | None, most: int = _LONGEST) -> str:
    """Return an attribute value as JSON of limited length, or `nothing` for None."""
    return json_words(None if value is None else plain(value), most, absent="nothing")


def value_text(value: Value) -> str:
    """Return a value on one line: strings and numbers as they are, others as JSON."""
    ((kind, _),) = value.items()
    return short(str(value[kind]) if kind in ("S", "N") else plain_words(plain(value)), 48)


# Versions


def stream_version(version: str) -> dict[str, str] | None:
    """Return the parts of an item's version: the label of its stream, and the sequence number."""
    label, slash, sequence = version.rpartition("/")
    if not slash or not sequence.isdecimal():
        return None
    return {"stream": label, "sequenceNumber": sequence.lstrip("0") or "0"}


def group_changes(version: str) -> int | None:
    """Return how many transactions have changed a group, by its version; None if the version is not that of a group."""
    match = _GROUP.fullmatch(version)
    return None if match is None else int(match[1])


def version_words(version: str) -> str:
    """Return a version as text. No version is a time: sequence numbers only order, versions of groups only count."""
    if not version:
        return "no version"
    if (changes := group_changes(version)) is not None:
        return f"change {changes} of its group"
    if stream := stream_version(version):
        if stream["sequenceNumber"] == "0":
            return "a record before these"
        return f"record {stream['sequenceNumber']}"
    return version


# Contributions


def difference_words(contribution: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return two contributions that differ, as text. If only attributes of members differ, the second says so."""
    first, second = contribution_words(contribution), contribution_words(other)
    return first, f"{second} with other attributes" if first == second else second


def contribution_words(contribution: Mapping[str, Any] | None) -> str:
    """Return a contribution, as `showing.contributed` has it, as text: `contributions 1, total 12.5`, or "nothing"."""
    parts = ((name, without_hashes(value)) for name, value in (contribution or {}).items())
    return ", ".join(f"{name} {json_words(value, 40)}" for name, value in parts) or "nothing"


def without_hashes(value: Any) -> Any:
    """Return a contribution with the values that order its members, without the hashes of their attributes."""
    if isinstance(value, dict):
        return {name: without_hashes(held) for name, held in value.items()}
    if isinstance(value, list):
        values = [member.get("value") if isinstance(member, dict) else member for member in value]
        if all(member_value is None for member_value in values):  # claims have no value
            return len(values)
        return values[0] if len(values) == 1 else values
    return value


# Conditions


def condition_words(condition: Condition | None, schema: Schema) -> str:
    """Return a condition as a sentence after "if", empty for None."""
    return "" if condition is None else _words(condition, schema, False)


def _words(condition: Condition, schema: Schema, inner: bool) -> str:
    match condition:
        # see `Guards`
        case AnyOf(
            conditions=(NotEqual(path=(guard, "d")) | AllOf(conditions=(NotEqual(path=(guard, "d")), *_)), *others)
        ):
            read = [each.value for each in others if isinstance(each, Below)]
            older = f" or older than {_operand('at', read[0])}" if read else ""
            return f"its guard {guard} is absent, invalid{older}"
        case AnyOf(conditions=(Missing(path=(guard,)), Below(value=value), Above())):
            order = at_of({"S": value["S"].ljust(40, "-")})  # of the text it has what orders it
            return f"its guard {guard} is absent, invalid or older than {version_words(order)}"
        case AnyOf(conditions=(Missing(path=(name,)), Below(value=value))) if name[:1] == "@":  # see `Lane`
            return f"the group has counted no record of this shard from {value_words(value)} on"
        case AllOf(conditions=()):
            return "always"
        case AllOf() | AnyOf():
            parts = [_words(each, schema, True) for each in condition.conditions]
            text = (", and " if isinstance(condition, AllOf) else " or ").join(parts)
            return f"({text})" if inner and len(parts) > 1 else text
    name = ".".join(condition.path)
    subject = "the item" if condition.path in ((schema.partition[0],), ("pk",)) else name
    match condition:
        case Exists():
            return f"{subject} exists"
        case Missing():
            return f"{subject} does not exist"
        case Equal() | NotEqual() | Below() | Above():
            verb = {Equal: "is", NotEqual: "is not", Below: "is before", Above: "is after"}[type(condition)]
            return f"{name} {verb} {_operand(name, condition.value)}"
    raise TypeError(condition)


def _operand(name: str, value: Value | None) -> str:
    text = value.get("S") if value is not None else None
    if value is not None and (read := at_of(value)):
        return f"at {version_words(read)}"
    if not isinstance(text, str):
        return value_words(value) if value is not None else "absent"
    if name.endswith(".by"):
        return encoded_words(text)
    if name == "contributions":
        return "nothing" if text == "{}" else "those of the old image"
    return version_words(text) if stream_version(text) or group_changes(text) is not None else value_words(value)


def failing(condition: Condition | None, item: Image | None, schema: Schema) -> str:
    """Return the parts of a condition that an item did not meet, with the values that it had."""
    if condition is None or holds(condition, item):
        return ""
    if item is None:  # else the condition would hold
        return "the item does not exist"
    parts = condition.conditions if isinstance(condition, AllOf) else (condition,)
    reasons = []
    for part in parts:
        if not holds(part, item):
            seen = ", ".join(dict.fromkeys(_seen(part, item)))
            reasons.append(f"not true: {condition_words(part, schema)}" + (f" ({seen})" if seen else ""))
    return "; ".join(reasons)


def _seen(condition: Condition, item: Image) -> Iterator[str]:
    if isinstance(condition, AllOf | AnyOf):
        for each in condition.conditions:
            yield from _seen(each, item)
    elif not isinstance(condition, Exists | Missing) and condition.path[1:] != ("d",):
        name = ".".join(condition.path)
        yield f"{name} is {_operand(name, value_at(item, condition.path))}"
