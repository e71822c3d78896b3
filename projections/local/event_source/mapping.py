"""The mapping: selects the next records of the function, and evaluates its answers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from projections.local.event_source.batch import Batch, Discard, Lane, first_failed
from projections.local.event_source.settings import Settings
from projections.local.event_source.stream import (
    Record,
    Shard,
    Stream,
    created_at,
    item_hash,
    sequence_number,
    source_arn,
)

__all__ = ["Choose", "Mapping", "steadily"]

Choose: TypeAlias = Callable[[str, int], int]
"""`choose(question, n)` returns one of n possible behaviours, 0 … n - 1; 0 is the usual one."""


def steadily(question: str, courses: int) -> int:
    """Choose the usual behaviour: full batches, exact retries, no needless redelivery."""
    return 0


@dataclass
class _Work:
    """Records that are delivered together until they succeed or are discarded; `span` places of the lane's queue."""

    places: list[int]
    failures: int = 0
    invocations: int = 0


@dataclass
class _Reader:
    """The progress of one lane: places in its shard's records, those to retry first, and the batch in progress."""

    position: int = 0
    retries: deque[_Work] = field(default_factory=deque)
    flying: Batch | None = None
    work: _Work | None = None
    redelivered: bool = False


class Mapping:
    """An event source mapping. Between `next_batch` and `finish` a lane is busy; different lanes may overlap.

    LATEST starts at the end of the stream when the mapping is first used, not when it was made: records in between are
    missed, as in Lambda.
    """

    def __init__(
        self,
        stream: Stream,
        settings: Settings | None = None,
        *,
        clock: Callable[[], float] = lambda: 0.0,
        choose: Choose = steadily,
        on_failure: Callable[[Discard], None] | None = None,
    ) -> None:
        self.stream = stream
        self.settings = settings or Settings()
        self.clock = clock
        self.choose = choose
        self.on_failure = on_failure
        self.discarded: list[Discard] = []
        self.lost: list[Record] = []
        """Records that the stream deleted after its retention, before they were delivered. Lambda does not report them."""
        self._readers: dict[Lane, _Reader] = {}
        self._requests = 0
        self._started = False

    def runnable(self) -> tuple[Lane, ...]:
        """Return the lanes that have a batch to deliver now."""
        self._start()
        ready = []
        for shard in list(self.stream.shards.values()):
            if shard.parent is not None and not self._consumed(shard.parent):
                continue
            for number in range(self.settings.parallelization):
                lane = Lane(shard.id, number)
                reader = self._reader(lane)
                if reader.flying is None and self._settle(lane, reader):
                    ready.append(lane)
        return tuple(ready)

    def next_batch(self, lane: Lane) -> Batch:
        """Take the batch of a runnable lane; the caller invokes the function and then calls `finish`."""
        if lane not in self.runnable():
            raise LookupError(f"{lane} has nothing to deliver, or a batch in flight")
        reader, shard = self._reader(lane), self.stream.shards[lane.shard]
        if reader.retries:
            work = reader.retries.popleft()
            if not reader.retries and self.choose("append newer records to a retry", 2):
                self._fill(work, lane, reader)
        else:
            work = _Work([])
            self._fill(work, lane, reader)
        work.invocations += 1
        reader.work = work
        records = tuple(shard.records[place] for place in work.places)
        reader.flying = Batch(lane, records, work.failures + 1, reader.redelivered)
        return reader.flying

    def finish(self, batch: Batch, response: Any = None, error: BaseException | None = None) -> None:
        """Report the outcome of an invocation. A timeout is an error; do not report an answer that comes after it."""
        reader = self._reader(batch.lane)
        if reader.flying is not batch or reader.work is None:
            raise ValueError("this batch is not in flight")
        work, reader.flying, reader.work = reader.work, None, None
        whole = len(work.places)
        if error is not None:
            failed = 0
        elif self.settings.report_batch_item_failures:
            failed = first_failed(batch, response)
        else:
            failed = whole
        if failed == whole:
            self._succeeded(reader, work)
        elif failed > 0:
            reader.redelivered = False
            reader.retries.appendleft(_Work(work.places[failed:]))
        else:
            self._failed(batch, reader, work, error)

    def rewind(self, shard_id: str, to: int | None = None) -> None:
        """Deliver a shard again from sequence number `to` on (None: all), since Lambda delivers at least once.

        Batches in progress stay with their callers, who must not `finish` them. Overlapping pollers behave like this, too.
        """
        shard = self.stream.shards[shard_id]
        places = [p for p, record in enumerate(shard.records) if to is None or sequence_number(record) >= to]
        if places:
            for number in range(self.settings.parallelization):
                reader = self._reader(Lane(shard_id, number))
                if places[0] < reader.position:
                    self._readers[Lane(shard_id, number)] = _Reader(min(places[0], self._low(reader)))

    def checkpoint(self, shard_id: str) -> int:
        """Return the number of records of a shard that are done, from its beginning up to the first that is not."""
        shard = self.stream.shards[shard_id]
        lows = [self._low(self._reader(Lane(shard_id, n))) for n in range(self.settings.parallelization)]
        return min([len(shard.records), *lows])

    def run_until_idle(self, function: Callable[[dict[str, Any]], Any], *, limit: int | None = None) -> int:
        """Deliver until nothing is left, with lanes in the order of `choose`. Return the number of invocations.

        Raises RuntimeError after `limit` of them: a mapping without MaximumRetryAttempts may retry forever.
        """
        invocations = 0
        while lanes := self.runnable():
            if limit is not None and invocations >= limit:
                raise RuntimeError(f"still busy after {limit} invocations: {', '.join(lane.shard for lane in lanes)}")
            batch = self.next_batch(lanes[self.choose("lane", len(lanes))] if len(lanes) > 1 else lanes[0])
            invocations += 1
            try:
                response = function(batch.event())
            except Exception as error:
                self.finish(batch, error=error)
            else:
                self.finish(batch, response)
        return invocations

    def _start(self) -> None:
        if not self._started:
            self._started = True
            if self.settings.starting_position == "LATEST":
                for shard in self.stream.shards.values():
                    for number in range(self.settings.parallelization):
                        self._readers[Lane(shard.id, number)] = _Reader(len(shard.records))

    def _reader(self, lane: Lane) -> _Reader:
        return self._readers.setdefault(lane, _Reader())

    def _low(self, reader: _Reader) -> int:
        waiting = [*reader.retries, *([reader.work] if reader.work else [])]
        return min([reader.position, *(work.places[0] for work in waiting)])

    def _consumed(self, shard_id: str) -> bool:
        """Return whether a shard is closed and all of it was read, and before that its parent; also for a deleted shard."""
        shard = self.stream.shards.get(shard_id)
        if shard is None:
            return True
        if not shard.closed or (shard.parent is not None and not self._consumed(shard.parent)):
            return False
        for number in range(self.settings.parallelization):
            lane = Lane(shard_id, number)
            reader = self._reader(lane)
            if reader.flying is not None or self._settle(lane, reader):
                return False
        return True

    def _mine(self, lane: Lane, record: Record) -> bool:
        factor = self.settings.parallelization
        return factor == 1 or item_hash(record) % factor == lane.number

    def _passes(self, record: Record) -> bool:
        return not self.settings.filters or any(pattern.matches(record) for pattern in self.settings.filters)

    def _settle(self, lane: Lane, reader: _Reader) -> bool:
        """Skip records that are filtered out, expired or too old. Return whether any are left."""
        shard = self.stream.shards[lane.shard]
        while reader.retries:
            work = reader.retries[0]
            keep = self._drop_old(lane, shard, work.places, work.invocations)
            if keep:
                work.places = keep
                return True
            reader.retries.popleft()
        while reader.position < len(shard.records):
            record = shard.records[reader.position]
            if self._mine(lane, record) and self._passes(record) and self._drop_old(lane, shard, [reader.position], 0):
                return True
            reader.position += 1
        return False

    def _drop_old(self, lane: Lane, shard: Shard, places: list[int], invocations: int) -> list[int]:
        """Return the places without records that the stream deleted, or that are too old for the mapping."""
        now, settings = self.clock(), self.settings
        ages = [now - created if (created := created_at(shard.records[p])) is not None else 0.0 for p in places]
        gone = next((n for n, age in enumerate(ages) if age <= settings.retention), len(ages))
        self.lost.extend(shard.records[place] for place in places[:gone])
        places, ages = places[gone:], ages[gone:]
        if settings.max_age >= 0:
            old = next((n for n, age in enumerate(ages) if age <= settings.max_age), len(ages))
            if old:
                self._discard(
                    lane, "RecordAgeExceeded", tuple(shard.records[p] for p in places[:old]), invocations, None
                )
                places = places[old:]
        return places

    def _fill(self, work: _Work, lane: Lane, reader: _Reader) -> None:
        """Add the next records, up to the batch size or to the records that exist already.

        A batch is from one stream, in ascending order. Recorded events may have what no shard can have (records of two
        streams, a second delivery of a record): such a record begins another batch.
        """
        shard = self.stream.shards[lane.shard]
        chosen: list[int] = list(work.places)
        fresh: list[int] = []
        last = shard.records[chosen[-1]] if chosen else None
        for place in range(reader.position, len(shard.records)):
            if len(chosen) + len(fresh) >= self.settings.batch_size:
                break
            record = shard.records[place]
            if not (self._mine(lane, record) and self._passes(record)):
                continue
            if last is not None and (
                source_arn(record) != source_arn(last) or sequence_number(record) <= sequence_number(last)
            ):
                break
            fresh.append(place)
            last = record
        if chosen:
            taken = fresh
        else:
            taken = fresh[
                : len(fresh) - (self.choose("records left for the next batch", len(fresh)) if fresh[1:] else 0)
            ]
        if taken:
            reader.position = taken[-1] + 1
        work.places = chosen + taken

    def _succeeded(self, reader: _Reader, work: _Work) -> None:
        if not reader.redelivered and self.choose("deliver a batch again that succeeded", 2):
            reader.redelivered = True
            reader.retries.appendleft(_Work(work.places))
        else:
            reader.redelivered = False

    def _failed(self, batch: Batch, reader: _Reader, work: _Work, error: BaseException | None) -> None:
        """Retry a batch of which no record succeeded. Splitting does not count as a retry.

        AWS does not document what Lambda does with bisect if the answer names the first record ("cut at that number" leaves
        all records): halving the batch and retrying the whole are both possible.
        """
        reader.redelivered = False
        count = len(work.places)
        answered = error is None and self.settings.report_batch_item_failures
        if (
            self.settings.bisect
            and count > 1
            and not (answered and self.choose("retry whole what failed at its first record", 2))
        ):
            middle = (count + 1) // 2
            for half in (work.places[middle:], work.places[:middle]):
                reader.retries.appendleft(_Work(half, work.failures, work.invocations))
            return
        work.failures += 1
        if 0 <= self.settings.max_retries < work.failures:
            self._discard(batch.lane, "RetryAttemptsExhausted", batch.records, work.invocations, error)
        else:
            reader.retries.appendleft(work)

    def _discard(
        self, lane: Lane, condition: str, records: tuple[Record, ...], invocations: int, error: BaseException | None
    ) -> None:
        self._requests += 1
        arn = source_arn(records[0]) or self.stream.arn
        discard = Discard(arn, lane.shard, condition, records, invocations, self.clock(), error, request=self._requests)
        self.discarded.append(discard)
        if self.on_failure is not None:
            self.on_failure(discard)
