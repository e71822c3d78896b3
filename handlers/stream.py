"""Lambda function: the records of a DynamoDB stream. Its settings are in `projections.aws.wiring`."""

import os

from handlers.common import entry_point, tell, throttles, writes
from projections.aws.wiring import stream_from_environment
from projections.engine.stages import Outcome

FEW = 20
"""With fewer records, one item with many targets is no cause for an alarm."""


def observe(outcome: Outcome) -> None:
    counts = outcome.counts
    targets = sum(counts.get(name, 0) for name in ("published", "healed", "copies"))
    writes_per_record = targets / max(counts.get("records", 0), FEW)
    failed = {} if outcome.failed is None else {outcome.failed: outcome.failed_reason or ""}
    tell(
        {**counts, "writesPerRecord": writes_per_record},
        outcome.rejected,
        failed,
        outcome.internal,
        outcome.freshness,
        outcome.healing,
    )


# At import, for which Lambda lends a whole core.
handler = entry_point(
    stream_from_environment(os.environ, observe=observe, throttled=throttles.add, wrote=writes.add_write).handle
)
