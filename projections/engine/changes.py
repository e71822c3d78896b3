"""Changes that the ledger commits, and the difference between two contributions of a source, by target."""

from __future__ import annotations

import copy
import decimal
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from projections.engine.ledger_items import Entry, Target, recent_element
from projections.engine.store import Records
from projections.errors import StoreError
from projections.language.contribution import Contributed, Contributions, Evaluated
from projections.language.keys import is_range

ChangeState = Literal["applied", "duplicate", "moved", "full", "deferred", "failed"]
"""The result of a change. Duplicate: the entry is as new as the change. Moved: the entry of a refresh is not as it was
read, and nothing was done. Full: the entry has no room for it beside its pending publishes. Deferred: it exceeds a budget,
and is left to a refresh. Failed: not done, and `error` has the reason."""

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

    def put_size(self, target: Target, member: str) -> int:
        """Return about how many bytes the put of a member takes."""
        payload = self.after.payloads.get((*target, member))
        return len(str(payload)) if payload else 0


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
    entry: Entry | None = None
    """The entry, as far as it is known."""


def targets_of(contributions: Contributions) -> set[Target]:
    """Return the targets that are contributed to."""
    return {(rule, target) for rule, targets in contributions.items() for target in targets}


def retracted_targets(before: Contributions, after: Contributions, settle: Contributions) -> set[str]:
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


WIDE = decimal.Context(prec=600)
"""Sums and differences are exact here; what DynamoDB cannot hold it refuses, rather than we round it."""

SETTLED = "~"
"""The first character of slots with settled amounts. As a slot of its own it holds the marks of expiries that have settled
their part for this target but are not complete: their versions, separated by spaces.
"""

GENERATION = "g"
"""In an entry: the generation of the group in which a contribution is counted; absent for the first, 0."""

_NONE: Contributed = {}

_MOST_OWED = 50_000
"""Bytes of targets that one step may retract from: the entry names them until they are published."""


@dataclass(slots=True)
class Piece:
    """The changes for one target: amounts to add by slot, members to put and to remove, extremes to settle."""

    amounts: dict[str, Decimal] = field(default_factory=dict)
    puts: list[str] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)
    settled: list[str] = field(default_factory=list)
    """Members whose value may become the least or greatest of what has settled."""
    counted: dict[str, int] = field(default_factory=dict)
    """By value, as contributions have it: what is added to its counter, 0 if it only settles."""
    kept: dict[str, int] = field(default_factory=dict)
    """By value: how much of its counter settles."""

    @property
    def actions(self) -> int:
        """Return the most actions of a transaction that it takes, including the group's."""
        return 1 + len(self.puts) + len(self.removes) + 2 * len(self.settled) + len(self.counted)

    def count(self, value: str, number: int) -> None:
        self.counted[value] = self.counted.get(value, 0) + number

    def add(self, slot: str, amount: Decimal) -> None:
        total = WIDE.add(self.amounts.get(slot, Decimal(0)), amount)
        if total:
            self.amounts[slot] = total
        else:
            self.amounts.pop(slot, None)


def difference(
    before: Contributions,
    after: Contributions,
    settle: Contributions | None = None,
    settling: str = "",
    generation: Callable[[Target], int] = lambda target: 0,
) -> dict[Target, Piece]:
    """Return the changes by target. Targets whose contribution does not change are left out.

    `settle` holds contributions to be added to what has settled, unless `before` has the mark `settling`.
    `generation` gives the open generation of a group: what was contributed to an earlier one is not counted in it.
    """
    pieces: dict[Target, Piece] = {}
    for rule in sorted(before.keys() | after.keys()):
        olds, news = before.get(rule, {}), after.get(rule, {})
        if olds == news:
            continue
        for target in sorted(olds.keys() | news.keys()):
            old, new = olds.get(target, _NONE), news.get(target, _NONE)
            if old != new and _unmark(old) != _unmark(new):
                counted = old if generation_of(old) == generation((rule, target)) else _NONE
                pieces[rule, target] = _piece(counted, new)
    for rule, targets in (settle or {}).items():
        for target, contributed in targets.items():
            if settling in before.get(rule, {}).get(target, _NONE).get(SETTLED, "").split():
                continue
            piece = pieces.setdefault((rule, target), Piece())
            for slot, amount in contributed.items():
                if slot == "+":
                    piece.settled = sorted(amount)
                elif slot == "%":
                    piece.kept = dict(sorted(amount.items()))
                    for value, number in piece.kept.items():
                        piece.count(value, number)
                else:
                    piece.add(SETTLED + slot, Decimal(amount))
    return pieces


def generation_of(contributed: Contributed) -> int:
    """Return the generation of its group in which a contribution is counted."""
    generation: int = contributed.get(GENERATION, 0)
    return generation


def _piece(old: Contributed, new: Contributed) -> Piece:
    piece = Piece()
    for slot in sorted(old.keys() | new.keys()):
        if slot == "+":
            had, has = old.get("+", _NONE), new.get("+", _NONE)
            piece.puts = sorted(member for member, held in has.items() if had.get(member) != held)
            piece.removes = sorted(had.keys() - has.keys())
        elif slot == "%":
            had, has = old.get("%", _NONE), new.get("%", _NONE)
            changes = {value: has.get(value, 0) - had.get(value, 0) for value in sorted(had.keys() | has.keys())}
            piece.counted = {value: number for value, number in changes.items() if number}
        elif slot != SETTLED and slot != GENERATION:
            amount = WIDE.subtract(Decimal(new.get(slot, 0)), Decimal(old.get(slot, 0)))
            if amount:
                piece.amounts[slot] = amount
    return piece


def without_marks(targets: Mapping[str, Contributed]) -> dict[str, Contributed]:
    """Return the contributions of one rule without the marks of expiries."""
    return {target: plain for target, contributed in targets.items() if (plain := _unmark(contributed))}


def without_stamps(targets: Mapping[str, Contributed]) -> dict[str, Contributed]:
    """Return the contributions of one rule without marks and generations."""
    return {
        target: {slot: amount for slot, amount in contributed.items() if slot != GENERATION}
        for target, contributed in without_marks(targets).items()
    }


def other_marks(contributions: Contributions, settling: str) -> Contributions:
    """Return only the marks of expiries that are not complete, except `settling`."""
    only_marks: Contributions = {}
    for rule, targets in contributions.items():
        for target, contributed in targets.items():
            others = [mark for mark in contributed.get(SETTLED, "").split() if mark != settling]
            if others:
                only_marks.setdefault(rule, {})[target] = {SETTLED: " ".join(others)}
    return only_marks


def with_marks(
    goal: Mapping[str, Contributed], marks: Mapping[str, Contributed], version: str
) -> dict[str, Contributed]:
    """Return the contributions that one rule is to have as of a version, with the marks that stay.

    A contribution that an expiry settled later than the version is left out: an older record must not count it again.
    """
    kept = {
        target: marked if max(marked[SETTLED].split()) > version else {**goal.get(target, _NONE), **marked}
        for target, marked in marks.items()
    }
    return {**goal, **kept}


def with_mark(contributed: Contributed, settling: str) -> Contributed:
    """Return the contribution to one target with a mark."""
    marks = {*contributed.get(SETTLED, "").split(), settling}
    return {**contributed, SETTLED: " ".join(sorted(marks))}


def without_mark(contributions: Contributions, settling: str) -> Contributions:
    """Return contributions without the marks of one expiry."""
    stripped: Contributions = {}
    for rule, targets in contributions.items():
        for target, contributed in targets.items():
            marks = contributed.get(SETTLED, "").split()
            if settling in marks:
                marks.remove(settling)
                contributed = {**contributed, SETTLED: " ".join(marks)} if marks else _unmark(contributed)
            if contributed:
                stripped.setdefault(rule, {})[target] = contributed
    return stripped


def _unmark(contributed: Contributed) -> Contributed:
    if SETTLED not in contributed:
        return contributed
    amounts = {slot: amount for slot, amount in contributed.items() if slot != SETTLED}
    return {} if amounts.keys() == {GENERATION} else amounts


class Load(NamedTuple):
    """The room of one transaction beside the entry: actions, bytes, and how many bytes the put of a member takes."""

    actions: int
    bytes: int
    weigh: Callable[[Target, str], int]


def intermediate_goals(
    before: Contributions,
    after: Contributions,
    load: Load,
    settle: Contributions | None = None,
    settling: str = "",
    generation: Callable[[Target], int] = lambda target: 0,
) -> Iterator[tuple[Contributions, Contributions]]:
    """Yield contributions on the way from `before` to `after`, each with its part of `settle`, within the limits of `load`.

    Each is a true entry: the groups hold exactly these contributions. A target that settles in a step other than the last
    keeps the mark `settling`, so that a repetition does not settle it again. Parts that shrink come first, so that no step
    needs more room than the larger of `before` and `after`.
    """
    current: Contributions = copy.deepcopy(before)
    settled: Contributions = {}
    used = weight = owed = 0

    def growth(changed: tuple[Target, Piece]) -> tuple[int, Target]:
        rule, target = changed[0]
        return _length(target, after.get(rule)) - _length(target, before.get(rule)), (rule, target)

    for (rule, target), piece in sorted(difference(before, after, settle, settling, generation).items(), key=growth):
        settles = (settle or {}).get(rule, {}).get(target)
        goal: dict[str, Any] = after.get(rule, {}).get(target, _NONE)
        if settles is not None:
            goal = with_mark(goal, settling)
        chunks = _chunks(piece, (rule, target), load)
        for number, (chunk, heavy) in enumerate(chunks, 1):
            last = number == len(chunks)
            cost = 1 + len(chunk) + (2 * len(piece.settled) + len(piece.kept) if last else 0)
            owes = len(f"{rule}|{target}".encode()) if last and not goal else 0
            if used and (used + cost > load.actions or weight + heavy > load.bytes or owed + owes > _MOST_OWED):
                yield copy.deepcopy(current), settled
                settled, used, weight, owed = {}, 0, 0, 0
            used, weight, owed = used + cost, weight + heavy, owed + owes
            if last:
                current.setdefault(rule, {})[target] = copy.deepcopy(goal)
                if settles is not None:
                    settled.setdefault(rule, {})[target] = settles
            else:
                now = current.setdefault(rule, {}).setdefault(target, {})
                opened = generation((rule, target))
                if generation_of(now) != opened:  # nothing of it is in the group as rebuilt
                    now.clear()
                    now[GENERATION] = opened
                for slot, member in chunk:
                    held = now.setdefault(slot, {})
                    if member in goal.get(slot, _NONE):
                        held[member] = goal[slot][member]
                    else:
                        held.pop(member, None)
                    if not held:
                        del now[slot]
        if not current[rule][target]:
            del current[rule][target]
            if not current[rule]:
                del current[rule]
    yield after, settled


def _length(target: str, targets: Mapping[str, Contributed] | None) -> int:
    """Return about how many characters one target's part of an entry has."""
    return len(target) + len(str(targets[target])) if targets and target in targets else 0


def _chunks(piece: Piece, target: Target, load: Load) -> list[tuple[list[tuple[str, str]], int]]:
    """Return the members and values that a piece changes, in parts that one transaction holds, with the bytes of each part.

    Each has its slot in contributions, `+` or `%`. What settles is not in a part: it belongs to the last.
    """
    room = load.actions - 1 - 2 * len(piece.settled) - len(piece.kept)
    chunks: list[tuple[list[tuple[str, str]], int]] = [([], 0)]
    puts = set(piece.puts)
    values = [("%", value) for value in piece.counted if value not in piece.kept]
    for slot, member in [*(("+", member) for member in (*piece.removes, *piece.puts)), *values]:
        heavy = load.weigh(target, member) if slot == "+" and member in puts else 0
        chunk, weight = chunks[-1]
        if chunk and (len(chunk) >= room or weight + heavy > load.bytes):
            chunks.append(([(slot, member)], heavy))
        else:
            chunks[-1] = [*chunk, (slot, member)], weight + heavy
    return chunks
