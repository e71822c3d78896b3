"""A verification beside a plain parallel scan of the same table: `python -m benchmarks.verify [--items N]`.

On DynamoDB Local, both with the same segments, each a thread of its own, reading consistently. The plain scan is what one
writes with boto3: it reads the application's table and counts its items, no more. The verification reads that table and the
ledger, which holds as many entries, and under a `top` as many members again. Time is a ratio within one run: by items of the
table, and by all items that are read.

Then its memory above idle: of tables that are made up as they are read, a tenth of N, N and ten times N items, each in a
process of its own.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.engine.guards import Identity
from projections.engine.ledger_items import group_at, group_key, member_key, members_key
from projections.engine.registry import RegistrySnapshot, Version
from projections.engine.running import at_once
from projections.engine.store import Image, ItemKey, Page, Schema
from projections.language.contribution import canonical_text
from projections.language.keys import encode_key
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.values import decode_order
from projections.operations.backfill.backfill_runs import Backfill
from projections.operations.backfill.runner import Runner
from projections.operations.verify.scanning import Scratch
from projections.operations.verify.verification import Verification
from projections.operations.verify.verify_scope import Scope
from projections.stores.dynamodb import DynamoDBStore

__all__ = ["RULES", "Verified", "measure", "megabytes"]

SEGMENTS = 4
LIKES_PER_POST = 100

_HEAD = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "POST#{postId}", SK: "LIKE#{userId}"}}
  Seen: {key: {PK: "SEEN#{postId}", SK: "{userId}"}}
projections:
"""
_COUNT = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}\n"
_NEWEST = "  newest: {from: Like, top: {into: Post, as: newest, by: at, limit: 3, attributes: [userId]}}\n"
_TITLE = '  title: {from: Post, embed: {into: Like, match: {postId: "{postId}"}, attributes: {postTitle: title}}}\n'
RULES = {"count": _COUNT, "top": _NEWEST, "embed": _TITLE, "count, top and embed": _COUNT + _NEWEST + _TITLE}
"""Every rule is about all likes; a `top` has a member in the ledger for each, which is read too."""


@dataclass(frozen=True, slots=True)
class Verified:
    """A verification and what it is compared with: items of the application's table a second, and items read for one."""

    rule: str
    items: int
    per_second: float
    scanned_per_second: float
    read: float

    @property
    def ratio(self) -> float:
        return self.per_second / self.scanned_per_second

    @property
    def reading(self) -> float:
        """The ratio by items read."""
        return self.read * self.ratio


def _program(rule: str) -> Program:
    return Program.from_document(loads(_HEAD + RULES[rule]).document())


def _fill(dynamodb: Any, name: str, items: int) -> None:
    posts = max(1, items // LIKES_PER_POST)

    def put(start: int) -> None:
        puts = [{"PutRequest": {"Item": _item(number, posts)}} for number in range(start, min(start + 25, items))]
        dynamodb.batch_write_item(RequestItems={name: puts})

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(0, items, 25)))


def _item(number: int, posts: int) -> dict[str, Any]:
    if number < posts:
        return {"PK": {"S": f"POST#{number:06}"}, "SK": {"S": "METADATA"}, "title": {"S": "x" * 40}}
    key = {"PK": {"S": f"POST#{number % posts:06}"}, "SK": {"S": f"LIKE#{number:07}"}}
    return {**key, "at": {"N": str(number)}, "note": {"S": "x" * 60}}


def _plain_scan(dynamodb: Any, name: str) -> tuple[float, int]:
    """What one would write oneself to read a table: seconds, and how many items there were."""

    def one(segment: int) -> int:
        count, after = 0, dict[str, Any]()
        while True:
            page = dynamodb.scan(TableName=name, Segment=segment, TotalSegments=SEGMENTS, ConsistentRead=True, **after)
            count += len(page["Items"])
            if "LastEvaluatedKey" not in page:
                return count
            after = {"ExclusiveStartKey": page["LastEvaluatedKey"]}

    started = time.perf_counter()
    with ThreadPoolExecutor(SEGMENTS) as pool:
        items = sum(pool.map(one, range(SEGMENTS)))
    return time.perf_counter() - started, items


def measure(endpoint: str, items: int, rounds: int = 3) -> Iterator[Verified]:
    """The best of a few rounds of each, in turn."""
    dynamodb = client(endpoint_url=endpoint, max_pool_connections=4 * SEGMENTS)
    by_hand = client(endpoint_url=endpoint, max_pool_connections=4 * SEGMENTS)
    for number, rule in enumerate(RULES):
        program = _program(rule)
        names = {"main": f"verify-{number}-main", "ledger": f"verify-{number}-ledger"}
        schemas = {**program.tables, "ledger": LEDGER_SCHEMA}
        for name, schema in schemas.items():
            create_table(dynamodb, names[name], schema, stream=False)
        try:
            _fill(dynamodb, names["main"], items)
            store = DynamoDBStore(dynamodb, names, schemas)
            backfill = Backfill(program, store, now=lambda: datetime.now(UTC), run=at_once(3 * SEGMENTS))
            Runner(backfill).work(backfill.begin(segments=SEGMENTS))
            snapshot, maintained = backfill.registry.current()
            scanned, verified, read = float("inf"), float("inf"), 0
            for _ in range(rounds):
                seconds, count = _plain_scan(by_hand, names["main"])
                assert count == items
                scanned = min(scanned, seconds)
                with Scratch() as scratch:
                    one = Verification(Scope(maintained, snapshot), store, scratch, threads=SEGMENTS, patience=0.0)
                    started = time.perf_counter()
                    one.all()
                    verified = min(verified, time.perf_counter() - started)
                    assert one.candidates.count() == 0
                    read = sum(one.counts.values())
            yield Verified(rule, items, items / verified, items / scanned, read / items)
        finally:
            for name in names.values():
                delete_table(dynamodb, name)


class _MadeUp:
    """Tables that nobody keeps: posts, likes, and a ledger in which everything is right."""

    def __init__(self, scope: Scope, items: int) -> None:
        self._program = scope.program
        self._guards = scope.guards
        self._items = items
        self._posts = max(1, items // LIKES_PER_POST)

    def schema(self, table: str) -> Schema:
        return {**self._program.tables, "ledger": LEDGER_SCHEMA}[table]

    def scan(self, table: str, *, segment: int, segments: int, limit: int, after: Any) -> Page:
        first = segment if after is None else after
        numbers = range(first, self._items, segments)[:limit]
        images = [image for number in numbers for image in self._made(table, number)]
        following = numbers[-1] + segments if numbers else self._items
        return Page(images, following if following < self._items else None)

    def _made(self, table: str, number: int) -> Sequence[Image]:
        item = _item(number, self._posts)
        key = ItemKey("main", item["PK"]["S"], item["SK"]["S"])
        if number >= self._posts:
            return [item] if table == "main" else self._entry(key, item)
        if table == "main":
            newest = [{"M": {"userId": {"S": f"{one:07}"}}} for one in self._likes(number)[:-4:-1]]
            count = {"N": str(len(self._likes(number)))}
            guards = {
                self._guards.name(rule): self._guards.stamp_group(rule, key, group_at(1, 1), len(self._likes(number)))
                for rule in ("likes.1", "newest.1")
            }
            return [{**item, "likeCount": count, "newest": {"L": newest}, **guards}]
        target = encode_key(key)
        return [
            {
                **LEDGER_SCHEMA.wire(group_key(rule, target)),
                "n": {"N": str(len(self._likes(number)))},
                "version": {"N": "1"},
            }
            for rule in ("likes.1", "newest.1")
        ]

    def _likes(self, post: int) -> range:
        return range(self._posts + post, self._items, self._posts)

    def _entry(self, key: ItemKey, item: Image) -> Sequence[Image]:
        evaluated = self._program.contributions(self._program.recognise(key, item))
        source = encode_key(key)
        entry: dict[str, Any] = {
            "pk": {"S": f"E|{source}"},
            "sk": {"S": "."},
            "contributions": {"S": canonical_text(evaluated.contributions)},
            "version": {"S": "v"},
            "revision": {"N": "1"},
        }
        members: list[Image] = []
        for (rule, target, member), payload in evaluated.payloads.items():
            order = member.partition("|")[2]
            sort = member_key(rule, target, member, source).sort or ""
            members.append(
                {
                    "pk": {"S": members_key(rule, target)},
                    "sk": {"S": sort},
                    "s": {"S": source},
                    "o": {"S": order},
                    "v": decode_order(order),
                    "a": {"M": payload},
                }
            )
        return [entry, *members]


def _made_up(items: int) -> float:
    """Memory above idle, in MB, of a verification of so many items."""
    packaged = Program.from_document(loads(_HEAD + _COUNT + _NEWEST).document())
    documents = {name: packaged.closed_document(name) for name in packaged.rules}
    program = Program.assembled(packaged, {f"{name}.1": (document, True) for name, document in documents.items()})
    versions = [Version(name, 1, rule.fingerprint, "active", True, 1, 1) for name, rule in packaged.rules.items()]
    known = {version.name: version for version in versions}
    snapshot = RegistrySnapshot(1, {}, known, Identity("benchmark", (b"secret",)), packaged.guard_prefix)
    scope = Scope(program, snapshot)
    idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Scratch() as scratch:
        store: Any = _MadeUp(scope, items)
        one = Verification(scope, store, scratch, threads=SEGMENTS, patience=0.0)
        one.all()
        assert one.candidates.count() == 0
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - idle) / 1024


def megabytes(items: int) -> float:
    """The same, in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.verify", "--made-up", str(items)]
    told = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(json.loads(told.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.verify")
    parser.add_argument("--items", type=int, default=10_000, help="items of the table (10,000)")
    parser.add_argument("--made-up", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.made_up is not None:
        print(json.dumps(_made_up(given.made_up)))
        return
    from tests.emulators import dynamodb_local, running

    print(f"{'rules':<22} {'items/s':>9} {'plain scan':>11} {'ratio':>6} {'read for one':>13} {'ratio of reading':>17}")
    with running(dynamodb_local) as url:
        for one in measure(url, given.items):
            print(
                f"{one.rule:<22} {one.per_second:>9,.0f} {one.scanned_per_second:>11,.0f} {one.ratio:>6.2f} "
                f"{one.read:>13.2f} {one.reading:>17.2f}",
                flush=True,
            )
    for size in (given.items // 10, given.items, 10 * given.items):
        print(f"{size:>9,} items: {megabytes(size):.1f} MB above idle", flush=True)


if __name__ == "__main__":
    main()
