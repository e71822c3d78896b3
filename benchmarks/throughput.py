"""Events end to end on emulators, beside what one would write instead: `python -m benchmarks.throughput [SOURCES]`.

Emulators take most of the time, on cores they share with the client: figures are ratios within one run, and say little of
AWS. What they show is growth: a batch on a table of a hundred thousand source items must cost what it costs on a thousand.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from benchmarks.baselines import CLAIMS, IDEMPOTENCY, WAYS
from benchmarks.workload import TABLE, like, likes, program
from projections.engine.processor import Processor
from projections.engine.registry import Registry
from projections.engine.store import Schema
from projections.language.program import LEDGER_SCHEMA
from projections.operations.wiring import THREADS, at_once
from projections.stores.aws import client, create_table, delete_table
from projections.stores.dynamodb import DynamoDBStore

__all__ = ["TARGETS", "Grown", "Rate", "growth", "rates"]

TARGETS = {1: 1_000_000, 10: 1_000_000, 1000: 3000}
"""Over how many targets the likes are spread, and up to how many of them: where they share none, each is published alone."""

_BATCH = 100
_POSTS = 10


@dataclass(frozen=True, slots=True)
class Rate:
    """Events a second, one batch after the other, and the time from a batch's arrival to its last projection."""

    emulator: str
    way: str
    events_per_second: float
    batch_milliseconds: float


@dataclass(frozen=True, slots=True)
class Grown:
    """What an event takes once so many source items were counted onto so many targets, and the memory by then."""

    emulator: str
    sources: int
    targets: int
    microseconds: float
    cpu_microseconds: float
    megabytes: float


class _Place:
    """Tables of our own on an emulator, with the ledger in force, and posts to be counted onto."""

    def __init__(self, endpoint: str, posts: int) -> None:
        rules = program()
        self.client = client(endpoint_url=endpoint, max_pool_connections=THREADS)
        schemas = {**rules.tables, "ledger": LEDGER_SCHEMA}
        names = {"main": TABLE, "ledger": "bench-ledger"}
        self._made = [*names.values(), CLAIMS, IDEMPOTENCY]
        for name, schema in zip(self._made, [*schemas.values(), Schema(("id", "S")), Schema(("id", "S"))], strict=True):
            create_table(self.client, name, schema, stream=False)
        items = [{"PK": {"S": f"POST#{post}"}, "SK": {"S": "METADATA"}, "title": {"S": "T"}} for post in range(posts)]
        for start in range(0, posts, 25):
            puts = [{"PutRequest": {"Item": item}} for item in items[start : start + 25]]
            self.client.batch_write_item(RequestItems={TABLE: puts})
        store = DynamoDBStore(self.client, names, schemas)
        Registry(rules, store).standing()
        self._processor = Processor(rules, store, tables={TABLE: "main"}, run=at_once(THREADS))

    def process(self, records: list[dict[str, Any]]) -> None:
        outcome = self._processor.process(records, remaining=lambda: 900.0)
        assert outcome.failed is None, outcome.failed_reason

    def close(self) -> None:
        for name in self._made:
            delete_table(self.client, name)


def rates(emulator: str, endpoint: str, batches: int = 5) -> list[Rate]:
    """Each way on batches of 100 likes of 10 posts, in turn, each after a batch to warm up."""
    place = _Place(endpoint, _POSTS)
    try:
        ways: dict[str, Callable[[list[dict[str, Any]]], None]] = {
            "ours": place.process,
            **{name: way(place.client, TABLE) for name, way in WAYS.items()},
        }
        spent: dict[str, list[float]] = {name: [] for name in ways}
        for turn in range(batches + 1):
            for number, (name, process) in enumerate(ways.items()):
                records = likes(_BATCH, _POSTS, first=(turn * len(ways) + number) * _BATCH)
                started = time.perf_counter()
                process(records)
                if turn:
                    spent[name].append(time.perf_counter() - started)
        return [Rate(emulator, name, _BATCH / median(times), 1000 * median(times)) for name, times in spent.items()]
    finally:
        place.close()


def growth(emulator: str, endpoint: str, sources: int, targets: int) -> list[Grown]:
    """Counts likes by ever more users; tells of the last ten batches at each power of ten from a thousand."""
    batch = 1000
    place = _Place(endpoint, targets)
    found: list[Grown] = []
    last: list[tuple[float, float]] = []
    mark = batch
    try:
        for seen in range(0, sources, batch):
            records = [like(number, user=number, post=number % targets) for number in range(seen, seen + batch)]
            started, worked = time.perf_counter(), time.process_time()
            place.process(records)
            last = [*last[-9:], (time.perf_counter() - started, time.process_time() - worked)]
            if seen + batch in (mark, sources):
                gc.collect()
                seconds, cpu = (median(times) / batch * 1e6 for times in zip(*last, strict=True))
                peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
                found.append(Grown(emulator, seen + batch, targets, seconds, cpu, peak))
                mark *= 10
        return found
    finally:
        place.close()


def main(sources: int) -> None:
    from tests.emulators import dynamodb_local, ministack, running

    for emulator in (dynamodb_local, ministack):
        name = emulator.__name__
        with running(emulator) as endpoint:
            for targets, most in TARGETS.items():
                for each in growth(name, endpoint, min(sources, most), targets):
                    print(asdict(each), flush=True)
            for rate in rates(name, endpoint):
                print(asdict(rate), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000)
