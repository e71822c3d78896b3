"""A process that runs the handler is killed at random moments under load, and everything ends exactly right.

    KILLS=100 .venv/bin/python -m pytest tests/operations/test_kill.py

On MiniStack, with its stream: an application writes without a pause, over a few shared posts; worker after worker reads on
from the checkpoint and is killed by SIGKILL, after some time or at a chosen request: before it is sent, after it was
answered (the commit is done, nothing is published), after a batch and before its checkpoint.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from projections.aws.clients import client
from projections.aws.tables import create_table
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.values import wire
from projections.testing.oracle import Oracle

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("KILLS", "8"))
SEED = int(os.environ.get("KILL_SEED", "0")) or random.randrange(1, 1_000_000)
SIGKILL = -9

RULES = """
table:
  key: [PK, SK]
  indexes: {GSI1: [GSI1PK, GSI1SK]}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Email: {key: {PK: "EMAIL#{email}", SK: OWNER}, match: {type: Email}}
  Post: {key: {PK: "USER#{userId}", SK: "POST#{postId}"}, id: postId}
  PostMeta: {key: {PK: "POST#{postId}", SK: METADATA}, match: {type: PostMeta}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
  Vote: {key: {PK: "USER#{userId}", SK: "VOTE#{number}"}}
  Comment: {key: {PK: "POST#{postId}", SK: "COMMENT#{commentId}"}}
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
projections:
  owner: {from: User, copy: {into: Email, attributes: [userId]}}
  postById: {from: Post, copy: {into: PostMeta, attributes: [title, status, tags]}}
  likes: {from: Like, aggregate: {into: PostMeta, set: {likeCount: count}}}
  votes: {from: Vote, aggregate: {into: PostMeta, set: {votes: count, points: sum(points), best: max(number(points))}}}
  newest: {from: Comment, top: {into: PostMeta, as: recent, by: at, limit: 2, attributes: [text]}}
  tags: {from: PostMeta, each: {tag: tags}, aggregate: {into: Tag, set: {posts: count, points: sum(points)}}}
  listed:
    from: PostMeta
    where: {status: [published]}
    index: {GSI1PK: PUBLISHED, GSI1SK: "{likeCount|pad(6)}#{postId}"}
"""


class Application(threading.Thread):
    """Likes, unlikes, moves votes, edits and deletes posts, gives addresses away; now and then it writes over copies."""

    def __init__(self, dynamodb: Any, chance: random.Random) -> None:
        super().__init__(daemon=True)
        self._dynamodb = dynamodb
        self._chance = chance
        self._over = threading.Event()
        self.error: Exception | None = None
        self.phase = 0
        """Most writes are about the posts of the current phase, so later ones do not correct what a killed worker left."""
        self.writes: Counter[str] = Counter()

    def run(self) -> None:
        try:
            while not self._over.wait(0.002):
                self._write()
        except Exception as error:
            self.error = error

    def stop(self) -> None:
        self._over.set()
        self.join()
        if self.error is not None:
            raise self.error

    def put(self, partition: str, sort: str, **values: Any) -> None:
        self._dynamodb.put_item(
            TableName="app", Item={n: wire(v) for n, v in dict(PK=partition, SK=sort, **values).items()}
        )

    def delete(self, partition: str, sort: str) -> None:
        self._dynamodb.delete_item(TableName="app", Key={"PK": {"S": partition}, "SK": {"S": sort}})

    def _write(self) -> None:
        chance = self._chance
        user, number = chance.randrange(12), chance.randrange(5)
        phase = self.phase if chance.random() < 0.95 else chance.randint(0, self.phase)
        post = f"{phase}-{chance.randrange(6)}"
        what = chance.choices(
            ("like", "unlike", "vote", "unvote", "comment", "uncomment", "post", "unpost", "address", "overwrite"),
            (30, 12, 20, 6, 10, 5, 9, 2, 4, 3),
        )[0]
        self.writes[what] += 1
        match what:
            case "like":
                self.put(f"USER#{user}", f"LIKE#{post}", note=number)
            case "unlike":
                self.delete(f"USER#{user}", f"LIKE#{post}")
            case "vote":  # the same vote, perhaps for another post
                self.put(f"USER#{user}", f"VOTE#{phase}-{number}", postId=post, points=chance.randint(-3, 9))
            case "unvote":
                self.delete(f"USER#{user}", f"VOTE#{phase}-{number}")
            case "comment":
                self.put(f"POST#{post}", f"COMMENT#{number}", text=str(chance.random()), at=chance.randrange(99))
            case "uncomment":
                self.delete(f"POST#{post}", f"COMMENT#{number}")
            case "post":
                tags = chance.sample(("red", f"blue{phase}", f"green{phase}"), chance.randrange(3))
                status = chance.choice(("draft", "published"))
                self.put("USER#0", f"POST#{post}", title=str(number), status=status, tags=tags)
            case "unpost":
                self.delete("USER#0", f"POST#{post}")
            case "address":
                self.put(f"USER#{user}", "PROFILE", email=f"{phase}-{number}")
            case "overwrite":
                self._overwrite(post)

    def _overwrite(self, post: str) -> None:
        """A copy as the application should not treat it: put back as it was read, changed, or deleted."""
        key = {"PK": {"S": f"POST#{post}"}, "SK": {"S": "METADATA"}}
        item = self._dynamodb.get_item(TableName="app", Key=key, ConsistentRead=True).get("Item")
        if item is None:
            return
        match self._chance.randrange(3):
            case 0:
                self._dynamodb.put_item(TableName="app", Item={**item, "likeCount": {"N": "77"}})
            case 1:
                kept = {name: value for name, value in item.items() if not name.startswith("~l")}
                self._dynamodb.put_item(TableName="app", Item=kept)
            case _:
                self._dynamodb.delete_item(TableName="app", Key=key)


class Workers:
    """Orders one worker after the other from kill_worker.py."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._heard() == {"ready": True}

    def order(self, **order: Any) -> int:
        """The exit status of the worker that got this order."""
        assert self._process.stdin is not None
        print(json.dumps(order), file=self._process.stdin, flush=True)
        status: int = self._heard()["status"]
        return status

    def _heard(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, "kill_worker.py ended"
        return json.loads(line)


@contextmanager
def workers(environment: dict[str, str]) -> Iterator[Workers]:
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("kill_worker.py"))],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Workers(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(20)


def orders(chance: random.Random) -> Iterator[dict[str, Any]]:
    """Yield points at which to kill the worker; the first few are one of each kind."""
    first: list[dict[str, Any]] = [
        {"call": 1, "when": "after-call", "operation": "TransactWriteItems"},  # committed, not published
        {"call": 2, "when": "before-call", "operation": "UpdateItem"},
        {"batch": 1},
        {"after": 0.2},
    ]
    yield from first
    while True:
        match chance.randrange(4):
            case 0:
                yield {"call": chance.randint(1, 4), "when": "after-call", "operation": "TransactWriteItems"}
            case 1:
                operation = chance.choice(("", "UpdateItem", "DeleteItem", "BatchGetItem", "Query"))
                when = chance.choice(("before-call", "after-call"))
                yield {"call": chance.randint(1, 30 if not operation else 6), "when": when, "operation": operation}
            case 2:
                yield {"batch": chance.randint(1, 3)}
            case _:
                yield {"after": chance.uniform(0.01, 0.5)}


@pytest.mark.deep
def test_workers_that_are_killed_under_load_leave_everything_exactly_right(
    ministack_url: str, tmp_path: Path, capsys: Any
) -> None:
    started = time.monotonic()
    chance = random.Random(SEED)
    document = loads(RULES).canonical()
    program = Program.from_document(document)
    dynamodb = client("dynamodb", ministack_url)
    create_table(dynamodb, "app", program.tables["main"])
    create_table(dynamodb, "ledger", LEDGER_SCHEMA, stream=False)
    (tmp_path / "rules.json").write_text(json.dumps(document))
    environment = {
        "AWS_ENDPOINT_URL": ministack_url,
        "TABLE_NAME": "app",
        "LEDGER_TABLE_NAME": "ledger",
        "RULES_FILE": str(tmp_path / "rules.json"),
        "STREAM_ARN": dynamodb.describe_table(TableName="app")["Table"]["LatestStreamArn"],
        "CHECKPOINT": str(tmp_path / "checkpoint"),
    }
    application = Application(dynamodb, random.Random(SEED + 1))
    ways: Counter[str] = Counter()
    with workers(environment) as server:
        application.start()
        for application.phase, order in zip(range(KILLS), orders(chance), strict=False):
            assert server.order(**order) == SIGKILL, (SEED, order)
            ways[str(order.get("operation") or next(iter(order)))] += 1
        application.stop()
        killed = time.monotonic()
        assert server.order(drain=True) == 0, SEED
    pages = dynamodb.get_paginator("scan").paginate(TableName="app", ConsistentRead=True)
    items = [item for page in pages for item in page["Items"]]
    differences = Oracle(document).compare({"main": items})
    writes = sum(application.writes.values())
    with capsys.disabled():
        print(
            f"\n{KILLS} kills ({', '.join(f'{n} {way}' for way, n in sorted(ways.items()))}) over {writes} writes in "
            f"{killed - started:.1f} s, drained in {time.monotonic() - killed:.1f} s, seed {SEED}"
        )
    assert differences == [], SEED
    assert writes > 5 * KILLS
    assert sum("~likes" in item for item in items) > 0
    dynamodb.delete_table(TableName="app")
    dynamodb.delete_table(TableName="ledger")
