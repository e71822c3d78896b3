"""What the console shows, as its caller reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from projections.inspect.explain.item_facts import ItemExplanation
from projections.inspect.graph.graph_model import Graph
from projections.language.program import Program


@dataclass(frozen=True, slots=True)
class Reads:
    """What an answer took: requests to DynamoDB, and the read units that it reports."""

    requests: int
    units: float


@dataclass(frozen=True, slots=True)
class ExplainedItem:
    """The explanation of an item. `ages` has p50 and p99 of the age of changes in seconds, by rule, as far as known."""

    report: ItemExplanation
    reads: Reads
    ages: Mapping[str, tuple[float, float]] = field(default_factory=dict)


class Source(Protocol):
    """Reads what the pages show. Methods raise ProjectionsError."""

    graph: Graph
    program: Program
    place: str
    """The tables or the stack, for people."""

    def status(self) -> dict[str, Any]:
        """Return the state of rules, backfills and queues as JSON."""

    def item(self, key: str) -> ExplainedItem:
        """Explain an item."""
