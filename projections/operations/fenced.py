"""A store for operators' processes: it writes only while the rules are active under which the process began.

A lease is an item of the ledger for each running command, so that a change of the active rules can stop it:

    pk   sk            what
    R    lease|<id>    epoch under which the process works; run it belongs to; when it was opened; ttl

A process opens its leases in a transaction that checks the registry's epoch. A change of the active rules deletes them.

Every write to the ledger is a transaction with a condition check on a lease of this process, so none is made after the lease
was closed. Items of the application are never part of a transaction. Before a write to them the lease is read, unless it was
read at most one request of writes and one second ago. If the lease is closed between that read and the write, the write is
still made: at most one request of each thread, and each of its writes only under the condition of its guard. The backfill
that activated the new rules corrects it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import Self
from uuid import uuid4

from projections.engine.ledger_items import LEDGER
from projections.engine.registry import REGISTRY, RegistrySnapshot, Replaced, closing, lease_key
from projections.engine.store import (
    Action,
    AllOf,
    Check,
    Equal,
    Exists,
    Image,
    Missing,
    Purpose,
    Store,
    Update,
    WrappedStore,
    Write,
    answer_to,
)
from projections.errors import ConditionFailed, InvalidRequest, StoreError, TransactionCancelled, Transient

LEASE_SECONDS = 24 * 3600
"""How long a lease is valid. A process that runs longer opens another one."""

RESERVED = 1
"""Actions that each transaction has in addition to those of the engine: the check of the lease."""

_AT_ONCE = 25
"""Writes to application items after one read of the lease: as many as one request has."""

_LEASES = 12
"""Leases opened at once: as many as a backfill of four segments has concurrent requests."""

_FRESH_SECONDS = 1.0
"""How long one read of the lease is valid."""

_RENEW_SECONDS = LEASE_SECONDS / 2
"""The age at which a lease is replaced."""

_CLOSED = (
    "the active rules or their states changed, or another backfill began. This process stopped. Check "
    "`projections status`, then run the same command again"
)


def name_of_lease() -> str:
    """A name that no other lease has. A simulation gives names by its seed instead."""
    return uuid4().hex


class Fenced(WrappedStore):
    """Wraps a store. Writes under leases of the epoch of `snapshot`, which are opened by `open` or when they are needed.

    Each thread has its own lease, because transactions that check the same item would conflict. `run` names the process.
    Once a lease was found closed, every write raises Replaced. Safe for threads.
    """

    def __init__(
        self,
        store: Store,
        snapshot: RegistrySnapshot,
        run: str,
        *,
        clock: Callable[[], float] = time.time,
        named: Callable[[], str] = name_of_lease,
    ) -> None:
        super().__init__(store)
        self.snapshot = snapshot
        self._run = run
        self._clock = clock
        self._named = named
        self._lock = threading.Lock()
        self._opening = threading.Lock()
        self._opened: dict[str, float] = {}
        self._free: list[str] = []
        self._checked = 0.0
        self._unchecked = 0
        self._replaced = False

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception | KeyboardInterrupt):
            self.close()

    def open(self) -> None:
        """Open leases for some threads at once, if there are none: threads that each open one may conflict."""
        if self._opening.acquire(blocking=False):  # without a wait: in a simulation no other thread would run
            try:
                if not self._opened:
                    with suppress(Transient):  # they are opened when they are needed
                        self._open(_LEASES)
            finally:
                self._opening.release()

    def close(self) -> None:
        """Delete the leases. Those that cannot be deleted expire."""
        with self._lock:
            names, self._opened, self._free = list(self._opened), {}, []
        for name in names:
            with suppress(Transient):
                self._store.write(closing(name))

    # Writes

    def write(self, write: Write) -> Image | None:
        if write.key.table != LEDGER:
            if write.purpose.kind != "restore":  # attributes that a deletion removed are put back in any case
                self._check_lease(1)
            return self._store.write(write)
        try:
            self.transact([write])
        except TransactionCancelled as cancelled:
            raise _single(cancelled) from cancelled
        return None

    def transact(self, writes: Sequence[Action]) -> None:
        with self._lease() as lease:
            try:
                self._store.transact([*writes, Check(lease_key(lease), Exists(("pk",)))])
            except TransactionCancelled as cancelled:
                last = cancelled.reasons[-1] if len(cancelled.reasons) > len(writes) else None
                if last is not None and last.kind == "condition":
                    raise self._stop() from cancelled
                raise

    def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
        answers: list[StoreError | None] = []
        for start in range(0, len(writes), _AT_ONCE):
            batch = writes[start : start + _AT_ONCE]
            if any(write.key.table == LEDGER for write in batch):
                answers += [answer_to(self.write, write) for write in batch]
            else:
                self._check_lease(len(batch))
                answers += self._store.write_each(batch)
        return answers

    # Leases

    def _check_lease(self, writes: int) -> None:
        """Check that the lease is open, before so many writes to application items."""
        now = self._clock()
        with self._lock:
            if self._replaced:
                raise Replaced(_CLOSED)
            if self._unchecked + writes <= _AT_ONCE and now - self._checked < _FRESH_SECONDS and self._opened:
                self._unchecked += writes
                return
        with self._lease() as lease:
            if self._store.get(lease_key(lease), ("epoch",)) is None:
                raise self._stop()
        with self._lock:
            self._checked, self._unchecked = now, writes

    @contextmanager
    def _lease(self) -> Iterator[str]:
        """Take a lease that no other thread uses."""
        lease = self._take()
        while lease is None:
            self._open(1)
            lease = self._take()
        try:
            yield lease
        finally:
            with self._lock:
                if lease in self._opened:
                    self._free.append(lease)

    def _take(self) -> str | None:
        with self._lock:
            if self._replaced:
                raise Replaced(_CLOSED)
            while self._free:
                lease = self._free.pop()
                if self._clock() - self._opened[lease] < _RENEW_SECONDS:
                    return lease
                del self._opened[lease]  # it expires, and DynamoDB deletes it
        return None

    def _open(self, number: int) -> None:
        """Open leases, if the registry has not changed since the process began."""
        now, snapshot = self._clock(), self.snapshot
        names = [self._named() for _ in range(number)]
        in_force = AllOf((Equal(("epoch",), {"N": str(snapshot.epoch)}), Equal(("program",), {"S": snapshot.program})))
        actions: list[Action] = [Check(REGISTRY, in_force)]
        actions += [_opening(name, epoch=snapshot.epoch, run=self._run, now=now) for name in names]
        try:
            self._store.transact(actions)
        except TransactionCancelled as cancelled:
            first = cancelled.reasons[0]
            if first is not None and first.kind == "condition":
                raise self._stop() from cancelled
            raise Transient(f"a lease could not be opened: {cancelled}") from cancelled
        with self._lock:
            self._opened.update(dict.fromkeys(names, now))
            self._free += names

    def _stop(self) -> Replaced:
        with self._lock:
            self._replaced = True
        return Replaced(_CLOSED)


def _single(cancelled: TransactionCancelled) -> StoreError:
    """Return the error of a cancelled transaction with one write, as a single write would raise it."""
    reason = cancelled.reasons[0]
    if reason is None or reason.kind in ("conflict", "throttled"):
        return Transient(str(cancelled))
    if reason.kind == "condition":
        return ConditionFailed(reason.item)
    return InvalidRequest(reason.message)


def _opening(name: str, *, epoch: int, run: str, now: float) -> Update:
    """Return the write that opens a lease. `now` is in seconds since 1970."""
    return Update(
        lease_key(name),
        set={
            "epoch": {"N": str(epoch)},
            "run": {"S": run},
            "at": {"N": str(int(now))},
            "ttl": {"N": str(int(now) + LEASE_SECONDS)},
        },
        condition=Missing(("pk",)),
        purpose=Purpose("lease"),
    )
