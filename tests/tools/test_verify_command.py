"""`backfill` and `verify` as one calls them, on DynamoDB Local."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.language.loader import load
from projections.language.program import LEDGER_SCHEMA, Program

RULES = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{post}", SK: INFO}}
  Like: {key: {PK: "POST#{post}", SK: "LIKE#{user}"}}
projections:
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count, best: max(number(stars))}}}
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(dynamodb_local_url: str, run: Run, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Runs a command on tables with three posts and six likes, which no rule has seen yet."""
    rules = tmp_path / "rules.yaml"
    rules.write_text(RULES)
    program = Program.from_document(load(rules).document())
    dynamodb = client(endpoint_url=dynamodb_local_url)
    create_table(dynamodb, "verify-app", program.tables["main"])
    create_table(dynamodb, "verify-ledger", LEDGER_SCHEMA, stream=False)
    for post in range(3):
        dynamodb.put_item(TableName="verify-app", Item={"PK": {"S": f"POST#{post}"}, "SK": {"S": "INFO"}})
        for user in range(post + 1):
            like = {"PK": {"S": f"POST#{post}"}, "SK": {"S": f"LIKE#{user}"}, "stars": {"N": str(user)}}
            dynamodb.put_item(TableName="verify-app", Item=like)

    def call(*arguments: str) -> tuple[int, str, str]:
        named = () if arguments[0] == "apply" else ("--rules",)
        place = (*named, str(rules), "--table", "verify-app", "--ledger", "verify-ledger")
        return run(*arguments, *place, "--endpoint-url", dynamodb_local_url)

    call.dynamodb = dynamodb  # type: ignore[attr-defined]
    yield call
    for name in ("verify-app", "verify-ledger"):
        delete_table(dynamodb, name)


def test_verify_without_a_ledger_compares_with_the_values_of_the_rules(call: Any) -> None:
    code, out, _ = call("verify", "--patience", "0")
    assert code == 1
    assert "likes (not deployed)\n" in out
    assert ["value", "POST#2", "·", "INFO", "likeCount", "is", "absent,", "should", "be", "3"] in map(
        str.split, out.splitlines()
    )
    assert "The rules are not deployed, or --ledger is missing: " in out
    assert call("verify", "--repair")[0] == 2


@pytest.mark.parametrize("sample", [(), ("--sample", "100%")])
def test_a_ledger_that_is_not_named_is_required_if_items_have_guards(
    call: Any, run: Run, tmp_path: Path, dynamodb_local_url: str, sample: tuple[str, ...]
) -> None:
    assert call("apply", "--yes")[0] == 0
    damage(call, "POST#1", "INFO", likeCount=99)
    place = ("--rules", str(tmp_path / "rules.yaml"), "--table", "verify-app", "--endpoint-url", dynamodb_local_url)
    code, out, _ = run("verify", *place, "--patience", "0", *sample)
    assert code == int(not sample)  # a sample compares no totals without a ledger
    assert "No ledger was named, or another one: pass --ledger or --stack." in out
    assert "The rules are not deployed" not in out
    if not sample:
        assert "is 99, should be 2" in out
        assert "× value: an item does not have the value that the rules give it.\n" in out
    assert "of its group" not in out
    assert "--repair" not in out


def test_drift_is_reported_and_repaired(call: Any) -> None:
    assert call("apply", "--yes")[0] == 0
    code, out, said = call("verify", "--patience", "0")
    assert (code, out.split(".")[0]) == (0, "✓ No drift")
    assert {line.partition(":")[0] for line in said.splitlines() if "reading" in line} == {
        "reading main",
        "reading ledger",
    }
    assert said.splitlines()[-3:] == ["comparing …", "examining …", "comparing groups …"]
    call.dynamodb.update_item(
        TableName="verify-app",
        Key={"PK": {"S": "POST#1"}, "SK": {"S": "INFO"}},
        UpdateExpression="SET likeCount = :n",
        ExpressionAttributeValues={":n": {"N": "77"}},
    )
    call.dynamodb.delete_item(TableName="verify-app", Key={"PK": {"S": "POST#2"}, "SK": {"S": "LIKE#2"}})
    code, out, _ = call("verify", "--patience", "0", "--json")
    found = {(one["kind"], one["target"]) for one in json.loads(out)["drift"]}
    assert code == 1
    assert found == {("value", "main|POST#1|INFO"), ("entry extra", "main|POST#2|INFO")}
    code, out, _ = call("verify", "--patience", "0", "--repair")
    assert (code, "2 differences found, 0 left." in out) == (0, True)
    assert call("verify", "--patience", "0")[0] == 0
    item = call.dynamodb.get_item(TableName="verify-app", Key={"PK": {"S": "POST#2"}, "SK": {"S": "INFO"}})["Item"]
    assert (item["likeCount"], item["best"]) == ({"N": "2"}, {"N": "1"})


def test_a_file_that_is_not_applied_is_named_and_not_compared(call: Any, tmp_path: Path) -> None:
    assert call("apply", "--yes")[0] == 0
    (tmp_path / "rules.yaml").write_text(RULES.replace("best: max", "worst: min"))
    code, out, err = call("verify", "--patience", "0")
    assert (code, "✓ No drift." in out) == (0, True)
    assert "(changed: likes). `projections apply" in err


def test_versions_of_a_newer_package_are_named_and_left_out_and_nothing_writes(call: Any, tmp_path: Path) -> None:
    more = RULES + "  more: {from: Like, aggregate: {into: Post, set: {starSum: sum(number(stars))}}}\n"
    (tmp_path / "rules.yaml").write_text(more)
    assert call("apply", "--yes")[0] == 0
    change = {"Key": {"pk": {"S": "R"}, "sk": {"S": "rule|likes.1"}}, "UpdateExpression": "SET document = :d"}
    newer = {":d": {"S": '{"tables": {}, "entities": {}, "rule": {"kind": "newer"}}'}}
    call.dynamodb.update_item(TableName="verify-ledger", ExpressionAttributeValues=newer, **change)
    damage(call, "POST#1", "INFO", starSum=99)
    before = call.dynamodb.scan(TableName="verify-ledger")["Items"]
    code, out, err = call("verify", "--patience", "0")
    assert (code, "is 99, should be 1" in out, "likeCount" in out) == (1, True, False)
    assert "likes.1 was not compared: it is stale" in out
    assert "note: likes.1: a newer version of dynamodb-projections registered this, and this one cannot read it." in err
    assert call("verify", "--patience", "0", "--json")[1].count('"likes.1": "stale"') == 1
    code, out, _ = call("explain", "--item", "PK=POST#1,SK=INFO")
    assert (code, "starSum  item: 99, group: 1" in out, "likes.1 is not explained" in out) == (1, True, True)
    for command in (("verify", "--repair"), ("apply", "--yes"), ("backfill",)):
        code, _, err = call(*command)
        assert (code, "Install the version that the functions have" in err) == (2, True)
    assert call.dynamodb.scan(TableName="verify-ledger")["Items"] == before


def damage(call: Any, partition: str, sort: str, **attributes: Any) -> None:
    """Changes attributes of an item of the application, or of the ledger where the key is of a group."""
    ledger = partition.startswith("G|")
    names = ("pk", "sk") if ledger else ("PK", "SK")
    call.dynamodb.update_item(
        TableName="verify-ledger" if ledger else "verify-app",
        Key={names[0]: {"S": partition}, names[1]: {"S": sort}},
        UpdateExpression="SET " + ", ".join(f"{name} = :{name}" for name in attributes),
        ExpressionAttributeValues={f":{name}": {"N": str(value)} for name, value in attributes.items()},
    )


def test_damaged_group_is_reported_and_repair_keeps_the_item(call: Any) -> None:
    assert call("apply", "--yes")[0] == 0
    damage(call, "G|likes.1|main|POST#1|INFO", "00", n=40)
    item = ("explain", "--item", "PK=POST#1,SK=INFO")
    code, out, _ = call("verify", "--patience", "0")
    assert code == 1
    assert "is 40, should be 2" in out
    assert "--repair corrects the entries, then recounts the rule." in out
    code, out, _ = call(*item)
    assert code == 1
    assert "likeCount  item: 2, group: 40; source items not compared" in out
    assert "should be" not in out
    code, out, _ = call("verify", "--patience", "0", "--sample", "100%")
    assert code == 1
    assert "item: 2, group: 40; source items not compared" in out
    assert "should be" not in out
    assert call("verify", "--patience", "0", "--sample", "100%", "--repair")[0] == 2
    assert call("verify", "--patience", "0", "--repair")[0] == 0
    found = call.dynamodb.get_item(TableName="verify-app", Key={"PK": {"S": "POST#1"}, "SK": {"S": "INFO"}})["Item"]
    assert found["likeCount"] == {"N": "2"}
    assert call("verify", "--patience", "0")[0] == 0
    assert call(*item)[0] == 0


def test_json_has_the_sides_of_each_difference(call: Any) -> None:
    assert call("apply", "--yes")[0] == 0
    damage(call, "G|likes.1|main|POST#1|INFO", "00", n=40)
    damage(call, "POST#1", "INFO", likeCount=99)
    document = json.loads(call("verify", "--patience", "0", "--json")[1])
    assert document["comparedSources"] is True
    (value,) = [one for one in document["drift"] if one["kind"] == "value"]
    assert (value["actual"], value["expected"], value["wrong"]) == (99, None, ["group"])
    assert value["sides"] == {"item": 99, "group": 40}
    assert value["repair"].startswith("writes the value of the group")
    sampled = json.loads(call("verify", "--patience", "0", "--sample", "100%", "--json")[1])
    assert sampled["comparedSources"] is False
    (value,) = [one for one in sampled["drift"] if one["kind"] == "value"]
    assert (value["wrong"], value["sides"]) == (None, {"item": 99, "group": 40})
    explained = json.loads(call("explain", "--item", "PK=POST#1,SK=INFO", "--json")[1])
    assert [(one["kind"], one["sides"]) for one in explained["drifts"]] == [("value", {"item": 99, "group": 40})]
    assert explained["derived"][0]["compared"] == ["item", "group"]


@pytest.mark.parametrize("share", ["0", "a tenth", "101%"])
def test_an_invalid_percentage_is_rejected(call: Any, share: str) -> None:
    code, _, err = call("verify", "--sample", share)
    assert (code, "expected a percentage above 0 and up to 100" in err) == (2, True)
