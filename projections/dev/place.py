"""Where the loop runs: tables that exist, or are made on an emulator, and streams that are on. Never AWS by accident."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from projections.aws.clients import client, create_index, create_table, endpoint, is_emulated
from projections.aws.connection import LEDGER, Live, connect, differences, real_names
from projections.engine.store import Schema
from projections.errors import UsageError
from projections.language.program import LEDGER_SCHEMA, Program

__all__ = ["Place", "prepare", "stream_of"]

VIEW = "NEW_AND_OLD_IMAGES"


@dataclass(frozen=True, slots=True)
class Place:
    """Tables to work on. `made` says what was created for it."""

    live: Live
    emulated: bool
    endpoint: str
    region: str | None
    create: bool
    made: Sequence[str]

    def fit(self, program: Program) -> list[str]:
        """Makes missing indexes if that may be; what then still is not as the rules say."""
        wrong: list[str] = []
        for logical, schema in program.tables.items():
            name = self.live.names[logical]
            if self.create:
                _make_indexes(self.live.client, name, schema)
            wrong += differences(name, self.live.client.describe_table(TableName=name)["Table"], schema)
        if wrong and self.emulated and not self.create:
            wrong.append("with --create, missing indexes are made")
        return wrong

    def lacks_tables(self) -> bool:
        """Whether this is an emulator, and somebody deleted a table: it may be a reset, and the table come back."""
        return self.emulated and any(_described(self.live.client, name) is None for name in self.live.names.values())

    def restore(self) -> None:
        """Makes the ledger again, if somebody deleted it together with the application's tables."""
        name = self.live.names[LEDGER]
        if self.emulated and _described(self.live.client, name) is None:
            create_table(self.live.client, name, LEDGER_SCHEMA, stream=False)


def prepare(
    document: Mapping[str, Any],
    *,
    tables: Sequence[str],
    ledger: str | None,
    endpoint_url: str | None,
    region: str | None,
    aws: bool,
    create: bool,
    ask: Callable[[str], bool],
) -> Place:
    """The tables these options name, ready to be followed. Raises UsageError, saying what is missing and how to make it.

    Unless `aws` allows it, AWS itself is refused: what runs here writes. On an emulator what is missing is made if `create`
    says so or `ask` is answered with yes; the ledger is made without a question.
    """
    url = endpoint_url or endpoint("dynamodb")
    emulated = is_emulated(url)
    if not emulated and not aws:
        raise UsageError(
            "no endpoint is named, so this would write to real tables at AWS. Name an emulator with --endpoint-url URL or "
            "AWS_ENDPOINT_URL (DynamoDB Local: http://localhost:8000), or say --aws if the tables at AWS are meant"
        )
    program = Program.from_document(document)
    names = real_names(tables, list(program.tables))
    ledger = ledger or os.environ.get("LEDGER_TABLE_NAME") or f"{next(iter(names.values()))}-ledger"
    dynamodb = client(endpoint_url=endpoint_url, region=region)
    made: list[str] = []
    try:
        for logical, name in {**names, LEDGER: ledger}.items():
            schema = LEDGER_SCHEMA if logical == LEDGER else program.tables[logical]
            found = _described(dynamodb, name)
            if found is None:
                _make(dynamodb, name, schema, logical == LEDGER, emulated, create, ask)
                made.append(f"table {name}")
            elif logical != LEDGER:
                made += _complete(dynamodb, name, found, schema, emulated, create, ask, endpoint_url)
    except (ClientError, BotoCoreError) as error:
        raise UsageError(f"{url or 'AWS'}: {error}") from None
    live = connect(
        document,
        [f"{logical}={name}" for logical, name in names.items()],
        ledger,
        endpoint_url,
        region,
        threads=20,
    )
    shown = url or f"AWS, {dynamodb.meta.region_name}"
    return Place(live, emulated, shown, region, create and emulated, made)


def stream_of(dynamodb: Any, name: str) -> str:
    """The ARN of a table's stream. Raises UsageError if the table is gone, or has none that is on."""
    table = _described(dynamodb, name)
    if table is None:
        raise UsageError(f"table {name} is gone")
    arn = table.get("LatestStreamArn")
    if not arn or not (table.get("StreamSpecification") or {}).get("StreamEnabled"):
        raise UsageError(f"the stream of table {name} is switched off")
    return str(arn)


def _described(dynamodb: Any, name: str) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = dynamodb.describe_table(TableName=name)["Table"]
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") == "ResourceNotFoundException":
            return None
        raise
    return found


def _make(
    dynamodb: Any,
    name: str,
    schema: Schema,
    ledger: bool,
    emulated: bool,
    create: bool,
    ask: Callable[[str], bool],
) -> None:
    what = f"the ledger table {name}" if ledger else f"table {name}"
    if not emulated:
        raise UsageError(f"there is no {what.removeprefix('the ')} at AWS; deploy it, or name another")
    where = dynamodb.meta.endpoint_url
    if not (create or ledger) and not ask(f"There is no {what} at {where}. Create it with keys, indexes and stream?"):
        raise UsageError(
            f"there is no {what} at {where}; --create makes it with the keys and indexes of the rules, and with a stream"
        )
    create_table(dynamodb, name, schema, stream=not ledger)


def _complete(
    dynamodb: Any,
    name: str,
    table: Mapping[str, Any],
    schema: Schema,
    emulated: bool,
    create: bool,
    ask: Callable[[str], bool],
    endpoint_url: str | None,
) -> list[str]:
    """Sees to it that an existing table has its indexes and its stream; says what was made."""
    made = _make_indexes(dynamodb, name, schema) if create and emulated else []
    specification = table.get("StreamSpecification") or {}
    view = specification.get("StreamViewType")
    if specification.get("StreamEnabled") and view == VIEW:
        return made
    update = f"aws dynamodb update-table --table-name {name} --stream-specification "
    to = f" --endpoint-url {endpoint_url}" if endpoint_url else ""
    switch_on = f"{update}StreamEnabled=true,StreamViewType={VIEW}{to}"
    switch_off = f"{update}StreamEnabled=false{to}"
    if not specification.get("StreamEnabled"):
        if emulated and (create or ask(f"Table {name} has no stream. Switch it on?")):
            dynamodb.update_table(TableName=name, StreamSpecification={"StreamEnabled": True, "StreamViewType": VIEW})
            return [*made, f"stream of {name}"]
        offer = " (or --create)" if emulated else ""
        raise UsageError(f"table {name} has no stream to follow. Switch it on{offer}:\n  {switch_on}")
    raise UsageError(
        f"the stream of table {name} carries {view}, and projections need {VIEW}. A stream's view cannot be changed; "
        f"switch it off, then on again:\n  {switch_off}\n  {switch_on}"
    )


def _make_indexes(dynamodb: Any, name: str, schema: Schema) -> list[str]:
    """Adds the indexes that a table lacks, one after another, as DynamoDB wants it; says which."""
    table = dynamodb.describe_table(TableName=name)["Table"]
    there = {index["IndexName"] for kind in ("Global", "Local") for index in table.get(f"{kind}SecondaryIndexes") or ()}
    missing = [index for index in schema.indexes if index not in there]
    for index in missing:
        create_index(dynamodb, name, schema, index)
    return [f"index {index} of {name}" for index in missing]
