"""The tables of a replay: in memory, or temporary tables at an endpoint."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Protocol, Self

from projections.engine.store import Image, ItemKey, Schema, Store, Update, all_items
from projections.errors import InvalidRequest, StoreError
from projections.language.program import LEDGER_SCHEMA, Program
from projections.local.event_source import Record, sequence_number, source_arn
from projections.stores.memory import MemoryStore

__all__ = ["LEDGER", "QUIET", "QUIET_AT_AWS", "EndpointTables", "MemoryTables", "Tables", "schemas", "stream_label"]

LEDGER = "ledger"
"""The logical name of the ledger table."""

QUIET = 0.6
"""Seconds without a new record after which an emulator's stream counts as read."""

QUIET_AT_AWS = 5.0


class Tables(Protocol):
    """Tables that can be seeded without stream records, changed through `store`, and whose streams can be read."""

    @property
    def store(self) -> Store: ...

    @property
    def names(self) -> Mapping[str, str]:
        """The real name of each table by its logical name, with the ledger."""
        ...

    def seed(self, table: str, image: Image) -> bool:
        """Put an item that existed before the first record. Return False if no table can have it."""
        ...

    def drain(self, seeds: int) -> None:
        """Read the records of so many seeds from the streams, and drop them."""
        ...

    def items(self, table: str) -> list[Image]: ...

    def records(self) -> list[Record]:
        """Return the new records of the streams since the last call, without those of seeds."""
        ...


def schemas(program: Program) -> dict[str, Schema]:
    """Return the schemas of the tables that rules need: the application's and the ledger."""
    return {**program.tables, LEDGER: LEDGER_SCHEMA}


def stream_label(record: Record) -> str:
    """Return the label of a record's stream, the end of its ARN: the time when it was enabled. Empty if it has none."""
    _, _, label = source_arn(record).partition("/stream/")
    return label


class MemoryTables:
    """Tables in memory. Their stream is newer than every recorded one: its label and its sequence numbers are greater."""

    def __init__(self, schemas: Mapping[str, Schema], recorded: Sequence[Record]) -> None:
        names = [name for name in schemas if name != LEDGER]
        self._records: list[Record] = []
        self.names = {name: name for name in schemas}
        self._memory = MemoryStore(
            schemas,
            first_sequence=max([10**20, *(sequence_number(record) + 1 for record in recorded)]),
            stream_label=_later(max(map(stream_label, recorded), default="")),
            streams=names,
            on_record=lambda _, record: self._records.append(record),
        )
        self.store: Store = self._memory

    def seed(self, table: str, image: Image) -> bool:
        try:
            self._memory.seed(table, image)
        except InvalidRequest:
            return False
        return True

    def overwrite(self, key: ItemKey, own: Image, program: Program) -> None:
        """Write the application's attributes of an item, and keep those that rules wrote."""
        kept = self._memory.get(key) or {}
        recognised = program.recognise(key, own)
        derived = program.derived_attributes(recognised.entity.name) if recognised is not None else frozenset()
        kept = {n: value for n, value in kept.items() if n in derived or n.startswith(program.guard_prefix)}
        self._memory.put(key.table, {**kept, **own})

    def remove(self, key: ItemKey, *, by_ttl: bool) -> None:
        """Delete an item as the application does, or as DynamoDB's TTL does."""
        self._memory.remove(key, by_ttl)

    def drain(self, seeds: int) -> None:
        pass  # seeds have no stream records

    def items(self, table: str) -> list[Image]:
        return self._memory.items(table)

    def records(self) -> list[Record]:
        taken, self._records[:] = list(self._records), []
        return taken


def _later(label: str) -> str:
    """Return a stream label that sorts after `label`. Labels are times with milliseconds."""
    try:
        return (datetime.fromisoformat(label) + timedelta(seconds=1)).isoformat(timespec="milliseconds")
    except ValueError:
        return label + "~" if label else "2025-01-01T00:00:00.000"


class EndpointTables:
    """Tables with unique names at a DynamoDB endpoint, which exist as long as the context.

    Their streams are read with the streams API. The label of a new stream is the current time, later than any recorded one.
    """

    def __init__(
        self,
        endpoint_url: str,
        schemas: Mapping[str, Schema],
        *,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        from projections.aws.clients import client, is_emulated
        from projections.stores.dynamodb import DynamoDBStore

        run = uuid.uuid4().hex[:12]
        self._dynamodb = client("dynamodb", endpoint_url)
        self._streams = client("dynamodbstreams", endpoint_url)
        self._schemas = schemas
        self._wait = wait
        self._quiet = QUIET if is_emulated(endpoint_url) else QUIET_AT_AWS
        self._made: list[str] = []
        self._arns: dict[str, str] = {}
        self._read: dict[tuple[str, str], str] = {}
        self.endpoint_url = endpoint_url
        self.names = {name: f"projections-replay-{run}-{name}" for name in schemas}
        self._dynamodb_store = DynamoDBStore(self._dynamodb, self.names, schemas)
        self.store: Store = self._dynamodb_store

    def __enter__(self) -> Self:
        from projections.aws.tables import create_table

        try:
            for name, schema in self._schemas.items():
                with self._answering("making tables"):
                    # Recorded items have expired by now: without a TTL, the endpoint deletes none of them during the replay.
                    create_table(self._dynamodb, self.names[name], replace(schema, ttl=None), stream=name != LEDGER)
                    self._made.append(name)
                    if name != LEDGER:
                        table = self._dynamodb.describe_table(TableName=self.names[name])["Table"]
                        self._arns[name] = table["LatestStreamArn"]
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from projections.aws.tables import delete_table

        while self._made:
            name = self.names[self._made.pop()]
            left = ", ".join([name, *(self.names[other] for other in self._made)])
            with self._answering(f"deleting tables (delete these yourself: {left})"):
                delete_table(self._dynamodb, name)

    @contextmanager
    def _answering(self, doing: str) -> Iterator[None]:
        """Add the current step to errors of the endpoint."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield
        except (BotoCoreError, ClientError) as error:
            raise StoreError(f"{self.endpoint_url} failed at {doing}: {error}") from None

    def seed(self, table: str, image: Image) -> bool:
        schema = self._schemas[table]
        rest = {name: value for name, value in image.items() if name not in schema.key_attributes}
        try:
            self.store.write(Update(schema.key(table, image), set=rest))
        except InvalidRequest:
            return False
        return True

    def drain(self, seeds: int) -> None:
        heard = 0
        for _ in range(50):
            heard += len(self.records())
            if heard >= seeds:
                return
        raise StoreError(f"the stream at {self.endpoint_url} showed {heard} of {seeds} items that were put")

    def items(self, table: str) -> list[Image]:
        return list(all_items(partial(self.store.scan, table)))

    def records(self) -> list[Record]:
        found: list[Record] = []
        silence = 0.0
        while silence < self._quiet:
            with self._answering("reading the tables' streams"):
                new = [record for name in self._arns for record in self._poll(self._arns[name])]
            found += new
            silence = 0.0 if new else silence + 0.2
            if not new:
                self._wait(0.2)
        return found

    def _poll(self, arn: str) -> list[Record]:
        """Return new records of one stream, parents before children as DescribeStream lists them.

        Each call gets a new iterator: with moto, an iterator that was open during a cancelled transaction has wrong records.
        """
        from projections.aws.streams import as_lambda_has_it, describe

        found: list[Record] = []
        for shard in (description["ShardId"] for description in describe(self._streams, arn)[1]):
            last = self._read.get((arn, shard))
            place = (
                {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": last}
                if last
                else {"ShardIteratorType": "TRIM_HORIZON"}
            )
            iterator = self._streams.get_shard_iterator(StreamArn=arn, ShardId=shard, **place)["ShardIterator"]
            while iterator:
                answer = self._streams.get_records(ShardIterator=iterator)
                for record in answer["Records"]:
                    self._read[arn, shard] = record["dynamodb"]["SequenceNumber"]
                    found.append(as_lambda_has_it(record, arn))
                iterator = answer.get("NextShardIterator") if answer["Records"] else None
        return found
