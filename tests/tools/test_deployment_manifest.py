"""The manifest: the same deployment as JSON, in a documented shape."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cfnlint.decode import decode_str
from click.testing import CliRunner
from emulators import ROOT

from projections.cli.template import command
from projections.deploy.manifest import Manifest, manifest
from projections.deploy.needs import Deployment
from projections.deploy.template import sam_template
from projections.language.loader import load
from projections.language.program import Program

SOCIAL = ROOT / "projections/rules/social.yaml"
RULE_FILES = [SOCIAL, *sorted((ROOT / "tests/simulation/rules").glob("*.yaml"))]


def deployment(path: Path, *, existing: bool = False) -> Deployment:
    return Deployment("rules.yaml", Program.from_document(load(path).canonical()), existing)


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_it_fits_its_schema_and_holds_every_resource_of_the_template(path: Path, existing: bool) -> None:
    found = manifest(deployment(path, existing=existing))
    document = json.loads(found.model_dump_json())
    jsonschema.validate(document, Manifest.model_json_schema())
    template, _ = decode_str(sam_template(deployment(path, existing=existing)))
    roles = {name for name, one in template["Resources"].items() if one["Type"] == "AWS::IAM::Role"}
    kept = {*found.tables, *found.functions, *found.queues, *found.alarms, *found.resources}
    made = kept - {name for name, table in found.tables.items() if table.exists}
    assert made == set(template["Resources"]) - roles - {"KeyPolicy"}  # without a key, there is none
    assert len(roles) == len(found.functions)


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_tables_are_those_of_the_rules(path: Path) -> None:
    program = Program.from_document(load(path).canonical())
    for existing in (False, True):
        tables = {one.rules_name: one for one in manifest(deployment(path, existing=existing)).tables.values()}
        assert tables.keys() == {*program.tables, None}
        for name, schema in program.tables.items():
            table = tables[name]
            assert table.exists == existing
            assert (table.partition.name, table.partition.type) == schema.partition
            assert (table.sort and (table.sort.name, table.sort.type)) == schema.sort
            assert (table.ttl, table.stream_view_type) == (schema.ttl, "NEW_AND_OLD_IMAGES")
            assert {
                index: tuple(tuple((key.name, key.type) for key in keys) for keys in (one.partition, one.sort))
                for index, one in table.indexes.items()
            } == dict(schema.indexes)


def test_a_function_has_all_that_its_deployment_takes() -> None:
    function = manifest(deployment(SOCIAL)).functions["StreamFunction"]
    assert (function.handler, function.runtime, function.memory_mb, function.timeout_seconds) == (
        "handlers.stream.handler",
        "python3.13",
        1024,
        60,
    )
    assert function.environment["LEDGER_TABLE_NAME"] == "${LedgerTable.name}"
    assert function.environment["TASK_QUEUE_URL"] == "${TaskQueue.url}"
    event = function.events["Changes"]
    assert (event.type, event.source) == ("DynamoDB", "${ApplicationTable.stream_arn}")
    expected = {
        "BatchSize": 500,
        "MaximumBatchingWindowInSeconds": 1,
        "BisectBatchOnFunctionError": True,
        "MaximumRetryAttempts": 100,
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
    }
    assert expected.items() <= event.settings.items()
    assert event.filters[0]["dynamodb"]["Keys"]["PK"] == {"S": [{"prefix": "USER#"}]}
    statements = {one.Sid: one for one in function.statements}
    assert statements["ApplicationIndexes"].Resource == ["${ApplicationTable.arn}/index/GSI1"]
    assert "dynamodb:DeleteItem" in statements["ApplicationTable"].Action


def test_audit_has_a_schedule_and_a_condition_on_its_writes() -> None:
    function = manifest(deployment(SOCIAL)).functions["AuditFunction"]
    event = function.events["Slice"]
    assert (event.type, event.source) == ("Schedule", None)
    assert event.settings == {"Schedule": "rate(1 hour)", "State": "ENABLED"}
    written = {one["Sid"]: one for one in function.model_dump()["statements"]}
    assert written["Place"]["Condition"] == {"ForAllValues:StringEquals": {"dynamodb:LeadingKeys": ["A"]}}
    assert "Condition" not in written["Ledger"]


HERE = "arn:${AWS::Partition}:sqs:${AWS::Region}:${AWS::AccountId}"


def test_queues_have_their_dead_letter_queues() -> None:
    queues = manifest(deployment(SOCIAL)).queues
    redrive = queues["TaskQueue"].redrive
    assert redrive is not None
    assert (redrive.dead_letters, redrive.after_receives) == ("${TaskDeadLetters.arn}", 10)
    assert queues["QuarantineQueue"].redrive is None
    allowed = {"redrivePermission": "byQueue", "sourceQueueArns": [f"{HERE}:{queues['TaskQueue'].name}"]}
    assert queues["TaskDeadLetters"].redrive_allow == allowed
    assert [one.retained for one in queues.values()] == [True, False, True]


def test_alarms_have_their_metrics() -> None:
    alarm = manifest(deployment(SOCIAL)).alarms["DiscardedAlarm"]
    assert alarm.settings["Dimensions"] == [
        {"Name": "EventSourceMappingUUID", "Value": "${StreamFunction.Changes.uuid}"}
    ]
    assert alarm.description.startswith("Lambda discarded records")


def test_a_mapping_that_polls_nothing_raises_an_alarm_whether_or_not_there_are_writes() -> None:
    alarm = manifest(deployment(SOCIAL)).alarms["NotPolledAlarm"].settings
    assert (alarm["Namespace"], alarm["MetricName"]) == ("AWS/Lambda", "PolledEventCount")
    assert alarm["Dimensions"] == [{"Name": "EventSourceMappingUUID", "Value": "${StreamFunction.Changes.uuid}"}]
    assert alarm["TreatMissingData"] == "breaching", "no poll, no data"
    assert (alarm["ComparisonOperator"], alarm["Threshold"]) == ("LessThanThreshold", 0), "an empty poll is fine"
    event = manifest(deployment(SOCIAL)).functions["StreamFunction"].events["Changes"]
    assert event.settings["MetricsConfig"] == {"Metrics": ["EventCount"]}, "without which there is no data"


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_every_placeholder_is_explained_and_no_other(path: Path, existing: bool) -> None:
    found = manifest(deployment(path, existing=existing))
    text = found.model_dump_json(exclude={"placeholders"})
    assert set(re.findall(r"\$\{[^}]*\}", text)) == set(found.placeholders)
    unexplained = {name: meaning for name, meaning in found.placeholders.items() if name == f"${{{meaning}}}"}
    assert not unexplained


def test_existing_tables_are_placeholders() -> None:
    found = manifest(deployment(SOCIAL, existing=True))
    assert found.functions["WorkerFunction"].environment["TABLE_NAME"] == "${ExistingTableName}"
    assert found.functions["WorkerFunction"].environment["NEW_RULES"] == "fill"
    assert manifest(deployment(SOCIAL)).functions["WorkerFunction"].environment["NEW_RULES"] == "live"
    assert found.placeholders["${ExistingTableName}"] == "name of the application's table"


def test_the_command_prints_it_and_its_schema() -> None:
    runner = CliRunner()
    one = runner.invoke(command, ["social", "--json"]).output
    other = runner.invoke(command, ["social", "--format", "manifest"]).output
    assert one == other
    schema: Mapping[str, Any] = json.loads(runner.invoke(command, ["--format", "manifest-schema"]).output)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads(one), schema)
    assert "description" in schema["properties"]["placeholders"]
