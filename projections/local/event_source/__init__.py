"""An imitation of Lambda's event source mapping for DynamoDB Streams, with its checkpoints, retries and filters.

Emulators do not imitate these. Replay, the simulation and local development use it. It has no thread, clock or randomness of
its own: a scheduler asks what is `runnable`, takes the `next_batch`, calls the function and reports the outcome (`finish`).
Time comes from `clock`, and where AWS may do one thing or another, `choose` decides.

    stream = Stream("arn:aws:dynamodb:eu-west-1:111122223333:table/app/stream/2026-01-01T00:00:00.000")
    mapping = Mapping(stream, Settings(batch_size=10))
    stream.append(record)
    mapping.run_until_idle(handler)
"""

from projections.local.event_source.batch import Batch, Discard, Lane
from projections.local.event_source.filters import Filter, FilterError
from projections.local.event_source.mapping import Mapping, steadily
from projections.local.event_source.settings import Settings
from projections.local.event_source.stream import Shard, Stream

__all__ = [
    "Batch",
    "Discard",
    "Filter",
    "FilterError",
    "Lane",
    "Mapping",
    "Settings",
    "Shard",
    "Stream",
    "steadily",
]
