"""What the functions share: how an invocation is logged and measured, and the entry point around it."""

import json
import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from aws_lambda_powertools.logging import Logger
from aws_lambda_powertools.metrics import Metrics, MetricUnit

from projections.aws.wiring import Tally, collect_seldom
from projections.engine.rejections import Rejected
from projections.operations.quarantine import MOST_TRIGGERS

# in ASCII: keys are anybody's text, and logs are read in terminals
logger = Logger(
    service=os.environ.get("POWERTOOLS_SERVICE_NAME", "projections"),
    json_serializer=partial(json.dumps, default=str, separators=(",", ":")),
)
metrics = Metrics(service=logger.service, namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Projections"))
throttles = Tally()
writes = Tally()


def tell(
    counts: Mapping[str, float],
    rejected: Iterable[Rejected],
    failed: Mapping[str, str],
    internal: Iterable[str] = (),
    freshness: Mapping[str, Iterable[float]] = MappingProxyType({}),
    healing: Mapping[str, tuple[int, str]] = MappingProxyType({}),
) -> None:
    """Counts become metrics, reasons logs, those in `failed` by what is to be retried. Internal errors have their traces.

    Keys are told; of contents only the value that a reason is about, up to 40 characters. Throttled requests are counted by
    the limit and the table or index. The write units of each rule are a field of the metrics' line in the log, which the
    dashboard adds up: a metric for each would cost more than most rules. `freshness` has ages in seconds by rule: one metric
    for each.
    """
    throttled = throttles.take()
    for name, count in {**counts, "failures": len(failed), "throttled": sum(throttled.values())}.items():
        metrics.add_metric(name, MetricUnit.Count, count)
    metrics.add_metadata("writes", writes.take())
    for rule, ages in freshness.items():
        for age in ages:
            metrics.add_metric(f"freshness.{rule}", MetricUnit.Seconds, age)
    for one in rejected:
        where = {"rule": one.rule, "table": one.table, "key": one.key, "target": one.target, "fault": one.fault}
        logger.warning("rejected: %s", one.reason, extra={**where, "triggeredBy": one.triggered_by[:MOST_TRIGGERS]})
        if one.trace:
            logger.error("internal error at an item, which is not the cause", extra={**where, "trace": one.trace})
    for what, (times, key) in healing.items():
        logger.warning("healed: %s", what, extra={"times": times, "key": key})
    for trace in internal:
        logger.error("internal error in a batch", extra={"trace": trace})
    for reason, requests in throttled.items():
        logger.warning("throttled: %s", reason, extra={"requests": requests})
    limits = f"; throttled: {', '.join(throttled)}" if throttled else ""
    for identifier, reason in failed.items():
        logger.warning("to be retried: %s%s", reason, limits, extra={"item": identifier})


def entry_point(handle: Callable[[Any, Callable[[], float]], dict[str, Any]]) -> Callable[..., Any]:
    """Call it once all is wired: what is there by then stays, and the garbage collector never looks at it again."""

    @logger.inject_lambda_context(log_event=False)  # said, so that no environment variable makes it log items
    @metrics.log_metrics
    def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
        return handle(event, lambda: context.get_remaining_time_in_millis() / 1000)

    collect_seldom()
    if os.environ.get("POWERTOOLS_TRACE_DISABLED") != "false":
        return handler
    from aws_lambda_powertools.tracing import Tracer  # only then the package needs the X-Ray SDK

    # Traces of AWS's own calls have DynamoDB's error messages, which may quote values.
    calls = os.environ.get("REDACT", "none") in ("", "none")
    return Tracer(auto_patch=calls).capture_lambda_handler(handler, capture_response=False)
