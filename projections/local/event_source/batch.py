"""The records of one invocation, and the meaning of the function's answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from projections.local.event_source.stream import Record, sequence_number

__all__ = ["Batch", "Lane", "first_failed"]


class Lane(NamedTuple):
    """One of the concurrent readers of a shard. ParallelizationFactor is their number; each has one batch at a time."""

    shard: str
    number: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The records of one delivery. `attempt` begins with 1, and again after partial progress."""

    lane: Lane
    records: tuple[Record, ...]
    attempt: int = 1
    redelivery: bool = False

    def event(self) -> dict[str, Any]:
        """Return the event for the function. Like Lambda's, it has no shard ID."""
        return {"Records": list(self.records)}


def first_failed(batch: Batch, response: Any) -> int:
    """Return the index of the first failed record by the answer of ReportBatchItemFailures; the number of records if none
    failed.

    No answer and an empty list of failures are success. The lowest sequence number is the checkpoint. With an identifier
    that is empty, of no record of this batch, or under another key, the whole batch has failed.
    """
    everything = len(batch.records)
    if response is None or response == {}:
        return everything
    if not isinstance(response, Mapping):
        return 0
    if "batchItemFailures" not in response:
        return everything
    failures = response["batchItemFailures"]
    if failures is None or failures == []:
        return everything
    if not isinstance(failures, list):
        return 0
    places = {str(sequence_number(record)): place for place, record in reversed(list(enumerate(batch.records)))}
    lowest = everything
    for failure in failures:
        identifier = failure.get("itemIdentifier") if isinstance(failure, Mapping) else None
        if not isinstance(identifier, str) or not identifier.isdecimal() or str(int(identifier)) not in places:
            return 0
        lowest = min(lowest, places[str(int(identifier))])
    return lowest
