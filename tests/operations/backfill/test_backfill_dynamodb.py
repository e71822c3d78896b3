"""Backfills as one runs them, on real tables: killed in the middle and called again; left to the worker by a real queue."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from emulators import ROOT

from projections.aws.clients import client
from projections.aws.live_tables import create_table, delete_table
from projections.aws.wiring import worker_from_environment
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.testing.oracle import Oracle
from tests.operations.backfill.stage import ALL, BY_NAME, LIKE, POST, SEEN, TABLE, TAG, USER, Stage

RULES = f"{TABLE}entities:\n{POST}{LIKE}{USER}{BY_NAME}{SEEN}{TAG}projections:\n{ALL}"
COMMAND = [sys.executable, "-m", "projections", "apply", "--yes"]


class Tables:
    """Real tables with the items of a stage, which no rule has seen yet, and the rules of it in a file."""

    def __init__(self, url: str, directory: Path, *, users: int, posts: int) -> None:
        stage = Stage()
        stage.fill(users, posts)
        rules = directory / "rules.yaml"
        rules.write_text(RULES)
        self.program = Program.from_document(loads(RULES).document())
        self.dynamodb: Any = client(endpoint_url=url)
        name = uuid.uuid4().hex[:8]
        self.main, self.ledger = f"backfill-{name}", f"backfill-{name}-ledger"
        create_table(self.dynamodb, self.main, self.program.tables["main"])
        create_table(self.dynamodb, self.ledger, LEDGER_SCHEMA, stream=False)
        items = stage.store.items("main")
        for start in range(0, len(items), 25):
            puts = [{"PutRequest": {"Item": item}} for item in items[start : start + 25]]
            self.dynamodb.batch_write_item(RequestItems={self.main: puts})
        self.environ = {
            "TABLE_NAME": self.main,
            "LEDGER_TABLE_NAME": self.ledger,
            "RULES": str(rules),
            "RULES_FILE": str(rules),
            "AWS_ENDPOINT_URL": url,
        }

    def begun(self, *options: str) -> subprocess.Popen[str]:
        """The command, in a process of its own."""
        environment = {**os.environ, **self.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(
            [*COMMAND, self.environ["RULES"], "--yes", *options],
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def items(self, table: str) -> list[Any]:
        pages = self.dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        return [item for page in pages for item in page["Items"]]

    def noted(self, prefix: str) -> int:
        """Items of the ledger whose partition key begins like this."""
        return sum(item["pk"]["S"].startswith(prefix) for item in self.items(self.ledger))

    def wrong(self) -> list[Any]:
        return list(Oracle(self.program.document).compare({"main": self.items(self.main)}))

    def close(self) -> None:
        for name in (self.main, self.ledger):
            delete_table(self.dynamodb, name)


@pytest.fixture
def filled(tmp_path: Path) -> Iterator[Callable[..., Tables]]:
    made: list[Tables] = []

    def fill(url: str, **sizes: int) -> Tables:
        made.append(Tables(url, tmp_path, **sizes))
        return made[-1]

    yield fill
    for one in made:
        one.close()


@pytest.mark.deep
def test_a_backfill_that_is_killed_continues_by_the_same_command(
    filled: Callable[..., Tables], dynamodb_local_url: str
) -> None:
    """SIGKILL while entries are written; then the command is left to come to its end."""
    tables = filled(dynamodb_local_url, users=40, posts=8)
    options = ("--segments", "3", "--max-writes", "300", "--allow-delete")
    with tables.begun(*options) as process:
        while tables.noted("E|") < 20:
            assert process.poll() is None, process.communicate()
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        _, said = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGKILL
    (run,) = re.findall(r"(\w+): 3 segments, from phase items", said)
    assert tables.wrong(), "it was killed too late"
    with tables.begun(*options) as process:
        out, said = process.communicate(timeout=90)
    assert (process.returncode, f"{run}: 3 segments, from phase " in said) == (0, True), out + said
    assert tables.wrong() == []


@pytest.mark.deep
def test_a_backfill_is_worked_off_by_the_worker_through_a_real_queue(
    filled: Callable[..., Tables], ministack_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command sends the first tasks and ends; invocations of the worker take each message that is due, till none is."""
    tables = filled(ministack_url, users=15, posts=5)
    sqs = client("sqs", endpoint_url=ministack_url)
    tasks, quarantine = (sqs.create_queue(QueueName=f"{kind}-{tables.main}")["QueueUrl"] for kind in ("tasks", "bad"))
    queues = {"TASK_QUEUE_URL": tasks, "QUARANTINE_QUEUE_URL": quarantine}
    tables.environ |= queues
    with tables.begun("--queue", "--segments", "2", "--allow-delete") as process:
        out, said = process.communicate(timeout=60)
    assert (process.returncode, "continues in the worker function" in out) == (0, True), said
    for name, value in tables.environ.items():
        monkeypatch.setenv(name, value)
    worker = worker_from_environment(tables.environ)
    handled = 0
    while messages := sqs.receive_message(QueueUrl=tasks, MaxNumberOfMessages=10, WaitTimeSeconds=1).get("Messages"):
        records = [{"messageId": one["MessageId"], "body": one["Body"]} for one in messages]
        assert worker.handle({"Records": records}, lambda: 60.0) == {"batchItemFailures": []}
        for one in messages:
            sqs.delete_message(QueueUrl=tasks, ReceiptHandle=one["ReceiptHandle"])
        handled += len(messages)
        assert handled < 100
    assert handled > 2
    assert tables.wrong() == []
    assert "Messages" not in sqs.receive_message(QueueUrl=quarantine)
