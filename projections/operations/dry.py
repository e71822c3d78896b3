"""Stores that withhold writes: deletions that are not allowed, or all writes of a dry run, which counts them and their
cost.

A dry run also shows values maintained by the application that rules would change, with examples for each rule. The
application maintains a value if the item has the attribute and no valid guard of the rule that writes it. Nothing here
decides what would be written: the engine makes the writes on a store that writes nothing, and totals are computed as
`verify` computes them without a ledger.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from projections.engine.guards import Guards, Identity
from projections.engine.ledger_items import LEDGER
from projections.engine.registry import RegistrySnapshot
from projections.engine.running import slices
from projections.engine.store import Delete, Page, Role, Store, Update, WrappedStore, Write, answer_to
from projections.errors import ConditionFailed, StoreError
from projections.language.keys import Image, ItemKey, Value, decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import public_name
from projections.language.values import item_size, plain, same
from projections.stores.condition_expressions import holds
from projections.stores.limits import TRANSACTIONAL, cost_of, read_units, write_units

if TYPE_CHECKING:
    from projections.operations.verify.drift import Drift


MOST_EXAMPLES = 20

_LEDGER: Mapping[Role, str] = {
    "entry": "entries",
    "forget": "entries",
    "group": "groups",
    "counter": "groups",
    "shards": "groups",
    "member": "members",
    "sweep": "members",
}


def counted_as(write: Write) -> str:
    """Return `entries`, `groups` or `members` for a write to the ledger, or the empty text.

    For a write to an item of the application, return the rule that it is made for, which may be removed. Attributes of the
    application that are restored are no rule's.
    """
    purpose = write.purpose
    if write.key.table == LEDGER:
        return _LEDGER.get(purpose.kind, "")
    return public_name(purpose.rules[0]) if purpose.rules and purpose.kind != "restore" else ""


class _Withholding(WrappedStore):
    """Wraps a store, and counts. `done` counts writes, `withheld` by rule the deletions that were not made, `examples` has
    the first encoded keys of items to delete, with their rules. Safe for threads.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._lock = threading.RLock()
        self.done: Counter[str] = Counter()
        self.withheld: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def example(self, key: ItemKey, rule: str) -> None:
        if len(self.examples) < MOST_EXAMPLES:
            self.examples[encode_key(key)] = rule


class Cautious(_Withholding):
    """Without `deletes`, no item of the application is deleted, and deletions return as if they were made.

    `done` counts `entries`, `groups`, `members`, and by rule `written|<rule>`, `deleted|<rule>`. `pace` is called before
    writes with their number, and may wait or raise OutOfTime.
    """

    def __init__(self, store: Store, *, deletes: bool, pace: Callable[[int], None] = lambda writes: None) -> None:
        super().__init__(store)
        self._deletes = deletes
        self._pace = pace

    def write(self, write: Write) -> Image | None:
        if isinstance(write, Delete) and write.key.table != LEDGER and not self._deletes:
            self._withhold(write)
            return None
        if write.purpose.kind != "restore":  # the deletion before it was paced, and has taken what this puts back
            self._pace(1)
        removed = self._store.write(write)
        self._count([write])
        return removed

    def transact(self, writes: Sequence[Write]) -> None:
        self._pace(len(writes))
        self._store.transact(writes)
        self._count(writes)

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        self._pace(len(writes))
        answers = self._store.write_each(writes)
        self._count([write for write, answer in zip(writes, answers, strict=True) if answer is None])
        return answers

    def _count(self, writes: Sequence[Write]) -> None:
        names = []
        for write in writes:
            about = counted_as(write)
            if write.key.table == LEDGER:
                names.append(about)
            elif about:
                names.append(f"{'deleted' if isinstance(write, Delete) else 'written'}|{about}")
        with self._lock:
            self.done.update(name for name in names if name)

    def _withhold(self, write: Delete) -> None:
        image = self._store.get(write.key)
        if write.condition is not None and not holds(write.condition, image):
            raise ConditionFailed(image)
        if image is not None:
            with self._lock:
                self.withheld[counted_as(write)] += 1
                self.example(write.key, counted_as(write))


MOST_CHANGES = 5
"""Examples to keep for each rule."""

_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class ValueChange:
    """One value that a rule would change. `key` is the encoded key of the item; values are plain JSON, None if absent."""

    key: str
    attribute: str
    old: Any
    new: Any


class Adoption:
    """Counts by rule the values of the application that would change. Safe for threads.

    `before` is the registry before these rules, None if there is none.
    """

    def __init__(self, program: Program, before: RegistrySnapshot | None) -> None:
        self._program = program
        self._guards = Guards(program, before.identity if before is not None else Identity("", (b"",)))
        versions = before.versions.values() if before is not None else ()
        self._known = {version.rule for version in versions if version.promoted}
        self._rules = {public_name(name) for name in program.rules}
        self._lock = threading.Lock()
        self.changed: Counter[str] = Counter()
        self.examples: dict[str, list[ValueChange]] = {}

    def by_hand(self, rule: str, key: ItemKey, image: Image) -> bool:
        """Return whether the application maintains a rule's attributes on an item.

        Attributes that rules write on their source items themselves have no guard: they are the rule's if a version of it
        was live.
        """
        if rule in self._program.on_items:
            return rule not in self._known
        return rule in self._rules and self._guards.read(rule, key, image) is None

    def record_write(self, rule: str, key: ItemKey, before: Image, after: Image) -> None:
        """Record what a write of a rule would change on an item."""
        if not self.by_hand(rule, key, before):
            return
        for name, old in before.items():
            new = after.get(name)
            if not name.startswith(self._program.guard_prefix) and not same(old, new):
                self.add(rule, ValueChange(encode_key(key), name, plain(old), None if new is None else plain(new)))

    def add(self, rule: str, change: ValueChange) -> None:
        with self._lock:
            self.changed[rule] += 1
            examples = self.examples.setdefault(rule, [])
            if len(examples) < MOST_CHANGES:
                examples.append(change)


def compute(
    program: Program,
    store: Store,
    after: RegistrySnapshot,
    adoption: Adoption,
    *,
    threads: int = 4,
    report: Callable[[str, int], None] = lambda what, items: None,
) -> None:
    """Record which values of the application would change when filling rules publish from their groups.

    Reads the tables of these rules once. `after` is the registry as the backfill would write it. Raises Transient.
    """
    names = [name for name, rule in program.recorded.items() if after.state(rule) == "filling"]
    if not names:
        return
    # not above: the worker does not need them
    from projections.operations.verify.scanning import Scratch
    from projections.operations.verify.verification import Verification
    from projections.operations.verify.verify_scope import Scope

    with Scratch() as scratch:
        verification = Verification(Scope(program, None, names), store, scratch, threads=threads, report=report)
        drifts = (drift for drift in verification.differences() if None not in (drift.attribute, drift.actual))
        for batch in slices(drifts, _AT_ONCE):
            _note(batch, store, adoption)


def _note(drifts: list[Drift], store: Store, adoption: Adoption) -> None:
    keys = {drift.target: decode_key(drift.target) for drift in drifts}
    images: Mapping[Any, Image] = store.get_many(list(keys.values()))
    for drift in drifts:
        image, rule = images.get(keys[drift.target], {}), public_name(drift.rule)
        if drift.attribute in image and adoption.by_hand(rule, keys[drift.target], image):
            adoption.add(rule, ValueChange(drift.target, drift.attribute or "", drift.actual, drift.expected))


class DryStore(_Withholding):
    """Wraps a store for one page. Reads return items of the application as they would be, items of the ledger as they are.

    `done` counts what would be written: `entries`, `groups`, `members`, and by rule `created|<rule>`, `changed|<rule>`,
    `deleted|<rule>`; also `write units` (by the size of items, twice that in a transaction, and for each index that an item
    is or would be in, as if it had all attributes) and `read units`. `examples` has the first encoded keys of items that
    would be deleted, with their rules. `adoption` records changes to items. Safe for threads.
    """

    def __init__(self, store: Store, adoption: Adoption | None = None) -> None:
        super().__init__(store)
        self._adoption = adoption
        self._seen: dict[ItemKey, Image | None] = {}

    # Reads

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        image = self.get_many([key]).get(key)
        if image is None or attributes is None:
            return image
        return {name: image[name] for name in attributes if name in image}

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        images = self._store.get_many(keys)
        with self._lock:
            self.done["read units"] += sum(_read_units([images.get(key, {})]) for key in keys)
            for key in keys:
                self._seen.setdefault(key, images.get(key))
            return {key: dict(image) for key in keys if (image := self._seen[key]) is not None}

    def query(self, table: str, values: Sequence[Value], **options: Any) -> Page:
        return self._count_page(self._store.query(table, values, **options))

    def scan(self, table: str, **options: Any) -> Page:
        return self._count_page(self._store.scan(table, **options))

    def _count_page(self, page: Page) -> Page:
        with self._lock:
            self.done["read units"] += _read_units(page.items)
        return page

    # Writes

    def write(self, write: Write) -> Image | None:
        with self._lock:
            return self._rehearse(write)

    def transact(self, writes: Sequence[Write]) -> None:
        with self._lock:
            for write in writes:
                self.done["write units"] += TRANSACTIONAL * write_units(_size(write))
                if about := counted_as(write):
                    self.done[about] += 1

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        return [answer_to(self.write, write) for write in writes]

    def _rehearse(self, write: Write) -> Image | None:
        if write.key.table == LEDGER:
            self.done["write units"] += write_units(_size(write))
            if about := counted_as(write):
                self.done[about] += 1
            return None
        if write.key not in self._seen:
            self._seen[write.key] = self._store.get(write.key)
        before = self._seen[write.key]
        if write.condition is not None and not holds(write.condition, before):
            raise ConditionFailed(before)
        if before is None and isinstance(write, Delete):
            return None
        after: Image | None = None
        if isinstance(write, Update):
            image = before if before is not None else self._store.schema(write.key.table).wire(write.key)
            after = {**{name: value for name, value in image.items() if name not in write.remove}, **write.set}
        self._seen[write.key] = after
        what = "created" if before is None else "changed" if after is not None else "deleted"
        rule = counted_as(write)
        self.done[f"{what}|{rule}"] += 1
        if self._adoption is not None and before is not None:
            self._adoption.record_write(rule, write.key, before, after or {})
        self.done["write units"] += cost_of(before, after, self._store.schema(write.key.table)).total
        if after is None:
            self.example(write.key, rule)
        return before if after is None else None


def _read_units(images: Iterable[Image]) -> int:
    return int(read_units(sum(map(item_size, images))))


def _size(write: Write) -> int:
    return item_size({**write.set, **write.add}) if isinstance(write, Update) else 0
