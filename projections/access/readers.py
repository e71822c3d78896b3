"""Readers: they make the request of a read, in memory or on DynamoDB."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from projections.access.reads import Read
from projections.engine.store import Image, ItemKey, Store
from projections.language.values import Value, same
from projections.stores.conditions import comparable
from projections.stores.wire import received

if TYPE_CHECKING:
    from projections.stores.dynamodb import DynamoDBStore

__all__ = ["ClientReader", "ReadPage", "Reader", "StoreReader", "reader_of"]


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
            item = self._store.get(ItemKey(read.table, *texts), read.attributes)
            return ReadPage([] if item is None else [item])
        values = [value for _, value in read.partition]
        attributes = None if read.attributes is None else list(read.attributes)
        found: list[Image] = []
        while True:
            page = self._store.query(
                read.table, values, index=read.index, reverse=read.descending, attributes=None, after=after
            )
            for item in page.items:
                if not _within(read, item):
                    continue
                found.append(item if attributes is None else {name: item[name] for name in attributes if name in item})
                if len(found) == limit:
                    return ReadPage(found, self._cursor(read, item))
            if page.after is None:
                return ReadPage(found)
            after = page.after

    def _cursor(self, read: Read, item: Image) -> Image:
        schema = self._store.schema(read.table)
        names = [*schema.key_attributes]
        if read.index is not None:
            partition, sort = schema.indexes[read.index][:2]
            names += [name for name, _ in (*partition, *sort)]
        return {name: item[name] for name in names}


def _within(read: Read, item: Image) -> bool:
    if not all(same(item[name], value) for name, value in read.fixed):
        return False
    if read.sort is None:
        return True
    held = item[read.sort]
    kind, content = next(iter(held.items()))
    if read.prefix is not None and not str(content).startswith(read.prefix):
        return False
    place = comparable(kind, content)
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
        return ReadPage([received(item) for item in items], answer.get("LastEvaluatedKey"), units)


def reader_of(store: Store) -> Reader:
    """Return the reader of a store."""
    from projections.stores.dynamodb import DynamoDBStore

    return ClientReader(store) if isinstance(store, DynamoDBStore) else StoreReader(store)
