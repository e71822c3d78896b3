"""What one batch costs: rehearsed on tables in memory, every request counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, product
from typing import Any

from projections.engine.groups import Generations
from projections.engine.ledger_items import LEDGER
from projections.engine.processor import Processor
from projections.engine.registry import REGISTRY
from projections.engine.store import ItemKey
from projections.errors import ProjectionsError
from projections.inspect.cost.reads import Shapes
from projections.inspect.cost.rehearsed_rules import DIGITS, whole_number
from projections.inspect.cost.synthesis import Synthesis
from projections.inspect.cost.terms import Term
from projections.inspect.cost.workload import EDIT, INSERT, Assumptions, Flow
from projections.inspect.rehearsal.recorder import DONE, ROLES, Read, Request, purpose_of
from projections.inspect.rehearsal.rehearse import Batch, Rehearsal, play
from projections.inspect.rehearsal.stage import Invocation
from projections.language.program import Program
from projections.local.tables import MemoryTables, schemas
from projections.stores.limits import item_size
from projections.stores.memory import MemoryStore

__all__ = ["BatchCost", "expected", "rehearse_batch", "spent"]


@dataclass
class BatchCost:
    """One batch with all that follows from it: its parts, by rules, what, why, units and calls, with how often each is.

    `records` counts the writes to the application's tables, `row` the transactions that must follow one another,
    `actions` those of all transactions, `tasks` the pages of pushes that go to the worker.
    """

    parts: Counter[tuple[Any, ...]] = field(default_factory=Counter)
    records: float = 0.0
    row: float = 0.0
    transactions: float = 0.0
    actions: float = 0.0
    tasks: float = 0.0
    entry_bytes: float = 0.0
    """Of the largest ledger entry that it writes."""
    contributions: Counter[str] = field(default_factory=Counter)
    """Changes of contributions, by rule."""
    targets: Counter[str] = field(default_factory=Counter)
    """Items that a rule writes to, and the units that these items take of their table."""
    target_units: Counter[str] = field(default_factory=Counter)
    member_units: Counter[str] = field(default_factory=Counter)
    index_units: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By entity and index."""

    @property
    def terms(self) -> list[Term]:
        return [Term(r, what, n, why, w, read, calls) for (r, what, why, w, read, calls), n in self.parts.items()]

    def add(self, other: BatchCost, times: float) -> None:
        for name in ("records", "row", "transactions", "actions", "tasks"):
            setattr(self, name, getattr(self, name) + times * getattr(other, name))
        self.entry_bytes = max(self.entry_bytes, other.entry_bytes)
        for name in ("parts", "contributions", "targets", "target_units", "member_units", "index_units"):
            mine = getattr(self, name)
            for key, number in getattr(other, name).items():
                mine[key] += times * number


def expected(shapes: Shapes, assumed: Assumptions, counts: Mapping[Flow, float]) -> BatchCost:
    """What a batch costs on average."""
    cost = BatchCost()
    for weight, rehearsal in situations(shapes, assumed, counts):
        cost.add(spent(rehearsal), weight)
    return cost


def situations(shapes: Shapes, assumed: Assumptions, counts: Mapping[Flow, float]) -> Iterator[tuple[float, Rehearsal]]:
    """Batches of whole numbers of changes, each with its probability: on average they are as `counts` and shares say.

    In one half of all cases, edits make rules apply to items; in the other they make them apply no longer.
    """
    counts = {flow: round(count, DIGITS) for flow, count in counts.items()}
    for low, high in pairwise(_steps(counts.values())):
        whole = {flow: whole_number(count, low) for flow, count in counts.items()}
        whole = {flow: count for flow, count in whole.items() if count}
        sizes = [*whole.values(), *assumed.targets.values()]
        shares = _steps(share * size for share in assumed.matching.values() for size in sizes)
        edits = (False, True) if any(map(shapes.decided_by, whole)) else (False,)
        for (below, above), joining in product(pairwise(shares), edits) if whole else ():
            weight = (high - low) * (above - below) / len(edits)
            yield weight, rehearse_batch(shapes, assumed, whole, below, joining=joining)


def _steps(numbers: Iterable[float]) -> list[float]:
    """Where in [0, 1] one of these numbers goes from being rounded up to being rounded down."""
    return sorted({0.0, 1.0, *(round(number % 1, DIGITS) for number in numbers)})


def rehearse_batch(
    shapes: Shapes, assumed: Assumptions, counts: Mapping[Flow, int], below: float = 0.0, *, joining: bool = False
) -> Rehearsal:
    """Plays so many changes of each kind in one batch. Raises ProjectionsError for an item that the rules cannot use."""
    place = (id(assumed), frozenset(counts.items()), below, joining)
    if place in shapes.rehearsed:
        return shapes.rehearsed[place]
    made = Synthesis(shapes, assumed, counts, below, joining=joining)
    program = made.program
    tables = MemoryTables(schemas(program), [])
    store = tables.store
    assert isinstance(store, MemoryStore)
    for table, image in made.seeds:
        store.seed(table, image)
    for table, image in made.before:
        store.put(table, image)
    settled = _settle(made, tables)
    for kind, table, image in made.changes:
        key = program.tables[table].key(table, image)
        if kind == INSERT:
            store.put(table, image)
        elif kind == EDIT:
            store.put(table, {**(store.get(key) or {}), **image})
        else:
            store.remove(key)
    engine = partial(Processor, generations=settled) if assumed.values else Processor  # it knows counters of few values
    found = play(made.program, tables, tables.records(), batch_size=10**9, engine=engine)
    for batch in found.batches:
        _check(batch.rejected)
    shapes.rehearsed[place] = found
    return found


def _settle(made: Synthesis, tables: MemoryTables) -> Generations:
    """Lets the rules write on items that are there before the batch; gives what the process has seen of the ledger."""
    seen = Generations()
    processor = Processor(
        made.program,
        tables.store,
        tables={name: name for name in made.program.tables},
        quarantine=_check,
        sleep=lambda seconds: None,
        chance=lambda: 0.5,
        generations=seen,
    )
    while records := tables.records():
        processor.process(records, remaining=Invocation().remaining)
    for table in made.program.tables:
        for image in tables.items(table):
            item = made.program.recognise(made.program.tables[table].key(table, image), image)
            if item is not None and "padding" in image:
                tables.seed(table, made.padded(item.entity.name, image))
    return seen


def _check(rejected: Iterable[Any]) -> None:
    for one in rejected:
        raise ProjectionsError(
            f"the estimate cannot generate items that rule {one.rule} can use: {one.reason}; give sample events instead"
        )


def spent(rehearsal: Rehearsal) -> BatchCost:
    """The cost of all batches of a rehearsal together."""
    cost = BatchCost()
    published: dict[str, set[str]] = {}
    taken: Counter[str] = Counter()
    for batch in rehearsal.batches:
        readers = {a.write.key: purpose_of(a.write).rules for request in batch.requests for a in request.actions}
        readers |= {child: (rule,) for rule, child in batch.plan.pulled}
        groups: Counter[str] = Counter()
        pages = 0
        for request in batch.requests:
            if batch.round and [read.key for read in request.reads] == [REGISTRY]:
                continue  # records of our own writes come in one batch with further events
            if request.operation == "TransactWriteItems":
                cost.transactions += 1
                cost.actions += len(request.actions)
                groups.update(a.write.key.partition for a in request.actions if purpose_of(a.write).kind == "group")
            pages += request.operation == "Query" and not any(
                read.query.startswith(f"{LEDGER} ") for read in request.reads
            )
            cost.parts.update(_parts(request, readers, batch, rehearsal.program))
            for action in request.actions:
                role = purpose_of(action.write)
                if role.kind == "entry" and action.after is not None:
                    cost.entry_bytes = max(cost.entry_bytes, float(item_size(action.after)))
                if role.kind == "publish":
                    published.setdefault(role.rules[0], set()).add(role.about)
                if role.kind in ("publish", "index", "compute"):
                    taken[role.about] += action.units.table
            cost.records += sum(a.write.key.table != LEDGER and a.outcome == DONE for a in request.actions)
        cost.row += max(groups.values(), default=0)
        cost.tasks += max(0, pages - len(batch.plan.pushes))
        _count(rehearsal.program, cost, batch)
    for rule, targets in published.items():
        cost.targets[rule] = len(targets)
        cost.target_units[rule] = sum(taken[target] for target in targets)
    return cost


def _parts(
    request: Request, readers: Mapping[ItemKey, tuple[str, ...]], batch: Batch, program: Program
) -> list[tuple[Any, ...]]:
    """Rules, what, why, write units, read units and calls of each part of a request."""
    parts: list[tuple[Any, ...]] = []
    for read in request.reads:
        units = request.read_units / len(request.reads)
        parts.append(
            (_asking(read, readers, batch, program), "read", "the items that the engine reads", 0.0, units, 0.0)
        )
    for action in request.actions:
        role = purpose_of(action.write)
        what: str = role.kind if action.outcome == DONE else "redundant"
        units = float(request.factor * action.units.total)
        parts.append((role.rules, what, ROLES[role.kind], units, 0.0, 0.0))
    what = request.operation if request.reads else parts[0][1]
    what = "transaction" if request.operation == "TransactWriteItems" else what
    rules = tuple(dict.fromkeys(rule for part in parts for rule in part[0]))
    return [*parts, (rules, what, "the call itself", 0.0, 0.0, 1.0)]


def _asking(read: Read, readers: Mapping[ItemKey, tuple[str, ...]], batch: Batch, program: Program) -> tuple[str, ...]:
    """The rules for which something is read: those that write it, and those that look for parents or children."""
    if read.key is None:
        _, _, members = read.query.partition(f"{LEDGER} M|")
        members = members or read.query.partition(f"{LEDGER} L|")[2]
        pushed = () if read.query.startswith(f"{LEDGER} ") else tuple({push.rule: None for push in batch.plan.pushes})
        return (members.partition("|")[0],) if members else pushed
    if read.key.table == LEDGER:
        return (read.key.partition.split("|")[1],) if read.key.partition[:2] in ("G|", "F|", "L|") else ()
    looking = {rule: None for rule, _ in batch.plan.pulled} | {push.rule: None for push in batch.plan.pushes}
    return tuple(rule for rule in looking if program.rules[rule].source.at(read.key)) or readers.get(read.key, ())


def _count(program: Program, cost: BatchCost, batch: Batch) -> None:
    """What hot keys depend on: changes of contributions, and what targets, members and index entries take."""
    for wave in batch.plan.changes:
        for change in wave:
            cost.contributions.update({rule for rule, _ in change.touched})
    for request in batch.requests:
        for action in request.actions:
            role = purpose_of(action.write)
            if role.kind == "member":
                cost.member_units.update(dict.fromkeys(role.rules, request.factor * action.units.total))
            image = action.after if action.after is not None else action.before
            item = program.recognise(action.write.key, image) if image is not None and action.units.indexes else None
            if item is not None:
                cost.index_units.update({(item.entity.name, i): n for i, n in action.units.indexes.items()})
