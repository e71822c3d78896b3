"""The pattern language: data cases in `cases/patterns.json`, and what holds for any document."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.language.patterns import Pattern, describe
from projections.language.syntax import LanguageError, LanguageErrors
from projections.language.values import lookup, wire


def _cases() -> Iterator[Any]:
    for suite in json.loads((Path(__file__).parent / "cases" / "patterns.json").read_text()):
        for case in suite["cases"]:
            yield pytest.param(suite["given"], case, id=f"{suite['about']}: {json.dumps(case['pattern'])}")


@pytest.mark.parametrize(("image", "case"), list(_cases()))
def test_pattern(image: dict[str, Any], case: dict[str, Any]) -> None:
    if "errors" in case:
        with pytest.raises(LanguageErrors) as mistakes:
            Pattern.parse(case["pattern"])
        found = mistakes.value.errors
        assert [list(error.path) for error in found] == [path for path, _ in case["errors"]]
        assert all(words in error.message for error, (_, words) in zip(found, case["errors"], strict=True))
        return
    pattern = Pattern.parse(case["pattern"])
    assert pattern.matches(partial(lookup, image)) is case["result"]
    if "text" in case:
        assert describe(pattern) == case["text"]


def test_names_and_constants() -> None:
    """Constants are what must be so: not what stands in `$or`, or is one of several alternatives."""
    pattern = Pattern.parse(
        {
            "type": "Post",
            "n": [2],
            "a": {"b": [True]},
            "c": ["x", "y"],
            "d": [{"prefix": "x"}],
            "$or": [{"e": 1}, {"n": 2}],
        }
    )
    assert pattern.names == ("type", "n", "a.b", "c", "d", "e")
    assert pattern.constants == {"type": "Post", "n": Decimal(2), "a.b": True}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["a", "b.c", "$or", "prefix", "suffix", "exists", "anything-but", "numeric", "equals-ignore-case", ">="]
            )
            | st.text(max_size=3),
            inner,
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(_JSON)
def test_any_document_is_a_pattern_or_has_mistakes_at_places_that_exist(document: Any) -> None:
    pattern: Pattern | None = None
    errors: tuple[LanguageError, ...] = ()
    try:
        pattern = Pattern.parse(document)
    except LanguageErrors as mistakes:
        errors = mistakes.errors
    for error in errors:
        place = document
        for step in error.path:
            place = place[step]
    if pattern is None:
        assert errors
    else:
        assert describe(pattern)
        assert isinstance(pattern.matches(lambda name, stored: None), bool)


@given(st.text() | st.integers(-(10**30), 10**30) | st.booleans() | st.none(), st.data())
def test_a_scalar_fits_itself_and_not_anything_but_itself(value: Any, data: st.DataObject) -> None:
    value_in_list = data.draw(st.booleans())
    found = wire([value]) if value_in_list else wire(value)
    assert Pattern.parse({"a": [value]}).matches(lambda name, stored: found)
    assert not Pattern.parse({"a": [{"anything-but": [value]}]}).matches(lambda name, stored: found)
    assert Pattern.parse({"a": [{"exists": True}]}).matches(lambda name, stored: found)
