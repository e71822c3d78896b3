"""The engine's values as text for people: keys, versions, conditions, attribute values."""

from __future__ import annotations

import re
from collections.abc import Iterator
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
from projections.language.digits import range_of
from projections.language.keys import decode_key, is_range
from projections.language.program import LEDGER_SCHEMA
from projections.language.values import plain, plain_words
from projections.stores.conditions import holds, value_at

__all__ = [
    "condition_words",
    "encoded_words",
    "failing",
    "group_version",
    "json_words",
    "key_words",
    "short",
    "stream_version",
    "value_words",
    "version_words",
]

_GROUP = re.compile(r"(\d{4})\.(\d{15})")
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


def short(text: str, most: int = _LONGEST) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def json_words(value: Any, most: int = _LONGEST, *, absent: str = "absent") -> str:
    """Return a plain value as JSON of limited length, or `absent` for None."""
    return absent if value is None else short(plain_words(value), most)


def value_words(value: Value | None, most: int = _LONGEST) -> str:
    """Return an attribute value as JSON of limited length, or `nothing` for None."""
    return json_words(None if value is None else plain(value), most, absent="nothing")


def stream_version(version: str) -> dict[str, str] | None:
    """Return the parts of an item's version: the label of its stream, and the sequence number."""
    label, slash, sequence = version.rpartition("/")
    if not slash or not sequence.isdecimal():
        return None
    return {"stream": label, "sequenceNumber": sequence.lstrip("0") or "0"}


def group_version(version: str) -> dict[str, int] | None:
    """Return the parts of a group's version: its generation, and the number of transactions that changed it since."""
    found = _GROUP.fullmatch(version)
    return None if found is None else {"generation": int(found[1]), "changes": int(found[2])}


def version_words(version: str) -> str:
    """Return a version as text. No version is a time: sequence numbers only order, versions of groups only count."""
    if not version:
        return "no version"
    if group := group_version(version):
        again = f" of generation {group['generation']}" if group["generation"] else ""
        return f"change {group['changes']} of its group{again}"
    if stream := stream_version(version):
        if stream["sequenceNumber"] == "0":
            return "a record before these"
        return f"record {stream['sequenceNumber']}"
    return version


def condition_words(condition: Condition | None, schema: Schema) -> str:
    """Return a condition as a sentence after "if", empty for None."""
    return "" if condition is None else _words(condition, schema, False)


def _words(condition: Condition, schema: Schema, inner: bool) -> str:
    if isinstance(condition, AllOf | AnyOf):
        if isinstance(condition, AnyOf) and (guard := _guard(condition)):
            return guard
        parts = [_words(each, schema, True) for each in condition.conditions]
        if not parts:
            return "always" if isinstance(condition, AllOf) else "never"
        text = (", and " if isinstance(condition, AllOf) else " or ").join(parts)
        return f"({text})" if inner and len(parts) > 1 else text
    name = ".".join(condition.path)
    if condition.path in ((schema.partition[0],), ("pk",)):
        return "the item exists" if isinstance(condition, Exists) else "the item does not exist"
    if isinstance(condition, Missing) and schema is LEDGER_SCHEMA and name in _LEDGER:
        return _LEDGER[name]
    if isinstance(condition, Equal) and (read := at_of(condition.value)):
        return f"its guard {name} still shows {version_words(read)}"
    match condition:
        case Exists():
            return f"{name} exists"
        case Missing():
            return f"{name} does not exist"
        case Equal(value=value):
            return f"{name} is {_operand(name, value)}"
        case NotEqual(value=value):
            return f"{name} is not {_operand(name, value)}"
        case Below(value=value):
            return f"{name} is {'before' if _is_version(value) else 'less than'} {_operand(name, value)}"
        case Above(value=value):
            return f"{name} is {'after' if _is_version(value) else 'more than'} {_operand(name, value)}"
    raise TypeError(condition)


_LEDGER = {"recent": "it has no pending publish", "closed": "the group is open"}
"""The meaning of absent attributes of the ledger."""


def _guard(condition: AnyOf) -> str | None:
    """Return the text of the conditions on a guard, see `Guards`, or None for other conditions."""
    first = condition.conditions[0] if condition.conditions else None
    if not isinstance(first, NotEqual) or first.path[1:] != ("d",):
        return None
    older = next((each for each in condition.conditions if isinstance(each, Below)), None)
    if older is None:
        return None
    another = ", another source's" if len(condition.conditions) > 2 else ""
    return f"its guard {first.path[0]} is absent, invalid{another} or older than {_operand('at', older.value)}"


def _is_version(value: Value) -> bool:
    text = value.get("S")
    return isinstance(text, str) and (stream_version(text) is not None or group_version(text) is not None)


def _operand(name: str, value: Value) -> str:
    text = value.get("S")
    if isinstance(text, str):
        if _is_version(value):
            return version_words(text)
        if name.endswith(".by"):
            return encoded_words(text)
        if name == "contributions":
            return "nothing" if text == "{}" else "those of the old image"
    return value_words(value)


def failing(condition: Condition | None, item: Image | None, schema: Schema) -> str:
    """Return the parts of a condition that an item did not meet, with the values that it had."""
    if condition is None or holds(condition, item):
        return ""
    if item is None:  # else the condition would hold
        return "the item does not exist"
    return "; ".join(dict.fromkeys(_failing(condition, item, schema)))


def _failing(condition: Condition, item: Image | None, schema: Schema) -> Iterator[str]:
    if isinstance(condition, AnyOf) and _guard(condition):
        for each in condition.conditions[1:]:  # the first is the digest, which is not printed
            yield from _failing(each, item, schema)
        return
    if isinstance(condition, AllOf):
        for each in condition.conditions:
            if not holds(each, item):
                yield from _failing(each, item, schema)
        return
    if isinstance(condition, AnyOf):
        parts = [part for each in condition.conditions for part in _failing(each, item, schema)]
        other = [part for part in parts if not part.endswith(" exists")]
        yield from other or parts
        return
    name, found = ".".join(condition.path), value_at(item, condition.path)
    if isinstance(condition, Missing):
        yield f"{name} exists"
    elif isinstance(condition, Exists):
        yield f"{name} does not exist"
    else:
        seen = "absent" if found is None else _operand(name, found)
        yield f"{name} is {seen}, not {_wanted(condition, name)}"


def _wanted(condition: Equal | NotEqual | Below | Above, name: str) -> str:
    operand = _operand(name, condition.value)
    match condition:
        case Below():
            return f"before {operand}"
        case Above():
            return f"after {operand}"
        case NotEqual():
            return "anything else"
    return operand
