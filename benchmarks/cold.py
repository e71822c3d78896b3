"""Cold start: import and first event of the stream handler, beside a handler that only imports boto3 and writes one item.

CPU of processes that start anew, in turn, from before the first import until the answer. DynamoDB is a server on this
machine that answers at once, without TLS, whose set-up would cost both sides the same and hide a difference.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from benchmarks.cpu import answers
from benchmarks.workload import TABLE, like
from projections.engine.registry import REGISTRY, Registry
from projections.language.loader import load
from projections.language.program import LEDGER_SCHEMA, Program
from projections.stores.memory import MemoryStore

__all__ = ["OURS", "PLAIN", "Cold", "measure", "run", "surroundings"]

_ROOT = Path(__file__).parent.parent
_RULES = _ROOT / "projections/rules/social.yaml"

_TIMED = """
import json, sys, time
started = time.process_time()
{program}
print((time.process_time() - started) * 1000)
"""
OURS = """
from handlers.stream import handler
class Context:
    function_name, memory_limit_in_mb, aws_request_id = "stream", 1024, "request"
    invoked_function_arn = "arn:aws:lambda:us-east-1:123456789012:function:stream"
    def get_remaining_time_in_millis(self):
        return 60_000
print(json.dumps(handler(json.loads(sys.argv[1]), Context())))
"""
PLAIN = """
import boto3
dynamodb = boto3.client("dynamodb")
def handler(event, context):
    for record in event["Records"]:
        dynamodb.put_item(TableName="main", Item=record["dynamodb"]["NewImage"])
    return {"batchItemFailures": []}
print(json.dumps(handler(json.loads(sys.argv[1]), None)))
"""
_LOGGED = (
    """
from aws_lambda_powertools.logging import Logger
from aws_lambda_powertools.metrics import Metrics
logger, metrics = Logger(service="plain"), Metrics(service="plain", namespace="Plain")
"""
    + PLAIN
)


@dataclass(frozen=True, slots=True)
class Cold:
    """CPU from the first import to the first answer, in milliseconds: the least of several processes.

    `logged` is the plain handler with the logger and the metrics of Powertools, as ours has them.
    """

    ours: float
    plain: float
    logged: float

    @property
    def ratio(self) -> float:
        return self.ours / self.plain


def measure(rounds: int = 7) -> Cold:
    """The processes take turns; the first of each writes bytecode, which the functions' package has."""
    found: dict[str, list[float]] = {OURS: [], PLAIN: [], _LOGGED: []}
    with surroundings() as environment:
        for turn in range(rounds + 1):
            for text, spent in found.items():
                milliseconds = float(run(text, environment, _TIMED))
                if turn:
                    spent.append(milliseconds)
    return Cold(*(min(spent) for spent in found.values()))


@contextmanager
def surroundings() -> Iterator[Mapping[str, str]]:
    """The environment in which the handlers find their tables."""
    program = Program.from_document(load(_RULES).document())
    memory = MemoryStore({**program.tables, "ledger": LEDGER_SCHEMA})
    Registry(program, memory).read_or_create()
    with _served(answers(memory.get(REGISTRY))) as endpoint, tempfile.TemporaryDirectory() as directory:
        rules = Path(directory, "rules.json")
        rules.write_text(json.dumps(program.document))
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        yield kept | {
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "TABLE_NAME": TABLE,
            "LEDGER_TABLE_NAME": "ledger",
            "RULES_FILE": str(rules),
        }


def run(text: str, environment: Mapping[str, str], around: str) -> str:
    """What a new process prints last, which runs a handler's text with `around` around it."""
    event = json.dumps({"Records": [like(1, user=1, post=1)]})
    done = subprocess.run(
        [sys.executable, "-c", around.replace("{program}", text), event],
        cwd=_ROOT,
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    *_, answer, found = done.stdout.splitlines()
    assert json.loads(answer) == {"batchItemFailures": []}, done.stdout
    return found


@contextmanager
def _served(bodies: Mapping[str, bytes]) -> Iterator[str]:
    """A server that gives each operation the same answer, `{}` where none is named."""

    class Answering(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            body = bodies.get(self.headers["X-Amz-Target"].rpartition(".")[2], b"{}")
            self.send_response(200)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


if __name__ == "__main__":
    cold = measure(int(sys.argv[1]) if len(sys.argv) > 1 else 7)
    print(
        f"{cold.ours:.0f} ms; a handler that writes one item {cold.plain:.0f} ms, with Powertools {cold.logged:.0f} ms: "
        f"{cold.ratio:.2f} and {cold.ours / cold.logged:.2f} times"
    )
