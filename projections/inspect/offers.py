"""What `check` and `queries` offer for queries without an exact answer: a proposal, and what it costs per write."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from projections.errors import ProjectionsError
from projections.inspect.cost.writes import WriteCost, write_cost
from projections.language.access.plan import Plan
from projections.language.access.proposals import Proposal, proposal
from projections.language.access.questions import Query
from projections.language.canonical import Document

__all__ = ["Offer", "offer"]


@dataclass(frozen=True, slots=True)
class Offer:
    """A proposal, and the write units before and after it.

    `cost` is None if the proposal changes no rules, or if no items can be generated for them.
    """

    proposal: Proposal
    cost: WriteCost | None

    def document(self) -> dict[str, Any]:
        """Return the JSON."""
        return {
            "sentence": self.proposal.sentence,
            "yaml": self.proposal.text,
            "writeUnits": None if self.cost is None else self.cost.document(),
        }


def offer(document: Document, query: Query, plan: Plan, others: Collection[Query] | None = None) -> Offer | None:
    """Return what is offered for a query with this plan, as `proposals.proposal` has it."""
    found = proposal(document, query, plan, others)
    if found is None:
        return None
    if found.document == document:
        return Offer(found, None)
    try:
        return Offer(found, write_cost(document, found.document, query.entities[0]))
    except ProjectionsError:
        return Offer(found, None)
