"""The table of access patterns: for each query of a rule file, its plan, its requests, and what is offered to answer it;
for each rule of the kind `rank`, what it answers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from projections.access.placeholders import placeholder_reads, request_count
from projections.access.query_reads import Read
from projections.language.access.additions import looks_like_time
from projections.language.access.board_listing import board_listing
from projections.language.access.plan import Plan, Query, Verdict
from projections.language.access.planner import plan
from projections.language.access.proposals import Proposal, proposal
from projections.language.facts import entity_key
from projections.language.models import Rank, Rules
from projections.language.spelling import expression_text
from projections.language.syntax import an

WORDS: Mapping[Verdict, str] = {
    "one": "one request",
    "several": "several requests",
    "filtered": "with a filter",
    "incomplete": "incomplete",
    "none": "no request",
}
"""Verdicts in words."""


class AccessPattern(NamedTuple):
    """A query with its plan, and what is offered to answer it exactly, if anything is known.

    `reads` has placeholders for the caller's values.
    """

    query: Query
    plan: Plan
    reads: tuple[Read, ...]
    proposal: Proposal | None = None

    @property
    def answered(self) -> bool:
        """Whether requests return all items of the answer."""
        return self.plan.verdict not in ("incomplete", "none")

    @property
    def words(self) -> str:
        """The verdict in words. An attribute of an unknown type sorts as text: 10 before 9, if it is a number."""
        asked = self.plan.asked
        names = [name for name in (asked.ordered_by, asked.range) if name and not looks_like_time(name)]
        as_text = any(f"{name} is text" in self.plan.assumes for name in names)
        return WORDS[self.plan.verdict] + ", sorted as text" * as_text

    def document(self) -> dict[str, Any]:
        """Return the pattern as plain JSON; `requests` are parameters of boto3's `query` or `get_item`."""
        plan = self.plan
        return {
            "name": self.query.name,
            "id": self.query.id,
            "about": self.query.about,
            "verdict": plan.verdict,
            "path": plan.path or None,
            "requests": [
                read.request(f"{{table {read.table}}}", None if read.get else self.query.limit) for read in self.reads
            ],
            "reason": plan.reason,
            "proposal": self.proposal and self.proposal.text,
            "assumes": list(plan.assumes),
            "others": list(plan.others),
            "tests": list(plan.tests),
        }


def access_patterns(rules: Rules, queries: Mapping[str, Query], only: str | None = None) -> list[AccessPattern]:
    """Return the access patterns of the queries of a rule file, in their order, or only that of one."""
    patterns = []
    for query in queries.values() if only is None else [queries[only]]:
        planned = plan(rules, query)
        others = [other for name, other in queries.items() if name != query.name]
        better = proposal(rules, query, planned, others)
        patterns.append(AccessPattern(query, planned, tuple(placeholder_reads(planned)), better))
    return patterns


class RankPattern(NamedTuple):
    """The ranks of a rule. `key` is that of a board, `inputs` are its variables.

    A rank, a percentile or a count takes one request, which reads `items`. A score at a position takes `requests`.
    `positions` has the query that lists a board, its path, all requests of a page, and the read units of the ledger.
    `sums` has what is added up between two scores, the requests, and the most read units.
    """

    rule: str
    about: str | None
    board: str
    key: str
    inputs: tuple[str, ...]
    by: str
    items: int
    requests: int
    positions: Mapping[str, Any] | None = None
    sums: Mapping[str, Any] | None = None

    @property
    def question(self) -> str:
        """The question in words: the description of the rule, if it has one."""
        return self.about or f"The rank of a score ({self.by}) on {an(self.board)}"


def rank_patterns(rules: Rules, queries: Mapping[str, Query]) -> Iterator[RankPattern]:
    """Yield the access pattern of each rule of the kind `rank`, in the order of the file."""
    for name, rule in rules.projections.items():
        rank = rule.action
        if isinstance(rank, Rank):
            board, by = rules.entities[rule.into], expression_text(rank.by)
            shown, items, levels = entity_key(rules, rule.into), rank.items_of_rank, rank.scale.levels
            listing, positions = board_listing(rules, name, queries), None
            if listing is not None:
                units = levels + items - 1  # each request of the ledger reads the registry and one group
                place = listing.query.name, listing.plan.path, levels + request_count(listing.plan), units
                positions = dict(zip(("query", "path", "requests", "readUnits"), place, strict=True))
            pattern = RankPattern(
                name, rule.description, rule.into, shown, board.variables, by, items, levels, positions
            )
            if rank.sum is not None:
                amount, units = expression_text(rank.sum), 2 * items - 1 - rank.shards  # registry and first group once
                pattern = pattern._replace(sums={"sum": amount, "requests": 1, "readUnits": units})
            yield pattern
