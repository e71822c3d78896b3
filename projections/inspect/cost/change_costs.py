"""The cost of changes as it follows from the rules: what each rule writes, reads and calls, for items of up to 1 KB.

Every rule is assumed to apply, and every target to exist. A test compares this account with that of the engine.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import NamedTuple

from projections.engine.transactions import MOST_ACTIONS
from projections.language.access.paths import key_variables
from projections.language.contribution import ENTRY_BYTES, MEMBER_BYTES
from projections.language.embeds import MOST_REFERENCES
from projections.language.facts import indexes_fed, paths_read
from projections.language.kinds import EVERY
from projections.language.models import Projection, Rules
from projections.language.program import Program
from projections.language.rules import LIST_BYTES, LedgerRule, Rule
from projections.language.syntax import root
from projections.stores.limits import TRANSACTIONAL
from projections.stores.requests import BATCH_STATEMENTS

CHILDREN = 100
"""Children of a parent under `embed`, if nobody states them."""

ELEMENTS = 3
"""Elements of a list in `each`, or parents that a child references in a list."""

ITEM_BYTES = 500
"""Of an item of the application, if nobody states its size."""

READ_BYTES = 4096
KEYS_PER_READ = 100
PER_TRANSACTION = MOST_ACTIONS - 1
"""Sources of one target that share a transaction, with the group's own action."""


class Flow(NamedTuple):
    """Changes of one kind: new items of an entity, or edits of these attributes (`EVERY`: of all)."""

    entity: str
    edited: frozenset[str] | None = None

    def __str__(self) -> str:
        if self.edited is None:
            return f"a new {self.entity}"
        return f"an edit of {self.entity}.{', '.join(sorted(self.edited))}"


@dataclass(slots=True)
class Sum:
    """Write units, read units and calls."""

    write_units: float = 0.0
    read_units: float = 0.0
    calls: float = 0.0

    def add(self, other: Sum, times: float = 1.0) -> None:
        self.write_units += times * other.write_units
        self.read_units += times * other.read_units
        self.calls += times * other.calls


@dataclass
class BatchCost:
    """The cost of one batch, by rule, with all that follows from it; under "" what no single rule causes.

    `targets` is the number of different targets of a rule in the batch; None if each event has its own.
    """

    model: Rules
    targets: float | None = None
    children: float = CHILDREN
    rules: dict[str, Sum] = field(default_factory=dict)
    contributions: dict[str, float] = field(default_factory=dict)
    """Changes of contributions, by rule."""
    _actions: dict[str, float] = field(default_factory=dict)
    """Actions in transactions of the ledger, by rule."""
    _updates: dict[str, float] = field(default_factory=dict)
    """Updates of groups by lanes, by rule."""
    _groups: dict[str, float] = field(default_factory=dict)
    """Groups that are read, by rule."""
    _entries: float = 0.0
    _shared: dict[tuple[float, str, tuple[tuple[str, str], ...]], list[tuple[str, Projection]]] = field(
        default_factory=dict
    )
    """Rules that publish to the same items with one write, by entity, key and number."""
    _changed: dict[tuple[str, float], tuple[frozenset[str] | None, frozenset[str]]] = field(default_factory=dict)
    """Entities and numbers of items that were written, with the attributes (None: new items) and the rules."""

    @property
    def total(self) -> Sum:
        total = Sum()
        for cost in self.rules.values():
            total.add(cost)
        return total

    def add(self, flows: Mapping[Flow, float]) -> None:
        """Add the changes of a batch, each with its number, and what the function does once for all of them."""
        for flow, number in flows.items():
            self._follow(flow.entity, number, flow.edited, frozenset())
            while self._changed:  # the records of what was written come in the next batch
                changed, self._changed = self._changed, {}
                for (entity, count), (edited, path) in changed.items():
                    self._changes(entity, count, edited, path)
        self._spend("", read_units=1, calls=1)  # the registry
        total = sum(self._actions.values())
        transactions = ceil(total / MOST_ACTIONS) * min(1.0, self._entries)
        for rule, actions in self._actions.items():
            self._spend(rule, calls=transactions * actions / total)
        for items, most in ((self._updates, BATCH_STATEMENTS), (self._groups, KEYS_PER_READ)):
            total = sum(items.values())
            for rule, number in items.items():
                self._spend(rule, calls=_calls(total, most) * number / total)

    def _spend(self, rule: str, write_units: float = 0.0, read_units: float = 0.0, calls: float = 0.0) -> None:
        self.rules.setdefault(rule, Sum()).add(Sum(write_units, read_units, calls))

    def _follow(self, entity: str, number: float, edited: frozenset[str] | None, path: frozenset[str]) -> None:
        """Note changed items, several writes of one item together. `path` has the rules that led to the change."""
        known, rules = self._changed.get((entity, number), (frozenset(), frozenset()))
        all_edited = None if edited is None or known is None else known | edited
        self._changed[entity, number] = (all_edited, rules | path)

    def _changes(self, entity: str, number: float, edited: frozenset[str] | None, path: frozenset[str]) -> None:
        """Add what rules do for changed items."""
        open_ = [(name, rule) for name, rule in self.model.variants() if name not in path]
        open_ = [(name, rule) for name, rule in open_ if rule.publishes or rule.action.recorded]
        own = [(name, rule) for name, rule in open_ if rule.source == entity]
        item_rules = _item_rules(self.model, own, edited)
        concerned = [pair for pair in own if edited is None or _is_changed(paths_read(self.model, pair[1]), edited)]
        recorded = [name for name, rule in concerned if rule.action.recorded and not rule.action.by_lanes]
        pulling = [
            (name, rule)
            for name, rule in open_
            if rule.action.matched and rule.into == entity
            if edited is None or not edited.isdisjoint(rule.action.matched)
        ]
        if item_rules:
            self._write_item(entity, number, edited, item_rules, path)
        self._entries += number * bool(recorded)
        for name in recorded:
            shared = number / len(recorded)
            self._spend(name, write_units=TRANSACTIONAL * shared)
            self._actions[name] = self._actions.get(name, 0.0) + shared
        for name, rule in concerned:
            action = rule.action
            if action.matched:
                self._push(name, rule, number, edited, path)
            elif action.recorded:
                self._contribute(name, rule, number, path, moved=edited is not None)
            elif not action.on_source:
                copies = number * (ELEMENTS if rule.each else 1)
                written, fresh = _changed_attributes(rule, edited), edited is None
                self._publish(name, rule, copies, written, fresh=fresh)
                self._follow(rule.into, copies, None if fresh else written, path | {name})
        for name, rule in pulling:
            parents = number * (ELEMENTS if rule.action.several_parents else 1)
            self._spend(name, parents if rule.action.several_parents else 0, parents, number)
            self._publish(name, rule, number, frozenset(rule.action.written))
            self._follow(entity, number, frozenset(rule.action.written), path | {name})
        for name, rule in open_ if edited is None else ():
            action = rule.action
            if rule.into == entity and action.recorded and action.written and rule.publishes:  # nothing counted yet
                self._publish_groups(name, rule, number, path)
        for (targets, *_), rules in self._shared.items():
            self._publish_together(rules, targets)
        self._shared = {}

    def _write_item(
        self,
        entity: str,
        number: float,
        edited: frozenset[str] | None,
        rules: Mapping[str, Projection],
        path: frozenset[str],
    ) -> None:
        """Add the one write of an item by all its index and compute rules."""
        written = frozenset(name for rule in rules.values() for name in rule.action.written)
        units = 1 + _index_units(self.model, entity, written, fresh=edited is None)
        for name in rules:
            self._spend(name, number * units / len(rules), 0, number / len(rules))
        self._follow(entity, number, written, path | rules.keys())

    def _contribute(self, name: str, rule: Projection, number: float, path: frozenset[str], *, moved: bool) -> None:
        """Add contributions with what they share: groups, and a publish of each target. `moved` ones change their order."""
        changes = number * (ELEMENTS if rule.each else 1)
        self.contributions[name] = self.contributions.get(name, 0.0) + changes
        known = [number for number in (self.targets, fixed_targets(self.model, rule)) if number is not None]
        targets = changes if rule.action.makes_items else min([changes, *known])
        if rule.action.by_lanes:
            self._spend(name, targets)
            self._updates[name] = self._updates.get(name, 0.0) + targets
        else:
            groups = targets * max(1, ceil(changes / targets / PER_TRANSACTION)) if targets else 0
            actions = groups + changes * rule.action.ledger_actions * (1 + moved)
            self._spend(name, TRANSACTIONAL * actions)
            self._actions[name] = self._actions.get(name, 0.0) + actions
        if not rule.action.writes_items or not rule.publishes:
            return
        is_read = not rule.action.by_lanes or (rule.action.spread or 1) > 1  # the update gives the whole group
        self._publish_groups(name, rule, targets, path, is_read=is_read)

    def _publish_groups(
        self, name: str, rule: Projection, targets: float, path: frozenset[str], *, is_read: bool = True
    ) -> None:
        """Add a read of each group, the write of its target, and what follows from it."""
        action = rule.action
        written = frozenset(action.written or (EVERY,))
        if is_read:
            self._groups[name] = self._groups.get(name, 0.0) + targets
            self._spend(name, 0, targets * (1 + action.queries), targets * action.queries)
        if action.makes_items or action.queries:
            self._publish(name, rule, targets, written, fresh=action.makes_items)
        else:
            bound = tuple(sorted((variable, template.text) for variable, template in rule.bind.items()))
            self._shared.setdefault((targets, rule.into, bound), []).append((name, rule))
        self._follow(rule.into, targets, written, path | {name})

    def _publish_together(self, rules: Sequence[tuple[str, Projection]], targets: float) -> None:
        """Add the one write of each target by all these rules."""
        written = frozenset(name for _, rule in rules for name in rule.action.written or (EVERY,))
        units = 1 + _index_units(self.model, rules[0][1].into, written, fresh=False)
        for name, _ in rules:
            self._spend(name, targets * units / len(rules), 0, _calls(targets, BATCH_STATEMENTS) / len(rules))

    def _publish(
        self, name: str, rule: Projection, targets: float, written: frozenset[str], *, fresh: bool = False
    ) -> None:
        """Add a write of each target."""
        units = 1 + _index_units(self.model, rule.into, written, fresh=fresh)
        self._spend(name, targets * units, 0, _calls(targets, BATCH_STATEMENTS) if rule.action.recorded else targets)

    def _push(
        self, name: str, rule: Projection, number: float, edited: frozenset[str] | None, path: frozenset[str]
    ) -> None:
        """Add a push to the children of each parent; a new parent has none yet."""
        children = 0.0 if edited is None else self.children
        written = _changed_attributes(rule, edited)
        units = 1 + _index_units(self.model, rule.into, written)
        reads = max(1.0, children * ITEM_BYTES / READ_BYTES)
        if rule.action.several_parents:
            reads += children * ELEMENTS
        calls = 2 + children / BATCH_STATEMENTS
        self._spend(name, number * (children * units + 1), number * reads, number * calls)
        if children:
            self._follow(rule.into, number * children, written, path | {name})


def _item_rules(
    model: Rules, rules: Iterable[tuple[str, Projection]], edited: frozenset[str] | None
) -> dict[str, Projection]:
    """Return the index and compute rules that write an edited item, also those that read what others compute."""
    waiting: dict[str, Projection] = {name: rule for name, rule in rules if rule.action.on_source}
    if edited is None:
        return waiting
    changed: dict[str, Projection] = {}
    while more := {name: rule for name, rule in waiting.items() if _is_changed(paths_read(model, rule), edited)}:
        changed |= more
        edited = edited.union(*(rule.action.written for rule in more.values()))
        waiting = {name: rule for name, rule in waiting.items() if name not in more}
    return {name: rule for name, rule in changed.items() if not rule.action.first_only}


def _changed_attributes(rule: Projection, edited: frozenset[str] | None) -> frozenset[str]:
    """Return the attributes of the target that change with these of the source."""
    all_written = frozenset(rule.action.written or (EVERY,))
    if edited is None or EVERY in edited or rule.action.copies_all:
        return all_written
    changed = [part for part in rule.parts() if not edited.isdisjoint(map(root, part.value.names))]
    attributes = frozenset(name for part in changed for name in part.attributes)
    return attributes if all(part.attributes for part in changed) else all_written


def _is_changed(reads: set[str], edited: frozenset[str]) -> bool:
    """Whether an edit of these attributes may change what a rule with these reads makes of an item."""
    return EVERY in edited or EVERY in reads or any(root(path) in edited for path in reads)


def _index_units(model: Rules, entity: str, written: frozenset[str], *, fresh: bool = False) -> int:
    """Return the units of all indexes for a write of these attributes: 1 for an entry, 2 if its key changes.

    The key attributes of a `fresh` item have no entry yet.
    """
    table = model.tables[model.entities[entity].table]
    kept = set(model.entities[entity].index_key)
    rules = (rule for rule in model.projections.values() if rule.source == entity)
    fed = {index for rule in rules for index in indexes_fed(model, rule)}
    units = 0
    for name, keys in table.indexes.items():
        projected = table.shown(name)
        if name not in fed and keys.names.isdisjoint(kept):
            continue
        if EVERY in written or not keys.names.isdisjoint(written):
            units += 1 if fresh else 2
        elif not fresh and (projected is None or not projected.isdisjoint(written)):
            units += 1
    return units


def fixed_targets(model: Rules, rule: Projection) -> int | None:
    """Return how many targets a rule has at all, if its key has no variables, or buckets alone; else None."""
    total = 1
    for name in key_variables(model, rule.into):
        template = rule.bind.get(name)
        match = re.fullmatch(r"\{[\w.-]+\|bucket\((\d+)\)\}", template.text if template is not None else "")
        if match is None and (template is None or template.fields):
            return None
        total *= int(match[1]) if match else 1
    return total


def _calls(number: float, size: int) -> float:
    """Return the calls for a number of items, of which one call takes `size`; a fraction of an item is rare."""
    return ceil(number / size) if number > 1 else number


# The most that one write of an item can cost

ITEM_UNITS = 400
"""Write units of the largest item."""


class Worst(NamedTuple):
    """Write units of one write under one rule: `units`, and `per_child` for each child of a parent."""

    units: int
    per_child: int = 0

    @property
    def document(self) -> dict[str, int]:
        return {"writeUnits": self.units, "writeUnitsPerChild": self.per_child}


def worst_writes(program: Program) -> Mapping[str, Worst]:
    """Return the most write units of one write by rule. Targets have at most 1 KB beside what the rule writes."""
    worst: dict[str, Worst] = {}
    for rule in program.variants:
        rule_worst = _worst(program, rule)
        known = worst.get(rule.name, Worst(0))
        worst[rule.name] = Worst(max(rule_worst.units, known.units), max(rule_worst.per_child, known.per_child))
    return worst


def _worst(program: Program, rule: Rule) -> Worst:
    action = program.model.projections[rule.name].action
    if action.several_parents:
        return Worst(2 * MOST_REFERENCES + _units(LIST_BYTES), _units(LIST_BYTES))
    if action.matched:
        return Worst(0, ITEM_UNITS)
    if action.on_source:
        indexes = [keys.names for keys in program.model.table_of(rule.source.name).indexes.values()]
        most = max((sum(not names.isdisjoint(case.set) for names in indexes) for case in action.cases), default=0)
        return Worst(ITEM_UNITS * (1 + 2 * most))
    changed = 2 * (rule.each.most if rule.each is not None else 1)  # all elements are replaced by others
    if not isinstance(rule, LedgerRule):
        return Worst(changed * ITEM_UNITS)
    if action.by_lanes:
        return Worst(changed * (1 + rule.writes_items * (2 if rule.creates else 1)))
    member = _units(MEMBER_BYTES) if rule.carries else 1
    published = _units(LIST_BYTES) if action.elements else member
    entry = _units(2 * ENTRY_BYTES) if rule.each is not None else _units(2 * rule.most_of_one)
    steps = 1 + changed * (1 + action.members + action.counters) // MOST_ACTIONS
    ledger = 2 * (steps * entry + changed * (1 + action.members * member + action.counters))
    return Worst(ledger + (changed * published * (2 if rule.creates else 1) if rule.writes_items else 0))


def _units(size: int) -> int:
    return -(-size // 1024)
