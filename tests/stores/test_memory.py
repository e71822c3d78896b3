"""The store in memory beyond the protocol: its stream, and the writes of an application.

That it answers as DynamoDB does is in test_contract.py.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.engine.store import Delete, Equal, ItemKey, Schema, Update
from projections.errors import InvalidRequest, Misconfigured, TransactionCancelled
from projections.stores.memory import MemoryStore

SCHEMA = Schema(("PK", "S"), ("SK", "S"), {"GSI1": ((("G", "S"),), (("H", "N"),))}, "expiresAt")
KEY = ItemKey("app", "USER#1", "PROFILE")


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore({"app": SCHEMA, "ledger": Schema(("pk", "S"), ("sk", "S"))}, streams=["app"])


def names(store: MemoryStore) -> list[str]:
    return [record["eventName"] for record in store.stream("app")]


def test_stream_reports_what_happened_to_an_item(store: MemoryStore) -> None:
    store.write(Update(KEY, set={"name": {"S": "Ann"}}))
    store.write(Update(KEY, set={"name": {"S": "Bea"}}))
    store.write(Delete(KEY))
    first, second, third = store.stream("app")
    assert names(store) == ["INSERT", "MODIFY", "REMOVE"]
    assert "OldImage" not in first["dynamodb"]
    assert second["dynamodb"]["OldImage"]["name"] == {"S": "Ann"}
    assert second["dynamodb"]["NewImage"]["name"] == {"S": "Bea"}
    assert "NewImage" not in third["dynamodb"]
    assert third["dynamodb"]["Keys"] == {"PK": {"S": "USER#1"}, "SK": {"S": "PROFILE"}}
    assert third["eventSource"] == "aws:dynamodb"
    assert json.loads(json.dumps(third)) == third


@pytest.mark.parametrize(
    "write",
    [
        Update(KEY, set={"n": {"N": "1.0"}}),
        Update(KEY, add={"n": {"N": "0"}}),
        Update(KEY, add={"tags": {"SS": ["a"]}}),
        Update(KEY, discard={"tags": {"SS": ["z"]}}),
        Update(KEY, remove=["nothing"]),
        Update(KEY),
        Delete(ItemKey("app", "USER#2", "PROFILE")),
    ],
)
def test_writes_that_change_nothing_are_not_in_the_stream(store: MemoryStore, write: Update | Delete) -> None:
    store.put("app", {"PK": {"S": "USER#1"}, "SK": {"S": "PROFILE"}, "n": {"N": "1"}, "tags": {"SS": ["a", "b"]}})
    store.write(write)
    store.transact([write])
    assert names(store) == ["INSERT"]


def test_a_transaction_records_each_item_or_none(store: MemoryStore) -> None:
    other = ItemKey("app", "USER#2", "PROFILE")
    store.transact([Update(KEY, set={"a": {"S": "x"}}), Update(other, add={"n": {"N": "2"}})])
    with pytest.raises(TransactionCancelled):
        store.transact([Delete(KEY), Delete(other, condition=Equal(("n",), {"N": "3"}))])
    assert names(store) == ["INSERT", "INSERT"]


def test_sequence_numbers_grow_across_tables_and_may_change_their_length() -> None:
    schemas = {"a": SCHEMA, "b": SCHEMA}
    store = MemoryStore(
        schemas, first_sequence=10**21 - 1, stream_label="2026-02-03T04:05:06.007", streams=list(schemas)
    )
    for table in ("a", "b", "a"):
        store.write(Update(ItemKey(table, "k", "s"), add={"n": {"N": "1"}}))
    numbers = [record["dynamodb"]["SequenceNumber"] for record in [*store.stream("a")[:1], *store.stream("b")]]
    assert numbers == ["9" * 21, "1" + "0" * 21]
    assert store.stream("a", 1)[0]["eventSourceARN"].endswith("/stream/2026-02-03T04:05:06.007")


def test_expiry_is_reported_by_its_identity(store: MemoryStore) -> None:
    store.seed("app", {"PK": {"S": "USER#1"}, "SK": {"S": "PROFILE"}})
    store.remove(KEY, by_ttl=True)
    (record,) = store.stream("app")
    assert record["userIdentity"] == {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


def test_records_may_be_handed_out_and_forgotten() -> None:
    seen: list[tuple[str, dict[str, Any]]] = []
    store = MemoryStore({"app": SCHEMA, "ledger": SCHEMA}, on_record=lambda *args: seen.append(args), streams=["app"])
    store.write(Update(KEY))
    store.write(Update(KEY._replace(table="ledger")))
    assert [table for table, _ in seen] == ["app"]
    assert store.stream("app") == []


def test_a_table_has_no_stream_unless_it_is_named(store: MemoryStore) -> None:
    store.write(Update(KEY._replace(table="ledger")))
    with pytest.raises(Misconfigured, match="'ledger' has no stream; these tables have one: app"):
        store.stream("ledger")


def test_records_of_a_stream_are_as_items_were_and_belong_to_the_reader(store: MemoryStore) -> None:
    store.write(Update(KEY, set={"name": {"S": "Ann"}}))
    store.begin_stream("2026-01-01T00:00:00.000", 7)
    store.write(Update(KEY, set={"name": {"S": "Bea"}}))
    store.stream("app")[0]["dynamodb"]["NewImage"].clear()
    first, second = store.stream("app")
    assert first["dynamodb"]["NewImage"]["name"] == {"S": "Ann"}
    assert first["eventSourceARN"].endswith("/2025-01-01T00:00:00.000")
    assert second["eventSourceARN"].endswith("/2026-01-01T00:00:00.000")
    assert second["dynamodb"]["SequenceNumber"] == "7"


def test_stored_items_do_not_change_with_the_values_they_were_made_of(store: MemoryStore) -> None:
    value: dict[str, Any] = {"M": {"a": {"L": [{"S": "x"}]}}}
    store.write(Update(KEY, set={"m": value}))
    value["M"]["a"]["L"].append({"S": "y"})
    found = dict(store.get(KEY) or {})
    del found["m"]
    assert (store.get(KEY) or {})["m"] == {"M": {"a": {"L": [{"S": "x"}]}}}


def test_an_unknown_table_is_a_misconfiguration(store: MemoryStore) -> None:
    with pytest.raises(Misconfigured, match="nowhere"):
        store.get(ItemKey("nowhere", "a", "b"))


@pytest.mark.parametrize(
    "image",
    [
        {"": {"S": "x"}},
        {"x": {"M": {"": {"S": "x"}}}},
        {"x": {"NULL": False}},
        {"x": {"S": "\ud800"}},
        {"\ud800": {"S": "x"}},
        {"x": {"B": "AA"}},
        {"x": {"BS": ["AA==", "AA=="]}},
        {"SK": {"S": ""}},
        {"SK": {"S": "\ud800"}},
        {"SK": {"N": "1"}},
        {"G": {"S": ""}},
        {"G": {"N": "1"}},
        {"PK": {"S": "p" * 2049}},
        {"x": {"S": "x" * 409_600}},
    ],
    ids=lambda image: str(image)[:40],
)
def test_put_refuses_what_dynamodb_refuses(store: MemoryStore, image: Any) -> None:
    """Texts that UTF-8 cannot express are refused, too: DynamoDB Local replaces them by question marks."""
    with pytest.raises(InvalidRequest):
        store.put("app", {"PK": {"S": "p"}, "SK": {"S": "s"}, **image})
    assert store.items("app") == []
