"""Expressions as sources of attributes, and what is derived from the names that they read."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from projections.errors import BadInput, RulesError
from projections.inspect.client.entity_definitions import attributes_of
from projections.inspect.explain.matching import verdict
from projections.language.attribute_sources import attribute_source, pick
from projections.language.attribute_types import is_number
from projections.language.facts import inputs, origins, paths_read
from projections.language.keys import ItemKey
from projections.language.loader import loads
from projections.language.program import Program
from projections.language.syntax import LanguageError
from projections.language.values import lookup
from projections.testing.oracle.oracle_rules import _source
from projections.testing.oracle.scalar import Scope

RULES = """\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Shop: {key: {PK: "SHOP#{shop}", SK: S}}
  Line: {key: {PK: "SHOP#{shop}", SK: "LINE#{line}"}}
  Bill: {key: {PK: "BILL#{shop}", SK: "BILL#{line}"}}
projections:
  bills: {from: Line, copy: {into: Bill, attributes: %s}}
  shop: {from: Shop, embed: {into: Line, match: {shop: "{shop}"}, attributes: {due: %s}}}
  shown: {from: Bill, bind: {shop: "{shop}"}, latest: {into: Shop, by: at, attributes: {last: %s}}}
"""
CASES = json.loads((Path(__file__).parent / "cases" / "expressions.json").read_text())


def rules(bills: str = "[a]", due: str = "rent", last: str = "a") -> Any:
    return loads(RULES % (bills, due, last))


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("qty", "qty"),
        ("unit-price", "unit-price"),
        ("'unit-price'", "unit-price"),
        (" a.b ", "a.b"),
        ("'a b'", "'a b'"),
        ("qty-price", "qty-price"),
        ("qty -price-cost", None),
        ("qty*price", "qty * price"),
        ("-qty", "-qty"),
        ("coalesce(nick,'none')", "coalesce(nick, 'none')"),
        ("number(a)", "number(a)"),
        ("{qty}", "{qty}"),
        ("{ first } {last|lower()}", "{first} {last|lower}"),
        ("{qty*price|pad(08)} x", "{qty * price|pad(8)} x"),
    ],
)
def test_sources_have_one_text(text: str, canonical: str | None) -> None:
    form = json.dumps({"x": text})
    if canonical is None:
        with pytest.raises(LanguageError):
            attribute_source(text)
        return
    document = rules(form).document()
    assert document["projections"]["bills"]["copy"]["attributes"] == {"x": canonical}
    again = rules(json.dumps({"x": canonical})).document()
    assert again == document


def test_wrong_input_makes_the_attribute_absent() -> None:
    image: dict[str, Any] = {"a": {"N": "2"}, "t": {"S": "text"}, "zero": {"N": "0"}, "l": {"L": []}}
    chosen = pick(
        {
            "x": "a * 3",
            "y": "a * t",
            "z": "a / zero",
            "u": "a + gone",
            "p": "l",
            "c": "coalesce(a * t, a)",
            "n": "gone",
            "o": "{a} of {t}",
            "q": "{gone}{a}",
            "r": "{l}",
            "s": "{a * t}",
            "v": "{a / zero|default(0)}",
        }
    )
    assert chosen(partial(lookup, image)) == {"x": {"N": "6"}, "p": {"L": []}, "o": {"S": "2 of text"}, "v": {"S": "0"}}


@pytest.mark.parametrize("sources", [{"x": "a"}, {"x": "a", "y": "b + 1"}])
def test_a_path_that_has_two_values_is_bad_input(sources: dict[str, str]) -> None:
    def resolve(path: str) -> Any:
        if path == "a":
            raise BadInput("two values")
        return {"N": "1"}

    with pytest.raises(BadInput):
        pick(sources)(resolve)
    assert pick({"x": "a + 1", "y": "b"})(resolve) == {"y": {"N": "1"}}
    assert pick({"x": "{a}", "y": "{b}"})(resolve) == {"y": {"S": "1"}}


def test_the_oracle_picks_the_same() -> None:
    compared = 0
    for suite in CASES:
        image = suite["given"]
        for case in suite["cases"]:
            try:
                bills = rules(json.dumps({"x": case["expression"]})).document()["projections"]["bills"]
            except Exception:
                continue
            text = bills["copy"]["attributes"]["x"]
            value = _source(text)(Scope(image, {}))
            assert pick({"x": text})(partial(lookup, image)) == ({} if value is None else {"x": value}), text
            compared += 1
    assert compared > 40


def test_all_names_of_an_expression_are_inputs() -> None:
    found = inputs(rules("{total: qty * due}", "rent / lines", '"coalesce(total, 0) + note"').completed())
    assert found["bills"] == {"shop": ("due",)}
    assert "total" in found["shown"]["bills"]
    found = inputs(rules('{total: "{qty} x {due}"}', "'{rent} / {lines}'", "'{coalesce(total, 0) + note}'").completed())
    assert found["bills"] == {"shop": ("due",)}
    assert "total" in found["shown"]["bills"]


def test_types_of_attributes_follow_from_expressions() -> None:
    document = rules(
        '{total: qty * price, name: "coalesce(text(nick), \'x\')", any: "coalesce(a, 0)", text: "{qty * 2}"}',
        "rent / 2",
        "-total",
    ).completed()
    assert is_number(document, "Bill", "total")
    assert is_number(document, "Line", "due")
    assert is_number(document, "Shop", "last")
    assert not is_number(document, "Bill", "any")
    assert not is_number(document, "Bill", "text")
    types = {name: one.type for name, one in attributes_of(document, "Bill", (), (), ()).items()}
    assert (types["total"], types["name"], types["any"], types["text"]) == ("Decimal", "str", "Any", "str")
    assert {"qty", "price", "nick", "a"} <= attributes_of(document, "Line", (), (), ()).keys()


def test_origins_and_rehearsals_read_the_names() -> None:
    document = rules("{total: qty * price, a: a, b: '{c|pad(4)} {qty}'}")
    assert origins(document.completed())["Bill"]["b"].how == "{c|pad(4)} {qty} of Line"
    assert origins(document.completed())["Bill"]["total"].how == "qty * price of Line"
    assert origins(document.completed())["Bill"]["a"].how == "Line.a"
    complete = document.completed()
    assert paths_read(complete, complete.projections["bills"]) == {"qty", "price", "a", "c", "shop", "line"}


def test_findings_see_expressions() -> None:
    text = RULES % ("{GSI1SK: qty + 1}", "rent", "a")
    with pytest.raises(RulesError, match="GSI1SK is a key of type S, and this rule computes it as a number"):
        loads(text)


@pytest.mark.parametrize(
    ("image", "reason"),
    [
        ({}, "attributes: the item has no rent"),
        ({"rent": {"S": "x"}, "lines": {"N": "1"}}, 'attributes: expression "rent / lines": rent is a string'),
        ({"rent": {"N": "1"}, "lines": {"N": "0"}}, "attributes: rent / lines divides by zero"),
    ],
)
@pytest.mark.parametrize("due", ["rent / lines", "'{rent / lines} EUR'"])
def test_explain_shows_why_an_embed_has_no_value(due: str, image: dict[str, Any], reason: str) -> None:
    program = Program.from_document(rules(due=due).document())
    shop: dict[str, Any] = {"PK": {"S": "SHOP#1"}, "SK": {"S": "S"}, **image}
    item = program.recognise(ItemKey("main", "SHOP#1", "S"), shop)
    assert item is not None
    (found,) = verdict(program, program.rules["shop"], item).reasons
    assert found.startswith(reason)
