"""The write units of one change of an item: the application's own write, its index entries, and the rules that follow it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from projections.engine.attempts import MOST_ACTIONS
from projections.errors import ProjectionsError
from projections.inspect.cost.batch import rehearse_batch
from projections.inspect.cost.reads import Shapes
from projections.inspect.cost.workload import EDIT, INSERT, Assumptions, Flow
from projections.inspect.rehearsal.rehearse import Rehearsal
from projections.language.canonical import Document
from projections.language.contribution import ENTRY_BYTES, MEMBER_BYTES
from projections.language.embeds import MOST_REFERENCES, EmbedRule, ListEmbedRule
from projections.language.facts import creators
from projections.language.program import Program
from projections.language.rules import LIST_BYTES, AggregateRule, IndexRule, ItemRule, LedgerRule, PickRule, Rule
from projections.stores.capacity import Units, written

__all__ = ["Change", "Worst", "WriteCost", "change_of", "own_units", "worst_writes", "write_cost"]


@dataclass(frozen=True, slots=True)
class Change:
    """Write units of one change: `own` of the application's write with its index entries, `rules` of what follows it."""

    own: float
    rules: float

    @property
    def total(self) -> float:
        return self.own + self.rules


@dataclass(frozen=True, slots=True)
class WriteCost:
    """Write units of a new item of `entity`, and of an edit of all its attributes, before and after rules change.

    If only rules write the items of a query, `entity` is the application's entity that they make them of.
    """

    entity: str
    put: tuple[Change, Change]
    edit: tuple[Change, Change]

    def document(self) -> dict[str, Any]:
        """Return the JSON: [before, after] of a new item and of an edit."""
        return {
            "of": self.entity,
            "put": [change.total for change in self.put],
            "edit": [change.total for change in self.edit],
        }

    def __str__(self) -> str:
        put, edit = (f"{one.total:g} → {other.total:g}" for one, other in (self.put, self.edit))
        return f"write units of a new {self.entity}: {put}; of an edit of all its attributes: {edit}"


def write_cost(
    before: Document, after: Document, entity: str, known: dict[str, tuple[Change, Change]] | None = None
) -> WriteCost:
    """Return what a change of an entity costs under two versions of the rules.

    `known` keeps what it costs before, by entity.
    Raises ProjectionsError if the rules cannot be rehearsed.
    """
    entity = _written_by_the_application(before, entity)
    known = {} if known is None else known
    if entity not in known:
        known[entity] = _changes(before, entity)
    put, edit = _changes(after, entity)
    return WriteCost(entity, (known[entity][0], put), (known[entity][1], edit))


def _changes(document: Document, entity: str) -> tuple[Change, Change]:
    """Return what a new item costs, and an edit of all its attributes."""
    program = Program.from_document(document.to_document())
    return change_of(program, Flow(entity, INSERT)), change_of(program, Flow(entity, EDIT))


def change_of(program: Program, flow: Flow) -> Change:
    """Return what one change costs, rehearsed on tables in memory with items of the usual size."""
    rehearsal = rehearse_batch(Shapes(program), Assumptions(), {flow: 1})
    return Change(float(sum(units.total for units in own_units(rehearsal))), rehearsal.spent.write_units)


def own_units(rehearsal: Rehearsal) -> Iterator[Units]:
    """Yield the units of the application's own writes, with those of the index entries that they change.

    Raises ProjectionsError if the rehearsal made no write, because generated items do not change in this way.
    """
    if not rehearsal.batches:
        raise ProjectionsError("not rehearsed: the generated items do not change in this way")
    for one in rehearsal.batches[0].records:
        if one.record is not None:
            yield written(one.record.old, one.record.new, rehearsal.program.tables[one.record.key.table])


def _written_by_the_application(document: Document, entity: str) -> str:
    """Return the entity whose items lead, through rules, to those of `entity`."""
    made = creators(document)
    seen = {entity}
    while entity in made:
        entity = document.rules[made[entity]].source
        if entity in seen:
            break
        seen.add(entity)
    return entity


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
    found: dict[str, Worst] = {}
    for rule in program.variants:
        one = _worst(program, rule)
        known = found.get(rule.name, Worst(0))
        found[rule.name] = Worst(max(one.units, known.units), max(one.per_child, known.per_child))
    return found


def _worst(program: Program, rule: Rule) -> Worst:
    if isinstance(rule, ListEmbedRule):
        return Worst(2 * MOST_REFERENCES + _units(LIST_BYTES), _units(LIST_BYTES))
    if isinstance(rule, EmbedRule):
        return Worst(0, ITEM_UNITS)
    if isinstance(rule, ItemRule):
        indexes = max(map(len, rule.indexes), default=0) if isinstance(rule, IndexRule) else 0
        return Worst(ITEM_UNITS * (1 + 2 * indexes))
    changed = 2 * (rule.each.most if rule.each is not None else 1)  # all elements are replaced by others
    if not isinstance(rule, LedgerRule):
        return Worst(changed * ITEM_UNITS)
    typed = program.typed.rules[rule.name]
    counters = len(rule.value_slots) if isinstance(rule, AggregateRule) else 0
    member = _units(MEMBER_BYTES) if rule.carries else 1
    listed = isinstance(rule, PickRule) and rule.list_name is not None
    published = _units(LIST_BYTES) if listed else member
    entry = _units(2 * ENTRY_BYTES) if rule.each is not None else _units(2 * rule.most_of_one)
    steps = 1 + changed * (1 + typed.members + counters) // MOST_ACTIONS
    ledger = 2 * (steps * entry + changed * (1 + typed.members * member + counters))
    return Worst(ledger + (changed * published * (2 if rule.creates else 1) if rule.writes_items else 0))


def _units(size: int) -> int:
    return -(-size // 1024)
