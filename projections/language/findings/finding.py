"""What a finding is: a doubt about rules that make sense, with its place, its reason and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from projections.language.mistakes import Location

__all__ = ["SEVERITIES", "Finding", "Remark", "Severity"]

Severity: TypeAlias = Literal["error", "warning", "note"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""From the gravest on.

- error: the rules cannot be used, or a rule can never do what it says.
- warning: it will go wrong for items or a load that are to be expected.
- note: worth knowing, and often meant so.
"""


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding before it is known on which line it stands. `path`, `offset` and `at_key` are as `Mistake` has them."""

    code: str
    severity: Severity
    path: Location
    reason: str
    instead: str
    offset: int | None = None
    at_key: bool = False

    @property
    def rule(self) -> str | None:
        """The rule it stands in, None if it stands in a table or an entity."""
        return str(self.path[1]) if len(self.path) > 1 and self.path[0] == "projections" else None


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding with its place: line and column count from 1, and are 0 for rules that were built in Python.

    `code` names what was found, as `hot-partition`; a mistake is `mistake`, and its way out is part of the reason.
    """

    severity: Severity
    code: str
    file: str
    line: int
    column: int
    path: str
    rule: str | None
    reason: str
    instead: str

    def __str__(self) -> str:
        way_out = f" → {self.instead}" if self.instead else ""
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.path}: {self.severity} [{self.code}]: {self.reason}{way_out}"
