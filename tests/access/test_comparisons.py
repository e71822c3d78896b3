"""Comparisons in queries: what follows from them, and what readers and generated modules return."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from itertools import product
from typing import Any

import pytest
from generated import module_of, table_of
from hypothesis import given
from hypothesis import strategies as st
from moto import mock_aws

from projections.access.answers import StoreReader, answer_to
from projections.api import loads
from projections.inspect.client import client_of
from projections.language.access.planner import plan
from projections.language.patterns import Pattern
from projections.language.patterns.implication import Known, excludes, implies, known_present
from projections.language.syntax import LanguageErrors
from projections.language.values import lookup, wire
from projections.testing.oracle.oracle_templates import pattern as oracle
from projections.testing.scenario import Scenario

WHERES: tuple[Mapping[str, Any], ...] = ({"at": {"day": {"<": "{post}"}}}, {"post": [{"<": "{n}"}, {"=": "{at.day}"}]})


def test_readers_and_generated_modules_compare_variables_of_keys_as_the_language_does() -> None:
    queries = {f"q{n}": {"find": "Post", "by": ["blog"], "where": where} for n, where in enumerate(WHERES)}
    entities = {"Post": {"key": {"PK": "BLOG#{blog}", "SK": "POST#{post}"}}}
    rules = {"table": {"key": ["PK", "SK"]}, "entities": entities, "queries": queries, "projections": {}}
    loaded = loads(json.dumps(rules))
    values = enumerate(product("abc", (1, "b", "c"), ({"day": "b"}, {"day": 3}, {})))
    items = ({"PK": "BLOG#b", "SK": f"POST#{b}{number}", "n": n, "at": at} for number, (b, n, at) in values)
    scenario = Scenario(loaded).given(*items)
    client = client_of(loaded, "rules.yaml")
    with mock_aws():
        images = scenario._store.items("main")
        table = table_of(None, loaded.program.tables["main"], images)
        for name, where in zip(queries, WHERES, strict=True):
            keys = {image["SK"]["S"]: {"post": {"S": image["SK"]["S"].removeprefix("POST#")}} for image in images}
            days = {image["SK"]["S"]: {f"at.{day}": v for day, v in image["at"]["M"].items()} for image in images}
            fits = oracle(where)
            expected = [key for image in images if fits({**image, **keys[key := image["SK"]["S"]], **days[key]}.get)]
            planned = plan(loaded.program.model, loaded.queries[name])
            read = answer_to(scenario.program, planned, {"blog": "b"}, StoreReader(scenario._store))
            found = getattr(module_of(client.text), client.functions[name])(table, blog="b")
            assert [item["SK"] for item in read] == [item["SK"] for item in found] == sorted(expected), where
            assert 0 < len(expected) < len(images), where


# --- what follows from comparisons ---

_OPERAND = st.sampled_from([1, 2, 2.5, "a", "b", "{x}", "{y}"])
_COMPARED = st.dictionaries(st.sampled_from(["<", "<=", ">", ">=", "=", "!="]), _OPERAND, min_size=1, max_size=2)
_OTHER = st.sampled_from(
    ["a", 2, {"exists": True}, {"exists": False}, {"prefix": "a"}, {"anything-but": [2]}, {"numeric": [">=", 2]}]
)
_TEST = st.lists(st.one_of(_COMPARED, _COMPARED, _OTHER), min_size=1, max_size=2)
_PATTERN = st.dictionaries(st.sampled_from(["a", "x"]), _TEST, min_size=1, max_size=2)
_SCALAR = st.sampled_from([None, 1, 2, Decimal("2.5"), 3, "a", "ab", "b", "c"])
_ITEM = st.tuples(_SCALAR, _SCALAR, _SCALAR, st.booleans())


def parsed(document: Mapping[str, Any]) -> Pattern | None:
    try:
        return Pattern.parse(document)
    except LanguageErrors:  # bounds that contradict each other
        return None


@given(_PATTERN, _PATTERN, st.lists(_ITEM, min_size=10, max_size=10))
def test_what_follows_from_a_pattern_holds_for_all_items(one: Any, other: Any, values: list[Any]) -> None:
    held, wanted = parsed(one), parsed(other)
    if held is None or wanted is None:
        return
    lists = Known((held,), frozenset(), frozenset())
    scalars = Known((held,), frozenset(), frozenset("axy"))
    for *content, many in values:
        item = {
            name: wire([value] if many else value)
            for name, value in zip("axy", content, strict=True)
            if value is not None
        }
        if not held.matches(partial(lookup, item)):
            continue
        known = lists if many else scalars
        assert wanted.matches(partial(lookup, item)) or not implies(known, wanted)
        assert not wanted.matches(partial(lookup, item)) or not excludes(known, wanted)
        assert all(name in item for name in "axy" if known_present(known, name))


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ({"a": {"<": "b"}}, {"a": {"<": "c"}}),
        ({"a": {"<": "b"}}, {"a": {"!=": "b"}}),
        ({"a": {"<=": "b"}}, {"a": {"!=": "c"}}),
        ({"a": {">": 5}}, {"a": {">=": 5}}),
        ({"a": {">": 5}}, {"a": {"!=": 5}}),
        ({"a": {">": 5, "<": "{x}"}}, {"a": [{"numeric": [">", 4]}]}),
        ({"a": {"=": "{x}"}}, {"a": {">=": "{x}"}}),
        ({"a": {"<": "{x}"}}, {"a": {"!=": "{x}"}}),
        ({"a": {"<": "{x}"}}, {"x": [{"exists": True}]}),
        ({"a": "b"}, {"a": {">": "a", "<": "c"}}),
    ],
)
def test_the_planner_knows_what_follows(held: Any, wanted: Any) -> None:
    assert implies(Known((Pattern.parse(held),), frozenset(), frozenset()), Pattern.parse(wanted))


@pytest.mark.parametrize(
    ("held", "wanted"),
    [
        ({"a": {"<": "b"}}, {"a": {">=": "b"}}),
        ({"a": {"<": "b"}}, {"a": {">": 5}}),
        ({"a": {"<": "{x}"}}, {"a": {">=": "{x}"}}),
        ({"a": {"=": "{x}"}}, {"a": {"!=": "{x}"}}),
        ({"a": 5}, {"a": {"!=": 5}}),
    ],
)
def test_the_planner_knows_what_cannot_be(held: Any, wanted: Any) -> None:
    known, other = Pattern.parse(held), Pattern.parse(wanted)
    assert excludes(Known((known,), frozenset(), frozenset("ax")), other)
    assert excludes(Known((other,), frozenset(), frozenset("ax")), known)
    assert not excludes(Known((known,), frozenset(), frozenset()), other)
