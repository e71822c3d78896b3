"""A store that deletes items of the application only if that is allowed, and counts writes by rule."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from projections.engine.ledger_items import LEDGER
from projections.engine.store import Action, Check, Delete, Image, ItemKey, Role, Store, Update, Write
from projections.errors import ConditionFailed, StoreError
from projections.language.keys import encode_key
from projections.stores.conditions import holds
from projections.stores.wrapped import WrappedStore

__all__ = ["MOST_EXAMPLES", "Cautious", "counted_as"]

MOST_EXAMPLES = 20

_LEDGER: Mapping[Role, str] = {
    "entry": "entries",
    "forget": "entries",
    "group": "groups",
    "extreme": "groups",
    "counter": "groups",
    "shards": "groups",
    "rebuild": "groups",
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
    return purpose.rules[0] if purpose.rules and purpose.kind != "restore" else ""


class Cautious(WrappedStore):
    """Wraps a store. Without `deletes`, no item of the application is deleted, and deletions return as if they were made.

    `done` counts writes: `entries`, `groups`, `members`, and by rule `written|<rule>`, `deleted|<rule>`. `withheld` counts
    by rule the deletions that were not made, `examples` has the first encoded keys with their rules. `pace` is called before
    writes with their number, and may wait. Safe for threads.
    """

    def __init__(self, store: Store, *, deletes: bool, pace: Callable[[int], None] = lambda writes: None) -> None:
        super().__init__(store)
        self._deletes = deletes
        self._pace = pace
        self._lock = threading.Lock()
        self.done: Counter[str] = Counter()
        self.withheld: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def write(self, write: Write) -> Image | None:
        if isinstance(write, Delete) and write.key.table != LEDGER and not self._deletes:
            self._withhold(write)
            return None
        self._pace(1)
        removed = self._store.write(write)
        self._count([write])
        return removed

    def transact(self, writes: Sequence[Action]) -> None:
        self._pace(len(writes))
        self._store.transact(writes)
        self._count(writes)

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        self._pace(len(writes))
        answers = self._store.write_each(writes)
        self._count([write for write, answer in zip(writes, answers, strict=True) if answer is None])
        return answers

    def _count(self, writes: Sequence[Action]) -> None:
        names = []
        for write in writes:
            if isinstance(write, Check):
                continue
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
            self.withhold(write.key, counted_as(write))

    def withhold(self, key: ItemKey, rule: str) -> None:
        """Record that values of a rule were not removed from an item."""
        with self._lock:
            self.withheld[rule] += 1
            if len(self.examples) < MOST_EXAMPLES:
                self.examples[encode_key(key)] = rule
