"""One transaction on the ledger: its writes, and the items as a cancelled one returns them.

In this order: the entries of its attempts, the groups they share, extremes, value counters, then members. An entry is
written under the condition that it is as predicted or as found, a group under the condition that no rebuild has closed it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from typing import Literal

from projections.engine.attempts import Attempt
from projections.engine.changes import WIDE, Piece
from projections.engine.groups import EXTREMES, Generations, extreme_sort, spread
from projections.engine.ledger_items import (
    CLOSED,
    LEDGER,
    MOST_EXPIRIES,
    SHARD_COUNT,
    Target,
    entry_key,
    group_key,
    member_key,
    whole_key,
)
from projections.engine.report import Counters
from projections.engine.store import (
    Above,
    AllOf,
    AnyOf,
    Below,
    Condition,
    Delete,
    Equal,
    Exists,
    ItemKey,
    Missing,
    Purpose,
    Store,
    Update,
    Value,
    Write,
)
from projections.engine.value_counters import ValueCounter, slot_of
from projections.errors import ConditionFailed, InvalidRequest, TransactionCancelled, Transient
from projections.language.program import Program
from projections.language.values import decode_order, number_text

_LONGEST_REASON = 500

_OPEN = Missing((CLOSED,))
_ZERO = Decimal(0)
_ONE_MORE: Value = {"N": "1"}
_ABSENT = Missing(("pk",))
_OPEN_AND_THERE = AllOf((Exists(("pk",)), _OPEN))
_NOTHING_BEFORE = Equal(("contributions",), {"S": "{}"})
_NOTHING_PENDING = Missing(("recent",))

Role = Attempt | Target | ItemKey | ValueCounter
"""The subject of a write in a transaction: the entry of an attempt, a group, an extreme, or a value counter."""

Sent = Literal["committed", "changed", "again"]
"""The answer to a transaction. Changed: entries or groups are not as expected; attempts and generations record what they
are. Again: only extremes were not exceeded, or counters were not as assumed; the same differences can be sent again."""


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

    def send(self, attempts: Sequence[Attempt], *, last: bool = True) -> Sent:
        """Send one transaction for attempts with a prediction; `last` is False for a step on the way to an attempt's goal.

        Raises Transient, and InvalidRequest if DynamoDB refuses an action.
        """
        writes, roles = self._writes(attempts, last)
        self._counters.add("transactions")
        try:
            self._store.transact(writes)
        except TransactionCancelled as cancelled:
            failed = [reason for reason in cancelled.reasons if reason is not None]
            if any(reason.kind == "condition" for reason in failed):
                changed = self._learn(cancelled, roles)
                return "changed" if changed else "again"
            invalid = next((reason.message for reason in failed if reason.kind == "invalid"), None)
            if invalid is not None:
                raise InvalidRequest(invalid) from cancelled
            raise Transient(str(cancelled)) from cancelled
        if counted := [role for role in roles if isinstance(role, ValueCounter)]:
            self._value_counters.committed(counted)
        return "committed"

    def _learn(self, cancelled: TransactionCancelled, roles: Sequence[Role]) -> bool:
        """Record what the reasons of a cancelled transaction show of entries and groups.

        Return whether an entry or a group is not as expected: then differences have to be computed again.
        """
        changed = False
        attempts = [role for role in roles if isinstance(role, Attempt)]
        opened = attempts[0].opened
        for reason, role in zip(cancelled.reasons, roles, strict=False):
            if isinstance(role, Attempt) and reason is not None:
                changed = True
            if reason is None or reason.kind != "condition":
                continue
            if isinstance(role, Attempt):
                if role.change.is_refresh:
                    role.state = "moved"
                else:
                    role.found(reason.item)
            elif isinstance(role, ValueCounter):
                self._value_counters.found(role, reason.item)
            elif isinstance(role, ItemKey):
                for attempt in attempts:
                    attempt.not_extreme = attempt.not_extreme | {role}
            elif reason.item:
                self._named.add((role, self._generations.closed(role, opened.of(role), reason.item)))
                changed = True
            else:
                self._generations.missing(role, opened.of(role))
                changed = True
        return changed

    def _writes(self, attempts: Sequence[Attempt], last: bool) -> tuple[list[Write], list[Role]]:
        """Return the writes of a transaction and, position by position, what each is about; members have no role."""
        writes: list[Write] = []
        roles: list[Role] = []
        amounts: dict[Target, dict[str, Decimal]] = {}
        records: dict[Target, list[str]] = {}
        extremes: dict[ItemKey, Update] = {}
        members: list[Write] = []
        counted: dict[ItemKey, ValueCounter] = {}
        for attempt in attempts:
            writes.append(self._entry_write(attempt, last))
            roles.append(attempt)
            for target, piece in attempt.pieces.items():
                totals = amounts.setdefault(target, {})
                records.setdefault(target, []).extend(attempt.change.sequences)
                for slot, amount in piece.amounts.items():
                    totals[slot] = WIDE.add(totals.get(slot, _ZERO), amount)
                if piece.puts or piece.removes:
                    members.extend(_member_writes(attempt, target, piece))
                if piece.settled:
                    _settle_extremes(attempt, target, piece, extremes)
                if piece.counted:
                    _count(attempt, target, piece, counted)
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
            writes.append(self._group_write(target, totals, extremes, attempts[0].opened.of(target), why))
            roles.append(target)
        for key, extreme in extremes.items():
            writes.append(extreme)
            roles.append(key)
        for write, counter in counters:
            writes.append(write)
            roles.append(counter)
        return [*writes, *members], roles

    def _entry_write(self, attempt: Attempt, last: bool) -> Update:
        """Return the write of an entry. Before the last step of a change it keeps the version it has."""
        change, entry = attempt.change, attempt.entry
        values: dict[str, Value] = {
            "contributions": {"S": attempt.text},
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
        if attempt.retracted:
            add["recent"] = {"SS": sorted(attempt.retracted)}
        remove = ["ttl"]
        if last and not change.held.isdisjoint(attempt.goal):
            values["expired"] = {"BOOL": True}
        elif entry is not None and entry.expired and not change.gone:
            remove.append("expired")
        if last:
            if attempt.refused:
                values["refused"] = {"M": {rule: {"S": why[:_LONGEST_REASON]} for rule, why in attempt.refused.items()}}
            else:
                remove.append("refused")
        purpose = Purpose("entry", attempt.rules, change.source, change.sequences)
        return Update(key, set=values, add=add, remove=remove, condition=entry_condition(attempt), purpose=purpose)

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
        there = self._remembered(target, generation) and shard == 0
        return Update(key, set=values, add=add, condition=_OPEN_AND_THERE if there else _OPEN, purpose=why)

    def _remembered(self, target: Target, generation: int) -> bool:
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
            there = _OPEN_AND_THERE if self._remembered(target, generation) else _OPEN
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


def entry_condition(attempt: Attempt) -> Condition:
    """Return the condition that an entry is as it was found, or as predicted and older than the change."""
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
    if not attempt.before:
        return AnyOf((_ABSENT, AllOf((older, _NOTHING_BEFORE, _NOTHING_PENDING))))
    # An entry with pending publishes is read, so that they are made and then forgotten.
    return AllOf((older, Equal(("contributions",), {"S": attempt.before_text}), _NOTHING_PENDING))


def _member_writes(attempt: Attempt, target: Target, piece: Piece) -> Iterable[Write]:
    rule, text = target
    source = attempt.change.source
    generation = attempt.opened.of(target)
    purpose = Purpose("member", (rule,), text, attempt.change.sequences)
    for member in piece.removes:
        yield Delete(member_key(rule, text, generation, member, source), purpose=purpose)
    for member in piece.puts:
        order = member.partition("|")[2].partition(" ")[0]
        values: dict[str, Value] = {"s": {"S": source}}
        if order:  # a claim has none: its source is its order
            values |= {"o": {"S": order}, "v": decode_order(order)}
        payload = attempt.change.after.payloads.get((rule, text, member))
        if payload:
            values["a"] = {"M": payload}
        remove = () if payload else ("a",)
        key = member_key(rule, text, generation, member, source)
        yield Update(key, set=values, remove=remove, purpose=purpose)


def _count(attempt: Attempt, target: Target, piece: Piece, into: dict[ItemKey, ValueCounter]) -> None:
    """Add what an attempt changes in counters."""
    generation = attempt.opened.of(target)
    for value, number in piece.counted.items():
        counter = ValueCounter(target, generation, value)
        counter = into.setdefault(counter.key, counter)
        counter.added += number
        counter.kept += piece.kept.get(value, 0)
        counter.records.extend(attempt.change.sequences)


def _settle_extremes(attempt: Attempt, target: Target, piece: Piece, into: dict[ItemKey, Update]) -> None:
    """Add the writes of settled values that may be the least or greatest ones; of several, the more extreme one."""
    rule, text = target
    generation = attempt.opened.of(target)
    partition = group_key(rule, text, generation).partition
    for member in piece.settled:
        slot, _, order = member.partition("|")
        for which in EXTREMES:
            key = ItemKey(LEDGER, partition, extreme_sort(generation, slot, which))
            if key in attempt.not_extreme:
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
                purpose=Purpose("extreme", (rule,), text, attempt.change.sequences),
            )
