"""The same files go through every reader: each gives the same values, or the same message."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from projections.api import load
from projections.aws.wiring import StreamHandler
from projections.engine.processor import Processor
from projections.errors import UsageError
from projections.language.ruleset import RuleSet
from projections.local import event_files
from projections.local.event_replay import MemoryTables, schemas

RULES = """\
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{p}", SK: META}}
  Like: {key: {PK: "POST#{p}", SK: "LIKE#{u}"}}
projections:
  likes: {from: Like, aggregate: {into: Post, set: {likes: count, stars: sum(stars)}}}
"""
ARN = "arn:aws:dynamodb:us-east-1:111122223333:table/posts"
STREAM = f"{ARN}/stream/2026-01-01T00:00:00.000"
Image = dict[str, Any]
Files = dict[str, bytes | str | list[Any] | dict[str, Any]]
Run = Callable[..., tuple[int, str, str]]


def image(sk: str, stars: int | None = None) -> Image:
    return {"PK": {"S": "POST#1"}, "SK": {"S": sk}} | ({} if stars is None else {"stars": {"N": str(stars)}})


POST, LIKE, OTHER = image("META"), image("LIKE#a", 2), image("LIKE#b", 3)
ITEMS = [POST, LIKE, OTHER]


def record(number: int, new: Any, old: Any = "absent", event: str = "", **more: Any) -> dict[str, Any]:
    held = old if event == "REMOVE" else new
    body = {"Keys": {name: held[name] for name in ("PK", "SK")}, "NewImage": new, "OldImage": old}
    body |= {"SequenceNumber": str(number), "StreamViewType": "NEW_AND_OLD_IMAGES"}
    body = {name: value for name, value in body.items() if value != "absent"}
    event = event or "INSERT"
    return {"eventName": event, "eventSource": "aws:dynamodb", "eventSourceARN": STREAM, "dynamodb": body} | more


def records(absent: Any = "absent", **more: Any) -> list[dict[str, Any]]:
    """Three inserts, and one more like that is removed."""
    third = image("LIKE#c", 9)
    made = [record(number, one, absent, **more) for number, one in enumerate([*ITEMS, third], 1)]
    return [*made, record(5, absent, third, "REMOVE", **more)]


def lines(*values: Any) -> bytes:
    return b"".join(json.dumps(value).encode() + b"\n" for value in values)


def plain(item: Image) -> dict[str, Any]:
    return {name: int(value["N"]) if "N" in value else value["S"] for name, value in item.items()}


def without(entry: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in entry.items() if name not in names}


def change(micros: int, new: Any, old: Any = None) -> dict[str, Any]:
    keys = {name: (new or old)[name] for name in ("PK", "SK")}
    line = {"Metadata": {"WriteTimestampMicros": {"N": str(micros)}}, "Keys": keys, "NewImage": new, "OldImage": old}
    return {name: value for name, value in line.items() if value is not None}


def export(name: str, lists: Mapping[str, list[Any]], kind: str = "FULL_EXPORT", **summary: Any) -> Files:
    """The files of an export as S3 has them: of a full one, `data` is its own; incremental ones share one."""
    base = f"AWSDynamoDB/{name}"
    data = f"{base}/data" if kind == "FULL_EXPORT" else "AWSDynamoDB/data"
    return {
        **{f"{data}/{part}.json.gz": gzip.compress(lines(*values)) for part, values in lists.items()},
        f"{base}/manifest-summary.json": {"tableArn": ARN, "exportType": kind, **summary},
        f"{base}/manifest-files.json": lines(*({"dataFileS3Key": f"prefix/{part}.json.gz"} for part in lists)),
    }


FULL = export("05-a", {"x": [{"Item": POST}, {"Item": image("LIKE#a", 1)}], "y": [{"Item": OTHER}], "z": []})
SECOND = export("02-b", {"aaaa": [change(9, LIKE, image("LIKE#a", 1))]}, "INCREMENTAL_EXPORT")
FIRST = export("01-c", {"b": [change(3, OTHER), change(1, POST), change(2, image("LIKE#a", 1))]}, "INCREMENTAL_EXPORT")
PUTS = [{"PutRequest": {"Item": item}} for item in [*ITEMS, image("LIKE#c")]]
DELETE = {"DeleteRequest": {"Key": image("LIKE#c")}}
STEPS = [*({"put": plain(one)} for one in ITEMS), {"put": plain(image("LIKE#c"))}, {"delete": ["POST#1", "LIKE#c"]}]
TEXT = json.dumps({"Records": records()})
MOTO = [without(one, "eventSourceARN") for one in records({})]
for one in MOTO:
    one["dynamodb"]["ApproximateCreationDateTime"] = "2026-11-26 12:02:31+00:00"

GOOD: dict[str, Files] = {
    "event": {"f.json": TEXT},
    "list": {"f.json": records()},
    "lines": {"f.json": lines(*records())},
    "YAML": {"f.yaml": TEXT},
    "gzip": {"f.json.gz": gzip.compress(TEXT.encode())},
    "byte order mark": {"f.json": "\ufeff" + TEXT},
    "null images": {"f.json": {"Records": records(None)}},
    "empty images": {"f.json": {"Records": records({})}},
    "moto": {"f.json": {"Records": MOTO}},
    "get-records": {"f.json": {"Records": [without(one, "eventSourceARN", "eventSource") for one in records()]}},
    "placeholder": {"f.json": {"Records": records(eventSourceARN="eventsource_arn")}},
    "null ARN": {"f.json": {"Records": records(eventSourceARN=None)}},
    "S3 destination": {"f.json": {"DDBStreamBatchInfo": {}, "payload": TEXT}},
    "plain items": {"f.yaml": [plain(one) for one in ITEMS]},
    "typed items": {"f.json": ITEMS},
    "scan": {"f.json": {"Items": ITEMS, "Count": 3}},
    "get-item": {"f.json": lines(*({"Item": one} for one in ITEMS))},
    "steps": {"f.yaml": STEPS},
    "files of an export": {
        name: gzip.compress(lines(*({"Item": one} for one in some)))
        for name, some in {"x.json.gz": ITEMS[:2], "y.json.gz": ITEMS[2:], "z.json.gz": []}.items()
    },
    "incremental exports": {**FIRST, **SECOND},
    "full and incremental exports": {**FULL, **SECOND},
    "lines of an incremental export": {
        "f.json": lines(change(9, None, image("LIKE#c")), *(change(1, item) for item in [*ITEMS, image("LIKE#c")]))
    },
    "batch-get-item": {"f.json": {"Responses": {"posts": ITEMS}, "UnprocessedKeys": {}}},
    "transact-get-items": {"f.json": {"Responses": [{"Item": item} for item in ITEMS]}},
    "batch-write-item": {"f.yaml": json.dumps({"posts": [*PUTS, DELETE]})},
    "BatchWriteItem": {"f.json": {"RequestItems": {"posts": [*PUTS, DELETE]}}},
    "transact-write-items": {"f.json": [{"Put": {"TableName": "posts", "Item": item}} for item in ITEMS]},
    "export and steps": {"x.json.gz": gzip.compress(lines({"Item": POST})), "f.yaml": [plain(LIKE), plain(OTHER)]},
}  # fmt: skip
"""Files with one post and two likes."""

REFUSED: dict[str, tuple[Files, str]] = {
    "bzip2": ({"f.json": bz2.compress(b"{}")}, "is compressed by bzip2, which is not read; decompress it, or use gzip"),
    "zstd": ({"f.zst": b"\x28\xb5\x2f\xfd"}, "is compressed by zstd"),
    "xz": ({"f.xz": lzma.compress(b"{}")}, "is compressed by xz"),
    "large": ({"f.json.gz": gzip.compress(b" " * 2_000_000)}, "has more than 1 MiB .of text, after decompression.; split"),
    "empty": ({"f.json": ""}, "f.json: no records in it"),
    "request": ({"f.json": [{"Update": {"Key": POST}}]}, r"f.json:1: \[0\]: Update is not read, only Put and Delete"),
    "empty export": (export("01-a", {"x": [], "y": []}), "in: no records in it"),
    "two full exports": ({**FULL, **export("02-b", {})}, "two full exports of one table, 02-b and 05-a; pass"),
    "lost data": ({name: SECOND[name] for name in SECOND if "manifest" in name}, r"-files.json:1: .*json.gz is missing"),
    "Ion": (export("01-a", {}, outputFormat="ION"), "01-a: is in the format ION; export the table in the format DYNAMODB"),
    "SQS": ({"f.json": {"Records": [{"eventSource": "aws:sqs", "body": "{}"}]}}, r"Records\[0\]: a record of aws:sqs"),
    "no old image": (
        {"f.json": {"Records": [record(1, LIKE, {}, "MODIFY")]}},
        r"Records\[0\]: MODIFY without OldImage, although its view type is NEW_AND_OLD_IMAGES",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rules") / "rules.yaml"
    path.write_text(RULES)
    return path


def written(folder: Path, files: Files) -> list[str]:
    """Write files, and return their paths, or that of their directory."""
    for name, content in files.items():
        path = folder / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = content if isinstance(content, bytes | str) else json.dumps(content)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return [str(folder / "in")] if any("/" in name for name in files) else [str(folder / "in" / name) for name in files]


def answer(run: Run, command: str, rules: Path, paths: list[str], *options: str) -> Any:
    code, out, err = run(command, "--rules", str(rules), *paths, *options)
    if code == 2:
        raise UsageError(err)
    assert (code, err) == (0, "")
    return json.loads(out)


def by_replay(run: Run, rules: Path, paths: list[str]) -> Any:
    items = answer(run, "replay", rules, paths, "--json")["items"]
    return next(item for item in items if item["SK"] == "META")


def by_events(run: Run, rules: Path, paths: list[str]) -> Any:
    """Return the post after the handler has processed what `replay` saves."""
    code, _, err = run("replay", "--rules", str(rules), *paths, "--save", event := str(rules.with_name("saved.json")))
    if code == 2:
        raise UsageError(err)
    return handled(load(rules), json.loads(Path(event).read_text()))


def handled(rules: RuleSet, event: Mapping[str, Any]) -> dict[str, Any]:
    """Return the post after the handler has processed an event, whose records are of a table `posts` or `main`."""
    program = rules.program
    tables = MemoryTables(schemas(program), event["Records"])
    for entry in event["Records"]:
        body = entry["dynamodb"]
        if entry["eventName"] == "INSERT":
            tables.seed("main", body["NewImage"])
    rejected: list[Any] = []
    processor = Processor(
        program,
        tables.store,
        tables={"posts": "main", "main": "main"},
        quarantine=rejected.extend,
        clock=lambda: 0.0,
        sleep=lambda _: None,
        chance=lambda: 0.5,
    )
    answer = StreamHandler(processor, quarantine=rejected.extend).handle(event, lambda: 60.0)
    assert answer == {"batchItemFailures": []}
    assert rejected == []
    return next(plain(without(one, "~likes")) for one in tables.items("main") if one["SK"] == {"S": "META"})


VALUES = {"PK": "POST#1", "SK": "META", "likes": 2, "stars": 5}
READERS: dict[str, Callable[[Run, Path, list[str]], Any]] = {"replay": by_replay, "events and handler": by_events}


@pytest.mark.parametrize("name", GOOD)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_derives_the_same_values(run: Run, rules: Path, tmp_path: Path, name: str, reader: str) -> None:
    assert READERS[reader](run, rules, written(tmp_path, GOOD[name])) == VALUES


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_refuses_with_the_same_message(
    run: Run, rules: Path, tmp_path: Path, name: str, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, message = REFUSED[name]
    monkeypatch.setattr(event_files, "_MOST", 2**20)
    with pytest.raises(UsageError, match=message):
        READERS[reader](run, rules, written(tmp_path, files))


@pytest.mark.parametrize("name", ["event", "null images", "empty images"])
def test_the_handler_takes_the_records_as_they_are_in_the_file(rules: Path, name: str) -> None:
    event = GOOD[name]["f.json"]
    assert handled(load(rules), json.loads(event) if isinstance(event, str) else event) == VALUES  # type: ignore[arg-type]
