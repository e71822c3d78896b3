"""Attempts at changes: the difference that each commits, and which of them share a transaction and which groups.

The difference is one to the prediction of the entry, or to the entry as it was found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from types import MappingProxyType
from typing import Literal

from projections.engine.changes import (
    Change,
    ChangeState,
    Piece,
    Refusal,
    Result,
    difference,
    other_marks,
    unstamped,
    with_marks,
)
from projections.engine.groups import Generations
from projections.engine.ledger_items import Entry, Target, recent_element
from projections.engine.running import UNLIMITED, Deadline
from projections.engine.store import Image, ItemKey
from projections.errors import StoreError
from projections.language.contribution import Contributions, canonical_text
from projections.language.keys import is_range
from projections.language.program import Program

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


class Predictor:
    """Computes the differences to commit, each from the prediction or from the entry as it was found.

    `most_actions` is how many actions of a transaction the ledger may use.
    """

    def __init__(self, program: Program, generations: Generations, most_actions: int) -> None:
        self._program = program
        self._generations = generations
        self.most_actions = most_actions

    def predict(self, attempts: Sequence[Attempt], deadline: Deadline) -> None:
        """Set the difference that each attempt commits. Raises OutOfTime."""
        for attempt in attempts:
            if attempt.known:
                self._generations.learn(attempt.held)
        opened = self._generations.as_now()
        alike: dict[tuple[str, str], Attempt] = {}
        for attempt in deadline.checked(attempts):
            change = attempt.change
            attempt.opened, attempt.most_actions = opened, self.most_actions
            if attempt.known:
                before = attempt.held
                _settle_left(attempt)
            else:
                before = attempt.before = opened.stamped(change.before)
            removed = change.gone and not change.expired
            goal = self._goal(before, change.after.contributions, opened, removed=removed, held=change.held)
            if attempt.known and not change.is_refresh:
                for rule, marks in other_marks(before, change.mark).items():
                    if rule in self._program.rules:
                        goal = {**goal, rule: with_marks(goal.get(rule, {}), marks, change.version)}
            attempt.goal = goal
            attempt.before_text, attempt.text = canonical_text(before), canonical_text(goal)
            other = None if attempt.settle else alike.setdefault((attempt.before_text, attempt.text), attempt)
            if other is None or other is attempt:
                attempt.pieces = difference(before, goal, attempt.settle, change.mark, opened.of)
                attempt.retracted = retracted(before, goal, attempt.settle)
                attempt.actions = 1 + sum([piece.actions for piece in attempt.pieces.values()])
                attempt.counted = frozenset(
                    [(*target, value) for target, piece in attempt.pieces.items() for value in piece.counted]
                )
                attempt.rules = tuple(sorted(before.keys() | goal.keys()))
            else:  # as all likes of one post are
                attempt.pieces, attempt.retracted, attempt.actions = other.pieces, other.retracted, other.actions
                attempt.rules, attempt.counted = other.rules, other.counted
            attempt.size = 500 + 2 * len(attempt.text)
            if change.after.payloads:
                attempt.size += sum(
                    put_size(change, target, member)
                    for target, piece in attempt.pieces.items()
                    for member in piece.puts
                )

    def goal(self, before: Contributions, after: Contributions, removed: bool) -> Contributions:
        """Return the contributions of an entry after a refresh. `removed`: the item was deleted, and did not expire."""
        return self._goal(before, after, self._generations, removed=removed)

    def _goal(
        self,
        before: Contributions,
        after: Contributions,
        opened: Generations,
        *,
        removed: bool,
        held: frozenset[str] = frozenset(),
    ) -> Contributions:
        """Return the contributions that an entry is to have.

        Rules that this program does not have, because they are newer or retired, keep what they contributed, unless the item
        was removed: that means the same to all rules, and no later record would report it to the programs that have them.
        Rules that are `held` keep their part exactly as it is.
        """
        after = opened.stamped(after)
        if not before:
            return after
        kept = {
            rule: targets
            for rule, targets in before.items()
            if rule in held
            or (rule not in self._program.rules and self._program.retired.get(rule) != "remove" and not removed)
        }
        return {**kept, **after} if kept else after


def _settle_left(attempt: Attempt) -> None:
    """Add to `settle` what an earlier expiry left in the entry, of rules that are active by now."""
    if attempt.left:
        attempt.settle = {rule: targets for rule, targets in attempt.settle.items() if rule not in attempt.left}
        attempt.left = frozenset()
    if attempt.entry is not None and attempt.entry.expired:
        before = attempt.entry.contributions
        attempt.left = attempt.change.active & before.keys() - attempt.settle.keys()
        attempt.settle = {**attempt.settle, **{rule: unstamped(before[rule]) for rule in attempt.left}}


def retracted(before: Contributions, after: Contributions, settle: Contributions) -> set[str]:
    """Return the targets that change, and that the entry does not name afterwards, as elements of `recent`.

    Groups of `rank` rules have no publish that could be pending.
    """
    return {
        recent_element((rule, target))
        for contributions in (before, settle)
        for rule, targets in contributions.items()
        for target in targets
        if target not in after.get(rule, {}) and not is_range(target)
    }


def put_size(change: Change, target: Target, member: str) -> int:
    """Return about how many bytes the put of a member takes."""
    payload = change.after.payloads.get((*target, member))
    return len(str(payload)) if payload else 0


class Transaction:
    """Attempts that are committed together, and the groups they share."""

    __slots__ = ("actions", "attempts", "counted", "groups", "size")

    def __init__(self, groups: Iterable[Target] = ()) -> None:
        self.attempts: list[Attempt] = []
        self.groups: set[Target] = set(groups)
        self.counted: set[Counted] = set()
        self.actions = 0
        self.size = 0

    def take(self, attempt: Attempt) -> bool:
        """Add an attempt if there is room. The first always has room.

        Groups and counters that are in already cost no further action.
        """
        shared = len(self.groups.intersection(attempt.pieces))
        if attempt.counted:
            shared += len(self.counted.intersection(attempt.counted))
        actions = self.actions + attempt.actions - shared
        size = self.size + attempt.size
        if self.attempts and (actions > attempt.most_actions or size > MOST_BYTES):
            return False
        self.actions, self.size = actions, size
        self.groups.update(attempt.pieces)
        self.counted.update(attempt.counted)
        self.attempts.append(attempt)
        return True


def pack(attempts: Sequence[Attempt], deadline: Deadline = UNLIMITED) -> list[Transaction]:
    """Pack attempts into few transactions: those with the same targets stand together, the busiest target first."""
    uses = Counter(chain.from_iterable([attempt.pieces for attempt in attempts]))

    def busiest(attempt: Attempt) -> tuple[int, Target]:
        return min([(-uses[target], target) for target in attempt.pieces], default=(0, ("", "")))

    transactions: list[Transaction] = []
    order = sorted((*busiest(attempt), number) for number, attempt in enumerate(deadline.checked(attempts)))
    for attempt in (attempts[number] for *_, number in deadline.checked(order)):
        if not transactions or not transactions[-1].take(attempt):
            transactions.append(Transaction())
            transactions[-1].take(attempt)
    return transactions


def lanes(transactions: Sequence[Transaction], deadline: Deadline = UNLIMITED) -> list[list[Transaction]]:
    """Return lists of transactions that share groups, in their order; different lists share none and may run at once."""
    leaders = list(range(len(transactions)))  # disjoint sets of the transactions that are connected by groups

    def leader(number: int) -> int:
        while leaders[number] != number:
            leaders[number] = number = leaders[leaders[number]]
        return number

    first: dict[Target, int] = {}
    for number, transaction in enumerate(deadline.checked(transactions)):
        for group in transaction.groups:
            one, other = leader(first.setdefault(group, number)), leader(number)
            leaders[max(one, other)] = min(one, other)
    found: dict[int, list[Transaction]] = {}
    for number, transaction in enumerate(transactions):
        found.setdefault(leader(number), []).append(transaction)
    return list(found.values())
