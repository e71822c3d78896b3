"""A store that does less than it is asked to: no deletions of the application's items, or no writes at all.

What is withheld succeeds for whoever asked, and is counted; a few examples are kept. An item of the application that would
have been written is shown as it would be then, for a while, so that whoever looks again finds what it wrote.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from math import ceil
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.store import Delete, Image, ItemKey, Page, Schema, Store, Update, Value, Write
from projections.errors import StoreError
from projections.language.keys import encode_key

__all__ = ["Cautious"]

_MOST_EXAMPLES = 20
_MOST_PRETENDED = 20_000


class Cautious:
    """Wraps a store. `deletes` allows deletions of application items, `writes` anything at all.

    `withheld` counts what was not done, by what it was: `delete`, `update`, `ledger`. `write_units` estimates what that
    would have cost: a unit per KB begun of what is written, two in a transaction; for updates of large items it is a lower
    bound. `pace` is told of every few writes before they are made, and may wait.
    """

    def __init__(
        self,
        store: Store,
        *,
        deletes: bool,
        writes: bool = True,
        pace: Callable[[int], None] = lambda writes: None,
    ) -> None:
        self._store = store
        self._deletes = deletes
        self._writes = writes
        self._pace = pace
        self._lock = threading.Lock()
        self._pretended: dict[ItemKey, Image | None] = {}
        self.withheld: Counter[str] = Counter()
        self.write_units = 0
        self.examples: list[str] = []
        """Encoded keys of items that were not deleted, the first few."""

    def schema(self, table: str) -> Schema:
        return self._store.schema(table)

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        if key in self._pretended:
            return self._pretended[key]
        return self._store.get(key, attributes)

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        found = self._store.get_many(keys)
        for key in keys:
            if key in self._pretended:
                image = self._pretended[key]
                found.pop(key, None)
                if image is not None:
                    found[key] = image
        return found

    def query(self, table: str, values: Sequence[Value], **options: Any) -> Page:
        return self._store.query(table, values, **options)

    def scan(self, table: str, **options: Any) -> Page:
        return self._store.scan(table, **options)

    def write(self, write: Write) -> None:
        if self._allowed(write):
            self._pace(1)
            self._store.write(write)
        else:
            self._withhold([write], 1)

    def transact(self, writes: Sequence[Write]) -> None:
        if self._writes:
            self._pace(len(writes))
            self._store.transact(writes)
        else:
            self._withhold(writes, 2)

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        if self._writes:
            self._pace(len(writes))
            return self._store.write_each(writes)
        self._withhold(writes, 1)
        return [None] * len(writes)

    def _allowed(self, write: Write) -> bool:
        application = isinstance(write, Delete) and write.key.table != LEDGER
        return self._writes and (self._deletes or not application)

    def _withhold(self, writes: Sequence[Write], units: int) -> None:
        with self._lock:
            for write in writes:
                if write.key.table == LEDGER:
                    self.withheld["ledger"] += 1
                    self.write_units += units * _units(write)
                    continue
                self.write_units += units * _units(write)
                if not self._writes:
                    self._pretend(write)
                if isinstance(write, Update):
                    self.withheld["update"] += 1
                else:
                    self.withheld["delete"] += 1
                    if len(self.examples) < _MOST_EXAMPLES:
                        self.examples.append(encode_key(write.key))

    def _pretend(self, write: Write) -> None:
        while len(self._pretended) >= _MOST_PRETENDED:
            del self._pretended[next(iter(self._pretended))]
        if not isinstance(write, Update):
            self._pretended[write.key] = None
            return
        image = self.get(write.key) or self._store.schema(write.key.table).wire(write.key)
        kept = {name: value for name, value in image.items() if name not in write.remove}
        self._pretended[write.key] = {**kept, **write.set}


def _units(write: Write) -> int:
    if not isinstance(write, Update):
        return 1
    return ceil(sum(len(name) + len(str(value)) for name, value in {**write.set, **write.add}.items()) / 1024) or 1
