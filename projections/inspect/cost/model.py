"""The formulas: what the changes of one batch cost, term by term, and what follows from the tables' own stream.

    entry     2 units for each source item whose contributions change            (a transactional write)
    group     2 units for each target and transaction                            (changes of one target share it)
    member    2 units for each, where a rule needs an order                      (min, max, top, latest, claims)
    publish   1 unit for each different target of the batch, and its indexes
    forget    1 unit for each source item that takes something back
    copy      1 unit, and its indexes          index    1 unit, and the indexes   embed   1 unit per child, and its indexes

A unit is 1 KB of the item begun; an index costs one more where the item enters or leaves it or a projected attribute
changes, two where its key changes. Every write to the application's tables comes back as a record and may cause more.
"""

from __future__ import annotations

from collections.abc import Mapping

from projections.inspect.cost.context import LITTLE, BatchCost, Context, Effects
from projections.inspect.cost.contributions import contribute
from projections.inspect.cost.derivations import copy, heal, healing_calls, index
from projections.inspect.cost.embeds import embed
from projections.inspect.cost.flow import Flow
from projections.inspect.cost.workload import Assumptions
from projections.language.program import Program
from projections.language.rules import CopyRule

__all__ = ["BatchCost", "CostModel"]

MOST_ROUNDS = 30
"""Hops from rule to rule. Rules do not go round in circles; this only ends what would never count for anything."""


class CostModel:
    """The formulas for one program of rules under some assumptions."""

    def __init__(self, program: Program, assumptions: Assumptions) -> None:
        self.context = Context(program, assumptions)

    def batch(self, changes: Mapping[Flow, float]) -> BatchCost:
        """What so many of these changes cost that come in one batch, with all that follows from them."""
        cost = BatchCost()
        flows = {flow: count for flow, count in changes.items() if count > LITTLE}
        for _ in range(MOST_ROUNDS):
            if not flows:
                break
            flows = self._round(flows, cost)
        return cost

    def _round(self, flows: Mapping[Flow, float], cost: BatchCost) -> dict[Flow, float]:
        """A batch of records, in the order of the processor; gives the records of its writes."""
        at = self.context
        effects = {flow: Effects() for flow in flows}
        contribute(at, flows, cost, effects)
        inside: dict[Flow, Flow] = {}
        for flow, count in flows.items():
            for facts in at.from_entity.get(flow.entity, ()):
                if isinstance(facts.rule, CopyRule) and not facts.ledger and facts.writes_targets:
                    copy(at, facts, flow, count, cost, effects[flow])
            inside[flow] = index(at, flow, count, cost, effects[flow])
        following: dict[Flow, float] = {}
        items = groups = 0.0
        for flow, count in flows.items():
            read = heal(at, inside[flow], count, cost, effects[flow])
            items, groups = items + read[0], groups + read[1]
            embed(at, inside[flow], count, cost, effects[flow])
            for made, number in effects[flow].edits.items():
                following[made] = following.get(made, 0.0) + number
        if items > LITTLE:
            cost.terms.append(healing_calls(items, groups))
        return {flow: count for flow, count in following.items() if count > LITTLE}
