"""Budgets: what expensive changes of single items may write at once. A change beyond it is left to the worker.

    stream function   a change exceeds what is left of a rule's budget: it is not committed, a `Refresh` of the item is sent
    worker            reads the entry, then the item; commits the difference at its own pace, with the record's version

Invariants:

- The record is done only when the message is sent. So each change that is left has a refresh that begins after it.
- A refresh commits the item as it is then, and raises the entry's version to that of the record: an invocation that still
  has this record, or an older one, finds a duplicate. Without the version, it would commit an older item over the newer one.
- A later record of the item finds the entry other than predicted, and commits the difference to the entry as it is, or is
  left too. So no order of records, tasks and refreshes loses a contribution.
- Only changes of many targets count. Ordinary ones are never left, however many there are.
- Items that may contribute under `expired: keep` are never left: once they expire, only their records show what to keep.

Guarded copies of an item that has several are left in the same way, and the worker writes them as the item is, with the
record's version. So late and repeated tasks are like late and repeated records. Copies that the item does not have any more
are removed at once: only the record shows where they are, and each was paid for when it was written.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from projections.engine.changes import Change
from projections.engine.copies import CopyWrite, units_of
from projections.language.keys import decode_key
from projections.language.program import Program

CHEAP = 20
"""The most writes of a change that is always made at once: those of ten targets of a counter."""

WAIT = 30.0
"""How many seconds a refresh waits at least. The first one makes all changes of this time; the others find nothing to do."""


class Refresh(NamedTuple):
    """The task to bring the contributions of a source item up to the item, or its copies under `rule`.

    `gone`: the record shows that it was deleted, and did not expire. Without a valid signature, both are ignored; the item
    is refreshed in every role: who can only send messages could name a later version, and its next records be duplicates.
    """

    source: str
    version: str
    gone: bool = False
    rule: str = ""
    signature: str = ""

    @property
    def text(self) -> str:
        """What is signed."""
        return f"{self.version}|{self.gone}|{len(self.rule)}|{self.rule}|{self.source}"


class Budget:
    """Token buckets of writes, or of write units for copies, one for each rule. Safe for threads.

    `per_minute` is also the size of a bucket; 0: no change is left. `clock` gives seconds.
    """

    def __init__(
        self, per_minute: float, *, clock: Callable[[], float] = time.time, cheap: int = CHEAP, wait: float = WAIT
    ) -> None:
        self.wait = wait
        self._per_minute = per_minute
        self._clock = clock
        self._cheap = cheap
        self._left: dict[str, tuple[float, float]] = {}
        """By rule: how many writes were left, and when."""
        self._lock = threading.Lock()

    def affords(self, program: Program, change: Change, writes: Mapping[str, int]) -> bool:
        """Return whether a change may be committed now, and charge its writes to the budgets of its rules."""
        costs = {rule: cost for rule, cost in writes.items() if cost > self._cheap}
        if not costs or not self._per_minute or change.is_refresh or change.expiries or _keeps(program, change.source):
            return True
        return self.charge(costs)

    def affords_copies(self, copy: CopyWrite) -> bool:
        """Return whether the copies of an item may be written now, and charge the units of that and of their removal."""
        if len(copy.copies) <= 1 or not self._per_minute:
            return True
        units = sum(map(units_of, copy.copies.values()))
        return units <= self._cheap or self.charge({copy.rule.name: 2 * units})

    def charge(self, costs: Mapping[str, int]) -> bool:
        """Charge writes to the budgets of rules, if all of them are left."""
        with self._lock:
            now = self._clock()
            budgets = {rule: self._now(rule, now) for rule in costs}
            if any(budgets[rule] < cost for rule, cost in costs.items()):
                return False
            self._left.update({rule: (budgets[rule] - cost, now) for rule, cost in costs.items()})
        return True

    def _now(self, rule: str, now: float) -> float:
        left, at = self._left.get(rule, (self._per_minute, now))
        return min(self._per_minute, left + max(0.0, now - at) * self._per_minute / 60)


def _keeps(program: Program, source: str) -> bool:
    keepers = [rule for rule in program.rules.values() if rule.expired == "keep"]
    entities = program.entities_at(decode_key(source)) if keepers else []
    return any(entity in entities for rule in keepers for entity in rule.sources)
