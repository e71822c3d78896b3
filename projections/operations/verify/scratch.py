"""A temporary SQLite file: the facts of a verification grow with the tables, and must not fill the memory."""

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
    """A database that is deleted when its context ends. Safe for threads, one statement at a time.

    It is in the system's directory for temporary files (TMPDIR), where SQLite also sorts.
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
        """Delete the database."""
        self._connection.close()
        self._directory.cleanup()

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement. Return the number of changed rows."""
        with self._lock:
            return self._connection.execute(statement, values).rowcount

    def fill(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of many rows, in one transaction."""
        with self._lock:
            self._connection.execute("BEGIN")
            self._connection.executemany(statement, rows)
            self._connection.execute("COMMIT")

    def one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of the first row, or None."""
        with self._lock:
            row = self._connection.execute(statement, values).fetchone()
        return None if row is None else row[0]

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, a few at a time. The caller may write to other tables in between."""
        with self._lock:
            cursor = self._connection.execute(statement, values)
            some = cursor.fetchmany(_ROWS)
        while some:
            yield from some
            with self._lock:
                some = cursor.fetchmany(_ROWS)
