"""A sample of a table: DescribeTable, DescribeTimeToLive and Scan, at a limited rate. Writes nothing."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from projections.aws.live_tables import time_to_live
from projections.errors import UsageError
from projections.init.data_model import Part, table_of
from projections.init.proposal import Sample, Table

_SEGMENTS = 16
_UNIT = 4096
_PER_UNIT = 2
"""Eventually consistent reads cost half: 8 KB for a unit."""
_UNKNOWN_ITEM = 1024
_DENIED = ("AccessDeniedException", "UnrecognizedClientException", "InvalidSignatureException", "ExpiredTokenException")
_IMAGES = "NEW_AND_OLD_IMAGES"


@dataclass
class Reading:
    """The cost of a sample: read units as DynamoDB reports them, and requests."""

    units: float = 0.0
    requests: int = 0
    items: list[dict[str, Any]] = field(default_factory=list)


def describe(dynamodb: Any, name: str) -> tuple[Table, Mapping[str, Any]]:
    """Return the table and DescribeTable's answer. Raises UsageError if there is no table, or it may not be read."""
    with_it = _request(dynamodb, name, "describe it", lambda: dynamodb.describe_table(TableName=name))["Table"]
    stream, ttl = with_it.get("StreamSpecification") or {}, time_to_live(dynamodb, name) or {}
    table = table_of(
        name,
        Part(f"table {name}", with_it),
        ttl.get("AttributeName") if ttl.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") else None,
        stream.get("StreamViewType") if stream.get("StreamEnabled") else None,
    )
    return replace(table, items=with_it.get("ItemCount") or 0, bytes=with_it.get("TableSizeBytes") or 0), with_it


def stream_arn(table: Table, described: Mapping[str, Any]) -> str | None:
    """Return the ARN of the stream, if it has both images."""
    return described.get("LatestStreamArn") if table.stream == _IMAGES else None


def estimated_units(table: Table, size: int) -> int:
    """Return the estimated read units of a sample of so many items, by DynamoDB's counts, or 1 KB each.

    A request costs at least half a unit.
    """
    items = min(size, table.items) if table.items else size
    each = table.bytes / table.items if table.items else _UNKNOWN_ITEM
    return math.ceil(items * each / _UNIT / _PER_UNIT + _segments(size) / _PER_UNIT)


def _segments(size: int) -> int:
    return min(_SEGMENTS, max(1, size // 8))


def read_sample(
    dynamodb: Any, name: str, size: int, rate: float, sleep: Callable[[float], None], reading: Reading
) -> Sample:
    """Return about `size` items of all segments of a table, at most `rate` read units per second; `reading` has the cost.

    Segments are ranges of hashed partition keys, so items of one partition key are read together. Raises UsageError if
    the table may not be read, or is empty.
    """
    segments = _segments(size)
    waiting: dict[int, dict[str, Any] | None] = dict.fromkeys(range(segments))
    while waiting and len(reading.items) < size:
        share = math.ceil((size - len(reading.items)) / len(waiting))
        for segment in list(waiting):
            missing = size - len(reading.items)
            if missing <= 0:
                break
            request: dict[str, Any] = {
                "TableName": name,
                "Segment": segment,
                "TotalSegments": segments,
                "Limit": min(share, missing),
                "ReturnConsumedCapacity": "TOTAL",
            }
            if (start := waiting[segment]) is not None:
                request["ExclusiveStartKey"] = start
            page = _request(dynamodb, name, "read it", lambda request=request: dynamodb.scan(**request))  # type: ignore[misc]
            units = (page.get("ConsumedCapacity") or {}).get("CapacityUnits", 0.0)
            reading.units += units
            reading.requests += 1
            reading.items += [{name: _jsonable(value) for name, value in item.items()} for item in page["Items"]]
            if "LastEvaluatedKey" in page:
                waiting[segment] = page["LastEvaluatedKey"]
                sleep(units / rate)
            else:
                del waiting[segment]
    if not reading.items:
        raise UsageError(
            f"table {name} is empty, so no rules can be inferred. Write some items of each kind first, or omit --table: "
            "`projections init DIRECTORY` creates a project with an example"
        )
    return Sample(reading.items, complete=not waiting, cut=_cut_partitions(waiting.values()))


def _cut_partitions(starts: Iterable[Mapping[str, Any] | None]) -> frozenset[str]:
    """Return the key values of the last items of segments that were not read to the end: more items may have their
    partition key. A scan returns all items of a partition key together. (The values of sort keys do no harm in this set.)
    """
    return frozenset(str(_jsonable(*value.values())) for start in starts if start for value in start.values())


def _jsonable(value: Any) -> Any:
    match value:
        case bytes() | bytearray():
            return b64encode(value).decode()
        case dict():
            return {name: _jsonable(member) for name, member in value.items()}
        case list():
            return [_jsonable(element) for element in value]
    return value


def _request(dynamodb: Any, name: str, what: str, ask: Callable[[], Any]) -> Any:
    """Return the answer of a request. Raises UsageError with the problem and its solution."""
    from botocore.exceptions import BotoCoreError, ClientError

    where = f"{dynamodb.meta.endpoint_url}, {dynamodb.meta.region_name}"
    try:
        return ask()
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code == "ResourceNotFoundException":
            near = ", ".join(_names(dynamodb))
            there = f"; there are {near}" if near else ""
            raise UsageError(
                f"there is no table {name} at {where}{there}. Check name, account, --region and --endpoint-url"
            ) from None
        if code in _DENIED:
            raise UsageError(
                f"table {name} at {where}: these credentials may not {what} ({code}). They need dynamodb:DescribeTable and "
                "dynamodb:Scan on it, nothing more (with dynamodb:DescribeTimeToLive, expiring items are recognised, too)"
            ) from None
        raise UsageError(f"table {name} at {where}: {error}") from None
    except BotoCoreError as error:
        raise UsageError(f"table {name} at {where}: {error}. Check credentials, --region and --endpoint-url") from None


def _names(dynamodb: Any) -> Iterator[str]:
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield from dynamodb.list_tables(Limit=10)["TableNames"]
    except (BotoCoreError, ClientError):
        return
