"""Targets that another version of a rule recorded, in another entity: while both are at work, and after a rollback."""

from __future__ import annotations

import pytest

from projections.engine.refresh import Refresher
from projections.engine.running import Deadline
from projections.engine.store import ItemKey
from tests.engine.world import World

POSTS = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}\n"
TAGS = "  likes: {from: Like, bind: {tag: '{topic}'}, aggregate: {into: Tag, set: {likeCount: count}}}\n"
BOARDS = TAGS.replace("into: Tag", "into: Board")
CLAIMS = "  likes: {from: Like, bind: {tag: '{topic}'}, copy: {into: Name, attributes: [topic]}}\n"
HEAD = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Board: {key: {PK: "BOARD#{tag}", SK: STATS}}
  Name: {key: {PK: "NAME#{tag}", SK: STATS}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, match: {type: Tag}, derived: true}
  Topic: {key: {PK: "TOPIC#{tag}", SK: STATS}, derived: true}
projections:
  tags: {from: Like, bind: {tag: "{topic}"}, aggregate: {into: Tag, set: {n: count}}}
  topics: {from: Like, where: {again: [{exists: true}]}, bind: {tag: "{topic}"}, aggregate: {into: Topic, set: {n: count}}}
"""
QUIET = HEAD.replace("tags: {from: Like, ", "tags: {from: Like, where: {again: [{exists: true}]}, ")
"""Of which no rule contributes to a Tag on its own."""
WRITTEN = {"PK": "POST#1", "SK": "METADATA", "title": "t"}


def enforced(w: World) -> World:
    """As after a backfill that has put these rules in force and has not yet looked at what the former ones wrote."""
    w.registry().activate()
    w.registry().complete(w.program.rules)
    return w


def world(rules: str, head: str = HEAD) -> World:
    w = World(rules, head)
    w.put("POST#1", "METADATA", title="t")
    w.like(1, 1, topic="x")
    return w


def test_what_a_rolled_back_rule_recorded_and_never_published_is_taken_back_without_a_trace() -> None:
    w = world(TAGS)
    w.under(POSTS, HEAD).settle()
    assert w.item("POST#1", "METADATA", guards=True) == WRITTEN
    w.like(1, 1, topic="y")
    w.settle()
    assert w.item("POST#1", "METADATA", guards=True) == WRITTEN
    assert (w.item("TAG#y", "STATS") or {})["likeCount"] == 1


@pytest.mark.parametrize("rules", [TAGS, CLAIMS], ids=["derived", "claimed"])
@pytest.mark.parametrize("published", [True, False])
def test_an_item_of_the_application_outlives_a_rule_that_makes_its_targets_elsewhere(
    published: bool, rules: str
) -> None:
    w = world(POSTS)
    if published:
        w.settle()
        assert w.post() == {"title": "t", "likeCount": 1}
    new = enforced(w.under(rules, HEAD))
    new.like(1, 1, topic="y")
    new.settle()
    post = w.item("POST#1", "METADATA")
    assert post is not None
    assert post == ({**WRITTEN, "likeCount": 1} if published else WRITTEN), "that goes when the former rule is retired"
    made = {TAGS: {"PK": "TAG#y", "SK": "STATS", "type": "Tag", "likeCount": 1, "n": 1}}
    made[CLAIMS] = {"PK": "NAME#y", "SK": "STATS", "topic": "y"}
    assert w.item(made[rules]["PK"], "STATS") == made[rules]
    assert w.item("TAG#x", "STATS") is None


@pytest.mark.parametrize("shown", ["count", "top"])
def test_what_a_rule_sets_by_now_is_the_applications_on_items_of_another_entity(shown: str) -> None:
    w = world(POSTS)
    w.settle()
    count = BOARDS.replace("likeCount: count", "title: count")
    top = BOARDS.split("aggregate")[0] + "top: {into: Board, as: title, by: topic, limit: 1, attributes: [topic]}}\n"
    new = enforced(w.under({"count": count, "top": top}[shown], HEAD))
    new.put("BOARD#y", "STATS")
    new.like(1, 1, topic="y")
    new.settle()
    assert w.post() == {"title": "t", "likeCount": 1}
    assert w.item("BOARD#y", "STATS") == {
        "PK": "BOARD#y",
        "SK": "STATS",
        "title": {"count": 1, "top": [{"topic": "y"}]}[shown],
    }


@pytest.mark.parametrize("rules", [POSTS, TAGS.replace("into: Tag", "into: Topic")], ids=["made by no rule", "derived"])
def test_an_item_that_a_rule_never_published_on_is_not_deleted_when_it_takes_back_what_was_tried(rules: str) -> None:
    w = world(rules, QUIET)
    w.settle()
    w.put("TAG#y", "STATS", type="Settings", colour="red")
    tried = w.under(TAGS, QUIET)
    tried.like(1, 1, topic="y")
    tried.deliver()
    tried.position = len(tried.store.stream("main"))
    back = tried.under(rules, QUIET)
    back.remove("USER#1", "LIKE#1")
    back.settle()
    assert back.item("TAG#y", "STATS") == {"PK": "TAG#y", "SK": "STATS", "type": "Settings", "colour": "red"}


@pytest.mark.parametrize("how", ["records", "refresh"])
def test_an_item_that_only_the_former_version_made_goes_with_its_last_contribution(how: str) -> None:
    w = world(TAGS, QUIET)
    w.settle()
    assert (w.item("TAG#x", "STATS") or {})["likeCount"] == 1
    new = enforced(w.under(POSTS, QUIET))
    new.remove("USER#1", "LIKE#1")
    if how == "refresh":
        new.position = len(new.store.stream("main"))
        refresher = Refresher(new.program, new.store, new.registry().read_or_create())
        assert refresher.keys([ItemKey("main", "USER#1", "LIKE#1")], Deadline(lambda: 900.0)) == []
    new.settle()
    assert new.item("TAG#x", "STATS") is None
