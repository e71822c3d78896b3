"""CPU per event with HTTP answered by a stub, beside what one would write instead.

Baselines, as a competent user would write them: (a) one `UpdateItem ADD` per record; (b) Powertools' BatchProcessor with its
idempotency and `ADD`; (c) a claim and the counter in one transaction per record.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from benchmarks.workload import TABLE, likes, program
from projections.engine.processor import Processor
from projections.language.program import LEDGER_SCHEMA
from projections.stores.aws import client
from projections.stores.dynamodb import DynamoDBStore

__all__ = ["Cpu", "measure_all"]

_ENDPOINT = "http://127.0.0.1:9"
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU of one way to keep a counter, in microseconds per event: the best of several batches."""

    way: str
    microseconds: float


class _Raw(io.BytesIO):
    def stream(self, **_: Any) -> Any:
        yield self.read()


def _answer(request: Any, **_: Any) -> AWSResponse:
    """What a successful DynamoDB would answer, without a network."""
    operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
    body = b'{"Responses":{},"UnprocessedKeys":{}}' if operation == "BatchGetItem" else b"{}"
    headers = {"x-amzn-requestid": "0", "content-type": "application/x-amz-json-1.0"}
    return AWSResponse(request.url, 200, headers, _Raw(body))


def _stubbed(dynamodb: Any) -> Any:
    dynamodb.meta.events.register("before-send.dynamodb", _answer)
    return dynamodb


def _ours() -> Callable[[list[dict[str, Any]]], None]:
    rules = program()
    schemas = {**rules.tables, "ledger": LEDGER_SCHEMA}
    store = DynamoDBStore(_stubbed(client(endpoint_url=_ENDPOINT)), {"main": TABLE, "ledger": "ledger"}, schemas)
    processor = Processor(rules, store, tables={TABLE: "main"})

    def process(records: list[dict[str, Any]]) -> None:
        outcome = processor.process(records, remaining=lambda: 900.0)
        assert outcome.failed is None

    return process


def _plain_client() -> Any:
    session = boto3.Session("stub", "stub", region_name="us-east-1")
    return _stubbed(session.client("dynamodb", endpoint_url=_ENDPOINT, config=Config(retries={"mode": "standard"})))


def _post_key(record: dict[str, Any]) -> dict[str, Any]:
    post = record["dynamodb"]["Keys"]["SK"]["S"].removeprefix("LIKE#POST#")
    return {"PK": {"S": f"POST#{post}"}, "SK": {"S": "METADATA"}}


def _plain_add() -> Callable[[list[dict[str, Any]]], None]:
    dynamodb = _plain_client()

    def process(records: list[dict[str, Any]]) -> None:
        for record in records:
            dynamodb.update_item(
                TableName=TABLE,
                Key=_post_key(record),
                UpdateExpression="ADD likeCount :one",
                ExpressionAttributeValues={":one": {"N": "1"}},
            )

    return process


def _claimed_add() -> Callable[[list[dict[str, Any]]], None]:
    dynamodb = _plain_client()

    def process(records: list[dict[str, Any]]) -> None:
        for record in records:
            dynamodb.transact_write_items(
                TransactItems=[
                    {
                        "Put": {
                            "TableName": "claims",
                            "Item": {"id": {"S": record["dynamodb"]["SequenceNumber"]}},
                            "ConditionExpression": "attribute_not_exists(id)",
                        }
                    },
                    {
                        "Update": {
                            "TableName": TABLE,
                            "Key": _post_key(record),
                            "UpdateExpression": "ADD likeCount :one",
                            "ExpressionAttributeValues": {":one": {"N": "1"}},
                        }
                    },
                ]
            )

    return process


def _powertools() -> Callable[[list[dict[str, Any]]], None]:
    from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
    from aws_lambda_powertools.utilities.data_classes.dynamo_db_stream_event import DynamoDBRecord
    from aws_lambda_powertools.utilities.idempotency import (
        DynamoDBPersistenceLayer,
        IdempotencyConfig,
        idempotent_function,
    )

    dynamodb = _plain_client()
    layer = DynamoDBPersistenceLayer(table_name="idempotency", boto3_client=_plain_client())
    batches = BatchProcessor(event_type=EventType.DynamoDBStreams)

    @idempotent_function(
        data_keyword_argument="event_id",
        persistence_store=layer,
        config=IdempotencyConfig(),
    )
    def count(event_id: str, key: dict[str, Any]) -> bool:
        dynamodb.update_item(
            TableName=TABLE,
            Key=key,
            UpdateExpression="ADD likeCount :one",
            ExpressionAttributeValues={":one": {"N": "1"}},
        )
        return True

    def handle(record: DynamoDBRecord) -> None:
        count(event_id=record.raw_event["eventID"], key=_post_key(record.raw_event))

    def process(records: list[dict[str, Any]]) -> None:
        answer = process_partial_response(event={"Records": records}, record_handler=handle, processor=batches)
        assert answer == {"batchItemFailures": []}, answer

    return process


def measure_all(rounds: int = 3) -> list[Cpu]:
    """Each way on batches of 1000 likes of 10 posts, in turn, so that they share the machine's mood."""
    ways = {
        "ours": _ours(),
        "(a) plain ADD": _plain_add(),
        "(b) Powertools idempotency + ADD": _powertools(),
        "(c) claim in a transaction": _claimed_add(),
    }
    best: dict[str, float] = {}
    for turn in range(rounds):
        for name, process in ways.items():
            records = json.loads(json.dumps(likes(_BATCH, 10, first=(turn + 1) * 1_000_000)))
            started = time.process_time()
            process(records)
            spent = (time.process_time() - started) / _BATCH * 1e6
            best[name] = min(spent, best.get(name, spent))
    return [Cpu(name, microseconds) for name, microseconds in best.items()]
