"""The kind of an item as a condition: sound for every form of `match`, and as good as complete for scalars."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.engine.application import kind_as_read, kind_condition
from projections.engine.store import AllOf, ItemKey
from projections.language.entity import Entity
from projections.language.loader import loads
from projections.language.program import Program
from projections.language.values import wire
from projections.stores.condition_expressions import holds

KEY = ItemKey("main", "DOC#1", "D")

MATCHES: dict[str, Any] = {
    "one value": {"type": "bill"},
    "a list of values": {"type": ["bill", "invoice", 7, True, None]},
    "a prefix": {"type": [{"prefix": "bi"}]},
    "a suffix": {"type": [{"suffix": "ll"}]},
    "exists": {"type": [{"exists": True}]},
    "absent": {"type": [{"exists": False}]},
    "absent or a value": {"type": [{"exists": False}, "bill"]},
    "anything but": {"type": [{"anything-but": ["bill", "x"]}]},
    "anything but a number": {"type": [{"anything-but": [7, "bill"]}]},
    "anything but a prefix": {"type": [{"anything-but": {"prefix": "bi"}}]},
    "numeric": {"type": [{"numeric": [">=", 3, "<", 9]}]},
    "a range of texts": {"type": [{">": "bi", "<=": "bill"}]},
    "another text, or more": {"type": [{"!=": "bill"}, {">": 7}]},
    "another attribute": {"type": [{">=": "{other}"}, 7]},
    "another attribute alone": {"type": {"!=": "{other}", ">": "b"}},
    "another attribute and a variable of the key": {"type": [{"!=": "{id}"}], "id": {"<": "{other}"}},
    "ignoring case": {"type": [{"equals-ignore-case": "Bill"}]},
    "or": {"$or": [{"type": "bill"}, {"other": [{"exists": True}]}]},
    "or with a branch that no condition can say": {"$or": [{"type": [{"suffix": "l"}]}, {"other": ["bill"]}]},
    "a dotted path": {"meta.type": "bill"},
    "a dotted path that is absent": {"meta.type": [{"exists": False}]},
    "an absent dotted path or a value": {"meta.type": [{"exists": False}, "bill"]},
    "a position in a list": {"meta.0": [{"exists": False}]},
    "a variable of the key": {"id": [{"prefix": "1"}]},
    "another variable of the key": {"id": ["2", "bill"]},
    "a key attribute": {"SK": "D"},
    "another key attribute": {"SK": "E"},
    "two attributes": {"type": ["bill"], "other": [{"exists": False}]},
}

scalars = st.sampled_from(["bill", "Bill", "invoice", "bi", "x", "", "bil\U0010ffff", 7, 3, 9, -1, True, False, None])
values = st.one_of(
    scalars,
    st.lists(scalars, max_size=3),
    st.just({"bill"}),
    st.just({"x", "y"}),
    st.just({3, 12}),
    st.dictionaries(st.sampled_from(["type", "0", "x"]), scalars, max_size=2),
)
items = st.dictionaries(st.sampled_from(["type", "other", "meta", "meta.type", "meta.0", "id"]), values, max_size=4)


@cache
def entity(name: str) -> tuple[Program, Entity]:
    document = {
        "table": {"key": ["PK", "SK"]},
        "entities": {"Doc": {"key": {"PK": "DOC#{id}", "SK": "{what}"}, "match": MATCHES[name]}},
        "projections": {},
    }
    program = Program.from_document(loads(json.dumps(document)).document())
    return program, program.entities["Doc"]


def image(attributes: dict[str, Any]) -> dict[str, Any]:
    return {"PK": {"S": "DOC#1"}, "SK": {"S": "D"}, **{name: wire(value) for name, value in attributes.items()}}


@pytest.mark.parametrize("name", MATCHES)
@settings(max_examples=20)
@given(attributes=items)
def test_a_compiled_kind_holds_only_for_items_of_the_entity(name: str, attributes: dict[str, Any]) -> None:
    program, of = entity(name)
    condition = kind_condition(of, KEY)
    if condition is not None and holds(condition, image(attributes)):
        assert program.recognise(KEY, image(attributes)) is not None


EXACT = ["one value", "a list of values", "exists", "absent", "absent or a value", "a key attribute", "a dotted path"]


@pytest.mark.parametrize("name", EXACT)
@given(attributes=st.dictionaries(st.sampled_from(["type", "other", "meta"]), scalars, max_size=3))
def test_a_compiled_kind_holds_for_every_item_whose_attributes_are_scalars(
    name: str, attributes: dict[str, Any]
) -> None:
    program, of = entity(name)
    condition = kind_condition(of, KEY)
    assert condition is not None
    assert holds(condition, image(attributes)) == (program.recognise(KEY, image(attributes)) is not None)


@pytest.mark.parametrize("name", ["a suffix", "anything but a prefix"])
def test_what_no_condition_can_express_is_read_first(name: str) -> None:
    assert kind_condition(entity(name)[1], KEY) is None


@pytest.mark.parametrize("name", MATCHES)
@settings(max_examples=20)
@given(before=items, after=items)
def test_an_item_of_which_the_kind_is_as_read_is_recognised_as_before(
    name: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    program, of = entity(name)
    condition = AllOf(tuple(kind_as_read((of,), image(before))))
    if holds(condition, image(after)):
        assert (program.recognise(KEY, image(before)) is None) == (program.recognise(KEY, image(after)) is None)
