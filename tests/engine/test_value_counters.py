"""Value counters: `distinct`, `counts` and `values` are exact, whatever happens at the edges."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from projections.aws.clients import client
from projections.aws.live_tables import create_table
from projections.engine.changes import Change
from projections.engine.groups import read_groups, read_members
from projections.engine.ledger import Ledger
from projections.engine.ledger_items import LEDGER
from projections.engine.running import Deadline
from projections.engine.store import Delete, Image, ItemKey, Store, Update, Value
from projections.language.contribution import Evaluated
from projections.language.keys import encode_key
from projections.language.program import LEDGER_SCHEMA
from projections.language.values import encode_order
from projections.stores.dynamodb import DynamoDBStore
from tests.engine.world import World
from tests.operations.verify_scene import drifts, repaired

RULES = """
  users:
    from: Like
    aggregate: {into: Post, set: {users: distinct(text(by)), how: counts(text(by)), who: values(text(by)), n: count}}
"""
ELEMENTS = """
  tagged:
    from: Like
    each: {tag: tags, most: 10000}
    aggregate: {into: Post, set: {tags: distinct(text(tag)), list: counts(text(tag))}}
"""
POST = "main|POST#1|METADATA"


def counters(world: World, rule: str = "users") -> list[Any]:
    return [one for one in world.ledger(f"M|{rule}.1|{POST}") if "c" in one]


def liked(world: World, names: str) -> World:
    world.put("POST#1", "METADATA")
    for number, name in enumerate(names):
        world.like(number, 1, by=name)
    world.settle()
    return world


def test_counters_exist_exactly_for_values_that_contributions_have() -> None:
    world = liked(World(RULES), "aabc")
    assert world.post(1)["how"] == {"a": 2, "b": 1, "c": 1}
    assert len(counters(world)) == world.post(1)["users"] == 3
    world.like(0, 1, by="b")
    world.remove("USER#3", "LIKE#1")
    world.settle()
    assert (world.post(1)["how"], world.post(1)["users"]) == ({"a": 1, "b": 2}, 2)
    for number in range(3):
        world.remove(f"USER#{number}", "LIKE#1")
    world.settle()
    assert (world.post(1)["how"], world.post(1)["users"]) == ({}, 0)
    assert "who" not in world.post(1)
    assert counters(world) == []


def test_a_value_that_this_process_never_saw_costs_one_more_transaction() -> None:
    world = liked(World(RULES), "ab")
    world.processor = world.worker()
    world.store.calls.clear()
    world.like(7, 1, by="a")
    world.settle()
    assert world.store.calls["transact"] == 2
    world.like(8, 1, by="a")
    world.settle()
    assert world.store.calls["transact"] == 3
    assert world.post(1)["how"] == {"a": 3, "b": 1}


def test_an_item_with_more_values_than_a_transaction_takes_is_counted_in_steps() -> None:
    world = World(ELEMENTS)
    world.put("POST#1", "METADATA")
    world.like(1, 1, tags=[f"t{number:03d}" for number in range(250)])
    world.settle()
    post = world.post(1)
    assert post["tags"] == 250
    assert len(post["list"]) == 101
    assert post["list"]["*"] == 150
    world.like(1, 1, tags=["t001", "x"])
    world.settle()
    assert (world.post(1)["tags"], world.post(1)["list"]) == (2, {"t001": 1, "x": 1})
    assert len(counters(world, "tagged")) == 2


def test_a_map_and_a_set_take_32_kb() -> None:
    world = World(RULES)
    world.put("POST#1", "METADATA")
    for number in range(100):
        world.like(number, 1, by=f"{number:03d}" + "x" * 480)
    world.settle()
    post = world.post(1)
    assert post["users"] == 100
    assert len(post["who"]["SS"]) == 67
    assert sum(post["how"].values()) == 100
    assert post["how"]["*"] == 100 - (len(post["how"]) - 1)


def test_more_values_than_a_transaction_takes_are_kept_when_their_item_expires() -> None:
    head = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Sensor: {key: {PK: "SENSOR#{sensor}", SK: S}, derived: true}
  Point: {key: {PK: "SENSOR#{sensor}", SK: "POINT#{at}"}, expires: true}
projections:
"""
    each = "each: {x: xs, most: 10000}"
    world = World(
        f"  p: {{from: Point, expired: keep, {each}, aggregate: {{into: Sensor, set: {{n: distinct(number(x))}}}}}}\n",
        head,
    )
    world.put("SENSOR#s", "POINT#1", xs=list(range(250)))
    world.settle()
    world.remove("SENSOR#s", "POINT#1", by_ttl=True)
    world.put("SENSOR#s", "POINT#1", xs=[1, 999])
    world.settle()
    assert world.rejected == []
    assert world.item("SENSOR#s", "S")["n"] == 251
    world.remove("SENSOR#s", "POINT#1")
    world.settle()
    assert world.item("SENSOR#s", "S")["n"] == 250


def deleted(counter: Any) -> Any:
    return Delete(ItemKey("ledger", counter["pk"], counter["sk"]))


def counting(number: Value) -> Callable[[Any], Any]:
    return lambda counter: Update(ItemKey("ledger", counter["pk"], counter["sk"]), set={"c": number})


@pytest.mark.parametrize(
    "damage", [deleted, counting({"N": "7"}), counting({"N": "1"}), counting({"N": "-3"}), counting({"S": "x"})]
)
def test_a_damaged_counter_does_not_stop_changes_and_is_found_and_repaired(damage: Callable[[Any], Any]) -> None:
    world = liked(World(RULES), "aaabbc")
    [counter] = [one for one in counters(world) if one["v"] == "a"]
    world.store.write(damage(counter))
    assert any(one.kind == "group" and one.rule == "users" for one in drifts(world))
    world.processor = world.worker()
    for number in range(2):
        world.remove(f"USER#{number}", "LIKE#1")
    world.like(9, 1, by="a")
    world.settle()
    assert world.rejected == []
    assert any(one.kind == "group" for one in drifts(world))
    repaired(world)
    assert drifts(world) == []
    post = world.post(1)
    assert (post["users"], post["how"], post["who"]["SS"]) == (3, {"a": 2, "b": 2, "c": 1}, ["a", "b", "c"])


# Concurrent commits

TARGET = "users", POST
_SOURCES, _VALUES, _WORKERS = 12, "abc", 4


def change(source: str, version: int, value: str | None, before: str | None) -> Change:
    def given(one: str | None) -> Any:
        if one is None:
            return {}
        return {"users": {POST: {"n": 1, "#how": 1, "%": {f"users|{encode_order({'S': one})}": 1}}}}

    return Change(source, f"{version:040d}", given(before), Evaluated(given(value)), gone=value is None)


def contended(store: Store, seed: int, rounds: int) -> Counter[str]:
    """Let workers commit changes of their own sources at once, always at edges. Return the values that sources have then."""
    world = World(RULES)
    held: dict[str, str | None] = {}
    failed: list[object] = []

    def work(number: int) -> None:
        try:
            commits(number)
        except BaseException as error:  # a thread's exception would only be a warning
            failed.append(error)

    def commits(number: int) -> None:
        rng = random.Random(f"{seed} {number}")
        ledger = Ledger(world.program, store)
        mine = [encode_key(ItemKey("main", f"USER#{number}.{one}", "LIKE#1")) for one in range(_SOURCES // _WORKERS)]
        now: dict[str, str | None] = dict.fromkeys(mine)
        for version in range(1, rounds + 1):
            changes = []
            for source in mine:
                value = rng.choice([*_VALUES, None, None])
                if value != now[source]:
                    changes.append(change(source, version, value, now[source]))
                    now[source] = value
            results = ledger.commit(changes, Deadline.after(60))
            failed.extend(one for one in results if one.state != "applied")
        held.update(now)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(_WORKERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    return Counter(value for value in held.values() if value is not None)


def counted(store: Store) -> tuple[int, dict[str, int]]:
    rule = World(RULES).program.recorded["users"]
    group = read_groups(store, [TARGET])[TARGET]
    members: dict[str, Image] = {one.value["S"]: one.payload for one in read_members(store, rule, POST)["values users"]}
    return int(group.totals.amounts.get("%users", 0)), {name: int(one["c"]["N"]) for name, one in members.items()}


@pytest.mark.parametrize("rounds", [6, pytest.param(60, marks=pytest.mark.deep)])
def test_concurrent_commits_at_edges_on_dynamodb_local(rounds: int, dynamodb_local_url: str) -> None:
    dynamodb = client(endpoint_url=dynamodb_local_url)
    name = f"ledger-{uuid.uuid4().hex[:8]}"
    create_table(dynamodb, name, LEDGER_SCHEMA)
    store = DynamoDBStore(dynamodb, {LEDGER: name}, {LEDGER: LEDGER_SCHEMA})
    values = contended(store, 1, rounds)
    assert values
    assert counted(store) == (len(values), dict(values))
