"""Batches that a mapping discarded, as its on-failure destination gets them."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from projections.local.event_source.stream import Record, created_at

__all__ = ["Discard"]


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
