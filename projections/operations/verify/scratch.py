"""A temporary SQLite file: what a verification gathers grows with the tables, memory must not."""

from __future__ import annotations

import sqlite3
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

__all__ = ["Scratch"]

_CACHE_KB = 16_000
_ROWS = 2000


class Scratch:
    """A database that is deleted on leaving. Safe for threads, one statement at a time.

    It is where the system keeps temporary files (TMPDIR), and SQLite sorts there as well.
    """

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="projections-")
        self._lock = threading.RLock()
        self.path = Path(self._directory.name) / "verify.sqlite"
        self._connection = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
        for setting in (
            "journal_mode=OFF",
            "synchronous=OFF",
            "locking_mode=EXCLUSIVE",
            "temp_store=FILE",
            f"cache_size=-{_CACHE_KB}",
        ):
            self._connection.execute(f"PRAGMA {setting}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Deletes it."""
        self._connection.close()
        self._directory.cleanup()

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Runs a statement; how many rows it changed."""
        with self._lock:
            return self._connection.execute(statement, values).rowcount

    def fill(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Runs a statement for each of many rows, in one transaction."""
        with self._lock:
            self._connection.execute("BEGIN")
            self._connection.executemany(statement, rows)
            self._connection.execute("COMMIT")

    def one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """The first column of the first row; None if there is none."""
        with self._lock:
            row = self._connection.execute(statement, values).fetchone()
        return None if row is None else row[0]

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """The rows of a query, a few at a time; whoever reads them may write to other tables meanwhile."""
        with self._lock:
            cursor = self._connection.execute(statement, values)
            some = cursor.fetchmany(_ROWS)
        while some:
            yield from some
            with self._lock:
                some = cursor.fetchmany(_ROWS)
