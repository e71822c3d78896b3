"""The kinds of findings about rules, with their codes. `docs/findings.md` is generated from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["CODES", "KINDS", "SEVERITIES", "Kind", "Severity"]

Severity: TypeAlias = Literal["error", "warning", "note"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""The most severe first.

- error: the rules cannot be used, or a rule can never work.
- warning: the rules will probably fail for some items, or under load.
- note: often intended, but worth knowing.
"""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of finding. Its first severity is the usual one."""

    code: str
    severities: tuple[Severity, ...]


# Names

UNKNOWN_ATTRIBUTE = Kind("unknown-attribute", ("warning",))
READS_GUARD = Kind("reads-guard", ("warning",))
OTHER_SPELLING = Kind("other-spelling", ("warning",))
READ_AS_WRITTEN = Kind("read-as-written", ("warning", "note"))
NEVER_RECOGNISED = Kind("never-recognised", ("warning",))
NEVER_MATCHES = Kind("never-matches", ("warning",))

# Sort keys

UNPADDED_NUMBER = Kind("unpadded-number", ("warning", "note"))
PADDED_NUMBER = Kind("padded-number", ("warning",))
NUMBER_DOES_NOT_FIT = Kind("number-does-not-fit", ("warning", "note"))
DATE_ORDER = Kind("date-order", ("warning",))

# Limits

LONG_KEY = Kind("long-key", ("note", "warning", "error"))
HOT_PARTITION = Kind("hot-partition", ("warning", "note"))
HOT_GROUP = Kind("hot-group", ("warning", "note"))
MANY_CONTRIBUTIONS = Kind("many-contributions", ("note",))
LONG_CHAIN = Kind("long-chain", ("note",))
MOVING_HISTORY = Kind("moving-history", ("note",))
ONCE_AND_PUTS = Kind("once-and-puts", ("note", "warning"))
UNROUNDED_QUOTIENT = Kind("unrounded-quotient", ("warning",))
UNUSED_WITHIN = Kind("unused-within", ("note",))
READS_DISABLED = Kind("reads-disabled", ("warning",))

# Targets

SHARED_KEY = Kind("shared-key", ("warning",))
NOT_DERIVED = Kind("not-derived", ("warning",))
CLAIMED_COPY = Kind("claimed-copy", ("note",))
COPIED_INDEX_KEY = Kind("copied-index-key", ("warning",))
DERIVED_TTL = Kind("derived-ttl", ("warning", "note"))
LARGE_LIST = Kind("large-list", ("note",))
LARGE_LISTS = Kind("large-lists", ("warning",))
WRONG_TYPE = Kind("wrong-type", ("error",))

# Indexes

HALF_AN_INDEX_KEY = Kind("half-an-index-key", ("warning", "note"))
AMBIGUOUS_INDEX_KEY = Kind("ambiguous-index-key", ("note",))
UNREACHABLE_CASE = Kind("unreachable-case", ("warning",))
NOT_PROJECTED = Kind("not-projected", ("note",))
CHILDREN_NOT_INDEXED = Kind("children-not-indexed", ("warning",))
MANY_INDEXES = Kind("many-indexes", ("note", "error"))
LOCAL_INDEX = Kind("local-index", ("note",))

# TTL

EXPIRY_UNDECIDED = Kind("expiry-undecided", ("note",))
NO_TTL = Kind("no-ttl", ("warning",))
KEPT_EXPIRY = Kind("kept-expiry", ("note",))

# Queries

UNANSWERED_QUERY = Kind("unanswered-query", ("warning",))
UNPROJECTED_QUERY = Kind("unprojected-query", ("warning",))
CONSISTENT_READ = Kind("consistent-read", ("warning", "note"))
FILTERED_QUERY = Kind("filtered-query", ("warning",))
SHARED_RANGE = Kind("shared-range", ("warning",))
SEVERAL_REQUESTS = Kind("several-requests", ("note",))
UNUSED_INDEX = Kind("unused-index", ("note",))
LARGE_COPY = Kind("large-copy", ("note",))
STATIC_INDEX_KEY = Kind("static-index-key", ("note",))
FEW_PARTITIONS = Kind("few-partitions", ("note",))

# The rule file itself

MISTAKE = Kind("mistake", ("error",))
UNUSED_IGNORE = Kind("unused-ignore", ("note",))

KINDS: Mapping[str, Kind] = {kind.code: kind for kind in list(vars().values()) if isinstance(kind, Kind)}
"""All of the above, by code."""

CODES = tuple(code for code in KINDS if code not in (MISTAKE.code, UNUSED_IGNORE.code))
"""The kinds that `# check: ignore` can name."""
