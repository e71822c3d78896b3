"""Values of drift as plain JSON with the names of the rule file, instead of the ledger's slots and encodings."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Literal

from projections.engine.guards import Guard
from projections.engine.store import Value
from projections.language.contribution import Contributed
from projections.language.keys import unescape
from projections.language.rules import AggregateRule, Rule
from projections.language.values import decode_order, number_text, plain

INVALID, VALID = "invalid", "valid"
"""Guards of which no field can be compared."""

DAMAGED = "damaged"
"""A value of the ledger that cannot be read."""


def value(wire_value: Value | None) -> object:
    """Return a value as plain JSON, or None."""
    return None if wire_value is None else plain(wire_value)


def both(actual: Value | None, expected: Value | None) -> tuple[object, object]:
    """Return two values that differ as plain JSON that differs: in wire form if only that does, such as NULL and absent."""
    values = value(actual), value(expected)
    return values if json.dumps(values[0]) != json.dumps(values[1]) else (actual, expected)


def guard(held: Value | None, read: Guard | None, field: Literal["at", "by", "n"]) -> object:
    """Return a field of a guard, `INVALID` if the attribute is not a guard of this rule and item, None if it is absent."""
    if read is None:
        return None if held is None else INVALID
    return {field: getattr(read, field)}


def number(amount: Decimal) -> object:
    """Return a number as plain JSON."""
    return plain({"N": number_text(amount)})


def item(image: Mapping[str, Value | None], names: Iterable[str] | None = None) -> dict[str, object]:
    """Return an item, or some of its attributes, without absent ones."""
    chosen = sorted(image if names is None else names)
    return {name: plain(held) for name in chosen if (held := image.get(name)) is not None}


def measure(rule: Rule | None, slot: str) -> str:
    """Return the name of a group's slot."""
    if slot == "n":
        return "contributions"
    if slot.startswith("%|"):
        name, _, order = slot[2:].partition("|")
        return f"{unescape(name)} ({plain(decode_order(order))})"
    name = unescape(slot[1:])
    if slot.startswith("%"):
        return f"{name} (number of different values)"
    if slot.startswith(("#", "+")):
        return f"{name} ({'sum' if slot[0] == '+' else 'number of values'})"
    return name if slot.startswith("=") else members(rule, slot)


def members(rule: Rule | None, slot: str) -> str:
    """Return the name of the members of a slot."""
    name = unescape(slot)
    return name if isinstance(rule, AggregateRule) else {"pick": "members", "claim": "claims"}.get(name, name)


def member(order: str, payload: str) -> object:
    """Return a member: the value that orders it, and a hash of its attributes, if any."""
    held = plain(decode_order(order)) if order else None
    if not payload:
        return held if order else {}
    return {"value": held, "hash": payload} if order else {"hash": payload}


def contribution(rule: Rule | None, contribution: Contributed | None) -> dict[str, Any] | None:
    """Return the contribution of an item to a target. The rule may be unknown."""
    if contribution is None:
        return None
    measures: dict[str, Any] = {}
    for slot, amount in sorted(contribution.items(), key=lambda each: each[0] != "n"):
        if slot == "+":
            for text, payload in sorted(amount.items()):
                name, _, order = text.partition("|")
                measures.setdefault(members(rule, name), []).append(member(order.partition(" ")[0], payload))
        elif slot == "%":
            for text, times in sorted(amount.items()):
                measures[measure(rule, f"%|{text}")] = times
        else:
            measures[measure(rule, slot)] = number(Decimal(amount))
    return measures
