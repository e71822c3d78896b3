"""Leases: one item of the ledger for each running command, so that a change of the active rules can stop it.

    pk   sk            what
    R    lease|<id>    epoch under which the process works; run it belongs to; when it was opened; ttl

A process opens its leases in a transaction that checks the registry's epoch. Each of its transactions on the ledger carries
a condition check on one of them. A change of the active rules deletes the leases, so that these transactions fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from uuid import uuid4

from projections.engine.ledger_items import LEDGER
from projections.engine.store import Check, Delete, Exists, Image, ItemKey, Missing, Purpose, Store, Update, all_items

__all__ = ["LEASE_SECONDS", "close_leases", "closing", "held", "lease_key", "name_of_lease", "opening"]

LEASE_SECONDS = 24 * 3600
"""How long a lease is valid. A process that runs longer opens another one."""

_PREFIX = "lease|"
_WHY = Purpose("lease")


def name_of_lease() -> str:
    """A name that no other lease has. A simulation gives names by its seed instead."""
    return uuid4().hex


def lease_key(name: str) -> ItemKey:
    """Return the key of a lease."""
    return ItemKey(LEDGER, "R", f"{_PREFIX}{name}")


def opening(name: str, *, epoch: int, run: str, now: float) -> Update:
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
        purpose=_WHY,
    )


def closing(name: str) -> Delete:
    """Return the write that closes a lease."""
    return Delete(lease_key(name), purpose=_WHY)


def held(name: str) -> Check:
    """Return the check that a lease is open."""
    return Check(lease_key(name), Exists(("pk",)))


def close_leases(
    store: Store, *, before_epoch: int | None = None, run: str | None = None, opened_before: float | None = None
) -> None:
    """Delete all leases, or only those of an older epoch, of one run, or opened before a time.

    With several arguments, a lease that meets any of them is deleted. Raises Transient and Misconfigured.
    """
    everything = before_epoch is None and run is None and opened_before is None
    for item in _leases(store):
        if (
            everything
            or (before_epoch is not None and int(Decimal(item["epoch"]["N"])) < before_epoch)
            or (run is not None and item["run"]["S"] == run)
            or (opened_before is not None and int(Decimal(item["at"]["N"])) < opened_before)
        ):
            store.write(closing(item["sk"]["S"].removeprefix(_PREFIX)))


def _leases(store: Store) -> Iterator[Image]:
    return all_items(partial(store.query, LEDGER, [{"S": "R"}], prefix=_PREFIX))
