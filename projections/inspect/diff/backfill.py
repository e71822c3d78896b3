"""The rules that need a backfill after a change, why, and its cost.

The registry treats a rule with another fingerprint as new: it fills, and publishes nothing from groups until a backfill is
complete. So every change of a rule needs a backfill, even if all stored values stay correct.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from projections.inspect.diff.changes import Change, Part
from projections.language.canonical import Aggregate, Compute, Document, Embed, Index, Rank
from projections.language.embeds import children_of
from projections.language.facts import creates, indexes_fed
from projections.language.syntax import LanguageError

__all__ = ["ASSUMPTIONS", "Cost", "cost", "reasons"]

_WHICH = "other items contribute"
_WHERE = "targets have other keys"
_WHAT = "the values change"
_ORDER = "the order changes"
_READ = "keys are parsed and rendered differently"
_REASONS: Mapping[str, str] = {
    "kind": "its kind changes",
    "from": _WHICH,
    "where": _WHICH,
    "each": _WHICH,
    "bind": _WHERE,
    "into": "it writes to another entity",
    "attributes": _WHAT,
    "values": _WHAT,
    "set": _WHAT,
    "cases": _WHAT,
    "by": _ORDER,
    "order": _ORDER,
    "digits": "scores are divided into other digits",
    "decimals": "scores are divided into other digits",
    "limit": "the length of the list changes",
    "as": "the attribute is renamed",
    "match": "children reference other parents",
    "claimed": "several sources can have one target now, or no longer",
    "mode": "it publishes now, or no longer",
    "listed": "children get another list or map",
    "on_delete": "children of deleted parents keep or lose embedded attributes",
    "key": _READ,
    "separator": _READ,
    "partition": _READ,
    "sort": _READ,
    "table": "its items are in another table",
    "derived": "rules create and delete these items, or no longer",
}
_ONCE = "values that are there no longer change"
_NOT_ONCE = "recorded values are replaced by those of today, and no rule can restore them"
_NOTHING_WRONG = "stored values stay correct, but a changed rule publishes nothing before a backfill"

ASSUMPTIONS = (
    "Units of on-demand tables, for items of at most 1 KB; prices of us-east-1. docs/cost.md#backfills lists all "
    "assumptions. `projections backfill --dry-run` measures the cost on the tables."
)


def reasons(change: Change) -> list[str]:
    """Return why a rule needs a backfill, each reason once; nothing for a removed rule."""
    if change.status == "new":
        return ["it is new, and has not processed existing items"]
    if change.status != "changed":
        return []
    if change.only_disabled:
        return []
    found = list(dict.fromkeys(filter(None, map(_reason, change.parts))))
    return found or [_NOTHING_WRONG]


def _reason(part: Part) -> str | None:
    name, _, field = part.name.partition(".")
    if name == "once":
        return _ONCE if part.after else _NOT_ONCE
    if name.startswith("index"):
        return _WHAT
    if field == "match" and name != "match":
        return "items are recognised differently"
    return _REASONS.get(name) or _REASONS.get(field)


@dataclass(frozen=True, slots=True)
class Cost:
    """Request units of the backfill of one rule per 1000 items `of` an entity, of which T are targets."""

    of: str
    reads: int
    reads_per_target: int
    writes: int
    writes_per_target: int

    def units(self, targets: int) -> tuple[int, int]:
        """Return reads and writes per 1000 items with so many targets."""
        return self.reads + self.reads_per_target * targets, self.writes + self.writes_per_target * targets

    def dollars(self, targets: int) -> float:
        """Return the price per million items with so many targets per 1000."""
        reads, writes = self.units(targets)
        return (reads * 0.125 + writes * 0.625) / 1000

    def __str__(self) -> str:
        reads, writes = _linear(self.reads, self.reads_per_target), _linear(self.writes, self.writes_per_target)
        least, most = self.dollars(1), self.dollars(1000)
        price = f"${least:.2f}" if f"{least:.2f}" == f"{most:.2f}" else f"${least:.2f} to ${most:.2f}"
        return f"per 1,000 {self.of}: {reads} reads, {writes} writes; {price} per million items"


def _linear(fixed: int, each: int) -> str:
    parts = [f"{fixed:,}"] if fixed or not each else []
    return " + ".join([*parts, *([f"{each}T"] if each else [])])


def cost(document: Document, name: str) -> Cost:
    """Return the cost of a backfill of one rule, as measured in tests/tools/test_diff_cost.py.

    - Aggregate, list, claimed copy: an entry per item is read, and once more, with its item, when the ledger is read
      through; a transaction writes entries, members and groups (two units each). Then per target its group, members and
      item are read and it is written once; if rules create the target, it is read first, and everything is read twice.
      With shards, their number is recorded once per target, in a transaction that checks the process's lease: four units.
    - Guarded copy: the copy and its source are read, and both again after it was created; one write.
    - Index: one write, and one to each index. Compute: one write.
    - Embed, per child: fence and parent are read once per parent; one write. Through an index every child is read again.
      With a list of one reference: the link is read, and each parent once per page; the link is written in a transaction.
    """
    rule = document.rules[name]
    source = f"{' and '.join(rule.sources)} items"
    if isinstance(rule, Index):
        return Cost(source, 0, 0, 1000 + 1000 * len(indexes_fed(document, rule)), 0)
    if isinstance(rule, Compute):
        return Cost(source, 0, 0, 1000, 0)
    if isinstance(rule, Embed) and rule.listed is not None:
        return Cost(f"{rule.into} items", 1000, 1, 3000, 0)
    if isinstance(rule, Embed):
        return Cost(f"{rule.into} items", 0 if _direct(document, name) else 3000, 2, 1000, 0)
    if not rule.recorded:
        return Cost(source, 4000, 0, 1000, 0)
    members, queries, sharded = 1, 1, 0
    if isinstance(rule, Aggregate):
        members, queries, sharded = rule.members + rule.counters, rule.queries, int(rule.shards > 1)
    if isinstance(rule, Rank):
        levels, sharded = rule.scale.levels, min(2, rule.scale.levels) if rule.shards > 1 else 0
        return Cost(source, 3000, 0, 2000 + 2000 * (levels - 1), 2 + 4 * sharded)
    made = int(creates(document, rule))
    return Cost(source, 3000, (1 + made) * (2 + queries + sharded) + made, 2000 + 2000 * members, 3 + 4 * sharded)


def _direct(document: Document, name: str) -> bool:
    """Return whether a parent's children are in their own item collection, not found through an index."""
    try:
        return children_of(document.to_document(), name).index is None
    except LanguageError:
        return False
