"""The explanation of one item: its derived values, and its contributions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from projections.engine.ledger_items import Entry
from projections.engine.registry import LIVE
from projections.engine.store import Image, ItemKey
from projections.language.entity import Item
from projections.language.rules import Rule
from projections.language.values import plain
from projections.operations.verify.drift import Drift

__all__ = ["Attribute", "Contribution", "Copied", "Derived", "ItemExplanation", "Source", "attributes_of"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """A derived attribute with the item's value as plain JSON, and its drift, if any."""

    name: str
    shown: Any
    drift: Drift | None = None

    @property
    def expected(self) -> Any:
        """The expected value, or that of the group if no source items were compared."""
        if self.drift is None:
            return self.shown
        if self.drift.attribute is None:  # the drift of the whole item
            return (self.drift.expected or {}).get(self.name)
        return self.drift.expected

    @property
    def agrees(self) -> bool:
        return self.drift is None or self.shown == self.expected


def attributes_of(names: Iterable[str], image: Image | None, drifts: Iterable[Drift]) -> tuple[Attribute, ...]:
    """Return these attributes of an item, and all others with drift."""
    wrong: dict[str, Drift] = {}
    for drift in drifts:
        if drift.attribute is None and drift.wrong is None and drift.kind == "copy extra":
            continue
        if drift.attribute is None and drift.kind != "occupied":
            wrong |= dict.fromkeys([*(drift.actual or {}), *(drift.expected or {})], drift)
        elif drift.attribute is not None and drift.kind != "guard":
            wrong[drift.attribute] = drift
    held: dict[str, Any] = {name: plain(value) for name, value in (image or {}).items()}
    held |= {name: drift.actual for name, drift in wrong.items() if drift.attribute is not None}
    return tuple(Attribute(name, held.get(name), wrong.get(name)) for name in dict.fromkeys([*names, *wrong]))


@dataclass(frozen=True, slots=True)
class Derived:
    """The derived values of one rule on the item.

    `drifts` are the differences, `compared` the compared sides, empty if nothing could be compared. `by` and `at` are those
    of the guard: encoded source or parent, and version. `known` is the current version of the group or parent.
    `contributions` is the number in the ledger. `sources` are some of them, `more` describes how to find the others.
    `problem` is why a value cannot be determined. `state` is that of the rule in the registry; a rule that is filling or in
    shadow mode may not publish.
    """

    rule: Rule
    attributes: tuple[Attribute, ...] = ()
    drifts: tuple[Drift, ...] = ()
    compared: tuple[str, ...] = ()
    guarded: bool = False
    by: str = ""
    at: str = ""
    known: str = ""
    shown_count: int | None = None
    contributions: int | None = None
    sources: tuple[tuple[str, str], ...] = ()
    more: str = ""
    notes: tuple[str, ...] = ()
    problem: str = ""
    state: str = LIVE
    publishes: bool = True
    said: str = ""
    """The owner and the description of the rule."""

    @property
    def agrees(self) -> bool:
        return not self.drifts


@dataclass(frozen=True, slots=True)
class Contribution:
    """The contribution of the item to one target under one rule: in the ledger, and of its current attributes."""

    rule: str
    target: str
    recorded: dict[str, Any] | None
    should: dict[str, Any] | None
    drift: Drift | None = None
    excuse: str = ""
    """Why the ledger may differ."""

    @property
    def agrees(self) -> bool:
        return self.drift is None


@dataclass(frozen=True, slots=True)
class Copied:
    """A guarded copy of the item, with its drift."""

    rule: str
    target: ItemKey
    attributes: tuple[Attribute, ...]
    drifts: tuple[Drift, ...]
    by: str
    at: str
    there: bool

    @property
    def agrees(self) -> bool:
        return not self.drifts


@dataclass(frozen=True, slots=True)
class Source:
    """The item as a source: its ledger entry and its contributions. `problems` are bad input."""

    entry: Entry | None
    expires: int | None
    other_rules: bool
    contributions: tuple[Contribution, ...]
    copies: tuple[Copied, ...]
    fences: tuple[tuple[str, str], ...]
    problems: tuple[tuple[str, str], ...]

    @property
    def agrees(self) -> bool:
        return all(one.agrees for one in self.contributions) and all(one.agrees for one in self.copies)


@dataclass(frozen=True, slots=True)
class ItemExplanation:
    """The explanation of one item. `drifts` are those that `verify` reports."""

    key: ItemKey
    image: Image | None
    item: Item | None
    derived: tuple[Derived, ...]
    source: Source | None
    drifts: tuple[Drift, ...] = ()
    left_over: tuple[Drift, ...] = ()
    """Values that no rule corrects any more; they are not drift."""
    other_rules: bool = False
    """Whether other rules than these are active."""
    missing_copy_of: tuple[str, ...] = ()
    """If there is no item: rules whose copies have such keys. Whether one should be here is known from its source only."""

    @property
    def agrees(self) -> bool:
        return not self.drifts
