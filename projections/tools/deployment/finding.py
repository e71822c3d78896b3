"""What `check --template` finds: a place in the template, what is wrong there, and what to write instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from projections.language.mistakes import Location, dotted
from projections.tools.deployment.cloudformation import Document

__all__ = ["Finding", "Severity", "found"]

Severity: TypeAlias = Literal["error", "warning", "note"]
"""error: it will not work. warning: it will go wrong some day. note: worth knowing, or not to be judged from here."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding with its place: line and column count from 1. `code` names its family, as `filters`."""

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
        return (
            f"{self.file}:{self.line}:{self.column}: {self.path}: {self.severity} [{self.code}]: {self.reason}{way_out}"
        )


def found(document: Document, severity: Severity, code: str, path: Location, reason: str, instead: str = "") -> Finding:
    """A finding at a path of a template."""
    line, column = document.place(path)
    return Finding(severity, code, document.file, line, column, dotted(path), None, reason, instead)
