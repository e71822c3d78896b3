"""The same without this package: a handler that does one UpdateItem per record, rule and target; and one that also asks
Powertools' idempotency first. Neither counts right: the first counts a retry twice, and neither sees what a stale write
overwrote.

Nothing is put together: ten likes of one post are ten updates of it, and ten of its index keys. So its writes are those of
a rehearsal in which each event comes alone, without what only the ledger needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import fsum

from projections.engine.ledger_items import LEDGER
from projections.engine.plan import plan
from projections.inspect.rehearsal.recorder import DONE, Request, purpose_of
from projections.inspect.rehearsal.rehearse import Batch, Rehearsal
from projections.language.embeds import EmbedRule
from projections.language.program import Program

__all__ = ["ByHand", "by_hand"]

_WRITES = ("publish", "copy", "index", "compute", "embed", "delete")


@dataclass(slots=True)
class ByHand:
    """Sums. `handled` counts the records that some rule concerns."""

    write_units: float = 0.0
    read_units: float = 0.0
    calls: float = 0.0
    handled: float = 0.0
    rules: dict[str, float] = field(default_factory=dict)
    """Write units by rule."""

    def add(self, other: ByHand, times: float) -> None:
        self.write_units += times * other.write_units
        self.read_units += times * other.read_units
        self.calls += times * other.calls
        self.handled += times * other.handled
        for rule, units in other.rules.items():
            self.rules[rule] = self.rules.get(rule, 0.0) + times * units


def by_hand(rehearsal: Rehearsal) -> ByHand:
    """What one handles by hand for the events of a rehearsal, which come one by one."""
    cost = ByHand()
    for batch in rehearsal.batches:
        for (rules, _), units in _updates(batch).items():
            cost.write_units += units
            cost.calls += 1
            for rule in rules:
                cost.rules[rule] = cost.rules.get(rule, 0.0) + units / len(rules)
        _look_up(rehearsal.program, batch, cost)
        for decoded in batch.records:
            made = plan(rehearsal.program, [decoded.record] if decoded.record is not None else [])
            cost.handled += bool(made.changes or made.copies or made.indexes or made.pushes or made.pulled)
    return cost


def _updates(batch: Batch) -> dict[tuple[tuple[str, ...], str], int]:
    """Units of each update, by rules and item, without what is published again on an item that appeared."""
    changed = {target for wave in batch.plan.changes for change in wave for target in change.touched}
    found: dict[tuple[tuple[str, ...], str], int] = {}
    for request in batch.requests:
        for action in request.actions:
            role = purpose_of(action.write)
            healed = {(rule, role.about) for rule in role.rules} & batch.plan.heals.keys() - changed
            if role.kind in _WRITES and action.outcome == DONE and not healed:
                place = (role.rules, role.about)
                found[place] = max(action.units.total, found.get(place, 0))
    return found


def _look_up(program: Program, batch: Batch, cost: ByHand) -> None:
    """A new child reads its parent; a parent that changes finds its children by a query, once."""
    cost.calls += len(batch.plan.pulled) + len(batch.plan.pushes)
    cost.read_units += len(batch.plan.pulled)
    for push in batch.plan.pushes:
        rule = program.rules[push.rule]
        assert isinstance(rule, EmbedRule)
        asked = [request.read_units for request in batch.requests if _finds_children(request)]
        passes = 2 if rule.children.index is not None else 1
        cost.read_units += fsum(asked) / passes / len(batch.plan.pushes)


def _finds_children(request: Request) -> bool:
    return request.operation == "Query" and not any(read.query.startswith(f"{LEDGER} ") for read in request.reads)
