"""Stream records: those of event files, completed to what Lambda passes, and those of writes to a store in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projections.engine.records import is_sequence, is_value
from projections.errors import InvalidRequest, UsageError
from projections.language.program import Program
from projections.local.items import key_of
from projections.local.steps import STEPS, Application
from projections.stores.memory import MemoryStore
from projections.stores.memory import Record as Made

__all__ = ["Recorded", "Write", "flaw", "records_of", "table_in", "table_of"]

_IMAGES = {"INSERT": ("NewImage",), "MODIFY": ("OldImage", "NewImage"), "REMOVE": ("OldImage",)}
_LABEL = "2025-01-01T00:00:00.000"
_FIRST = 100_000_000_000_000_000_001
"""The sequence number of the first record that is made here, unless recorded ones are greater."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A record of an event file, or of a write in it, and its place."""

    record: Mapping[str, Any]
    place: str


@dataclass(frozen=True, slots=True)
class Write:
    """A write in an event file, and its place: a step, or a line of an incremental export.

    `exported_from` is the real name of the table if it is known.
    """

    step: Mapping[str, Any]
    place: str
    exported_from: str | None = None
    incremental: bool = False


def records_of(program: Program, found: Sequence[Recorded | Write]) -> Iterator[Recorded]:
    """Yield the records, and in their order those of the writes, which find the items of earlier records.

    Raises UsageError, with the place of a write that does not fit the rules, or of a record that lacks its table.
    """
    recorded = [one.record for one in found if isinstance(one, Recorded)]
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
    for one in found:
        if isinstance(one, Recorded):
            record = _complete(program, one, arns)
            _remember(program, store, record)
            yield Recorded(record, one.place)
        else:
            try:
                _do(program, store, application, one)
            except UsageError as error:
                raise UsageError(f"{one.place}: {error}") from None
            yield from (Recorded(record, one.place) for record in made)
        made.clear()


def _complete(program: Program, one: Recorded, arns: Sequence[str]) -> Mapping[str, Any]:
    """Return a record as Lambda passes it: with an ARN, and the names of the identity in lower case.

    `aws dynamodbstreams get-records` prints records without an ARN, and the API's names of an identity.
    """
    record, names = dict(one.record), list(program.tables)
    arn = record.get("eventSourceARN")
    missing = arn in (None, "")
    made = f"arn:aws:dynamodb:us-east-1:000000000000:table/{names[0]}/stream/{_LABEL}"
    if len(names) > 1 and arn not in names and "/" not in str(arn):
        has = "no eventSourceARN" if missing else f"an eventSourceARN without a table, {json.dumps(arn)[:40]}"
        raise UsageError(
            f"{one.place}: has {has}, and the rules have several tables: {', '.join(names)}. "
            f'Add the name of its table, such as "eventSourceARN": "{made}"'
        )
    if missing:
        record["eventSourceARN"] = arns[0] if arns else made
    identity = record.get("userIdentity")
    if isinstance(identity, dict) and "PrincipalId" in identity:
        record["userIdentity"] = {"type": identity.get("Type"), "principalId": identity["PrincipalId"]}
    return record


def _remember(program: Program, store: MemoryStore, record: Mapping[str, Any]) -> None:
    """Store the item of a record, so that later writes find it."""
    names = list(program.tables)
    name = names[0] if len(names) == 1 else table_in(str(record["eventSourceARN"]))
    if name not in program.tables or flaw(record) is not None:
        return
    try:
        if record["eventName"] == "REMOVE":
            store.remove(program.tables[name].key(name, record["dynamodb"]["Keys"]))
        else:
            store.seed(name, record["dynamodb"]["NewImage"])
    except (KeyError, ValueError, ArithmeticError, InvalidRequest):
        return  # the handler will report it


def _do(program: Program, store: MemoryStore, application: Application, write: Write) -> None:
    table = None if write.exported_from is None else _logical(program, write.exported_from)
    if write.incremental:
        _exported(store, application, write.step, table or _only(program, write.step["Keys"]))
        return
    (verb,) = (name for name in STEPS if name in write.step)
    subject = write.step[verb]
    table = write.step.get("table", table)
    if table is None and isinstance(subject, Mapping):
        table = _only(program, subject)
    if verb == "delete":
        table = application.table(table, verb)
        application.require(key_of(program, table, subject, verb), verb)
    application.step({**write.step, "table": table})


def _logical(program: Program, real: str) -> str:
    names = list(program.tables)
    if len(names) == 1 or real in names:
        return names[0] if len(names) == 1 else real
    raise UsageError(
        f"is of an export of the table {real!r}, the rules have {', '.join(names)}; set tableArn in "
        "manifest-summary.json to the ARN of a table with one of these names"
    )


def _only(program: Program, item: Mapping[str, Any]) -> str:
    """Return the table of an item: the only one, or the only one whose key attributes it has."""
    names = list(program.tables)
    fitting = [name for name in names if all(key in item for key in program.tables[name].key_attributes)]
    some: list[str] = fitting or names
    if len(names) == 1 or len(fitting) == 1:
        return some[0]
    raise UsageError(f'the table may be {" or ".join(some)}; name it: {{"put": {{…}}, "table": "{some[0]}"}}')


def _exported(store: MemoryStore, application: Application, line: Mapping[str, Any], table: str) -> None:
    """Do what a line of an incremental export states: an item's images before and after the time of the export."""
    old, new = line.get("OldImage"), line.get("NewImage")
    for image in (old, new):
        if image is not None and not is_value({"M": image}):
            raise UsageError('OldImage and NewImage must be items with types, such as {"PK": {"S": "text"}}')
    if old is None and new is None:
        raise UsageError("a removal without OldImage; export with the view type NEW_AND_OLD_IMAGES")
    try:
        if old is not None:
            store.seed(table, old)
    except InvalidRequest as error:
        raise UsageError(f"OldImage: {error}") from None
    if new is not None:
        application.put(new, table, "NewImage")
    else:
        application.delete(line["Keys"], table)


def table_in(arn: str) -> str:
    """Return the table's name in the ARN of a table or stream."""
    return arn.split("/")[1] if "/" in arn else arn


def table_of(program: Program, item: Mapping[str, Any]) -> str | None:
    """Return a table of which an item has all key attributes, by their names."""
    return next(
        (name for name, schema in program.tables.items() if all(key in item for key in schema.key_attributes)), None
    )


def flaw(record: Mapping[str, Any]) -> str | None:
    """Return why a record cannot be used, and what to do; None if it can."""
    name, body = record.get("eventName"), record["dynamodb"]
    if not isinstance(name, str) or name not in _IMAGES:
        return f"eventName is {json.dumps(name)[:40]}; expected INSERT, MODIFY or REMOVE"
    if not is_sequence(body.get("SequenceNumber")):
        return "no SequenceNumber, the text of up to 40 digits by which versions of an item are ordered"
    for image in ("Keys", *_IMAGES[name]):
        if not isinstance(body.get(image), dict):
            view = body.get("StreamViewType", "not given")
            return (
                f"{name} without {image} (its StreamViewType: {view}); "
                "set the stream's view type to NEW_AND_OLD_IMAGES and record the event again"
            )
        for attribute, value in body[image].items():
            if not is_value({"M": {attribute: value}}):
                return (
                    f"{image}.{attribute} is {json.dumps(value, ensure_ascii=False)[:60]}, not an attribute value; "
                    'write it with its type, such as {"S": "text"} or {"N": "1"}'
                )
    return None
