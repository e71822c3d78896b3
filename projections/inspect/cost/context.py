"""What every formula needs: the rules, the assumptions, what a write to an item costs, and a batch to add terms to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from projections.inspect.cost.facts import RuleFacts, index_keys, key_bytes, rule_facts
from projections.inspect.cost.figures import ATTRIBUTE_BYTES, ENTRY_BYTES
from projections.inspect.cost.flow import REMOVE, Flow
from projections.inspect.cost.packing import Pieces
from projections.inspect.cost.terms import Term
from projections.inspect.cost.workload import Assumptions
from projections.language.program import Program
from projections.language.rules import CopyRule, IndexRule
from projections.stores.capacity import read_units, write_units

__all__ = ["LITTLE", "BatchCost", "Context", "Effects"]

LITTLE = 1e-9


@dataclass
class BatchCost:
    """One batch: its terms, the records that its writes bring about, and what decides how long it takes.

    `records` counts the writes to the application's tables, `row` the transactions that must follow one another,
    `actions` those of all transactions, `tasks` the pages of pushes that go to the worker.
    """

    terms: list[Term] = field(default_factory=list)
    records: float = 0.0
    row: float = 0.0
    transactions: float = 0.0
    actions: float = 0.0
    tasks: float = 0.0
    entry_bytes: float = 0.0
    """Of the largest kind of ledger entry that it writes."""
    pieces: dict[str, float] = field(default_factory=dict)
    """Contributions that changed, by rule."""


@dataclass
class Effects:
    """What one flow does to items of one entity, put together: one record of each item will show it all."""

    edits: dict[Flow, float] = field(default_factory=dict)

    def add(self, flow: Flow, count: float) -> None:
        """Edits of the same items are one change of all their attributes."""
        for known, number in list(self.edits.items()):
            alike = replace(known, attributes=None, by=()) == replace(flow, attributes=None, by=())
            if alike and flow.kind != REMOVE and math.isclose(number, count):
                del self.edits[known]
                both = (known.attributes or frozenset()) | (flow.attributes or frozenset())
                flow = replace(flow, attributes=both or None, by=known.by + flow.by)
        self.edits[flow] = self.edits.get(flow, 0.0) + count


class Context:
    """A program of rules under some assumptions: the numbers that no batch changes."""

    def __init__(self, program: Program, assumptions: Assumptions) -> None:
        self.program = program
        self.assumed = assumptions
        self.facts = rule_facts(program)
        self.from_entity: dict[str, list[RuleFacts]] = {}
        self.into_entity: dict[str, list[RuleFacts]] = {}
        for facts in self.facts.values():
            self.from_entity.setdefault(facts.rule.source.name, []).append(facts)
            self.into_entity.setdefault(facts.into, []).append(facts)

    def settled(self, entity: str) -> Mapping[str, float]:
        """The indexes an item is in once everything is on it, with the share of items that are."""
        found: dict[str, float] = dict(self.kept_by_application(entity))
        for facts in self.from_entity.get(entity, ()):
            if isinstance(facts.rule, IndexRule) and facts.writes_targets:
                for case in index_keys(self.program, facts):
                    found[case.index] = max(found.get(case.index, 0.0), self.assumed.share(facts.name))
        return found

    def kept_by_application(self, entity: str) -> Mapping[str, float]:
        """The indexes that an item is in from the beginning: the application or its copy keeps the keys."""
        document = self.program.document["entities"][entity]
        kept = set(document["index_key"])
        for facts in self.into_entity.get(entity, ()):
            if isinstance(facts.rule, CopyRule):
                kept |= facts.writes
        for facts in self.from_entity.get(entity, ()):
            if isinstance(facts.rule, IndexRule):
                kept -= facts.writes
        schema = self.program.tables[document["table"]]
        return {
            index: 1.0
            for index, (partition, sort) in schema.indexes.items()
            if any(name in kept for name, _ in (*partition, *sort))
        }

    def index_units(
        self, entity: str, inside: Mapping[str, float], changed: frozenset[str], moved: Sequence[str] = ()
    ) -> float:
        """Units of the indexes for one write: one where a projected attribute changes, two where the key does."""
        units = 0.0
        for index, share in inside.items():
            projected = self.assumed.projections.get(index)
            size = write_units(round(self.assumed.bytes_of(entity))) if projected is None else 1
            if index in moved:
                units += share * 2 * size
            elif projected is None or projected & changed:
                units += share * size
        return units

    def written(
        self,
        cost: BatchCost,
        rule: str,
        what: str,
        entity: str,
        count: float,
        inside: Mapping[str, float],
        changed: frozenset[str],
        why: str,
        *,
        calls: bool = True,
    ) -> None:
        """Writes to items of an entity; `calls`: each is a call of its own."""
        table = write_units(round(self.assumed.bytes_of(entity)))
        indexes = self.index_units(entity, inside, changed)
        said = f"{why}; {table} for the item" + (f", {indexes:.4g} for its indexes" if indexes else "")
        cost.terms.append(Term((rule,), what, count, said, write_units=table + indexes, calls=float(calls)))
        cost.records += count

    def deleted(self, cost: BatchCost, rule: str, entity: str, count: float, why: str) -> None:
        table = write_units(round(self.assumed.bytes_of(entity)))
        indexes = sum(
            share * (table if self.assumed.projections.get(index) is None else 1)
            for index, share in self.settled(entity).items()
        )
        looks = "the item is read before it is deleted: it may have attributes of the application"
        cost.terms.append(Term((rule,), "look", count, looks, read_units=self.read(entity), calls=1))
        cost.terms.append(Term((rule,), "delete", count, why, write_units=table + indexes, calls=1))
        cost.records += count

    def read(self, entity: str) -> float:
        return read_units(round(self.assumed.bytes_of(entity)))

    def different(self, facts: RuleFacts) -> int | None:
        """How many different targets a batch has under a rule; None where each change has its own."""
        assumed = self.assumed.targets_of(facts.name)
        if facts.fixed_targets is not None:
            assumed = min(assumed or math.inf, facts.fixed_targets)
        return max(1, round(assumed)) if assumed is not None else None

    def entry_bytes(self, entity: str, pieces: Sequence[Pieces]) -> int:
        """About how large the entry of a source is: twice its key, and what it contributes."""
        size = ENTRY_BYTES + 2 * key_bytes(self.program, entity)
        for one in pieces:
            target = key_bytes(self.program, self.facts[one.rule].into)
            size += len(one.rule) + one.targets * (target + 30 + 40 * one.puts)
        return size

    def member_bytes(self, facts: RuleFacts) -> float:
        if isinstance(facts.rule, CopyRule) and facts.everything:
            return self.assumed.bytes_of(facts.rule.source.name)
        source, target = key_bytes(self.program, facts.rule.source.name), key_bytes(self.program, facts.into)
        return 2 * source + target + ATTRIBUTE_BYTES + facts.member_bytes
