"""What is verified: rules, their states, their relations to items; an item in one of its roles, or a group."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from projections.engine.application import ApplicationItems
from projections.engine.copies import copies_of
from projections.engine.guards import Guards
from projections.engine.ledger_items import group_of, source_of
from projections.engine.registry import RegistrySnapshot
from projections.engine.store import Image, ItemKey
from projections.errors import UsageError
from projections.language.entity import Item
from projections.language.keys import encode_key, is_range
from projections.language.program import Program, grouped
from projections.language.rules import LedgerRule, Rule, public_name
from projections.operations.verify import showing
from projections.operations.verify.drift import LEFT_OVER, Drift, with_sides


class Scope:
    """The rules to verify: those that are named, or all. A name is that of a rule, or of a version.

    `snapshot` is the registry, and `program` has its versions (`Registry.program`); None if there is none yet: then no rule
    has written anything, the tables are compared with what the rules would write, and `offline` is true.

    Of a filling version, only groups are compared with entries: its fill adds the items that it has not read yet. Of any
    other version, what it records is compared with the items. Values on items are those of the published version; where a
    rule has none, those of its complete version, since the application may maintain them.

    Versions that are counted by the shards of the stream (`ledger: lanes`) have no entries. Their groups are compared with
    the items, unless they are filling or keep what has expired, which no item shows.
    """

    def __init__(self, program: Program, snapshot: RegistrySnapshot | None, names: Iterable[str] = ()) -> None:
        self.program = program
        self.snapshot = snapshot
        self.offline = snapshot is None
        self.guards = Guards(program, snapshot.identity if snapshot is not None else None)
        chosen = set(names)
        known = {public_name(name) for name in program.rules}
        for name in sorted(chosen - known - program.rules.keys()):
            raise UsageError(f'unknown rule "{name}"; the rules are {", ".join(sorted(known))}')
        rules = [r for r in program.rules.values() if not chosen or chosen & {r.name, public_name(r.name)}]
        states = {rule.name: snapshot.state(rule) if snapshot is not None else None for rule in rules}
        self.states: dict[str, str] = {name: state or "ready" for name, state in states.items()}
        """By name: `active`, `standby`, `ready` or `filling`."""
        seen = {rule.name for rule in rules if self.states[rule.name] != "filling"}
        recorded = [rule for name, rule in program.recorded.items() if name in self.states]
        versions = snapshot.versions if snapshot is not None else {}
        registered = [versions[rule.name] for rule in recorded if rule.name in versions]
        self.gaps = {version.name: version.gap for version in registered if version.gap}
        """The versions whose groups may be wrong, each with the reason."""
        self.by_lanes = frozenset(version.name for version in registered if version.lanes is not None)
        """The versions that are counted by the shards of the stream."""
        self.grouped = frozenset(rule.name for rule in recorded if not self.offline) - self.by_lanes
        """The rules whose groups are compared with entries."""
        kept = [rule for rule in recorded if rule.name in seen]
        self.recorded = frozenset(rule.name for rule in kept) - self.by_lanes
        """The rules whose contributions are compared with items."""
        self.lanes = frozenset(rule.name for rule in kept if rule.name in self.by_lanes and rule.expired != "keep")
        """The rules whose groups are compared with items, because there are no entries."""
        self.recorded_from = frozenset(source.name for r in kept if r.name in self.recorded for source in r.sources)
        """The source entities of these rules."""
        self.stale = sorted(snapshot.stale) if snapshot is not None else []
        """The versions that are not compared, because this package, or that of a function, cannot read them."""
        shown = {*snapshot.active, *map(public_name, self.stale)} if snapshot is not None else set[str]()
        publishing = [rule for rule in kept if not rule.held or public_name(rule.name) not in shown]
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
            entity: tuple(program.guard(rule.name) for rule in live_rules)
            for entity, rules in self.published_into.items()
            if any(rule.creates for rule in rules) and (live_rules := self.all_live_into(entity))
        }
        """By entity whose items live rules create: all guards on them that count contributions."""
        self.tables = [name for name in program.tables if name in _tables(rules)]
        """The application's tables that these rules read or write."""
        self.ledger = not self.offline and bool(self.grouped or self.by_lanes or embeds)
        """Whether the ledger has to be read."""

    def shown_name(self, rule: str) -> str:
        """Return the name of a rule as people read it: with its version only where that is not the published one."""
        return public_name(rule) if self.states.get(rule, "active") == "active" else rule

    def promotion(self, rule: str) -> int:
        """Return the epoch of the last promotion of a version; 0 without a registry."""
        return self.snapshot.promotion(rule) if self.snapshot is not None else 0

    def is_unpublished(self, rule: Rule) -> bool:
        """Return whether a rule writes nothing to its targets now, so that they have no guards of it."""
        return self.snapshot is None or not self.snapshot.publishes(rule)

    def writes(self, rule: Rule) -> bool:
        """Return whether a rule is verified here, and publishes."""
        return self.states.get(rule.name) == "active"

    def empty(self, entity: str, key: ItemKey, image: Image) -> bool:
        """Return whether all guards on an item of an entity that rules create record 0 contributions."""
        names = self.guards_of_created.get(entity, ())
        guards = [self.guards.parse(self.guards.rule(name), key, image[name]) for name in names if name in image]
        return bool(names) and all(guard is None or guard.n == 0 for guard in guards)

    def with_ledger(self, rule: Rule, key: ItemKey, item: Image | None, drifts: Iterable[Drift]) -> list[Drift]:
        """Return the drifts of a rule on an item with the other ledger that maintains it, if there is one."""
        ledger = self.guards.other_ledger(rule.name, key, item)
        return [replace(drift, ledger=ledger) for drift in drifts]

    def with_sides(self, drift: Drift) -> Drift:
        """Return a drift of these rules with its sides."""
        return with_sides(drift, grouped=drift.rule in self.recorded | self.by_lanes and not self.offline)

    def rule(self, name: str) -> LedgerRule | None:
        """Return a rule with groups by its name."""
        return self.program.recorded.get(name)

    @property
    def filling(self) -> list[str]:
        """The versions whose groups alone are compared, because their fill is not complete."""
        return [name for name, state in self.states.items() if state == "filling" and name not in self.by_lanes]

    @property
    def keeping(self) -> list[str]:
        """The rules that keep what expired items contributed, which no source item shows."""
        return sorted({public_name(name) for name in self.grouped if self.program.rules[name].expired == "keep"})

    def all_live_into(self, entity: str) -> tuple[LedgerRule, ...] | None:
        """Return all rules that publish into an entity from groups, verified here or not; None if not all of them do now."""
        rules = self.program.ledger_rules_into.get(entity, ())
        if self.snapshot is None or any(not self.snapshot.publishes(rule) for rule in rules):
            return None
        return rules


def _tables(rules: Iterable[Rule]) -> set[str]:
    return {entity.table for rule in rules for entity in (*rule.sources, rule.into)}


SOURCE = "source"
"""An item and its entry."""
ITEM = "item"
"""An item whose content causes an error, so it cannot be compared."""
COPY = "copy"
"""A guarded copy, and the sources that make it or that its guard names."""
INDEX = "index"
"""An item and its index attributes."""
CHILD = "child"
"""An item and the attributes of its parents."""
TARGET = "target"
"""An item that a rule publishes to, and its group."""

LEFT = "left"
"""An item of another kind than its rules write to, and the values that they left on it."""
GROUP = "group"
"""A group and all entries that contribute to it."""

_encode = json.JSONEncoder(ensure_ascii=False).encode


class Subject(NamedTuple):
    """A subject. `key` is the encoded key of an item, or of a group's target. An empty `rule` means all rules."""

    kind: str
    rule: str
    key: str
    sources: tuple[str, ...] = ()

    def text(self) -> str:
        """Return a text that is the same for equal subjects."""
        return _encode([self.kind, self.rule, self.key, *self.sources])

    @classmethod
    def read(cls, text: str) -> Subject:
        """Read what `text` wrote."""
        kind, rule, key, *sources = json.loads(text)
        return cls(kind, rule, key, tuple(sources))


def of_items(scope: Scope, table: str, images: Iterable[Image]) -> Iterator[Subject]:
    """Yield a subject for each role of items of an application's table."""
    schema = scope.program.tables[table]
    for image in images:
        key = schema.key(table, image)
        try:
            yield from roles(scope, key, image)
        except Exception:
            yield Subject(ITEM, "", encode_key(key))


def roles(scope: Scope, key: ItemKey, image: Image) -> list[Subject]:
    """Return a subject for each role of an item. Raises any error that its content causes."""
    item, text = scope.program.recognise(key, image), encode_key(key)
    subjects = [Subject(LEFT, "", text)] if strange_guards(scope, image, item) else []
    for copied in scope.copy_into.values():
        if not copied.into.at(key):
            continue
        guard = scope.guards.read(copied.name, key, image)
        if guard is not None and guard.by:
            subjects.append(Subject(COPY, copied.name, text, (guard.by,)))
        elif guard is None and scope.writes(copied) and scope.guards.is_created(key, image):
            subjects.append(Subject(COPY, copied.name, text))  # its source, if there is one, has the same subject
    if item is None:
        return subjects
    entity = item.entity.name
    if entity in scope.recorded_from and not scope.offline:
        subjects.append(Subject(SOURCE, "", text))
    for rule in scope.copies_from.get(entity, ()):
        subjects += [Subject(COPY, rule.name, encode_key(target), (text,)) for target in copies_of(rule, item)]
    if entity in scope.indexes:
        subjects.append(Subject(INDEX, "", text))
    if entity in scope.embeds_into:
        subjects.append(Subject(CHILD, "", text))
    return subjects + [Subject(TARGET, into.name, text) for into in scope.published_into.get(entity, ())]


def of_ledger(scope: Scope, images: Iterable[Image]) -> Iterator[Subject]:
    """Yield the sources of entries and the targets of groups. Sums of groups need all entries, and are not among them."""
    for image in images:
        kind = image["pk"]["S"][:2]
        if kind == "E|" and image["contributions"]["S"] != "{}":
            yield Subject(SOURCE, "", source_of(image))
        elif kind == "G|" and image["sk"]["S"] == "00":
            rule, target = group_of(image)
            if rule in scope.published and not is_range(target):
                yield Subject(TARGET, rule, target)


def left_on(scope: Scope, items: ApplicationItems, key: ItemKey, image: Image, item: Item | None) -> list[Drift]:
    """Return a drift for each rule that publishes and that left values on an item of another kind."""
    prefix, program = scope.program.guard_prefix, scope.program
    names = strange_guards(scope, image, item)
    drifts, guarded = [], False
    target = encode_key(key)
    kept = program.derived_attributes(item.entity.name) if item is not None else frozenset()
    for name in names:
        rule = program.published.get(name.removeprefix(prefix))
        guard = scope.guards.parse(scope.guards.rule(name), key, image[name]) if name != prefix else None
        guarded = guarded or guard is not None
        if guard is None or rule is None or not rule.has_guard or not scope.writes(rule):
            continue
        if items.may_write(rule, rule.into, key, image):
            continue
        owned = frozenset(rule.owned())
        remains = showing.item({n: image[n] for n in sorted(owned - kept - rule.into.constants.keys()) if n in image})
        if remains:
            drifts.append(Drift(LEFT_OVER, rule.name, target, None, remains, None, guard.by or None, guard.at or None))
    if names and item is None and not guarded and scope.guards.is_created(key, image):
        at = program.entities_at(key)
        makers = [rule for entity in at for rule in program.ledger_rules_into.get(entity.name, ()) if rule.creates]
        if makers and scope.writes(makers[0]):
            drifts.append(Drift(LEFT_OVER, makers[0].name, target, None, showing.item(image)))
    return drifts


def strange_guards(scope: Scope, image: Image, item: Item | None) -> list[str]:
    """Return the names of the guards on an item of rules that do not write to its entity."""
    prefix, rules = scope.program.guard_prefix, scope.program.published
    names = [name for name in image if name.startswith(prefix)]
    if item is None:
        return names
    written = (rules.get(name.removeprefix(prefix)) for name in names)
    names = [name for name, rule in zip(names, written, strict=True) if rule is None or rule.into is not item.entity]
    return names if names != [prefix] else []
