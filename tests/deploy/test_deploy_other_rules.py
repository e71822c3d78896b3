"""The template for other rules: it deploys and projects, with several tables, or as the stack that a benchmark measures."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from emulators import ROOT
from sam_cli import AWS, Sam
from test_deploy import client, eventually, outputs, projections

from benchmarks import deployed
from projections.aws.live_tables import create_table
from projections.deploy.needs import Deployment
from projections.deploy.sam_template import sam_template
from projections.language.loader import load
from projections.language.program import Program

RULES = ROOT / "tests/simulation/rules/tables.yaml"


def test_several_tables_are_projected_into_one_another(sam: Sam, built: Path, tmp_path: Path) -> None:
    """A reading in a table that exists counts in the device's item in a second table, and makes items in a third."""
    template = for_rules(RULES, built, tmp_path)
    dynamodb = client(sam.endpoint, "dynamodb")
    create_table(dynamodb, "old-readings", Program.from_document(load(RULES).document()).tables["readings"])
    stream = dynamodb.describe_table(TableName="old-readings")["Table"]["LatestStreamArn"]
    parameters = {"ExistingTableNameReadings": "old-readings", "ExistingStreamArnReadings": stream}
    sam.deploy("tables", template, **parameters, BatchingWindowSeconds="0")
    names = outputs("tables", sam.endpoint)
    assert names["TableNameReadings"] == "old-readings"
    projections(sam, "apply", str(RULES), "--stack", "tables", "--yes")

    dynamodb.put_item(TableName=names["TableNameApp"], Item={"PK": {"S": "DEVICE#d1"}, "SK": {"S": "DEVICE"}})
    for second, value in (("1", "20.5"), ("2", "21.5")):
        item = {"device": {"S": "d1"}, "second": {"N": second}, "value": {"N": value}}
        dynamodb.put_item(TableName="old-readings", Item=item)

    def read(table: str, **key: str) -> Mapping[str, Any]:
        wire = {name: {"S": text} for name, text in key.items()}
        answer = dynamodb.get_item(TableName=names[f"TableName{table}"], Key=wire, ConsistentRead=True)
        item: Mapping[str, Any] = answer.get("Item", {})
        return item

    device = eventually(
        lambda: read("App", PK="DEVICE#d1", SK="DEVICE"), lambda item: item.get("readings") == {"N": "2"}
    )
    assert device["sum"] == {"N": "42"}
    total = eventually(lambda: read("Stats", id="total:d1"), lambda item: item.get("readings") == {"N": "2"})
    assert total["average"] == {"N": "21"}
    copy = eventually(lambda: read("Stats", id="copy:d1:2"), lambda item: "value" in item)
    assert copy["value"] == {"N": "21.5"}

    dynamodb.delete_item(TableName="old-readings", Key={"device": {"S": "d1"}, "second": {"N": "2"}})
    eventually(lambda: read("App", PK="DEVICE#d1", SK="DEVICE"), lambda item: item.get("readings") == {"N": "1"})
    eventually(lambda: read("Stats", id="copy:d1:2"), lambda item: not item)


def for_rules(rules: Path, built: Path, work: Path) -> Path:
    """The template for a rule file, with the built package of these rules."""
    document, template = load(rules).document(), work / "template.yaml"
    shutil.copytree(built, work / "package")
    (work / "package/rules.json").write_text(json.dumps(document))
    text = sam_template(Deployment(str(rules), Program.from_document(document)))
    template.write_text(text.replace("CodeUri: .\n", f"CodeUri: {work}/package\n"))
    return template


def test_the_benchmark_measures_its_own_stack_and_refuses_others(
    sam: Sam, built: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Under restarts and records that come again, all values are right. It writes to no table with items of others."""
    for name, value in {**AWS, "AWS_ENDPOINT_URL": sam.endpoint}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(deployed, "PAUSE", 1.0)
    sam.deploy("bench", for_rules(deployed.RULES, built, tmp_path), BatchingWindowSeconds="0", AuditSchedule="off")
    table, dynamodb = {"TableName": outputs("bench", sam.endpoint)["TableName"]}, client(sam.endpoint, "dynamodb")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = deployed.main(["--stack", "bench", "--rate", "10", "--seconds", "8", *arguments])
        return code, *capsys.readouterr()

    assert "it has other rules than" in run("--yes")[2]
    projections(sam, "apply", str(deployed.RULES), "--stack", "bench", "--yes")
    dynamodb.put_item(**table, Item={"PK": {"S": "USER#1"}, "SK": {"S": "PROFILE"}})
    assert "has items of an application" in run("--yes")[2]
    dynamodb.delete_item(**table, Key={"PK": {"S": "USER#1"}, "SK": {"S": "PROFILE"}})
    assert "It costs up to about $0.0" in run()[2]
    assert dynamodb.scan(**table)["Items"] == []

    code, printed, error = run("--yes")
    assert (code, "0 differences, 0 undecided" in printed) == (0, True), printed + error
    rows = (line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("| "))
    figures = {title: [cell.replace(",", "").split(" ")[::2] for cell in cells] for title, *cells in rows}
    for kind in ("count", "copy"):
        for shares in figures[f"seconds to the {kind}: p50 / p95 / p99"]:
            assert 0 < float(shares[0]) <= float(shares[1]) <= float(shares[2]) < 60
    assert [wrong for wrong, _ in figures["posts with a wrong number"]] == ["0", "0"]
    (delivered, none), (_, duplicates) = figures["records delivered / duplicates found"]
    assert (int(delivered) >= 80, none, int(duplicates) >= 80) == (True, "0", True)
    assert all(float(units) > 2 for (units,) in figures["… of the rules, by the function's log"])
