"""Rivals: other ledgers that maintain the same table, as when a stack is deployed twice.

Each heals what the other writes. Without an end, both would write each item for ever. So a ledger heals `BUDGET` guards of a
rival, or none if one batch shows more. Then the rival's guards stay, until no record has shown one in place of its own for
`QUIET` seconds. Publishes of later changes are written all the same: their condition takes such a guard as absent.

    pk   sk             what
    R    rival|<id>     when a record last showed this rival, and how many heals are left

Only a batch whose records show a rival reads this item. A backfill corrects everything, whatever it says. When all rules are
done, it deletes the items of rivals that were not seen since it began.

Rules without guards, or with other names, show no rival. So a process corrects `AT_ONCE` times an hour what another one
overwrote on an item while it changed nothing else; from then on a task corrects it, `WAIT` seconds later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from projections.engine.guards import as_read
from projections.engine.ledger_items import LEDGER
from projections.engine.running import MOST_TRIES
from projections.engine.store import AllOf, Delete, Equal, Image, ItemKey, Purpose, Store, Update, all_items
from projections.errors import ConditionFailed

BUDGET = 60
"""How many guards that one rival replaced are healed, until it is quiet."""

QUIET = 3600.0
"""Seconds without such a record after which heals begin again."""

AT_ONCE = 10
"""How many overwrites of an item are corrected at once, in an hour. With guards, each correction counts as one, too."""

WAIT = 240.0
"""Seconds until a later one is corrected: in each of the alarm's periods, if the other process answers each time."""

_MOST_ITEMS = 10_000
_NOTED = 60.0
"""Seconds between two writes of the item while the rival's guards stay."""

_KEPT = 7 * 86400
_PREFIX = "rival|"


class Rival(NamedTuple):
    """Another ledger that replaced guards of this one: its id, since when, when it was last seen, and the heals left."""

    ledger: str
    since: float
    seen: float
    left: int

    @classmethod
    def read(cls, item: Image) -> Rival:
        since, seen, left = (float(item[name]["N"]) for name in ("since", "seen", "left"))
        return cls(item["sk"]["S"].removeprefix(_PREFIX), since, seen, int(left))

    def is_quiet(self, now: float) -> bool:
        """Whether no record has shown it for so long that it seems to be gone."""
        return now - self.seen > QUIET


def rivals(store: Store) -> Iterator[Rival]:
    """Yield the rivals of the last 7 days."""
    return map(Rival.read, all_items(partial(store.query, LEDGER, [{"S": "R"}], prefix=_PREFIX)))


def forget(store: Store, began: float) -> None:
    """Delete what is known of rivals that were not seen since a backfill began, which corrected what they wrote."""
    for rival in list(rivals(store)):
        if rival.seen < began:
            with suppress(ConditionFailed):  # seen meanwhile
                seen = Equal(("seen",), {"N": f"{rival.seen:.15g}"})
                store.write(Delete(_key(rival.ledger), seen, Purpose("registry", (), rival.ledger)))


def left_to(store: Store, counts: Mapping[tuple[str, bool], int], now: float) -> frozenset[str]:
    """Note which ledgers replaced guards of this one (`Guards.rivals`). Return those whose guards are not healed now."""
    ledgers = dict.fromkeys(ledger for ledger, _ in counts)
    return frozenset(
        ledger
        for ledger in ledgers
        if not _may_heal(store, ledger, counts.get((ledger, True), 0), counts.get((ledger, False), 0), now)
    )


def _may_heal(store: Store, ledger: str, replaced: int, others: int, now: float) -> bool:
    key = _key(ledger)
    item = store.get(key)
    for _ in range(MOST_TRIES):
        known = Rival.read(item) if item is not None else None
        if known is None or known.is_quiet(now):
            if not replaced:
                return True  # imported, restored, or of a rival that is gone
            known = Rival(ledger, now, 0.0, BUDGET)
        if known.left == 0 and (not replaced or now - known.seen < _NOTED):
            return False
        heals = replaced + others <= known.left
        left = known.left - replaced - others if heals else 0
        seen = max(known.seen, now) if replaced else known.seen  # its guards stay on items also when it is gone
        values = {"since": known.since, "seen": seen, "left": left, "ttl": int(now + _KEPT)}
        unchanged = AllOf(tuple(as_read(name, item[name] if item is not None else None) for name in ("seen", "left")))
        sent = {name: {"N": f"{value:.15g}"} for name, value in values.items()}
        try:
            store.write(Update(key, sent, condition=unchanged, purpose=Purpose("registry", (), ledger)))
        except ConditionFailed as failed:
            item = failed.item
            continue
        return heals
    return False


def _key(ledger: str) -> ItemKey:
    return ItemKey(LEDGER, "R", _PREFIX + ledger)


class Overwrites:
    """Counts overwrites of items, in memory: a new process counts from the beginning."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._seen: dict[ItemKey, tuple[float, int, float]] = {}
        """By item: since when it is counted, how often it was overwritten, and when a task for it was sent."""

    def exceeds(self, key: ItemKey) -> bool:
        """Count an overwrite. Return whether a task should correct it."""
        now = self._clock()
        if len(self._seen) >= _MOST_ITEMS:
            self._seen.clear()
        since, number, sent = self._seen.get(key, (now, 0, 0.0))
        self._seen[key] = (since, number + 1, sent) if now - since < QUIET else (now, 1, sent)
        return self._seen[key][1] > AT_ONCE

    def send(self, key: ItemKey, task: Callable[[], None]) -> None:
        """Send a task for an item by `task`, unless one is still to be done: it sees this overwrite, too."""
        now, (since, number, sent) = self._clock(), self._seen[key]
        if now - sent >= WAIT:
            task()
            self._seen[key] = since, number, now
