"""Counts of what was done, for metrics. Safe for the threads that do it."""

from __future__ import annotations

import threading
from collections.abc import Mapping

__all__ = ["COUNTS", "Counters"]

COUNTS = (
    "records",
    "ignored",
    "applied",
    "duplicates",
    "failed",
    "transactions",
    "published",
    "copies",
    "indexed",
    "healed",
    "released",
    "embedded",
    "pulled",
    "rejected",
    "cut",
    "internal",
)
"""Records delivered, and those no rule cares about; source items whose contributions were applied, were found applied, or
failed; transactions tried; targets published; copies written; items whose index attributes were written; targets healed;
items from which the values of an entity they left were removed; children updated by a push, and by a pull; records
rejected; lists published without the elements that exceed their size limit; unexpected exceptions: mistakes of this
program."""


class Counters:
    """Counts by the names in COUNTS, all of them from the start."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(COUNTS, 0)
        self._lock = threading.Lock()

    def add(self, name: str, number: int = 1) -> None:
        with self._lock:
            self._counts[name] += number

    @property
    def counts(self) -> Mapping[str, int]:
        return dict(self._counts)
