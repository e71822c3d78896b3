"""Findings and their kinds: each has a code, a place in the rule file, a reason and what to write instead.

`docs/findings.md` is generated from the kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import indent
from typing import Literal, NamedTuple, TypeAlias

from projections.language.syntax import Location

Severity: TypeAlias = Literal["error", "warning", "note"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "note")
"""The most severe first.

- error: the rules cannot be used, or a rule can never work.
- warning: the rules will probably fail for some items, or under load.
- note: often intended, but worth knowing.
"""


class Kind(NamedTuple):
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
DATE_FORMAT = Kind("date-format", ("warning",))

# Limits

LONG_KEY = Kind("long-key", ("note", "warning", "error"))
HOT_PARTITION = Kind("hot-partition", ("warning", "note"))
HOT_GROUP = Kind("hot-group", ("warning", "note"))
ONCE_AND_PUTS = Kind("once-and-puts", ("note", "warning"))
UNROUNDED_QUOTIENT = Kind("unrounded-quotient", ("warning",))
READS_HELD = Kind("reads-held", ("warning",))

# Targets

SHARED_KEY = Kind("shared-key", ("warning",))
NOT_DERIVED = Kind("not-derived", ("warning",))
CLAIMED_COPY = Kind("claimed-copy", ("note",))
COPIED_INDEX_KEY = Kind("copied-index-key", ("warning",))
DERIVED_TTL = Kind("derived-ttl", ("warning", "note"))
LARGE_LIST = Kind("large-list", ("note",))
WRONG_TYPE = Kind("wrong-type", ("error",))

# Indexes

HALF_AN_INDEX_KEY = Kind("half-an-index-key", ("warning", "note"))
AMBIGUOUS_INDEX_KEY = Kind("ambiguous-index-key", ("note",))
UNREACHABLE_CASE = Kind("unreachable-case", ("warning",))
NOT_PROJECTED = Kind("not-projected", ("note",))
CHILDREN_NOT_INDEXED = Kind("children-not-indexed", ("warning",))
MANY_INDEXES = Kind("many-indexes", ("error",))

# TTL

EXPIRY_UNDECIDED = Kind("expiry-undecided", ("note",))
NO_TTL = Kind("no-ttl", ("warning",))
KEPT_EXPIRY = Kind("kept-expiry", ("note",))

# Queries

UNANSWERED_QUERY = Kind("unanswered-query", ("warning",))
CONSISTENT_READ = Kind("consistent-read", ("note",))
FILTERED_QUERY = Kind("filtered-query", ("warning",))
SEVERAL_REQUESTS = Kind("several-requests", ("note",))
UNUSED_INDEX = Kind("unused-index", ("note",))
FEW_PARTITIONS = Kind("few-partitions", ("note",))

# The rule file itself

MISTAKE = Kind("mistake", ("error",))
UNUSED_IGNORE = Kind("unused-ignore", ("note",))

KINDS: Mapping[str, Kind] = {kind.code: kind for kind in list(vars().values()) if isinstance(kind, Kind)}
"""All of the above, by code."""

CODES = tuple(code for code in KINDS if code not in (MISTAKE.code, UNUSED_IGNORE.code))
"""The kinds that `# check: ignore` can name."""


class Remark(NamedTuple):
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
