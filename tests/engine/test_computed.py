"""Computed attributes: one write for all rules of an item, and values that are set once."""

from __future__ import annotations

from typing import Any

import pytest

import projections
from projections.testing.scenario import Scenario

RULES = """
table: { key: [PK, SK], indexes: { GSI1: [GSI1PK, GSI1SK] } }
entities:
  Booking: { key: { PK: "ROOM#{roomId}", SK: "BOOKING#{bookingId}" } }
  Note: { key: { PK: "ROOM#{roomId}", SK: "NOTE#{noteId}" }, match: { kind: note } }
  Memo: { key: { PK: "ROOM#{roomId}", SK: "NOTE#{noteId}" }, match: { kind: memo } }
projections:
  listed: { from: Booking, index: { GSI1PK: "SIZE#{size}", GSI1SK: "{total}" } }
  priced: { from: Booking, compute: { set: { size: "{nights} nights at {total}", total: nights * rate } } }
  sold: { from: Booking, where: { open: [{ exists: true }] }, compute: { set: { soldBy: owner }, once: true } }
  noted: { from: Note, compute: { set: { by: writer, length: words / 10 } } }
  first: { from: Note, compute: { set: { firstBy: writer }, once: true } }
"""
KEY = {"PK": "ROOM#r", "SK": "BOOKING#1"}


@pytest.fixture
def played() -> Scenario:
    return Scenario(projections.loads(RULES))


def item(scenario: Scenario, key: dict[str, str] = KEY) -> dict[str, Any]:
    return {name: value for name, value in (scenario.item(key) or {}).items() if name not in key}


def test_all_rules_of_an_item_make_one_write(played: Scenario) -> None:
    played.put({**KEY, "nights": 3, "rate": 2, "open": True, "owner": "ann"})
    assert item(played) == {
        "nights": 3,
        "rate": 2,
        "open": True,
        "owner": "ann",
        "total": 6,
        "size": "3 nights at 6",
        "GSI1PK": "SIZE#3 nights at 6",
        "GSI1SK": "6",
        "soldBy": "ann",
    }


def test_wrong_and_missing_values_make_only_their_attributes_absent(played: Scenario) -> None:
    played.put({**KEY, "nights": 3, "rate": 2, "open": True, "owner": "ann"})
    played.update({**KEY, "rate": "two"})
    assert item(played) == {"nights": 3, "rate": "two", "open": True, "owner": "ann", "soldBy": "ann"}
    assert played.quarantined == []
    played.put({**KEY, "rate": 5, "nights": 1})
    assert item(played)["size"] == "1 nights at 5"


def test_what_is_set_once_stays(played: Scenario) -> None:
    played.put({**KEY, "nights": 1, "owner": "ann"})
    assert "soldBy" not in item(played)
    played.update({**KEY, "open": True}).settle()
    played.update({**KEY, "owner": "ben"})
    assert item(played)["soldBy"] == "ann"
    played.put({**KEY, "owner": "cid", "soldBy": "ann"})  # it does not fit `where` any more
    assert item(played) == {"owner": "cid", "soldBy": "ann"}
    played.update({**KEY, "soldBy": "dan"}).settle()  # by the application
    played.update({**KEY, "open": True, "owner": "eve"})
    assert item(played)["soldBy"] == "dan"
    played.put({**KEY, "open": True, "owner": "eve"})
    assert item(played)["soldBy"] == "eve"


def test_an_item_that_leaves_its_entity_keeps_only_what_is_set_once(played: Scenario) -> None:
    key = {"PK": "ROOM#r", "SK": "NOTE#1"}
    played.put({**key, "kind": "note", "writer": "ann", "words": 5})
    assert item(played, key) == {
        "kind": "note",
        "writer": "ann",
        "words": 5,
        "by": "ann",
        "length": 0.5,
        "firstBy": "ann",
    }
    played.update({**key, "kind": "memo"})
    assert item(played, key) == {"kind": "memo", "writer": "ann", "words": 5, "firstBy": "ann"}


CHAIN = """
table: { key: [PK, SK], indexes: { GSI1: [GSI1PK, GSI1SK] } }
entities:
  Course: { key: { PK: "COURSE#{courseId}", SK: COURSE } }
projections:
  progress: { from: Course, compute: { set: { progress: done / lessons * 100 } } }
  final: { from: Course, where: { status: [closed] }, compute: { set: { final: "coalesce(progress, 0)" }, once: true } }
  listed: { from: Course, index: { GSI1PK: "FINAL#{final}", GSI1SK: "{courseId}" } }
"""


@pytest.mark.parametrize("before", [None, {"done": 1, "lessons": 2}, {"done": 0, "lessons": 0}])
def test_what_is_set_once_does_not_read_what_the_same_write_changes(before: dict[str, Any] | None) -> None:
    played, key = Scenario(projections.loads(CHAIN)), {"PK": "COURSE#1", "SK": "COURSE"}
    if before is not None:
        played.put({**key, **before}).settle()
    played.update({**key, "done": 2, "lessons": 2, "status": "closed"}).settle()
    assert item(played, key) == {
        "done": 2,
        "lessons": 2,
        "status": "closed",
        "progress": 100,
        "final": 100,
        "GSI1PK": "FINAL#100",
        "GSI1SK": "1",
    }


COPIED = """
table: { key: [PK, SK] }
entities:
  Course: { key: { PK: "COURSE#{courseId}", SK: COURSE } }
  Shown: { key: { PK: "SHOWN#{courseId}", SK: COURSE } }
projections:
  first: { from: Course, compute: { set: { firstTitle: title }, once: true } }
  shown: { from: Course, copy: { into: Shown, attributes: all } }
"""


def test_a_copy_follows_its_source_also_in_what_was_set_once() -> None:
    played = Scenario(projections.loads(COPIED))
    played.put({"PK": "COURSE#1", "SK": "COURSE", "title": "Tea"}).settle()
    played.put({"PK": "COURSE#1", "SK": "COURSE", "title": "Rice"}).settle()
    assert item(played, {"PK": "SHOWN#1", "SK": "COURSE"}) == {"title": "Rice", "firstTitle": "Rice"}
    played.assert_simulation(histories=20)


def test_a_value_set_once_stays_on_an_item_of_no_entity_though_another_entity_has_a_rule_for_it() -> None:
    rules = RULES + "  now: { from: Memo, compute: { set: { firstBy: writer } } }\n"
    played, key = Scenario(projections.loads(rules)), {"PK": "ROOM#r", "SK": "NOTE#1"}
    played.put({**key, "kind": "note", "writer": "ann"}).settle()
    played.update({**key, "kind": "other", "writer": "ben"}).settle()
    assert item(played, key) == {"kind": "other", "writer": "ben", "firstBy": "ann"}


def test_value_set_by_the_write_with_which_an_item_leaves_its_entity_is_the_applications(played: Scenario) -> None:
    """Even if it equals the value that the rule was about to write."""
    note = {"PK": "ROOM#r", "SK": "NOTE#1"}
    played.put({**note, "kind": "note", "writer": "ann", "by": "somebody"})
    played.put({**note, "kind": "memo", "writer": "ann", "by": "ann"})
    played.settle()
    assert item(played, note) == {"kind": "memo", "writer": "ann", "by": "ann"}


def test_value_of_the_application_that_equals_the_one_of_the_rule_is_removed_when_the_item_leaves_its_entity(
    played: Scenario,
) -> None:
    """Nothing distinguishes them. `docs/rules-reference.md` describes it under ownership."""
    note = {"PK": "ROOM#r", "SK": "NOTE#1"}
    played.put({**note, "kind": "note", "writer": "ann"}).settle()
    assert item(played, note)["by"] == "ann"
    played.put({**note, "kind": "memo", "writer": "ann", "by": "ann"}).settle()
    assert item(played, note) == {"kind": "memo", "writer": "ann"}
