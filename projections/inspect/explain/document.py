"""The explanation of recorded events, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.rejections import Rejected
from projections.inspect.explain.records import RecordReport, record_report
from projections.inspect.explain.requests import RequestReport, coalesced, request_reports
from projections.inspect.explain.words import key_words, stream_version
from projections.inspect.rehearsal.recorder import Spent
from projections.inspect.rehearsal.rehearse import Batch, Rehearsal
from projections.language.keys import ItemKey, encode_key
from projections.language.program import Program

__all__ = ["BatchReport", "Explanation", "explain", "explanation_document", "spent_document"]


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One delivery. `places` are the places of its records in their files, if they come from files."""

    batch: Batch
    records: tuple[RecordReport, ...]
    requests: tuple[RequestReport, ...]
    coalesced: tuple[tuple[str, tuple[int, ...]], ...]
    places: tuple[str, ...]

    @property
    def summary(self) -> str:
        """A summary such as `3 records → 1 transaction of 5 actions, 2 publishes`."""
        counted: list[str] = []
        transactions = [request for request in self.requests if request.request.operation == "TransactWriteItems"]
        if transactions:
            sizes = ", ".join(str(len(request.actions)) for request in transactions[:6])
            more = ", …" if len(transactions) > 6 else ""
            noun = "action" if sizes == "1" else "actions"
            counted.append(f"{_count(len(transactions), 'transaction')} of {sizes}{more} {noun}")
        for kind, noun in (
            ("publish", "publish"),
            ("copy", "copy"),
            ("embed", "child"),
            ("index", "index write"),
            ("compute", "computed write"),
            ("delete", "deletion"),
        ):
            single = [
                action
                for request in self.requests
                if request.request.operation != "TransactWriteItems"
                for action in request.actions
                if action.role.kind == kind
            ]
            if single:
                redundant = sum(action.outcome != "done" for action in single)
                counted.append(_count(len(single), noun) + (f" ({redundant} redundant)" if redundant else ""))
        return f"{_count(len(self.records), 'record')} → {', '.join(counted) or 'nothing to write'}"


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of recorded events by batch, with what was assumed."""

    rehearsal: Rehearsal
    batches: tuple[BatchReport, ...]

    @property
    def unknown(self) -> list[ItemKey]:
        """Items of the application that the engine read and that the events do not have: assumed to be absent."""
        shown = {d.record.key for report in self.batches for d in report.batch.records if d.record is not None}
        missed = {
            read.key: None
            for report in self.batches
            for request in report.batch.requests
            for read in request.reads
            if read.key is not None and not read.found and read.key.table != LEDGER
        }
        return [key for key in missed if key not in shown]

    @property
    def rejected(self) -> list[Rejected]:
        return [one for batch in self.batches for one in batch.batch.rejected]

    @property
    def failed(self) -> list[str]:
        return [str(b.batch.outcome.failed_reason) for b in self.batches if b.batch.outcome.failed is not None]


def explain(program: Program, rehearsal: Rehearsal, places: Sequence[str]) -> Explanation:
    """Return the explanation of a rehearsal. `places` are those of the recorded events, in order."""
    report = []
    start = 0
    for batch in rehearsal.batches:
        of_batch: Sequence[str] = ()
        if batch.round == 0:
            of_batch = places[start : start + len(batch.records)]
            start += len(batch.records)
        records = tuple(record_report(program, decoded) for decoded in batch.records)
        requests = tuple(request_reports(program, batch))
        report.append(BatchReport(batch, records, requests, tuple(coalesced(batch)), tuple(of_batch)))
    return Explanation(rehearsal, tuple(report))


def explanation_document(explanation: Explanation) -> dict[str, Any]:
    """Return what `explain --json` prints."""
    return {
        "assumed": [encode_key(key) for key in explanation.rehearsal.assumed],
        "takenAsAbsent": [encode_key(key) for key in explanation.unknown],
        "batches": [_batch(batch) for batch in explanation.batches],
        "cost": spent_document(explanation.rehearsal.spent),
    }


def spent_document(spent: Spent) -> dict[str, Any]:
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
        "coalesced": [{"source": source, "records": list(numbers)} for source, numbers in report.coalesced],
        "requests": [request.document for request in report.requests],
        "quarantined": [
            {"rule": one.rule, "reason": one.reason, "key": one.key, "sequenceNumber": one.sequence}
            for one in batch.rejected
        ],
        "failed": batch.outcome.failed_reason,
        "cost": spent_document(batch.spent),
    }


def _record(report: RecordReport, number: int, places: Sequence[str]) -> dict[str, Any]:
    record = report.record
    document: dict[str, Any] = {"number": number + 1, "place": places[number] if places else None}
    if record is None:
        return document | {"event": report.raw.get("eventName"), "flaw": report.flaw}
    version: Mapping[str, str] = stream_version(record.version) or {}
    return document | {
        "event": record.event,
        "expired": record.expired,
        "table": record.key.table,
        "key": key_words(record.key),
        **version,
        "entity": report.entity,
        "entityBefore": report.was,
        "variables": dict(report.variables),
        "nearest": [{"entity": name, "misfits": list(why)} for name, why in report.nearest],
        "rules": [rule.document for rule in report.rules],
    }


def _count(number: int, noun: str) -> str:
    plural = {"publish": "publishes", "copy": "copies", "child": "children"}.get(noun, f"{noun}s")
    return f"{number} {noun if number == 1 else plural}"
