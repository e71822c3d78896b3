"""Verification and repair on DynamoDB Local: what was planted in memory is put there, found, repaired, and then right."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.engine.store import Image
from projections.language.program import LEDGER_SCHEMA
from projections.operations.verify.drift import Drift
from projections.stores.dynamodb import DynamoDBStore
from projections.testing.oracle import Oracle
from tests.engine.world import World
from tests.operations.test_verify import PLANTS
from tests.operations.verify_scene import brief, drifts, filled, repaired

CHOSEN = ["a shard of a group", "a claimed copy of the wrong source"]


class Moved:
    """The tables of a world, on an endpoint."""

    def __init__(self, world: World, url: str) -> None:
        self.client: Any = client(endpoint_url=url)
        self.names = {name: f"verify-{uuid.uuid4().hex[:8]}-{name}" for name in (*world.program.tables, "ledger")}
        schemas = {**world.program.tables, "ledger": LEDGER_SCHEMA}
        self.store = DynamoDBStore(self.client, self.names, schemas)
        for name, schema in schemas.items():
            create_table(self.client, self.names[name], schema, stream=False)
            self.put(name, world.store.items(name))

    def put(self, name: str, items: list[Image]) -> None:
        for start in range(0, len(items), 25):
            puts = [{"PutRequest": {"Item": item}} for item in items[start : start + 25]]
            self.client.batch_write_item(RequestItems={self.names[name]: puts})

    def items(self, name: str) -> list[Image]:
        return list(self.store.scan(name).items)

    def close(self) -> None:
        for name in self.names.values():
            delete_table(self.client, name)


@pytest.fixture
def moved(dynamodb_local_url: str) -> Iterator[list[Moved]]:
    made: list[Moved] = []
    yield made
    for one in made:
        one.close()


@pytest.mark.parametrize("name", CHOSEN)
def test_planted_damage_is_found_and_repaired(name: str, moved: list[Moved], dynamodb_local_url: str) -> None:
    world = filled()
    damage, expected = PLANTS[name]
    damage(world)
    there = Moved(world, dynamodb_local_url)
    moved.append(there)
    before = sorted(map(str, there.items("ledger")))
    found: list[Drift] = drifts(world, there.store, threads=3, page=20)
    assert brief(found) == expected
    assert sorted(map(str, there.items("ledger"))) == before
    assert repaired(world, there.store) == []
    assert drifts(world, there.store, threads=3) == []
    expired = next(record for record in world.store.stream("main") if "userIdentity" in record)
    settled = [("visits", expired["dynamodb"]["OldImage"])]
    assert Oracle(world.program.document).compare({"main": there.items("main")}, settled) == []
