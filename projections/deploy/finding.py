"""What `check --template` finds: a place in the template, what is wrong there, and what to write instead."""

from __future__ import annotations

from projections.deploy.cloudformation import Document
from projections.language.findings import Finding, Severity
from projections.language.mistakes import Location, dotted

__all__ = ["Finding", "Severity", "found"]


def found(document: Document, severity: Severity, code: str, path: Location, reason: str, instead: str = "") -> Finding:
    """A finding at a path of a template."""
    line, column = document.place(path)
    return Finding(severity, code, document.file, line, column, dotted(path), None, reason, instead)
