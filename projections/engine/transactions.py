"""One transaction on the ledger: what it commits, its writes, and the items as a cancelled one returns them.

In this order: the entries of its steps, the groups they share, value counters, then members. An entry is written
under the condition that it is as predicted or as found, and that no newer registry wrote it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from decimal import Decimal
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from projections.engine.changes import WIDE, Change, ChangeState, Expiry, Piece, Refusal, Result, combine
from projections.engine.groups import spread
from projections.engine.guards import as_read
from projections.engine.ledger_items import (
    MOST_EXPIRIES,
    SHARD_COUNT,
    Entry,
    Target,
    entry_key,
    group_key,
    member_key,
    whole_key,
)
from projections.engine.running import UNLIMITED, Counters, Deadline, Reload
from projections.engine.store import (
    AllOf,
    AnyOf,
    Below,
    Condition,
    Delete,
    Equal,
    Missing,
    Purpose,
    Store,
    Update,
    Write,
)
from projections.engine.value_counters import ValueCounter, ValueCounters, slot_of
from projections.errors import ConditionFailed, InvalidRequest, StoreError, TransactionCancelled, Transient
from projections.language.contribution import NOTHING, Contributions, canonical_text, without
from projections.language.keys import Image, ItemKey, Value, is_range
from projections.language.program import Program
from projections.language.rules import public_name
from projections.language.values import decode_order, number_text

MOST_ACTIONS = 100
"""Actions of a transaction (a limit of DynamoDB)."""

MOST_BYTES = 3_500_000
"""DynamoDB takes 4 MB a transaction; ours are estimated, so they stay well below."""

_LONGEST_REASON = 500

_ZERO = Decimal(0)
_ONE_MORE: Value = {"N": "1"}
_ABSENT = Missing(("pk",))
_NOTHING_BEFORE = Equal(("contributions",), {"S": "{}"})
_NOTHING_PENDING = Missing(("recent",))

Counted = tuple[str, str, str]
"""A rule's name, an encoded target key, and a value as contributions have it."""


class Attempt(NamedTuple):
    """A change, and what is known of its entry; the change predicts it until a read or a cancelled transaction shows it."""

    change: Change
    entry: Entry | None
    known: bool
    """Whether `entry` is the entry as it was found; None then if there is none."""
    touched: Set[Target]
    """The targets to be published."""
    moved: bool = False
    """Of a refresh: the entry is not as it was read."""

    @classmethod
    def of(cls, change: Change) -> Attempt:
        return cls(change, change.entry, change.is_refresh, change.touched)

    @property
    def held(self) -> Contributions:
        """The contributions of the entry, as far as it is known."""
        return self.entry.contributions if self.entry is not None else {}

    @property
    def is_duplicate(self) -> bool:
        """Whether the entry is as new as the change, or newer."""
        return self.entry is not None and not self.change.is_refresh and self.entry.version >= self.change.version

    @classmethod
    def of_entry(cls, entry: Entry | None) -> Attempt:
        """Return an attempt that changes nothing in an entry."""
        return cls(Change("", "", {}, NOTHING, entry), entry, True, frozenset())

    @property
    def kept(self) -> Contributions:
        """What the entry keeps of expired items, as far as it is known."""
        return self.entry.kept if self.entry is not None else {}

    @property
    def carrying(self) -> frozenset[str]:
        """As in the entry."""
        return self.entry.carrying if self.entry is not None else frozenset()

    def keep(self, kept: Contributions, expired: Contributions, expiry: Expiry) -> Contributions:
        """Return what the entry keeps with a part of an expiry. Of members at one place, that of the newest stays."""
        older = self.entry is not None and any(expiry.version < version for version in self.entry.expiries)
        return combine(kept, expired) if older else combine(expired, kept)

    @property
    def unseen_expiries(self) -> list[Expiry]:
        """The expiries of the change that the entry has not processed."""
        entry = self.entry
        if entry is None:
            return list(self.change.expiries)
        newer = self.change.is_refresh
        return [
            expiry
            for expiry in self.change.expiries
            if expiry.version not in entry.expiries and (newer or expiry.version > entry.version)
        ]

    def with_entry(self, item: Image | None) -> Attempt:
        """Return the attempt with its entry as it is."""
        entry = Entry.read(item) if item else None
        if entry is not None and (left := entry.contributions.keys() & self.change.by_lanes):
            entry = entry._replace(contributions=without(entry.contributions, left))
        touched = self.touched | entry.targets if entry is not None else self.touched
        return self._replace(entry=entry, known=True, touched=touched)

    def result(
        self,
        state: ChangeState,
        step: Step | None = None,
        *,
        refused: tuple[Refusal, ...] = (),
        error: StoreError | None = None,
    ) -> Result:
        """Return the result of the change. `step` is the newest one that was made or tried, if there is one."""
        ends = step is None or bool(step.retracted) or not (step.goal or step.kept)
        pending = ends or (self.entry is not None and bool(self.entry.recent))
        return Result(self.change, state, self.touched, pending, refused, error, self.entry)


class Step(NamedTuple):
    """What one transaction does to the entry and the groups of an attempt: the difference between `before` and `goal`."""

    attempt: Attempt
    before: Contributions
    before_text: str
    goal: Contributions
    text: str
    """The goal as the entry will have it."""
    kept: Contributions
    """What the entry will keep of expired items."""
    pieces: Mapping[Target, Piece]
    retracted: Set[str]
    """Targets that change and that the entry does not name afterwards, as elements of `recent`."""
    rules: tuple[str, ...]
    """The rules that the item contributes to, before or after, in the order of their names."""
    counted: Set[Counted]
    """The values whose counters change."""
    actions: int
    """Actions of a transaction that the pieces take."""
    size: int
    """About how many bytes of a transaction the pieces take."""
    last: bool = True
    """Whether the goal is that of the change: only then the entry gets its version."""
    expired: str = ""
    """The version of the expiry with which the step ends, if it is not the last."""
    refused: Mapping[str, str] = MappingProxyType({})
    """Rules whose contribution the ledger cannot hold, with the reason, in the order of their names."""
    carrying: frozenset[str] = frozenset()
    """What is done in part after this step, as in `Entry`."""

    @property
    def version(self) -> str:
        """The version that the entry gets; empty if it stays."""
        change, entry = self.attempt.change, self.attempt.entry
        if not self.last:  # with the change's own version, its redelivery would be a duplicate
            return "" if change.is_refresh or self.expired == change.version else self.expired
        if change.is_refresh and entry is not None and entry.version >= change.learned:
            return ""
        return change.version or change.learned

    @property
    def new_expiries(self) -> list[str]:
        """The versions of the expiries that it processes."""
        if self.expired:
            return [self.expired]
        return [expiry.version for expiry in self.attempt.unseen_expiries] if self.last else []

    @property
    def writes(self) -> Mapping[str, int]:
        """The writes that it leads to, for each rule: those to the ledger, and one for each published target."""
        writes: Counter[str] = Counter()
        for (rule, target), piece in self.pieces.items():
            writes[rule] += piece.actions + (not is_range(target))
        return writes


class Transaction:
    """Steps that are committed together, and the groups they share."""

    __slots__ = ("actions", "counted", "groups", "size", "steps")

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.groups: set[Target] = set()
        self.counted: set[Counted] = set()
        self.actions = 0
        self.size = 0

    def take(self, step: Step, most_actions: int) -> bool:
        """Add a step if there is room, as for the first there is. Shared groups and counters cost no further action."""
        shared = len(self.groups.intersection(step.pieces))
        if step.counted:
            shared += len(self.counted.intersection(step.counted))
        actions = self.actions + step.actions - shared
        size = self.size + step.size
        if self.steps and (actions > most_actions or size > MOST_BYTES):
            return False
        self.actions, self.size = actions, size
        self.groups.update(step.pieces)
        self.counted.update(step.counted)
        self.steps.append(step)
        return True


def pack(steps: Sequence[Step], most_actions: int, deadline: Deadline = UNLIMITED) -> list[Transaction]:
    """Pack steps into few transactions: those with the same targets stand together, the busiest target first."""
    uses = Counter(chain.from_iterable([step.pieces for step in steps]))

    def busiest(step: Step) -> tuple[int, Target]:
        return min([(-uses[target], target) for target in step.pieces], default=(0, ("", "")))

    transactions: list[Transaction] = []
    order = sorted((*busiest(step), number) for number, step in enumerate(deadline.check_each(steps)))
    for step in (steps[number] for *_, number in deadline.check_each(order)):
        if not transactions or not transactions[-1].take(step, most_actions):
            transactions.append(Transaction())
            transactions[-1].take(step, most_actions)
    return transactions


def lanes(transactions: Sequence[Transaction], deadline: Deadline = UNLIMITED) -> list[list[Transaction]]:
    """Return lists of transactions that share groups, in their order; different lists share none and may run at once."""
    leaders = list(range(len(transactions)))  # disjoint sets of the transactions that are connected by groups

    def leader(number: int) -> int:
        while leaders[number] != number:
            leaders[number] = number = leaders[leaders[number]]
        return number

    first: dict[Target, int] = {}
    for number, transaction in enumerate(deadline.check_each(transactions)):
        for group in transaction.groups:
            earlier, own = leader(first.setdefault(group, number)), leader(number)
            leaders[max(earlier, own)] = min(earlier, own)
    by_leader: dict[int, list[Transaction]] = {}
    for number, transaction in enumerate(transactions):
        by_leader.setdefault(leader(number), []).append(transaction)
    return list(by_leader.values())


Role = Step | Target | ValueCounter
"""The subject of a write in a transaction: the entry of a step, a group, or a value counter."""


class Cancelled(NamedTuple):
    """What a cancelled transaction showed.

    `attempts` are those of its steps, with what it showed of their entries. If nothing `changed`, only counters were not as
    assumed: the same differences can be sent again. Otherwise they are computed again.
    """

    attempts: list[Attempt]
    changed: bool


class Spreading:
    """The items over which groups are spread. The first item of a group records how many there have been."""

    def __init__(self, program: Program, store: Store) -> None:
        self._program = program
        self._store = store
        self._noted: dict[Target, int] = {}

    def note(self, target: Target, why: Purpose) -> int:
        """Return over how many items a group is spread, and record it."""
        shards = spread(self._program, target)
        if shards <= 1 or self._noted.get(target) == shards:
            return shards
        count: Value = {"N": str(shards)}
        path = (SHARD_COUNT,)
        fewer = AnyOf((Missing(path), Below(path, count)))
        with suppress(ConditionFailed):  # as many or more are recorded
            purpose = why._replace(kind="shards")
            self._store.write(Update(group_key(*target), set={SHARD_COUNT: count}, condition=fewer, purpose=purpose))
        self._noted[target] = shards
        return shards


class Transactions:
    """Sends transactions. `epoch` is that of the registry. `chance` (0 ≤ x < 1) picks the shard of a group.

    `read` has groups that were read before. The first transaction with one is made only if it is as read (else it
    `has_missed`), and `groups` has it as the last transaction left it.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        epoch: int,
        values: ValueCounters,
        chance: Callable[[], float],
        counters: Counters,
        read: Mapping[Target, Image],
    ) -> None:
        self._program = program
        self._store = store
        self._epoch = epoch
        self._read = dict(read)
        self._expected: dict[Target, Image] = {}
        self.groups: dict[Target, Image] = {}
        self.has_missed = False
        self._value_counters = values
        self._chance = chance
        self._counters = counters
        self._spreading = Spreading(program, store)

    def with_entry(self, attempt: Attempt, item: Image | None) -> Attempt:
        """Return an attempt with its entry as it was found. Raises Reload if a newer registry wrote it."""
        read = attempt.with_entry(item)
        check_epoch(read.entry, self._epoch)
        return read

    def send(self, steps: Sequence[Step]) -> Cancelled | None:
        """Commit steps in one transaction. Return None if it is done.

        Raises Transient, and InvalidRequest if DynamoDB refuses an action.
        """
        self._expected.clear()
        self.groups.clear()
        writes, roles = self._writes(steps)
        self._counters.add("transactions")
        try:
            self._store.transact(writes)
        except TransactionCancelled as cancelled:
            failed = [reason for reason in cancelled.reasons if reason is not None]
            if any(reason.kind == "condition" for reason in failed):
                return self._learn(cancelled, roles)
            invalid = next((reason.message for reason in failed if reason.kind == "invalid"), None)
            if invalid is not None:
                raise InvalidRequest(invalid) from cancelled
            raise Transient(str(cancelled)) from cancelled
        if counted := [role for role in roles if isinstance(role, ValueCounter)]:
            self._value_counters.note_committed(counted)
        self.groups.update(self._expected)
        return None

    def _learn(self, cancelled: TransactionCancelled, roles: Sequence[Role]) -> Cancelled:
        """Return what the reasons of a cancelled transaction show of entries; remember what they show of counters."""
        changed = False
        attempts: list[Attempt] = []
        for reason, role in zip(cancelled.reasons, roles, strict=False):
            if isinstance(role, Step):
                attempt = role.attempt
                changed = changed or reason is not None
                if reason is not None and reason.kind == "condition":
                    read = self.with_entry(attempt, reason.item)
                    attempt = attempt._replace(moved=True) if attempt.change.is_refresh else read
                attempts.append(attempt)
            elif reason is not None and reason.kind == "condition":
                if isinstance(role, ValueCounter):
                    self._value_counters.learn(role, reason.item)
                else:
                    self.has_missed = True
        return Cancelled(attempts, changed)

    def _writes(self, steps: Sequence[Step]) -> tuple[list[Write], list[Role]]:
        """Return the writes of a transaction and, position by position, what each is about; members have no role."""
        writes: list[Write] = []
        roles: list[Role] = []
        amounts: dict[Target, dict[str, Decimal]] = {}
        records: dict[Target, list[str]] = {}
        members: list[Write] = []
        counted: dict[ItemKey, ValueCounter] = {}
        for step in steps:
            writes.append(self._entry_write(step))
            roles.append(step)
            for target, piece in step.pieces.items():
                totals = amounts.setdefault(target, {})
                records.setdefault(target, []).extend(step.attempt.change.sequences)
                for slot, amount in piece.amounts.items():
                    totals[slot] = WIDE.add(totals.get(slot, _ZERO), amount)
                if piece.puts or piece.removes:
                    members.extend(self._member_writes(step, target, piece))
                if piece.counted:
                    _count(step, target, piece, counted)
        counters: list[tuple[Write, ValueCounter]] = []
        for counter in counted.values():
            if counter.added:
                write, edge = self._value_counters.write(counter)
                counters.append((write, counter))
                if edge:
                    totals, slot = amounts[counter.target], slot_of(counter.value)
                    totals[slot] = WIDE.add(totals.get(slot, _ZERO), Decimal(edge))
        for target, totals in amounts.items():
            why = Purpose("group", target[:1], target[1], tuple(records[target]))
            writes.append(self._group_write(target, totals, why))
            roles.append(target)
        for write, counter in counters:
            writes.append(write)
            roles.append(counter)
        return [*writes, *members], roles

    def _entry_write(self, step: Step) -> Update:
        """Return the write of an entry. Before the last step of a change it keeps the version it has."""
        change, entry, last = step.attempt.change, step.attempt.entry, step.last
        values: dict[str, Value] = {"contributions": {"S": step.text}, "epoch": {"N": str(self._epoch)}}
        remove = ["ttl"]
        if expiries := step.new_expiries:
            known = entry.expiries.union(expiries) if entry is not None else expiries
            values["expiries"] = {"SS": sorted(known)[-MOST_EXPIRIES:]}
        if step.kept:
            values["kept"] = {"S": canonical_text(step.kept)}
        elif step.attempt.kept:
            remove.append("kept")
        if step.carrying:
            values["carrying"] = {"SS": sorted(step.carrying)}
        elif step.attempt.carrying:
            remove.append("carrying")
        if version := step.version:
            values["version"] = {"S": version}
        elif entry is None:
            values["version"] = {"S": ""}
        key = entry_key(change.source)
        values.update(whole_key(key, change.source))
        add: dict[str, Value] = {"revision": _ONE_MORE}
        if step.retracted:
            add["recent"] = {"SS": sorted(step.retracted)}
        if step.refused:
            values["refused"] = {"M": {rule: {"S": why[:_LONGEST_REASON]} for rule, why in step.refused.items()}}
        elif last and (version or entry is None or not entry.refused):  # else a redelivery reports it again
            remove.append("refused")
        purpose = Purpose("entry", step.rules, change.source, change.sequences)
        condition = _entry_condition(step, self._epoch)
        return Update(key, set=values, add=add, remove=remove, condition=condition, purpose=purpose)

    def _member_writes(self, step: Step, target: Target, piece: Piece) -> Iterable[Write]:
        rule, text = target
        change = step.attempt.change
        purpose = Purpose("member", (rule,), text, change.sequences)
        for member in piece.removes:
            yield Delete(member_key(rule, text, member, change.source), purpose=purpose)
        for member in piece.puts:
            order = member.partition("|")[2].partition(" ")[0]
            values: dict[str, Value] = {"s": {"S": change.source}}
            if order:  # a claim has none: its source is its order
                values |= {"o": {"S": order}, "v": decode_order(order)}
            digest = step.kept.get(rule, {}).get(text, {}).get("+", {}).get(member, "")
            payload = change.payload(target, member, digest)
            if payload is None and digest:
                payload = self._taken_payload(step, target, member)
            if payload:
                values["a"] = {"M": payload}
            remove = () if payload else ("a",)
            key = member_key(rule, text, member, change.source)
            yield Update(key, set=values, remove=remove, purpose=purpose)

    def _taken_payload(self, step: Step, target: Target, member: str) -> Image | None:
        """Return the attributes of a member that a new version takes over: another version's member has them."""
        rule, text = target
        name = public_name(rule)
        others = [other for other in self._program.recorded if other != rule and public_name(other) == name]
        keys = [member_key(other, text, member, step.attempt.change.source) for other in others]
        images = self._store.get_many(keys) if keys else {}
        return next((images[key]["a"]["M"] for key in keys if key in images and "a" in images[key]), None)

    def _group_write(self, target: Target, totals: dict[str, Decimal], why: Purpose) -> Update:
        add: dict[str, Value] = {"version": _ONE_MORE}
        for slot, amount in totals.items():
            if amount:
                add[slot] = {"N": number_text(amount)}
        shards = self._spreading.note(target, why)
        key = group_key(*target, int(self._chance() * shards) if shards > 1 else 0)
        condition = None
        if (group := self._read.pop(target, None)) is not None:  # sent again, it does not depend on that
            condition = as_read("version", group.get("version"))
            # DynamoDB refuses to add to other values than numbers
            sums = {slot: (Decimal(group.get(slot, {}).get("N", 0)), Decimal(more["N"])) for slot, more in add.items()}
            added = {slot: {"N": number_text(WIDE.add(*both))} for slot, both in sums.items()}
            self._expected[target] = {**group, **added}
        return Update(key, set=dict(whole_key(key, target[1])), add=add, condition=condition, purpose=why)


def check_epoch(entry: Entry | None, epoch: int) -> None:
    """Raise Reload if a registry newer than that of `epoch` wrote an entry."""
    if entry is not None and entry.epoch > epoch:
        raise Reload(entry.epoch)


def _entry_condition(step: Step, epoch: int) -> Condition:
    """Return the condition that an entry is as found, or as predicted, older than the change and of no newer epoch."""
    attempt = step.attempt
    if attempt.known:
        if attempt.entry is None:
            return _ABSENT
        version = Equal(("version",), {"S": attempt.entry.version})
        return AllOf((Equal(("revision",), {"N": str(attempt.entry.revision)}), version))
    older = AllOf((Below(("version",), {"S": attempt.change.version}), Below(("epoch",), {"N": str(epoch + 1)})))
    if not step.before:
        return AnyOf((_ABSENT, AllOf((older, _NOTHING_BEFORE, _NOTHING_PENDING))))
    # An entry with pending publishes is read, so that they are made and then forgotten.
    return AllOf((older, Equal(("contributions",), {"S": step.before_text}), _NOTHING_PENDING))


def _count(step: Step, target: Target, piece: Piece, into: dict[ItemKey, ValueCounter]) -> None:
    """Add what a step changes in counters."""
    for value, number in piece.counted.items():
        counter = ValueCounter(target, value)
        counter = into.setdefault(counter.key, counter)
        counter.added += number
        counter.records.extend(step.attempt.change.sequences)
