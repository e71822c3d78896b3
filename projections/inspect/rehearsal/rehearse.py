"""Rehearsals: recorded events through the real processor on tables in memory, every request written down with its units.

What `explain` reports and what `cost` counts of events are requests of the engine itself, not of a second opinion of it. The
tables are as they must have been for the events to come about.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

from projections.engine.changes import WIDE, Change, targets_of
from projections.engine.copies import copies_of
from projections.engine.guards import Guards
from projections.engine.lanes import Lane, LaneCounter, Part, Parts
from projections.engine.ledger import Ledger
from projections.engine.ledger_items import COUNT, Target, group_key, member_key
from projections.engine.plan import Plan, plan
from projections.engine.processor import Processor
from projections.engine.publishing import Publisher
from projections.engine.records import Record, decode, in_order
from projections.engine.registry import Registry, RegistrySnapshot
from projections.engine.rejections import Rejected
from projections.engine.running import Counters, Deadline, at_once, slices
from projections.engine.stages import Outcome
from projections.engine.store import Image, ItemKey, Update, Value
from projections.engine.value_counters import counter_key
from projections.errors import BadInput, InvalidRequest
from projections.inspect.rehearsal.recorder import RecordingStore, Request, Spent
from projections.language.contribution import without
from projections.language.keys import decode_key, encode_key, is_range
from projections.language.measures import EXTREMES, PICKED, VALUES
from projections.language.program import Program
from projections.language.rules import REST, AggregateRule, Measure
from projections.language.values import decode_order, encode_order, number_text
from projections.local.event_replay import LEDGER, ROUNDS, MemoryTables, in_shard, logical_names, schemas, unstable
from projections.local.event_source import EventSourceMapping, Stream, created_at


class Decoded(NamedTuple):
    """One record as it came, and as the engine reads it, or why it cannot."""

    raw: Mapping[str, Any]
    record: Record | None
    flaw: str | None = None

    @classmethod
    def of(cls, program: Program, record: Mapping[str, Any], names: Mapping[str, str]) -> Decoded:
        """Decode a record. `names` has the logical name of each table in records."""
        try:
            return cls(record, decode(record, names, program.tables))
        except BadInput as flaw:
            return cls(record, None, str(flaw))


class Batch(NamedTuple):
    """One delivery: its records, what the rules planned for them, and what the processor then asked of DynamoDB.

    Round 0 are the recorded events; round n is what the tables' streams say of the writes of round n - 1.
    """

    round: int
    records: Sequence[Decoded]
    plan: Plan
    requests: Sequence[Request]
    outcome: Outcome
    rejected: Sequence[Rejected]

    @property
    def spent(self) -> Spent:
        return Spent.of(self.requests)


@dataclass
class Rehearsal:
    """All that happened, and the items that were assumed to be there."""

    program: Program
    tables: MemoryTables
    batches: list[Batch] = field(default_factory=list)
    assumed: Sequence[ItemKey] = ()

    @property
    def spent(self) -> Spent:
        return Spent.of([request for batch in self.batches for request in batch.requests])


def rehearse(program: Program, records: Sequence[Mapping[str, Any]], *, batch_size: int = 100) -> Rehearsal:
    """Plays the records on tables in memory, until nothing changes any more.

    Raises UsageError for records of tables that the rules do not know, ProjectionsError if the items do not converge.
    """
    logical, records = logical_names(program, records), in_shard(program, records)
    tables = MemoryTables(schemas(program), records)
    names = {**logical, **{name: table for table, name in tables.names.items() if table != LEDGER}}
    registry = Registry(program, tables.store, now=lambda: 0.0)
    snapshot, running = registry.current()
    guards = Guards(running, snapshot.identity, snapshot.promotions, snapshot.replaced)
    waiting: Sequence[Mapping[str, Any]] = [_with_adopted_guards(program, guards, record, names) for record in records]
    decoded = [Decoded.of(program, record, names) for record in waiting]
    known = in_order([event.record for event in decoded if event.record is not None])
    note_streams(
        registry, [*((r.key.table, r.label) for r in known), *((name, tables.label) for name in program.tables)]
    )
    assumed = set_stage(running, snapshot, tables, guards, known, plan(running, known, guards))
    _come_to_rest(program, tables, {record.key for record in known})
    result = Rehearsal(program, tables, assumed=assumed)
    store = RecordingStore(tables.store)
    rejected: list[Rejected] = []
    reported: set[tuple[str | None, str | None]] = set()
    invocation = Invocation()
    last = max([created_at(record) or 0.0 for record in waiting], default=0.0)
    processor = Processor(
        program,
        store,
        tables=names,
        quarantine=rejected.extend,
        clock=lambda: last,
        sleep=invocation.sleep,
        chance=lambda: 0.5,
    )
    processor.process([], remaining=invocation.remaining)
    store.take_requests()  # a cold start reads the rules, which is no cost of these records
    for number in range(ROUNDS):
        for batch in _deliveries(waiting, batch_size) if program.lanes else slices(waiting, batch_size):
            decoded = [Decoded.of(program, record, names) for record in batch]
            made = plan(running, in_order([event.record for event in decoded if event.record is not None]), guards)
            invocation.begin()
            outcome = processor.process(batch, remaining=invocation.remaining, shard="rehearsal")
            # the record that an item became bad with may not be among these: then the first one here is reported
            repeated = [bad for bad in outcome.repeated if (bad.rule, bad.key) not in reported]
            rejected += {(bad.rule, bad.key): bad for bad in repeated}.values()
            reported.update((rejection.rule, rejection.key) for rejection in rejected)
            result.batches.append(Batch(number, decoded, made, store.take_requests(), outcome, tuple(rejected)))
            rejected.clear()
        waiting = tables.records()
        if not waiting:
            return result
    raise unstable(waiting)


def note_streams(registry: Registry, streams: Iterable[tuple[str, str]]) -> None:
    """Note the streams, each as its table and label, that lanes count from: what only the first batch of each does."""
    versions = [version.name for version in registry.read_or_create().versions.values() if version.lanes is not None]
    for table, label in sorted(set(streams)) if versions else ():
        registry.note_stream(versions, table, label)


def _deliveries(records: Sequence[Mapping[str, Any]], size: int) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield the batches of a shard: each is of one stream, and has no record twice."""
    mapping = EventSourceMapping(Stream(""), batch_size=size)
    for record in records:
        mapping.stream.append(record)
    while shards := mapping.runnable():
        mapping.finish(batch := mapping.next_batch(shards[0]))
        yield batch.records


def _with_adopted_guards(
    program: Program, guards: Guards, record: Mapping[str, Any], names: Mapping[str, str]
) -> Mapping[str, Any]:
    """A record whose guards are those of the ledger on which it is played."""
    try:
        key = decode(record, names, program.tables).key
    except BadInput:
        return record
    change = dict(record["dynamodb"])
    for name in ("OldImage", "NewImage"):
        if change.get(name) is not None:
            change[name] = guards.adopt(key, change[name])
    return {**record, "dynamodb": change}


SECONDS = 60.0
"""What the template gives the function."""


@dataclass(slots=True)
class Invocation:
    """What is left of an invocation, in seconds."""

    left: float = SECONDS

    def begin(self) -> None:
        self.left = SECONDS

    def remaining(self) -> float:
        return self.left

    def sleep(self, seconds: float) -> None:
        self.left -= seconds


OTHERS = "(not in these events)"
"""Stands for the sources of what groups are known to hold already."""


class _Shown(NamedTuple):
    """The first and the last record of an item."""

    first: Record
    last: Record


def set_stage(
    program: Program,
    snapshot: RegistrySnapshot,
    tables: MemoryTables,
    guards: Guards,
    records: Iterable[Record],
    made: Plan,
) -> list[ItemKey]:
    """Fills tables with what the records show and presuppose; `made` is what the rules plan for all of them.

    Gives the items that were assumed to be there: targets that rules publish on, and that no record shows.
    """
    shown: dict[ItemKey, _Shown] = {}
    for record in records:
        known = shown.get(record.key)
        shown[record.key] = _Shown(known.first if known else record, record)
    for key, item in shown.items():
        if item.last.new is not None:
            tables.seed(key.table, item.last.new)
    earlier = _entries(program, snapshot, tables, shown)
    _copies(program, tables, guards, shown)
    assumed = _assume(program, tables, shown, made)
    touched = {target for change in made.changes for target in change.touched}
    texts = {encode_key(key) for key in shown}
    for key, item in shown.items():
        # where the records show how the item came about, what is on it came of them
        _adopt_groups(program, tables, guards, key, item.first, texts, touched)
    publisher = Publisher(program, tables.store, snapshot, guards=guards)
    items = [target for target in earlier if not is_range(target[1])]
    publisher.publish([target for target in items if decode_key(target[1]) not in shown], _deadline())
    return assumed


def _come_to_rest(program: Program, tables: MemoryTables, shown: Collection[ItemKey]) -> None:
    """What the rules make of items that the records do not show, so that it is not taken for their doing."""
    invocation = Invocation()
    processor = Processor(
        program,
        tables.store,
        tables={name: name for name in program.tables},
        quarantine=lambda rejected: None,
        sleep=invocation.sleep,
        chance=lambda: 0.5,
    )
    for _ in range(ROUNDS):
        records = [
            record
            for record in tables.records()
            if decode(record, tables.names, program.tables).key not in shown  # theirs have versions of their own
        ]
        if not records:
            return
        for batch in _deliveries(records, len(records)):
            invocation.begin()
            processor.process(batch, remaining=invocation.remaining, shard="stage")


def _put(tables: MemoryTables, table: str, image: Image) -> bool:
    """Puts an item that the rules are then told of; whether a table can hold it."""
    try:
        tables.store.put(table, image)
    except InvalidRequest:
        return False
    return True


def _deadline() -> Deadline:
    invocation = Invocation()
    return Deadline(invocation.remaining, sleep=invocation.sleep)


def _before(version: str) -> str:
    """A version before this one, of the same stream."""
    return f"{version.rpartition('/')[0]}/{'0' * 40}"


def _entries(
    program: Program, snapshot: RegistrySnapshot, tables: MemoryTables, shown: Mapping[ItemKey, _Shown]
) -> set[Target]:
    """Commits what the first old images contribute, as earlier records did; gives the targets. What lanes count has no
    entries.
    """
    changes = []
    parts: Parts = {}
    for key, item in shown.items():
        evaluated = program.contributions(program.recognise(key, item.first.old))
        for version in evaluated.contributions.keys() & program.lanes.keys():
            for target, amounts in evaluated.contributions[version].items():
                parts.setdefault((version, target), []).append(Part(1, "1", 1, amounts))
        if recorded := without(evaluated.contributions, program.lanes):
            change = evaluated._replace(contributions=recorded)
            changes.append(Change(encode_key(key), _before(item.first.version), {}, change))
    Ledger(program, tables.store, snapshot=snapshot, chance=lambda: 0.5).commit(changes, _deadline())
    lane = Lane.of(LEDGER, "", "earlier")
    counter = LaneCounter(program, tables.store, lane, run=at_once(1), clock=lambda: 0.0, counters=Counters())
    counter.count(parts, _deadline())
    return {target for change in changes for target in targets_of(change.after.contributions)}.union(parts)


def _copies(program: Program, tables: MemoryTables, guards: Guards, shown: Mapping[ItemKey, _Shown]) -> None:
    """The guarded copies of the first old images, where the events do not show them themselves."""
    for key, item in shown.items():
        old = program.recognise(key, item.first.old)
        for rule in program.copy_rules.get(old.entity.name, ()) if old is not None else ():
            for target, attributes in copies_of(rule, old).items():
                if target not in shown:
                    schema = program.tables[target.table]
                    at, wrote = _before(item.first.version), guards.names(rule, target, attributes)
                    stamp = guards.stamp(rule.name, target, at, by=encode_key(key), wrote=wrote)
                    _put(tables, target.table, {**attributes, **schema.wire(target), program.guard(rule.name): stamp})


def _assume(program: Program, tables: MemoryTables, shown: Mapping[ItemKey, _Shown], made: Plan) -> list[ItemKey]:
    """Targets that rules publish on but do not create, and that neither the events show nor their copies make."""
    copied = {target for copy in made.copies for target in (*copy.copies, *copy.others)}
    assumed = []
    for target in sorted({target for change in made.changes for target in change.touched}):
        rule = program.recorded.get(target[0])
        if rule is None or is_range(target[1]):
            continue
        key = decode_key(target[1])
        if rule.creates or key in shown or key in copied:
            continue
        image = {**rule.into.constants, **rule.into.schema.wire(key)}
        if tables.store.get(key) is None and _put(tables, key.table, image):
            assumed.append(key)
    return assumed


def _adopt_groups(
    program: Program,
    tables: MemoryTables,
    guards: Guards,
    key: ItemKey,
    first: Record,
    shown: Collection[str],
    touched: Collection[Target],
) -> None:
    """Groups as the guards on an item say: this version, so many contributions; totals as the item shows them.

    Of a list only its version is taken over: what the item shows of it does not say in which order the elements were.
    """
    image = first.old if first.old is not None else first.new
    if image is None:
        return
    item, target = program.recognise(key, image), encode_key(key)
    for rule in program.ledger_rules_into.get(item.entity.name, ()) if item is not None else ():
        guard = guards.read(rule.name, key, image)
        if guard is None:
            continue
        version = guard.at.partition(".")[2]
        if not version.isdecimal():
            continue
        values: dict[str, Value] = {"version": {"N": str(int(version))}}
        members: dict[str, tuple[str, Image]] = {}
        by, n = guard.by, guard.n
        before = first.old is not None or (rule.name, target) not in touched
        if before and isinstance(rule, AggregateRule) and n is not None:
            values["n"] = {"N": str(n)}
            values |= _totals(rule, image, Decimal(n))
            members = {member: (OTHERS, {}) for member in _extremes(rule, image)}
        elif before and rule.claimed and by and by not in shown:
            values["n"] = {"N": "1"}
            members = {"claim|": (by, {n: image[n] for n in rule.owned(image) if n in image})}
        with suppress(InvalidRequest):  # what someone else put there may be more than a number can hold
            tables.store.write(Update(group_key(rule.name, target), set=values))
        for value, number in _counters(rule, image).items() if before and isinstance(rule, AggregateRule) else ():
            counter, order = counter_key((rule.name, target), value), value.partition("|")[2]
            described: dict[str, Value] = {"o": {"S": order}, "v": decode_order(order), COUNT: {"N": str(number)}}
            tables.store.write(Update(counter, set=described))
        for member, (source, payload) in members.items():
            order = member.partition("|")[2]
            held: dict[str, Value] = {"s": {"S": source}, **({"a": {"M": payload}} if payload else {})}
            held |= {"o": {"S": order}, "v": decode_order(order)} if order else {}
            tables.store.write(Update(member_key(rule.name, target, member, source), set=held))


def _extremes(rule: AggregateRule, image: Image) -> list[str]:
    """The least and greatest values that an item shows, as members. What `first` and `last` ordered by is not shown."""
    members = []
    for measure in rule.measures:
        if measure.function in EXTREMES and measure.name in image:
            with suppress(BadInput):  # no value that the rule could have written
                members.append(f"{measure.slot}|{encode_order(image[measure.name])}")
    return members


def _counters(rule: AggregateRule, image: Image) -> dict[str, int]:
    """The value counters that an item shows, with a number that they may have. What `distinct` counted is not shown."""
    counters: dict[str, int] = {}
    for measure in rule.measures:
        shown, kind = image.get(measure.name, {}), "S" if measure.text else "N"
        listed = dict.fromkeys(shown.get(f"{kind}S", ()), 1) if measure.function == "values" else {}
        if measure.function == "counts":
            listed = {value: int(raw["N"]) for value, raw in shown.get("M", {}).items() if value != REST and "N" in raw}
        for value, number in listed.items():
            with suppress(BadInput, ArithmeticError):  # no value that the rule could have written
                counted = f"{measure.slot}|{encode_order({kind: value})}"
                counters[counted] = max(number, counters.get(counted, 0))
    return counters


def _of_values(measure: Measure, shown: Value) -> dict[str, Value]:
    """The amounts of a group that hold how many values there are."""
    if measure.function == "distinct" and "N" in shown:
        return {"%" + measure.slot: shown}
    if measure.function == "counts" and "M" in shown:
        numbers = [int(raw["N"]) for raw in shown["M"].values() if "N" in raw]
        return {"#" + measure.slot: {"N": str(sum(numbers))}}
    return {}


def _totals(rule: AggregateRule, image: Image, n: Decimal) -> dict[str, Value]:
    """What the totals of a group may be, from the attributes that were made of them."""
    totals: dict[str, Value] = {}
    for measure in rule.measures:
        shown = image.get(measure.name)
        if measure.function in VALUES:
            totals |= _of_values(measure, shown or {})
            continue
        if shown is None or "N" not in shown or measure.function in (*EXTREMES, *PICKED):
            continue
        if measure.function == "avg":  # of as many values as there are contributions, for all that can be known
            totals["#" + measure.slot] = {"N": number_text(n)}
            totals["=" + measure.slot] = {"N": number_text(WIDE.multiply(Decimal(shown["N"]), n).normalize(_FITS))}
        elif measure.function != "count" or measure.where is not None:
            totals["=" + measure.slot] = shown
    return totals


_FITS = WIDE.copy()
_FITS.prec = 38
