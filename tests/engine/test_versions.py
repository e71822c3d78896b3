"""Versions of a rule side by side: in functions, while they are filled, promoted, rolled back, removed and counted again."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from projections.engine.ledger_items import group_key
from projections.engine.registry import REGISTRY
from projections.engine.store import Image, ItemKey, Update
from projections.operations.backfill.runner import Runner, backfill_with_threads
from projections.operations.failed_messages import FailedMessage
from projections.operations.message_redrive import Redrive
from projections.operations.verify.repair import verify_and_repair
from projections.testing.oracle import Oracle
from tests.engine import scene
from tests.engine.scene import RULES, Scene, before, dies, settled
from tests.engine.world import World

HEAD = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
projections:
"""
ALL = "  likes: {from: Like, aggregate: {into: Post, set: {likes: count}}}\n"
HEAVY = "  likes: {from: Like, where: {weight: [9]}, aggregate: {into: Post, set: {heavy: count}}}\n"
WIDE = """
  likes:
    from: Like
    aggregate: {into: Post, SHARDSset: {n: count, total: sum(weight), most: max(number(weight)), who: counts(userId)}}
  newest: {from: Like, top: {into: Post, as: recent, by: weight, limit: 2, attributes: [userId]}}
"""
PLAIN, SHARDED = WIDE.replace("SHARDS", ""), WIDE.replace("SHARDS", "shards: 3, ")
BOTH = pytest.mark.parametrize("rules", [PLAIN, SHARDED], ids=["plain", "sharded"])
TARGET = "main|POST#1|METADATA"


def liked(rules: str = ALL, users: int = 3) -> Scene:
    chances = itertools.cycle([0.0, 0.4, 0.8])
    w = Scene(rules, HEAD, chance=lambda: next(chances))
    w.put("POST#1", "METADATA")
    for user in range(users):
        w.like(user, 1, weight=9 if user == 1 else user)
        w.settle()
    return w


def heavy(w: World) -> World:
    """A package with another version of the rule."""
    return w.under(HEAVY, HEAD)


def recount(w: World, *rules: str) -> None:
    w.carry_out([version.name for version in w.registry().recount(rules or ("likes",)).versions.values()])


def states(w: World) -> dict[str, str]:
    return {name: version.state for name, version in w.registry().read_or_create().versions.items()}


# Functions


def test_a_second_version_of_one_of_ten_rules_costs_one_group_and_no_entry() -> None:
    nine = "".join(ALL.replace("likes:", f"r{n}:").replace("likes: count", f"n{n}: count") for n in range(9))
    w = liked(ALL + nine)
    costs = []
    for weight in (7, 1, 9):
        if weight == 1:
            w.under(HEAVY + nine, HEAD).apply(promotes=False)
            w.like(8, 1)
            w.settle()  # the function has read the document of the new version
        w.store.calls.clear()
        w.store.transactions.clear()
        w.like(10 + weight, 1, weight=weight)
        w.settle()
        (writes,) = w.store.transactions
        costs.append((Counter(write.key.partition.split("|")[1] for write in writes), +w.store.calls))
    groups = Counter(["main", "likes.1", *(f"r{n}.1" for n in range(9))])
    assert [keys for keys, _ in costs] == [groups, groups, groups + Counter(["likes.2"])]
    # the item and, again, the registry; and the rule with two versions publishes alone
    assert costs[1][1] == costs[2][1] == costs[0][1] + Counter(get=2, update=1)


def test_a_function_of_an_older_package_works_by_the_rules_that_were_applied() -> None:
    w = liked()
    w.like(5, 1, weight=9)
    late = w.records()
    heavy(w).apply()
    assert w.post() == {"heavy": 2}
    assert w.processor.process(late, remaining=lambda: 900.0).failed is None
    w.like(6, 1, weight=9)
    w.settle()
    assert w.post() == {"heavy": 3}
    assert w.contributed("USER#6|LIKE#1").keys() == {"likes.1", "likes.2"}


def test_who_meets_an_entry_of_a_newer_registry_writes_nothing_and_begins_again() -> None:
    w = liked()
    w.like(9, 1, weight=9)
    ledgers: list[list[Image]] = []
    read = w.store.get

    def get(key: ItemKey, *arguments: Any) -> Image | None:
        if key == REGISTRY and ledgers:
            ledgers.append(w.store.items("ledger"))
        return read(key, *arguments)

    def fill() -> None:
        heavy(w).apply(promotes=False)
        ledgers.append(w.store.items("ledger"))
        w.store.get = get  # type: ignore[method-assign]

    before(w, "transact", fill)
    w.settle()
    assert ledgers[1] == ledgers[0]
    assert w.contributed("USER#9|LIKE#1").keys() == {"likes.1", "likes.2"}
    assert [(group["pk"][:9], group["n"]) for group in w.ledger("G|")] == [("G|likes.1", 4), ("G|likes.2", 2)]
    assert w.post() == {"likes": 4}


def test_who_meets_a_guard_of_a_newer_promotion_publishes_nothing_and_begins_again() -> None:
    w = liked()
    w.like(3, 1, weight=9)
    before(w, "write_each", heavy(w).apply)
    w.settle()
    assert "write_each" not in vars(w.store)
    assert w.post() == {"heavy": 2}


def test_versions_that_call_the_same_items_by_other_names_work_side_by_side() -> None:
    w = liked()
    names = HEAD.replace("Like:", "Heart:").replace("Post:", "Article:")
    other = w.under(ALL.replace("Like", "Heart").replace("Post", "Article"), names)
    other.apply(promotes=False)
    for user in (4, 5):
        w.like(user, 1)
        w.put("POST#1", "METADATA")
        w.settle()
        assert w.post() == {"likes": user}
        w.carry_out(["likes.2"], fills=False)
    w.carry_out(["likes.1"], fills=False)
    assert w.post() == {"likes": 5}


@pytest.mark.parametrize("removed", [[], ["likes.1"]], ids=["standby", "gone"])
def test_what_a_late_function_published_by_a_version_with_another_entity_is_removed(removed: list[str]) -> None:
    w = liked()
    w.like(3, 1)

    def promote() -> None:
        w.under(HEAVY, HEAD.replace("METADATA}}", "METADATA}, match: {kind: [a, b]}}")).apply()
        w.registry().remove(removed)
        w.put("POST#1", "METADATA", kind="a")

    w.put("POST#1", "METADATA", kind="a")
    before(w, "write_each", promote)
    w.settle()
    assert w.post() == {"kind": "a", "heavy": 1}


def test_what_a_held_version_had_published_is_the_applications_also_when_another_one_is_promoted() -> None:
    w = liked()
    w.under(ALL.replace("from: Like", "hold: true, from: Like"), HEAD).apply()
    w.put("POST#1", "METADATA", likes=77)
    w.settle()
    heavy(w).apply()
    w.settle()
    assert w.post() == {"likes": 77, "heavy": 1}


# Operators


def test_a_promotion_and_a_roll_back_show_one_version_or_the_other_and_read_no_source() -> None:
    w = liked()
    w.under(HEAVY.replace("heavy", "likes"), HEAD).apply(promotes=False)
    assert (w.post(), states(w)) == ({"likes": 3}, {"likes.1": "active", "likes.2": "ready"})
    scan = w.store.scan

    def scan_ledger(table: str, *arguments: Any, **options: Any) -> Any:
        assert table == "ledger"
        return scan(table, *arguments, **options)

    w.store.scan = scan_ledger  # type: ignore[method-assign]
    for number, likes in ((2, 1), (1, 3), (2, 1)):
        w.carry_out([f"likes.{number}"], fills=False)
        assert w.post() == {"likes": likes}
        w.settle()


def test_a_promotion_to_other_attributes_removes_those_of_the_version_before_also_where_nothing_contributes() -> None:
    w = liked()
    w.put("POST#2", "METADATA")
    w.like(0, 2)
    w.settle()
    w.remove("USER#0", "LIKE#2")
    w.settle()
    assert w.post(2) == {"likes": 0}
    heavy(w).apply()
    assert (w.post(1), w.post(2)) == ({"heavy": 1}, {"heavy": 0})
    w.carry_out(["likes.1"], fills=False)
    assert (w.post(1), w.post(2)) == ({"likes": 3}, {"likes": 0})


def test_what_a_version_has_set_is_removed_also_if_the_next_one_never_reached_all_targets() -> None:
    w = liked()
    other = heavy(w)
    assert dies(w, 16, other.apply)
    assert states(w)["likes.2"] == "active"
    assert w.post() == {"likes": 3}
    w.under(HEAVY.replace("heavy", "total"), HEAD).apply()
    assert w.post() == {"total": 1}


def test_what_a_removed_version_recorded_leaves_the_ledger() -> None:
    w = liked()
    heavy(w).apply(promotes=False)
    w.registry().remove(["likes.2"])
    w.like(1, 2, weight=9)
    w.remove("USER#1", "LIKE#1")
    w.settle()
    assert {rule for user in range(3) for rule in w.contributed(f"USER#{user}|LIKE#1")} == {"likes.1"}
    w.carry_out()
    assert w.ledger("G|likes.2|") == []
    assert w.post() == {"likes": 2}


@BOTH
def test_a_recount_corrects_damaged_totals_and_members(rules: str) -> None:
    w = liked(rules)
    w.store.write(Update(group_key("likes.1", TARGET), add={"n": {"N": "7"}, "=total": {"N": "-100.5"}}))
    for rule in ("likes", "newest"):
        *_, last = w.ledger(f"M|{rule}.1|")
        w.store.remove(ItemKey("ledger", last["pk"], last["sk"]))
    w.like(9, 1, weight=9)
    w.settle()
    assert w.differences()
    recount(w, "likes", "newest")
    assert w.differences() == []
    w.carry_out()
    assert [item for rule in ("likes", "newest") for kind in "GM" for item in w.ledger(f"{kind}|{rule}.1|")] == []
    w.remove("USER#1", "LIKE#1")
    w.settle()
    assert w.differences() == []


DEEP = pytest.mark.deep
CHANGES: list[Callable[[World], None]] = [
    lambda w: w.like(9, 1, weight=9),
    lambda w: w.like(1, 1, weight=5),
    lambda w: w.remove("USER#1", "LIKE#1"),
    lambda w: w.remove("POST#1", "METADATA"),
]


@BOTH
@pytest.mark.parametrize(("method", "step"), [("transact", 1), ("write", 4), pytest.param("write", 1, marks=DEEP)])
@pytest.mark.parametrize("change", CHANGES, ids=["new", "changed", "removed", "target removed"])
def test_nothing_is_lost_that_happens_during_a_fill_and_a_promotion(
    rules: str, method: str, step: int, change: Callable[[World], None]
) -> None:
    for call in range(0, 100, step):
        w = liked(rules)
        change(w)
        before(w, method, w.settle, call)
        recount(w)
        over = method in vars(w.store)
        w.settle()
        assert w.differences() == [], call
        if over:
            return
    raise AssertionError("it never ends")


def test_an_apply_that_dies_anywhere_is_resumed() -> None:
    for writes in range(200):
        w = liked()
        other = heavy(w)
        if not dies(w, writes, other.apply):
            assert writes > 5
            return
        w.like(8, 1, weight=9)
        w.settle()
        assert w.post() in ({"likes": 4}, {"heavy": 2}), writes
        other.apply()
        w.settle()
        assert w.post() == {"heavy": 2}, writes
        assert Oracle(other.program.document).compare({"main": w.store.items("main")}, genuine=lambda *_: True) == []
    raise AssertionError("it never ends")


# A ledger that was restored


def restore(w: World, ledger: list[Image]) -> None:
    for item in w.store.items("ledger"):
        w.store.remove(ItemKey("ledger", item["pk"]["S"], item["sk"]["S"]))
    for item in ledger:
        w.store.put("ledger", item)


@pytest.mark.parametrize("promoted", [False, True])
def test_a_restored_ledger_overtakes_the_epochs_that_it_has_lost(promoted: bool) -> None:
    w = liked()
    backup = w.store.items("ledger")
    heavy(w).apply(promotes=promoted)
    w.like(5, 1, weight=9)
    w.settle()
    restore(w, backup)
    w.like(6, 1, weight=9)
    w.settle()
    w.carry_out()
    assert w.post()["likes"] == 5
    assert (w.registry().read_or_create().promotion("likes.1") > 1_700_000_003) == promoted


@pytest.mark.parametrize("command", ["redrive", "repair", "rehearse"])
def test_commands_go_on_with_a_restored_ledger(command: str) -> None:
    w = settled()
    backup = w.store.items("ledger")
    other = w.under(RULES.replace("[userId, name]", "[userId, name], values: {more: 1}"), scene.HEAD)
    other.apply()
    w.settle()
    restore(w, backup)
    w.put(
        "EMAIL#a@example.com", "OWNER", **{**(w.item("EMAIL#a@example.com", "OWNER", guards=True) or {}), "name": "x"}
    )
    w.lose()
    if command == "redrive":
        (answer,) = Redrive(w.program, w.store).work(
            [FailedMessage("here", {ItemKey("main", "EMAIL#a@example.com", "OWNER"): ()})]
        )
        assert not answer.left
    elif command == "repair":
        with verify_and_repair(w.program, w.store, repair=True, patience=0, segments=1) as verified:
            assert verified.repair is not None
            assert not verified.repair.failed
    else:
        ledger = w.store.items("ledger")
        backfill = backfill_with_threads(other.program, w.store, segments=1, dry=True)
        Runner(backfill).rehearse(backfill.unrecorded_run(backfill.registry.preview(other.program).snapshot, 1))
        assert w.store.items("ledger") == ledger
        return
    assert w.item("EMAIL#a@example.com", "OWNER")["name"] == "A"  # type: ignore[index]
