"""The table of access patterns: for each query of a rule file, its plan, its requests, and what is offered to answer it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from projections.access.placeholders import placeholder_reads
from projections.access.reads import Read
from projections.errors import ProjectionsError
from projections.inspect.cost.writes import Change, WriteCost, write_cost
from projections.language.access.additions import looks_like_time
from projections.language.access.plan import Plan, Query, Verdict
from projections.language.access.planner import plan
from projections.language.access.proposals import Proposal, proposal
from projections.language.canonical import Document

__all__ = ["WORDS", "AccessPattern", "Offer", "access_patterns", "offer"]

WORDS: Mapping[Verdict, str] = {
    "one": "one request",
    "several": "several requests",
    "filtered": "with a filter",
    "incomplete": "incomplete",
    "none": "no request",
}
"""Verdicts in words."""

UNANSWERED = ("incomplete", "none")


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
            "unused": self.proposal.unused or None,
            "writeUnits": None if self.cost is None else self.cost.document(),
        }


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """A query with its plan, and what is offered to answer it exactly, if anything is known.

    `reads` has placeholders for the caller's values.
    """

    query: Query
    plan: Plan
    reads: tuple[Read, ...]
    offer: Offer | None = None

    @property
    def proposal(self) -> Proposal | None:
        """The addition that is offered."""
        return None if self.offer is None else self.offer.proposal

    @property
    def answered(self) -> bool:
        """Whether requests return all items of the answer."""
        return self.plan.verdict not in UNANSWERED

    @property
    def words(self) -> str:
        """The verdict in words. An attribute of an unknown type sorts as text: 10 before 9, if it is a number."""
        asked = self.plan.asked
        names = [name for name in (asked.ordered_by, asked.range) if name and not looks_like_time(name)]
        as_text = any(f"{name} is text" in self.plan.assumes for name in names)
        return WORDS[self.plan.verdict] + ", sorted as text" * as_text

    def document(self) -> dict[str, Any]:
        """Return the pattern as plain JSON; `requests` are parameters of boto3's `query` or `get_item`."""
        found = self.plan
        return {
            "name": self.query.name,
            "id": self.query.id,
            "about": self.query.about,
            "verdict": found.verdict,
            "path": found.path or None,
            "requests": [
                read.request(f"{{table {read.table}}}", None if read.get else self.query.limit) for read in self.reads
            ],
            "reason": found.reason,
            "proposal": self.offer and self.offer.proposal.text,
            "writeUnits": self.offer and self.offer.document()["writeUnits"],
            "assumes": list(found.assumes),
            "others": list(found.others),
            "tests": list(found.tests),
        }


def access_patterns(document: Document, queries: Mapping[str, Query], only: str | None = None) -> list[AccessPattern]:
    """Return the access patterns of the queries of a rule file, in their order, or only that of one."""
    found = []
    costs: dict[str, tuple[Change, Change]] = {}
    for query in queries.values() if only is None else [queries[only]]:
        one = plan(document, query)
        others = [other for name, other in queries.items() if name != query.name]
        better = offer(document, query, one, others, costs)
        found.append(AccessPattern(query, one, tuple(placeholder_reads(document, one)), better))
    return found


def offer(
    document: Document,
    query: Query,
    plan: Plan,
    others: Collection[Query],
    costs: dict[str, tuple[Change, Change]] | None = None,
) -> Offer | None:
    """Return what is offered for a query with this plan, as `proposal` has it.

    `costs` keeps the write units under the rules as they are, for further queries.
    """
    found = proposal(document, query, plan, others)
    if found is None:
        return None
    try:
        cost = None if found.document == document else write_cost(document, found.document, query.entities[0], costs)
    except ProjectionsError:
        cost = None
    return Offer(found, cost)
