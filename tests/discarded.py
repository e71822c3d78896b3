"""What Lambda writes to an on-failure destination when it discards a batch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["metadata_of", "object_of"]


def metadata_of(records: tuple[Mapping[str, Any], ...], arn: str) -> dict[str, Any]:
    """Return the message for SQS and SNS: the position of the records in the stream, without the records."""
    first, last = (str(one["dynamodb"]["SequenceNumber"]) for one in (records[0], records[-1]))
    return {
        "requestContext": {
            "requestId": "00000000-0000-4000-8000-000000000001",
            "functionArn": "arn:aws:lambda:us-east-1:000000000000:function:projections",
            "condition": "RetryAttemptsExhausted",
            "approximateInvokeCount": 101,
        },
        "responseContext": {"statusCode": 200, "executedVersion": "$LATEST"},
        "version": "1.0",
        "timestamp": "2023-11-14T22:13:20.000Z",
        "DDBStreamBatchInfo": {
            "shardId": "shardId-1",
            "startSequenceNumber": first,
            "endSequenceNumber": last,
            "approximateArrivalOfFirstRecord": "2023-11-14T22:13:20Z",
            "approximateArrivalOfLastRecord": "2023-11-14T22:13:20Z",
            "batchSize": len(records),
            "streamArn": arn,
        },
    }


def object_of(records: tuple[Mapping[str, Any], ...], arn: str) -> dict[str, Any]:
    """Return the object for S3: the same, with the event as escaped JSON."""
    return metadata_of(records, arn) | {"payload": json.dumps({"Records": list(records)}, separators=(",", ":"))}
