"""Replay on an endpoint gives what it gives in memory, and leaves nothing behind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from projections.aws.clients import client
from projections.cli.main import main
from projections.engine.store import ItemKey, Update
from projections.errors import StoreError
from projections.language.loader import load
from projections.language.program import Program
from projections.local.tables import EndpointTables, schemas

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=["dynamodb_local_url", "ministack_url"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    endpoint: str = request.getfixturevalue(request.param)
    before = tables_at(endpoint)
    yield endpoint
    assert tables_at(endpoint) == before


def tables_at(url: str) -> set[str]:
    return set(client("dynamodb", url).list_tables()["TableNames"])


@pytest.mark.deep
def test_seeds_stay_out_of_the_stream_and_changes_are_in_it_as_lambda_has_them(url: str) -> None:
    program = Program.from_document(load(ROOT / "projections/rules/social.yaml").canonical())
    key = ItemKey("main", "USER#a", "PROFILE")
    with EndpointTables(url, schemas(program)) as tables:
        seed = {"PK": {"S": "USER#a"}, "SK": {"S": "PROFILE"}, "photo": {"B": "aGk="}, "n": {"N": "1"}}
        assert tables.seed("main", seed)
        tables.drain(1)
        assert tables.records() == []
        tables.store.write(Update(key, set={"n": {"N": "2"}}))
        (record,) = tables.records()
        assert record["eventName"] == "MODIFY"
        assert record["dynamodb"]["OldImage"] == seed
        assert record["dynamodb"]["NewImage"] == seed | {"n": {"N": "2"}}
        assert f"table/{tables.names['main']}/stream/2" in record["eventSourceARN"]
        json.dumps(record)
        assert tables.records() == []
        assert tables.items("main") == [seed | {"n": {"N": "2"}}]


def test_items_that_expired_since_the_recording_stay_during_the_replay(url: str) -> None:
    program = Program.from_document(load(ROOT / "projections/rules/timeseries.yaml").canonical())
    with EndpointTables(url, schemas(program)) as tables:
        for name in tables.names.values():
            found = client("dynamodb", url).describe_time_to_live(TableName=name)["TimeToLiveDescription"]
            assert found["TimeToLiveStatus"] == "DISABLED"


def replayed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    with pytest.raises(SystemExit):
        main(["replay", str(ROOT / "events/social.json"), "--rules", "social", "--json", *arguments])
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    return document


@pytest.mark.deep
def test_the_items_are_the_same_as_in_memory(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    there = replayed(capsys, "--endpoint-url", url)
    here = replayed(capsys)
    assert there["items"] == here["items"]
    assert there["failures"] == there["quarantined"] == []


def test_an_endpoint_that_does_not_answer_is_one_message() -> None:
    program = Program.from_document(load(ROOT / "projections/rules/social.yaml").canonical())
    with (
        pytest.raises(StoreError, match=r"http://127\.0\.0\.1:9 failed at making tables: "),
        EndpointTables("http://127.0.0.1:9", schemas(program)),
    ):
        pass
