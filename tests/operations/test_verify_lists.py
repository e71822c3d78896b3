"""Verification and repair of children of several parents, and of the links in the ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from projections.engine.registry import REGISTRY
from projections.engine.store import ItemKey
from tests.engine.world import COURSES, World
from tests.operations.verify_scene import assert_sides_differ, brief, drifts, edit, ledger_lose, lost, of, repaired

RULE = """
  teachers: {from: User, embed: {into: Course, match: {teacherIds: "{userId}"}, as: teachers, attributes: [name]}}
"""
COURSE = "COURSE#0|INFO"
RIGHT = [{"id": "u1", "name": "n1"}, {"id": "u0", "name": "n0"}]


def filled(**settings: Any) -> World:
    w = World(RULE, COURSES, **settings)
    for number in range(3):
        w.put(f"USER#u{number}", "PROFILE", name=f"n{number}")
        w.put(f"COURSE#{number}", "INFO", teacherIds=["u1", "gone", f"u{number}"])
    w.settle()
    return w


def renamed(w: World) -> None:
    lost(w, lambda: w.put("USER#u0", "PROFILE", name="new"))


DAMAGES: dict[str, tuple[Callable[[World], object], set[Any]]] = {
    "nothing": (lambda w: None, set()),
    "a value": (
        lambda w: edit(w, "COURSE#0", "INFO", teachers=[]),
        {of("embed", "teachers", COURSE, "teachers", [], RIGHT)},
    ),
    "a guard": (
        lambda w: edit(w, "COURSE#0", "INFO", ["~teachers"]),
        {of("guard", "teachers", COURSE, "~teachers", None, "valid")},
    ),
    "a change of a parent": (
        renamed,
        {of("embed", "teachers", COURSE, "teachers", RIGHT, [RIGHT[0], {"id": "u0", "name": "new"}])},
    ),
    "a link": (
        lambda w: ledger_lose(w, "L|teachers|main|USER#u0"),
        {of("link", "teachers", COURSE, expected=f"main|{COURSE}", source="USER#u0|PROFILE")},
    ),
    "references": (
        lambda w: edit(w, "COURSE#0", "INFO", ["teacherIds"]),
        {of("embed", "teachers", COURSE, "teachers", RIGHT, None)},
    ),
    "a NULL": (
        lambda w: edit(w, "COURSE#0", "INFO", ["teacherIds"], teachers=None),
        {of("embed", "teachers", COURSE, "teachers", {"NULL": True}, None)},
    ),
}


@pytest.mark.parametrize(("damage", "expected"), DAMAGES.values(), ids=DAMAGES)
def test_damage_is_found_and_repaired(damage: Callable[[World], object], expected: set[Any]) -> None:
    w = filled()
    damage(w)
    found = drifts(w)
    assert brief(found) == expected
    assert_sides_differ(found)
    assert repaired(w) == []
    assert drifts(w) == []
    w.put("USER#u0", "PROFILE", name="later")
    w.settle()
    course = w.item("COURSE#0", "INFO") or {}
    later = [RIGHT[0], {"id": "u0", "name": "later"}] if "teacherIds" in course else None
    assert course.get("teachers") == later


def test_link_without_a_reference_is_not_drift() -> None:
    w = filled()
    link = dict(w.store.items("ledger")[-1]) | {"pk": {"S": "L|teachers|main|USER#u9|PROFILE"}, "sk": {"S": "x"}}
    w.store.put("ledger", link)
    assert drifts(w) == []


def test_without_a_ledger_only_the_values_are_compared() -> None:
    w = filled()
    for image in w.store.items("ledger"):
        w.store.remove(ItemKey("ledger", image["pk"]["S"], image["sk"]["S"]))
    assert w.store.get(REGISTRY) is None
    assert drifts(w) == []
    edit(w, "COURSE#0", "INFO", teachers=[])
    assert {(one.kind, one.attribute) for one in drifts(w)} == {("embed", "teachers")}
