"""The tables of one history in memory: what they hold and held, their streams, and their indexes, which lag."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from projections.engine.store import Image, ItemKey, Schema, Store
from projections.language.program import Program
from projections.local.event_replay import LEDGER
from projections.local.event_source import EventSourceMapping, Stream
from projections.stores.memory import MemoryStore
from projections.testing.simulation.fault_plan import FaultPlan
from projections.testing.simulation.scheduler import SETTLED


class Database:
    """The store, with every change of an item of the application's tables.

    `program` recognises items. `choose` makes decisions of the event source mappings, `step` gives the step of the history,
    `time` the seconds since 1970. `lanes` is whether rules are counted by the shards of streams. `observe` is called with
    each change: key, old image, new image, stream record.
    """

    def __init__(
        self,
        schemas: Mapping[str, Schema],
        program: Program,
        plan: FaultPlan,
        rng: Random,
        *,
        indexed: bool,
        choose: Callable[[str, int], int],
        step: Callable[[], int],
        time: Callable[[], float],
        lanes: bool,
        observe: Callable[[ItemKey, Image | None, Image | None, Mapping[str, Any]], None],
    ) -> None:
        self._program = program
        self._plan = plan
        self._rng = rng
        self._indexed = indexed
        self._choose = choose
        self._step = step
        self._observe = observe
        self._lanes = lanes
        self.items: dict[ItemKey, Image] = {}
        self.gone: dict[ItemKey, Image] = {}
        """Items that were removed, as they were then."""
        self.made: dict[str, dict[ItemKey, None]] = {}
        """Keys under which rules have created items, by entity."""
        self.expired: list[Mapping[str, Any]] = []
        """Records of deletions by TTL."""
        self.records: dict[str, Mapping[str, Any]] = {}
        """All stream records, by sequence number."""
        self._past: deque[tuple[int, ItemKey, Image | None]] = deque()
        """The last steps, each with the item that it changed and its old image; only where indexes are read."""
        self.store = MemoryStore(
            schemas,
            # the numbers get one digit longer in the middle of a history, as those of AWS sometimes do
            first_sequence=10**21 - rng.randrange(1, 200),
            streams=list(program.tables),
            on_record=self._record,
            clock=time if lanes else lambda: 1_735_689_600,
        )
        self.streams: dict[str, Stream] = {}
        self.mappings: dict[str, EventSourceMapping] = {}
        self.begin_streams()
        self._off = False
        """Whether the streams are switched off."""
        self.outages = 0
        """How often they were."""

    def begin_streams(self, mark: str = "") -> None:
        """Begin streams without the records so far. `mark` tells the names of their shards apart."""
        for name in self._program.tables:
            if name != LEDGER:
                self.streams[name] = stream = Stream(name + mark, shards=self._plan.shards)
                self.mappings[name] = EventSourceMapping(
                    stream, batch_size=self._plan.batch, window=self._lanes, choose=self._choose
                )

    def _record(self, table: str, record: dict[str, Any]) -> None:
        change = record["dynamodb"]
        key = self._program.tables[table].key(table, change["Keys"])
        before, after = change.get("OldImage"), change.get("NewImage")
        if after is None:
            del self.items[key]
            self.gone[key] = before
            if "userIdentity" in record:
                self.expired.append(record)
        else:
            self.items[key] = after
            item = self._program.recognise(key, after)
            if item is not None and item.entity.owned_by_rules:
                self.made.setdefault(item.entity.name, {})[key] = None
        self._observe(key, before, after, record)
        if self._indexed:
            self._past.append((self._step(), key, before))
        self.records[change["SequenceNumber"]] = record
        if not self._off:
            self.streams[table].append(record)

    def lagging(self, table: str) -> Store:
        """Return the table as its indexes may still show it: as it was within the last few steps."""
        if self._rng.random() >= self._plan.lag:
            return self.store
        now = self._step()
        while self._past and self._past[0][0] < now - SETTLED:
            self._past.popleft()
        then = now - int(SETTLED * self._rng.random())
        items: dict[ItemKey, Image | None] = {key: item for key, item in self.items.items() if key.table == table}
        for step, key, before in reversed(self._past):
            if step >= then and key.table == table:
                items[key] = before
        past = MemoryStore({table: self.store.schema(table)}, streams=())
        for image in items.values():
            if image is not None:
                past.seed(table, image)
        return past

    # Streams

    def any_stream(self) -> str:
        """Return the table of a stream with records to deliver, or of any stream."""
        names = list(self.mappings)
        if len(names) == 1:
            return names[0]
        start = int(self._rng.random() * len(names))
        names = names[start:] + names[:start]
        return next((table for table in names if self.mappings[table].runnable()), names[0])

    def rewind(self) -> None:
        """Deliver all records once more."""
        for name, mapping in self.mappings.items():
            for shard in self.streams[name].shards:
                mapping.rewind(shard)

    def switch_off(self) -> None:
        self._off = True

    def switch_on(self) -> None:
        """Begin streams with a new label and new sequence numbers. Records of the old ones are not delivered any more."""
        self._off = False
        self.outages += 1
        self.store.begin_stream(f"2025-02-{self.outages:02}T00:00:00.000", 10**20 * (1 + self._rng.randrange(8)))
        self.begin_streams()

    # The ledger

    def ledger(self) -> list[Image]:
        return self.store.items(LEDGER)

    def restore(self, ledger: list[Image]) -> None:
        """Replace the ledger by a backup."""
        for item in self.ledger():
            self.store.remove(ItemKey(LEDGER, item["pk"]["S"], item["sk"]["S"]))
        for item in ledger:
            self.store.put(LEDGER, item)
