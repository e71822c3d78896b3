"""Which attempts share a transaction, and which transactions share groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from projections.engine.attempts import MOST_BYTES, Attempt, Counted
from projections.engine.deadline import UNLIMITED, Deadline
from projections.engine.ledger_items import Target

__all__ = ["Transaction", "lanes", "pack"]


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
