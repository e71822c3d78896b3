"""Value counters: how many contributions to a target have each value, for `distinct`, `counts` and `values`.

    pk                    sk               what
    M|<version>|<target>  <slot>|<value>   c: contributions with the value

A counter is among the members of its group, in the order of the values, so that a publish reads the first ones with one
query. It exists exactly as long as its `c` is above zero. The group holds the number of counters of each slot as the amount
`%<slot>`, so that `distinct` reads none of them.

Value counters change in the transaction that changes entries and group. The number in the group changes at an *edge*: when a
counter comes into being or ends. A transaction has to know whether it is at an edge before it reads anything, so it assumes
it, and writes each counter under the condition that the assumption holds:

    adds n     to a value assumed absent     c = n, if there is no counter      edge +1
               to another                    c + n, if c > 0
    removes n  of more                       c - n, if c > n
               of exactly n                  deleted, if c = n                   edge -1

Invariants:

- `c` is the sum of what the entries contribute and keep. Its change is in the transaction of the entry.
- `%<slot>` is the number of counters of the slot. The conditions make every change of existence an edge.
- Only edges conflict: changes in between add to the counter, whatever its number is.

What is assumed is what this process saw last; a value it never saw is assumed absent. If the assumption is wrong, the
cancelled transaction returns the counter, and the same transaction is sent with what it shows. Several attempts in one
transaction may change the same counter: their changes are added up first, because a transaction has one action for an item,
and the edge is that of the sum. A change that adds up to nothing is not written.

A simple `ADD` of 1 to the counter, with the edge decided by a read before, fails: of two transactions that remove the last
two contributions at once, both read 2 and neither is at an edge. To count the counters at each publish would read them all.

A counter that does not hold what entries contributed (a damaged ledger) must not stop the changes of its values. It is
replaced under the condition that it is as found, and counts as a value only if its number is above zero. `verify` compares
counters with entries, and a recount of the rule makes new ones.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from projections.engine.ledger_items import COUNT, Target, member_key
from projections.engine.store import Above, Condition, Delete, Equal, ItemKey, Missing, Purpose, Update, Write
from projections.language.values import Image, Value, decode_order

_MOST_KNOWN = 20_000
"""Value counters that a process remembers. Forgetting one costs a transaction."""

_MANY = 10**15
"""Stands for a number that is not known, but above zero."""

_ABSENT = Missing(("pk",))


def counter_key(target: Target, value: str) -> ItemKey:
    """Return the key of a counter: `value` is a slot and an encoded value, as contributions have it."""
    return member_key(*target, value, "")


def slot_of(value: str) -> str:
    """Return the amount of the group that holds the number of counters of a value's slot."""
    return "%" + value.partition("|")[0]


def count_of(image: Image) -> int | None:
    """Return the number of a counter: 0 if it is absent, None if it is damaged."""
    try:
        return int(Decimal(image[COUNT]["N"])) if COUNT in image else 0
    except (KeyError, InvalidOperation, ValueError):
        return None


@dataclass(slots=True)
class ValueCounter:
    """What a transaction does to one counter."""

    target: Target
    value: str
    added: int = 0
    records: list[str] = field(default_factory=list)

    @property
    def key(self) -> ItemKey:
        return counter_key(self.target, self.value)


class ValueCounters:
    """Makes the writes of counters, and remembers what it saw of them.

    Threads share it: the conditions of the writes check all that it remembers.
    """

    def __init__(self) -> None:
        self._known: dict[ItemKey, int | Image] = {}

    def write(self, counter: ValueCounter) -> tuple[Write, int]:
        """Return the write of a counter that changes, and its edge: +1, -1 or 0."""
        key, added = counter.key, counter.added
        known = self._known.get(key, 0 if added > 0 else _MANY)
        why = Purpose("counter", counter.target[:1], counter.target[1], tuple(counter.records))
        if not isinstance(known, int) or (added < 0 and known < -added):
            return _replace(counter, {} if isinstance(known, int) and not known else known, why)
        if added < 0 and known == -added:
            return Delete(key, Equal((COUNT,), _number(known)), why), -1
        add = {COUNT: _number(added)}
        if added > 0 and known <= 0:
            return Update(key, set=_description(counter.value), add=add, condition=_ABSENT, purpose=why), 1
        return Update(key, add=add, condition=Above((COUNT,), _number(max(0, -added))), purpose=why), 0

    def learn(self, counter: ValueCounter, image: Image | None) -> None:
        """Record a counter that a cancelled transaction returned."""
        number = count_of(image) if image else 0
        odd = image and (number is None or number <= 0 or number < -counter.added)
        self._remember(counter.key, image if image and odd else number or 0)

    def note_committed(self, counters: Iterable[ValueCounter]) -> None:
        """Record that the writes of these counters were made."""
        for counter in counters:
            known = self._known.get(counter.key, 0 if counter.added > 0 else _MANY)
            if isinstance(known, int):
                self._remember(counter.key, max(0, known + counter.added))
            else:
                self._known.pop(counter.key, None)

    def _remember(self, key: ItemKey, known: int | Image) -> None:
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[key] = known


def _replace(counter: ValueCounter, image: int | Image, why: Purpose) -> tuple[Write, int]:
    """Return the write of a counter that cannot hold what is removed from it, and its edge."""
    stored: Image = {COUNT: _number(image)} if isinstance(image, int) else image
    held = count_of(stored) or 0
    now = max(held + counter.added, 0)
    edge = int(now > 0) - int(held > 0)
    if not stored:
        condition: Condition = _ABSENT
    else:
        condition = Equal((COUNT,), stored[COUNT]) if COUNT in stored else Missing((COUNT,))
    if not now:
        return Delete(counter.key, condition, why), edge
    values = {**_description(counter.value), COUNT: _number(now)}
    return Update(counter.key, set=values, condition=condition, purpose=why), edge


def _description(value: str) -> dict[str, Value]:
    order = value.partition("|")[2]
    return {"o": {"S": order}, "v": decode_order(order)}


def _number(number: int) -> Value:
    return {"N": str(number)}
