"""The template for other rules than those that ship deploys and projects: several tables, one of which exists already."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emulators import ROOT
from sam_cli import Sam
from test_deploy import client, eventually, outputs, projections

from projections.deploy.needs import Deployment
from projections.deploy.sam_template import sam_template
from projections.language.loader import load
from projections.language.program import Program

RULES = ROOT / "tests/simulation/rules/tables.yaml"


def test_several_tables_are_projected_into_one_another(sam: Sam, built: Path, tmp_path: Path) -> None:
    """A reading in a table that exists counts in the device's item in a second table, and makes items in a third."""
    rules = load(RULES).document()
    package, template = tmp_path / "package", tmp_path / "template.yaml"
    shutil.copytree(built, package)
    (package / "rules.json").write_text(json.dumps(rules))
    text = sam_template(Deployment(str(RULES), Program.from_document(rules)))
    template.write_text(text.replace("CodeUri: .\n", f"CodeUri: {package}\n"))
    dynamodb = client(sam.endpoint, "dynamodb")
    readings = dynamodb.create_table(
        TableName="old-readings",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[
            {"AttributeName": "device", "AttributeType": "S"},
            {"AttributeName": "second", "AttributeType": "N"},
        ],
        KeySchema=[{"AttributeName": "device", "KeyType": "HASH"}, {"AttributeName": "second", "KeyType": "RANGE"}],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )["TableDescription"]
    sam.deploy(
        "tables",
        template,
        ExistingTableNameReadings="old-readings",
        ExistingStreamArnReadings=readings["LatestStreamArn"],
        BatchingWindowSeconds="0",
    )
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
