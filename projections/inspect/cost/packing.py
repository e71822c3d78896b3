"""How many transactions the changes of a batch take, and how often each group is written: asked of the engine's packing.

A batch with a broken number of changes (2.4 on average) costs what the whole ones cost, and the marginal cost of one more
for the rest: exact for whole numbers, the expectation to first order between them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from projections.engine import packing
from projections.engine.attempts import MOST_ACTIONS, Attempt
from projections.engine.changes import Change
from projections.engine.delta import Piece
from projections.language.contribution import Evaluated

__all__ = ["Packed", "Pieces", "Shape", "pack"]


@dataclass(frozen=True, slots=True)
class Pieces:
    """What one change does under one rule: to how many targets, out of how many different ones in a batch (None: each
    has its own), with how many members put and removed at each. `twice` says that it leaves as many old ones.
    """

    rule: str
    targets: int
    different: int | None
    puts: int = 0
    removes: int = 0
    member_bytes: int = 0
    twice: bool = False


@dataclass(frozen=True, slots=True)
class Shape:
    """Changes that are alike: of one kind of source, under the same rules. `name` sets them apart from others."""

    name: str
    pieces: tuple[Pieces, ...]
    entry_bytes: int


@dataclass(slots=True)
class Packed:
    """Per batch: transactions, the longest row of them that must follow one another, actions, entries written, writes of
    groups by rule, different targets by rule, member writes by rule, and changes that each take several transactions.
    """

    transactions: float = 0.0
    row: float = 0.0
    actions: float = 0.0
    entries: float = 0.0
    groups: Counter[str] = field(default_factory=Counter)
    targets: Counter[str] = field(default_factory=Counter)
    members: Counter[str] = field(default_factory=Counter)

    def add(self, other: Packed, times: float = 1.0) -> None:
        self.transactions += times * other.transactions
        self.row += times * other.row
        self.actions += times * other.actions
        self.entries += times * other.entries
        for mine, theirs in ((self.groups, other.groups), (self.targets, other.targets), (self.members, other.members)):
            for rule, number in theirs.items():
                mine[rule] += times * number  # type: ignore[assignment]


def pack(counts: Mapping[Shape, float]) -> Packed:
    """The transactions for so many changes of each shape."""
    whole = {shape: math.floor(count + 1e-9) for shape, count in counts.items()}
    result = Packed()
    base = _whole(whole)
    result.add(base)
    for shape, count in counts.items():
        part = count - whole[shape]
        if part > 1e-9:
            more = _whole({**whole, shape: whole[shape] + 1})
            result.add(more, part)
            result.add(base, -part)
    return result


def _whole(counts: Mapping[Shape, int]) -> Packed:
    changes: list[Attempt] = []
    packed = Packed()
    for shape, count in counts.items():
        for number in range(count):
            change = _change(shape, number)
            packed.entries += 1
            for (rule, _), piece in change.pieces.items():
                packed.members[rule] += len(piece.puts) + len(piece.removes)
            if change.fits:
                changes.append(change)
                continue
            # several transactions, each of which writes the entry
            steps = math.ceil((change.actions - 1) / (MOST_ACTIONS - 1))
            packed.transactions += steps
            packed.row = max(packed.row, steps)
            packed.entries += steps - 1
            packed.actions += change.actions + steps - 1
            packed.groups.update(rule for rule, _ in change.pieces)
            packed.targets.update(rule for rule, _ in change.pieces)
    transactions = packing.pack(changes)
    packed.transactions += len(transactions)
    packed.row = max([packed.row, *(float(len(lane)) for lane in packing.lanes(transactions))], default=0.0)
    for transaction in transactions:
        packed.actions += transaction.actions
        packed.groups.update(rule for rule, _ in sorted(transaction.groups))
    packed.targets.update(rule for rule, _ in dict.fromkeys(target for change in changes for target in change.pieces))
    return packed


def _change(shape: Shape, number: int) -> Attempt:
    """An attempt as the ledger has it once its entry is predicted; what it contributes does not matter for packing."""
    change = Attempt(Change(f"{shape.name} {number}", "1", {}, Evaluated({})))
    for pieces in shape.pieces:
        for position in range(pieces.targets * (2 if pieces.twice else 1)):
            place = number * pieces.targets * (2 if pieces.twice else 1) + position
            target = f"{place}" if pieces.different is None else f"of all {place % pieces.different}"
            owner = f"{shape.name} " if pieces.different is None else ""
            leaves = pieces.twice and position % 2 == 1
            change.pieces[pieces.rule, owner + target] = Piece(
                puts=[] if leaves else [str(n) for n in range(pieces.puts)],
                removes=[str(n) for n in range(pieces.puts if leaves else pieces.removes)],
            )
    change.actions = 1 + sum(piece.actions for piece in change.pieces.values())
    carried = sum(
        len(piece.puts) * p.member_bytes for p in shape.pieces for (r, _), piece in change.pieces.items() if r == p.rule
    )
    change.size = 500 + 2 * shape.entry_bytes + carried
    return change
