"""The requests of a plan for people and for documents, with placeholders such as `{userId}` for what the caller gives.

A placeholder is the name of a value, with its pipes if it has any. `{publishedAt.from}` and `{publishedAt.to}` are the
bounds of a range. `{bucket 0..3}` stands for one request for each bucket, `{period publishedAt|date(%Y-%m)}` for one request
for each period.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from projections.access.query_reads import Read
from projections.language.access.plan import HIGHEST, Buckets, KeyEquals, Periods, Plan, Request, SortRange, Text
from projections.language.templates import Field
from projections.language.values import Value


def placeholder_reads(plan: Plan) -> list[Read]:
    """Return one read for each request of a plan, with placeholders in its keys."""
    names = {name: name for name in plan.asked.parameters}
    if plan.translated is not None:
        names = {new.name: old.name for old, new in zip(plan.query.by, plan.translated.by, strict=True)}
    return [_read(plan, request, names) for request in plan.requests]


def _read(plan: Plan, request: Request, names: Mapping[str, str]) -> Read:
    read = Read(
        table=request.table,
        entities=request.entities,
        index=request.index,
        partition=tuple((key.attribute, _value(key, names)) for key in request.partition),
        fixed=tuple((key.attribute, _value(key, names)) for key in request.fixed),
        get=request.get,
        descending=request.descending,
        consistent=plan.asked.consistent,
    )
    return read if request.sort is None else _with_bounds(read, request.sort, names, plan.query.range)


def _with_bounds(read: Read, sort: SortRange, names: Mapping[str, str], bounded: str | None) -> Read:
    prefix = _text(sort.prefix, names)
    if sort.until is not None:
        most = _text(sort.until, names) + HIGHEST * sort.rest
        return replace(read, sort=sort.attribute, low={sort.kind: prefix}, high={sort.kind: most})
    if not sort.bounded or sort.focus is None:
        return replace(read, sort=sort.attribute, prefix=prefix) if prefix else read
    ends = [prefix + str(sort.focus._replace(name=f"{bounded}.{end}")) for end in ("from", "to")]
    low, high = reversed(ends) if sort.inverted else ends
    high += (sort.after + HIGHEST) * sort.rest
    return replace(read, sort=sort.attribute, low={sort.kind: low}, high={sort.kind: high})


def _value(key: KeyEquals, names: Mapping[str, str]) -> Value:
    return {key.kind: _text(key.text, names)}


def _text(text: Text, names: Mapping[str, str]) -> str:
    return "".join(_placeholder(piece, names) for piece in text)


def _placeholder(piece: str | Field | Buckets | Periods, names: Mapping[str, str]) -> str:
    match piece:
        case str():
            return piece
        case Buckets():
            return f"{{bucket 0..{piece.count - 1}}}"
        case Periods():
            return f"{{period {str(piece.field)[1:]}"
    return str(piece._replace(name=names.get(piece.name, piece.name)))


def condition_words(read: Read) -> str:
    """Return the key condition of a read on one line, as `PK = USER#{userId} and SK begins with POST#`."""
    terms = [f"{name} = {_content(value)}" for name, value in (*read.partition, *read.fixed)]
    ends = [f"{word} {_content(end)}" for word, end in (("from", read.low), ("to", read.high)) if end is not None]
    if read.prefix is not None:
        ends = [f"begins with {read.prefix}"]
    if ends:
        terms.append(" ".join([str(read.sort), *ends]))
    return " and ".join(terms) + ", descending" * read.descending


def _content(value: Value) -> str:
    return str(next(iter(value.values()))).replace(HIGHEST, "…")


def count_words(plan: Plan) -> str:
    """Return the number of requests of one page, as `1`, `4` or `2 per period`."""
    periodic = any(isinstance(fan, Periods) for request in plan.requests for fan in request.fans)
    return f"{request_count(plan)} per period" if periodic else str(request_count(plan))


def request_count(plan: Plan) -> int:
    """Return the number of requests of one page; of a query over periods, those of one period."""
    return sum(prod(fan.count for fan in request.fans if isinstance(fan, Buckets)) for request in plan.requests)
