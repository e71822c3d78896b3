"""Garbage collection during a batch."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["full_collections"]


class _Collections:
    """Postpones full garbage collections. Safe for threads; the first who enters saves the setting, the last restores it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._threshold = gc.get_threshold()

    @contextmanager
    def postponed(self) -> Iterator[None]:
        """While a large batch is processed: each would take some tenths of a second. Young objects are still collected."""
        with self._lock:
            if not self._users:
                self._threshold = gc.get_threshold()
                gc.set_threshold(*self._threshold[:2], 1_000_000)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    gc.set_threshold(*self._threshold)


full_collections = _Collections()
