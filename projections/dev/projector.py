"""What is deployed, in this process: every delivery and task with what it wrote, refused and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projections.aws.connection import LEDGER, Live
from projections.aws.wiring import THREADS, at_once
from projections.dev.delivery import Delivery, Totals
from projections.dev.echo import is_own
from projections.dev.watched import WatchedStore
from projections.engine.processor import OUTDATED, Outcome
from projections.engine.records import decode
from projections.engine.rejections import Rejected
from projections.engine.running import Run
from projections.errors import BadInput, Misconfigured, StoreError, UsageError
from projections.inspect.explain.records import RecordTold, tell_record
from projections.inspect.rehearsal.rehearse import Decoded
from projections.language.program import LEDGER_SCHEMA, Program
from projections.local.event_source import Batch
from projections.local.functions import Functions, LocalQueue
from projections.stores.dynamodb import DynamoDBStore, Meter

__all__ = ["Invocation", "Projector"]


@dataclass(frozen=True, slots=True)
class Invocation:
    """How a delivery ended, for the mapping, and what is to be told of it."""

    answer: object
    error: Exception | None
    delivery: Delivery

    @property
    def failed(self) -> bool:
        return self.delivery.failed is not None


class Projector:
    """The functions under one program, which may be replaced by another (`use`); the task queue stays.

    `labels` gives the stream label of each logical table. Totals are added up.
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
        self.use(program, self.store_for(program))

    def store_for(self, program: Program) -> WatchedStore:
        """The tables under these rules."""
        schemas = {**program.tables, LEDGER: LEDGER_SCHEMA}
        return WatchedStore(DynamoDBStore(self._live.client, self._live.names, schemas, self._meter), program)

    def use(self, program: Program, store: WatchedStore) -> None:
        """From now on these rules."""
        self.program, self.store = program, store
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
        """Delivers a batch. Raises Misconfigured where none can succeed, UsageError where other rules are in force."""
        told = [self._told(logical, record) for record in batch.records] if batch.attempt == 1 else []
        before, self.reason = self.spent(), ""
        answer: dict[str, Any] | None = None
        error: Exception | None = None
        try:
            answer = self._functions.stream(batch.event())
        except Misconfigured:
            raise
        except Exception as problem:  # to Lambda, too, this is a batch that failed
            error = problem
            self.reason = str(problem) if isinstance(problem, StoreError) else f"{type(problem).__name__}: {problem}"
        if self.reason == OUTDATED:
            raise UsageError("other rules were put in force by somebody else; start again with the right ones")
        failed = error is not None or bool(answer and answer.get("batchItemFailures"))
        self.totals.records += len(told)
        self.totals.retries += failed
        return Invocation(answer, error, self.delivery(before, told, self.reason if failed else None))

    def work(self) -> Delivery | None:
        """Does the tasks that are due; None if none is. Raises Misconfigured; they are then still to be done."""
        before = self.spent()
        return self.delivery(before) if self._functions.work() else None

    def spent(self) -> tuple[float, float]:
        """Write and read units so far."""
        return self._meter.write_units, self._meter.read_units

    def delivery(
        self,
        before: tuple[float, float],
        told: Sequence[RecordTold] = (),
        failed: str | None = None,
        store: WatchedStore | None = None,
    ) -> Delivery:
        """What was written, refused and spent since; added to the totals."""
        seen, (writes, reads) = (store or self.store).taken(), self.spent()
        rejected, self._rejected = self._rejected, []
        delivery = Delivery(
            records=told,
            own=[is_own(self.program, one) for one in told],
            written=seen.written,
            writes=seen.writes,
            rejected=rejected,
            needless=seen.needless,
            ledger_writes=seen.ledger,
            write_units=writes - before[0],
            read_units=reads - before[1],
            failed=failed,
        )
        self.totals.add(delivery)
        return delivery

    def reject(self, rejected: Sequence[Rejected]) -> None:
        """Takes what rules refuse: the quarantine."""
        self._rejected.extend(rejected)

    def _observe(self, outcome: Outcome) -> None:
        self.reason = outcome.failed_reason or ""

    def _told(self, logical: str, raw: Mapping[str, Any]) -> RecordTold:
        names = {self._live.names[logical]: logical}
        try:
            decoded = Decoded(raw, decode(raw, names, self.program.tables))
        except BadInput as flaw:
            decoded = Decoded(raw, None, str(flaw))
        return tell_record(self.program, decoded)
