"""The most that one write of an item can cost under each rule: what its limits allow a user who chooses every attribute."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from projections.engine.attempts import MOST_ACTIONS
from projections.language.contribution import ENTRY_BYTES, MEMBER_BYTES
from projections.language.embeds import MOST_REFERENCES, EmbedRule, ListEmbedRule
from projections.language.program import Program
from projections.language.rules import LIST_BYTES, AggregateRule, IndexRule, ItemRule, LedgerRule, PickRule, Rule

__all__ = ["Worst", "worst_writes"]

ITEM_UNITS = 400
"""Write units of the largest item."""


class Worst(NamedTuple):
    """Write units of one write under one rule: `units`, and `per_child` for each child of a parent."""

    units: int
    per_child: int = 0

    @property
    def document(self) -> dict[str, int]:
        return {"writeUnits": self.units, "writeUnitsPerChild": self.per_child}


def worst_writes(program: Program) -> Mapping[str, Worst]:
    """Return the most write units of one write by rule. Targets have at most 1 KB beside what the rule writes."""
    found: dict[str, Worst] = {}
    for rule in program.variants:
        one = _worst(program, rule)
        known = found.get(rule.name, Worst(0))
        found[rule.name] = Worst(max(one.units, known.units), max(one.per_child, known.per_child))
    return found


def _worst(program: Program, rule: Rule) -> Worst:
    if isinstance(rule, ListEmbedRule):
        return Worst(2 * MOST_REFERENCES + _units(LIST_BYTES), _units(LIST_BYTES))
    if isinstance(rule, EmbedRule):
        return Worst(0, ITEM_UNITS)
    if isinstance(rule, ItemRule):
        indexes = max(map(len, rule.indexes), default=0) if isinstance(rule, IndexRule) else 0
        return Worst(ITEM_UNITS * (1 + 2 * indexes))
    changed = 2 * (rule.each.most if rule.each is not None else 1)  # all elements are replaced by others
    if not isinstance(rule, LedgerRule):
        return Worst(changed * ITEM_UNITS)
    typed = program.typed.rules[rule.name]
    counters = len(rule.value_slots) if isinstance(rule, AggregateRule) else 0
    member = _units(MEMBER_BYTES) if rule.carries else 1
    listed = isinstance(rule, PickRule) and rule.list_name is not None
    published = _units(LIST_BYTES) if listed else member
    entry = _units(2 * ENTRY_BYTES) if rule.each is not None else _units(2 * rule.most_of_one)
    steps = 1 + changed * (1 + typed.members + counters) // MOST_ACTIONS
    ledger = 2 * (steps * entry + changed * (1 + typed.members * member + counters))
    return Worst(ledger + (changed * published * (2 if rule.creates else 1) if rule.writes_items else 0))


def _units(size: int) -> int:
    return -(-size // 1024)
