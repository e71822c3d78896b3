"""The checklist of a table design. Each line is computed from the plans, the rules, their findings and the capacity.

A finding that a comment in the rule file accepts (`# check: ignore hot-partition`) is justified: it is not in `findings`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from projections.inspect.design.model import Check, Design
from projections.language.access.paths import TABLE
from projections.language.access.plan import VERDICTS
from projections.language.access.planner import plan
from projections.language.findings import Finding
from projections.language.findings.kinds import (
    DATE_ORDER,
    EXPIRY_UNDECIDED,
    FEW_PARTITIONS,
    HOT_PARTITION,
    LARGE_COPY,
    LARGE_LIST,
    LARGE_LISTS,
    LONG_KEY,
    NO_TTL,
    NUMBER_DOES_NOT_FIT,
    PADDED_NUMBER,
    SEVERAL_REQUESTS,
    UNPADDED_NUMBER,
    Kind,
)
from projections.language.keys import PARTITION_KEY_BYTES, SORT_KEY_BYTES
from projections.language.templates import Template
from projections.stores.limits import ITEM_BYTES

__all__ = ["checklist"]

GLOBAL_INDEXES, LOCAL_INDEXES = 20, 5
COLLECTION_BYTES = 10 * 1024**3
"""Of the items of one partition key, in a table with local indexes."""


def checklist(design: Design, findings: Sequence[Finding]) -> Iterator[Check]:
    """Yield the lines in the order of the page."""
    for line, family in _LINES:
        wrong, open_ = family(design, findings)
        if wrong:
            yield Check(line, "not met", (*wrong, *open_))
        else:
            yield Check(line, "decide" if open_ else "met", tuple(open_))


_Found = tuple[list[str], list[str]]
"""What is wrong, and questions for a person."""


def _numbered(design: Design, findings: Sequence[Finding]) -> _Found:
    wrong = [f"query {one.query.name} has no id" for one in design.patterns if one.query.id is None]
    wrong += [f"write pattern {one.name} has no id" for one in design.writes if one.id is None]
    wrong += [f"query {one.query.name} has no question: add `about`" for one in design.patterns if not one.query.about]
    if not design.patterns:
        wrong.append("the rule file has no queries")
    return wrong, []


def _together(design: Design, findings: Sequence[Finding]) -> _Found:
    wrong = []
    for one in design.patterns:
        several = len(one.query.entities) > 1
        if several and len(one.plan.requests) > 1:
            wrong.append(
                f"{one.query.name} reads {_and(one.query.entities)}, which share no partition: {one.plan.reason}"
            )
        if one.plan.others:
            wrong.append(f"{one.query.name} also reads {_and(one.plan.others)}, which it does not name")
    return wrong, []


def _one_operation(design: Design, findings: Sequence[Finding]) -> _Found:
    wrong, open_ = [], []
    unjustified = {one.path for one in findings if one.code == SEVERAL_REQUESTS.code}
    for one in design.patterns:
        verdict, name = one.plan.verdict, one.query.name
        if verdict == "none":
            wrong.append(f"only a scan answers {name}: {one.plan.reason}")
        elif verdict == "incomplete":
            wrong.append(f"no request returns all items of {name}: {one.plan.reason}")
        elif verdict == "filtered" and one.plan.tests:
            wrong.append(f"{name} reads items that a filter discards: {_and(one.plan.tests)}")
        elif verdict == "several" and f"queries.{name}" in unjustified:
            open_.append(f"{name} needs several requests ({one.plan.reason}). Is this justified?")
    return wrong, open_


def _table_first(design: Design, findings: Sequence[Finding]) -> _Found:
    wrong = []
    for one in design.patterns:
        if one.plan.path not in ("", TABLE):
            other = plan(design.document, replace(one.query, using=TABLE))
            if VERDICTS.index(other.verdict) <= VERDICTS.index(one.plan.verdict):
                wrong.append(
                    f"{one.query.name} reads {one.plan.path}, and the table answers it as well: remove `using`"
                )
    return wrong, []


def _indexes(design: Design, findings: Sequence[Finding]) -> _Found:
    wrong = []
    for index in design.indexes:
        if not index.queries and not index.embeds:
            wrong.append(f"no query and no embed rule reads {index.name}: remove it, or state its queries")
        elif index.needed is not None and index.projection == "all":
            wrong.append(f"{index.name} projects all attributes, and needs only {_and(index.needed) or 'the keys'}")
        elif isinstance(index.projection, tuple) and index.needed is not None:
            idle = [name for name in index.projection if name not in index.needed]
            if idle:
                wrong.append(f"{index.name} projects {_and(idle)}, which no query needs")
    return wrong, []


def _partitions(design: Design, findings: Sequence[Finding]) -> _Found:
    wrong = _of(findings, HOT_PARTITION, FEW_PARTITIONS)
    for entity in design.entities:
        if entity.rule is not None:
            continue
        attribute, text = entity.key[0]
        if not Template.parse(text).fields and any(Template.parse(other).fields for _, other in entity.key[1:]):
            wrong.append(f'all {entity.name} items are in one partition, {attribute} = "{text}"')
    return wrong, []


def _sorting(design: Design, findings: Sequence[Finding]) -> _Found:
    wrong = _of(findings, DATE_ORDER, UNPADDED_NUMBER, PADDED_NUMBER, NUMBER_DOES_NOT_FIT)
    open_ = []
    for one in design.patterns:
        if one.plan.assumes and (one.query.order is not None or one.query.range is not None):
            open_.append(f"{one.query.name} is in order if {_and(one.plan.assumes)}. Is this so?")
    return wrong, open_


def _amplification(design: Design, findings: Sequence[Finding]) -> _Found:
    wrong = [f"{one.name} cannot be counted: {one.flaw}" for one in design.costs if one.flaw is not None]
    stated = {step.entity for write in design.writes for step in write.steps}
    missing = [one.name for one in design.entities if one.rule is None and one.name not in stated]
    open_ = [f"No write pattern has {_and(missing)}. Are all writes of the application stated?"] if missing else []
    return wrong, open_


def _items(design: Design, findings: Sequence[Finding]) -> _Found:
    wrong = _of(findings, LARGE_LIST, LARGE_LISTS)
    for entity in design.entities:
        if entity.expected_bytes is not None and entity.expected_bytes > ITEM_BYTES:
            wrong.append(f"an item of {entity.name} has {entity.expected_bytes:,} bytes; the limit is {ITEM_BYTES:,}")
    return wrong, []


def _keys(design: Design, findings: Sequence[Finding]) -> _Found:
    return _of(findings, LONG_KEY), []


def _number_of_indexes(design: Design, findings: Sequence[Finding]) -> _Found:
    wrong = []
    for local, most, kind in ((False, GLOBAL_INDEXES, "global"), (True, LOCAL_INDEXES, "local")):
        counts = Counter(index.table for index in design.indexes if index.local is local)
        wrong += [f"{table} has {n} {kind} indexes; the limit is {most}" for table, n in counts.items() if n > most]
    return wrong, []


def _collections(design: Design, findings: Sequence[Finding]) -> _Found:
    wrong = []
    local = {index.table: index.name for index in design.indexes if index.local}
    costs = {one.query: one for one in design.reads}
    for one in design.patterns:
        cost = costs.get(one.query.name)
        items = one.query.expect.items
        if cost is None or items is None or one.reads[0].table not in local:
            continue
        if items * cost.bytes > COLLECTION_BYTES:
            wrong.append(f"{one.query.name} expects {items:,} items of {cost.bytes:,} bytes, more than 10 GB")
    open_ = [
        f"With {index}, all items of one partition key of {table} hold at most 10 GB. Can they grow beyond that?"
        for table, index in local.items()
    ]
    return wrong, open_


def _ttl(design: Design, findings: Sequence[Finding]) -> _Found:
    open_ = [
        f"Table {name} has no `ttl`. Does no item expire?"
        for name, table in design.document.tables.items()
        if table.ttl is None
    ]
    return _of(findings, EXPIRY_UNDECIDED, NO_TTL), open_


def _large_objects(design: Design, findings: Sequence[Finding]) -> _Found:
    unknown = [one.name for one in design.entities if one.rule is None and one.expected_bytes is None]
    question = (
        f"No query states the size of {_and(unknown)} items (`expect.bytes`). Do they have documents, images or long texts? "
        "If so, put these into Amazon S3 or into items of their own."
    )
    return _of(findings, LARGE_COPY), [question] if unknown else []


_LINES: tuple[tuple[str, Callable[[Design, Sequence[Finding]], _Found]], ...] = (
    ("Each access pattern has an id, a question, inputs and a result type", _numbered),
    ("Reads of several entities are marked and share a partition", _together),
    ("Each access pattern is one operation, and none is a scan", _one_operation),
    ("The table is preferred to an index", _table_first),
    ("Each index serves a query and projects no more than it needs", _indexes),
    ("Partition keys with one or few values are justified or sharded", _partitions),
    ("Sort keys sort as intended", _sorting),
    ("Write amplification is counted", _amplification),
    (f"Items have at most {ITEM_BYTES // 1024} KB", _items),
    (f"Partition keys have at most {PARTITION_KEY_BYTES:,} bytes, sort keys {SORT_KEY_BYTES:,}", _keys),
    (f"A table has at most {GLOBAL_INDEXES} global and {LOCAL_INDEXES} local indexes", _number_of_indexes),
    ("With local indexes, the items of a partition key have at most 10 GB", _collections),
    ("Expiry by TTL is decided", _ttl),
    ("Large objects are decided", _large_objects),
)


def _of(findings: Iterable[Finding], *kinds: Kind) -> list[str]:
    codes = {kind.code for kind in kinds}
    return [f"{one.path}: {one.reason} ({one.code})" for one in findings if one.code in codes]


def _and(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + " and " + names[-1] if len(names) > 1 else "".join(names)
