"""Memory and DynamoDB Local, given the same writes, answer the same and hold the same items."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from backends import SCHEMAS, backend, plain
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from projections.engine.store import (
    Above,
    AllOf,
    AnyOf,
    Below,
    Condition,
    Delete,
    Equal,
    Exists,
    ItemKey,
    Missing,
    NotEqual,
    Store,
    Update,
    Value,
    Write,
)
from projections.errors import ConditionFailed, InvalidRequest, TransactionCancelled
from projections.stores.memory import MemoryStore

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


def nested(levels: int, value: Value, kind: str) -> Value:
    for _ in range(levels):
        value = {"L": [value]} if kind == "L" else {"M": {"a": value}}
    return value


deep = st.builds(nested, st.integers(29, 34), flat, st.sampled_from("LM"))
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
sorts = st.sampled_from(["1", "2", "3"])


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
    return Update(ItemKey("app", "", draw(sorts)), **clauses, condition=draw(st.none() | conditions))


deletes = st.builds(Delete, sorts.map(lambda sort: ItemKey("app", "", sort)), st.none() | conditions)
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
