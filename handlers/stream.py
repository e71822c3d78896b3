"""Lambda function: the records of a DynamoDB stream. Its settings are in `projections.operations.wiring`."""

import gc
import os
from typing import Any

from aws_lambda_powertools.logging import Logger
from aws_lambda_powertools.metrics import Metrics, MetricUnit

from projections.engine.processor import Outcome
from projections.operations.wiring import stream_from_environment

logger = Logger(service=os.environ.get("POWERTOOLS_SERVICE_NAME", "projections"))
metrics = Metrics(service=logger.service, namespace=os.environ.get("POWERTOOLS_METRICS_NAMESPACE", "Projections"))


def observe(outcome: Outcome) -> None:
    for name, count in {**outcome.counts, "failures": int(outcome.failed is not None)}.items():
        metrics.add_metric(name, MetricUnit.Count, count)
    for one in outcome.rejected:
        logger.warning("rejected: %s", one.reason, extra={"rule": one.rule, "table": one.table, "key": one.key})
    if outcome.failed is not None:
        logger.warning("to be retried: %s", outcome.failed_reason, extra={"sequence": outcome.failed})


stream = stream_from_environment(os.environ, observe=observe)  # at import, for which Lambda lends a whole core
gc.freeze()  # what is here now stays: never look at it again
gc.enable()


@logger.inject_lambda_context(log_event=False)  # said, so that no environment variable makes it log items
@metrics.log_metrics
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    return stream.handle(event, lambda: context.get_remaining_time_in_millis() / 1000)


if os.environ.get("POWERTOOLS_TRACE_DISABLED") == "false":  # only then the package needs the X-Ray SDK
    from aws_lambda_powertools.tracing import Tracer

    handler = Tracer().capture_lambda_handler(handler, capture_response=False)
