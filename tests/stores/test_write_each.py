"""Many updates, each on its own: the contract on all stores, then what only statements of PartiQL have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from backends import SCHEMAS, backend, plain
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from table import each
from test_contract import FALSE, ITEM, TRUE, attribute, b, conditions, found, key, n, s, stored, values
from test_dynamodb import Answers, failure, over

from projections.engine.store import (
    Above,
    AllOf,
    AnyOf,
    Below,
    Condition,
    Equal,
    Exists,
    ItemKey,
    Missing,
    NotEqual,
    Store,
    Update,
    Value,
)
from projections.errors import ConditionFailed, InvalidRequest, Misconfigured, StoreError, Transient
from projections.stores.dynamodb import DynamoDBStore, Meter
from projections.stores.memory import MemoryStore
from projections.stores.requests import STATEMENT_BYTES, statement
from projections.stores.wire import BODY

EXISTS = Exists(("PK",))
KINDS = {type(None): "done", ConditionFailed: "condition", InvalidRequest: "invalid", Transient: "transient"}
_runs = count(1)


def update(at: ItemKey, condition: Condition | None = None, /, **clauses: Any) -> Update:
    """An update that requires its item, and `condition`."""
    return Update(at, condition=EXISTS if condition is None else AllOf((EXISTS, condition)), **clauses)


def kinds(answers: list[StoreError | None]) -> list[str]:
    return [next(name for kind, name in KINDS.items() if isinstance(answer, kind)) for answer in answers]


def items(store: Store, p: str, *sorts: str, **more: Value) -> list[ItemKey]:
    keys = [key(p, sort) for sort in sorts]
    for at in keys:
        store.write(Update(at, set={"text": s("m"), **more}))
    return keys


# Contract


def test_updates_return_the_item_after_them_or_as_it_was(store: Store, p: str) -> None:
    """Whether there was an item, and all that is added to, or not: a lane's update of a group (`engine.lanes`)."""
    there, bare, passed, full, absent, removed = (key(p, sort) for sort in "abcdef")
    for at, image in {
        there: {"n": n("1"), "l": n("4")},
        bare: {"l": n("4")},
        passed: {"n": n("1"), "l": n("9")},
        full: {"n": s("x"), "l": n("4")},
    }.items():
        store.write(Update(at, set=image))
    behind = AnyOf((Missing(("l",)), Below(("l",), n("5"))))
    writes = [
        Update(at, set={"l": n("7")}, add={"n": n("2")}, condition=behind) for at in (there, bare, passed, full, absent)
    ]
    writes.append(Update(removed, set={"l": n("7")}, add={"n": n("2")}, condition=Equal(("l",), n("4"))))
    first, second, failed, refused, created, lacking = store.update_each(writes)
    for image, total in ((first, "3"), (second, "2"), (created, "2")):
        assert isinstance(image, dict)
        assert (image["n"], image["l"]) == (n(total), n("7"))
    assert isinstance(failed, ConditionFailed)
    assert failed.item is not None
    assert failed.item["l"] == n("9")
    assert isinstance(refused, InvalidRequest)
    assert isinstance(lacking, ConditionFailed)
    assert lacking.item is None
    assert store.get(removed) is None
    again = store.update_each(writes[:1])[0]
    assert isinstance(again, ConditionFailed)
    assert again.item is not None
    assert again.item["n"] == n("3")


@each(condition=TRUE)
def test_an_update_among_others_is_made_if_its_condition_holds(store: Store, p: str, condition: Condition) -> None:
    store.write(Update(key(p), set=ITEM))
    (other,) = items(store, p, "other")
    hit = {"hit": s("x")}
    answers = store.write_each([update(key(p), condition, set=hit), update(other, set=hit)])
    assert answers == [None, None]
    assert attribute(store, key(p), "hit") == attribute(store, other, "hit") == ("S", "x")


@each(condition=FALSE)
def test_a_write_is_refused_alone_if_its_condition_fails(store: Store, p: str, condition: Condition) -> None:
    store.write(Update(key(p), set=ITEM))
    (other,) = items(store, p, "other")
    hit = {"hit": s("x")}
    refused, done = store.write_each([update(key(p), condition, set=hit), update(other, set=hit)])
    assert isinstance(refused, ConditionFailed)
    assert refused.item is None
    assert done is None
    assert stored(store, key(p)) == plain({"PK": s(p), "SK": s("s"), **ITEM})
    assert attribute(store, other, "hit") == ("S", "x")


@each(
    condition=[
        EXISTS,
        AllOf((EXISTS, Missing(("~r",)))),
        AllOf((AllOf((NotEqual(("a",), s("x")), EXISTS)), Missing(("~r",)))),
    ]
)
def test_no_update_creates_its_item(store: Store, p: str, condition: Condition) -> None:
    (other,) = items(store, p, "other")
    writes = [Update(at, set={"a": s("1")}, condition=condition) for at in (key(p), other)]
    assert kinds(store.write_each(writes)) == ["condition", "done"]
    assert store.get(key(p)) is None


@each(
    condition=[None, AllOf(()), Exists(("SK",)), AnyOf((EXISTS,)), AllOf((Missing(("~r",)), AnyOf((EXISTS, EXISTS))))]
)
def test_an_update_that_does_not_require_its_item_is_a_mistake(
    store: Store, p: str, condition: Condition | None
) -> None:
    (there,) = items(store, p, "s")
    writes = [update(there, set={"a": s("1")}), Update(there, set={"a": s("2")}, condition=condition)]
    with pytest.raises(ValueError, match="add Exists"):
        store.write_each(writes)
    assert attribute(store, there, "a") is None


def test_answers_have_the_places_of_their_updates(store: Store, p: str) -> None:
    """80 updates, more than a call takes three times over: every fifth has no item, every seventh has a wrong value."""
    keys = [key(p, f"{number:03}") for number in range(80)]
    for number, at in enumerate(keys):
        if number % 5:
            store.write(Update(at, set={"n": n(number)}))
    wanted = ["condition" if not number % 5 or not number % 7 else "done" for number in range(80)]
    writes = [
        update(at, Equal(("n",), n(number if number % 7 else -1)), set={"hit": n(number)})
        for number, at in enumerate(keys)
    ]
    assert kinds(store.write_each(writes)) == wanted
    assert [attribute(store, at, "hit") is not None for at in keys] == [answer == "done" for answer in wanted]


def test_updates_of_one_item_keep_their_order(store: Store, p: str) -> None:
    one, other = items(store, p, "1", "2")
    steps = [
        update(one, Missing(("v",)), set={"v": n(1)}),
        update(other, set={"v": n(7)}),
        update(one, Equal(("v",), n(1)), set={"v": n(2)}),
        update(one, Equal(("v",), n(1)), set={"v": n(9)}),
        update(one, Equal(("v",), n(2)), add={"v": n(1)}),
        update(one, Equal(("v",), n(3)), set={"v": n(4)}),
    ]
    assert kinds(store.write_each(steps)) == ["done", "done", "done", "condition", "done", "done"]
    assert attribute(store, one, "v") == plain({"v": n(4)})["v"]


@each(
    name=[
        "~rule",
        'a"b',
        '"',
        '""',
        "a.b",
        "a'b",
        "a b",
        "select",
        "ü",
        "?",
        "a?b",
        "\\",
        "a\nb",
        "-",
        "0",
        "[0]",
        "😀",
    ]
)
def test_names_may_hold_anything(store: Store, p: str, name: str) -> None:
    one, other, third = items(store, p, "1", "2", "3", **{name: {"M": {name: s("deep"), "x": n(1)}}})
    there = AllOf((Equal((name, name), s("deep")), Below((name, "x"), n(2)), Missing((name, "none")), Exists((name,))))
    answers = store.write_each(
        [
            update(one, there, set={name: s("v")}),
            update(other, there, remove=[name]),
            update(third, Missing((name, name)), set={name: s("v")}),
        ]
    )
    assert kinds(answers) == ["done", "done", "condition"]
    assert attribute(store, one, name) == ("S", "v")
    assert attribute(store, other, name) is None


@each(
    keys={
        "plain": [ItemKey("plain", partition) for partition in ("one", 't"w?o', "none")],
        "numeric": [
            ItemKey("numeric", "1", "-2.5"),
            ItemKey("numeric", "12345678901234567890123456789012345678", "0"),
            ItemKey("numeric", "1", "7"),
        ],
        "binary": [
            ItemKey("binary", b(b"\x00\xff"), b(b"k")),
            ItemKey("binary", b(b"two"), b(b"\x01")),
            ItemKey("binary", b(b"none"), b(b"k")),
        ],
    }
)
def test_keys_of_every_type_are_found(store: Store, keys: list[ItemKey]) -> None:
    for at in keys[:-1]:
        store.write(Update(at, set={"a": s("1")}))
    assert kinds(store.write_each([update(at, set={"a": s("2")}) for at in keys])) == ["done", "done", "condition"]
    assert [attribute(store, at, "a") for at in keys] == [("S", "2"), ("S", "2"), None]


def test_updates_that_cannot_be_statements_are_sent_as_updates(store: Store, p: str) -> None:
    """Sums, sets, and texts that are too long for a statement."""
    one, two, three, four = items(store, p, "1", "2", "3", "4", tags={"SS": ["a", "b"]}, n=n(1))
    many = {f"{number}{'x' * 240}": n(number) for number in range(50)}
    answers = store.write_each(
        [
            update(one, add={"n": n(2), "tags": {"SS": ["c"]}}),
            update(two, discard={"tags": {"SS": ["a"]}}),
            update(three, Exists(("none",))),
            update(four, set=many),
            update(key(p, "none"), add={"n": n(1)}),
        ]
    )
    assert kinds(answers) == ["done", "done", "condition", "done", "condition"]
    assert (attribute(store, one, "n"), attribute(store, two, "tags")) == (plain({"n": n(3)})["n"], ("SS", {"b"}))
    assert all(attribute(store, four, name) is not None for name in many)


# Memory and DynamoDB Local


@pytest.fixture(scope="module")
def local(request: pytest.FixtureRequest, dynamodb_local_url: str) -> Iterator[Store]:
    with backend("dynamodb-local", request) as store:
        yield store


_NAMES = st.sampled_from(["a", "b", "tags", "~r", 'q"', "x.y"])
_SORTS = st.sampled_from([*"01234567"])


@st.composite
def _updates(draw: st.DrawFn) -> Update:
    drawn = {name: draw(st.none() | values) for name in draw(st.lists(_NAMES, max_size=3, unique=True))}
    clauses = {
        "set": {name: value for name, value in drawn.items() if value},
        "remove": [n for n in drawn if not drawn[n]],
    }
    return update(ItemKey("app", "", draw(_SORTS)), draw(st.none() | conditions), **clauses)


@pytest.mark.deep
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(start=st.lists(st.tuples(_SORTS, _NAMES, values), max_size=8), writes=st.lists(_updates(), max_size=12))
def test_memory_agrees_with_dynamodb_local_on_each(
    local: Store, start: list[tuple[str, str, Value]], writes: list[Update]
) -> None:
    partition = f"each-{next(_runs)}"
    answers = []
    memory = MemoryStore(SCHEMAS)
    placed = [Update(w.key._replace(partition=partition), w.set, w.remove, condition=w.condition) for w in writes]
    for store in (memory, local):
        for sort, name, value in start:
            try:
                store.write(Update(ItemKey("app", partition, sort), set={"there": s("x"), name: value}))
            except InvalidRequest:
                store.write(Update(ItemKey("app", partition, sort), set={"there": s("x")}))
        answers.append(kinds(store.write_each(placed)))
    # DynamoDB Local looks at a statement's condition before the depth of its values.
    assert {pair for pair in zip(*answers, strict=True) if pair[0] != pair[1]} <= {("invalid", "condition")}, placed
    assert found(memory, partition) == found(local, partition)


@pytest.mark.parametrize(
    "clauses",
    [
        {"set": {"v": n("1" * 39)}},
        {"set": {"v": n("x")}},
        {"set": {"v": {"SS": []}}},
        {"set": {"v": n(1)}, "remove": ["v"]},
    ],
    ids=["39-digits", "no-number", "empty-set", "overlap"],
)
def test_a_bad_value_condemns_its_own_update_only(local: Store, p: str, clauses: dict[str, Any]) -> None:
    """DynamoDB refuses the whole call for a value that it cannot read."""
    for store in (MemoryStore(SCHEMAS), local):
        one, other, third = items(store, p, "1", "2", "3")
        done = {"v": n(1)}
        answers = store.write_each([update(one, set=done), update(other, **clauses), update(third, set=done)])
        assert kinds(answers) == ["done", "invalid", "done"]


# Statements


def test_a_statement_is_equivalent_to_its_condition() -> None:
    guard = ('~ru"le', "at")
    condition = AllOf(
        (
            EXISTS,
            Equal(("userId",), s("u")),
            AnyOf((Missing(guard[:1]), NotEqual(guard, s("1")), AllOf((Above(guard, s("1")), Exists(("x",)))))),
            AnyOf(()),
            AnyOf((AllOf(()), Below(("x",), n(1)))),
        )
    )
    sent = statement("my-table", SCHEMAS["app"], Update(key("p"), {"a": s("v")}, ["b.c"], condition=condition))
    assert sent == (
        'UPDATE "my-table" SET "a"=? REMOVE "b.c" WHERE "PK"=? AND "SK"=? AND "userId"=?'
        ' AND ("~ru""le" IS MISSING OR ("~ru""le"."at" IS MISSING OR "~ru""le"."at"<>?)'
        ' OR ("~ru""le"."at">? AND "x" IS NOT MISSING))'
        ' AND ("~" IS MISSING AND "~" IS NOT MISSING)'
        ' AND (("~" IS MISSING OR "~" IS NOT MISSING) OR "x"<?)',
        [s("v"), s("p"), s("s"), s("u"), s("1"), s("1"), n(1)],
    )


def test_the_longest_statement_still_is_one() -> None:
    def length(write: Update) -> int:
        return len((statement("t", SCHEMAS["app"], write) or ("", []))[0])

    beyond = length(update(key("p"), set={"": s("")}))
    fits = update(key("p"), set={"x" * (STATEMENT_BYTES - beyond): s("")})
    assert length(fits) == STATEMENT_BYTES
    assert statement("t", SCHEMAS["app"], update(key("p"), set={"x" * (STATEMENT_BYTES - beyond + 1): s("")})) is None


def fine(number: int = 1, **more: Any) -> dict[str, Any]:
    return {"Responses": [{"TableName": "prod-app"}] * number, **more}


def failed(*codes: str) -> dict[str, Any]:
    return {"Responses": [{"Error": {"Code": code, "Message": "m."}} if code else {} for code in codes]}


SPOKEN = failed("ConditionalCheckFailed")
"""The answer to the trial, an update that must fail."""


def sent(request: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(request[BODY])["Statements"]
    return found


def writes(number: int, size: int = 1) -> list[Update]:
    return [update(key("p", str(at)), set={"a": s("x" * size)}) for at in range(number)]


def test_25_updates_are_one_call_after_one_test() -> None:
    client = Answers(SPOKEN, fine(25), fine(25), fine(10), fine(2))
    store = over(client)
    assert store.write_each(writes(60)) == [None] * 60
    assert store.write_each(writes(2)) == [None] * 2
    assert [len(sent(request)) for request in client.asked] == [1, 25, 25, 10, 2]


def test_one_alone_is_an_update_item() -> None:
    client = Answers({}, SPOKEN, fine(25), {})
    store = over(client)
    assert store.write_each(writes(1)) == [None]
    assert store.write_each(writes(26)) == [None] * 26
    assert [BODY in request for request in client.asked] == [False, True, True, False]


def test_a_call_has_a_megabyte_at_most() -> None:
    client = Answers(SPOKEN, fine(3), fine(3), fine(2))
    assert over(client).write_each(writes(8, size=300_000)) == [None] * 8
    assert max(len(request[BODY]) for request in client.asked) < 1_100_000


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("ConditionalCheckFailed", ConditionFailed),
        ("ItemCollectionSizeLimitExceeded", InvalidRequest),
        ("ValidationError", InvalidRequest),
        ("DuplicateItem", InvalidRequest),
        ("RequestLimitExceeded", Transient),
        ("ProvisionedThroughputExceeded", Transient),
        ("TransactionConflict", Transient),
        ("ThrottlingError", Transient),
        ("InternalServerError", Transient),
    ],
)
def test_the_error_of_a_statement_is_its_own(code: str, expected: type[StoreError]) -> None:
    again = [failure("ValidationException")] if expected is InvalidRequest else []  # UpdateItem has the last word
    found = over(Answers(SPOKEN, failed("", code, ""), *again)).write_each(writes(3))
    assert [type(answer) for answer in found] == [type(None), expected, type(None)]


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("AccessDenied", "prod-app.*Allow dynamodb:PartiQLUpdate"),
        ("ResourceNotFound", "prod-app.*Check the name of the table"),
        ("SomethingNew", "SomethingNew"),
    ],
)
def test_errors_of_the_table_are_raised(code: str, message: str) -> None:
    for answers in ([failed(code)], [SPOKEN, failed("", code)]):
        with pytest.raises(Misconfigured, match=message):
            over(Answers(*answers)).write_each(writes(2))


def test_updates_without_an_answer_are_transient() -> None:
    answers = over(Answers(SPOKEN, fine(25), failure("ThrottlingException"))).write_each(writes(60))
    assert kinds(answers) == ["done"] * 25 + ["transient"] * 35
    store = over(Answers(failed("ThrottlingError"), SPOKEN, fine(2)))
    assert kinds(store.write_each(writes(2))) == ["transient"] * 2
    assert kinds(store.write_each(writes(2))) == ["done"] * 2


@pytest.mark.parametrize(
    "trial",
    [fine(), failed("ValidationError"), failure("ValidationException"), failure("UnknownOperationException")],
    ids=["overlooks-conditions", "refuses-the-statement", "refuses-the-call", "unknown-operation"],
)
def test_an_endpoint_that_without_partiql_is_tested_once(trial: dict[str, Any] | ClientError) -> None:
    client = Answers(trial, *[{}] * 4)
    store = over(client)
    assert store.write_each(writes(2)) == store.write_each(writes(2)) == [None, None]
    assert [BODY in request for request in client.asked] == [True, False, False, False, False]


@pytest.mark.parametrize(("name", "speaks"), [("ministack", False), ("dynamodb-local", True)])
def test_which_stores_support_partiql(request: pytest.FixtureRequest, name: str, speaks: bool) -> None:
    with backend(name, request) as store:
        assert isinstance(store, DynamoDBStore)
        meter = store._meter = Meter()
        there = [Update(key("p", str(sort)), set={"a": n(1)}) for sort in range(30)]
        for write in there:
            store.write(write)
        meter.calls.clear()
        assert store.write_each([update(write.key, set={"a": n(2)}) for write in there]) == [None] * 30
        expected = {"BatchExecuteStatement": 3} if speaks else {"BatchExecuteStatement": 1, "UpdateItem": 30}
        assert meter.calls == expected
        assert len(store.query("app", [s("p")]).items) == 30
        assert len(store.scan("app").items) == 30, "the trial left something behind"


@pytest.mark.parametrize("table", SCHEMAS)
def test_the_trial_is_understood_whatever_the_keys(request: pytest.FixtureRequest, table: str) -> None:
    with backend("dynamodb-local", request) as store:
        assert isinstance(store, DynamoDBStore)
        assert store._supports_statements(table)
        assert not store.scan(table).items
