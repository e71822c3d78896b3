"""Which group refuses a contribution. DynamoDB refuses a whole transaction, in which most items are right.

Nothing is written here: the values of each group are compared with the amounts to add.
"""

from __future__ import annotations

import decimal
from collections.abc import Mapping
from decimal import Decimal

from projections.engine.delta import SETTLED, WIDE
from projections.engine.groups import Generations, spread
from projections.engine.ledger_items import Target, group_key
from projections.engine.store import Image, Store, Value
from projections.errors import DamagedGroup
from projections.language.program import Program
from projections.language.values import EXACT, number_text, shown

__all__ = ["damaged_group", "refusing_group"]

_LONGEST_NUMBER = 40
"""Characters: as many as 38 digits take with sign and point."""

_REPAIR = "run `projections verify --repair`, then redrive"


def refusing_group(
    store: Store, program: Program, amounts: Mapping[Target, Mapping[str, Decimal]], generations: Generations
) -> tuple[str, str] | None:
    """Return the first target whose group cannot take these amounts by slot, encoded, and why; None if all can.

    Raise what a read raises.
    """
    keys = {
        group_key(*target, generations.of(target), shard): target
        for target in amounts
        for shard in range(spread(program, target))
    }
    items = store.get_many(list(keys))
    for key, target in keys.items():
        if reason := _refusal(items.get(key, {}), amounts[target]):
            return target[1], reason
    return None


def _refusal(group: Image, amounts: Mapping[str, Decimal]) -> str | None:
    """Return why an item of a group cannot take amounts."""
    added = {**amounts, "version": Decimal(1)}
    damaged = {slot: group[slot] for slot in added if slot in group and "N" not in group[slot]}
    if damaged:
        return str(damaged_group(damaged))
    for slot, amount in added.items():
        total = Decimal(group[slot]["N"]) if slot in group else Decimal(0)
        try:
            EXACT.plus(WIDE.add(total, amount))
        except decimal.DecimalException:
            return (
                f"{_name(slot)} of the group in the ledger is {_number(total)}. With {_number(amount)} added it would "
                "exceed what DynamoDB stores: 38 significant digits and a magnitude from 1E-130 to 9.99E+125. If the value "
                f"is wrong, {_REPAIR}. If it is right, let the rule add rounded values, or give very large and very small "
                "ones different targets"
            )
    return None


def damaged_group(damaged: Mapping[str, Value]) -> DamagedGroup:
    """Return the error for a group that holds other values than numbers, by slot."""
    slot, value = min(damaged.items())
    return DamagedGroup(
        f"the group in the ledger is damaged: {_name(slot)} is {shown(value)}, not a number, so the rule's values on the "
        f"target are not updated. To correct it, {_REPAIR}"
    )


def _number(number: Decimal) -> str:
    text = number_text(number)
    return text if len(text) <= _LONGEST_NUMBER else f"{number.normalize():E}"


def _name(slot: str) -> str:
    """Return the name of a slot of a group for messages."""
    name = slot.removeprefix(SETTLED)
    if name == "n":
        what = "the number of contributions"
    elif name.startswith("#"):
        what = f'the number of values of "{name[1:]}"'
    else:
        what = f'"{name.removeprefix("=")}"'
    return f"{what} (expired items)" if name != slot else what
