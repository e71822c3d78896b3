"""Rejected records are sent to a queue, with keys and without contents."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws

from projections.aws.queues import MAX_BYTES, Queue
from projections.engine.rejections import Rejected
from projections.errors import InvalidRequest, Misconfigured, Transient
from projections.operations.quarantine import Quarantine

ARN = "arn:aws:dynamodb:eu-west-1:123456789012:table/app/stream/2026-01-01T00:00:00.000"
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)


def rejected(**changes: Any) -> Rejected:
    return Rejected(
        **{
            "rule": "listed",
            "reason": "publishedAt is no time",
            "key": "POST#1|METADATA",
            "sequence": "100000000000000000001",
            "table": "main",
            **changes,
        }
    )


class Sent(list[str]):
    def send(self, bodies: Sequence[str]) -> None:
        self.extend(bodies)


def test_a_message_has_the_rejected_item_the_reason_and_the_time() -> None:
    sent = Sent()
    Quarantine(lambda: sent, lambda: NOON, {"main": ARN})([rejected()])
    assert [json.loads(body) for body in sent] == [
        {
            "rule": "listed",
            "reason": "publishedAt is no time",
            "table": "main",
            "key": "POST#1|METADATA",
            "eventName": None,
            "sequenceNumber": "100000000000000000001",
            "streamArn": ARN,
            "time": "2026-01-05T12:00:00+00:00",
            "target": None,
            "fault": "item",
            "triggeredBy": [],
            "triggeredByCount": 0,
        }
    ]


def test_a_message_names_the_target_at_fault_and_ten_of_the_items_that_led_there() -> None:
    sent = Sent()
    led = tuple(f"main|USER#{user}|LIKE#1" for user in range(30))
    target = "main|POST#1|METADATA"
    Quarantine(lambda: sent, lambda: NOON)([rejected(key=target, target=target, fault="target", triggered_by=led)])
    told = json.loads(sent[0])
    assert (told["target"], told["fault"]) == (target, "target")
    assert (told["triggeredBy"], told["triggeredByCount"]) == (list(led[:10]), 30)


def test_an_endless_reason_is_cut_and_a_strange_key_stays_readable_to_sqs() -> None:
    """SQS refuses control characters, so they travel escaped; a message never outgrows a queue."""
    sent = Sent()
    Quarantine(lambda: sent, lambda: NOON)([rejected(reason="x" * 500_000, key="a\x00b\ud800")])
    assert sent[0].isascii()
    assert "\x00" not in sent[0]
    assert len(sent[0]) < 10_000
    assert json.loads(sent[0])["key"] == "a\x00b\ud800"


# The queue itself.


@pytest.fixture
def sqs() -> Iterator[Any]:
    with mock_aws():
        yield boto3.client("sqs", region_name="us-east-1")


class Answers:
    """An SQS with given answers: for each request the number of messages it fails, or an error. A refusal inside an
    answer is something emulators cannot be made to give."""

    def __init__(self, *answers: int | Exception, sender_fault: bool = False) -> None:
        self._answers = list(answers)
        self._sender_fault = sender_fault
        self.requests: list[list[str]] = []

    def send_message_batch(self, *, QueueUrl: str, Entries: Sequence[dict[str, str]]) -> dict[str, Any]:  # noqa: N803
        self.requests.append([entry["MessageBody"] for entry in Entries])
        answer = self._answers.pop(0) if self._answers else 0
        if isinstance(answer, Exception):
            raise answer
        code = "InvalidMessageContents" if self._sender_fault else "InternalError"
        failed = [{"Id": e["Id"], "Code": code, "SenderFault": self._sender_fault} for e in Entries[:answer]]
        return {"Successful": [{"Id": entry["Id"]} for entry in Entries[answer:]], "Failed": failed}


def queue(sqs: Answers) -> Queue:
    client: Any = sqs
    return Queue(client, "https://queue", sleep=lambda seconds: None)


def test_a_request_holds_ten_messages_and_no_more_bytes_than_sqs_takes() -> None:
    sqs = Answers()
    queue(sqs).send(["a"] * 11 + ["ä" * (MAX_BYTES // 4)] * 3)
    assert [len(request) for request in sqs.requests] == [10, 2, 2]
    assert all(sum(len(body.encode()) for body in request) <= MAX_BYTES for request in sqs.requests)


def test_only_what_failed_is_sent_again() -> None:
    sqs = Answers(2, 1)
    queue(sqs).send(["a", "b", "c"])
    assert sqs.requests == [["a", "b", "c"], ["a", "b"], ["a"]]


def test_messages_that_keep_failing_raise_transient() -> None:
    with pytest.raises(Transient, match="1 message: InternalError"):
        queue(Answers(1, 1, 1, 1)).send(["a", "b"])


@pytest.mark.parametrize(
    ("failure", "expected"),
    [
        (EndpointConnectionError(endpoint_url="https://queue"), Transient),
        (ClientError({"Error": {"Code": "RequestThrottled"}}, "SendMessageBatch"), Transient),
        (ClientError({"ResponseMetadata": {"HTTPStatusCode": 503}}, "SendMessageBatch"), Transient),  # type: ignore[typeddict-item]
        (ClientError({"Error": {"Code": "AccessDenied"}}, "SendMessageBatch"), Misconfigured),
        (
            ClientError({"Error": {"Code": "AWS.SimpleQueueService.NonExistentQueue"}}, "SendMessageBatch"),
            Misconfigured,
        ),
        (ClientError({"Error": {"Code": "InvalidMessageContents"}}, "SendMessageBatch"), InvalidRequest),
    ],
)
def test_errors_are_reported_in_our_words(failure: Exception, expected: type[Exception]) -> None:
    with pytest.raises(expected):
        queue(Answers(failure)).send(["a"])
