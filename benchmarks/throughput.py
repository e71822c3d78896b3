"""From the application's write to the projection on emulators, beside what one would write instead.

`python -m benchmarks.throughput [--events N]`. Every way is the function behind an event source mapping that follows the
table's stream as `projections dev` does. What one would write instead gets only likes, as Lambda's filter would give them;
ours gets the changes of posts too, as its template has it, and so the records of its own writes.

Throughput: so many likes wait in the stream; from the first poll until the function has answered for the last of them.
Latency: an application puts likes at a steady rate; from when DynamoDB acknowledges a like until a reader, who asks again
and again, finds it in the post's count. First of all it waits for a poll, half of `POLL` on average, whatever the way.

Emulators take most of the time, on cores they share with the client: figures are ratios within one run, and say little of
AWS.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from statistics import quantiles
from typing import Any

from benchmarks.baselines import CLAIMS, IDEMPOTENCY, WAYS, Process
from benchmarks.figures import OURS, Figure, lines
from benchmarks.workload import TABLE, likes, program
from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.aws.streams import StreamReader
from projections.aws.wiring import THREADS, StreamHandler
from projections.dev.target import Followed
from projections.engine.processor import Processor
from projections.engine.registry import Registry
from projections.engine.running import at_once
from projections.engine.store import Schema
from projections.language.program import LEDGER_SCHEMA
from projections.local.event_source import Record
from projections.stores.dynamodb import DynamoDBStore

__all__ = ["POLL", "Latency", "latency", "measure", "throughput"]

POLL = 0.2
"""Seconds between polls of a stream that had nothing new, as of `projections dev`; Lambda's are 0.25 apart."""

_POSTS = 10
_LOOK = 0.01
"""Seconds between looks of the reader."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from an acknowledged write to its projection: of the half, and of all but a twentieth."""

    p50: float
    p95: float


class _Place:
    """Fresh tables on an emulator, posts in them, and the function of one way that follows their stream."""

    def __init__(self, endpoint: str, way: str) -> None:
        rules = program()
        self.dynamodb = client(endpoint_url=endpoint, max_pool_connections=THREADS)
        names = {"main": TABLE, "ledger": "bench-ledger"}
        schemas = {**rules.tables, "ledger": LEDGER_SCHEMA}
        create_table(self.dynamodb, TABLE, schemas["main"])
        create_table(self.dynamodb, names["ledger"], LEDGER_SCHEMA, stream=False)
        for name in (CLAIMS, IDEMPOTENCY):
            create_table(self.dynamodb, name, Schema(("id", "S")), stream=False)
        self._made = (*names.values(), CLAIMS, IDEMPOTENCY)
        self._keys = [{"PK": {"S": f"POST#{post}"}, "SK": {"S": "METADATA"}} for post in range(_POSTS)]
        self.put({**key, "title": {"S": "T"}} for key in self._keys)
        arn = self.dynamodb.describe_table(TableName=TABLE)["Table"]["LatestStreamArn"]
        if way in WAYS:
            size, self._function = 100, _only_likes(WAYS[way](self.dynamodb, TABLE))
        else:
            size = next(size for size, name in OURS.items() if name == way)
            store = DynamoDBStore(self.dynamodb, names, schemas)
            Registry(rules, store).read_or_create()
            processor = Processor(rules, store, tables={TABLE: "main"}, run=at_once(THREADS))
            handler = StreamHandler(processor)
            self._function = lambda event: handler.handle(event, lambda: 900.0)
        reader = StreamReader(client("dynamodbstreams", endpoint), arn)
        self._size = size
        self._followed = Followed(reader, latest=False, on_failure=_discarded)
        self._followed.discover()
        self.delivered = 0
        while self.step():
            pass  # the posts

    def put(self, items: Any) -> None:
        left = iter(items)
        while puts := [{"PutRequest": {"Item": item}} for item in islice(left, 25)]:
            self.dynamodb.batch_write_item(RequestItems={TABLE: puts})

    def step(self) -> bool:
        """Polls, unless a batch is there already, and delivers one; whether there was any."""
        if self._followed.waiting < self._size:
            self._followed.poll()
        batch = self._followed.next_batch(self._size)
        if batch is None:
            return False
        self._followed.finish(batch, self._function(batch.event()))
        self.delivered += sum(map(_is_like, batch.records))
        return True

    def counts(self) -> list[int]:
        """How many likes each post shows."""
        asked = {"Keys": self._keys, "ConsistentRead": True}
        found = self.dynamodb.batch_get_item(RequestItems={TABLE: asked})["Responses"][TABLE]
        shown = {item["PK"]["S"]: int(item.get("likeCount", {"N": "0"})["N"]) for item in found}
        return [shown[key["PK"]["S"]] for key in self._keys]

    def close(self) -> None:
        for name in self._made:
            delete_table(self.dynamodb, name)


def _only_likes(process: Process) -> Callable[[Any], Any]:
    def function(event: Any) -> Any:
        if records := [record for record in event["Records"] if _is_like(record)]:
            process(records)

    return function


def _is_like(record: Any) -> bool:
    found: bool = record["dynamodb"]["Keys"]["SK"]["S"].startswith("LIKE#")
    return found


def _discarded(records: tuple[Record, ...], error: BaseException | None) -> None:
    raise AssertionError(f"a batch was given up: {error}: {records}")


@contextmanager
def _place(endpoint: str, way: str) -> Iterator[_Place]:
    place = _Place(endpoint, way)
    try:
        yield place
    finally:
        place.close()


def _items(count: int) -> list[dict[str, Any]]:
    return [record["dynamodb"]["NewImage"] for record in likes(count, _POSTS)]


def throughput(endpoint: str, way: str, events: int) -> float:
    """Events a second, of so many likes of 10 posts that wait in the stream."""
    with _place(endpoint, way) as place:
        place.put(_items(events))
        started = time.perf_counter()
        while place.delivered < events:
            if time.perf_counter() - started > 300:
                raise AssertionError(f"{way}: the stream has {place.delivered} of {events} likes after five minutes")
            place.step()
        seconds = time.perf_counter() - started
        assert sum(place.counts()) == events
    return events / seconds


def latency(endpoint: str, way: str, *, rate: float = 30.0, seconds: float = 4.0) -> Latency:
    """Of likes of 10 posts, so many a second, after a second of the same that warms up."""
    events, warm = int(rate * (seconds + 1)), int(rate)
    with _place(endpoint, way) as place, ThreadPoolExecutor(2) as pool:
        acknowledged: list[float] = []
        seen: list[float] = []
        over = threading.Event()

        def write() -> None:
            started = time.perf_counter()
            for number, item in enumerate(_items(events)):
                time.sleep(max(0.0, started + number / rate - time.perf_counter()))
                place.dynamodb.put_item(TableName=TABLE, Item=item)
                acknowledged.append(time.perf_counter())

        def follow() -> None:
            while not over.is_set():
                if not place.step():
                    over.wait(POLL)

        running = [pool.submit(write), pool.submit(follow)]
        shown = [0] * _POSTS
        deadline = time.perf_counter() + seconds + 60
        try:
            found: dict[int, float] = {}
            while len(found) < events:
                counts, now = place.counts(), time.perf_counter()
                for post, count in enumerate(counts):
                    for turn in range(shown[post], count):
                        found[turn * _POSTS + post] = now
                    shown[post] = max(shown[post], count)
                for future in running:
                    if future.done():
                        future.result()
                assert now < deadline, f"{way}: {len(found)} of {events} likes are counted a minute after the last"
                time.sleep(_LOOK)
            seen = [found[number] for number in range(events)]
        finally:
            over.set()
        running[0].result()
    waits = [1000 * (then - at) for at, then in zip(acknowledged[warm:], seen[warm:], strict=True)]
    cuts = quantiles(waits, n=20)
    return Latency(cuts[9], cuts[18])


def measure(name: str, endpoint: str, events: int) -> Iterator[Figure]:
    """All ways on one emulator, each after a short run that warms it up."""
    case = "likes of 10 posts"
    ways = (*OURS.values(), *WAYS)
    for way in ways:
        throughput(endpoint, way, 100)
    for way in ways:
        rate = throughput(endpoint, way, events)
        yield Figure(f"end to end on {name}", "events per second", case, way, rate)
    for way in ways:
        if way != OURS[1000]:  # what comes one by one makes no such batches
            found = latency(endpoint, way)
            for part, value in (("p50", found.p50), ("p95", found.p95)):
                yield Figure(f"end to end on {name}", "milliseconds from write to projection", part, way, value)


def main() -> None:
    from tests.emulators import dynamodb_local, ministack, running

    parser = argparse.ArgumentParser(prog="python -m benchmarks.throughput")
    parser.add_argument("--events", type=int, default=1000, help="likes that wait in the stream (1,000)")
    given = parser.parse_args()
    for name, emulator in (("DynamoDB Local", dynamodb_local), ("MiniStack", ministack)):
        with running(emulator) as endpoint:
            print(*lines(measure(name, endpoint, given.events)), sep="\n", flush=True)


if __name__ == "__main__":
    main()
