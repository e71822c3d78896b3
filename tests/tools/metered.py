"""The engine on real tables with every unit metered, or on tables in memory with every unit computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from endpoint_tables import EndpointTables

from benchmarks.charges import try_statements
from projections.aws.clients import client
from projections.engine.processor import Processor
from projections.engine.records import stream_label
from projections.engine.registry import Registry
from projections.engine.store import Delete, Image, Store, Update
from projections.inspect.rehearsal.recorder import RecordingStore, Spent
from projections.inspect.rehearsal.rehearse import note_streams
from projections.language.program import Program
from projections.local.event_replay import MemoryTables, Tables, schemas
from projections.stores.dynamodb import DynamoDBStore, Meter
from projections.stores.memory import MemoryStore

__all__ = ["Metered", "Round"]

Round = tuple[float, float, dict[str, int]]
"""Write units, read units and calls of one delivery."""


class Metered:
    """Tables at an endpoint, or in memory without one; a processor on them whose requests are counted.

    MiniStack reports no capacity for what fails and for BatchGetItem, so `play` gives what was done, and reads only where
    all of them were answered with units.
    """

    def __init__(self, program: Program, endpoint: str | None = None) -> None:
        self._program = program
        self._meter = Meter()
        self._recorder: RecordingStore | None = None
        self._store: Store
        if endpoint is None:
            self.tables: Tables = MemoryTables(schemas(program), [])
            assert isinstance(self.tables.store, MemoryStore)
            self._store = self._recorder = RecordingStore(self.tables.store)
        else:
            self.tables = EndpointTables(endpoint, schemas(program), wait=lambda seconds: None)
            dynamodb = client("dynamodb", endpoint)
            self._store = DynamoDBStore(dynamodb, self.tables.names, schemas(program), self._meter)
        self.processor = Processor(
            program,
            self._store,
            tables={self.tables.names[name]: name for name in program.tables},
            quarantine=lambda rejected: None,
            sleep=lambda seconds: None,
            chance=lambda: 0.5,
        )

    def __enter__(self) -> Self:
        if isinstance(self.tables, EndpointTables):
            self.tables.__enter__()
        Registry(self._program, self.tables.store).read_or_create()
        try_statements(self._store)
        if self._recorder is not None:
            self._recorder.take_requests()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self.tables, EndpointTables):
            self.tables.__exit__(kind, error, trace)

    def write(self, puts: Sequence[Image] = (), removes: Sequence[Image] = (), table: str = "main") -> list[Any]:
        """What an application does, all at once; the records of it. Of an item that exists, `puts` set some attributes."""
        schema = self._program.tables[table]
        for image in puts:
            rest = {name: value for name, value in image.items() if name not in schema.key_attributes}
            self.tables.store.write(Update(schema.key(table, image), set=rest))
        for image in removes:
            self.tables.store.write(Delete(schema.key(table, image)))
        return list(self.tables.records())

    def settle(self, records: Sequence[Mapping[str, Any]], most: int = 12) -> list[Round]:
        """Delivers records, then what the tables' own streams say of it, until nothing more is written."""
        rounds = []
        waiting = list(records)
        while waiting:
            rounds.append(self.play(waiting))
            waiting = list(self.tables.records())
            assert len(rounds) <= most, "the rules do not settle"
        while rounds and not rounds[-1][2]:
            rounds.pop()
        return rounds

    def play(self, records: Sequence[Mapping[str, Any]]) -> Round:
        """Delivers records in one batch."""
        registry = Registry(self._program, self.tables.store)
        note_streams(registry, [("main", stream_label(record["eventSourceARN"])) for record in records])
        self._meter.calls.clear()
        self._meter.read_units = self._meter.write_units = 0.0
        outcome = self.processor.process(records, remaining=lambda: 900.0, shard="metered")
        assert outcome.failed is None, outcome.failed_reason
        if self._recorder is None:
            return self._meter.write_units, self._meter.read_units, dict(self._meter.calls)
        spent = Spent.of(self._recorder.take_requests())
        return spent.write_units - spent.in_vain, spent.read_units, dict(spent.calls)
