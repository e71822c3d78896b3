"""Drift: one thing that is not stored as the rules say, with everything needed to understand it.

A value is stored in up to three places, its *sides*: the `item` that shows it, the `group` in the ledger that it is
published from, and the `entry` of each source item in the ledger, which the group sums up. A fourth side, `source`, is
computed from the source items as they are now. Only that one says what the value should be: where it was not computed, a
drift says that two sides differ, and not which of them is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

__all__ = [
    "ENTRY",
    "GROUP",
    "ITEM",
    "KINDS",
    "LEFT_OVER",
    "REPAIRS",
    "SOURCE",
    "Drift",
    "with_all_sources",
    "with_sides",
]

ITEM, GROUP, ENTRY, SOURCE = "item", "group", "entry", "source"
SIDES = (ITEM, GROUP, ENTRY, SOURCE)
"""The sides of a value."""

LEFT_OVER = "left over"
"""The kind that is no drift: it is reported, and not counted."""

KINDS = {
    "entry missing": "the ledger does not know what an item contributes",
    "entry extra": "the ledger says that an item contributes what it does not",
    "entry stale": "the ledger says that an item contributes something else",
    "copy missing": "an item has no copy",
    "copy extra": "a copy of what is not there",
    "copy stale": "a copy shows something else than its source",
    "index": "an index attribute is not what the item's other attributes say",
    "embed": "a child shows something else than its parent",
    "value": "an item does not have the value of its group in the ledger",
    "guard": "a guard is missing, names another source, or is from the future and locks out what comes",
    "target missing": "an item that a rule creates is not there, though something contributes to it",
    "target extra": "an item that a rule creates is there, though nothing contributes to it",
    "occupied": "an item of another kind is under the key of an item that a rule creates",
    "group": "a total is not the sum of what the entries contribute",
    "member missing": "a group lacks a member that an entry contributes",
    "member extra": "a group has a member that no entry contributes",
    "member stale": "a group's member holds something else than the entry says",
    "error": "the rules cannot be evaluated on an item, so that it cannot be compared",
    "rebuilding": "a rebuild of a group was begun and not ended, so that nothing of it is published",
    "left over": "a rule wrote these attributes, and no rule corrects or removes them now: it is not known whose they are",
}
"""Every kind, with what it means."""

REPAIRS = {
    "entry missing": "writes the entry from the source item and publishes its targets",
    "entry extra": "corrects the entry from the source item and publishes its targets",
    "entry stale": "corrects the entry from the source item and publishes its targets",
    "copy missing": "creates the copy from its source",
    "copy extra": "removes the rule's attributes, or with --allow-delete the item that the rule created",
    "copy stale": "writes the copy from its source",
    "index": "sets the index attributes from the item's other attributes",
    "embed": "sets the attributes from the parent",
    "value": "writes the value of the group, which it rebuilds first if the group disagrees with its entries",
    "guard": "writes the guard again, with the values",
    "target missing": "creates the item from the group",
    "target extra": "deletes the item with --allow-delete, if a rule created it and it has no other attributes",
    "occupied": "changes nothing: move or remove the item of another kind",
    "group": "corrects the entries, then rebuilds the group from them",
    "member missing": "corrects the entries, then rebuilds the group from them",
    "member extra": "corrects the entries, then rebuilds the group from them",
    "member stale": "corrects the entries, then rebuilds the group from them",
    "error": "changes nothing: correct the item",
    "rebuilding": "ends the rebuild and publishes the group",
    "left over": "changes nothing. A backfill removes values that are still the rule's; remove the others yourself",
}
"""By kind, what `verify --repair` does: it follows "--repair"."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference. Values are plain JSON, None where there is nothing.

    `target` is the encoded key of the item that a rule writes to, `attribute` what is wrong of it, None if it is the whole;
    of a group, the measure. `source` is the encoded key of the item that is responsible, where one is. `at` is the version
    with which the rule wrote there last, None if it never did.

    `sides` has the value of each side that was compared; the first is `actual`. `wrong` names those that disagree with the
    source items, None if these were not compared. `expected` is what the source items give. If they were not compared, it is
    what the group has; if the group is known to be wrong and the right value was not computed, it is None.
    """

    kind: str
    rule: str
    target: str
    attribute: str | None = None
    actual: Any = None
    expected: Any = None
    source: str | None = None
    at: str | None = None
    shadow: bool = False
    """Of a rule that publishes nothing: the value is someone else's."""
    sides: Mapping[str, Any] = field(default_factory=dict, hash=False)
    wrong: tuple[str, ...] | None = None
    raw: Any = field(default=None, hash=False)
    """In the ledger's slots: of an entry what it holds and should hold, of a published value the amounts of its group."""

    def text(self) -> str:
        """As JSON, for `read`."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    def document(self) -> dict[str, Any]:
        """For programs: with what a repair does."""
        found = asdict(self)
        del found["raw"]
        return {**found, "repair": REPAIRS[self.kind]}

    @classmethod
    def read(cls, text: str) -> Drift:
        """What `text` wrote."""
        fields = json.loads(text)
        fields["sides"] = {side: fields["sides"][side] for side in SIDES if side in fields["sides"]}
        fields["wrong"] = tuple(fields["wrong"]) if fields["wrong"] is not None else None
        return cls(**fields)


def with_sides(drift: Drift, *, grouped: bool) -> Drift:
    """A drift with the sides that its kind compares. `grouped` says whether its rule publishes from groups of the ledger."""
    if drift.kind in ("error", "rebuilding", "occupied", LEFT_OVER):
        return drift
    if (
        drift.kind == "copy extra"
    ):  # its guard names no item that makes it; whether another one does takes all items to know
        return replace(drift, sides={ITEM: drift.actual})
    first = ENTRY if drift.kind.startswith("entry") else ITEM
    if grouped and first == ITEM:
        return replace(drift, sides={ITEM: drift.actual, GROUP: drift.expected})
    return replace(drift, sides={first: drift.actual, SOURCE: drift.expected}, wrong=(first,))


def with_all_sources(drift: Drift) -> Drift:
    """The drift of a copy after all items that may be its source were compared."""
    if drift.kind != "copy extra":
        return drift
    return replace(drift, sides={**drift.sides, SOURCE: None}, wrong=(ITEM,))
