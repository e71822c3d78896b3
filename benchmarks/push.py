"""A push to many children, beside one `UpdateItem` per child in a loop: `python -m benchmarks.push [CHILDREN]`.

The push is the worker's: pages of 1000 children, statements in batches of 25, requests in threads. The loop is what one
would write: one `UpdateItem` after the other by a client as boto3 makes it, no guards. They take turns page by page, so the
ratio holds on a machine that does other things too. Both are warm: the emulator's compiler makes it several times faster.

The emulator is DynamoDB Local. It shares this machine's cores with both sides, and takes as long for a statement as for a
whole UpdateItem, most of it in one thread. So the push's requests are also sent ready-made, over bare connections: what a
client would reach there that costs nothing. And rows are added in which the endpoint is further away: each request of
either side sleeps as long before it is sent. AWS is some milliseconds away.

Calls and write units are exact; no emulator prices a statement, so they are counted, and each costs what the UpdateItem
does which it stands for: MiniStack refuses statements, gets these instead, and reports their units.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from http.client import HTTPConnection
from io import BytesIO
from typing import Any, cast
from urllib.parse import urlsplit

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse
from urllib3 import HTTPResponse

from projections.aws.clients import client, session
from projections.aws.live_tables import create_table, delete_table
from projections.aws.wiring import THREADS
from projections.engine.embeds import Embedder, Push
from projections.engine.guards import Guards, Identity
from projections.engine.records import version_of
from projections.engine.running import Counters, Deadline, at_once, one_by_one
from projections.engine.store import ItemKey
from projections.language.keys import encode_key
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.stores.dynamodb import DynamoDBStore, Meter
from projections.terminal import print_grid
from tests.emulators import dynamodb_local, ministack, running

__all__ = ["Pushed", "Pushes", "main"]

RULES = """
table: {key: [PK, SK]}
entities:
  Team: {key: {PK: "TEAM#{teamId}", SK: INFO}}
  Member: {key: {PK: "TEAM#{teamId}", SK: "MEMBER#{userId}"}}
projections:
  team: {from: Team, embed: {into: Member, match: {teamId: "{teamId}"}, attributes: {teamName: name}}}
"""

_TEAM = ItemKey("main", "TEAM#t", "INFO")
_NOTE = "n" * 840
"""Makes a member a little less than 1 KB, the most that is one write unit, with what the rule adds: the name, and a guard
of 109 bytes, 20 of them its digest and checksum."""
_LOOPED = 50
"""Children that the loop updates for each page of the push."""
_WARM_UP = 10_000
"""Updates of either side before any is measured."""
_WAYS = ((0.0, 1), (0.0, THREADS), (0.001, THREADS), (0.002, THREADS), (0.005, THREADS))
"""Seconds to the endpoint and back, and threads of the push."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """One push, and a loop that took turns with it: seconds, and what the push asked for, its fence included."""

    away: float
    threads: int
    children: int
    seconds: float
    looped: int
    loop_seconds: float
    calls: int
    statements: int
    write_units: float
    """As reported: DynamoDB Local reports nothing for statements."""

    @property
    def per_second(self) -> float:
        return self.children / self.seconds

    @property
    def looped_per_second(self) -> float:
        return self.looped / self.loop_seconds


class Pushes:
    """A team of many members on an endpoint, whose name is pushed to them; another team is there for the loop.

    As a context it makes the tables and deletes them. `meter` counts what pushes ask for.
    """

    def __init__(self, endpoint: str, children: int, prefix: str = "push") -> None:
        self.children = children
        self.others = children // 20 + _LOOPED
        self.name = ""
        self.meter = Meter()
        self._away = 0.0
        self._turn = 0
        self._endpoint = endpoint
        self._rules = Program.from_document(loads(RULES).document())
        self._schemas = {**self._rules.tables, "ledger": LEDGER_SCHEMA}
        self._tables = {table: f"{prefix}-{table}" for table in self._schemas}
        self._dynamodb = client(endpoint_url=endpoint, max_pool_connections=THREADS)
        self._store = DynamoDBStore(self._dynamodb, self._tables, self._schemas, self.meter)
        credentials = session().get_credentials()  # DynamoDB Local has other tables for other credentials
        made = boto3.Session(
            *(("test", "test") if credentials is None else (credentials.access_key, credentials.secret_key)),
            region_name=self._dynamodb.meta.region_name,
        )
        self._plain: Any = made.client("dynamodb", endpoint_url=endpoint)
        for each in (self._dynamodb, self._plain):
            each.meta.events.register(
                "before-send.dynamodb", lambda **_: time.sleep(self._away) if self._away else None
            )

    def __enter__(self) -> Pushes:
        for name, schema in self._schemas.items():
            create_table(self._dynamodb, self._tables[name], schema, stream=False)
        for team, members in (("TEAM#t", self.children), ("TEAM#u", self.others)):
            for start in range(0, members, 25):
                keys = [_key(team, number) for number in range(start, min(start + 25, members))]
                puts = [{"PutRequest": {"Item": {**key, "note": {"S": _NOTE}}}} for key in keys]
                self._dynamodb.batch_write_item(RequestItems={self._tables["main"]: puts})
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._tables.values():
            delete_table(self._dynamodb, name)

    def push(self, *, away: float = 0.0, threads: int = THREADS, looped: int = 0) -> Pushed:
        """Renames the team and pushes the name to all members, `away` seconds from them.

        After each page the loop gives the name to `looped` members of the other team, at no time of the push.
        """
        counters, deadline = Counters(), Deadline(lambda: float("inf"))
        run = at_once(threads) if threads > 1 else one_by_one
        embedder = Embedder(
            self._rules, self._store, Guards(self._rules, Identity("test", (b"secret",))), counters=counters, run=run
        )
        push: Push | None = self._renamed()
        before = (sum(self.meter.calls.values()), self.meter.statements, self.meter.write_units)
        seconds = loop_seconds = 0.0
        at = 0
        self._away = away
        while push is not None:
            started = time.perf_counter()
            if push.after is None:
                embedder.raise_fence(push)
            push, hopeless = embedder.push_page(push, deadline)
            seconds += time.perf_counter() - started
            assert not hopeless, hopeless
            loop_seconds += self._timed_loop(range(at, at + looped))
            at += looped
        self._away = 0.0
        return Pushed(
            away=away,
            threads=threads,
            children=counters.counts["embedded"],
            seconds=seconds,
            looped=at,
            loop_seconds=loop_seconds,
            calls=sum(self.meter.calls.values()) - before[0],
            statements=self.meter.statements - before[1],
            write_units=self.meter.write_units - before[2],
        )

    def ready_made(self, pages: int, *, threads: int = THREADS, looped: int = 0) -> Pushed:
        """What a client would reach that costs nothing: a page's requests, made beforehand, over bare connections.

        The loop takes turns with them as with a push. They are always those of the first page: others keep their name.
        """
        children = calls = 0
        seconds = loop_seconds = 0.0
        for page in range(pages):
            made = self._made()
            shares = [made[number::threads] for number in range(threads)]
            with ThreadPoolExecutor(threads) as pool:
                started = time.perf_counter()
                children += sum(pool.map(self._sent, shares))
                seconds += time.perf_counter() - started
            calls += len(made)
            loop_seconds += self._timed_loop(range(page * looped, (page + 1) * looped))
        return Pushed(
            away=0.0,
            threads=threads,
            children=children,
            seconds=seconds,
            looped=pages * looped,
            loop_seconds=loop_seconds,
            calls=calls,
            statements=children,
            write_units=0.0,
        )

    def _made(self) -> list[AWSPreparedRequest]:
        """The writing requests of the first page of a push, which are not sent."""
        push = self._renamed()
        embedder = Embedder(self._rules, self._store, Guards(self._rules, Identity("test", (b"secret",))))
        embedder.raise_fence(push)
        made: list[AWSPreparedRequest] = []

        def keep(request: AWSPreparedRequest, **_: Any) -> AWSResponse:
            made.append(request)
            done = json.dumps({"Responses": [{} for _ in json.loads(cast(bytes, request.body))["Statements"]]})
            return AWSResponse(
                request.url, 200, cast(Any, {}), HTTPResponse(BytesIO(done.encode()), preload_content=False)
            )

        event = "before-send.dynamodb.BatchExecuteStatement"
        self._dynamodb.meta.events.register(event, keep, unique_id="keep")
        try:
            embedder.push_page(push, Deadline(lambda: float("inf")))
        finally:
            self._dynamodb.meta.events.unregister(event, unique_id="keep")
        return made

    def _sent(self, requests: Sequence[AWSPreparedRequest]) -> int:
        """Sends requests as they are; the statements that were done."""
        connection = HTTPConnection(urlsplit(self._endpoint).netloc)
        done = 0
        for request in requests:
            headers = {
                name: each.decode() if isinstance(each, bytes) else each for name, each in request.headers.items()
            }
            connection.request("POST", "/", cast(bytes, request.body), headers)
            answers = json.loads(connection.getresponse().read())["Responses"]
            assert not any("Error" in answer for answer in answers), answers
            done += len(answers)
        connection.close()
        return done

    def warm_up(self, updates: int) -> None:
        """Pushes and loops until both sides made as many updates, and the endpoint was tried for PartiQL."""
        for _ in range(-(-updates // self.children)):
            self.push()
        self._rename()
        self._timed_loop(range(updates))

    def members(self) -> Iterator[dict[str, Any]]:
        """The members that are pushed to, in wire form."""
        pages = self._dynamodb.get_paginator("query").paginate(
            TableName=self._tables["main"],
            KeyConditionExpression="PK = :team AND begins_with(SK, :member)",
            ExpressionAttributeValues={":team": {"S": "TEAM#t"}, ":member": {"S": "MEMBER#"}},
            ConsistentRead=True,
        )
        for page in pages:
            yield from page["Items"]

    def _renamed(self) -> Push:
        """The push of a new name."""
        self._rename()
        return Push("team", encode_key(_TEAM), version_of("2026-01-01T00:00:00.000", str(self._turn)))

    def _rename(self) -> None:
        self._turn += 1
        self.name = f"The name of the team {self._turn:06}"
        team = {**self._schemas["main"].wire(_TEAM), "name": {"S": self.name}}
        self._dynamodb.put_item(TableName=self._tables["main"], Item=team)

    def _timed_loop(self, numbers: Iterable[int]) -> float:
        """Gives the name to members of the other team as one would write it; the seconds that took."""
        started = time.perf_counter()
        for number in numbers:
            self._plain.update_item(
                TableName=self._tables["main"],
                Key=_key("TEAM#u", number % self.others),
                UpdateExpression="SET teamName = :name",
                ConditionExpression="attribute_exists(PK)",
                ExpressionAttributeValues={":name": {"S": self.name}},
            )
        return time.perf_counter() - started


def _key(team: str, number: int) -> dict[str, Any]:
    return {"PK": {"S": team}, "SK": {"S": f"MEMBER#{number:07d}"}}


def _megabytes() -> float:
    """The most memory this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(children: int = 10_000) -> int:
    with running(dynamodb_local) as endpoint:
        pushes = Pushes(endpoint, children)
        idle = _megabytes()
        with pushes:
            pushes.warm_up(_WARM_UP)
            rows = [pushes.push(away=away, threads=threads, looped=_LOOPED) for away, threads in _WAYS]
            bare = [
                pushes.ready_made(-(-children // 1000), threads=threads, looped=_LOOPED) for threads in (1, THREADS)
            ]
            pushes.push()
            assert all(member["teamName"] == {"S": pushes.name} for member in pushes.members())
    most = _megabytes()
    with running(ministack) as endpoint, Pushes(endpoint, 1000) as few:
        few.push()  # tries PartiQL
        single = few.push()
    print(f"A push to {children} children, DynamoDB Local")
    grid = [["way", "ms away", "threads", "children a second", "in the loop", "times the loop"]]
    for way, row in [*(("push", row) for row in rows), *(("its requests, ready-made", row) for row in bare)]:
        times = row.per_second / row.looped_per_second
        cells = (row.away * 1000, row.threads, row.per_second, row.looped_per_second)
        grid.append([way, *(f"{cell:.0f}" for cell in cells), f"{times:.1f}"])
    print_grid([[(cell, "") for cell in cells] for cells in grid])
    last = rows[-1]
    each = (single.write_units - 1) / single.children
    units = last.write_units + last.statements * each
    print(f"{last.calls / last.children:.4f} calls a child; {last.statements / last.children:.2f} statements of")
    print(f"{each:.2f} write units each, with the fence {units / last.children:.5f} write units a child")
    print(f"memory: {idle:.0f} MB idle, {most:.0f} MB at most")
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
