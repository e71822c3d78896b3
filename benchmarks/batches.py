"""Updating many children on DynamoDB Local, each under its own guard: `python -m benchmarks.batches [CHILDREN]`.

The loop is what one would write: UpdateItem by a client as boto3 makes it. Both sides send the same update under the same
condition, and each round writes every child anew. The emulator shares this machine's cores and takes about as long for a
statement as for an UpdateItem without its HTTP: that bounds the gain here. AWS is a round trip away instead; the second
half of the table adds one, slept before each request. "CPU here" is the client's alone.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias

import boto3
from botocore.config import Config
from rich.console import Console
from rich.table import Table

from projections.engine.store import AllOf, AnyOf, Below, Equal, Exists, ItemKey, Missing, NotEqual, Schema, Update
from projections.stores.aws import client, create_table
from projections.stores.dynamodb import DynamoDBStore, Meter
from tests.emulators import dynamodb_local, running

__all__ = ["Round", "main", "measure_all"]

_TABLE = "children"
_SCHEMA = Schema(("PK", "S"), ("SK", "S"))
_PIECE = 500
"""Updates in one call of `write_each`: what one page of children gives."""
_AWAY = 0.005
"""A round trip within a Region and what DynamoDB needs, in seconds; assumed, not measured."""

Push: TypeAlias = Callable[[Sequence[Update]], None]


@dataclass(frozen=True, slots=True)
class Round:
    way: str
    threads: int
    away: float
    """Seconds slept before each request."""
    children: int
    seconds: float
    cpu_seconds: float
    calls: int
    write_units: float

    @property
    def throughput(self) -> float:
        return self.children / self.seconds


def update(child: int, turn: int) -> Update:
    """What a push writes: two embedded attributes and the guard, if the child still references its parent."""
    at = f"{turn:021}"
    older = Below(("~author", "at"), {"S": at})
    guard = AnyOf((Missing(("~author",)), NotEqual(("~author", "by"), {"S": "USER#1|PROFILE"}), older))
    return Update(
        ItemKey(_TABLE, f"USER#{child % 100}", f"POST#{child:08}"),
        set={
            "authorName": {"S": f"A name of the author {turn}"},
            "authorAvatar": {"S": f"https://example.org/avatars/{turn}.png"},
            "~author": {"M": {"by": {"S": "USER#1|PROFILE"}, "at": {"S": at}}},
        },
        condition=AllOf((Exists(("PK",)), Equal(("authorId",), {"S": "1"}), guard)),
    )


def _fill(dynamodb: Any, children: int) -> None:
    rest = {"authorId": {"S": "1"}, "title": {"S": "T" * 60}, "body": {"S": "b" * 400}}
    items = [{**_SCHEMA.wire(update(child, 0).key), **rest} for child in range(children)]
    for start in range(0, children, 25):
        puts = [{"PutRequest": {"Item": item}} for item in items[start : start + 25]]
        dynamodb.batch_write_item(RequestItems={_TABLE: puts})


def _plain_loop(endpoint: str, meter: Meter, away: float) -> Push:
    """UpdateItem, one child after the other, by a client with boto3's own settings."""
    session = boto3.Session("test", "test", region_name="us-east-1")
    dynamodb = session.client("dynamodb", endpoint_url=endpoint, config=Config(max_pool_connections=10))
    _move(dynamodb, away)

    def push(updates: Sequence[Update]) -> None:
        for each in updates:
            answer = dynamodb.update_item(
                TableName=_TABLE,
                Key=_SCHEMA.wire(each.key),
                UpdateExpression="SET authorName = :name, authorAvatar = :avatar, #guard = :guard",
                ConditionExpression="attribute_exists(PK) AND authorId = :id AND (attribute_not_exists(#guard)"
                " OR #guard.#by <> :by OR #guard.#at < :at)",
                ExpressionAttributeNames={"#guard": "~author", "#by": "by", "#at": "at"},
                ExpressionAttributeValues={
                    ":name": dict(each.set["authorName"]),
                    ":avatar": dict(each.set["authorAvatar"]),
                    ":guard": dict(each.set["~author"]),
                    ":id": {"S": "1"},
                    ":by": {"S": "USER#1|PROFILE"},
                    ":at": each.set["~author"]["M"]["at"],
                },
                ReturnConsumedCapacity="TOTAL",
            )
            meter.calls["UpdateItem"] += 1
            meter.write_units += answer["ConsumedCapacity"]["CapacityUnits"]

    return push


def _ours(endpoint: str, meter: Meter, away: float) -> tuple[Push, Push]:
    dynamodb = client(endpoint_url=endpoint)
    _move(dynamodb, away)
    store = DynamoDBStore(dynamodb, {_TABLE: _TABLE}, {_TABLE: _SCHEMA}, meter)

    def one_by_one(updates: Sequence[Update]) -> None:
        for each in updates:
            store.write(each)

    def each(updates: Sequence[Update]) -> None:
        answers = store.write_each(updates)
        assert not any(answers), answers

    return one_by_one, each


def _move(dynamodb: Any, away: float) -> None:
    if away:
        dynamodb.meta.events.register("before-send.dynamodb", lambda **_: time.sleep(away))


def measure_all(endpoint: str, children: int) -> list[Round]:
    create_table(client(endpoint_url=endpoint), _TABLE, _SCHEMA)
    _fill(client(endpoint_url=endpoint), children)
    versions = count(1)
    near = _measured(endpoint, children, 0.0, versions)
    return near + _measured(endpoint, children // 5, _AWAY, versions)


def _measured(endpoint: str, children: int, away: float, versions: Iterator[int]) -> list[Round]:
    meter = Meter()
    loop = _plain_loop(endpoint, meter, away)
    one_by_one, each = _ours(endpoint, meter, away)
    for way in (loop, one_by_one, each):  # connections, the emulator's compiler, the trial
        version = next(versions)
        way([update(child, version) for child in range(min(children, 500 if away else 5000))])
    found = []
    for name, way, threads in (
        ("boto3, in a loop", loop, 1),
        ("boto3, in a loop", loop, 4),
        ("write", one_by_one, 1),
        ("write_each", each, 1),
        ("write_each", each, 4),
    ):
        version = next(versions)
        updates = [update(child, version) for child in range(children)]
        pieces = [updates[start : start + _PIECE] for start in range(0, children, _PIECE)]
        meter.calls.clear()
        meter.write_units = 0.0
        with ThreadPoolExecutor(threads) as pool:
            started, worked = time.perf_counter(), time.process_time()
            list(pool.map(way, pieces))
            seconds, cpu = time.perf_counter() - started, time.process_time() - worked
        found.append(Round(name, threads, away, children, seconds, cpu, sum(meter.calls.values()), meter.write_units))
    return found


def main(children: int = 20_000) -> int:
    with running(dynamodb_local) as endpoint:
        found = measure_all(endpoint, children)
    table = Table(title=f"{children} children on DynamoDB Local", title_justify="left")
    columns = (
        "way",
        "threads",
        "ms away",
        "children\na second",
        "times\nthe loop",
        "µs CPU\nhere",
        "calls\na child",
        "write units\na child",
    )
    for column in columns:
        table.add_column(column, justify="left" if column == "way" else "right", no_wrap=True)
    for each in found:
        loop = next(one for one in found if one.away == each.away)
        table.add_row(
            each.way,
            str(each.threads),
            f"{each.away * 1000:.0f}",
            f"{each.throughput:.0f}",
            f"{each.throughput / loop.throughput:.1f}",
            f"{each.cpu_seconds / each.children * 1e6:.0f}",
            f"{each.calls / each.children:.3f}",
            f"{each.write_units / each.children:.2f}" if each.write_units else "not said",
        )
    Console(width=100).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000))
