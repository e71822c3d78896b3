"""Aggregates: what is committed, what it costs, and that nothing is counted twice."""

from __future__ import annotations

import itertools
import json
from decimal import Decimal
from typing import Any
from unittest.mock import Mock

import pytest

from projections.engine.store import Delete
from projections.errors import TransactionCancelled, Transient
from tests.engine.scene import before
from tests.engine.world import HEAD, TAG, World, conflict, throttled

COUNT = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}\n"
MEASURES = """
  likes:
    from: Like
    aggregate:
      into: Post
      set:
        n: count
        total: sum(weight)
        mean: avg(weight)
        heavy: {count: {where: {weight: [{numeric: [">", 5]}]}}}
        least: min(number(weight))
        greatest: max(number(weight))
        firstDay: min(text(day))
"""


def posted(rules: str = COUNT) -> World:
    world = World(rules)
    world.put("POST#1", "METADATA")
    world.settle()
    return world


def test_a_count_follows_inserts_edits_moves_and_removals() -> None:
    world = World(COUNT)
    world.put("POST#1", "METADATA", title="a")
    for user in range(5):
        world.like(user, 1)
    world.settle()
    assert world.post() == {"title": "a", "likeCount": 5}
    world.like(0, 1, note="edited")
    world.remove("USER#1", "LIKE#1")
    world.settle()
    assert world.post()["likeCount"] == 4


def test_every_function_over_one_group() -> None:
    world = posted(MEASURES)
    assert world.post() == {"n": 0, "total": 0, "heavy": 0}
    for user, (weight, day) in enumerate([(Decimal("1.5"), "b"), (10, "a"), (-3, "c")]):
        world.like(user, 1, weight=weight, day=day)
    world.settle()
    assert world.post() == {
        "n": 3, "total": 8.5, "mean": {"$number": "2.8333333333333333333333333333333333333"}, "heavy": 1,
        "least": -3, "greatest": 10, "firstDay": "a",
    }  # fmt: skip
    world.remove("USER#1", "LIKE#1")
    world.remove("USER#2", "LIKE#1")
    world.settle()
    assert world.post() == {
        "n": 1, "total": 1.5, "mean": 1.5, "heavy": 0, "least": 1.5, "greatest": 1.5, "firstDay": "b"
    }  # fmt: skip
    world.remove("USER#0", "LIKE#1")
    world.settle()
    assert world.post() == {"n": 0, "total": 0, "heavy": 0}
    assert world.ledger("M|") == []


def test_a_lone_like_is_one_read_one_transaction_and_one_publish() -> None:
    world = posted()
    world.store.calls.clear()
    world.like(1, 1)
    world.deliver()
    assert world.store.calls == {"get_many": 1, "transact": 1, "update": 1}
    world.settle()
    assert world.store.calls == {"get_many": 1, "transact": 1, "update": 1, "get": 1}, "of its echo only the registry"
    assert len(world.store.transactions[-1]) == 2


def test_a_lone_like_whose_group_changes_after_it_was_read_is_committed_without_that_read() -> None:
    world = posted()
    world.like(1, 1)
    of_other = world.records()
    world.position += 1
    world.like(2, 1)
    before(world, "transact", lambda: world.worker().process(of_other, remaining=lambda: 900.0))
    world.deliver()
    assert [len(writes) for writes in world.store.transactions] == [2, 2, 2]
    assert world.post() == {"likeCount": 2}
    world.settle()
    world.store.calls.clear()
    world.like(3, 1)
    world.deliver()
    assert world.store.calls == {"get": 1, "transact": 1, "get_many": 1, "update": 1}
    assert world.post() == {"likeCount": 3}


def test_a_batch_delivered_twice_counts_once_and_still_publishes() -> None:
    world = posted()
    for user in range(3):
        world.like(user, 1)
    batch = world.records()
    world.deliver()
    again = world.processor.process(batch, remaining=lambda: 900)
    assert again.counts["duplicates"] == 3
    assert again.counts["applied"] == 0
    assert world.post() == {"likeCount": 3}


def test_a_commit_whose_publish_was_lost_is_published_on_redelivery() -> None:
    world = posted()
    world.like(1, 1)
    batch = world.records()
    world.deliver()
    world.store.put("main", {"PK": {"S": "POST#1"}, "SK": {"S": "METADATA"}})  # as if nothing had been published
    world.worker().process(batch, remaining=lambda: 900)
    assert world.post() == {"likeCount": 1}


def test_conflicts_and_throttling_are_retried_within_the_time_that_remains() -> None:
    world = posted()
    world.like(1, 1)
    world.store.faults = [conflict(2), throttled(), None]
    world.settle()
    assert world.post() == {"likeCount": 1}


def test_without_time_the_lowest_sequence_number_is_reported_and_nothing_is_written() -> None:
    world = World(COUNT)
    world.like(1, 1)
    world.like(2, 1)
    records = world.records()
    outcome = world.deliver(remaining=0.5)
    assert outcome.failed == records[0]["dynamodb"]["SequenceNumber"]
    assert world.ledger("E") == world.ledger("G") == []


def test_an_unknown_answer_after_a_commit_is_found_to_be_a_duplicate() -> None:
    world = posted()
    real, lost = world.store.transact, [True]

    def transact(writes: Any) -> None:
        real(writes)
        if lost.pop() if lost else False:
            raise Transient("the answer was lost")

    world.store.transact = transact  # type: ignore[method-assign]
    world.like(1, 1)
    world.settle()
    assert world.post() == {"likeCount": 1}


def test_a_removed_source_leaves_a_tombstone_that_expires() -> None:
    world = World(COUNT)
    world.put("POST#1", "METADATA")
    world.like(1, 1)
    world.settle()
    world.remove("USER#1", "LIKE#1")
    world.settle()
    (entry,) = world.ledger("E|")
    assert entry["contributions"] == "{}"
    assert "recent" not in entry
    assert entry["ttl"] == 1_700_000_000 + 7 * 24 * 3600
    world.like(1, 1)
    world.settle()
    (entry,) = world.ledger("E|")
    assert "ttl" not in entry


def test_1000_likes_of_ten_posts_are_11_transactions() -> None:
    world = World(COUNT)
    for post in range(10):
        world.put(f"POST#{post}", "METADATA")
    world.settle()
    world.store.calls.clear()
    for number in range(1000):
        world.like(number, number % 10)
    world.deliver()
    assert world.store.calls == {"get": 1, "transact": 11, "get_many": 1, "update": 10}
    assert all(len(writes) <= 100 for writes in world.store.transactions)
    assert [world.post(post)["likeCount"] for post in range(10)] == [100] * 10


EACH = """
  tags:
    from: Post
    each: {tag: tags, most: 10000}
    aggregate: {into: Tag, set: {posts: count, reads: sum(reads), oldest: min(text(createdAt))}}
"""


def test_each_counts_elements_and_a_derived_item_lives_as_long_as_something_contributes() -> None:
    world = World(EACH)
    world.put("POST#1", "METADATA", tags=["a", "b", "a"], reads=3, createdAt="2026")
    world.put("POST#2", "METADATA", tags=["b"], reads=4, createdAt="2025")
    world.settle()
    assert world.item("TAG#a", "STATS") == {"PK": "TAG#a", "SK": "STATS", "posts": 1, "reads": 3, "oldest": "2026"}
    assert world.item("TAG#b", "STATS") == {"PK": "TAG#b", "SK": "STATS", "posts": 2, "reads": 7, "oldest": "2025"}
    world.put("POST#1", "METADATA", tags=["b"], reads=3, createdAt="2026")
    world.remove("POST#2", "METADATA")
    world.settle()
    assert world.item("TAG#a", "STATS") is None
    assert world.item("TAG#b", "STATS") == {"PK": "TAG#b", "SK": "STATS", "posts": 1, "reads": 3, "oldest": "2026"}


def test_a_derived_item_that_the_application_deletes_comes_back() -> None:
    world = World(EACH)
    world.put("POST#1", "METADATA", tags=["a"], reads=3, createdAt="2026")
    world.settle()
    world.remove("TAG#a", "STATS")
    world.settle()
    assert world.item("TAG#a", "STATS") == {"PK": "TAG#a", "SK": "STATS", "posts": 1, "reads": 3, "oldest": "2026"}


def test_more_targets_than_a_transaction_holds_are_several_transactions_and_true_entries() -> None:
    world = World(EACH)
    world.put("POST#1", "METADATA", tags=[f"t{number}" for number in range(150)], reads=1, createdAt="2026")
    world.settle()
    assert len(world.ledger("G|")) == 150
    assert world.item("TAG#t149", "STATS") is not None
    assert all(len(writes) <= 100 for writes in world.store.transactions)
    world.put("POST#1", "METADATA", tags=["t0"], reads=1, createdAt="2026")
    world.settle()
    assert [item["PK"] for item in map(dict, world.ledger("")) if "PK" in item] == []
    assert world.item("TAG#t149", "STATS") is None
    assert world.item("TAG#t0", "STATS") is not None
    assert len(world.ledger("M|")) == 1


def test_a_split_change_that_dies_halfway_is_finished_by_its_redelivery() -> None:
    world = World(EACH)
    world.put("POST#1", "METADATA", tags=[f"t{number:03}" for number in range(150)], reads=1, createdAt="2026")
    batch = world.records()
    before(world, "transact", Mock(side_effect=KeyboardInterrupt), call=1)
    with pytest.raises(KeyboardInterrupt):
        world.deliver()
    (entry,) = world.ledger("E|")
    assert 0 < len(json.loads(entry["contributions"])["tags.1"]) < 150, "what the entry says has been contributed"
    world.worker().process(batch, remaining=lambda: 900)
    world.settle()
    assert len(world.ledger("G|")) == 150
    assert all(group["n"] == 1 for group in world.ledger("G|"))


def test_what_expires_is_kept_where_the_rule_says_so() -> None:
    head = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Hour: {key: {PK: "SENSOR#{sensor}", SK: "HOUR#{hour}"}, derived: true}
  Point: {key: {PK: "SENSOR#{sensor}", SK: "POINT#{at}"}, expires: true}
projections:
"""
    rule = """
  hourly:
    from: Point
    expired: keep
    bind: {hour: "{at|truncate(13)}"}
    aggregate: {into: Hour, set: {points: count, total: sum(v), mean: avg(v), low: min(number(v)), high: max(number(v))}}
"""
    world = World(rule, head)
    for minute, value in ((1, 5), (2, 9), (3, 1), (4, 4)):
        world.put("SENSOR#s", f"POINT#2026-01-01T00:0{minute}", v=value)
    world.settle()
    before = world.item("SENSOR#s", "HOUR#2026-01-01T00")
    assert before is not None
    assert before == {**before, "points": 4, "total": 19, "mean": 4.75, "low": 1, "high": 9}
    world.remove("SENSOR#s", "POINT#2026-01-01T00:03", by_ttl=True)
    world.remove("SENSOR#s", "POINT#2026-01-01T00:02", by_ttl=True)
    batch = world.records()
    world.settle()
    world.processor.process(batch, remaining=lambda: 900)
    world.settle()
    assert world.item("SENSOR#s", "HOUR#2026-01-01T00") == before
    assert len(world.ledger("M|")) == 4, "of two that are kept, too"
    world.remove("SENSOR#s", "POINT#2026-01-01T00:01")
    world.settle()
    after = world.item("SENSOR#s", "HOUR#2026-01-01T00")
    assert after == {**before, "points": 3, "total": 14, "mean": {"$number": "4.6666666666666666666666666666666666667"}}


TOP = """
  newest:
    from: Like
    top: {into: Post, as: recent, by: at, limit: 2, attributes: [userId, name]}
  last:
    from: Like
    latest: {into: Post, by: at, attributes: {lastName: name}}
"""


def test_top_and_latest_keep_the_newest_and_know_the_next() -> None:
    world = World(TOP)
    world.put("POST#1", "METADATA")
    for user, (at, name) in enumerate([("2026-01", "ann"), ("2026-03", "ben"), ("2026-02", "cyd"), ("2026-03", "dan")]):
        world.like(user, 1, at=at, name=name)
    world.settle()
    assert world.post() == {
        "recent": [{"userId": "3", "name": "dan"}, {"userId": "1", "name": "ben"}], "lastName": "dan"
    }  # fmt: skip
    world.like(3, 1, at="2026-03", name="Dan")
    world.settle()
    assert world.post()["lastName"] == "Dan", "an edit of what is listed shows"
    world.remove("USER#3", "LIKE#1")
    world.remove("USER#1", "LIKE#1")
    world.settle()
    assert world.post()["recent"] == [{"userId": "2", "name": "cyd"}, {"userId": "0", "name": "ann"}]
    for user in (0, 2):
        world.remove(f"USER#{user}", "LIKE#1")
    world.settle()
    assert world.post() == {"recent": []}


def test_a_claimed_copy_goes_to_the_least_source_and_then_to_the_next() -> None:
    head = """
table: {key: [PK, SK]}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  ByEmail: {key: {PK: "EMAIL#{email}", SK: USER}}
projections:
"""
    world = World("  byEmail: {from: User, copy: {into: ByEmail, attributes: [userId, name]}}\n", head)
    world.put("USER#2", "PROFILE", email="x@y", name="two")
    world.settle()
    assert world.item("EMAIL#x@y", "USER") == {"PK": "EMAIL#x@y", "SK": "USER", "userId": "2", "name": "two"}
    world.put("USER#1", "PROFILE", email="x@y")
    world.settle()
    assert world.item("EMAIL#x@y", "USER") == {"PK": "EMAIL#x@y", "SK": "USER", "userId": "1"}
    world.put("USER#1", "PROFILE", email="z@y", name="one")
    world.settle()
    assert world.item("EMAIL#x@y", "USER") == {"PK": "EMAIL#x@y", "SK": "USER", "userId": "2", "name": "two"}
    assert world.item("EMAIL#z@y", "USER") == {"PK": "EMAIL#z@y", "SK": "USER", "userId": "1", "name": "one"}
    world.remove("USER#2", "PROFILE")
    world.settle()
    assert world.item("EMAIL#x@y", "USER") is None


def test_two_rules_on_one_derived_item_delete_it_only_together() -> None:
    world = World(
        "  posts: {from: Post, bind: {tag: '{topic}'}, aggregate: {into: Tag, set: {posts: count}}}\n"
        "  likes: {from: Like, bind: {tag: '{topic}'}, aggregate: {into: Tag, set: {total: sum(weight)}}}\n"
    )
    world.put("POST#1", "METADATA", topic="x")
    world.like(1, 1, topic="x", weight=0)
    world.settle()
    assert world.item("TAG#x", "STATS") == {"PK": "TAG#x", "SK": "STATS", "posts": 1, "total": 0}
    world.remove("POST#1", "METADATA")
    world.settle()
    assert world.item("TAG#x", "STATS") == {"PK": "TAG#x", "SK": "STATS", "posts": 0, "total": 0}
    world.remove("USER#1", "LIKE#1")
    world.settle()
    assert world.item("TAG#x", "STATS") is None


def test_an_empty_derived_item_is_deleted_although_an_embed_writes_to_it_meanwhile() -> None:
    world = World(
        "  posts: {from: Post, bind: {tag: '{topic}'}, aggregate: {into: Tag, set: {posts: count}}}\n"
        "  label: {from: Like, embed: {into: Tag, match: {tag: '{tag}'}, attributes: [label]}}\n",
        HEAD.replace('"USER#{userId}", SK: "LIKE#{postId}"', '"TAG#{tag}", SK: LABEL') + TAG + "projections:\n",
    )
    world.put("TAG#a", "LABEL", label="A")
    world.put("POST#1", "METADATA", topic="a")
    world.settle()
    assert world.item("TAG#a", "STATS") == {"PK": "TAG#a", "SK": "STATS", "posts": 1, "label": "A"}
    world.remove("POST#1", "METADATA")

    def relabel() -> None:
        world.put("TAG#a", "LABEL", label="B")
        assert world.worker().process(world.records()[-1:], remaining=lambda: 900.0).failed is None

    before(world, "write", relabel, when=lambda write: isinstance(write, Delete) and write.key.table == "main")
    world.settle()
    assert "write" not in vars(world.store)
    assert world.item("TAG#a", "STATS") is None


def test_a_conflict_that_outlasts_the_invocation_is_reported() -> None:
    clock = itertools.count()
    world = World(COUNT)
    world.like(1, 1)
    world.store.faults = [conflict(2)] * 1000
    batch = world.records()
    outcome = world.processor.process(batch, remaining=lambda: 5.0 - next(clock) * 0.1)
    assert outcome.failed == batch[0]["dynamodb"]["SequenceNumber"]
    assert outcome.failed_reason is not None
    assert "conflict" in outcome.failed_reason
    assert isinstance(conflict(), TransactionCancelled)


def test_transactions_with_disjoint_groups_run_at_once_and_those_that_share_one_in_turn() -> None:
    lanes: list[int] = []

    def run(pieces: Any) -> list[Any]:
        if pieces:
            lanes.append(len(pieces))
        return [piece() for piece in pieces]

    world = World(COUNT, run=run)
    for number in range(297):
        world.like(number, number % 3)
    world.deliver()
    assert len(world.store.transactions) == 3
    assert lanes[0] == 3, "99 likes of each of three posts: three transactions that share nothing"
    lanes.clear()
    for number in range(1000, 1250):
        world.like(number, 1)
    world.deliver()
    assert lanes[0] == 1, "250 likes of one post: three transactions, one after another"
    assert len(world.store.transactions) == 6
