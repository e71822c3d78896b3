"""A store that records its writes: to the application's tables with their rules, to the ledger only how many."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from projections.dev.delivery import Delivery, Written
from projections.engine.ledger_items import LEDGER
from projections.engine.store import Action, Check, Delete, Image, Store, Update, Write
from projections.errors import ConditionFailed, StoreError
from projections.language.program import Program
from projections.stores.wrapped import WrappedStore

__all__ = ["WatchedStore"]

MOST = 100
"""Writes that are recorded one by one. A backfill makes millions."""


class WatchedStore(WrappedStore):
    """A store that records what it wrote since the last `taken`. Safe for threads if `store` is."""

    def __init__(self, store: Store, program: Program) -> None:
        super().__init__(store)
        self._prefix = program.guard_prefix
        self._seen = Delivery()
        self._lock = threading.Lock()

    def taken(self) -> Delivery:
        """Return what was written since the last call."""
        with self._lock:
            seen, self._seen = self._seen, Delivery()
        return seen

    def write(self, write: Write) -> Image | None:
        try:
            removed = self._store.write(write)
        except ConditionFailed:
            self._record([], needless=1)
            raise
        self._record([write])
        return removed

    def transact(self, writes: Sequence[Action]) -> None:
        self._store.transact(writes)
        self._record(writes)

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        answers = self._store.write_each(writes)
        needless = sum(isinstance(answer, ConditionFailed) for answer in answers)
        self._record([write for write, answer in zip(writes, answers, strict=True) if answer is None], needless)
        return answers

    def _record(self, writes: Sequence[Action], needless: int = 0) -> None:
        with self._lock:
            self._seen.needless += needless
            for write in writes:
                if isinstance(write, Check):
                    continue
                if write.key.table == LEDGER:
                    self._seen.ledger_writes += 1
                    continue
                self._seen.writes += 1
                if len(self._seen.written) < MOST:
                    self._seen.written.append(self._written(write))

    def _written(self, write: Write) -> Written:
        if isinstance(write, Delete):
            return Written(write.key, write.purpose.rules, {}, (), True)
        values = {name: value for name, value in write.set.items() if not name.startswith(self._prefix)}
        removed = tuple(name for name in write.remove if not name.startswith(self._prefix))
        return Written(write.key, write.purpose.rules, values, removed, False)
