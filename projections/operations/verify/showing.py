"""What drift shows: plain JSON in the words of the rule file, instead of the ledger's slots and encodings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal

from projections.engine.delta import GENERATION, SETTLED
from projections.engine.store import Value
from projections.language.contribution import Contributed
from projections.language.ordering import decode_order
from projections.language.rules import AggregateRule, Rule
from projections.language.values import number_text, plain

__all__ = ["contributed", "item", "measure", "member", "number", "value"]


def value(one: Value | None) -> object:
    """A value; None where there is none."""
    return None if one is None else plain(one)


def number(amount: Decimal) -> object:
    """A number, as a program reads it."""
    return plain({"N": number_text(amount)})


def item(image: Mapping[str, Value | None], names: Iterable[str] | None = None) -> dict[str, object]:
    """An item, or some of its attributes, without those that are absent."""
    chosen = sorted(image if names is None else names)
    return {name: plain(held) for name in chosen if (held := image.get(name)) is not None}


def measure(rule: Rule, slot: str) -> str:
    """What a slot of a group holds."""
    if slot == "n":
        return "contributions"
    name = slot.lstrip("=#")
    if slot.startswith("#"):
        return f"{name} (number of values)"
    if isinstance(rule, AggregateRule) or slot.startswith("="):
        return name
    return {"pick": "members", "claim": "claims"}.get(name, name)


def member(order: str, payload: str) -> object:
    """A member: the value it is ordered by, with a hash of the attributes it carries, if any."""
    held = plain(decode_order(order)) if order else None
    if not payload:
        return held
    return {"value": held, "hash": payload} if order else {"hash": payload}


def contributed(rule: Rule, one: Contributed | None) -> object:
    """What an item contributes to a target."""
    if one is None:
        return None
    shown: dict[str, object] = {}
    for slot, amount in one.items():
        if slot == "+":
            for text, payload in sorted(amount.items()):
                name, _, rest = text.partition("|")
                held = shown.setdefault(measure(rule, name), [])
                assert isinstance(held, list)
                held.append(member(rest.partition(" ")[0], payload))
        elif slot not in (SETTLED, GENERATION):
            shown[measure(rule, slot)] = number(Decimal(amount))
    return shown
