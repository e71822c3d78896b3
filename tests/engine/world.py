"""A small world for tests of the engine: rules, tables in memory, and the stream fed back until nothing changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any

from projections.engine.guards import Guards
from projections.engine.processor import Processor
from projections.engine.registry import Registry
from projections.engine.rejections import Rejected
from projections.engine.running import Deadline
from projections.engine.stages import Outcome
from projections.engine.store import Image, ItemKey, Update, Write
from projections.errors import Reason, TransactionCancelled, Transient
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.values import plain_item, wire
from projections.operations.backfill.backfill_runs import Backfill
from projections.operations.backfill.progress import Run
from projections.stores.memory import MemoryStore

HEAD = """
table:
  key: [PK, SK]
  indexes: {GSI1: [GSI1PK, GSI1SK]}
  ttl: expiresAt
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
"""
TAG = '  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}\n'


class CountingStore(MemoryStore):
    """A memory store that counts requests and can be told to fail some."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.calls: Counter[str] = Counter()
        self.transactions: list[Sequence[Write]] = []
        self.faults: list[Exception | None] = []

    def _fault(self) -> None:
        if self.faults and (fault := self.faults.pop(0)) is not None:
            raise fault

    def transact(self, writes: Sequence[Write]) -> None:
        self.calls["transact"] += 1
        self.transactions.append(writes)
        self._fault()
        super().transact(writes)

    def write(self, write: Write) -> Image | None:
        self.calls["update" if isinstance(write, Update) else "delete"] += 1
        return super().write(write)

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        self.calls["get_many"] += 1
        return super().get_many(keys)

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        self.calls["get"] += 1
        return super().get(key, attributes)


@cache
def program_of(text: str) -> Program:
    return Program.from_document(loads(text).document())


COURSES = """
table: {key: [PK, SK]}
entities:
  User: {key: {PK: "USER#{userId}", SK: PROFILE}}
  Course: {key: {PK: "COURSE#{courseId}", SK: INFO}}
projections:
"""


class World:
    """Rules (those under `projections:`, after a common head), a store, and what was rejected."""

    shard = ""
    """The shard that batches come from."""

    def __init__(self, rules: str, head: str = "", **settings: Any) -> None:
        head = head or HEAD + (TAG if "into: Tag" in rules else "") + "projections:\n"
        self.program = program_of(head + rules)
        self.store = CountingStore({**self.program.tables, "ledger": LEDGER_SCHEMA}, streams=list(self.program.tables))
        self.rejected: list[Rejected] = []
        self.settings = settings
        self.registry().read_or_create()
        self.store.calls.clear()
        self.store.transactions.clear()
        self.position = 0
        self.processor = self.worker()

    def under(self, rules: str, head: str = "", **settings: Any) -> World:
        """The same tables with functions whose package has other rules. The registry is as it was; `apply` changes it."""
        other = World(rules, head, **{**self.settings, **settings})
        other.store, other.rejected, other.position = self.store, self.rejected, self.position
        other.processor = other.worker()
        return other

    def apply(self, fates: Mapping[str, str] | None = None, **options: Any) -> Run:
        """Register these rules, fill the new versions, and promote and publish them, as the operation does.

        `options` are those of `Backfill.begin`: with `promotes=False`, the versions are not promoted. What is in the stream
        is not delivered.
        """
        versions = self.registry().register(self.program, fates).versions.values()
        return self.carry_out([version.name for version in versions if version.state != "active"], **options)

    def carry_out(self, versions: Collection[str] | None = None, **options: Any) -> Run:
        """Carry out a backfill in this process. Without `versions`, it is that of all that are filling."""
        work = self.operation()
        run = work.begin(versions=versions, restart=True, **options)
        while not run.done:
            run = self.forward(work, run)
        return run

    def operation(self) -> Backfill:
        """The backfill of these tables."""
        clock = self.settings.get("clock", lambda: 1_700_000_000.0)
        return Backfill(self.program, self.store, now=lambda: datetime.fromtimestamp(clock(), UTC))

    def forward(self, work: Backfill, run: Run) -> Run:
        """Do a phase of a run."""
        for segment in work.segments(run):
            while not segment.done:
                segment, page, _ = work.page(run, segment, Deadline(lambda: 900.0))
                assert not page.failed
        return work.forward(run)[0]

    def guards(self) -> Guards:
        snapshot, program = self.registry().current()
        return Guards(program, snapshot.identity, snapshot.promotions)

    def registry(self) -> Registry:
        clock = self.settings.get("clock", lambda: 1_700_000_000.0)
        return Registry(self.program, self.store, filled=self.settings.get("filled", True), now=clock)

    def worker(self) -> Processor:
        """Another worker, which knows nothing that the first one has cached."""
        settings: dict[str, Any] = {
            "tables": {name: name for name in self.program.tables},
            "quarantine": self.rejected.extend,
            "clock": lambda: 1_700_000_000.0,
            "sleep": lambda seconds: None,
            **self.settings,
        }
        return Processor(self.program, self.store, **settings)

    # The application

    def put(self, partition: str, sort: str, **attributes: Any) -> None:
        self.store.put("main", {"PK": {"S": partition}, "SK": {"S": sort}, **wires(attributes)})

    def remove(self, partition: str, sort: str, *, by_ttl: bool = False) -> None:
        self.store.remove(ItemKey("main", partition, sort), by_ttl)

    def like(self, user: int, post: int, **attributes: Any) -> None:
        self.put(f"USER#{user}", f"LIKE#{post}", **attributes)

    # The stream

    def records(self) -> list[dict[str, Any]]:
        return self.store.stream("main", self.position)

    def deliver(self, records: Sequence[Any] | None = None, remaining: float = 900.0) -> Outcome:
        """Delivers records (by default all that are new) as one batch."""
        if records is None:
            records = self.records()
            self.position += len(records)
        return self.processor.process(records, remaining=lambda: remaining, shard=self.shard)

    def settle(self) -> None:
        """Delivers what is new until nothing is."""
        for _ in range(30):
            if not self.records():
                return
            outcome = self.deliver()
            assert outcome.failed is None, outcome.failed_reason
        raise AssertionError(f"the stream does not come to rest: {self.records()[:3]}")

    # What can be seen

    def item(self, partition: str, sort: str, *, guards: bool = False) -> dict[str, Any] | None:
        """An item as plain JSON, without guards."""
        image = self.store.get(ItemKey("main", partition, sort))
        if image is None:
            return None
        return {name: value for name, value in plain_item(image).items() if guards or not name.startswith("~")}

    def post(self, post: int = 1) -> dict[str, Any]:
        item = self.item(f"POST#{post}", "METADATA")
        assert item is not None
        return {name: value for name, value in item.items() if name not in ("PK", "SK")}

    def ledger(self, prefix: str) -> list[dict[str, Any]]:
        """The ledger's items whose partition key begins with a prefix, as plain JSON."""
        return [plain for item in self.store.items("ledger") if (plain := plain_item(item))["pk"].startswith(prefix)]


def wires(attributes: Mapping[str, Any]) -> Image:
    return {name: wire(value) for name, value in attributes.items()}


def conflict(actions: int = 1) -> Exception:
    return TransactionCancelled([Reason("conflict")] * actions)


def throttled() -> Exception:
    return Transient("throttled")
