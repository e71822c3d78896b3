"""The findings of `check --template`: their kinds, the place in the template, the reason, and a correction."""

from __future__ import annotations

from collections.abc import Mapping

from projections.deploy.cloudformation import Document
from projections.language.findings.kinds import Finding, Kind, Severity
from projections.language.syntax import Location, dotted

__all__ = ["KINDS", "Finding", "Severity", "report"]


# The example of each is merged into the template that `projections template` writes for `social`.

FUNCTIONS = Kind("functions", ("error", "warning"))
RECURSION = Kind("recursion", ("error",))
ENVIRONMENT = Kind("environment", ("error", "warning"))
KEYS = Kind("keys", ("error",))
INDEXES = Kind("indexes", ("error", "warning"))
STREAM = Kind("stream", ("error",))
TTL = Kind("ttl", ("error", "warning"))
DELIVERY = Kind("delivery", ("error", "warning", "note"))
FILTERS = Kind("filters", ("error", "note"))
PERMISSIONS = Kind("permissions", ("error",))
SILENT_ALARMS = Kind("silent-alarms", ("note",))
NOT_JUDGED = Kind("not-judged", ("note",))

KINDS: Mapping[str, Kind] = {kind.code: kind for kind in list(vars().values()) if isinstance(kind, Kind)}
"""All of the above, by code."""


def report(
    document: Document, kind: Kind, path: Location, reason: str, instead: str = "", rated: Severity | None = None
) -> Finding:
    """Return a finding at a path of a template; `rated` is its severity where that is not the usual one of its kind."""
    line, column = document.place(path)
    severity = rated or kind.severities[0]
    return Finding(severity, kind.code, document.file, line, column, dotted(path), None, reason, instead)
