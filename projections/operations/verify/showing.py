"""Values of drift as plain JSON with the names of the rule file, instead of the ledger's slots and encodings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from projections.engine.delta import GENERATION, SETTLED
from projections.engine.store import Value
from projections.language.contribution import Contributed
from projections.language.keys import unescape
from projections.language.ordering import decode_order
from projections.language.rules import AggregateRule, Rule
from projections.language.values import number_text, plain

__all__ = ["contributed", "item", "measure", "member", "members", "number", "value"]


def value(one: Value | None) -> object:
    """Return a value as plain JSON, or None."""
    return None if one is None else plain(one)


def number(amount: Decimal) -> object:
    """Return a number as plain JSON."""
    return plain({"N": number_text(amount)})


def item(image: Mapping[str, Value | None], names: Iterable[str] | None = None) -> dict[str, object]:
    """Return an item, or some of its attributes, without absent ones."""
    chosen = sorted(image if names is None else names)
    return {name: plain(held) for name in chosen if (held := image.get(name)) is not None}


def measure(rule: Rule, slot: str) -> str:
    """Return the name of a group's slot."""
    if slot == "n":
        return "contributions"
    if slot.startswith("%|"):
        name, _, order = slot[2:].partition("|")
        return f"{unescape(name)} ({plain(decode_order(order))})"
    name = unescape(slot[1:])
    if slot.startswith("%"):
        return f"{name} (number of different values)"
    if slot.startswith("#"):
        return f"{name} (number of values)"
    return name if slot.startswith("=") else members(rule, slot)


def members(rule: Rule, slot: str) -> str:
    """Return the name of the members of a slot."""
    name = unescape(slot)
    return name if isinstance(rule, AggregateRule) else {"pick": "members", "claim": "claims"}.get(name, name)


def member(order: str, payload: str) -> object:
    """Return a member: the value that orders it, and a hash of its attributes, if any."""
    held = plain(decode_order(order)) if order else None
    if not payload:
        return held
    return {"value": held, "hash": payload} if order else {"hash": payload}


def contributed(rule: Rule, one: Contributed | None) -> object:
    """Return the contributions of an item to a target."""
    if one is None:
        return None
    shown: dict[str, object] = {}
    for slot, amount in one.items():
        if slot == "+":
            for text, payload in sorted(amount.items()):
                name, _, rest = text.partition("|")
                held = shown.setdefault(members(rule, name), [])
                assert isinstance(held, list)
                held.append(member(rest.partition(" ")[0], payload))
        elif slot == "%":
            for text, times in sorted(amount.items()):
                shown[measure(rule, f"%|{text}")] = times
        elif slot not in (SETTLED, GENERATION):
            shown[measure(rule, slot)] = number(Decimal(amount))
    return shown
