"""Parallel scans, repeated while they are throttled, and a copy of the tables in a temporary file."""

from __future__ import annotations

import json
import math
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from projections.engine.ledger_items import LEDGER
from projections.engine.running import Deadline
from projections.engine.store import Image, ItemKey, Page, Store, Value, WrappedStore
from projections.errors import UsageError
from projections.language.program import LEDGER_SCHEMA

PAGE = 1000
"""Items read at a time: what a thread holds in memory."""

_MOST_TRIES = 17
"""Pauses of 20 seconds in all."""

T = TypeVar("T")
Each = Callable[[Sequence[Image]], None]


def patiently(read: Callable[[], T], sleep: Callable[[float], None] = time.sleep) -> T:
    """Return what `read` returns. While it raises Transient, repeat it with growing pauses; raise it after 20 seconds."""
    deadline = Deadline(lambda: math.inf, margin=0.0, sleep=sleep, chance=lambda: 1.0)
    return deadline.retry(read, tries=_MOST_TRIES)


class Segment(NamedTuple):
    """One segment of a parallel scan, and what is to be called for every page of it."""

    table: str
    number: int
    of: int
    each: Each
    attributes: Sequence[str] | None = None
    """All if None."""


@dataclass(eq=False)
class Scanner:
    """Scans tables in `threads` segments at once. `report` hears of every page: the table, and how many items it had."""

    store: Store
    _: KW_ONLY
    threads: int = 4
    report: Callable[[str, int], None] = lambda table, items: None
    sleep: Callable[[float], None] = time.sleep
    page: int = PAGE

    def whole(self, tables: Sequence[tuple[str, Each]], attributes: Sequence[str] | None = None) -> None:
        """Scans tables, calling for every page, from several threads. Raises what a page raises."""
        threads = range(self.threads)
        self.segments([Segment(name, n, self.threads, each, attributes) for name, each in tables for n in threads])

    def segments(self, wanted: Sequence[Segment]) -> None:
        """Scans these segments."""
        stop = threading.Event()
        if self.threads == 1:
            for segment in wanted:
                self._segment(*segment, stop)
            return
        with ThreadPoolExecutor(self.threads) as pool:
            futures = [pool.submit(self._segment, *segment, stop) for segment in wanted]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                stop.set()
                raise

    def _segment(
        self, table: str, number: int, of: int, each: Each, attributes: Sequence[str] | None, stop: threading.Event
    ) -> None:
        after, projection = None, {"attributes": attributes} if attributes else {}
        while not stop.is_set():
            read = partial(self.store.scan, table, segment=number, segments=of, limit=self.page, **projection)
            page = patiently(partial(read, after=after), self.sleep)
            each(page.items)
            self.report(table, len(page.items))
            after = page.after
            if after is None:
                return


_CACHE_KB = 16_000
_ROWS = 2000
_ROOM = "Set TMPDIR to a directory on a larger disk, or verify a share of the tables only: --sample 1%"


class Scratch:
    """A database that is deleted when its context ends. Safe for threads, one statement at a time.

    It is in the system's directory for temporary files (TMPDIR), where SQLite also sorts.
    """

    def __init__(self) -> None:
        try:
            self._directory = tempfile.TemporaryDirectory(prefix="projections-")
        except OSError as error:
            raise UsageError(f"no room for a temporary copy of the tables: {error}. {_ROOM}") from error
        self._lock = threading.RLock()
        self._full = False
        self.path = Path(self._directory.name) / "verify.sqlite"
        self._connection = sqlite3.connect(self.path, check_same_thread=False, isolation_level=None)
        settings = "journal_mode=OFF", "synchronous=OFF", "locking_mode=EXCLUSIVE", "temp_store=FILE"
        for setting in (*settings, f"cache_size=-{_CACHE_KB}"):
            self._connection.execute(f"PRAGMA {setting}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._directory.cleanup()

    @contextmanager
    def _statement(self) -> Iterator[None]:
        """Hold the lock while a statement runs. Raises UsageError if the disk is full, and for each statement after that."""
        with self._lock:
            try:
                yield
            except sqlite3.Error as error:
                self._full = self._full or getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_FULL
                if not self._full:
                    raise
                size = f"{self.path.stat().st_size / 1e6:,.1f} MB in {self.path.parent.parent}"
                raise UsageError(
                    f"the disk is full: a temporary copy of the tables had reached {size}. {_ROOM}"
                ) from error

    def run(self, statement: str, values: Sequence[Any] = ()) -> int:
        """Run a statement. Return the number of changed rows."""
        with self._statement():
            return self._connection.execute(statement, values).rowcount

    def fill(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for each of many rows, in one transaction."""
        with self._statement():
            self._connection.execute("BEGIN")
            self._connection.executemany(statement, rows)
            self._connection.execute("COMMIT")

    def one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Return the first column of the first row, or None."""
        with self._statement():
            row = self._connection.execute(statement, values).fetchone()
        return None if row is None else row[0]

    def rows(self, statement: str, values: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a query, a few at a time. The caller may write to other tables in between."""
        with self._statement():
            cursor = self._connection.execute(statement, values)
            rows = cursor.fetchmany(_ROWS)
        while rows:
            yield from rows
            with self._statement():
                rows = cursor.fetchmany(_ROWS)


_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode

_LAST = chr(0x10FFFF)
"""The character that sorts last."""


class TableCopy(WrappedStore):
    """The tables as one scan reads them, in a scratch file: a store to read from, whose items are of different moments.

    Call `keep` with each page, from any thread, then `index`. Until then, only the ledger is read from the copy.
    """

    def __init__(self, store: Store, scratch: Scratch, tables: Iterable[str]) -> None:
        super().__init__(store)
        self._scratch = scratch
        self._indexed = False
        self._names = {table: f"copy_{number}" for number, table in enumerate(tables)}
        for name in self._names.values():
            scratch.run(f"CREATE TABLE {name} (partition TEXT, sort TEXT, image TEXT)")

    def keep(self, table: str, images: Iterable[Image]) -> None:
        """Store a page of a table."""
        schema = LEDGER_SCHEMA if table == LEDGER else self.schema(table)  # without a ledger, the copy has one
        keys = ((schema.key(table, image), image) for image in images)
        rows = [(key.partition, key.sort or "", _encode(image)) for key, image in keys]
        self._scratch.fill(f"INSERT INTO {self._names[table]} VALUES (?, ?, ?)", rows)

    def index(self) -> None:
        """Prepare for reading: all pages are stored."""
        self._indexed = True
        for name in self._names.values():
            self._scratch.run(f"CREATE INDEX {name}_key ON {name} (partition, sort)")

    def clear(self) -> None:
        """Delete all items, to read the tables again."""
        self._indexed = False
        for name in self._names.values():
            self._scratch.run(f"DROP INDEX IF EXISTS {name}_key")
            self._scratch.run(f"DELETE FROM {name}")

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        if not self._has(key.table):
            return super().get(key, attributes)
        query = f"SELECT image FROM {self._names[key.table]} WHERE partition = ? AND sort = ?"
        text = self._scratch.one(query, (key.partition, key.sort or ""))
        return None if text is None else json.loads(text)

    def _has(self, table: str) -> bool:
        return self._indexed or table == LEDGER

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        live = [key for key in keys if not self._has(key.table)]
        copied = {key: image for key in keys if self._has(key.table) and (image := self.get(key)) is not None}
        return {**copied, **(super().get_many(live) if live else {})}

    def query(self, table: str, values: Sequence[Value], **options: Any) -> Page:
        if not self._has(table):
            return super().query(table, values, **options)
        (partition,) = values[0].values()
        prefix, reverse, limit = options.get("prefix") or "", options.get("reverse"), options.get("limit")
        low, high, after = prefix, prefix + _LAST, options.get("after")
        condition = "" if after is None else f"AND sort {'<' if reverse else '>'} ?"
        rows = self._scratch.rows(
            f"SELECT sort, image FROM {self._names[table]} WHERE partition = ? AND sort BETWEEN ? AND ? {condition} "
            f"ORDER BY sort {'DESC' if reverse else ''} LIMIT ?",
            (partition, low, high, *([] if after is None else [after]), -1 if limit is None else limit),
        )
        page = list(rows)
        return Page([json.loads(image) for _, image in page], page[-1][0] if len(page) == limit else None)

    def scan(self, table: str, **options: Any) -> Page:
        query = f"SELECT rowid, image FROM {self._names[table]} WHERE rowid > ? ORDER BY rowid LIMIT ?"
        rows = list(self._scratch.rows(query, (options["after"] or 0, options["limit"])))
        return Page([json.loads(image) for _, image in rows], rows[-1][0] if rows else None)
