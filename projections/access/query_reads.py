"""Reads: the requests of a plan with the caller's values in their keys."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from itertools import product
from typing import Any, NamedTuple

from projections.errors import BadInput, UsageError
from projections.language.access.plan import HIGHEST, Buckets, KeyEquals, Periods, Plan, Query, Request, SortRange, Text
from projections.language.keys import key_text
from projections.language.pipes import UnfitError, begins_time, periods
from projections.language.syntax import LanguageError, suggest
from projections.language.templates import Field, Template
from projections.language.values import Value, wire

MOST_PERIODS = 1000


class Bounds(NamedTuple):
    """What the caller gives for `range`: the least and the greatest value, or a prefix."""

    low: Value | None = None
    high: Value | None = None
    prefix: str | None = None


class Parameters(NamedTuple):
    """The caller's values, in wire form, by the names of `by`, and the bounds of `range`."""

    values: Mapping[str, Value]
    bounds: Bounds = Bounds()


def parameters_of(query: Query, arguments: Mapping[str, Any]) -> Parameters:
    """Return the parameters of a query from plain values by name.

    The bounds of `range: x` are `x.from`, `x.to` and `x.prefix`, or x is a mapping with these names, or a pair.
    Raises UsageError for names that the query does not have or that are missing.
    """
    flat: dict[str, Any] = {}
    for name, value in arguments.items():
        if name == query.range and isinstance(value, Mapping):
            flat.update({f"{name}.{bound}": limit for bound, limit in value.items()})
        elif name == query.range and isinstance(value, list | tuple) and len(value) == 2:
            flat.update({f"{name}.from": value[0], f"{name}.to": value[1]})
        else:
            flat[name] = value
    bounds = [f"{query.range}.{bound}" for bound in ("from", "to", "prefix")] if query.range else []
    known = [*query.parameters, *bounds]
    for name in flat:
        if name not in known:
            hint = suggest(name, known) or f": it has {', '.join(known) or 'none'}"
            raise UsageError(f'query {query.name}: unknown parameter "{name}"{hint}')
    missing = [name for name in query.parameters if flat.get(name) is None]
    if missing:
        raise UsageError(
            f"query {query.name}: missing {', '.join(missing)}; its parameters are {', '.join(query.parameters)}"
        )
    values = {name: _wire_value(query, name, flat[name]) for name in query.parameters}
    low, high, prefix = (flat.get(name) for name in bounds) if bounds else (None, None, None)
    if prefix is not None and not isinstance(prefix, str):
        raise UsageError(f"query {query.name}: {query.range}.prefix is text, not {prefix!r}")
    least = None if low is None else _wire_value(query, bounds[0], low)
    most = None if high is None else _wire_value(query, bounds[1], high)
    return Parameters(values, Bounds(least, most, prefix or None))


def _wire_value(query: Query, name: str, value: Any) -> Value:
    """Return a value of the caller, text or a number, in wire form."""
    try:
        converted = wire(value)
    except LanguageError:
        converted = {}
    if converted.keys() <= {"S", "N"} and converted:
        return converted
    raise UsageError(f"query {query.name}: {name} is {value!r}; give text or a number")


@dataclass(frozen=True, slots=True)
class Read:
    """One read of one partition, for items of `entities`.

    `low` and `high` bound the sort key (both included), `prefix` begins it.

    With `get` it is a GetItem. `order` names the sort key attributes that results are merged by.
    """

    table: str
    entities: tuple[str, ...]
    index: str | None
    partition: tuple[tuple[str, Value], ...]
    fixed: tuple[tuple[str, Value], ...] = ()
    sort: str | None = None
    low: Value | None = None
    high: Value | None = None
    prefix: str | None = None
    get: bool = False
    descending: bool = False
    order: tuple[str, ...] = ()
    consistent: bool = False
    stage: int = 0
    """Reads of a lower stage come first in the order of the results; those of one stage are merged."""

    def request(self, table: str, limit: int | None = None) -> dict[str, Any]:
        """Return the parameters of boto3's `get_item` or `query`, for the table of this name on AWS."""
        request: dict[str, Any] = {"TableName": table}
        if self.get:
            request["Key"] = {name: dict(value) for name, value in (*self.partition, *self.fixed)}
            return {**request, "ConsistentRead": True} if self.consistent else request
        keys = [*zip("pqrs", self.partition, strict=False), *((f"f{n}", key) for n, key in enumerate(self.fixed))]
        names = {f"#{place}": name for place, (name, _) in keys}
        values = {f":{place}": dict(value) for place, (_, value) in keys}
        terms = [*(f"#{place} = :{place}" for place, _ in keys), *self._condition(names, values)]
        if self.index is not None:
            request["IndexName"] = self.index
        request |= {
            "KeyConditionExpression": " AND ".join(terms),
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": values,
        }
        if self.descending:
            request["ScanIndexForward"] = False
        if self.consistent:
            request["ConsistentRead"] = True
        return {**request, "Limit": limit} if limit is not None else request

    def _condition(self, names: dict[str, str], values: dict[str, Any]) -> Iterator[str]:
        if self.sort is None:
            return
        if self.prefix is not None:
            names["#sk"], values[":sk"] = self.sort, {"S": self.prefix}
            yield "begins_with(#sk, :sk)"
        elif self.low is not None or self.high is not None:
            names["#sk"] = self.sort
            values |= {f":{name}": dict(value) for name, value in (("low", self.low), ("high", self.high)) if value}
            if self.low is None:
                yield "#sk <= :high"
            else:
                yield "#sk >= :low" if self.high is None else "#sk BETWEEN :low AND :high"

    @property
    def empty(self) -> bool:
        """Whether no key is between the bounds. DynamoDB refuses such a request."""
        if self.low is None or self.high is None:
            return False
        ((kind, low),), ((_, high),) = self.low.items(), self.high.items()
        if kind == "N":
            return Decimal(low) > Decimal(high)
        return str(low).encode() > str(high).encode()


def reads(plan: Plan, parameters: Parameters, *, now: datetime | None = None) -> list[Read]:
    """Return the reads of a plan, in the order of the results.

    A time without an upper bound ends now. Raises UsageError for values that do not fit a key.
    """
    if not plan.requests:
        way = "`projections queries` shows what to add"
        raise UsageError(f"query {plan.query.name} cannot be answered: {plan.reason}. {way}")
    all_reads: list[Read] = []
    for request in plan.requests:
        all_reads += _reads_of(plan, request, parameters, now or datetime.now(UTC))
    if plan.merged:  # the reads of all buckets of a period, then those of the next
        return sorted(all_reads, key=lambda read: read.stage)
    return [replace(read, stage=number) for number, read in enumerate(all_reads)]


def _reads_of(plan: Plan, request: Request, parameters: Parameters, now: datetime) -> Iterator[Read]:
    query = plan.asked
    parameters = _rename(plan, parameters)
    fans = request.fans
    choices = [_choices(query, fan, parameters.bounds, now) for fan in fans]
    periodic = [number for number, fan in enumerate(fans) if isinstance(fan, Periods)]
    if periodic and query.order is not None and query.order.descending:
        choices[periodic[0]] = choices[periodic[0]][::-1]
    in_order = bool(periodic) and query.ordered_by == fans[periodic[0]].field.name
    sort = _sort(query, request.sort, parameters)
    for combination in product(*choices):
        chosen = dict(zip(fans, combination, strict=True))
        stage = choices[periodic[0]].index(combination[periodic[0]]) if in_order else 0
        yield Read(
            table=request.table,
            entities=request.entities,
            index=request.index,
            partition=tuple(_value(query, key, parameters, chosen) for key in request.partition),
            fixed=tuple(_value(query, key, parameters, chosen) for key in request.fixed),
            get=request.get,
            descending=request.descending,
            order=request.order,
            consistent=query.consistent,
            stage=stage,
            **sort,
        )


def _rename(plan: Plan, parameters: Parameters) -> Parameters:
    """Return the parameters by the names of the copy, if a copy answers the query."""
    if plan.translated is None:
        return parameters
    names = {old.name: new.name for old, new in zip(plan.query.by, plan.translated.by, strict=True)}
    return Parameters({names[name]: value for name, value in parameters.values.items()}, parameters.bounds)


def _choices(query: Query, fan: Buckets | Periods, bounds: Bounds, now: datetime) -> list[str]:
    """Return the texts of a fan: of its buckets, or of the periods from the lower bound on."""
    if isinstance(fan, Buckets):
        return bucket_texts(fan)
    if bounds.low is None:
        raise UsageError(
            f"query {query.name}: {query.range}.from is missing; there is one request for each period from it on"
        )
    try:
        last = now if bounds.high is None else _plain(bounds.high)
        return periods(fan.field.pipes, _plain(bounds.low), last, MOST_PERIODS)
    except UnfitError as error:
        raise UsageError(f"query {query.name}: a bound of {query.range} {error}") from None


def bucket_texts(fan: Buckets) -> list[str]:
    """Return the texts of buckets in keys: their numbers, through the pipes after `bucket`."""
    names = [pipe.name for pipe in fan.field.pipes]
    texts = []
    for number in range(fan.count):
        text: Any = str(number)
        for pipe in fan.field.pipes[names.index("bucket") + 1 :]:
            text = pipe.apply(text)
        texts.append(str(text))
    return list(dict.fromkeys(texts))


def _plain(value: Value) -> str:
    kind, content = next(iter(value.items()))
    return str(content) if kind == "S" else key_text(kind, str(content))


def _text(query: Query, text: Text, parameters: Parameters, chosen: Mapping[Any, str]) -> str:
    parts = []
    for piece in text:
        if isinstance(piece, str):
            parts.append(piece)
        elif isinstance(piece, Field):
            parts.append(_render(query, piece, parameters.values[piece.name]))
        else:
            parts.append(chosen[piece])
    return "".join(parts)


def _render(query: Query, field: Field, value: Value) -> str:
    try:
        return str(Template("{" + field.name + "}", (field,)).render({field.name: value}.get))
    except BadInput as error:
        raise UsageError(f"query {query.name}: {error}") from None


def _value(query: Query, key: KeyEquals, parameters: Parameters, chosen: Mapping[Any, str]) -> tuple[str, Value]:
    text = _text(query, key.text, parameters, chosen)
    if not text:
        raise UsageError(f"query {query.name}: {key.attribute} would be empty, which DynamoDB rejects")
    return key.attribute, {key.kind: _number(query, key.attribute, text) if key.kind == "N" else text}


def _number(query: Query, attribute: str, text: str) -> str:
    number = number_of(text)
    if number is None:
        raise UsageError(f"query {query.name}: {attribute} is a number, {text[:40]!r} is not")
    return number


def number_of(text: str) -> str | None:
    """Return a number as DynamoDB returns it, None for a text that is not a number which it can store."""
    try:
        return str(wire(Decimal(text))["N"])
    except (ArithmeticError, LanguageError):
        return None


def _sort(query: Query, sort: SortRange | None, parameters: Parameters) -> dict[str, Any]:
    """Return the arguments of `Read` for the sort key: a prefix, or bounds."""
    if sort is None:
        return {}
    prefix = _text(query, sort.prefix, parameters, {})
    if sort.until is not None:
        most = _text(query, sort.until, parameters, {}) + HIGHEST * sort.rest
        return {"sort": sort.attribute, "low": {"S": prefix}, "high": {"S": most}}
    bounds = parameters.bounds if sort.bounded and sort.focus is not None else Bounds()
    focus = sort.focus
    if focus is None or bounds == Bounds():
        return {"sort": sort.attribute, "prefix": prefix} if prefix else {}
    if bounds.prefix is not None:
        if sort.kind != "S" or focus.pipes:
            raise UsageError(f"query {query.name}: {query.range} is a number: give from and to, not a prefix")
        return {"sort": sort.attribute, "prefix": prefix + bounds.prefix}
    low, high = bounds.low, bounds.high
    if sort.inverted:
        low, high = high, low
    kind = sort.kind
    if kind != "S":
        numbers = [None if end is None else {kind: _number(query, sort.attribute, _plain(end))} for end in (low, high)]
        return {"sort": sort.attribute, "low": numbers[0], "high": numbers[1]}
    least = prefix + _render(query, focus, low) if low is not None else prefix
    most = prefix + _most(sort, _render(query, focus, high)) if high is not None else ""
    if high is None and prefix:
        most = prefix + HIGHEST
    return {"sort": sort.attribute, "low": {"S": least} if least else None, "high": {"S": most} if most else None}


def _most(sort: SortRange, high: str) -> str:
    """Return the greatest end of a key whose value is at most `high`.

    Values lack the characters up to the text that follows them, bounds may have them: then the greatest value is what
    comes before such a character. All that begins with a shortened time, such as `2026-04`, is within it.
    """
    assert sort.focus is not None
    begins = not sort.focus.pipes and begins_time(high)
    if not sort.rest:
        return high + HIGHEST * begins
    if sort.after and not sort.focus.pipes:
        end = next((place for place, character in enumerate(high) if character <= sort.after[0]), len(high))
        begins, high = begins and end == len(high), high[:end]
    return high + ("" if begins else sort.after) + HIGHEST
