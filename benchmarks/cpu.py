"""CPU per event with HTTP answered by a stub, beside what one would write instead: `python -m benchmarks.cpu`."""

from __future__ import annotations

import gc
import io
import json
import time
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from botocore.config import Config

from benchmarks.baselines import WAYS
from benchmarks.figures import LANES, OURS, Figure, lines
from benchmarks.workload import TABLE, likes, program
from projections.aws.clients import client
from projections.aws.wiring import collect_seldom
from projections.engine.processor import Processor
from projections.engine.registry import REGISTRY, Registry
from projections.language.program import LEDGER_SCHEMA
from projections.stores.dynamodb import DynamoDBStore
from projections.stores.memory import MemoryStore

__all__ = ["SHARD", "SPREAD", "TOGETHER", "answers", "figures", "measure_all", "ours"]

_ENDPOINT = "http://127.0.0.1:9"

SHARD = 1000
"""Records a second that a shard of a stream gives at most."""

TOGETHER, SPREAD = "likes of 10 posts", "likes of a post each"


class _Raw(io.BytesIO):
    def stream(self, **_: Any) -> Any:
        yield self.read()


def answers(item: Mapping[str, Any] | None = None) -> dict[str, bytes]:
    """What a DynamoDB that holds one item, or none, answers by operation; to all others `{}`, which is success."""
    found = {} if item is None else {"Item": item}
    returned = json.dumps({"Attributes": _GROUP}).encode()
    return {
        "BatchGetItem": b'{"Responses":{},"UnprocessedKeys":{}}',
        "GetItem": json.dumps(found).encode(),
        "UpdateItem": returned,
    }


_GROUP = {"version": {"N": "7"}, "n": {"N": "7"}, "pk": {"S": "G"}, "sk": {"S": "00"}}
_RETURNED = b'{"Item":' + json.dumps(_GROUP).encode() + b"}"


def _statements(number: int, returning: bool) -> bytes:
    """All done; one alone is the trial that must fail, by which a store finds out whether an endpoint speaks PartiQL."""
    if number == 1:
        return b'{"Responses":[{"Error":{"Code":"ConditionalCheckFailed","Message":"The conditional request failed"}}]}'
    return b'{"Responses":[' + b",".join([_RETURNED if returning else b"{}"] * number) + b"]}"


def _stubbed(dynamodb: Any, item: Mapping[str, Any] | None = None) -> Any:
    """A client that DynamoDB seems to answer, always with success; `item` is what every GetItem finds."""
    bodies = answers(item)

    def answer(request: Any, **_: Any) -> AWSResponse:
        operation = request.headers["X-Amz-Target"].decode().rpartition(".")[2]
        headers: Any = {"x-amzn-requestid": "0", "content-type": "application/x-amz-json-1.0"}
        body = bodies.get(operation, b"{}")
        if operation == "BatchExecuteStatement":
            body = _statements(request.body.count(b'{"Statement":'), b"RETURNING" in request.body)
        return AWSResponse(request.url, 200, headers, _Raw(body))

    dynamodb.meta.events.register("before-send.dynamodb", answer)
    return dynamodb


def ours(*, lanes: bool = False) -> Callable[[list[dict[str, Any]]], None]:
    rules = program(lanes=lanes)
    schemas = {**rules.tables, "ledger": LEDGER_SCHEMA}
    memory = MemoryStore(schemas)
    Registry(rules, memory).read_or_create()
    if lanes:  # the first batch notes the stream
        Processor(rules, memory, tables={TABLE: "main"}).process(likes(1, 1), remaining=lambda: 900.0, shard="shard")
    dynamodb = _stubbed(client(endpoint_url=_ENDPOINT), memory.get(REGISTRY))
    store = DynamoDBStore(dynamodb, {"main": TABLE, "ledger": "ledger"}, schemas)
    processor = Processor(rules, store, tables={TABLE: "main"})

    def process(records: list[dict[str, Any]]) -> None:
        outcome = processor.process(records, remaining=lambda: 900.0, shard="shard")
        assert outcome.failed is None

    return process


def _plain_client() -> Any:
    session = boto3.Session("stub", "stub", region_name="us-east-1")
    return _stubbed(session.client("dynamodb", endpoint_url=_ENDPOINT, config=Config(retries={"mode": "standard"})))


def measure_all(rounds: int = 10) -> dict[tuple[str, str], float]:
    """Each way in turn, so that they share the machine's mood: ours on batches of 100 and of 1000, the others on 100. The
    best of all rounds by case and way, in microseconds of CPU per event.
    """
    function, by_lanes = ours(), ours(lanes=True)
    ways = {name: (function, size) for size, name in OURS.items()}
    ways |= {name: (by_lanes, size) for size, name in LANES.items()}
    ways |= {name: (way(_plain_client(), TABLE), 100) for name, way in WAYS.items()}
    thresholds = gc.get_threshold()
    gc.collect()
    collect_seldom()  # as the deployed handler does; the others gain by it, too
    best: dict[tuple[str, str], float] = {}
    try:
        for turn in range(rounds):
            for number, (case, (name, (process, events))) in enumerate(product((TOGETHER, SPREAD), ways.items())):
                posts = 10 if case == TOGETHER else events
                records = json.loads(json.dumps(likes(events, posts, first=(turn * 100 + number + 1) * 10_000)))
                started = time.process_time()
                process(records)
                spent = (time.process_time() - started) / events * 1e6
                best[case, name] = min(spent, best.get((case, name), spent))
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)
    return best


def figures(found: Mapping[tuple[str, str], float]) -> list[Figure]:
    """With how many records a second a core takes, and how many times as long each way takes as ours in batches of 1000."""
    derived: Mapping[str, Callable[[float, float], float]] = {
        "microseconds per event": lambda spent, ours: spent,
        f"times {OURS[1000]}": lambda spent, ours: spent / ours,
        "records a second": lambda spent, ours: 1e6 / spent,
        f"times the {SHARD} records a second of a shard": lambda spent, ours: 1e6 / spent / SHARD,
    }
    return [
        Figure("CPU of one core, HTTP stubbed", unit, case, way, value(spent, found[case, OURS[1000]]))
        for unit, value in derived.items()
        for (case, way), spent in found.items()
    ]


if __name__ == "__main__":
    print(*lines(figures(measure_all())), sep="\n")
