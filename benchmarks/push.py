"""A push to many children, beside one `UpdateItem` per child in a loop: `python -m benchmarks.push [CHILDREN]`.

On DynamoDB Local, which speaks the PartiQL that batches need. Time is a ratio within one run; calls are exact.
"""

from __future__ import annotations

import gc
import resource
import sys
import time
from dataclasses import dataclass

from benchmarks.workload import TABLE
from projections.engine.effort import Effort
from projections.engine.embeds import Embedder, Push
from projections.language.keys import ItemKey, encode_key
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.stores.aws import client, create_table, delete_table
from projections.stores.dynamodb import DynamoDBStore, Meter

__all__ = ["Pushed", "measure"]

RULES = """
table: {key: [PK, SK]}
entities:
  Team: {key: {PK: "TEAM#{teamId}", SK: INFO}}
  Member: {key: {PK: "TEAM#{teamId}", SK: "MEMBER#{userId}"}}
projections:
  team: {from: Team, embed: {into: Member, match: {teamId: "{teamId}"}, attributes: {teamName: name}}}
"""


@dataclass(frozen=True, slots=True)
class Pushed:
    """What a push cost: seconds, calls, and memory above idle in MB."""

    children: int
    push_seconds: float
    loop_seconds_per_child: float
    calls: int
    write_units: float
    megabytes: float

    @property
    def times_faster(self) -> float:
        return self.loop_seconds_per_child * self.children / self.push_seconds


def measure(endpoint: str, children: int, looped: int = 2000) -> Pushed:
    """Pushes a name to `children` children, then updates `looped` of them one by one as one would by hand."""
    rules = Program.from_document(loads(RULES).canonical())
    dynamodb = client(endpoint_url=endpoint)
    names = {"main": f"push-{TABLE}", "ledger": "push-ledger"}
    schemas = {**rules.tables, "ledger": LEDGER_SCHEMA}
    for name, schema in schemas.items():
        create_table(dynamodb, names[name], schema, stream=False)
    try:
        members = [f"{number:07d}" for number in range(children)]
        for start in range(0, children, 25):
            puts = [
                {"PutRequest": {"Item": {"PK": {"S": "TEAM#t"}, "SK": {"S": f"MEMBER#{m}"}, "note": {"S": "x" * 100}}}}
                for m in members[start : start + 25]
            ]
            dynamodb.batch_write_item(RequestItems={names["main"]: puts})
        dynamodb.put_item(
            TableName=names["main"], Item={"PK": {"S": "TEAM#t"}, "SK": {"S": "INFO"}, "name": {"S": "Reds"}}
        )
        meter = Meter()
        embedder = Embedder(rules, DynamoDBStore(dynamodb, names, schemas, meter))
        gc.collect()
        idle = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        push: Push | None = Push("team", encode_key(ItemKey("main", "TEAM#t", "INFO")), "2026/1")
        assert push is not None
        embedder.raise_fence(push)
        started = time.perf_counter()
        effort = Effort(lambda: 9e9)
        while push is not None:
            push, hopeless = embedder.push_page(push, effort)
            assert not hopeless
        spent = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        started = time.perf_counter()
        for member in members[:looped]:
            dynamodb.update_item(
                TableName=names["main"],
                Key={"PK": {"S": "TEAM#t"}, "SK": {"S": f"MEMBER#{member}"}},
                UpdateExpression="SET teamName = :n",
                ConditionExpression="attribute_exists(PK)",
                ExpressionAttributeValues={":n": {"S": "Blues"}},
            )
        per_child = (time.perf_counter() - started) / min(looped, children)
        calls = sum(meter.calls.values())
        return Pushed(children, spent, per_child, calls, meter.write_units, (peak - idle) / 1024)
    finally:
        for name in names.values():
            delete_table(dynamodb, name)


if __name__ == "__main__":
    from tests.emulators import dynamodb_local, running

    with running(dynamodb_local) as url:
        found = measure(url, int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
    print(
        f"{found.children} children in {found.push_seconds:.1f} s, {found.times_faster:.1f} times as fast as a loop; "
        f"{found.calls / found.children:.4f} calls and {found.write_units / found.children:.2f} write units per child; "
        f"{found.megabytes:.1f} MB above idle"
    )
