"""The content of the table-design page, in the order of the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence

from projections.inspect.design.blocks import (
    Badge,
    Block,
    Cell,
    Code,
    Heading,
    Line,
    Listing,
    Paragraph,
    Span,
    line,
    table,
)
from projections.inspect.design.cells import after, cell, codes, line_of, listed, prose, template, typed
from projections.inspect.design.figures import read_capacity, write_capacity
from projections.inspect.design.matrix import matrix_table
from projections.inspect.design.model import Attributes, Design, Entity, Index
from projections.inspect.rank_patterns import RankPattern, rank_patterns
from projections.language.access.questions import Step, WritePattern

__all__ = ["content"]

_TONES: dict[str, Badge] = {
    "met": Badge("met", "good"),
    "not met": Badge("not met", "bad"),
    "decide": Badge("decide", "fair"),
    "accepted": Badge("accepted", "good"),
}


def content(design: Design) -> Iterator[Block]:
    """Yield the blocks of the page."""
    yield Heading(1, f"Table design: {design.title}")
    yield Paragraph(_summary(design))
    for title, section in _SECTIONS:
        yield Heading(2, title)
        yield from section(design)


def _summary(design: Design) -> Line:
    counts = [
        (len(design.entities), "entity", "entities"),
        (len(design.indexes), "index", "indexes"),
        (len(design.patterns), "access pattern", "access patterns"),
        (len(design.writes), "write pattern", "write patterns"),
    ]
    words = ", ".join(f"{number} {one if number == 1 else many}" for number, one, many in counts)
    found = [check.status for check in design.checks]
    checks = ", ".join(
        f"{found.count(status)} {'to decide' if status == 'decide' else status}" for status in _TONES if status in found
    )
    return (f"{words}. Checklist: {checks}.",)


# --- entities and indexes ---


def _entities(design: Design) -> Iterator[Block]:
    several = len(design.document.tables) > 1
    keys = [
        f"{name}: {', '.join(f'{attribute} ({kind})' for attribute, kind in filter(None, (one.partition, one.sort)))}"
        + (f", TTL attribute {one.ttl}" if one.ttl else "")
        for name, one in design.document.tables.items()
    ]
    yield Paragraph((f"Key of table {'; '.join(keys)}.",))
    columns = ("Entity", "Table", "Key", "Index key", "Recognised by", "Items written by", "Always has", "Expires")
    yield table(columns, (_entity(one, several) for one in design.entities))


def _entity(one: Entity, several: bool) -> Sequence[Cell]:
    return (
        cell(Code(one.name)),
        cell(Code(one.table)) if several else (),
        tuple(template(*pair) for pair in one.key),
        tuple(template(*pair) for pair in one.index_key),
        cell(one.match or ""),
        cell("the application") if one.rule is None else cell("rule ", Code(one.rule)),
        codes(one.required),
        cell("yes" if one.expires else ""),
    )


def _indexes(design: Design) -> Iterator[Block]:
    if not design.indexes:
        yield prose("The tables have no indexes.")
        return
    several = len(design.document.tables) > 1
    columns = ("Index", "Table", "Partition key", "Sort key", "Projection", "Kind", "Queries", "Keys written by")
    yield table(columns, (_index(one, several) for one in design.indexes))


def _index(one: Index, several: bool) -> Sequence[Cell]:
    projection = cell(one.projection) if isinstance(one.projection, str) else codes(one.projection)
    return (
        cell(Code(one.name)),
        cell(Code(one.table)) if several else (),
        typed(one.partition),
        typed(one.sort),
        projection,
        cell("local" if one.local else "global"),
        (listed(one.queries), *(line("rule ", Code(rule)) for rule in one.embeds)),
        (
            *(line("rule ", Code(rule)) for rule in one.rules),
            *(line("the application: ", Code(entity)) for entity in one.entities),
        ),
    )


# --- access patterns ---


def _patterns(design: Design) -> Iterator[Block]:
    if not design.patterns:
        yield prose("The rule file has no queries.")
    else:
        yield matrix_table(design.patterns)
    yield from _ranks(design)
    for one in design.patterns:
        if not one.answered or one.plan.verdict == "filtered":
            yield Paragraph(line(Code(one.query.name), ": ", *line_of(one.plan.reason), "."))
            if one.proposal is not None:
                yield Paragraph(line_of(f"To answer it exactly, {one.proposal.sentence}:"))
                yield Listing(one.proposal.text.rstrip("\n"), "yaml")


def _ranks(design: Design) -> Iterator[Block]:
    found = [*rank_patterns(design.document)]
    if found:
        yield prose(
            "Ranks, percentiles and counts of scores, and the score at a position. `projections rank` and the Python API "
            "read them from the ledger, one read unit for each item. A generated client takes a request for each two digits."
        )
        columns = ("Rule", "Board", "Key", "Inputs", "A rank", "A score at a position")
        yield table(columns, map(_rank, found))


def _rank(one: RankPattern) -> Sequence[Cell]:
    return (
        (line(Code(one.rule)), line(one.question)),
        cell(Code(one.board)),
        cell(Code(one.key)),
        (*codes(one.inputs), line(Code(one.by), ": the score, or the position")),
        cell(f"1 request of {one.items} {'item' if one.items == 1 else 'items'}"),
        cell(f"{one.requests} {'request' if one.requests == 1 else 'requests'}"),
    )


# --- writes ---


def _writes(design: Design) -> Iterator[Block]:
    if not design.writes:
        yield prose("The rule file has no write patterns (`writes:`).")
        return
    yield table(("ID", "Write", "Purpose", "Items", "Transaction"), map(_write, design.writes))


def _write(one: WritePattern) -> Sequence[Cell]:
    return (
        cell(one.id or ""),
        cell(Code(one.name)),
        cell(one.about or ""),
        tuple(map(_step, one.steps)),
        cell("yes" if one.transaction else "no"),
    )


def _step(step: Step) -> Line:
    found: list[Span] = [f"{step.operation} ", Code(step.entity)]
    if step.set:
        found += [", set ", *listed(step.set)]
    if step.condition is not None:
        found.append(f", if it is {step.condition}")
    if step.unchanged is not None:
        found += [", if ", Code(step.unchanged), " is unchanged"]
    return line(*found)


def _writers(design: Design) -> Iterator[Block]:
    yield prose(
        "Attributes that the rule file names. A rule runs after the stream delivers the change: in about a second, plus the "
        "batching window. Rules that follow each other add up. A global index follows its table, usually within a second."
    )
    yield table(("Entity", "Attributes", "Written by", "Up to date"), map(_attributes_of, design.attributes))


_SILENT = {"shadow": "never: the rule is in shadow mode", "disabled": "no longer: the rule is disabled"}


def _attributes_of(one: Attributes) -> Sequence[Cell]:
    if one.rule is None:
        return cell(Code(one.entity)), (listed(one.values),), cell("the application"), cell("with the write")
    return (
        cell(Code(one.entity)),
        tuple(line(Code(name), " = " if how else "", Code(how) if how else "") for name, how in one.values.items()),
        cell("rule ", Code(one.rule)),
        (after(one.chain),) if one.mode == "live" else cell(_SILENT[one.mode]),
    )


# --- samples and checklist ---


def _samples(design: Design) -> Iterator[Block]:
    yield prose("Generated items, with the values that the rules derive.")
    for one in design.entities:
        yield Heading(3, one.name)
        if one.sample is None:
            yield prose("No item could be generated.")
        else:
            yield Listing(json.dumps(one.sample, indent=2, ensure_ascii=False), "json")


def _checklist(design: Design) -> Iterator[Block]:
    yield table(
        ("", "Check", "Details"),
        ((cell(_TONES[one.status]), cell(one.line), tuple(map(line_of, one.details))) for one in design.checks),
    )


_SECTIONS: tuple[tuple[str, Callable[[Design], Iterator[Block]]], ...] = (
    ("Entities and keys", _entities),
    ("Indexes", _indexes),
    ("Access patterns", _patterns),
    ("Write patterns", _writes),
    ("Attributes", _writers),
    ("Read capacity", read_capacity),
    ("Write capacity", write_capacity),
    ("Sample items", _samples),
    ("Checklist", _checklist),
)
