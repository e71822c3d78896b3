"""Attributes whose names contain any characters: those by which the ledger separates, and those of the language."""

from __future__ import annotations

from typing import Any

import pytest

from projections.api import from_dict
from projections.errors import RulesError
from projections.language.keys import escape, unescape
from projections.testing import Scenario
from projections.testing.oracle import Oracle
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


# Every place of a rule file that names an attribute, with every name. `q` is the name in quotes, as paths, templates and
# expressions have it; `name` the name itself, as keys of mappings and lists of whole attributes have it.

ODD = """status#createdAt
$or|first name|f(x)|1st|a.b|it's|'x'|"q"|a%7Cb|größe|unit-price|not
=|a, b|*|min(|12| x |[0]|a:b|S|null|\\""".replace("\n", "|").split("|")
ODD += ["a|b", "a\nb"]


def _count(**parts: Any) -> dict[str, Any]:
    return {"from": "Item", "aggregate": {"into": "Total", "set": {"out": "count"}}, **parts}


def _measure(form: Any, **parts: Any) -> dict[str, Any]:
    return {"from": "Item", "aggregate": {"into": "Total", "set": {"out": form}}, **parts}


PLACES: dict[str, Any] = {
    "where": lambda name, q: _count(where={q: ["x"]}),
    "where, plain": lambda name, q: _count(where={name: ["x"]}),
    "where, in a map": lambda name, q: _count(where={"m": {q: ["x"]}}),
    "where, path": lambda name, q: _count(where={f"m.{q}": ["x"]}),
    "where, operand": lambda name, q: _count(where={"same": {"=": f"{{{q}}}"}}),
    "where, $or": lambda name, q: _count(where={"$or": [{q: ["x"]}, {"no": [1]}]}),
    "where of a measure": lambda name, q: _measure({"count": True, "where": {q: ["x"]}}),
    "bind": lambda name, q: _count(bind={"what": f"{{{q}}}"}, aggregate={"into": "Group", "set": {"out": "count"}}),
    "variable of a key": lambda name, q: _count(aggregate={"into": "Same", "set": {"out": "count"}}),
    "each": lambda name, q: _count(each={"one": f"l.{q}"}, where={"one": ["x"]}),
    "each, element": lambda name, q: _count(each={"one": "maps"}, where={f"one.{q}": ["x"]}),
    "sum": lambda name, q: _measure(f"sum(n.{q} * 1)"),
    "values": lambda name, q: _measure(f"values(text({q}))"),
    "last": lambda name, q: _measure(f"last({q}, {q})"),
    "top": lambda name, q: {
        "from": "Item",
        "top": {"into": "Total", "as": "out", "by": q, "limit": 1, "attributes": {"v": q}},
    },
    "top, list": lambda name, q: {
        "from": "Item",
        "top": {"into": "Total", "as": "out", "by": q, "limit": 1, "attributes": [q]},
    },
    "latest": lambda name, q: {"from": "Item", "latest": {"into": "Total", "by": q, "attributes": {"out": q}}},
    "copy": lambda name, q: {"from": "Item", "copy": {"into": "Copy", "attributes": {"out": q}}},
    "copy, list": lambda name, q: {"from": "Item", "copy": {"into": "Copy", "attributes": [q]}},
    "copy, template": lambda name, q: {"from": "Item", "copy": {"into": "Copy", "attributes": {"out": f"{{{q}}}"}}},
    "copy, values": lambda name, q: {"from": "Item", "copy": {"into": "Copy", "values": {"out": f"{{{q}|upper}}"}}},
    "index": lambda name, q: {"from": "Item", "index": {"GSI1PK": f"K#{{{q}}}", "GSI1SK": "{item}"}},
    "index, where": lambda name, q: {
        "from": "Item",
        "where": {q: ["x"]},
        "index": {"GSI1PK": "K#x", "GSI1SK": "{item}"},
    },
    "compute": lambda name, q: {"from": "Item", "compute": {"set": {"out": f"coalesce(({q}), no)"}}},
    "compute, template": lambda name, q: {"from": "Item", "compute": {"set": {"out": f"{{{q}}}"}}},
    "compute, arithmetic": lambda name, q: {"from": "Item", "compute": {"set": {"out": f"n.{q} + 1"}}},
    "compute, where": lambda name, q: {
        "from": "Item",
        "compute": {"set": {"out": {"constant": "x", "where": {q: ["x"]}}}},
    },
    "embed": lambda name, q: {
        "from": "Item",
        "embed": {"into": "Child", "match": {"item": "{item}"}, "attributes": {"out": q}},
    },
    "embed, list": lambda name, q: {
        "from": "Item",
        "embed": {"into": "Child", "match": {"item": "{item}"}, "attributes": [q]},
    },
    "embed, reference": lambda name, q: {
        "from": "Item",
        "embed": {"into": "Other", "match": {q: "{item}"}, "attributes": {"out": q}},
    },
    "set": lambda name, q: {"from": "Item", "aggregate": {"into": "Total", "set": {name: "count"}}},
    "as": lambda name, q: {
        "from": "Item",
        "top": {"into": "Total", "as": name, "by": q, "limit": 1, "attributes": {"v": q}},
    },
    "compute, set": lambda name, q: {"from": "Item", "compute": {"set": {f"{name}!": f"coalesce(({q}), no)"}}},
    "match": lambda name, q: {"from": "Marked", "aggregate": {"into": "Total", "set": {"out": "count"}}},
    "match, derived": lambda name, q: _count(aggregate={"into": "Made", "set": {"out": "count"}}),
}
DERIVED: dict[str, Any] = {  # what is derived, where that is not simply x or 1
    "bind": {"G#x": {"out": 1}},
    "variable of a key": {"S#x": {"out": 1}},
    "sum": {"TOTAL": {"out": 7}},
    "values": {"TOTAL": {"out": {"x"}}},
    "top": {"TOTAL": {"out": [{"v": "x"}]}},
    "copy, values": {"C#1": {"out": "X"}},
    "index": {"I#1": {"GSI1PK": "K#x", "GSI1SK": "1"}},
    "index, where": {"I#1": {"GSI1PK": "K#x", "GSI1SK": "1"}},
    "compute, arithmetic": {"I#1": {"out": 8}},
    "match": {"TOTAL": {"out": 1}},
}


def _odd_rules(place: str, name: str) -> dict[str, Any]:
    q = "'" + name.replace("'", "''") + "'"
    entities: dict[str, Any] = {
        "Item": {"key": {"PK": "I#{item}", "SK": "-"}},
        "Total": {"key": {"PK": "TOTAL", "SK": "-"}, "derived": True},
        "Group": {"key": {"PK": "G#{what}", "SK": "-"}},
        "Copy": {"key": {"PK": "C#{item}", "SK": "-"}},
        "Child": {"key": {"PK": "I#{item}", "SK": "CHILD"}},
        "Other": {"key": {"PK": "O#{other}", "SK": "-"}, "index_key": {"GSI1PK": f"O#{{{q}}}"}},
        "Marked": {"key": {"PK": "M#{marked}", "SK": "-"}, "match": {q: "x"}},
        "Unmarked": {"key": {"PK": "M#{marked}", "SK": "-"}, "match": {q: "y"}},
        "Made": {"key": {"PK": "MADE", "SK": "-"}, "match": {q: "x"}, "derived": True},
        "Same": {"key": {"PK": f"S#{{{q}}}", "SK": "-"}, "derived": True},
    }
    rule = PLACES[place](name, q)
    action = (
        next(part for part in rule.values() if isinstance(part, dict) and "into" in part)
        if place != "x" and not (rule.keys() & {"index", "compute"})
        else {"into": "Item"}
    )
    entities["Group"]["derived"] = action["into"] == "Group"
    kept = {"Item", rule["from"], action["into"], *(["Unmarked"] if rule["from"] == "Marked" else [])}
    return {
        "table": {"key": ["PK", "SK"], "indexes": {"GSI1": ["GSI1PK", "GSI1SK"]}},
        "entities": {one: form for one, form in entities.items() if one in kept},
        "projections": {"rule": rule},
    }


def _odd_items(name: str) -> list[dict[str, Any]]:
    def wires(value: str) -> dict[str, Any]:
        inner = {"M": {name: {"S": value}}}
        return {
            name: {"S": value},
            "same": {"S": "x"},
            "m": inner,
            "l": {"M": {name: {"L": [{"S": value}]}}},
            "maps": {"L": [inner]},
            "n": {"M": {name: {"N": "7"}}},
        }

    return [
        {"PK": {"S": "I#1"}, "SK": {"S": "-"}, **wires("x")},
        {"PK": {"S": "I#1"}, "SK": {"S": "CHILD"}},
        {"PK": {"S": "O#1"}, "SK": {"S": "-"}, name: {"S": "1"}, "GSI1PK": {"S": "O#1"}, "GSI1SK": {"S": "-"}},
        {"PK": {"S": "M#1"}, "SK": {"S": "-"}, name: {"S": "x"}},
        {"PK": {"S": "M#2"}, "SK": {"S": "-"}, name: {"S": "y"}},
    ]


def _expected(place: str, name: str) -> dict[str, dict[str, Any]]:
    if place in DERIVED:
        return dict(DERIVED[place])
    into = {"copy": "C#1", "compute": "I#1", "embed": "I#1 CHILD"}.get(place.split(",")[0], "TOTAL")
    match place:
        case "top, list":
            return {"TOTAL": {"out": [{name: "x"}]}}
        case "copy, list" | "embed, list":
            return {into: {name: "x"}}
        case "embed, reference":
            return {"O#1": {"out": "x"}}
        case "set":
            return {into: {name: 1}}
        case "as":
            return {into: {name: [{"v": "x"}]}}
        case "compute, set":
            return {into: {f"{name}!": "x"}}
        case "match, derived":
            return {"MADE": {name: "x", "out": 1}}
    if place == "where, plain" and name in ("a.b", "'x'", '"q"'):  # a path into a map, and names in quotes
        return {}
    counts = place.startswith(("where", "each"))
    return {into: {"out": 1 if counts else "x"}}


@pytest.mark.parametrize("place", PLACES)
def test_every_place_derives_from_every_name_or_refuses_it(place: str) -> None:
    refused = {}
    for name in ODD:
        try:
            rules = from_dict(_odd_rules(place, name))
        except RulesError as error:
            refused[name] = str(error)
            continue
        assert rules.program.model.document() == rules.program.document, name
        scenario, items = Scenario(rules), _odd_items(name)
        scenario.given(*items)
        found: dict[str, dict[str, Any]] = {}
        for image in scenario.items():
            at = image["PK"] + (" CHILD" if image["SK"] == "CHILD" else "")
            before = next((one for one in items if (one["PK"]["S"], one["SK"]["S"]) == (image["PK"], image["SK"])), {})
            if derived := {one: value for one, value in image.items() if one not in ("PK", "SK") and one not in before}:
                found[at] = derived
        assert found == _expected(place, name), (place, name)
        oracle = Oracle(rules.program.document)
        assert oracle.compare({"main": scenario.store.items("main")}, genuine=lambda *_: True) == [], (place, name)
    for name, message in refused.items():
        assert any(word in message for word in ("quotes", "without a dot", "plain name", "$or")), (place, name, message)
    assert refused.keys() == REFUSED.get(place, set())


REFUSED: dict[str, set[str]] = {
    **{place: {"a.b", "'x'", '"q"'} for place in ("copy, list", "embed, list", "set", "as")},
    "where, plain": {"$or", "="},
    "top, list": {"'x'", '"q"'},
    "variable of a key": {"a.b", "'x'", '"q"'},
    "compute, set": {"a.b"},
}
"""The names that cannot be used in a place, each with the way out in its message."""
