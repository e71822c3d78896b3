"""What is known of one item: what rules keep on it, and what it gives to others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    """One derived attribute as the item has it, in plain JSON; and its drift, None if there is none."""

    name: str
    shown: Any
    drift: Drift | None = None

    @property
    def expected(self) -> Any:
        """As in `Drift`: what the attribute should be, or what the group has if no source items were compared."""
        if self.drift is None:
            return self.shown
        if self.drift.attribute is None:  # the drift of the whole item
            return (self.drift.expected or {}).get(self.name)
        return self.drift.expected

    @property
    def agrees(self) -> bool:
        return self.drift is None or self.shown == self.expected


def attributes_of(names: Iterable[str], image: Image | None, drifts: Iterable[Drift]) -> tuple[Attribute, ...]:
    """These attributes of an item, and all others that differ, each with its drift."""
    wrong: dict[str, Drift] = {}
    for drift in drifts:
        if drift.attribute is None and drift.wrong is None and drift.kind == "copy extra":
            continue
        if drift.attribute is None and drift.kind != "occupied":
            wrong |= dict.fromkeys([*(drift.actual or {}), *(drift.expected or {})], drift)
        elif drift.attribute is not None and drift.kind != "guard":
            wrong[drift.attribute] = drift
    held: Mapping[str, Any] = {name: plain(value) for name, value in (image or {}).items()}
    return tuple(Attribute(name, held.get(name), wrong.get(name)) for name in dict.fromkeys([*names, *wrong]))


@dataclass(frozen=True, slots=True)
class Derived:
    """What one rule keeps on the item.

    `drifts` is what the comparison found, `compared` the sides that it compared; empty if it could not compare any.
    `by` and `at` are the guard's: encoded source or parent, and version. `known` is the version that a write now would
    have, where there is one. `contributions` is how many the ledger counts. `sources` are some of those that contribute,
    `more` says how the others are found. `problem` says why a value cannot be told.
    `state` is the rule's, by the registry; a rule that is filling or in the shadow may not publish.
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

    @property
    def agrees(self) -> bool:
        return not self.drifts


@dataclass(frozen=True, slots=True)
class Contribution:
    """What the item gives to one target under one rule: by the ledger, and by the item as it is now."""

    rule: str
    target: str
    recorded: dict[str, Any] | None
    should: dict[str, Any] | None
    drift: Drift | None = None
    excuse: str = ""
    """Why the ledger may say something else for now."""

    @property
    def agrees(self) -> bool:
        return self.drift is None


@dataclass(frozen=True, slots=True)
class Copied:
    """A guarded copy of the item: what it shows against what it should."""

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
    """The item as a source: its entry in the ledger, and what it should contribute now. `problems` are bad input."""

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
    """All that is known of one item. `drifts` is what `verify` reports of it."""

    key: ItemKey
    image: Image | None
    item: Item | None
    derived: tuple[Derived, ...]
    source: Source | None
    drifts: tuple[Drift, ...] = ()
    left_over: tuple[Drift, ...] = ()
    """What rules wrote on it and correct no more; not counted as drift."""
    other_rules: bool = False
    """Whether the rules in force are others than these."""

    @property
    def agrees(self) -> bool:
        return not self.drifts
