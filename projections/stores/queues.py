"""SQS queues: many messages in as few requests as possible."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from projections.errors import InvalidRequest, Misconfigured, StoreError, Transient

if TYPE_CHECKING:
    from mypy_boto3_sqs.client import SQSClient
    from mypy_boto3_sqs.type_defs import SendMessageBatchRequestEntryTypeDef

__all__ = ["MAX_BYTES", "Queue"]

MAX_BYTES = 262_144
"""Of a message, and of all messages of one request: a queue may still be set to this, though SQS now allows 1 MiB."""

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


class Queue:
    """One queue by its URL. Delivery is at least once: after a failure, what was sent already may be sent again."""

    def __init__(self, client: SQSClient, url: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
        self._client = client
        self._url = url
        self._sleep = sleep

    def send(self, bodies: Sequence[str]) -> None:
        """Sends every body, in no particular order.

        Raises `Transient` if SQS keeps failing some of them, `Misconfigured` where there is no queue or no permission,
        and `InvalidRequest` if a body is refused for what it is.
        """
        for batch in _batches(bodies):
            self._send_batch(batch)

    def _send_batch(self, bodies: Sequence[str]) -> None:
        pending: list[SendMessageBatchRequestEntryTypeDef]
        pending = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
        failed: Mapping[str, Any] = {}
        for attempt in range(_ATTEMPTS):
            if attempt:
                self._sleep(0.1 * 2**attempt)
            try:
                answer = self._client.send_message_batch(QueueUrl=self._url, Entries=pending)
            except (ClientError, BotoCoreError) as error:
                raise self._translated(error) from error
            refused = {failure["Id"]: failure for failure in answer.get("Failed", [])}
            for failure in refused.values():
                if failure["SenderFault"]:
                    raise InvalidRequest(
                        f"{self._url} refused a message: {failure['Code']}: {failure.get('Message', '')}"
                    )
            pending = [entry for entry in pending if entry["Id"] in refused]
            if not pending:
                return
            failed = refused[pending[0]["Id"]]
        raise Transient(f"{self._url} did not take {len(pending)} of {len(bodies)} messages: {failed['Code']}")

    def _translated(self, error: ClientError | BotoCoreError) -> StoreError:
        if not isinstance(error, ClientError):
            return Transient(f"{self._url} was not reached: {error}")
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in _MISCONFIGURED:
            return Misconfigured(
                f"{self._url}: {error}. Check the queue's URL and that the role may sqs:SendMessage to it."
            )
        if code in _TRANSIENT or status >= 500:
            return Transient(f"{self._url}: {error}")
        return InvalidRequest(f"{self._url}: {error}")


def _batches(bodies: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for body in bodies:
        length = len(body.encode())
        if length > MAX_BYTES:
            raise InvalidRequest(f"a message of {length} bytes is too large for SQS, which takes {MAX_BYTES}")
        if len(batch) == _MAX_MESSAGES or (batch and size + length > MAX_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(body)
        size += length
    if batch:
        yield batch
