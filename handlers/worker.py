"""Lambda function: tasks from a queue, such as the pages of a push. Its settings are in `projections.aws.wiring`."""

import os

from handlers.common import entry_point, tell, throttles, writes
from projections.aws.wiring import worker_from_environment

# At import, for which Lambda lends a whole core.
handler = entry_point(
    worker_from_environment(
        os.environ,
        observe=lambda work: tell(work.counts, work.rejected, work.failed),
        throttled=throttles.add,
        wrote=writes.add_write,
    ).handle
)
