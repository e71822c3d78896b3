"""Stream records for tests, as short as they can be written."""

from __future__ import annotations

from typing import Any

LABEL = "2026-03-01T09:00:00.000"
ARN = f"arn:aws:dynamodb:eu-west-1:111122223333:table/app/stream/{LABEL}"


def record(number: int, item: str = "", *, at: float = 0, arn: str = ARN, **attributes: Any) -> dict[str, Any]:
    """An INSERT of the item `item` (default: one of its own) with sequence number `number`."""
    keys = {"PK": {"S": item or f"ITEM#{number}"}, "SK": {"S": "A"}}
    return {
        "eventID": f"{number:032x}",
        "eventName": "INSERT",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "eu-west-1",
        "dynamodb": {
            "ApproximateCreationDateTime": at,
            "Keys": keys,
            "NewImage": keys | attributes,
            "SequenceNumber": str(number),
            "SizeBytes": 42,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
        "eventSourceARN": arn,
    }


def numbers(event: dict[str, Any]) -> list[int]:
    """The sequence numbers of an event's records."""
    return [int(r["dynamodb"]["SequenceNumber"]) for r in event["Records"]]
