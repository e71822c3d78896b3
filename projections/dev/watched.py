"""A store that is watched: what is written to the application's tables, by which rule, and how much to the ledger."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.store import Action, Check, Delete, Image, ItemKey, Store, Update, Value, Write
from projections.errors import ConditionFailed, StoreError
from projections.language.program import Program
from projections.stores.wrapped import WrappedStore

__all__ = ["Seen", "WatchedStore", "Written"]

MOST = 100
"""Writes that are remembered one by one. A backfill makes millions."""


@dataclass(frozen=True, slots=True)
class Written:
    """One write to an item of the application's tables that was done. `set` and `removed` are without guards."""

    key: ItemKey
    rules: tuple[str, ...]
    set: Mapping[str, Value]
    removed: tuple[str, ...]
    deleted: bool


@dataclass(slots=True)
class Seen:
    """What was asked of the store since it was last looked at. `needless` writes met a condition that did not hold.

    `writes` counts those to the application's tables; `written` has the first MOST of them.
    """

    written: list[Written] = field(default_factory=list)
    writes: int = 0
    needless: int = 0
    ledger: int = 0


class WatchedStore(WrappedStore):
    """Does what `store` does, and remembers what it wrote (`taken`). Safe for threads if `store` is."""

    def __init__(self, store: Store, program: Program) -> None:
        super().__init__(store)
        self._program = program
        self._seen = Seen()
        self._lock = threading.Lock()

    def taken(self) -> Seen:
        """What was seen since the last call."""
        with self._lock:
            seen, self._seen = self._seen, Seen()
        return seen

    def write(self, write: Write) -> Image | None:
        with self._watching():
            removed = self._store.write(write)
        self._done([write])
        return removed

    def transact(self, writes: Sequence[Action]) -> None:
        self._store.transact(writes)
        self._done(writes)

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        answers = self._store.write_each(writes)
        self._done([write for write, answer in zip(writes, answers, strict=True) if answer is None])
        with self._lock:
            self._seen.needless += sum(isinstance(answer, ConditionFailed) for answer in answers)
        return answers

    @contextmanager
    def _watching(self) -> Any:
        try:
            yield
        except ConditionFailed:
            with self._lock:
                self._seen.needless += 1
            raise

    def _done(self, writes: Sequence[Action]) -> None:
        with self._lock:
            for write in writes:
                if isinstance(write, Check):
                    continue
                if write.key.table == LEDGER:
                    self._seen.ledger += 1
                    continue
                self._seen.writes += 1
                if len(self._seen.written) < MOST:
                    self._seen.written.append(self._told(write))

    def _told(self, write: Write) -> Written:
        prefix = self._program.guard_prefix
        if isinstance(write, Delete):
            return Written(write.key, write.purpose.rules, {}, (), True)
        return Written(
            write.key,
            write.purpose.rules,
            {name: value for name, value in write.set.items() if not name.startswith(prefix)},
            tuple(name for name in write.remove if not name.startswith(prefix)),
            False,
        )
