"""The deployed functions in this process: each delivery and task with its writes, rejections and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projections.aws.connection import LEDGER, Live
from projections.aws.wiring import THREADS
from projections.dev.delivery import Delivery, Totals, Written, due_to, is_own
from projections.dev.watched import WatchedStore
from projections.engine.processor import OUTDATED, Outcome
from projections.engine.rejections import Rejected
from projections.engine.running import Run, at_once
from projections.errors import Misconfigured, StoreError, UsageError
from projections.inspect.explain.document import RecordReport, record_report
from projections.inspect.rehearsal.rehearse import Decoded
from projections.language.facts import origins
from projections.language.program import LEDGER_SCHEMA, Program
from projections.local.event_source import Batch
from projections.local.functions import Functions, LocalQueue
from projections.stores.dynamodb import DynamoDBStore, Meter

__all__ = ["Invocation", "Projector"]

MOST_RECENT = 1000
"""Writes of the session whose records are looked for."""


@dataclass(frozen=True, slots=True)
class Invocation:
    """The result of a delivery: the response or the error for the event source mapping, and what was done."""

    answer: object
    error: Exception | None
    delivery: Delivery


class Projector:
    """The functions under one program, which `use` replaces; the task queue stays.

    `labels` has the stream label of each logical table.
    """

    def __init__(self, live: Live, program: Program) -> None:
        self.totals = Totals()
        self.labels: dict[str, str] = {}
        self.queue = LocalQueue()
        self.run: Run[Any] = at_once(THREADS)
        self.reason = ""
        self._live = live
        self._meter = Meter()
        self._rejected: list[Rejected] = []
        self._recent: list[Written] = []
        self._freshness: Mapping[str, tuple[float, float]] = {}
        self.use(program, self.store_for(program))

    rivalled = False
    """Whether a record showed another ledger that replaced a guard of this one."""

    def store_for(self, program: Program) -> WatchedStore:
        """Return the tables under these rules."""
        schemas = {**program.tables, LEDGER: LEDGER_SCHEMA}
        return WatchedStore(DynamoDBStore(self._live.client, self._live.names, schemas, self._meter), program)

    def use(self, program: Program, store: WatchedStore) -> None:
        """Work under these rules from now on."""
        self.program, self.store = program, store
        self._origins = origins(program.typed)
        self._functions = Functions(
            program,
            store,
            tables={self._live.names[name]: name for name in program.tables},
            labels=self.labels,
            quarantine=self.reject,
            observe=self._observe,
            run=self.run,
            queue=self.queue,
        )

    def invoke(self, logical: str, batch: Batch) -> Invocation:
        """Deliver a batch. Raises Misconfigured if no batch can succeed, UsageError if other rules are active."""
        records = [self._record(logical, record) for record in batch.records] if batch.attempt == 1 else []
        before, self.reason = self.spent(), ""
        answer: dict[str, Any] | None = None
        error: Exception | None = None
        try:
            answer = self._functions.stream(batch.event())
        except Misconfigured:
            raise
        except Exception as problem:  # Lambda treats it as a failed batch, too
            error = problem
            self.reason = str(problem) if isinstance(problem, StoreError) else f"{type(problem).__name__}: {problem}"
        if self.reason == OUTDATED:
            raise UsageError("other rules became active on these tables. Restart the command with the active rules")
        failed = error is not None or bool(answer and answer.get("batchItemFailures"))
        self.totals.records += len(records)
        self.totals.retries += failed
        return Invocation(answer, error, self.delivery(before, records, self.reason if failed else None))

    def work(self) -> Delivery | None:
        """Do the tasks that are due, or return None. Raises Misconfigured; the tasks are then still in the queue."""
        before = self.spent()
        return self.delivery(before) if self._functions.work() else None

    def spent(self) -> tuple[float, float]:
        """Return the write and read units so far."""
        return self._meter.write_units, self._meter.read_units

    def delivery(
        self,
        before: tuple[float, float],
        records: Sequence[RecordReport] = (),
        failed: str | None = None,
        store: WatchedStore | None = None,
    ) -> Delivery:
        """Return what was written, rejected and spent since `before`, and add it to the totals."""
        found = (store or self.store).taken()
        writes, reads = self.spent()
        found.records, found.own = records, [is_own(self.program, one, self._recent) for one in records]
        self._recent = [*self._recent, *found.written][-MOST_RECENT:]
        found.due = [
            due_to(self.program, self._origins, one) if own else ()
            for one, own in zip(found.records, found.own, strict=True)
        ]
        found.rejected, self._rejected = self._rejected, []
        found.write_units, found.read_units = writes - before[0], reads - before[1]
        found.failed = failed
        found.freshness, self._freshness = self._freshness, {}
        self.totals.add(found)
        return found

    def reject(self, rejected: Sequence[Rejected]) -> None:
        """Quarantine records."""
        self._rejected.extend(rejected)

    def _observe(self, outcome: Outcome) -> None:
        self.reason = outcome.failed_reason or ""
        self._freshness = outcome.freshness
        self.rivalled = self.rivalled or outcome.counts["rival"] > 0

    def _record(self, logical: str, raw: Mapping[str, Any]) -> RecordReport:
        return record_report(self.program, Decoded.of(self.program, raw, {self._live.names[logical]: logical}))
