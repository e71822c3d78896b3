"""Queries: how requests answer them, and indexes that they do not need. Only of rule files that have queries."""

from __future__ import annotations

from collections.abc import Iterator

from projections.language.access.plan import Plan, Query, queries_of
from projections.language.access.planner import plan
from projections.language.access.proposals import proposal
from projections.language.embeds import children_of
from projections.language.facts import creators, indexes_fed
from projections.language.findings.kinds import (
    CONSISTENT_READ,
    FILTERED_QUERY,
    SEVERAL_REQUESTS,
    UNANSWERED_QUERY,
    UNKNOWN_ATTRIBUTE,
    UNUSED_INDEX,
    Kind,
    Remark,
)
from projections.language.findings.names import known_attributes
from projections.language.findings.rule_facts import Facts
from projections.language.models import Embed, Index, Rules
from projections.language.syntax import Location, root, suggest


def queries(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about queries, and about indexes and copies as far as queries show their use."""
    asked = queries_of(facts.rules)
    if not asked:
        return
    rules = facts.complete
    plans = {name: plan(rules, query) for name, query in asked.items()}
    for name, query in asked.items():
        unknown = list(_unknown(facts, query))
        yield from unknown
        if not unknown:
            yield from _answered(rules, plans[name], asked)
        yield from _derived_read(rules, query)
    yield from _unused(rules, list(plans.values()))


# --- one query ---


def _answered(rules: Rules, planned: Plan, asked: dict[str, Query]) -> Iterator[Remark]:
    query = planned.query
    place: Location = ("queries", query.name)
    if planned.verdict == "one":
        return
    if planned.verdict == "several":
        way = "if this is intended, change nothing: the results are merged into one answer"
        yield Remark(SEVERAL_REQUESTS, place, f"takes {planned.reason}", way, at_key=True)
        return
    kind, reason = _kind(planned)
    offered = proposal(rules, query, planned, list(asked.values()))
    if offered is None:
        way, paste = _no_proposal(query, kind), ""
    else:
        way, paste = offered.sentence, offered.text
    yield Remark(kind, place, reason, way, at_key=True, paste=paste)


def _kind(planned: Plan) -> tuple[Kind, str]:
    """Return the kind of finding of a query that is not answered exactly, and the reason."""
    if planned.verdict == "filtered":
        if planned.others:
            return (
                FILTERED_QUERY,
                f"also reads {' and '.join(planned.others)} items, and discards them: {planned.reason}",
            )
        return FILTERED_QUERY, f"reads more items than it returns: {planned.reason}. {_share(planned.query)}"
    words = "only a scan could answer it" if planned.verdict == "none" else "no request returns all items of its answer"
    return UNANSWERED_QUERY, f"{words}: {planned.reason}"


def _share(query: Query) -> str:
    items, scanned = query.expect.items, query.expect.scanned
    if items is None or scanned is None:
        return "Their number depends on the data: estimate it with `expect: {items, scanned}`"
    return f"Of {scanned:,} items read, {max(0, scanned - items) / scanned:.0%} are discarded"


def _no_proposal(query: Query, kind: Kind) -> str:
    if query.range is not None and query.ordered_by not in (None, query.range):
        return (
            f"no key sorts by {query.ordered_by} within a range of {query.range}: leave out one of them, "
            "or sort the items after reading them"
        )
    if len(query.entities) > 1 and not query.by:
        return "add `by`: a value that all the entities have, so that they can share a partition"
    if kind is FILTERED_QUERY:
        return "accept this if few items are discarded, or add an index whose keys contain the conditions"
    return "divide the query into simpler ones, or let the application scan and accept this"


def _unknown(facts: Facts, query: Query) -> Iterator[Remark]:
    """Yield remarks about names that no item of an entity can have, because only rules write its items."""
    places: dict[str, Location] = dict.fromkeys(query.where.names, ("where",))
    places |= {name: ("attributes", position) for position, name in enumerate(query.attributes or ())}
    places |= {field.name: ("by", position) for position, field in enumerate(query.by)}
    if query.order is not None and query.order.name is not None:
        places[query.order.name] = ("order",)
    if query.range is not None:
        places[query.range] = ("range",)
    for entity in query.entities:
        known = known_attributes(facts, entity)
        variables = facts.variables(entity)
        for name, inner in places.items():
            if known is None or root(name) in known or name in variables:
                continue
            near = suggest(name, [*sorted(known), *variables])
            yield Remark(
                UNKNOWN_ATTRIBUTE,
                ("queries", query.name, *inner),
                f"{entity} items have no attribute {name}: only rules write them, and no rule writes {name}",
                f"correct the name{near}" if near else "let a rule write it, or leave it out",
            )


def _derived_read(rules: Rules, query: Query) -> Iterator[Remark]:
    """Yield a remark about a consistent read of items that rules create."""
    made = creators(rules)
    for entity in query.entities if query.consistent else ():
        if entity in made:
            yield Remark(
                CONSISTENT_READ,
                ("queries", query.name, "consistent"),
                f"rule {made[entity]} writes {entity} items after the application's write: a consistent read returns what "
                "is written so far, and costs twice as much",
                "leave it out, or read the items that the application writes",
                at_key=True,
            )


# --- what no query needs ---


def _unused(rules: Rules, plans: list[Plan]) -> Iterator[Remark]:
    """Yield remarks about indexes that no query reads, and about index rules for entities that none reads there."""
    read = {(request.index, entity) for one in plans for request in one.requests for entity in request.entities}
    document = rules.document()
    embeds = {name: rule for name, rule in rules.projections.items() if isinstance(rule.action, Embed)}
    read |= {(children_of(document, name).index, rule.into) for name, rule in embeds.items()}
    pending = {entity for one in plans if not one.requests for entity in one.query.entities}
    for table, declared in rules.tables.items():
        place: Location = ("tables", table, "indexes")
        here = {name for name, entity in rules.entities.items() if entity.table == table}
        for index in declared.indexes:
            if not here.isdisjoint(pending) or any((index, entity) in read for entity in here):
                continue
            yield Remark(
                UNUSED_INDEX,
                (*place, index),
                f"no query of this file reads {index}",
                "remove it, or add the query that needs it to `queries`",
                at_key=True,
            )
    for name, rule in rules.projections.items():
        if not isinstance(rule.action, Index) or rule.source in pending:
            continue
        fed = [index for index in indexes_fed(rules, rule) if any(name == index for name, _ in read)]
        if fed and not any((index, rule.source) in read for index in fed):
            yield Remark(
                UNUSED_INDEX,
                ("projections", name),
                f"no query of this file reads {rule.source} items in {' or '.join(fed)}",
                "remove the rule, or add the query that needs it to `queries`",
                at_key=True,
            )
