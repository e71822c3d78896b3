"""Verification of held rules, without a ledger, of filling rules, of some rules, and of a sample."""

from __future__ import annotations

import random
import tempfile
from typing import Any

import pytest

from projections.engine.guards import Guards, at_of
from projections.engine.registry import REGISTRY, Registry
from projections.engine.store import ItemKey
from projections.errors import UsageError
from projections.operations.verify.scanning import Scratch
from projections.operations.verify.verification import Verification
from projections.operations.verify.verify_scope import Scope
from tests.engine.world import World
from tests.operations.verify_scene import (
    RULES,
    brief,
    drifts,
    edit,
    fill,
    filled,
    ledger_edit,
    ledger_lose,
    lost,
    of,
    repaired,
    verified,
    world_of,
)

POST = "POST#1|METADATA"


def by_hand(world: World) -> None:
    """Set the correct values as if the application maintained them."""
    for post in range(4):
        likes = [user for user in range(6) if post < user % 5]
        stars = [user * 10 + post for user in likes]
        newest = [{"userId": str(user), "stars": user * 10 + post} for user in reversed(likes)][:2]
        visits: dict[str, Any] = {"visits": 5, "longest": 4} if post == 1 else {"visits": 0}
        edit(
            world,
            f"POST#{post}",
            "METADATA",
            likeCount=len(likes),
            best=max(stars),
            mean=sum(stars) / len(stars),
            starSum=sum(stars),
            newest=newest,
            GSI1PK=f"BY#u{post % 2}",
            GSI1SK=str(post),
            **visits,
        )
    for user in range(6):
        for post in range(user % 5):
            edit(world, f"USER#{user}", f"LIKE#{post}", userCity=f"c{user}")
            edit(world, f"SEEN#{user}#{post}", "X", stars=user * 10 + post)
    for number in range(3):
        edit(world, f"NAME#n{number}", "USER", userId=str(2 * number), city=f"c{2 * number}")
    edit(world, "TAG#a", "STATS", posts=4, users=6)
    for post in range(4):
        edit(world, f"TAG#t{post}", "STATS", posts=1, users=0)


def wrong_by_hand(world: World) -> None:
    edit(world, "POST#1", "METADATA", likeCount=2, newest=[], GSI1PK="BY#nobody")
    edit(world, "USER#3", "LIKE#1", userCity="elsewhere")
    edit(world, "SEEN#3#1", "X", stars=0)
    edit(world, "NAME#n1", "USER", city="elsewhere")
    edit(world, "TAG#a", "STATS", posts=5)


WRONG = {
    of("value", "likes", POST, "likeCount", 2, 3),
    of("value", "newest", POST, "newest", [], [{"userId": "4", "stars": 41}, {"userId": "3", "stars": 31}]),
    of("index", "listed", POST, "GSI1PK", "BY#nobody", "BY#u1", POST),
    of("embed", "author", "USER#3|LIKE#1", "userCity", "elsewhere", "c3", "USER#3|PROFILE"),
    of("copy stale", "seen", "SEEN#3#1|X", "stars", 0, 31, "USER#3|LIKE#1"),
    of("value", "names", "NAME#n1|USER", "city", "elsewhere", "c2", "USER#2|PROFILE"),
    of("value", "tags", "TAG#a|STATS", "posts", 5, 4),
}


def with_held_rules() -> World:
    """A table whose values the application maintains, and held rules."""
    world = world_of(held=RULES)
    fill(world)
    world.settle()
    by_hand(world)
    return world


def test_held_rules_are_compared_with_what_is_there() -> None:
    world = with_held_rules()
    assert drifts(world) == []
    wrong_by_hand(world)
    found = drifts(world)
    recorded = {(kind, f"{rule}.1", *more) for kind, rule, *more in WRONG if rule in world.program.recorded}
    assert brief(found) == recorded
    assert {drift.unpublished for drift in found} == {True}


@pytest.mark.parametrize("held", [(), RULES], ids=["live rules", "held rules"])
def test_before_there_is_a_ledger_the_table_is_compared_with_what_the_rules_would_make(held: Any) -> None:
    world = world_of(held=held)
    fill(world)
    by_hand(world)
    ledger_lose(world, "")
    assert drifts(world) == []
    wrong_by_hand(world)
    assert brief(drifts(world)) == WRONG
    assert world.store.items("ledger") == []


KINDS = """
table: {key: [PK, SK]}
entities:
  Scan: {key: {PK: "PASS#{pass}", SK: "SCAN#{at}"}}
  Day: {key: {PK: "RESORT#{resort}", SK: "DAY#{day}"}, match: {kind: Day}, derived: true}
projections:
"""
SCANS = "  daily: {from: Scan, bind: {day: '{at|truncate(10)}'}, aggregate: {into: Day, set: {scans: count}}}"


def test_values_of_match_on_derived_items_are_not_drift() -> None:
    world = World(SCANS, KINDS)
    for number in range(20):
        world.put(f"PASS#{number}", "SCAN#2026-01-02T09", resort=f"r{number % 5}", at="2026-01-02T09")
    world.settle()
    assert world.item("RESORT#r1", "DAY#2026-01-02") is not None
    world.store.calls.clear()
    assert drifts(world) == []
    assert world.store.calls["get_many"] == 0  # nothing is examined again
    ledger_lose(world, "")
    assert drifts(world) == []


def test_nothing_is_repaired_without_a_ledger() -> None:
    world = world_of(["likes"])
    world.store.remove(REGISTRY)
    with pytest.raises(UsageError, match="no active rules"):
        repaired(world)


def test_only_the_rules_that_are_named_are_verified_and_repaired() -> None:
    world = filled()
    edit(world, "POST#1", "METADATA", likeCount=99, GSI1PK="x")
    ledger_edit(world, "G|sharded.1|main|POST#1", "00", n={"N": "1"})
    assert {drift.rule for drift in drifts(world, rules=["likes"])} == {"likes"}
    assert {drift.rule for drift in drifts(world, rules=["listed"])} == {"listed"}
    assert repaired(world, rules=["likes", "listed"]) == []
    assert {drift.rule for drift in drifts(world)} == {"sharded"}


def test_deletions_are_withheld_unless_allowed() -> None:
    world = filled()
    lost(world, lambda: world.remove("USER#3", "LIKE#1"))
    left = repaired(world, deletes=False)
    assert brief(left) == {of("copy extra", "seen", "SEEN#3#1|X", None, {"stars": 31}, None, "USER#3|LIKE#1")}
    assert repaired(world, deletes=True) == []
    assert world.item("SEEN#3#1", "X") is None


def test_a_full_disk_is_one_message_with_the_size_the_directory_and_the_way_out() -> None:
    world = filled()
    with Scratch() as scratch:
        scratch.run("PRAGMA max_page_count = 30")
        verification = Verification(Scope(world.program, world.registry().read()), world.store, scratch)
        with pytest.raises(UsageError, match=rf"0\.1 MB in {tempfile.gettempdir()}\. Set TMPDIR .* --sample 1%"):
            verification.all()
    assert not scratch.path.exists()


# Samples


def test_samples_find_what_is_wrong_with_items_and_entries_but_not_sums() -> None:
    world = filled()
    edit(world, "POST#1", "METADATA", likeCount=99)
    lost(world, lambda: world.remove("USER#3", "LIKE#1"))
    ledger_lose(world, "G|visits.1")
    found: set[str] = set()
    for seed in range(30):
        with verified(world, begin=lambda one, seed=seed: one.sample(0.3, random.Random(seed))) as one:
            found |= {drift.kind for drift in one.drifts()}
    assert {"value", "entry extra", "copy extra"} <= found
    assert "group" not in found


@pytest.mark.parametrize("former", ["USER#1|LIKE#0", "USER#4|LIKE#1", "USER#99|LIKE#1"])
def test_a_copy_whose_valid_guard_names_another_source_is_not_deleted(former: str) -> None:
    world = filled(["seen"])
    key, standing = ItemKey("main", "SEEN#3#1", "X"), Registry(world.program, world.store).read()
    image = world.store.get(key)
    assert image is not None
    assert standing is not None
    guards = Guards(world.program, standing.identity)
    stamp = guards.stamp("seen", key, at_of(image["~seen"]), by=f"main|{former}")
    world.store.seed("main", {**image, "~seen": stamp})
    assert [(drift.kind, drift.source) for drift in drifts(world)] == [("guard", "main|USER#3|LIKE#1")]
    assert repaired(world) == []
    assert guards.read("seen", key, world.store.get(key)).by == "main|USER#3|LIKE#1"  # type: ignore[union-attr]
