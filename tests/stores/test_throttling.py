"""Throttled requests: the limit and the table or index that DynamoDB names are in the error, and are counted.

The bodies are answers in DynamoDB's own JSON. botocore parses them, so a change of its model is noticed here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import botocore.endpoint
import botocore.session
import pytest
from backends import SCHEMAS
from botocore.awsrequest import AWSResponse

from projections.aws import clients as aws
from projections.aws.wiring import Tally
from projections.engine.store import Exists, ItemKey, Update
from projections.errors import TransactionCancelled, Transient
from projections.stores.dynamodb import DynamoDBStore

KEY = ItemKey("app", "p", "s")
EXISTS = Exists(("PK",))
ARN = "arn:aws:dynamodb:eu-west-1:111122223333:table/prod-app"
HOT_PARTITION = {"reason": "TableWriteKeyRangeThroughputExceeded", "resource": ARN}
HOT_INDEX = {"reason": "IndexWriteKeyRangeThroughputExceeded", "resource": f"{ARN}/index/GSI1"}


def answering(body: Mapping[str, Any], status: int = 400) -> tuple[DynamoDBStore, Tally]:
    """A store whose every request is answered so, over HTTP as botocore sees it."""
    dynamodb = aws.client(endpoint_url="http://127.0.0.1:1")

    def answer(request: Any, **_: Any) -> AWSResponse:
        return AWSResponse(request.url, status, {}, SimpleNamespace(stream=lambda: [json.dumps(body).encode()]))

    dynamodb.meta.events.register("before-send.dynamodb", answer)
    throttles = Tally()
    return DynamoDBStore(dynamodb, {"app": "prod-app"}, SCHEMAS, throttled=throttles.add), throttles


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda seconds: None)


def exception(name: str, **members: Any) -> dict[str, Any]:
    return {"__type": f"com.amazonaws.dynamodb.v20120810#{name}", "message": "Throughput exceeds the limit.", **members}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            exception("ProvisionedThroughputExceededException", ThrottlingReasons=[HOT_PARTITION, HOT_INDEX]),
            [
                "TableWriteKeyRangeThroughputExceeded of table/prod-app",
                "IndexWriteKeyRangeThroughputExceeded of table/prod-app/index/GSI1",
            ],
        ),
        (
            exception("ThrottlingException", throttlingReasons=[HOT_PARTITION, HOT_PARTITION]),
            ["TableWriteKeyRangeThroughputExceeded of table/prod-app"],
        ),
        (
            exception("RequestLimitExceeded", ThrottlingReasons=[{"reason": "TableReadAccountLimitExceeded"}]),
            ["TableReadAccountLimitExceeded of prod-app"],
        ),
        (exception("ThrottlingException"), ["ThrottlingException of prod-app"]),
        (exception("ThrottlingException", throttlingReasons=[{}]), ["ThrottlingException of prod-app"]),
    ],
    ids=["two reasons", "the same twice", "no resource", "no reasons", "an empty reason"],
)
@pytest.mark.parametrize(
    "ask",
    [
        lambda store: store.get(KEY),
        lambda store: store.get_many([KEY]),
        lambda store: store.query("app", [{"S": "p"}]),
        lambda store: store.write(Update(KEY, set={"a": {"S": "x"}})),
        lambda store: store.transact([Update(KEY, set={"a": {"S": "x"}})]),
    ],
    ids=["get", "get_many", "query", "write", "transact"],
)
def test_reasons_are_in_the_error_and_counted(
    ask: Callable[[DynamoDBStore], Any], body: Mapping[str, Any], expected: Sequence[str]
) -> None:
    store, throttles = answering(body)
    with pytest.raises(Transient) as error:
        ask(store)
    name = body["__type"].partition("#")[2]
    assert f"on prod-app: {name}: Throughput exceeds the limit ({'; '.join(expected)})" in str(error.value)
    assert throttles.take() == dict.fromkeys(expected, 1)
    assert throttles.take() == {}


def test_a_transaction_that_was_cancelled_for_throttling_is_counted_by_its_code() -> None:
    """Cancellation reasons have no throttling reasons in DynamoDB's model."""
    reasons = [{"Code": "None"}, *[{"Code": "ThrottlingError", "Message": "Throughput exceeds …"}] * 3]
    store, throttles = answering(exception("TransactionCanceledException", CancellationReasons=reasons))
    with pytest.raises(TransactionCancelled):
        store.transact([Update(KEY._replace(sort=str(number))) for number in range(4)])
    assert throttles.take() == {"ThrottlingError of prod-app": 1}


def test_throttled_statements_of_a_batch_are_counted_one_by_one() -> None:
    failed = {"Error": {"Code": "ThrottlingError", "Message": "Throughput exceeds …"}, "TableName": "prod-app"}
    refused = {"Error": {"Code": "ConditionalCheckFailed", "Message": "failed"}, "TableName": "prod-app"}
    store, throttles = answering({"Responses": [refused, failed, failed, {"TableName": "prod-app"}]}, status=200)
    store._statements = True  # as DynamoDB, which is asked otherwise first
    told = store.write_each(
        [Update(KEY._replace(sort=str(n)), set={"a": {"S": "x"}}, condition=EXISTS) for n in range(4)]
    )
    assert [type(one).__name__ for one in told] == ["ConditionFailed", "Transient", "Transient", "NoneType"]
    assert throttles.take() == {"ThrottlingError of prod-app": 2}
