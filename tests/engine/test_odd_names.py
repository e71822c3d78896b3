"""Attributes of aggregates whose names contain the characters by which the ledger separates slots and values."""

from __future__ import annotations

from typing import Any

import pytest

from projections.language.keys import escape, unescape
from tests.engine.scene import Scene
from tests.operations.verify_scene import drifts, ledger_edit, repaired

HEAD = """
table: {key: [PK, SK]}
entities:
  Site: {key: {PK: "SITE#{site}", SK: S}}
  Visit: {key: {PK: "VISIT#{v}", SK: V}}
projections:
"""
MEASURES: dict[str, Any] = {
    "values(text(who))": {"SS": ["a|b", "x"]},
    "counts(text(who))": {"M": {"a|b": {"N": "1"}, "x": {"N": "1"}}},
    "distinct(text(who))": {"N": "2"},
    "max(text(who))": {"S": "x"},
    "first(who, n)": {"S": "x"},
    "sum(n)": {"N": "3"},
}
NAMES = ["a|b", "%", "=%7C", "|"]


@pytest.mark.parametrize("measure", MEASURES)
def test_the_name_of_a_measure_can_have_any_characters(measure: str) -> None:
    listed = ", ".join(f'"{name}": "{measure}"' for name in NAMES)
    scene = Scene(f"  visits: {{from: Visit, aggregate: {{into: Site, set: {{{listed}}}}}}}\n", HEAD)
    scene.put("SITE#0", "S")
    scene.put("VISIT#1", "V", who="x", n=1, site="0")
    scene.put("VISIT#2", "V", who="a|b", n=2, site="0")
    scene.settle()
    item = scene.store.get(scene.store.schema("main").key("main", {"PK": {"S": "SITE#0"}, "SK": {"S": "S"}})) or {}
    assert {name: item.get(name) for name in NAMES} == dict.fromkeys(NAMES, MEASURES[measure])
    assert drifts(scene) == []


def test_a_damaged_counter_is_shown_with_the_name_of_its_measure() -> None:
    scene = Scene('  visits: {from: Visit, aggregate: {into: Site, set: {"%a|b": values(text(who))}}}\n', HEAD)
    scene.put("SITE#0", "S")
    scene.put("VISIT#1", "V", who="x", site="0")
    scene.settle()
    ledger_edit(scene, "M|", c={"N": "7"})
    assert [drift.attribute for drift in drifts(scene)] == ["%a|b (x)"]
    assert repaired(scene) == []


@pytest.mark.parametrize("text", ["", "a", "|", "%", "%7C", "%25", "%257C|", "a|%b"])
def test_unescape_returns_what_escape_was_given(text: str) -> None:
    assert unescape(escape(text)) == text
    assert "|" not in escape(text)
