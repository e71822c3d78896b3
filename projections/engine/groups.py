"""Reading groups: the version first, then totals and members, so that what is read is at least as new as its version.

Also which group refuses a contribution: DynamoDB refuses a whole transaction, in which most items are right, so the values
of each group are compared with the amounts to add.
"""

from __future__ import annotations

import decimal
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import NamedTuple

from projections.engine.changes import GENERATION, SETTLED, WIDE, generation_of
from projections.engine.ledger_items import (
    CLOSED,
    COUNT,
    LEDGER,
    REBUILDING,
    SHARD_COUNT,
    Target,
    group_at,
    group_key,
    member_order,
    members_key,
    shared_head,
)
from projections.engine.store import Image, ItemKey, Store, Value, all_items
from projections.engine.value_counters import ValueCounters, count_of
from projections.errors import DamagedGroup
from projections.language.contribution import Contributions
from projections.language.keys import escape
from projections.language.program import Program
from projections.language.rules import LedgerRule, Member, MemberQuery, Totals
from projections.language.values import EXACT, number_text, shown

_NONE_DAMAGED: Mapping[str, Value] = {}

EXTREMES = ("least", "greatest")

_TIED = 100
"""Members read with one request beyond those that a query selects, to put those with hashed keys in order."""


class Generations:
    """The open generation of each group, as far as this process has read; 0 unless a rebuild closed it.

    A process may outlive its ledger: a ledger that was restored from a backup lacks the generations of later rebuilds. A
    generation that the ledger lacks is not used again, unless a closed group names it.
    """

    def __init__(self, known: Mapping[Target, int] | None = None, counters: ValueCounters | None = None) -> None:
        self._open: dict[Target, int] = dict(known or {})
        self._missing: dict[Target, int] = {}
        self.counters = counters or ValueCounters()
        """What this process saw of value counters."""

    def as_now(self) -> Generations:
        """Return a copy that does not change when other threads learn generations."""
        return Generations(self._open, self.counters)

    def of(self, target: Target) -> int:
        return self._open.get(target, 0)

    def close(self, target: Target, generation: int, group: Image) -> int:
        """Record that a group is closed. Return the generation that replaces it."""
        following = successor(generation, group)
        self.exists(target, following)
        return following

    def exists(self, target: Target, generation: int) -> None:
        """Record that the ledger has this generation."""
        if generation <= self._missing.get(target, 0):
            self._missing.pop(target, None)
        self.at_least(target, generation)

    def missing(self, target: Target, generation: int) -> None:
        """Record that the ledger lacks this generation: forget it and all before it."""
        self._missing[target] = max(generation, self._missing.get(target, 0))
        if self.of(target) <= generation:
            self._open.pop(target, None)

    def at_least(self, target: Target, generation: int) -> None:
        """Record a generation that an entry or a note names."""
        if generation > max(self.of(target), self._missing.get(target, 0)):
            self._open[target] = generation

    def learn(self, contributions: Contributions) -> None:
        """Record the generations in which an entry is counted."""
        for rule, targets in contributions.items():
            for target, contributed in targets.items():
                if GENERATION in contributed:
                    self.at_least((rule, target), generation_of(contributed))

    def stamp(self, contributions: Contributions) -> Contributions:
        """Return contributions with the generation in which they are counted, unless it is the first."""
        if not self._open:
            return contributions
        return {
            rule: {
                target: {**contributed, GENERATION: generation}
                if (generation := self.of((rule, target)))
                else contributed
                for target, contributed in targets.items()
            }
            for rule, targets in contributions.items()
        }


class Group(NamedTuple):
    """A group as read: its totals, and the version of the guard that publishes it."""

    generation: int
    at: str
    totals: Totals
    settled: Mapping[tuple[str, str], Member]
    """The least and the greatest settled value, by slot and which of the two it is."""
    live: Mapping[str, Decimal]
    """The part of the totals that entries account for, `n` among them; the rest has settled."""
    rebuilding: bool = False
    """Whether not all contributions are counted yet: nothing is published."""
    damaged: Mapping[str, Value] = _NONE_DAMAGED
    """Slots, or `version`, with a value that is not a number. They are not in the totals, and nothing is published."""

    @property
    def withheld(self) -> bool:
        """Whether the totals may be incomplete, so that nothing may be concluded from them."""
        return self.rebuilding or bool(self.damaged)


def extreme_sort(generation: int, slot: str, which: str) -> str:
    """Return the sort key of the item with the least or greatest settled value of a slot."""
    return f"{generation:04d}|{which} {escape(slot)}"


def spread(program: Program, target: Target) -> int:
    """Return over how many shards the rules spread a group."""
    rule = program.rules.get(target[0])
    return rule.shards_of(target[1]) if isinstance(rule, LedgerRule) else 1


def successor(generation: int, group: Image) -> int:
    """Return the generation that replaces a closed one: always a later one, even if the group is damaged."""
    return max(int(Decimal(group[CLOSED]["N"])), generation + 1)


def read_groups(store: Store, targets: Iterable[Target], generations: Generations) -> dict[Target, Group]:
    """Return the groups of these targets, with as few requests as possible. A missing group is empty and has version 0."""
    groups: dict[Target, Group] = {}
    wanted = list(targets)
    named: set[Target] = set()
    while wanted:
        open_now = {target: generations.of(target) for target in wanted}  # other threads may learn more meanwhile
        keys = {target: group_key(*target, generation) for target, generation in open_now.items()}
        items = store.get_many(list(keys.values()))
        again: list[Target] = []
        for target, key in keys.items():
            item = items.get(key)
            if item is not None and CLOSED in item:
                generations.close(target, open_now[target], item)
                named.add(target)
                again.append(target)
                continue
            # The ledger has lost a generation without an item. The first has no item until a commit.
            if item is None and target not in named and open_now[target] > 0:
                generations.missing(target, open_now[target])
                again.append(target)
                continue
            parts: list[Image] = [item] if item is not None else []
            if item is not None and (SHARD_COUNT in item or "extremes" in item):
                parts = parts_of(store, key.partition, open_now[target])
            groups[target] = sum_group(open_now[target], parts)
        wanted = again
    return groups


def parts_of(store: Store, partition: str, generation: int | None = None) -> list[Image]:
    """Return the items of one generation of a group, or of all: its shards, and the extremes of settled values."""
    prefix = f"{generation:04d}|" if generation is not None else None
    return list(all_items(partial(store.query, LEDGER, [{"S": partition}], prefix=prefix)))


def is_amount(name: str) -> bool:
    """Return whether an attribute of a group is one that commits add to."""
    slot = name.removeprefix(SETTLED)
    return name == "version" or slot == "n" or slot[:1] in ("=", "#", "%")


def sum_group(generation: int, parts: Iterable[Image]) -> Group:
    """Return the group that the items of one generation make up."""
    version, amounts, live, rebuilding = 0, dict[str, Decimal](), dict[str, Decimal](), False
    settled: dict[tuple[str, str], Member] = {}
    damaged: dict[str, Value] = {}
    for part in parts:
        if "order" in part:
            settled[part["slot"]["S"], part["which"]["S"]] = Member(part["v"], {}, part["order"]["S"])
            continue
        rebuilding = rebuilding or REBUILDING in part
        for name, value in part.items():
            if not is_amount(name):
                continue
            slot = name.removeprefix(SETTLED)
            if "N" not in value:
                damaged[name] = value
            elif name == "version":
                version += int(Decimal(value["N"]))
            else:
                amount = Decimal(value["N"])
                amounts[slot] = WIDE.add(amounts.get(slot, Decimal(0)), amount)
                if slot == name:
                    live[slot] = WIDE.add(live.get(slot, Decimal(0)), amount)
    n = int(amounts.pop("n", 0))
    return Group(generation, group_at(generation, version), Totals(n, amounts), settled, live, rebuilding, damaged)


def read_members(store: Store, rule: LedgerRule, target: str, group: Group) -> dict[str, list[Member]]:
    """Return the members that each of a rule's queries selects. Read them after the group."""
    return {
        query.name: first_members(query, read_first(store, rule, target, group, query), group)
        for query in rule.member_queries
    }


def read_first(store: Store, rule: LedgerRule, target: str, group: Group, query: MemberQuery) -> list[Image]:
    """Return the first items that a query selects, in order.

    If the last one has a hashed key, all that share its head are read, because the hash has no order. The value alone, which
    `min` and `max` show, is the same for all of them.
    """
    items: list[Image] = []
    after: ItemKey | None = None
    head: str | None = None
    while True:
        page = store.query(
            LEDGER,
            [{"S": members_key(rule.name, target)}],
            prefix=f"{group.generation:04d}|{escape(query.slot)}|",
            reverse=query.descending,
            limit=_TIED if head else query.limit - len(items),
            after=after,
        )
        same = [item for item in page.items if head is None or shared_head(item["sk"]["S"]) == head]
        items = sorted(items + same, key=member_order, reverse=query.descending)[: query.limit]
        after = page.after
        if after is None or len(same) < len(page.items):
            return items
        if head is None and len(items) == query.limit:  # a page has at most 1 MB
            head = shared_head(page.items[-1]["sk"]["S"]) if rule.carries else None
            if head is None:
                return items


def first_members(query: MemberQuery, items: Sequence[Image], group: Group) -> list[Member]:
    """Return the members that a query selects, by the first items in its order; a settled value may come before them."""
    if query.counts:  # a damaged counter is not shown; `verify` reports it
        counted = [(item["v"], count_of(item) or 0) for item in items if "v" in item]
        return [Member(value, {COUNT: {"N": str(number)}}, "") for value, number in counted if number > 0]
    members = [
        Member(item.get("v", {"NULL": True}), item["a"]["M"] if "a" in item else {}, item["s"]["S"]) for item in items
    ]
    which = EXTREMES[query.descending]
    extreme = group.settled.get((query.slot, which))
    if extreme is None:
        return members
    if not members:
        return [extreme]
    order = items[0]["o"]["S"]
    older = extreme.source > order if query.descending else extreme.source < order
    return [extreme] if older else members


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
