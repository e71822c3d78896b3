"""The caller's values: text stands for a number where the items have numbers, and values that do not fit are refused."""

from __future__ import annotations

from typing import Any

import pytest

import projections
from projections.errors import UsageError
from projections.testing import Scenario

SCORED = {"score": [{"exists": True}]}
RULES = {
    "table": {
        "key": ["PK", "SK"],
        "indexes": {"N": {"partition": ["NP"], "sort": {"score": "N"}}, "PAD": ["PP", "PS"], "INVERT": ["IP", "IS"]},
    },
    "entities": {"E": {"key": {"PK": "E#{a}", "SK": "I#{b}"}}},
    "projections": {
        "n": {"from": "E", "index": {"NP": "ALL"}},
        "pad": {"from": "E", "index": {"PP": "ALL", "PS": "S#{score|pad(4)}"}},
        "invert": {"from": "E", "index": {"IP": "ALL", "IS": "{score|invert(4)}#{b}"}},
    },
    "queries": {
        **{
            name: {"find": "E", "range": "score", "where": SCORED, "order": "asc", "using": name}
            for name in ("N", "PAD", "INVERT")
        },
        "filtered": {"find": "E", "by": ["a"], "range": "score"},
        "equal": {"find": "E", "by": ["a", "score"]},
    },
}
SCORES = (5, 10, 99, 100, 1000)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    items = [{"PK": "E#1", "SK": f"I#{score}", "score": score} for score in SCORES]
    return Scenario(projections.from_dict(RULES)).given(*items)


def scores(scenario: Scenario, name: str, **given: Any) -> list[int]:
    return [item["score"] for item in projections.ask(scenario.store, scenario.rules, name, given)]


@pytest.mark.parametrize("name", ["N", "PAD", "INVERT"])
@pytest.mark.parametrize("form", [int, str])
def test_bounds_of_a_number_may_be_text(scenario: Scenario, name: str, form: type) -> None:
    assert scores(scenario, name, score=(form(10), form(100))) == [10, 99, 100]
    assert scores(scenario, name, score={"from": form(100)}) == [100, 1000]
    assert scores(scenario, name, score={"to": form(10)}) == [5, 10]
    assert scores(scenario, name, score=(form(100), form(10))) == []


def test_filters_compare_numbers_with_text(scenario: Scenario) -> None:
    assert sorted(scores(scenario, "filtered", a="1", score=("10", "99"))) == [10, 99]
    assert scores(scenario, "filtered", a=1, score=("NaN", "99")) == []
    assert scores(scenario, "equal", a="1", score="10") == [10]
    assert scores(scenario, "equal", a="1", score=10) == [10]


@pytest.mark.parametrize(
    ("name", "given", "message"),
    [
        ("N", {"score.from": "x"}, "query N: score is a number, 'x' is not"),
        ("N", {"score.from": "NaN"}, "query N: score is a number, 'NaN' is not"),
        ("N", {"score.from": "1e999"}, "query N: score is a number, '1e999' is not"),
        ("N", {"score.from": float("inf")}, "query N: score.from is inf; give text or a number"),
        ("N", {"score.prefix": "1"}, "query N: score is a number: give from and to, not a prefix"),
        ("PAD", {"score.to": "20000"}, "it has more than 4 digits"),
        ("equal", {"a": True, "score": 1}, "query equal: a is True; give text or a number"),
        ("equal", {"a": ["1"], "score": 1}, "query equal: a is ['1']; give text or a number"),
        ("equal", {"a": None, "score": 1}, "query equal: missing a; its parameters are a, score"),
    ],
)
def test_values_that_do_not_fit_are_refused(scenario: Scenario, name: str, given: Any, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        scores(scenario, name, **given)
    assert message in str(raised.value)
