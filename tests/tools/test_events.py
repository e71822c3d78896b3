"""Event files are read in every form people keep them in, and refused with the place and the way out."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from discarded import metadata_of
from stream_records import numbers, record

from projections.errors import UsageError
from projections.language.loader import loads
from projections.language.program import Program
from projections.local.event_files import flaw, read

ONE = Program.from_document(
    loads(
        """
table: {key: [PK, SK]}
entities: {Post: {key: {PK: "POST#{postId}", SK: METADATA}}}
projections: {}
"""
    ).document()
)
TWO = Program.from_document(
    loads(
        """
tables: {orders: {key: [id]}, customers: {key: {number: N}}, returns: {key: [id]}}
entities: {Order: {table: orders, key: {id: "{order}"}}}
projections: {}
"""
    ).document()
)


def file(tmp_path: Path, name: str, content: str | bytes) -> str:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


A, B = record(1), record(2)


def test_files_are_read_in_the_order_given_with_duplicates(tmp_path: Path) -> None:
    path = file(tmp_path, "events.json", json.dumps([B, A, A]))
    assert numbers({"Records": [r.record for r in read([path, path], ONE)]}) == [2, 1, 1, 2, 1, 1]


def test_a_record_knows_its_line_or_number(tmp_path: Path) -> None:
    text = json.dumps(A) + "\n" + json.dumps({"extra": [1, {"a": "}"}], "Records": [A, B]}, indent=1)
    places = [recorded.place for recorded in read([file(tmp_path, "events.json", text)], ONE)]
    assert [place.partition("events.json:")[2] for place in places] == ["1", "2: Records[0]", "2: Records[1]"]


def without(entry: dict[str, Any], name: str) -> dict[str, Any]:
    return entry | {"dynamodb": {k: v for k, v in entry["dynamodb"].items() if k != name}}


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"Records": [\n  {"a": 1,}]}', r"events.json:2:1[01]: not JSON: .*; an event file holds JSON or JSON lines"),
        (json.dumps(A) + "\n{oops", r"events.json:2:2: not JSON"),
        ('{"PK": "a",\n"PK": "b"}', 'events.json:1: "PK" is written twice in one mapping; remove one'),
        ("", "no records in it"),
        ('{"Records": {}}', "events.json:1: Records is not a list"),
        ("[1]", r"events.json:1: \[0\]: expected a stream record, found 1"),
        ('{"detail": {}}', "events.json:1: not a stream record: it has no dynamodb part"),
        (json.dumps([without(A, "NewImage")]), r"\[0\]: INSERT without NewImage, although its view type is"),
        (
            json.dumps([without(without(A, "NewImage"), "StreamViewType")]),
            r"view type to NEW_AND_OLD_IMAGES \(it is not given",
        ),
        (json.dumps([without(A, "SequenceNumber")]), '"SequenceNumber" must be a string of at most 40 digits'),
        (json.dumps([A | {"eventName": "insert"}]), "unknown eventName 'insert': a stream record is INSERT, MODIFY or"),
        (
            json.dumps([record(1, extra="plain")]),
            r'attribute "extra" is not in DynamoDB\'s form, such as {"S": "text"}',
        ),
        (json.dumps(metadata_of((A,), "arn")), "but not the records; only the objects of an S3"),
        ("[" * 100_000, "not JSON|nested in more than"),
        (b"\xff\xfe\x00", "not UTF-8 at byte 0"),
    ],
)
def test_invalid_stream_event_is_an_error_with_place_and_solution(
    tmp_path: Path, text: str | bytes, complaint: str
) -> None:
    with pytest.raises(UsageError, match=complaint):
        read([file(tmp_path, "events.json", text)], ONE)


def test_records_of_yaml_equal_those_of_json_with_decimals_in_any_place(tmp_path: Path) -> None:
    timed = A | {"dynamodb": A["dynamodb"] | {"ApproximateCreationDateTime": 1773239000.5}}
    text = json.dumps([timed, B | {"eventName": 1.5}, record(3, extra=1.5)])
    found = [one.record for one in read([file(tmp_path, "events.yaml", text)], ONE)]
    assert json.dumps(found) == json.dumps([one.record for one in read([file(tmp_path, "events.json", text)], ONE)])
    assert [flaw(one) for one in found] == [
        None,
        "unknown eventName '1.5': a stream record is INSERT, MODIFY or REMOVE",
        '"NewImage": attribute "extra" is not in DynamoDB\'s form, such as {"S": "text"}',
    ]


ITEM = {"PK": {"S": "POST#1"}, "SK": {"S": "METADATA"}, "price": {"N": "1.10"}}


def made(paths: list[str], program: Program = ONE) -> list[tuple[str, Any, Any]]:
    """Return event name, old and new image of each record."""
    bodies = [(one.record["eventName"], one.record["dynamodb"]) for one in read(paths, program)]
    return [(name, body.get("OldImage"), body.get("NewImage")) for name, body in bodies]


def test_steps_are_writes_in_order_on_one_table(tmp_path: Path) -> None:
    steps = file(
        tmp_path,
        "steps.yaml",
        """
- put: {PK: POST#1, SK: METADATA, title: Old, draft: true}
- put: {PK: POST#1, SK: METADATA, title: Old, draft: true}
- update: {PK: POST#1, SK: METADATA, title: New}
  remove: [draft]
  add: {views: 2}
- delete: [POST#1, METADATA]
""",
    )
    again = file(
        tmp_path, "again.json", '{"put": {"PK": "POST#1", "SK": "METADATA"}} {"expire": ["POST#1", "METADATA"]}'
    )
    assert [name for name, _, _ in made([steps, again])] == ["INSERT", "MODIFY", "REMOVE", "INSERT", "REMOVE"]
    new = made([steps])[1][2]
    assert new == {"PK": {"S": "POST#1"}, "SK": {"S": "METADATA"}, "title": {"S": "New"}, "views": {"N": "2"}}
    records = [one.record for one in read([steps, again], ONE)]
    assert "userIdentity" in records[-1]
    assert numbers({"Records": records}) == sorted(numbers({"Records": records}))


def test_a_write_finds_the_item_of_an_earlier_record_and_is_newer(tmp_path: Path) -> None:
    recorded = _recorded("9" * 30)
    event = file(tmp_path, "event.json", json.dumps(recorded))
    update = file(tmp_path, "update.yaml", "update: {PK: POST#1, SK: METADATA, title: New}")
    first, second = read([event, update], ONE)
    assert first.record == recorded
    assert second.record["eventName"] == "MODIFY"
    assert second.record["dynamodb"]["OldImage"] == {**ITEM, "price": {"N": "1.1"}}
    assert int(second.record["dynamodb"]["SequenceNumber"]) > int("9" * 30)


def _recorded(sequence: str) -> dict[str, Any]:
    return {
        "eventName": "INSERT",
        "eventSource": "aws:dynamodb",
        "eventSourceARN": "arn:aws:dynamodb:eu-west-1:1:table/posts/stream/2026-01-01T00:00:00.000",
        "dynamodb": {
            "Keys": {"PK": ITEM["PK"], "SK": ITEM["SK"]},
            "NewImage": ITEM,
            "SequenceNumber": sequence,
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    }


def test_output_of_get_records_is_an_event_of_the_only_table(tmp_path: Path) -> None:
    raw = {**_recorded("1"), "userIdentity": {"PrincipalId": "dynamodb.amazonaws.com", "Type": "Service"}}
    del raw["eventSourceARN"]
    (one,) = read([file(tmp_path, "records.json", json.dumps({"Records": [raw], "NextShardIterator": "x"}))], ONE)
    assert ":table/main/stream/" in one.record["eventSourceARN"]
    assert one.record["userIdentity"] == {"type": "Service", "principalId": "dynamodb.amazonaws.com"}


@pytest.mark.parametrize("arn", ["arn:", 5, {"a": 1}, None])
def test_a_record_without_a_table_in_its_arn_is_named_with_its_place(tmp_path: Path, arn: Any) -> None:
    named = _recorded("1") | {"eventSourceARN": "orders"}  # the bare name of a table is enough
    path = file(tmp_path, "records.json", json.dumps([named, _recorded("2") | {"eventSourceARN": arn}]))
    problem = f"without a table, {re.escape(json.dumps(arn))}" if arn else "missing"
    said = rf"records.json:1: \[1\]: eventSourceARN is {problem}, and"
    with pytest.raises(UsageError, match=said):
        read([path], TWO)
    assert len(read([path], ONE)) == 2


def test_the_table_of_an_item_is_the_one_with_its_key_attributes(tmp_path: Path) -> None:
    steps = file(
        tmp_path,
        "steps.yaml",
        "[{number: 7}, {put: {id: o1}, table: orders}, {update: {number: 7, name: Ann}}, {delete: [7], table: customers}]",
    )
    tables = [one.record["eventSourceARN"].split("/")[1] for one in read([steps], TWO)]
    assert tables == ["customers", "orders", "customers", "customers"]
    with pytest.raises(UsageError, match=r"x.yaml: the table may be orders or returns; name it"):
        read([file(tmp_path, "x.yaml", "put: {id: o1}")], TWO)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("- put: {PK: POST#1}", r"bad.yaml: \[0\]: put: the key is PK \(text\) and SK \(text\), this has PK"),
        ("- {PK: a, SK: b}\n- remove: {PK: a, SK: b}", r"bad.yaml: \[1\]: remove: `remove` lists .* write `delete`"),
        ("- update: {PK: a, SK: b}\n  remove: name", r"remove: expected a list of attributes, such as `\[draft\]`"),
        ("- delete: POST#1", r"bad.yaml: \[0\]: delete: expected a key, as `{PK: …, SK: …}`"),
        (
            "- INSERT: {PK: a, SK: b}",
            r'not an item or a step \(did you mean "put"\?\): it lacks PK and SK; write an item as',
        ),
        ("delete: [a, b]", "bad.yaml: delete a · b: there is no such item"),
        ("{pk: a, SK: b}", r"not a stream record: .* not an item or a step: it lacks PK and SK"),
        ("put: {PK: {S: a}, SK: {N: 1}}", r"put: SK is \{'N': 1\}, not a value of DynamoDB"),
        ("put: {PK: '', SK: b}", "bad.yaml: put: "),
        ("delete: {SK: {L: [1]}}", r"bad.yaml: delete: SK is \{'L': \[1\]\}, not a value of DynamoDB"),
        ("expire: [a, '']", "bad.yaml: expire: .*empty"),
        ("put: {PK: a, SK: b, c: {$binary: '%'}}", "bad.yaml: put: c"),
        ("cases: []", "is a case file, not an event file; run its cases with pytest"),
        ("a: [", r"bad.yaml:1:5: not YAML|bad.yaml:2:1: not YAML"),
        ("", "no records in it"),
    ],
)
def test_a_mistake_in_plain_items_has_place_reason_and_solution(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        read([file(tmp_path, "bad.yaml", text)], ONE)


def test_replay_saves_an_event_that_it_reads(tmp_path: Path, run: Callable[..., tuple[int, str, str]]) -> None:
    items = file(tmp_path, "items.yaml", '[{PK: USER#a, SK: "POST#2025-01-01#p1", postId: p1, title: T}]')
    event = str(tmp_path / "event.json")
    saving = ("replay", "--rules", "social", items, "--json", "--save", event)
    code, out, err = run(*saving, "--table", "posts")
    assert (code, err) == (0, f"Wrote {event}: 1 record.\n")
    assert "table/posts/stream/" in json.loads(Path(event).read_text())["Records"][0]["eventSourceARN"]
    again = run("replay", "--rules", "social", event, "--json")[1]
    assert json.loads(again)["items"] == json.loads(out)["items"] != []
    assert run(*saving, "--table", "other=posts")[0] == 2
