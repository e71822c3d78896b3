"""The tables of a session: existing ones, or on an emulator created ones; and the streams that it follows."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from projections.aws.clients import client, endpoint, is_emulated
from projections.aws.live_tables import (
    LEDGER,
    Live,
    connect_to,
    create_index,
    create_table,
    described_indexes,
    differences,
    real_names,
)
from projections.aws.streams import StreamReader
from projections.engine.store import Schema
from projections.errors import UsageError
from projections.language.program import LEDGER_SCHEMA, Program
from projections.local.event_source import Batch, EventSourceMapping, Record, Shard, Stream

VIEW = "NEW_AND_OLD_IMAGES"


class Target(NamedTuple):
    """The tables to work on. `created` lists what was created for the session, `create` whether more may be."""

    live: Live
    create: bool
    created: list[str]

    def fit(self, program: Program) -> list[str]:
        """Create missing indexes if that is allowed. Return what still differs from the rules."""
        wrong: list[str] = []
        for logical, schema in program.tables.items():
            name = self.live.names[logical]
            if self.create:
                _create_indexes(self.live.client, name, schema)
            wrong += differences(name, self.live.client.describe_table(TableName=name)["Table"], schema)
        if wrong and not self.create:
            wrong.append("--create creates missing indexes")
        return wrong


def prepare(
    program: Program,
    tables: tuple[str, ...],
    ledger: str | None,
    endpoint_url: str | None,
    region: str | None,
    *,
    create: bool,
) -> Target:
    """Return the tables that these options name. Raises UsageError with what is missing and how to create it.

    AWS is refused, because a session writes. Missing tables, indexes and streams are created if `create` is set; the ledger
    is always created.
    """
    url = endpoint_url or endpoint("dynamodb")
    if not is_emulated(url):
        raise UsageError(
            "this command writes, so it works on emulators only. Name one with --endpoint-url URL or AWS_ENDPOINT_URL "
            "(DynamoDB Local: http://localhost:8000). On AWS, deploy the functions"
        )
    names = real_names(tables, list(program.tables))
    names[LEDGER] = ledger or os.environ.get("LEDGER_TABLE_NAME") or f"{next(iter(names.values()))}-ledger"
    dynamodb = client(endpoint_url=endpoint_url, region=region)
    schemas = {**program.tables, LEDGER: LEDGER_SCHEMA}
    created: list[str] = []
    for logical, name in names.items():
        try:
            created += _prepare(dynamodb, name, schemas[logical], logical == LEDGER, create)
        except (ClientError, BotoCoreError) as error:
            raise UsageError(f"table {name} at {url}: {error}") from None
    live = connect_to(program, names, endpoint_url, region, threads=20)
    return Target(live, create, created)


def stream_of(dynamodb: Any, name: str) -> str:
    """Return the ARN of a table's stream. Raises UsageError if the table is gone, or has no stream that is on."""
    table = _describe(dynamodb, name)
    if table is None:
        raise UsageError(f"table {name} is gone")
    arn = table.get("LatestStreamArn")
    if not arn or not (table.get("StreamSpecification") or {}).get("StreamEnabled"):
        raise UsageError(f"the stream of table {name} is disabled")
    return str(arn)


def _describe(dynamodb: Any, name: str) -> dict[str, Any] | None:
    try:
        table: dict[str, Any] = dynamodb.describe_table(TableName=name)["Table"]
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") == "ResourceNotFoundException":
            return None
        raise
    return table


def _prepare(dynamodb: Any, name: str, schema: Schema, ledger: bool, create: bool) -> Iterator[str]:
    """Create what a table lacks, and yield what was created."""
    table = _describe(dynamodb, name)
    where = dynamodb.meta.endpoint_url
    if table is None:
        if not (create or ledger):
            raise UsageError(
                f"there is no table {name} at {where}. Pass --create to create it from the rules, or name another"
            )
        create_table(dynamodb, name, schema, stream=not ledger)
        yield f"table {name}"
    elif not ledger:
        if create:
            yield from _create_indexes(dynamodb, name, schema)
        yield from _switch_on(dynamodb, name, table.get("StreamSpecification") or {}, create)


def _switch_on(dynamodb: Any, name: str, stream: Mapping[str, Any], create: bool) -> Iterator[str]:
    view = stream.get("StreamViewType") if stream.get("StreamEnabled") else None
    if view == VIEW:
        return
    update = f"aws dynamodb update-table --table-name {name} --stream-specification "
    to = f" --endpoint-url {dynamodb.meta.endpoint_url}"
    on = f"{update}StreamEnabled=true,StreamViewType={VIEW}{to}"
    if view is not None:
        raise UsageError(
            f"the stream of table {name} has {view}, and the rules need {VIEW}. The view of a stream cannot be changed. "
            f"Disable the stream, then enable it again:\n  {update}StreamEnabled=false{to}\n  {on}"
        )
    if not create:
        raise UsageError(f"table {name} has no stream. Enable it (or pass --create):\n  {on}")
    dynamodb.update_table(TableName=name, StreamSpecification={"StreamEnabled": True, "StreamViewType": VIEW})
    yield f"stream of {name}"


def _create_indexes(dynamodb: Any, name: str, schema: Schema) -> list[str]:
    """Create the indexes that a table lacks, one at a time, as DynamoDB requires. Return their names."""
    table = dynamodb.describe_table(TableName=name)["Table"]
    there = {index["IndexName"] for index in described_indexes(table)}
    missing = [index for index in schema.indexes if index not in there]
    if local := [index for index in missing if index in schema.local]:
        raise UsageError(
            f"table {name} lacks the local index {', '.join(local)}, which can be created only with its table. Delete the "
            "table and run this again, name another table, or make the index global in the rules"
        )
    for index in missing:
        create_index(dynamodb, name, schema, index)
    return [f"index {index} of {name}" for index in missing]


WAITING = 2000
"""Records of a shard that may wait for delivery. More are read when these are processed."""

FEW = 25
"""While no more records wait, they are delivered one by one, so that the cost of each can be reported."""

RETRIES = 4
"""Of a batch on which the function raises. A batch that it reports as failed is retried without limit."""


class Followed:
    """Reads the stream (`discover`, `poll`) and returns batches (`next_batch`, `finish`).

    With `latest`, records that are in the stream at first are skipped; shards that appear later, such as children of a
    split, are read from their beginning.
    """

    def __init__(
        self,
        reader: StreamReader,
        *,
        latest: bool,
        on_failure: Callable[[tuple[Record, ...], BaseException | None], None],
    ) -> None:
        self.reader = reader
        self.on = True
        self._latest = latest
        self._stream = Stream(reader.arn, shards=0)
        self._mapping = EventSourceMapping(self._stream, on_failure=on_failure)
        self._known: set[str] = set()
        self._open: dict[str, Shard] = {}

    def discover(self) -> None:
        """Look for new shards. Raises Transient, StreamGone, Misconfigured."""
        first = not self._known
        self.on, shards = self.reader.shards()
        for listed in shards:
            if listed.id in self._known:
                continue
            skipped = first and self._latest
            if not (skipped and listed.closed):
                self.reader.begin(listed.id, latest=skipped)
                shard = Shard(listed.id, parent=listed.parent)
                self._stream.shards[listed.id] = self._open[listed.id] = shard
            self._known.add(listed.id)

    @property
    def ended(self) -> bool:
        """Whether the stream is off and all its records were delivered."""
        return not self.on and not self._open and not self._mapping.runnable()

    def poll(self) -> bool:
        """Read more records of every open shard. Return whether there were any. Raises as `discover` does."""
        any_read = ended = False
        for shard in list(self._open.values()):
            if len(shard.records) - self._mapping.checkpoint(shard.id) >= WAITING:
                continue
            stretch = self.reader.read(shard.id)
            shard.records.extend(stretch.records)
            any_read = any_read or bool(stretch.records)
            if stretch.ended:
                shard.closed = ended = True
                del self._open[shard.id]
        if ended:
            self.discover()  # its children, if it was split
        return any_read

    @property
    def waiting(self) -> int:
        """The number of records that were read and are not processed."""
        return sum(len(shard.records) - self._mapping.checkpoint(shard.id) for shard in self._stream.shards.values())

    def next_batch(self, size: int | None = None, *, window: bool = False) -> Batch | None:
        """Return the next batch of up to `size` records, to be ended with `finish`, or None. With `window`, as in one."""
        shards = self._mapping.runnable()
        if not shards:
            return None
        self._mapping.batch_size, self._mapping.window = size or (1 if self.waiting <= FEW else 100), window
        return self._mapping.next_batch(shards[0])

    def finish(self, batch: Batch, response: object = None, error: BaseException | None = None) -> None:
        """End a delivery with its response or error."""
        self._mapping.max_retries = RETRIES if error is not None else -1
        self._mapping.finish(batch, response, error)
