"""The kinds of findings that a template can have beside rules, as `docs/findings.md` shows them."""

from __future__ import annotations

from collections.abc import Mapping

from projections.language.findings import Kind

__all__ = ["KINDS"]

# The example of each is merged into the template that `projections template` writes for `social`.

FUNCTIONS = Kind("functions", ("error", "warning"))
RECURSION = Kind("recursion", ("error",))
VERSIONS = Kind("versions", ("warning",))
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
