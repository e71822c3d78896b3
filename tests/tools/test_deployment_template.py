"""`projections template`: for any rules, a SAM template without warnings that has what these rules need and no more."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from emulators import ROOT

from projections.deploy.cloudformation import FUNCTION, Resolution, placeholders, template_of
from projections.deploy.needs import Deployment
from projections.deploy.plain import cloudformation_template, with_values
from projections.deploy.sam_template import sam_template
from projections.engine.store import ItemKey
from projections.errors import UsageError
from projections.language.loader import load, loads
from projections.language.program import Program
from projections.stores.memory import MemoryStore
from projections.testing.simulation.history import Setup

SOCIAL = ROOT / "projections/rules/social.yaml"
RULE_FILES = sorted((ROOT / "tests/simulation/rules").glob("*.yaml"))
TABLES = ROOT / "tests/simulation/rules/tables.yaml"
EMBEDS = ROOT / "tests/simulation/rules/embeds.yaml"

Run = Callable[..., tuple[int, str, str]]

HOSTILE = """
tables:
  order-lines: {key: {on: S, "a: b": N}, indexes: {by.date: {partition: [yes, "null"], sort: ["é\\"'"]}}, ttl: "off"}
  order_lines: {key: [id], separator: "/"}
  main: {key: [PK, SK]}
  unused: {key: [PK]}
entities:
  Line: {table: order-lines, key: {on: "L\\"é  #{x}", "a: b": "{n}"}}
  Other: {table: order_lines, key: {id: "it's/{x}/100%"}}
  Sum: {table: main, key: {PK: "SUM\\u2028#{x}", SK: "$ {{x}} !Ref"}, derived: true}
projections:
  sum: {from: Line, aggregate: {into: Sum, set: {n: count}}}
  other: {from: Line, aggregate: {into: Other, set: {n: count}}}
"""


def deployment(path: Path, *, existing: bool = False) -> Deployment:
    return Deployment("rules.yaml", Program.from_document(load(path).document()), existing)


def parsed(text: str) -> Mapping[str, Any]:
    return template_of(text).data


def test_the_committed_template_is_that_of_the_shipped_rules(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the byte, wherever the command is called; if it is not, `make template`."""
    monkeypatch.chdir(tmp_path)
    assert run("template", "social") == (0, (ROOT / "template.yaml").read_text(encoding="utf-8"), "")


@pytest.mark.deep
def test_cfn_lint_finds_nothing_in_any_template(tmp_path: Path) -> None:
    (tmp_path / "hostile.rules").write_text(HOSTILE)
    needs = [path for path in RULE_FILES if path.stem in ("braces", "chains", "lists", "sources")]
    for path in [SOCIAL, TABLES, EMBEDS, *needs, tmp_path / "hostile.rules"]:
        (tmp_path / f"{path.stem}.yaml").write_text(sam_template(deployment(path)))
    for path in (TABLES, EMBEDS):
        (tmp_path / f"{path.stem}-existing.yaml").write_text(sam_template(deployment(path, existing=True)))
    messages = replace(deployment(TABLES), notify=("totals", "perDevice"))
    for number, notifying in enumerate((messages, replace(messages, existing=True))):
        (tmp_path / f"messages{number}.yaml").write_text(sam_template(notifying))
    plain = cloudformation_template(deployment(TABLES))
    valued = with_values(plain, {"KmsKeyArn": "arn:aws:kms:us-east-1:111122223333:key/1"})
    for name, template in (("plain", plain), ("valued", valued)):
        (tmp_path / f"{name}.json").write_text(json.dumps(template))
    command = [Path(sys.executable).with_name("cfn-lint"), *tmp_path.glob("*.yaml"), *tmp_path.glob("*.json")]
    done = subprocess.run(command, text=True, capture_output=True, timeout=600, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_the_tables_have_the_keys_indexes_and_ttl_of_the_rules_whatever_their_names() -> None:
    resources = parsed(sam_template(Deployment("x", Program.from_document(loads(HOSTILE).document()))))["Resources"]
    lines = resources["ApplicationTableOrderLines"]["Properties"]
    types = {one["AttributeName"]: one["AttributeType"] for one in lines["AttributeDefinitions"]}
    assert types == {"on": "S", "a: b": "N", "yes": "S", "null": "S", "é\"'": "S"}
    assert [one["AttributeName"] for one in lines["KeySchema"]] == ["on", "a: b"]
    (index,) = lines["GlobalSecondaryIndexes"]
    assert index["IndexName"] == "by.date"
    elements = [(one["AttributeName"], one["KeyType"]) for one in index["KeySchema"]]
    assert elements == [("yes", "HASH"), ("null", "HASH"), ("é\"'", "RANGE")]
    assert lines["TimeToLiveSpecification"] == {"AttributeName": "off", "Enabled": True}
    assert "TimeToLiveSpecification" not in resources["ApplicationTable"]["Properties"]
    assert resources["ApplicationTableOrderLines2"]["Properties"]["KeySchema"] == [
        {"AttributeName": "id", "KeyType": "HASH"}
    ]


def test_indexes_have_the_projection_and_the_kind_of_the_rules() -> None:
    text = """
table:
  key: [PK, SK]
  indexes:
    Every: [a, b]
    Keys: {partition: a, projection: keys_only}
    Some: {partition: a, projection: [yes, "x: y"]}
    Mine: {sort: {at: N}, local: true, projection: [title]}
entities: {A: {key: {PK: "A#{a}", SK: "{b}"}}}
"""
    rules = Deployment("x", Program.from_document(loads(text).document()))
    table = parsed(sam_template(rules))["Resources"]["ApplicationTable"]["Properties"]
    assert {one["IndexName"]: one["Projection"] for one in table["GlobalSecondaryIndexes"]} == {
        "Every": {"ProjectionType": "ALL"},
        "Keys": {"ProjectionType": "KEYS_ONLY"},
        "Some": {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["x: y", "yes"]},
    }
    (local,) = table["LocalSecondaryIndexes"]
    assert local["Projection"] == {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["title"]}
    assert [(one["AttributeName"], one["KeyType"]) for one in local["KeySchema"]] == [("PK", "HASH"), ("at", "RANGE")]
    assert {"AttributeName": "at", "AttributeType": "N"} in table["AttributeDefinitions"]


def test_filters_are_valid_for_any_text_in_keys() -> None:
    """Folded YAML keeps two spaces, quotes, characters that do not print, and what looks like a function."""
    resources = parsed(sam_template(Deployment("x", Program.from_document(loads(HOSTILE).document()))))["Resources"]
    events = resources["StreamFunction"]["Properties"]["Events"]
    keys = {
        name: json.loads(event["Properties"]["FilterCriteria"]["Filters"][0]["Pattern"])
        for name, event in events.items()
    }
    assert keys["ChangesOrderLines"] == {"dynamodb": {"Keys": {"on": {"S": [{"prefix": 'L"é  #'}]}}}}
    assert keys["ChangesOrderLines2"] == {"dynamodb": {"Keys": {"id": {"S": [{"prefix": "it's/"}]}}}}
    wanted = {"PK": {"S": [{"prefix": "SUM\u2028#"}]}, "SK": {"S": ["$ {x} !Ref"]}}
    assert keys["Changes"]["dynamodb"]["Keys"] == wanted
    assert keys["ChangesUnused"] == {"eventName": [{"exists": False}]}


def test_several_tables_have_names_mappings_and_alarms() -> None:
    template = parsed(sam_template(deployment(TABLES)))
    variables = template["Globals"]["Function"]["Environment"]["Variables"]
    text, names = variables["TABLES"]["Fn::Sub"]
    assert json.loads(text) == {"app": "${TableApp}", "readings": "${TableReadings}", "stats": "${TableStats}"}
    assert names["TableApp"] == {
        "Fn::If": ["CreateTableApp", {"Ref": "ApplicationTableApp"}, {"Ref": "ExistingTableNameApp"}]
    }
    assert "TABLE_NAME" not in variables
    assert len(variables["STREAM_ARN"]["Fn::Join"][1]) == 3
    events = template["Resources"]["StreamFunction"]["Properties"]["Events"]
    assert set(events) == {"ChangesApp", "ChangesReadings", "ChangesStats"}
    (dimension,) = template["Resources"]["DroppedAlarmStats"]["Properties"]["Dimensions"]
    assert dimension["Value"] == {"Ref": "StreamFunctionChangesStats"}


def test_for_existing_tables_names_are_needed_and_no_table_but_the_ledger_is_made() -> None:
    template = parsed(sam_template(deployment(EMBEDS, existing=True)))
    assert "Default" not in template["Parameters"]["ExistingTableName"]
    tables = [name for name, one in template["Resources"].items() if one["Type"] == "AWS::DynamoDB::Table"]
    assert tables == ["LedgerTable"]
    assert "CreateTable" not in template["Conditions"]
    assert "Rules" not in template


@pytest.mark.parametrize("existing", [False, True])
def test_a_ledger_that_exists_stands_everywhere_in_place_of_a_new_one(existing: bool) -> None:
    document = template_of(sam_template(deployment(TABLES, existing=existing)))
    document.data["Parameters"]["ExistingLedgerTableName"]["Default"] = "kept"
    resolution = Resolution(document)
    assert "LedgerTable" not in resolution.resources
    resolved = [one.properties for one in resolution.resources.values()]
    assert not [name for name in placeholders(resolved) if name.startswith("LedgerTable")]
    assert resolution.value(document.data["Outputs"]["LedgerTableName"]["Value"]) == "kept"
    for function in resolution.of_type(FUNCTION):
        assert function.properties["Environment"]["Variables"]["LEDGER_TABLE_NAME"] == "kept"
    for role in resolution.of_type("AWS::IAM::Role"):
        assert "table/kept" in json.dumps(role.properties)


KEY, TABLE_KEY = (f"arn:aws:kms:us-east-1:111122223333:key/{name}" for name in ("ours", "tables"))


def test_a_customer_managed_key_encrypts_all_that_the_stack_makes_and_every_role_may_use_it() -> None:
    document = template_of(sam_template(deployment(TABLES)))
    document.data["Parameters"]["KmsKeyArn"]["Default"] = KEY
    resolution = Resolution(document)
    keys = {
        "AWS::DynamoDB::Table": ("SSESpecification", "KMSMasterKeyId"),
        "AWS::SQS::Queue": ("KmsMasterKeyId",),
        "AWS::Logs::LogGroup": ("KmsKeyId",),
        FUNCTION: ("KmsKeyArn",),
    }
    for kind, path in keys.items():
        for one in resolution.of_type(kind):
            value: Any = one.properties
            for step in path:
                value = value[step]
            assert value == KEY, one.id
    (bucket,) = resolution.of_type("AWS::S3::Bucket")
    (encryption,) = bucket.properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
    assert encryption["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": KEY}
    assert not any(one.properties["SqsManagedSseEnabled"] for one in resolution.of_type("AWS::SQS::Queue"))
    assert [one.properties["ManagedPolicyArns"] for one in resolution.of_type("AWS::IAM::Role")] == [
        ["${KeyPolicy}"]
    ] * 3
    (statement,) = resolution.resources["KeyPolicy"].properties["PolicyDocument"]["Statement"]
    assert statement["Resource"] == KEY
    assert services_of(statement) == ["dynamodb", "lambda"]


@pytest.mark.parametrize(
    ("role", "services"), [("StreamRole", ["s3", "sqs"]), ("WorkerRole", ["sqs"]), ("AuditRole", [])]
)
def test_a_role_has_the_parts_of_the_key_that_its_function_uses(role: str, services: list[str]) -> None:
    """The audit neither sends nor receives messages, and only the stream's discarded records are in the bucket."""
    document = template_of(sam_template(deployment(TABLES)))
    without = statements_on_keys(Resolution(document), role)
    document.data["Parameters"]["KmsKeyArn"]["Default"] = KEY
    found = statements_on_keys(Resolution(document), role)
    assert without == []
    assert [(one["Resource"], service) for one in found for service in services_of(one)] == [
        (KEY, service) for service in services
    ]


def statements_on_keys(resolution: Resolution, role: str) -> list[dict[str, Any]]:
    policies = resolution.resources[role].properties["Policies"]
    statements = [one for policy in policies for one in policy["PolicyDocument"]["Statement"]]
    return [one for one in statements if any(action.startswith("kms:") for action in one["Action"])]


def services_of(statement: dict[str, Any]) -> list[str]:
    """The services through which a statement allows the use of a key."""
    services = statement["Condition"]["StringLike"]["kms:ViaService"]
    return [one.partition(".")[0] for one in ([services] if isinstance(services, str) else services)]


def test_the_keys_of_tables_that_exist_are_for_dynamodb_only() -> None:
    document = template_of(sam_template(deployment(TABLES, existing=True)))
    document.data["Parameters"]["ExistingTableKeyArns"]["Default"] = TABLE_KEY
    resolution = Resolution(document)
    (statement,) = resolution.resources["KeyPolicy"].properties["PolicyDocument"]["Statement"]
    assert statement["Resource"] == [TABLE_KEY]
    assert statement["Condition"] == {"StringLike": {"kms:ViaService": "dynamodb.${AWS::Region}.*"}}
    assert "KMSMasterKeyId" not in resolution.resources["LedgerTable"].properties["SSESpecification"]


def test_without_keys_there_is_no_policy_for_them() -> None:
    resolution = Resolution(template_of(sam_template(deployment(TABLES))))
    assert "KeyPolicy" not in resolution.resources
    assert all("ManagedPolicyArns" not in one.properties for one in resolution.of_type("AWS::IAM::Role"))


def statements(template: Mapping[str, Any], role: str) -> list[Mapping[str, Any]]:
    policies = template["Resources"][role]["Properties"]["Policies"]
    return [one for policy in policies for one in policy.get("PolicyDocument", {}).get("Statement", ())]


def actions(template: Mapping[str, Any], role: str, table: str) -> set[str]:
    """What a role may do with a table, without `dynamodb:`."""
    allowed = [one["Action"] for one in statements(template, role) if one["Sid"] == table]
    return {action.removeprefix("dynamodb:") for each in allowed for action in each}


def test_permissions_are_the_least_that_the_rules_need() -> None:
    """An aggregate reads one table and writes another, a copy deletes, an embed queries, a backfill scans."""
    template = parsed(sam_template(deployment(TABLES)))
    assert actions(template, "StreamRole", "ApplicationTableReadings") == {"BatchGetItem", "GetItem"}
    updates = {"BatchGetItem", "GetItem", "PartiQLUpdate", "UpdateItem"}
    assert actions(template, "StreamRole", "ApplicationTableApp") == updates
    assert actions(template, "StreamRole", "ApplicationTableStats") == {
        *("BatchGetItem", "GetItem", "UpdateItem", "DeleteItem")
    }
    assert actions(template, "AuditRole", "ApplicationTableStats") == {"BatchGetItem", "GetItem", "Scan"}
    backfill = {"BatchGetItem", "DeleteItem", "GetItem", "Scan", "UpdateItem"}
    assert actions(template, "WorkerRole", "ApplicationTableStats") == backfill
    template = parsed(sam_template(deployment(EMBEDS)))
    assert actions(template, "WorkerRole", "ApplicationTable") == backfill | {"PartiQLUpdate", "Query"}


def test_a_pipe_may_only_read_the_stream_of_its_table_and_put_to_the_bus() -> None:
    """Its filters test no `eventName`, which pipes refuse. Deletions pass only of items that rules delete."""
    notifying = replace(deployment(TABLES), notify=("perDevice", "totals"))
    template = parsed(sam_template(notifying))
    pipes = {name: one["Properties"] for name, one in template["Resources"].items() if "Pipe" in one["Type"]}
    assert pipes.keys() == {"MessagesApp", "MessagesStats"}
    stream, bus, failed = statements(template, "MessagesRoleStats")
    assert (failed["Action"], failed["Resource"]) == ("sqs:SendMessage", {"Fn::GetAtt": ["MessagesDeadLetters", "Arn"]})
    pipe = pipes["MessagesStats"]
    assert (stream["Resource"], bus["Resource"], bus["Action"]) == (pipe["Source"], pipe["Target"], "events:PutEvents")
    assert {action.partition(":")[0] for action in stream["Action"]} == {"dynamodb"}
    images = {table.name: [[*one["dynamodb"]] for one in table.messages] for table in notifying.tables}
    assert images == {"app": [["NewImage"]], "readings": [], "stats": [["NewImage"], ["OldImage"]]}
    for wrong, reason in {"total": 'mean "totals"', "copies": "aggregate, top, latest and flag"}.items():
        with pytest.raises(UsageError, match=reason):
            sam_template(replace(notifying, notify=(wrong,)))


def key_conditions(text: str, role: str) -> dict[str, tuple[set[str], list[str]]]:
    """By table of the template: the actions under a condition on partition keys, and the patterns of these."""
    return {
        one["Sid"]: (set(one["Action"]), one["Condition"]["ForAllValues:StringLike"]["dynamodb:LeadingKeys"])
        for one in statements(parsed(text), role)
        if "ForAllValues:StringLike" in one.get("Condition", {})
    }


def admits(pattern: str, key: str) -> bool:
    """IAM's StringLike: `*` is any text, `${*}` the character."""
    parts = re.split(r"(\$\{[*?$]\}|[*?])", pattern)
    found = {"*": ".*", "?": "."}
    return (
        re.fullmatch("".join(found.get(p) or re.escape(p[2] if p[:2] == "${" else p) for p in parts), key) is not None
    )


@pytest.mark.parametrize("path", RULE_FILES[::3], ids=lambda path: path.stem)
def test_leading_keys_admit_every_request_of_the_functions(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of stream function, worker, backfills and repairs in histories of the simulation, with its faults and changes."""
    rules = load(path)
    program = Program.from_document(rules.document())
    try:
        text = sam_template(Deployment("rules.yaml", program, leading_keys=True))
    except UsageError as error:
        assert "--leading-keys needs partition keys that begin with constant text" in str(error)  # noqa: PT017
        assert any(one.unrestricted for one in Deployment("", program).tables)
        return
    asked: set[tuple[str, str]] = set()

    def noting(method: str, keys: Callable[..., list[ItemKey]]) -> None:
        original = getattr(MemoryStore, method)

        def call(self: MemoryStore, *given: Any, **more: Any) -> Any:
            asked.update((key.table, key.partition) for key in keys(*given) if key.table in program.tables)
            return original(self, *given, **more)

        monkeypatch.setattr(MemoryStore, method, call)

    noting("get", lambda key, *_: [key])
    noting("get_many", list)
    noting("write", lambda write, *_: [write.key])
    noting("write_each", lambda writes: [one.key for one in writes])
    setup = Setup(rules.document())
    for seed in range(2):
        assert setup.play(seed).problems == []
    assert asked
    tables = {one.name: f"ApplicationTable{one.suffix}" for one in Deployment("", program).tables}
    for role in ("StreamRole", "WorkerRole"):
        conditions = key_conditions(text, role)
        assert conditions.keys() == set(tables.values())
        assert not any("Scan" in action for found, _ in conditions.values() for action in found)
        refused = [(t, k) for t, k in asked if not any(admits(p, k) for p in conditions[tables[t]][1])]
        assert refused == []
    assert key_conditions(text, "AuditRole") == {}, "it scans, which no condition on keys restricts"


def test_leading_keys_are_escaped_and_the_least() -> None:
    rules = """
table: {key: [PK, SK]}
entities:
  Wild: {key: {PK: "A*B?$#{x}", SK: X}}
  One: {key: {PK: "SETTINGS", SK: "{y}"}}
  Longer: {key: {PK: "SET#1#{z}", SK: X}}
  Shorter: {key: {PK: "SET#{u}", SK: "Y#{v}"}}
projections:
  a: {from: Wild, bind: {y: "{x}"}, aggregate: {into: One, set: {n: count}}}
  b: {from: Longer, bind: {u: "{z}", v: "{z}"}, aggregate: {into: Shorter, set: {m: count}}}
"""
    program = Program.from_document(loads(rules).document())
    (_, keys) = key_conditions(sam_template(Deployment("x", program, leading_keys=True)), "StreamRole")[
        "ApplicationTable"
    ]
    assert keys == ["A${*}B${?}${$}#*", "SETTINGS", "SET#*"]
    for text in ('"{x}#A"', '"A#{x}", retired: {c: remove}'):
        changed = rules.replace('"A*B?$#{x}"', text.split(",")[0])
        changed += "retired: {c: remove}\n" if "retired" in text else ""
        with pytest.raises(UsageError, match="Omit --leading-keys"):
            sam_template(Deployment("x", Program.from_document(loads(changed).document()), leading_keys=True))


def test_only_embeds_that_go_through_an_index_may_query_it() -> None:
    assert "/index/GSI1" in sam_template(deployment(EMBEDS))
    assert "/index/" not in sam_template(deployment(ROOT / "tests/simulation/rules/index.yaml"))


def test_an_index_that_aws_refuses_is_refused_here() -> None:
    rules = 'table: {key: [PK], indexes: {"my index": [a]}}\nentities: {A: {key: {PK: "A#{x}"}}}\n'
    with pytest.raises(UsageError, match=r"my index.*letters"):
        sam_template(Deployment("x", Program.from_document(loads(rules).document())))


def test_output_option_writes_the_file(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "out.yaml"
    assert run("template", str(TABLES), "-o", str(target)) == (0, "", f"Wrote {target}.\n")
    assert target.read_text().startswith("AWSTemplateFormatVersion")
    code, out, err = run("template", str(TABLES), "-o", str(tmp_path / "none/out.yaml"))
    assert (code, out) == (2, "")
    assert "cannot be written" in err
