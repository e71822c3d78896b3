"""The findings of `check --template`: the place in the template, the reason, and a correction."""

from __future__ import annotations

from projections.deploy.cloudformation import Document
from projections.language.findings import Finding, Kind, Severity
from projections.language.mistakes import Location, dotted

__all__ = ["Finding", "Severity", "found"]


def found(
    document: Document, kind: Kind, path: Location, reason: str, instead: str = "", rated: Severity | None = None
) -> Finding:
    """Return a finding at a path of a template; `rated` is its severity where that is not the usual one of its kind."""
    line, column = document.place(path)
    severity = rated or kind.severities[0]
    return Finding(severity, kind.code, document.file, line, column, dotted(path), None, reason, instead)
