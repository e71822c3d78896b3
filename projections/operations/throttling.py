"""Throttled requests of an invocation, counted by the reasons that DynamoDB gives."""

from __future__ import annotations

import threading
from collections import Counter

__all__ = ["Throttles"]


class Throttles:
    """Counts throttled requests until they are taken. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, reason: str) -> None:
        """Count a request. `reason` names the limit and the table or index, as in `DynamoDBStore`."""
        with self._lock:
            self._counts[reason] += 1

    def take(self) -> dict[str, int]:
        """Return the counts since the last call, the most frequent reason first."""
        with self._lock:
            counts, self._counts = self._counts, Counter()
        return dict(counts.most_common())
