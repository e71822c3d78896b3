"""Attempts at changes: the entry as far as it is known, and the difference to commit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from types import MappingProxyType
from typing import Literal

from projections.engine.changes import Change, ChangeState, Refusal, Result
from projections.engine.delta import Piece
from projections.engine.groups import Generations
from projections.engine.ledger_items import Entry, Target
from projections.engine.store import Image, ItemKey
from projections.errors import StoreError
from projections.language.contribution import Contributions

__all__ = ["MOST_ACTIONS", "MOST_BYTES", "Attempt", "Counted", "fail"]

Counted = tuple[str, str, str]
"""A rule's name, an encoded target key, and a value as contributions have it."""

MOST_ACTIONS = 100
"""Actions of a transaction (a limit of DynamoDB)."""

MOST_BYTES = 3_500_000
"""DynamoDB takes 4 MB a transaction; ours are estimated, so they stay well below."""


class Attempt:
    """A change while it is being committed.

    `entry` is the entry as it was found; until it is `known`, `before` is a prediction of its contributions. `pieces`,
    `goal` and `retracted` are the difference to commit, as of the generations `opened`: what is written must be about these.
    """

    refused: Mapping[str, str] = MappingProxyType({})
    """Rules whose contribution the ledger cannot hold, with the reason, in the order of their names."""
    culprits: Mapping[str, str] = MappingProxyType({})
    """For some of these rules, the targets whose groups cannot take the contribution."""
    not_extreme: Set[ItemKey] = frozenset()
    """Extremes that were found not to be exceeded: they are not written."""
    left: frozenset[str] = frozenset()
    """Rules in `settle` because of an earlier expiry, which left their part in the entry."""
    opened = Generations()
    before_text = "{}"
    text = "{}"
    """The goal as the entry will have it."""
    rules: tuple[str, ...] = ()
    """The rules that the item contributes to, before or after, in the order of their names."""
    retracted: Set[str] = frozenset()
    """Targets that change and that the entry does not name afterwards, as elements of `recent`."""
    pieces: Mapping[Target, Piece] = MappingProxyType({})
    counted: Set[Counted] = frozenset()
    """The values whose counters change."""
    actions = 1
    """Actions of a transaction that the pieces take."""
    most_actions = MOST_ACTIONS
    """Actions that a transaction takes."""
    size = 0
    """About how many bytes of a transaction the pieces take."""
    state: Literal["pending"] | ChangeState = "pending"
    error: StoreError | None = None

    # The values above are initial ones: an attempt assigns its own, and never changes them in place.

    def __init__(self, change: Change) -> None:
        self.change = change
        self.entry = change.entry
        self.known = change.is_refresh
        self.touched = change.touched
        self.settle = change.settle
        self.before = change.before
        self.goal: Contributions = {}

    @property
    def held(self) -> Contributions:
        """Return the contributions of the entry, as far as it is known."""
        return self.entry.contributions if self.entry is not None else {}

    @property
    def fits(self) -> bool:
        """Whether one transaction is enough."""
        return self.actions <= self.most_actions and self.size <= MOST_BYTES

    def found(self, item: Image | None) -> bool:
        """Record the entry as it is. Return whether it is as new as the change, which is a duplicate then.

        What was refused then is reported again: the invocation that committed it may have ended before it reported that.
        """
        self.known = True
        self.entry = entry = Entry.read(item) if item else None
        if entry is None:
            return False
        self.touched = self.touched | entry.targets
        if self.change.is_refresh or entry.version < self.change.version:
            return False
        self.state = "duplicate"
        if entry.version == self.change.version:
            self.refused = dict(sorted(entry.refused.items()))
        return True

    def refusals(self) -> tuple[Refusal, ...]:
        """Return the rules whose contribution the ledger cannot hold."""
        return tuple([Refusal(rule, reason, self.culprits.get(rule)) for rule, reason in self.refused.items()])

    def result(self) -> Result:
        """Return the result of the change."""
        assert self.state != "pending"
        entry = self.entry
        return Result(
            self.change,
            self.state,
            self.touched,
            bool(self.retracted or not self.goal or (entry is not None and entry.recent)),
            self.refusals() if self.refused else (),
            self.error,
        )


def fail(attempts: Iterable[Attempt], error: StoreError) -> None:
    """End the attempts that are pending."""
    for attempt in attempts:
        if attempt.state == "pending":
            attempt.state, attempt.error = "failed", error
