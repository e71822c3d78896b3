"""Expressions and measures: data cases in `cases/`, and exactness."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from time import process_time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections import engine, language, operations, stores
from projections.errors import BadInput
from projections.language.arithmetic import Expression, Takes
from projections.language.measures import Measure
from projections.language.spelling import measure_document
from projections.language.syntax import LanguageError, LanguageErrors
from projections.language.values import lookup, number_text
from projections.testing.oracle import oracle_expressions as oracle
from projections.testing.oracle.scalar import Missing, Scope, Unfit

CASES = Path(__file__).parent / "cases"


def _cases() -> Iterator[Any]:
    for suite in json.loads((CASES / "expressions.json").read_text()):
        for case in suite["cases"]:
            yield pytest.param(suite["given"], case, id=case["expression"])


@pytest.mark.parametrize(("image", "case"), list(_cases()))
def test_expression(image: dict[str, Any], case: dict[str, Any]) -> None:
    takes: Takes = "extreme" if case.get("allow_text") else case.get("takes", "number")
    if "error" in case:
        with pytest.raises(LanguageError) as mistake:
            Expression.parse(case["expression"], takes)
        assert case["error"] in mistake.value.message
        assert mistake.value.offset == case["offset"]
        return
    expression = Expression.parse(case["expression"], takes)
    if "bad" in case:
        with pytest.raises(BadInput) as bad:
            expression.evaluate(partial(lookup, image))
        assert case["bad"] in str(bad.value)
        return
    result = expression.evaluate(partial(lookup, image))
    if "text" in case:
        assert result == case["text"]
    else:
        assert (number_text(result) if isinstance(result, Decimal) else result) == case["result"]


@pytest.mark.parametrize(
    "case", json.loads((CASES / "measures.json").read_text()), ids=lambda case: json.dumps(case["measure"])
)
def test_measure(case: dict[str, Any]) -> None:
    if "errors" in case:
        with pytest.raises(LanguageErrors) as mistakes:
            Measure.parse(case["measure"])
        found = mistakes.value.errors
        assert [[list(error.path), error.offset] for error in found] == [error[:2] for error in case["errors"]]
        assert all(words in error.message for error, (_, _, words) in zip(found, case["errors"], strict=True))
        return
    measure = Measure.parse(case["measure"])
    assert measure_document(measure) == case["is"]
    assert measure_document(Measure.parse(case["is"])) == case["is"]


def test_a_measure_reads_what_its_expression_and_its_condition_read() -> None:
    measure = Measure.parse({"sum": "qty * price", "where": {"status": ["paid"], "qty": [{"exists": True}]}})
    assert measure.function == "sum"
    assert measure.names == ("qty", "price", "status")


@given(st.integers(-(10**18), 10**18), st.integers(0, 12), st.integers(-(10**18), 10**18), st.integers(0, 12))
def test_products_are_exact(a: int, a_places: int, b: int, b_places: int) -> None:
    values = {"a": Decimal(a).scaleb(-a_places), "b": Decimal(b).scaleb(-b_places)}
    product = Expression.parse("-a * b").evaluate(lambda name: {"N": str(values[name])})
    assert isinstance(product, Decimal)
    assert Fraction(product) == Fraction(-a * b, 10 ** (a_places + b_places))


@given(st.text(alphabet="ab.*-+() 1number'\"", max_size=15))
def test_any_text_is_an_expression_or_a_language_error(text: str) -> None:
    offset = 0
    names: tuple[str, ...] = ("a",)
    try:
        names = Expression.parse(text).names
    except LanguageError as error:
        offset = error.offset or 0
    assert names
    assert 0 <= offset <= len(text)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=2)
            | st.dictionaries(
                st.sampled_from(["count", "sum", "avg", "min", "max", "where", "a"]) | st.text(max_size=3),
                inner,
                max_size=3,
            )
        ),
        max_leaves=8,
    )
)
def test_any_value_is_a_measure_or_has_mistakes(value: Any) -> None:
    measure: Measure | None = None
    errors: tuple[LanguageError, ...] = ()
    try:
        measure = Measure.parse(value)
    except LanguageErrors as mistakes:
        errors = mistakes.errors
    if measure is None:
        assert errors
    else:
        document = measure_document(measure)
        assert measure_document(Measure.parse(document)) == document


VALUES = [
    ("'a-b'", {"N": "5"}),
    ("flag", {"BOOL": True}),
    ("coalesce(absent, flag)", {"BOOL": True}),
    ("coalesce(absent, 'none')", {"S": "none"}),
    ("coalesce(absent, 1.50)", {"N": "1.5"}),
    ("coalesce(word, 'none')", {"S": "many"}),
    ("coalesce(q / zero, line)", {"M": {"qty": {"N": "3"}}}),
    ("round(q / 3, 2)", {"N": "0.67"}),
    ("number(text)", {"N": "12.5"}),
    ("text(word)", {"S": "many"}),
    ("absent", None),
]


@pytest.mark.parametrize(("text", "value"), VALUES)
def test_an_expression_for_any_value_has_the_type_of_the_value(text: str, value: Any) -> None:
    [suite] = json.loads((CASES / "expressions.json").read_text())
    assert Expression.parse(text, "value").compile_value()(partial(lookup, suite["given"])) == value


def test_a_text_that_is_nearly_a_number_is_refused_in_linear_time() -> None:
    """Its users write it: with 400 KB of digits, a pattern that can divide them in two ways would run for hours."""
    for text in ("1" * 400_000 + "x", " " * 400_000 + "x", "1" + " " * 400_000 + "x", "." + "1" * 400_000 + "."):
        with pytest.raises(BadInput, match="digits are needed"):
            Expression.parse("number(text)").evaluate(lambda name, text=text: {"S": text})


OF_RULES = (
    "projections.language.findings.",
    "projections.language.measures._CALL",
    "projections.language.templates._ARGUMENT",
)
"""Patterns that read texts of rules, and no text of an item."""


def patterns() -> dict[str, re.Pattern[str]]:
    """All compiled patterns of the parts that run in functions, which match texts of items as a whole."""
    found = {}
    for part in (language, engine, stores, operations):
        for module in walk_packages(part.__path__, f"{part.__name__}."):
            for name, value in vars(import_module(module.name)).items():
                if isinstance(value, re.Pattern) and not f"{module.name}.{name}".startswith(OF_RULES):
                    found[f"{module.name}.{name}"] = value
    return found


def test_no_pattern_takes_more_than_linear_time_for_a_long_text() -> None:
    parts = [
        "1",
        "a",
        "A",
        " ",
        "_",
        "-",
        ".",
        "#",
        "1.",
        "a.",
        "1 ",
        "'",
        '"',
        "{",
        "a ",
        "0,",
        "a(",
        "T",
        ":",
        "\\",
        "*",
    ]
    slow = []
    for name, pattern in patterns().items():
        for text in (
            begin + part * 4000 + end for part in parts for begin in ("", "1", "a", "{") for end in ("!", "x", "")
        ):
            start = process_time()
            pattern.fullmatch(text)
            if process_time() - start > 0.1:
                slow.append(f"{name}: {text[:6]}… {text[-3:]}")
    assert slow == []


def test_an_expression_has_a_limited_number_of_operations() -> None:
    assert Expression.parse("a" + " + 1" * 100).evaluate(lambda name: {"N": "1"}) == 101
    for text in ("a" + " + 1" * 101, "(" * 101 + "a" + ")" * 101, "abs(" * 101 + "a" + ")" * 101, "- " * 101 + "a"):
        with pytest.raises(LanguageError, match="at most 100 operations"):
            Expression.parse(text)


@pytest.mark.parametrize(
    ("text", "calculated", "needs", "kind"),
    [
        ("a", set(), ("a",), None),
        ("a * b", {"a", "b"}, ("a", "b"), "N"),
        ("coalesce(a, b + 1, 'x')", {"b"}, (), None),
        ("coalesce(text(a), 'x')", set(), (), "S"),
        ("coalesce(a, 0) + b", {"a", "b"}, ("b",), "N"),
    ],
)
def test_facts_about_an_expression(text: str, calculated: set[str], needs: tuple[str, ...], kind: str | None) -> None:
    expression = Expression.parse(text, "value")
    assert (expression.calculated, expression.needs, expression.type) == (calculated, needs, kind)


@pytest.mark.parametrize(("image", "case"), [one for one in _cases() if "error" not in one.values[1]])
def test_the_oracle_has_the_same_value(image: dict[str, Any], case: dict[str, Any]) -> None:
    expression, scope = oracle.Expression.parse(case["expression"]), Scope(image, {})
    if "bad" in case:
        with pytest.raises(Unfit):
            expression.number(scope)
    elif "text" in case:
        assert expression.is_text
        assert expression.value(scope) == {"S": case["text"]}
    elif case["result"] is None:
        with pytest.raises(Missing):
            expression.value(scope)
    else:
        assert expression.number(scope) == Decimal(case["result"])
