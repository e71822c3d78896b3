"""A store that writes nothing: reads show what would be written, and changes and their cost are counted."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.store import Action, Check, Delete, Image, ItemKey, Page, Schema, Store, Update, Value, Write
from projections.errors import ConditionFailed, InvalidRequest, StoreError
from projections.language.keys import encode_key
from projections.operations.adoption import Adoption
from projections.operations.caution import MOST_EXAMPLES, counted_as
from projections.stores.capacity import TRANSACTIONAL, read_units, write_units, written
from projections.stores.conditions import holds
from projections.stores.limits import item_size

__all__ = ["DryStore"]


class DryStore:
    """Wraps a store for one page. Reads return items of the application as they would be, items of the ledger as they are.

    `done` counts what would be written: `entries`, `groups`, `members`, and by rule `created|<rule>`, `changed|<rule>`,
    `deleted|<rule>`; also `write units` (by the size of items, twice that in a transaction, and for each index that an item
    is or would be in, as if it had all attributes) and `read units`. `examples` has the first encoded keys of items that
    would be deleted, with their rules. `adoption` records changes to items. Safe for threads.
    """

    def __init__(self, store: Store, adoption: Adoption | None = None) -> None:
        self._store = store
        self._adoption = adoption
        self._lock = threading.RLock()
        self._seen: dict[ItemKey, Image | None] = {}
        self.done: Counter[str] = Counter()
        self.withheld: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def schema(self, table: str) -> Schema:
        return self._store.schema(table)

    # Reads

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        image = self.get_many([key]).get(key)
        if image is None or attributes is None:
            return image
        return {name: image[name] for name in attributes if name in image}

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        found = self._store.get_many(keys)
        with self._lock:
            self.done["read units"] += sum(_read_units([found.get(key, {})]) for key in keys)
            for key in keys:
                self._seen.setdefault(key, found.get(key))
            return {key: dict(image) for key in keys if (image := self._seen[key]) is not None}

    def query(self, table: str, values: Sequence[Value], **options: Any) -> Page:
        return self._counted(self._store.query(table, values, **options))

    def scan(self, table: str, **options: Any) -> Page:
        return self._counted(self._store.scan(table, **options))

    def _counted(self, page: Page) -> Page:
        with self._lock:
            self.done["read units"] += _read_units(page.items)
        return page

    # Writes

    def write(self, write: Write) -> Image | None:
        with self._lock:
            return self._rehearse(write)

    def transact(self, writes: Sequence[Action]) -> None:
        with self._lock:
            for write in writes:
                self.done["write units"] += TRANSACTIONAL * write_units(_size(write))
                if not isinstance(write, Check) and (about := counted_as(write)):
                    self.done[about] += 1

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        return [self._answer(write) for write in writes]

    def _answer(self, write: Update) -> StoreError | None:
        try:
            self.write(write)
        except (ConditionFailed, InvalidRequest) as error:
            return error.with_traceback(None)
        return None

    def withhold(self, key: ItemKey, rule: str) -> None:
        """Record what would be removed from an item if deletions are allowed."""
        with self._lock:
            self.withheld[rule] += 1
            if len(self.examples) < MOST_EXAMPLES:
                self.examples[encode_key(key)] = rule

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
        after = self._after(write, before)
        self._seen[write.key] = after
        what = "created" if before is None else "changed" if after is not None else "deleted"
        rule = counted_as(write)
        self.done[f"{what}|{rule}"] += 1
        if self._adoption is not None and before is not None:
            self._adoption.written(rule, write.key, before, after or {})
        self.done["write units"] += written(before, after, self._store.schema(write.key.table)).total
        if after is None and len(self.examples) < MOST_EXAMPLES:
            self.examples[encode_key(write.key)] = rule
        return before if after is None else None

    def _after(self, write: Write, before: Image | None) -> Image | None:
        if not isinstance(write, Update):
            return None
        image = before if before is not None else self._store.schema(write.key.table).wire(write.key)
        return {**{name: value for name, value in image.items() if name not in write.remove}, **write.set}


def _read_units(images: Iterable[Image]) -> int:
    return int(read_units(sum(map(item_size, images))))


def _size(write: Action) -> int:
    return item_size({**write.set, **write.add}) if isinstance(write, Update) else 0
