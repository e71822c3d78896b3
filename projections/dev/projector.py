"""The deployed functions in this process: each delivery and task with its writes, rejections and cost."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from projections.aws.live_tables import LEDGER, Live
from projections.aws.wiring import THREADS
from projections.engine.rejections import Rejected
from projections.engine.running import Run, at_once
from projections.engine.stages import Outcome
from projections.engine.store import Delete, Image, ItemKey, Store, Update, Value, WrappedStore, Write
from projections.errors import Misconfigured, StoreError
from projections.inspect.diff.difference import Difference
from projections.inspect.explain.record_effects import RecordReport, record_report
from projections.inspect.rehearsal.rehearse import Decoded
from projections.language.findings.kinds import Finding
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.rules import public_name
from projections.language.values import changed_attributes
from projections.local.event_source import Batch
from projections.local.functions import Functions, LocalQueue
from projections.stores.dynamodb import DynamoDBStore, Meter
from projections.terminal import count

MOST_WRITES = 20
"""Writes that are reported one by one. A backfill makes millions."""


class Written(NamedTuple):
    """A write to an item of the application's tables. `set` and `removed` are without guards."""

    key: ItemKey
    rules: tuple[str, ...]
    set: Mapping[str, Value]
    removed: tuple[str, ...]
    deleted: bool


@dataclass(slots=True)
class Delivery:
    """What a batch of records, or a task, did. `writes` counts those to the application's tables, of which `written` has
    the first. `own`: which records show our own writes.
    """

    records: Sequence[RecordReport] = ()
    own: Sequence[bool] = ()
    written: list[Written] = field(default_factory=list)
    writes: int = 0
    rejected: Sequence[Rejected] = ()
    ledger_writes: int = 0
    write_units: float = 0.0
    failed: str | None = None


@dataclass(slots=True)
class Totals:
    """The sums of a session. Units are as the endpoint reports them."""

    records: int = 0
    writes: int = 0
    write_units: float = 0.0
    quarantined: int = 0
    discarded: int = 0

    def add(self, delivery: Delivery) -> None:
        """Add a delivery, without its records: they are counted once, however often they are delivered."""
        self.quarantined += len(delivery.rejected)
        self.writes += delivery.writes
        self.write_units += delivery.write_units

    def words(self) -> str:
        return (
            f"{count(self.records, 'record')}, {count(self.writes, 'write')}, {self.write_units:.1f} write units, "
            f"{self.quarantined} quarantined, {self.discarded} discarded"
        )


class Reporter(Protocol):
    """Reports what happens."""

    def note(self, text: str) -> None: ...

    def report_delivery(self, delivery: Delivery, *, task: bool = False) -> None: ...

    def findings(self, findings: Sequence[Finding]) -> None: ...

    def report_change(self, difference: Difference, name: str) -> None: ...


def is_own(program: Program, report: RecordReport) -> bool:
    """Return whether a record shows a write of ours: rules created the item, or only derived values changed and no rule
    corrects them.
    """
    record = report.record
    if record is None or report.entity is None:
        return False
    changed = changed_attributes(record.old, record.new)
    guarded = any(name.startswith(program.guard_prefix) for name in changed)
    owned = program.entities[report.entity].owned_by_rules
    corrected = any(rule.effect == "refresh" for rule in report.rules)
    if owned and guarded:
        return record.old is None or not corrected  # other rules may add attributes to an item that was created
    derived = program.derived_attributes(report.entity)
    only_derived = all(name in derived or name.startswith(program.guard_prefix) for name in changed)
    return bool(changed) and only_derived and not corrected


class WatchedStore(WrappedStore):
    """A store that records what it wrote since the last `take_delivery`. Safe for threads if `store` is."""

    def __init__(self, store: Store, program: Program) -> None:
        super().__init__(store)
        self._prefix = program.guard_prefix
        self._seen = Delivery()
        self._lock = threading.Lock()

    def take_delivery(self) -> Delivery:
        """Return what was written since the last call."""
        with self._lock:
            seen, self._seen = self._seen, Delivery()
        return seen

    def write(self, write: Write) -> Image | None:
        removed = self._store.write(write)
        self._record([write])
        return removed

    def transact(self, writes: Sequence[Write]) -> None:
        self._store.transact(writes)
        self._record(writes)

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        answers = self._store.write_each(writes)
        self._record([write for write, answer in zip(writes, answers, strict=True) if answer is None])
        return answers

    def update_each(self, writes: Sequence[Update]) -> list[Image | StoreError]:
        answers = self._store.update_each(writes)
        self._record(
            [write for write, answer in zip(writes, answers, strict=True) if not isinstance(answer, StoreError)]
        )
        return answers

    def _record(self, writes: Sequence[Write]) -> None:
        with self._lock:
            for write in writes:
                if write.key.table == LEDGER:
                    self._seen.ledger_writes += 1
                    continue
                self._seen.writes += 1
                if len(self._seen.written) < MOST_WRITES:
                    self._seen.written.append(self._written_item(write))

    def _written_item(self, write: Write) -> Written:
        rules = tuple(map(public_name, write.purpose.rules))
        if isinstance(write, Delete):
            return Written(write.key, rules, {}, (), True)
        values = {name: value for name, value in write.set.items() if not name.startswith(self._prefix)}
        removed = tuple(name for name in write.remove if not name.startswith(self._prefix))
        return Written(write.key, rules, values, removed, False)


class Projector:
    """The functions under one program, which `use` replaces; the task queue stays."""

    def __init__(self, live: Live, program: Program) -> None:
        self.totals = Totals()
        self.queue = LocalQueue()
        self.run: Run[Any] = at_once(THREADS)
        self.reason = ""
        self._live = live
        self.meter = Meter()
        self._rejected: list[Rejected] = []
        self.use(program, self.store_for(program))

    def store_for(self, program: Program) -> WatchedStore:
        """Return the tables under these rules."""
        schemas = {**program.tables, LEDGER: LEDGER_SCHEMA}
        return WatchedStore(DynamoDBStore(self._live.client, self._live.names, schemas, self.meter), program)

    def use(self, program: Program, store: WatchedStore) -> None:
        """Work under these rules from now on."""
        self.program, self.store = program, store
        self._functions = Functions(
            program,
            store,
            tables={self._live.names[name]: name for name in program.tables},
            quarantine=self.reject,
            observe=self._observe,
            run=self.run,
            queue=self.queue,
            filled=False,
        )

    def invoke(self, logical: str, batch: Batch) -> tuple[object, Exception | None, Delivery]:
        """Deliver a batch; return the response, the error and what was done.

        Raises Misconfigured if no batch can succeed.
        """
        names, raw = {self._live.names[logical]: logical}, batch.records if batch.attempt == 1 else ()
        records = [record_report(self.program, Decoded.of(self.program, record, names)) for record in raw]
        before, self.reason = self.meter.write_units, ""
        answer: dict[str, Any] | None = None
        error: Exception | None = None
        try:
            answer = self._functions.stream(batch.event())
        except Misconfigured:
            raise
        except Exception as problem:  # Lambda treats it as a failed batch, too
            error = problem
            self.reason = str(problem) if isinstance(problem, StoreError) else f"{type(problem).__name__}: {problem}"
        failed = error is not None or bool(answer and answer.get("batchItemFailures"))
        self.totals.records += len(records)
        return answer, error, self.delivery(before, records, self.reason if failed else None)

    def work(self) -> Delivery | None:
        """Do the tasks that are due, or return None. Raises Misconfigured; the tasks are then still in the queue."""
        before = self.meter.write_units
        return self.delivery(before) if self._functions.work() else None

    def delivery(
        self,
        before: float,
        records: Sequence[RecordReport] = (),
        failed: str | None = None,
        store: WatchedStore | None = None,
    ) -> Delivery:
        """Return what was written, rejected and spent since `before`, and add it to the totals."""
        delivery = (store or self.store).take_delivery()
        delivery.records, delivery.own = records, [is_own(self.program, record) for record in records]
        delivery.rejected, self._rejected = self._rejected, []
        delivery.write_units = self.meter.write_units - before
        delivery.failed = failed
        self.totals.add(delivery)
        return delivery

    def reject(self, rejected: Sequence[Rejected]) -> None:
        """Quarantine records."""
        self._rejected.extend(rejected)

    def _observe(self, outcome: Outcome) -> None:
        self.reason = outcome.failed_reason or ""
