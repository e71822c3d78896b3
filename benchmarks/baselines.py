"""What one would write instead, as a competent user would: the ways that everything is compared with.

(a) one `UpdateItem ADD` per record; (b) Powertools' BatchProcessor with its idempotency and `ADD`; (c) a claim and the
counters in one transaction per record; (d) for copies, one conditional put per record. All leave out what only edits.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from benchmarks.workload import TABLE

__all__ = ["CLAIMS", "IDEMPOTENCY", "WAYS", "Counters", "Process", "conditional_puts", "counters_of", "like_count"]

CLAIMS, IDEMPOTENCY = "bench-claims", "bench-idempotency"
"""Tables with the partition key `id` that (c) and (b) need."""

Process = Callable[[list[dict[str, Any]]], None]
Counters = Callable[[dict[str, Any]], Sequence[tuple[dict[str, Any], str]]]
"""The counters of a record: the key of each one's item, and its attribute."""


def like_count(record: dict[str, Any]) -> Sequence[tuple[dict[str, Any], str]]:
    """The one counter of `workload.LIKES`."""
    post = record["dynamodb"]["Keys"]["SK"]["S"].removeprefix("LIKE#POST#")
    return [({"PK": {"S": f"POST#{post}"}, "SK": {"S": "METADATA"}}, "likeCount")]


def counters_of(record: dict[str, Any]) -> Sequence[tuple[dict[str, Any], str]]:
    """The counters of `workload.EIGHT_COUNTERS`."""
    image = record["dynamodb"]["NewImage"]
    return [({"PK": {"S": f"COUNTER{n}#{image[f'c{n}']['S']}"}, "SK": {"S": "S"}}, f"total{n}") for n in range(8)]


def _adds(table: str, record: dict[str, Any], counters: Counters) -> list[dict[str, Any]]:
    amount = {"INSERT": "1", "REMOVE": "-1"}.get(record["eventName"])
    if amount is None:
        return []
    return [
        {
            "TableName": table,
            "Key": key,
            "UpdateExpression": f"ADD {attribute} :amount",
            "ExpressionAttributeValues": {":amount": {"N": amount}},
        }
        for key, attribute in counters(record)
    ]


def plain_add(dynamodb: Any, table: str = TABLE, counters: Counters = like_count) -> Process:
    def process(records: list[dict[str, Any]]) -> None:
        for record in records:
            for add in _adds(table, record, counters):
                dynamodb.update_item(**add)

    return process


def claimed_add(dynamodb: Any, table: str = TABLE, counters: Counters = like_count) -> Process:
    def process(records: list[dict[str, Any]]) -> None:
        for record in records:
            adds = _adds(table, record, counters)
            if not adds:
                continue
            claim = {
                "TableName": CLAIMS,
                "Item": {"id": {"S": record["dynamodb"]["SequenceNumber"]}},
                "ConditionExpression": "attribute_not_exists(id)",
            }
            with suppress(dynamodb.exceptions.TransactionCanceledException):  # counted before
                dynamodb.transact_write_items(TransactItems=[{"Put": claim}, *({"Update": add} for add in adds)])

    return process


def powertools(dynamodb: Any, table: str = TABLE, counters: Counters = like_count) -> Process:
    from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
    from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord
    from aws_lambda_powertools.utilities.idempotency import (
        DynamoDBPersistenceLayer,
        IdempotencyConfig,
        idempotent_function,
    )

    layer = DynamoDBPersistenceLayer(table_name=IDEMPOTENCY, boto3_client=dynamodb)
    batches = BatchProcessor(event_type=EventType.DynamoDBStreams)

    @idempotent_function(data_keyword_argument="event_id", persistence_store=layer, config=IdempotencyConfig())  # type: ignore[untyped-decorator]
    def count(event_id: str, adds: list[dict[str, Any]]) -> bool:
        for add in adds:
            dynamodb.update_item(**add)
        return True

    def handle(record: DynamoDBRecord) -> None:
        adds = _adds(table, record.raw_event, counters)
        if adds:
            count(event_id=record.raw_event["eventID"], adds=adds)

    def process(records: list[dict[str, Any]]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no Lambda context, so no remaining time
            answer = process_partial_response(event={"Records": records}, record_handler=handle, processor=batches)
        assert answer == {"batchItemFailures": []}, answer

    return process


def conditional_puts(dynamodb: Any, table: str = TABLE) -> Process:
    """For `workload.COPIES`: a copy unless one as new is there. Nothing is left of what was removed; it may come back."""

    def process(records: list[dict[str, Any]]) -> None:
        for record in records:
            if record["eventName"] == "REMOVE":
                continue
            image = record["dynamodb"]["NewImage"]
            if image["likedAt"] == record["dynamodb"].get("OldImage", {}).get("likedAt"):
                continue
            post = image["SK"]["S"].removeprefix("LIKE#POST#")
            with suppress(dynamodb.exceptions.ConditionalCheckFailedException):  # copied before
                dynamodb.put_item(
                    TableName=table,
                    Item={
                        "PK": {"S": f"LIKED#{post}"},
                        "SK": {"S": f"BY#{image['userId']['S']}"},
                        "likedAt": image["likedAt"],
                        "at": {"S": record["dynamodb"]["SequenceNumber"].zfill(40)},
                    },
                    ConditionExpression="attribute_not_exists(#at) OR #at < :at",
                    ExpressionAttributeNames={"#at": "at"},
                    ExpressionAttributeValues={":at": {"S": record["dynamodb"]["SequenceNumber"].zfill(40)}},
                )

    return process


WAYS: dict[str, Callable[..., Process]] = {
    "(a) plain ADD": plain_add,
    "(b) Powertools idempotency + ADD": powertools,
    "(c) claim in a transaction": claimed_add,
}
