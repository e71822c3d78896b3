"""The checklist of a table design. Each line is computed from the plans, the rules, their findings and the capacity.

A finding that a comment in the rule file accepts (`# check: ignore hot-partition`) is no fault: the line names the comment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from projections.inspect.design.table_design import Check, Design, Status, gather_design
from projections.language.findings.kinds import (
    DATE_ORDER,
    EXPIRY_UNDECIDED,
    FEW_PARTITIONS,
    FILTERED_QUERY,
    HOT_PARTITION,
    LARGE_LIST,
    NO_TTL,
    NUMBER_DOES_NOT_FIT,
    PADDED_NUMBER,
    SEVERAL_REQUESTS,
    UNANSWERED_QUERY,
    UNPADDED_NUMBER,
    Finding,
    Kind,
)
from projections.language.models import Rules
from projections.language.review import Accepted, Review
from projections.language.syntax import join_names
from projections.stores.limits import ITEM_BYTES


def design_of(rules: Rules, title: str, review: Review | None = None) -> Design:
    """Return the table design of valid rules. `review` is that of their file."""
    design = gather_design(rules, title)
    return design._replace(checks=tuple(_checklist(design, review or Review(None, ()))))


def _checklist(design: Design, review: Review) -> Iterator[Check]:
    """Yield the lines in the order of the page. `review` is that of the rule file."""
    for line, family in _LINES:
        wrong, open_ = family(design, review)
        faults = [fault for fault in wrong if not isinstance(fault, _Accepted)]
        accepted = [fault for fault in wrong if isinstance(fault, _Accepted)]
        status: Status = "not met" if faults else "decide" if open_ else "accepted" if accepted else "met"
        yield Check(line, status, (*faults, *open_, *map(str, accepted)))


class _Accepted(str):
    """What a comment accepts, with the place of the comment."""


_Found = tuple[list[str], list[str]]
"""What is wrong or accepted, and questions for a person."""


def _check_numbers(design: Design, review: Review) -> _Found:
    wrong = [f"query {pattern.query.name} has no id" for pattern in design.patterns if pattern.query.id is None]
    wrong += [f"write pattern {name} has no id" for name, write in design.writes.items() if write.id is None]
    wrong += [f"query {use.query.name} has no question: add `about`" for use in design.patterns if not use.query.about]
    if not design.patterns:
        wrong.append("the rule file has no queries")
    return wrong, []


def _together(design: Design, review: Review) -> _Found:
    wrong = []
    for pattern in design.patterns:
        several = len(pattern.query.entities) > 1
        if several and len(pattern.plan.requests) > 1:
            entities = join_names(pattern.query.entities)
            wrong.append(f"{pattern.query.name} reads {entities}, which share no partition: {pattern.plan.reason}")
        if pattern.plan.others:
            words = f"{pattern.query.name} also reads {join_names(pattern.plan.others)}, which it does not name"
            wrong.append(_problem(words, _comment(review, pattern.query.name)))
    return wrong, []


def _one_operation(design: Design, review: Review) -> _Found:
    wrong, open_ = [], []
    for pattern in design.patterns:
        verdict, name = pattern.plan.verdict, pattern.query.name
        comment = _comment(review, name)
        if verdict == "none":
            wrong.append(_problem(f"only a scan answers {name}: {pattern.plan.reason}", comment))
        elif verdict == "incomplete":
            wrong.append(_problem(f"no request returns all items of {name}: {pattern.plan.reason}", comment))
        elif verdict == "filtered" and pattern.plan.tests:
            wrong.append(
                _problem(f"{name} reads items that a filter discards: {join_names(pattern.plan.tests)}", comment)
            )
        elif verdict == "several" and comment:
            wrong.append(_problem(f"{name} needs several requests ({pattern.plan.reason})", comment))
        elif verdict == "several":
            open_.append(f"{name} needs several requests ({pattern.plan.reason}). Is this justified?")
    return wrong, open_


_VERDICTS = {kind.code for kind in (UNANSWERED_QUERY, FILTERED_QUERY, SEVERAL_REQUESTS)}
"""Findings about how a query is answered. A query has at most one."""


def _comment(review: Review, query: str) -> Accepted | None:
    """Return the comment that accepts how a query is answered."""
    return next((accepted for accepted in review.accepted if _about(accepted.finding, query)), None)


def _about(finding: Finding, query: str) -> bool:
    place = f"queries.{query}"
    return finding.code in _VERDICTS and (finding.path == place or finding.path.startswith(f"{place}."))


def _problem(words: str, comment: Accepted | None) -> str:
    """Return what is wrong; if a comment accepts it, with the place of the comment."""
    if comment is None:
        return words
    return _Accepted(f"{words}. Accepted in {comment.finding.file}:{comment.line}")


def _indexes(design: Design, review: Review) -> _Found:
    wrong = []
    for index in design.indexes:
        if not index.queries and not index.embeds:
            wrong.append(f"no query and no embed rule reads {index.name}: remove it, or state its queries")
        elif index.needed is not None and index.keys.projection == "all":
            wrong.append(
                f"{index.name} projects all attributes, and needs only {join_names(index.needed) or 'the keys'}"
            )
        elif isinstance(index.keys.projection, tuple) and index.needed is not None:
            idle = [name for name in index.keys.projection if name not in index.needed]
            if idle:
                wrong.append(f"{index.name} projects {join_names(idle)}, which no query needs")
    return wrong, []


def _partitions(design: Design, review: Review) -> _Found:
    wrong = _of(review, HOT_PARTITION, FEW_PARTITIONS)
    for name, entity in design.rules.entities.items():
        if name in design.creators:
            continue
        attribute, template = next(iter(entity.key.items()))
        if not template.fields and any(other.fields for other in entity.key.values()):
            wrong.append(f'all {name} items are in one partition, {attribute} = "{template.text}"')
    return wrong, []


def _sorting(design: Design, review: Review) -> _Found:
    wrong = _of(review, DATE_ORDER, UNPADDED_NUMBER, PADDED_NUMBER, NUMBER_DOES_NOT_FIT)
    open_ = []
    for pattern in design.patterns:
        if pattern.plan.assumes and (pattern.query.order is not None or pattern.query.range is not None):
            open_.append(f"{pattern.query.name} is in order if {join_names(pattern.plan.assumes)}. Is this so?")
    return wrong, open_


def _writes(design: Design, review: Review) -> _Found:
    stated = {step.entity for write in design.writes.values() for step in write.steps}
    missing = [name for name in design.rules.entities if name not in design.creators and name not in stated]
    return [], [
        f"No write pattern has {join_names(missing)}. Are all writes of the application stated?"
    ] if missing else []


def _items(design: Design, review: Review) -> _Found:
    wrong = _of(review, LARGE_LIST)
    for query in (pattern.query for pattern in design.patterns):
        if len(query.entities) == 1 and (query.expect.bytes or 0) > ITEM_BYTES:
            size = f"{query.expect.bytes:,} bytes; the limit is {ITEM_BYTES:,}"
            wrong.append(f"an item of {query.entities[0]} has {size}")
    return list(dict.fromkeys(wrong)), []


def _ttl(design: Design, review: Review) -> _Found:
    open_ = [
        f"Table {name} has no `ttl`. Does no item expire?"
        for name, table in design.rules.tables.items()
        if table.ttl is None
    ]
    return _of(review, EXPIRY_UNDECIDED, NO_TTL), open_


_LINES: tuple[tuple[str, Callable[[Design, Review], _Found]], ...] = (
    ("Each access pattern has an id, a question, inputs and a result type", _check_numbers),
    ("Reads of several entities are marked and share a partition", _together),
    ("Each access pattern is one operation, and none is a scan", _one_operation),
    ("Each index serves a query and projects no more than it needs", _indexes),
    ("Partition keys with one or few values are justified or sharded", _partitions),
    ("Sort keys sort as intended", _sorting),
    ("All writes of the application are stated", _writes),
    (f"Items have at most {ITEM_BYTES // 1024} KB", _items),
    ("Expiry by TTL is decided", _ttl),
)


def _of(review: Review, *kinds: Kind) -> list[str]:
    codes = {kind.code for kind in kinds}
    pairs = [*((finding, None) for finding in review.findings), *((note.finding, note) for note in review.accepted)]
    return [_problem(f"{bad.path}: {bad.reason} ({bad.code})", comment) for bad, comment in pairs if bad.code in codes]
