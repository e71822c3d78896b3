"""The local loop, on emulators: as people run it, in a process of its own, and piece by piece."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from click.testing import CliRunner

from projections.aws.clients import client
from projections.aws.live_tables import create_table
from projections.aws.streams import FoundShard, StreamGone, StreamReader, Stretch
from projections.cli.main import cli
from projections.dev.projector import WatchedStore, is_own
from projections.dev.session import Session
from projections.dev.target import Followed
from projections.engine.guards import digits_of
from projections.engine.records import decode
from projections.engine.store import AllOf, Delete, Exists, ItemKey, Missing, Purpose, Schema, Update
from projections.errors import ConditionFailed, ProjectionsError, Transient
from projections.inspect.explain.record_effects import record_report
from projections.inspect.rehearsal.rehearse import Decoded
from projections.language.keys import Image
from projections.language.loader import load
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.values import plain_item
from projections.local.functions import Functions
from projections.operations.backfill.progress import Run
from projections.operations.backfill.runner import Runner
from projections.stores.memory import MemoryStore

ROOT = Path(__file__).parents[2]
SCHEMA = Schema(("PK", "S"), ("SK", "S"))

RULES = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "USER#{userId}", SK: "POST#{postId}"}, id: postId}
  Meta: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#POST#{postId}"}}
projections:
  byId: {from: Post, copy: {into: Meta, attributes: [title]}}
  likes: {from: Like, aggregate: {into: Meta, set: {likeCount: count}}}
"""
MONTHS = """
  Month: {key: {PK: "MONTH#{month}", SK: STATS}, derived: true}
projections:
  months: {from: Post, bind: {month: "{at|date(%Y-%m)}"}, aggregate: {into: Month, set: {posts: count}}}
"""
BOARD = """
  board: {from: Meta, index: {B: BOARD, R: "{title}"}}
"""


class Table:
    """An application's table at an endpoint, under a name of its own."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.name = f"app-{uuid.uuid4().hex[:8]}"
        self.dynamodb = client("dynamodb", url)

    def create(self) -> None:
        create_table(self.dynamodb, self.name, SCHEMA)

    def put(self, partition: str, sort: str, **attributes: str) -> None:
        item = {"PK": partition, "SK": sort, **attributes}
        self.dynamodb.put_item(TableName=self.name, Item={name: {"S": value} for name, value in item.items()})

    def item(self, partition: str, sort: str) -> dict[str, Any] | None:
        key = {"PK": {"S": partition}, "SK": {"S": sort}}
        found: Image | None = self.dynamodb.get_item(TableName=self.name, Key=key, ConsistentRead=True).get("Item")
        return (
            None
            if found is None
            else {n: v for n, v in plain_item(found).items() if n not in ("PK", "SK") and n[0] != "~"}
        )

    def arguments(self, rules: Path, *more: str) -> list[str]:
        return ["dev", "--rules", str(rules), "--table", self.name, "--endpoint-url", self.url, *more]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    return path


class Loop:
    """`projections dev` in a process of its own; `lines` is what it has printed so far."""

    def __init__(self, arguments: list[str]) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "projections", *arguments],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
        )
        self.lines: list[str] = []
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(iter(self.process.stdout.readline, ""))

    @property
    def text(self) -> str:
        return "".join(self.lines)

    def until(self, *parts: str, seconds: float = 60.0) -> None:
        """Waits until all of this was printed."""
        wait_for(lambda: all(part in self.text for part in parts), lambda: f"no {parts} in\n{self.text}", seconds)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        code = self.process.wait(60)
        self._reading.join(10)
        return code


@contextmanager
def loop(arguments: list[str]) -> Iterator[Loop]:
    running = Loop(arguments)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait()


def wait_for(holds: Callable[[], object], message: Callable[[], str], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, message()
        time.sleep(0.1)


@pytest.mark.deep
def test_session_with_edited_rules(dynamodb_local_url: str, rules: Path) -> None:
    """Tables are made, writes are projected and told, rules are edited badly and well, Ctrl-C ends it."""
    table = Table(dynamodb_local_url)
    with loop(table.arguments(rules, "--create")) as running:
        running.until(f"created table {table.name}\n", f"created table {table.name}-ledger", f"following {table.name}")
        table.put("USER#a", "POST#1", title="T", at="2025-05-06")
        table.put("USER#b", "LIKE#POST#1")
        table.put("OTHER", "x")
        wait_for(lambda: table.item("POST#1", "METADATA") == {"title": "T", "likeCount": 1}, lambda: running.text)
        running.until(
            "INSERT  Like  USER#b · LIKE#POST#1  likes",
            "→ POST#1 · METADATA  likeCount 1  likes",
            "INSERT  (no entity)  OTHER · x",
        )
        assert '→ POST#1 · METADATA  title "T"  byId' in running.text
        assert "write units" in running.text

        rules.write_text(RULES.replace("from: Like", "from: Likes"))
        running.until(
            'unknown entity "Likes" (did you mean "Like"?)', "The old rules stay active: rules.yaml has mistakes"
        )
        table.put("USER#c", "LIKE#POST#1")
        wait_for(lambda: table.item("POST#1", "METADATA") == {"title": "T", "likeCount": 2}, lambda: running.text)

        indexed = RULES.replace("key: [PK, SK]}", "key: [PK, SK], indexes: {Board: [B, R]}}")
        rules.write_text(indexed.replace("projections:\n", MONTHS[1:]) + BOARD)
        running.until("+ months new", "+ board new")
        wait_for(lambda: running.text.count("items read") == 2, lambda: running.text)
        assert table.item("MONTH#2025-05", "STATS") == {"posts": 1}, "items from before the rule count at once"
        board = {"IndexName": "Board", "KeyConditionExpression": "B = :b"}
        found = table.dynamodb.query(TableName=table.name, **board, ExpressionAttributeValues={":b": {"S": "BOARD"}})
        assert found["Count"] == 1

        table.put("USER#a", "POST#2", title="U", at="yesterday")
        running.until("quarantined by months  USER#a · POST#2")
        rules.write_text(RULES)
        running.until("board, months: removed from the file, so its values are removed", "- months")
        wait_for(lambda: running.text.count("items read") == 3, lambda: running.text)
        assert table.item("MONTH#2025-05", "STATS") is None
        assert table.item("POST#1", "METADATA") == {"title": "T", "likeCount": 2}

        assert running.end(signal.SIGINT) == 0, running.text
        assert running.lines[-1].endswith("1 quarantined, 0 discarded.\n"), running.text


def test_existing_items_are_backfilled_when_a_session_begins(ministack_url: str, rules: Path) -> None:
    """A second time there is nothing left to do; writes between sessions are projected by the next one."""
    table = Table(ministack_url)
    table.create()
    table.put("USER#a", "POST#1", title="T")
    for user in "bcd":
        table.put(f"USER#{user}", "LIKE#POST#1")

    def told(*more: str) -> str:
        before = signal.getsignal(signal.SIGINT)
        done = CliRunner().invoke(cli, table.arguments(rules, "--until-idle", *more), catch_exceptions=False)
        assert signal.getsignal(signal.SIGINT) is before
        return done.output

    first = told()  # it reads five items if the copy of the post was made from the stream before the scan reached it
    assert table.item("POST#1", "METADATA") == {"title": "T", "likeCount": 3}
    assert first.startswith(tuple(f"created table {table.name}-ledger\nbackfill: {n} items read, " for n in (4, 5)))
    assert first.splitlines()[-1].endswith("0 quarantined, 0 discarded.")
    assert "backfill: 5 items read, 0 writes and " in told()
    assert table.item("POST#1", "METADATA") == {"title": "T", "likeCount": 3}
    table.put("USER#e", "LIKE#POST#1")
    told()
    assert table.item("POST#1", "METADATA") == {"title": "T", "likeCount": 4}
    third = told("--ledger", f"{table.name}-other")
    assert table.item("POST#1", "METADATA") == {"title": "T", "likeCount": 4}, "an empty ledger is filled by a backfill"
    assert "another ledger maintains this table, or did: its items have guards of" in third
    assert "backfill: " in third


@pytest.mark.deep
def test_a_stream_that_is_switched_off_ends_the_session(dynamodb_local_url: str, rules: Path) -> None:
    table = Table(dynamodb_local_url)
    table.create()
    table.put("USER#a", "POST#1", title="T")
    with loop(table.arguments(rules)) as running:
        wait_for(lambda: table.item("POST#1", "METADATA") is not None, lambda: running.text)
        table.dynamodb.update_table(TableName=table.name, StreamSpecification={"StreamEnabled": False})
        running.until("is disabled. Restart the command when the table has a stream again")
        assert running.process.wait(60) == 2


def refused(*arguments: str, environ: Mapping[str, str] | None = None) -> str:
    result = CliRunner(env=environ).invoke(cli, arguments)
    assert isinstance(result.exception, ProjectionsError), result.output
    return str(result.exception)


def test_missing_table_or_stream_is_an_error_with_a_solution(dynamodb_local_url: str, rules: Path) -> None:
    table = Table(dynamodb_local_url)
    assert "this command writes, so it works on emulators only. Name one with --endpoint-url" in refused(
        "dev", "--rules", str(rules), "--table", "app"
    )
    here = table.arguments(rules)
    assert f"there is no table {table.name} at {table.url}. Pass --create to create it" in refused(*here)
    table.create()
    off = {"TableName": table.name, "StreamSpecification": {"StreamEnabled": False}}
    table.dynamodb.update_table(**off)
    told = refused(*here)
    assert f"table {table.name} has no stream. Enable it" in told
    assert f"aws dynamodb update-table --table-name {table.name} --stream-specification StreamEnabled=true" in told
    table.dynamodb.update_table(
        TableName=table.name, StreamSpecification={"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"}
    )
    told = refused(*here)
    assert "has NEW_IMAGE, and the rules need NEW_AND_OLD_IMAGES" in told
    assert told.index("StreamEnabled=false") < told.index("StreamEnabled=true")
    nowhere = [*table.arguments(rules)[:-1], "http://127.0.0.1:9"]
    assert "http://127.0.0.1:9: Could not connect" in refused(*nowhere)


@pytest.mark.deep
def test_missing_parts_of_a_table_are_made(dynamodb_local_url: str, rules: Path) -> None:
    """--create adds indexes and the stream to a table that exists; without it a missing index is told."""
    table = Table(dynamodb_local_url)
    other = Schema(SCHEMA.partition, SCHEMA.sort, {"Other": ((("O", "S"),), ())})
    create_table(table.dynamodb, table.name, other, stream=False)
    rules.write_text(RULES.replace("key: [PK, SK]}", "key: [PK, SK], indexes: {Board: [B, R]}}") + BOARD)
    result = CliRunner().invoke(cli, table.arguments(rules, "--create", "--until-idle"), catch_exceptions=False)
    assert f"created index Board of {table.name}" in result.output
    assert f"created stream of {table.name}" in result.output
    rules.write_text(rules.read_text().replace("Board:", "Missing:"))
    assert "has no index Missing with the key B (S), R (S); it has" in refused(*table.arguments(rules))


def test_indexes_are_made_with_their_projection_and_local_ones_only_with_their_table(
    dynamodb_local_url: str, rules: Path
) -> None:
    some, local = "Board: {partition: B, sort: R, projection: [title]}", "Local: {sort: at, local: true}"
    table = Table(dynamodb_local_url)
    create_table(table.dynamodb, table.name, SCHEMA)
    rules.write_text(RULES.replace("key: [PK, SK]}", f"key: [PK, SK], indexes: {{{local}, {some}}}}}") + BOARD)
    told = refused(*table.arguments(rules, "--create", "--until-idle"))
    assert f"table {table.name} lacks the local index Local, which can be created only with its table" in told
    assert "GlobalSecondaryIndexes" not in table.dynamodb.describe_table(TableName=table.name)["Table"]
    other = Table(dynamodb_local_url)
    result = CliRunner().invoke(cli, other.arguments(rules, "--create", "--until-idle"), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    made = other.dynamodb.describe_table(TableName=other.name)["Table"]
    (index,) = made["GlobalSecondaryIndexes"]
    assert index["Projection"] == {"ProjectionType": "INCLUDE", "NonKeyAttributes": ["title"]}
    assert [one["IndexName"] for one in made["LocalSecondaryIndexes"]] == ["Local"]


def test_several_tables(dynamodb_local_url: str, rules: Path) -> None:
    rules.write_text(
        """
tables: {orders: {key: [id]}, customers: {key: {number: N}}}
entities:
  Order: {table: orders, key: {id: "{order}"}}
  Customer: {table: customers, key: {number: "{customer}"}}
projections:
  orders: {from: Order, aggregate: {into: Customer, set: {orders: count}}}
"""
    )
    tables = [Table(dynamodb_local_url), Table(dynamodb_local_url)]
    named = ["--table", f"orders={tables[0].name}", "--table", f"customers={tables[1].name}"]
    arguments = ["dev", "--rules", str(rules), *named, "--endpoint-url", dynamodb_local_url, "--create", "--until-idle"]
    CliRunner().invoke(cli, arguments, catch_exceptions=False)
    dynamodb = tables[0].dynamodb
    dynamodb.put_item(TableName=tables[1].name, Item={"number": {"N": "7"}})
    dynamodb.put_item(TableName=tables[0].name, Item={"id": {"S": "o"}, "customer": {"N": "7"}})
    CliRunner().invoke(cli, arguments, catch_exceptions=False)
    found = dynamodb.get_item(TableName=tables[1].name, Key={"number": {"N": "7"}})["Item"]
    assert found["orders"] == {"N": "1"}


def test_batch_that_always_fails_is_discarded(
    dynamodb_local_url: str, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A defect of the engine, as Lambda sees it: the batch is retried, told, and at last left behind; the rest goes on."""
    stream = Functions.stream

    def broken(self: Functions, event: Mapping[str, Any]) -> dict[str, Any]:
        if any(one["dynamodb"]["Keys"]["PK"]["S"] == "USER#bad" for one in event["Records"]):
            raise RuntimeError("out of order")
        return stream(self, event)

    monkeypatch.setattr(Functions, "stream", broken)
    monkeypatch.setattr("projections.dev.target.RETRIES", 1)
    table = Table(dynamodb_local_url)
    table.create()
    begin = Session.begin

    def late(self: Session) -> None:
        begin(self)
        table.put("USER#bad", "LIKE#POST#1")
        table.put("USER#a", "POST#1", title="T")

    monkeypatch.setattr(Session, "begin", late)
    result = CliRunner().invoke(cli, table.arguments(rules, "--until-idle"), standalone_mode=False)
    assert result.return_value == 1, "findings"
    assert result.output.count("failed  RuntimeError: out of order; will be retried") == 2
    assert "discarded  INSERT USER#bad · LIKE#POST#1: RuntimeError: out of order" in result.output
    assert "1 discarded." in result.output
    assert (table.item("POST#1", "METADATA") or {})["title"] == "T"


def test_stopped_backfill_continues_in_the_next_session(
    dynamodb_local_url: str, rules: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then nothing partial is published."""
    table = Table(dynamodb_local_url)
    table.create()
    table.put("POST#1", "METADATA")
    table.put("USER#a", "LIKE#POST#1")

    def stopped(runner: Runner, run: Run) -> Run:
        raise KeyboardInterrupt

    now = table.arguments(rules, "--until-idle")
    with monkeypatch.context() as patch:
        patch.setattr(Runner, "work", stopped)
        first = CliRunner().invoke(cli, now, catch_exceptions=False)
    assert "the backfill is not complete; it continues in the next session" in first.output
    assert table.item("POST#1", "METADATA") == {}
    assert "backfill: 2 items read, 1 write and " in CliRunner().invoke(cli, now, catch_exceptions=False).output
    assert table.item("POST#1", "METADATA") == {"likeCount": 1}


# --- piece by piece


class Shards:
    """A stream that is played: what DescribeStream shows, and what each shard holds."""

    arn = "arn:aws:dynamodb:local:0:table/app/stream/2025-01-01T00:00:00.000"

    def __init__(self) -> None:
        self.found: list[FoundShard] = []
        self.held: dict[str, list[dict[str, Any]]] = {}
        self.begun: dict[str, bool] = {}

    def shards(self) -> tuple[bool, list[FoundShard]]:
        return True, list(self.found)

    def begin(self, shard: str, *, latest: bool = False) -> None:
        self.begun[shard] = latest
        if latest:
            self.held[shard] = []

    def read(self, shard: str) -> Stretch:
        records, self.held[shard] = self.held.get(shard, []), []
        (found,) = (one for one in self.found if one.id == shard)
        return Stretch(records, found.closed)


def record(number: int) -> dict[str, Any]:
    return {"eventName": "INSERT", "dynamodb": {"Keys": {"PK": {"S": "x"}}, "SequenceNumber": str(number)}}


def followed(shards: Shards, *, latest: bool) -> Followed:
    found = Followed(shards, latest=latest, on_failure=lambda records, error: None)  # type: ignore[arg-type]
    found.discover()
    return found


def numbers(stream: Followed) -> list[int]:
    """What is delivered now."""
    found = []
    while (batch := stream.next_batch()) is not None:
        found += [int(one["dynamodb"]["SequenceNumber"]) for one in batch.records]
        stream.finish(batch)
    return found


def test_a_split_shard_is_read_before_its_children() -> None:
    shards = Shards()
    shards.found = [FoundShard("a", None, False)]
    shards.held = {"a": [record(1)], "b": [record(3)], "c": [record(4)]}
    stream = followed(shards, latest=False)
    stream.poll()
    assert numbers(stream) == [1]
    shards.found = [FoundShard("a", None, True), FoundShard("b", "a", False), FoundShard("c", "a", False)]
    shards.held["a"] = [record(2)]
    stream.poll()  # the rest of a; its children are found at once
    stream.poll()
    assert numbers(stream) == [2, 3, 4]
    assert not stream.waiting
    assert shards.begun == {"a": False, "b": False, "c": False}


def test_from_now_on_means_later_shards_from_their_beginning() -> None:
    shards = Shards()
    shards.found = [FoundShard("old", None, True), FoundShard("a", "old", False)]
    shards.held = {"old": [record(1)], "a": [record(2)]}
    stream = followed(shards, latest=True)
    assert shards.begun == {"a": True}, "a shard that is closed already has nothing new"
    shards.held["a"].append(record(3))
    shards.found = [*shards.found[:1], FoundShard("a", "old", True), FoundShard("b", "a", False)]
    shards.held["b"] = [record(4)]
    stream.poll()
    stream.poll()
    assert numbers(stream) == [3, 4]


def test_a_batch_that_fails_comes_again() -> None:
    shards = Shards()
    shards.found = [FoundShard("a", None, False)]
    shards.held = {"a": [record(1), record(2)]}
    stream = followed(shards, latest=False)
    stream.poll()
    batch = stream.next_batch()
    assert batch is not None
    stream.finish(batch, {"batchItemFailures": [{"itemIdentifier": "1"}]})
    assert stream.waiting == 2
    assert numbers(stream) == [1, 2]


class Worn:
    """A streams client whose iterators are too old, and whose stream forgets."""

    def __init__(self, *codes: str) -> None:
        self.codes = list(codes)
        self.asked: list[str] = []

    def get_shard_iterator(self, **request: str) -> dict[str, str]:
        self.asked.append(request["ShardIteratorType"])
        return {"ShardIterator": "fresh"}

    def get_records(self, **request: Any) -> dict[str, Any]:
        if self.codes and (code := self.codes.pop(0)):
            raise ClientError({"Error": {"Code": code, "Message": "no"}}, "GetRecords")
        return {"Records": [record(5)], "NextShardIterator": "next"}


def test_reader_continues_after_the_last_record() -> None:
    """After an iterator has expired, after the last record; where that is trimmed, with what is left."""
    worn = Worn("", "ExpiredIteratorException", "TrimmedDataAccessException")
    reader = StreamReader(worn, Shards.arn)
    reader.begin("a", latest=True)
    assert [one["dynamodb"]["SequenceNumber"] for one in reader.read("a").records] == ["5"]
    assert reader.read("a") == Stretch((), False)
    assert reader.read("a") == Stretch((), False)
    assert reader.read("a").records
    assert worn.asked == ["LATEST", "AFTER_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"]
    for code, error in (("ResourceNotFoundException", StreamGone), ("LimitExceededException", Transient)):
        reader = StreamReader(Worn(code), Shards.arn)
        reader.begin("a")
        with pytest.raises(error):
            reader.read("a")


def program(path: Path) -> Program:
    return Program.from_document(load(path).document())


def test_watched_store_records_writes_with_their_rules(rules: Path) -> None:
    rules.write_text(RULES.replace("key: [PK, SK]}", "key: [PK, SK], indexes: {Board: [B, R]}}") + BOARD)
    known = program(rules)
    store = WatchedStore(MemoryStore({**known.tables, "ledger": LEDGER_SCHEMA}), known)
    key = ItemKey("main", "POST#1", "METADATA")
    here, guard = Exists(("PK",)), {"~likes": {"M": {}}}
    store.write(Update(key, set={"likeCount": {"N": "1"}, **guard}, purpose=Purpose("publish", ("likes",))))
    store.transact([Update(ItemKey("ledger", "p", "s"), set={"n": {"N": "1"}})])
    done = Update(key, set={"B": {"S": "BOARD"}}, remove=("R",), condition=here, purpose=Purpose("index", ("board",)))
    needless = Update(key, condition=AllOf((here, Missing(("B",)))))
    assert store.write_each([done, needless])[0] is None
    with pytest.raises(ConditionFailed):
        store.write(Update(key, condition=Missing(("PK",))))
    store.write(Delete(key, condition=Exists(("~likes",)), purpose=Purpose("delete", ("likes",))))
    seen = store.take_delivery()
    assert [(one.rules, dict(one.set), one.removed, one.deleted) for one in seen.written] == [
        (("likes",), {"likeCount": {"N": "1"}}, (), False),
        (("board",), {"B": {"S": "BOARD"}}, ("R",), False),
        (("likes",), {}, (), True),
    ]
    assert seen.ledger_writes == 1
    assert store.take_delivery().written == []


def test_records_of_our_own_writes_are_known(rules: Path) -> None:
    known = program(rules)
    meta = {"PK": {"S": "POST#1"}, "SK": {"S": "METADATA"}}
    guard = {"M": {"d": {"S": "12345678"}, "by": {"S": "main|USER#a|POST#1"}, "at": {"S": "l/1"}}}
    copy = {**meta, "title": {"S": "T"}, "~byId": guard}
    counted = {**copy, "likeCount": {"N": "1"}, "~likes": {"S": f"12345678{digits_of('1.1', 1)}12345678"}}

    def own(old: Image | None, new: Image | None) -> bool:
        event = "INSERT" if old is None else "REMOVE" if new is None else "MODIFY"
        images = {name: image for name, image in (("OldImage", old), ("NewImage", new)) if image is not None}
        raw = {
            "eventName": event,
            "eventSourceARN": "arn:aws:dynamodb:local:0:table/app/stream/l",
            "dynamodb": {"Keys": meta, "SequenceNumber": "1" * 21, **images},
        }
        return is_own(known, record_report(known, Decoded(raw, decode(raw, {"app": "main"}, known.tables))))

    assert own(None, copy)
    assert own(copy, counted)
    wrong = {**counted, "likeCount": {"N": "9"}}
    assert not own(counted, wrong), "that was somebody else, and is put right"
    assert not own(copy, {**copy, "note": {"S": "mine"}})
    assert not own(None, meta)
