"""Playing recorded events: batch by batch through the real processor, then what the tables' own streams say of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from projections.engine.guards import Guards
from projections.engine.plan import Plan, plan
from projections.engine.processor import Outcome, Processor
from projections.engine.records import Record, decode, in_order
from projections.engine.registry import Registry
from projections.engine.rejections import Rejected
from projections.engine.store import ItemKey
from projections.errors import BadInput, ProjectionsError
from projections.inspect.rehearsal.recorder import RecordingStore, Request, Spent
from projections.inspect.rehearsal.stage import Invocation, set_stage
from projections.language.program import Program
from projections.local.event_source import created_at
from projections.local.replay import ROUNDS, logical_names
from projections.local.tables import LEDGER, MemoryTables, schemas
from projections.stores.memory import MemoryStore

__all__ = ["Batch", "Decoded", "Rehearsal", "play", "rehearse"]


@dataclass(frozen=True, slots=True)
class Decoded:
    """One record as it came, and as the engine reads it, or why it cannot."""

    raw: Mapping[str, Any]
    record: Record | None
    flaw: str | None = None

    @classmethod
    def of(cls, program: Program, record: Mapping[str, Any], names: Mapping[str, str]) -> Decoded:
        """Decode a record. `names` has the logical name of each table in records."""
        try:
            return cls(record, decode(record, names, program.tables))
        except BadInput as flaw:
            return cls(record, None, str(flaw))


@dataclass(frozen=True, slots=True)
class Batch:
    """One delivery: its records, what the rules planned for them, and what the processor then asked of DynamoDB.

    Round 0 are the recorded events; round n is what the tables' streams say of the writes of round n - 1.
    """

    round: int
    records: Sequence[Decoded]
    plan: Plan
    requests: Sequence[Request]
    outcome: Outcome
    rejected: Sequence[Rejected]

    @property
    def spent(self) -> Spent:
        return Spent.of(self.requests)


@dataclass
class Rehearsal:
    """All that happened, and the items that were assumed to be there."""

    program: Program
    tables: MemoryTables
    batches: list[Batch] = field(default_factory=list)
    assumed: Sequence[ItemKey] = ()

    @property
    def spent(self) -> Spent:
        return Spent.of([request for batch in self.batches for request in batch.requests])


def rehearse(
    program: Program,
    records: Sequence[Mapping[str, Any]],
    *,
    batch_size: int = 100,
    rounds: int = ROUNDS,
    engine: Callable[..., Processor] = Processor,
) -> Rehearsal:
    """Plays the records on tables in memory, until nothing changes any more.

    Raises UsageError for records of tables that the rules do not know, ProjectionsError if the rules never settle.
    """
    logical = logical_names(program, records)
    tables = MemoryTables(schemas(program), records)
    names = {**logical, **{name: table for table, name in tables.names.items() if table != LEDGER}}
    guards = Guards(program, Registry(program, tables.store).read_or_create().identity)
    records = [_adopted(program, guards, record, names) for record in records]
    decoded = [Decoded.of(program, record, names) for record in records]
    known = in_order([one.record for one in decoded if one.record is not None])
    assumed = set_stage(program, tables, guards, known, plan(program, known, guards))
    result = play(
        program,
        tables,
        records,
        names=names,
        batch_size=batch_size,
        rounds=rounds,
        engine=engine,
    )
    result.assumed = assumed
    return result


def play(
    program: Program,
    tables: MemoryTables,
    records: Sequence[Mapping[str, Any]],
    *,
    names: Mapping[str, str] | None = None,
    batch_size: int,
    rounds: int = ROUNDS,
    engine: Callable[..., Processor] = Processor,
) -> Rehearsal:
    """Plays records of tables that are as they should be before. `names` has the logical name of each table in them.

    Raises ProjectionsError if the rules never settle.
    """
    names = names if names is not None else {name: name for name in program.tables}
    guards = Guards(program, Registry(program, tables.store).read_or_create().identity)
    assert isinstance(tables.store, MemoryStore)
    store = RecordingStore(tables.store)
    rejected: list[Rejected] = []
    known: set[tuple[str | None, str | None]] = set()
    invocation = Invocation()
    processor = engine(
        program,
        store,
        tables=names,
        quarantine=rejected.extend,
        clock=lambda: max([created_at(record) or 0.0 for record in records], default=0.0),
        sleep=invocation.sleep,
        chance=lambda: 0.5,
    )
    result = Rehearsal(program, tables)
    waiting: Sequence[Mapping[str, Any]] = records
    number = 0
    while waiting:
        if number == rounds:
            raise ProjectionsError(
                f"the items do not converge: after {rounds} rounds, {len(waiting)} records still change them. Check for two "
                "writers of one attribute, and for a rule that reads a value which depends on its own result."
            )
        for batch in _batches(waiting, batch_size):
            decoded = [Decoded.of(program, record, names) for record in batch]
            made = plan(program, in_order([one.record for one in decoded if one.record is not None]), guards)
            invocation.begin()
            outcome = processor.process(batch, remaining=invocation.remaining)
            # the record that an item became bad with may not be among these: then the first one here is reported
            rejected += {
                (one.rule, one.key): one for one in outcome.repeated if (one.rule, one.key) not in known
            }.values()
            known.update((one.rule, one.key) for one in rejected)
            result.batches.append(Batch(number, decoded, made, store.taken(), outcome, tuple(rejected)))
            rejected.clear()
        waiting = tables.records()
        number += 1
    return result


def _batches(records: Sequence[Mapping[str, Any]], size: int) -> Iterator[Sequence[Mapping[str, Any]]]:
    for start in range(0, len(records), size):
        yield records[start : start + size]


def _adopted(
    program: Program, guards: Guards, record: Mapping[str, Any], names: Mapping[str, str]
) -> Mapping[str, Any]:
    """A record whose guards are those of the ledger on which it is played."""
    try:
        key = decode(record, names, program.tables).key
    except BadInput:
        return record
    change = dict(record["dynamodb"])
    for name in ("OldImage", "NewImage"):
        if change.get(name) is not None:
            change[name] = guards.adopted(key, change[name])
    return {**record, "dynamodb": change}
