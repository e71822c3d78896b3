"""Histories in which an application reads while the functions process what it wrote.

One integer decides everything. The calls of the functions, the writes of the application and the reads of the reader
alternate: between any two requests of the one, the others may go on. Functions die, and process records twice and at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any

from projections.access.look import Look, Needed, Steps
from projections.access.own_reads import OwnRead, own_read
from projections.access.waiting import look_at
from projections.engine.ledger_items import group_key
from projections.engine.processor import Processor
from projections.engine.registry import REGISTRY, Registry, RegistrySnapshot
from projections.engine.store import Image, ItemKey
from projections.language.contribution import Contributions
from projections.language.keys import encode_key
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.values import plain, wire
from projections.stores.memory import MemoryStore
from projections.testing.oracle import Oracle

MANY = int(os.environ.get("READ_HISTORIES", "100"))
"""The histories that each test of many histories runs."""

RULES = """
table: {key: [PK, SK]}
entities:
  Shop: {key: {PK: "SHOP#{shopId}", SK: META}}
  Product: {key: {PK: "PRODUCT#{sku}", SK: STATS}, derived: true}
  Order: {key: {PK: "SHOP#{shopId}", SK: "ORDER#{orderId}"}}
projections:
  orders: {from: Order, aggregate: {into: Shop, set: {orders: count, paid: {sum: total, where: {status: [paid]}}}}}
  ratings:
    from: Order
    where: {status: [paid]}
    aggregate: {into: Shop, shards: 3, set: {rating: "avg(stars, 2)", best: max(number(stars))}}
  sold:
    from: Order
    each: {sku: lines}
    bind: {sku: "{sku.sku}"}
    aggregate: {into: Product, set: {sold: sum(sku.qty), orders: count}}
  bySku: {from: Order, where: {status: [paid]}, each: {sku: skus}, aggregate: {into: Product, set: {paidOrders: count}}}
"""  # fmt: skip
DOCUMENT = loads(RULES).document()
PROGRAM = Program.from_document(DOCUMENT)
FORMER_ORDERS = RULES.replace("orders: count, paid", "orders: count, most: max(number(total)), paid")
"""Rules of which another version fills, which publishes nothing."""
SHOP = ItemKey("main", "SHOP#1", "META")
OWN = (ItemKey("main", "SHOP#1", "ORDER#1"), ItemKey("main", "SHOP#1", "ORDER#2"))
TARGETS = (SHOP, *(ItemKey("main", f"PRODUCT#{sku}", "STATS") for sku in "ab"))
CORRECTED = ("orders", "paid", "rating", "sold", "paidOrders")
NAMES = (*CORRECTED, "best")

_MOST_STEPS = 400

Defect = Callable[[Steps[Any]], Steps[Any]]


class Died(BaseException):
    """The end of an invocation."""


class Tables(MemoryStore):
    """Before each call of a function, others may go on."""

    between: Callable[[], None] | None = None

    def _pause(self) -> None:
        if self.between is not None:
            self.between()


def _with_pause(name: str) -> Any:
    usual = getattr(MemoryStore, name)

    def call(self: Tables, *arguments: Any, **options: Any) -> Any:
        self._pause()
        return usual(self, *arguments, **options)

    return call


for _name in ("get", "get_many", "query", "write", "transact", "write_each"):
    setattr(Tables, _name, _with_pause(_name))


class ReadHistory:
    """One history. `problems` has each answer that is wrong, `reads` the number of answers by kind.

    With `fresh`, the functions have processed nothing yet, so there is no registry. `former` are the rules that are
    published: those of the reader were applied after the first items, and fill.
    """

    def __init__(
        self,
        seed: int,
        defect: Defect = lambda steps: steps,
        *,
        apart: bool = False,
        fresh: bool = False,
        former: str | None = None,
    ) -> None:
        self._program = PROGRAM
        self._former = Program.from_document(loads(former).document()) if former else self._program
        self._fresh = fresh
        self._rng = Random(seed)
        self._chance = Random(f"shards {seed}").random
        self._defect = defect
        self._apart = apart
        self.problems: list[str] = []
        self.reads = {"own": 0, "reached": 0, "late": 0}
        self._store = Tables({**self._program.tables, "ledger": LEDGER_SCHEMA}, streams=["main"])
        if not fresh:
            Registry(self._former, self._store).read_or_create()
        self._states: list[Mapping[ItemKey, Image]] = []
        self._contributed: list[tuple[ItemKey, object, int]] = []
        self._position = 0
        self._depth = 0
        self._reading: Iterator[None] | None = None
        self._first: Mapping[ItemKey, object] = {}
        self._registry: RegistrySnapshot | None = None

    def _begin(self) -> None:
        """Put the first items."""
        rng, store = self._rng, self._store
        store.put("main", {"PK": {"S": "SHOP#1"}, "SK": {"S": "META"}, "name": {"S": "Corner"}})
        if self._fresh:
            return
        for order in range(3, 3 + rng.randrange(3)):  # of others, which stand still
            self._put(ItemKey("main", "SHOP#1", f"ORDER#{order}"))
        for key in OWN:
            if rng.random() < 0.7:
                self._put(key)

    def _started(self) -> None:
        """Remember what the first items contribute, which the functions have processed."""
        if self._former is not self._program:
            Registry(self._program, self._store).register(self._program)
        self._remember()
        self._first = {key: self._contributions(key) for key in OWN}

    def play(self) -> ReadHistory:
        rng, store = self._rng, self._store
        self._begin()
        while not self._fresh and self._position < len(store.stream("main")):
            self._deliver(len(store.stream("main")))
        self._started()
        writes = 4
        for _ in range(_MOST_STEPS):
            dice = rng.random()
            if dice < 0.3 and writes:
                writes -= 1
                self._write()
            elif dice < 0.55:
                self._invoke()
            elif writes or self._position < len(store.stream("main")) or self._reading is not None:
                self._step()
            else:
                break
        return self

    # The application

    def _put(self, key: ItemKey) -> None:
        rng = self._rng
        skus = [sku for sku in "ab" if rng.random() < 0.5]
        self._store.put("main", {
            **self._program.tables["main"].wire(key),
            "status": {"S": rng.choice(("paid", "open"))},
            "total": wire(rng.randrange(1, 10**6)),
            "skus": wire(skus),
            "lines": wire([{"sku": sku, "qty": rng.randrange(1, 10**6)} for sku in skus]),
            **({"stars": wire(rng.randrange(1, 6))} if rng.random() < 0.8 else {}),
        })  # fmt: skip

    def _write(self) -> None:
        key = OWN[self._rng.random() < 0.3]
        if self._rng.random() < 0.3:
            self._store.remove(key)
        else:
            self._put(key)
        self._remember()
        self._contributed.append((key, self._contributions(key), len(self._store.stream("main"))))

    def _contributions(self, key: ItemKey) -> Contributions:
        image = MemoryStore.get(self._store, key)
        return self._program.contributions(
            self._program.recognise(key, image) if image is not None else None
        ).contributions

    def _remember(self) -> None:
        """Keep what the oracle derives from the items as they are."""
        found = Oracle(DOCUMENT).expect({"main": self._store.items("main")})
        self._states.append({key: found.items[key] for key in TARGETS if key in found.items})

    # The functions

    def _invoke(self) -> None:
        records = self._store.stream("main")
        if self._rng.random() < 0.2:  # again
            self._deliver(self._rng.randint(0, self._position), self._rng.randrange(3))
        else:
            self._deliver(min(len(records), self._position + self._rng.randint(1, 3)))

    def _deliver(self, end: int, back: int = 0) -> None:
        records = self._store.stream("main")[max(0, min(self._position, end) - back) : end]
        if not records:
            return
        processor = Processor(
            self._program if self._states else self._former, self._store,
            tables={"main": "main"}, quarantine=lambda rejected: None,
            clock=lambda: 1_700_000_000.0, sleep=lambda seconds: None, chance=self._chance,
        )  # fmt: skip
        self._depth += 1
        self._store.between = self._between if self._states else None
        with suppress(Died):
            if processor.process(records, remaining=lambda: 900.0).failed is None:
                self._position = max(self._position, end)
        self._depth -= 1
        if not self._depth:
            self._store.between = None

    def _between(self) -> None:
        dice = self._rng.random()
        if dice < 0.03:
            raise Died
        if dice < 0.06:
            if len(self._states) < 8:
                self._write()
        elif dice < 0.4:
            for _ in range(self._rng.randint(1, 5)):
                self._step()
        elif dice < 0.5 and self._depth < 3:
            self._invoke()

    # The reader

    def _step(self) -> None:
        """Make the next request of a read."""
        if self._reading is None:
            self._reading = self._own() if self._rng.random() < 0.5 else self._look()
        if next(self._reading, self) is self:
            self._reading = None

    def _drive(self, steps: Steps[Any], seen: Callable[[Needed], None]) -> Any:
        """Make the requests, and yield before each. Return the answer."""
        steps = self._defect(steps)
        try:
            needed = next(steps)
            while True:
                needed = needed._replace(keys=list(dict.fromkeys(needed.keys)))
                yield
                found: dict[ItemKey, Image] = {}
                if needed.together and not self._apart:
                    found = MemoryStore.get_many(self._store, needed.keys)
                    seen(needed)
                elif needed.together or self._rng.random() < 0.5:  # a batch is no moment either
                    for key in needed.keys:
                        if (image := MemoryStore.get(self._store, key)) is not None:
                            found[key] = image
                        seen(Needed([key]))
                        yield
                else:
                    found = MemoryStore.get_many(self._store, needed.keys)
                    seen(needed)
                needed = steps.send(found)
        except StopIteration as end:
            return end.value

    def _own(self) -> Iterator[None]:
        target = self._rng.choice(TARGETS)
        states: dict[ItemKey, int] = {}
        active = True

        def seen(needed: Needed) -> None:
            nonlocal active
            if REGISTRY in needed.keys:
                active = MemoryStore.get(self._store, REGISTRY) is not None
            for key in needed.keys:
                if key in OWN:
                    states[key] = len(self._states) - 1

        steps = own_read(self._program, target, OWN, self._registry)
        answer: OwnRead
        answer, self._registry = yield from self._drive(steps, seen)
        if len(set(states.values())) > 1:
            return  # the sources are of two moments, of which no state of the oracle is
        if not active:
            return  # nothing is corrected, and nothing is created
        self.reads["own"] += 1
        right = self._states[states[OWN[0]]].get(target)
        names = [name for name in CORRECTED if name not in answer.uncorrected]
        if _values(answer.image, names) != _values(right, names):
            self.problems.append(f"own: {target} is {_values(answer.image, names)}, not {_values(right, names)}")

    def _look(self) -> Iterator[None]:
        source = self._rng.choice(OWN)
        began: list[int] = []
        shown: dict[ItemKey, tuple[int, Image | None]] = {}
        done = self._position

        def seen(needed: Needed) -> None:
            if source in needed.keys:
                began.append(len(self._states) - 1)

        look: Look = yield from self._drive(look_at(self._program, source), seen)
        if any((look.missing, look.filling, look.quarantined, look.unknown)):
            self.reads["late"] += 1
            return
        if self._is_ambiguous(source, began[0], done):
            return
        self.reads["reached"] += 1
        for target in TARGETS:
            shown[target] = len(self._states) - 1, MemoryStore.get(self._store, target)
        now = self._contributions(source)
        for target, (end, image) in shown.items():
            rules = [PROGRAM.rules[rule] for rule, targets in now.items() if encode_key(target) in targets]
            was_missing = any(target not in state for state in self._states[: end + 1])
            for name in NAMES:
                some = [_shown(state.get(target), name) for state in self._states[began[0] : end + 1]]
                if was_missing and image is not None and not any(name in rule.owned() for rule in rules):
                    continue  # no zeros are published to a missing item: a slow publish may bring values back for a moment
                if _shown(image, name) not in some:
                    self.problems.append(f"reached: {name} of {target} is {_values(image, [name])}, not one of {some}")

    def _is_ambiguous(self, source: ItemKey, began: int, done: int) -> bool:
        """Whether records of changes and of their reversal may be on their way, or of another item into the targets."""
        return len(self._contributed) > began or any(
            end > done for key, _, end in self._contributed[:began] if key != source
        ) or self._was_so(source, began, done)  # fmt: skip

    def _was_so(self, source: ItemKey, began: int, done: int) -> bool:
        of = [(contributed, end) for key, contributed, end in self._contributed[:began] if key == source]
        if not of:
            return False
        before = [self._first[source], *(contributed for contributed, _ in of[:-1])]
        return of[-1][0] in before and any(end > done for _, end in of)


def _shown(image: Image | None, name: str) -> Any:
    """Return a value, 0 if it is absent: the zeros of rules to which the source contributes nothing appear later."""
    return None if image is None else _values(image, [name]).get(name, 0)


def _values(image: Image | None, names: Sequence[str]) -> Any:
    return None if image is None else {name: plain(image[name]) for name in names if name in image}


def own_source_first(steps: Steps[Any]) -> Steps[Any]:
    """The source items are read before their entries."""
    if steps.__name__ != own_read.__name__:
        return (yield from steps)
    sources = yield Needed(list(OWN))
    needed = next(steps)
    try:
        while True:
            found = yield needed
            if any(key in OWN for key in needed.keys):
                found = {**{k: v for k, v in found.items() if k not in OWN}, **sources}
            needed = steps.send(found)
    except StopIteration as end:
        return end.value


def no_registry_needed(steps: Steps[Any]) -> Steps[Any]:
    """`wait` finds an item processed if no rules are active yet."""
    found = yield from steps
    return Look() if isinstance(found, Look) and any("registry" in reason for reason in found.missing) else found


def groups_first(steps: Steps[Any]) -> Steps[Any]:
    """`wait` reads the groups and targets before the item and its entry."""
    if steps.__name__ != look_at.__name__:
        return (yield from steps)
    early = yield Needed([
        group_key(f"{rule}.1", encode_key(target), shard)
        for rule in PROGRAM.rules for target in TARGETS for shard in range(3)
    ])  # fmt: skip
    early = {**early, **(yield Needed(list(TARGETS)))}
    needed = next(steps)
    try:
        while True:
            known = all(key in TARGETS or key.partition.startswith("G|") for key in needed.keys)
            needed = steps.send(early if known else (yield needed))
    except StopIteration as end:
        return end.value
