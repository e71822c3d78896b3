"""docs/metrics.md: the metrics of `metric_words.py`, and the alarms and graphs of the template that use them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from metric_words import FRESHNESS, METRICS, NAMESPACE

from projections.deploy.cloudformation import template_of
from projections.deploy.needs import Deployment
from projections.deploy.sam_template import sam_template
from projections.engine.processor import Processor
from projections.engine.running import Pacer
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.operations.audit import AuditHandler
from projections.operations.worker import WorkerHandler
from projections.stores.memory import MemoryStore

__all__ = ["SHARED", "emitted", "metrics_page"]

SHARED = ("failures", "throttled")
"""Of all functions: `handlers.common` adds them to the counts of an invocation."""

INTRODUCTION = """\
# Metrics

<!-- Written by tests/docs/reference.py from tests/docs/metric_words.py and the template. -->

The functions write these metrics to CloudWatch in the namespace `Projections`, with one dimension: `service`, the name of
the stack. They are part of the functions' logs (embedded metric format). CloudWatch charges one custom metric for each name
in the first table, and one for each rule. [Alarms](alarms.md) lists the alarms on them.

## Metrics of the functions

Each invocation writes all metrics of its function, also those that are 0: their sums are totals. `freshness` is written for
the rules that read a change and have an active version. Its unit is seconds; use `p50`, `p99` or the maximum. All other
metrics are counts.

"""

DASHBOARD = """
## Dashboard

The dashboard of the stack, `<stack>-<Region>`, has these graphs of the functions' metrics, and others of AWS's metrics for
lag, invocations, queues and tasks:

| graph | metrics |
| --- | --- |
GRAPHS
"""

COMMANDS = """
## Metrics that commands read

`projections status` and the console read `freshness.<rule>`, `healed`, `ignored`, `records`, and metrics of AWS:

| metric | dimension | used for |
| --- | --- | --- |
| `AWS/Lambda IteratorAge` | `FunctionName` | the lag |
| `AWS/Lambda PolledEventCount`, `InvokedEventCount`, `FailedInvokeEventCount` | `EventSourceMappingUUID` | whether the function reads the stream, and fails |
| `AWS/DynamoDB ConsumedWriteCapacityUnits` | `TableName` | whether there is anything to read |
| `AWS/DynamoDB Read…ThrottleEvents`, `Write…ThrottleEvents` (`KeyRangeThroughput`, `ProvisionedThroughput`, `MaxOnDemandThroughput`, `AccountLimit`) | `TableName`, `GlobalSecondaryIndexName` | throttled requests, by limit |
"""  # noqa: E501

RULES = """
table: { key: [PK, SK] }
entities:
  Post: { key: { PK: "POST#{postId}", SK: METADATA } }
  Like: { key: { PK: "USER#{userId}", SK: "LIKE#{postId}" } }
projections:
  likes: { from: Like, aggregate: { into: Post, set: { likeCount: count } }, within: 30s }
"""


@cache
def _program() -> Program:
    return Program.from_document(loads(RULES).document())


@cache
def emitted() -> Mapping[str, tuple[str, ...]]:
    """Return the functions that emit each metric: those that they count in an invocation without work."""
    program = _program()
    store = MemoryStore({**program.tables, "ledger": LEDGER_SCHEMA}, streams=["main"])
    record = {
        "eventName": "INSERT",
        "eventSourceARN": "arn:aws:dynamodb:us-east-1:111122223333:table/main/stream/2026-01-01T00:00:00.000",
        "dynamodb": {
            "ApproximateCreationDateTime": 1.0,
            "SequenceNumber": "100",
            "Keys": {"PK": {"S": "USER#a"}, "SK": {"S": "LIKE#b"}},
            "NewImage": {"PK": {"S": "USER#a"}, "SK": {"S": "LIKE#b"}},
        },
    }
    outcome = Processor(program, store, tables={"main": "main"}).process([record], remaining=lambda: 60.0)
    fresh = [f"freshness.{rule}" for rule in outcome.freshness]
    assert fresh == ["freshness.likes"]
    found: dict[str, list[Mapping[str, float]]] = {
        "stream": [outcome.counts, {FRESHNESS: 1, "writesPerRecord": 1}],
        "worker": [],
        "audit": [],
    }
    WorkerHandler(
        program, store, tasks=lambda *task: None, quarantine=lambda rejected: None, pacer=Pacer(500),
        observe=lambda work: found["worker"].append(work.counts),
    ).handle({"Records": []}, lambda: 60.0)  # fmt: skip
    AuditHandler(
        program, store, observe=lambda audited: found["audit"].append(audited.counts), sleep=lambda seconds: None
    ).handle({}, lambda: 60.0)
    names: dict[str, tuple[str, ...]] = {}
    for function, counted in found.items():
        for name in [*(name for counts in counted for name in counts), *SHARED]:
            names[name] = (*names.get(name, ()), function)
    return names


@cache
def template() -> Mapping[str, Any]:
    found: Mapping[str, Any] = template_of(sam_template(Deployment("rules.yaml", _program(), existing=False))).data
    return found


def alarms() -> Mapping[str, Mapping[str, Any]]:
    """Return the properties of each alarm, by name."""
    resources = template()["Resources"]
    return {
        name: one["Properties"] for name, one in resources.items() if one["Type"] == "AWS::CloudWatch::Alarm"
    }  # fmt: skip


def graphs() -> list[tuple[str, list[str]]]:
    """Return the title of each graph of the dashboard that has metrics of the functions, with their names in order."""
    body = str(template()["Resources"]["Dashboard"]["Properties"]["DashboardBody"]["Fn::Sub"][0])
    found = []
    for widget in json.loads(body)["widgets"]:
        names, before = list[str](), ""
        for metric in widget["properties"].get("metrics", ()):
            if isinstance(metric[0], str):
                before = before if metric[0] == "." else metric[0]
                names += [metric[1]] if before == NAMESPACE else []
            else:
                names += [name for name in METRICS if name not in names and _finds(metric[0]["expression"], name)]
        if names:
            found.append((str(widget["properties"]["title"]), names))
    return found


def _finds(search: str, name: str) -> bool:
    """Return whether a search of CloudWatch finds a metric. `NOT x` excludes metrics; other words are parts of the name."""
    (terms,) = re.findall(r'service="[^"]*"(.*?)\'', search)
    found = re.findall(r'(NOT )?(?:MetricName=)?"?(\w+)"?', terms)
    return all((term in name.split(".")) != bool(no) for no, term in found)


def metrics_page() -> str:
    """Return docs/metrics.md."""
    functions = emitted()
    by_metric = {one["MetricName"]: name for name, one in alarms().items() if one.get("Namespace") == NAMESPACE}
    by_metric = {FRESHNESS if metric.startswith("freshness.") else metric: name for metric, name in by_metric.items()}
    lines = ["| metric | functions | what it counts | if it is high |", "| --- | --- | --- | --- |"]
    for name, metric in METRICS.items():
        action = metric.action
        if alarm := by_metric.get(name):
            action = f"{_alarm(alarm)}: {action}" if action else _alarm(alarm)
        lines.append(f"| `{name}` | {', '.join(functions[name])} | {metric.meaning} | {action} |")
    graph = "".join(f"| {title} | {', '.join(f'`{one}`' for one in names)} |\n" for title, names in graphs())
    return INTRODUCTION + "\n".join(lines) + "\n" + DASHBOARD.replace("GRAPHS\n", graph) + COMMANDS


def _alarm(name: str) -> str:
    link = "rules-reference.md#rules" if name.startswith("Freshness") else f"alarms.md#{name.lower()}"
    return f"[{re.sub('^Freshness.*Alarm', '`Freshness<rule>Alarm`', name)}]({link})"
