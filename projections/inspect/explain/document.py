"""The explanation of recorded events: of each record its item, its rules and the effect of each; and its JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from projections.engine.embed_lists import references_of
from projections.engine.embeds import reference_of
from projections.engine.guards import Guards, at_of
from projections.engine.ledger_items import LEDGER
from projections.engine.plan import release_of
from projections.engine.records import Record
from projections.engine.registry import SHADOW
from projections.engine.rejections import Rejected
from projections.inspect.explain.matching import nearest_entities, references
from projections.inspect.explain.requests import RequestReport, coalesced, request_reports
from projections.inspect.explain.sources import Role, RuleReport, source_report
from projections.inspect.explain.words import (
    freed_reason,
    healing_reason,
    key_words,
    pull_reason,
    stream_version,
    version_words,
)
from projections.inspect.rehearsal.recorder import Spent
from projections.inspect.rehearsal.rehearse import Batch, Decoded, Rehearsal
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Item
from projections.language.keys import ItemKey, encode_key
from projections.language.program import Program
from projections.language.rules import GuardedCopyRule, ItemRule, LedgerRule, Rule
from projections.language.syntax import an
from projections.language.values import same

__all__ = [
    "BatchReport",
    "Explanation",
    "RecordReport",
    "explain",
    "explanation_document",
    "record_report",
    "spent_document",
]


@dataclass(frozen=True, slots=True)
class RecordReport:
    """One record, and all rules that it concerns. For an item of no entity, `nearest` has the most similar entities."""

    record: Record | None
    raw: Mapping[str, Any]
    flaw: str | None = None
    entity: str | None = None
    was: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict)
    nearest: tuple[tuple[str, tuple[str, ...]], ...] = ()
    rules: tuple[RuleReport, ...] = ()


def record_report(program: Program, decoded: Decoded) -> RecordReport:
    """Return a record with the effect of each rule."""
    record = decoded.record
    if record is None:
        return RecordReport(None, decoded.raw, flaw=decoded.flaw)
    old = program.recognise(record.key, record.old) if record.old is not None else None
    new = program.recognise(record.key, record.new) if record.new is not None else None
    image = record.new if record.new is not None else record.old
    item = new or old
    if item is None:
        found = nearest_entities(program, record.key, image or {})
        freed = tuple(_freed(program, record, old, new))
        return RecordReport(record, decoded.raw, nearest=tuple((name, tuple(why)) for name, why in found), rules=freed)
    was = old.entity.name if old is not None and new is not None and old.entity is not new.entity else None
    rules = tuple(_rules(program, record, old, new))
    return RecordReport(record, decoded.raw, None, item.entity.name, was, item.variables, (), rules)


def _rules(program: Program, record: Record, old: Item | None, new: Item | None) -> Iterator[RuleReport]:
    """Yield rules in the order of the file; an item may have two roles for one rule."""
    entities = {item.entity.name for item in (old, new) if item is not None}
    for rule in program.rules.values():
        for variant in program.variants:
            if variant.name == rule.name and variant.source.name in entities:
                yield source_report(program, variant, record, old, new)
        if rule.mode == SHADOW or not rule.writes_items:
            continue  # it does not write targets or children
        if rule.into.name in entities:
            yield from _as_target(program, rule, record, old, new)
    yield from _freed(program, record, old, new)
    yield from _released(program, record, old, new)


def _freed(program: Program, record: Record, old: Item | None, new: Item | None) -> Iterator[RuleReport]:
    """Yield the rules that may create their item under a key that an item of another kind occupied."""
    for rule in program.rules.values():
        if reason := freed_reason(program, rule, record, old, new):
            what = f"creates its {rule.into.name} under this key, if there are contributions"
            yield RuleReport.of(rule, "target", "heals", what, (reason,))


def _released(program: Program, record: Record, old: Item | None, new: Item | None) -> Iterator[RuleReport]:
    """Yield the rules whose attributes are removed from an item that left its entity."""
    release = release_of(program, Guards(program, None), record, old, new)
    for name in release.rules if release is not None else ():
        rule = program.rules[name]
        role: Role = "source" if isinstance(rule, ItemRule) else "child" if rule.kind == "embed" else "target"
        what = "removes the rule's attributes, each only if it still has the rule's value"
        reason = f"it is no longer {an(rule.into.name)}"
        yield RuleReport.of(rule, role, "releases", what, (reason,))


def _as_target(
    program: Program, rule: Rule, record: Record, old: Item | None, new: Item | None
) -> Iterator[RuleReport]:
    """The item as a target or child."""
    match rule:
        case EmbedRule():
            yield from _pull(program, rule, old, new)
            return
        case LedgerRule():
            what = "compares its attributes with the ledger, and corrects them if they differ"
        case GuardedCopyRule():
            what = "compares the copy with its source"
        case _:
            return
    if reason := healing_reason(program, Guards(program, None), rule, record, old, new):
        yield RuleReport.of(rule, "target", "heals", what, (reason,))
    elif published := _published(program, rule, old, new):
        yield RuleReport.of(rule, "target", "", published)


def _published(program: Program, rule: Rule, old: Item | None, new: Item | None) -> str | None:
    """Return a text for a record that shows the rule's own write, or None."""
    if old is None or new is None or old.entity is not rule.into or new.entity is not rule.into:
        return None
    guard = program.guard(rule.name)
    before, after = old.image.get(guard), new.image.get(guard)
    if same(before, after):
        return None
    moved = f"from {version_words(at_of(before))} to {version_words(at_of(after))}"
    return (
        f"the rule's own write: its guard went {moved if before is not None else 'to ' + version_words(at_of(after))}"
    )


def _pull(program: Program, rule: EmbedRule, old: Item | None, new: Item | None) -> Iterator[RuleReport]:
    """Yield the effect on the item as a child."""
    child = new if new is not None and new.entity is rule.into else None
    if child is None:
        return
    before = old if old is not None and old.entity is rule.into else None
    reason = pull_reason(rule, Guards(program, None), before, child)
    if isinstance(rule, ListEmbedRule):
        yield _pull_list(rule, child, reason)
        return
    parent, flaw = reference_of(rule, child)
    if not reason:
        named = f"references {key_words(parent)}" if parent is not None else f"references no {rule.source.name}"
        what = f"{named}; this record requires no pull"
        yield RuleReport.of(rule, "child", "", what)
        return
    if parent is not None:
        what = f"reads {key_words(parent)} for {', '.join(rule.owned())}"
        yield RuleReport.of(rule, "child", "pulls", what, (reason,))
        return
    why = references(rule, child)
    what = f"references no {rule.source.name}, so {', '.join(rule.owned())} are removed"
    effect = "bad input" if flaw is not None else "pulls"
    yield RuleReport.of(rule, "child", effect, what, (reason, *([why] if why else [])))


def _pull_list(rule: ListEmbedRule, child: Item, reason: str) -> RuleReport:
    """Return the effect on the item as a child of several parents."""
    references, flaw = references_of(rule, child)
    if references is None:
        what = f"references no {rule.source.name}"
        what += f", so {rule.list_name} is removed" if reason else "; this record requires no pull"
        effect = "bad input" if flaw is not None else "pulls" if reason else ""
        return RuleReport.of(rule, "child", effect, what, tuple(why for why in (reason, flaw) if why))
    noun = rule.source.name if len(references) == 1 else f"{rule.source.name} items"
    if not reason:
        what = f"references {len(references)} {noun}; this record requires no pull"
        return RuleReport.of(rule, "child", "", what)
    what, why = f"reads {len(references)} {noun} for {rule.list_name}", (reason, *([flaw] if flaw else []))
    return RuleReport.of(rule, "child", "pulls", what, why)


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
