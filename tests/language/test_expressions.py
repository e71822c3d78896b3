"""Expressions and measures: data cases in `cases/`, and exactness."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.errors import BadInput
from projections.language.expressions import Expression, Measure
from projections.language.syntax import LanguageError, LanguageErrors
from projections.language.values import lookup, number_text

CASES = Path(__file__).parent / "cases"


def _cases() -> Iterator[Any]:
    for suite in json.loads((CASES / "expressions.json").read_text()):
        for case in suite["cases"]:
            yield pytest.param(suite["given"], case, id=case["expression"])


@pytest.mark.parametrize(("image", "case"), list(_cases()))
def test_expression(image: dict[str, Any], case: dict[str, Any]) -> None:
    allow_text = case.get("allow_text", False)
    if "error" in case:
        with pytest.raises(LanguageError) as mistake:
            Expression.parse(case["expression"], allow_text)
        assert case["error"] in mistake.value.message
        assert mistake.value.offset == case["offset"]
        return
    expression = Expression.parse(case["expression"], allow_text)
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
            Measure.parse("m", case["measure"])
        found = mistakes.value.errors
        assert [[list(error.path), error.offset] for error in found] == [error[:2] for error in case["errors"]]
        assert all(words in error.message for error, (_, _, words) in zip(found, case["errors"], strict=True))
        return
    measure = Measure.parse("m", case["measure"])
    assert measure.document() == case["is"]
    assert Measure.parse("m", measure.document()) == measure


def test_a_measure_reads_what_its_expression_and_its_condition_read() -> None:
    measure = Measure.parse("revenue", {"sum": "qty * price", "where": {"status": ["paid"], "qty": [{"exists": True}]}})
    assert (measure.name, measure.function) == ("revenue", "sum")
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
        measure = Measure.parse("m", value)
    except LanguageErrors as mistakes:
        errors = mistakes.errors
    if measure is None:
        assert errors
    else:
        assert Measure.parse("m", measure.document()) == measure
