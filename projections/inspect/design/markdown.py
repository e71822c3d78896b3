"""The table-design page as Markdown (GitHub's)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import starmap

from projections.access.placeholders import count_words, partition_words, sort_words
from projections.access.query_reads import Read
from projections.inspect.access_patterns import WORDS, AccessPattern, RankPattern, rank_patterns
from projections.inspect.design.table_design import Attributes, Design, Index, ReadCost, Status
from projections.language.access.plan import Verdict
from projections.language.facts import conditions
from projections.language.forms import Attributes as KeyAttributes
from projections.language.patterns import describe
from projections.language.questions import WritePattern, WriteStep
from projections.language.spelling import template_text
from projections.printable import printable

_MARKS: Mapping[Status, str] = {"met": "✓ met", "not met": "✗ not met", "decide": "? decide", "accepted": "✓ accepted"}
_ANSWERS: Mapping[Verdict, str] = {"one": "✓", "several": "✓", "filtered": "?", "incomplete": "✗", "none": "✗"}
_SPECIAL = re.compile(r"([\\`*_\[\]<>|&~])")


def markdown(design: Design) -> str:
    """Return the page."""
    parts = [f"# {_text(f'Table design: {design.title}')}", _summary(design)]
    for title, section in (
        ("Entities and keys", _entities),
        ("Indexes", _indexes),
        ("Access patterns", _patterns),
        ("Write patterns", _writes),
        ("Attributes", _attributes),
        ("Read capacity", _reads),
        ("Checklist", _checklist),
    ):
        parts += [f"## {title}", *section(design)]
    return "\n\n".join(parts) + "\n"


def _summary(design: Design) -> str:
    counts = [
        (len(design.rules.entities), "entity", "entities"),
        (len(design.indexes), "index", "indexes"),
        (len(design.patterns), "access pattern", "access patterns"),
        (len(design.writes), "write pattern", "write patterns"),
    ]
    words = ", ".join(f"{number} {single if number == 1 else many}" for number, single, many in counts)
    marks = [check.status for check in design.checks]
    checks = ", ".join(
        f"{marks.count(status)} {'to decide' if status == 'decide' else status}" for status in _MARKS if status in marks
    )
    return f"{words}. Checklist: {checks}."


# --- entities and indexes ---


def _entities(design: Design) -> Iterator[str]:
    keys = [
        f"{name}: {', '.join(f'{attribute} ({kind})' for attribute, kind in table.key)}"
        + (f", TTL attribute {table.ttl}" if table.ttl else "")
        for name, table in design.rules.tables.items()
    ]
    yield _text(f"Key of table {'; '.join(keys)}.")
    columns = ("Entity", "Table", "Key", "Index key", "Recognised by", "Items written by", "Always has", "Expires")
    yield _table(columns, (_entity(design, name, len(keys) > 1) for name in design.rules.entities))


def _entity(design: Design, name: str, several: bool) -> Sequence[str]:
    declared = design.rules.entities[name]
    return (
        code_span(name),
        code_span(declared.table) if several else "",
        _lines(f"{code_span(name)} = {code_span(template_text(template))}" for name, template in declared.key.items()),
        _lines(
            f"{code_span(name)} = {code_span(template_text(template))}" for name, template in declared.index_key.items()
        ),
        _text(conditions(declared.match) or ""),
        _writer(design.creators.get(name)),
        _codes(declared.required),
        "yes" if declared.expires else "",
    )


def _writer(rule: str | None) -> str:
    return "the application" if rule is None else f"rule {code_span(rule)}"


def _indexes(design: Design) -> Iterator[str]:
    several = len(design.rules.tables) > 1
    columns = ("Index", "Table", "Partition key", "Sort key", "Projection", "Kind", "Queries", "Keys written by")
    if design.indexes:
        yield _table(columns, (_index(index, several) for index in design.indexes))
    else:
        yield "The tables have no indexes."


def _index(index: Index, several: bool) -> Sequence[str]:
    projection = index.keys.projection
    return (
        code_span(index.name),
        code_span(index.table) if several else "",
        _key_text(index.keys.partition),
        _key_text(index.keys.sort),
        _text(projection) if isinstance(projection, str) else _codes(projection),
        "local" if index.keys.local else "global",
        _lines([_codes(index.queries), *map(_writer, index.embeds)]),
        _lines([*map(_writer, index.rules), *(f"the application: {code_span(entity)}" for entity in index.entities)]),
    )


def _key_text(attributes: KeyAttributes) -> str:
    return _lines(f"{code_span(name)} ({kind})" for name, kind in attributes)


# --- access patterns ---


def _patterns(design: Design) -> Iterator[str]:
    if design.patterns:
        columns = ("ID", "Query", "Entities", "Inputs", "Result", "Operation", "Partition", "Sort condition",
                   "Order and limit", "Filter", "Attributes", "Answer")  # fmt: skip
        yield _table(columns, map(_pattern, design.patterns))
    else:
        yield "The rule file has no queries."
    if ranks := [*rank_patterns(design.rules, {each.query.name: each.query for each in design.patterns})]:
        yield (
            "Ranks, percentiles and counts of scores, and the score at a position. `projections queries` and the Python API "
            "read them from the ledger, one read unit for each item. A generated client takes a request for each two digits."
        )
        boards = ("Rule", "Board", "Key", "Inputs", "A rank", "A score at a position")
        yield _table(boards, map(_rank, ranks))
    for pattern in design.patterns:
        if not pattern.answered or pattern.plan.verdict == "filtered":
            yield f"{code_span(pattern.query.name)}: {_prose(pattern.plan.reason)}."
            if pattern.proposal is not None:
                yield _prose(f"To answer it exactly, {pattern.proposal.sentence}:")
                yield _listing(pattern.proposal.text.rstrip("\n"), "yaml")


def _pattern(pattern: AccessPattern) -> Sequence[str]:
    query, plan = pattern.query, pattern.plan
    entities = query.entities
    asked = count_words(plan)
    bounds = f"{code_span(query.range)}: from, to" if query.range else ""
    where = _text(f"where {describe(query.where)}") if query.where.conditions else ""
    order = [] if query.order is None else [f"by {query.order}" if query.order.name else str(query.order)]
    directions = ["reads backward" if read.descending else "reads forward" for read in pattern.reads if not read.get]
    return (
        _text(query.id or ""),
        _lines([code_span(query.name), _text(query.about or "")]),
        _lines([*map(code_span, entities), "read together" if len(entities) > 1 else ""]),
        _lines([*(code_span(str(field)[1:-1]) for field in query.by), bounds, where]),
        _text(f"one {entities[0]}" if query.get else f"list of {' and '.join(entities)}"),
        _lines(map(_operation, pattern.reads)),
        _lines(code_span(partition_words(read)) for read in pattern.reads),
        _lines(code_span(words) for read in pattern.reads if (words := sort_words(read))),
        _lines([*map(_text, order), *directions, f"limit {query.limit}" if query.limit is not None else ""]),
        _lines(map(_text, plan.tests)),
        _codes(query.attributes) if query.attributes is not None else "all",
        _lines(
            [
                f"{_ANSWERS[plan.verdict]} {WORDS[plan.verdict]}",
                _text(f"requests: {asked}") if pattern.reads and asked != "1" else "",
                f"also reads {_codes(plan.others)}" if plan.others else "",
                f"through rule {code_span(plan.copy)}" if plan.copy else "",
            ]
        ),
    )


def _operation(read: Read) -> str:
    consistent = ", consistent" if read.consistent else ""
    return f"{'GetItem' if read.get else 'Query'} {code_span(read.index or 'table')}{consistent}"


def _rank(pattern: RankPattern) -> Sequence[str]:
    return (
        _lines([code_span(pattern.rule), _text(pattern.question)]),
        code_span(pattern.board),
        code_span(pattern.key),
        _lines([_codes(pattern.inputs), f"{code_span(pattern.by)}: the score, or the position"]),
        f"1 request of {pattern.items} {'item' if pattern.items == 1 else 'items'}",
        f"{pattern.requests} {'request' if pattern.requests == 1 else 'requests'}"
        + (f"<br>items: then query {code_span(pattern.positions['query'])}" if pattern.positions else ""),
    )


# --- writes ---


def _writes(design: Design) -> Iterator[str]:
    if design.writes:
        yield _table(("ID", "Write", "Purpose", "Items", "Transaction"), starmap(_write, design.writes.items()))
    else:
        yield "The rule file has no write patterns (`writes:`)."


def _write(name: str, write: WritePattern) -> Sequence[str]:
    steps, together = _lines(map(_step, write.steps)), "yes" if write.transaction else "no"
    return _text(write.id or ""), code_span(name), _text(write.about or ""), steps, together


def _step(step: WriteStep) -> str:
    text = f"{step.operation} {code_span(step.entity)}"
    if step.set:
        text += f", set {_codes(step.set)}"
    if step.condition is not None:
        text += f", if it is {step.condition}"
    if step.unchanged is not None:
        text += f", if {code_span(step.unchanged)} is unchanged"
    return text


def _attributes(design: Design) -> Iterator[str]:
    yield (
        "Attributes that the rule file names. A rule runs after the stream delivers the change: in about a second, plus the "
        "batching window. Rules that follow each other add up. A global index follows its table, usually within a second."
    )
    yield _table(("Entity", "Attributes", "Written by", "Up to date"), map(_attributes_of, design.attributes))


def _attributes_of(attributes: Attributes) -> Sequence[str]:
    if attributes.rule is None:
        return code_span(attributes.entity), _codes(attributes.values), _writer(None), "with the write"
    values = (code_span(name) + (f" = {code_span(how)}" if how else "") for name, how in attributes.values.items())
    when = _after(attributes.chain) if not attributes.held else "not updated: the rule is held"
    return code_span(attributes.entity), _lines(values), _writer(attributes.rule), when


def _after(rules: Sequence[str]) -> str:
    """Return how far an attribute is behind the application's write."""
    if not rules:
        return "with the write"
    return f"after {len(rules)} {'rule' if len(rules) == 1 else 'rules'}: {_codes(rules, ' → ')}"


# --- capacity and checklist ---


def _reads(design: Design) -> Iterator[str]:
    yield (
        "Read units of one page. Without `expect.bytes`, an item is assumed to have 500 bytes. Without `limit` and "
        "`expect.items`, a page has 1 MB. `projections cost` estimates the units of writes."
    )
    columns = ("Query", "Items per page", "Bytes of an item", "Consistency", "Requests", "Read units", "Units per second",
               "An item is found")  # fmt: skip
    yield _table(columns, map(_read_cells, design.reads))


def _read_cells(cost: ReadCost) -> Sequence[str]:
    return (
        code_span(cost.query),
        "unlimited" if cost.items is None else f"{cost.items:,}",
        f"{cost.bytes:,} ({'estimate' if cost.estimated else 'assumed'})",
        "strong" if cost.consistent else "eventual",
        str(cost.requests),
        f"at most {cost.units:g}" if cost.items is None else f"{cost.units:g}",
        "" if cost.per_second is None else f"{cost.per_second:g}",
        _after(cost.chain) + (", then the index" if cost.index else ""),
    )


def _checklist(design: Design) -> Iterator[str]:
    rows = ((_MARKS[check.status], _text(check.line), _lines(map(_prose, check.details))) for check in design.checks)
    yield _table(("", "Check", "Details"), rows)


# --- Markdown ---


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table without columns that are empty in all rows."""
    filled = list(rows)
    kept = [number for number in range(len(columns)) if any(row[number] for row in filled)]
    shown = [[columns[number] for number in kept], ["---"] * len(kept)]
    # A pipe ends a cell even in code: GitHub reads \| as a pipe there.
    shown += [[re.sub(r"(?<!\\)\|", r"\\|", row[number]) for number in kept] for row in filled]
    return "\n".join("| " + " | ".join(row) + " |" for row in shown)


def _lines(lines: Iterable[str]) -> str:
    """Return the lines of a cell, without empty ones and repetitions."""
    return "<br>".join(dict.fromkeys(filter(None, lines)))


def _codes(names: Iterable[str], between: str = ", ") -> str:
    return between.join(map(code_span, names))


def _prose(text: str) -> str:
    """Return a text with the parts between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return _text(text)
    return "".join(code_span(part) if number % 2 else _text(part) for number, part in enumerate(parts) if part)


def _text(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", printable(text))


def code_span(text: str) -> str:
    """Return a code span. Its fence is longer than any run of backticks in it."""
    safe = printable(text)
    fence = _fence(safe, 1)
    padded = f" {safe} " if safe.startswith("`") or safe.endswith("`") or not safe.strip() else safe
    return fence + padded + fence


def _listing(text: str, language: str) -> str:
    fence = _fence(text, 3)
    return f"{fence}{language}\n{printable(text, lines=True)}\n{fence}"


def _fence(text: str, least: int) -> str:
    """Return backticks that do not occur in a text."""
    return "`" * max([least, *(len(run) + 1 for run in re.findall("`+", text))])
