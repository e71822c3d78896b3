"""Metrics of CloudWatch that nothing else tells."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from projections.errors import Transient

__all__ = ["iterator_age", "stream_counts"]

_WINDOW = timedelta(minutes=15)


def iterator_age(cloudwatch: Any, function: str, now: datetime) -> float | None:
    """How many seconds old records are when the function gets them, as of late; None if it got none in 15 minutes.

    Raises Transient if CloudWatch does not tell.
    """
    metric = {
        "Namespace": "AWS/Lambda",
        "MetricName": "IteratorAge",
        "Dimensions": [{"Name": "FunctionName", "Value": function}],
    }
    query = {"Id": "age", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Maximum"}}
    points = [
        point
        for result in _data(cloudwatch, [query], now)
        for point in zip(result.get("Timestamps", []), result.get("Values", []), strict=False)
    ]
    return float(max(points)[1]) / 1000 if points else None


def stream_counts(cloudwatch: Any, mapping: str, table: str, now: datetime) -> dict[str, float]:
    """Return what became of the writes to a table in the last 15 minutes: `writes`, events `polled`, `invoked`, `failed`.

    `writes` are consumed write units; an event is `failed` if the function failed or reported it as failed. A count without
    data is missing. Raises Transient if CloudWatch does not answer.
    """
    events = ("AWS/Lambda", "EventSourceMappingUUID", mapping)
    metrics = {
        "writes": ("ConsumedWriteCapacityUnits", ("AWS/DynamoDB", "TableName", table)),
        "polled": ("PolledEventCount", events),
        "invoked": ("InvokedEventCount", events),
        "failed": ("FailedInvokeEventCount", events),
    }
    queries = []
    for name, (metric, (namespace, dimension, value)) in metrics.items():
        one = {"Namespace": namespace, "MetricName": metric, "Dimensions": [{"Name": dimension, "Value": value}]}
        queries.append({"Id": name, "MetricStat": {"Metric": one, "Period": 60, "Stat": "Sum"}})
    return {one["Id"]: sum(one["Values"]) for one in _data(cloudwatch, queries, now) if one.get("Values")}


def _data(cloudwatch: Any, queries: list[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
    try:
        answer = cloudwatch.get_metric_data(MetricDataQueries=queries, StartTime=now - _WINDOW, EndTime=now)
    except (ClientError, BotoCoreError) as error:
        raise Transient(f"CloudWatch: {error}") from error
    results: list[dict[str, Any]] = answer.get("MetricDataResults", [])
    return results
