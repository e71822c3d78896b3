"""Drives the three functions with personal data through every kind of failure, as a process of its own.

    python -m tests.operations.redacted_functions RULES.json RESULT.json

What it prints is what Lambda would log: the functions' own lines, and errors as Lambda's runtime writes them. The messages
that the functions sent are written to RESULT.json. moto stands for AWS; what it does not refuse as DynamoDB does is refused
here.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from botocore.awsrequest import AWSResponse
from moto import mock_aws

from projections.aws.clients import client, session
from projections.aws.live_tables import create_table
from projections.engine.registry import Registry
from projections.language.program import LEDGER_SCHEMA, Program
from projections.stores.dynamodb import DynamoDBStore

ACCOUNT = "123456789012"
ARN = f"arn:aws:dynamodb:us-east-1:{ACCOUNT}:table/app/stream/2026-01-01T00:00:00.000"

MAIL = "zoe.quimby@example.org"
OTHER_MAIL = "bartleby@example.org"
NAME = 'Xanthippe O\'Hara "Ξ" 😱'
PHONE = "+49 170 5550199"
STREET = "Ziegelstraße 7, it's \\ 'Hinterhof"
NUMBER = "987654321"

IN_KEYS = ("zoe", "quimby", "bartleby", "5550199")
"""Words of keys: of items, of what is derived from them, of parents and children."""

IN_VALUES = ("xanthippe", "o'hara", "😱", "ziegelstra", "hinterhof", NUMBER)
"""Words of values, which no key has."""


class Context:
    function_name = "function"
    memory_limit_in_mb = 1024
    invoked_function_arn = f"arn:aws:lambda:us-east-1:{ACCOUNT}:function:function"
    aws_request_id = "request"

    def __init__(self, seconds: float = 60.0) -> None:
        self._ends = time.monotonic() + seconds

    def get_remaining_time_in_millis(self) -> float:
        return 1000 * (self._ends - time.monotonic())


class Refusing:
    """Answers requests instead of DynamoDB while it is switched on."""

    def __init__(self) -> None:
        self.code = self.message = self.of = ""

    def __call__(self, request: Any, **_: Any) -> AWSResponse | None:
        operation = request.headers.get("X-Amz-Target", b"")
        name = operation.decode() if isinstance(operation, bytes) else operation
        if not self.code or (self.of and not name.endswith(self.of)):
            return None
        body = {"__type": f"com.amazonaws.dynamodb.v20120810#{self.code}", "message": self.message}
        return AWSResponse(request.url, 400, {}, SimpleNamespace(stream=lambda: [json.dumps(body).encode()]))

    def during(self, code: str, message: str, of: str, work: Callable[[], None]) -> None:
        self.code, self.message, self.of = code, message, of
        try:
            work()
        finally:
            self.code = ""


def invoked(function: str, event: Any, seconds: float = 60.0) -> Any:
    """An invocation; an error is printed as Lambda's runtime does, with the lines of code and without local variables."""
    try:
        return importlib.import_module(f"handlers.{function}").handler(event, Context(seconds))
    except Exception as error:
        lines = traceback.format_exception(error)
        print(json.dumps({"errorMessage": str(error), "errorType": type(error).__name__, "stackTrace": lines}))
        return None


class Stream:
    """The application's writes, and their records."""

    def __init__(self, dynamodb: Any) -> None:
        self._dynamodb = dynamodb
        self._number = 10**20

    def put(self, partition: str, sort: str, **attributes: Any) -> dict[str, Any]:
        item = {"PK": {"S": partition}, "SK": {"S": sort}, **attributes}
        self._dynamodb.put_item(TableName="app", Item=item)
        return self.record(item)

    def record(self, item: Any, **changed: Any) -> dict[str, Any]:
        self._number += 1
        keys = {"PK": item["PK"], "SK": item["SK"]}
        change = {"Keys": keys, "NewImage": item, "SequenceNumber": str(self._number)}
        record = {"eventName": "INSERT", "eventSource": "aws:dynamodb", "eventSourceARN": ARN, "dynamodb": change}
        return {**record, **changed}


def refused_by_rules(stream: Stream) -> None:
    user = f"USER#{MAIL}"
    invoked(
        "stream",
        {
            "Records": [
                stream.put("POST#p1", "METADATA"),
                stream.put(user, "LIKE#p1", weight={"S": NAME}),
                stream.put(user, "LIKE#p2", weight={"S": f"{MAIL} {NAME}"}),
                stream.put(user, "PROFILE", born={"S": STREET}, name={"S": NAME}, phone={"S": PHONE}),
                stream.put(f"USER#{OTHER_MAIL}", "PROFILE", email={"S": NAME}, name={"S": NAME}),
                stream.put("USER#long", "PROFILE", phone={"S": NUMBER * 300}, name={"S": NAME}),
                stream.put("PHONE#occupied", "OWNER", name={"S": NAME}),
                stream.put("USER#third", "PROFILE", phone={"S": "occupied"}, name={"S": NAME}),
            ]
        },
    )


def no_records(stream: Stream) -> None:
    item = {"PK": {"S": f"USER#{MAIL}"}, "SK": {"S": "LIKE#p3"}}
    records = [
        stream.record(item, eventName=f"{NAME} {MAIL}"),
        stream.record(item, eventSource=STREET),
        stream.record(item, eventSourceARN=f"arn:aws:dynamodb:us-east-1:1:table/{MAIL}/stream/x"),
        stream.record({**item, NAME: {"S": 1}}),
        stream.record({**item, "weight": {MAIL: NAME}}),
    ]
    for record in records:
        invoked("stream", {"Records": [record]})
    invoked("stream", {"Records": [{"eventSource": "aws:sqs", "body": NAME}]})
    invoked("stream", {"detail": MAIL})


def refused_by_dynamodb(stream: Stream, refusing: Refusing) -> None:
    def like(name: str) -> Callable[[], None]:
        records = lambda: [stream.put(f"USER#{MAIL}", f"LIKE#{name}{end}") for end in "ab"]  # noqa: E731
        return lambda: invoked("stream", {"Records": records()}, seconds=5)

    quoted = f"The parameter cannot be converted to a numeric value: {NAME} of {MAIL}"
    for number, (code, of) in enumerate(
        [
            ("ValidationException", "TransactWriteItems"),
            ("ValidationException", "UpdateItem"),
            ("SomethingNew", "TransactWriteItems"),
            ("ThrottlingException", "TransactWriteItems"),
            ("AccessDeniedException", "GetItem"),
        ]
    ):
        refusing.during(code, quoted, of, like(f"x{number}"))


def unexpected(stream: Stream) -> None:
    """Raise an internal error that has the item in its text."""
    from projections.language import rules

    known = rules.AggregateRule.contributions

    def failing(rule: Any, item: Any) -> Any:
        raise KeyError(f"{item.key} {item.image}")

    rules.AggregateRule.contributions = failing  # type: ignore[method-assign]
    try:
        invoked("stream", {"Records": [stream.put(f"USER#{MAIL}", "LIKE#y", weight={"S": NAME})]})
    finally:
        rules.AggregateRule.contributions = known  # type: ignore[method-assign]


def tasks(stream: Stream, refusing: Refusing) -> None:
    push = {"rule": "author", "parent": f"main|USER#{MAIL}|PROFILE", "version": "v", "after": None, "again": False}

    def message(body: Any) -> dict[str, Any]:
        text = body if isinstance(body, str) else json.dumps(body)
        return {"Records": [{"messageId": "m1", "eventSource": "aws:sqs", "body": text}]}

    for body in (NAME, {"push": {MAIL: NAME}}, {"push": {**push, "parent": MAIL}}, {"push": {**push, "rule": NAME}}):
        invoked("worker", message(body))
    for number in range(3):
        stream.put(f"POST#{MAIL}", f"COMMENT#{number}", email={"S": MAIL}, G={"S": f"AUTHOR#{MAIL}"}, text={"S": NAME})
    for code in ("ValidationException", "SomethingNew", "ThrottlingException"):
        for of in ("UpdateItem", "Query", "GetItem", "BatchGetItem"):
            quoted = f"{NAME} of {MAIL} is wrong"
            refusing.during(code, quoted, of, lambda: invoked("worker", message({"push": push}), seconds=12))
    invoked("worker", message({"push": push}))


def drift(stream: Stream) -> None:
    """Items without stream records, and a value that the application wrote."""
    stream.put(f"USER#{MAIL}", "LIKE#p1", weight={"N": "1"}, name={"S": NAME})
    stream.put(f"PHONE#{PHONE}", "OWNER", type={"S": "ByPhone"}, name={"S": NAME})
    for _ in range(3):
        invoked("audit", {})


def main(rules: str, result: str) -> None:
    time.sleep = lambda seconds: None  # before the modules are imported that keep it
    from projections.operations.audit import AuditHandler

    AuditHandler.__init__.__kwdefaults__["segments"] = 2  # type: ignore[index]
    os.environ |= {
        "AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
        "TABLE_NAME": "app", "LEDGER_TABLE_NAME": "ledger", "RULES_FILE": rules, "STREAM_ARN": ARN,
    }  # fmt: skip
    refusing = Refusing()
    session().register("before-send.dynamodb", refusing)
    program = Program.from_document(json.loads(Path(rules).read_text()))
    with mock_aws():
        dynamodb, sqs = client("dynamodb"), client("sqs")
        create_table(dynamodb, "app", program.tables["main"])
        create_table(dynamodb, "ledger", LEDGER_SCHEMA, stream=False)
        schemas = {**program.tables, "ledger": LEDGER_SCHEMA}
        store = DynamoDBStore(dynamodb, {"main": "app", "ledger": "ledger"}, schemas)
        Registry(program, store).read_or_create()  # the tables are empty
        queues = {name: sqs.create_queue(QueueName=name)["QueueUrl"] for name in ("quarantine", "tasks")}
        os.environ |= {"QUARANTINE_QUEUE_URL": queues["quarantine"], "TASK_QUEUE_URL": queues["tasks"]}
        stream = Stream(dynamodb)
        refused_by_rules(stream)
        no_records(stream)
        refused_by_dynamodb(stream, refusing)
        unexpected(stream)
        tasks(stream, refusing)
        drift(stream)
        sent = {name: drained(sqs, url) for name, url in queues.items()}
        found = dynamodb.get_item(TableName="ledger", Key={"pk": {"S": "A"}, "sk": {"S": "secret"}}).get("Item")
    Path(result).write_text(json.dumps({**sent, "secret": found and found["secret"]["S"]}))


def drained(sqs: Any, url: str) -> list[Any]:
    bodies: list[Any] = []
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        bodies += [json.loads(one["Body"]) for one in messages]
    return bodies


if __name__ == "__main__":
    main(*sys.argv[1:])
