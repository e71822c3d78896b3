"""Stream events of invented items."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from projections.language.values import Image

__all__ = ["event_file", "record"]

_BEGIN = 1_767_225_600
_FIRST = 100_000_000_000_000_000_001
_STEP = 811


def record(table: str, keys: Sequence[str], number: int, old: Image | None, new: Image | None) -> dict[str, Any]:
    """Return the stream record of the change with this number, as Lambda delivers it."""
    item = new if new is not None else old
    assert item is not None
    body: dict[str, Any] = {
        "ApproximateCreationDateTime": _BEGIN + 60 * number,
        "Keys": {name: item[name] for name in keys},
    }
    if new is not None:
        body["NewImage"] = dict(new)
    if old is not None:
        body["OldImage"] = dict(old)
    body["SequenceNumber"] = str(_FIRST + _STEP * number)
    body["SizeBytes"] = len(json.dumps([old, new]))
    body["StreamViewType"] = "NEW_AND_OLD_IMAGES"
    return {
        "eventID": hashlib.sha256(f"{table} {number}".encode()).hexdigest()[:32],
        "eventName": "INSERT" if old is None else "REMOVE" if new is None else "MODIFY",
        "eventVersion": "1.1",
        "eventSource": "aws:dynamodb",
        "awsRegion": "eu-west-1",
        "dynamodb": body,
        "eventSourceARN": f"arn:aws:dynamodb:eu-west-1:111122223333:table/{table}/stream/2026-01-01T00:00:00.000",
    }


def event_file(records: Sequence[Mapping[str, Any]]) -> str:
    """Return records as the text of a Lambda event."""
    return json.dumps({"Records": records}, indent=2, ensure_ascii=False) + "\n"
