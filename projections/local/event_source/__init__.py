"""Lambda's event source mapping for DynamoDB Streams, imitated: no emulator has its checkpoints, retries and filters.

One implementation serves replay, the simulation and local development. It has no thread, clock or randomness of its
own: a scheduler asks what is `runnable`, takes the `next_batch`, calls the function itself and says how it ended
(`finish`). Time comes from the `clock` it is given, and wherever AWS may do one thing or another the `choose` it is
given decides.

    stream = Stream("arn:aws:dynamodb:eu-west-1:111122223333:table/app/stream/2026-01-01T00:00:00.000")
    mapping = Mapping(stream, Settings(batch_size=10))
    stream.append(record)
    mapping.run_until_idle(handler)
"""

from projections.local.event_source.batch import Batch, Lane
from projections.local.event_source.discard import Discard
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
