"""The same without this package: a handler that does one UpdateItem per record, rule and target; and one that also asks
Powertools' idempotency first. Neither counts right: the first counts a retry twice, and neither sees what a stale write
overwrote.

What follows from a write comes back as a record here too, but nothing is put together: ten likes of one post are ten
updates of it, and ten of its index keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from projections.inspect.cost.context import LITTLE, Context
from projections.inspect.cost.facts import RuleFacts, index_keys
from projections.inspect.cost.flow import EDIT, INSERT, REMOVE, Flow
from projections.language.embeds import EmbedRule
from projections.language.rules import CopyRule, IndexRule
from projections.stores.capacity import read_units, write_units

__all__ = ["NaiveCost", "naive"]


@dataclass(slots=True)
class NaiveCost:
    """Per batch. `handled` counts the records that some rule concerns, `records` the writes, which come back."""

    write_units: float = 0.0
    read_units: float = 0.0
    calls: float = 0.0
    handled: float = 0.0
    records: float = 0.0
    rules: dict[str, float] = field(default_factory=dict)
    """Write units by rule."""


def naive(at: Context, flows: Mapping[Flow, float], rounds: int = 30) -> NaiveCost:
    """What one handles by hand for so many changes, and for what they bring about."""
    cost = NaiveCost()
    for _ in range(rounds):
        if not flows:
            break
        following: dict[Flow, float] = {}
        for flow, count in flows.items():
            before = cost.calls
            for facts in at.facts.values():
                _rule(at, facts, flow, count, cost, following)
            if cost.calls > before:
                cost.handled += count
        flows = {flow: count for flow, count in following.items() if count > LITTLE}
    return cost


def _rule(
    at: Context, facts: RuleFacts, flow: Flow, count: float, cost: NaiveCost, following: dict[Flow, float]
) -> None:
    rule = facts.rule
    if not facts.writes_targets:
        return
    if isinstance(rule, EmbedRule):
        _embed(at, facts, rule, flow, count, cost, following)
        return
    if rule.source.name != flow.entity:
        return
    changed = facts.changed(flow.attributes)
    if facts.everything and flow.kind == EDIT:
        changed |= flow.attributes or frozenset({"*"})
    if flow.kind == EDIT and not changed:
        return
    number = count * at.assumed.share(facts.name)
    if isinstance(rule, IndexRule):
        if flow.kind != REMOVE:
            moved = [case.index for case in index_keys(at.program, facts)]
            inside = at.settled(flow.entity)
            _write(at, facts, number, flow.entity, inside, cost, moved if flow.kind == EDIT else ())
            _follow(following, Flow(flow.entity, EDIT, facts.writes), number)
        return
    if rule.each is not None:
        number *= at.assumed.elements_of(facts.name)
    if flow.kind == EDIT and changed & facts.target:
        number *= 2  # the old target and the new one
    _write(at, facts, number, facts.into, at.settled(facts.into), cost)
    if isinstance(rule, CopyRule):
        kind = flow.kind if flow.kind != EDIT or not changed & facts.target else INSERT
        _follow(following, Flow(facts.into, kind, facts.writes if kind == EDIT else None), number)
    else:
        _follow(following, Flow(facts.into, EDIT, facts.writes), number)


def _embed(
    at: Context,
    facts: RuleFacts,
    rule: EmbedRule,
    flow: Flow,
    count: float,
    cost: NaiveCost,
    following: dict[Flow, float],
) -> None:
    """A new child reads its parent; a parent that changes finds its children by a query and updates each."""
    if flow.entity == facts.into and flow.kind == INSERT:
        cost.read_units += count * at.read(rule.source.name)
        cost.calls += count
        _write(at, facts, count, facts.into, at.settled(facts.into), cost)
        _follow(following, Flow(facts.into, EDIT, facts.writes), count)
    if flow.entity == rule.source.name and flow.kind == EDIT and facts.changed(flow.attributes):
        children = at.assumed.children_of(facts.name)
        size = round(children * at.assumed.bytes_of(facts.into))
        cost.read_units += count * read_units(size, consistent=rule.children.index is None)
        cost.calls += count
        _write(at, facts, count * children, facts.into, at.settled(facts.into), cost)
        _follow(following, Flow(facts.into, EDIT, facts.writes), count * children)


def _write(
    at: Context,
    facts: RuleFacts,
    number: float,
    entity: str,
    inside: Mapping[str, float],
    cost: NaiveCost,
    moved: tuple[str, ...] | list[str] = (),
) -> None:
    table = write_units(round(at.assumed.bytes_of(entity)))
    units = number * (table + at.index_units(entity, inside, facts.writes, moved))
    cost.write_units += units
    cost.calls += number
    cost.records += number
    cost.rules[facts.name] = cost.rules.get(facts.name, 0.0) + units


def _follow(following: dict[Flow, float], flow: Flow, count: float) -> None:
    following[flow] = following.get(flow, 0.0) + count
