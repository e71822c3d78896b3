"""A store in memory that answers as DynamoDB does: the same conditions, errors and stream records.

Tests, `replay` and the simulation use it, so it is deterministic: no clock, no randomness, one order for everything. Stored
items are never changed in place, only replaced; callers get a shallow copy that shares their values. A stream keeps the
versions of an item, and makes records of them when it is read.
"""

from __future__ import annotations

import sys
import threading
from base64 import b64encode
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias
from zlib import crc32

from projections.engine.store import Condition, Delete, Image, ItemKey, Page, Schema, Update, Value, Write, answer_to
from projections.errors import ConditionFailed, InvalidRequest, Misconfigured, Reason, StoreError, TransactionCancelled
from projections.language.values import attribute_size, item_size, number_text, size
from projections.stores.condition_expressions import comparable, holds
from projections.stores.limits import (
    HALF,
    ITEM_BYTES,
    PAGE_BYTES,
    TRANSACTION_ACTIONS,
    TRANSACTION_BYTES,
    ActionRefused,
    Checked,
    add,
    check_write,
    checked_key,
    checked_name,
    checked_value,
    discard,
    key_image,
    key_sizes,
)
from projections.stores.requests import Attributes, key_attributes, require_items

Record: TypeAlias = dict[str, Any]
"""Return a stream record in the form in which Lambda passes it to a function."""

_TTL_IDENTITY = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


class MemoryStore:
    """Tables in memory: a `Store`, and the operations of an application.

    `streams` names the tables that have a stream; as in DynamoDB, a table has none by default. Records are kept for
    `stream()`, or passed to `on_record` and not kept. Sequence numbers begin at `first_sequence` and rise across all tables.
    `clock` gives the records' creation time in seconds; by default it is constant.
    """

    def __init__(
        self,
        schemas: Mapping[str, Schema],
        *,
        first_sequence: int = 100_000_000_000_000_000_001,
        stream_label: str = "2025-01-01T00:00:00.000",
        streams: Collection[str] = (),
        on_record: Callable[[str, Record], None] | None = None,
        clock: Callable[[], float] = lambda: 1_735_689_600,
    ) -> None:
        self._tables = {name: _Table(name, schema) for name, schema in schemas.items()}
        self._streams: dict[str, list[_Change]] = {name: [] for name in streams}
        self._next_sequence = first_sequence
        self._clock = clock
        self._lock = threading.RLock()
        self.stream_label = stream_label
        self.on_record = on_record

    # The store

    def schema(self, table: str) -> Schema:
        return self._table(table).schema

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        table = self._table(key.table)
        stored = table.items.get(checked_key(table.schema, key))
        return None if stored is None else _project(stored[0], attributes)

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        images: dict[ItemKey, Image] = {}
        for asked in keys:
            table = self._table(asked.table)
            key = checked_key(table.schema, asked)
            if key in table.items:
                images[key] = dict(table.items[key][0])
        return images

    def get_together(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        """Return the items that exist, all as they are at one moment."""
        with self._lock:
            return self.get_many(keys)

    def query(self, table: str, values: Sequence[Value], **options: Any) -> Page:
        with self._lock:
            return self._table(table).query(values, **options)

    def scan(self, table: str, **options: Any) -> Page:
        with self._lock:
            return self._table(table).scan(**options)

    def write(self, write: Write) -> Image | None:
        with self._lock:
            table = self._table(write.key.table)
            right = check_write(table.schema, write)
            old = table.items.get(right.key)
            if not _passes(write.condition, old):
                raise ConditionFailed(None if old is None else dict(old[0]))
            self._commit(table, right.key, old, table.after(right, old, write))
            return dict(old[0]) if old is not None and isinstance(write, Delete) else None

    def transact(self, writes: Sequence[Write]) -> None:
        with self._lock:
            outcomes = self._judge(writes)
            for table, key, old, new in outcomes:
                self._commit(table, key, old, new)

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        for write in writes:
            require_items(self.schema(write.key.table), write)
        return [answer_to(self.write, write) for write in writes]

    def update_each(self, writes: Sequence[Update]) -> list[Image | StoreError]:
        return [self._update(write) for write in writes]

    def _update(self, write: Update) -> Image | StoreError:
        with self._lock:
            try:
                self.write(write)
            except (ConditionFailed, InvalidRequest) as error:
                return error.with_traceback(None)
            image = self.get(write.key)
            assert image is not None
            return image

    def _judge(self, writes: Sequence[Write]) -> list[tuple[_Table, ItemKey, _Stored | None, _Stored | None]]:
        """Return which item each write of a transaction replaces, and its new version. Stores nothing."""
        if not 1 <= len(writes) <= TRANSACTION_ACTIONS:
            raise InvalidRequest(f"a transaction has 1 to {TRANSACTION_ACTIONS} actions, not {len(writes)}")
        fine = [self._check(write) for write in writes]
        keys = {write.key for write in fine if isinstance(write, Checked)}
        if len(keys) < sum(isinstance(write, Checked) for write in fine):
            raise InvalidRequest("Transaction request cannot include multiple operations on one item")
        if sum(write.bytes for write in fine if isinstance(write, Checked)) > TRANSACTION_BYTES:
            raise InvalidRequest("Transaction payload size cannot exceed 4MB")
        outcomes = []
        reasons: list[Reason | None] = []
        for right, write in zip(fine, writes, strict=True):
            if isinstance(right, ActionRefused):
                reasons.append(Reason("invalid", message=str(right)))
                continue
            table = self._tables[right.key.table]
            old = table.items.get(right.key)
            if not _passes(write.condition, old):
                reasons.append(Reason("condition", None if old is None else dict(old[0])))
                continue
            try:
                outcomes.append((table, right.key, old, table.after(right, old, write)))
                reasons.append(None)
            except ActionRefused as error:
                reasons.append(Reason("invalid", message=str(error)))
        if any(reasons):
            raise TransactionCancelled(reasons)
        return outcomes

    def _check(self, write: Write) -> Checked | ActionRefused:
        try:
            return check_write(self._table(write.key.table).schema, write)
        except ActionRefused as error:
            return error

    # The application and its operators

    def begin_stream(self, label: str, sequence: int) -> None:
        """Disable and enable the streams: they get another label, and their sequence numbers begin again."""
        self.stream_label, self._next_sequence = label, sequence

    def put(self, table: str, image: Image) -> None:
        """Put an item without a condition."""
        with self._lock:
            place = self._table(table)
            key, new = place.place(image)
            self._commit(place, key, place.items.get(key), new)

    def remove(self, key: ItemKey, by_ttl: bool = False) -> None:
        """Delete an item without a condition; `by_ttl` as DynamoDB deletes expired items."""
        with self._lock:
            table = self._table(key.table)
            key = checked_key(table.schema, key)
            self._commit(table, key, table.items.get(key), None, by_ttl)

    def seed(self, table: str, image: Image) -> None:
        """Store an item without a stream record, as if it had always been there."""
        with self._lock:
            place = self._table(table)
            key, new = place.place(image)
            place.replace(key, place.items.get(key), new)

    def items(self, table: str) -> list[Image]:
        """Return all items of a table in the order of their keys."""
        with self._lock:
            return [dict(stored[0]) for stored in self._table(table).sorted_items()]

    def stream(self, table: str, start: int = 0) -> list[Record]:
        """Return the records of a table's stream from position `start` on. Raises Misconfigured if it has no stream."""
        if table not in self._streams:
            raise Misconfigured(f"the table {table!r} has no stream; these tables have one: {', '.join(self._streams)}")
        schema = self._table(table).schema
        return [_record(schema, change) for change in self._streams[table][start:]]

    def _table(self, name: str) -> _Table:
        try:
            return self._tables[name]
        except KeyError:
            raise Misconfigured(f"there is no table {name!r}; the store has {', '.join(self._tables)}") from None

    def _commit(
        self, table: _Table, key: ItemKey, old: _Stored | None, new: _Stored | None, by_ttl: bool = False
    ) -> None:
        if old is new or (old is not None and new is not None and old[0] == new[0]):
            return  # a write that changes nothing has no stream record
        table.replace(key, old, new)
        if table.name not in self._streams:
            return
        change = _Change(self._next_sequence, self.stream_label, int(self._clock()), key, old, new, by_ttl)
        self._next_sequence += 1
        if self.on_record is None:
            self._streams[table.name].append(change)
        else:
            self.on_record(table.name, _record(table.schema, change))


_Stored: TypeAlias = tuple[dict[str, Value], int]
"""A stored item, and its size in bytes."""


class _Change(NamedTuple):
    """What a write changed: the versions of the item before and after it, which the table and the next change share."""

    sequence: int
    stream_label: str
    at: int
    key: ItemKey
    old: _Stored | None
    new: _Stored | None
    by_ttl: bool


def _record(schema: Schema, change: _Change) -> Record:
    """Return a change as a stream record."""
    keys = schema.wire(change.key)
    fields: dict[str, Any] = {"ApproximateCreationDateTime": change.at, "Keys": keys}
    size = item_size(keys)
    if change.new is not None:
        fields["NewImage"] = dict(change.new[0])
        size += change.new[1]
    if change.old is not None:
        fields["OldImage"] = dict(change.old[0])
        size += change.old[1]
    fields |= {"SequenceNumber": str(change.sequence), "SizeBytes": size, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    arn = f"arn:aws:dynamodb:us-east-1:000000000000:table/{change.key.table}/stream/{change.stream_label}"
    record: Record = {
        "eventID": f"{change.sequence:032x}",
        "eventName": "INSERT" if change.old is None else "REMOVE" if change.new is None else "MODIFY",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "us-east-1",
        "dynamodb": fields,
        "eventSourceARN": arn,
    }
    return {**record, "userIdentity": dict(_TTL_IDENTITY)} if change.by_ttl else record


_Place: TypeAlias = tuple[Any, ...]
"""The position of an item within a partition: its comparable sort values; in an index, followed by its key in the table."""


class _Table:
    """Items by key, and the sorted positions of the items of each partition, of the table and of its indexes."""

    def __init__(self, name: str, schema: Schema) -> None:
        self.name = name
        self.schema = schema
        self.items: dict[ItemKey, _Stored] = {}
        self.partitions: dict[str, list[Any]] = {}
        self.indexes: dict[str, dict[tuple[str, ...], list[_Place]]] = {index: {} for index in schema.indexes}
        self._key_sizes = key_sizes(schema)
        self._in_order: list[str] | None = None

    def place(self, image: Image) -> tuple[ItemKey, _Stored]:
        """Return the key and the stored form of an item that an application puts."""
        try:
            key = checked_key(self.schema, self.schema.key(self.name, image))
        except KeyError as error:
            raise InvalidRequest(f"the item lacks its key attribute {error} of the right type") from None
        new: dict[str, Value] = {sys.intern(checked_name(name)): checked_value(value) for name, value in image.items()}
        try:
            return key, self._fitting(new, item_size(new), new)
        except UnicodeEncodeError:
            raise InvalidRequest(HALF) from None

    def after(self, right: Checked, old: _Stored | None, write: Write) -> _Stored | None:
        """Return the item after a write whose condition holds. Raises InvalidRequest."""
        if isinstance(write, Delete):
            return None
        if old is None:
            new = key_image(self.schema, right.key)
            total = item_size(new)
        else:
            new, total = dict(old[0]), old[1]
        for name in self.schema.key_attributes:
            if name in right.operands or name in write.remove:
                raise ActionRefused(f"Cannot update attribute {name}. This attribute is part of the key")
        for name in write.remove:
            before = new.pop(name, None)
            if before is not None:
                total -= attribute_size(name, before)
        for name, operand in right.operands.items():
            before = new.pop(name, None)
            if before is not None:
                total -= attribute_size(name, before)
            value: Value | None = operand
            if name in write.add:
                value = add(before, operand)
            elif name in write.discard:
                value = discard(before, operand)
            if value is not None:
                if "L" in value or "M" in value:
                    checked_value(value)  # its levels
                new[sys.intern(name)] = value
                total += attribute_size(name, value)
        return self._fitting(new, total, right.operands)

    def _fitting(self, item: dict[str, Value], total: int, touched: Collection[str]) -> _Stored:
        for name, kind, most in self._key_sizes:
            if name in touched and name in item:
                value = item[name]
                if kind not in value:
                    raise InvalidRequest(
                        f"Type mismatch for Index Key {name} Expected: {kind} Actual: {next(iter(value))}"
                    )
                if not 0 < size(value) <= most:
                    raise InvalidRequest(f"the index key attribute {name} is empty or larger than {most} bytes")
        if total > ITEM_BYTES:
            raise ActionRefused("Item size to update has exceeded the maximum allowed size")
        return item, total

    def replace(self, key: ItemKey, old: _Stored | None, new: _Stored | None) -> None:
        if new is None:
            self.items.pop(key, None)
        else:
            self.items[key] = new
        if (old is None) != (new is None):
            self._list(key, new is not None)
        for index, partitions in self.indexes.items():
            before = None if old is None else self._index_place(index, key, old[0])
            now = None if new is None else self._index_place(index, key, new[0])
            if before != now:
                if before is not None:
                    _take(partitions, *before)
                if now is not None:
                    insort(partitions.setdefault(now[0], []), now[1])

    def _list(self, key: ItemKey, present: bool) -> None:
        place = self._sorting(key)
        if not present:
            if _take(self.partitions, key.partition, place):
                self._in_order = None
        elif key.partition in self.partitions:
            insort(self.partitions[key.partition], place)
        else:
            self.partitions[key.partition] = [place]
            self._in_order = None

    def _sorting(self, key: ItemKey) -> Any:
        return "" if self.schema.sort is None else comparable(self.schema.sort[1], key.sort or "")

    def _key_at(self, partition: str, place: Any) -> ItemKey:
        if self.schema.sort is None:
            return ItemKey(self.name, partition)
        kind = self.schema.sort[1]
        text = place if kind == "S" else number_text(place) if kind == "N" else b64encode(place).decode()
        return ItemKey(self.name, partition, text)

    def _index_place(self, index: str, key: ItemKey, item: Image) -> tuple[tuple[str, ...], _Place] | None:
        """Return partition and position of an item in an index; None if it lacks a key attribute."""
        partition, sort = self.schema.indexes[index]
        if not all(name in item for name, _ in (*partition, *sort)):
            return None
        at = tuple(comparable(kind, item[name][kind]) for name, kind in sort)
        return tuple(item[name][kind] for name, kind in partition), (*at, key.partition, self._sorting(key))

    def sorted_items(self) -> Iterator[_Stored]:
        kind = self.schema.partition[1]
        for partition in sorted(self.partitions, key=lambda text: comparable(kind, text)):
            for place in self.partitions[partition]:
                yield self.items[self._key_at(partition, place)]

    def query(
        self,
        values: Sequence[Value],
        *,
        index: str | None = None,
        prefix: str | None = None,
        reverse: bool = False,
        limit: int | None = None,
        attributes: Sequence[str] | None = None,
        after: Any = None,
    ) -> Page:
        partition, sort = key_attributes(self.name, self.schema, index)
        texts = _partition_texts(partition, values)
        if prefix and (not sort or sort[0][1] != "S"):
            raise InvalidRequest("begins_with needs a sort key that is a string")
        places: list[Any]
        if index is None:
            places = self.partitions.get(texts[0], [])
            low, high = _bounds(places, prefix, lambda place: place)
        else:
            self._check_projected(index, attributes)
            places = self.indexes[index].get(texts, [])
            low, high = _bounds(places, prefix, lambda place: place[0])
        if after is not None:
            cursor = self._cursor(index, after)
            if reverse:
                high = min(high, bisect_left(places, cursor))
            else:
                low = max(low, bisect_right(places, cursor))
        positions = range(high - 1, low - 1, -1) if reverse else range(low, high)
        if index is None:
            return self._page((self._key_at(texts[0], places[at]) for at in positions), limit, attributes)
        keys = (self._key_at(*places[at][-2:]) for at in positions)
        return self._page(keys, limit, attributes, index)

    def _check_projected(self, index: str, attributes: Sequence[str] | None) -> None:
        """Raise InvalidRequest if an index lacks attributes. A local index reads them from the table."""
        names = self.schema.projected_names(index)
        lacking = sorted(set(attributes or ()) - names) if names is not None and index not in self.schema.local else []
        if lacking:
            raise InvalidRequest(
                "One or more parameter values were invalid: "
                f"Global secondary index {index} does not project [{', '.join(lacking)}]"
            )

    def _cursor(self, index: str | None, after: Image) -> Any:
        """Return the position of the last item of the previous page, which may be deleted by now."""
        key = self.schema.key(self.name, after)
        if index is None:
            return self._sorting(key)
        indexed = self._index_place(index, key, after)
        if indexed is None:
            raise InvalidRequest(f"the cursor {after} is not one of the index {index!r}")
        return indexed[1]

    def scan(
        self,
        *,
        segment: int = 0,
        segments: int = 1,
        limit: int | None = None,
        attributes: Sequence[str] | None = None,
        after: Any = None,
    ) -> Page:
        if not 0 <= segment < segments:
            raise InvalidRequest(f"segment {segment} of {segments}: a segment must be less than the number of segments")
        if self._in_order is None:
            self._in_order = sorted(self.partitions)
        start = None if after is None else self.schema.key(self.name, after)
        return self._page(self._from(self._in_order, segment, segments, start), limit, attributes)

    def _from(self, partitions: list[str], segment: int, segments: int, after: ItemKey | None) -> Iterator[ItemKey]:
        start = 0 if after is None else bisect_left(partitions, after.partition)
        for partition in islice(partitions, start, None):
            if segments > 1 and crc32(partition.encode()) % segments != segment:
                continue
            places = self.partitions[partition]
            skipped = 0
            if after is not None and partition == after.partition:
                skipped = bisect_right(places, self._sorting(after))
            for place in islice(places, skipped, None):
                yield self._key_at(partition, place)

    def _page(
        self, keys: Iterator[ItemKey], limit: int | None, attributes: Sequence[str] | None, index: str | None = None
    ) -> Page:
        """Return items up to the limit or 1 MB, of an index what it projects.

        As on AWS, a full page has a cursor even if no items follow.
        """
        if limit is not None and limit < 1:
            raise InvalidRequest("Limit must be greater than or equal to 1")
        page: list[Image] = []
        total = 0
        for key in keys:
            item, bytes_ = self.items[key]
            if index is not None and index in self.schema.projected:
                entry = self.schema.entry(index, item)
                page.append(dict(entry) if attributes is None else _project(item, attributes))
                total += item_size(entry)
            else:
                page.append(_project(item, attributes))
                total += bytes_
            if len(page) == limit or total > PAGE_BYTES:
                extra = () if index is None else self.schema.indexes[index]
                return Page(page, {**self.schema.wire(key), **{name: item[name] for part in extra for name, _ in part}})
        return Page(page)


def _take(partitions: dict[Any, list[Any]], partition: Any, place: Any) -> bool:
    """Remove a position from a partition. Return whether the partition is empty now."""
    places = partitions[partition]
    del places[bisect_left(places, place)]
    if places:
        return False
    del partitions[partition]
    return True


def _bounds(places: list[Any], prefix: str | None, text: Callable[[Any], str]) -> tuple[int, int]:
    """Return the range of positions whose sort keys begin with a prefix."""
    if not prefix:
        return 0, len(places)
    length = len(prefix)

    def beginning(place: Any) -> str:
        return text(place)[:length]

    return bisect_left(places, prefix, key=beginning), bisect_right(places, prefix, key=beginning)


def _partition_texts(partition: Attributes, values: Sequence[Value]) -> tuple[str, ...]:
    if len(values) != len(partition) or any(
        kind not in value for (_, kind), value in zip(partition, values, strict=False)
    ):
        raise InvalidRequest(f"the partition key is {partition}, its values were {list(values)}")
    texts = tuple(checked_value(value)[kind] for (_, kind), value in zip(partition, values, strict=True))
    if "" in texts:
        raise InvalidRequest("a key attribute cannot contain an empty string value")
    return texts


def _passes(condition: Condition | None, stored: _Stored | None) -> bool:
    return condition is None or holds(condition, None if stored is None else stored[0])


def _project(item: Image, attributes: Sequence[str] | None) -> Image:
    return dict(item) if attributes is None else {name: item[name] for name in attributes if name in item}
