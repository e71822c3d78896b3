"""Queries: how requests answer them, and indexes that they do not need. Only of rule files that have queries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from projections.language.access.paths import bare_variables
from projections.language.access.plan import Plan, Query, queries_of
from projections.language.access.planner import plan
from projections.language.access.proposals import EXACT, proposal
from projections.language.canonical import Document, Index
from projections.language.embeds import children_of
from projections.language.facts import creators, indexes_fed
from projections.language.findings.attribute_types import Numbers
from projections.language.findings.kinds import (
    AMBIGUOUS_INDEX_KEY,
    CONSISTENT_READ,
    FILTERED_QUERY,
    LARGE_COPY,
    SEVERAL_REQUESTS,
    SHARED_RANGE,
    UNANSWERED_QUERY,
    UNKNOWN_ATTRIBUTE,
    UNPROJECTED_QUERY,
    UNUSED_INDEX,
    Kind,
    Remark,
)
from projections.language.findings.names import known_attributes
from projections.language.findings.rule_facts import Facts
from projections.language.mistakes import Location
from projections.language.syntax import root, suggest
from projections.language.templates import Field

__all__ = ["queries"]

LARGE = 4096
"""Bytes of an item of which copies are expensive."""


def queries(facts: Facts) -> Iterator[Remark]:
    """Yield remarks about queries, and about indexes and copies as far as queries show their use."""
    asked = queries_of(facts.rules)
    if not asked:
        return
    document = facts.typed
    plans = {name: plan(document, query) for name, query in asked.items()}
    for name, query in asked.items():
        unknown = list(_unknown(facts, query))
        yield from unknown
        if not unknown:
            yield from _answered(document, plans[name], asked)
        yield from _derived_read(document, query)
    yield from _ambiguous_ranges(facts, plans)
    yield from _unused(facts, document, list(plans.values()))
    yield from _large_copies(document, asked)


# --- one query ---


def _answered(document: Document, planned: Plan, asked: dict[str, Query]) -> Iterator[Remark]:
    query = planned.query
    place: Location = ("queries", query.name)
    if planned.verdict == "one":
        return
    if planned.verdict == "several":
        way = "if this is intended, change nothing: the results are merged into one answer"
        yield Remark(SEVERAL_REQUESTS, place, f"takes {planned.reason}", way, at_key=True)
        return
    kind, inner, reason = _kind(document, planned)
    offered = proposal(document, query, planned, list(asked.values()))
    if offered is None:
        way, paste = _no_proposal(query, kind), ""
    else:
        way, paste = f"{offered.sentence} (`projections queries --apply {query.name}` does this)", offered.text
    yield Remark(kind, (*place, *inner), reason, way, at_key=True, paste=paste)


def _ambiguous_ranges(facts: Facts, plans: Mapping[str, Plan]) -> Iterator[Remark]:
    """Yield a remark for each attribute in a sort key that, with a separator in it, puts items into ranges of others.

    It is reported at the first query that reads such a range.
    """
    numbers, seen = Numbers(facts), set[tuple[str, str]]()
    for name, request in ((name, request) for name, planned in plans.items() for request in planned.requests):
        sort, entity = request.sort, request.entities[0]
        if sort is None or sort.kind != "S" or request.index is None:
            continue
        separator, bare = facts.table(entity).separator, bare_variables(facts.typed, entity)
        for part, text in pairwise(sort.prefix):
            if (
                not isinstance(part, Field)
                or not part.plain
                or part.name in bare
                or (sort.attribute, part.name) in seen
            ):
                continue
            if isinstance(text, str) and separator in text and numbers.number(entity, part.name) is None:
                seen.add((sort.attribute, part.name))
                yield Remark(
                    AMBIGUOUS_INDEX_KEY,
                    ("queries", name),
                    f"{part} in {sort.attribute} may contain the separator {separator}: the answer also has items whose "
                    f"{part.name} continues after the given value with {separator}",
                    f"if users can set it, compare it in the answer, use a variable of the key of {entity} instead, or let "
                    "the application refuse values with the separator",
                    at_key=True,
                )


def _kind(document: Document, planned: Plan) -> tuple[Kind, Location, str]:
    """Return the kind of finding of a query that is not answered exactly, the place in it, and the reason."""
    query = planned.query
    if planned.verdict == "filtered":
        if planned.others:
            words = f"also reads {' and '.join(planned.others)} items, and discards them: {planned.reason}"
            return SHARED_RANGE, (), words
        return FILTERED_QUERY, (), f"reads more items than it returns: {planned.reason}. {_share(query)}"
    if query.consistent and plan(document, replace(query, consistent=False)).verdict in EXACT:
        return CONSISTENT_READ, ("consistent",), f"no request reads these items consistently: {planned.reason}"
    if planned.verdict == "incomplete" and plan(_projecting_all(document), query).verdict in EXACT:
        inner: Location = ("attributes",) if query.attributes else ()
        return UNPROJECTED_QUERY, inner, planned.reason
    words = "only a scan could answer it" if planned.verdict == "none" else "no request returns all items of its answer"
    return UNANSWERED_QUERY, (), f"{words}: {planned.reason}"


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
    if kind is FILTERED_QUERY or kind is SHARED_RANGE:
        return "accept this if few items are discarded, or add an index whose keys contain the conditions"
    return "divide the query into simpler ones, or let the application scan and accept this"


def _projecting_all(document: Document) -> Document:
    return replace(
        document,
        tables={
            name: replace(table, indexes={n: replace(keys, projection="all") for n, keys in table.indexes.items()})
            for name, table in document.tables.items()
        },
    )


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


def _derived_read(document: Document, query: Query) -> Iterator[Remark]:
    """Yield a remark about a consistent read of items that rules create."""
    made = creators(document)
    for entity in query.entities if query.consistent else ():
        if entity in made:
            yield Remark(
                CONSISTENT_READ,
                ("queries", query.name, "consistent"),
                f"rule {made[entity]} writes {entity} items after the application's write: a consistent read returns what "
                "is written so far, and costs twice as much",
                "leave it out, or read the items that the application writes",
                at_key=True,
                rated="note",
            )


# --- what no query needs ---


def _unused(facts: Facts, document: Document, plans: list[Plan]) -> Iterator[Remark]:
    """Yield remarks about indexes that no query reads, and about index rules for entities that none reads there."""
    read = {(request.index, entity) for one in plans for request in one.requests for entity in request.entities}
    read |= _embedded(document)
    pending = {entity for one in plans if not one.requests for entity in one.query.entities}
    for table, declared in document.tables.items():
        place: Location = ("table", "indexes") if facts.rules.table is not None else ("tables", table, "indexes")
        here = {name for name, entity in document.entities.items() if entity.table == table}
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
    for name, rule in document.rules.items():
        if not isinstance(rule, Index) or rule.source in pending:
            continue
        fed = [index for index in indexes_fed(document, rule) if any(name == index for name, _ in read)]
        if fed and not any((index, rule.source) in read for index in fed):
            yield Remark(
                UNUSED_INDEX,
                ("projections", name),
                f"no query of this file reads {rule.source} items in {' or '.join(fed)}",
                "remove the rule, or add the query that needs it to `queries`",
                at_key=True,
            )


def _embedded(document: Document) -> set[tuple[str | None, str]]:
    """Return the indexes through which embed rules find children."""
    whole = document.to_document()
    return {
        (children_of(whole, name).index, rule.into) for name, rule in document.rules.items() if rule.kind == "embed"
    }


def _large_copies(document: Document, asked: dict[str, Query]) -> Iterator[Remark]:
    sizes = {
        entity: query.expect.bytes
        for query in asked.values()
        if query.expect.bytes is not None
        for entity in query.entities
    }
    for name, rule in document.rules.items():
        if rule.kind != "copy" or getattr(rule, "attributes", ()) is not None:
            continue
        size = max(sizes.get(rule.source, 0), sizes.get(rule.into, 0))
        if size >= LARGE:
            units = -(-size // 1024)
            needed = sorted(_needed(asked, rule.into))
            yield Remark(
                LARGE_COPY,
                ("projections", name, "copy", "attributes"),
                f"copies items of {size:,} bytes: each change of one writes its copy with {units} write units",
                f"copy only what queries of {rule.into} need, such as [{', '.join(needed)}]"
                if needed
                else f"copy only the attributes that readers of {rule.into} need",
            )


def _needed(asked: dict[str, Query], entity: str) -> set[str]:
    return {name for query in asked.values() if entity in query.entities for name in query.attributes or ()}
