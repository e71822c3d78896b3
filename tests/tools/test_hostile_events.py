"""Whatever an event file holds, a command that reads it succeeds or says where it is wrong and why, in one message."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_parts import at, places
from test_hostile_rules import called

from projections.errors import UsageError
from projections.language.loader import load
from projections.language.program import Program
from projections.local.event_files import documents
from projections.operations.failed_messages import Reader
from projections.printable import printable
from projections.testing.cases import read_cases

EVENTS = Path(__file__).parents[2] / "events"
DIGITS = "9" * 5_000
RULES = Path(__file__).parents[2] / "projections" / "rules"
SOCIAL = Program.from_document(load(RULES / "social.yaml").document())

RAW = {
    "@digits@": DIGITS,
    "@negative@": "-" + DIGITS,
    "@exponent@": "1e999",
    "@large@": "1" + "0" * 300,
    "@huge@": "1" + "0" * 400,
    "@nan@": "NaN",
    "@infinity@": "-Infinity",
    "@deep list@": "[" * 150 + "]" * 150,
    "@deeper list@": "[" * 5_000 + "]" * 5_000,
    "@deep map@": '{"M":' * 90 + "{}" + "}" * 90,
    "@deeper map@": '{"M":' * 400 + "{}" + "}" * 400,
    "@twice@": '{"S": "a", "S": "b"}',
    "@surrogate@": '"\\ud800"',
    "@control@": '"\\u001b[2J\\n\\u2713 No drift"',
}
"""JSON that Python does not write, by the text that stands for it in a document."""

VALUES: list[Any] = [
    *RAW,
    *(None, True, 0, -1, 1.5, "", [], {}, "text", "0", DIGITS),
    *("1E+999999999", "-1E-999999999", "NaN", "Infinity", "\u0661\u0662"),
    *({"S": 1}, {"N": DIGITS}, {"N": "1E+999999999"}, {"N": "1_0"}, {"N": 1}, {"B": "%%"}, {"B": "a"}, {"SS": []}),
    *({"SS": "a"}, {"NS": ["1", "x"]}, {"BS": ["%"]}, {"M": []}, {"L": {}}, {"BOOL": "true"}, {"NULL": False}),
    *({"X": "a"}, {"S": "a", "N": "1"}, {"S": "a|b%"}, {"S": "\udfff"}, {"N": "NaN"}, {"N": ""}, {"L": [{"S": None}]}),
    *("0001-01-01", 1e300, -1e300, 10**300, "1e400", "nan", "9999-12-31T23:59:59"),
    *(["a"], [[]], [None], [{}], {"": {}}, "REMOVE", "INSERT"),
]


def written(value: Any) -> str:
    text = json.dumps(value)
    for mark, raw in RAW.items():
        text = text.replace(json.dumps(mark), raw)
    return text


def mutated(value: Any, rng: random.Random) -> Any:
    """The document with one part replaced, removed, repeated or renamed."""
    path = rng.choice(list(places(value)))
    if not path:
        return rng.choice(VALUES)
    value = json.loads(json.dumps(value))
    parent, last = at(value, path[:-1]), path[-1]
    match rng.randrange(5):
        case 0:
            del parent[last]
        case 1 if isinstance(parent, dict):
            parent[rng.choice(["", "PK", "\udfff", "\x1b[2J", "a\n\u2713 No drift", "x" * 300])] = parent.pop(last)
        case 2 if isinstance(parent, list):
            parent.append(parent[last])
        case _:
            parent[last] = rng.choice(VALUES)
    return value


def damaged(text: bytes, rng: random.Random) -> bytes:
    """The file with its bytes changed."""
    at = rng.randrange(len(text) + 1)
    lines = b"".join(written(one).encode() + b"\n" for one in _records(text))
    match rng.randrange(12):
        case 0:
            return text[:at]
        case 1:
            return (
                text[:at] + rng.choice([b"\xff", b"\xed\xa0\x80", b"\x00", b"{", b"]", b'"', b",", b"\\u"]) + text[at:]
            )
        case 2:
            return b"\xef\xbb\xbf" + text
        case 3:
            return text.decode().encode("utf-16")
        case 4:
            return gzip.compress(text)[: rng.randrange(1, 60)]
        case 5:
            return b""
        case 6:
            return lines[: len(lines) // 2] + b"\nnot json\n" + lines
        case 7:
            return json.dumps({"DDBStreamBatchInfo": {}, "payload": text.decode()[:at]}).encode()
        case 8:
            return json.dumps({"DDBStreamBatchInfo": {}, "payload": text.decode()}).encode()
        case 9:
            return text.replace(b'"Records"', b'"Records": [], "Records"', 1)
    return text


def _records(text: bytes) -> list[Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return []
    return found["Records"] if isinstance(found, dict) and isinstance(found.get("Records"), list) else []


def tried(read: Callable[[], Any]) -> tuple[Any, tuple[str, ...]]:
    """What was read, or the lines of the message that says why it cannot be."""
    try:
        return read(), ()
    except UsageError as error:
        return None, error.lines


def acceptable(arguments: tuple[str, ...], path: str) -> None:
    """The command succeeds, or ends in one line that begins with the file and the place in it."""
    code, out, err = called(*arguments)
    assert code in (0, 1, 2), err
    for character in out + err:
        assert character == "\n" or character.isprintable() or character in "\u00a0", repr(character)
    if code == 2:
        assert not out
        assert err.count("\n") == 1
        place = rf"projections: {re.escape(path)}(: payload)?(:\d+(:\d+)?)?(: (Records)?\[\d+\])?: .{{10,}}"
        assert re.match(place, err) or "the events are from a table" in err, err
    if "--json" in arguments and out:
        json.loads(out)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("events")


FORMS: dict[str, Callable[[list[Any]], Any]] = {
    "event": lambda records: {"Records": records},
    "list": lambda records: records,
    "S3 destination": lambda records: {"DDBStreamBatchInfo": {}, "payload": json.dumps({"Records": records})},
    "scan": lambda records: {"Items": [_image(one) for one in records]},
    "steps": lambda records: [{"put": _image(one)} for one in records],
    "requests": lambda records: {"RequestItems": {"main": [{"PutRequest": {"Item": _image(one)}} for one in records]}},
    "changes": lambda records: [one["dynamodb"] for one in records],
}


def _image(entry: Any) -> Any:
    return entry["dynamodb"].get("NewImage") or entry["dynamodb"].get("OldImage")


COMMANDS = ["replay", "explain", "cost", "replay --json", "explain --json", "cost --json"]


def read_hostile_file(folder: Path, seed: int) -> None:
    """Read an event file in any form, with a few mistakes, with a command. `test_fuzz` gives them to the handler."""
    rng = random.Random(seed)
    name = rng.choice(["like", "social", "tags", "bad-record", "timeseries"])
    records = json.loads(next(EVENTS.rglob(f"{name}.json")).read_text())["Records"]
    document = FORMS[rng.choice([*FORMS, "event", "event"])](rng.sample(records, min(len(records), 8)))
    for _ in range(rng.choice([1, 1, 1, 2, 5])):
        document = mutated(document, rng)
    text = written(document).encode()
    if rng.random() < 0.3:
        text = damaged(text, rng)
    path = folder / f"{name}.json"
    path.write_bytes(text)
    rules = {"like": "social", "bad-record": "social"}.get(name, name)
    word, *options = rng.choice(COMMANDS).split()
    acceptable((word, str(path), "--rules", rules, *options), str(path))


@pytest.mark.parametrize("seed", range(25))
def test_readers_succeed_or_report_the_place_of_invalid_events(folder: Path, seed: int) -> None:
    read_hostile_file(folder, seed)


@pytest.mark.deep
@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_readers_succeed_or_report_the_place_of_many_invalid_events(folder: Path, seed: int) -> None:
    read_hostile_file(folder, seed)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32), name=st.sampled_from(["like", "bad-record", "tags"]))
def test_redrive_reads_any_content_of_queues_buckets_and_files(folder: Path, seed: int, name: str) -> None:
    rng = random.Random(seed)
    event = json.loads(next(EVENTS.rglob(f"{name}.json")).read_text())
    failed = {"DDBStreamBatchInfo": {"shardId": "s"}, "requestContext": {"condition": "c"}}
    event = rng.choice(
        [
            event,
            failed | {"payload": json.dumps(event)},
            {"reason": "r", "rule": "likes", "key": "main|POST#1|METADATA", "sequence": "1"},
            {"push": {"rule": "author", "parent": "main|USER#1|PROFILE", "version": "1"}},
            {"Type": "Notification", "Message": json.dumps(event)},
        ]
    )
    for _ in range(rng.choice([0, 1, 1, 2])):
        event = mutated(event, rng)
    text = written(event)
    if "DDBStreamBatchInfo" in text and rng.random() < 0.5:
        text = json.dumps({"DDBStreamBatchInfo": {}, "payload": written(mutated(json.loads(_payload(event)), rng))})
    data = text.encode()
    if rng.random() < 0.3:
        data = damaged(data, rng)
    reader = Reader(SOCIAL.tables, dict.fromkeys(SOCIAL.tables, "app"))
    message = reader.text(data, "s3://bucket/key")
    assert message.place == "s3://bucket/key"
    assert message.items or message.task or message.unusable
    path = folder / "messages.json"
    path.write_bytes(data)
    found, lines = tried(lambda: [reader.value(value, place) for place, value in documents(str(path))])
    assert all(re.match(rf"{re.escape(str(path))}(:\d+(:\d+)?)?: .{{10,}}", line) for line in lines)
    assert all(one.place.startswith(f"{path}:") and (one.items or one.task or one.unusable) for one in found or ())


def _payload(event: Any) -> str:
    payload = event.get("payload") if isinstance(event, dict) else None
    try:
        json.loads(payload)
    except (TypeError, ValueError, RecursionError):
        return "{}"
    return str(payload)


CASES = {
    "rules": "rules.yaml",
    "simulate": 1,
    "cases": [
        {
            "about": "a like is counted",
            "given": [{"PK": "POST#1", "SK": "METADATA", "n": 1}],
            "when": [{"put": {"PK": "USER#1", "SK": "LIKE#1", "b": {"$binary": "AA=="}}}, {"delete": {"PK": "a"}}],
            "then": [{"PK": "POST#1", "SK": "METADATA", "likeCount": 1}],
        }
    ],
}


@pytest.mark.deep
@settings(max_examples=80, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_case_file_is_read_or_refused_with_its_place(folder: Path, seed: int) -> None:
    rng = random.Random(seed)
    document = CASES
    for _ in range(rng.choice([0, 1, 2])):
        document = mutated(document, rng)
    path = folder / "cases.projections.yaml"
    data = written(document).encode()
    path.write_bytes(damaged(data, rng) if rng.random() < 0.4 else data)
    _, lines = tried(lambda: read_cases(path))
    assert all(re.match(rf"{re.escape(str(path))}(:\d+:\d+)?: .{{10,}}", printable(line)) for line in lines)
