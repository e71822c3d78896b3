"""Reads as steps: a protocol yields which items it needs next, and whoever drives it makes the requests.

So the order of reads is in one place, and a simulation can change the tables between any two of them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from decimal import Decimal
from typing import NamedTuple, TypeAlias, TypeVar

from projections.engine.groups import Group, successor, summed
from projections.engine.ledger_items import CLOSED, SHARD_COUNT, Target, group_key
from projections.engine.store import Image, ItemKey
from projections.errors import Transient
from projections.language.program import Program
from projections.language.rules import LedgerRule

__all__ = ["MOST_TOGETHER", "GroupReads", "Needed", "Steps", "again"]

T = TypeVar("T")

MOST_TOGETHER = 100
"""The most items that one TransactGetItems reads."""

_MOST_TRIES = 5


class Needed(NamedTuple):
    """Items to read: `together` as they are at one moment, else in any number of strongly consistent requests."""

    keys: Sequence[ItemKey]
    together: bool = False


Steps: TypeAlias = Generator[Needed, Mapping[ItemKey, Image], T]


class GroupReads:
    """The keys of groups, until a read has shown all their shards in their open generations."""

    def __init__(self, program: Program, targets: Sequence[Target]) -> None:
        self._generations = dict.fromkeys(targets, 0)
        self._shards = {
            (name, target): rule.shards_of(target)
            for name, target in targets
            if isinstance(rule := program.rules[name], LedgerRule)
        }

    def keys(self) -> list[ItemKey]:
        return [key for target in self._generations for key in self._of(target)]

    def _of(self, target: Target) -> list[ItemKey]:
        return [group_key(*target, self._generations[target], shard) for shard in range(self._shards[target])]

    def complete(self, items: Mapping[ItemKey, Image]) -> bool:
        """Return whether these items have all groups as a whole. If not, `keys` has more, or others."""
        whole = True
        for target, generation in self._generations.items():
            first = items.get(group_key(*target, generation))
            if first is None:
                continue
            if CLOSED in first:
                self._generations[target] = successor(generation, first)
                whole = False
            shards = int(Decimal(first[SHARD_COUNT]["N"])) if SHARD_COUNT in first else 1
            if shards > self._shards[target]:
                self._shards[target] = shards
                whole = False
        return whole

    def groups(self, items: Mapping[ItemKey, Image]) -> dict[Target, Group]:
        return {
            target: summed(generation, [items[key] for key in self._of(target) if key in items])
            for target, generation in self._generations.items()
        }


def again(reads: GroupReads, more: Sequence[ItemKey], *, together: bool) -> Steps[Mapping[ItemKey, Image]]:
    """Read groups and `more` until the groups are whole. All that is returned is of the last read. Raises Transient."""
    for _ in range(_MOST_TRIES):
        items = yield Needed([*more, *reads.keys()], together)
        if reads.complete(items):
            return items
    raise Transient("the groups of an item kept being rebuilt while they were read")
