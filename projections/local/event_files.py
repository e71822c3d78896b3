"""Reads event files: stream events in every form in which people have them, and items that become stream records.

| a file holds | its source | it becomes |
| --- | --- | --- |
| `{"Records": […]}`, records | Lambda, `aws dynamodbstreams get-records`, `sam local generate-event` | these records |
| `{"DDBStreamBatchInfo": …}` | an on-failure destination in S3 | the records in its `payload` |
| `{"Item": …}`, `{"Items": […]}` | a table export (DYNAMODB_JSON), `aws dynamodb scan`, `get-item` | inserts |
| `{"Keys": …, "NewImage": …}` | an incremental export | inserts, edits, removals, in order of time |
| `{"Responses": …}` | `aws dynamodb batch-get-item`, `transact-get-items` | inserts |
| `{TABLE: [{"PutRequest": …}]}`, `[{"Put": …}]` | `batch-write-item`, `transact-write-items` | records of these writes |
| `{"put": …}` and other steps | people, as in case files (`steps`) | the records of these writes |
| an item with all key attributes | people | an insert |

A file is JSON, JSON lines, or YAML (`.yaml`, `.yml`), and may be compressed by gzip; it has at most 512 MiB, also after
decompression. A directory holds exports. The writes of all files run in order on one store in memory, so the second put of
a key is an edit. An absent image may be `null` or `{}`; if the rules have one table, the table in `eventSourceARN` may be
missing.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import re
import sys
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from projections.engine.records import content_of, decode, is_sequence
from projections.errors import BadInput, InvalidRequest, UsageError
from projections.language.files import at_most
from projections.language.program import Program
from projections.local.event_source import table_in
from projections.local.exports import files_of
from projections.local.items import key_of, wire_item
from projections.local.steps import STEPS, Application, step_mistakes, suggest_step
from projections.stores.memory import MemoryStore
from projections.stores.memory import Record as Made

_STREAM = 'a DynamoDB stream event looks like {"Records": [{"eventName": …, "dynamodb": {…}}]}'
_PLAIN = 'write an item as {"put": {"PK": …}}'
_Event: TypeAlias = "Recorded | Write"
_Placed: TypeAlias = tuple[str, Any]


def read(paths: Sequence[str], program: Program) -> list[Recorded]:
    """Return the records of event files in order, as Lambda passes them; `-` is standard input.

    Raises UsageError if a file is something else, or if none of its records can be used. The handler quarantines an
    invalid record among valid ones.
    """
    events: list[_Event] = []
    for path in (file for given_path in paths for file in files_of(given_path)):
        file_events = list(_file(path, program))
        flaws = [None if isinstance(event, Write) else flaw(event.record) for event in file_events]
        if file_events and all(flaws):
            raise UsageError(f"{file_events[0].place}: {flaws[0]}")
        events += file_events
    if not events:
        raise UsageError(f"{', '.join(paths)}: no records in it; {_STREAM}; {_PLAIN}")
    return list(records_of(program, events))


def _file(path: str, program: Program) -> Iterator[_Event]:
    for place, value in _yaml(path) if path.endswith((".yaml", ".yml")) else _values(path, text_of(path)):
        if isinstance(value, dict) and "DDBStreamBatchInfo" in value:
            place, value = _payload(path, place, value)
        for where, document, list_name, table in _documents(program, place, value):
            if _is_record(document):
                yield Recorded(_floats(document), where)
            elif isinstance(document, dict):
                write = _write(program, document, where, within_items=list_name in ("Items", "Responses"))
                yield write._replace(step={**write.step, "table": table}) if table in program.tables else write
            else:
                raise UsageError(f"{where}: {_strange(document)}; {_STREAM}; {_PLAIN}")


def _yaml(path: str) -> Iterator[_Placed]:
    from projections.errors import Problem
    from projections.language.source import UnreadableError
    from projections.language.source import read as read_yaml
    from projections.language.syntax import dotted

    try:
        source = read_yaml(text_of(path))
    except UnreadableError as error:
        raise UsageError(f"{path}:{error.line}:{error.column}: {error.message}") from None
    if source.mistakes:
        raise UsageError(
            *(str(Problem(path, *source.position(bad), dotted(bad.path), bad.message)) for bad in source.mistakes)
        )
    if isinstance(source.data, dict) and "cases" in source.data:
        raise UsageError(f"{path}: is a case file, not an event file; run its cases with pytest")
    yield path, [] if source.data is None else source.data


def _payload(path: str, place: str, value: Mapping[str, Any]) -> _Placed:
    """Return the payload of an object that Lambda wrote to S3 on failure."""
    payload = value.get("payload")
    if not isinstance(payload, str):
        raise UsageError(
            f"{place}: has the position of failed records in their stream, but not the records; "
            "only the objects of an S3 destination have them (payload)"
        )
    return next(_values(f"{path}: payload", payload), (place, []))


def _documents(program: Program, place: str, value: Any) -> Iterator[tuple[str, Any, str | None, str | None]]:
    """Yield the records, items and requests in a value: the place, the field that lists it, and its table if it is named."""
    tables = next((value[name] for name in ("RequestItems", "Responses") if _has(value, name, dict)), value)
    if (tables is not value and table_of(program, value) is None) or _are_requests(value):
        list_name = "Responses" if _has(value, "Responses", dict) else "RequestItems"
        for table, nested in tables.items():
            for number, document in enumerate(nested if isinstance(nested, list) else [nested]):
                yield f"{place}: {table}[{number}]", document, list_name, table
    elif (field := _list_in(program, place, value)) is None:
        yield place, value, None, None
    else:
        for number, document in enumerate(value[field] if field else value):
            yield f"{place}: {field}[{number}]", document, field, None


def _has(value: Any, name: str, kind: type) -> bool:
    return isinstance(value, dict) and isinstance(value.get(name), kind)


def _are_requests(value: Any) -> bool:
    """Return whether a value has requests of `batch-write-item` for each table."""
    return (
        isinstance(value, dict)
        and bool(value)
        and all(isinstance(requests, list) and requests for requests in value.values())
        and all(
            isinstance(request, dict) and request and request.keys() <= {"PutRequest", "DeleteRequest"}
            for requests in value.values()
            for request in requests
        )
    )


def _list_in(program: Program, place: str, value: Any) -> str | None:
    """Return the field with the list of records or items, empty if a value is itself the list; None if it is one of them."""
    if isinstance(value, list):
        return ""
    if not isinstance(value, dict) or _is_record(value) or ("Records" not in value and table_of(program, value)):
        return None
    for name in ("Records", "Items", "Responses", "TransactItems"):
        if isinstance(value.get(name), list):
            return name
    if "Records" in value:
        raise UsageError(f"{place}: Records is not a list; {_STREAM}")
    return None


def _floats(value: Any) -> Any:
    """Return a record with floats instead of Decimals, as in a record that was read from JSON."""
    if isinstance(value, dict):
        return {name: _floats(nested) for name, nested in value.items()}
    if isinstance(value, list):
        return [_floats(nested) for nested in value]
    return float(value) if isinstance(value, Decimal) else value


def _is_record(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("dynamodb"), dict)


def _write(program: Program, value: Mapping[str, Any], place: str, *, within_items: bool) -> Write:
    """Return the write that a mapping which is not a record stands for. Raises UsageError if it is something else."""
    if table_of(program, value) is not None:
        return Write({"put": value}, place)
    if isinstance(value.get("Item"), dict):
        return Write({"put": value["Item"]}, place)
    if isinstance(value.get("Keys"), dict) and value.keys() & {"NewImage", "OldImage", "Metadata"}:
        return Write({"change": value}, place)
    requests = {
        verb: content
        for name, content in value.items()
        for verb, part in (("put", "Item"), ("delete", "Key"))
        if name.lower().removesuffix("request") == verb and _has(content, part, dict)
    }
    if len(requests) == len(value) == 1:
        ((verb, content),) = requests.items()
        return Write({verb: content["Item" if verb == "put" else "Key"]}, place)
    if value and value.keys() <= {"Update", "ConditionCheck"}:
        raise UsageError(f"{place}: {next(iter(value))} is not read, only Put and Delete")
    if within_items and not value.keys() & set(STEPS):
        return Write({"put": value}, place)
    if value.keys() & set(STEPS) or "remove" in value:
        if mistakes := list(step_mistakes(value, (), program)):
            raise UsageError(*(": ".join([place, *map(str, mistake.path), mistake.message]) for mistake in mistakes))
        return Write(value, place)
    near = next(filter(None, (suggest_step(name, STEPS) for name in value)), "")
    keys = " or ".join(" and ".join(schema.key_attributes) for schema in program.tables.values())
    raise UsageError(
        f"{place}: {_strange(value)}, and not an item or a step{near}: it lacks {keys}; {_PLAIN}, and a stream event as "
        '{"Records": […]}'
    )


def _strange(element: Any) -> str:
    if isinstance(element, dict):
        source = element.get("eventSource", element.get("EventSource"))
        if source:
            return f"a record of {source}, not of a DynamoDB stream"
        return "not a stream record: it has no dynamodb part"
    return f"expected a stream record, found {json.dumps(element, ensure_ascii=False, default=str)[:40]}"


# The records of writes, and complete records

_LABEL = "2025-01-01T00:00:00.000"
_FIRST = 100_000_000_000_000_000_001
"""The sequence number of the first record that is made here, unless recorded ones are greater."""


class Recorded(NamedTuple):
    """A record of an event file, or of a write in it, and its place."""

    record: Mapping[str, Any]
    place: str


class Write(NamedTuple):
    """A step in an event file, and its place."""

    step: Mapping[str, Any]
    place: str


def records_of(program: Program, events: Sequence[Recorded | Write]) -> Iterator[Recorded]:
    """Yield the records, and in their order those of the writes, which find the items of earlier records.

    Raises UsageError, with the place of a write that does not fit the rules, or of a record that lacks its table.
    """
    recorded = [event.record for event in events if isinstance(event, Recorded)]
    arns = [arn for record in recorded if isinstance(arn := record.get("eventSourceARN"), str) and ":table/" in arn]
    sequences = [int(n) for record in recorded if is_sequence(n := record["dynamodb"].get("SequenceNumber"))]
    made: list[Made] = []
    store = MemoryStore(
        program.tables,
        first_sequence=max([_FIRST, *(sequence + 1 for sequence in sequences)]),
        stream_label=max((arn.partition("/stream/")[2] for arn in arns), default="") or _LABEL,
        streams=list(program.tables),
        on_record=lambda _, record: made.append(record),
    )
    application = Application(program, store)
    for event in _in_order(events):
        if isinstance(event, Recorded):
            record = _complete(program, event, arns)
            _remember(program, store, record)
            yield Recorded(record, event.place)
        else:
            try:
                _do(program, store, application, event)
            except UsageError as error:
                raise UsageError(f"{event.place}: {error}") from None
            yield from (Recorded(record, event.place) for record in made)
        made.clear()


def _complete(program: Program, event: Recorded, arns: Sequence[str]) -> Mapping[str, Any]:
    """Return a record as Lambda passes it: with the ARN of a table, and without absent images.

    `aws dynamodbstreams get-records` prints records without an ARN, times as text, and the API's names of an identity;
    examples have placeholders as an ARN.
    """
    record, body, names = dict(event.record), dict(event.record["dynamodb"]), list(program.tables)
    arn, at = record.get("eventSourceARN"), body.get("ApproximateCreationDateTime")
    if not isinstance(arn, str) or ":table/" not in arn:
        made = "arn:aws:dynamodb:us-east-1:000000000000:table/{}/stream/" + _LABEL
        if len(names) > 1 and arn not in names:
            problem = f"without a table, {json.dumps(arn)[:40]}" if arn else "missing"
            raise UsageError(
                f"{event.place}: eventSourceARN is {problem}, and the rules have several tables: {', '.join(names)}. "
                f'Add the name of its table, such as "eventSourceARN": "{made.format(names[0])}"'
            )
        table = arn if arn in names else names[0]
        record["eventSourceARN"] = arns[0] if arns and len(names) == 1 else made.format(table)
    for image in ("OldImage", "NewImage"):
        if body.get(image, "") in (None, {}):
            del body[image]
    if isinstance(at, str) and (seconds := _seconds(at)) is not None:
        body["ApproximateCreationDateTime"] = seconds
    identity = record.get("userIdentity")
    if isinstance(identity, dict) and "PrincipalId" in identity:
        record["userIdentity"] = {"type": identity.get("Type"), "principalId": identity["PrincipalId"]}
    return {**record, "dynamodb": body}


def _seconds(text: str) -> float | None:
    """Return a time as seconds since 1970; None if the text is something else."""
    with suppress(ValueError, OverflowError):
        return datetime.fromisoformat(text).timestamp()
    with suppress(ValueError):
        return float(text)
    return None


def _remember(program: Program, store: MemoryStore, record: Mapping[str, Any]) -> None:
    """Store the item of a record, so that later writes find it."""
    names = list(program.tables)
    tables = {table_in(record["eventSourceARN"]): names[0]} if len(names) == 1 else {name: name for name in names}
    try:
        change = decode(record, tables, program.tables)
        if change.new is None:
            store.remove(change.key)
        else:
            store.seed(change.key.table, change.new)
    except (BadInput, InvalidRequest):
        return  # the handler will report it


def _in_order(events: Sequence[_Event]) -> Iterator[_Event]:
    """Yield records and writes in their order, and the lines of incremental exports, among themselves, in order of time."""
    changes = [event for event in events if isinstance(event, Write) and "change" in event.step]
    by_time = iter(sorted(changes, key=lambda write: _micros(write.step["change"])))
    for event in events:
        yield next(by_time) if isinstance(event, Write) and "change" in event.step else event


def _micros(line: Mapping[str, Any]) -> int:
    """Return when a line of an incremental export was written, in microseconds since 1970; 0 if it is not known."""
    try:
        return int(line["Metadata"]["WriteTimestampMicros"]["N"])
    except (KeyError, TypeError, ValueError):
        return 0


def _change(program: Program, store: MemoryStore, application: Application, write: Write) -> None:
    """Do what a line of an incremental export states: an item's images before and after the time of the export."""
    line = write.step["change"]
    table = write.step.get("table") or _only(program, line["Keys"])
    old, new = line.get("OldImage") or None, line.get("NewImage") or None
    if old is None and new is None:
        raise UsageError("a removal without OldImage; export with the view type NEW_AND_OLD_IMAGES")
    if old is not None:
        try:
            store.seed(table, wire_item(old, "OldImage"))
        except InvalidRequest as error:
            raise UsageError(f"OldImage: {error}") from None
    if new is not None:
        application.put(new, table, "NewImage")
    else:
        application.delete(line["Keys"], table)


def _do(program: Program, store: MemoryStore, application: Application, write: Write) -> None:
    if "change" in write.step:
        _change(program, store, application, write)
        return
    (verb,) = (name for name in STEPS if name in write.step)
    subject = write.step[verb]
    table = write.step.get("table")
    if table is None and isinstance(subject, Mapping):
        table = _only(program, subject)
    if verb == "delete":
        table = application.table(table, verb)
        application.require(key_of(program, table, subject, verb), verb)
    application.step({**write.step, "table": table})


def _only(program: Program, item: Mapping[str, Any]) -> str:
    """Return the table of an item: the only one, or the only one whose key attributes it has."""
    tables = _tables_of(program, item) or list(program.tables)
    if len(tables) == 1 or len(program.tables) == 1:
        return tables[0]
    raise UsageError(f'the table may be {" or ".join(tables)}; name it: {{"put": {{…}}, "table": "{tables[0]}"}}')


def table_of(program: Program, item: Mapping[str, Any]) -> str | None:
    """Return a table of which an item has all key attributes, by their names."""
    return next(iter(_tables_of(program, item)), None)


def _tables_of(program: Program, item: Mapping[str, Any]) -> list[str]:
    return [name for name, schema in program.tables.items() if all(key in item for key in schema.key_attributes)]


def flaw(record: Mapping[str, Any]) -> str | None:
    """Return why no table's function can use a record, and what to do; None if it can."""
    try:
        content_of(record)
        return None
    except BadInput as reason:
        return str(reason)


# Files of JSON

_DEEPEST = 200
"""Levels of nesting. DynamoDB has 32, which are 64 in JSON; later code uses recursion."""

_MOST = 512 * 2**20
"""Bytes of a file, after decompression. Its values take several times as much memory."""


_COMPRESSIONS = {b"BZh": "bzip2", b"\x28\xb5\x2f\xfd": "zstd", b"\xfd7zXZ\x00": "xz", b"PK\x03\x04": "zip"}
"""Compressions that are not read, by the first bytes of a file."""


def documents(path: str) -> Iterator[_Placed]:
    """Yield every JSON value of a file, `-` is standard input, with its place. Raises UsageError for anything else."""
    for place, value in _values(path, text_of(path)):
        yield place, _floats(value)


def text_of(path: str) -> str:
    """Return the text of a file, which may be compressed by gzip; `-` is standard input. Raises UsageError."""
    try:
        if path == "-":
            data = at_most(sys.stdin.buffer, _MOST)
        else:
            with Path(path).open("rb") as file:
                data = at_most(file, _MOST)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from None
    if data is not None and data.startswith(b"\x1f\x8b"):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as unpacked:
                data = at_most(unpacked, _MOST)
        except (OSError, EOFError, zlib.error) as error:
            raise UsageError(f"{path}: cannot be decompressed by gzip: {error}; is the file complete?") from None
    for begin, name in _COMPRESSIONS.items():
        if data is not None and data.startswith(begin):
            raise UsageError(f"{path}: is compressed by {name}, which is not read; decompress it, or use gzip")
    if data is None:
        raise UsageError(f"{path}: has more than {_MOST // 2**20} MiB (of text, after decompression); split it")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8, or compress it by gzip") from None


def _number(text: str) -> int | Decimal:
    if not math.isfinite(float(text)):
        raise ValueError(f"{text[:20]} is not a number of JSON, or too large; DynamoDB has 38 digits")
    return int(text) if text.lstrip("-").isdecimal() else Decimal(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) < len(pairs):
        repeated = max(mapping, key=[name for name, _ in pairs].count)
        raise ValueError(f"{json.dumps(repeated[:40], ensure_ascii=False)} is written twice in one mapping; remove one")
    return mapping


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_int=_number, parse_float=_number, parse_constant=_number)
_SPACE = re.compile(r"[ \t\r\n]*")
_TOO_DEEP = f"nested in more than {_DEEPEST} levels; {_STREAM}"


def _values(file: str, text: str) -> Iterator[_Placed]:
    """Yield the JSON values of a text with file and line. Raises UsageError with the place of what is not JSON."""
    position, line, counted = 0, 1, 0
    while (position := _SPACE.match(text, position).end()) < len(text):  # type: ignore[union-attr]
        line, counted = line + text.count("\n", counted, position), position
        place = f"{file}:{line}"
        try:
            value, position = _DECODER.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise UsageError(
                f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg}; an event file holds JSON or JSON lines"
            ) from None
        except (ValueError, RecursionError) as error:
            reason = str(error) if isinstance(error, ValueError) else _TOO_DEEP
            raise UsageError(f"{place}: {reason}") from None
        if _deep(value, _DEEPEST):
            raise UsageError(f"{place}: {_TOO_DEEP}")
        yield place, value


def _deep(value: Any, most: int) -> bool:
    """Return whether a value is nested in more than so many levels."""
    contents = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return most == 0 or any(_deep(nested, most - 1) for nested in contents if isinstance(nested, dict | list))
