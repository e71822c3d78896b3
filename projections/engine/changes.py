"""Changes that the ledger commits, and their results."""

from __future__ import annotations

from collections.abc import Set
from typing import Literal, NamedTuple

from projections.engine.ledger_items import Entry, Target
from projections.engine.store import Records
from projections.errors import StoreError
from projections.language.contribution import Contributions, Evaluated

__all__ = ["Change", "ChangeState", "Refusal", "Result", "targets_of"]

ChangeState = Literal["applied", "duplicate", "moved", "deferred", "failed"]
"""The result of a change. Duplicate: the entry is as new as the change. Moved: the entry of a refresh is not as it was
read, and nothing was done. Deferred: it exceeds a budget, and is left to a refresh. Failed: not done, and `error` has the
reason."""

_NOTHING: Contributions = {}


class Change(NamedTuple):
    """The contributions of one source item before and after some records, as of a version.

    `version` is empty for a refresh: it leaves the entry's version as it is, and is made from an entry that was read before
    the source item was (`entry`; None if there was none). For other changes the entry is not known yet, and `before`
    predicts it from the old image.
    """

    source: str
    version: str
    before: Contributions
    after: Evaluated
    entry: Entry | None = None
    touched: Set[Target] = frozenset()
    """All targets that the item contributed to at some time within the records."""
    sequences: Records = ()
    """The sequence numbers of the records, in order."""
    gone: bool = False
    expired: bool = False
    """Whether any of the records reports an expiry; of a refresh, whether the item may have expired if it is gone."""
    expiry: str = ""
    """The version of the expiry that is settled, or left for later. The entry remembers it."""
    settle: Contributions = _NOTHING
    """The contributions that the expiry settles: they leave the entry and stay counted."""
    held: frozenset[str] = frozenset()
    """Rules that keep what has expired and are not active: of an expiry, their part of the entry stays as it was found."""
    active: frozenset[str] = frozenset()
    """Rules that keep what has expired and settle it, and what an expiry left in the entry before they were active."""
    learned: str = ""
    """Of a refresh: the version of the newest record that it took into account, if it knows one."""

    @property
    def is_refresh(self) -> bool:
        return not self.version

    def followed_by(self, later: Change) -> Change:
        """Return this change and a later one of the same item as one. None of them settles an expiry, or leaves it."""
        return later._replace(
            before=self.before,
            touched=self.touched | later.touched,
            sequences=self.sequences + later.sequences,
            expired=self.expired or later.expired,
        )

    @property
    def mark(self) -> str:
        """Return the mark in the entry that shows that a part of `settle` is done."""
        return self.expiry or self.version or "-"


class Refusal(NamedTuple):
    """A rule whose contribution the ledger cannot hold.

    `target` is the target whose group cannot hold it; None if the item is the cause.
    """

    rule: str
    reason: str
    target: str | None = None


class Result(NamedTuple):
    """The result of a change.

    `touched` are the targets to be published. `may_have_pending` is whether the entry may have pending publishes, or has no
    contribution left and should expire.
    """

    change: Change
    state: ChangeState
    touched: Set[Target]
    may_have_pending: bool
    refused: tuple[Refusal, ...] = ()
    error: StoreError | None = None


def targets_of(contributions: Contributions) -> set[Target]:
    """Return the targets that are contributed to."""
    return {(rule, target) for rule, targets in contributions.items() for target in targets}
