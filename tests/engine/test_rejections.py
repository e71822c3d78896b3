"""An item that stays bad is reported once: an edit that leaves it as bad as it was sends no other message."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.engine.rejections import alike
from tests.engine.world import World

HEAD = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
"""
COPIED = '  Copied: {key: {PK: "COPY#{userId}", SK: "{day}"}, derived: true}\n'
USER = '  User: {key: {PK: "PERSON#{person}", SK: PROFILE}}\n'

RULES = {
    "aggregate": "{from: Like, aggregate: {into: Post, set: {total: {sum: stars * 1}}}}",
    "digits": "{from: Like, aggregate: {into: Post, set: {total: sum(long)}}}",
    "elements": "{from: Like, each: {one: map}, aggregate: {into: Post, set: {total: count}}}",
    "top": "{from: Like, top: {into: Post, as: best, by: map, limit: 3, attributes: [note]}}",
    "rank": "{from: Like, rank: {into: Post, by: long, digits: 3}}",
    "copy": '{from: Like, bind: {day: "{day|date(%Y)}"}, copy: {into: Copied, attributes: [note]}}',
    "index": '{from: Like, index: {GSI1PK: "A", GSI1SK: "{day|date(%Y)}"}}',
    "parent": '{from: Like, embed: {into: Post, match: {owner: "{userId}", postId: "{postId}", '
    'year: "{day|date(%Y)}"}, attributes: {star: stars}}}',
    "references": "{from: User, embed: {into: Like, match: {map: '{person}'}, as: friends, attributes: [name]}}",
}


def world_of(kind: str) -> World:
    rule = RULES[kind]
    return World(f"  r: {rule}\n", head=HEAD + COPIED * ("Copied" in rule) + USER * ("User" in rule) + "projections:\n")


def bad(value: int) -> dict[str, Any]:
    """Return attributes that no rule can use; they differ with every value."""
    text = f"no. '{value}" + "x" * (value % 3 * 40)
    return {"stars": text, "day": text, "long": int("7" * 20) + value, "map": {"a": value}}


GOOD: dict[str, Any] = {"stars": 3, "day": "2026-01-01", "long": 7, "map": ["b"]}


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("together", [True, False], ids=["one batch", "a batch each"])
def test_fifty_edits_of_a_bad_item_send_one_message_until_it_changes(kind: str, together: bool) -> None:
    world = world_of(kind)
    counts = {"rejected": 0, "repeated": 0}

    def edit(values: dict[str, Any], times: int) -> list[str]:
        world.rejected.clear()
        for number in range(times):
            world.like(1, 1, note=f"edit {number}", **values)
            if not together:
                world.settle()
        while world.records():
            done = world.deliver().counts
            counts.update({name: counts[name] + done[name] for name in counts})
        return [one.key or "" for one in world.rejected]

    def vary(times: int) -> list[str]:
        return [key for number in range(times) for key in edit(bad(number), 1)]

    item = ["main|USER#1|LIKE#1"]
    assert edit(bad(0), 50) == item
    assert edit(bad(0), 50) == []
    assert vary(50) == [], "another value is the same mistake"
    fine = {**GOOD, "map": "b"} if kind == "top" else GOOD
    assert edit(fine, 1) == []
    assert edit(bad(0), 50) == item
    if together:
        assert counts["rejected"] == 2
        assert counts["repeated"] >= 50, "some batches of edits, and one for each other value"
    world.remove("USER#1", "LIKE#1")
    world.settle()
    assert edit(bad(0), 1) == item


def test_another_mistake_is_another_message() -> None:
    world = world_of("digits")
    for value in (10**20, 10**21, "a text", {"a": 1}, "another text", 10**20):
        world.like(1, 1, long=value)
        world.settle()
    shown = [one.reason.partition(" is ")[2].partition(",")[0].partition(";")[0] for one in world.rejected]
    assert shown == [str(10**20), "a string", "a map", "a string", str(10**20)]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("x is a string, 'it'; a number is needed", 'x is a string, "it\'s"; a number is needed', True),
        ("x is a string, 'a'; a number is needed", "x is a number, '7'; a number is needed", False),
        ("x is a string, 'a'; a number is needed", "y is a string, 'a'; a number is needed", False),
        (f"x (a string, {'y' * 40}…) does not fit", "x (a string, 'short') does not fit", True),
        ("x (a string, " + "; y is 'a st)" * 3 + "!…) does not fit", "x (a string, 'short') does not fit", True),
        ("it has 4,001 elements, and 100 are possible", "it has 107 elements, and 100 are possible", True),
        ("the score -7.5 has decimal places", "the score 8 has decimal places", True),
    ],
)
def test_reasons_are_alike_if_only_values_and_numbers_differ(one: str, other: str, same: bool) -> None:
    assert alike(one, other) is same


def test_a_redelivery_sends_the_message_again() -> None:
    """The invocation may have ended before it sent the message: the records alone decide."""
    world = world_of("index")
    world.like(1, 1, **bad(1))
    world.like(1, 1, **bad(2))
    records = world.records()
    world.deliver(records)
    first, world.rejected[:] = list(world.rejected), []
    world.deliver(records)
    assert world.rejected == first
    assert len(first) == 1


EVENTS = st.lists(
    st.sampled_from(["good", "bad", "bad too", "gone", "deliver", "deliver", "again", "redrive"]), max_size=14
)


@pytest.mark.parametrize("kind", ["aggregate", "copy", "index"])
@settings(max_examples=60, deadline=None)
@given(events=EVENTS)
def test_every_item_that_ends_bad_has_a_message(kind: str, events: list[str]) -> None:
    """Whatever is batched, delivered twice, or redriven, which deletes the messages of items that are good by then."""
    world = world_of(kind)
    messages: set[str] = set()

    def is_bad() -> bool:
        item = world.item("USER#1", "LIKE#1")
        return item is not None and isinstance(item["stars"], str)

    def deliver() -> None:
        world.deliver()
        messages.update(one.key or "" for one in world.rejected)
        world.rejected.clear()

    before = 0
    for number, event in enumerate([*events, "deliver", "deliver"]):
        match event:
            case "good":
                world.like(1, 1, **GOOD, note=str(number))
            case "bad" | "bad too":
                world.like(1, 1, **bad(number))
            case "gone":
                world.remove("USER#1", "LIKE#1")
            case "deliver":
                before = world.position
                deliver()
            case "again":
                world.position = before
                deliver()
            case "redrive" if not is_bad():
                messages.clear()
    assert ("main|USER#1|LIKE#1" in messages) or not is_bad()
