"""Creation of tables and indexes, and deletion of tables. The functions do not load this."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from projections.engine.store import Schema
from projections.stores.indexes import GLOBAL, LOCAL, projection

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient

__all__ = ["create_index", "create_table", "delete_table"]


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
        states = {one["IndexName"]: one.get("IndexStatus") for one in table.get("GlobalSecondaryIndexes", [])}
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
