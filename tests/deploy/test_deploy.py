"""`sam build && sam deploy`, a write, and the projection it makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from emulators import ROOT
from sam_cli import AWS, Sam

from projections.aws.live_tables import create_table
from projections.engine.embed_lists import CHILDREN_PER_PAGE
from projections.language.loader import load
from projections.language.program import Program
from projections.operations.redaction import key_hash

Outputs = Mapping[str, str]

SKIPPED = "DELETE_SKIPPED"
BOTH_IMAGES = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


@pytest.fixture(scope="session")
def stack(sam: Sam, built: Path) -> Outputs:
    sam.deploy("shipped", BatchingWindowSeconds="0")
    found = outputs("shipped", sam.endpoint)
    keep_label(found["StreamFunctionName"], sam.endpoint)
    projections(sam, "apply", "social", "--stack", "shipped", "--yes")
    return found


def test_commands_use_the_rules_in_the_built_package(stack: Outputs, sam: Sam, built: Path, tmp_path: Path) -> None:
    """They need no rule file, and see what feeds the function. First: nothing has run the audit yet."""

    def projections(*arguments: str) -> tuple[int, str, str]:
        command = [sys.executable, "-m", "projections", *arguments, "--stack", "shipped"]
        environment = {**AWS, "AWS_ENDPOINT_URL": sam.endpoint, "PATH": "/usr/bin"}
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, text=True, capture_output=True, timeout=120, check=False
        )
        return done.returncode, done.stdout, done.stderr

    def status() -> dict[str, Any]:
        code, out, err = projections("status", "--json")
        assert (code in (0, 1), err) == (True, "")
        return dict(json.loads(out))

    put, functions = writer(stack, sam.endpoint), client(sam.endpoint, "lambda")
    put(PK="USER#u7", SK="POST#2026#p7", postId="p7", userId="u7", title="Known", status="draft")
    said = status()
    rules = json.loads((built / "rules.json").read_text())["projections"]
    assert said["versions"] == {f"{name}.1": "active" for name in rules}
    found = {one["subject"]: one for one in said["findings"]}
    assert found["stream"]["says"].startswith("Enabled, last result: ")
    assert found["audit"]["says"] == "has not run yet (rate(1 hour))"
    assert said["attention"] is False
    code, out, err = projections("verify", "--patience", "0")
    assert code in (0, 1), err
    assert "Items read" in out
    name = stack["StreamFunctionName"]
    (mapping,) = functions.list_event_source_mappings(FunctionName=name)["EventSourceMappings"]
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=False)
    code, out, err = projections("status")
    assert (code, err) == (1, "")
    assert f"Run `aws lambda update-event-source-mapping --uuid {mapping['UUID']} --enabled`." in out
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)


def test_a_write_ends_in_the_projections(stack: Outputs, sam: Sam) -> None:
    """A post is copied under its id, and the likes of it are counted, also when one is taken back."""
    put = writer(stack, sam.endpoint)
    put(PK="USER#u1", SK="POST#2026-01-05T10:00:00Z#p1", postId="p1", userId="u1", title="Hello", status="draft")
    for user in ("u2", "u3", "u4"):
        put(PK=f"USER#{user}", SK="LIKE#POST#p1", userId=user, postId="p1")
    copy = eventually(
        lambda: read(stack, sam.endpoint, "POST#p1", "METADATA"), lambda item: number(item, "likeCount") == 3
    )
    assert copy["title"] == {"S": "Hello"}

    client(sam.endpoint, "dynamodb").delete_item(
        TableName=stack["TableName"], Key={"PK": {"S": "USER#u3"}, "SK": {"S": "LIKE#POST#p1"}}
    )
    put(PK="USER#u1", SK="POST#2026-01-05T10:00:00Z#p1", postId="p1", userId="u1", title="Hello again", status="draft")
    copy = eventually(
        lambda: read(stack, sam.endpoint, "POST#p1", "METADATA"),
        lambda item: number(item, "likeCount") == 2 and item["title"] == {"S": "Hello again"},
    )
    assert copy["title"] == {"S": "Hello again"}


def test_a_record_that_no_rule_can_use_is_quarantined_and_others_go_on(stack: Outputs, sam: Sam) -> None:
    """`publishedAt` is no time, so that `listed` has no index key for it; the copy is made all the same."""
    post = {"postId": "p9", "userId": "u9", "title": "When?", "status": "published", "publishedAt": "soon"}
    writer(stack, sam.endpoint)(PK="USER#u9", SK="POST#2026-01-06T10:00:00Z#p9", **post)
    copy = eventually(lambda: read(stack, sam.endpoint, "POST#p9", "METADATA"), lambda item: "title" in item)
    assert copy["title"] == {"S": "When?"}
    message = eventually(lambda: quarantined(stack, sam.endpoint), lambda found: found.get("rule") == "listed")
    assert "soon" in message["reason"] or "publishedAt" in message["reason"]
    assert "POST#p9" in message["key"]
    assert "When?" not in json.dumps(message)


def test_a_new_name_reaches_every_comment_page_by_page(stack: Outputs, sam: Sam) -> None:
    """More children than a page holds: the stream's function updates the first page, the worker all others."""
    dynamodb, table, children = client(sam.endpoint, "dynamodb"), stack["TableName"], CHILDREN_PER_PAGE + 100
    put = writer(stack, sam.endpoint)
    put(PK="USER#ada", SK="PROFILE", userId="ada", name="Ada Lovelace")
    comments = [comment(number, "ada") for number in range(children)]
    for start in range(0, children, 25):
        requests = [{"PutRequest": {"Item": item}} for item in comments[start : start + 25]]
        assert not dynamodb.batch_write_item(RequestItems={table: requests})["UnprocessedItems"]
    named(stack, sam.endpoint, "ada", "Ada Lovelace", children)

    put(PK="USER#ada", SK="PROFILE", userId="ada", name="Ada King")
    named(stack, sam.endpoint, "ada", "Ada King", children)
    eventually(lambda: waiting(stack, sam.endpoint), lambda found: set(found.values()) == {"0"})
    done = metrics(stack["WorkerFunctionName"], sam.endpoint)
    assert done["embedded"] >= children - CHILDREN_PER_PAGE
    assert done["pushes"] > 0
    assert done["failures"] == 0


def test_audit_finds_drift(stack: Outputs, sam: Sam) -> None:
    """Of a sum that was damaged in the ledger, where no stream tells of it, the second run is certain; it is a metric."""
    assert schedules(sam.endpoint)["shipped"] == "ENABLED"
    put, dynamodb = writer(stack, sam.endpoint), client(sam.endpoint, "dynamodb")
    put(PK="USER#u5", SK="POST#2026-01-07T10:00:00Z#p5", postId="p5", userId="u5", title="Audited", status="draft")
    put(PK="USER#u6", SK="LIKE#POST#p5", userId="u6", postId="p5")
    eventually(lambda: read(stack, sam.endpoint, "POST#p5", "METADATA"), lambda item: number(item, "likeCount") == 1)

    def audit() -> Mapping[str, Any]:
        answer = client(sam.endpoint, "lambda").invoke(FunctionName=stack["AuditFunctionName"], Payload=b"{}")
        found: Mapping[str, Any] = json.loads(answer["Payload"].read())
        return found

    eventually(audit, lambda found: found["items"] > 0 and found["drift"] == 0)
    (group,) = (
        item
        for item in dynamodb.scan(TableName=stack["LedgerTableName"])["Items"]
        if item["pk"]["S"].startswith("G|") and "POST#p5" in item["pk"]["S"] and item["n"] == {"N": "1"}
    )
    dynamodb.put_item(TableName=stack["LedgerTableName"], Item={**group, "n": {"N": "7"}})
    found = eventually(audit, lambda found: found["drift"] > 0)
    assert (found["drift"], found["skipped"]) == (1, None)
    dynamodb.put_item(TableName=stack["LedgerTableName"], Item=group)
    eventually(audit, lambda found: found["drift"] == 0)
    told = metrics(stack["AuditFunctionName"], sam.endpoint)
    assert (told["drift"], told["driftPerMillion"] > 0) == (1, True)


def schedules(endpoint: str) -> Mapping[str, str]:
    """The state of the rule that runs the audit, by stack."""
    rules = client(endpoint, "events").list_rules()["Rules"]
    return {rule["Name"].partition("-")[0]: rule["State"] for rule in rules}


def test_counters_kept_by_hand_are_counted_logs_are_redacted_and_a_retained_ledger_goes_on(
    sam: Sam, built: Path
) -> None:
    """The life of a stack on a table that exists.

    Its rules fill at first: a like does not turn a `likeCount` of 50 into 1. The texts that may stay in logs are
    read from the package's bytecode. The stack is deleted, and deployed again with the names of both tables; MiniStack
    then sends all records again.
    """
    dynamodb = client(sam.endpoint, "dynamodb")
    create_table(dynamodb, "mine", social().tables["main"], stream=False)
    put = writer({"TableName": "mine"}, sam.endpoint)
    put(PK="USER#u1", SK="POST#2026#p1", postId="p1", userId="u1", title="Mine", status="draft")
    for user in ("u2", "u3", "u4"):
        put(PK=f"USER#{user}", SK="LIKE#POST#p1", userId=user, postId="p1")
    counted = {"PK": "POST#p1", "SK": "METADATA", "EntityType": "PostMeta", "title": "By hand"}
    wire = {name: {"S": text} for name, text in counted.items()}
    dynamodb.put_item(TableName="mine", Item={**wire, "likeCount": {"N": "50"}})
    table = dynamodb.update_table(TableName="mine", StreamSpecification=BOTH_IMAGES)["TableDescription"]
    names = {"ExistingTableName": "mine", "ExistingStreamArn": table["LatestStreamArn"], "BatchingWindowSeconds": "0"}
    sam.deploy("existing", **names, AuditSchedule="off", Redact="all")
    assert schedules(sam.endpoint)["existing"] == "DISABLED"
    found = outputs("existing", sam.endpoint)
    assert found["TableName"] == "mine"
    keep_label(found["StreamFunctionName"], sam.endpoint)

    put(PK="USER#u5", SK="LIKE#POST#p1", userId="u5", postId="p1")
    eventually(lambda: entries(found, sam.endpoint), lambda ledger: any("USER#u5" in name for name in ledger))
    assert read(found, sam.endpoint, "POST#p1", "METADATA")["likeCount"] == {"N": "50"}
    projections(sam, "apply", "social", "--stack", "existing", "--yes")
    post = read(found, sam.endpoint, "POST#p1", "METADATA")
    assert (post["likeCount"], post["title"]) == ({"N": "4"}, {"S": "Mine"})

    post = {"postId": "p9", "userId": "zoe@example.org", "title": "t", "status": "published"}
    put(PK="USER#zoe@example.org", SK="POST#2026-01-06T10:00:00Z#p9", **post, publishedAt="the day Zoe left")
    message = eventually(lambda: quarantined(found, sam.endpoint), lambda one: one.get("rule") == "listed")
    assert "publishedAt (a string, '…') does not fit date(%Y-%m)" in message["reason"]
    key = {"pk": {"S": "A"}, "sk": {"S": "secret"}}
    item = dynamodb.get_item(TableName=found["LedgerTableName"], Key=key)["Item"]
    assert message["keyHash"] == key_hash(item["secret"]["S"], message["key"])
    lines = eventually(
        lambda: {"all": logs(found["StreamFunctionName"], sam.endpoint)}, lambda one: "rejected: " in one["all"]
    )
    assert message["keyHash"] in lines["all"]
    assert "zoe" not in lines["all"].lower()
    zoe = {"PK": {"S": "USER#zoe@example.org"}, "SK": {"S": "POST#2026-01-06T10:00:00Z#p9"}}
    dynamodb.delete_item(TableName="mine", Key=zoe)
    eventually(lambda: read(found, sam.endpoint, "POST#p9", "METADATA"), lambda item: not item)

    cloudformation = client(sam.endpoint, "cloudformation")
    cloudformation.delete_stack(StackName="existing")
    cloudformation.get_waiter("stack_delete_complete").wait(StackName="existing", WaiterConfig={"Delay": 1})
    ledger, before = found["LedgerTableName"], dynamodb.list_tables()["TableNames"]
    assert {"mine", ledger} <= set(before)
    like = {"PK": {"S": "USER#u3"}, "SK": {"S": "LIKE#POST#p1"}}
    dynamodb.delete_item(TableName="mine", Key=like)  # while there is no stack
    sam.deploy("second", **names, ExistingLedgerTableName=ledger)
    second = outputs("second", sam.endpoint)
    assert (second["LedgerTableName"], dynamodb.list_tables()["TableNames"]) == (ledger, before)
    keep_label(second["StreamFunctionName"], sam.endpoint)
    for user in ("u6", "u7"):
        put(PK=f"USER#{user}", SK="LIKE#POST#p1", userId=user, postId="p1")
    eventually(
        lambda: read(second, sam.endpoint, "POST#p1", "METADATA"), lambda item: number(item, "likeCount") == 5, 60
    )
    projections(sam, "verify", "--stack", "second", "--patience", "1")


def logs(name: str, endpoint: str) -> str:
    """All that a function has logged."""
    function = client(endpoint, "lambda").get_function_configuration(FunctionName=name)
    pages = (
        client(endpoint, "logs")
        .get_paginator("filter_log_events")
        .paginate(logGroupName=function["LoggingConfig"]["LogGroup"])
    )
    return "\n".join(event["message"] for page in pages for event in page["events"])


@cache
def client(endpoint: str, service: str, region: str = "us-east-1", account: str = "test") -> Any:
    return boto3.client(
        service, endpoint_url=endpoint, region_name=region, aws_access_key_id=account, aws_secret_access_key="test"
    )


def outputs(stack: str, endpoint: str) -> Outputs:
    described = client(endpoint, "cloudformation").describe_stacks(StackName=stack)["Stacks"][0]
    return {output["OutputKey"]: output["OutputValue"] for output in described["Outputs"]}


def writer(stack: Outputs, endpoint: str) -> Callable[..., None]:
    dynamodb = client(endpoint, "dynamodb")

    def put(**item: str) -> None:
        dynamodb.put_item(TableName=stack["TableName"], Item={name: {"S": text} for name, text in item.items()})

    return put


def read(stack: Outputs, endpoint: str, partition: str, sort: str) -> Mapping[str, Any]:
    key = {"PK": {"S": partition}, "SK": {"S": sort}}
    answer = client(endpoint, "dynamodb").get_item(TableName=stack["TableName"], Key=key, ConsistentRead=True)
    item: Mapping[str, Any] = answer.get("Item", {})
    return item


def test_a_first_deployment_that_fails_leaves_only_protected_tables(sam: Sam, built: Path, tmp_path: Path) -> None:
    """Queues and bucket are removed with it, so that it can be repeated; to remove a protected table would fail."""
    template = tmp_path / "template.yaml"
    text = (built.parent / "template.yaml").read_text().replace("CodeUri: ", f"CodeUri: {built.parent}/")
    client(sam.endpoint, "events").create_event_bus(Name="taken")
    wrong = (
        "  Wrong: {Type: AWS::Events::EventBus, DependsOn: [QueuePolicy, StreamFunction], Properties: {Name: taken}}"
    )
    template.write_text(text.replace("\nResources:\n", f"\nResources:\n{wrong}\n"))
    with pytest.raises(AssertionError, match="ROLLBACK_COMPLETE"):
        sam.deploy("failing", template)
    events = client(sam.endpoint, "cloudformation").describe_stack_events(StackName="failing")["StackEvents"]
    kept = {one["LogicalResourceId"]: one["PhysicalResourceId"] for one in events if one["ResourceStatus"] == SKIPPED}
    assert kept.keys() == {"ApplicationTable", "LedgerTable"}
    deleted = {one["LogicalResourceId"] for one in events if one["ResourceStatus"] == "DELETE_COMPLETE"}
    assert {"QuarantineQueue", "TaskQueue", "TaskDeadLetters", "DiscardedBucket"} <= deleted
    for name in kept.values():
        with pytest.raises(ClientError, match="deletion"):
            client(sam.endpoint, "dynamodb").delete_table(TableName=name)


def social() -> Program:
    return Program.from_document(load(ROOT / "projections/rules/social.yaml").document())


def entries(stack: Outputs, endpoint: str) -> list[str]:
    """The partition keys of everything in the ledger."""
    pages = client(endpoint, "dynamodb").get_paginator("scan").paginate(TableName=stack["LedgerTableName"])
    return [item["pk"]["S"] for page in pages for item in page["Items"]]


def projections(sam: Sam, *arguments: str) -> str:
    """Runs a command of ours, as a user does; its output."""
    command = [sys.executable, "-m", "projections", *arguments]
    environment = {**os.environ, **AWS, "AWS_ENDPOINT_URL": sam.endpoint}
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def keep_label(function: str, endpoint: str) -> None:
    """Give all records one stream label: MiniStack shows another one in each poll."""
    functions = client(endpoint, "lambda")
    variables = functions.get_function_configuration(FunctionName=function)["Environment"]["Variables"]
    label = variables["STREAM_ARN"].rpartition("/stream/")[2]
    functions.update_function_configuration(
        FunctionName=function, Environment={"Variables": {**variables, "STREAM_LABEL": label}}
    )


def comment(number: int, user: str) -> dict[str, Any]:
    """Hidden: so that a new name is nothing but a push."""
    at = f"2026-01-05T10:00:00.{number:03}Z"
    fields = {"commentId": f"c{number}", "createdAt": at, "userId": user, "text": "Well said."}
    keys = {"PK": "POST#p2", "SK": f"COMMENT#{at}#c{number}", "GSI1PK": f"AUTHOR#{user}", "GSI1SK": at}
    return {"hidden": {"BOOL": True}} | {name: {"S": text} for name, text in {**keys, "postId": "p2", **fields}.items()}


def named(stack: Outputs, endpoint: str, user: str, name: str, comments: int) -> None:
    """Waits until all comments of a user show this name."""
    dynamodb = client(endpoint, "dynamodb")

    def names() -> Mapping[str, int]:
        pages = dynamodb.get_paginator("query").paginate(
            TableName=stack["TableName"],
            IndexName="GSI1",
            KeyConditionExpression="GSI1PK = :author",
            ExpressionAttributeValues={":author": {"S": f"AUTHOR#{user}"}},
        )
        return Counter(item.get("userName", {}).get("S", "") for page in pages for item in page["Items"])

    eventually(names, lambda found: found == {name: comments}, 90)


def waiting(stack: Outputs, endpoint: str) -> Mapping[str, str]:
    """How many tasks there are, and how many dead letters."""
    sqs, found = client(endpoint, "sqs"), {}
    for queue in ("TaskQueueUrl", "TaskDeadLettersUrl"):
        answer = sqs.get_queue_attributes(QueueUrl=stack[queue], AttributeNames=["All"])["Attributes"]
        found |= {f"{queue} {name}": count for name, count in answer.items() if name.startswith("ApproximateNumber")}
    return found


def metrics(name: str, endpoint: str) -> Mapping[str, float]:
    """The sums of what a function has told as metrics."""
    counts: Counter[str] = Counter()
    for line in logs(name, endpoint).split("\n"):
        if line.startswith("{") and "_aws" in (told := json.loads(line)):
            counts.update({name: value[0] for name, value in told.items() if isinstance(value, list)})
    return counts


def number(item: Mapping[str, Any], name: str) -> int | None:
    return int(item[name]["N"]) if name in item else None


def quarantined(stack: Outputs, endpoint: str) -> Mapping[str, Any]:
    answer = client(endpoint, "sqs").receive_message(QueueUrl=stack["QuarantineQueueUrl"], WaitTimeSeconds=1)
    found: Mapping[str, Any] = json.loads(answer["Messages"][0]["Body"]) if answer.get("Messages") else {}
    return found


def eventually(
    look: Callable[[], Mapping[str, Any]], wanted: Callable[[Mapping[str, Any]], bool], seconds: float = 45
) -> Mapping[str, Any]:
    deadline = time.monotonic() + seconds * float(os.environ.get("PATIENCE", "1"))
    while not wanted(found := look()):
        assert time.monotonic() < deadline, f"after {seconds} s there is still {found}"
        time.sleep(0.25)
    return found
