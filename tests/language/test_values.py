"""Values in wire form: plain JSON and back, equality as DynamoDB has it, canonical forms."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.language.syntax import LanguageError
from projections.language.values import canonical, lookup, number_text, plain, plain_item, python, same, shown, wire
from projections.local.items import different_words, value_of


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"S": "x"}, "x"),
        ({"N": "1"}, 1),
        ({"N": "1.0"}, 1),
        ({"N": "1E+2"}, 100),
        ({"N": "1.5"}, 1.5),
        ({"N": "0.1"}, 0.1),
        ({"N": "0.12345678901234567890123"}, {"$number": "0.12345678901234567890123"}),
        ({"BOOL": False}, False),
        ({"NULL": True}, None),
        ({"B": "AA=="}, {"$binary": "AA=="}),
        ({"SS": ["b", "a"]}, {"SS": ["a", "b"]}),
        ({"NS": ["10", "9", "1.5"]}, {"NS": [1.5, 9, 10]}),
        ({"BS": ["AA=="]}, {"BS": [{"$binary": "AA=="}]}),
        ({"L": [{"N": "1"}, {"M": {"a": {"S": "b"}}}]}, [1, {"a": "b"}]),
    ],
)
def test_plain(value: dict[str, Any], expected: Any) -> None:
    assert plain(value) == expected
    assert plain_item({"a": value}) == {"a": expected}


@pytest.mark.parametrize(
    ("constant", "expected"),
    [
        (None, {"NULL": True}),
        (True, {"BOOL": True}),
        ("x", {"S": "x"}),
        (1, {"N": "1"}),
        (0.1, {"N": "0.1"}),
        (1e22, {"N": "10000000000000000000000"}),
        (Decimal("-0.0"), {"N": "0"}),
        (b"\0", {"B": "AA=="}),
        ({"$binary": "AA=="}, {"B": "AA=="}),
        ({"$number": "0.12345678901234567890123"}, {"N": "0.12345678901234567890123"}),
        ([1, ["x"]], {"L": [{"N": "1"}, {"L": [{"S": "x"}]}]}),
        ({"a": None}, {"M": {"a": {"NULL": True}}}),
        ({"b", "a"}, {"SS": ["a", "b"]}),
        ({2}, {"NS": ["2"]}),
    ],
)
def test_wire(constant: Any, expected: dict[str, Any]) -> None:
    assert wire(constant) == expected


@pytest.mark.parametrize(
    ("constant", "path"),
    [
        (float("nan"), ()),
        (float("inf"), ()),
        (10**38 + 1, ()),
        (1e126, ()),
        (Decimal("1E-131"), ()),
        ({"a": [1, object()]}, ("a", 1)),
        ({1: 2}, ()),
        ({"a": {"$number": "many"}}, ("a",)),
        (set(), ()),
        ({1, "a"}, ()),
        ({True}, ()),
    ],
)
def test_values_that_dynamodb_cannot_store_are_rejected_with_their_place(
    constant: Any, path: tuple[str | int, ...]
) -> None:
    with pytest.raises(LanguageError) as mistake:
        wire(constant)
    assert mistake.value.path == path


def test_messages_show_no_more_than_a_scalar_cut_short() -> None:
    assert shown({"S": "x" * 50}) == f"a string, {'x' * 40 + '…'!r}"
    assert shown({"M": {"secret": {"S": "x"}}}) == "a map"


def test_paths_lead_into_maps_and_lists() -> None:
    image: dict[str, Any] = {"a": {"M": {"b": {"L": [{"S": "x"}]}}}, "c.d": {"S": "dotted"}}
    assert lookup(image, "a.b.0") == {"S": "x"}
    assert lookup(image, "'c.d'") == {"S": "dotted"}
    assert [lookup(image, path) for path in ("a.b.1", "a.b.x", "a.b.0.y", "x", "x.y", "c.d")] == [None] * 6


_NUMBERS = st.decimals(-1000, 1000, places=2, allow_nan=False).map(str)
_VALUES = st.recursive(
    st.one_of(
        st.text(max_size=3).map(lambda text: {"S": text}),
        _NUMBERS.map(lambda number: {"N": number}),
        st.booleans().map(lambda flag: {"BOOL": flag}),
        st.just({"NULL": True}),
        st.lists(st.text(min_size=1, max_size=2), min_size=1, max_size=3, unique=True).map(lambda texts: {"SS": texts}),
        st.lists(_NUMBERS, min_size=1, max_size=3, unique_by=Decimal).map(lambda numbers: {"NS": numbers}),
    ),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda elements: {"L": elements})
        | st.dictionaries(st.text(max_size=2), inner, max_size=3).map(lambda entries: {"M": entries})
    ),
    max_leaves=6,
)


def _respelled(value: Any) -> Any:
    """An equal value written differently."""
    tag, data = next(iter(value.items()))
    match tag:
        case "N":
            return {"N": str(Decimal(data) * Decimal("1.000"))}
        case "SS":
            return {"SS": data[::-1]}
        case "NS":
            return {"NS": [number_text(Decimal(number)) for number in reversed(data)]}
        case "L":
            return {"L": [_respelled(element) for element in data]}
        case "M":
            return {"M": {name: _respelled(data[name]) for name in reversed(data)}}
    return value


@given(_VALUES)
def test_an_equal_value_written_differently_is_the_same(value: Any) -> None:
    other = _respelled(value)
    assert same(value, other)
    assert json.dumps(canonical(value)) == json.dumps(canonical(other))
    json.dumps(plain(value))


@given(_VALUES, _VALUES)
def test_a_value_that_was_read_can_be_written_again_and_different_values_have_different_words(
    value: Any, other: Any
) -> None:
    assert same(wire(python(value)), value)
    assert same(value_of(plain(value)), value)
    assert same(value, other) or different_words(value, other, 20)[0] != different_words(value, other, 20)[1]


@given(_VALUES, _VALUES)
def test_values_are_the_same_exactly_if_their_canonical_forms_are(a: Any, b: Any) -> None:
    assert same(a, b) == (json.dumps(canonical(a)) == json.dumps(canonical(b)))
    assert not same(a, None)
    assert same(None, None)
