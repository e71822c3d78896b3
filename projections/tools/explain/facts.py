"""What is known of one item: what rules keep on it, and what it gives to others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from projections.engine.ledger_items import Entry
from projections.engine.registry import LIVE
from projections.engine.store import Image, ItemKey, Value
from projections.language.rules import Rule
from projections.language.scope import Item
from projections.language.values import same

__all__ = ["Attribute", "Contribution", "Copied", "Derived", "ItemTold", "Source"]


@dataclass(frozen=True, slots=True)
class Attribute:
    """One derived attribute: what the item shows, what it should show, and whether these agree."""

    name: str
    shown: Value | None
    expected: Value | None

    @property
    def agrees(self) -> bool:
        return same(self.shown, self.expected)


@dataclass(frozen=True, slots=True)
class Derived:
    """What one rule keeps on the item.

    `by` and `at` are the guard's: encoded source or parent, and version. `known` is the version that a write now would
    have, where there is one. `contributions` is how many the ledger counts. `sources` are some of those that contribute,
    `more` says how the others are found. `problem` says why a value cannot be told.
    `state` is the rule's, by the registry; a rule that is filling or in the shadow may not publish.
    """

    rule: Rule
    attributes: tuple[Attribute, ...]
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
        """Whether all is as it should be. What a rule does not write, it does not answer for."""
        if not self.publishes:
            return True
        return not self.problem and all(attribute.agrees for attribute in self.attributes)


@dataclass(frozen=True, slots=True)
class Contribution:
    """What the item gives to one target under one rule: by the ledger, and by the item as it is now."""

    rule: str
    target: str
    recorded: dict[str, Any] | None
    should: dict[str, Any] | None
    excuse: str = ""
    """Why the ledger may say something else for now."""

    @property
    def agrees(self) -> bool:
        return self.recorded == self.should or bool(self.excuse)


@dataclass(frozen=True, slots=True)
class Copied:
    """A guarded copy of the item: what it shows against what it should."""

    rule: str
    target: ItemKey
    attributes: tuple[Attribute, ...]
    by: str
    at: str
    there: bool

    @property
    def agrees(self) -> bool:
        return self.there and all(attribute.agrees for attribute in self.attributes)


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
        whole = all(one.agrees for one in self.contributions) and all(one.agrees for one in self.copies)
        return whole and not self.problems


@dataclass(frozen=True, slots=True)
class ItemTold:
    """All that is known of one item."""

    key: ItemKey
    image: Image | None
    item: Item | None
    derived: tuple[Derived, ...]
    source: Source | None
    other_rules: bool = False
    """Whether the rules in force are others than these."""

    @property
    def agrees(self) -> bool:
        return all(one.agrees for one in self.derived) and (self.source is None or self.source.agrees)
