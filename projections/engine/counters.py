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
    "deferred",
    "failed",
    "transactions",
    "published",
    "copies",
    "indexed",
    "healed",
    "rival",
    "released",
    "embedded",
    "pulled",
    "rejected",
    "repeated",
    "filling",
    "cut",
    "internal",
)
"""What an invocation counts. docs/metrics.md describes each."""


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
