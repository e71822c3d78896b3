"""What a rehearsal says a request costs is what DynamoDB reports, and it leaves nothing of the events out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from histories import ALL, RULES, compiled, random_records
from metered import Metered

from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.engine.store import AllOf, Delete, Exists, ItemKey, Missing, Schema, Update
from projections.errors import ConditionFailed, TransactionCancelled
from projections.inspect.rehearsal.recorder import Action, RecordingStore, Spent, purpose_of
from projections.inspect.rehearsal.rehearse import rehearse
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.local.event_files import read
from projections.operations.dry import DryStore
from projections.stores.dynamodb import DynamoDBStore, Meter
from projections.stores.limits import cost_of, read_units, write_units
from projections.stores.memory import MemoryStore
from projections.testing.oracle import Oracle

ROOT = Path(__file__).parents[2]
SCHEMA = Schema(
    ("PK", "S"), ("SK", "S"), {"GSI1": ((("G1P", "S"),), (("G1S", "S"),)), "GSI2": ((("G2P", "S"),), (("G2S", "N"),))}
)

PROJECTED = Schema(
    ("PK", "S"),
    ("SK", "S"),
    {**SCHEMA.indexes, "Local": ((("PK", "S"),), (("G1P", "S"),)), "LocalAll": ((("PK", "S"),), (("G2S", "N"),))},
    projected={"GSI1": frozenset(), "GSI2": frozenset({"x"}), "Local": frozenset({"G1S"})},
    local=frozenset({"Local", "LocalAll"}),
)
"""Every kind of index."""


def test_units_are_begun_kilobytes() -> None:
    assert [write_units(size) for size in (0, 1, 1024, 1025, 4096)] == [1, 1, 1, 2, 4]
    assert [read_units(size) for size in (0, 4096, 4097)] == [1.0, 1.0, 2.0]
    assert read_units(5000, consistent=False) == 1.0


def test_an_index_that_projects_keys_only_is_written_only_when_they_change() -> None:
    key = {"PK": {"S": "a"}, "SK": {"S": "b"}, "G1P": {"S": "g"}, "G1S": {"S": "h"}}
    before, after = {**key, "x": {"N": "1"}}, {**key, "x": {"N": "2"}}
    assert cost_of(before, after, SCHEMA).indexes == {"GSI1": 1}
    keys, some = (replace(SCHEMA, projected={"GSI1": frozenset(listed)}) for listed in ((), ("x",)))
    assert cost_of(before, after, keys).indexes == {}
    assert cost_of(before, after, some).indexes == {"GSI1": 1}
    assert cost_of(before, {**after, "G1S": {"S": "i"}}, keys).indexes == {"GSI1": 2}


def test_entry_of_an_index_is_as_large_as_what_it_projects() -> None:
    key = {"PK": {"S": "a"}, "SK": {"S": "b"}, "G1P": {"S": "g"}, "G1S": {"S": "h"}}
    large = {**key, "x": {"S": "x" * 3000}, "y": {"S": "y" * 1000}}
    for listed, units in ((None, 4), ((), 1), (("x",), 3), (("y",), 1)):
        schema = SCHEMA if listed is None else replace(SCHEMA, projected={"GSI1": frozenset(listed)})
        assert (cost_of(None, large, schema).table, cost_of(None, large, schema).indexes) == (4, {"GSI1": units})


def random_writes(rng: Random) -> list[Any]:
    """Writes of every kind to few items: small and large, into indexes, through them and out of them."""
    writes: list[Any] = []
    for _ in range(120):
        key = ItemKey("main", f"p{rng.randrange(3)}", f"s{rng.randrange(2)}")
        if rng.random() < 0.15:
            writes.append(Delete(key))
            continue
        names = rng.sample(["x", "G1P", "G1S", "G2P", "G2S"], rng.randrange(1, 4))
        change = {
            name: {"N": str(rng.randrange(3))}
            if name == "G2S"
            else {"S": rng.choice("ab") * rng.choice([1, 1, 700, 1500])}
            for name in names
            if name == "x" or name == "G2S"
        } | {name: {"S": rng.choice("ab")} for name in names if name not in ("x", "G2S")}
        removes = [name for name in names if rng.random() < 0.3]
        writes.append(Update(key, {n: v for n, v in change.items() if n not in removes}, removes))
    return writes


@pytest.mark.parametrize("schema", [SCHEMA, PROJECTED], ids=["all", "projected"])
@pytest.mark.parametrize("emulator", ["ministack_url", "dynamodb_local_url"])
def test_units_of_single_writes_are_what_dynamodb_reports(
    emulator: str, schema: Schema, request: pytest.FixtureRequest
) -> None:
    dynamodb = client(endpoint_url=request.getfixturevalue(emulator))
    create_table(dynamodb, "capacity", schema, stream=False)
    meter = Meter()
    real = DynamoDBStore(dynamodb, {"main": "capacity"}, {"main": schema}, meter)
    recorder = RecordingStore(MemoryStore({"main": schema}))
    try:
        for number, write in enumerate(random_writes(Random(7))):
            meter.write_units = 0.0
            real.write(write)
            recorder.write(write)
            (request_,) = recorder.take_requests()
            if not swaps_halves_of_a_key(request_.actions[0]):
                assert meter.write_units == request_.write_units, (number, write)
    finally:
        delete_table(dynamodb, "capacity")


def swaps_halves_of_a_key(action: Action) -> bool:
    """Whether an item lacks one key attribute of an index before, and another after: DynamoDB Local charges for that as
    if it had been in the index; MiniStack does not, and AWS's guide knows of no such thing.
    """
    before, after = action.before or {}, action.after or {}
    for partition, sort in SCHEMA.indexes.values():
        names = {name for name, _ in (*partition, *sort)}
        had, has = names & before.keys(), names & after.keys()
        if had != has and had < names and has < names:
            return True
    return False


def test_a_dry_run_counts_the_same_units_of_single_writes() -> None:
    recorder, dry = RecordingStore(MemoryStore({"main": SCHEMA})), DryStore(MemoryStore({"main": SCHEMA}))
    for number, write in enumerate(random_writes(Random(7))):
        recorder.write(write)
        (request,) = recorder.take_requests()
        dry.done.clear()
        dry.write(write)
        if request.actions[0].before is not None or isinstance(write, Update):  # deleting nothing is not counted
            assert dry.done["write units"] == request.write_units, (number, write)


def test_units_of_reads_are_what_dynamodb_local_reports(dynamodb_local_url: str) -> None:
    """Of items that exist: for what is not there DynamoDB Local counts nothing where AWS charges a unit."""
    dynamodb = client(endpoint_url=dynamodb_local_url)
    create_table(dynamodb, "capacity", SCHEMA, stream=False)
    meter = Meter()
    memory = MemoryStore({"main": SCHEMA})
    real, recorder = DynamoDBStore(dynamodb, {"main": "capacity"}, {"main": SCHEMA}, meter), RecordingStore(memory)
    keys = [ItemKey("main", "p", f"s{number}") for number in range(130)]
    try:
        for number, key in enumerate(keys):
            put = Update(key, {"x": {"S": "x" * (number * 50)}, "G1P": {"S": "g"}, "G1S": {"S": f"{number:03}"}})
            real.write(put)
            memory.write(put)
        meter.calls.clear()
        for store in (real, recorder):
            store.get(keys[100])
            store.get(keys[3], ["x"])
            store.get_many(keys)
            store.query("main", [{"S": "p"}])
            store.query("main", [{"S": "p"}], prefix="s1", limit=7, reverse=True)
            store.query("main", [{"S": "g"}], index="GSI1", limit=50)
    finally:
        delete_table(dynamodb, "capacity")
    spent = Spent.of(recorder.take_requests())
    assert (spent.read_units, spent.calls) == (meter.read_units, dict(meter.calls))


def test_what_is_done_in_vain_is_charged_all_the_same() -> None:
    recorder = RecordingStore(MemoryStore({"main": SCHEMA}))
    key = ItemKey("main", "p", "s")
    with pytest.raises(ConditionFailed):
        recorder.write(Update(key, {"x": {"N": "1"}}, condition=Exists(("PK",))))
    with pytest.raises(TransactionCancelled):
        recorder.transact([Update(key, {"x": {"N": "1"}}), Delete(key._replace(sort="t"), Exists(("PK",)))])
    single, transaction = recorder.requests
    assert (single.outcome, single.write_units) == ("condition", 1)
    assert [action.outcome for action in transaction.actions] == ["cancelled", "condition"]
    assert transaction.write_units == 4
    assert Spent.of(recorder.requests).in_vain == 5


def test_updates_of_a_batch_are_twenty_five_a_call() -> None:
    recorder = RecordingStore(MemoryStore({"main": SCHEMA}))
    keys = [ItemKey("main", "p", f"s{number}") for number in range(51)]
    for key in keys:
        recorder.write(Update(key, {"x": {"N": "1"}}))
    recorder.take_requests()
    exists = AllOf((Exists(("PK",)), Missing(("y",))))
    answers = recorder.write_each([Update(key, {"y": {"N": "1"}}, condition=exists) for key in [*keys, keys[0]]])
    assert [answer is None for answer in answers] == [True] * 51 + [False]
    operations = [(request.operation, len(request.actions)) for request in recorder.take_requests()]
    assert operations == [
        ("BatchExecuteStatement", 25),
        ("BatchExecuteStatement", 25),
        ("UpdateItem", 1),
        ("UpdateItem", 1),
    ]


@pytest.mark.deep
@pytest.mark.parametrize("name", ["social", "aggregates", "claims", "copies", "derived", "extremes", "index", "shards"])
def test_a_whole_history_costs_in_memory_what_it_costs_on_ministack(name: str, ministack_url: str) -> None:
    """Write units and calls, delivery by delivery, with all that follows from the tables' own streams."""
    program = compiled(next(path for path in ALL if path.stem == name))
    puts = [image for seed in range(4) for image in own_items(program, random_records(program, seed, 60))]
    rounds = []
    for endpoint in (None, ministack_url):
        with Metered(program, endpoint) as metered:
            found = metered.settle(metered.write(puts=puts))
            found += metered.settle(metered.write(removes=puts[::2]))
            rounds.append([(units, calls_besides_statements(calls)) for units, _, calls in found])
    assert rounds[0] == rounds[1]
    assert sum(units for units, _ in rounds[0]) > 5, (
        "the fewest are of copies: one write each for the copies of 5 items"
    )


def own_items(program: Program, records: list[Any]) -> list[Any]:
    """The application's items as the last record of each has them, without what rules wrote on them."""
    found = {}
    for raw in records:
        image = raw["dynamodb"].get("NewImage", {})
        key = program.tables["main"].key("main", raw["dynamodb"]["Keys"])
        item = program.recognise(key, image)
        if item is not None and not item.entity.owned_by_rules and image:
            derived = program.derived_attributes(item.entity.name)
            found[key] = {
                name: value
                for name, value in image.items()
                if name not in derived and not name.startswith(program.guard_prefix)
            }
    return list(found.values())


def calls_besides_statements(calls: dict[str, int]) -> dict[str, int]:
    """MiniStack refuses our statements, so that there each is an UpdateItem."""
    return {name: n for name, n in calls.items() if name not in ("BatchExecuteStatement", "UpdateItem")}


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_every_write_names_its_role_its_rules_and_its_records(path: Path) -> None:
    """No write of the engine is one of the application; rules are the document's, and records those of the batch."""
    program = compiled(path)
    for seed in range(3):
        for batch in rehearse(program, random_records(program, seed, 40), batch_size=25).batches:
            delivered = {one.record.sequence: one.record for one in batch.records if one.record is not None}
            for request in batch.requests:
                for action in request.actions:
                    role = purpose_of(action.write)
                    assert role.kind != "other"
                    assert set(role.rules) <= set(program.rules)
                    if role.kind == "registry":
                        continue
                    assert set() < set(role.records) <= delivered.keys(), role
                    assert list(dict.fromkeys(role.records)) == list(role.records), role
                    if role.kind in ("entry", "forget"):
                        assert {encode_key(delivered[one].key) for one in role.records} == {role.about}
                    elif not (isinstance(action.write, Update) and action.write.remove == (program.guard_prefix,)):
                        assert role.rules, role  # a mark is of no rule


def test_a_rehearsal_ends_as_the_source_items_say() -> None:
    """Every event file: the tables then hold what the independent oracle computes of them."""
    program = compiled(RULES[0])
    oracle = Oracle(program.document)
    for expected in sorted((ROOT / "tests/tools/expected").glob("*.json")):
        path = next((ROOT / "events").rglob(expected.name))
        rehearsal = rehearse(program, [one.record for one in read([str(path)], program)])
        assert rehearsal.tables is not None
        assert oracle.compare({"main": rehearsal.tables.items("main")}) == [], path
