"""What copies, index attributes and healing cost."""

from __future__ import annotations

from dataclasses import replace

from projections.inspect.cost.context import LITTLE, BatchCost, Context, Effects
from projections.inspect.cost.contributions import batched, queried
from projections.inspect.cost.facts import RuleFacts, index_keys
from projections.inspect.cost.flow import EDIT, INSERT, REMOVE, Flow
from projections.inspect.cost.terms import Term
from projections.language.rules import CopyRule, IndexRule
from projections.stores.capacity import write_units

__all__ = ["copy", "heal", "healing_calls", "index"]


def copy(at: Context, facts: RuleFacts, flow: Flow, count: float, cost: BatchCost, effects: Effects) -> None:
    """The guarded copies of the items of a flow."""
    copies = count * at.assumed.share(facts.name)
    if facts.rule.each is not None:
        copies *= at.assumed.elements_of(facts.name)
    entity = facts.into
    if flow.kind == REMOVE:
        at.deleted(cost, facts.name, entity, copies, "the copy goes with its source")
        effects.add(Flow(entity, REMOVE), copies)
        return
    if flow.kind == INSERT:
        inside = at.kept_by_application(entity)
        at.written(cost, facts.name, "copy", entity, copies, inside, facts.writes, "one for each source")
        effects.add(Flow(entity, INSERT, fresh=True, inside=tuple(inside.items())), copies)
        return
    changed = facts.changed(flow.attributes)
    if facts.everything:
        changed |= flow.attributes or frozenset({"*"})
    if not changed:
        return
    written = _targets_of(facts, changed)
    if changed & facts.target:  # another key: a new copy, and the old one goes
        at.deleted(cost, facts.name, entity, copies, "the copy under the old key")
        effects.add(Flow(entity, REMOVE), copies)
        inside = at.kept_by_application(entity)
        at.written(cost, facts.name, "copy", entity, copies, inside, facts.writes, "one for each source")
        effects.add(Flow(entity, INSERT, fresh=True, inside=tuple(inside.items())), copies)
        return
    at.written(cost, facts.name, "copy", entity, copies, at.settled(entity), written, "one for each source")
    effects.add(Flow(entity, EDIT, written), copies)


def index(at: Context, flow: Flow, count: float, cost: BatchCost, effects: Effects) -> Flow:
    """Index attributes of the items of a flow: one write for all rules. Gives the flow with the indexes they are in."""
    if flow.kind == REMOVE:
        return flow
    fresh = flow.kind == INSERT or flow.fresh
    inside = dict(flow.indexes if fresh and flow.fresh else at.settled(flow.entity))
    if flow.kind == INSERT and not flow.fresh:
        inside = dict(at.kept_by_application(flow.entity))
    written: dict[str, list[str]] = {}
    share = 0.0
    moved: list[str] = []
    entered: dict[str, float] = {}
    for facts in at.from_entity.get(flow.entity, ()):
        if not isinstance(facts.rule, IndexRule) or not facts.writes_targets:
            continue
        cases = index_keys(at.program, facts)
        if flow.kind == INSERT:
            if facts.reads & _later(at, flow.entity):
                continue  # some attribute it reads is not there yet
            changed = facts.reads or frozenset({"*"})
        else:
            changed = facts.changed(flow.attributes)
        if not changed:
            continue
        matching = at.assumed.share(facts.name)
        share = max(share, matching)
        written[facts.name] = [case.index for case in cases]
        for case in cases:
            if flow.kind == INSERT or (flow.fresh and case.index not in inside):
                entered[case.index] = matching
            elif changed & case.key_names:
                moved.append(case.index)
            else:  # half of them enter, half leave
                entered[case.index] = matching
                inside.pop(case.index, None)
    if not written or share <= LITTLE:
        return replace(flow, fresh=fresh, inside=tuple(inside.items())) if fresh else flow
    attributes = frozenset(n for name in written for n in at.facts[name].writes)
    table = write_units(round(at.assumed.bytes_of(flow.entity)))
    others = {index: p for index, p in inside.items() if index not in entered}
    units = table * share + share * at.index_units(flow.entity, others, attributes, moved)
    units += sum(p * (table if at.assumed.projections.get(i) is None else 1) for i, p in entered.items())
    why = f"one for each {flow} whose index attributes change, and {(units / share - table):.4g} for its indexes"
    cost.terms.append(Term(tuple(written), "index", count * share, why, write_units=units / share, calls=1))
    cost.records += count * share
    inside |= entered
    made = Flow(flow.entity, EDIT, attributes, fresh=fresh, inside=tuple(inside.items()) if fresh else ())
    effects.add(made, count * share)
    return replace(flow, fresh=True, inside=tuple(inside.items())) if fresh else flow


def _later(at: Context, entity: str) -> frozenset[str]:
    """Attributes that the ledger's rules write on an item once it is there."""
    return frozenset(n for f in at.into_entity.get(entity, ()) if f.ledger and not f.creates for n in f.writes)


def heal(at: Context, flow: Flow, count: float, cost: BatchCost, effects: Effects) -> tuple[float, float]:
    """What the items of a flow, as targets, make the rules look at again. Gives how many items and groups are read."""
    entity = flow.entity
    into = [facts for facts in at.into_entity.get(entity, ()) if facts.ledger and facts.writes_targets]
    copy = next((f for f in at.into_entity.get(entity, ()) if isinstance(f.rule, CopyRule) and not f.ledger), None)
    if copy is not None and copy.writes_targets and flow.kind in (INSERT, REMOVE):
        event = "appeared" if flow.kind == INSERT else "went"
        why = f"a copy that {event} is compared with its source: both are read"
        units = at.read(entity) + at.read(copy.rule.source.name) if flow.kind == INSERT else 2.0
        cost.terms.append(Term((copy.name,), "copy check", count, why, read_units=units, calls=2))
    if flow.kind == REMOVE:
        into = [facts for facts in into if facts.creates]
    if flow.kind == EDIT or not into:
        return 0.0, 0.0
    event = "appears" if flow.kind == INSERT else "went, though only rules make such items"
    rules = tuple(facts.name for facts in into)
    units = at.read(entity) if flow.kind == INSERT else 1.0
    cost.terms.append(Term(rules, "heal", count, f"an item that {event}: it is read", read_units=units))
    cost.terms.append(Term(rules, "heal", count * len(into), f"the groups of an item that {event}", read_units=1))
    if flow.kind == INSERT:
        for facts in into:
            _appeared(at, facts, flow, count, cost, effects)
    return count, count * len(into)


def healing_calls(items: float, groups: float) -> Term:
    """The calls by which a batch reads all items to be healed, and then their groups."""
    why = f"{items:.4g} items to be healed, then {groups:.4g} groups, at most 100 a call"
    return Term((), "heal", batched(items) + batched(groups), why, calls=1)


def _appeared(at: Context, facts: RuleFacts, flow: Flow, count: float, cost: BatchCost, effects: Effects) -> None:
    """An item that appears is given what the ledger knows of it: zeros, mostly."""
    queried(at, facts, count, cost)
    if facts.name in flow.by:
        return  # its own publish made the item, and shows what it should
    if facts.creates:
        why = "zeros on an item that another rule made; then it is asked in vain whether it can go"
        cost.terms.append(Term((facts.name,), "in vain", count, why, write_units=1, calls=1))
    why = "an item that appears is given what the ledger knows of it, zeros if it knows nothing"
    at.written(cost, facts.name, "publish", flow.entity, count, flow.indexes, facts.writes, why)
    effects.add(Flow(flow.entity, EDIT, facts.writes, fresh=True, inside=flow.inside), count)


def _targets_of(facts: RuleFacts, changed: frozenset[str]) -> frozenset[str]:
    """The attributes of a copy that follow changes of its source."""
    rule = facts.rule
    if not isinstance(rule, CopyRule) or rule.attributes is None or changed & facts.where:
        return facts.writes | changed
    named = {target for target, path in rule.attributes if path.split(".", 1)[0] in changed}
    return frozenset(named | {name for name, _ in rule.templates})
