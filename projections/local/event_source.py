"""An imitation of Lambda's event source mapping for DynamoDB Streams, with its checkpoints and retries.

Emulators do not imitate these. Replay, tests, the simulation and local development use it. It has no thread, clock or
randomness of its own: a scheduler asks which shards are `runnable`, takes the `next_batch`, calls the function and reports
the outcome (`finish`). Where AWS may do one thing or another, `choose` decides. The settings are those of the template:
ReportBatchItemFailures and BisectBatchOnFunctionError, from the beginning of the stream.

    stream = Stream("arn:aws:dynamodb:eu-west-1:111122223333:table/app/stream/2026-01-01T00:00:00.000")
    mapping = EventSourceMapping(stream, batch_size=10)
    stream.append(record)
    mapping.run_until_idle(handler)
"""

from __future__ import annotations

import json
import zlib
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from projections.engine.records import is_sequence, time_of

Record: TypeAlias = Mapping[str, Any]
"""One stream record as Lambda delivers it."""

HASHES = 1 << 32


def change_in(record: Record) -> Mapping[str, Any]:
    """Return the part `dynamodb` of a record, which may be malformed: then nothing."""
    change = record.get("dynamodb")
    return change if isinstance(change, Mapping) else {}


def sequence_number(record: Record) -> int:
    """Return the sequence number of a record as an integer, because it has 21 to 40 digits; 0 if it has none."""
    text = change_in(record).get("SequenceNumber")
    return int(text) if is_sequence(text) else 0


def source_arn(record: Record) -> str:
    """Return the ARN of a record's stream; empty if the record does not have it."""
    return str(record.get("eventSourceARN", ""))


def table_in(arn: str) -> str:
    """Return the table's name in the ARN of a table or stream."""
    return arn.split("/")[1] if "/" in arn else arn


def created_at(record: Record) -> float | None:
    """Return the time of a change in epoch seconds; None if the record does not have it."""
    return time_of(change_in(record))


@dataclass
class Shard:
    """Part of a stream: the records of the items whose hash is in [low, high), while it is open."""

    id: str
    low: int = 0
    high: int = HASHES
    parent: str | None = None
    closed: bool = False
    records: list[Record] = field(default_factory=list)


class Stream:
    """The records of a stream, ordered within a shard. A closed shard is read before its children.

    Shards are split (or rolled over, as DynamoDB does every few hours) on request. A copy of a stream that exists elsewhere
    has no `shards` at first: its reader adds shards and records.
    """

    def __init__(self, arn: str, *, shards: int = 1) -> None:
        self.arn = arn
        self.shards: dict[str, Shard] = {}
        for number in range(shards):
            self._open(HASHES * number // shards, HASHES * (number + 1) // shards, None)

    def append(self, record: Record) -> Shard:
        """Append a record to the open shard of its item. The order of calls is the order of the stream."""
        keys = change_in(record).get("Keys")
        place = zlib.crc32(json.dumps([source_arn(record), keys], sort_keys=True, default=str).encode())
        shard = next(s for s in self.shards.values() if not s.closed and s.low <= place < s.high)
        shard.records.append(record)
        return shard

    def split(self, shard_id: str, *, into: int = 2) -> tuple[Shard, ...]:
        """Close a shard and open its children; `into=1` is a roll-over, which DynamoDB does every few hours."""
        parent = self.shards[shard_id]
        if parent.closed:
            raise ValueError(f"{shard_id} is closed already")
        parent.closed = True
        width = parent.high - parent.low
        bounds = [parent.low + width * number // into for number in range(into + 1)]
        return tuple(self._open(bounds[number], bounds[number + 1], parent.id) for number in range(into))

    def _open(self, low: int, high: int, parent: str | None) -> Shard:
        number = len(self.shards)
        shard = Shard(f"shardId-{number:020}-{zlib.crc32(f'{self.arn}/{number}'.encode()):08x}", low, high, parent)
        self.shards[shard.id] = shard
        return shard


_WINDOW = {"start": "2026-01-01T00:00:00Z", "end": "2026-01-01T00:01:00Z"}
"""The times of every window: nothing depends on them."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The records of one delivery. `attempt` begins with 1, and again after partial progress.

    With `window`, it is of a tumbling window, perhaps its `final` event, which may come `early`, and may have no records.
    """

    shard: str
    records: tuple[Record, ...]
    attempt: int = 1
    window: bool = False
    final: bool = False
    early: bool = False

    def event(self) -> dict[str, Any]:
        """Return the event for the function. Like Lambda's, it has the shard's ID only in a tumbling window."""
        event: dict[str, Any] = {"Records": list(self.records)}
        if self.window:
            event |= {"window": _WINDOW, "state": {}, "shardId": self.shard}
            event |= {"isFinalInvokeForWindow": self.final, "isWindowTerminatedEarly": self.early}
        return event


def _first_failed(batch: Batch, response: Any) -> int:
    """Return the index of the first failed record by the answer of ReportBatchItemFailures; the number of records if none
    failed.

    No answer and an empty list of failures are success. The lowest sequence number is the checkpoint. With an identifier
    that is empty, of no record of this batch, or under another key, the whole batch has failed.
    """
    everything = len(batch.records)
    if not isinstance(response, Mapping | None):
        return 0
    failures = (response or {}).get("batchItemFailures") or []
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


@dataclass
class _Work:
    """The places of records that are delivered together until they succeed or are discarded."""

    places: list[int]
    failures: int = 0


@dataclass
class _Reader:
    """The progress in one shard: the next place, what to retry first, the batch in progress; whether a window is `open`."""

    position: int = 0
    retries: deque[_Work] = field(default_factory=deque)
    flying: Batch | None = None
    work: _Work | None = None
    redelivered: bool = False
    open: bool = False

    @property
    def low(self) -> int:
        """The first place that is not done."""
        waiting = [*self.retries, *([self.work] if self.work else [])]
        return min([self.position, *(work.places[0] for work in waiting if work.places)])


class EventSourceMapping:
    """An event source mapping. Between `next_batch` and `finish` a shard is busy; different shards may overlap.

    `max_retries` -1 retries as long as a batch fails. `choose(question, n)` returns one of n possible behaviours, 0 … n - 1;
    0 is the usual one: full batches, exact retries, no needless redelivery. `on_failure` gets the records that are not
    delivered again, and the error of the last invocation, None if that returned failures.

    With `window`, it has a tumbling window, and no BisectBatchOnFunctionError. This may be changed at any time. A window
    ends with its shard, or earlier.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        batch_size: int = 100,
        max_retries: int = -1,
        window: bool = False,
        choose: Callable[[str, int], int] = lambda question, courses: 0,
        on_failure: Callable[[tuple[Record, ...], BaseException | None], None] | None = None,
    ) -> None:
        self.stream = stream
        self.batch_size = batch_size
        self.max_retries = max_retries
        self.window = window
        self.choose = choose
        self._on_failure = on_failure
        self._readers: dict[str, _Reader] = {}

    def runnable(self) -> tuple[str, ...]:
        """Return the IDs of the shards that have a batch to deliver now."""
        ready = []
        for shard in list(self.stream.shards.values()):
            if shard.parent is not None and not self._is_consumed(shard.parent):
                continue
            reader = self._reader(shard.id)
            if reader.flying is None and self._has_more(shard, reader):
                ready.append(shard.id)
        return tuple(ready)

    def next_batch(self, shard_id: str) -> Batch:
        """Take the batch of a runnable shard; the caller invokes the function and then calls `finish`."""
        if shard_id not in self.runnable():
            raise LookupError(f"{shard_id} has nothing to deliver, or a batch in flight")
        reader, shard = self._reader(shard_id), self.stream.shards[shard_id]
        if reader.retries:
            work = reader.retries.popleft()
            if work.places and not reader.retries and self.choose("append newer records to a retry", 2):
                self._fill(work, shard, reader)
        else:
            work = _Work([])
            self._fill(work, shard, reader)
        reader.work = work
        records = tuple(shard.records[place] for place in work.places)
        end = self.choose("end the window with these records, or early", 3) if self.window and records else not records
        reader.flying = Batch(shard_id, records, work.failures + 1, self.window, end > 0, end == 2)
        return reader.flying

    def finish(self, batch: Batch, response: Any = None, error: BaseException | None = None) -> None:
        """Report the outcome of an invocation. A timeout is an error; do not report an answer that comes after it."""
        reader = self._reader(batch.shard)
        if reader.flying is not batch or reader.work is None:
            raise ValueError("this batch is not in flight")
        work, reader.flying, reader.work = reader.work, None, None
        answered = error is None and (not batch.window or (isinstance(response, Mapping) and "state" in response))
        failed = _first_failed(batch, response) if answered else 0
        if answered and failed == len(work.places):
            reader.open = self.window and not batch.final
            if reader.open and self.choose("end the window without records", 2):
                reader.retries.append(_Work([]))
            again = work.places and not reader.redelivered and self.choose("deliver a batch again that succeeded", 2)
            reader.redelivered = bool(again)
            if again:
                reader.retries.appendleft(_Work(work.places))
        elif failed > 0:
            reader.redelivered = False
            reader.retries.appendleft(_Work(work.places[failed:]))
        else:
            self._retry(batch, reader, work, error)

    def rewind(self, shard_id: str, to: int | None = None) -> None:
        """Deliver a shard again from sequence number `to` on (None: all), since Lambda delivers at least once.

        Batches in progress stay with their callers, who must not `finish` them. Overlapping pollers behave like this, too.
        """
        shard = self.stream.shards[shard_id]
        places = [p for p, record in enumerate(shard.records) if to is None or sequence_number(record) >= to]
        reader = self._reader(shard_id)
        if places and places[0] < reader.position:
            self._readers[shard_id] = _Reader(min(places[0], reader.low))

    def checkpoint(self, shard_id: str) -> int:
        """Return the number of records of a shard that are done, from its beginning up to the first that is not."""
        return min(len(self.stream.shards[shard_id].records), self._reader(shard_id).low)

    def run_until_idle(self, function: Callable[[dict[str, Any]], Any]) -> int:
        """Deliver until nothing is left, with shards in the order of `choose`. Return the number of invocations.

        Without `max_retries`, a batch that always fails is delivered forever.
        """
        invocations = 0
        while shards := self.runnable():
            batch = self.next_batch(shards[self.choose("shard", len(shards))] if len(shards) > 1 else shards[0])
            invocations += 1
            try:
                response = function(batch.event())
            except Exception as error:
                self.finish(batch, error=error)
            else:
                self.finish(batch, response)
        return invocations

    def _reader(self, shard_id: str) -> _Reader:
        return self._readers.setdefault(shard_id, _Reader())

    def _is_consumed(self, shard_id: str) -> bool:
        """Return whether a shard is closed and all of it was read, and before that its parent; also for a deleted shard."""
        shard = self.stream.shards.get(shard_id)
        if shard is None:
            return True
        if not shard.closed or (shard.parent is not None and not self._is_consumed(shard.parent)):
            return False
        reader = self._reader(shard_id)
        return reader.flying is None and not self._has_more(shard, reader)

    @staticmethod
    def _has_more(shard: Shard, reader: _Reader) -> bool:
        return bool(reader.retries) or reader.position < len(shard.records) or (reader.open and shard.closed)

    def _fill(self, work: _Work, shard: Shard, reader: _Reader) -> None:
        """Add the next records, up to the batch size or to the records that exist already.

        A batch is from one stream, in ascending order. Recorded events may have what no shard can have (records of two
        streams, a second delivery of a record): such a record begins another batch.
        """
        chosen: list[int] = list(work.places)
        fresh: list[int] = []
        last = shard.records[chosen[-1]] if chosen else None
        for place in range(reader.position, len(shard.records)):
            if len(chosen) + len(fresh) >= self.batch_size:
                break
            record = shard.records[place]
            if last is not None and (
                source_arn(record) != source_arn(last) or sequence_number(record) <= sequence_number(last)
            ):
                break
            fresh.append(place)
            last = record
        if not chosen and fresh[1:]:
            fresh = fresh[: len(fresh) - self.choose("records left for the next batch", len(fresh))]
        if fresh:
            reader.position = fresh[-1] + 1
        work.places = chosen + fresh

    def _retry(self, batch: Batch, reader: _Reader, work: _Work, error: BaseException | None) -> None:
        """Retry a batch of which no record succeeded. Splitting does not count as a retry.

        AWS does not document what Lambda does with bisect if the answer names the first record ("cut at that number" leaves
        all records): halving the batch and retrying the whole are both possible. Nor that a retry in a window has the same
        records: it may have fewer.
        """
        reader.redelivered = False
        count = first = len(work.places)
        reader.open = reader.open and count > 0
        if self.window:
            first -= self.choose("records left for a later retry", count) if count > 1 else 0
        elif count > 1 and not (error is None and self.choose("retry whole what failed at its first record", 2)):
            first = (count + 1) // 2
        if first < count:
            for part in (work.places[first:], work.places[:first]):
                reader.retries.appendleft(_Work(part, work.failures))
            return
        work.failures += 1
        if self.max_retries < 0 or work.failures <= self.max_retries:
            reader.retries.appendleft(work)
        elif self._on_failure is not None:
            self._on_failure(batch.records, error)
