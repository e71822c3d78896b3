"""A refusal names its cause: the item, the target, or the ledger's group of the target; never the item that led there."""

from __future__ import annotations

import pytest

from projections.engine.store import ItemKey, Update, Value
from projections.operations.quarantine import Quarantine
from projections.stores.limits import ITEM_BYTES
from tests.engine.world import World
from tests.operations.redrive.test_redrive import NOON, Queue, empty
from tests.operations.verify_scene import brief, drifts, repaired

TOTAL = "  total: {from: Like, aggregate: {into: Post, set: {total: sum(w)}}}\n"
SHARDED = "  total: {from: Like, aggregate: {into: Post, shards: 4, set: {total: sum(w)}}}\n"
POST = "main|POST#1|METADATA"


def likes(world: World, *users: int, post: int = 1) -> None:
    for user in users:
        world.like(user, post, w=1)


def damage(world: World, slot: str, value: Value, rule: str = "total", target: str = POST) -> None:
    """Overwrite a value of a group, as somebody with access to the ledger would."""
    for group in world.ledger(f"G|{rule}.1|{target}"):
        world.store.write(Update(ItemKey("ledger", group["pk"], group["sk"]), set={slot: value}))


@pytest.mark.parametrize("rule", [TOTAL, SHARDED], ids=["one item", "shards"])
@pytest.mark.parametrize(
    ("slot", "value", "said"),
    [
        ("=total", {"N": "1E+60"}, '"total" of the group in the ledger is 1E+60. With 1 added'),
        ("=total", {"S": "x"}, "the group in the ledger is damaged: \"total\" is a string, 'x'"),
        ("n", {"S": "x"}, "the group in the ledger is damaged: the number of contributions is a string"),
        ("version", {"BOOL": True}, 'the group in the ledger is damaged: "version" is a boolean'),
    ],
    ids=["more than 38 digits", "a total", "a number of contributions", "a version"],
)
def test_a_group_that_cannot_take_a_contribution_is_named(rule: str, slot: str, value: Value, said: str) -> None:
    world = World(rule, chance=lambda: 0.0)
    world.put("POST#1", "METADATA")
    world.put("POST#2", "METADATA")
    likes(world, *range(20))
    world.settle()
    damage(world, slot, value)
    likes(world, 50, 51)
    likes(world, 50, 51, post=2)
    world.settle()
    assert world.post(2)["total"] == 2, "other targets of the batch are not affected"
    assert world.post(1)["total"] == 20, "nothing is published of a damaged group"
    assert {(one.rule, one.fault, one.target) for one in world.rejected} == {("total", "group", POST)}
    assert all(one.reason.startswith(said) for one in world.rejected)
    sources = {one.key: one.triggered_by for one in world.rejected if one.key != POST}
    assert sources == {key: (key,) for key in ("main|USER#50|LIKE#1", "main|USER#51|LIKE#1")}
    on_target = [one for one in world.rejected if one.key == POST]
    assert len(on_target) <= 1
    assert all(set(one.triggered_by) == sources.keys() for one in on_target)


def test_of_several_targets_the_one_with_the_damaged_group_is_named() -> None:
    world = World("  tags: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}\n")
    world.put("POST#0", "METADATA", tags=["b"])
    world.settle()
    damage(world, "n", {"S": "x"}, "tags", "main|TAG#b|STATS")
    world.put("POST#1", "METADATA", tags=["a", "b", "c"])
    world.settle()
    assert {one.target for one in world.rejected} == {"main|TAG#b|STATS"}
    assert {one.key for one in world.rejected} == {"main|POST#1|METADATA", "main|TAG#b|STATS"}


def test_a_target_that_is_too_large_is_rejected_once_with_all_that_led_there() -> None:
    rule = "  newest: {from: Like, top: {into: Post, as: t, by: w, limit: 3, attributes: [text]}}\n"
    world = World(rule)
    world.put("POST#1", "METADATA", body="x" * (ITEM_BYTES - 400))
    for user in range(3):
        world.like(user, 1, w=user, text="y" * 300)
    world.settle()
    (one,) = world.rejected
    assert (one.rule, one.key, one.target, one.fault) == ("newest", POST, POST, "target")
    assert sorted(one.triggered_by) == [f"main|USER#{user}|LIKE#1" for user in range(3)]
    assert one.sequence == world.store.stream("main")[0]["dynamodb"]["SequenceNumber"], "the lowest"


def test_redriven_after_the_repair_of_its_group_an_item_counts() -> None:
    queue = Queue()
    world = World(TOTAL, quarantine=Quarantine(lambda: queue, lambda: NOON))
    world.put("POST#1", "METADATA")
    likes(world, 1)
    world.settle()
    damage(world, "=total", {"S": "x"})
    likes(world, 2)
    world.settle()
    (left, *_) = [one for one in empty(world, queue).sources["quarantine"].left if "LIKE" in str(one.left)]
    ((reason,),) = left.left.values()
    assert reason.startswith(f"total: group of {POST}: the group in the ledger is damaged")
    assert left.message.reason.startswith(f"total: group of {POST}: ")
    repaired(world)
    assert not empty(world, queue).remains
    assert world.post()["total"] == 2
    assert queue.messages == {}


def test_a_copy_that_its_target_has_no_room_for_names_the_target_and_keeps_the_source_to_redrive() -> None:
    head = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Twin: {key: {PK: "TWIN#{twin}", SK: X}}
projections:
"""
    world = World('  twin: {from: Post, bind: {twin: "{postId}"}, copy: {into: Twin, attributes: [title]}}\n', head)
    world.store.write(Update(ItemKey("main", "TWIN#1", "X"), set={"body": {"S": "x" * (ITEM_BYTES - 100)}}))
    world.put("POST#1", "METADATA", title="t" * 300)
    world.settle()
    (one,) = world.rejected
    assert (one.key, one.target, one.fault) == (POST, "main|TWIN#1|X", "target")
    assert one.triggered_by == (POST,)


@pytest.mark.parametrize("slot", ["n", "=total", "version"])
def test_verify_reports_a_damaged_group_and_the_repair_corrects_it(slot: str) -> None:
    world = World(TOTAL)
    world.put("POST#1", "METADATA")
    likes(world, 1, 2)
    world.settle()
    damage(world, slot, {"S": "x"})
    assert [found[:3] for found in brief(drifts(world))] == [("group", "total", "POST#1|METADATA")]
    assert repaired(world) == []
    likes(world, 3)
    world.settle()
    assert world.post()["total"] == 3
    assert world.rejected == []


def test_a_derived_item_whose_group_is_damaged_is_not_taken_for_superfluous() -> None:
    world = World("  tags: {from: Post, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count}}}\n")
    world.put("POST#1", "METADATA", tags=["a"])
    world.settle()
    damage(world, "n", {"S": "x"}, "tags", "main|TAG#a|STATS")
    assert {found[0] for found in brief(drifts(world))} == {"group"}
