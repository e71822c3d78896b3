"""Failed messages are read in all their forms, for the keys of items. A message without an item says what to do."""

from __future__ import annotations

import copy
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from discarded import object_of

from projections.engine.budget import Refresh
from projections.engine.embeds import Push
from projections.engine.rejections import Rejected
from projections.engine.store import ItemKey, Schema
from projections.operations.failed_messages import FailedMessage, Reader
from projections.operations.quarantine import message
from projections.operations.tasks import BackfillTask, write

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/app/stream/2026-01-01T00:00:00.000"
SCHEMAS = {"main": Schema(("PK", "S"), ("SK", "S")), "readings": Schema(("sensor", "N"))}
READER = Reader(SCHEMAS, {"main": "app", "readings": "prod-readings", "ledger": "books"})
POST = ItemKey("main", "POST#1", "METADATA")
TTL = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


def record(
    event: str = "MODIFY", sequence: str = "100000000000000000001", old: Any = 1, new: Any = 2, **changes: Any
) -> dict[str, Any]:
    keys = {"PK": {"S": "POST#1"}, "SK": {"S": "METADATA"}}
    images = {"OldImage": old, "NewImage": new}
    body = {name: {**keys, "n": {"N": str(n)}} for name, n in images.items() if n is not None}
    return {
        "eventName": event,
        "eventSourceARN": ARN,
        "dynamodb": {"Keys": keys, "SequenceNumber": sequence, **body},
        **changes,
    }


def image(n: int) -> dict[str, Any]:
    return {"PK": {"S": "POST#1"}, "SK": {"S": "METADATA"}, "n": {"N": str(n)}}


def read(value: Any) -> FailedMessage:
    return READER.text(json.dumps(value), "here")


def test_a_message_of_the_quarantine_is_about_its_item() -> None:
    rejected = Rejected("listed", "publishedAt is no time", "main|POST#1|METADATA", "1", "main", "MODIFY")
    found = read(message(rejected, datetime(2026, 1, 5, tzinfo=UTC), ARN))
    assert found == FailedMessage("here", {POST: ()}, reason="listed: publishedAt is no time")
    assert read({"rule": None, "reason": "r", "key": "readings|7"}).items == {ItemKey("readings", "7"): ()}


def test_an_object_of_the_bucket_is_about_the_items_of_its_records() -> None:
    other = copy.deepcopy(record())
    other["dynamodb"]["Keys"]["PK"]["S"] = "POST#2"
    del other["dynamodb"]["OldImage"], other["dynamodb"]["NewImage"]
    found = read(object_of((record(old=1, new=2), record(old=2, new=3), other), ARN))
    assert found.items == {POST: [image(1), image(2), image(3)], ItemKey("main", "POST#2", "METADATA"): []}
    assert (found.reason, found.unusable) == ("RetryAttemptsExhausted", None)


@pytest.mark.parametrize("form", [lambda r: {"Records": [r]}, lambda r: [r], lambda r: r])
def test_events_lists_of_records_and_single_ones_are_messages_too(form: Any) -> None:
    assert read(form(record())).items == {POST: [image(1), image(2)]}


def test_a_record_needs_no_images_and_bad_ones_are_not_used() -> None:
    """To be refreshed an item has to be named, no more: so a stream of keys only will do."""
    bad = record(old=None, new=None)
    bad["dynamodb"]["NewImage"] = {"PK": {"S": "POST#1"}, "n": {"X": 1}}
    assert read(bad).items == {POST: []}
    keyless = record()
    del keyless["dynamodb"]["Keys"]
    assert read(keyless).items == {POST: [image(1), image(2)]}


@pytest.mark.parametrize(
    ("records", "removed"),
    [
        ([record("REMOVE", new=None)], True),
        ([record("REMOVE", new=None, userIdentity=TTL)], False),
        ([record("REMOVE", "9", new=None), record("INSERT", "10", old=None)], False),
        ([record("INSERT", "9", old=None), record("REMOVE", "10", new=None)], True),
        ([record("REMOVE", "10", new=None), record("INSERT", "9", old=None)], True),
    ],
    ids=["removed", "expired", "put again", "removed again", "in any order"],
)
def test_of_an_item_the_newest_record_reports_whether_it_was_removed(records: list[Any], removed: bool) -> None:
    (newest,) = read(records).newest.values()
    assert newest[1] is removed


@pytest.mark.parametrize(
    "task",
    [
        Push("author", "main|USER#1|PROFILE", "1", {"PK": {"S": "x"}}),
        BackfillTask("a", "items", "main", 3),
        Refresh("main|USER#1|PROFILE", f"a/{1:040}"),
    ],
)
def test_a_dead_task_is_a_message(task: Any) -> None:
    assert READER.text(write(task), "here") == FailedMessage("here", task=task)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("x", "neither this package nor Lambda wrote it"),
        ({}, "neither this package nor Lambda wrote it"),
        ([], "it has no records"),
        ({"Records": []}, "it has no records"),
        ([1], "not a DynamoDB stream record"),
        ({"Records": [{"eventSource": "aws:sqs", "body": "secret"}]}, "not a DynamoDB stream record"),
        ({"push": {}}, "is not a task"),
        ({"rule": None, "reason": "no record", "key": None}, "names no item"),
        ({"reason": "r", "key": "main"}, "not an encoded key"),
        ({"reason": "r", "key": "a|b|c|d"}, "not an encoded key"),
        ({"reason": "r", "key": "other|a|b"}, 'table "other", which the rules do not have'),
        ({"reason": "r", "key": "main|a"}, "not a key of table"),
        ({"reason": "r", "key": "main||b"}, 'cannot be a value of "PK"'),
        ({"reason": "r", "key": "main|" + "x" * 2049 + "|b"}, 'cannot be a value of "PK"'),
        ({"reason": "r", "key": "main|\ud800|b"}, 'cannot be a value of "PK"'),
        ({"reason": "r", "key": "readings|seven"}, 'cannot be a value of "sensor"'),
        (record(eventSourceARN=ARN.replace("app", "staging")), 'table "staging", which is not one of the tables'),
        (record(dynamodb={"Keys": {"id": {"S": "1"}}}), r"not that of table .* PK \(S\) and SK \(S\)"),
        ({"DDBStreamBatchInfo": {}, "payload": "{"}, "payload is not JSON"),
        ({"DDBStreamBatchInfo": None}, "names no items"),
    ],
)  # fmt: skip
def test_unusable_messages_give_the_reason(value: Any, reason: str) -> None:
    found = read(value)
    assert found.items == {}
    assert found.task is None
    import re

    assert re.search(reason, found.unusable or ""), found.unusable
