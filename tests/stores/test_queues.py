"""Queues: received messages are invisible until they are deleted, released, or their timeout is over."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from projections.aws.queues import Message, Queue
from projections.errors import Misconfigured


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
