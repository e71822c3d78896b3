"""The rules to verify, their states, and their relations to items."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from projections.engine.guards import Guards
from projections.engine.registry import FILLING, LIVE, SHADOW, RegistrySnapshot
from projections.engine.store import Image, ItemKey
from projections.errors import UsageError
from projections.language.program import Program, grouped
from projections.language.rules import LedgerRule, Rule
from projections.operations.verify.drift import Drift, with_sides

__all__ = ["DISABLED", "Scope"]

DISABLED = "disabled"
"""The state of a rule with `enabled: false`, in place of `shadow`."""


class Scope:
    """The rules to verify: those that are named, or all.

    `snapshot` is the registry, None if there is none yet: then no rule has written anything, the tables are compared with
    what the rules would write, and `offline` is true.

    For a filling rule, only groups are compared with entries: its backfill projects the items that it has not read yet. For
    a disabled rule the ledger is compared, and not what the rule wrote, which stays as it was.
    """

    def __init__(self, program: Program, snapshot: RegistrySnapshot | None, names: Iterable[str] = ()) -> None:
        self.program = program
        self.snapshot = snapshot
        self.offline = snapshot is None
        self.guards = Guards(program, snapshot.identity if snapshot is not None else None)
        chosen = set(names)
        for name in sorted(chosen - program.rules.keys()):
            raise UsageError(f'unknown rule "{name}"; the rules are {", ".join(program.rules)}')
        rules = [rule for rule in program.rules.values() if not chosen or rule.name in chosen]
        self.states: dict[str, str] = {rule.name: self._state(rule) for rule in rules}
        """By name: `live`, `shadow`, `disabled` or `filling`."""
        seen = {rule.name for rule in rules if self.states[rule.name] != FILLING}
        idle = {name for name in seen if self.states[name] == DISABLED}
        recorded = [rule for name, rule in program.recorded.items() if name in self.states]
        self.grouped = frozenset(rule.name for rule in recorded) if not self.offline else frozenset[str]()
        """The rules whose groups are compared with entries."""
        kept = [rule for rule in recorded if rule.name in (seen - idle if self.offline else seen)]
        self.recorded = frozenset(rule.name for rule in kept)
        """The rules whose contributions are compared with items."""
        self.recorded_from = frozenset(source.name for rule in kept for source in rule.sources)
        """The source entities of these rules."""
        seen -= idle
        publishing = [rule for rule in recorded if rule.name in seen]
        self.published = frozenset(rule.name for rule in publishing)
        """The rules whose groups are compared with targets, if they write to any."""
        self.published_into = grouped((rule for rule in publishing if rule.writes_items), lambda rule: rule.into.name)
        """By target entity."""
        copies = [rule for name, rule in program.guarded_copies.items() if name in seen]
        self.copies_from = grouped(copies, lambda rule: rule.source.name)
        self.copy_into = {rule.into.name: rule for rule in copies}
        indexes = [rule for name, rule in program.on_items.items() if name in seen]
        self.indexes = grouped(indexes, lambda rule: rule.source.name)
        embeds = [rule for name, rule in program.embeds.items() if name in seen]
        self.embeds_from = grouped(embeds, lambda rule: rule.source.name)
        self.embeds_into = grouped(embeds, lambda rule: rule.into.name)
        self.parents = grouped(embeds, lambda rule: rule.source.table)
        """By table: the embed rules whose parents are in it."""
        self.guards_of_created = {
            entity: tuple(program.guard(rule.name) for rule in found)
            for entity, rules in self.published_into.items()
            if any(rule.creates for rule in rules) and (found := self.all_live_into(entity))
        }
        """By entity whose items live rules create: all guards on them that count contributions."""
        self.tables = [name for name in program.tables if name in _tables(rules)]
        """The application's tables that these rules read or write."""
        self.ledger = not self.offline and bool(self.grouped or embeds)
        """Whether the ledger has to be read."""

    def _state(self, rule: Rule) -> str:
        if self.program.disabled(rule.name):
            return DISABLED
        if self.snapshot is not None:
            return self.snapshot.state(rule)
        return SHADOW

    def publishes(self, rule: Rule) -> bool:
        """Return whether a rule writes to its targets now."""
        return self.snapshot is not None and self.snapshot.publishes(rule)

    def shadow(self, rule: Rule) -> bool:
        """Return whether the rule writes nothing, so that its items have no guards."""
        return self.states[rule.name] in (SHADOW, DISABLED)

    def writes(self, rule: Rule) -> bool:
        """Return whether a rule is verified here, and publishes."""
        return self.states.get(rule.name) == LIVE

    def empty(self, entity: str, key: ItemKey, image: Image) -> bool:
        """Return whether all guards on an item of an entity that rules create record 0 contributions."""
        names = self.guards_of_created.get(entity, ())
        guards = [self.guards.parse(self.guards.rule(name), key, image[name]) for name in names if name in image]
        return bool(names) and all(one is None or one.n == 0 for one in guards)

    def attributed(self, rule: Rule, key: ItemKey, item: Image | None, drifts: Iterable[Drift]) -> list[Drift]:
        """Return the drifts of a rule on an item with the other ledger that maintains it, if there is one."""
        other = self.guards.other_ledger(rule.name, key, item)
        return [replace(drift, ledger=other) for drift in drifts]

    def sided(self, drift: Drift) -> Drift:
        """Return a drift of these rules with its sides."""
        return with_sides(drift, grouped=drift.rule in self.recorded and not self.offline)

    def rule(self, name: str) -> LedgerRule | None:
        """Return a rule with groups by its name."""
        return self.program.recorded.get(name)

    @property
    def filling(self) -> list[str]:
        """The rules of which only groups are compared, because their backfill is not complete."""
        return [name for name in self._unfilled if name not in self.undeployed]

    @property
    def undeployed(self) -> list[str]:
        """The rules of which only groups are compared, because they are not active: another version may be."""
        active = self.snapshot.active if self.snapshot is not None else {}
        return [
            name
            for name in self._unfilled
            if name not in active or active[name].fingerprint != self.program.rules[name].fingerprint
        ]

    @property
    def _unfilled(self) -> list[str]:
        return [name for name, state in self.states.items() if state == FILLING]

    @property
    def keeping(self) -> list[str]:
        """The rules that keep the amounts of expired items, which no entry has."""
        return [name for name in sorted(self.grouped) if self.program.rules[name].expired == "keep"]

    def all_live_into(self, entity: str) -> tuple[LedgerRule, ...] | None:
        """Return all rules that publish into an entity from groups, verified here or not; None if not all of them do now."""
        rules = self.program.ledger_rules_into.get(entity, ())
        if self.snapshot is None or any(self.snapshot.state(rule) != LIVE for rule in rules):
            return None
        return rules


def _tables(rules: Iterable[Rule]) -> set[str]:
    return {entity.table for rule in rules for entity in (*rule.sources, rule.into)}
