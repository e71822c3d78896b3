"""The deployed functions in memory: they run until the tables do not change any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from projections.engine.rejections import Rejected
from projections.engine.stages import Outcome
from projections.language.program import Program
from projections.local.event_replay import MemoryTables, schemas
from projections.local.event_source import EventSourceMapping, Record, Stream, table_in
from projections.local.functions import Functions, LocalQueue
from projections.local.items import key_words
from projections.printable import printable

ROUNDS = 200
"""Rounds after which the items are considered as changing forever. In one round, values go from one rule to the next."""

NOW = 1_735_689_600.0
"""The time at first: 2025-01-01. The ledger records it for deleted items; rules cannot read it."""


class LocalRun:
    """Tables in memory with the functions of a program, and what these rejected.

    With `redeliver`, every batch is delivered twice, and at the end the whole stream once more.
    """

    def __init__(self, program: Program, *, redeliver: bool = False) -> None:
        self._program = program
        self._redeliver = redeliver
        self._tables = MemoryTables(schemas(program), [])
        self.store = self._tables.store
        self.rejected: dict[tuple[str | None, str, str | None], Rejected] = {}
        """What rules rejected, once for each rule, reason and key."""
        self._now = NOW
        self._reason = ""
        self._failed: list[str] = []
        self._functions = Functions(
            program,
            self.store,
            tables={name: name for name in program.tables},
            quarantine=self._quarantine,
            observe=self._observe,
            clock=lambda: self._now,
            sleep=lambda seconds: None,
            chance=lambda: 0.5,
            queue=LocalQueue(lambda: self._now),
            writes_per_second=float("inf"),
        )
        self._stream = Stream("scenario")
        self._mapping = EventSourceMapping(self._stream, max_retries=2, choose=self._choose, on_failure=self._gave_up)
        self._mapping.window = bool(program.lanes)

    def settle(self) -> None:
        """Run the functions until nothing changes. Raises AssertionError if records fail, or the items change forever."""
        __tracebackhide__ = True
        fresh = self._run()
        if self._redeliver and fresh:
            for shard in list(self._stream.shards):
                self._mapping.rewind(shard)
            self._run()
        if self._failed:
            failed, self._failed = self._failed, []
            raise AssertionError(
                "the function failed repeatedly for these records:\n  " + "\n  ".join(map(printable, failed))
            )

    def _run(self) -> bool:
        """Deliver records and do tasks until there are none; return whether there were any."""
        __tracebackhide__ = True
        fresh = False
        records: Sequence[Mapping[str, Any]] = ()
        for _ in range(ROUNDS):
            records = self._tables.records()
            for record in records:
                self._stream.append(record)
            worked = self._mapping.run_until_idle(self._functions.stream) > 0
            due = self._functions.queue.next_due
            if not worked and due is not None:
                self._now = max(self._now, due)
                worked = self._functions.work()
            if not worked:
                return fresh
            fresh = True
        named = [(table_in(record["eventSourceARN"]), record["dynamodb"]["Keys"]) for record in records]
        keys = [self._program.tables[name].key(name, key) for name, key in named]
        several = len(self._program.tables) > 1
        still = ", ".join(dict.fromkeys(key_words(key, several=several) for key in keys)) or "there are tasks left"
        raise AssertionError(f"the items still change after {ROUNDS} rounds: {still}")

    def _choose(self, question: str, courses: int) -> int:
        return int(self._redeliver and question == "deliver a batch again that succeeded")

    def _observe(self, outcome: Outcome) -> None:
        self._reason = outcome.failed_reason or ""

    def _quarantine(self, rejected: Sequence[Rejected]) -> None:
        for rejection in rejected:
            self.rejected.setdefault((rejection.rule, rejection.reason, rejection.key), rejection)

    def _gave_up(self, records: Sequence[Record], error: BaseException | None) -> None:
        reason = f"{type(error).__name__}: {error}" if error else self._reason
        for record in records:
            self._failed.append(f"{record['eventName']} {record['dynamodb']['Keys']}: {reason}")
