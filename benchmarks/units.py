"""Write units, read units and API calls per event, exact, beside what one would write instead: `python -m benchmarks.units`.

Each case is checked to have counted right. Calls are those that DynamoDB Local gets, units those DynamoDB charges for them
(`benchmarks.charges`); beside them those MiniStack reports, which refuses statements and gets single updates instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
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
from benchmarks.charges import Charges, metered, try_statements
from benchmarks.figures import LANES, OURS, Figure, lines
from benchmarks.workload import COPIES, EIGHT_COUNTERS, EIGHT_OF_ONE, TABLE, edited, like, likes, program, removed
from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.engine.processor import Processor
from projections.engine.registry import Registry
from projections.engine.store import Schema
from projections.language.program import LEDGER_SCHEMA, Program
from projections.stores.dynamodb import DynamoDBStore, Meter

__all__ = ["COPIED", "Units", "figures", "measure_all"]

COPIED = "(d) conditional put"

_HUNDRED, _THOUSAND = OURS[100], OURS[1000]
_COUNTER_ITEMS = [{"PK": {"S": f"COUNTER{number}#x"}, "SK": {"S": "S"}} for number in range(8)]


@dataclass(frozen=True, slots=True)
class Units:
    """What a case cost in all, in one of the ways, and for how many events."""

    case: str
    way: str
    events: int
    spent: Charges


class Bench:
    """Fresh tables on an endpoint, and all ways to keep what the rules say, metered."""

    def __init__(self, endpoint: str, rules: Program, posts: int = 0) -> None:
        self._client = client(endpoint_url=endpoint)
        schemas: Mapping[str, Schema] = {**rules.tables, "ledger": LEDGER_SCHEMA}
        self._names = {name: f"bench-{name}" for name in schemas}
        for name, schema in schemas.items():
            create_table(self._client, self._names[name], schema, stream=name != "ledger")
        for name in (CLAIMS, IDEMPOTENCY):
            create_table(self._client, name, Schema(("id", "S")), stream=False)
        self._metered = Charges()
        ours, self._theirs = client(endpoint_url=endpoint), client(endpoint_url=endpoint)
        store = DynamoDBStore(
            ours, self._names, schemas, Meter()
        )  # it asks for units in the bodies that it writes itself
        Registry(rules, store).read_or_create()  # the first invocation ever makes it
        try_statements(store)
        self._processor = Processor(rules, store, tables={TABLE: "main"})
        self._ways = LANES if rules.lanes else OURS
        self.ours("", [edited(like(1, user=1, post=1))])  # it is warm then, and has noted the stream for lanes
        self._metered, self._metered_theirs = metered(ours), metered(self._theirs)
        items = [{"PK": {"S": f"POST#{post}"}, "SK": {"S": "METADATA"}, "title": {"S": "T"}} for post in range(posts)]
        items += _COUNTER_ITEMS
        for start in range(0, len(items), 25):
            puts = [{"PutRequest": {"Item": item}} for item in items[start : start + 25]]
            self._client.batch_write_item(RequestItems={self._names["main"]: puts})

    def ours(self, case: str, records: list[dict[str, Any]]) -> Units:
        shard = f"shardId-{len(records)}"  # records of each come in their order
        outcome = self._processor.process(records, remaining=lambda: 900.0, shard=shard)
        assert outcome.failed is None, outcome.failed_reason
        assert not outcome.rejected, outcome.rejected
        return Units(case, self._ways[1000 if len(records) > 100 else 100], len(records), self._metered.take())

    def other(self, case: str, name: str, way: Callable[[Any, str], Process], records: list[dict[str, Any]]) -> Units:
        """The same by one of the baselines."""
        way(self._theirs, self._names["main"])(records)
        return Units(case, name, len(records), self._metered_theirs.take())

    def others(self, case: str, records: list[dict[str, Any]], counters: Counters = like_count) -> Iterator[Units]:
        """The same by all baselines that count."""
        for name, way in WAYS.items():
            yield self.other(case, name, partial(way, counters=counters), records)

    def count(self, post: int) -> int:
        key = {"PK": {"S": f"POST#{post}"}, "SK": {"S": "METADATA"}}
        found = self._client.get_item(TableName=self._names["main"], Key=key)["Item"]
        return int(found.get("likeCount", {}).get("N", "0"))

    def close(self) -> None:
        for name in (*self._names.values(), CLAIMS, IDEMPOTENCY):
            delete_table(self._client, name)


def measure_all(endpoint: str) -> list[Units]:
    """All cases in all ways: ours in batches of 100 and of 1000, the others with 100 records, or 10 into eight counters."""
    found: list[Units] = []
    for rules, posts, cases in (
        (program(), 1000, _likes),
        (program(lanes=True), 1000, _our_likes),
        (program(EIGHT_COUNTERS), 0, _eight_counters),
        *((program(EIGHT_OF_ONE, lanes=lanes), 1, _eight_of_one) for lanes in (False, True)),
    ):
        bench = Bench(endpoint, rules, posts)
        try:
            found += cases(bench)
        finally:
            bench.close()
    bench = Bench(endpoint, program(COPIES))
    try:
        found += _copies(bench)
    finally:
        bench.close()
    return found


_LONE, _HOT, _SPREAD, _EACH = "a lone like", "likes of one post", "likes of 10 posts", "likes of a post each"


def _our_likes(bench: Bench) -> Iterator[Units]:
    """One like; then likes of one post, of ten, of as many as there are likes; then the ten's again, edited, removed."""
    yield bench.ours(_LONE, likes(1, 1))
    first = 1000
    for size in (100, 1000):
        many, before = likes(size, 10, first=first + 10_000), bench.count(1)
        yield bench.ours(_HOT, likes(size, 1, first=first))
        yield bench.ours("likes of 10 posts, the first of most", likes(size, 10, first=first + 5_000))
        yield bench.ours(_SPREAD, many)
        assert bench.count(1) - before == size // 5
        yield bench.ours(f"{_SPREAD}, delivered again", many)
        assert bench.count(1) - before == size // 5
        yield bench.ours("likes of a post each, the first of most", likes(size, size, first=first + 15_000))
        yield bench.ours(_EACH, likes(size, size, first=first + 20_000))
        yield bench.ours("edits that change nothing we keep", [edited(record) for record in many])
        yield bench.ours("unlikes of 10 posts", [removed(record) for record in many])
        assert bench.count(1) - before == size // 10 + 2
        first += 50_000


def _likes(bench: Bench) -> Iterator[Units]:
    """Ours, then the same by all baselines."""
    yield from _our_likes(bench)
    hundred, before = likes(100, 10, first=500_000), bench.count(1)
    yield from bench.others(_LONE, likes(1, 1, first=600_000))
    yield from bench.others(_HOT, likes(100, 1, first=610_000))
    yield from bench.others(_SPREAD, hundred)
    assert bench.count(1) - before == 30
    yield from bench.others(f"{_SPREAD}, delivered again", hundred)
    assert bench.count(1) - before == 40, "plain ADD alone counts twice"
    yield from bench.others(_EACH, likes(100, 100, first=620_000))
    yield from bench.others("edits that change nothing we keep", [edited(record) for record in hundred])
    yield from bench.others("unlikes of 10 posts", [removed(record) for record in hundred])
    assert bench.count(1) - before == 13


def _eight_counters(bench: Bench) -> Iterator[Units]:
    case, counters = "a lone like into 8 counters", {f"c{number}": {"S": "x"} for number in range(8)}
    yield bench.ours(case, [like(1, user=1, post=1, extra=counters)])
    for size in (100, 1000):
        many = [like(number, user=number, post=1, extra=counters) for number in range(size * 10, size * 11)]
        yield bench.ours("likes into the same 8 counters", many)
    yield from bench.others(case, [like(20_000, user=20_000, post=1, extra=counters)], counters_of)
    many = [like(number, user=number, post=1, extra=counters) for number in range(30_000, 30_010)]
    yield from bench.others("likes into the same 8 counters", many, counters_of)


def _eight_of_one(bench: Bench) -> Iterator[Units]:
    yield bench.ours("a lone like into 8 counters of one item, the first", likes(1, 1))
    yield bench.ours("a lone like into 8 counters of one item", likes(1, 1, first=1))
    for size in (100, 1000):
        yield bench.ours("likes into 8 counters of one item", likes(size, 1, first=size * 10))
    assert bench.count(0) == 1102


def _copies(bench: Bench) -> Iterator[Units]:
    lone, copies, again, edits = (
        "a lone copy",
        "copies",
        "copies, delivered again",
        "copies, edits of what is not copied",
    )
    yield bench.ours(lone, likes(1, 1))
    yield bench.other(lone, COPIED, conditional_puts, likes(1, 1, first=10))
    ours, theirs = likes(100, 10, first=100), likes(100, 10, first=1000)
    for case, change in ((copies, None), (again, None), (edits, edited)):
        yield bench.ours(case, [change(record) for record in ours] if change else ours)
        yield bench.other(case, COPIED, conditional_puts, [change(record) for record in theirs] if change else theirs)


_CHARGED = "charged by DynamoDB"
_REPORTED = "reported by MiniStack, which leaves out what fails and what is read in batches"
_Values = Mapping[tuple[str, str], Callable[[Charges], float]]
_DONE: _Values = {
    (_CHARGED, "write units per event"): lambda spent: spent.write_units,
    (_CHARGED, "read units per event"): lambda spent: spent.read_units,
    ("requests", "API calls per event"): lambda spent: spent.calls,
}
_TOLD: _Values = {
    (_REPORTED, "write units per event"): lambda spent: spent.reported_write_units,
    (_REPORTED, "read units per event"): lambda spent: spent.reported_read_units,
}


def figures(on_dynamodb_local: list[Units], on_ministack: list[Units]) -> list[Figure]:
    """Per event. A lone event is a batch of its own, whatever the size of batches."""
    return [
        Figure(group, unit, one.case, way, value(one.spent) / one.events)
        for values, found in ((_DONE, on_dynamodb_local), (_TOLD, on_ministack))
        for (group, unit), value in values.items()
        for one in found
        for way in (OURS.values() if one.way == _HUNDRED and one.events == 1 else (one.way,))
    ]


if __name__ == "__main__":
    from tests.emulators import dynamodb_local, ministack, running

    with running(dynamodb_local) as local, running(ministack) as url:
        print(*lines(figures(measure_all(local), measure_all(url))), sep="\n")
