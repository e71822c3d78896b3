"""Reads metrics from CloudWatch, and from the log of the stream function what it healed."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from projections.errors import Transient
from projections.operations.health import Overwrite

_WINDOW = timedelta(minutes=15)
_DAY = timedelta(days=1)

_MOST_QUERIES = 500

LIMITS = ("KeyRangeThroughput", "ProvisionedThroughput", "MaxOnDemandThroughput", "AccountLimit")
"""The limits for which DynamoDB throttles, as named in metrics (`WriteKeyRangeThroughputThrottleEvents`) and in the reasons
of exceptions (`TableWriteKeyRangeThroughputExceeded`).
"""


def iterator_age(cloudwatch: Any, function: str, now: datetime) -> float | None:
    """Return the current age in seconds of records when the function gets them; None if it got none in 15 minutes.

    Raises Transient if CloudWatch does not answer.
    """
    query = _query("age", "AWS/Lambda", "IteratorAge", {"FunctionName": function}, "Maximum")
    points = [
        point
        for result in _data(cloudwatch, [query], now)
        for point in zip(result.get("Timestamps", []), result.get("Values", []), strict=False)
    ]
    return float(max(points)[1]) / 1000 if points else None


def freshness(cloudwatch: Any, service: str, rules: Collection[str], now: datetime) -> dict[str, tuple[float, float]]:
    """Return p50 and p99 of the ages in seconds of changes when rules had read them, in the last 15 minutes, by rule.

    `service` is the name of the stack. Rules that read nothing are missing. Raises Transient if CloudWatch does not answer.
    """
    queries = [
        _query(f"{stat}_{number}", "Projections", f"freshness.{rule}", {"service": service}, stat, period=900)
        for number, rule in enumerate(rules)
        for stat in ("p50", "p99")
    ]
    series = (each for each in _data(cloudwatch, queries, now) if each.get("Values"))
    seconds = {each["Id"]: max(map(float, each["Values"])) for each in series}
    return {
        rule: (seconds[f"p50_{number}"], seconds[f"p99_{number}"])
        for number, rule in enumerate(rules)
        if f"p50_{number}" in seconds and f"p99_{number}" in seconds
    }


def stream_counts(cloudwatch: Any, mapping: str, table: str, now: datetime) -> dict[str, float]:
    """Return the counts of a table's stream in the last 15 minutes: `writes`, events `polled`, `invoked`, `failed`.

    `writes` are consumed write units; an event is `failed` if the function failed or reported it as failed. A count without
    data is missing. Raises Transient if CloudWatch does not answer.
    """
    events = {"EventSourceMappingUUID": mapping}
    queries = [
        _query("writes", "AWS/DynamoDB", "ConsumedWriteCapacityUnits", {"TableName": table}),
        _query("polled", "AWS/Lambda", "PolledEventCount", events),
        _query("invoked", "AWS/Lambda", "InvokedEventCount", events),
        _query("failed", "AWS/Lambda", "FailedInvokeEventCount", events),
    ]
    return {series["Id"]: sum(series["Values"]) for series in _data(cloudwatch, queries, now) if series.get("Values")}


def alarms(cloudwatch: Any, stack: str) -> list[dict[str, Any]]:
    """Return the alarms of a stack, whose names are those of CloudFormation, in the form of DescribeAlarms.

    Raises Transient if CloudWatch does not answer.
    """
    own = re.compile(rf"{re.escape(stack)}-[A-Za-z0-9]*Alarm[A-Za-z0-9]*-[A-Za-z0-9]+")
    try:
        pages = cloudwatch.get_paginator("describe_alarms").paginate(AlarmNamePrefix=f"{stack}-")
        return [alarm for page in pages for alarm in page.get("MetricAlarms", []) if own.fullmatch(alarm["AlarmName"])]
    except (ClientError, BotoCoreError) as error:
        raise Transient(f"CloudWatch: {error}") from error


def function_counts(
    cloudwatch: Any, service: str, names: Collection[str], now: datetime
) -> dict[str, list[tuple[datetime, float]]]:
    """Return what the functions counted in the last 24 hours, by metric: the sums of periods of 5 minutes, by their begin.

    `service` is the name of the stack. Periods without a count are missing, and metrics that have none. Raises Transient if
    CloudWatch does not answer.
    """
    queries = [_query(name, "Projections", name, {"service": service}, period=300) for name in names]
    points: dict[str, list[tuple[datetime, float]]] = {}
    for series in _data(cloudwatch, queries, now, _DAY):
        every = zip(series.get("Timestamps", []), series.get("Values", []), strict=False)
        points.setdefault(series["Id"], []).extend((at, value) for at, value in every if value)
    return {name: sorted(series) for name, series in points.items() if series}


_OVERWRITE = re.compile(r"healed: ([^,]+), ([^:]+)(?:: (.*))?")
_MOST_PAGES = 20
"""Pages of a log that are read: each covers a part of it, with or without a line that fits."""


def overwrites(aws_lambda: Any, logs: Any, function: str, start: datetime, end: datetime) -> list[Overwrite]:
    """Return what the function's log has of values that were overwritten between two times, the most frequent first.

    Raises Transient if Lambda or CloudWatch Logs does not answer.
    """
    counts: Counter[tuple[str, str, str]] = Counter()
    keys: dict[tuple[str, str, str], str] = {}
    try:
        configuration = aws_lambda.get_function(FunctionName=function)["Configuration"]
        group = configuration.get("LoggingConfig", {}).get("LogGroup") or f"/aws/lambda/{configuration['FunctionName']}"
        request = {
            "logGroupName": group,
            "filterPattern": '"healed:"',
            "startTime": _millis(start),
            "endTime": _millis(end),
        }
        for _ in range(_MOST_PAGES):
            page = logs.filter_log_events(**request)
            for event in page.get("events", []):
                with suppress(ValueError, KeyError, TypeError):  # a line of another form
                    line = json.loads(event["message"])
                    if match := _OVERWRITE.fullmatch(line["message"]):
                        counts[match[1], match[2], match[3] or ""] += int(line["times"])
                        keys[match[1], match[2], match[3] or ""] = str(line["key"])
            if not page.get("nextToken"):
                break
            request["nextToken"] = page["nextToken"]
    except (ClientError, BotoCoreError) as error:
        raise Transient(f"the function's log: {error}") from error
    return [Overwrite(*what, times, keys[what]) for what, times in counts.most_common()]


def _millis(time: datetime) -> int:
    return int(time.astimezone(UTC).timestamp() * 1000)


def throttle_events(cloudwatch: Any, tables: Mapping[str, Collection[str]], now: datetime) -> dict[str, int]:
    """Return the throttled requests of tables and their indexes in the last 15 minutes, by the reasons of exceptions.

    `tables` has the indexes of each table. A reason is like `TableWriteKeyRangeThroughputExceeded of table/app`. Raises
    Transient if CloudWatch does not answer.
    """
    reasons: list[str] = []
    queries: list[dict[str, Any]] = []
    for table, indexes in tables.items():
        for index in (None, *indexes):
            dimensions = {"TableName": table, **({} if index is None else {"GlobalSecondaryIndexName": index})}
            resource = f"table/{table}" if index is None else f"table/{table}/index/{index}"
            for what in (f"{operation}{limit}" for operation in ("Read", "Write") for limit in LIMITS):
                queries.append(_query(f"m{len(queries)}", "AWS/DynamoDB", f"{what}ThrottleEvents", dimensions))
                reasons.append(f"{'Table' if index is None else 'Index'}{what}Exceeded of {resource}")
    events_by_reason: dict[str, int] = {}
    for result in _data(cloudwatch, queries, now):
        if events := round(sum(result.get("Values", []))):
            events_by_reason[reasons[int(result["Id"][1:])]] = events
    return dict(sorted(events_by_reason.items(), key=lambda counted: -counted[1]))


def _query(
    name: str, namespace: str, metric: str, dimensions: Mapping[str, str], stat: str = "Sum", *, period: int = 60
) -> dict[str, Any]:
    """Return a query of GetMetricData. `period` is in seconds."""
    named = [{"Name": dimension, "Value": value} for dimension, value in dimensions.items()]
    identity = {"Namespace": namespace, "MetricName": metric, "Dimensions": named}
    return {"Id": name, "MetricStat": {"Metric": identity, "Period": period, "Stat": stat}}


def _data(
    cloudwatch: Any, queries: list[dict[str, Any]], now: datetime, window: timedelta = _WINDOW
) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = []
    try:
        for start in range(0, len(queries), _MOST_QUERIES):
            part = queries[start : start + _MOST_QUERIES]
            answer = cloudwatch.get_metric_data(MetricDataQueries=part, StartTime=now - window, EndTime=now)
            results += answer.get("MetricDataResults", [])
    except (ClientError, BotoCoreError) as error:
        raise Transient(f"CloudWatch: {error}") from error
    return results
