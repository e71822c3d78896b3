"""Rebuilding a group in a new generation: what disagreed with the entries agrees again, and traffic never stopped."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from projections.engine.groups import Generations, read_groups
from projections.engine.ledger_items import Target, group_key
from projections.engine.rebuild import close, notes, reopen, sweep
from projections.engine.refresh import Refresher
from projections.engine.store import ItemKey, Update
from projections.language.keys import decode_key
from tests.engine.scene import Scene, Stopped, before, deadline, die, live
from tests.engine.world import World

LIKES = """
  likes:
    from: Like
    aggregate:
      into: Post
      SHARDSset: {likeCount: count, total: sum(weight), heaviest: max(number(weight)), lightest: min(number(weight))}
  newest: {from: Like, top: {into: Post, as: recent, by: weight, limit: 2, attributes: [userId]}}
"""
PLAIN, SHARDED = LIKES.replace("SHARDS", ""), LIKES.replace("SHARDS", "shards: 3\n      ")
HEAD = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
projections:
"""
KEPT_HEAD = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Sensor: {key: {PK: "SENSOR#{sensor}", SK: S}, derived: true}
  Point: {key: {PK: "SENSOR#{sensor}", SK: "POINT#{at}"}, expires: true}
projections:
"""
KEPT = """
  points:
    from: Point
    expired: keep
    aggregate: {into: Sensor, SHARDSset: {n: count, total: sum(v), low: min(number(v)), high: max(number(v))}}
"""
TARGET = "likes", "main|POST#1|METADATA"
NEWEST = "newest", "main|POST#1|METADATA"
SENSOR = "points", "main|SENSOR#s|S"
BOTH = pytest.mark.parametrize("rules", [PLAIN, SHARDED], ids=["plain", "sharded"])


def liked(rules: str) -> Scene:
    chances = itertools.cycle([0.0, 0.4, 0.8])
    w = Scene(rules, HEAD, chance=lambda: next(chances))
    for post in (1, 2):
        w.put(f"POST#{post}", "METADATA")
        for user in range(5):
            w.like(user, post, weight=user)
            w.settle()
    assert w.differences() == []
    return w


def moving(w: Scene, refresher: Refresher, target: Target) -> None:
    """Refreshes all sources whose entries name the target."""
    sources = [entry["pk"].removeprefix("E|") for entry in w.ledger("E|")]
    named = [source for source in sources if target[1] in w.contributed(source.partition("|")[2]).get(target[0], {})]
    refresher.sources({decode_key(source): None for source in named}, deadline())
    assert refresher.failed == {}


def rebuild(w: Scene, *targets: Target) -> None:
    """As a new process does it."""
    refresher = w.refresher()
    for target in targets:
        generation = close(w.store, w.program, target, refresher.generations, deadline())
        moving(w, refresher, target)
        reopen(w.store, target, generation)
        assert refresher.publish([target], deadline()) == {}
        sweep(w.store, target, generation)


def damage(w: World, target: Target, **amounts: str) -> None:
    """Somebody adds to a group by hand."""
    add = {{"n": "n"}.get(name, f"={name}"): {"N": amount} for name, amount in amounts.items()}
    w.store.write(Update(group_key(*target), add=add))


def members(w: World, target: Target) -> list[dict[str, Any]]:
    return [member for member in w.ledger(f"M|{target[0]}|") if member["pk"].endswith(target[1])]


@BOTH
def test_damaged_totals_are_put_right_and_stay_right(rules: str) -> None:
    w = liked(rules)
    damage(w, TARGET, n="7", total="-100.5")
    w.like(9, 1, weight=9)
    w.settle()
    assert (w.post()["likeCount"], w.post()["total"]) == (13, -81.5)
    rebuild(w, TARGET)
    assert w.differences() == []
    w.like(9, 1, weight=5)
    w.remove("USER#0", "LIKE#1")
    w.like(10, 1, weight=1)
    w.settle()
    assert w.differences() == []


@BOTH
def test_damaged_members_are_put_right_and_stay_right(rules: str) -> None:
    w = liked(rules)
    for target in (TARGET, NEWEST):
        first, *_, last = members(w, target)
        w.store.remove(ItemKey("ledger", last["pk"], last["sk"]))
        image = w.store.get(ItemKey("ledger", first["pk"], first["sk"])) or {}
        w.store.put("ledger", {**image, "sk": {"S": last["sk"].replace("LIKE", "LIKF")}, "v": {"N": "77"}})
    w.put("POST#1", "METADATA", title="so that it is published anew")
    w.settle()
    assert w.differences()
    rebuild(w, TARGET, NEWEST)
    assert w.differences() == []
    w.remove("USER#4", "LIKE#1")
    w.settle()
    assert w.differences() == []


# What no entry tells any more.


@pytest.mark.parametrize("shards", ["", "shards: 3, "], ids=["plain", "sharded"])
def test_what_has_settled_is_taken_over(shards: str) -> None:
    w = expired(shards)
    before_it = w.item("SENSOR#s", "S")
    damage(w, SENSOR, n="4", total="1000")
    w.put("SENSOR#s", "POINT#9", v=6)
    w.settle()
    rebuild(w, SENSOR)
    now = w.item("SENSOR#s", "S")
    assert before_it is not None
    assert now == {**before_it, "n": 7, "total": 27}
    w.remove("SENSOR#s", "POINT#2", by_ttl=True)
    w.remove("SENSOR#s", "POINT#3", by_ttl=True)
    w.remove("SENSOR#s", "POINT#9")
    w.put("SENSOR#s", "POINT#10", v=11)
    w.settle()
    assert w.item("SENSOR#s", "S") == {**before_it, "n": 7, "total": 32, "high": 11}
    w.remove("SENSOR#s", "POINT#10")
    w.settle()
    rebuild(w, SENSOR)
    assert w.item("SENSOR#s", "S") == before_it


def expired(shards: str) -> Scene:
    """Six points, 1 to 6 and in all 21, of which those with the least and the greatest value are gone."""
    chances = itertools.cycle([0.0, 0.4, 0.8])
    w = Scene(KEPT.replace("SHARDS", shards), KEPT_HEAD, chance=lambda: next(chances))
    for number, value in enumerate([3, 1, 4, 5, 2, 6]):
        w.put("SENSOR#s", f"POINT#{number}", v=value)
        w.settle()
    for number in (1, 5, 0):
        w.remove("SENSOR#s", f"POINT#{number}", by_ttl=True)
        w.settle()
    item = w.item("SENSOR#s", "S")
    assert item == {"PK": "SENSOR#s", "SK": "S", "n": 6, "total": 21, "low": 1, "high": 6}
    return w


@pytest.mark.parametrize("shard", [0, 1, 2])
@pytest.mark.parametrize("shards", ["", "shards: 3, "], ids=["plain", "sharded"])
def test_what_settles_while_the_group_is_closed_is_not_lost(shards: str, shard: int) -> None:
    """In any shard: before each transaction of a rebuild a point greater than all others expires."""
    for call in range(100):
        w = expired(shards)
        w.put("SENSOR#s", "POINT#7", v=100)
        w.settle()

        def expire(w: Scene = w) -> None:
            w.remove("SENSOR#s", "POINT#7", by_ttl=True)
            w.settings["chance"] = lambda: shard / 3
            w.processor = w.worker()
            w.settle()

        before(w, "transact", expire, call)
        rebuild(w, SENSOR)
        if "transact" in vars(w.store):  # it made no more of them
            return
        item = w.item("SENSOR#s", "S")
        assert item == {"PK": "SENSOR#s", "SK": "S", "n": 7, "total": 121, "low": 1, "high": 100}, call
    raise AssertionError("it never ends")


# Beside traffic.


CHANGES: list[Callable[[World], None]] = [
    lambda w: w.like(9, 1, weight=9),
    lambda w: w.like(4, 1, weight=3),
    lambda w: w.remove("USER#0", "LIKE#1"),
    lambda w: w.put("USER#1", "LIKE#1", postId="2", weight=1),  # bad input
]


@BOTH
@pytest.mark.parametrize("change", range(len(CHANGES)))
def test_a_process_that_does_not_know_the_new_generation_learns_of_it(rules: str, change: int) -> None:
    """Whether the entry it changes is moved already or not; its own members go where the group is."""
    for moved in (False, True):
        w = liked(rules)
        refresher = w.refresher()
        generation = close(w.store, w.program, TARGET, refresher.generations, deadline())
        if moved:
            moving(w, refresher, TARGET)
        CHANGES[change](w)
        w.settle()
        if not moved:
            moving(w, refresher, TARGET)
        reopen(w.store, TARGET, generation)
        refresher.publish([TARGET], deadline())
        sweep(w.store, TARGET, generation)
        assert w.differences() == []
        assert {member["sk"][:5] for member in members(w, TARGET)} == {"0001|"}
        CHANGES[(change + 1) % len(CHANGES)](w)
        w.settle()
        assert w.differences() == []


@BOTH
def test_changes_at_any_moment_are_counted_once(rules: str) -> None:
    """Before each write of a rebuild a worker that knows nothing of it processes some changes."""
    for call in range(100):
        w = liked(rules)
        damage(w, TARGET, n="7")
        for change in CHANGES:
            change(w)
        before(w, "transact", w.settle, call)
        rebuild(w, TARGET)
        over = "transact" in vars(w.store)
        w.settle()
        assert w.differences() == [], call
        if over:
            return
    raise AssertionError("it never ends")


# Repeated.


@BOTH
def test_a_rebuild_that_dies_anywhere_is_resumed(rules: str) -> None:
    for writes in range(200):
        w = liked(rules)
        damage(w, TARGET, n="7")
        die(w, iter(range(writes)))
        try:
            rebuild(w, TARGET)
        except Stopped:
            pass
        else:
            assert writes > 0
            return
        live(w)
        w.like(8, 1, weight=8)
        w.settle()
        rebuild(w, TARGET)
        w.settle()
        assert w.differences() == [], writes
        generations = {group["sk"][:4] for group in w.ledger(f"G|{TARGET[0]}|{TARGET[1]}") if "closed" not in group}
        assert len(generations) == 1, writes
    raise AssertionError("it never ends")


@BOTH
@pytest.mark.parametrize("method", ["transact", "write"])
def test_two_at_once_do_what_one_does(rules: str, method: str) -> None:
    """A second one runs from beginning to end before any transaction, or any other write, of the first."""
    for call in range(100):
        w = liked(rules)
        damage(w, TARGET, n="7")
        w.like(8, 1, weight=8)
        before(w, method, partial(rebuild, w, TARGET), call)
        rebuild(w, TARGET)
        over = method in vars(w.store)
        w.settle()
        assert w.differences() == [], call
        assert list(notes(w.store)) == [], call
        w.remove("USER#8", "LIKE#1")
        w.settle()
        assert w.differences() == [], call
        if over:
            return
    raise AssertionError("it never ends")


@BOTH
def test_a_note_and_the_generation_it_names_are_written_together(rules: str) -> None:
    for writes in range(50):
        w = liked(rules)
        die(w, iter(range(writes)))
        try:
            close(w.store, w.program, TARGET, Generations(), deadline())
        except Stopped:
            pass
        else:
            assert writes > 0
            return
        live(w)
        begun = read_groups(w.store, [TARGET], Generations())[TARGET]
        noted = [(note.target, note.generation) for note in notes(w.store)]
        assert noted == ([(TARGET, begun.generation)] if begun.rebuilding else []), writes
    raise AssertionError("it never ends")


@pytest.mark.parametrize("call", range(2), ids=["before it notes the shards", "before it commits"])
def test_where_the_first_shard_was_lost_a_commit_under_way_finds_every_shard_closed(call: int) -> None:
    w = Scene(SHARDED, HEAD, chance=lambda: 0.5)
    w.put("POST#1", "METADATA")
    w.settle()
    w.like(1, 1, weight=1)

    def lose() -> None:
        first = group_key(*TARGET)
        if w.store.get(first) is not None:
            w.store.remove(first)
        rebuild(w, TARGET)

    before(w, ["write", "transact"][call], lose, 0)
    w.settle()
    assert w.differences() == []
