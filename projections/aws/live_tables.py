"""Live tables: finds those of a deployment and checks that they match the rules; creates and deletes tables and indexes."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from projections.errors import UsageError

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient

    from projections.engine.store import Schema
    from projections.language.program import Program
    from projections.stores.dynamodb import DynamoDBStore, Meter


LEDGER = "ledger"

GLOBAL, LOCAL = "GlobalSecondaryIndexes", "LocalSecondaryIndexes"


class Live(NamedTuple):
    """The tables of a command. `names` has their real names by logical name, with the ledger; `sizes` their approximate
    numbers of items (DynamoDB counts every six hours).
    """

    program: Program
    store: DynamoDBStore
    client: Any
    names: Mapping[str, str]
    sizes: Mapping[str, int]
    described: Mapping[str, Mapping[str, Any]]
    """The answer of DescribeTable for each table."""


def connect(
    document: Mapping[str, Any],
    tables: Sequence[str],
    ledger: str | None,
    endpoint_url: str | None,
    region: str | None,
    *,
    threads: int = 10,
    without_ledger: bool = False,
    other_indexes: bool = False,
    meter: Meter | None = None,
) -> Live:
    """Return the tables that these options name. Raises UsageError with everything that is missing or does not match the
    rules.

    `document` are the canonical rules. With `without_ledger`, the ledger may be missing, also in `names`. With
    `other_indexes`, indexes may be missing or differ: the caller reports them. `meter` counts the store's calls.
    """
    from projections.language.program import Program

    program = Program.from_document(document)
    names = real_names(tables, list(program.tables))
    ledger = ledger or os.environ.get("LEDGER_TABLE_NAME")
    if ledger:
        names[LEDGER] = ledger
    elif not without_ledger:
        raise UsageError(
            "no ledger table: pass --ledger NAME or --stack NAME, or set LEDGER_TABLE_NAME. `sam deploy` prints the name"
        )
    return connect_to(program, names, endpoint_url, region, threads=threads, other_indexes=other_indexes, meter=meter)


def connect_to(
    program: Program,
    names: Mapping[str, str],
    endpoint_url: str | None,
    region: str | None,
    *,
    threads: int,
    other_indexes: bool = False,
    meter: Meter | None = None,
) -> Live:
    """Return the tables with these real names, by logical name. Raises UsageError as `connect` does."""
    from projections.aws.clients import client
    from projections.language.program import LEDGER_SCHEMA
    from projections.stores.dynamodb import DynamoDBStore

    dynamodb = client(endpoint_url=endpoint_url, region=region, max_pool_connections=threads)
    schemas = {name: schema for name, schema in {**program.tables, LEDGER: LEDGER_SCHEMA}.items() if name in names}
    described = {logical: describe_table(dynamodb, name) for logical, name in names.items()}
    wrong = [
        what
        for logical in names
        for what in differences(names[logical], described[logical], schemas[logical], indexes=not other_indexes)
    ]
    if names.get(LEDGER) in [name for logical, name in names.items() if logical != LEDGER]:
        wrong.append(f"--ledger {names[LEDGER]}: this is a table of the application. The ledger is a separate table")
    if wrong:
        raise UsageError(*wrong)
    return Live(
        program,
        DynamoDBStore(dynamodb, names, schemas, meter),
        dynamodb,
        names,
        {logical: table.get("ItemCount", 0) for logical, table in described.items()},
        described,
    )


def real_names(options: Sequence[str], logical: Sequence[str]) -> dict[str, str]:
    """Return the real name of each table of the rules, from --table or the environment. Raises UsageError."""
    source = "--table"
    if not options:
        if several := os.environ.get("TABLES"):
            options, source = _of_environment(several), "TABLES"
        elif single := os.environ.get("TABLE_NAME"):
            options, source = [single], "TABLE_NAME"
    names: dict[str, str] = {}
    for text in options:
        name, equals, real = text.partition("=")
        if not equals:
            if len(logical) > 1:
                raise UsageError(f"{source} {text}: the rules have {', '.join(logical)}. Write --table LOGICAL={text}")
            name, real = logical[0], text
        if name not in logical:
            raise UsageError(f"{source} {text}: the rules have no table {name!r}; they have {', '.join(logical)}")
        if name in names:
            raise UsageError(f"{source} {text}: {name} is already set to {names[name]}")
        names[name] = real
    missing = [name for name in logical if name not in names]
    if missing and len(logical) == 1:
        raise UsageError("no table: pass --table NAME or --stack NAME, or set TABLE_NAME")
    if missing:
        raise UsageError(f"no table {missing[0]}: pass --table {missing[0]}=NAME or --stack NAME, or set TABLES")
    return names


def _of_environment(text: str) -> list[str]:
    try:
        return [f"{name}={real}" for name, real in json.loads(text).items()]
    except (ValueError, AttributeError):
        raise UsageError(f"TABLES is {text!r}. Set it to a JSON object of logical to real names") from None


def describe_table(dynamodb: Any, name: str) -> dict[str, Any]:
    """Return the answer of DescribeTable. Raises UsageError if there is no table, or it may not be read."""
    from botocore.exceptions import BotoCoreError, ClientError

    from projections.aws.clients import reason_of

    try:
        return dict(dynamodb.describe_table(TableName=name)["Table"])
    except (ClientError, BotoCoreError) as error:
        if (
            isinstance(error, ClientError)
            and error.response.get("Error", {}).get("Code") == "ResourceNotFoundException"
        ):
            where = f"{dynamodb.meta.endpoint_url}, {dynamodb.meta.region_name}"
            raise UsageError(
                f"there is no table {name} at {where}. Check name, account, --region and --endpoint-url"
            ) from None
        raise UsageError(f"table {name}: {reason_of(error)}") from None


def time_to_live(dynamodb: Any, name: str) -> Mapping[str, Any] | None:
    """Return the answer of DescribeTimeToLive; None if it cannot be read."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        description: Mapping[str, Any] = dynamodb.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    except (ClientError, BotoCoreError):
        return None
    return description


def differences(name: str, table: Mapping[str, Any], schema: Schema, *, indexes: bool = True) -> Iterator[str]:
    """Yield the differences in keys, and in those of `indexes`, between a table, as DescribeTable returns it, and the rules.

    Requests with other keys fail. `projections/deploy/comparison.py` compares everything.
    """
    types = {attribute["AttributeName"]: attribute["AttributeType"] for attribute in table["AttributeDefinitions"]}
    key = key_of(table["KeySchema"], types)
    wanted = (schema.partition,), () if schema.sort is None else (schema.sort,)
    if key != wanted:
        yield (
            f"table {name} has the key {key_text(key)}, the rules have {key_text(wanted)}. "
            "Name the right table, or correct `key` in the rules"
        )
    there = {index["IndexName"]: key_of(index["KeySchema"], types) for index in described_indexes(table)}
    for index, declared in schema.indexes.items() if indexes else ():
        if index not in there:
            yield (
                f"table {name} has no index {index} with the key {key_text(declared)}; it has "
                f"{', '.join(there) or 'none'}. Create it, or correct `indexes` in the rules"
            )
        elif there[index] != (tuple(declared[0]), tuple(declared[1])):
            yield (
                f"index {index} of table {name} has the key {key_text(there[index])}, the rules have "
                f"{key_text(declared)}. Correct `indexes` in the rules, or create the index again"
            )


Key = tuple[Sequence[tuple[str, str]], Sequence[tuple[str, str]]]


def key_of(elements: Sequence[Mapping[str, str]], types: Mapping[str, str]) -> Key:
    def part(kind: str) -> tuple[tuple[str, str], ...]:
        names = [element["AttributeName"] for element in elements if element["KeyType"] == kind]
        return tuple((name, types.get(name, "?")) for name in names)

    return part("HASH"), part("RANGE")


def key_text(key: Key) -> str:
    return ", ".join(f"{name} ({kind})" for part in key for name, kind in part)


def create_table(dynamodb: DynamoDBClient, name: str, schema: Schema, *, stream: bool = True) -> None:
    """Create an on-demand table with its indexes, and wait until it is active.

    With `stream` it has a stream of both images. The ledger does not need one.
    """
    key = [schema.partition] if schema.sort is None else [schema.partition, schema.sort]
    types = dict(key)
    for partition, sort in schema.indexes.values():
        types |= dict(partition) | dict(sort)
    request: dict[str, Any] = {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": n, "AttributeType": kind} for n, kind in types.items()],
        "KeySchema": _key_schema([key[0][0]], [n for n, _ in key[1:]]),
    }
    for index in schema.indexes:
        request.setdefault(LOCAL if index in schema.local else GLOBAL, []).append(_index(schema, index))
    if stream:
        request["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    try:
        dynamodb.create_table(**request)
    except dynamodb.exceptions.ResourceInUseException as error:
        # The first request succeeded, its answer came too late, and botocore repeated it.
        if not error.response["ResponseMetadata"].get("RetryAttempts"):
            raise
    dynamodb.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 180})
    if schema.ttl:
        dynamodb.update_time_to_live(
            TableName=name, TimeToLiveSpecification={"Enabled": True, "AttributeName": schema.ttl}
        )


def create_index(dynamodb: DynamoDBClient, name: str, schema: Schema, index: str) -> None:
    """Add one of the schema's global indexes to an existing table, and wait until it is active."""
    partition, sort = schema.indexes[index]
    types = dict([schema.partition, *([schema.sort] if schema.sort else []), *partition, *sort])
    request: dict[str, Any] = {
        "TableName": name,
        "AttributeDefinitions": [{"AttributeName": n, "AttributeType": kind} for n, kind in types.items()],
        "GlobalSecondaryIndexUpdates": [{"Create": _index(schema, index)}],
    }
    dynamodb.update_table(**request)
    for _ in range(900):
        table = dynamodb.describe_table(TableName=name)["Table"]
        states = {entry["IndexName"]: entry.get("IndexStatus") for entry in table.get("GlobalSecondaryIndexes", [])}
        if states.get(index) == "ACTIVE" and table["TableStatus"] == "ACTIVE":
            return
        time.sleep(0.2)


def delete_table(dynamodb: DynamoDBClient, name: str) -> None:
    """Delete a table, and wait until it does not exist."""
    dynamodb.delete_table(TableName=name)
    dynamodb.get_waiter("table_not_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 180})


def _index(schema: Schema, index: str) -> dict[str, Any]:
    partition, sort = schema.indexes[index]
    return {
        "IndexName": index,
        "KeySchema": _key_schema((n for n, _ in partition), (n for n, _ in sort)),
        "Projection": projection(schema, index),
    }


def _key_schema(partition: Iterable[str], sort: Iterable[str]) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": "HASH"} for name in partition] + [
        {"AttributeName": name, "KeyType": "RANGE"} for name in sort
    ]


# Indexes: what CreateTable takes and DescribeTable returns


def projection(schema: Schema, index: str) -> dict[str, Any]:
    """Return the projection of an index of the rules."""
    if index not in schema.projected:
        return {"ProjectionType": "ALL"}
    if not schema.projected[index]:
        return {"ProjectionType": "KEYS_ONLY"}
    return {"ProjectionType": "INCLUDE", "NonKeyAttributes": sorted(schema.projected[index])}


def described_indexes(table: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the indexes in DescribeTable's answer."""
    return [index for kind in (GLOBAL, LOCAL) for index in table.get(kind) or ()]


def listed_attributes(index: Mapping[str, Any], table: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the attributes that an index projects besides keys; None for all. Its projection may list keys, too."""
    written = index.get("Projection") or {}
    if written.get("ProjectionType", "ALL") == "ALL":
        return None
    keys = {key.get("AttributeName") for described in (index, table) for key in described["KeySchema"]}
    return frozenset(written.get("NonKeyAttributes") or ()) - keys


def projection_text(attributes: frozenset[str] | None) -> str:
    """Return the attributes that a projection adds to the keys as the rule file has them."""
    if attributes is None:
        return "all"
    return f"[{', '.join(sorted(attributes))}]" if attributes else "keys_only"
