"""Parallel scans, and their facts in a temporary file: what a comparison needs of the items. They grow with the tables.

Reads are repeated while they are throttled.
"""

from __future__ import annotations

import itertools
import json
import math
import sqlite3
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from decimal import Decimal
from functools import lru_cache, partial
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self, TypeVar

from projections.engine.running import Deadline
from projections.engine.store import Image, Store

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


class Scanner:
    """Scans tables in `threads` segments at once. `report` hears of every page: the table, and how many items it had."""

    def __init__(
        self,
        store: Store,
        *,
        threads: int = 4,
        report: Callable[[str, int], None] = lambda table, items: None,
        sleep: Callable[[float], None] = time.sleep,
        page: int = PAGE,
    ) -> None:
        self._store = store
        self._threads = threads
        self._report = report
        self._sleep = sleep
        self._page = page

    def whole(self, tables: Sequence[tuple[str, Each]]) -> None:
        """Scans tables, calling for every page, from several threads. Raises what a page raises."""
        self.segments([Segment(name, n, self._threads, each) for name, each in tables for n in range(self._threads)])

    def segments(self, wanted: Sequence[Segment]) -> None:
        """Scans these segments."""
        stop = threading.Event()
        if self._threads == 1:
            for segment in wanted:
                self._segment(segment, stop)
            return
        with ThreadPoolExecutor(self._threads) as pool:
            futures = [pool.submit(self._segment, segment, stop) for segment in wanted]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                stop.set()
                raise

    def _segment(self, segment: Segment, stop: threading.Event) -> None:
        after = None
        while not stop.is_set():
            read = partial(
                self._store.scan,
                segment.table,
                segment=segment.number,
                segments=segment.of,
                limit=self._page,
                after=after,
            )
            page = patiently(read, self._sleep)
            segment.each(page.items)
            self._report(segment.table, len(page.items))
            after = page.after
            if after is None:
                return


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


Residues = tuple[int, int]

_P, _Q = 2_147_483_629, 2_147_483_587
"""Primes below 2³¹: SQLite's 64 bits can hold the sum of 2³² residues."""


_encode = json.JSONEncoder(ensure_ascii=False, check_circular=False).encode


def digest(text: str) -> Residues:
    """Return the residues of a text's hash."""
    number = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return number % _P, (number >> 31) % _Q


def residues(slot: Residues, amount: int | str) -> Residues:
    """Return the residues of an amount (a decimal number as text, or an integer) of something that has residues itself."""
    try:
        whole = int(amount)
    except ValueError:
        sign, digits, exponent = Decimal(amount).as_tuple()
        assert isinstance(exponent, int)
        number = int("".join(map(str, digits))) * (-1 if sign else 1)
        return number * pow(10, exponent, _P) * slot[0] % _P, number * pow(10, exponent, _Q) * slot[1] % _Q
    return whole * slot[0] % _P, whole * slot[1] % _Q


@lru_cache(maxsize=4096)
def slot_residues(generation: int, slot: str) -> Residues:
    """Return the residues of a slot of a group."""
    return digest(f"{generation}|{slot}")


def account_of(text: str) -> int:
    """Return the number of an account by its name."""
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)


class Page:
    """The facts of one page of a scan: summed as far as possible, then stored at once."""

    __slots__ = ("postings", "views")

    def __init__(self) -> None:
        self.postings: dict[tuple[str, str], Residues] = {}
        """By account and subject: all subjects of an account are examined, such as two sources of one copy."""
        self.views: list[tuple[str, int, str, str]] = []

    def post(self, account: str, subject: str, amount: Residues, sign: int) -> None:
        """Post to an account, under the text of a subject that is examined if the account is not zero."""
        a, b = self.postings.get((account, subject), (0, 0))
        self.postings[account, subject] = a + sign * amount[0], b + sign * amount[1]

    def view(self, account: str, role: int, subject: str, content: Any) -> None:
        """Add a row to a view. Rows of an account are sorted by role."""
        self.views.append((account, role, subject, _encode(content)))


class Facts:
    """The facts of one pass through the tables."""

    def __init__(self, scratch: Scratch) -> None:
        self._scratch = scratch
        scratch.run("CREATE TABLE posting (account INTEGER, a INTEGER, b INTEGER, subject TEXT)")
        scratch.run("CREATE TABLE sight (account INTEGER, role INTEGER, subject TEXT, content TEXT)")

    def keep(self, page: Page) -> None:
        """Store the facts of a page."""
        if page.postings:
            self._scratch.fill(
                "INSERT INTO posting VALUES (?, ?, ?, ?)",
                [
                    (account_of(account), a % _P, b % _Q, subject)
                    for (account, subject), (a, b) in page.postings.items()
                ],
            )
        if page.views:
            self._scratch.fill(
                "INSERT INTO sight VALUES (?, ?, ?, ?)",
                [(account_of(account), role, subject, content) for account, role, subject, content in page.views],
            )

    def unbalanced(self) -> Iterator[list[str]]:
        """Yield the accounts that are not zero: for each, the texts of the subjects that posted to it."""
        self._scratch.run("CREATE TEMP TABLE unbalanced (account INTEGER PRIMARY KEY)")
        self._scratch.run(
            "INSERT INTO unbalanced SELECT account FROM posting GROUP BY account "
            f"HAVING sum(a) % {_P} <> 0 OR sum(b) % {_Q} <> 0"
        )
        if self._scratch.one("SELECT 1 FROM unbalanced LIMIT 1"):
            query = (
                "SELECT DISTINCT account, subject FROM posting WHERE account IN (SELECT account FROM unbalanced) "
                "ORDER BY account"
            )
            for _, rows in itertools.groupby(self._scratch.rows(query), key=lambda row: row[0]):
                yield [subject for _, subject in rows]
        self._scratch.run("DROP TABLE unbalanced")

    def views(self) -> Iterator[Iterator[tuple[int, str, Any]]]:
        """Yield the rows (role, subject, content) of each account by role. Read them before those of the next account."""
        query = "SELECT account, role, subject, content FROM sight ORDER BY account, role"
        for _, rows in itertools.groupby(self._scratch.rows(query), key=lambda row: row[0]):
            yield ((role, subject, json.loads(content)) for _, role, subject, content in rows)

    def clear(self) -> None:
        """Delete all facts."""
        self._scratch.run("DELETE FROM posting")
        self._scratch.run("DELETE FROM sight")
