"""A deployment as the command line finds it: real tables, queues and a bucket, and the handler that fills them."""

from __future__ import annotations

import io
import json
import uuid
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from discarded import object_of

import projections
from projections.aws.clients import client
from projections.aws.live_tables import create_table
from projections.aws.wiring import stream_from_environment
from projections.cli.main import main
from projections.engine.registry import Registry
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.values import plain_item, wire
from projections.stores.dynamodb import DynamoDBStore
from projections.testing.oracle import Oracle

RULES = """
table:
  key: [PK, SK]
  indexes: {GSI1: [GSI1PK, GSI1SK]}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Post: {key: {PK: "USER#{userId}", SK: "POST#{postId}"}, id: postId}
  PostMeta: {key: {PK: "POST#{postId}", SK: METADATA}, match: {type: PostMeta}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
  Comment: {key: {PK: "POST#{postId}", SK: "COMMENT#{commentId}"}, index_key: {GSI1PK: "AUTHOR#{userId}"}}
projections:
  postById: {from: Post, copy: {into: PostMeta, attributes: [title]}}
  likes: {from: Like, aggregate: {into: PostMeta, set: {likeCount: count, total: sum(weight)}}}
  author: {from: User, embed: {into: Comment, match: {userId: "{userId}"}, attributes: {userName: name}}}
"""
STACK = """
Parameters:
  AuditSchedule: {Type: String, Default: rate(1 hour)}
Resources:
  Quarantine: {Type: AWS::SQS::Queue}
Outputs:
  TableName: {Value: TABLE}
  LedgerTableName: {Value: LEDGER}
  StreamFunctionName: {Value: FUNCTION}
  QuarantineQueueUrl: {Value: !Ref Quarantine}
  TaskQueueUrl: {Value: TASKS}
  TaskDeadLettersUrl: {Value: DEAD}
  DiscardedBucketName: {Value: BUCKET}
"""
FUNCTION = "def handler(event, context):\n    return {'batchItemFailures': []}\n"
"""Of the stack: the tests deliver records themselves."""
MENDED = RULES.replace("sum(weight)", "sum(number(weight))")


class Place:
    """Tables, queues and a bucket, the handler of a deployment, and the command line beside it."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], path: Path, url: str
    ) -> None:
        self._capsys, self._monkeypatch, self._path, self._url = capsys, monkeypatch, path, url
        name = uuid.uuid4().hex[:8]
        self.table, self.ledger, self.bucket = f"app-{name}", f"ledger-{name}", f"discarded-{name}"
        self.arn = f"arn:aws:dynamodb:us-east-1:000000000000:table/{self.table}/stream/2026-01-01T00:00:00.000"
        self.dynamodb, self.sqs, self.s3 = client("dynamodb", url), client("sqs"), client("s3")
        self.schema = self.program(RULES).tables["main"]
        create_table(self.dynamodb, self.table, self.schema)
        create_table(self.dynamodb, self.ledger, LEDGER_SCHEMA, stream=False)
        self.quarantine, self.tasks, self.dead = (
            self.sqs.create_queue(QueueName=f"{kind}-{name}")["QueueUrl"] for kind in ("bad", "tasks", "dead")
        )
        self.s3.create_bucket(Bucket=self.bucket)
        self.environ = {
            "TABLE_NAME": self.table,
            "LEDGER_TABLE_NAME": self.ledger,
            "QUARANTINE_QUEUE_URL": self.quarantine,
            "STREAM_ARN": self.arn,
        }
        for variable, value in self.environ.items():
            monkeypatch.setenv(variable, value)
        self.sequence = 0
        self.function: str | None = None
        self.deploy(RULES)
        self.activate()

    @staticmethod
    def program(rules: str) -> Program:
        return Program.from_document(loads(rules).document())

    def deploy(self, rules: str) -> None:
        """Functions of these rules, as after `sam deploy`."""
        self.rules = rules
        self.file = self._path / "rules.yaml"
        self.file.write_text(rules)
        self._monkeypatch.setenv("RULES", str(self.file))
        self._monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", self._url)
        self.handler = stream_from_environment({**self.environ, "RULES_FILE": str(self.file)})
        if self.function is not None:
            client("lambda").update_function_code(FunctionName=self.function, ZipFile=self.package())

    def apply(self) -> None:
        """What `apply` does."""
        rules = projections.loads(self.rules)
        projections.apply(projections.aws.store(rules, {"main": self.table}, self.ledger), rules)

    def activate(self, *, fills: bool = True) -> None:
        """What `apply` does to the registry; without `fills`, as long as it reads items."""
        program, schemas = self.program(self.rules), {"ledger": LEDGER_SCHEMA}
        registry = Registry(program, DynamoDBStore(self.dynamodb, {"ledger": self.ledger}, schemas))
        before = registry.read()
        gone = before.lacking(program) if before is not None else []
        _, versions = registry.register(program, dict.fromkeys(gone, "keep"))
        if not fills:
            return
        registry.fill(version.name for version in versions.values())
        registry.promote(version.name for version in versions.values() if not version.held)
        registry.finish(registry.read_or_create().versions.values())

    # The application, and the stream of what it did

    def put(self, partition: str, sort: str, **attributes: Any) -> dict[str, Any]:
        """A put, and the record of it."""
        image = {"PK": {"S": partition}, "SK": {"S": sort}, **{name: wire(value) for name, value in attributes.items()}}
        old = self.dynamodb.put_item(TableName=self.table, Item=image, ReturnValues="ALL_OLD").get("Attributes")
        return self._record("MODIFY" if old else "INSERT", OldImage=old, NewImage=image)

    def remove(self, partition: str, sort: str) -> dict[str, Any]:
        key = {"PK": {"S": partition}, "SK": {"S": sort}}
        old = self.dynamodb.delete_item(TableName=self.table, Key=key, ReturnValues="ALL_OLD")["Attributes"]
        return self._record("REMOVE", OldImage=old)

    def _record(self, event: str, **images: Any) -> dict[str, Any]:
        self.sequence += 1
        held = {name: image for name, image in images.items() if image}
        image = next(iter(held.values()))
        change = {"Keys": {"PK": image["PK"], "SK": image["SK"]}, "SequenceNumber": str(10**20 + self.sequence), **held}
        return {"eventName": event, "eventSource": "aws:dynamodb", "eventSourceARN": self.arn, "dynamodb": change}

    def deliver(self, *records: Mapping[str, Any]) -> None:
        assert self.handler.handle({"Records": list(records)}, lambda: 60.0) == {"batchItemFailures": []}

    # What can be seen

    def run(self, command: str, *arguments: str) -> tuple[int, dict[str, Any]]:
        """The command with --json."""
        code, out, _ = self.say(command, *arguments, "--json")
        return code, json.loads(out)

    def say(self, command: str, *arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([command, *arguments])
        said = self._capsys.readouterr()
        assert isinstance(ended.value.code, int)
        return ended.value.code, said.out, said.err

    def stack(self) -> tuple[str, dict[str, str]]:
        """A stack with the outputs of ours; its quarantine is a queue of its own. Its name, and its outputs.

        Its function has the rules in its package, and is fed by the table's stream, but does nothing.
        """
        cloudformation, name, template = client("cloudformation"), f"app-{uuid.uuid4().hex[:8]}", STACK
        self.function = f"{name}-stream"
        client("lambda").create_function(
            FunctionName=self.function,
            Runtime="python3.13",
            Role="arn:aws:iam::000000000000:role/stream",
            Handler="function.handler",
            Code={"ZipFile": self.package()},
            Environment={"Variables": {"RULES_FILE": "rules.json"}},
        )
        self.mapping: str = client("lambda").create_event_source_mapping(
            FunctionName=self.function,
            EventSourceArn=self.stream(),
            StartingPosition="TRIM_HORIZON",
            FunctionResponseTypes=["ReportBatchItemFailures"],
        )["UUID"]
        values = {"TABLE": self.table, "LEDGER": self.ledger, "FUNCTION": self.function, "BUCKET": self.bucket}
        for word, value in {**values, "TASKS": self.tasks, "DEAD": self.dead}.items():
            template = template.replace(f"Value: {word}}}", f"Value: '{value}'}}")
        cloudformation.create_stack(StackName=name, TemplateBody=template)
        cloudformation.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1})
        (stack,) = cloudformation.describe_stacks(StackName=name)["Stacks"]
        for variable in self.environ:
            self._monkeypatch.setenv(variable, "another")
        return name, {one["OutputKey"]: one["OutputValue"] for one in stack["Outputs"]}

    def package(self) -> bytes:
        """What `sam build` makes of the rules."""
        content = io.BytesIO()
        with zipfile.ZipFile(content, "w") as package:
            package.writestr("rules.json", json.dumps(loads(self.rules).document()))
            package.writestr("function.py", FUNCTION)
        return content.getvalue()

    def stream(self) -> str:
        """The ARN of the table's stream."""
        arn: str = self.dynamodb.describe_table(TableName=self.table)["Table"]["LatestStreamArn"]
        return arn

    def forget_rules(self) -> None:
        """Delete the registry and the documents, as before a function or a command has used the ledger."""
        for item in self.dynamodb.scan(TableName=self.ledger, ConsistentRead=True)["Items"]:
            if item["pk"]["S"] == "R":
                self.dynamodb.delete_item(TableName=self.ledger, Key={name: item[name] for name in ("pk", "sk")})

    def registry(self) -> dict[str, Any]:
        """The item that says which rules are active."""
        key = {"pk": {"S": "R"}, "sk": {"S": "."}}
        return dict(self.dynamodb.get_item(TableName=self.ledger, Key=key, ConsistentRead=True)["Item"])

    def depth(self, url: str) -> int:
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        attributes = self.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        return sum(int(attributes[name]) for name in names)

    def item(self, partition: str, sort: str) -> dict[str, Any]:
        key = {"PK": {"S": partition}, "SK": {"S": sort}}
        return plain_item(self.dynamodb.get_item(TableName=self.table, Key=key, ConsistentRead=True)["Item"])

    def right(self) -> bool:
        items = self.dynamodb.scan(TableName=self.table, ConsistentRead=True)["Items"]
        return Oracle(loads(self.rules).document()).compare({"main": items}) == []

    def discard(self, name: str, *records: dict[str, Any]) -> str:
        """What Lambda leaves in the bucket when it gives a batch up."""
        key = f"aws/lambda/mapping/shardId-1/2026/01/05/{name}"
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=json.dumps(object_of(records, self.arn)).encode())
        return key

    def keys(self, prefix: str) -> list[str]:
        return [one["Key"] for one in self.s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])]
