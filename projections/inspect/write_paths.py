"""The writes of each rule, and the cost of a single change."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, assert_never

from projections.language.embeds import children_of
from projections.language.facts import indexes_fed
from projections.language.models import (
    Aggregate,
    Compute,
    Copy,
    Embed,
    Index,
    Latest,
    Projection,
    Rank,
    Rules,
    Top,
    once,
)
from projections.language.ranks import RANK_LEVELS_IN_SHARDS


@dataclass(frozen=True, slots=True)
class Path:
    """The writes of a rule. Write units are those of items of up to 1 KB, with the index entries of an index rule; other
    entries of the target in secondary indexes cost one more each.

    `alone` is the cost of a single change for one target (one child, for an embed); `shared` the cost of each of many
    changes for one target in one batch, if that is less.
    """

    name: str
    how: str
    alone: int
    shared: int | None = None

    @property
    def units(self) -> str:
        """The cost as text: `5 write units alone, about 2 each in a large batch`."""
        noun = "write unit" if self.alone == 1 else "write units"
        return f"{self.alone} {noun}" + (f" alone, about {self.shared} each in a large batch" if self.shared else "")

    def document(self) -> dict[str, Any]:
        """Return the JSON."""
        return asdict(self)


def path_of(rules: Rules, name: str) -> Path:
    """Return the path of a rule. In shadow mode and if it is disabled, it does not publish."""
    path = _live_path(rules, name)
    if rules.projections[name].publishes:
        return path
    if path.name == "rank":  # it never publishes
        return path
    silent = "in shadow mode, it" if rules.projections[name].enabled else "disabled: it"
    if path.shared is None and path.name != "claimed copy":
        return Path(path.name, f"{silent} writes nothing", 0)
    how = path.how.partition(", then ")[0] + f"; {silent} publishes nothing"
    return Path(path.name, how, path.alone - 1, path.shared)


def _live_path(rules: Rules, name: str) -> Path:
    rule = rules.projections[name]
    match action := rule.action:
        case Copy():
            return _copy(rule, action)
        case Aggregate():
            return _ledger("aggregate", action.members, 1, action.shards, action.counters)
        case Top():
            return _ledger("top", 1, action.limit)
        case Latest():
            return _ledger("latest", 1, 1)
        case Rank():
            return _rank(action)
        case Compute():
            once = ", once" if action.once else ", if a value changes"
            return Path("compute", f"1 conditional write on the item itself{once}", 1)
        case Index():
            indexes = indexes_fed(rules, rule)
            entries = f"1 entry in {' and 1 in '.join(indexes)}"
            how = f"1 conditional write on the item itself, which makes {entries}, if its key changes"
            return Path("index", how, 1 + len(indexes))
        case Embed():
            return _embed(rules, name, action)
    assert_never(action)


def _embed(rules: Rules, name: str, embed: Embed) -> Path:
    if embed.as_ is not None:
        how = (
            "1 write for the push and 1 for each child, which is read with all its parents; 1 write of a link in the ledger "
            "for each new reference"
        )
        return Path("embed", how, 2)
    children = children_of(_plain(rules), name)
    search = (
        "children are found in their own item collection"
        if children.index is None
        else f"children are found through {children.index}, which lags, so a second pass follows"
    )
    return Path("embed", f"1 write for the push and 1 for each child; {search}", 2)


@once
def _plain(rules: Rules) -> dict[str, Any]:
    return rules.document()


def _copy(rule: Projection, copy: Copy) -> Path:
    each = f" for each element of {rule.each.path}" if rule.each else ""
    if not copy.claimed:
        return Path("guarded copy", f"1 conditional write of the copy{each}", 1)
    how = "entry, group and claim in one transaction of the ledger, then 1 write of the copy; the least source key wins"
    return Path("claimed copy", how, 7)


def _rank(rule: Rank) -> Path:
    """Return the path of a score: a new one is counted in a group for each two digits, a moved one in more."""
    levels = rule.scale.levels
    groups = "1 group" if levels == 1 else f"{levels} groups"
    moved = f"; a changed score moves between up to {2 * levels - 1} groups" if levels > 1 else ""
    items = items_of_rank(rule)
    how = (
        f"entry and {groups} in one transaction of the ledger{moved}; nothing is written to the tables. To find a rank, 1 "
        f"request reads {items} {'item' if items == 1 else 'items'} of the ledger"
    )
    return Path("rank", how, 2 + 2 * levels, 2 * levels)


def items_of_rank(rule: Rank) -> int:
    """Return how many items of the ledger one request reads for a rank: one for each group, or for each of its shards."""
    levels = rule.scale.levels
    return levels + (rule.shards - 1) * min(levels, RANK_LEVELS_IN_SHARDS)


def _ledger(name: str, members: int, limit: int, shards: int = 1, counters: int = 0) -> Path:
    """Return the path through the ledger. In a transaction, entry, group and each member and counter cost two units."""
    group = "group" if shards == 1 else f"one of {shards} shards of the group"
    parts = ["entry", group, *([f"{members} members" if members > 1 else "member"] if members else [])]
    parts += [f"{counters} value counters" if counters > 1 else "value counter"] if counters else []
    committed = f"{', '.join(parts[:-1])} and {parts[-1]}"
    target = "1 write of the target" if limit == 1 else f"1 write of the target, with the first {limit}"
    how = f"{committed} in one transaction of the ledger, then {target}"
    return Path(name, how, 5 + 2 * (members + counters), 2 + 2 * (members + counters))
