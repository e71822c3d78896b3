"""What the functions say of themselves: structured logs and metrics, never contents."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from emulators import ROOT
from sam_cli import AWS

from projections.language.loader import load

PROGRAM = """
import gc, importlib, json, os, sys, time
handler = importlib.import_module("handlers." + sys.argv[1]).handler

class Context:
    function_name = "stream"
    memory_limit_in_mb = 1024
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:stream"
    aws_request_id = "request"

    def get_remaining_time_in_millis(self):
        return 1000 * (ends - time.monotonic())

ends = time.monotonic() + float(os.environ.get("SECONDS", 60))

answer = handler(json.loads(sys.argv[2]), Context())
print(json.dumps({"collecting": gc.isenabled()}))
print(json.dumps({"answer": answer}))
"""


Lines = list[Mapping[str, Any]]


@pytest.fixture
def said(tmp_path: Path) -> Lines:
    """What the stream's function says of messages."""
    return lines_of("stream", {"Records": [{"eventSource": "aws:sqs", "body": "secret"}]}, tmp_path)


def lines_of(function: str, event: Any, tmp_path: Path, **environment: str) -> Lines:
    """Every line a function writes about an event that it cannot use, while its environment asks for events to be logged."""
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps(load(ROOT / "projections/rules/social.yaml").document()))
    settings = {"TABLE_NAME": "app", "LEDGER_TABLE_NAME": "ledger", "RULES_FILE": str(rules)}
    if function == "worker":
        settings |= {"TASK_QUEUE_URL": "http://127.0.0.1:1/tasks", "QUARANTINE_QUEUE_URL": "http://127.0.0.1:1/bad"}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, function, json.dumps(event)],
        cwd=ROOT,
        env={**os.environ, **AWS, **settings, "POWERTOOLS_LOGGER_LOG_EVENT": "true", **environment},
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "secret" not in done.stdout + done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_counts_are_metrics_in_the_embedded_format(said: Lines) -> None:
    (line,) = [line for line in said if "_aws" in line]
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Namespace"] == "Projections"
    assert (line["rejected"], line["failures"]) == ([1.0], [1.0])


def test_a_reason_is_a_structured_log(said: Lines) -> None:
    lines = [line for line in said if line.get("level") == "WARNING"]
    assert any("aws:sqs" in line["message"] for line in lines)
    assert all(line["function_request_id"] == "request" for line in lines)


def test_the_answer_is_lambdas(said: Lines) -> None:
    assert said[-1] == {"answer": {"batchItemFailures": [{"itemIdentifier": ""}]}}


def test_garbage_is_collected_again_once_the_function_is_wired(said: Lines) -> None:
    assert said[-2] == {"collecting": True}


def test_worker_reports_an_invalid_message(tmp_path: Path) -> None:
    """It fails until it ends among the dead letters; its body is not logged."""
    event = {"Records": [{"messageId": "m1", "eventSource": "aws:sqs", "body": '{"name": "secret"}'}]}
    said = lines_of("worker", event, tmp_path)
    assert said[-1] == {"answer": {"batchItemFailures": [{"itemIdentifier": "m1"}]}}
    (metrics,) = [line for line in said if "_aws" in line]
    assert (metrics["tasks"], metrics["pages"], metrics["pushes"], metrics["failures"]) == ([1.0], [0.0], [0.0], [1.0])
    (log,) = [line for line in said if line.get("level") == "WARNING"]
    assert (log["item"], "is not a task" in log["message"]) == ("m1", True)


@contextmanager
def throttling_dynamodb() -> Iterator[str]:
    """An endpoint that throttles every request, in DynamoDB's words."""
    table = "arn:aws:dynamodb:us-east-1:123456789012:table/ledger"
    body = json.dumps(
        {
            "__type": "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",
            "message": "The level of configured provisioned throughput for the table was exceeded",
            "ThrottlingReasons": [{"reason": "TableReadProvisionedThroughputExceeded", "resource": table}],
        }
    ).encode()

    class Throttled(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(400)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Throttled)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


@pytest.mark.deep
def test_throttled_batch_reports_limit_and_table(tmp_path: Path) -> None:
    like = {"PK": {"S": "USER#a"}, "SK": {"S": "LIKE#POST#p"}}
    arn = "arn:aws:dynamodb:us-east-1:123456789012:table/app/stream/2026-01-01T00:00:00.000"
    change = {"Keys": like, "NewImage": like, "SequenceNumber": "1" * 21}
    event = {
        "Records": [{"eventName": "INSERT", "eventSource": "aws:dynamodb", "eventSourceARN": arn, "dynamodb": change}]
    }
    with throttling_dynamodb() as url:
        said = lines_of("stream", event, tmp_path, AWS_ENDPOINT_URL=url, SECONDS="8")
    assert said[-1] == {"answer": {"batchItemFailures": [{"itemIdentifier": "1" * 21}]}}
    limit = "TableReadProvisionedThroughputExceeded of table/ledger"
    counted, retried = [line for line in said if line.get("level") == "WARNING"]
    assert (counted["message"], counted["requests"] > 0) == (f"throttled: {limit}", True)
    assert retried["message"].startswith("to be retried: ")
    assert retried["message"].endswith(f"; throttled: {limit}")
    (metrics,) = [line for line in said if "_aws" in line]
    assert (metrics["throttled"], metrics["failures"]) == ([counted["requests"]], [1.0])
