"""Replay: delivers recorded events to the real handler, on tables of its own, until nothing changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from projections.aws.wiring import Processing, StreamHandler
from projections.engine.processor import Processor
from projections.engine.records import Record as Decoded
from projections.engine.records import decode, stream_label
from projections.engine.rejections import Rejected
from projections.engine.running import slices
from projections.engine.stages import Outcome
from projections.engine.store import Image, ItemKey, Schema, Store
from projections.errors import BadInput, InvalidRequest, ProjectionsError, UsageError
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.rules import owned_on
from projections.local.event_source import (
    EventSourceMapping,
    Record,
    Stream,
    created_at,
    sequence_number,
    source_arn,
    table_in,
)
from projections.stores.memory import MemoryStore

LEDGER = "ledger"
"""The logical name of the ledger table."""

QUIET = 0.6
"""Seconds without a new record after which an emulator's stream counts as read."""

ROUNDS = 40
"""The maximum of rounds of a replay. A round takes a change from one rule to a rule that reads its result."""

RETRIES = 2
"""Retries of a failed batch. There is no other traffic, so few are enough."""


class Failure(NamedTuple):
    """A record that the handler reported as failed each time, and the reason."""

    record: Record
    reason: str


@dataclass
class Replay:
    """The outcome of a replay: its items before and after, and failures."""

    before: dict[ItemKey, Image]
    after: dict[ItemKey, Image] = field(default_factory=dict)
    ledger: list[Image] = field(default_factory=list)
    quarantined: list[Rejected] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    rounds: int = 0
    recorded: int = 0
    repeated: int = 0
    records: list[Record] = field(default_factory=list)
    """Those that were played, then those that the tables' own streams had."""
    names: dict[str, str] = field(default_factory=dict)
    """The logical name of each table in records."""


def replay(
    program: Program,
    records: Sequence[Record],
    tables: Tables,
    *,
    batch_size: int = 100,
    stepwise: bool = False,
    rounds: int = ROUNDS,
    engine: Callable[..., Processing] = Processor,
) -> Replay:
    """Seed `tables` with the recorded source items, deliver the records, then those of the tables' own streams.

    With `stepwise`, for tables in memory, make the changes of each batch instead, and deliver all records of this and of
    what follows before the next batch.

    Raises ProjectionsError if the items do not converge.
    """
    logical = logical_names(program, records)
    images = [] if stepwise else seeds(program, records, logical)
    images = [(table, image) for table, image in images if tables.seed(table, image)]
    result = Replay({program.tables[table].key(table, image): image for table, image in images})
    result.recorded = len(records)
    result.repeated = len(records) - len({(source_arn(record), sequence_number(record)) for record in records})
    result.names = {**logical, **{name: table for table, name in tables.names.items() if table != LEDGER}}
    tables.drain(len(images))
    newest = max([created_at(record) or 0.0 for record in records], default=0.0)
    deliver = _delivery(program, tables, batch_size, result, engine, newest)
    result.records, versions = in_shard(program, records), dict[ItemKey, str]()
    for waiting in slices([*result.records], batch_size) if stepwise else [[*result.records]]:
        if stepwise and isinstance(tables, MemoryTables):
            waiting = _make_changes(program, waiting, result, tables, versions)
        last = result.rounds + rounds
        while waiting:
            if result.rounds == last:
                raise unstable(waiting, rounds)
            result.rounds += 1
            deliver(waiting)
            result.records += (waiting := [*tables.records()])
    for table, schema in program.tables.items():
        if table != LEDGER:
            result.after |= {schema.key(table, image): image for image in tables.items(table)}
    visible = ({name: value for name, value in item.items() if name != "secret"} for item in tables.items(LEDGER))
    result.ledger = sorted(visible, key=lambda item: (item["pk"]["S"], item["sk"]["S"]))
    return result


def _make_changes(
    program: Program, records: Sequence[Record], result: Replay, tables: MemoryTables, versions: dict[ItemKey, str]
) -> list[Record]:
    """Make the application's changes again, and return their records, after those that cannot be read.

    Values of rules stay. `versions` are those of the last changes: an earlier one is a second delivery.
    """
    unread = []
    for record in records:
        try:
            change = decode(record, result.names, program.tables)
        except BadInput:
            unread.append(record)  # the handler will report it
            continue
        key, known = change.key, versions.get(change.key, "")
        if change.version <= known:
            continue
        versions[key] = change.version
        old, new = (image and _own_attributes(program, key, image) for image in (change.old, change.new))
        if not known and old:
            tables.seed(key.table, old)
        stored = tables.store.get(key) or {}
        item = program.recognise(key, stored)
        if new:
            derived = program.derived_attributes(item.entity.name) if item is not None else ()
            kept = (name for name in stored if name in derived or name.startswith(program.guard_prefix))
            with suppress(InvalidRequest):  # no table can have it
                tables.store.put(key.table, {**{name: stored[name] for name in kept}, **new})
        elif item is not None and not item.entity.owned_by_rules:
            tables.store.remove(key, by_ttl=change.expired)
    return [*unread, *tables.records()]


def in_shard(program: Program, records: Sequence[Record]) -> list[Record]:
    """Return records in the order of a shard if rules count by shards: recorded events may be of several."""
    return sorted(records, key=sequence_number) if program.lanes else list(records)


def seeds(program: Program, records: Sequence[Record], logical: Mapping[str, str]) -> list[tuple[str, Image]]:
    """Return the application's items of their newest records, without attributes that rules write, other than once.

    Items that only rules create, and items of no entity, are left out.
    """
    newest: dict[ItemKey, Decoded] = {}
    for record in records:
        try:
            change = decode(record, logical, program.tables)
        except BadInput:
            continue  # the handler will report it
        if change.key not in newest or change.version > newest[change.key].version:
            newest[change.key] = change
    return [
        (key.table, own)
        for key, latest in newest.items()
        if latest.new is not None and (own := _own_attributes(program, key, latest.new)) is not None
    ]


def _own_attributes(program: Program, key: ItemKey, image: Image) -> Image | None:
    """Return the attributes of an item that the application wrote; None if there are none.

    A recorded value of a rule with `once` stays: today's values cannot give it again.
    """
    recognised = program.recognise(key, image)
    if recognised is None or recognised.entity.owned_by_rules:
        return None
    entity = recognised.entity.name
    once = owned_on(entity, [rule for rule in program.rules.values() if not rule.removes])
    derived = program.derived_attributes(entity) - once
    keep = program.tables[key.table].key_attributes
    return {
        name: value
        for name, value in image.items()
        if name in keep or not (name in derived or name.startswith(program.guard_prefix))
    }


def _delivery(
    program: Program, tables: Tables, batch_size: int, result: Replay, engine: Callable[..., Processing], newest: float
) -> Callable[[Sequence[Record]], None]:
    """Delivers records through an event source mapping to the handler, and collects failures."""
    reasons: list[str] = []
    seen: set[tuple[str, str | None, str]] = set()

    def quarantine(rejected: Sequence[Rejected]) -> None:
        for rejection in rejected:
            mark = (str(rejection.rule), rejection.sequence, rejection.reason)
            if mark not in seen:
                seen.add(mark)
                result.quarantined.append(rejection)

    def observe(outcome: Outcome) -> None:
        reasons[:] = [outcome.failed_reason or ""]
        known = {(rejection.rule, rejection.key) for rejection in result.quarantined}
        # the record that an item became bad with may not be among these events: then the first one here is reported
        first = {(bad.rule, bad.key): bad for bad in outcome.repeated if (bad.rule, bad.key) not in known}
        quarantine(list(first.values()))

    def gave_up(records: Sequence[Record], error: BaseException | None) -> None:
        reason = str(error) or type(error).__name__ if error else "".join(reasons)
        result.failures.extend(Failure(record, reason) for record in records)

    # The time of the recorded events, and no randomness: the same events give the same ledger.
    processor = engine(
        program,
        tables.store,
        tables=result.names,
        quarantine=quarantine,
        clock=lambda: newest,
        sleep=(lambda _: None) if isinstance(tables, MemoryTables) else time.sleep,  # an index in memory does not lag
        chance=lambda: 0.5,
    )
    handler = StreamHandler(processor, quarantine=quarantine, observe=observe)
    stream = Stream("replay")
    mapping = EventSourceMapping(stream, batch_size=batch_size, max_retries=RETRIES, on_failure=gave_up)
    mapping.window = bool(program.lanes)

    def deliver(records: Sequence[Record]) -> None:
        for record in records:
            stream.append(record)
        mapping.run_until_idle(lambda event: handler.handle(event, lambda: 60.0))

    return deliver


def logical_names(program: Program, records: Sequence[Record]) -> dict[str, str]:
    """Return the logical name of each table that the records are from."""
    tables = [name for name in program.tables if name != LEDGER]
    names = {}
    for name in dict.fromkeys(table_in(source_arn(record)) for record in records):
        if len(tables) == 1:
            names[name] = tables[0]
        elif name in tables:
            names[name] = name
        else:
            raise UsageError(
                f"the events are from a table {name!r}, the rules have {', '.join(sorted(tables))}; "
                "use these names as the table's name in eventSourceARN"
            )
    return names


def unstable(records: Sequence[Record], rounds: int = ROUNDS) -> ProjectionsError:
    """Return the error for items that change in every round, by the records of the last one."""
    keys = (record["dynamodb"]["Keys"].values() for record in records)
    names = list(dict.fromkeys(" / ".join(str(*value.values()) for value in key) for key in keys))
    changing = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if names[5:] else "")
    return ProjectionsError(
        f"the items do not converge: after {rounds} rounds these still change: {changing}. Check for two writers of one "
        "attribute, and for a rule that reads a value which depends on its own result."
    )


# Tables


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


class MemoryTables:
    """Tables in memory. Their streams continue the newest recorded one: its label, and greater sequence numbers."""

    def __init__(self, schemas: Mapping[str, Schema], recorded: Sequence[Record]) -> None:
        names = [name for name in schemas if name != LEDGER]
        self._records: list[Record] = []
        self.label = (
            max((stream_label(source_arn(record)) for record in recorded), default="") or "2025-01-01T00:00:00.000"
        )
        """Of the streams."""
        self.names = {name: name for name in schemas}
        self.store = MemoryStore(
            schemas,
            first_sequence=max([10**20, *(sequence_number(record) + 1 for record in recorded)]),
            stream_label=self.label,
            streams=names,
            on_record=lambda _, record: self._records.append(record),
        )

    def seed(self, table: str, image: Image) -> bool:
        try:
            self.store.seed(table, image)
        except InvalidRequest:
            return False
        return True

    def drain(self, seeds: int) -> None:
        pass  # seeds have no stream records

    def items(self, table: str) -> list[Image]:
        return self.store.items(table)

    def records(self) -> list[Record]:
        taken, self._records[:] = list(self._records), []
        return taken
