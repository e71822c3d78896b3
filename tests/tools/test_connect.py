"""Commands on live tables say which one is missing, and what of it does not fit the rules."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import botocore.session
import pytest

from projections.aws.clients import client
from projections.aws.live_tables import Live, connect, create_table, delete_table, time_to_live
from projections.cli.options import document_of
from projections.deploy.comparison import LiveTable, live_findings
from projections.engine.store import Schema
from projections.errors import Misconfigured, UsageError
from projections.language.program import LEDGER_SCHEMA

RULES = """
table: {key: [PK, SK], indexes: {GSI1: {GSI1PK: S, GSI1SK: N}, Other: [a, b]}}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
projections:
  listed: {from: Post, index: {GSI1PK: ALL, GSI1SK: "{at}"}}
"""
SEVERAL = """
tables: {posts: {key: [PK]}, likes: {key: [PK]}}
entities:
  Post: {table: posts, key: {PK: "POST#{postId}"}}
  Like: {table: likes, key: {PK: "LIKE#{postId}#{userId}"}}
projections:
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}
"""
INDEXES: Mapping[str, Any] = {"GSI1": ((("GSI1PK", "S"),), (("GSI1SK", "N"),)), "Other": ((("a", "S"),), (("b", "S"),))}
RIGHT = Schema(("PK", "S"), ("SK", "S"), INDEXES)


class Tables:
    """Tables on DynamoDB Local with names of their own."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self.directory = directory
        self.dynamodb = client(endpoint_url=url)
        self.made: list[str] = []
        self.ledger = self.table(LEDGER_SCHEMA, stream=False)

    def table(self, schema: Schema, stream: bool = True) -> str:
        name = f"connect-{uuid.uuid4().hex[:8]}"
        create_table(self.dynamodb, name, schema, stream=stream)
        self.made.append(name)
        return name

    def connect(self, rules: str, *tables: str, ledger: str | None = "") -> Live:
        path = self.directory / "rules.yaml"
        path.write_text(rules)
        return connect(document_of(path), tables, self.ledger if ledger == "" else ledger, self.url, None)


def unlike(live: Live) -> list[tuple[str, str]]:
    """Where the tables do not agree with the rules: severity and reason."""
    there = {
        logical: LiveTable(live.described[logical], time_to_live(live.client, name))
        for logical, name in live.names.items()
    }
    return [(one.severity, one.reason) for one in live_findings(live.program, there)]


@pytest.fixture
def tables(dynamodb_local_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tables]:
    for name in ("TABLE_NAME", "TABLES", "LEDGER_TABLE_NAME", "RULES"):
        monkeypatch.delenv(name, raising=False)
    found = Tables(dynamodb_local_url, tmp_path)
    yield found
    for name in found.made:
        delete_table(found.dynamodb, name)


def test_a_table_that_fits(tables: Tables) -> None:
    name = tables.table(RIGHT)
    live = tables.connect(RULES, name)
    assert live.names == {"main": name, "ledger": tables.ledger}
    assert (live.sizes, unlike(live)) == ({"main": 0, "ledger": 0}, [])
    assert live.store.scan("main").items == live.store.scan("ledger").items == []
    assert tables.connect(RULES, f"main={name}").names == live.names


def test_names_come_from_the_environment_as_in_the_functions(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    name = tables.table(RIGHT)
    monkeypatch.setenv("TABLE_NAME", name)
    monkeypatch.setenv("LEDGER_TABLE_NAME", tables.ledger)
    assert tables.connect(RULES, ledger=None).names == {"main": name, "ledger": tables.ledger}
    posts, likes = (tables.table(Schema(("PK", "S"))) for _ in range(2))
    monkeypatch.setenv("TABLES", json.dumps({"posts": posts, "likes": likes}))
    assert tables.connect(SEVERAL).names == {"posts": posts, "likes": likes, "ledger": tables.ledger}


@pytest.mark.parametrize(
    ("rules", "given", "message"),
    [
        (RULES, (), "no table: pass --table NAME or --stack NAME, or set TABLE_NAME"),
        (RULES, ("other=x",), "the rules have no table 'other'; they have main"),
        (RULES, ("x", "y"), "--table y: main is already set to x"),
        (SEVERAL, ("x",), "--table x: the rules have posts, likes. Write --table LOGICAL=x"),
        (SEVERAL, ("posts=x",), "no table likes: pass --table likes=NAME or --stack NAME, or set TABLES"),
    ],
)
def test_missing_or_unknown_name_is_asked_for(tables: Tables, rules: str, given: tuple[str, ...], message: str) -> None:
    with pytest.raises(UsageError) as error:
        tables.connect(rules, *given)
    assert message in str(error.value)


def test_the_ledger_is_asked_for(tables: Tables) -> None:
    with pytest.raises(UsageError, match="no ledger table"):
        tables.connect(RULES, "x", ledger=None)


@pytest.mark.parametrize("text", ["[]", "x", '"a"'])
def test_invalid_names_in_the_environment(tables: Tables, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TABLES", text)
    with pytest.raises(UsageError, match=r"TABLES is .*\. Set it to a JSON object"):
        tables.connect(SEVERAL)


def test_a_table_that_does_not_exist_is_named_with_its_place(tables: Tables) -> None:
    with pytest.raises(UsageError, match=rf"there is no table nowhere at {tables.url}, us-east-1. Check name"):
        tables.connect(RULES, "nowhere")


def test_all_mismatches_are_reported_at_once(tables: Tables) -> None:
    wrong = {"GSI1": ((("GSI1PK", "S"),), (("GSI1SK", "S"),))}
    name = tables.table(Schema(("PK", "S"), ("SK", "N"), wrong))
    with pytest.raises(UsageError) as error:
        tables.connect(RULES, name, ledger=name)
    said = str(error.value).splitlines()
    assert [line for line in said if "the rules have PK (S), SK (S)" in line]
    assert [line for line in said if "GSI1PK (S), GSI1SK (S), the rules have GSI1PK (S), GSI1SK (N)" in line]
    assert [line for line in said if "has no index Other with the key a (S), b (S); it has GSI1" in line]
    assert [line for line in said if "the rules have pk (S), sk (S)" in line]
    assert [line for line in said if "The ledger is a separate table" in line]
    assert len(said) == 5


def test_other_projection_is_found(tables: Tables) -> None:
    indexes = {**INDEXES, "Local": ((("PK", "S"),), (("at", "S"),))}
    projected = {"GSI1": frozenset({"x"}), "Other": frozenset[str]()}
    has = Schema(("PK", "S"), ("SK", "S"), indexes, projected=projected, local=frozenset({"Local"}))
    name = tables.table(has)
    assert unlike(tables.connect(RULES.replace("[a, b]}", "[a, b], Local: [PK, at]}"), name)) == [
        ("error", "index GSI1 projects [x], the rules have all"),
        ("error", "index Other projects keys_only, the rules have all"),
        ("warning", "index Local is local with the key PK (S), at (S), the rules have global with PK (S), at (S)"),
    ]
    right = RULES.replace("[a, b]}", "{partition: a, sort: b, projection: keys_only}, Local: {sort: at, local: true}}")
    right = right.replace("{GSI1PK: S, GSI1SK: N}", "{partition: GSI1PK, sort: {GSI1SK: N}, projection: [x]}")
    assert unlike(tables.connect(right, name)) == []


def test_a_table_without_a_stream_is_found(tables: Tables) -> None:
    name = tables.table(RIGHT, stream=False)
    assert unlike(tables.connect(RULES, name)) == [("error", f"table {name} has no stream")]
    specification: Any = {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"}
    tables.dynamodb.update_table(TableName=name, StreamSpecification=specification)
    reason = f"the stream of table {name} has KEYS_ONLY instead of both images"
    assert unlike(tables.connect(RULES, name)) == [("error", reason)]


def test_the_ttl_of_tables_and_ledger_is_compared(tables: Tables) -> None:
    expires = RULES.replace("key: [PK, SK]", "key: [PK, SK], ttl: expiresAt")
    name = tables.table(RIGHT)
    never = f"items of table {name} never expire, the rules require"
    assert unlike(tables.connect(expires, name)) == [("error", f"{never} expiresAt")]
    enabled: Any = {"Enabled": True, "AttributeName": "expiresAt"}
    tables.dynamodb.update_time_to_live(TableName=name, TimeToLiveSpecification=enabled)
    assert unlike(tables.connect(expires, name)) == []
    reason = f"items of table {name} expire by expiresAt, and the rules have no `ttl`"
    assert unlike(tables.connect(RULES, name)) == [("warning", reason)]
    kept = tables.table(Schema(LEDGER_SCHEMA.partition, LEDGER_SCHEMA.sort), stream=False)
    assert unlike(tables.connect(expires, name, ledger=kept)) == [("error", f"{never.replace(name, kept)} ttl")]


def test_mapping_without_a_window_is_found_if_rules_count_by_shards(tables: Tables) -> None:
    posts, likes = (tables.table(Schema(("PK", "S"))) for _ in range(2))
    live = tables.connect(SEVERAL.replace("count}}", "count}, ledger: lanes}"), f"posts={posts}", f"likes={likes}")
    streams, types = (
        [live.described[name]["LatestStreamArn"] for name in live.program.tables],
        ["ReportBatchItemFailures"],
    )
    mappings: list[dict[str, Any]] = [{"EventSourceArn": one, "FunctionResponseTypes": types} for one in streams]
    there = {name: LiveTable(live.described[name], None, mappings) for name in live.program.tables}
    (finding,) = [one for one in live_findings(live.program, there) if one.severity == "error"]
    assert finding.reason.startswith("without a tumbling window, events do not name their shard, so rules with")
    assert "sam deploy" in finding.instead
    for mapping in mappings:
        mapping |= {"TumblingWindowInSeconds": 60, "ParallelizationFactor": 1, "BisectBatchOnFunctionError": False}
    assert [one for one in live_findings(live.program, there) if one.severity == "error"] == []


def test_no_region_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setattr("projections.aws.clients.session", lambda: botocore.session.get_session())
    (tmp_path / "rules.yaml").write_text(RULES)
    with pytest.raises(Misconfigured, match="no AWS Region: pass --region NAME, or set AWS_REGION"):
        connect(document_of(tmp_path / "rules.yaml"), ("main=t",), "l", None, None)


def test_unreachable_endpoint_is_an_error(tmp_path: Path) -> None:
    (rules := tmp_path / "rules.yaml").write_text(RULES)
    with pytest.raises(UsageError, match="table x: Could not connect"):
        connect(document_of(rules), ["x"], "ledger", "http://127.0.0.1:9", None)
