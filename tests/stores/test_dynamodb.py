"""The store on DynamoDB: translated errors, unprocessed keys, the meter, the choice of an endpoint."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from backends import SCHEMAS, backend
from botocore.exceptions import ClientError, NoCredentialsError, ReadTimeoutError
from emulators import free_port

from projections.aws import clients as aws
from projections.aws import live_tables
from projections.aws.wiring import Tally
from projections.engine.rejections import refusal
from projections.engine.store import ItemKey, Purpose, Update
from projections.errors import (
    ConditionFailed,
    InvalidRequest,
    Misconfigured,
    Reason,
    StoreError,
    TransactionCancelled,
    Transient,
)
from projections.stores.dynamodb import DynamoDBStore, Meter

KEY = ItemKey("app", "p", "s")


class Answers:
    """A client that gives the answers it was made with, one after the other, and keeps what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, Any]] = []
        self.meta = SimpleNamespace(events=SimpleNamespace(register=lambda *_, **__: None))

    def __getattr__(self, method: str) -> Any:
        def call(**request: Any) -> Any:
            self.asked.append(request)
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

        return call


def over(client: Any, meter: Meter | None = None) -> DynamoDBStore:
    return DynamoDBStore(client, {"app": "prod-app"}, SCHEMAS, meter)


def failure(code: str, message: str = "", status: int = 400, **more: Any) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}, **more}
    return ClientError(answer, "UpdateItem")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (failure("ConditionalCheckFailedException"), ConditionFailed),
        (failure("ValidationException", "Item size has exceeded"), InvalidRequest),
        (failure("ItemCollectionSizeLimitExceededException"), InvalidRequest),
        (failure("ValidationException", "The table does not have the specified index: GSI1"), Misconfigured),
        (failure("ValidationException", "The provided key element does not match the schema"), Misconfigured),
        (failure("ValidationException", "Cannot read from backfilling global secondary index: GSI1"), Transient),
        (failure("ResourceNotFoundException"), Misconfigured),
        (failure("AccessDeniedException"), Misconfigured),
        (failure("UnrecognizedClientException"), Misconfigured),
        (failure("ExpiredTokenException"), Misconfigured),
        (failure("SomethingNew"), Misconfigured),
        (failure("ProvisionedThroughputExceededException"), Transient),
        (failure("RequestLimitExceeded"), Transient),
        (failure("ThrottlingException"), Transient),
        (failure("TransactionConflictException"), Transient),
        (failure("TransactionInProgressException"), Transient),
        (failure("InternalServerError", status=500), Transient),
        (failure("SomethingNew", status=503), Transient),
        (ReadTimeoutError(endpoint_url="somewhere"), Transient),
        (NoCredentialsError(), Misconfigured),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)[:90]),
)
def test_errors_are_translated(error: Exception, expected: type[StoreError]) -> None:
    with pytest.raises(expected) as found:
        over(Answers(error)).write(Update(KEY))
    if expected is not ConditionFailed:
        assert "UpdateItem on prod-app" in str(found.value)


@pytest.mark.parametrize("name", ["backfilling-jobs", "Query_condition_missed_key_schema_element", "overflow"])
def test_a_name_of_a_table_is_not_taken_for_a_reason(name: str) -> None:
    """A refusal that was retried because of a word in a name would block the shard."""
    client: Any = Answers(failure("ValidationException", "Item size has exceeded"))
    store = DynamoDBStore(client, {"app": name}, SCHEMAS)
    with pytest.raises(InvalidRequest) as found:
        store.write(Update(KEY))
    assert refusal(str(found.value)).startswith("an item can have at most 400 KB")
    message = f"One or more parameter values were invalid: {name} Cannot read from backfilling global secondary index"
    with pytest.raises(InvalidRequest):
        over(Answers(failure("ValidationException", message))).write(Update(KEY))


def test_a_missing_permission_is_named() -> None:
    with pytest.raises(Misconfigured, match=r"prod-app.*Allow dynamodb:GetItem"):
        over(Answers(failure("AccessDeniedException", "no."))).get(KEY)


def test_reasons_of_a_cancelled_transaction_keep_their_places() -> None:
    reasons = [
        {"Code": "None"},
        {"Code": "ConditionalCheckFailed", "Item": {"b": {"B": b"x"}}, "Message": "failed"},
        {"Code": "TransactionConflict", "Message": "ongoing"},
        {"Code": "ThrottlingError"},
        {"Code": "ProvisionedThroughputExceeded"},
        {"Code": "ValidationError", "Message": "too large"},
        {"Code": "ItemCollectionSizeLimitExceeded"},
    ]
    error = failure("TransactionCanceledException", CancellationReasons=reasons)
    with pytest.raises(TransactionCancelled) as cancelled:
        over(Answers(error)).transact([Update(KEY._replace(sort=str(number))) for number in range(7)])
    assert cancelled.value.reasons[:3] == (
        None,
        Reason("condition", {"b": {"B": "eA=="}}, "failed"),
        Reason("conflict", None, "ongoing"),
    )
    kinds = [reason and reason.kind for reason in cancelled.value.reasons[3:]]
    assert kinds == ["throttled", "throttled", "invalid", "invalid"]


def test_writes_are_counted_for_their_rules() -> None:
    """One in a transaction takes two units; a write for no rule of its own is not a rule's."""
    tally = Tally()
    store = DynamoDBStore(
        Answers({}, {}, failure("ConditionalCheckFailedException")), {"app": "prod-app"}, SCHEMAS, wrote=tally.add_write
    )
    likes = Purpose("publish", ("likes",))
    store.write(Update(KEY, purpose=likes))
    store.transact([Update(KEY, purpose=Purpose("entry")), Update(KEY, purpose=likes)])
    with pytest.raises(ConditionFailed):
        store.write(Update(KEY, purpose=Purpose("index", ("listed", "ranked"))))
    assert tally.take() == {"likes": 3, "(entry)": 2, "listed": 1, "ranked": 1}


def test_the_meter_counts_calls_and_units() -> None:
    meter = Meter()
    store = over(
        Answers(
            {"ConsumedCapacity": {"CapacityUnits": 1.0}},
            {"ConsumedCapacity": [{"CapacityUnits": 4.0}, {"CapacityUnits": 2.0}]},
            {"ConsumedCapacity": {"CapacityUnits": 0.5}},
            failure("ThrottlingException"),
        ),
        meter,
    )
    store.write(Update(KEY))
    store.transact([Update(KEY)])
    store.get(KEY)
    with pytest.raises(Transient):
        store.get(KEY)
    assert (meter.write_units, meter.read_units) == (7.0, 0.5)
    assert meter.calls == {"UpdateItem": 1, "TransactWriteItems": 1, "GetItem": 2}


def test_a_server_that_does_not_answer_is_transient() -> None:
    nobody = aws.client(endpoint_url=f"http://127.0.0.1:{free_port()}")
    with pytest.raises(Transient, match="prod-app"):
        over(nobody).get(KEY)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"AWS_ENDPOINT_URL": "http://one:1"}, "http://one:1"),
        ({"AWS_ENDPOINT_URL": "http://one:1", "AWS_ENDPOINT_URL_DYNAMODB": "http://two:2"}, "http://two:2"),
        ({"LOCALSTACK_HOST": "stack:4567"}, "http://stack:4567"),
        ({"LOCALSTACK_HOST": "stack:4567", "AWS_ENDPOINT_URL": "http://one:1"}, "http://one:1"),
    ],
)
def test_the_environment_sets_the_endpoint(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], expected: str | None
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert aws.endpoint("dynamodb") == expected


def test_an_emulator_needs_no_credentials_and_no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name)
    client = aws.client(endpoint_url="http://127.0.0.1:1")
    assert client.meta.region_name == "us-east-1"
    assert client._get_credentials().access_key == "test"


def test_tables_are_created_with_their_streams_and_deleted(dynamodb_local_url: str) -> None:
    local = aws.client(endpoint_url=dynamodb_local_url)
    live_tables.create_table(local, "made-for-this", SCHEMAS["app"])
    table = local.describe_table(TableName="made-for-this")["Table"]
    assert table["StreamSpecification"] == {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    assert table["GlobalSecondaryIndexes"][0]["Projection"] == {"ProjectionType": "ALL"}
    assert "LocalSecondaryIndexes" not in table
    live_tables.delete_table(local, "made-for-this")
    assert "made-for-this" not in local.list_tables()["TableNames"]


def test_tables_are_created_with_what_their_indexes_project(dynamodb_local_url: str) -> None:
    local = aws.client(endpoint_url=dynamodb_local_url)
    schema = SCHEMAS["projected"]
    some = {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["x"]}
    live_tables.create_table(local, "projected-table", schema)
    live_tables.create_table(local, "later-indexes", replace(SCHEMAS["app"], indexes={}))
    for index in ("keys", "some"):
        live_tables.create_index(local, "later-indexes", schema, index)
    expected = {"keys": {"ProjectionType": "KEYS_ONLY"}, "some": some}
    for name in ("projected-table", "later-indexes"):
        table = local.describe_table(TableName=name)["Table"]
        assert {one["IndexName"]: one["Projection"] for one in table["GlobalSecondaryIndexes"]} == expected
        if name == "projected-table":
            listed = {one["IndexName"]: one for one in table["LocalSecondaryIndexes"]}
            assert {name: one["Projection"] for name, one in listed.items()} == {
                "local": {"ProjectionType": "ALL"},
                "local-some": some,
            }
            assert [key["AttributeName"] for key in listed["local"]["KeySchema"]] == ["PK", "at"]
        live_tables.delete_table(local, name)


def test_a_missing_table_and_a_missing_index_are_misconfigurations(
    request: pytest.FixtureRequest, dynamodb_local_url: str
) -> None:
    with backend("dynamodb-local", request) as store, pytest.raises(Misconfigured, match="nowhere"):
        store.get(ItemKey("nowhere", "p"))
    local = aws.client(endpoint_url=dynamodb_local_url)
    with pytest.raises(Misconfigured, match="prod-app"):
        over(local).get(KEY)


def test_numbers_and_texts_of_a_transaction_are_json_whatever_they_hold() -> None:
    """Written without an encoder: quotes, controls and other alphabets must come out as JSON all the same."""
    table = DynamoDBStore(Answers(), {"app": 'a"pp'}, SCHEMAS)
    key = ItemKey("app", 'p"\\', "s\n\u00e9")
    said = json.loads(
        table._requests.action_json(Update(key, set={"n": {"N": "1.5"}, "t": {"S": '"\t'}}, add={"v": {"N": "1"}}))
    )
    assert said["Update"]["Key"] == {"PK": {"S": 'p"\\'}, "SK": {"S": "s\n\u00e9"}}
    assert said["Update"]["ExpressionAttributeValues"] == {":0": {"N": "1.5"}, ":1": {"S": '"\t'}, ":2": {"N": "1"}}
    assert said["Update"]["TableName"] == 'a"pp'
