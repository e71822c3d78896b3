"""The explanation of recorded events: of each batch its records, and each write with its effect, condition and records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, NamedTuple

from projections.engine.ledger_items import COUNT, LEDGER
from projections.engine.rejections import Rejected
from projections.engine.store import Delete, Image, ItemKey, Purpose, Update, Value
from projections.inspect.explain.record_effects import RecordReport, record_report
from projections.inspect.explain.words import (
    condition_words,
    difference_words,
    encoded_words,
    failing,
    key_words,
    short,
    stream_version,
    value_words,
)
from projections.inspect.rehearsal.recorder import CANCELLED, DONE, Action, Read, Request, Spent, purpose_of
from projections.inspect.rehearsal.rehearse import Batch, Rehearsal
from projections.language.keys import encode_key
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.rules import public_name
from projections.language.values import decode_order, same
from projections.operations.verify.showing import contribution


class ActionReport(NamedTuple):
    """One write. `records` are the numbers (from 1, within the batch) of the records that caused it."""

    role: Purpose
    on: str
    does: str
    condition: str
    outcome: str
    why: str
    units: int
    index_units: Mapping[str, int]
    records: tuple[int, ...]

    @property
    def document(self) -> dict[str, Any]:
        return {
            "what": self.role.kind,
            "rules": list(self.role.rules),
            "on": self.role.about,
            "does": self.does,
            "if": self.condition or None,
            "outcome": self.outcome,
            "why": self.why or None,
            "writeUnits": self.units,
            "indexUnits": dict(self.index_units),
            "records": list(self.records),
        }


class RequestReport(NamedTuple):
    """One call, with its writes or its reads."""

    request: Request
    actions: tuple[ActionReport, ...]
    reads: tuple[str, ...]

    @property
    def document(self) -> dict[str, Any]:
        return {
            "operation": self.request.operation,
            "outcome": self.request.outcome,
            "writeUnits": self.request.write_units,
            "readUnits": self.request.read_units,
            "actions": [action.document for action in self.actions],
            "reads": list(self.reads),
        }


class BatchReport(NamedTuple):
    """One delivery. `places` are the places of its records in their files, if they come from files."""

    batch: Batch
    records: tuple[RecordReport, ...]
    requests: tuple[RequestReport, ...]
    places: tuple[str, ...]

    @property
    def summary(self) -> str:
        """A summary such as `3 records → 3 entry, 1 group, 1 publish`."""
        counts = Counter(action.role.kind for request in self.requests for action in request.actions)
        writes = ", ".join(f"{number} {kind}" for kind, number in counts.items()) or "nothing to write"
        return f"{len(self.records)} {'record' if len(self.records) == 1 else 'records'} → {writes}"


class Explanation(NamedTuple):
    """The explanation of recorded events by batch, with what was assumed."""

    rehearsal: Rehearsal
    batches: tuple[BatchReport, ...]

    @property
    def unknown(self) -> list[ItemKey]:
        """Items of the application that the engine read and that the events do not have: assumed to be absent."""
        keys = {d.record.key for report in self.batches for d in report.batch.records if d.record is not None}
        missed = {
            read.key: None
            for report in self.batches
            for request in report.batch.requests
            for read in request.reads
            if read.key is not None and not read.item_count and read.key.table != LEDGER
        }
        return [key for key in missed if key not in keys]

    @property
    def rejected(self) -> list[Rejected]:
        return [rejection for batch in self.batches for rejection in batch.batch.rejected]

    @property
    def failed(self) -> list[str]:
        return [str(b.batch.outcome.failed_reason) for b in self.batches if b.batch.outcome.failed is not None]


def explain(program: Program, rehearsal: Rehearsal, places: Sequence[str]) -> Explanation:
    """Return the explanation of a rehearsal. `places` are those of the recorded events, in order."""
    report, waiting = [], iter(places)
    for batch in rehearsal.batches:
        of_batch = tuple(islice(waiting, len(batch.records))) if batch.round == 0 else ()
        records = tuple(record_report(program, decoded) for decoded in batch.records)
        report.append(BatchReport(batch, records, tuple(_requests(program, batch)), of_batch))
    return Explanation(rehearsal, tuple(report))


def _requests(program: Program, batch: Batch) -> list[RequestReport]:
    """Return all requests of a batch, in order."""
    numbers: dict[str, list[int]] = {}  # several if a record was delivered again
    for number, decoded in enumerate(batch.records, 1):
        if decoded.record is not None:
            numbers.setdefault(decoded.record.sequence, []).append(number)
    return [
        RequestReport(
            request,
            tuple(_action(program, action, request.factor, numbers) for action in request.actions),
            tuple(map(_read_words, request.reads)),
        )
        for request in batch.requests
    ]


def _read_words(read: Read) -> str:
    if read.key is None:
        return f"{read.query}: {read.item_count} item" + "s" * (read.item_count != 1)
    return f"{key_words(read.key)}" + ("" if read.item_count else ": not found")


def _action(program: Program, action: Action, factor: int, numbers: Mapping[str, Sequence[int]]) -> ActionReport:
    write, role = action.write, purpose_of(action.write)
    schema = program.tables.get(write.key.table, LEDGER_SCHEMA)
    why = ""
    if action.outcome == CANCELLED:
        why = "another action of the same transaction failed"
    elif action.outcome != DONE:
        why = failing(write.condition, action.before, schema) or "DynamoDB rejects it"
    return ActionReport(
        role,
        encoded_words(role.about),
        _does(program, role, action),
        condition_words(write.condition, schema),
        action.outcome,
        why,
        factor * action.units.total,
        {index: factor * units for index, units in action.units.indexes.items()},
        tuple(sorted({number for sequence in role.records for number in numbers.get(sequence, ())})),
    )


def _does(program: Program, role: Purpose, action: Action) -> str:
    write, before = action.write, action.before or {}
    if isinstance(write, Delete):
        return "deletes the item"
    match role.kind:
        case "entry":
            return _entry(program, write, before)
        case "forget":
            return "its pending publishes are done" + ("; the entry expires after 7 days" if "ttl" in write.set else "")
        case "group":
            return _amounts(write.add)
        case "counter":
            counted = write.set.get("v") or before.get("v") or decode_order((write.key.sort or "").split("|", 1)[1])
            return f"{value_words(counted)}: {_amounts({**write.set, **write.add})}"
        case "member":
            return f"{value_words(write.set.get('v'))}" if "v" in write.set else "a claim"
        case "fence":
            return "excludes older pushes"
        case "shards":
            return "records the number of shards"
        case "wait":
            return f"{encoded_words(write.set['source']['S'])} waits for this key"
    prefix = program.guard_prefix
    words = [
        f"{name} {_change(before.get(name), value)}" for name, value in write.set.items() if not name.startswith(prefix)
    ]
    words += [f"without {name}" for name in write.remove if not name.startswith(prefix)]
    return short(", ".join(words), 240) or "only the guard or the mark"


def _change(before: Value | None, after: Value) -> str:
    if before is None or same(before, after):
        return f"= {value_words(after, 40)}" + ("" if before is None else " (unchanged)")
    return f"{value_words(before, 40)} → {value_words(after, 40)}"


def _entry(program: Program, write: Update, before: Image) -> str:
    olds = json.loads(before["contributions"]["S"]) if "contributions" in before else {}
    news = json.loads(write.set["contributions"]["S"])
    words = []
    for rule in sorted(olds.keys() | news.keys()):
        for target in sorted(olds.get(rule, {}).keys() | news.get(rule, {}).keys()):
            old, new = olds.get(rule, {}).get(target), news.get(rule, {}).get(target)
            if old != new:
                name = public_name(rule)
                change = difference_words(*(contribution(program.rules.get(name), side) for side in (old, new)))
                words.append(f"{name} to {encoded_words(target)}: {' → '.join(change)}")
    return "; ".join(words) or f"contributes {'the same' if news else 'nothing'}; records its version"


_SLOTS = {"n": "contributions", COUNT: "contributions"}
_KINDS = {"=": "", "#": "values of ", "%": "different values of ", "+": "sum of "}


def _amounts(add: Mapping[str, Value]) -> str:
    """Return what is added to the totals of a group or to a value counter."""
    words = []
    for slot, value in sorted(add.items(), key=lambda pair: (pair[0] == "version", pair[0] != "n", pair[0])):
        if "N" in value and slot != "v":
            kind = _KINDS.get(slot[0])
            shown = _SLOTS.get(slot, slot) if kind is None else f"{kind}{slot[1:]}"
            words.append(f"{shown} {Decimal(value['N']):+}")
    return ", ".join(words)


# JSON


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """Return what `explain --json` prints."""
    return {
        "assumed": [encode_key(key) for key in explanation.rehearsal.assumed],
        "takenAsAbsent": [encode_key(key) for key in explanation.unknown],
        "batches": [_batch(batch) for batch in explanation.batches],
        "cost": _spent(explanation.rehearsal.spent),
    }


def _spent(spent: Spent) -> dict[str, Any]:
    return {
        "writeUnits": spent.write_units,
        "readUnits": spent.read_units,
        "redundantWriteUnits": spent.in_vain,
        "calls": spent.call_count,
        "callsByOperation": dict(sorted(spent.calls.items())),
    }


def _batch(report: BatchReport) -> dict[str, Any]:
    batch = report.batch
    return {
        "round": batch.round,
        "summary": report.summary,
        "records": [_record(record, n, report.places) for n, record in enumerate(report.records)],
        "requests": [request.document for request in report.requests],
        "quarantined": [
            {"rule": bad.rule, "reason": bad.reason, "key": bad.key, "sequenceNumber": bad.sequence}
            for bad in batch.rejected
        ],
        "failed": batch.outcome.failed_reason,
        "cost": _spent(batch.spent),
    }


def _record(report: RecordReport, number: int, places: Sequence[str]) -> dict[str, Any]:
    record = report.record
    document: dict[str, Any] = {"number": number + 1, "place": places[number] if places else None}
    if record is None:
        return document | {"event": report.raw.get("eventName"), "flaw": report.flaw}
    return document | {
        "event": record.event,
        "expired": record.expired,
        "table": record.key.table,
        "key": key_words(record.key),
        **(stream_version(record.version) or {}),
        "entity": report.entity,
        "entityBefore": report.was,
        "variables": dict(report.variables),
        "nearest": [{"entity": name, "misfits": list(why)} for name, why in report.nearest],
        "rules": [rule.document for rule in report.rules],
    }
