"""The data that was read for the explanation of one item."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from projections.engine.groups import Group
from projections.engine.guards import at_of, by_of
from projections.engine.ledger_items import Target
from projections.engine.store import Image, ItemKey, Store, Value
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import LedgerRule, Rule
from projections.operations.verify.drift import Drift, Finding
from projections.operations.verify.scope import Scope, Subject

__all__ = ["Guard", "Readings"]


@dataclass(frozen=True, slots=True)
class Guard:
    """The guard on an item: encoded source or parent, version, number of contributions."""

    there: bool = False
    by: str = ""
    at: str = ""
    n: int | None = None

    @property
    def sources(self) -> list[ItemKey]:
        """The key in `by`, if it is valid."""
        try:
            return [decode_key(self.by)] if self.by else []
        except ValueError:
            return []


@dataclass(slots=True)
class Readings:
    """The item with its groups, and the items near it: sources, parents, copies, fences."""

    program: Program
    store: Store
    scope: Scope
    key: ItemKey
    image: Image | None
    item: Item | None
    found: Mapping[Subject, Finding] = field(default_factory=dict)
    """The result of the comparison."""
    groups: dict[Target, Group] = field(default_factory=dict)
    near: dict[ItemKey, Image] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return encode_key(self.key)

    @property
    def entities(self) -> list[str]:
        """The entity of the item, or all possible ones of its key if it does not exist."""
        if self.item is not None:
            return [self.item.entity.name]
        if self.image is not None:
            return []
        return [entity.name for entity in self.program.entities_at(self.key)]

    @property
    def onto(self) -> list[LedgerRule]:
        """The rules that publish from the ledger onto the item, or that would create another item under its key."""
        into, names = self.program.ledger_rules_into, self.entities
        others = [one.name for one in self.program.entities_at(self.key) if one.name not in names]
        return [rule for name in names for rule in into.get(name, ())] + [
            rule for name in others for rule in into.get(name, ()) if rule.creates
        ]

    def shown(self, name: str) -> Value | None:
        return (self.image or {}).get(name)

    def drifts(self, rule: str, *kinds: str, target: str | None = None) -> Iterator[Drift]:
        """Yield the drift of one rule in these kinds of subjects, of this item or of a target."""
        for subject, finding in self.found.items():
            for drift in finding.drifts:
                if subject.kind in kinds and drift.rule == rule and drift.target == (target or self.text):
                    yield drift

    def guard(self, rule: Rule, image: Image | None = None) -> Guard:
        """Return the guard on the item, or on another one."""
        held = ((self.image if image is None else image) or {}).get(self.program.guard(rule.name))
        if held is None:
            return Guard()
        n = held["M"].get("n", {}).get("N") if "M" in held else None
        return Guard(True, by_of(held), at_of(held), int(n) if n is not None else None)
