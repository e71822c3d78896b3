"""One transaction on the ledger: what it commits, its writes, and the items as a cancelled one returns them.

In this order: the entries of its steps, the groups they share, extremes, value counters, then members. An entry is written
under the condition that it is as predicted or as found, a group under the condition that no rebuild has closed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from decimal import Decimal
from itertools import chain
from types import MappingProxyType
from typing import NamedTuple

from projections.engine.changes import WIDE, Change, ChangeState, Piece, Refusal, Result, without_stamps
from projections.engine.groups import EXTREMES, Generations, extreme_sort, spread
from projections.engine.ledger_items import (
    CLOSED,
    LEDGER,
    MOST_EXPIRIES,
    SHARD_COUNT,
    Entry,
    Target,
    entry_key,
    group_key,
    member_key,
    whole_key,
)
from projections.engine.running import UNLIMITED, Counters, Deadline
from projections.engine.store import (
    Above,
    AllOf,
    AnyOf,
    Below,
    Condition,
    Delete,
    Equal,
    Exists,
    Image,
    ItemKey,
    Missing,
    Purpose,
    Store,
    Update,
    Value,
    Write,
)
from projections.engine.value_counters import ValueCounter, slot_of
from projections.errors import ConditionFailed, InvalidRequest, StoreError, TransactionCancelled, Transient
from projections.language.contribution import Contributions
from projections.language.keys import is_range
from projections.language.program import Program
from projections.language.values import decode_order, number_text

MOST_ACTIONS = 100
"""Actions of a transaction (a limit of DynamoDB)."""

MOST_BYTES = 3_500_000
"""DynamoDB takes 4 MB a transaction; ours are estimated, so they stay well below."""

_LONGEST_REASON = 500

_OPEN = Missing((CLOSED,))
_ZERO = Decimal(0)
_ONE_MORE: Value = {"N": "1"}
_ABSENT = Missing(("pk",))
_OPEN_AND_THERE = AllOf((Exists(("pk",)), _OPEN))
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
    not_extreme: Set[ItemKey] = frozenset()
    """Extremes that were found not to be exceeded: they are not written."""

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

    @property
    def settle(self) -> Contributions:
        """What the change settles, and what an earlier expiry left in the entry, of rules that are active by now."""
        entry, settle = self.entry, self.change.settle
        if entry is None or not entry.expired or not self.known:
            return settle
        rules = self.change.active & entry.contributions.keys() - settle.keys()
        return {**settle, **{rule: without_stamps(entry.contributions[rule]) for rule in rules}}

    def with_entry(self, item: Image | None) -> Attempt:
        """Return the attempt with its entry as it is."""
        entry = Entry.read(item) if item else None
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
        ends = step is None or bool(step.retracted) or not step.goal
        pending = ends or (self.entry is not None and bool(self.entry.recent))
        return Result(self.change, state, self.touched, pending, refused, error, self.entry)


class Step(NamedTuple):
    """What one transaction does to the entry and the groups of an attempt: the difference between `before` and `goal`."""

    attempt: Attempt
    opened: Generations
    """The open generations as of which `pieces` are computed: what is written must be about these."""
    before: Contributions
    before_text: str
    goal: Contributions
    text: str
    """The goal as the entry will have it."""
    settle: Contributions
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
    refused: Mapping[str, str] = MappingProxyType({})
    """Rules whose contribution the ledger cannot hold, with the reason, in the order of their names."""

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

    def __init__(self, groups: Iterable[Target] = ()) -> None:
        self.steps: list[Step] = []
        self.groups: set[Target] = set(groups)
        self.counted: set[Counted] = set()
        self.actions = 0
        self.size = 0

    def take(self, step: Step, most_actions: int) -> bool:
        """Add a step if there is room. The first always has room.

        Groups and counters that are in already cost no further action.
        """
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


Role = Step | Target | ItemKey | ValueCounter
"""The subject of a write in a transaction: the entry of a step, a group, an extreme, or a value counter."""


class Cancelled(NamedTuple):
    """What a cancelled transaction showed.

    `attempts` are those of its steps, with what it showed of their entries. If nothing `changed`, only extremes were not
    exceeded, or counters were not as assumed: the same differences can be sent again. Otherwise they are computed again.
    """

    attempts: list[Attempt]
    changed: bool


class Transactions:
    """Sends transactions. `chance` (0 ≤ x < 1) picks the shard of a group."""

    def __init__(
        self,
        program: Program,
        store: Store,
        generations: Generations,
        chance: Callable[[], float],
        counters: Counters,
    ) -> None:
        self._program = program
        self._store = store
        self._generations = generations
        self._chance = chance
        self._counters = counters
        self._sharded: dict[tuple[Target, int], int] = {}
        self._value_counters = generations.counters
        self._named: set[tuple[Target, int]] = set()
        """Generations that closed groups were found to name: they may be created here, should they be lost."""

    def send(self, steps: Sequence[Step]) -> Cancelled | None:
        """Commit steps in one transaction. Return None if it is done.

        Raises Transient, and InvalidRequest if DynamoDB refuses an action.
        """
        writes, roles = self._writes(steps)
        self._counters.add("transactions")
        try:
            self._store.transact(writes)
        except TransactionCancelled as cancelled:
            failed = [reason for reason in cancelled.reasons if reason is not None]
            if any(reason.kind == "condition" for reason in failed):
                return self._learn(cancelled, steps, roles)
            invalid = next((reason.message for reason in failed if reason.kind == "invalid"), None)
            if invalid is not None:
                raise InvalidRequest(invalid) from cancelled
            raise Transient(str(cancelled)) from cancelled
        if counted := [role for role in roles if isinstance(role, ValueCounter)]:
            self._value_counters.note_committed(counted)
        return None

    def _learn(self, cancelled: TransactionCancelled, steps: Sequence[Step], roles: Sequence[Role]) -> Cancelled:
        """Return what the reasons of a cancelled transaction show of entries; remember what they show of groups."""
        changed = False
        opened = steps[0].opened
        attempts: list[Attempt] = []
        not_extreme: set[ItemKey] = set()
        for reason, role in zip(cancelled.reasons, roles, strict=False):
            if isinstance(role, Step):
                attempt = role.attempt
                changed = changed or reason is not None
                if reason is not None and reason.kind == "condition":
                    refresh = attempt.change.is_refresh
                    attempt = attempt._replace(moved=True) if refresh else attempt.with_entry(reason.item)
                attempts.append(attempt)
            elif reason is None or reason.kind != "condition":
                continue
            elif isinstance(role, ValueCounter):
                self._value_counters.learn(role, reason.item)
            elif isinstance(role, ItemKey):
                not_extreme.add(role)
            elif reason.item:
                self._named.add((role, self._generations.close(role, opened.of(role), reason.item)))
                changed = True
            else:
                self._generations.missing(role, opened.of(role))
                changed = True
        if not_extreme:
            attempts = [attempt._replace(not_extreme=attempt.not_extreme | not_extreme) for attempt in attempts]
        return Cancelled(attempts, changed)

    def _writes(self, steps: Sequence[Step]) -> tuple[list[Write], list[Role]]:
        """Return the writes of a transaction and, position by position, what each is about; members have no role."""
        writes: list[Write] = []
        roles: list[Role] = []
        amounts: dict[Target, dict[str, Decimal]] = {}
        records: dict[Target, list[str]] = {}
        extremes: dict[ItemKey, Update] = {}
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
                    members.extend(_member_writes(step, target, piece))
                if piece.settled:
                    _settle_extremes(step, target, piece, extremes)
                if piece.counted:
                    _count(step, target, piece, counted)
        counters: list[tuple[Write, ValueCounter]] = []
        for counter in counted.values():
            if counter.added or counter.kept:
                write, edge = self._value_counters.write(counter)
                counters.append((write, counter))
                if edge:
                    totals, slot = amounts[counter.target], slot_of(counter.value)
                    totals[slot] = WIDE.add(totals.get(slot, _ZERO), Decimal(edge))
        for target, totals in amounts.items():
            why = Purpose("group", target[:1], target[1], tuple(records[target]))
            writes.append(self._group_write(target, totals, extremes, steps[0].opened.of(target), why))
            roles.append(target)
        for key, extreme in extremes.items():
            writes.append(extreme)
            roles.append(key)
        for write, counter in counters:
            writes.append(write)
            roles.append(counter)
        return [*writes, *members], roles

    def _entry_write(self, step: Step) -> Update:
        """Return the write of an entry. Before the last step of a change it keeps the version it has."""
        change, entry, last = step.attempt.change, step.attempt.entry, step.last
        values: dict[str, Value] = {
            "contributions": {"S": step.text},
            "rules": {"S": self._program.fingerprint},
        }
        version = change.version if last else ""
        if last and change.expiry:
            known = entry.expiries | {change.expiry} if entry is not None else {change.expiry}
            values["expiries"] = {"SS": sorted(known)[-MOST_EXPIRIES:]}
        if last and not version and (entry is None or entry.version < change.learned):
            version = change.learned
        if version:
            values["version"] = {"S": version}
        elif entry is None:
            values["version"] = {"S": ""}
        key = entry_key(change.source)
        values.update(whole_key(key, change.source))
        add: dict[str, Value] = {"revision": _ONE_MORE}
        if step.retracted:
            add["recent"] = {"SS": sorted(step.retracted)}
        remove = ["ttl"]
        if last and not change.held.isdisjoint(step.goal):
            values["expired"] = {"BOOL": True}
        elif entry is not None and entry.expired and not change.gone:
            remove.append("expired")
        if last:
            if step.refused:
                values["refused"] = {"M": {rule: {"S": why[:_LONGEST_REASON]} for rule, why in step.refused.items()}}
            else:
                remove.append("refused")
        purpose = Purpose("entry", step.rules, change.source, change.sequences)
        return Update(key, set=values, add=add, remove=remove, condition=_entry_condition(step), purpose=purpose)

    def _group_write(
        self,
        target: Target,
        totals: dict[str, Decimal],
        extremes: Iterable[ItemKey],
        generation: int,
        why: Purpose,
    ) -> Update:
        add: dict[str, Value] = {"version": _ONE_MORE}
        for slot, amount in totals.items():
            if amount:
                add[slot] = {"N": number_text(amount)}
        shard = self._shard(target, generation, why)
        key = group_key(*target, generation, shard)
        values = dict(whole_key(key, target[1]))
        if any(extreme.partition == key.partition for extreme in extremes):
            values["extremes"] = {"BOOL": True}
        there = self._is_only_remembered(target, generation) and shard == 0
        return Update(key, set=values, add=add, condition=_OPEN_AND_THERE if there else _OPEN, purpose=why)

    def _is_only_remembered(self, target: Target, generation: int) -> bool:
        """Whether only this process reports a generation: the ledger may have been restored since, without it."""
        return generation > 0 and (target, generation) not in self._named

    def _shard(self, target: Target, generation: int, why: Purpose) -> int:
        """Return the shard of a group that this transaction adds to. The first shard records how many there have been."""
        shards = spread(self._program, target)
        if shards <= 1:
            return 0
        if self._sharded.get((target, generation)) != shards:
            count: Value = {"N": str(shards)}
            path = (SHARD_COUNT,)
            there = _OPEN_AND_THERE if self._is_only_remembered(target, generation) else _OPEN
            fewer = AllOf((there, AnyOf((Missing(path), Below(path, count)))))
            try:
                purpose = why._replace(kind="shards")
                key = group_key(*target, generation)
                self._store.write(Update(key, set={SHARD_COUNT: count}, condition=fewer, purpose=purpose))
            except ConditionFailed as failed:  # as many or more are recorded, or it is closed
                if failed.item is None or CLOSED in failed.item:
                    # The commit finds it closed, or missing. A rebuild that closed it saw only the shards it had counted.
                    return 0
            self._sharded[target, generation] = shards
        return int(self._chance() * shards)


def _entry_condition(step: Step) -> Condition:
    """Return the condition that an entry is as it was found, or as predicted and older than the change."""
    attempt = step.attempt
    if attempt.known:
        if attempt.entry is None:
            return _ABSENT
        return AllOf(
            (
                Equal(("revision",), {"N": str(attempt.entry.revision)}),
                Equal(("version",), {"S": attempt.entry.version}),
            )
        )
    older = Below(("version",), {"S": attempt.change.version})
    if not step.before:
        return AnyOf((_ABSENT, AllOf((older, _NOTHING_BEFORE, _NOTHING_PENDING))))
    # An entry with pending publishes is read, so that they are made and then forgotten.
    return AllOf((older, Equal(("contributions",), {"S": step.before_text}), _NOTHING_PENDING))


def _member_writes(step: Step, target: Target, piece: Piece) -> Iterable[Write]:
    rule, text = target
    change = step.attempt.change
    generation = step.opened.of(target)
    purpose = Purpose("member", (rule,), text, change.sequences)
    for member in piece.removes:
        yield Delete(member_key(rule, text, generation, member, change.source), purpose=purpose)
    for member in piece.puts:
        order = member.partition("|")[2].partition(" ")[0]
        values: dict[str, Value] = {"s": {"S": change.source}}
        if order:  # a claim has none: its source is its order
            values |= {"o": {"S": order}, "v": decode_order(order)}
        payload = change.after.payloads.get((rule, text, member))
        if payload:
            values["a"] = {"M": payload}
        remove = () if payload else ("a",)
        key = member_key(rule, text, generation, member, change.source)
        yield Update(key, set=values, remove=remove, purpose=purpose)


def _count(step: Step, target: Target, piece: Piece, into: dict[ItemKey, ValueCounter]) -> None:
    """Add what a step changes in counters."""
    generation = step.opened.of(target)
    for value, number in piece.counted.items():
        counter = ValueCounter(target, generation, value)
        counter = into.setdefault(counter.key, counter)
        counter.added += number
        counter.kept += piece.kept.get(value, 0)
        counter.records.extend(step.attempt.change.sequences)


def _settle_extremes(step: Step, target: Target, piece: Piece, into: dict[ItemKey, Update]) -> None:
    """Add the writes of settled values that may be the least or greatest ones; of several, the more extreme one."""
    rule, text = target
    generation = step.opened.of(target)
    partition = group_key(rule, text, generation).partition
    for member in piece.settled:
        slot, _, order = member.partition("|")
        for which in EXTREMES:
            key = ItemKey(LEDGER, partition, extreme_sort(generation, slot, which))
            if key in step.attempt.not_extreme:
                continue
            rival = into.get(key)
            if rival is not None:
                held = rival.set["order"]["S"]
                if (held <= order) if which == "least" else (held >= order):
                    continue
            path, value = ("order",), {"S": order}
            exceeds: Condition = Above(path, value) if which == "least" else Below(path, value)
            into[key] = Update(
                key,
                set={"order": value, "v": decode_order(order), "slot": {"S": slot}, "which": {"S": which}},
                condition=AnyOf((Missing(path), exceeds)),
                purpose=Purpose("extreme", (rule,), text, step.attempt.change.sequences),
            )
