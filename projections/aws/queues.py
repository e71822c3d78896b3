"""SQS queues, and S3 buckets with the batches that Lambda discarded.

A redriven object gets a mark: an object `redriven/<key>`, of which only the key is read. Nothing is deleted: that needs a
permission that few want to grant, and the images in an object may be the only evidence of what happened. The bucket's
lifecycle rule deletes both. Marks cost one request per thousand objects, tags would cost one per object.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError

from projections.errors import InvalidRequest, Misconfigured, StoreError, Transient
from projections.language.files import at_most

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient


MAX_BYTES = 262_144
"""The maximum size of a message, and of all messages of a request. SQS allows 1 MiB, but a queue may be limited to this."""

_LONGEST_DELAY = 900
"""Seconds: the maximum delay of SQS."""

_MAX_MESSAGES = 10
_ATTEMPTS = 4

_MISCONFIGURED = frozenset(
    {
        *("AWS.SimpleQueueService.NonExistentQueue", "AccessDenied", "AccessDeniedException", "AllAccessDisabled"),
        *("ExpiredToken", "InvalidAccessKeyId", "InvalidAddress", "InvalidClientTokenId", "KMS.AccessDeniedException"),
        *("NoSuchBucket", "PermanentRedirect", "QueueDoesNotExist", "SignatureDoesNotMatch"),
        "UnrecognizedClientException",
    }
)
_TRANSIENT = frozenset(
    {
        *("503", "InternalError", "RequestThrottled", "RequestTimeout", "ServiceUnavailable", "SlowDown", "Throttling"),
        "ThrottlingException",
    }
)


def _translate(error: ClientError | BotoCoreError, place: str, instead: str) -> StoreError:
    """Return our error. `instead` says what to do if the configuration is wrong."""
    if not isinstance(error, ClientError):
        return Transient(f"{place} was not reached: {error}")
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    if code in _MISCONFIGURED or status == 403:
        return Misconfigured(f"{place}: {error}. {instead}")
    if code in _TRANSIENT or status >= 500:
        return Transient(f"{place}: {error}")
    return InvalidRequest(f"{place}: {error}")


class Message(NamedTuple):
    """A received message, which other receivers do not get for some time. `receipt` is needed to delete or release it."""

    id: str
    body: str
    receipt: str


class Queue:
    """A queue by its URL. Delivery is at least once: after a failure, messages may be sent again.

    Every method raises Transient if SQS does not answer or keeps failing, and Misconfigured if the queue does not exist or a
    permission is missing.
    """

    def __init__(self, client: SQSClient, url: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._url = url
        self._sleep = sleep

    def send(self, bodies: Sequence[str], delays: Sequence[float] | None = None) -> None:
        """Send messages in any order. `delays` has the delay of each in seconds, 900 at most.

        Raises InvalidRequest if SQS refuses a message because of its content.
        """
        for batch in _batches(bodies, delays or [0] * len(bodies)):
            entries: list[dict[str, Any]] = [
                {"Id": str(number), "MessageBody": body, **({"DelaySeconds": delay} if delay else {})}
                for number, (body, delay) in enumerate(batch)
            ]
            self._request(self._client.send_message_batch, entries, "accept")

    def _request(self, ask: Callable[..., Any], entries: list[dict[str, Any]], verb: str) -> None:
        """Request all entries of a batch, and again those that fail."""
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._sleep(0.1 * 2**attempt)
            failed = {failure["Id"]: failure for failure in self._ask(ask, Entries=entries).get("Failed", [])}
            for failure in failed.values():
                if failure["SenderFault"]:
                    raise InvalidRequest(
                        f"{self._url} did not {verb} a message: {failure['Code']}: {failure.get('Message', '')}"
                    )
            entries = [entry for entry in entries if entry["Id"] in failed]
            if not entries:
                return
        messages = "1 message" if len(entries) == 1 else f"{len(entries)} messages"
        raise Transient(f"{self._url} did not {verb} {messages}: {failed[entries[0]['Id']]['Code']}. Try again later")

    def receive(self, seconds: int, *, wait: int = 2) -> list[Message]:
        """Return up to 10 messages, which SQS delivers again after `seconds` unless they are deleted.

        If there are none, SQS has waited for `wait` seconds. Unless `wait` is 0, it queried all its servers.
        """
        answer: Mapping[str, Any] = self._ask(
            self._client.receive_message,
            MaxNumberOfMessages=_MAX_MESSAGES,
            VisibilityTimeout=seconds,
            WaitTimeSeconds=wait,
        )
        return [Message(raw["MessageId"], raw["Body"], raw["ReceiptHandle"]) for raw in answer.get("Messages", [])]

    def delete(self, messages: Sequence[Message]) -> None:
        """Delete received messages. Deleting one twice succeeds."""
        for entries in self._entries(messages):
            self._request(self._client.delete_message_batch, entries, "delete")

    def release(self, messages: Sequence[Message]) -> None:
        """Make messages visible to other receivers at once. If that fails, they become visible after their timeout."""
        for entries in self._entries(messages):
            waiting = [{**entry, "VisibilityTimeout": 0} for entry in entries]
            self._ask(self._client.change_message_visibility_batch, Entries=waiting)

    def depth(self) -> int:
        """Return the approximate number of messages in the queue: waiting, received and delayed ones."""
        names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
        answer: Mapping[str, Any] = self._ask(self._client.get_queue_attributes, AttributeNames=names)
        return sum(int(answer.get("Attributes", {}).get(name, 0)) for name in names)

    @staticmethod
    def _entries(messages: Sequence[Message]) -> Iterator[list[dict[str, Any]]]:
        for start in range(0, len(messages), _MAX_MESSAGES):
            batch = messages[start : start + _MAX_MESSAGES]
            yield [{"Id": str(number), "ReceiptHandle": message.receipt} for number, message in enumerate(batch)]

    def _ask(self, ask: Callable[..., Any], **parameters: Any) -> Any:
        try:
            return ask(QueueUrl=self._url, **parameters)
        except (ClientError, BotoCoreError) as error:
            instead = "Check the queue's URL, and your permissions or those of the function's role."
            raise _translate(error, self._url, instead) from error


def _batches(bodies: Sequence[str], delays: Sequence[float]) -> Iterator[list[tuple[str, int]]]:
    batch: list[tuple[str, int]] = []
    size = 0
    for body, delay in zip(bodies, delays, strict=True):
        length = len(body.encode())
        if length > MAX_BYTES:
            raise InvalidRequest(f"a message of {length} bytes is too large for SQS, which accepts {MAX_BYTES}")
        if len(batch) == _MAX_MESSAGES or (batch and size + length > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append((body, min(_LONGEST_DELAY, math.ceil(delay))))
        size += length
    if batch:
        yield batch


MARKS = "redriven/"
"""The prefix of the keys of marks. The key of the marked object follows."""

_LARGEST = 64 * 2**20
"""Bytes of an object. Lambda invokes a function with at most 6 MB."""


class Bucket:
    """A bucket by its name. Raises Transient, Misconfigured or InvalidRequest."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    def pending(self, prefix: str = "") -> Iterator[str]:
        """Yield the keys under a prefix that are not marked, in S3's order. It needs little memory for any number of
        keys.
        """
        marks = self._keys(MARKS + prefix)
        mark = next(marks, None)
        for key in self._keys(prefix):
            if key.startswith(MARKS):
                continue
            wanted = (MARKS + key).encode()
            while mark is not None and mark.encode() < wanted:  # both lists are in UTF-8 order
                mark = next(marks, None)
            if mark is None or mark.encode() != wanted:
                yield key

    def read(self, key: str) -> bytes:
        """Return the content of an object. Raises InvalidRequest if it is larger than one that Lambda writes."""
        content: bytes | None = self._ask(
            lambda: at_most(self._client.get_object(Bucket=self._name, Key=key)["Body"], _LARGEST)
        )
        if content is None:
            raise InvalidRequest(f"it has more than {_LARGEST // 2**20} MiB, so Lambda did not write it")
        return content

    def mark(self, key: str, note: str) -> None:
        """Mark an object as redriven. The note is for people."""
        self._ask(
            lambda: self._client.put_object(
                Bucket=self._name, Key=MARKS + key, Body=note.encode(), ContentType="application/json"
            )
        )

    def _keys(self, prefix: str) -> Iterator[str]:
        page_token: dict[str, Any] = {}
        while True:
            page = self._ask(partial(self._client.list_objects_v2, Bucket=self._name, Prefix=prefix, **page_token))
            yield from (listed["Key"] for listed in page.get("Contents", []))
            if not page.get("IsTruncated"):
                return
            page_token = {"ContinuationToken": page["NextContinuationToken"]}

    def _ask(self, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (ClientError, BotoCoreError) as error:
            instead = "Check the bucket's name, and that you have permission to read and write objects."
            raise _translate(error, f"s3://{self._name}", instead) from error
