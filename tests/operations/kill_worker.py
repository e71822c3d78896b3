"""A worker to be killed: the real handler on a table's stream, with a checkpoint in a file, as Lambda keeps one.

Started by test_kill.py. It wires the handler once and then forks a worker for each line of standard input, so that a new
one starts in a millisecond and has only the checkpoint of the previous one:

    {"after": 0.2}                                          killed after 0.2 s
    {"call": 7, "when": "after-call", "operation": "…"}     kills itself at its 7th answer of an operation ("" is any)
    {"batch": 3}                                            kills itself after its 3rd batch, before the checkpoint
    {"drain": true}                                         left alone until the stream has been empty for a while

Each is answered by one line: {"status": the worker's exit status, negative for a signal}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from projections.aws.clients import client, session
from projections.aws.wiring import stream_from_environment

LIMIT = 60
"""Records a batch holds at most."""

LONGEST = 5.0
"""Seconds after which a worker that did not come to its end by itself is killed from outside."""

IDLE = 15
"""Polls without a record after which a stream is drained."""


class Worker:
    """Reads on from the checkpoint, and dies as its order says."""

    def __init__(self, arn: str, checkpoint: Path) -> None:
        self._arn = arn
        self._checkpoint = checkpoint
        self.order: dict[str, Any] = {}
        self._calls = 0
        events: Any = session().get_component("event_emitter")
        for when in ("before-call", "after-call"):  # of every client that is made from here on
            events.register(f"{when}.dynamodb", self._called)
        self._handle = stream_from_environment(os.environ).handle
        self._streams = client("dynamodbstreams")

    def _called(self, event_name: str, **_: Any) -> None:
        when, _, operation = event_name.partition(".dynamodb.")
        if when == self.order.get("when") and operation.startswith(self.order["operation"]):
            self._calls += 1
            if self._calls == self.order["call"]:
                die()

    def run(self) -> None:
        shard = self._streams.describe_stream(StreamArn=self._arn)["StreamDescription"]["Shards"][0]["ShardId"]
        iterator = self._iterator(shard)
        idle = batches = 0
        while idle < IDLE or not self.order.get("drain"):
            answer = self._streams.get_records(ShardIterator=iterator, Limit=LIMIT)
            records = [self._record(record) for record in answer["Records"]]
            idle = 0 if records else idle + 1
            if not records:
                time.sleep(0.02)
                iterator = self._iterator(shard)
                continue
            failures = self._handle({"Records": records}, lambda: 20.0)["batchItemFailures"]
            batches += 1
            if batches == self.order.get("batch"):
                die()
            numbers = [record["dynamodb"]["SequenceNumber"] for record in records]
            done = numbers.index(failures[0]["itemIdentifier"]) if failures else len(numbers)
            if done:
                self._keep(numbers[done - 1])
            iterator = self._iterator(shard)

    def _iterator(self, shard: str) -> str:
        where: Any = {"ShardIteratorType": "TRIM_HORIZON"}
        if self._checkpoint.exists():
            where = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "SequenceNumber": self._checkpoint.read_text()}
        iterator: str = self._streams.get_shard_iterator(StreamArn=self._arn, ShardId=shard, **where)["ShardIterator"]
        return iterator

    def _record(self, record: dict[str, Any]) -> dict[str, Any]:
        """As Lambda delivers it: with the stream's ARN, and its time a number."""
        change = {**record["dynamodb"], "ApproximateCreationDateTime": 0}
        return {**record, "dynamodb": change, "eventSourceARN": self._arn}

    def _keep(self, number: str) -> None:
        draft = self._checkpoint.with_suffix(".new")
        draft.write_text(number)
        draft.replace(self._checkpoint)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def serve() -> None:
    worker = Worker(os.environ["STREAM_ARN"], Path(os.environ["CHECKPOINT"]))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        order = json.loads(line)
        print(json.dumps({"status": ended(fork(worker, order), order)}), flush=True)


def fork(worker: Worker, order: dict[str, Any]) -> int:
    process = os.fork()
    if process:
        return process
    status = 1
    try:
        worker.order = order
        worker.run()
        status = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def ended(process: int, order: dict[str, Any]) -> int:
    """The exit status of a worker, killed at its time if it has one."""
    deadline = time.monotonic() + order.get("after", 120.0 if order.get("drain") else LONGEST)
    while time.monotonic() < deadline:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


if __name__ == "__main__":
    serve()
