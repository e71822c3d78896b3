"""The records of one invocation, the meaning of the answer of the function, and batches that a mapping discarded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from projections.local.event_source.stream import Record, created_at, sequence_number

__all__ = ["Batch", "Discard", "Lane", "first_failed"]


class Lane(NamedTuple):
    """One of the concurrent readers of a shard. ParallelizationFactor is their number; each has one batch at a time."""

    shard: str
    number: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The records of one delivery. `attempt` begins with 1, and again after partial progress."""

    lane: Lane
    records: tuple[Record, ...]
    attempt: int = 1
    redelivery: bool = False

    def event(self) -> dict[str, Any]:
        """Return the event for the function. Like Lambda's, it has no shard ID."""
        return {"Records": list(self.records)}


def first_failed(batch: Batch, response: Any) -> int:
    """Return the index of the first failed record by the answer of ReportBatchItemFailures; the number of records if none
    failed.

    No answer and an empty list of failures are success. The lowest sequence number is the checkpoint. With an identifier
    that is empty, of no record of this batch, or under another key, the whole batch has failed.
    """
    everything = len(batch.records)
    if response is None or response == {}:
        return everything
    if not isinstance(response, Mapping):
        return 0
    if "batchItemFailures" not in response:
        return everything
    failures = response["batchItemFailures"]
    if failures is None or failures == []:
        return everything
    if not isinstance(failures, list):
        return 0
    places = {str(sequence_number(record)): place for place, record in reversed(list(enumerate(batch.records)))}
    lowest = everything
    for failure in failures:
        identifier = failure.get("itemIdentifier") if isinstance(failure, Mapping) else None
        if not isinstance(identifier, str) or not identifier.isdecimal() or str(int(identifier)) not in places:
            return 0
        lowest = min(lowest, places[str(int(identifier))])
    return lowest


@dataclass(frozen=True, slots=True)
class Discard:
    """A batch that is not delivered again.

    `condition` is RetryAttemptsExhausted or RecordAgeExceeded; `error` is the error of the last invocation, None if it
    returned failures or did not take place.
    """

    stream_arn: str
    shard: str
    condition: str
    records: tuple[Record, ...]
    invocations: int
    at: float
    error: BaseException | None = None
    function_arn: str = "arn:aws:lambda:us-east-1:000000000000:function:projections"
    request: int = 1

    def metadata(self) -> dict[str, Any]:
        """Return the message for SQS and SNS: the position of the records in the stream, without the records."""
        first, last = self.records[0], self.records[-1]
        message: dict[str, Any] = {
            "requestContext": {
                "requestId": f"00000000-0000-4000-8000-{self.request:012}",
                "functionArn": self.function_arn,
                "condition": self.condition,
                "approximateInvokeCount": self.invocations,
            },
        }
        if self.invocations:
            answer: dict[str, Any] = {"statusCode": 200, "executedVersion": "$LATEST"}
            if self.error is not None:
                answer["functionError"] = "Unhandled"
            message["responseContext"] = answer
        return message | {
            "version": "1.0",
            "timestamp": _text(self.at, "milliseconds"),
            "DDBStreamBatchInfo": {
                "shardId": self.shard,
                "startSequenceNumber": str(first.get("dynamodb", {}).get("SequenceNumber", "")),
                "endSequenceNumber": str(last.get("dynamodb", {}).get("SequenceNumber", "")),
                "approximateArrivalOfFirstRecord": _text(created_at(first) or 0, "seconds"),
                "approximateArrivalOfLastRecord": _text(created_at(last) or 0, "seconds"),
                "batchSize": len(self.records),
                "streamArn": self.stream_arn,
            },
        }

    def with_payload(self) -> dict[str, Any]:
        """Return the object for S3: the same, with the event as escaped JSON, which stays longer than the stream's 24
        hours.
        """
        return self.metadata() | {"payload": json.dumps({"Records": list(self.records)}, separators=(",", ":"))}


def _text(seconds: float, precision: str) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec=precision).replace("+00:00", "Z")
