"""Embeds: pushes, pulls, and that neither loses against the other."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from projections.engine.embeds import Embedder, Push
from projections.engine.running import Deadline
from projections.engine.store import ItemKey, Update
from projections.errors import RulesError, Transient
from tests.engine.scene import before
from tests.engine.world import World

BY_INDEX = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Comment: {key: {PK: "POST#{postId}", SK: "COMMENT#{commentId}"}, index_key: {GSI1PK: "AUTHOR#{userId}"}}
projections:
"""
EMBED = """
  author:
    from: User
    embed: {into: Comment, match: {userId: "{userId}"}, attributes: {userName: name, userAvatar: avatar}, on_delete: remove}
"""
KEEP = EMBED.replace("remove}", "keep}")
COLLECTION = """
table: {key: [PK, SK]}
entities:
  Team: {key: {PK: "TEAM#{teamId}", SK: INFO}}
  Member: {key: {PK: "TEAM#{teamId}", SK: "MEMBER#{userId}"}}
projections:
  team: {from: Team, embed: {into: Member, match: {teamId: "{teamId}"}, attributes: {teamName: name}}}
"""


def world(rules: str = EMBED, **settings: Any) -> World:
    return World(rules, BY_INDEX, **settings)


def comment(world: World, number: int, user: str, **attributes: Any) -> None:
    world.put(
        "POST#1", f"COMMENT#{number:04}", userId=user, GSI1PK=f"AUTHOR#{user}", GSI1SK=f"{number:04}", **attributes
    )


def pushing(children: int) -> tuple[World, list[tuple[Push, float]]]:
    """A parent with so many children, which was put, and the list that its tasks go to."""
    tasks: list[tuple[Push, float]] = []
    w = world(tasks=lambda push, delay: tasks.append((push, delay)))
    for number in range(children):
        comment(w, number, "a")
    w.settle()
    w.put("USER#a", "PROFILE", name="Ann")
    return w, tasks


def names(world: World) -> list[Any]:
    items = [world.item(image["PK"]["S"], image["SK"]["S"]) for image in world.store.items("main")]
    return [item.get("userName") for item in items if item and item["PK"].startswith("POST#")]


def test_a_rename_reaches_every_comment_and_a_new_comment_finds_the_name() -> None:
    w = world()
    w.put("USER#a", "PROFILE", name="Ann", avatar="a.png")
    for number in range(3):
        comment(w, number, "a")
    w.settle()
    assert names(w) == ["Ann"] * 3
    w.put("USER#a", "PROFILE", name="Anna", avatar="a.png")
    comment(w, 3, "a")
    w.settle()
    assert names(w) == ["Anna"] * 4


def test_deletion_of_the_parent_removes_or_keeps() -> None:
    for rules, expected in ((EMBED, [None]), (KEEP, ["Ann"])):
        w = world(rules)
        w.put("USER#a", "PROFILE", name="Ann")
        comment(w, 1, "a")
        w.settle()
        w.remove("USER#a", "PROFILE")
        w.settle()
        assert names(w) == expected


def test_values_that_are_too_large_to_be_kept_reach_children_and_the_record_is_rejected() -> None:
    w = world(KEEP)
    w.put("USER#a", "PROFILE", name=[1])
    comment(w, 1, "a")
    w.settle()
    w.put("USER#a", "PROFILE", name=[number % 10 for number in range(45_000)])
    w.settle()
    assert len(names(w)[0]) == 45_000
    assert [(each.rule, each.key) for each in w.rejected] == [("author", "main|USER#a|PROFILE")]
    assert "too large to be kept" in w.rejected[0].reason
    w.remove("USER#a", "PROFILE")
    comment(w, 2, "a")
    w.settle()
    assert [len(each) if each else None for each in names(w)] == [45_000, None]


def test_a_changed_reference_pulls_from_the_other_parent_even_if_it_flips_within_a_batch() -> None:
    w = world()
    w.put("USER#a", "PROFILE", name="Ann")
    w.put("USER#b", "PROFILE", name="Bob")
    comment(w, 1, "a")
    w.settle()
    comment(w, 1, "b")
    w.settle()
    assert names(w) == ["Bob"]
    comment(w, 1, "a")
    w.put("USER#b", "PROFILE", name="Bobby")
    comment(w, 1, "b")
    w.settle()
    assert names(w) == ["Bobby"]


def test_a_child_is_pulled_when_it_fits_another_parent_by_a_second_name_of_match() -> None:
    w = World("", COLLECTION.replace('"{teamId}"}, att', '"{teamId}", term: "{term}"}, on_delete: remove, att'))
    w.put("TEAM#t", "INFO", name="Reds", term="spring")
    for member, term in (("a", "spring"), ("b", "autumn"), ("a", "autumn"), ("b", "spring")):
        w.store.write(Update(ItemKey("main", "TEAM#t", f"MEMBER#{member}"), {"term": {"S": term}}))
        w.settle()
    assert [(w.item("TEAM#t", f"MEMBER#{member}") or {}).get("teamName") for member in "ab"] == [None, "Reds"]


def test_a_child_is_pulled_when_it_enters_the_index_by_its_sort_key() -> None:
    w = world()
    w.put("USER#a", "PROFILE", name="Ann")
    w.put("POST#1", "COMMENT#1", userId="a", GSI1PK="AUTHOR#a")
    w.settle()
    w.put("USER#a", "PROFILE", name="Anna")
    w.settle()
    assert names(w) == ["Ann"], "no push finds it"
    w.store.write(Update(ItemKey("main", "POST#1", "COMMENT#1"), {"GSI1SK": {"S": "5"}}))
    w.settle()
    assert names(w) == ["Anna"]


def test_a_child_without_a_reference_has_nothing_embedded() -> None:
    w = world()
    w.put("USER#a", "PROFILE", name="Ann")
    comment(w, 1, "a")
    w.settle()
    image = dict(w.store.get(w.program.tables["main"].key("main", w.store.items("main")[0])) or {})
    del image["userId"]
    w.store.put("main", image)
    w.settle()
    assert w.item("POST#1", "COMMENT#0001", guards=True) == {
        "PK": "POST#1", "SK": "COMMENT#0001", "GSI1PK": "AUTHOR#a", "GSI1SK": "0001",
    }  # fmt: skip


def test_children_in_their_parents_collection_need_no_index() -> None:
    w = World("", COLLECTION)
    rule = w.program.rules["team"]
    assert rule.children.index is None  # type: ignore[attr-defined]
    for member in range(600):
        w.put("TEAM#t", f"MEMBER#{member:04}")
    w.put("TEAM#t", "INFO", name="Reds")
    w.put("TEAM#u", "MEMBER#x")
    w.settle()
    w.put("TEAM#t", "INFO", name="Blues")
    w.settle()
    values = {image.get("teamName", {}).get("S") for image in w.store.items("main") if "MEMBER" in image["SK"]["S"]}
    assert values == {"Blues", None}


def test_each_child_is_written_once_by_a_push_that_looks_through_an_index_twice() -> None:
    w, tasks = pushing(60)
    real, written = w.store.write_each, Counter[Any]()

    def write_each(writes: Any) -> Any:
        written.update(write.key for write in writes)
        return real(writes)

    w.store.write_each = write_each  # type: ignore[method-assign]
    w.deliver()
    ((again, _),) = tasks
    assert again.again
    Embedder(w.program, w.store, w.guards()).push_page(again, Deadline(lambda: 900.0))
    assert names(w) == ["Ann"] * 60
    assert (len(written), set(written.values())) == (60, {1})


def test_the_first_page_is_pushed_at_once_and_the_rest_is_a_task() -> None:
    w, tasks = pushing(1200)
    w.deliver()
    assert names(w).count("Ann") == 1000
    ((_, delay),) = tasks
    assert delay == 0


def test_a_newer_change_overtakes_an_older_push() -> None:
    w, tasks = pushing(1200)
    w.deliver()
    w.put("USER#a", "PROFILE", name="Anna")
    w.deliver()
    (old, _), (new, _) = tasks
    embedder, deadline = Embedder(w.program, w.store, w.guards()), Deadline(lambda: 900.0)
    assert embedder.push_page(old, deadline) == (None, []), "the newer change pushes to all children"
    page: Push | None = new
    while page is not None:
        page, _ = embedder.push_page(page, deadline)
    assert names(w) == ["Anna"] * 1200


def test_throttled_children_make_the_page_come_again_and_cost_only_what_is_missing() -> None:
    w = world()
    for number in range(10):
        comment(w, number, "a")
    w.settle()
    w.put("USER#a", "PROFILE", name="Ann")
    real, calls = w.store.write_each, []

    def write_each(writes: Any) -> Any:
        calls.append(len(writes))
        answers = real(writes[:6])
        return [*answers, *([Transient("throttled")] * len(writes[6:]))]

    w.store.write_each = write_each  # type: ignore[method-assign]
    w.settle()
    assert names(w) == ["Ann"] * 10
    assert calls[:2] == [10, 4]


def test_rules_without_a_way_to_parent_or_children_are_refused_with_one_that_would_do() -> None:
    with pytest.raises(RulesError) as raised:
        World(EMBED, BY_INDEX.replace(', index_key: {GSI1PK: "AUTHOR#{userId}"}', ""))
    assert "the rule cannot find the Comment items of a User" in str(raised.value)
    assert 'GSI1PK: "USER#{userId}"' in str(raised.value)
    local = BY_INDEX.replace("indexes: {", "indexes: {L: {sort: at, local: true}, ")
    with pytest.raises(RulesError) as raised:
        World(EMBED, local.replace(', index_key: {GSI1PK: "AUTHOR#{userId}"}', ""))
    assert 'GSI1PK: "USER#{userId}"' in str(raised.value)
    with pytest.raises(RulesError) as raised:
        World(EMBED.replace('match: {userId: "{userId}"}', 'match: {userId: "{name}"}'), BY_INDEX)
    assert "it has no value for {userId}" in str(raised.value)


def test_a_late_page_of_an_older_push_gives_no_child_of_a_deleted_parent_an_older_value() -> None:
    """The child was put anew after the deletion. Its guard, without values, is as new as the last push."""
    w = World("", COLLECTION)
    w.put("TEAM#1", "INFO", name="Ann")
    w.put("TEAM#1", "MEMBER#1", text="x")
    w.settle()
    w.put("TEAM#1", "INFO", name="Bea")
    slow = w.records()

    def meanwhile() -> None:
        w.settle()  # another function takes the same records
        w.put("TEAM#1", "INFO", name="Cleo")
        w.settle()
        w.remove("TEAM#1", "INFO")
        w.settle()
        w.put("TEAM#1", "MEMBER#1", text="anew")
        w.settle()

    before(w, "write_each", meanwhile)
    w.deliver(slow)
    w.settle()
    assert w.item("TEAM#1", "MEMBER#1") == {"PK": "TEAM#1", "SK": "MEMBER#1", "text": "anew"}
    w.put("TEAM#1", "INFO", name="Dora")
    w.settle()
    assert w.item("TEAM#1", "MEMBER#1") == {"PK": "TEAM#1", "SK": "MEMBER#1", "text": "anew", "teamName": "Dora"}
