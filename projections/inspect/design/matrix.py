"""The access pattern matrix: a row for each query, with the requests that answer it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from projections.access.placeholders import count_words, partition_words, sort_expression
from projections.access.reads import Read
from projections.inspect.access_patterns import WORDS, AccessPattern
from projections.inspect.design.blocks import Badge, Cell, Code, Line, Table, line, table
from projections.inspect.design.cells import cell, codes, distinct, listed
from projections.language.access.plan import Verdict
from projections.language.patterns import describe

__all__ = ["matrix_table"]


def matrix_table(patterns: Iterable[AccessPattern]) -> Table:
    """Return the access pattern matrix."""
    columns = ("ID", "Query", "Entities", "Inputs", "Result", "Operation", "Partition", "Sort condition", "Order and limit",
               "Filter", "Attributes", "Answer")  # fmt: skip
    return table(columns, map(_pattern, patterns))


_ANSWERS: dict[Verdict, Badge] = {
    "one": Badge(WORDS["one"], "good"),
    "several": Badge(WORDS["several"], "good"),
    "filtered": Badge(WORDS["filtered"], "fair"),
    "incomplete": Badge(WORDS["incomplete"], "bad"),
    "none": Badge(WORDS["none"], "bad"),
}


def _pattern(one: AccessPattern) -> Sequence[Cell]:
    query, plan = one.query, one.plan
    entities = query.entities
    where = describe(query.where) if query.where.conditions else ""
    asked = count_words(plan)
    return (
        cell(query.id or ""),
        (line(Code(query.name)), line(query.about or "")),
        (*(line(Code(name)) for name in entities), *([("read together",)] if len(entities) > 1 else [])),
        (
            *(line(Code(str(field)[1:-1])) for field in query.by),
            *([line(Code(query.range), ": from, to")] if query.range else []),
            *([(f"where {where}",)] if where else []),
        ),
        cell(f"one {entities[0]}" if query.get else f"list of {' and '.join(entities)}"),
        tuple(dict.fromkeys(_operation(read) for read in one.reads)),
        distinct(Code(partition_words(read)) for read in one.reads),
        distinct(Code(words) for read in one.reads if (words := sort_expression(read))),
        (
            *([(f"by {query.order}" if query.order.name else str(query.order),)] if query.order is not None else []),
            *distinct(_direction(read) for read in one.reads if not read.get),
            *([(f"limit {query.limit}",)] if query.limit is not None else []),
        ),
        tuple((test,) for test in plan.tests),
        codes(query.attributes) if query.attributes is not None else cell("all"),
        (
            (_ANSWERS[plan.verdict],),
            *([(f"requests: {asked}",)] if one.reads and asked != "1" else []),
            *([line("also reads ", *listed(plan.others))] if plan.others else []),
            *([line("through rule ", Code(plan.copy))] if plan.copy else []),
        ),
    )


def _operation(read: Read) -> Line:
    found = "GetItem" if read.get else "Query"
    return line(f"{found} ", Code(read.index or "table"), ", consistent" if read.consistent else "")


def _direction(read: Read) -> str:
    return "reads backward" if read.descending else "reads forward"
