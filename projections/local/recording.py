"""Stream records: those of event files, completed to what Lambda passes, and those of writes to a store in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from projections.engine.records import content_of, decode, is_sequence
from projections.errors import BadInput, InvalidRequest, UsageError
from projections.language.program import Program
from projections.local.items import key_of
from projections.local.steps import STEPS, Application
from projections.stores.memory import MemoryStore
from projections.stores.memory import Record as Made

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
    """A step in an event file, and its place. `exported_from` is the real name of the table if it is known."""

    step: Mapping[str, Any]
    place: str
    exported_from: str | None = None


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
    for event in events:
        if isinstance(event, Recorded):
            record = _complete(program, event, arns)
            _remember(program, store, record)
            yield Recorded(record, event.place)
        else:
            try:
                _do(program, application, event)
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


def _do(program: Program, application: Application, write: Write) -> None:
    table = None if write.exported_from is None else _logical(program, write.exported_from)
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
        f"is of the table {real!r}, the rules have {', '.join(names)}; use one of these names for it, in an export in "
        "tableArn of manifest-summary.json"
    )


def _only(program: Program, item: Mapping[str, Any]) -> str:
    """Return the table of an item: the only one, or the only one whose key attributes it has."""
    names = list(program.tables)
    fitting = [name for name in names if all(key in item for key in program.tables[name].key_attributes)]
    tables: list[str] = fitting or names
    if len(names) == 1 or len(fitting) == 1:
        return tables[0]
    raise UsageError(f'the table may be {" or ".join(tables)}; name it: {{"put": {{…}}, "table": "{tables[0]}"}}')


def table_in(arn: str) -> str:
    """Return the table's name in the ARN of a table or stream."""
    return arn.split("/")[1] if "/" in arn else arn


def table_of(program: Program, item: Mapping[str, Any]) -> str | None:
    """Return a table of which an item has all key attributes, by their names."""
    return next(
        (name for name, schema in program.tables.items() if all(key in item for key in schema.key_attributes)), None
    )


def flaw(record: Mapping[str, Any]) -> str | None:
    """Return why no table's function can use a record, and what to do; None if it can."""
    try:
        content_of(record)
        return None
    except BadInput as reason:
        return str(reason)
