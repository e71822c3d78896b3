"""What one would write instead, as a competent user would: the ways that everything is compared with.

(a) one `UpdateItem ADD` per record; (b) Powertools' BatchProcessor with its idempotency and `ADD`; (c) a claim and the
counter in one transaction per record.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from benchmarks.workload import TABLE

__all__ = ["CLAIMS", "IDEMPOTENCY", "WAYS", "Process"]

CLAIMS, IDEMPOTENCY = "bench-claims", "bench-idempotency"
"""Tables with the partition key `id` that (c) and (b) need."""

Process = Callable[[list[dict[str, Any]]], None]


def _post_key(record: dict[str, Any]) -> dict[str, Any]:
    post = record["dynamodb"]["Keys"]["SK"]["S"].removeprefix("LIKE#POST#")
    return {"PK": {"S": f"POST#{post}"}, "SK": {"S": "METADATA"}}


def _add(dynamodb: Any, table: str, record: dict[str, Any]) -> None:
    dynamodb.update_item(
        TableName=table,
        Key=_post_key(record),
        UpdateExpression="ADD likeCount :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
    )


def plain_add(dynamodb: Any, table: str = TABLE) -> Process:
    def process(records: list[dict[str, Any]]) -> None:
        for record in records:
            _add(dynamodb, table, record)

    return process


def claimed_add(dynamodb: Any, table: str = TABLE) -> Process:
    def process(records: list[dict[str, Any]]) -> None:
        for record in records:
            claim = {
                "TableName": CLAIMS,
                "Item": {"id": {"S": record["dynamodb"]["SequenceNumber"]}},
                "ConditionExpression": "attribute_not_exists(id)",
            }
            count = {
                "TableName": table,
                "Key": _post_key(record),
                "UpdateExpression": "ADD likeCount :one",
                "ExpressionAttributeValues": {":one": {"N": "1"}},
            }
            dynamodb.transact_write_items(TransactItems=[{"Put": claim}, {"Update": count}])

    return process


def powertools(dynamodb: Any, table: str = TABLE) -> Process:
    from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
    from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord
    from aws_lambda_powertools.utilities.idempotency import (
        DynamoDBPersistenceLayer,
        IdempotencyConfig,
        idempotent_function,
    )

    layer = DynamoDBPersistenceLayer(table_name=IDEMPOTENCY, boto3_client=dynamodb)
    batches = BatchProcessor(event_type=EventType.DynamoDBStreams)

    @idempotent_function(data_keyword_argument="event_id", persistence_store=layer, config=IdempotencyConfig())
    def count(event_id: str, record: dict[str, Any]) -> bool:
        _add(dynamodb, table, record)
        return True

    def handle(record: DynamoDBRecord) -> None:
        count(event_id=record.raw_event["eventID"], record=record.raw_event)

    def process(records: list[dict[str, Any]]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no Lambda context, so no remaining time
            answer = process_partial_response(event={"Records": records}, record_handler=handle, processor=batches)
        assert answer == {"batchItemFailures": []}, answer

    return process


WAYS: dict[str, Callable[[Any, str], Process]] = {
    "(a) plain ADD": plain_add,
    "(b) Powertools idempotency + ADD": powertools,
    "(c) claim in a transaction": claimed_add,
}
