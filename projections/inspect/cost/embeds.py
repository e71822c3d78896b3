"""What embeds cost: pulling a parent's attributes into a child, pushing them to all children."""

from __future__ import annotations

import math

from projections.engine.embeds import CHILDREN_PER_PAGE
from projections.inspect.cost.context import BatchCost, Context, Effects
from projections.inspect.cost.facts import RuleFacts
from projections.inspect.cost.flow import EDIT, INSERT, REMOVE, Flow
from projections.inspect.cost.terms import Term
from projections.language.embeds import EmbedRule
from projections.stores.capacity import read_units, write_units
from projections.stores.statements import BATCH_STATEMENTS

__all__ = ["embed"]


def embed(at: Context, flow: Flow, count: float, cost: BatchCost, effects: Effects) -> None:
    for facts in at.into_entity.get(flow.entity, ()):
        rule = facts.rule
        if not isinstance(rule, EmbedRule) or not facts.writes_targets or flow.kind == REMOVE:
            continue
        own = {name.split(".", 1)[0] for name, _ in rule.match} | set(rule.children.partition)
        if flow.kind == INSERT or (flow.attributes is not None and flow.attributes & own):
            _pull(at, facts, rule, flow, count, cost, effects)
    for facts in at.from_entity.get(flow.entity, ()):
        rule = facts.rule
        if not isinstance(rule, EmbedRule) or not facts.writes_targets:
            continue
        keeps = flow.kind == REMOVE and rule.on_delete == "keep"
        if not keeps and (flow.kind != EDIT or facts.changed(flow.attributes)):
            _push(at, facts, rule, flow, count, cost, effects)


def _pull(
    at: Context, facts: RuleFacts, rule: EmbedRule, flow: Flow, count: float, cost: BatchCost, effects: Effects
) -> None:
    pulls = count * at.assumed.share(facts.name)
    again = rule.children.index is not None
    units = at.read(flow.entity) + at.read(rule.source.name) + (2 if again else 1)
    why = "a child that appears or changes its reference reads itself, the parent and its fence"
    calls = 4 if again else 3
    cost.terms.append(Term((facts.name,), "pull", pulls, why, read_units=units, calls=calls))
    inside = flow.indexes if flow.fresh else at.settled(flow.entity)
    why = "one for each such child"
    at.written(cost, facts.name, "embed", flow.entity, pulls, inside, facts.writes, why)
    made = Flow(flow.entity, EDIT, facts.writes, fresh=flow.fresh, inside=flow.inside)
    effects.add(made, pulls)


def _push(
    at: Context, facts: RuleFacts, rule: EmbedRule, flow: Flow, count: float, cost: BatchCost, effects: Effects
) -> None:
    children = 0.0 if flow.kind == INSERT else at.assumed.children_of(facts.name)
    entity = facts.into
    size = at.assumed.bytes_of(entity)
    indexed = rule.children.index is not None
    full, rest = divmod(children, CHILDREN_PER_PAGE)
    pages = full + 1  # a full page does not say that it is the last: an empty one may follow
    passes = 2 if indexed else 1
    name = (facts.name,)
    cost.terms.append(Term(name, "fence", count, "one for each parent that changes", write_units=1, calls=1))
    why = f"{pages:.4g} pages of at most {CHILDREN_PER_PAGE} children" + (", twice: an index lags" if indexed else "")
    queries = full * read_units(round(size * CHILDREN_PER_PAGE), consistent=not indexed)
    queries += read_units(round(size * rest), consistent=not indexed)
    reads = pages * (1 + at.read(rule.source.name)) + queries  # the fence and the parent for each page, the children
    cost.terms.append(Term(name, "page", count * passes, why, read_units=reads, calls=3 * pages))
    cost.tasks += count * (pages * passes - 1)
    if not children:
        return
    inside = at.settled(entity)
    table = write_units(round(size))
    units = table + at.index_units(entity, inside, facts.writes)
    calls = full * math.ceil(CHILDREN_PER_PAGE / BATCH_STATEMENTS) + math.ceil(rest / BATCH_STATEMENTS)
    why = f"one for each of {children:.4g} children, {BATCH_STATEMENTS} a call"
    cost.terms.append(Term(name, "embed", count * children, why, write_units=units))
    cost.terms.append(Term(name, "embed", count * calls, why, calls=1))
    cost.records += count * children
    effects.add(Flow(entity, EDIT, facts.writes), count * children)
