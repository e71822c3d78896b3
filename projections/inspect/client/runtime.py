"""The helpers that generated modules contain. Each module has only those that its functions use.

This text is copied, so it imports nothing of this package. It is written for aioboto3; without `async` and `await` it is the
form for boto3 (see `scope`). Its lines are those of the generated code.
"""

# fmt: off

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from functools import cached_property
from typing import Any, Generic, Protocol, TypeVar
from zoneinfo import ZoneInfo

from boto3.dynamodb.conditions import ConditionExpressionBuilder, Key

Item = dict[str, Any]
Scalar = str | int | Decimal
T = TypeVar("T")

_ABSENT: Any = object()
_BEGINNING = re.compile(
    r"([0-9]{4})(?:-?(0[1-9]|1[0-2])(?:-?([0-3][0-9])(?:[T ]([0-2][0-9])"
    r"(?::?([0-5][0-9])(?::?([0-5][0-9])(?:[.,][0-9]+)?)?)?)?)?)?"
)
_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_GUARD = "~"
_HIGHEST = "\U0010ffff"


class Table(Protocol):
    """The methods of a boto3 table that this module calls."""

    def get_item(self, *args: Any, **kwargs: Any) -> Any: ...

    def query(self, *args: Any, **kwargs: Any) -> Any: ...


def _without_guards(item: Item) -> Item:
    """Return an item without the attributes in which rules keep their state."""
    return {name: value for name, value in item.items() if not name.startswith(_GUARD)}


def _pick(item: Item, *names: str) -> Item:
    """Return attributes of an item: those that it has."""
    return {name: item[name] for name in names if name in item}


def _values_at(item: Item, paths: Mapping[str, Sequence[str]]) -> Item:
    """Return values of an item by new names: those that it has."""
    values = {name: _value_at(item, *path) for name, path in paths.items()}
    return {name: value for name, value in values.items() if value is not _ABSENT}


def _key_variables(
    item: Mapping[str, Any], key: Mapping[str, re.Pattern[str]]
) -> Item | None:
    """Return the variables in the key of an item, None if its key has another form."""
    variables: Item = {}
    for name, pattern in key.items():
        value = item[name]
        match = pattern.fullmatch(_text_of(value))
        if match is None:
            return None
        texts = match.groupdict()
        variables |= texts if isinstance(value, str) else dict.fromkeys(texts, value)
    return variables


def _variables_of(item: Mapping[str, Any], key: Mapping[str, re.Pattern[str]]) -> Any:
    """Return the variables in the key of an item. Raises ValueError for another key."""
    variables = _key_variables(item, key)
    if variables is None:
        raise ValueError("the key has another form")
    return variables


def _value_at(item: Mapping[str, Any], *path: str) -> Any:
    """Return the value at a path."""
    value: Any = item
    for name in path:
        if isinstance(value, dict) and name in value:
            value = value[name]
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return _ABSENT
    return value


def _text_of(value: Scalar) -> str:
    """Return a value as keys have it: a number without exponent or trailing zeros."""
    if isinstance(value, str):
        return value
    text = f"{Decimal(value):f}"
    text = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if text == "-0" else text


def _same_text(value: Any, wanted: Scalar) -> bool:
    """Return whether a value has the same text in a key as another."""
    return isinstance(value, str | Decimal) and _text_of(value) == _text_of(wanted)


def _is_within(
    value: Any, low: Scalar | None, high: Scalar | None, beginning: str | None = None
) -> bool:
    """Return whether a text or a number is between two bounds, both included.

    The upper bound 2026-04 includes all times that begin with it.
    """
    if not isinstance(value, str | Decimal):
        return False
    if beginning and not (isinstance(value, str) and value.startswith(beginning)):
        return False
    kind: Any = _text_of if isinstance(value, str) else Decimal
    try:
        return (low is None or bool(value >= kind(low))) and (
            high is None or bool(value <= kind(high)) or _continues(value, high)
        )
    except ArithmeticError:
        return False


def _continues(value: Any, high: Scalar) -> bool:
    """Return whether a text begins with a bound that is the beginning of a time."""
    text = _text_of(high)
    return isinstance(value, str) and value.startswith(text) and _begins(text)


def _begins(text: str) -> bool:
    """Return whether a text is the beginning of a time in ISO 8601, or one without offset."""
    return _BEGINNING.fullmatch(text) is not None


def _elements(value: Any) -> Iterator[Any]:
    """Yield a value, or the elements of a list or set."""
    if isinstance(value, list | set):
        for element in value:
            yield from _elements(element)
    else:
        yield value


def _is_any(value: Any, *wanted: Any) -> bool:
    """Return whether a value, or an element of it, is one of these."""
    return any(
        element == scalar and isinstance(element, bool) == isinstance(scalar, bool)
        for element in _elements(value)
        for scalar in wanted
    )


def _any_text(value: Any, fits: Callable[[str], bool]) -> bool:
    """Return whether a text, or a text in a list or set, fits."""
    return any(
        isinstance(element, str) and fits(element) for element in _elements(value)
    )


def _compares(value: Any, *bounds: tuple[str, Any]) -> bool:
    """Return whether a value, or an element of it, is within all these bounds."""
    return any(
        all(_is_within_bound(element, sign, other) for sign, other in bounds)
        for element in _elements(value)
    )


def _is_within_bound(value: Any, sign: str, other: Any) -> bool:
    """Return whether two numbers, or two texts, compare like this; others do not."""
    of_number = isinstance(other, Decimal | int) and not isinstance(other, bool)
    numbers = isinstance(value, Decimal) and of_number
    if not numbers and not (isinstance(value, str) and isinstance(other, str)):
        return False
    if sign == "!=":
        return bool(value != other)
    if "=" in sign and value == other:
        return True
    return bool(value > other if sign[0] == ">" else sign[0] == "<" and value < other)


def _key_part(value: str, separator: str | None = "#") -> str:
    """Return a variable of a key. Raises ValueError if it could not be read back."""
    if not value or (separator is not None and separator in value):
        raise ValueError(f"empty, or with {separator}, in a key: {value!r}")
    return value


def _pad(value: Scalar, digits: int) -> str:
    """Return a whole number with leading zeros."""
    text = _text_of(value)
    if not (text.isascii() and text.isdigit()) or len(text.lstrip("0")) > digits:
        raise ValueError(f"not a whole number of at most {digits} digits: {text}")
    return f"{int(text):0{digits}}"


def _invert(value: Scalar, digits: int) -> str:
    """Return a number of which the greatest sorts first."""
    return f"{10**digits - 1 - int(_pad(value, digits)):0{digits}}"


def _bucket_of(value: Scalar, buckets: int) -> str:
    """Return the number of the bucket of a value."""
    return str(zlib.crc32(_text_of(value).encode()) % buckets)


def _time_of(value: Scalar | datetime) -> datetime:
    """Return the time of a text in ISO 8601, or of seconds since 1970."""
    if isinstance(value, datetime):
        return value
    text = _text_of(value)
    if re.fullmatch(r"-?[0-9]+(\.[0-9]+)?", text):
        if abs(Decimal(text)) < 10**8:
            raise ValueError(f"a date, or a time before 1973: {text}")
        return _since1970(text, 6)
    time = datetime.fromisoformat(text)
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _ulid_time(value: str) -> datetime:
    """Return the time in a ULID."""
    milliseconds = 0
    for letter in value.upper()[:10]:
        milliseconds = milliseconds * 32 + _CROCKFORD.index(letter)
    return _since1970(milliseconds, 3)


def _since1970(value: Scalar, digits: int) -> datetime:
    """Return the time of seconds (6 digits to microseconds) or milliseconds (3) since 1970."""
    whole = Decimal(value).scaleb(digits).to_integral_value(ROUND_FLOOR)
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(whole))


def _format_date(value: Scalar | datetime, form: str, zone: str = "UTC") -> str:
    """Return a time in a format of strftime."""
    there = UTC if zone == "UTC" else ZoneInfo(zone)
    return _format_time(_time_of(value).astimezone(there), form)


def _format_time(time: datetime, form: str) -> str:
    """Return a time in a format of strftime, whose years before 1000 have no zeros."""
    years = {"%Y": f"{time.year:04}", "%G": f"{time.isocalendar().year:04}"}
    return time.strftime(re.sub("%.", lambda code: years.get(code[0], code[0]), form))


def _parse_time(value: Scalar, form: str) -> datetime:
    """Return the time of a value in a format of strftime. Raises ValueError."""
    text = _text_of(value)
    for code, first in (("%V", "01"), ("%u", "1")):
        if "%G" in form and code not in form:
            form, text = f"{form} {code}", f"{text} {first}"
    time = datetime.strptime(text, form).replace(tzinfo=UTC)
    if _format_time(time, form) != text:
        raise ValueError(f"not written as {form}: {text}")
    return time


def _time_of_bound(value: Scalar | datetime, *, last: bool) -> datetime:
    """Return the first or the last time that a bound may admit.

    One without offset is compared with times as they are written, whose offsets are from
    -12 to +14 hours.
    """
    match = _BEGINNING.fullmatch(value) if isinstance(value, str) else None
    if match is None or (match[0].isdigit() and match[2]):
        return _time_of(value)
    parts = [int(part) for part in match.groups() if part]
    year, month, day, hour, minute, second = (*parts, *(1, 1, 1, 0, 0, 0)[len(parts) :])
    time = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    if not last:
        return time - timedelta(hours=14)
    if len(parts) == 1:
        time = time.replace(year=year + 1)
    elif len(parts) == 2:
        time = (time + timedelta(days=31)).replace(day=1)
    else:
        unit = ("days", "hours", "minutes", "seconds")[len(parts) - 3]
        time += timedelta(**{unit: 1})
    return time + timedelta(hours=12, microseconds=-1)


def _periods_between(
    first: Scalar | datetime,
    last: Scalar | datetime | None,
    form: str,
    step: float,
    zone: str = "UTC",
) -> list[str]:
    """Return all periods between two times, the first one first. Without an end, until now.

    `step` is in seconds, and shorter than a period. Raises ValueError for more than 1000 periods.
    """
    time = _time_of_bound(first, last=False)
    end = datetime.now(UTC) if last is None else _time_of_bound(last, last=True)
    if time > end:
        return []
    periods: dict[str, None] = {}
    while time < end and len(periods) <= 1000:
        periods[_format_date(time, form, zone)] = None
        time += timedelta(seconds=step)
    periods[_format_date(end, form, zone)] = None
    if len(periods) > 1000:
        raise ValueError("more than 1000 periods: ask for a shorter time")
    return list(periods)


def _text_between(
    name: str,
    prefix: str,
    low: Scalar | None = None,
    high: Scalar | None = None,
    beginning: str | None = None,
    rest: str = "",
) -> Any:
    """Return the condition on a sort key: a prefix, then a text between two others.

    `rest` is what the greatest of these keys has after its text.
    """
    if beginning:
        return Key(name).begins_with(prefix + beginning)
    if low is None and high is None and prefix:
        return Key(name).begins_with(prefix)
    least = prefix + ("" if low is None else _text_of(low)) or "\0"
    ends = _HIGHEST if high is not None and _begins(_text_of(high)) else rest
    most = prefix + (_HIGHEST if high is None else _text_of(high) + ends)
    # DynamoDB rejects a range without texts; the item that this one may have does not fit
    return Key(name).between(least, max(least, most))


def _number_between(
    name: str, low: int | Decimal | None, high: int | Decimal | None
) -> list[Any]:
    """Return the conditions on a number that is a sort key: none without bounds."""
    if low is None:
        return [] if high is None else [Key(name).lte(high)]
    if high is None:
        return [Key(name).gte(low)]
    return [Key(name).between(low, max(low, high))]


def _set_expression(
    changes: Mapping[str, Any],
    names: Mapping[str, str] | None = None,
    values: Mapping[str, Any] | None = None,
) -> Item:
    """Return the arguments of an update that sets attributes.

    `names` and `values` have the placeholders of its condition.
    """
    places = {f"n{number}": name for number, name in enumerate(changes)}
    terms = ", ".join(f"#{place} = :{place}" for place in places)
    set_names = {f"#{place}": name for place, name in places.items()}
    set_values = {f":{place}": changes[name] for place, name in places.items()}
    return {
        "UpdateExpression": f"SET {terms}",
        "ExpressionAttributeNames": {**set_names, **(names or {})},
        "ExpressionAttributeValues": {**set_values, **(values or {})},
    }


@dataclass(frozen=True)
class Path:
    """The table or an index, and the attributes of its keys."""

    index: str | None
    key: tuple[str, ...]


class Read:
    """One Query request: a path, conditions on its key, and the direction.

    `only` tells the items that it is for, if others of the query are read elsewhere.
    """

    def __init__(
        self,
        path: Path,
        *conditions: Any,
        descending: bool = False,
        only: Callable[[Item], bool] | None = None,
    ) -> None:
        self.path = path
        self.only = only
        self.arguments: Item = {"KeyConditionExpression": conditions[0]}
        for condition in conditions[1:]:
            self.arguments["KeyConditionExpression"] &= condition
        if path.index is not None:
            self.arguments["IndexName"] = path.index
        if descending:
            self.arguments["ScanIndexForward"] = False
        self.descending = descending

    @cached_property
    def name(self) -> str:
        """The name of the read in page tokens: other arguments make another name."""
        built = ConditionExpressionBuilder().build_expression(
            self.arguments["KeyConditionExpression"], is_key_condition=True
        )
        values = [self.path.index, *built.attribute_value_placeholders.values()]
        return hashlib.sha256(repr(values).encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Page(Generic[T]):
    """Items of one page, and the token of the next page: None at the end."""

    items: list[T]
    token: str | None


class Results(Generic[T]):
    """The items of a query: iterate over all of them, or take them by pages.

    The reads of one stage are merged by the attributes in `merge_by`; stages follow each
    other. What is read is tested again, because an index may lag behind its table.
    """

    def __init__(
        self,
        table: Table,
        stages: Sequence[Sequence[Read]],
        fits: Callable[[Item], bool],
        *,
        show: Callable[[Item], Any] = _without_guards,
        merge_by: Sequence[str] = (),
        limit: int | None = None,
        consistent: bool = False,
    ) -> None:
        self._table = table
        self._stages = stages
        self._fits = fits
        self._show = show
        self._merge_by = merge_by
        self._limit = limit
        self._arguments = {"ConsistentRead": True} if consistent else {}

    async def __aiter__(self) -> AsyncIterator[T]:
        async for _, _, item in self._items({}, None):
            yield self._show(item)

    async def page(self, limit: int | None = None, token: str | None = None) -> Page[T]:
        """Return the next page. `token` is that of the page before it.

        A page has at most `limit` items, by default as many as the query says; without
        either, all.

        Raises ValueError for a token of another query or of other arguments, and for a
        limit below 1.
        """
        if limit is None:
            limit = self._limit
        elif limit < 1:
            raise ValueError("limit must be at least 1")
        places = _places_of(token)
        current = None
        items: list[T] = []
        async for stage, read, item in self._items(places, limit):
            if len(items) == limit:
                return Page(items, _token_of(places))
            if stage != current:
                names = {other.name for other in self._stages[stage]}
                places = {name: places[name] for name in names & places.keys()}
                current = stage
            places[read.name] = {name: item[name] for name in read.path.key}
            items.append(self._show(item))
        return Page(items, None)

    async def first(self) -> T | None:
        """Return the first item, None if there is none."""
        page = await self.page(1)
        return page.items[0] if page.items else None

    async def _items(
        self, places: Mapping[str, Item], limit: int | None
    ) -> AsyncIterator[tuple[int, Read, Item]]:
        """Yield the items after these places, each with its stage and its read."""
        places = dict(places)
        for number, reads in enumerate(self._stages):
            if places and not places.keys() & {read.name for read in reads}:
                continue
            after = [places.pop(read.name, None) for read in reads]
            streams = [
                self._stream(read, place, limit)
                for read, place in zip(reads, after, strict=True)
            ]
            if places:
                break
            heads = [await anext(stream, None) for stream in streams]
            while any(heads):
                best = self._best(reads, heads)
                item = heads[best]
                if item is not None:
                    yield number, reads[best], item
                heads[best] = await anext(streams[best], None)
        if places:
            raise ValueError("the page token belongs to other arguments")

    def _best(self, reads: Sequence[Read], heads: Sequence[Item | None]) -> int:
        """Return the position of the item that comes first."""
        orders = {
            number: [head[name] for name in self._merge_by]
            for number, head in enumerate(heads)
            if head is not None
        }
        return (max if reads[0].descending else min)(orders, key=orders.__getitem__)

    async def _stream(
        self, read: Read, after: Item | None, limit: int | None
    ) -> AsyncIterator[Item]:
        """Yield the items of one read that are part of the answer."""
        arguments = {**read.arguments, **self._arguments}
        if limit is not None:
            arguments["Limit"] = limit + 1  # one more tells whether it is the last page
        if after is not None:
            arguments["ExclusiveStartKey"] = after
        while True:
            response = await self._table.query(**arguments)
            for item in response["Items"]:
                if self._fits(item) and (read.only is None or read.only(item)):
                    yield item
            if "LastEvaluatedKey" not in response:
                return
            arguments["ExclusiveStartKey"] = response["LastEvaluatedKey"]


async def _get_item(
    table: Table,
    key: Item,
    fits: Callable[[Item], bool],
    *,
    show: Callable[[Item], Any] = _without_guards,
    consistent: bool = False,
) -> Any:
    """Return the item with a key, None if there is none or if it is another."""
    response = await table.get_item(Key=key, ConsistentRead=consistent)
    item = response.get("Item")
    return show(item) if item is not None and fits(item) else None


def _token_of(places: Mapping[str, Item]) -> str:
    """Return a page token: the key of the last returned item of each read."""
    text = json.dumps(places, default=lambda number: {"N": str(number)})
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _number(value: Item) -> Any:
    return Decimal(value["N"]) if [*value] == ["N"] else value


def _places_of(token: str | None) -> dict[str, Item]:
    if token is None:
        return {}
    try:
        text = base64.urlsafe_b64decode(token + "=" * (-len(token) % 4))
        places = json.loads(text, object_hook=_number)
    except (ValueError, ArithmeticError, TypeError):
        raise ValueError("invalid page token") from None
    if not isinstance(places, dict) or not places:
        raise ValueError("invalid page token")
    return places
