"""`sam build && sam deploy`, a write, and the projection it makes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import boto3
import pytest
from emulators import ROOT
from sam_cli import AWS, Sam

Outputs = Mapping[str, str]

ARTIFACT = ROOT / ".aws-sam/build/StreamFunction"


@pytest.fixture(scope="session")
def built(sam: Sam) -> Path:
    """The package, for this machine's Python, which is what MiniStack runs it with."""
    sam.run("build", LAMBDA_PLATFORM="native", BUNDLE_BOTO3="1", BUILD_PYTHON=sys.executable)
    return ARTIFACT


@pytest.fixture(scope="session")
def stack(sam: Sam, built: Path) -> Outputs:
    sam.deploy("shipped", BatchingWindowSeconds="0")
    return outputs("shipped", sam.endpoint)


def test_the_package_starts_with_nothing_but_itself(built: Path) -> None:
    """No pydantic, no YAML, no command line: with the standard library and the package alone the handler is wired."""
    program = (
        "import sys; sys.path.append(sys.argv[1]); import handlers.stream; "
        "print([n for n in ('pydantic', 'ruamel', 'click', 'rich', 'aws_xray_sdk') if n in sys.modules])"
    )
    environment = {
        "TABLE_NAME": "app",
        "LEDGER_TABLE_NAME": "ledger",
        "RULES_FILE": str(built / "rules.json"),
        "QUARANTINE_QUEUE_URL": "http://127.0.0.1:1/queue",
        "POWERTOOLS_SERVICE_NAME": "test",
        **AWS,
    }
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(built)],
        env=environment,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == ("[]", 0), done.stderr


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
    writer(stack, sam.endpoint)(
        PK="USER#u9",
        SK="POST#2026-01-06T10:00:00Z#p9",
        postId="p9",
        userId="u9",
        title="When?",
        status="published",
        publishedAt="soon",
    )
    copy = eventually(lambda: read(stack, sam.endpoint, "POST#p9", "METADATA"), lambda item: "title" in item)
    assert copy["title"] == {"S": "When?"}
    message = eventually(lambda: quarantined(stack, sam.endpoint), lambda found: found.get("rule") == "listed")
    assert "soon" in message["reason"] or "publishedAt" in message["reason"]
    assert "POST#p9" in message["key"]
    assert "When?" not in json.dumps(message)


def test_an_existing_table_is_projected_as_well(sam: Sam, built: Path) -> None:
    """With ExistingTableName and ExistingStreamArn the stack makes no table of its own."""
    table = client(sam.endpoint, "dynamodb").create_table(
        TableName="mine",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": n, "AttributeType": "S"} for n in ("PK", "SK")],
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
        StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    )["TableDescription"]
    sam.deploy(
        "existing",
        ExistingTableName="mine",
        ExistingStreamArn=table["LatestStreamArn"],
        BatchingWindowSeconds="0",
    )
    found = outputs("existing", sam.endpoint)
    assert found["TableName"] == "mine"
    writer(found, sam.endpoint)(PK="USER#u1", SK="POST#2026#p1", postId="p1", userId="u1", title="Mine", status="draft")
    copy = eventually(lambda: read(found, sam.endpoint, "POST#p1", "METADATA"), lambda item: "title" in item)
    assert copy["title"] == {"S": "Mine"}


def client(endpoint: str, service: str) -> Any:
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
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
