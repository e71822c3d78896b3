"""Terms: each number of an estimate is a sum of these, and each says what it counts and why."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Sum", "Term", "totals"]


@dataclass(frozen=True, slots=True)
class Term:
    """`count` times per batch, so many units and calls each time, for these rules, for this reason.

    Where several rules share a cost (the ledger entry of a source), each bears an equal part.
    """

    rules: tuple[str, ...]
    what: str
    count: float
    why: str
    write_units: float = 0.0
    read_units: float = 0.0
    calls: float = 0.0

    def document(self, events: float) -> dict[str, Any]:
        """Per event of the application."""
        return {
            "rules": list(self.rules),
            "what": self.what,
            "count": self.count / events,
            "writeUnits": self.write_units,
            "readUnits": self.read_units,
            "calls": self.calls,
            "why": self.why,
        }


@dataclass(slots=True)
class Sum:
    """What terms come to."""

    write_units: float = 0.0
    read_units: float = 0.0
    calls: float = 0.0

    def add(self, term: Term, share: float = 1.0) -> None:
        self.write_units += share * term.count * term.write_units
        self.read_units += share * term.count * term.read_units
        self.calls += share * term.count * term.calls

    def document(self, events: float) -> dict[str, float]:
        return {
            "writeUnits": self.write_units / events,
            "readUnits": self.read_units / events,
            "calls": self.calls / events,
        }


@dataclass(slots=True)
class Totals:
    """Of all terms, and of each rule's part; what no rule is responsible for stands under ""."""

    all: Sum = field(default_factory=Sum)
    rules: dict[str, Sum] = field(default_factory=dict)


def totals(terms: Iterable[Term]) -> Totals:
    found = Totals()
    for term in terms:
        found.all.add(term)
        for rule in term.rules or ("",):
            found.rules.setdefault(rule, Sum()).add(term, 1 / max(1, len(term.rules)))
    return found
