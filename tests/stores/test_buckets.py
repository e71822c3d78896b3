"""Buckets: what is not marked is found, in any number; what S3 answers is translated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from projections.aws import queues
from projections.aws.clients import client
from projections.aws.queues import MARKS, Bucket, Message, Queue
from projections.errors import InvalidRequest, Misconfigured, Transient


@pytest.fixture
def s3() -> Iterator[Any]:
    with mock_aws():
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket="discarded")
        yield s3


def put(s3: Any, *keys: str) -> None:
    for key in keys:
        s3.put_object(Bucket="discarded", Key=key, Body=key.encode())


def test_objects_without_a_mark_are_pending(s3: Any) -> None:
    put(s3, "a/1", "a/2", "a/10", "a/Ä", "b/1", MARKS + "a/0", MARKS + "a/11")  # and marks of what has expired
    bucket = Bucket(s3, "discarded")
    bucket.mark("a/10", "{}")
    bucket.mark("a/Ä", "{}")
    assert list(bucket.pending("a/")) == ["a/1", "a/2"]
    assert list(bucket.pending()) == ["a/1", "a/2", "b/1"]
    assert bucket.read("a/10") == b"a/10"


def test_an_object_that_lambda_cannot_have_written_is_refused(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "_LARGEST", 2**20)
    put(s3, "small")
    s3.put_object(Bucket="discarded", Key="large", Body=b" " * (2**20 + 1))
    with pytest.raises(InvalidRequest, match="more than 1 MiB, so Lambda did not write it"):
        Bucket(s3, "discarded").read("large")
    assert Bucket(s3, "discarded").read("small") == b"small"


def test_more_objects_than_a_page_are_compared_with_more_marks_than_a_page() -> None:
    """S3 lists a thousand keys at a time; here two. No page is read before it is needed."""
    keys = sorted(f"{kind}{number:02}" for kind in ("", MARKS) for number in range(0, 21, 1 if not kind else 3))
    asked: list[str] = []

    class Paged:
        def list_objects_v2(self, Bucket: str, Prefix: str, ContinuationToken: str = "0") -> dict[str, Any]:  # noqa: N803
            asked.append(Prefix)
            start, found = int(ContinuationToken), [key for key in keys if key.startswith(Prefix)]
            page = {
                "Contents": [{"Key": key} for key in found[start : start + 2]],
                "NextContinuationToken": str(start + 2),
            }
            return {**page, "IsTruncated": start + 2 < len(found)} if found else {}

    pending = Bucket(Paged(), "b").pending()
    assert next(pending) == "01"
    assert len(asked) <= 4
    assert ["01", *pending] == [f"{number:02}" for number in range(21) if number % 3]


def test_a_missing_bucket_and_a_missing_object_are_reported(s3: Any) -> None:
    with pytest.raises(Misconfigured, match=r"s3://none: .*Check the bucket's name"):
        list(Bucket(s3, "none").pending())
    with pytest.raises(InvalidRequest, match="s3://discarded"):
        Bucket(s3, "discarded").read("none")


def test_s3_that_does_not_answer_is_transient() -> None:
    with pytest.raises(Transient, match="s3://b was not reached"):
        Bucket(client("s3", "http://127.0.0.1:9"), "b").read("a")


# Queues: received messages are invisible until they are deleted, released, or their timeout is over.


@pytest.fixture
def queue() -> Iterator[Queue]:
    with mock_aws():
        sqs = boto3.client("sqs", region_name="us-east-1")
        yield Queue(sqs, sqs.create_queue(QueueName="letters")["QueueUrl"])


def received(queue: Queue, seconds: int = 300) -> list[Message]:
    found: list[Message] = []
    while messages := queue.receive(seconds, wait=0):
        found += messages
    return found


def test_received_messages_are_invisible_until_they_are_released(queue: Queue) -> None:
    queue.send([str(number) for number in range(23)])
    messages = received(queue)
    assert {one.body for one in messages} == {str(number) for number in range(23)}
    assert received(queue) == []
    assert queue.depth() == 23
    queue.release(messages)
    assert queue.depth() == 23
    assert {one.id for one in received(queue)} == {one.id for one in messages}


def test_deleted_messages_are_gone_and_others_stay(queue: Queue) -> None:
    queue.send([str(number) for number in range(23)])
    messages = received(queue)
    queue.delete([one for one in messages if len(one.body) == 2])
    queue.release([one for one in messages if len(one.body) == 1])
    assert {one.body for one in received(queue)} == {str(number) for number in range(10)}
    assert queue.depth() == 10


def test_messages_that_are_held_back_are_counted(queue: Queue) -> None:
    queue.send(["now", "later"], [0, 60])
    assert queue.depth() == 2


def test_a_queue_that_is_not_there_is_reported() -> None:
    with mock_aws():
        gone = Queue(
            boto3.client("sqs", region_name="us-east-1"), "https://sqs.us-east-1.amazonaws.com/123456789012/no"
        )
        for ask in (lambda: gone.receive(1), gone.depth):
            with pytest.raises(Misconfigured, match="Check the queue's URL"):
                ask()
