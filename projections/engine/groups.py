"""Reading groups: the version first, then totals and members, so that what is read is at least as new as its version.

Also which group refuses a contribution: DynamoDB refuses a whole transaction, in which most items are right, so the values
of each group are compared with the amounts to add.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from typing import NamedTuple, TypeAlias

from projections.engine.changes import WIDE
from projections.engine.ledger_items import (
    COUNT,
    LEDGER,
    SHARD_COUNT,
    Target,
    group_at,
    group_key,
    member_order,
    members_key,
    shared_head,
)
from projections.engine.store import Image, ItemKey, Store, Value, all_items
from projections.engine.value_counters import count_of
from projections.errors import DamagedGroup
from projections.language.keys import escape
from projections.language.program import Program
from projections.language.rules import LedgerRule, Member, MemberQuery, Totals
from projections.language.values import EXACT, number_text, shown

_NONE_DAMAGED: Mapping[str, Value] = {}

_TIED = 100
"""Members read with one request beyond those that a query selects, to put those with hashed keys in order."""


class Group(NamedTuple):
    """A group as read: its totals, and the version of the guard that publishes it."""

    version: int
    at: str
    totals: Totals
    damaged: Mapping[str, Value] = _NONE_DAMAGED
    """Slots, or `version`, with a value that is not a number. They are not in the totals, and nothing is published."""


def spread(program: Program, target: Target) -> int:
    """Return over how many shards the rules spread a group."""
    rule = program.rules.get(target[0])
    return rule.shards_of(target[1]) if isinstance(rule, LedgerRule) else 1


Promotion: TypeAlias = Callable[[str], int]
"""Returns the epoch of the last promotion of a version of a rule, by its name."""


def read_groups(store: Store, targets: Iterable[Target], promotion: Promotion = lambda rule: 0) -> dict[Target, Group]:
    """Return the groups of these targets, with as few requests as possible. A missing group is empty and has version 0."""
    groups: dict[Target, Group] = {}
    keys = {target: group_key(*target) for target in targets}
    items = store.get_many(list(keys.values()))
    for target, key in keys.items():
        item = items.get(key)
        parts: list[Image] = [item] if item is not None else []
        if item is not None and SHARD_COUNT in item:
            parts = parts_of(store, key.partition)
        groups[target] = sum_group(promotion(target[0]), parts)
    return groups


def parts_of(store: Store, partition: str) -> list[Image]:
    """Return the shards of a group."""
    return list(all_items(partial(store.query, LEDGER, [{"S": partition}])))


@lru_cache(maxsize=1024)
def is_amount(name: str) -> bool:
    """Return whether an attribute of a group is one that commits add to."""
    return name in ("version", "n") or name[:1] in ("=", "#", "%", "+")


def sum_group(promotion: int, parts: Iterable[Image]) -> Group:
    """Return the group that its shards make up."""
    version, amounts = 0, dict[str, Decimal]()
    damaged: dict[str, Value] = {}
    for part in parts:
        for name, value in part.items():
            if not is_amount(name):
                continue
            if "N" not in value:
                damaged[name] = value
            elif name == "version":
                version += int(Decimal(value["N"]))
            elif name in amounts:
                amounts[name] = WIDE.add(amounts[name], Decimal(value["N"]))
            else:
                amounts[name] = Decimal(value["N"])
    n = int(amounts.pop("n", 0))
    return Group(version, group_at(promotion, version), Totals(n, amounts), damaged)


def read_members(store: Store, rule: LedgerRule, target: str) -> dict[str, list[Member]]:
    """Return the members that each of a rule's queries selects. Read them after the group."""
    return {query.name: first_members(query, read_first(store, rule, target, query)) for query in rule.member_queries}


def read_first(store: Store, rule: LedgerRule, target: str, query: MemberQuery) -> list[Image]:
    """Return the first items that a query selects, in order.

    If the last one has a hashed key, all that share its head are read, because the hash has no order. The value alone, which
    `min` and `max` show, is the same for all of them.
    """
    items: list[Image] = []
    after: ItemKey | None = None
    head: str | None = None
    read = partial(store.query, LEDGER, [{"S": members_key(rule.name, target)}], prefix=f"{escape(query.slot)}|")
    while True:
        limit = _TIED if head else query.limit - len(items)
        page = read(reverse=query.descending, limit=limit, after=after)
        same = [item for item in page.items if head is None or shared_head(item["sk"]["S"]) == head]
        items = sorted(items + same, key=member_order, reverse=query.descending)[: query.limit]
        after = page.after
        if after is None or len(same) < len(page.items):
            return items
        if head is None and len(items) == query.limit:  # a page has at most 1 MB
            head = shared_head(page.items[-1]["sk"]["S"]) if rule.carries else None
            if head is None:
                return items


def first_members(query: MemberQuery, items: Sequence[Image]) -> list[Member]:
    """Return the members that a query selects, by the first items in its order."""
    if query.counts:  # a damaged counter is not shown; `verify` reports it
        counted = [(item["v"], count_of(item) or 0) for item in items if "v" in item]
        return [Member(value, {COUNT: {"N": str(number)}}, "") for value, number in counted if number > 0]
    null: Value = {"NULL": True}
    return [Member(item.get("v", null), item["a"]["M"] if "a" in item else {}, item["s"]["S"]) for item in items]


_LONGEST_NUMBER = 40
"""Characters: as many as 38 digits take with sign and point."""

_REPAIR = "run `projections verify --repair`, then redrive"


def refusing_group(
    store: Store, program: Program, amounts: Mapping[Target, Mapping[str, Decimal]]
) -> tuple[str, str] | None:
    """Return the first target whose group cannot take these amounts by slot, encoded, and why; None if all can.

    Raise what a read raises.
    """
    keys = {group_key(*target, shard): target for target in amounts for shard in range(spread(program, target))}
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
    if slot == "n":
        return "the number of contributions"
    words = {"#": "the number of values of ", "+": "the sum of "}.get(slot[:1], "")
    return f'{words}"{slot[1:] if words else slot.removeprefix("=")}"'
