"""Metrics of CloudWatch that nothing else tells."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from projections.errors import Transient

__all__ = ["iterator_age"]

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
    try:
        answer = cloudwatch.get_metric_data(MetricDataQueries=[query], StartTime=now - _WINDOW, EndTime=now)
    except (ClientError, BotoCoreError) as error:
        raise Transient(f"CloudWatch: {error}") from error
    points = [
        point
        for result in answer.get("MetricDataResults", [])
        for point in zip(result.get("Timestamps", []), result.get("Values", []), strict=False)
    ]
    return float(max(points)[1]) / 1000 if points else None
