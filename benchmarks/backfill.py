"""A backfill beside a plain parallel scan with one conditional write per item: `python -m benchmarks.backfill [--items N]`.

On DynamoDB Local, both with the same segments, each a thread of its own. Time is a ratio within one run. Each backfill is a
process of its own, so that its memory can be told.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.engine.running import at_once
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.operations.backfill.backfill_runs import Backfill
from projections.operations.backfill.runner import Runner
from projections.stores.dynamodb import DynamoDBStore

__all__ = ["RULES", "Backfilled", "measure"]

SEGMENTS = 4
LIKES_PER_POST = 100

_HEAD = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "POST#{postId}", SK: "LIKE#{userId}"}}
  Seen: {key: {PK: "SEEN#{postId}", SK: "{userId}"}}
projections:
"""
RULES = {
    "count": "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}",
    "index": '  listed: {from: Like, index: {GSI1PK: "LIKED#{postId}", GSI1SK: "{at|pad(10)}"}}',
    "copy": "  seen: {from: Like, copy: {into: Seen, attributes: [at]}}",
    "embed": '  title: {from: Post, embed: {into: Like, match: {postId: "{postId}"}, attributes: {postTitle: title}}}',
}
"""One rule of a kind each; every one is about all likes."""


@dataclass(frozen=True, slots=True)
class Backfilled:
    """A backfill and what it is compared with: items a second of both, and the backfill's memory above idle in MB."""

    rule: str
    items: int
    per_second: float
    by_hand_per_second: float
    megabytes: float

    @property
    def ratio(self) -> float:
        return self.per_second / self.by_hand_per_second


def _program(rule: str) -> Program:
    return Program.from_document(loads(_HEAD + RULES[rule]).document())


def _fill(dynamodb: Any, name: str, items: int) -> None:
    posts = max(1, items // LIKES_PER_POST)

    def put(start: int) -> None:
        requests = []
        for number in range(start, min(start + 25, items)):
            if number < posts:
                item = {"PK": {"S": f"POST#{number:06}"}, "SK": {"S": "METADATA"}, "title": {"S": "x" * 40}}
            else:
                like = {"PK": {"S": f"POST#{number % posts:06}"}, "SK": {"S": f"LIKE#{number:07}"}}
                item = {**like, "at": {"N": str(number)}}
            requests.append({"PutRequest": {"Item": item}})
        dynamodb.batch_write_item(RequestItems={name: requests})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(0, items, 25)))


def _by_hand(dynamodb: Any, name: str, segments: int) -> float:
    """What one would write oneself: a parallel scan, and a conditional update of every item. Seconds."""

    def one(segment: int) -> None:
        after: dict[str, Any] = {}
        while True:
            page = dynamodb.scan(TableName=name, Segment=segment, TotalSegments=segments, ConsistentRead=True, **after)
            for item in page["Items"]:
                dynamodb.update_item(
                    TableName=name,
                    Key={"PK": item["PK"], "SK": item["SK"]},
                    UpdateExpression="SET seen = :n",
                    ConditionExpression="attribute_exists(PK) AND attribute_not_exists(seen)",
                    ExpressionAttributeValues={":n": {"N": "1"}},
                )
            if "LastEvaluatedKey" not in page:
                return
            after = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    started = time.perf_counter()
    with ThreadPoolExecutor(segments) as pool:
        list(pool.map(one, range(segments)))
    return time.perf_counter() - started


def _backfill(endpoint: str, rule: str, names: dict[str, str], segments: int) -> tuple[float, float]:
    """Seconds, and memory above idle in MB, of a backfill as the command does it."""
    program = _program(rule)
    dynamodb = client(endpoint_url=endpoint, max_pool_connections=4 * segments)
    dynamodb.describe_table(TableName=names["main"])
    store = DynamoDBStore(dynamodb, names, {**program.tables, "ledger": LEDGER_SCHEMA})
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    backfill = Backfill(program, store, now=lambda: datetime.now(UTC), run=at_once(3 * segments))
    started = time.perf_counter()
    run = Runner(backfill).work(backfill.begin(segments=segments))
    seconds = time.perf_counter() - started
    assert run.done
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle) / 1024


def measure(endpoint: str, rule: str, items: int, segments: int = SEGMENTS) -> Backfilled:
    """Fills a table, backfills it under a rule, and then writes to each of its items by hand."""
    program = _program(rule)
    names = {"main": f"backfill-{rule}", "ledger": f"backfill-{rule}-ledger"}
    dynamodb = client(endpoint_url=endpoint, max_pool_connections=segments)
    create_table(dynamodb, names["main"], program.tables["main"], stream=False)
    create_table(dynamodb, names["ledger"], LEDGER_SCHEMA, stream=False)
    try:
        _fill(dynamodb, names["main"], items)
        by_hand = _by_hand(dynamodb, names["main"], segments)
        arguments = [endpoint, rule, json.dumps(names), str(segments)]
        command = [sys.executable, "-m", "benchmarks.backfill", "--one", *arguments]
        answer = subprocess.run(command, check=True, capture_output=True, text=True)
        seconds, megabytes = json.loads(answer.stdout)
        return Backfilled(rule, items, items / seconds, items / by_hand, megabytes)
    finally:
        for name in names.values():
            delete_table(dynamodb, name)


def main(items: int) -> None:
    from tests.emulators import dynamodb_local, running

    small = items // 10
    print(f"{'rule':<8} {'items':>9} {'items/s':>9} {'by hand':>9} {'ratio':>6} {'MB above idle':>14}")
    for rule, number in [("count", small), ("count", items), *((rule, small) for rule in RULES if rule != "count")]:
        with running(dynamodb_local) as url:
            found = measure(url, rule, number)
        print(
            f"{rule:<8} {number:>9,} {found.per_second:>9,.0f} {found.by_hand_per_second:>9,.0f} {found.ratio:>6.2f} "
            f"{found.megabytes:>14.1f}",
            flush=True,
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        endpoint, rule, names, segments = sys.argv[2:]
        print(json.dumps(_backfill(endpoint, rule, json.loads(names), int(segments))))
    else:
        parser = argparse.ArgumentParser(prog="python -m benchmarks.backfill")
        parser.add_argument("--items", type=int, default=10_000, help="items of the table under `count` (10,000)")
        main(parser.parse_args().items)
