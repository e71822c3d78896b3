"""Answers: the items of a query, in order, by pages; and the readers, which make the request of a read.

The reads of a plan are in stages. Those of one stage are merged by their sort keys: an item is returned only when every
other read has a greater item, or none. Stages follow each other, as the periods of a time do.

Every item is recognised and tested against the query again before it is returned, because an index may lag behind the item's
attributes. A page token holds, for each read of the current stage, the key of the last item that was *returned*, so that
nothing is skipped that was read ahead.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from projections.access.query_reads import Parameters, Read, number_of, parameters_of, reads
from projections.engine.store import Image, ItemKey, Store
from projections.errors import BadInput, UsageError
from projections.language.access.plan import Plan, Query
from projections.language.entity import Item, Resolve
from projections.language.keys import escape
from projections.language.patterns import Pattern
from projections.language.pipes import begins_time
from projections.language.program import Program
from projections.language.syntax import root, shown_name
from projections.language.templates import Template
from projections.language.values import Resolver, Value, lookup, python, python_item, same
from projections.stores.condition_expressions import comparable
from projections.stores.wire import from_boto

if TYPE_CHECKING:
    from projections.stores.dynamodb import DynamoDBStore


class ReadPage(NamedTuple):
    """One page: its items, the key to continue after, and the read units that it took, if known."""

    items: Sequence[Image]
    after: Image | None = None
    units: float = 0.0


class Reader(Protocol):
    """Reads one page of one read."""

    def __call__(self, read: Read, limit: int | None, after: Image | None) -> ReadPage: ...


class StoreReader:
    """Reads a store in memory. It reads whole partitions, and keeps what is between the bounds."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def __call__(self, read: Read, limit: int | None, after: Image | None) -> ReadPage:
        if read.get:
            texts = [str(next(iter(value.values()))) for _, value in (*read.partition, *read.fixed)]
            item = self._store.get(ItemKey(read.table, *texts))
            return ReadPage([] if item is None else [item])
        values, key_names = [value for _, value in read.partition], self._store.schema(read.table).key_names(read.index)
        images: list[Image] = []
        while True:
            page = self._store.query(read.table, values, index=read.index, reverse=read.descending, after=after)
            for item in page.items:
                if not _within(read, item):
                    continue
                images.append(item)
                if len(images) == limit:
                    return ReadPage(images, {name: item[name] for name in key_names})
            if page.after is None:
                return ReadPage(images)
            after = page.after


def _within(read: Read, item: Image) -> bool:
    if not all(same(item[name], value) for name, value in read.fixed):
        return False
    if read.sort is None:
        return True
    (content,), place = item[read.sort].values(), _place(item[read.sort])
    if read.prefix is not None and not str(content).startswith(read.prefix):
        return False
    return (read.low is None or place >= _place(read.low)) and (read.high is None or place <= _place(read.high))


def _place(value: Value) -> Any:
    ((kind, content),) = value.items()
    return comparable(kind, content)


class ClientReader:
    """Reads tables on DynamoDB. `observe` is called with the parameters of each request, as boto3 has them."""

    def __init__(
        self, store: DynamoDBStore, observe: Callable[[Mapping[str, Any]], None] = lambda request: None
    ) -> None:
        self._store = store
        self._observe = observe

    def __call__(self, read: Read, limit: int | None, after: Image | None) -> ReadPage:
        request = read.request(self._store.table_name(read.table), None if read.get else limit)
        if after is not None:
            request["ExclusiveStartKey"] = dict(after)
        self._observe(request)
        answer = self._store.read("GetItem" if read.get else "Query", {**request, "ReturnConsumedCapacity": "TOTAL"})
        units = float(answer.get("ConsumedCapacity", {}).get("CapacityUnits", 0))
        items = [answer["Item"]] if "Item" in answer else answer.get("Items", [])
        return ReadPage([from_boto(item) for item in items], answer.get("LastEvaluatedKey"), units)


def reader_of(store: Store) -> Reader:
    """Return the reader of a store."""
    from projections.stores.dynamodb import DynamoDBStore

    return ClientReader(store) if isinstance(store, DynamoDBStore) else StoreReader(store)


Place: TypeAlias = tuple[Any, ...]


@dataclass
class AnswerPage:
    """Items of one page with Python's values, the token of the next page (None at the end), and what it took."""

    items: list[dict[str, Any]]
    token: str | None = None
    requests: int = 0
    scanned: int = 0
    units: float = 0.0


def answer_to(
    program: Program, plan: Plan, values: Mapping[str, Any], reader: Reader, *, now: datetime | None = None
) -> Answer:
    """Return the answer of a planned query for the caller's values.

    Raises UsageError if the plan has no requests, or for values that do not fit.
    """
    parameters = parameters_of(plan.query, values)
    return Answer(program, plan, parameters, reads(plan, parameters, now=now), reader)


class Answer:
    """The answer of a query: iterate over its items, or take it by pages."""

    def __init__(
        self, program: Program, plan: Plan, parameters: Parameters, reads: Sequence[Read], reader: Reader
    ) -> None:
        self._program = program
        self._plan = plan
        self._query = plan.asked
        self._reader = reader
        self._fits = _tests(program, plan, parameters)
        self.reads = tuple(reads)
        self.requests = 0
        self.scanned = 0
        self.units = 0.0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield all items with Python's values."""
        for image, read in self._items({}, 0, self._query.limit):
            yield self._show(read, image)

    def page(self, limit: int | None = None, token: str | None = None) -> AnswerPage:
        """Return one page of at most `limit` items, by default the query's limit.

        Raises UsageError for a wrong token, and for a limit below 1.
        """
        if limit is not None and limit < 1:
            raise UsageError(f"query {self._query.name}: the limit is {limit}. It must be at least 1")
        most = self._query.limit if limit is None else limit
        before = self.requests, self.scanned, self.units
        stage, places = self._read_token(token)
        items: list[dict[str, Any]] = []
        next_token = None
        current = stage
        size = None if most is None else most + 1  # one more tells whether it is the last page, without another request
        for image, read in self._items(places, stage, size):
            if len(items) == most:
                next_token = self._token(current, places)
                break
            if read.stage != current:
                current, places = read.stage, {}
            places[_identity(read)] = self._key(read, image)
            items.append(self._show(read, image))
        return AnswerPage(
            items, next_token, self.requests - before[0], self.scanned - before[1], self.units - before[2]
        )

    def after(self, skipped: int, count: int) -> AnswerPage:
        """Return `count` items without the `skipped` items before them. The page has no token."""
        merged = max(1, sum(read.stage == 0 for read in self.reads))
        size = min(10_000, count + -(-skipped // merged))  # of each merged read: they share the items that are skipped
        chosen = islice(self._items({}, 0, size), skipped, skipped + count)
        items = [self._show(read, image) for image, read in chosen]
        return AnswerPage(items, None, self.requests, self.scanned, self.units)

    # --- reading ---

    def _items(self, places: Mapping[str, Image], stage: int, size: int | None) -> Iterator[tuple[Image, Read]]:
        """Yield the items after these places, each with its read."""
        places = dict(places)
        for number, group in groupby(self.reads, key=lambda read: read.stage):
            if number < stage:
                continue
            streams = [self._stream(read, places.get(_identity(read)), size) for read in group]
            if len(streams) == 1:
                yield from streams[0]
            else:
                first = next(read for read in self.reads if read.stage == number)
                yield from merge(*streams, key=self._sort_key, reverse=first.descending)

    def _stream(self, read: Read, after: Image | None, size: int | None) -> Iterator[tuple[Image, Read]]:
        if read.empty or (read.get and after is not None):
            return
        while True:
            page = self._reader(read, size, after)
            self.requests += 1
            self.scanned += len(page.items)
            self.units += page.units
            for image in page.items:
                if self._fits(read, image):
                    yield image, read
            if page.after is None:
                return
            after = page.after

    @staticmethod
    def _sort_key(row: tuple[Image, Read]) -> Place:
        image, read = row
        return tuple(_place(image[name]) for name in read.order)

    def _key(self, read: Read, image: Image) -> Image:
        return {name: image[name] for name in self._program.tables[read.table].key_names(read.index)}

    def _show(self, read: Read, image: Image) -> dict[str, Any]:
        """Return an item without guards: the attributes that the query asks for, or all."""
        prefix = self._program.guard_prefix
        asked = self._query.attributes
        if asked is None:
            return python_item({name: value for name, value in image.items() if not name.startswith(prefix)})
        item = _recognise(self._program, read, image)
        assert item is not None
        resolve = values_of(item)
        values = {name: resolve(name, True) for name in asked}
        names = dict(zip(asked, self._plan.query.attributes or asked, strict=True))
        names = {name: shown_name(attribute) for name, attribute in names.items()}
        return {names[name]: python(value) for name, value in values.items() if value is not None}

    # --- tokens ---

    def _token(self, stage: int, places: Mapping[str, Image]) -> str:
        of_stage = [_identity(read) for read in self.reads if read.stage == stage]
        document = {name: places.get(name) for name in of_stage}
        return base64.urlsafe_b64encode(json.dumps(document, separators=(",", ":")).encode()).decode().rstrip("=")

    def _read_token(self, token: str | None) -> tuple[int, dict[str, Image]]:
        """Return the stage and the places of a token."""
        if token is None:
            return 0, {}
        try:
            document = json.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
            places = {str(name): place for name, place in document.items()}
        except (ValueError, binascii.Error, AttributeError):
            raise UsageError(f"query {self._plan.query.name}: invalid page token; begin with the first page") from None
        stages = {_identity(read): read.stage for read in self.reads}
        numbers = {stages[name] for name in places if name in stages}
        if len(numbers) != 1 or not places.keys() <= stages.keys():
            raise UsageError(f"query {self._plan.query.name}: the page token belongs to other values or another query")
        return numbers.pop(), {name: place for name, place in places.items() if place is not None}


def _identity(read: Read) -> str:
    """Return a text that no other read of the same query has."""
    bounds = (value for value in (read.low, read.high) if value is not None)
    texts = [str(next(iter(value.values()))) for value in (*dict((*read.partition, *read.fixed)).values(), *bounds)]
    return "|".join(escape(text) for text in [read.index or "", *texts, read.prefix or ""])


# --- tests of items ---


def _recognise(program: Program, read: Read, image: Image) -> Item | None:
    """Return an item if it belongs to an entity of a read. The plan ensures that an index projects what `match` tests."""
    key = program.tables[read.table].key(read.table, image)
    for name in read.entities:
        declared = program.entities[name]
        if not declared.at(key):
            continue
        variables: dict[str, str] = {}
        for pattern, text in zip(declared.patterns, (key.partition, key.sort or ""), strict=False):
            variables.update(pattern.match(text) or {})
        item = Item(declared, key, variables, image)
        if declared.match is None or declared.match(values_of(item)):
            return item
    return None


def values_of(item: Item) -> Resolve:
    """Return a resolver of attributes, and of key variables that are no attributes."""

    def resolve(name: str, stored: bool = False) -> Value | None:
        value = lookup(item.image, name, stored and name not in item.variables)
        if value is None and name in item.variables:
            return item.entity.variable(name, item.variables[name])
        return value

    return resolve


def _tests(program: Program, plan: Plan, parameters: Parameters) -> Callable[[Read, Image], bool]:
    """Return whether an item that was read is part of the answer."""
    query = plan.asked
    conditions = [(test.names, test.compile()) for test in (Pattern((each,), {}) for each in query.where.conditions)]
    names = dict(zip((field.name for field in query.by), (field.name for field in plan.query.by), strict=True))
    wanted = []
    for field in query.by:
        template = Template("", (field,))
        wanted.append((field.name, template, template.render({field.name: parameters.values[names[field.name]]}.get)))

    def fits(read: Read, image: Image) -> bool:
        item = _recognise(program, read, image)
        if item is None:
            return False
        values = values_of(item)
        projected = None if read.index is None else program.tables[read.table].projected_names(read.index)

        def is_read(name: str) -> bool:
            """Return whether the read returns the value: of other names, the key condition ensures what is asked."""
            return projected is None or root(name) in projected or name in item.variables

        if any(all(map(is_read, names)) and not matches(values) for names, matches in conditions):
            return False
        if any(is_read(name) and text_of(template, values) != text for name, template, text in wanted):
            return False
        ordered = [name for name in (query.range, query.ordered_by) if name is not None and is_read(name)]
        return all(values(name) is not None for name in ordered) and _is_within(query, parameters, values)

    return fits


def text_of(template: Template, values: Resolver) -> str | None:
    """Return the text of an item's value; None if it has none, or one that cannot be in a key."""
    try:
        return template.render(values)
    except BadInput:
        return None


def _is_within(query: Query, parameters: Parameters, values: Resolve) -> bool:
    """Return whether an item is within the bounds of the caller. A bound of another type is not compared."""
    bounds = parameters.bounds
    value = None if query.range is None else values(query.range)
    if value is None:
        return True
    kind, content = next(iter(value.items()))
    if bounds.prefix is not None and not (kind == "S" and content.startswith(bounds.prefix)):
        return False
    return all(_compares(kind, content, bound, least) for bound, least in ((bounds.low, True), (bounds.high, False)))


def _compares(kind: str, content: str, bound: Value | None, least: bool) -> bool:
    if bound is None:
        return True
    ((type_, limit),) = bound.items()
    if kind == "N" and type_ == "S":
        limit = number_of(limit)
        if limit is None:
            return False
    elif kind == "S" and type_ == "N":
        limit = str(limit)
    if not least and kind == "S" and begins_time(limit) and content.startswith(limit):
        return True
    actual, wanted = comparable(kind, content), comparable(kind, limit)
    return bool(actual >= wanted if least else actual <= wanted)
