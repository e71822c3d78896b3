"""Drift: a stored value that differs from what the rules give, what examining a subject shows of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from typing import Any, NamedTuple

from projections.engine.store import Image

ITEM, GROUP, ENTRY, SOURCE = "item", "group", "entry", "source"
SIDES = (ITEM, GROUP, ENTRY, SOURCE)
"""The sides of a value."""

LEFT_OVER = "left over"
"""A kind that is not drift: it is reported, but not counted."""

KINDS = {
    "entry missing": "the ledger has no entry for what an item contributes",
    "entry extra": "the ledger has a contribution that the item does not make",
    "entry stale": "the ledger has another contribution than the item makes",
    "copy missing": "an item has no copy",
    "copy extra": "a copy has no source",
    "copy stale": "a copy has other values than its source",
    "index": "an index attribute does not match the item's other attributes",
    "compute": "a computed attribute does not match the item's other attributes",
    "embed": "a child has other values than its parent",
    "link": "the ledger has no link from a parent to a child that references several, so changes of the parent miss it",
    "value": "an item does not have the value of its group in the ledger",
    "guard": "a guard is missing or of another ledger, names another source, or has a future version, which blocks updates",
    "target missing": "an item that a rule creates does not exist, although it has contributions",
    "target extra": "an item that a rule creates exists, although it has no contributions",
    "occupied": "an item of another kind is under the key of an item that a rule creates",
    "group": "a total is not the sum of what the entries, or without entries the items, contribute",
    "member missing": "a group lacks a member that an entry contributes",
    "member extra": "a group has a member that no entry contributes",
    "member stale": "a member of a group has other values than its entry",
    "error": "the rules cannot be evaluated on an item, so it cannot be compared",
    "left over": "a rule wrote these attributes, and no rule corrects or removes them now: the application may use them",
}
"""All kinds, with their meanings."""

OFFLINE = {**KINDS, "value": "an item does not have the value that the rules give it"}
"""The meanings of kinds when the tables are compared without a ledger."""

REPAIRS = {
    "entry missing": "writes the entry from the source item and publishes its targets",
    "entry extra": "corrects the entry from the source item and publishes its targets",
    "entry stale": "corrects the entry from the source item and publishes its targets",
    "copy missing": "creates the copy from its source",
    "copy extra": "removes the rule's attributes, or with --allow-delete the item that the rule created",
    "copy stale": "writes the copy from its source",
    "index": "sets the index attributes from the item's other attributes",
    "compute": "sets the attribute from the item's other attributes; with `once`, only if it is absent",
    "embed": "sets the attributes from the parent",
    "link": "writes the links of the child, then its list from its parents",
    "value": "writes the value of the group; if the group disagrees with its entries, it recounts the rule",
    "guard": "writes the guard again, with the values",
    "target missing": "creates the item from the group",
    "target extra": "deletes the item with --allow-delete, if a rule created it and it has no other attributes",
    "occupied": "changes nothing: move or remove the item of another kind",
    "group": "corrects the entries, then recounts the rule",
    "member missing": "corrects the entries, then recounts the rule",
    "member extra": "corrects the entries, then recounts the rule",
    "member stale": "corrects the entries, then recounts the rule",
    "error": "changes nothing: correct the item",
    "left over": "changes nothing. A backfill removes values that still belong to the rule; remove the others yourself",
}
"""What `verify --repair` does, by kind. The text follows "--repair"."""

NOT_PUBLISHED = "changes nothing: the version is not published"
"""What it does with a value of a version that is not published."""


@dataclass(frozen=True, slots=True)
class Drift:
    """One difference. Values are plain JSON, None if absent.

    `target` is the encoded key of the item that a rule writes to, `attribute` the attribute that differs, None for the whole
    item; for a group, the measure. `source` is the encoded key of the item that causes it, if there is one. `at` is the
    version of the rule's last write there, None if there was none.

    `sides` has the value of each side that was compared; the first is `actual`. `wrong` names those that disagree with the
    source items, None if these were not compared. `expected` is what the source items give. If they were not compared, it is
    the group's value; if the group is known to be wrong, it is None.
    """

    kind: str
    rule: str
    target: str
    attribute: str | None = None
    actual: Any = None
    expected: Any = None
    source: str | None = None
    at: str | None = None
    unpublished: bool = False
    """Whether the version is not published: the value is the application's, or another version's."""
    sides: Mapping[str, Any] = field(default_factory=dict, hash=False)
    wrong: tuple[str, ...] | None = None
    ledger: str = ""
    """The id of the other ledger whose guard the item has, if it has one."""
    raw: Any = field(default=None, hash=False)
    """Of an entry: its actual and expected contributions, in the ledger's slots. Of a group: the slot, or a member's key."""

    def text(self) -> str:
        """Return the drift as JSON, for `read`."""
        return json.dumps(asdict(self), ensure_ascii=False, sort_keys=True)

    def document(self) -> dict[str, Any]:
        """Return the drift for programs, with what a repair does."""
        fields = asdict(self)
        del fields["raw"]
        return {**fields, "repair": self.repair}

    @property
    def repair(self) -> str:
        """What `verify --repair` does. The text follows "--repair"."""
        return NOT_PUBLISHED if self.unpublished else REPAIRS[self.kind]

    @classmethod
    def read(cls, text: str) -> Drift:
        """Read what `text` wrote."""
        fields = json.loads(text)
        fields["sides"] = {side: fields["sides"][side] for side in SIDES if side in fields["sides"]}
        fields["wrong"] = tuple(fields["wrong"]) if fields["wrong"] is not None else None
        return cls(**fields)


def with_sides(drift: Drift, *, grouped: bool) -> Drift:
    """Return a drift with the sides that its kind compares. `grouped` if its rule publishes from groups of the ledger."""
    if drift.kind in ("error", "occupied", LEFT_OVER):
        return drift
    if (
        drift.kind == "copy extra"
    ):  # its guard's source does not make it: only a scan of all items shows if another does
        return replace(drift, sides={ITEM: drift.actual})
    first = ENTRY if drift.kind.startswith("entry") else ITEM
    if grouped and first == ITEM:
        return replace(drift, sides={ITEM: drift.actual, GROUP: drift.expected})
    return replace(drift, sides={first: drift.actual, SOURCE: drift.expected}, wrong=(first,))


def with_all_sources(drift: Drift) -> Drift:
    """Return the drift of a copy after all items that may be its source were compared."""
    if drift.kind != "copy extra":
        return drift
    return replace(drift, sides={**drift.sides, SOURCE: None}, wrong=(ITEM,))


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of examining a subject: nothing is wrong if there are no `drifts`.

    `state` has all that was compared, `image` is a digest of the whole item: if both are equal in two findings, the item has
    not changed between them. `reached` and `known` are versions: the one that is shown, and the newest one. An item that
    reaches the version known before was late, and not wrong. `push` names the push that a child may be waiting for.
    """

    state: str = ""
    drifts: tuple[Drift, ...] = ()
    image: str = ""
    reached: str = ""
    known: str = ""
    push: str = ""


def finding(drifts: Sequence[Drift], item: Image | None, *state: object) -> Finding:
    """Return the finding of a subject. Its state is needed only if there is drift."""
    if not drifts:
        return Finding()
    text = json.dumps([*state, [drift.text() for drift in drifts]], sort_keys=True, ensure_ascii=False, default=str)
    digest = blake2b(json.dumps(item, sort_keys=True).encode(), digest_size=8).hexdigest() if item is not None else ""
    return Finding(text, tuple(drifts), digest)


FINE, DRIFT, AGAIN = "fine", "drift", "again"


class Observation(NamedTuple):
    """The parts of the last observation that are kept. `steady` if all observations were the same so far."""

    state: str
    known: str
    image: str
    steady: bool = True


def judge(before: Observation | None, now: Finding) -> tuple[str, Observation]:
    """Return the verdict on a candidate, `fine`, `drift` or `again`, and the observation to keep."""
    if before is None:
        return (AGAIN if now.drifts else FINE), Observation(now.state, now.known, now.image)
    same = before.state == now.state
    observation = Observation(now.state, now.known, now.image, before.steady and same)
    late = bool(before.known and now.known and now.reached >= before.known)
    if late or not now.drifts:
        return FINE, observation
    return (DRIFT if same and before.image == now.image else AGAIN), observation
