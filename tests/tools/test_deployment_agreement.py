"""`projections check --template`: what a template, edited by hand or written by others, lacks for the rules."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import lru_cache
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from emulators import ROOT
from json_parts import at, places

from projections.deploy.agreement import disagreements
from projections.deploy.cloudformation import Document, template_of
from projections.deploy.comparison import Finding
from projections.deploy.needs import Deployment
from projections.deploy.sam_template import sam_template
from projections.language.loader import load, loads
from projections.language.program import Program

SOCIAL = ROOT / "projections/rules/social.yaml"
TABLES = ROOT / "tests/simulation/rules/tables.yaml"
RULE_FILES = [SOCIAL, *sorted((ROOT / "tests/simulation/rules").glob("*.yaml"))[::4]]

Template = dict[str, Any]


@lru_cache
def deployment(path: Path = SOCIAL, *, existing: bool = False) -> Deployment:
    return Deployment("rules.yaml", Program.from_document(load(path).document()), existing)


@lru_cache
def ours(rules: Deployment) -> str:
    return json.dumps(template_of(sam_template(rules)).data)


def written(rules: Deployment) -> Template:
    """Our template as data, to be changed."""
    found: Template = json.loads(ours(rules))
    return found


def judged(template: Template, rules: Deployment) -> list[Finding]:
    return disagreements(Document("template.json", template), rules)


def wrong(template: Template, rules: Deployment | None = None) -> list[tuple[str, str, str]]:
    """Severity, family and reason of what is found, without what cannot be judged."""
    found = judged(template, rules or deployment())
    return [(one.severity, one.code, one.reason) for one in found if one.code != "not-judged"]


def only(template: Template, rules: Deployment | None = None) -> tuple[str, str, str]:
    (one,) = wrong(template, rules)
    return one


def properties(template: Template, resource: str) -> dict[str, Any]:
    found: dict[str, Any] = template["Resources"][resource]["Properties"]
    return found


def changes(template: Template, event: str = "Changes") -> dict[str, Any]:
    found: dict[str, Any] = properties(template, "StreamFunction")["Events"][event]["Properties"]
    return found


# What we write ourselves


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_existing_tables_give_only_notes_about_what_cannot_be_checked(path: Path) -> None:
    found = judged(written(deployment(path, existing=True)), deployment(path))
    assert {(one.severity, one.code) for one in found} == {("note", "not-judged")}
    assert len(found) == len(deployment(path).tables)
    assert all("projections status" in one.instead for one in found)


def test_a_worker_that_lambda_would_stop_is_found() -> None:
    template = written(deployment())
    properties(template, "WorkerFunction")["RecursiveLoop"] = "Terminate"
    severity, code, reason = only(template)
    assert (severity, code) == ("error", "recursion")
    assert "WorkerFunction after about 16 messages to its own queue" in reason


def statements(template: Template) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, resource in template["Resources"].items():
        if resource["Type"] == "AWS::IAM::Role":
            for policy in resource["Properties"]["Policies"]:
                if "PolicyDocument" in policy:
                    yield from ((name, statement) for statement in policy["PolicyDocument"]["Statement"])


@pytest.mark.parametrize(("path", "existing"), [(SOCIAL, False), pytest.param(TABLES, True, marks=pytest.mark.deep)])
def test_every_permission_that_is_taken_away_is_missed(path: Path, existing: bool) -> None:
    rules = deployment(path, existing=existing)
    for number, (role, statement) in enumerate(statements(written(rules))):
        for action in [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]:
            template = written(rules)
            changed = list(statements(template))[number][1]
            listed = [changed["Action"]] if isinstance(changed["Action"], str) else changed["Action"]
            changed["Action"] = [one for one in listed if one != action]
            found = wrong(template, rules)
            assert found, f"{role}: {action} of {statement['Sid']} is not missed"
            assert all(one[:2] == ("error", "permissions") and action in one[2] for one in found)


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_a_generated_template_agrees_and_every_prefix_that_is_taken_out_of_a_filter_is_missed(path: Path) -> None:
    rules = deployment(path)
    assert judged(written(rules), rules) == []
    for table in rules.tables:
        event = f"Changes{table.suffix}"
        for number, pattern in enumerate(table.filters.patterns):
            for attribute, kinds in pattern["dynamodb"]["Keys"].items():
                for one in kinds["S"]:
                    changed = deepcopy(dict(pattern))
                    changed["dynamodb"]["Keys"][attribute]["S"] = [r for r in kinds["S"] if r != one] or ["NOTHING"]
                    template = written(rules)
                    filters = changes(template, event)["FilterCriteria"]["Filters"]
                    filters[number]["Pattern"] = json.dumps(changed)
                    found = wrong(template, rules)
                    assert found, f"{attribute} {one}"
                    assert all(one[:2] == ("error", "filters") for one in found)


@pytest.mark.parametrize(
    "name", ["TABLE_NAME", "STREAM_ARN", "LEDGER_TABLE_NAME", "RULES_FILE", "QUARANTINE_QUEUE_URL", "TASK_QUEUE_URL"]
)
def test_every_environment_variable_that_is_taken_away_is_missed(name: str) -> None:
    template = written(deployment())
    del template["Globals"]["Function"]["Environment"]["Variables"][name]
    found = wrong(template)
    assert found
    assert all(code == "environment" and name in reason for _, code, reason in found)


# Tables


def test_another_key_names_both() -> None:
    template = written(deployment())
    properties(template, "ApplicationTable")["KeySchema"][1]["AttributeName"] = "GSI1SK"
    assert only(template) == (
        "error",
        "keys",
        "the key of the table is PK (S), GSI1SK (S), the rules require PK (S), SK (S)",
    )
    template = written(deployment())
    properties(template, "ApplicationTable")["AttributeDefinitions"][1]["AttributeType"] = "N"
    assert only(template)[2] == "the key of the table is PK (S), SK (N), the rules require PK (S), SK (S)"


def test_an_index_that_is_missing_or_another() -> None:
    template = written(deployment())
    indexes = properties(template, "ApplicationTable")["GlobalSecondaryIndexes"]
    gone = indexes.pop()
    assert only(template)[:2] == ("error", "indexes")
    assert "GSI2" in only(template)[2]
    indexes.append({**gone, "KeySchema": gone["KeySchema"][:1]})
    reason = "index GSI2 is global with the key GSI2PK (S), the rules have global with GSI2PK (S), GSI2SK (S)"
    assert only(template) == ("error", "indexes", reason)


def indexed(form: str) -> Deployment:
    text = f"table: {{key: [PK, SK], indexes: {{byDate: {form}}}}}\n"
    text += 'entities: {A: {key: {PK: "A#{a}", SK: "A"}}}\nprojections: {i: {from: A, index: {at: "{date}"}}}\n'
    return Deployment("x", Program.from_document(loads(text).document()))


def test_local_index_does_for_a_global_one_and_further_indexes_do_not_matter() -> None:
    rules = indexed("[PK, at]")
    template = written(rules)
    table = properties(template, "ApplicationTable")
    table["LocalSecondaryIndexes"] = table.pop("GlobalSecondaryIndexes")
    table["GlobalSecondaryIndexes"] = [{"IndexName": "mine", "KeySchema": [], "Projection": {"ProjectionType": "ALL"}}]
    reason = "index byDate is local with the key PK (S), at (S), the rules have global with PK (S), at (S)"
    assert only(template, rules) == ("warning", "indexes", reason)
    assert wrong(template, indexed("{sort: at, local: true}")) == []


def test_global_index_does_not_do_for_a_local_one() -> None:
    template = written(indexed("[PK, at]"))
    local = indexed("{sort: at, local: true}")
    assert only(template, local)[:2] == ("error", "indexes")
    assert "is global with the key PK (S), at (S), the rules have local with" in only(template, local)[2]
    del properties(template, "ApplicationTable")["GlobalSecondaryIndexes"]
    assert only(template, local)[2] == "the table has no index byDate, which the rules name: PK (S), at (S)"


ALL, KEYS, XY = {"ProjectionType": "ALL"}, {"ProjectionType": "KEYS_ONLY"}, ["x", "y"]
INCLUDE = {"ProjectionType": "INCLUDE", "NonKeyAttributes": XY}


@pytest.mark.parametrize(
    ("form", "projected", "severity", "words"),
    [
        ("all", KEYS, "error", "projects keys_only, the rules have all"),
        ("keys_only", ALL, "warning", "projects all, the rules have keys_only"),
        ("[x]", INCLUDE, "warning", "projects [x, y], the rules have [x]"),
        ("[x, z]", INCLUDE, "error", "projects [x, y], the rules have [x, z]"),
    ],
)
def test_other_projection_is_an_error_only_if_it_lacks_attributes(
    form: str, projected: dict[str, Any], severity: str, words: str
) -> None:
    rules = indexed(f"{{partition: kind, sort: at, projection: {form}}}")
    template = written(rules)
    (index,) = properties(template, "ApplicationTable")["GlobalSecondaryIndexes"]
    index["Projection"] = projected
    assert only(template, rules) == (severity, "indexes", f"index byDate {words}")


def test_projected_attributes_have_no_order_and_may_include_keys() -> None:
    rules = indexed("{partition: kind, sort: at, projection: [x, y]}")
    template = written(rules)
    (index,) = properties(template, "ApplicationTable")["GlobalSecondaryIndexes"]
    assert index["Projection"] == INCLUDE
    index["Projection"] = {**INCLUDE, "NonKeyAttributes": ["y", "PK", "x", "kind"]}
    assert wrong(template, rules) == []
    index["Projection"] = "ALL"
    assert [one.reason for one in judged(template, rules)] == ["index byDate cannot be checked"]
    properties(template, "ApplicationTable")["GlobalSecondaryIndexes"] = {"Fn::ImportValue": "indexes"}
    assert [one.reason for one in judged(template, rules)] == ["the key and the indexes of the table cannot be checked"]


@pytest.mark.parametrize("kind", ["NEW_IMAGE", "KEYS_ONLY", None])
def test_a_stream_without_both_images(kind: str | None) -> None:
    template = written(deployment())
    table = properties(template, "ApplicationTable")
    table.pop("StreamSpecification")
    if kind:
        table["StreamSpecification"] = {"StreamViewType": kind}
    severity, code, reason = only(template)
    assert (severity, code) == ("error", "stream")
    assert (kind or "has no stream") in reason


def test_ttl_by_another_attribute_not_enabled_or_unknown_to_the_rules() -> None:
    template = written(deployment())
    ttl = properties(template, "ApplicationTable")["TimeToLiveSpecification"]
    ttl["AttributeName"] = "ttl"
    assert only(template)[2] == "items of the table expire by ttl, the rules require expiresAt"
    ttl.update(AttributeName="expiresAt", Enabled="no")
    assert only(template)[2] == "items of the table never expire, the rules require expiresAt"
    ttl["Enabled"] = "yes"  # YAML 1.1, which CloudFormation reads
    assert wrong(template) == []
    rules = deployment(TABLES)
    template = written(rules)
    properties(template, "ApplicationTableApp")["TimeToLiveSpecification"] = {"AttributeName": "x", "Enabled": True}
    assert only(template, rules)[:2] == ("warning", "ttl")


def test_a_ledger_with_another_key() -> None:
    template = written(deployment())
    properties(template, "LedgerTable")["KeySchema"].pop()
    assert only(template)[2] == "the key of the ledger is pk (S), the rules require pk (S), sk (S)"


# Streams


@pytest.mark.parametrize(
    ("pattern", "dropped"),
    [
        ({"dynamodb": {"NewImage": {"PK": {"S": [{"prefix": ""}]}}}}, "REMOVE, REMOVE by TTL"),
        ({"eventName": ["INSERT", "MODIFY"]}, "REMOVE, REMOVE by TTL"),
        ({"userIdentity": {"type": [{"exists": False}]}}, "REMOVE by TTL"),
    ],
)
def test_filters_on_images_event_names_and_identities_drop_records(pattern: Template, dropped: str) -> None:
    template = written(deployment())
    changes(template)["FilterCriteria"]["Filters"] = [{"Pattern": json.dumps(pattern)}]
    assert {code for _, code, _ in wrong(template)} == {"filters"}
    assert f"these events are dropped: {dropped}; rules" in wrong(template)[0][2]


@pytest.mark.parametrize(
    "pattern",
    [
        '{"dynamodb": {"Keys": {"PK": {"S": [{"anything-but": "x"}]}}}}',
        '{"$or": [{"eventName": ["INSERT"]}, {"eventName": ["REMOVE"]}]}',
        "{", "3", '{"a": 1}', '{"a": [{"prefix": 1}]}', "", '{"a": {}}', "{}",
    ],
)  # fmt: skip
def test_a_filter_that_is_not_judged_is_a_note(pattern: str) -> None:
    """Lambda may evaluate it in another way, or reject it."""
    template = written(deployment())
    changes(template)["FilterCriteria"]["Filters"] = [{"Pattern": pattern}]
    (found,) = judged(template, deployment())
    assert (found.severity, found.code) == ("note", "not-judged")
    assert "whether the filters drop needed records cannot be checked: " in found.reason


def test_without_filters_everything_arrives() -> None:
    template = written(deployment())
    del changes(template)["FilterCriteria"]
    assert wrong(template) == []


@pytest.mark.parametrize(
    ("setting", "value", "severity"),
    [
        ("FunctionResponseTypes", None, "error"),
        ("StartingPosition", "LATEST", "warning"),
        ("DestinationConfig", None, "warning"),
        ("DestinationConfig", {"OnFailure": {"Destination": {"Fn::GetAtt": ["TaskDeadLetters", "Arn"]}}}, "warning"),
    ],
)
def test_settings_under_which_records_are_lost(setting: str, value: Any, severity: str) -> None:
    template = written(deployment())
    changes(template)[setting] = value
    assert only(template)[:2] == (severity, "delivery")


LANES = """
tables: {posts: {key: [PK]}, likes: {key: [PK]}}
entities:
  Post: {table: posts, key: {PK: "POST#{postId}"}}
  Like: {table: likes, key: {PK: "LIKE#{postId}#{userId}"}}
projections:
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}, ledger: lanes}}
"""


def test_mappings_of_tables_that_are_counted_by_shards_have_a_window_and_keep_the_order() -> None:
    rules = Deployment("x", Program.from_document(loads(LANES).document()))
    template = written(rules)
    names = ("TumblingWindowInSeconds", "ParallelizationFactor", "BisectBatchOnFunctionError")
    settings = [[changes(template, event).get(name) for name in names] for event in ("ChangesLikes", "ChangesPosts")]
    assert settings == [[60, 1, False], [None, {"Ref": "ParallelizationFactor"}, True]]
    for name, value, reason in (
        ("TumblingWindowInSeconds", None, "without a tumbling window, events do not name their shard"),
        ("TumblingWindowInSeconds", 0, "without a tumbling window, events do not name their shard"),
        ("ParallelizationFactor", 2, "several batches of a shard are processed at the same time"),
        ("BisectBatchOnFunctionError", "true", "the second half of a failed batch may come before the first"),
    ):
        template = written(rules)
        changes(template, "ChangesLikes")[name] = value
        expected = f"{reason}, so rules with `ledger: lanes` (likes) cannot count"
        assert only(template, rules) == ("error", "delivery", expected)
    changes(template, "ChangesLikes")["BisectBatchOnFunctionError"] = {"Ref": "Nowhere"}
    assert [one.code for one in judged(template, rules)] == ["not-judged"]


def test_queues_may_have_any_name_and_a_queue_that_is_not_there_is_not_judged() -> None:
    template = written(deployment())
    queue = properties(template, "TaskQueue")
    for name in (None, "my-tasks"):
        queue["QueueName"] = {"Ref": "AWS::NoValue"} if name is None else name
        assert judged(template, deployment()) == []
    text = json.dumps(template).replace('"TaskQueue"', '"MyQueue"').replace("${TaskQueue", "${MyQueue")
    found = judged(json.loads(text), deployment())
    assert {one.code for one in found} == {"not-judged"}
    assert all(one.reason.endswith("resources that this template lacks cannot be checked: TaskQueue") for one in found)


def test_a_table_without_a_mapping() -> None:
    rules = deployment(TABLES)
    template = written(rules)
    del properties(template, "StreamFunction")["Events"]["ChangesStats"]
    assert only(template, rules)[:2] == ("error", "delivery")
    assert "table stats" in only(template, rules)[2]


# Functions and their environment


def test_tables_that_do_not_fit_the_rules() -> None:
    template = written(deployment())
    assert any("TABLE_NAME is set, but the rules have app" in one[2] for one in wrong(template, deployment(TABLES)))
    template = written(deployment(TABLES))
    assert any("TABLES is set, but the rules set `table:`" in one[2] for one in wrong(template))
    rules = deployment(TABLES)
    variables = template["Globals"]["Function"]["Environment"]["Variables"]
    variables["TABLES"] = '{"app": "a", "reading": "b", "stats": "c"}'
    del variables["STREAM_ARN"]
    assert any("missing: [readings]; unknown: [reading]" in one[2] for one in wrong(template, rules))


def test_a_setting_that_the_function_itself_would_refuse() -> None:
    template = written(deployment())
    template["Globals"]["Function"]["Environment"]["Variables"]["PUSH_WRITES_PER_SECOND"] = "many"
    assert {(one[0], one[1]) for one in wrong(template)} == {("error", "environment")}
    template["Globals"]["Function"]["Environment"]["Variables"].update(
        PUSH_WRITES_PER_SECOND=100, LEDGER_TABLE_NAME={"Ref": "ApplicationTable"}
    )
    assert any("Use a table of its own" in reason for _, _, reason in wrong(template))


def test_a_worker_or_an_audit_that_is_missing_is_a_warning_and_a_stream_function_an_error() -> None:
    template = written(deployment())
    del template["Resources"]["WorkerFunction"]
    assert only(template) == (
        "warning",
        "functions",
        "no function in this template has the handler handlers.worker.handler, or is called WorkerFunction",
    )
    del template["Resources"]["AuditFunction"]
    assert {one[:2] for one in wrong(template)} == {("warning", "functions")}
    assert any("has the handler handlers.audit.handler" in one[2] for one in wrong(template))
    del template["Resources"]["StreamFunction"]
    assert sorted(one[0] for one in wrong(template)) == ["error", "warning", "warning"]


def test_a_handler_of_ones_own_around_ours_is_recognised() -> None:
    template = written(deployment())
    properties(template, "StreamFunction")["Handler"] = "app.main"
    assert [one.reason for one in judged(template, deployment())] == [
        "whether the handler of StreamFunction calls handlers.stream.handler cannot be checked"
    ]


# Permissions


def test_policies_that_we_do_not_write_cannot_be_judged() -> None:
    """Such a policy may allow, or deny, any action: nothing else is said of the permissions of its function."""
    denied = {"Effect": "Deny", "Action": "dynamodb:Delete*", "Resource": {"Fn::GetAtt": ["ApplicationTable", "Arn"]}}
    for statements, managed, reason in (
        ([], ["arn:aws:iam::123456789012:policy/ours"], "not all of its role's policies are in this template"),
        ([denied], [], "only statements that allow actions on resources are read"),
        ([{"Effect": "Allow", "NotAction": "iam:*", "Resource": "*"}], [], "only statements that allow"),
    ):
        template = written(deployment())
        role = properties(template, "StreamRole")
        role["ManagedPolicyArns"] = managed
        role["Policies"][0]["PolicyDocument"]["Statement"] = statements
        (found,) = judged(template, deployment())
        assert found.code == "not-judged"
        assert f"the permissions of StreamFunction cannot be checked: {reason}" in found.reason


def test_a_role_from_elsewhere_cannot_be_judged() -> None:
    template = written(deployment())
    function = properties(template, "StreamFunction")
    for change in ({"Role": {"Fn::ImportValue": "role"}}, {"Role": None, "Policies": ["AmazonDynamoDBFullAccess"]}):
        function.update(change)
        assert [one.code for one in judged(template, deployment()) if "role is not in" in one.reason] == ["not-judged"]


def test_a_policy_that_is_a_resource_of_its_own_counts() -> None:
    template = written(deployment())
    policies = properties(template, "StreamRole")["Policies"]
    template["Resources"]["Own"] = {
        "Type": "AWS::IAM::Policy",
        "Properties": {**policies.pop(0), "Roles": [{"Ref": "StreamRole"}]},
    }
    assert wrong(template) == []
    template["Resources"]["Own"]["Properties"]["Roles"] = ["another"]
    assert {one[1] for one in wrong(template)} == {"permissions"}


@pytest.mark.parametrize(
    "resource",
    [
        {"Fn::Sub": "arn:aws:dynamodb:eu-west-1:123456789012:table/${ApplicationTable}"},
        {"Fn::Join": ["", ["arn:aws:dynamodb:*:*:table/", {"Ref": "ApplicationTable"}]]},
        ["arn:aws:dynamodb:us-east-1:1:table/else", {"Fn::GetAtt": "ApplicationTable.Arn"}],
        "arn:*:dynamodb:*:*:table/*",
        "arn:aws:dynamodb:*",
        "*",
    ],
)
def test_ways_to_name_a_table(resource: Any) -> None:
    template = written(deployment())
    statement = properties(template, "StreamRole")["Policies"][0]["PolicyDocument"]["Statement"][0]
    assert statement["Sid"] == "ApplicationTable"
    statement["Resource"] = resource
    assert wrong(template) == []


def test_a_table_named_by_the_template_is_the_same_by_its_name() -> None:
    template = written(deployment())
    properties(template, "ApplicationTable")["TableName"] = "app"
    template["Globals"]["Function"]["Environment"]["Variables"]["TABLE_NAME"] = "app"
    assert wrong(template) == []
    statement = properties(template, "StreamRole")["Policies"][0]["PolicyDocument"]["Statement"][0]
    statement["Resource"] = {"Fn::Sub": "arn:aws:dynamodb:${AWS::Region}:${AWS::AccountId}:table/app"}
    assert wrong(template) == []
    statement["Resource"] = {"Fn::Sub": "arn:aws:dynamodb:${AWS::Region}:${AWS::AccountId}:table/app2"}
    assert {one[1] for one in wrong(template)} == {"permissions"}


# Others' templates

PLAIN = """
AWSTemplateFormatVersion: "2010-09-09"
Resources:
  Data:
    Type: AWS::DynamoDB::Table
    Properties:
      TableName: prod-data
      AttributeDefinitions: [{AttributeName: PK, AttributeType: S}, {AttributeName: SK, AttributeType: S}]
      KeySchema: [{AttributeName: PK, KeyType: HASH}, {AttributeName: SK, KeyType: RANGE}]
      StreamSpecification: {StreamViewType: NEW_AND_OLD_IMAGES}
  Project:
    Type: AWS::Lambda::Function
    Properties:
      Handler: handlers.stream.handler
      Role: !ImportValue role
      Environment:
        Variables: {TABLE_NAME: !Ref Data, LEDGER_TABLE_NAME: !ImportValue ledger, RULES_FILE: rules.json}
  Stream:
    Type: AWS::Lambda::EventSourceMapping
    Properties:
      FunctionName: !GetAtt Project.Arn
      EventSourceArn: !GetAtt Data.StreamArn
      StartingPosition: TRIM_HORIZON
      FunctionResponseTypes: [ReportBatchItemFailures]
      FilterCriteria: {Filters: [{Pattern: '{"dynamodb": {"Keys": {"PK": {"S": [{"prefix": "SHOP#"}]}}}}'}]}
"""


def test_a_template_without_sam_is_read_too() -> None:
    """Rules with sales of which no filter knows; the ledger and the role come from elsewhere, which is said."""
    rules = deployment(ROOT / "tests/simulation/rules/aggregates.yaml")
    found = disagreements(template_of(PLAIN, "plain.yaml"), rules)
    reasons = [(one.line, one.severity, one.reason) for one in found]
    (unheard,) = [reason for reason in reasons if reason[1] == "error"]
    assert "no filter matches all Sale items" in unheard[2]
    assert PLAIN.splitlines()[unheard[0] - 1].strip().startswith("FilterCriteria")
    unknown = [one.reason for one in found if one.code == "not-judged"]
    assert len(unknown) == 2
    assert "ledger" in unknown[0] + unknown[1]


HOSTILE: list[Any] = [None, 3, "x", [[]], {"Ref": "Nowhere"}, {"Fn::If": ["Never", 1]}, {"Fn::Sub": [3]}, {"a": [1]}]


@pytest.mark.deep
def test_junk_anywhere_in_a_template_is_no_crash() -> None:
    rules = deployment(ROOT / "tests/simulation/rules/embeds.yaml")
    template = written(rules)
    for name in [n for n in template["Resources"] if "Alarm" in n or n == "Dashboard"]:
        del template["Resources"][name]
    every = [path for path in places(template) if path and path != ("Resources",)]
    for path, junk in zip(every, cycle(HOSTILE), strict=False):
        changed = deepcopy(template)
        at(changed, path[:-1])[path[-1]] = junk
        assert all(one.reason for one in judged(changed, rules))


# The command

Run = Callable[..., tuple[int, str, str]]


def test_findings_have_line_and_column_and_make_the_exit_code_1(run: Run, tmp_path: Path) -> None:
    text = (ROOT / "template.yaml").read_text().replace('"LIKE#POST#"', '"LIKES#"')
    path = tmp_path / "edited.yaml"
    path.write_text(text)
    code, out, _ = run("check", "social", "--template", str(path))
    assert code == 1
    line = int(out.split(":")[1])
    assert "FilterCriteria" in text.splitlines()[line - 1]
    assert "no filter matches all Like items" in out
    assert "1 finding." in out
    code, out, _ = run("check", "social", "--template", str(path), "--json")
    assert code == 1
    (finding,) = json.loads(out)["findings"]
    assert (finding["severity"], finding["code"], finding["line"]) == ("error", "filters", line)


def test_a_template_that_nobody_edited_is_to_be_generated_again(run: Run, tmp_path: Path) -> None:
    old, new, path = tmp_path / "old.yaml", tmp_path / "new.yaml", tmp_path / "template.yaml"
    text = SOCIAL.read_text()
    old.write_text(text)
    new.write_text(text.replace('"LIKE#POST#', '"LIKES#').replace('"COMMENT#', '"COMMENTS#'))
    assert run("template", str(old), "--leading-keys", "-o", str(path))[0] == 0
    code, out, _ = run("check", str(new), "--template", str(path))
    assert code == 1
    assert f"Generate it again: projections template {new} --leading-keys -o {path}\n" in out
    assert "→" not in out
    path.write_text(path.read_text().replace("Description: ", "Description: Our ", 1))
    code, out, _ = run("check", str(new), "--template", str(path))
    assert code == 1
    assert "Generate it again" not in out
    assert out.count("use the filters that `projections template` writes") == 1
    assert out.count("→ as above\n") == 1


@pytest.mark.parametrize("text", ["", "a: [", "Resources: 3", "\tx", "Resources: {a: 1, a: 2}"])
def test_a_file_that_is_no_template_is_exit_code_2(run: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text(text)
    code, out, err = run("check", "social", "--template", str(path))
    assert (code, out) == (2, "")
    assert err.startswith(f"{path}:1:")
    assert run("check", "social", "--template", str(tmp_path / "none"))[0] == 2


def test_template_without_our_functions_is_a_finding(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "empty.json"
    path.write_text('{"Resources": {}}')
    code, out, _ = run("check", "social", "--template", str(path))
    assert code == 1
    assert "no function in this template has the handler handlers.stream.handler" in out
