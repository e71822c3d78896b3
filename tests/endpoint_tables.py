"""Temporary tables at a DynamoDB endpoint, for tests that replay events on them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Self

from botocore.exceptions import BotoCoreError, ClientError

from projections.aws.clients import client, is_emulated
from projections.aws.live_tables import create_table, delete_table
from projections.aws.streams import as_lambda_has_it, describe
from projections.engine.store import Image, Schema, Store, Update, all_items
from projections.errors import InvalidRequest, StoreError
from projections.local.event_replay import LEDGER, QUIET
from projections.local.event_source import Record
from projections.stores.dynamodb import DynamoDBStore

__all__ = ["EndpointTables"]

QUIET_AT_AWS = 5.0


class EndpointTables:
    """Tables with unique names at a DynamoDB endpoint, which exist as long as the context.

    Their streams are read with the streams API. The label of a new stream is the current time, later than any recorded one.
    """

    def __init__(
        self, endpoint_url: str, schemas: Mapping[str, Schema], *, wait: Callable[[float], None] = time.sleep
    ) -> None:
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
        while self._made:
            name = self.names[self._made.pop()]
            left = ", ".join([name, *(self.names[other] for other in self._made)])
            with self._answering(f"deleting tables (delete these yourself: {left})"):
                delete_table(self._dynamodb, name)

    @contextmanager
    def _answering(self, doing: str) -> Iterator[None]:
        """Add the current step to errors of the endpoint."""
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
