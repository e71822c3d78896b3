"""Processes that outlive their ledger: what they remember of generations is not written into a ledger that was restored."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from projections.engine.groups import Generations, read_groups
from projections.engine.ledger_items import CLOSED, REBUILDING, group_key
from projections.engine.store import Image, ItemKey, Update
from tests.engine.scene import Scene
from tests.engine.test_rebuild import BOTH, KEPT, KEPT_HEAD, SENSOR, TARGET, damage, liked, rebuild

SHARDED_KEPT = KEPT.replace("SHARDS", "shards: 3, ")


def restore(w: Scene, backup: list[Image]) -> None:
    for item in w.store.items("ledger"):
        w.store.remove(ItemKey("ledger", item["pk"]["S"], item["sk"]["S"]))
    for item in backup:
        w.store.put("ledger", item)


def generations(w: Scene) -> set[str]:
    return {item["sk"].partition("|")[0] for item in w.ledger(f"G|{TARGET[0]}|{TARGET[1]}")}


def rebuilt_then_restored(rules: str) -> Scene:
    """Functions stay warm while the group is rebuilt, and the ledger restored to what it was before."""
    w = liked(rules)
    backup = w.store.items("ledger")
    damage(w, TARGET, n="7")
    rebuild(w, TARGET)
    w.like(7, 1, weight=1)
    w.settle()
    assert generations(w) == {"0000", "0001"}
    restore(w, backup)
    return w


@BOTH
def test_a_warm_function_writes_to_the_generation_that_the_restored_ledger_has(rules: str) -> None:
    w = rebuilt_then_restored(rules)
    w.like(8, 1, weight=8)
    w.settle()
    assert generations(w) == {"0000"}
    w.refresh(ItemKey("main", "USER#7", "LIKE#1"))
    w.refresh(ItemKey("main", "POST#1", "METADATA"))
    w.settle()
    assert w.differences() == []


@BOTH
def test_a_warm_function_follows_a_rebuild_of_the_restored_ledger(rules: str) -> None:
    w = rebuilt_then_restored(rules)
    w.like(8, 1, weight=8)
    w.settle()
    rebuild(w, TARGET)
    w.like(9, 1, weight=9)
    w.settle()
    w.refresh(ItemKey("main", "USER#7", "LIKE#1"))
    w.refresh(ItemKey("main", "POST#1", "METADATA"))
    w.settle()
    assert w.differences() == []


def split(w: Scene) -> None:
    """Two generations are open: older functions wrote to one that the restored ledger did not have."""
    w.store.write(Update(group_key(*TARGET, 1), add={"version": {"N": "3"}, "n": {"N": "3"}}))


def self_closed(w: Scene) -> None:
    w.store.write(Update(group_key(*TARGET), set={CLOSED: {"N": "0"}}))


def closed_by_a_lost_one(w: Scene) -> None:
    w.store.write(Update(group_key(*TARGET), set={CLOSED: {"N": "4"}}))


def lost(w: Scene) -> None:
    for item in w.store.items("ledger"):
        if item["pk"]["S"] == group_key(*TARGET).partition:
            w.store.remove(ItemKey("ledger", item["pk"]["S"], item["sk"]["S"]))


def stamped(w: Scene) -> None:
    """Entries name a generation that is not there."""
    rebuild(w, TARGET)
    lost(w)


def abandoned(w: Scene) -> None:
    w.store.write(Update(group_key(*TARGET), set={REBUILDING: {"BOOL": True}}))


@pytest.mark.parametrize("harm", [split, self_closed, closed_by_a_lost_one, lost, stamped, abandoned])
@BOTH
def test_any_damaged_group_can_be_written_read_and_rebuilt(rules: str, harm: Callable[[Scene], None]) -> None:
    w = liked(rules)
    harm(w)
    w.like(8, 1, weight=8)
    w.remove("USER#1", "LIKE#1")
    w.settle()
    read_groups(w.store, [TARGET], Generations())
    for _ in range(2):  # entries may be stamped with the number that the first rebuild takes
        rebuild(w, TARGET)
        w.settle()
    w.processor = w.worker()
    w.like(9, 1, weight=9)
    w.settle()
    w.refresh(ItemKey("main", "POST#1", "METADATA"))
    w.settle()
    assert w.differences() == []


@pytest.mark.parametrize("rules", [KEPT.replace("SHARDS", ""), SHARDED_KEPT], ids=["plain", "sharded"])
def test_settled_amounts_of_both_open_generations_are_kept(rules: str) -> None:
    w = Scene(rules, KEPT_HEAD)
    for at, value in ((1, 5), (2, 7)):
        w.put("SENSOR#s", f"POINT#{at}", v=value)
    w.settle()
    w.remove("SENSOR#s", "POINT#1", by_ttl=True)
    w.settle()
    w.store.write(Update(group_key(*SENSOR, 1), add={"version": {"N": "1"}, "~n": {"N": "2"}, "~=total": {"N": "9"}}))
    rebuild(w, SENSOR)
    w.settle()
    found = w.item("SENSOR#s", "S") or {}
    assert (found["n"], found["total"], found["low"], found["high"]) == (4, 21, 5, 7)
