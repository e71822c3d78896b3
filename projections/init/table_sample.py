"""A sample of a table: DescribeTable, DescribeTimeToLive and Scan, at a limited rate. Writes nothing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from projections.aws.clients import reason_of
from projections.aws.live_tables import describe_table, time_to_live
from projections.errors import UsageError
from projections.init.data_model import Part, table_of
from projections.init.proposal import Sample, Table
from projections.language.values import Image
from projections.stores.wire import from_boto

_SEGMENTS = 16
_BYTES_PER_UNIT = 8192
"""Eventually consistent reads cost half: 8 KB for a unit."""
_UNKNOWN_ITEM = 1024


def describe(dynamodb: Any, name: str) -> Table:
    """Return the table. Raises UsageError if there is no table, or it may not be read."""
    with_it = describe_table(dynamodb, name)
    stream, ttl = with_it.get("StreamSpecification") or {}, time_to_live(dynamodb, name) or {}
    table = table_of(
        name,
        Part(f"table {name}", with_it),
        ttl.get("AttributeName") if ttl.get("TimeToLiveStatus") in ("ENABLED", "ENABLING") else None,
        stream.get("StreamViewType") if stream.get("StreamEnabled") else None,
    )
    arn = with_it.get("LatestStreamArn") if table.stream == "NEW_AND_OLD_IMAGES" else None
    items, size = with_it.get("ItemCount") or 0, with_it.get("TableSizeBytes") or 0
    return replace(table, items=items, bytes=size, stream_arn=arn)


def estimated_units(table: Table, size: int) -> int:
    """Return the estimated read units of a sample of so many items, by DynamoDB's counts, or 1 KB each.

    A request costs at least half a unit.
    """
    items = min(size, table.items) if table.items else size
    each = table.bytes / table.items if table.items else _UNKNOWN_ITEM
    return math.ceil(items * each / _BYTES_PER_UNIT + _segments(size) / 2)


def _segments(size: int) -> int:
    return min(_SEGMENTS, max(1, size // 8))


def read_sample(dynamodb: Any, name: str, size: int, rate: float, sleep: Callable[[float], None]) -> Sample:
    """Return about `size` items of all segments of a table, read at most at `rate` read units per second.

    Segments are ranges of hashed partition keys, so items of one partition key are read together. Raises UsageError if
    the table may not be read, or is empty.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    segments = _segments(size)
    waiting: dict[int, dict[str, Any]] = {segment: {} for segment in range(segments)}
    items: list[Image] = []
    units, requests = 0.0, 0
    while waiting and len(items) < size:
        share = math.ceil((size - len(items)) / len(waiting))
        for segment, start in list(waiting.items()):
            limit = min(share, size - len(items))
            if not limit:
                break
            scan = {"TableName": name, "TotalSegments": segments, "ReturnConsumedCapacity": "TOTAL"}
            try:
                page = dynamodb.scan(**scan, Segment=segment, Limit=limit, **start)
            except (ClientError, BotoCoreError) as error:
                raise UsageError(f"table {name}: {reason_of(error)}") from None
            used = page.get("ConsumedCapacity", {}).get("CapacityUnits", 0.0)
            items += map(from_boto, page["Items"])
            units, requests = units + used, requests + 1
            if "LastEvaluatedKey" in page:
                waiting[segment] = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
                sleep(used / rate)
            else:
                del waiting[segment]
    if not items:
        raise UsageError(
            f"table {name} is empty, so no rules can be inferred. Write some items of each kind first, or omit --table: "
            "`projections init DIRECTORY` creates a project with an example"
        )
    # A scan returns all items of a partition key together: only that of the last item may have more.
    # (The values of sort keys do no harm in this set.)
    last = [from_boto(start["ExclusiveStartKey"]) for start in waiting.values() if start]
    cut = frozenset(str(content) for key in last for value in key.values() for content in value.values())
    return Sample(items, not waiting, cut, units, requests)
