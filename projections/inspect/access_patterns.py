"""The table of access patterns: for each query of a rule file, its plan and its requests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from projections.access.placeholders import placeholder_reads
from projections.access.reads import Read
from projections.language.access.plan import Plan
from projections.language.access.planner import plan
from projections.language.access.questions import Query
from projections.language.canonical import Document

__all__ = ["AccessPattern", "access_patterns"]

UNANSWERED = ("incomplete", "none")


@dataclass(frozen=True, slots=True)
class AccessPattern:
    """A query with its plan. `reads` has placeholders for the caller's values. `proposal` is YAML for the rule file."""

    query: Query
    plan: Plan
    reads: tuple[Read, ...]
    proposal: str | None = None

    @property
    def answered(self) -> bool:
        """Whether requests return all items of the answer."""
        return self.plan.verdict not in UNANSWERED

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
            "proposal": self.proposal,
            "assumes": list(found.assumes),
            "others": list(found.others),
            "tests": list(found.tests),
        }


def access_patterns(document: Document, queries: Iterable[Query]) -> list[AccessPattern]:
    """Return the access patterns of these queries, in their order."""
    found = []
    for query in queries:
        one = plan(document, query)
        found.append(AccessPattern(query, one, tuple(placeholder_reads(document, one))))
    return found
