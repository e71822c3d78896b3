"""The tables of a replay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Protocol

from projections.engine.store import Image, Schema, Store
from projections.errors import InvalidRequest
from projections.language.program import LEDGER_SCHEMA, Program
from projections.local.event_source import Record, sequence_number, source_arn
from projections.stores.memory import MemoryStore

LEDGER = "ledger"
"""The logical name of the ledger table."""

QUIET = 0.6
"""Seconds without a new record after which an emulator's stream counts as read."""


class Tables(Protocol):
    """Tables that can be seeded without stream records, changed through `store`, and whose streams can be read."""

    @property
    def store(self) -> Store: ...

    @property
    def names(self) -> Mapping[str, str]:
        """The real name of each table by its logical name, with the ledger."""
        ...

    def seed(self, table: str, image: Image) -> bool:
        """Put an item that existed before the first record. Return False if no table can have it."""
        ...

    def drain(self, seeds: int) -> None:
        """Read the records of so many seeds from the streams, and drop them."""
        ...

    def items(self, table: str) -> list[Image]: ...

    def records(self) -> list[Record]:
        """Return the new records of the streams since the last call, without those of seeds."""
        ...


def schemas(program: Program) -> dict[str, Schema]:
    """Return the schemas of the tables that rules need: the application's and the ledger."""
    return {**program.tables, LEDGER: LEDGER_SCHEMA}


def stream_label(record: Record) -> str:
    """Return the label of a record's stream, the end of its ARN: the time when it was enabled. Empty if it has none."""
    _, _, label = source_arn(record).partition("/stream/")
    return label


class MemoryTables:
    """Tables in memory. Their stream is newer than every recorded one: its label and its sequence numbers are greater."""

    def __init__(self, schemas: Mapping[str, Schema], recorded: Sequence[Record]) -> None:
        names = [name for name in schemas if name != LEDGER]
        self._records: list[Record] = []
        self.names = {name: name for name in schemas}
        self._memory = MemoryStore(
            schemas,
            first_sequence=max([10**20, *(sequence_number(record) + 1 for record in recorded)]),
            stream_label=_later(max(map(stream_label, recorded), default="")),
            streams=names,
            on_record=lambda _, record: self._records.append(record),
        )
        self.store: Store = self._memory

    def seed(self, table: str, image: Image) -> bool:
        try:
            self._memory.seed(table, image)
        except InvalidRequest:
            return False
        return True

    def drain(self, seeds: int) -> None:
        pass  # seeds have no stream records

    def items(self, table: str) -> list[Image]:
        return self._memory.items(table)

    def records(self) -> list[Record]:
        taken, self._records[:] = list(self._records), []
        return taken


def _later(label: str) -> str:
    """Return a stream label that sorts after `label`. Labels are times with milliseconds."""
    try:
        return (datetime.fromisoformat(label) + timedelta(seconds=1)).isoformat(timespec="milliseconds")
    except ValueError:
        return label + "~" if label else "2025-01-01T00:00:00.000"
