"""The contract of stores: the same tests run on memory and on the emulators.

DynamoDB Local is AWS's own engine. Where an emulator, or it, is known to differ from AWS is in known.py.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import count
from typing import Any

import pytest
from backends import SCHEMAS, backend, plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table import each

from projections.engine.store import (
    Above,
    AllOf,
    AnyOf,
    Below,
    Condition,
    Delete,
    Equal,
    Exists,
    Image,
    ItemKey,
    Missing,
    NotEqual,
    Store,
    Update,
    Value,
    Write,
)
from projections.errors import ConditionFailed, InvalidRequest, Misconfigured, TransactionCancelled
from projections.stores.dynamodb import DynamoDBStore
from projections.stores.memory import MemoryStore


def s(text: str) -> Value:
    return {"S": text}


def n(number: object) -> Value:
    return {"N": str(number)}


def b(content: bytes) -> str:
    return b64encode(content).decode()


def key(partition: str, sort: str = "s") -> ItemKey:
    return ItemKey("app", partition, sort)


def stored(store: Store, at: ItemKey) -> Any:
    return plain(store.get(at))


def attribute(store: Store, at: ItemKey, name: str) -> Any:
    return (stored(store, at) or {}).get(name)


# Conditions

GUARD = {"M": {"by": s("USER#1|POST#2"), "at": s("0017"), "n": n(3)}}
ITEM: dict[str, Value] = {
    "text": s("m"),
    "empty": s(""),
    "number": n("10"),
    "bytes": {"B": b(b"\x80\x01")},
    "yes": {"BOOL": True},
    "nothing": {"NULL": True},
    "list": {"L": [s("a"), n("1.0")]},
    "map": {"M": {"deep": {"M": {"er": n(5)}}, "list": {"L": [s("x")]}}},
    "tags": {"SS": ["a", "b"]},
    "numbers": {"NS": ["1", "2.5"]},
    "blobs": {"BS": [b(b"x"), b(b"y")]},
    "~rule": GUARD,
    "a.b": s("dotted"),
    "size": s("reserved word"),
}
TRUE: list[Condition] = [
    Exists(("text",)),
    Exists(("empty",)),
    Exists(("nothing",)),
    Exists(("~rule", "at")),
    Exists(("map", "deep", "er")),
    Exists(("a.b",)),
    Missing(("none",)),
    Missing(("none", "at")),
    Missing(("text", "at")),
    Missing(("map", "deep", "none")),
    Missing(("list", "a")),
    Missing(("a", "b")),
    Equal(("text",), s("m")),
    Equal(("empty",), s("")),
    Equal(("number",), n("10.00")),
    Equal(("number",), n("1e1")),
    Equal(("bytes",), {"B": b(b"\x80\x01")}),
    Equal(("yes",), {"BOOL": True}),
    Equal(("nothing",), {"NULL": True}),
    Equal(("list",), {"L": [s("a"), n("1")]}),
    Equal(("tags",), {"SS": ["b", "a"]}),
    Equal(("numbers",), {"NS": ["2.50", "1"]}),
    Equal(("blobs",), {"BS": [b(b"y"), b(b"x")]}),
    Equal(("~rule",), {"M": {"n": n("3.0"), "at": s("0017"), "by": s("USER#1|POST#2")}}),
    Equal(("map", "deep", "er"), n(5)),
    Equal(("a.b",), s("dotted")),
    Equal(("size",), s("reserved word")),
    NotEqual(("none",), s("m")),
    NotEqual(("none", "at"), s("m")),
    NotEqual(("text",), s("n")),
    NotEqual(("text",), n(1)),
    NotEqual(("~rule", "by"), s("USER#9")),
    NotEqual(("tags",), {"SS": ["a"]}),
    Below(("text",), s("n")),
    Below(("number",), n("10.5")),
    Below(("number",), n("1e2")),
    Below(("bytes",), {"B": b(b"\x81")}),
    Below(("empty",), s("a")),
    Below(("~rule", "at"), s("0018")),
    Above(("text",), s("l")),
    Above(("text",), s("")),
    Above(("number",), n("9")),
    Above(("number",), n("-11")),
    Above(("bytes",), {"B": b(b"\x7f\xff")}),
    Above(("~rule", "n"), n("2.99999999999999999999999999999999999")),
    AllOf(()),
    AllOf((Exists(("text",)),)),
    AllOf((Exists(("text",)), AllOf((Exists(("number",)), Missing(("none",)))))),
    AnyOf((Missing(("text",)), Exists(("number",)))),
    AnyOf((AllOf((Exists(("text",)), Missing(("number",)))), AllOf((Exists(("yes",)), Below(("number",), n(11)))))),
    AllOf((Exists(("text",)), AnyOf((Missing(("~rule",)), NotEqual(("~rule", "by"), s("x")))))),
]
FALSE: list[Condition] = [
    Exists(("none",)),
    Exists(("text", "at")),
    Exists(("~rule", "none")),
    Exists(("a", "b")),
    Missing(("nothing",)),
    Missing(("~rule", "at")),
    Equal(("none",), s("m")),
    Equal(("text",), s("M")),
    Equal(("number",), s("10")),
    Equal(("text",), {"B": b(b"m")}),
    Equal(("yes",), {"BOOL": False}),
    Equal(("list",), {"L": [n("1"), s("a")]}),
    Equal(("tags",), {"SS": ["a", "b", "c"]}),
    Equal(("~rule",), {"M": {"n": n(3), "at": s("0017")}}),
    Equal(("~rule",), {"M": {"n": n(3), "at": s("0018"), "by": s("USER#1|POST#2")}}),
    NotEqual(("text",), s("m")),
    NotEqual(("number",), n("10.0")),
    NotEqual(("tags",), {"SS": ["b", "a"]}),
    NotEqual(("~rule",), {"M": {"n": n("3.0"), "at": s("0017"), "by": s("USER#1|POST#2")}}),
    Below(("none",), s("z")),
    Below(("text",), s("m")),
    Below(("text",), n(99)),
    Below(("number",), s("99")),
    Below(("number",), n("9")),
    Below(("tags",), s("z")),
    Below(("yes",), n(9)),
    Below(("bytes",), {"B": b(b"\x80\x01")}),
    Below(("~rule",), s("z")),
    Below(("text", "at"), s("z")),
    Above(("none",), s("")),
    Above(("text",), s("m")),
    Above(("number",), n("10.0")),
    Above(("~rule", "at"), s("0017")),
    AnyOf(()),
    AnyOf((Exists(("none",)),)),
    AllOf((Exists(("text",)), Exists(("none",)))),
    AnyOf((Missing(("text",)), AllOf((Exists(("none",)), Exists(("text",)))))),
    AllOf((AnyOf((Exists(("none",)), Missing(("text",)))), Exists(("text",)))),
]
ABSENT_TRUE: list[Condition] = [
    Missing(("PK",)),
    Missing(("~rule", "at")),
    NotEqual(("text",), s("m")),
    AllOf(()),
    AnyOf((Exists(("PK",)), Missing(("~rule",)))),
]
ABSENT_FALSE: list[Condition] = [
    Exists(("PK",)),
    Equal(("text",), s("m")),
    Below(("text",), s("m")),
    Above(("number",), n(0)),
    AllOf((Missing(("~rule",)), Exists(("PK",)))),
]


@each(condition=TRUE)
def test_a_write_is_made_if_its_condition_holds(store: Store, p: str, condition: Condition) -> None:
    store.write(Update(key(p), set=ITEM))
    store.write(Update(key(p), set={"hit": s("x")}, condition=condition))
    assert attribute(store, key(p), "hit") == ("S", "x")


@each(condition=FALSE)
def test_a_write_is_refused_with_the_item_if_its_condition_fails(store: Store, p: str, condition: Condition) -> None:
    store.write(Update(key(p), set=ITEM))
    before = stored(store, key(p))
    with pytest.raises(ConditionFailed) as failure:
        store.write(Update(key(p), set={"hit": s("x")}, condition=condition))
    assert plain(failure.value.item) == before == stored(store, key(p))


@each(condition=ABSENT_TRUE)
def test_a_condition_may_hold_where_there_is_no_item(store: Store, p: str, condition: Condition) -> None:
    store.write(Update(key(p), set={"hit": s("x")}, condition=condition))
    assert attribute(store, key(p), "hit") == ("S", "x")


@each(condition=ABSENT_FALSE)
def test_a_failed_condition_carries_nothing_where_there_is_no_item(store: Store, p: str, condition: Condition) -> None:
    with pytest.raises(ConditionFailed) as failure:
        store.write(Update(key(p), set={"hit": s("x")}, condition=condition))
    assert failure.value.item is None
    assert store.get(key(p)) is None


def test_a_deletion_may_have_a_condition(store: Store, p: str) -> None:
    store.write(Update(key(p), set=ITEM))
    with pytest.raises(ConditionFailed) as failure:
        store.write(Delete(key(p), condition=Below(("~rule", "at"), s("0017"))))
    assert plain(failure.value.item)["text"] == ("S", "m")
    store.write(Delete(key(p), condition=Below(("~rule", "at"), s("0018"))))
    assert store.get(key(p)) is None
    with pytest.raises(ConditionFailed):
        store.write(Delete(key(p), condition=Exists(("PK",))))
    store.write(Delete(key(p)))


@each(value=[{"M": {}}, {"L": []}, {"BOOL": True}, {"NULL": True}, {"SS": ["a"]}])
def test_only_strings_numbers_and_binary_have_an_order(store: Store, p: str, value: Value) -> None:
    with pytest.raises(InvalidRequest):
        store.write(Update(key(p), condition=Below(("text",), value)))


# Updates


def test_an_update_creates_the_item_whatever_it_does(store: Store, p: str) -> None:
    updates = [
        Update(key(p, "nothing")),
        Update(key(p, "remove"), remove=["x"]),
        Update(key(p, "discard"), discard={"x": {"SS": ["a"]}}),
    ]
    for update in updates:
        store.write(update)
        assert stored(store, update.key) == {"PK": ("S", p), "SK": ("S", update.key.sort)}


def test_set_remove_add_and_discard_go_together(store: Store, p: str) -> None:
    store.write(Update(key(p), set={"a": s("1"), "gone": s("x"), "tags": {"SS": ["a", "b"]}, "count": n(1)}))
    store.write(
        Update(
            key(p),
            set={"a": s("2"), "new": {"M": {"x": {"L": []}}}},
            remove=["gone", "never"],
            add={"count": n("-3.5"), "fresh": n(7)},
            discard={"tags": {"SS": ["a", "z"]}},
            condition=Equal(("a",), s("1")),
        )
    )
    assert stored(store, key(p)) == {
        "PK": ("S", p),
        "SK": ("S", "s"),
        "a": ("S", "2"),
        "new": ("M", {"x": ("L", [])}),
        "count": ("N", Decimal("-2.5")),
        "fresh": ("N", 7),
        "tags": ("SS", {"b"}),
    }


@each(
    example=[
        (None, n(5), ("N", 5)),
        (None, n(0), ("N", 0)),
        (n(5), n(-7), ("N", -2)),
        (n("0.1"), n("0.2"), ("N", Decimal("0.3"))),
        (n("9" * 38), n(1), ("N", 10**38)),
        (n(1), n("1e-37"), ("N", Decimal("1.0000000000000000000000000000000000001"))),
        (None, {"SS": ["a"]}, ("SS", {"a"})),
        ({"SS": ["a"]}, {"SS": ["a", "b"]}, ("SS", {"a", "b"})),
        ({"NS": ["1"]}, {"NS": ["1.0", "2"]}, ("NS", {1, 2})),
        ({"BS": ["AA=="]}, {"BS": ["AQ=="]}, ("BS", {"AA==", "AQ=="})),
    ]
)
def test_add(store: Store, p: str, example: tuple[Value | None, Value, Any]) -> None:
    before, added, after = example
    if before:
        store.write(Update(key(p), set={"x": before}))
    store.write(Update(key(p), add={"x": added}))
    assert attribute(store, key(p), "x") == after


@each(
    example=[
        ({"SS": ["a", "b"]}, {"SS": ["a"]}, ("SS", {"b"})),
        ({"SS": ["a", "b"]}, {"SS": ["a", "b", "c"]}, None),
        ({"NS": ["1", "2"]}, {"NS": ["1.0"]}, ("NS", {2})),
        ({"BS": ["AA==", "AQ=="]}, {"BS": ["AA=="]}, ("BS", {"AQ=="})),
        (None, {"SS": ["a"]}, None),
    ]
)
def test_discard(store: Store, p: str, example: tuple[Value | None, Value, Any]) -> None:
    before, discarded, after = example
    if before:
        store.write(Update(key(p), set={"x": before}))
    store.write(Update(key(p), discard={"x": discarded}))
    assert attribute(store, key(p), "x") == after


def nested(levels: int, value: Value | None = None) -> Value:
    return (value or s("x")) if levels == 1 else {"M": {"a": nested(levels - 1, value)}}


OLD = {"text": s("x"), "number": n(1), "tags": {"SS": ["a"]}, "top": n("9" * 38), "huge": n("9e125")}
REFUSED: dict[str, dict[str, Any]] = {
    "add-number-to-text": {"add": {"text": n(1)}},
    "add-number-to-set": {"add": {"tags": n(1)}},
    "add-set-to-number": {"add": {"number": {"SS": ["a"]}}},
    "add-other-set": {"add": {"tags": {"NS": ["1"]}}},
    "add-text": {"add": {"new": s("a")}},
    "add-list": {"add": {"new": {"L": [s("a")]}}},
    "add-39-digits": {"add": {"top": n("0.1")}},
    "add-tiny": {"add": {"number": n("1e-38")}},
    "add-overflow": {"add": {"huge": n("1e125")}},
    "discard-from-text": {"discard": {"text": {"SS": ["a"]}}},
    "discard-other-set": {"discard": {"tags": {"NS": ["1"]}}},
    "discard-number": {"discard": {"number": n(1)}},
    "39-digits": {"set": {"x": n("1" * 39)}},
    "39-digits-nested": {"set": {"x": {"M": {"y": {"L": [n("1." + "1" * 38)]}}}}},
    "overflow": {"set": {"x": n("1e126")}},
    "underflow": {"set": {"x": n("1e-131")}},
    "no-number": {"set": {"x": n("abc")}},
    "empty-number": {"set": {"x": n("")}},
    "infinity": {"set": {"x": n("Infinity")}},
    "spaced-number": {"set": {"x": n(" 1")}},
    "empty-set": {"set": {"x": {"SS": []}}},
    "empty-set-added": {"add": {"tags": {"SS": []}}},
    "duplicates": {"set": {"x": {"SS": ["a", "a"]}}},
    "same-number-twice": {"set": {"x": {"NS": ["1", "1.0"]}}},
    "too-deep": {"set": {"x": nested(33)}},
    "too-deep-and-empty": {"set": {"x": nested(32, {"L": []})}},
    "too-deep-in-condition": {"condition": NotEqual(("text",), nested(34))},
    "no-name": {"set": {"": s("x")}},
    "no-name-removed": {"remove": [""]},
    "no-name-in-condition": {"condition": Missing(("",))},
    "no-name-in-path": {"condition": Missing(("text", ""))},
    "no-name-in-map": {"set": {"x": {"M": {"": s("x")}}}},
    "no-name-in-list": {"set": {"x": {"L": [{"M": {"": s("x")}}]}}},
    "long-name": {"set": {"x" * 65_536: s("x")}},
    "long-name-in-bytes": {"set": {"\u00e9" * 32_768: s("x")}},
    "long-name-in-map": {"set": {"x": {"M": {"x" * 65_536: s("x")}}}},
    "null-is-false": {"set": {"x": {"NULL": False}}},
    "binary-twice": {"set": {"x": {"BS": ["AA==", "AA=="]}}},
    "key-partition": {"set": {"PK": s("x")}},
    "key-sort": {"remove": ["SK"]},
    "key-added": {"add": {"SK": n(1)}},
    "twice": {"set": {"x": s("1")}, "remove": ["x"]},
    "bad-number-in-condition": {"condition": Equal(("number",), n("1" * 39))},
    "empty-set-in-condition": {"condition": NotEqual(("tags",), {"SS": []})},
    "index-key-type": {"set": {"G": n(1)}},
    "index-key-empty": {"set": {"G": s("")}},
    "index-key-partition-long": {"set": {"G": s("x" * 2049)}},
    "index-key-sort-long": {"set": {"H": s("x" * 1025)}},
    "index-key-added": {"add": {"H": n(1)}},
    "too-large": {"set": {"x": s("x" * 409_600)}},
    "too-large-together": {"set": {"x": s("x" * 205_000), "y": s("y" * 205_000)}},
    "expression-too-long": {"set": {f"a{number}": n(1) for number in range(900)}},
    "too-many-operators": {"condition": AnyOf(tuple(Exists((f"a{number}",)) for number in range(151)))},
}


@each(update=REFUSED)
def test_a_refused_update_changes_nothing(store: Store, p: str, update: dict[str, Any]) -> None:
    store.write(Update(key(p), set=OLD))
    before = stored(store, key(p))
    with pytest.raises(InvalidRequest):
        store.write(Update(key(p), **update))
    assert stored(store, key(p)) == before


LATE = ["add-number-to-text", "add-39-digits", "discard-other-set", "key-partition", "index-key-empty"]
EARLY = ["add-text", "39-digits", "empty-set", "duplicates", "twice", "too-large", "expression-too-long"]


@each(name=LATE)
def test_errors_that_depend_on_the_item_come_after_the_condition(store: Store, p: str, name: str) -> None:
    store.write(Update(key(p), set=OLD))
    with pytest.raises(ConditionFailed):
        store.write(Update(key(p), **REFUSED[name], condition=Exists(("none",))))


@each(name=EARLY)
def test_invalid_writes_are_refused_before_the_condition(store: Store, p: str, name: str) -> None:
    store.write(Update(key(p), set=OLD))
    with pytest.raises(InvalidRequest):
        store.write(Update(key(p), **REFUSED[name], condition=Exists(("none",))))


ALLOWED: dict[str, Value] = {
    "deep": nested(32),
    "deep-set": nested(32, {"SS": ["a"]}),
    "deep-list": nested(31, {"L": []}),
    "empty-text": s(""),
    "empty-binary": {"B": ""},
    "empty-text-in-set": {"SS": ["", "a"]},
    "empty-binary-in-set": {"BS": ["", "AA=="]},
    "empty-map": {"M": {}},
    "longest-name": {"M": {"x" * 65_535: s("x")}},
    "odd-names": {"M": {"a.b": s("x"), " ": s("x"), "#a": s("x"), ":a": s("x"), "\x00": s("\x00")}},
}


@each(value=ALLOWED)
def test_a_value_at_the_limits_comes_back_as_it_was_stored(store: Store, p: str, value: Value) -> None:
    store.write(Update(key(p), set={"x": value}, condition=NotEqual(("x",), value)))
    assert attribute(store, key(p), "x") == plain({"x": value})["x"]  # type: ignore[index]


def test_an_item_may_have_400_kb_and_no_byte_more(store: Store, p: str) -> None:
    room = 400 * 1024 - len(f"PK{p}SKsx")
    store.write(Update(key(p), set={"x": s("ü" * (room // 2) + "u" * (room % 2))}))
    with pytest.raises(InvalidRequest):
        store.write(Update(key(p), set={"y": s("")}))
    with pytest.raises(InvalidRequest):
        store.write(Update(key(p), set={"x": s("x" * (room + 1))}))
    store.write(Delete(key(p)))


LONG = {
    "partition-long": ItemKey("app", "p" * 2049, "s"),
    "sort-long": ItemKey("app", "p", "s" * 1025),
    "sort-long-in-bytes": ItemKey("app", "p", "ü" * 513),
    "binary-long": ItemKey("binary", b(b"x"), b(b"x" * 1025)),
}
BAD = {
    "partition-empty": ItemKey("app", "", "s"),
    "sort-empty": ItemKey("app", "p", ""),
    "binary-empty": ItemKey("binary", "", b(b"x")),
    "no-number": ItemKey("numeric", "x", "1"),
    "39-digits": ItemKey("numeric", "1", "1" * 39),
}


@each(at=LONG | BAD)
def test_keys_have_limits(store: Store, at: ItemKey) -> None:
    for write in (Update(at, set={"x": s("x")}), Delete(at)):
        with pytest.raises(InvalidRequest):
            store.write(write)
        with pytest.raises((InvalidRequest, TransactionCancelled)):
            store.transact([write])
    with pytest.raises(InvalidRequest):
        store.get(at)


@each(at=LONG)
def test_a_key_that_is_too_long_is_a_reason_in_a_transaction(store: Store, p: str, at: ItemKey) -> None:
    with pytest.raises(TransactionCancelled) as failure:
        store.transact([Update(key(p)), Update(at)])
    good, bad = failure.value.reasons
    assert good is None
    assert bad is not None
    assert bad.kind == "invalid"
    assert store.get(key(p)) is None


def test_the_longest_keys_are_fine(store: Store, p: str) -> None:
    at = key(p.ljust(2048, "x"), "s" * 1024)
    store.write(Update(at, set={"G": s("g" * 2048), "H": s("h" * 1024)}))
    assert store.get(at) is not None


def test_every_type_of_value_comes_back_as_it_was_stored(store: Store, p: str) -> None:
    store.write(Update(key(p), set=ITEM))
    assert stored(store, key(p)) == plain({**ITEM, "PK": s(p), "SK": s("s")})


@each(
    example=[("0.10", "0.1"), ("-0", "0"), ("+5", "5"), ("007", "7"), ("1E2", "100"), ("1.0", "1"), ("1e-3", "0.001")]
)
def test_numbers_are_normalized(store: Store, p: str, example: tuple[str, str]) -> None:
    written, read = example
    store.write(Update(key(p), set={"x": n(written)}))
    assert (store.get(key(p)) or {})["x"] == {"N": read}


# Transactions


def test_a_transaction_makes_all_its_writes(store: Store, p: str) -> None:
    store.write(Update(key(p, "gone"), set={"x": s("x")}))
    store.transact(
        [
            Update(key(p, "new"), set={"x": s("x")}, condition=Missing(("PK",))),
            Update(key(p, "count"), add={"n": n(2)}),
            Delete(key(p, "gone"), condition=Exists(("x",))),
            Update(ItemKey("plain", p), set={"x": s("x")}),
        ]
    )
    assert attribute(store, key(p, "new"), "x") == ("S", "x")
    assert attribute(store, key(p, "count"), "n") == ("N", 2)
    assert store.get(key(p, "gone")) is None
    assert store.get(ItemKey("plain", p)) is not None


def test_a_cancelled_transaction_has_the_failed_conditions_and_the_items(store: Store, p: str) -> None:
    store.write(Update(key(p, "a"), set=ITEM))
    store.write(Update(key(p, "d"), set={"x": s("old")}))
    with pytest.raises(TransactionCancelled) as failure:
        store.transact(
            [
                Update(key(p, "a"), set={"x": s("x")}, condition=Below(("~rule", "at"), s("0017"))),
                Update(key(p, "b"), add={"n": n(1)}),
                Update(key(p, "c"), set={"x": s("x")}, condition=Exists(("PK",))),
                Delete(key(p, "d"), condition=Equal(("x",), s("new"))),
            ]
        )
    first, second, third, fourth = failure.value.reasons
    assert second is None
    assert [reason and reason.kind for reason in (first, third, fourth)] == ["condition"] * 3
    assert first is not None
    assert plain(first.item) == stored(store, key(p, "a"))
    assert third is not None
    assert third.item is None
    assert fourth is not None
    assert plain(fourth.item) == stored(store, key(p, "d"))
    assert store.get(key(p, "b")) is None
    assert attribute(store, key(p, "a"), "x") is None


@each(name=["add-number-to-text", "add-39-digits", "39-digits", "empty-set", "index-key-empty"])
def test_a_bad_value_condemns_the_whole_transaction(store: Store, p: str, name: str) -> None:
    store.write(Update(key(p, "bad"), set=OLD))
    with pytest.raises(InvalidRequest):
        store.transact([Update(key(p, "good"), add={"n": n(1)}), Update(key(p, "bad"), **REFUSED[name])])
    assert store.get(key(p, "good")) is None


def test_an_item_that_becomes_too_large_is_a_reason(store: Store, p: str) -> None:
    store.write(Update(key(p, "bad"), set={"x": s("x" * 400_000)}))
    with pytest.raises(TransactionCancelled) as failure:
        store.transact([Update(key(p, "good"), add={"n": n(1)}), Update(key(p, "bad"), set={"y": s("y" * 20_000)})])
    good, bad = failure.value.reasons
    assert good is None
    assert bad is not None
    assert bad.kind == "invalid"
    assert bad.message
    assert store.get(key(p, "good")) is None
    store.write(Delete(key(p, "bad")))


def test_a_transaction_has_an_item_once(store: Store, p: str) -> None:
    with pytest.raises(InvalidRequest):
        store.transact([Update(key(p), set={"x": s("x")}), Delete(key(p))])
    assert store.get(key(p)) is None


def test_a_transaction_has_1_to_100_actions(store: Store, p: str) -> None:
    writes = [Update(key(p, f"{number:03}"), set={"x": s("x")}) for number in range(101)]
    with pytest.raises(InvalidRequest):
        store.transact(writes)
    with pytest.raises(InvalidRequest):
        store.transact([])
    assert store.get(key(p, "000")) is None
    store.transact(writes[:100])
    assert len(store.query("app", [s(p)]).items) == 100


def test_a_transaction_has_4_mb(store: Store, p: str) -> None:
    with pytest.raises(InvalidRequest):
        store.transact([Update(key(p, str(number)), set={"x": s("x" * 390_000)}) for number in range(11)])
    assert store.query("app", [s(p)]).items == []


# Reads


def test_get_returns_some_attributes_or_only_that_the_item_exists(store: Store, p: str) -> None:
    store.write(Update(key(p), set=ITEM))
    assert plain(store.get(key(p), ["text", "size", "none", "text"])) == {
        "text": ("S", "m"),
        "size": ("S", "reserved word"),
    }
    assert store.get(key(p), ["none"]) == {}
    assert store.get(key(p), []) == {}
    assert store.get(key(p, "none"), []) is None
    assert store.get(key(p, "none"), ["text"]) is None


def test_get_together_returns_items_of_several_tables_that_exist(store: MemoryStore | DynamoDBStore, p: str) -> None:
    other = ItemKey("plain", p)
    image = {**ITEM, "blob": {"B": "AAE="}}
    store.write(Update(key(p), set=image))
    store.write(Update(other, set={"x": s("plain")}))
    found = store.get_together([key(p), other, key(p, "none"), key(p)])
    assert found.keys() == {key(p), other}
    assert plain(found[key(p)]) == plain(store.get(key(p)))
    assert found[other]["x"] == s("plain")


SORTS = ["A", "A#", "A#1", "A#10", "A#2", "B", "a", "Ä", "漢", "𝄞"]


def filled(store: Store, p: str) -> None:
    for sort in reversed(SORTS):
        store.write(Update(key(p, sort), set={"x": s(sort), "G": s(f"{p}G"), "H": s(sort[::-1])}))


def sorts(items: Sequence[Image]) -> list[str]:
    return [item["SK"]["S"] for item in items]


def test_a_query_is_in_the_order_of_utf_8_bytes(store: Store, p: str) -> None:
    filled(store, p)
    page = store.query("app", [s(p)])
    assert sorts(page.items) == SORTS
    assert page.after is None
    assert sorts(store.query("app", [s(p)], reverse=True).items) == SORTS[::-1]
    assert store.query("app", [s(f"{p}none")]).items == []


@each(prefix=["A", "A#", "A#1", "𝄞", "Z", "", None])
def test_a_prefix_keeps_the_sort_keys_that_begin_with_it(store: Store, p: str, prefix: str | None) -> None:
    filled(store, p)
    expected = [sort for sort in SORTS if sort.startswith(prefix or "")]
    assert sorts(store.query("app", [s(p)], prefix=prefix).items) == expected
    assert sorts(store.query("app", [s(p)], prefix=prefix, reverse=True, limit=2).items) == expected[::-1][:2]


@each(index=[None, "GSI1"], reverse=[False, True])
def test_pages_follow_each_other_even_if_items_go_meanwhile(
    store: Store, p: str, index: str | None, reverse: bool
) -> None:
    filled(store, p)
    values = [s(p if index is None else f"{p}G")]
    whole = sorts(store.query("app", values, index=index, reverse=reverse).items)
    assert sorted(whole) == SORTS
    seen: list[str] = []
    after: Any = None
    while True:
        page = store.query("app", values, index=index, reverse=reverse, limit=3, after=after, attributes=["SK"])
        assert all(set(item) == {"SK"} for item in page.items)
        seen += sorts(page.items)
        after = page.after
        if after is None:
            break
        store.write(Delete(key(p, seen[-1])))
    assert seen == whole


def test_a_page_that_is_just_full_has_a_cursor(store: Store, p: str) -> None:
    filled(store, p)
    page = store.query("app", [s(p)], limit=len(SORTS))
    assert page.after is not None
    assert store.query("app", [s(p)], after=page.after).items == []
    with pytest.raises(InvalidRequest):
        store.query("app", [s(p)], limit=0)


def test_an_index_has_the_items_with_all_its_key_attributes(store: Store, p: str) -> None:
    for sort, attributes in {
        "both": {"G": s(f"{p}G"), "H": s("h1")},
        "later": {"G": s(f"{p}G"), "H": s("h2")},
        "one": {"G": s(f"{p}G")},
        "other": {"G": s(f"{p}H"), "H": s("h1")},
    }.items():
        store.write(Update(key(p, sort), set=attributes))
    assert sorts(store.query("app", [s(f"{p}G")], index="GSI1").items) == ["both", "later"]
    assert sorts(store.query("app", [s(f"{p}G")], index="GSI1", prefix="h2").items) == ["later"]
    store.write(Update(key(p, "both"), set={"H": s("h3")}))
    store.write(Update(key(p, "later"), remove=["G"]))
    store.write(Update(key(p, "one"), set={"H": s("h0")}))
    assert sorts(store.query("app", [s(f"{p}G")], index="GSI1").items) == ["one", "both"]
    with pytest.raises(Misconfigured):
        store.query("app", [s(p)], index="NOPE")


PROJECTED = {
    "keys": {"PK", "SK", "G"},
    "some": {"PK", "SK", "G", "H", "x"},
    "local": {"PK", "SK", "G", "H", "at", "x", "y"},
    "local-some": {"PK", "SK", "H", "x"},
}


def _item_in_all_indexes(store: Store, p: str, sort: str) -> None:
    values = {"G": s(f"{p}G"), "H": s(f"h{sort}"), "at": n(-int(sort)), "x": s("x"), "y": s("y")}
    store.write(Update(ItemKey("projected", p, sort), set=values))


@each(index=list(PROJECTED))
def test_query_of_an_index_returns_what_it_projects(store: Store, p: str, index: str) -> None:
    for sort in "123":
        _item_in_all_indexes(store, p, sort)
    values = [s(p if index.startswith("local") else f"{p}G")]
    page = store.query("projected", values, index=index, limit=2)
    items = [*page.items, *store.query("projected", values, index=index, limit=2, after=page.after).items]
    assert [set(item) for item in items] == [PROJECTED[index]] * 3
    expected = {"local": ["3", "2", "1"], "keys": None}.get(index, ["1", "2", "3"])
    assert expected is None or sorts(items) == expected
    some = store.query("projected", values, index=index, attributes=["SK"]).items
    assert sorted(sorts(some)) == ["1", "2", "3"]
    assert all(set(item) == {"SK"} for item in some)


@each(index=["keys", "some"])
def test_global_index_refuses_attributes_that_it_does_not_project(store: Store, p: str, index: str) -> None:
    _item_in_all_indexes(store, p, "1")
    with pytest.raises(InvalidRequest, match="does not project"):
        store.query("projected", [s(f"{p}G")], index=index, attributes=["SK", "y"])


def test_local_index_reads_what_it_does_not_project_from_the_table(store: Store, p: str) -> None:
    _item_in_all_indexes(store, p, "1")
    (item,) = store.query("projected", [s(p)], index="local-some", attributes=["SK", "y"]).items
    assert item == {"SK": s("1"), "y": s("y")}


@each(values=[[n(1)], [s("")], [], [s("a"), s("b")]])
def test_a_query_gives_the_partition_key_as_the_schema_has_it(store: Store, values: list[Value]) -> None:
    with pytest.raises((InvalidRequest, Misconfigured)):
        store.query("app", values)


def test_segments_of_a_scan_cover_everything_once(store: Store, p: str) -> None:
    at = [ItemKey("plain", f"{p}#{number}") for number in range(50)]
    for k in at:
        store.write(Update(k, set={"x": s("x")}))
    seen: list[str] = []
    for segment in range(4):
        after: Any = None
        while True:
            page = store.scan("plain", segment=segment, segments=4, limit=7, after=after)
            assert len(page.items) <= 7
            seen += [item["PK"]["S"] for item in page.items]
            after = page.after
            if after is None:
                break
    mine = sorted(partition for partition in seen if partition.startswith(f"{p}#"))
    assert mine == sorted(k.partition for k in at)
    whole = store.scan("plain", attributes=["PK"])
    assert sorted(item["PK"]["S"] for item in whole.items) == sorted(seen)


def test_numbers_as_keys_are_one_by_value_and_sort_by_value(store: Store, p: str) -> None:
    partition = p[1:]
    for sort in ("10", "9", "-1", "1.5", "0"):
        store.write(Update(ItemKey("numeric", partition, sort), set={"G": n(partition), "H": n(sort)}))
    store.write(Update(ItemKey("numeric", partition, "9"), add={"n": n(1)}))
    store.write(Update(ItemKey("numeric", f"{partition}.0", "9.00"), add={"n": n(1)}))
    for index in (None, "GSI1"):
        page = store.query("numeric", [n(f"{partition}.0")], index=index)
        assert [Decimal(item["SK"]["N"]) for item in page.items] == [-1, 0, Decimal("1.5"), 9, 10]
    nine = ItemKey("numeric", partition, "9")
    assert attribute(store, nine, "n") == ("N", 2)
    assert set(store.get_many([nine])) == {nine}
    page = store.query("numeric", [n(partition)], limit=2)
    assert len(store.query("numeric", [n(partition)], after=page.after).items) == 3


def test_binary_keys_sort_by_bytes(store: Store, p: str) -> None:
    partition = b(p.encode())
    contents = [b"\x00", b"\x01\x00", b"\x7f", b"\x80", b"\xff", b"\xff\x00"]
    for content in reversed(contents):
        store.write(Update(ItemKey("binary", partition, b(content)), set={"x": {"B": b(content)}}))
    page = store.query("binary", [{"B": partition}])
    assert [item["SK"]["B"] for item in page.items] == [item["x"]["B"] for item in page.items] == [*map(b, contents)]
    first = store.query("binary", [{"B": partition}], limit=2)
    rest = store.query("binary", [{"B": partition}], after=first.after)
    assert [item["SK"]["B"] for item in rest.items] == [*map(b, contents[2:])]
    at = ItemKey("binary", partition, b(b"\xff"))
    assert set(store.get_many([at])) == {at}


def test_a_table_may_have_no_sort_key(store: Store, p: str) -> None:
    at = ItemKey("plain", p)
    store.write(Update(at, set={"x": s("x")}))
    store.transact([Update(at, add={"n": n(1)}, condition=Exists(("PK",)))])
    assert stored(store, at) == {"PK": ("S", p), "x": ("S", "x"), "n": ("N", 1)}
    assert store.query("plain", [s(p)]).items[0]["x"] == s("x")
    assert set(store.get_many([at])) == {at}


# Random writes: memory and DynamoDB Local answer the same, and hold the same items

_runs = count(1)

# Few names and values, so that writes meet each other's traces; among them values at the edges of what is allowed.
names = st.sampled_from(["a", "b", "tags", "~r", "a", "b", "tags", "~r", "", "a.b"])
strings = st.sampled_from(["", "x", "y", "0017", "ü"]).map(lambda text: {"S": text})
numbers = st.sampled_from(["0", "1", "-1", "2.50", "1e1", "9" * 38, "0.1", "1e-37", "9e125", "1e-130", "1" * 39]).map(
    lambda text: {"N": text}
)
others = st.sampled_from(
    [
        {"BOOL": True},
        {"NULL": True},
        {"NULL": False},
        {"B": "AAE="},
        {"B": ""},
        {"L": []},
        {"M": {}},
        {"M": {"": {"S": "x"}}},
    ]
)
sets = st.one_of(
    st.lists(st.sampled_from(["x", "y", ""]), max_size=3).map(lambda each: {"SS": each}),
    st.lists(st.sampled_from(["1", "1.0", "2"]), max_size=2).map(lambda each: {"NS": each}),
    st.lists(st.sampled_from(["AA==", "AQ==", ""]), max_size=2).map(lambda each: {"BS": each}),
)
flat = st.one_of(strings, numbers, sets, others)
maps = st.fixed_dictionaries({"at": strings, "by": flat}).map(lambda content: {"M": content})
lists = st.lists(flat, max_size=2).map(lambda content: {"L": content})


def nested_value(levels: int, value: Value, kind: str) -> Value:
    for _ in range(levels):
        value = {"L": [value]} if kind == "L" else {"M": {"a": value}}
    return value


deep = st.builds(nested_value, st.integers(29, 34), flat, st.sampled_from("LM"))
values: st.SearchStrategy[Value] = st.one_of(flat, maps, lists, deep)

paths = st.one_of(names.map(lambda name: (name,)), names.map(lambda name: (name, "at")), st.just(("~r", "by")))
leaves: st.SearchStrategy[Condition] = st.one_of(
    st.builds(Exists, paths),
    st.builds(Missing, paths),
    st.builds(Equal, paths, values),
    st.builds(NotEqual, paths, values),
    st.builds(Below, paths, flat),
    st.builds(Above, paths, flat),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda each: AllOf(tuple(each))),
        st.lists(inner, max_size=3).map(lambda each: AnyOf(tuple(each))),
    ),
    max_leaves=4,
)
sort_keys = st.sampled_from(["1", "2", "3"])


@st.composite
def updates(draw: st.DrawFn) -> Update:
    clauses: dict[str, Any] = {"set": {}, "remove": [], "add": {}, "discard": {}}
    for name in draw(st.lists(names, max_size=3, unique=True)):
        match draw(st.sampled_from(["set", "set", "remove", "add", "discard"])):
            case "remove":
                clauses["remove"].append(name)
            case "set":
                clauses["set"][name] = draw(values)
            case clause:
                clauses[clause][name] = draw(st.one_of(numbers, sets, strings))
    return Update(ItemKey("app", "", draw(sort_keys)), **clauses, condition=draw(st.none() | conditions))


deletes = st.builds(Delete, sort_keys.map(lambda sort: ItemKey("app", "", sort)), st.none() | conditions)
writes: st.SearchStrategy[Write] = st.one_of(updates(), updates(), updates(), deletes)
# An item twice is refused in any case, but DynamoDB Local finds out only after the conditions.
transactions = st.lists(writes, min_size=1, max_size=3, unique_by=lambda write: write.key)
steps = st.lists(st.one_of(writes, transactions), min_size=1, max_size=8)


@pytest.fixture(scope="module")
def local(request: pytest.FixtureRequest) -> Iterator[Store]:
    with backend("dynamodb-local", request) as store:
        yield store


@pytest.mark.deep
@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow])
@given(steps=steps)
def test_memory_agrees_with_dynamodb_local(local: Store, steps: list[Write | list[Write]]) -> None:
    memory = MemoryStore(SCHEMAS)
    partition = f"run-{next(_runs)}"
    for step in steps:
        placed = [placed_in(partition, write) for write in (step if isinstance(step, list) else [step])]
        single = not isinstance(step, list)
        assert outcome(memory, placed, single) == outcome(local, placed, single), placed
        assert found(memory, partition) == found(local, partition)


def placed_in(partition: str, write: Write) -> Write:
    key = write.key._replace(partition=partition)
    if isinstance(write, Delete):
        return Delete(key, write.condition)
    return Update(key, write.set, write.remove, write.add, write.discard, write.condition)


def outcome(store: Store, placed: list[Write], single: bool) -> Any:
    try:
        if single:
            store.write(placed[0])
        else:
            store.transact(placed)
    except ConditionFailed as failure:
        return "condition", plain(failure.item)
    except TransactionCancelled as failure:
        return [reason and (reason.kind, plain(reason.item)) for reason in failure.reasons]
    except InvalidRequest:
        return "invalid"
    return "done"


def found(store: Store, partition: str) -> Any:
    return [plain(item) for item in store.query("app", [{"S": partition}]).items]
