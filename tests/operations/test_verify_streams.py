"""Drift of every kind on DynamoDB Local, found and repaired while an application writes and its real stream is read."""

from __future__ import annotations

from typing import Any

from endpoint_tables import EndpointTables

from projections.aws.clients import client
from projections.engine.store import Image, ItemKey
from projections.local.event_source import Record
from projections.local.tables import LEDGER, schemas
from projections.operations.verify.drift import KINDS
from projections.testing.oracle import Oracle
from tests.engine.world import World
from tests.operations.test_verify import PLANTS
from tests.operations.test_verify_live import Live, Traffic
from tests.operations.verify_scene import HEAD, TAG, brief, drifts, edit, fill, ledger_lose, mend, rules_text, verified

CHOSEN = [
    "a like without a stream record",
    "a member that is lost",
    "a member without an entry",
    "a member with other attributes",
    "a rebuild in shards that was not ended",
    "a total beside what has settled",
    "a derived item that is gone",
    "a derived item of nothing",
    "a copy of nothing",
    "index attributes",
    "an unlike without a stream record",
    "an embedded attribute",
    "a copy without a guard",
]
"""Together they are of every kind. "An embedded attribute" makes of an item
that was removed one that is there and other than before."""


class Streamed:
    """Tables on an endpoint, for a world: what it asks of a store in memory, and the real stream."""

    def __init__(self, tables: EndpointTables, world: World) -> None:
        self._tables = tables
        self._client: Any = client(endpoint_url=tables.endpoint_url)
        self._heard: list[Record] = []
        for name in tables.names:
            for image in world.store.items(name):
                self._put(name, image)
        tables.drain(len(world.store.items("main")))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tables.store, name)

    def _put(self, table: str, image: Image) -> None:
        self._client.put_item(TableName=self._tables.names[table], Item=image)

    def put(self, table: str, image: Image) -> None:
        self._put(table, image)

    def seed(self, table: str, image: Image) -> None:
        self.stream(table)
        self._put(table, image)
        self._tables.records()  # without a stream record

    def remove(self, key: ItemKey, by_ttl: bool = False) -> None:
        assert not by_ttl, "that takes a service"
        schema = self._tables.store.schema(key.table)
        self._client.delete_item(TableName=self._tables.names[key.table], Key=schema.wire(key))

    def items(self, table: str) -> list[Image]:
        return self._tables.items(table)

    def stream(self, table: str, start: int = 0) -> list[Record]:
        if table != LEDGER:
            self._heard += self._tables.records()
        return self._heard[start:]


class Elsewhere(Traffic):
    """Writes to other users, posts and tags than those that drift is planted at."""

    def write(self) -> None:
        world, chance = self.world, self.chance
        user, post = chance.randint(20, 27), chance.randint(20, 25)
        self.writes += 1
        match chance.randint(0, 5):
            case 0 | 1:
                world.like(user, post, stars=chance.randint(1, 60))
            case 2:
                world.remove(f"USER#{user}", f"LIKE#{post}")
            case 3:
                world.put(f"USER#{user}", "PROFILE", name=f"m{user // 2}", city=f"c{self.writes}", tags=["z"])
            case 4:
                world.put(f"POST#{post}", "METADATA", owner=f"u{user}", tags=[f"z{user}"])
            case 5:
                world.put(f"VISIT#{self.writes}-20", "V", postId=str(post), seconds=self.writes)


ON_ITEMS = """
  shouted: {from: Post, compute: {set: {shout: "{owner|upper}"}}}
  pinned: {from: Post, embed: {into: User, match: {pinnedIds: "{postId}"}, as: pinned, attributes: [owner]}}
"""


def filled() -> World:
    """The small table with a computed attribute and a child of several parents besides."""
    world = World(rules_text() + ON_ITEMS, HEAD + TAG + "projections:\n")
    fill(world)
    world.put("USER#9", "PROFILE", name="m9", pinnedIds=["3", "2"])
    world.settle()
    world.remove("VISIT#4", "V", by_ttl=True)
    world.settle()
    return world


def test_drift_of_every_kind_is_found_and_repaired_under_live_writes(dynamodb_local_url: str) -> None:
    memory = filled()
    expired = next(record for record in memory.store.stream("main") if "userIdentity" in record)
    with EndpointTables(dynamodb_local_url, schemas(memory.program), wait=lambda seconds: None) as tables:
        world = filled()
        world.store, world.position = Streamed(tables, memory), 0  # type: ignore[assignment]
        world.settings = {"tables": {real: logical for logical, real in tables.names.items()}}
        world.processor = world.worker()
        for name in CHOSEN:
            PLANTS[name][0](world)
        edit(world, "POST#3", "METADATA", shout="x")
        ledger_lose(world, "L|pinned|main|POST#2")
        planted = drifts(world)
        assert {drift.kind for drift in planted} == KINDS.keys() - {"error", "occupied", "left over"}, (
            "those no repair can end"
        )
        traffic = Elsewhere(world, seed=1)
        store: Any = Live(world.store, traffic.step, 20)
        with verified(world, store, sleep=traffic.pause, patience=1.0, page=100) as one:
            assert brief(list(one.drifts())) == brief(planted)
            mend(one, world, store)
            assert list(one.drifts()) == []
        assert traffic.writes > 20
        world.settle()
        assert drifts(world) == []
        settled = [("visits", expired["dynamodb"]["OldImage"])]
        assert Oracle(world.program.document).compare({"main": tables.items("main")}, settled) == []
