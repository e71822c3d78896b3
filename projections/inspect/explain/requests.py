"""The requests to DynamoDB: each write with its effect, its condition, and its records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain
from typing import Any

from projections.engine.changes import SETTLED
from projections.engine.ledger_items import COUNT, KEPT
from projections.engine.store import Delete, Image, Purpose, Update, Value
from projections.inspect.explain.sources import difference_words
from projections.inspect.explain.words import condition_words, encoded_words, failing, key_words, short, value_words
from projections.inspect.rehearsal.recorder import CANCELLED, DONE, Action, Read, Request, purpose_of
from projections.inspect.rehearsal.rehearse import Batch
from projections.language.ordering import decode_order
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.values import number_text, same

__all__ = ["ActionReport", "RequestReport", "coalesced", "request_reports"]


@dataclass(frozen=True, slots=True)
class ActionReport:
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


@dataclass(frozen=True, slots=True)
class RequestReport:
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


def request_reports(program: Program, batch: Batch) -> list[RequestReport]:
    """Return all requests of a batch, in order."""
    numbers = _numbers(batch)
    return [
        RequestReport(
            request,
            tuple(_action(program, action, request.factor, numbers) for action in request.actions),
            tuple(map(_read, request.reads)),
        )
        for request in batch.requests
    ]


def _read(read: Read) -> str:
    if read.key is None:
        return f"{read.query}: {read.found} item" + "s" * (read.found != 1)
    return f"{key_words(read.key)}" + ("" if read.found else ": not found")


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


_DELETES: Mapping[str, str] = {
    "member": "deletes the member",
    "counter": "deletes the value counter: no contribution has the value any more",
    "wait": "the source no longer waits",
}


def _does(program: Program, role: Purpose, action: Action) -> str:
    write, before = action.write, action.before or {}
    if isinstance(write, Delete):
        return _DELETES.get(role.kind, "deletes the item")
    match role.kind:
        case "entry":
            return _entry(write, before)
        case "forget":
            return "its pending publishes are done" + ("; the entry expires after 7 days" if "ttl" in write.set else "")
        case "group":
            return _amounts(write.add, before)
        case "counter":
            return f"{value_words(_counted(write, before))}: {_amounts({**write.set, **write.add}, before)}"
        case "member" | "extreme":
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
    guards = any(len(name) > len(prefix) for name in (*write.set, *write.remove))
    return short(", ".join(words), 240) or ("only the guard" if guards else "only the mark of created items")


def _change(before: Value | None, after: Value) -> str:
    if before is None:
        return f"= {value_words(after, 40)}"
    if same(before, after):
        return f"= {value_words(after, 40)} (unchanged)"
    return f"{value_words(before, 40)} → {value_words(after, 40)}"


def _entry(write: Update, before: Image) -> str:
    olds = json.loads(before["contributions"]["S"]) if "contributions" in before else {}
    news = json.loads(write.set["contributions"]["S"])
    words = []
    for rule in sorted(olds.keys() | news.keys()):
        for target in sorted(olds.get(rule, {}).keys() | news.get(rule, {}).keys()):
            old, new = olds.get(rule, {}).get(target), news.get(rule, {}).get(target)
            if old != new:
                words.append(f"{rule} to {encoded_words(target)}: {' → '.join(difference_words(old, new))}")
    return "; ".join(words) or f"contributes {'the same' if news else 'nothing'}; records its version"


def _amounts(add: Mapping[str, Value], before: Image) -> str:
    words = []
    numbers = {slot: value for slot, value in add.items() if "N" in value and slot != "v"}
    for slot, value in sorted(numbers.items(), key=lambda one: (one[0] == "version", one[0] != "n", one[0])):
        amount = Decimal(value["N"])
        total = number_text(Decimal(before.get(slot, {"N": "0"})["N"]) + amount)
        name = slot.removeprefix(SETTLED)
        settled = "settled " if slot.startswith(SETTLED) else ""
        words.append(f"{settled}{_slot(name)} {amount:+} ({total})")
    return ", ".join(words)


def _counted(write: Update, before: Image) -> Value:
    """Return the value that a counter counts."""
    return write.set.get("v") or before.get("v") or decode_order((write.key.sort or "").split("|", 2)[2])


def _slot(name: str) -> str:
    """Return the name of a group's total for people."""
    of = {"=": "", "#": "values of ", "%": "different values of "}.get(name[0])
    if of is not None:
        return f"{of}{name[1:]}"
    return {"n": "contributions", COUNT: "contributions", KEPT: "settled"}.get(name, name)


def coalesced(batch: Batch) -> list[tuple[str, tuple[int, ...]]]:
    """Return the source items whose records were merged into one change, with the numbers of these records."""
    numbers = _numbers(batch)
    return [
        (change.source, tuple(number for sequence in change.sequences for number in numbers[sequence]))
        for change in chain(*batch.plan.changes)
        if len(change.sequences) > 1
    ]


def _numbers(batch: Batch) -> dict[str, list[int]]:
    """Return the numbers of the records with each sequence number, which are several if one was delivered again."""
    found: dict[str, list[int]] = {}
    for number, decoded in enumerate(batch.records, 1):
        if decoded.record is not None:
            found.setdefault(decoded.record.sequence, []).append(number)
    return found
