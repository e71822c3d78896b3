"""Deployments without SAM: the apps of docs/infrastructure.md, synthesized, deployed, and given a record."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from emulators import ROOT, Unavailable, node_packages, unavailable
from sam_cli import AWS, Sam
from test_deploy import client, eventually, number, outputs, projections, read, writer

from projections.deploy.needs import Deployment
from projections.deploy.plain import cloudformation_template, with_values
from projections.language.loader import load
from projections.language.program import Program

pytestmark = pytest.mark.deep

PAGE = (ROOT / "docs/infrastructure.md").read_text(encoding="utf-8")
RULES = ROOT / "projections/init/example/rules.yaml"
PYTHON = ROOT / ".venv-cdk/bin/python"
NATIVE = {"LAMBDA_PLATFORM": "native"}
"""A package for this machine, which runs the functions."""


def block(language: str) -> str:
    """The only example of the page in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(found)


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env={**os.environ, **AWS, **NATIVE, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.DEVNULL,
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout


@dataclass(frozen=True)
class Assembly:
    """What a CDK app makes: its stack Shop, and the functions' package."""

    directory: Path

    @property
    def template(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.directory / "Shop.template.json").read_text())
        return found

    @property
    def package(self) -> Path:
        (found,) = self.directory.glob("asset.*.zip")
        return found


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive of `template --package`."""
    target = tmp_path_factory.mktemp("archive") / "functions.zip"
    command = [sys.executable, "-m", "projections", "template", RULES, "--format", "cloudformation"]
    run(*command, "--package", target, cwd=target.parent)
    return target


@pytest.fixture(scope="module")
def python_app(tmp_path_factory: pytest.TempPathFactory) -> Assembly:
    """The app in Python of the page."""
    if not PYTHON.exists():
        unavailable("CDK is not installed: `make .venv-cdk/.ready`")
    if shutil.which("node") is None:
        unavailable("CDK needs node, which is not on PATH")
    directory = tmp_path_factory.mktemp("python")
    shutil.copy(RULES, directory)
    (directory / "app.py").write_text(block("python").replace("app.synth()\n", MORE))
    run(PYTHON, "app.py", cwd=directory, CDK_OUTDIR="cdk.out")
    return Assembly(directory / "cdk.out")


MORE = """
# What the page does not show: tokens, keys, tables of the construct, and mistakes.
from aws_cdk.aws_kms import Key
from aws_cdk.aws_sns import Topic

code = app.node.find_child("Shop").node.find_child("Projections").node.find_child("Package").asset_path
code = f"{app.outdir}/{code}"
other = Stack(app, "Other")
topic, key = Topic(other, "Alarms"), Key(other, "Key")
with_key = Table(other, "Table", partition_key=Attribute(name="PK", type=AttributeType.STRING), encryption_key=key,
                 sort_key=Attribute(name="SK", type=AttributeType.STRING), stream=StreamViewType.NEW_AND_OLD_IMAGES)
made = Projections(other, "Projections", rules="rules.yaml", table=with_key, code=code,
                   parameters={"AlarmTopicArn": topic.topic_arn, "DeletionProtection": False})
assert made.stream_function.handler == "handlers.stream.handler"
assert made.worker_function.handler == "handlers.worker.handler"
assert made.audit_function.handler == "handlers.audit.handler"
assert made.ledger_table.billing_mode == "PAY_PER_REQUEST"
assert made.quarantine_queue.message_retention_period == 1209600
own = Projections(Stack(app, "Own"), "Projections", rules="rules.yaml", code=code, notify=["spending"])
assert len(made.alarms) > 10 and own.template.get_resource("MessagesDeadLetters")


def refused(*scope, **given):
    try:
        Projections(*scope, rules="rules.yaml", code=code, **given)
    except Exception as error:
        return str(error)


silent = Table.from_table_name(other, "Silent", "silent")
messages = [
    refused(other, "Second"),
    refused(Stack(App(), "A"), "Projections", parameters={"BatchSise": 1}),
    refused(Stack(App(), "A"), "Projections", parameters={"Redact": "Keys"}),
    refused(Stack(App(), "A"), "Projections", table=silent),
    refused(Stack(App(), "A"), "Projections", table={"orders": with_key}),
]
open("messages.txt", "w").write("\\n".join(map(str, messages)))
app.synth()
"""


def generated(**values: str | None) -> Mapping[str, Any]:
    program = Program.from_document(load(RULES).document())
    template = cloudformation_template(Deployment("rules.yaml", program, existing="ExistingTableName" in values))
    return with_values(template, values)


def replaced(value: Any, old: str, new: Any) -> Any:
    """A template with the value of a parameter, as CDK writes it."""
    if isinstance(value, list):
        return [replaced(each, old, new) for each in value]
    match value:
        case {"Ref": name} if name == old:
            return new
        case {"Fn::Sub": str(text)} if f"${{{old}}}" in text:
            return {"Fn::Sub": [text, {old: new}]}
        case {}:
            return {name: replaced(each, old, new) for name, each in value.items()}
    return value


def test_construct_makes_the_resources_of_the_template_for_the_table_of_the_app(
    python_app: Assembly, archive: Path
) -> None:
    template = python_app.template
    (table,) = [name for name, one in template["Resources"].items() if one["Type"] == "AWS::DynamoDB::Table"][:1]
    wanted: Any = generated(ExistingTableName=None, ExistingStreamArn=None)["Resources"]
    values = {
        "ExistingTableName": {"Ref": table},
        "ExistingStreamArn": {"Fn::GetAtt": [table, "StreamArn"]},
        "CodeBucket": {"Fn::Sub": "cdk-hnb659fds-assets-${AWS::AccountId}-${AWS::Region}"},
        "CodeKey": python_app.package.name.removeprefix("asset."),
    }
    for name, value in values.items():
        wanted = replaced(wanted, name, value)
    found = {name: one for name, one in template["Resources"].items() if name != table}
    assert found.keys() == wanted.keys()
    for name in found:
        assert as_text(found[name]) == as_text(wanted[name]), name
    assert template["Parameters"].keys() == {"BootstrapVersion"}
    assert template["Outputs"].keys() == generated()["Outputs"].keys()
    # The construct builds the package as the command does.
    assert digest(python_app.package) == digest(archive)


def test_check_compares_what_cdk_made_with_the_rules(python_app: Assembly, tmp_path: Path) -> None:
    template = python_app.template
    (table,) = [one for one in template["Resources"].values() if "GlobalSecondaryIndexes" in one.get("Properties", {})]
    command = [sys.executable, "-m", "projections", "check", RULES, "--json", "--template"]
    assert json.loads(run(*command, python_app.directory / "Shop.template.json", cwd=tmp_path))["findings"] == []
    del table["Properties"]["GlobalSecondaryIndexes"]
    (tmp_path / "broken.json").write_text(json.dumps(template))
    found = subprocess.run([*command, "broken.json"], cwd=tmp_path, text=True, capture_output=True, check=False)
    assert (found.returncode, "GSI1" in found.stdout) == (1, True)


def as_text(value: Any) -> Any:
    """A part of a template with numbers and truth values as text: CDK writes `true` for `"true"`."""
    if isinstance(value, list):
        return [as_text(each) for each in value]
    if isinstance(value, dict):
        return {name: as_text(each) for name, each in value.items()}
    return str(value).lower() if isinstance(value, bool) else str(value)


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_values_may_be_resources_of_the_app_and_tables_may_be_of_the_construct(python_app: Assembly) -> None:
    other = json.loads((python_app.directory / "Other.template.json").read_text())
    assert other.get("Conditions") is None  # which cannot refer to resources
    resources = other["Resources"]
    (topic,) = [name for name, one in resources.items() if one["Type"] == "AWS::SNS::Topic"]
    (key,) = [name for name, one in resources.items() if one["Type"] == "AWS::KMS::Key"]
    assert resources["ErrorsAlarm"]["Properties"]["AlarmActions"] == [{"Ref": topic}]
    (statement,) = resources["KeyPolicy"]["Properties"]["PolicyDocument"]["Statement"]
    assert statement["Resource"] == {"Fn::Split": [",", {"Fn::GetAtt": [key, "Arn"]}]}
    assert resources["StreamRole"]["Properties"]["ManagedPolicyArns"] == [{"Ref": "KeyPolicy"}]
    assert resources["LedgerTable"]["Properties"]["DeletionProtectionEnabled"] is False
    own = json.loads((python_app.directory / "Own.template.json").read_text())["Resources"]
    assert own["ApplicationTable"]["DeletionPolicy"] == "Retain"
    assert as_text(own["ApplicationTable"]) == as_text(generated()["Resources"]["ApplicationTable"])


def test_construct_reports_what_it_cannot_deploy(python_app: Assembly) -> None:
    assert (python_app.directory.parent / "messages.txt").read_text().splitlines() == [
        "stack Other has projections already. Use a stack of its own for Second",
        'BatchSise: the template has no such parameter (did you mean "BatchSize"?)',
        'Redact: "Keys" is not one of none, keys, values, all',
        "table main has no stream: set `stream`, or name its stream in `from_table_attributes`",
        "the rules have the tables main, and `table` has orders. Pass all of them, or none",
    ]


def test_construct_in_typescript_makes_the_same_stack(python_app: Assembly, tmp_path: Path) -> None:
    """Type-checked, and synthesized by CDK's command line."""
    if shutil.which("node") is None:
        unavailable("CDK needs node, which is not on PATH")
    try:
        (tmp_path / "node_modules").symlink_to(node_packages("cdk") / "node_modules")
    except Unavailable as error:
        unavailable(error)
    shutil.copy(RULES, tmp_path)
    command = [sys.executable, "-m", "projections", "template", "--format", "cdk-typescript", "-o", "projections.ts"]
    run(*command, cwd=tmp_path)
    app = block("typescript")
    here = f'{{ command: "{Path(sys.executable).with_name("projections")}", code: "{python_app.package}", rules:'
    assert app.count("{ rules:") == 1
    (tmp_path / "app.ts").write_text(app.replace("{ rules:", here) + MORE_TYPESCRIPT)
    options = ["--strict", "--skipLibCheck", "--module", "commonjs", "--target", "es2022", "--types", "node"]
    run("node_modules/.bin/tsc", *options, "app.ts", cwd=tmp_path)
    quiet = ["--quiet", "--no-notices", "--no-version-reporting", "--no-path-metadata", "--no-asset-metadata"]
    run("node_modules/.bin/cdk", "synth", *quiet, "--app", "node app.js", cwd=tmp_path)
    assert Assembly(tmp_path / "cdk.out").template == python_app.template


MORE_TYPESCRIPT = """
const made = stack.node.findChild("Projections") as Projections;
const said = [made.streamFunction.handler, made.workerFunction.handler, made.auditFunction.handler].join();
if (said !== "handlers.stream.handler,handlers.worker.handler,handlers.audit.handler") throw new Error(said);
if (made.ledgerTable.billingMode !== "PAY_PER_REQUEST" || made.alarms.length < 10) throw new Error("resources");
if (made.quarantineQueue.messageRetentionPeriod !== 1209600) throw new Error("queue");
const refused = (scope: Stack, props: object, message: string) => {
  try {
    new Projections(scope, "P", { rules: "rules.yaml", code: "rules.yaml", ...props });
  } catch (error) {
    if (String(error).includes(message)) return;
    throw error;
  }
  throw new Error(`not refused: ${message}`);
};
refused(stack, {}, "stack Shop has projections already");
refused(new Stack(new App(), "A"), { command: "no-such-command" }, "no-such-command");
"""


def test_stack_of_cdk_processes_records(python_app: Assembly, sam: Sam) -> None:
    s3, formation = client(sam.endpoint, "s3"), client(sam.endpoint, "cloudformation")
    bucket = "cdk-hnb659fds-assets-000000000000-us-east-1"
    s3.create_bucket(Bucket=bucket)
    s3.upload_file(str(python_app.package), bucket, python_app.package.name.removeprefix("asset."))
    template = python_app.template
    del template["Parameters"], template["Rules"]  # they check that `cdk bootstrap` was run
    s3.put_object(Bucket=bucket, Key="template.json", Body=json.dumps(template))
    url = f"{sam.endpoint}/{bucket}/template.json"
    formation.create_stack(StackName="Shop", TemplateURL=url, Capabilities=["CAPABILITY_IAM"])
    states: Iterator[str] = iter(lambda: formation.describe_stacks(StackName="Shop")["Stacks"][0]["StackStatus"], "")
    for state in states:
        if state != "CREATE_IN_PROGRESS":
            break
        time.sleep(0.2)
    assert state == "CREATE_COMPLETE"
    processes_records(sam, "Shop")


def processes_records(sam: Sam, stack: str) -> None:
    """An order is copied and counted, and commands find the stack."""
    names = outputs(stack, sam.endpoint)
    projections(sam, "apply", str(RULES), "--stack", stack, "--yes")
    put = writer(names, sam.endpoint)
    put(PK="CUSTOMER#c1", SK="PROFILE", customerId="c1", name="Ada")
    put(PK="CUSTOMER#c1", SK="ORDER#o1", customerId="c1", orderId="o1", status="open", placedAt="2026-01-01")
    customer = eventually(
        lambda: read(names, sam.endpoint, "CUSTOMER#c1", "PROFILE"), lambda item: number(item, "orderCount") == 1
    )
    assert customer["name"] == {"S": "Ada"}
    eventually(
        lambda: read(names, sam.endpoint, "ORDER#o1", "SUMMARY"), lambda item: item.get("customerId") == {"S": "c1"}
    )
    status = json.loads(projections(sam, "status", "--stack", stack, "--json"))
    assert (status["attention"], set(status["versions"].values())) == (False, {"active"})
    assert len(status["versions"]) == 4
