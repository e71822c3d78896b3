"""Lambda function: on a schedule, a slice of the tables is verified. Its settings are in `projections.aws.wiring`."""

import os

from handlers.common import entry_point, logger, tell, throttles, writes
from projections.aws.wiring import audit_from_environment
from projections.operations.audit import Audited


def observe(audited: Audited) -> None:
    tell(audited.counts, (), {})
    if audited.skipped:
        logger.warning("nothing was audited: %s", audited.skipped)
    for drift in audited.drifts:  # keys are told, contents never
        where = {"rule": drift.rule, "key": drift.target, "attribute": drift.attribute, "source": drift.source}
        logger.warning("drift: %s", drift.kind, extra=where)


# At import, for which Lambda lends a whole core.
handler = entry_point(
    audit_from_environment(os.environ, observe=observe, throttled=throttles.add, wrote=writes.add_write).handle
)
