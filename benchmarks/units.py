"""Write units, read units and API calls per event, exact: from the consumed capacity that MiniStack reports."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from benchmarks.baselines import (
    CLAIMS,
    IDEMPOTENCY,
    WAYS,
    Counters,
    Process,
    conditional_puts,
    counters_of,
    like_count,
)
from benchmarks.workload import COPIES, EIGHT_COUNTERS, TABLE, like, likes, program
from projections.engine.processor import Processor
from projections.engine.registry import Registry
from projections.engine.store import Schema
from projections.language.program import LEDGER_SCHEMA, Program
from projections.stores.aws import client, create_table, delete_table
from projections.stores.dynamodb import DynamoDBStore, Meter

__all__ = ["Units", "measure_all"]


@dataclass(frozen=True, slots=True)
class Units:
    """What a case cost in all, and for how many events, in one of the ways. `case` names the way too, if it is not ours."""

    case: str
    events: int
    write_units: float
    read_units: float
    calls: int
    way: str = "ours"

    @property
    def row(self) -> dict[str, float | str | int]:
        return {
            "way": self.way,
            "case": self.case.removeprefix(f"{self.way}: "),
            "events": self.events,
            "write units per event": round(self.write_units / self.events, 3),
            "read units per event": round(self.read_units / self.events, 3),
            "calls per event": round(self.calls / self.events, 4),
        }


class Bench:
    """Fresh tables on an endpoint, and a processor whose requests are metered."""

    def __init__(self, endpoint: str, rules: Program, posts: int) -> None:
        self._endpoint = endpoint
        self._client = client(endpoint_url=endpoint)
        schemas: Mapping[str, Schema] = {**rules.tables, "ledger": LEDGER_SCHEMA}
        self._names = {name: f"bench-{name}" for name in schemas}
        for name, schema in schemas.items():
            create_table(self._client, self._names[name], schema, stream=name != "ledger")
        self.meter = Meter()
        store = DynamoDBStore(self._client, self._names, schemas, self.meter)
        Registry(rules, store).standing()  # the first invocation ever makes it
        self._processor = Processor(rules, store, tables={TABLE: "main"})
        for post in range(posts):
            item = {"PK": {"S": f"POST#{post}"}, "SK": {"S": "METADATA"}, "title": {"S": f"Post {post}"}}
            self._client.put_item(TableName=self._names["main"], Item=item)
        for number in range(8):
            item = {"PK": {"S": f"COUNTER{number}#x"}, "SK": {"S": "S"}}
            self._client.put_item(TableName=self._names["main"], Item=item)

    def run(self, case: str, records: list[dict[str, Any]]) -> Units:
        self.meter.calls.clear()
        self.meter.read_units = self.meter.write_units = 0.0
        outcome = self._processor.process(records, remaining=lambda: 900.0)
        assert outcome.failed is None, outcome.failed_reason
        assert not outcome.rejected, outcome.rejected
        return Units(case, len(records), self.meter.write_units, self.meter.read_units, sum(self.meter.calls.values()))

    def run_way(self, case: str, name: str, way: Callable[[Any, str], Process], records: list[dict[str, Any]]) -> Units:
        """The same by one of the baselines, metered through botocore's events."""
        counted = client(endpoint_url=self._endpoint)
        spent = {"units": 0.0, "calls": 0}

        def ask(params: dict[str, Any], **_: Any) -> None:
            params["ReturnConsumedCapacity"] = "TOTAL"

        def count(parsed: dict[str, Any], **_: Any) -> None:
            consumed = parsed.get("ConsumedCapacity") or []
            each = [consumed] if isinstance(consumed, dict) else consumed
            spent["units"] += sum(one.get("CapacityUnits", 0.0) for one in each)
            spent["calls"] += 1

        counted.meta.events.register("before-parameter-build.dynamodb", ask)
        counted.meta.events.register("after-call.dynamodb", count)
        way(counted, self._names["main"])(records)
        return Units(f"{name}: {case}", len(records), spent["units"], 0.0, int(spent["calls"]), name)

    def run_ways(self, case: str, records: list[dict[str, Any]], counters: Counters = like_count) -> list[Units]:
        """The same by all baselines that count."""
        return [self.run_way(case, name, partial(way, counters=counters), records) for name, way in WAYS.items()]

    def value(self, post: int, attribute: str) -> str | None:
        item = self._client.get_item(
            TableName=self._names["main"], Key={"PK": {"S": f"POST#{post}"}, "SK": {"S": "METADATA"}}
        ).get("Item", {})
        return item.get(attribute, {}).get("N")

    def side_tables(self) -> None:
        for name in (CLAIMS, IDEMPOTENCY):
            create_table(self._client, name, Schema(("id", "S")), stream=False)
            self._names[name] = name

    def close(self) -> None:
        for name in self._names.values():
            delete_table(self._client, name)


def measure_all(endpoint: str) -> list[Units]:
    """All cases; each is checked to have counted right. What others do per record they do for a hundred."""
    return [*_likes(endpoint), *_eight_counters(endpoint), *_copies(endpoint)]


def _likes(endpoint: str) -> list[Units]:
    found = []
    bench = Bench(endpoint, program(), posts=1000)
    try:
        found.append(bench.run("a lone like", likes(1, 1)))
        found.append(bench.run("1000 likes of one post", likes(1000, 1, first=1000)))
        assert bench.value(0, "likeCount") == "1001"
        spread = likes(1000, 10, first=10_000)
        found.append(bench.run("1000 likes of 10 posts", spread))
        assert bench.value(1, "likeCount") == "100"
        found.append(bench.run("the same 1000 delivered again", spread))
        assert bench.value(1, "likeCount") == "100"
        found.append(bench.run("1000 likes of 1000 posts", likes(1000, 1000, first=20_000)))
        found.append(bench.run("1000 edits that change nothing we keep", [_edited(r) for r in spread]))
        found.append(bench.run("1000 unlikes of 10 posts", [_removed(r) for r in spread]))
        assert bench.value(1, "likeCount") == "1"
        bench.side_tables()
        hundred = likes(100, 10, first=50_000)
        for case, records in (
            ("a lone like", likes(1, 1, first=40_000)),
            ("100 likes of 10 posts", hundred),
            ("the same 100 delivered again", hundred),
            ("100 edits that change nothing we keep", [_edited(r) for r in hundred]),
        ):
            found += bench.run_ways(case, records)
        assert bench.value(1, "likeCount") == "41", (
            "1, and 10 by each way, and 10 again where nobody saw that it was again"
        )
    finally:
        bench.close()
    return found


def _eight_counters(endpoint: str) -> list[Units]:
    bench = Bench(endpoint, program(EIGHT_COUNTERS), posts=0)
    try:
        counters = {f"c{number}": {"S": "x"} for number in range(8)}
        found = [bench.run("one like into 8 counters", [like(1, user=1, post=1, extra=counters)])]
        many = [like(100 + n, user=100 + n, post=1, extra=counters) for n in range(1000)]
        found.append(bench.run("1000 likes into 8 counters", many))
        bench.side_tables()
        one = [like(2000, user=2000, post=1, extra=counters)]
        found += bench.run_ways("one like into 8 counters", one, counters_of)
    finally:
        bench.close()
    return found


def _copies(endpoint: str) -> list[Units]:
    bench = Bench(endpoint, program(COPIES), posts=0)
    try:
        hundred, again = likes(100, 10), likes(100, 10, first=1000)
        found = [bench.run("a lone copy", likes(1, 1, first=500)), bench.run("100 copies", hundred)]
        found.append(bench.run("the same 100 copies again", hundred))
        name = "(d) conditional put"
        for case, records in (("100 copies", again), ("the same 100 copies again", again)):
            found.append(bench.run_way(case, name, conditional_puts, records))
    finally:
        bench.close()
    return found


def _edited(record: dict[str, Any]) -> dict[str, Any]:
    edited = copy.deepcopy(record)
    change = edited["dynamodb"]
    change["OldImage"] = copy.deepcopy(change["NewImage"])
    change["NewImage"]["note"] = {"S": "edited"}
    edited["eventName"] = "MODIFY"
    change["SequenceNumber"] = str(int(change["SequenceNumber"]) + 1_000_000)
    return edited


def _removed(record: dict[str, Any]) -> dict[str, Any]:
    removed = copy.deepcopy(record)
    change = removed["dynamodb"]
    change["OldImage"] = change.pop("NewImage")
    removed["eventName"] = "REMOVE"
    change["SequenceNumber"] = str(int(change["SequenceNumber"]) + 2_000_000)
    return removed
