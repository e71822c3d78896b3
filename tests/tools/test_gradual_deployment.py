"""`projections template --gradual`: whatever changes the function publishes a version, by SAM's own transformation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from emulators import ROOT
from samtranslator.translator.transform import transform

from projections.deploy.cloudformation import Document, Resolution, template_of
from projections.deploy.needs import Deployment
from projections.deploy.sam_template import sam_template
from projections.errors import UsageError
from projections.language.loader import load, loads
from projections.language.program import Program

SOCIAL = ROOT / "projections/rules/social.yaml"

STREAM = "arn:aws:dynamodb:us-east-1:111122223333:table/app/stream/2026-01-01T00:00:00.000"
KEY = "arn:aws:kms:us-east-1:111122223333:key/12345678-1234-1234-1234-123456789012"


def template(path: Path = SOCIAL, *, existing: bool = False) -> dict[str, Any]:
    rules = Program.from_document(load(path).document())
    data: dict[str, Any] = json.loads(
        json.dumps(template_of(sam_template(Deployment("rules.yaml", rules, existing, True))).data)
    )
    return data


def expanded(data: Mapping[str, Any], **parameters: str) -> dict[str, Any]:
    """What SAM makes of a packaged template."""
    packaged = json.loads(json.dumps(data).replace('"CodeUri": "."', '"CodeUri": "s3://bucket/package"'))

    class NoManagedPolicies:
        def load(self) -> dict[str, str]:
            return {}

    sam: dict[str, Any] = transform(packaged, parameters, NoManagedPolicies())
    return sam


def transformed(data: Mapping[str, Any], **parameters: str) -> Mapping[str, Any]:
    """The resources of `expanded`, with all parameters resolved."""
    sam = expanded(data, **parameters)
    return Resolution(Document("t", {**sam, "Parameters": with_values(sam["Parameters"], parameters)})).resources


def with_values(declared: Mapping[str, Any], values: Mapping[str, str]) -> dict[str, Any]:
    return {name: {**said, **({"Default": values[name]} if name in values else {})} for name, said in declared.items()}


def version(data: Mapping[str, Any], **parameters: str) -> tuple[str, str]:
    """The logical id and the description of the version, in which CloudFormation sees whether to publish another one."""
    (one,) = (found for found in transformed(data, **parameters).values() if found.type == "AWS::Lambda::Version")
    return one.id, one.properties["Description"]


def test_without_the_option_there_is_no_alias() -> None:
    text = sam_template(Deployment("rules.yaml", Program.from_document(load(SOCIAL).document())))
    assert "AutoPublishAlias" not in text
    assert "TrafficShift" not in text


def test_stream_records_go_to_the_alias_which_moves_by_codedeploy_and_back_on_our_alarms() -> None:
    resources = transformed(template(), TrafficShift="Linear10PercentEvery1Minute")
    alias = "${StreamFunctionAliascurrent}"
    assert resources["StreamFunctionChanges"].properties["FunctionName"] == alias
    raw = expanded(template(), TrafficShift="Linear10PercentEvery1Minute")["Resources"]
    (policy,) = (one["UpdatePolicy"] for one in raw.values() if one["Type"] == "AWS::Lambda::Alias")
    assert policy["CodeDeployLambdaAliasUpdate"]["DeploymentGroupName"] == {"Ref": "StreamFunctionDeploymentGroup"}
    group = resources["StreamFunctionDeploymentGroup"].properties
    assert group["DeploymentConfigName"] == "CodeDeployDefault.LambdaLinear10PercentEvery1Minute"
    assert group["AutoRollbackConfiguration"]["Enabled"] is True
    alarms = ["${ErrorsAlarm}", "${IteratorAgeAlarm}", "${InternalAlarm}"]
    assert [one["Name"] for one in group["AlarmConfiguration"]["Alarms"]] == alarms
    assert {"WorkerFunction", "AuditFunction"} <= resources.keys()
    assert [one.id for one in resources.values() if one.type == "AWS::Lambda::Alias"] == [alias[2:-1]]


def test_a_correction_can_be_deployed_while_an_alarm_fires() -> None:
    group = transformed(template(), TrafficShift="AllAtOnce")["StreamFunctionDeploymentGroup"].properties
    assert group["DeploymentConfigName"] == "CodeDeployDefault.LambdaAllAtOnce"
    assert not group.get("AlarmConfiguration")


CHANGES = {
    "ExistingLedgerTableName": "former-ledger",
    "KmsKeyArn": KEY,
    "RulesFile": "other.json",
    "Runtime": "python3.12",
    "MemorySize": "512",
    "PushWritesPerSecond": "100",
    "RuleWritesPerMinute": "1000000",
    "AuditItems": "200",
    "LogLevel": "ERROR",
    "Redact": "all",
    "Tracing": "Active",
}


def test_another_value_of_a_parameter_alone_is_another_version() -> None:
    before = version(template())
    for name in ("ExistingLedgerTableName", "RulesFile", "Redact"):
        resources = transformed(template(), **{name: CHANGES[name]})
        (after,) = (found for found in resources.values() if found.type == "AWS::Lambda::Version")
        assert before[0] == after.id  # as SAM sees it nothing has changed
        assert before[1] != after.properties["Description"]
        function = resources["StreamFunction"]
        assert function.properties["Description"] == after.properties["Description"]  # else Lambda publishes no version


def test_another_table_or_stream_is_another_version() -> None:
    given = {"ExistingTableName": "app", "ExistingStreamArn": STREAM}
    one, other = version(template(), **given), version(template(), **{**given, "ExistingStreamArn": STREAM[:-1] + "1"})
    assert "2026-01-01T00:00:00.000" in one[1]
    assert len({version(template())[1], one[1], other[1]}) == 3


def test_a_changed_property_is_another_version() -> None:
    edited = template()
    edited["Globals"]["Function"]["Timeout"] = 61
    assert version(edited)[0] != version(template())[0]


def test_no_parameter_of_the_function_was_forgotten() -> None:
    """Parameters that only conditions name are in CHANGES."""
    edited = template()
    function = edited["Resources"]["StreamFunction"]["Properties"]
    described = json.dumps([function.pop("VersionDescription"), function.pop("Description")])
    for name in ("Events", "DeploymentPreference", "ReservedConcurrentExecutions"):
        function.pop(name, None)
    used = json.dumps([edited["Globals"], function])
    named = [name for name in edited["Parameters"] if f'{{"Ref": "{name}"}}' in used and name != "ExistingTableName"]
    assert len(named) >= 8
    assert [name for name in named if f'{{"Ref": "{name}"}}' not in described] == []


def test_the_description_has_room_for_four_tables_and_more_are_refused() -> None:
    def rules(tables: int) -> Deployment:
        text = "tables:\n" + "".join(f"  t{number}: {{key: [PK]}}\n" for number in range(tables))
        text += "entities:\n  A: {table: t0, key: {PK: 'A#{a}'}}\nprojections: {}\n"
        return Deployment("rules.yaml", Program.from_document(loads(text).document()), False, True)

    data = json.loads(json.dumps(template_of(sam_template(rules(4))).data))
    given = {name: values[-1] for name, values in longest(data["Parameters"]).items()} | {"KmsKeyArn": KEY}
    given |= {f"ExistingTableNameT{number}": "a" * 255 for number in range(4)}
    given |= {f"ExistingStreamArnT{number}": STREAM for number in range(4)}
    given |= {name: "x" * data["Parameters"][name]["MaxLength"] for name in ("ExistingLedgerTableName", "RulesFile")}
    assert len(given["ExistingLedgerTableName"]) == 40
    assert len(version(data, **given)[1]) == 256
    with pytest.raises(UsageError, match=r"^--gradual supports at most 4 tables, and these rules have 5"):
        sam_template(rules(5))


def longest(parameters: Mapping[str, Any]) -> dict[str, list[str]]:
    """Of each parameter with limits the values by length."""
    allowed = {name: one.get("AllowedValues") or [one.get("MaxValue")] for name, one in parameters.items()}
    return {name: sorted(map(str, them), key=len) for name, them in allowed.items() if them != [None]}
