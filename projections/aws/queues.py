"""SQS queues: many messages in as few requests as possible."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from projections.errors import InvalidRequest, Misconfigured, StoreError, Transient

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient

__all__ = ["MAX_BYTES", "Depth", "Message", "Queue"]

MAX_BYTES = 262_144
"""Of a message, and of all messages of one request: a queue may still be set to this, though SQS now allows 1 MiB."""

_LONGEST_DELAY = 900
"""Seconds: SQS holds a message back no longer."""

_MAX_MESSAGES = 10
_ATTEMPTS = 4

_MISCONFIGURED = frozenset(
    {
        "AWS.SimpleQueueService.NonExistentQueue",
        "AccessDenied",
        "AccessDeniedException",
        "InvalidAddress",
        "InvalidClientTokenId",
        "KMS.AccessDeniedException",
        "QueueDoesNotExist",
        "UnrecognizedClientException",
    }
)
_TRANSIENT = frozenset({"RequestThrottled", "Throttling", "ThrottlingException", "ServiceUnavailable", "InternalError"})


@dataclass(frozen=True, slots=True)
class Message:
    """A message as received: nobody else receives it for some time. `receipt` is what it is deleted or released by."""

    id: str
    body: str
    receipt: str


@dataclass(frozen=True, slots=True)
class Depth:
    """About how many messages a queue holds: those that wait, those somebody has received, those held back."""

    waiting: int
    received: int
    delayed: int

    @property
    def total(self) -> int:
        return self.waiting + self.received + self.delayed


class Queue:
    """One queue by its URL. Delivery is at least once: after a failure, what was sent already may be sent again.

    Every method raises `Transient` where SQS does not answer or keeps failing, `Misconfigured` where there is no queue or
    no permission.
    """

    def __init__(self, client: SQSClient, url: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._url = url
        self._sleep = sleep

    def send(self, bodies: Sequence[str], delays: Sequence[float] | None = None) -> None:
        """Sends every body, in no particular order. `delays` gives the seconds for which each is held back, at most 900.

        Raises `InvalidRequest` if a body is refused for what it is.
        """
        for batch in _batches(bodies, delays or [0] * len(bodies)):
            self._send_batch(batch)

    def _send_batch(self, batch: Sequence[tuple[str, int]]) -> None:
        entries: list[dict[str, Any]] = []
        for number, (body, delay) in enumerate(batch):
            entries.append({"Id": str(number), "MessageBody": body})
            if delay:
                entries[-1]["DelaySeconds"] = delay
        self._request(self._client.send_message_batch, entries, "accept")

    def _request(self, ask: Callable[..., Any], entries: list[dict[str, Any]], verb: str) -> None:
        """Request all entries of a batch, and again those that fail."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._sleep(0.1 * 2**attempt)
            failed = {one["Id"]: one for one in self._asked(ask, Entries=entries).get("Failed", [])}
            for one in failed.values():
                if one["SenderFault"]:
                    raise InvalidRequest(
                        f"{self._url} did not {verb} a message: {one['Code']}: {one.get('Message', '')}"
                    )
            entries = [entry for entry in entries if entry["Id"] in failed]
            if not entries:
                return
        messages = "1 message" if len(entries) == 1 else f"{len(entries)} messages"
        raise Transient(f"{self._url} did not {verb} {messages}: {failed[entries[0]['Id']]['Code']}. Try again later")

    def receive(self, seconds: int, *, wait: int = 2) -> list[Message]:
        """Up to 10 messages, which come back after so many seconds unless they are deleted.

        Empty if there are none; then SQS was asked for `wait` seconds, on all its servers if that is not 0.
        """
        answer: Mapping[str, Any] = self._asked(
            self._client.receive_message,
            MaxNumberOfMessages=_MAX_MESSAGES,
            VisibilityTimeout=seconds,
            WaitTimeSeconds=wait,
        )
        return [Message(one["MessageId"], one["Body"], one["ReceiptHandle"]) for one in answer.get("Messages", [])]

    def delete(self, messages: Sequence[Message]) -> None:
        """Deletes messages that were received; one that is gone already is no failure."""
        for entries in self._entries(messages):
            self._request(self._client.delete_message_batch, entries, "delete")

    def release(self, messages: Sequence[Message]) -> None:
        """Lets others receive these messages at once. What cannot be released comes back by itself after its time."""
        for entries in self._entries(messages):
            waiting = [{**entry, "VisibilityTimeout": 0} for entry in entries]
            self._asked(self._client.change_message_visibility_batch, Entries=waiting)

    def depth(self) -> Depth:
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        answer: Mapping[str, Any] = self._asked(self._client.get_queue_attributes, AttributeNames=names)
        return Depth(*(int(answer.get("Attributes", {}).get(name, 0)) for name in names))

    @staticmethod
    def _entries(messages: Sequence[Message]) -> Iterator[list[dict[str, Any]]]:
        for start in range(0, len(messages), _MAX_MESSAGES):
            batch = messages[start : start + _MAX_MESSAGES]
            yield [{"Id": str(number), "ReceiptHandle": one.receipt} for number, one in enumerate(batch)]

    def _asked(self, ask: Callable[..., Any], **parameters: Any) -> Any:
        try:
            return ask(QueueUrl=self._url, **parameters)
        except (ClientError, BotoCoreError) as error:
            raise self._translated(error) from error

    def _translated(self, error: ClientError | BotoCoreError) -> StoreError:
        if not isinstance(error, ClientError):
            return Transient(f"{self._url} was not reached: {error}")
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in _MISCONFIGURED:
            return Misconfigured(
                f"{self._url}: {error}. Check the queue's URL and that you, or the function's role, may do this."
            )
        if code in _TRANSIENT or status >= 500:
            return Transient(f"{self._url}: {error}")
        return InvalidRequest(f"{self._url}: {error}")


def _batches(bodies: Sequence[str], delays: Sequence[float]) -> Iterator[list[tuple[str, int]]]:
    batch: list[tuple[str, int]] = []
    size = 0
    for body, delay in zip(bodies, delays, strict=True):
        length = len(body.encode())
        if length > MAX_BYTES:
            raise InvalidRequest(f"a message of {length} bytes is too large for SQS, which takes {MAX_BYTES}")
        if len(batch) == _MAX_MESSAGES or (batch and size + length > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((body, min(_LONGEST_DELAY, math.ceil(delay))))
        size += length
    if batch:
        yield batch
