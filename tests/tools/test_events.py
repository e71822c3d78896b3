"""Event files are read in every form people keep them in, and refused with the place and the way out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from stream_records import numbers, record

from projections.errors import UsageError
from projections.local.event_source import Discard
from projections.local.events import read


def written(tmp_path: Path, text: str | bytes) -> str:
    path = tmp_path / "events.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


A, B = record(1), record(2)


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({"Records": [A, B]}),
        json.dumps([A, B]),
        f"{json.dumps(A)}\n{json.dumps(B)}\n",
        f"{json.dumps({'Records': [A]})}\n\n{json.dumps([B])}",
        json.dumps({"Records": [A]}, indent=2) + json.dumps({"Records": [B]}, indent=2),
        "\ufeff" + json.dumps([A, B]),
        json.dumps(Discard("arn", "shard", "RetryAttemptsExhausted", (A, B), 3, 0).with_payload()),
    ],
    ids=["event", "list", "lines", "lines of events", "events after each other", "byte order mark", "S3 destination"],
)
def test_every_form_gives_the_records_unchanged(tmp_path: Path, text: str) -> None:
    assert [recorded.record for recorded in read([written(tmp_path, text)])] == [A, B]


def test_files_are_read_in_the_order_given_with_duplicates(tmp_path: Path) -> None:
    path = written(tmp_path, json.dumps([B, A, A]))
    assert numbers({"Records": [r.record for r in read([path, path])]}) == [2, 1, 1, 2, 1, 1]


def test_a_record_knows_its_line(tmp_path: Path) -> None:
    text = json.dumps({"extra": [1, {"a": "}"}], "Records": [A, B]}, indent=1)
    line = text[: text.rindex('"eventID"')].count("\n")  # its brace is on the line before
    places = [recorded.place for recorded in read([written(tmp_path, text)])]
    assert places[1].endswith(f"events.json:{line}:3: Records[1]")


def without(entry: dict[str, Any], name: str) -> dict[str, Any]:
    return entry | {"dynamodb": {k: v for k, v in entry["dynamodb"].items() if k != name}}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"Records": [\n  {"a": 1,}]}', r"events.json:2:11: not JSON: .*; an event file holds JSON or JSON lines"),
        (json.dumps(A) + "\n{oops", r"events.json:2:2: not JSON"),
        ("", "no records in it"),
        ('{"Records": []}', "no records in it"),
        ('{"Records": {}}', "events.json:1:1: Records is not a list"),
        ("[1]", r"events.json:1:2: \[0\]: expected a stream record, found 1"),
        ('{"detail": {}}', "events.json:1:1: not a stream record: it has no dynamodb part"),
        (json.dumps({"Records": [A, {"eventSource": "aws:sqs"}]}), r"Records\[1\]: a record of aws:sqs"),
        (json.dumps([without(A, "NewImage")]), r"\[0\]: INSERT without NewImage .* NEW_AND_OLD_IMAGES"),
        (json.dumps([without(A, "SequenceNumber")]), "no SequenceNumber"),
        (json.dumps([A | {"eventName": "insert"}]), r'eventName is "insert"; expected INSERT, MODIFY or REMOVE'),
        (json.dumps([record(1, extra="plain")]), r'NewImage.extra is "plain", not an attribute value; write it'),
        (json.dumps(Discard("a", "s", "c", (A,), 1, 0).metadata()), "but not the records; only the objects of an S3"),
        ("[" * 100_000, "not JSON|nested in more than"),
        (b"\xff\xfe\x00", "not UTF-8 at byte 0"),
    ],
)
def test_invalid_stream_event_is_an_error_with_place_and_solution(
    tmp_path: Path, text: str | bytes, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        read([written(tmp_path, text)])


def test_a_bad_record_among_good_ones_is_left_for_the_handler(tmp_path: Path) -> None:
    assert len(read([written(tmp_path, json.dumps([without(A, "NewImage"), B]))])) == 2


def test_a_missing_file_is_named() -> None:
    with pytest.raises(UsageError, match=r"nowhere\.json: cannot be read: No such file"):
        read(["nowhere.json"])
