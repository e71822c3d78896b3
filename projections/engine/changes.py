"""Changes that the ledger commits, and the difference between two contributions of a source, by target."""

from __future__ import annotations

import copy
import decimal
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from projections.engine.ledger_items import Entry, Target, recent_element
from projections.engine.store import Image, Records
from projections.errors import StoreError
from projections.language.contribution import MEMBER_BYTES, Contributed, Contributions, Evaluated, contributed_bytes
from projections.language.contribution import digest as payload_digest
from projections.language.keys import is_range
from projections.language.rules import public_name
from projections.language.values import item_size, number_text

ChangeState = Literal["applied", "duplicate", "moved", "full", "deferred", "failed"]
"""The result of a change. Duplicate: the entry is as new as the change. Moved: the entry of a refresh is not as it was
read, and nothing was done. Full: the entry has no room for it beside its pending publishes. Deferred: it exceeds a budget,
and is left to a refresh. Failed: not done, and `error` has the reason."""


class Expiry(NamedTuple):
    """The expiry of an item: the version of its record, and what the item contributed under rules that keep it.

    `payloads` has the attributes that members hold, by (rule, target, member).
    """

    version: str
    contributions: Contributions
    payloads: Mapping[tuple[str, str, str], Image] = MappingProxyType({})

    @classmethod
    def of(cls, version: str, evaluated: Evaluated, rules: Set[str]) -> Expiry:
        """Return the expiry of an item with these contributions, of which some rules keep theirs."""
        contributions = {rule: held for rule, held in evaluated.contributions.items() if rule in rules}
        return cls(version, contributions, {at: held for at, held in evaluated.payloads.items() if at[0] in rules})

    @property
    def kept(self) -> Contributions:
        """What an entry keeps of it. Its members are others than those of an item that is created again under its key."""

        def keep(held: Contributed) -> Contributed:
            return {**held, "+": {_kept_name(member): of for member, of in held["+"].items()}} if "+" in held else held

        contributed = self.contributions.items()
        return {rule: {target: keep(held) for target, held in targets.items()} for rule, targets in contributed}


_KEPT = "~"
"""Ends the position of a member that an expired item has left. Encoded values may end with it, and have no space."""


def _kept_name(member: str) -> str:
    return f"{member}{_KEPT}" if " " in member.partition("|")[2] else f"{member} {_KEPT}"


def is_kept(member: str) -> bool:
    """Return whether a member is one that an expired item has left."""
    return member.partition("|")[2].partition(" ")[2].endswith(_KEPT)


class Change(NamedTuple):
    """The contributions of one source item before and after some records, as of a version.

    `version` is empty for a refresh: it leaves that of the entry, and is made from an entry that was read before the source
    item (`entry`; None if there was none). For other changes the entry is unknown: `before` predicts it from the old image.
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
    expiries: tuple[Expiry, ...] = ()
    """Those within the records whose contributions are kept, in order."""
    by_lanes: Set[str] = frozenset()
    """The versions for which lanes count the records: their part leaves the entry, without its groups."""
    learned: str = ""
    """Of a refresh: the version of the newest record that it took into account, if it knows one."""
    carried: Set[str] = frozenset()
    """Of a refresh: the versions that take over what others have recorded of an item that is gone."""

    @property
    def is_refresh(self) -> bool:
        return not self.version

    def followed_by(self, later: Change) -> Change:
        """Return this change and a later one of the same item as one."""
        touched, expiries = self.touched | later.touched, self.expiries + later.expiries
        sequences = self.sequences + later.sequences
        return later._replace(before=self.before, touched=touched, sequences=sequences, expiries=expiries)

    def payload(self, target: Target, member: str, digest: str) -> Image | None:
        """Return the attributes that a member is to hold, if the change knows them; `digest` is that of a kept member."""
        if not is_kept(member):
            return self.after.payloads.get((*target, member))
        plain = member.removesuffix(_KEPT).removesuffix(" ")
        payloads = (expiry.payloads.get((*target, plain)) for expiry in reversed(self.expiries))
        return next((payload for payload in payloads if payload and payload_digest(payload) == digest), None)

    def put_size(self, target: Target, member: str, digest: str) -> int:
        """Return about how many bytes the put of a member takes. What a new version takes over has not been read yet."""
        payload = self.payload(target, member, digest)
        return item_size(payload) if payload else MEMBER_BYTES if digest and is_kept(member) else 0


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


def retracted_targets(before: Contributions, after: Contributions) -> set[str]:
    """Return the targets that an entry does not name afterwards, as elements of `recent`.

    Groups of `rank` rules have no publish that could be pending.
    """
    return {
        recent_element((rule, target))
        for rule, targets in before.items()
        for target in targets
        if target not in after.get(rule, {}) and not is_range(target)
    }


WIDE = decimal.Context(prec=600)
"""Sums and differences are exact here; what DynamoDB cannot hold it refuses, rather than we round it."""

_NONE: Contributed = {}

_MOST_OWED = 50_000
"""Bytes of targets that one step may retract from: the entry names them until they are published."""


@dataclass(slots=True)
class Piece:
    """The changes for one target: amounts to add by slot, members to put and to remove, values to count."""

    amounts: dict[str, Decimal] = field(default_factory=dict)
    puts: list[str] = field(default_factory=list)
    removes: list[str] = field(default_factory=list)
    counted: dict[str, int] = field(default_factory=dict)
    """By value, as contributions have it: what is added to its counter."""

    @property
    def actions(self) -> int:
        """Return the most actions of a transaction that it takes, including the group's."""
        return 1 + len(self.puts) + len(self.removes) + len(self.counted)

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not (self.amounts or self.puts or self.removes or self.counted)


def difference(before: Contributions, after: Contributions) -> dict[Target, Piece]:
    """Return the changes by target. Targets whose contribution does not change are left out."""
    pieces: dict[Target, Piece] = {}
    for rule in sorted(before.keys() | after.keys()):
        olds, news = before.get(rule, {}), after.get(rule, {})
        if olds == news:
            continue
        for target in sorted(olds.keys() | news.keys()):
            old, new = olds.get(target, _NONE), news.get(target, _NONE)
            if old != new:
                pieces[rule, target] = _piece(old, new)
    return pieces


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
        else:
            amount = WIDE.subtract(Decimal(new.get(slot, 0)), Decimal(old.get(slot, 0)))
            if amount:
                piece.amounts[slot] = amount
    return piece


def combine(contributions: Contributions, kept: Contributions) -> Contributions:
    """Return what an item contributes together with what is kept of its expired predecessors: what its groups hold; or
    what is kept with what is kept of one more.

    Of several expired items under one key with the same value, a group has one member.
    """
    if not kept:
        return contributions
    both = {rule: dict(targets) for rule, targets in contributions.items()}
    for rule, targets in kept.items():
        for target, held in targets.items():
            total = both.setdefault(rule, {}).get(target)
            both[rule][target] = held if total is None else _sum(held, total)
    return both


KEPT_BYTES = 90_000
"""The size limit of what an entry keeps after its first expiry, under one version of each rule: others have room, too."""


def kept_bytes(kept: Contributions) -> int:
    """Return the bytes of what an entry keeps, under the version of each rule that keeps most."""
    sizes: dict[str, int] = {}
    for version, targets in kept.items():
        rule = public_name(version)
        sizes[rule] = max(contributed_bytes(version, targets), sizes.get(rule, 0))
    return sum(sizes.values())


def fitting(expired: Contributions, kept: Contributions) -> Contributions:
    """Return the rules' parts of what expired for which an entry that keeps so much has room."""
    fits: Contributions = {}
    for rule, targets in sorted(expired.items()):  # the same ones, whatever versions there are
        if kept_bytes(combine(combine({rule: targets}, fits), kept)) <= KEPT_BYTES:
            fits[rule] = targets
    return fits


def _sum(kept: Contributed, held: Contributed) -> Contributed:
    total: Contributed = dict(held)
    for slot, amount in kept.items():
        if slot == "+":
            total["+"] = {**amount, **held.get("+", _NONE)}
        elif slot == "%":
            numbers = held.get("%", _NONE)
            total["%"] = numbers | {value: numbers.get(value, 0) + number for value, number in amount.items()}
        elif isinstance(amount, int):
            total[slot] = held.get(slot, 0) + amount
        else:
            total[slot] = number_text(WIDE.add(Decimal(held.get(slot, "0")), Decimal(amount)))
    return total


class Load(NamedTuple):
    """The room of one transaction beside the entry: actions, bytes, and how many bytes the put of a member takes."""

    actions: int
    bytes: int
    weigh: Callable[[Target, str], int]


def intermediate_goals(before: Contributions, after: Contributions, load: Load) -> Iterator[Contributions]:
    """Yield contributions on the way from `before` to `after`, each step within the limits of `load`.

    Each is a true entry: the groups hold exactly these contributions. Parts that shrink come first, so that no step needs
    more room than the larger of `before` and `after`.
    """
    current: Contributions = copy.deepcopy(before)
    used = weight = owed = 0

    def growth(changed: tuple[Target, Piece]) -> tuple[int, Target]:
        rule, target = changed[0]
        return _length(target, after.get(rule)) - _length(target, before.get(rule)), (rule, target)

    for (rule, target), piece in sorted(difference(before, after).items(), key=growth):
        goal: dict[str, Any] = after.get(rule, {}).get(target, _NONE)
        chunks = _chunks(piece, (rule, target), load)
        for number, (chunk, heavy) in enumerate(chunks, 1):
            last = number == len(chunks)
            cost = 1 + len(chunk)
            owes = len(f"{rule}|{target}".encode()) if last and not goal else 0
            if used and (used + cost > load.actions or weight + heavy > load.bytes or owed + owes > _MOST_OWED):
                yield copy.deepcopy(current)
                used, weight, owed = 0, 0, 0
            used, weight, owed = used + cost, weight + heavy, owed + owes
            if last:
                current.setdefault(rule, {})[target] = copy.deepcopy(goal)
            else:
                now = current.setdefault(rule, {}).setdefault(target, {})
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
    yield after


def _length(target: str, targets: Mapping[str, Contributed] | None) -> int:
    """Return about how many characters one target's part of an entry has."""
    return len(target) + len(str(targets[target])) if targets and target in targets else 0


def _chunks(piece: Piece, target: Target, load: Load) -> list[tuple[list[tuple[str, str]], int]]:
    """Return the members and values that a piece changes, in parts that one transaction holds, with the bytes of each part.

    Each has its slot in contributions, `+` or `%`.
    """
    room = load.actions - 1
    chunks: list[tuple[list[tuple[str, str]], int]] = [([], 0)]
    puts = set(piece.puts)
    values = [("%", value) for value in piece.counted]
    for slot, member in [*(("+", member) for member in (*piece.removes, *piece.puts)), *values]:
        heavy = load.weigh(target, member) if slot == "+" and member in puts else 0
        chunk, weight = chunks[-1]
        if chunk and (len(chunk) >= room or weight + heavy > load.bytes):
            chunks.append(([(slot, member)], heavy))
        else:
            chunks[-1] = [*chunk, (slot, member)], weight + heavy
    return chunks
