"""How long a rule change stops published values: `python -m benchmarks.rule_change [--items N]`.

On DynamoDB Local. A table has many likes, and an application goes on to put some to ten posts. A function follows the
stream. The rule that counts them is changed, filled and published, and rolled back. A reader asks the ten posts again
and again: a shown value is as old as the first like that it lacks by the rule that it shows.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.backfill import SEGMENTS
from projections.api import apply, loads
from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.aws.streams import StreamReader
from projections.aws.wiring import THREADS, StreamHandler
from projections.dev.target import Followed
from projections.engine.processor import Processor
from projections.engine.registry import Registry
from projections.engine.running import at_once
from projections.engine.store import Image, ItemKey
from projections.language.program import LEDGER_SCHEMA
from projections.stores.dynamodb import DynamoDBStore

__all__ = ["Pause", "measure"]

_POSTS = 10
_RATE = 20.0
"""Likes a second."""
_CONTROL = 10.0
"""Seconds before the rule change."""
_FOR_SECONDS = ("-XX:TieredStopAtLevel=1", "-Xmx512m")

_RULES = """
table: {{key: [PK, SK]}}
entities:
  Post: {{key: {{PK: "POST#{{postId}}", SK: METADATA}}}}
  Like: {{key: {{PK: "POST#{{postId}}", SK: "LIKE#{{userId}}"}}}}
projections:
  likes: {{from: Like{where}, aggregate: {{into: Post, set: {{likeCount: {measure}}}}}}}
"""
_WEIGHT = 1_000_000
"""Of each like, which the changed rule adds up: so a shown number tells its rule."""
BEFORE = _RULES.format(where="", measure="count")
AFTER = _RULES.format(where=", where: {hidden: [{exists: false}]}", measure="sum(weight)")


@dataclass(frozen=True, slots=True)
class Pause:
    """A rule change. All times are in seconds."""

    items: int
    without: float
    """The oldest value shown without a rule change: the lag of the stream."""
    change: float
    """The oldest value shown from the beginning of the change until its end."""
    fill: float
    """From the beginning until the new version was published."""
    switch: float
    """From then until everything shows the new version."""
    rollback: float
    """The oldest value shown while the change was rolled back."""
    source_reads: int
    """Likes that the roll back read."""


class _Counting(DynamoDBStore):
    """A store that counts the likes that it reads."""

    likes = 0

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        self.likes += sum((key.sort or "").startswith("LIKE#") for key in keys)
        return super().get_many(keys)

    def scan(self, table: str, **options: Any) -> Any:
        page = super().scan(table, **options)
        if table == "main":
            self.likes += sum(item["SK"]["S"].startswith("LIKE#") for item in page.items)
        return page


class _Traffic:
    """An application that puts likes, a function that follows the stream, and a reader."""

    def __init__(self, endpoint: str, names: dict[str, str]) -> None:
        rules = loads(BEFORE)
        schemas = {**rules.program.tables, "ledger": LEDGER_SCHEMA}
        self._application = client(endpoint_url=endpoint, max_pool_connections=THREADS)
        self._table = names["main"]
        self._keys = [{"PK": {"S": f"POST#busy{post}"}, "SK": {"S": "METADATA"}} for post in range(_POSTS)]
        for key in self._keys:
            self._application.put_item(TableName=self._table, Item=key)
        store = DynamoDBStore(client(endpoint_url=endpoint, max_pool_connections=THREADS), names, schemas)
        Registry(rules.program, store).read_or_create()
        processor = Processor(rules.program, store, tables={self._table: "main"}, run=at_once(THREADS))
        self._handler = StreamHandler(processor)
        arn = self._application.describe_table(TableName=self._table)["Table"]["LatestStreamArn"]
        reader = StreamReader(client("dynamodbstreams", endpoint), arn)
        self._followed = Followed(reader, latest=True, on_failure=_discarded)
        self._followed.discover()
        self._put: list[list[tuple[float, bool]]] = [[] for _ in range(_POSTS)]
        """By post, when each like was acknowledged, and whether it is hidden."""
        self._stop = threading.Event()
        self.oldest = 0.0
        """The greatest age of a shown value since this was set to 0, in seconds."""
        self._threads = [
            threading.Thread(target=self._repeat, args=(each,)) for each in (self._write, self._follow, self._look)
        ]

    def __enter__(self) -> _Traffic:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def during(self, work: Callable[[], object]) -> float:
        """Return the oldest value that is shown while work is done."""
        self.oldest = 0.0
        work()
        return self.oldest

    def _repeat(self, step: Callable[[], None]) -> None:
        while not self._stop.is_set():
            step()

    def _write(self) -> None:
        number = sum(map(len, self._put))
        post, hidden = number % _POSTS, number // _POSTS % 4 == 3
        key = {"PK": self._keys[post]["PK"], "SK": {"S": f"LIKE#{number:09}"}}
        like = {**key, "weight": {"N": str(_WEIGHT)}, **({"hidden": {"BOOL": True}} if hidden else {})}
        self._application.put_item(TableName=self._table, Item=like)
        self._put[post].append((time.monotonic(), hidden))
        time.sleep(1 / _RATE)

    def _follow(self) -> None:
        self._followed.poll()
        batch = self._followed.next_batch(100)
        if batch is None:
            time.sleep(0.1)
            return
        self._followed.finish(batch, self._handler.handle(batch.event(), lambda: 900.0))

    def _look(self) -> None:
        time.sleep(0.02)
        request = {"Keys": self._keys, "ConsistentRead": True}
        asked = time.monotonic()
        answer = self._application.batch_get_item(RequestItems={self._table: request})["Responses"][self._table]
        for image in answer:
            post = int(image["PK"]["S"].removeprefix("POST#busy"))
            shown = int(image.get("likeCount", {"N": "0"})["N"])
            self.oldest = max(self.oldest, self._age(post, shown, asked))

    def _age(self, post: int, shown: int, now: float) -> float:
        """Return the age of a shown number: how long ago the first like was put that it lacks."""
        hidden_too, number = shown < _WEIGHT, 0
        shown = shown if hidden_too else shown // _WEIGHT
        for at, hidden in self._put[post]:
            number += hidden_too or not hidden
            if number > shown:
                return max(0.0, now - at)
        return 0.0


def _discarded(records: Sequence[Any], error: BaseException | None) -> None:
    raise AssertionError(f"a batch was given up: {error}: {records}")


def _fill(dynamodb: Any, table: str, items: int) -> None:
    def put(start: int) -> None:
        requests = []
        for number in range(start, min(start + 25, items)):
            post = {"PK": {"S": f"POST#{number // 100:06}"}}
            sort = "METADATA" if number % 100 == 0 else f"LIKE#{number:09}"
            item = {**post, "SK": {"S": sort}, "weight": {"N": str(_WEIGHT)}}
            requests.append({"PutRequest": {"Item": item}})
        dynamodb.batch_write_item(RequestItems={table: requests})

    with ThreadPoolExecutor(4) as pool:
        for _ in pool.map(put, range(0, items, 25)):
            pass


def measure(endpoint: str, items: int) -> Pause:
    """Change a rule over a table of so many items, publish the change, and roll it back."""
    before, after = loads(BEFORE), loads(AFTER)
    schemas = {**before.program.tables, "ledger": LEDGER_SCHEMA}
    names = {"main": "rule-change", "ledger": "rule-change-ledger"}
    dynamodb = client(endpoint_url=endpoint, max_pool_connections=THREADS)
    create_table(dynamodb, names["main"], schemas["main"])
    create_table(dynamodb, names["ledger"], LEDGER_SCHEMA, stream=False)
    try:
        _fill(dynamodb, names["main"], items)
        store = _Counting(dynamodb, names, schemas)
        with _Traffic(endpoint, names) as traffic:
            time.sleep(2)  # until the first values are shown
            without = traffic.during(lambda: time.sleep(_CONTROL))
            began = time.time()
            change = traffic.during(lambda: apply(store, after, segments=SEGMENTS))
            ended = time.time()
            promoted = _promoted(store)
            change = max(change, traffic.during(lambda: time.sleep(2)))
            store.likes = 0
            rollback = traffic.during(lambda: apply(store, before, segments=SEGMENTS))
            return Pause(items, without, change, promoted - began, ended - promoted, rollback, store.likes)
    finally:
        for name in names.values():
            delete_table(dynamodb, name)


def _promoted(store: DynamoDBStore) -> float:
    snapshot = Registry(loads(AFTER).program, store).read()
    assert snapshot is not None
    return float(snapshot.active["likes"].changed)


def lines(pause: Pause) -> Iterator[str]:
    """Yield a measurement as lines of text."""
    yield f"items of the table                               {pause.items:>12,}"
    yield f"oldest value shown without a change            {pause.without:>12.2f} s"
    yield f"oldest value shown during the change           {pause.change:>12.2f} s"
    yield f"  from its beginning until it was published    {pause.fill:>12.0f} s"
    yield f"  from then until everything shows it          {pause.switch:>12.0f} s"
    yield f"oldest value shown during the roll back        {pause.rollback:>12.2f} s"
    yield f"sources that the roll back read                  {pause.source_reads:>12,}"


def main() -> None:
    from tests.emulators import Program, dynamodb_local, running

    def compiling(port: int) -> Program:
        """DynamoDB Local for a long run: what the tests save at its start costs a third more time in an hour."""
        program = dynamodb_local(port)
        return replace(program, command=[part for part in program.command if part not in _FOR_SECONDS])

    parser = argparse.ArgumentParser(prog="python -m benchmarks.rule_change")
    parser.add_argument("--items", type=int, default=20_000, help="items of the table (20,000)")
    with running(compiling) as url:
        print("\n".join(lines(measure(url, parser.parse_args().items))))


if __name__ == "__main__":
    main()
