"""Findings: each has a place in the rule file, a reason and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import indent

from projections.language.findings.kinds import Kind, Severity
from projections.language.mistakes import Location

__all__ = ["Finding", "Remark"]


@dataclass(frozen=True, slots=True)
class Remark:
    """A finding before its line is known. `path`, `offset` and `at_key` are as `Mistake` has them.

    `rated` is its severity if it is not the usual one of its kind. `paste` is YAML that would make it go away, if any.
    With `unquoted`, it only holds if the text at the place has no quotes.
    """

    kind: Kind
    path: Location
    reason: str
    instead: str
    offset: int | None = None
    at_key: bool = False
    rated: Severity | None = None
    paste: str = ""
    unquoted: bool = False

    @property
    def severity(self) -> Severity:
        return self.rated or self.kind.severities[0]

    @property
    def rule(self) -> str | None:
        """The rule that it is about; None if it is about a table or an entity."""
        return str(self.path[1]) if len(self.path) > 1 and self.path[0] == "projections" else None


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding with its place: line and column count from 1, and are 0 for rules that were built in Python.

    `code` is that of its kind, such as `hot-partition`. The reason of a `mistake` includes what to write instead.
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
    paste: str = ""
    """YAML to paste into the rule file, if `instead` offers some."""

    def __str__(self) -> str:
        way_out = f" → {self.instead}" if self.instead else ""
        if self.paste:
            way_out += ":\n" + indent(self.paste, "    ")
        place = f"{self.file}:{self.line}:{self.column}" if self.line else self.file
        return f"{place}: {self.path}: {self.severity} [{self.code}]: {self.reason}{way_out}"
