"""The content of the table-design page, in the order of the page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from projections.access.placeholders import count_words, partition_words, sort_expression
from projections.access.reads import Read
from projections.inspect.access_patterns import WORDS, AccessPattern
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
    Table,
    line,
    table,
)
from projections.inspect.design.model import Attributes, Design, Entity, Index, ReadCost, WriteCost
from projections.language.access.plan import Verdict
from projections.language.access.questions import Step, WritePattern
from projections.language.canonical import Attributes as KeyAttributes
from projections.language.patterns import describe

__all__ = ["content", "matrix_table"]

_TONES: dict[str, Badge] = {
    "met": Badge("met", "good"),
    "not met": Badge("not met", "bad"),
    "decide": Badge("decide", "fair"),
}


def content(design: Design) -> Iterator[Block]:
    """Yield the blocks of the page."""
    yield Heading(1, f"Table design: {design.title}")
    yield Paragraph(_summary(design))
    for title, section in _SECTIONS:
        yield Heading(2, title, title.lower().replace(" ", "-"))
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
    checks = ", ".join(f"{found.count(status)} {status}" for status in _TONES if status in found)
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
        _cell(Code(one.name)),
        _cell(Code(one.table)) if several else (),
        tuple(_template(*pair) for pair in one.key),
        tuple(_template(*pair) for pair in one.index_key),
        _cell(one.match or ""),
        _cell("the application") if one.rule is None else _cell("rule ", Code(one.rule)),
        _codes(one.required),
        _cell("yes" if one.expires else ""),
    )


def _indexes(design: Design) -> Iterator[Block]:
    if not design.indexes:
        yield _prose("The tables have no indexes.")
        return
    several = len(design.document.tables) > 1
    columns = ("Index", "Table", "Partition key", "Sort key", "Projection", "Kind", "Queries", "Keys written by")
    yield table(columns, (_index(one, several) for one in design.indexes))


def _index(one: Index, several: bool) -> Sequence[Cell]:
    projection = _cell(one.projection) if isinstance(one.projection, str) else _codes(one.projection)
    return (
        _cell(Code(one.name)),
        _cell(Code(one.table)) if several else (),
        _typed(one.partition),
        _typed(one.sort),
        projection,
        _cell("local" if one.local else "global"),
        (_listed(one.queries), *(line("rule ", Code(rule)) for rule in one.embeds)),
        (
            *(line("rule ", Code(rule)) for rule in one.rules),
            *(line("the application: ", Code(entity)) for entity in one.entities),
        ),
    )


# --- access patterns ---


def _patterns(design: Design) -> Iterator[Block]:
    if not design.patterns:
        yield _prose("The rule file has no queries.")
        return
    yield matrix_table(design.patterns)
    for one in design.patterns:
        if not one.answered or one.plan.verdict == "filtered":
            yield Paragraph(line(Code(one.query.name), ": ", *_line_of(one.plan.reason), "."))
            if one.proposal is not None:
                yield Paragraph(_line_of(f"This addition to the rule file {one.proposal.sentence}:"))
                yield Listing(one.proposal.text.rstrip("\n"), "yaml")


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
        _cell(query.id or ""),
        (line(Code(query.name)), line(query.about or "")),
        (*(line(Code(name)) for name in entities), *([("read together",)] if len(entities) > 1 else [])),
        (
            *(line(Code(str(field)[1:-1])) for field in query.by),
            *([line(Code(query.range), ": from, to")] if query.range else []),
            *([(f"where {where}",)] if where else []),
        ),
        _cell(f"one {entities[0]}" if query.get else f"list of {' and '.join(entities)}"),
        tuple(dict.fromkeys(_operation(read) for read in one.reads)),
        _distinct(Code(partition_words(read)) for read in one.reads),
        _distinct(Code(words) for read in one.reads if (words := sort_expression(read))),
        (
            *([(f"by {query.order}" if query.order.name else str(query.order),)] if query.order is not None else []),
            *_distinct(_direction(read) for read in one.reads if not read.get),
            *([(f"limit {query.limit}",)] if query.limit is not None else []),
        ),
        tuple((test,) for test in plan.tests),
        _codes(query.attributes) if query.attributes is not None else _cell("all"),
        (
            (_ANSWERS[plan.verdict],),
            *([(f"requests: {asked}",)] if one.reads and asked != "1" else []),
            *([line("also reads ", *_listed(plan.others))] if plan.others else []),
            *([line("through rule ", Code(plan.copy))] if plan.copy else []),
        ),
    )


def _operation(read: Read) -> Line:
    found = "GetItem" if read.get else "Query"
    return line(f"{found} ", Code(read.index or "table"), ", consistent" if read.consistent else "")


def _direction(read: Read) -> str:
    return "reads backward" if read.descending else "reads forward"


def _distinct(spans: Iterable[Span]) -> Cell:
    return tuple((span,) for span in dict.fromkeys(spans))


# --- writes ---


def _writes(design: Design) -> Iterator[Block]:
    if not design.writes:
        yield _prose("The rule file has no write patterns (`writes:`).")
        return
    yield table(("ID", "Write", "Purpose", "Items", "Transaction"), map(_write, design.writes))


def _write(one: WritePattern) -> Sequence[Cell]:
    return (
        _cell(one.id or ""),
        _cell(Code(one.name)),
        _cell(one.about or ""),
        tuple(map(_step, one.steps)),
        _cell("yes" if one.transaction else "no"),
    )


def _step(step: Step) -> Line:
    found: list[Span] = [f"{step.operation} ", Code(step.entity)]
    if step.set:
        found += [", set ", *_listed(step.set)]
    if step.condition is not None:
        found.append(f", if it is {step.condition}")
    if step.unchanged is not None:
        found += [", if ", Code(step.unchanged), " is unchanged"]
    return line(*found)


def _writers(design: Design) -> Iterator[Block]:
    yield _prose(
        "Attributes that the rule file names. A rule runs after the stream delivers the change: in about a second, plus the "
        "batching window. Rules that follow each other add up. A global index follows its table, usually within a second."
    )
    yield table(("Entity", "Attributes", "Written by", "Up to date"), map(_attributes_of, design.attributes))


def _attributes_of(one: Attributes) -> Sequence[Cell]:
    if one.rule is None:
        return _cell(Code(one.entity)), (_listed(one.values),), _cell("the application"), _cell("with the write")
    return (
        _cell(Code(one.entity)),
        tuple(line(Code(name), " = " if how else "", Code(how) if how else "") for name, how in one.values.items()),
        _cell("rule ", Code(one.rule)),
        _cell("never: the rule is in shadow mode") if one.shadow else (_after(one.chain),),
    )


def _after(rules: Sequence[str]) -> Line:
    """Return how far an attribute is behind the application's write."""
    if not rules:
        return ("with the write",)
    return line(f"after {len(rules)} {'rule' if len(rules) == 1 else 'rules'}: ", *_listed(rules, " → "))


# --- capacity ---


def _read_capacity(design: Design) -> Iterator[Block]:
    yield _prose(
        "Read units of one page. The size of an item is that of `expect.bytes`, or of the sample items. Without `limit` and "
        "`expect.items`, a page has 1 MB."
    )
    columns = ("Query", "Items per page", "Bytes of an item", "Consistency", "Requests", "Read units", "Units per second",
               "An item is found")  # fmt: skip
    yield table(columns, map(_read_cost, design.reads))


def _read_cost(one: ReadCost) -> Sequence[Cell]:
    return (
        _cell(Code(one.query)),
        _cell("unlimited" if one.items is None else f"{one.items:,}"),
        _cell(f"{one.bytes:,} ({'estimate' if one.estimated else 'sample'})"),
        _cell("strong" if one.consistent else "eventual"),
        _cell(str(one.requests)),
        _cell(f"at most {one.units:g}" if one.items is None else f"{one.units:g}"),
        _cell("" if one.per_second is None else f"{one.per_second:g}"),
        ((*_after(one.chain), ", then the index" if one.index else ""),),
    )


def _write_capacity(design: Design) -> Iterator[Block]:
    yield _prose(
        "Write units of one write, rehearsed on tables in memory: the application's write with its index entries, then all "
        "that rules write because of it, with the ledger. It is assumed that every rule applies, and that a parent has 100 "
        "children. A batch of writes shares some of these units: `projections cost` estimates them for a rate."
    )
    columns = ("Write", "Table", "Its index entries", "Rules that follow", "Read units", "Total", "Amplification")
    yield table(columns, map(_write_cost, design.costs))


def _write_cost(one: WriteCost) -> Sequence[Cell]:
    name = _cell(Code(one.name))
    if one.flaw is not None:
        return name, (), (), (_line_of(one.flaw),), (), _cell(Badge("not counted", "bad")), ()
    return (
        name,
        _cell(f"{one.own:g}"),
        tuple(line(Code(index), f" {units:g}") for index, units in (one.indexes or {}).items()),
        tuple(line(Code(rule), f" {units:.3g}") for rule, units in (one.rules or {}).items()),
        _cell(f"{one.read_units:.3g}"),
        _cell(f"{one.total:.3g}"),
        _cell(f"× {one.total / one.own:.3g}" if one.own else ""),
    )


# --- samples and checklist ---


def _samples(design: Design) -> Iterator[Block]:
    yield _prose("Generated items, with the values that the rules derive.")
    for one in design.entities:
        yield Heading(3, one.name)
        if one.sample is None:
            yield _prose("No item could be generated.")
        else:
            yield Listing(json.dumps(one.sample, indent=2, ensure_ascii=False), "json")


def _checklist(design: Design) -> Iterator[Block]:
    yield table(
        ("", "Check", "Details"),
        ((_cell(_TONES[one.status]), _cell(one.line), tuple(map(_line_of, one.details))) for one in design.checks),
    )


_SECTIONS: tuple[tuple[str, Callable[[Design], Iterator[Block]]], ...] = (
    ("Entities and keys", _entities),
    ("Indexes", _indexes),
    ("Access patterns", _patterns),
    ("Write patterns", _writes),
    ("Attributes", _writers),
    ("Read capacity", _read_capacity),
    ("Write capacity", _write_capacity),
    ("Sample items", _samples),
    ("Checklist", _checklist),
)


# --- cells ---


def _prose(text: str) -> Paragraph:
    return Paragraph(_line_of(text))


def _line_of(text: str) -> Line:
    """Return a text with the parts between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return (text,)
    return line(*(Code(part) if number % 2 else part for number, part in enumerate(parts) if part))


def _cell(*spans: Span) -> Cell:
    return (line(*spans),)


def _codes(names: Iterable[str]) -> Cell:
    return (_listed(names),)


def _listed(names: Iterable[str], between: str = ", ") -> Line:
    """Return names as code, with commas between them."""
    spans: list[Span] = []
    for name in names:
        spans += [between, Code(name)]
    return tuple(spans[1:])


def _template(attribute: str, text: str) -> Line:
    return (Code(attribute), " = ", Code(text))


def _typed(attributes: KeyAttributes) -> Cell:
    return tuple(line(Code(name), f" ({kind})") for name, kind in attributes)
