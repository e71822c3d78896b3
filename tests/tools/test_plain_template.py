"""The template as plain CloudFormation: what SAM makes of the SAM template; with values for CDK."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator

from projections.deploy.cloudformation import template_of
from projections.deploy.needs import Deployment
from projections.deploy.plain import CODE, NOTES, cloudformation_template, with_values
from projections.deploy.sam_template import sam_template
from projections.errors import UsageError
from projections.language.loader import load
from projections.language.program import Program

ROOT = Path(__file__).parents[2]
Run = Callable[..., tuple[int, str, str]]

RULE_FILES = ("projections/init/example/rules.yaml", "tests/simulation/rules/tables.yaml")


def deployment(file: str = RULE_FILES[0], existing: bool = False) -> Deployment:
    return Deployment(file, Program.from_document(load(ROOT / file).document()), existing)


def made_by_sam(one: Deployment) -> Mapping[str, Any]:
    """The translation of aws-sam-translator, as CloudFormation runs it, without its tags; references to parameters stay."""
    template = json.loads(json.dumps(template_of(sam_template(one)).data))
    template["Globals"]["Function"]["CodeUri"] = {"Bucket": {"Ref": "CodeBucket"}, "Key": {"Ref": "CodeKey"}}
    for parameter in template["Parameters"].values():
        parameter.pop("Default", None)
    session = boto3.Session(region_name="us-east-1")
    pseudo = {name: f"${{{name}}}" for name in ("AWS::Region", "AWS::Partition")}
    found: Mapping[str, Any] = Translator(None, Parser(), boto_session=session).translate(template, pseudo)
    for resource in found["Resources"].values():
        resource.pop("Metadata", None)
        if resource["Type"] == "AWS::Lambda::Function":
            assert resource["Properties"].pop("Tags") == [{"Key": "lambda:createdBy", "Value": "SAM"}]
    return found


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("file", RULE_FILES)
def test_plain_template_has_what_sam_makes_of_the_sam_template(file: str, existing: bool) -> None:
    own, theirs = cloudformation_template(deployment(file, existing)), made_by_sam(deployment(file, existing))
    assert own.keys() - {"Rules"} == theirs.keys() - {"Rules"}
    for section in ("Resources", "Outputs", "Conditions"):
        assert own[section] == theirs[section]
    assert own.get("Rules") == theirs.get("Rules")
    assert own["Parameters"].keys() == theirs["Parameters"].keys() | CODE.keys()


def references(value: Any) -> set[str]:
    """The parameters and resources in Ref, GetAtt and Sub of a value."""
    if isinstance(value, list):
        return {name for each in value for name in references(each)}
    if not isinstance(value, dict):
        return set()
    found = {name for each in value.values() for name in references(each)}
    match value:
        case {"Ref": str(name)} | {"Fn::GetAtt": [name, _]}:
            found.add(name)
        case {"Fn::Sub": [str(text), variables]}:
            found |= set(re.findall(r"\$\{(\w+)[.}]", text)) - variables.keys()
        case {"Fn::Sub": str(text)}:
            found |= set(re.findall(r"\$\{(\w+)[.}]", text))
    return {name for name in found if not name.startswith("AWS::")}


@pytest.mark.parametrize("existing", [False, True])
@pytest.mark.parametrize("file", RULE_FILES)
def test_with_values_a_template_has_neither_conditions_nor_dangling_references(file: str, existing: bool) -> None:
    template = with_values(cloudformation_template(deployment(file, existing)), {"AlarmTopicArn": None})
    assert template.keys() == {"Metadata", "Parameters", "Resources", "Outputs"}
    tables = template["Metadata"][NOTES]["Tables"].values()
    of_tables = {f"Existing{what}{table}" for what in ("TableName", "StreamArn") for table in tables}
    assert template["Parameters"].keys() == {*CODE, "AlarmTopicArn", *(of_tables if existing else ())}
    assert not [one for one in template["Parameters"].values() if "Default" in one]
    text = json.dumps(template["Resources"])
    assert "Fn::If" not in text
    assert "AWS::NoValue" not in text
    parts = [template["Resources"], template["Outputs"]]
    assert references(parts) <= template["Resources"].keys() | template["Parameters"].keys()
    assert (f"ApplicationTable{next(iter(tables))}" in template["Resources"]) == (not existing)
    alarms = [one["Properties"] for one in template["Resources"].values() if one["Type"] == "AWS::CloudWatch::Alarm"]
    assert all(one["AlarmActions"] == [{"Ref": "AlarmTopicArn"}] for one in alarms)


def test_values_are_set_where_the_parameters_were() -> None:
    given = {"BatchSize": "100", "KmsKeyArn": "arn:aws:kms:us-east-1:111122223333:key/1", "Tracing": "Active"}
    source = cloudformation_template(deployment(existing=True))
    before = copy.deepcopy(source)
    resources = with_values(source, given)["Resources"]
    assert source == before
    assert resources["StreamFunctionChanges"]["Properties"]["BatchSize"] == "100"
    assert resources["StreamFunction"]["Properties"]["KmsKeyArn"] == given["KmsKeyArn"]
    assert resources["StreamFunction"]["Properties"]["TracingConfig"] == {"Mode": "Active"}
    assert "KeyPolicy" in resources
    policies = [one["PolicyName"] for one in resources["StreamRole"]["Properties"]["Policies"]]
    assert policies == ["project", "be-invoked", "use-key", "trace"]
    assert "AlarmActions" not in resources["ErrorsAlarm"]["Properties"]


WRONG = {
    ("BatchSise", "100"): 'BatchSise: the template has no such parameter (did you mean "BatchSize"?)',
    ("BatchSize", "many"): 'BatchSize: "many" is not a whole number',
    ("BatchSize", "0"): "BatchSize: 0 is not between 1 and 10000",
    ("WorkerConcurrency", "1"): 'WorkerConcurrency: "1" is not allowed. It must be empty, or a whole number from 2.',
    ("LogRetentionDays", "31"): 'LogRetentionDays: "31" is not one of 1, 3, 5, 7, 14, 30, 60, 90, 180, 365',
    ("RulesFile", ""): "RulesFile: at least 1 characters are required",
    ("ExistingTableName", "app"): "ExistingTableName needs ExistingStreamArn, the ARN of that table's stream.",
}


@pytest.mark.parametrize(("given", "message"), WRONG.items())
def test_values_that_cloudformation_would_reject_are_rejected(given: tuple[str, str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        with_values(cloudformation_template(deployment()), dict([given]))
    assert str(raised.value) == message


def test_value_that_conditions_compare_must_be_known() -> None:
    with pytest.raises(UsageError) as raised:
        with_values(cloudformation_template(deployment()), dict.fromkeys(("Tracing", "AlarmTopicArn", "AuditSchedule")))
    assert str(raised.value).splitlines() == [
        f"{name}: conditions depend on its value. Pass the value itself, not a token"
        for name in ("AuditSchedule", "Tracing")
    ]


def test_options_of_other_formats_are_refused(run: Run) -> None:
    file = str(ROOT / RULE_FILES[0])
    code, _, err = run("template", file, "--set", "BatchSize=1")
    assert (code, err.startswith("projections: --set applies to --format cdk only")) == (2, True), err
    code, _, err = run("template", file, "--package", "functions.zip")
    assert (code, err.startswith("projections: --package applies to --format cloudformation and cdk")) == (2, True), err


def test_package_reports_mistakes_of_rules_and_a_missing_make(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, archive = tmp_path / "rules.yaml", tmp_path / "functions.zip"
    rules.write_text("projections: {likes: {from: Like}}\n")
    code, _, err = run("template", str(rules), "--format", "cdk", "--package", str(archive))
    assert (code, "likes" in err) == (2, True)
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = run("template", str(ROOT / RULE_FILES[0]), "--format", "cdk", "--package", str(archive))
    assert (code, err) == (2, "projections: The package is built with make, which is not on PATH. Install it\n")
    assert not archive.exists()
