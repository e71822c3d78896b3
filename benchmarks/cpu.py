"""CPU per event with HTTP answered by a stub, beside what one would write instead."""

from __future__ import annotations

import gc
import io
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from benchmarks.baselines import WAYS
from benchmarks.workload import TABLE, likes, program
from projections.engine.processor import Processor
from projections.engine.registry import REGISTRY, Registry
from projections.language.program import LEDGER_SCHEMA
from projections.operations.wiring import collect_seldom
from projections.stores.aws import client
from projections.stores.dynamodb import DynamoDBStore
from projections.stores.memory import MemoryStore

__all__ = ["Cpu", "answers", "measure_all", "ours", "rows"]

_ENDPOINT = "http://127.0.0.1:9"
_BATCH = 1000


@dataclass(frozen=True, slots=True)
class Cpu:
    """CPU of one way to keep a counter, in microseconds per event: the best of several batches."""

    way: str
    microseconds: float


class _Raw(io.BytesIO):
    def stream(self, **_: Any) -> Any:
        yield self.read()


def answers(item: Mapping[str, Any] | None = None) -> dict[str, bytes]:
    """What a DynamoDB that holds one item, or none, answers by operation; to all others `{}`, which is success."""
    found = {} if item is None else {"Item": item}
    return {"BatchGetItem": b'{"Responses":{},"UnprocessedKeys":{}}', "GetItem": json.dumps(found).encode()}


def _stubbed(dynamodb: Any, item: Mapping[str, Any] | None = None) -> Any:
    """A client that DynamoDB seems to answer, always with success; `item` is what every GetItem finds."""
    bodies = answers(item)

    def answer(request: Any, **_: Any) -> AWSResponse:
        operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        headers = {"x-amzn-requestid": "0", "content-type": "application/x-amz-json-1.0"}
        return AWSResponse(request.url, 200, headers, _Raw(bodies.get(operation, b"{}")))

    dynamodb.meta.events.register("before-send.dynamodb", answer)
    return dynamodb


def ours() -> Callable[[list[dict[str, Any]]], None]:
    rules = program()
    schemas = {**rules.tables, "ledger": LEDGER_SCHEMA}
    memory = MemoryStore(schemas)
    Registry(rules, memory).standing()
    dynamodb = _stubbed(client(endpoint_url=_ENDPOINT), memory.get(REGISTRY))
    store = DynamoDBStore(dynamodb, {"main": TABLE, "ledger": "ledger"}, schemas)
    processor = Processor(rules, store, tables={TABLE: "main"})

    def process(records: list[dict[str, Any]]) -> None:
        outcome = processor.process(records, remaining=lambda: 900.0)
        assert outcome.failed is None

    return process


def _plain_client() -> Any:
    session = boto3.Session("stub", "stub", region_name="us-east-1")
    return _stubbed(session.client("dynamodb", endpoint_url=_ENDPOINT, config=Config(retries={"mode": "standard"})))


def measure_all(rounds: int = 10) -> list[Cpu]:
    """Each way on likes of 10 posts, in turn, so that they share the machine's mood: ours on batches of 1000, the others,
    to which a batch means nothing, on 100.
    """
    ways = {"ours": ours(), **{name: way(_plain_client(), TABLE) for name, way in WAYS.items()}}
    thresholds = gc.get_threshold()
    gc.collect()
    collect_seldom()  # as the deployed handler does; the others gain by it, too
    best: dict[str, float] = {}
    try:
        for turn in range(rounds):
            for name, process in ways.items():
                events = _BATCH if name == "ours" else _BATCH // 10
                records = json.loads(json.dumps(likes(events, 10, first=(turn + 1) * 1_000_000)))
                started = time.process_time()
                process(records)
                spent = (time.process_time() - started) / events * 1e6
                best[name] = min(spent, best.get(name, spent))
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    return [Cpu(name, microseconds) for name, microseconds in best.items()]


def rows(found: list[Cpu]) -> list[dict[str, float | str]]:
    """With how many records a second a core takes (a shard gives 1000), and how ours, the first, compares."""
    ours_took = found[0].microseconds
    return [
        {
            "way": each.way,
            "µs CPU per event": each.microseconds,
            "records a second on a core": 1e6 / each.microseconds,
            "times ours": each.microseconds / ours_took,
        }
        for each in found
    ]


if __name__ == "__main__":
    for row in rows(measure_all()):
        print(row)
