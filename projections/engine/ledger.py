"""Committing contributions to the ledger: many source items per transaction, each applied at most once per version.

The protocol is section "Aggregates" of the design, modelled in its `models/ledger.py`:

- An entry is predicted from the old image; the transaction's conditions check the prediction.
- A cancelled transaction carries the actual entries; what they show as applied is a duplicate, for the rest the delta is
  taken from what the entry really says.
- A request that DynamoDB refuses as invalid condemns its whole transaction: it is bisected until the bad item is alone, and
  that item's rules are then tried one by one.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from typing import Literal

from projections.engine.counters import Counters
from projections.engine.culprits import refusing_group
from projections.engine.deadline import UNLIMITED, Deadline, OutOfTime
from projections.engine.delta import (
    WIDE,
    Load,
    Piece,
    difference,
    other_marks,
    steps,
    unstamped,
    with_mark,
    with_marks,
    without_mark,
)
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
    recent_element,
    whole_key,
)
from projections.engine.limits import refusal
from projections.engine.running import Run, one_by_one
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
from projections.errors import ConditionFailed, InvalidRequest, StoreError, TransactionCancelled, Transient
from projections.language.contribution import Contributions, Evaluated, canonical_text
from projections.language.ordering import decode_order
from projections.language.program import Program
from projections.language.values import number_text

__all__ = ["Change", "Ledger"]

MOST_ACTIONS = 100
MOST_BYTES = 3_500_000
"""DynamoDB takes 4 MB a transaction; ours are estimated, so they stay well below."""

_LONGEST_REASON = 500

_OPEN = Missing((CLOSED,))
_ZERO = Decimal(0)
_ONE_MORE: Value = {"N": "1"}
_FIRST = Generations()
_ABSENT = Missing(("pk",))
_OPEN_AND_THERE = AllOf((Exists(("pk",)), _OPEN))
_NOTHING_BEFORE = Equal(("contributions",), {"S": "{}"})
_NOTHING_OWED = Missing(("recent",))


ChangeState = Literal["pending", "applied", "duplicate", "moved", "failed"]
"""What became of a change. Pending: nothing yet. Duplicate: the entry is as new as the change. Moved: a refresh whose entry
is not as it was read. Failed: not done, and `error` has the reason."""


@dataclass(slots=True, eq=False)
class Change:
    """What one source item contributed before and contributes after some records, as of a version.

    `entry` is what the ledger was found to say; until that is known, `before` is a prediction from the old image.

    `version` is empty for a refresh: it leaves the entry's version as it is, and is made of an entry that was read before
    the source item was. If that entry has moved, the item has to be read again: the change has "moved".
    """

    source: str
    version: str
    before: Contributions
    after: Evaluated
    settle: Contributions = field(default_factory=dict)
    touched: set[Target] = field(default_factory=set)
    sequences: list[str] = field(default_factory=list)
    gone: bool = False
    expired: bool = False
    """Whether any of the records tells of an expiry."""
    expiry: str = ""
    """The version of the expiry that is settled, or left for later. The entry remembers it."""
    learned: str = ""
    """Of a refresh: the version of the newest record that it took into account, if it knows one."""
    held: frozenset[str] = frozenset()
    """Rules that keep what has expired and are not active: of an expiry, their part of the entry stays as it was found."""
    active: frozenset[str] = frozenset()
    """Rules that keep what has expired and settle it, and what an expiry left in the entry before they were active."""
    left: frozenset[str] = frozenset()
    """Rules in `settle` because of such an earlier expiry."""

    entry: Entry | None = None
    known: bool = False
    state: ChangeState = "pending"
    error: StoreError | None = None
    rejected: list[tuple[str, str]] = field(default_factory=list)
    """Rules whose contribution the ledger cannot hold, with the reason."""
    culprits: dict[str, str] = field(default_factory=dict)
    """Of these rules, the targets whose groups cannot take the contribution. Else the item itself is the cause."""
    retracted: set[str] = field(default_factory=set)
    not_extreme: set[ItemKey] = field(default_factory=set)
    opened: Generations = _FIRST
    """The generations that `pieces` and `goal` are about: what is written must be about the same."""
    pieces: dict[Target, Piece] = field(default_factory=dict)
    goal: Contributions = field(default_factory=dict)
    text: str = "{}"
    """The goal as the entry will have it."""

    before_text: str = "{}"
    """What the goal was compared with, as the entry should have it."""

    actions: int = 1
    """How many actions of a transaction its pieces take."""

    most_actions: int = MOST_ACTIONS
    """How many a transaction takes."""

    size: int = 0
    """About how many bytes of a transaction its pieces take."""

    @property
    def settling(self) -> str:
        """What marks in the entry that a part of `settle` is done."""
        return self.expiry or self.version or "-"

    @property
    def fits(self) -> bool:
        """Whether one transaction is enough."""
        return self.actions <= self.most_actions and self.size <= MOST_BYTES


@dataclass(slots=True, eq=False)
class Transaction:
    """Changes that are committed together, and the groups they share."""

    changes: list[Change] = field(default_factory=list)
    groups: set[Target] = field(default_factory=set)
    actions: int = 0
    size: int = 0

    def take(self, change: Change) -> bool:
        """Adds a change if there is room: groups that are in already cost no action more. The first always has room."""
        actions = self.actions + change.actions - sum([target in self.groups for target in change.pieces])
        size = self.size + change.size
        if self.changes and (actions > change.most_actions or size > MOST_BYTES):
            return False
        self.actions, self.size = actions, size
        self.groups.update(change.pieces)
        self.changes.append(change)
        return True


class Ledger:
    """Commits changes. `run` runs transactions with disjoint groups, `chance` picks a group's shard.

    `reserved` is how many actions the store adds to each transaction.
    `relieve` publishes what an entry still owes and forgets it; it returns the entry as it is then, None if nothing of it
    could be forgotten, and raises Transient. An entry that would become too large is relieved first. It is called by what
    `run` runs.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        *,
        run: Run[None] = one_by_one,
        chance: Callable[[], float] = random.random,
        generations: Generations | None = None,
        counters: Counters | None = None,
        reserved: int = 0,
        relieve: Callable[[str, Entry, Deadline], Entry | None] = lambda source, entry, deadline: None,
    ) -> None:
        self._program = program
        self._store = store
        self._run = run
        self._chance = chance
        self._reserved = reserved
        self._relieve = relieve
        self.generations = generations or Generations()
        self._sharded: dict[tuple[Target, int], int] = {}
        self._named: set[tuple[Target, int]] = set()
        """Generations that closed groups were found to name: they may be created here, should they be lost."""
        self._counters = counters or Counters()

    def commit(self, changes: Sequence[Change], deadline: Deadline) -> None:
        """Commits each change or finds it committed; a source item must not occur twice. Sets each change's `state`.

        A refresh whose entry is not as it was read has "moved": nothing of it is done, and both are to be read again.

        Raises nothing for a change's sake: what could not be done in time is "failed", what can never be done is in
        `rejected` and contributes nothing. Raises `errors.Misconfigured`.
        """
        self._commit(changes, deadline)
        for change in changes:
            if change.rejected:
                self._find_culprits(change)

    def _commit(self, changes: Sequence[Change], deadline: Deadline) -> None:
        pending = list(changes)
        attempt = 0
        try:
            self._look([change for change in pending if change.expiry and not change.known], deadline)
        except Transient as error:
            return _fail(pending, error)
        pending = [change for change in pending if change.state == "pending"]
        while pending:
            try:
                self._predict(pending, deadline)
                lanes = _lanes(_pack([change for change in pending if change.fits], deadline), deadline)
            except OutOfTime as error:
                return _fail(pending, error)
            for change in [change for change in pending if not change.fits]:
                self._guarded(change, partial(self._commit_in_steps, change), deadline)
            self._run([partial(self._work_off, lane, deadline) for lane in lanes])
            pending = [change for change in pending if change.state == "pending"]
            if pending and (attempt := attempt + 1) > 3:
                try:
                    deadline.pause(attempt)
                except Transient as error:
                    _fail(pending, error)
                    return None
        return None

    def _look(self, changes: Sequence[Change], deadline: Deadline) -> None:
        """Reads the entries of changes: of expiries they remember only so many, so the list is never added to blindly."""
        if not changes:
            return
        deadline.check()
        items = self._store.get_many([entry_key(change.source) for change in changes])
        for change in changes:
            _found(change, items.get(entry_key(change.source)))

    def _predict(self, changes: Sequence[Change], deadline: Deadline) -> None:
        """The differences to commit together, each from the prediction or from the entry as found."""
        for change in changes:
            if change.known:
                self.generations.learn(self._now(change))
        opened = self.generations.as_now()
        alike: dict[tuple[str, str], Change] = {}
        for change in deadline.checked(changes):
            change.opened, change.most_actions = opened, MOST_ACTIONS - self._reserved
            if change.known:
                before = self._now(change)
                _settle_left(change, before)
            else:
                before = change.before = opened.stamped(change.before)
            removed = change.gone and not change.expired and bool(change.version)
            change.goal = self._goal(before, change.after.contributions, opened, removed=removed, held=change.held)
            if change.known and change.version:
                for rule, marks in other_marks(before, change.settling).items():
                    if rule in self._program.rules:
                        kept = with_marks(change.goal.get(rule, {}), marks, change.version)
                        change.goal = {**change.goal, rule: kept}
            change.before_text, change.text = canonical_text(before), canonical_text(change.goal)
            other = None if change.settle else alike.setdefault((change.before_text, change.text), change)
            if other is None or other is change:
                change.pieces = difference(before, change.goal, change.settle, change.settling, opened.of)
                change.retracted = _retracted(before, change.goal, change.settle)
                change.actions = 1 + sum([piece.actions for piece in change.pieces.values()])
            else:  # as all likes of one post are
                change.pieces, change.retracted, change.actions = other.pieces, other.retracted, other.actions
            change.size = 500 + 2 * len(change.text)
            if change.after.payloads:
                change.size += sum(_put_sizes(change, target, piece) for target, piece in change.pieces.items())

    def goal(self, before: Contributions, after: Contributions) -> Contributions:
        """What the entry shall say after a refresh."""
        return self._goal(before, after, self.generations, removed=False)

    def _goal(
        self,
        before: Contributions,
        after: Contributions,
        opened: Generations,
        *,
        removed: bool,
        held: frozenset[str] = frozenset(),
    ) -> Contributions:
        """What the entry shall say.

        Rules that we do not know, because they are newer or retired, keep what they contributed, unless the item was
        removed: that means the same to all rules, and if not now, those who know them will never learn of it. Rules that are
        `held` keep it exactly as it is.
        """
        kept = {
            rule: targets
            for rule, targets in before.items()
            if rule in held
            or (rule not in self._program.rules and self._program.retired.get(rule) != "remove" and not removed)
        }
        after = opened.stamped(after)
        return {**kept, **after} if kept else after

    def _work_off(self, lane: Sequence[Transaction], deadline: Deadline) -> None:
        for number, transaction in enumerate(lane):
            if deadline.over:
                return _fail([change for left in lane[number:] for change in left.changes], deadline.out_of_time)
            self._transact(transaction.changes, deadline)
        return None

    def _transact(self, changes: list[Change], deadline: Deadline) -> None:
        try:
            deadline.retry(partial(self._transact_once, changes))
        except InvalidRequest:
            self._bisect(changes, deadline)
        except Transient as error:
            _fail(changes, error)

    def _transact_once(self, changes: Sequence[Change]) -> None:
        """Makes one transaction of changes. Those that it finds otherwise than predicted stay pending.

        Raises Transient, and InvalidRequest if an action is refused.
        """
        writes, roles = self._writes(changes)
        self._counters.add("transactions")
        try:
            self._store.transact(writes)
        except TransactionCancelled as cancelled:
            kinds = {reason.kind for reason in cancelled.reasons if reason is not None}
            if "condition" in kinds:
                self._learn(cancelled, roles)
                return
            raise (InvalidRequest if "invalid" in kinds else Transient)(str(cancelled)) from cancelled
        for change in changes:
            change.state = "applied"

    def _bisect(self, changes: list[Change], deadline: Deadline) -> None:
        if len(changes) > 1:
            middle = len(changes) // 2
            self._transact(changes[:middle], deadline)
            self._transact(changes[middle:], deadline)
            return
        self._guarded(changes[0], partial(self._commit_by_rule, changes[0]), deadline)

    def _learn(self, cancelled: TransactionCancelled, roles: Sequence[Change | Target | ItemKey]) -> bool:
        """Takes from the reasons of a cancelled transaction what the entries and groups really are.

        Whether a group was found closed, or missing: then amounts have to be taken anew.
        """
        closed = False
        opened = next((role.opened for role in roles if isinstance(role, Change)), _FIRST)
        for reason, role in zip(cancelled.reasons, roles, strict=False):
            if reason is None or reason.kind != "condition":
                continue
            if isinstance(role, Change):
                if not role.version:
                    role.state = "moved"
                    continue
                _found(role, reason.item)
            elif isinstance(role, ItemKey):
                for change in (other for other in roles if isinstance(other, Change)):
                    change.not_extreme.add(role)
            elif reason.item:
                self._named.add((role, self.generations.closed(role, opened.of(role), reason.item)))
                closed = True
            else:
                self.generations.missing(role, opened.of(role))
                closed = True
        return closed

    # What one transaction writes.

    def _writes(self, changes: Sequence[Change]) -> tuple[list[Write], list[Change | Target | ItemKey]]:
        """The writes of a transaction and, position by position, what each is about."""
        writes: list[Write] = []
        roles: list[Change | Target | ItemKey] = []
        amounts: dict[Target, dict[str, Decimal]] = {}
        extremes: dict[ItemKey, Update] = {}
        others: list[Write] = []
        for change in changes:
            writes.append(self._entry_write(change))
            roles.append(change)
            for target, piece in change.pieces.items():
                totals = amounts.setdefault(target, {})
                for slot, amount in piece.amounts.items():
                    totals[slot] = WIDE.add(totals.get(slot, _ZERO), amount)
                if piece.puts or piece.removes:
                    others.extend(self._member_writes(change, target, piece))
                if piece.settled:
                    self._settle_extremes(change, target, piece, extremes)
        for target, totals in amounts.items():
            writes.append(self._group_write(target, totals, extremes, changes[0].opened.of(target)))
            roles.append(target)
        for key, write in extremes.items():
            writes.append(write)
            roles.append(key)
        return [*writes, *others], roles

    def _entry_write(self, change: Change, *, last: bool = True) -> Update:
        """Of the last step of a change, or of one on the way there: then the entry keeps the version it has."""
        values: dict[str, Value] = {
            "contributions": {"S": change.text},
            "rules": {"S": self._program.fingerprint},
        }
        version = change.version if last else ""
        if last and change.expiry:
            entry = change.entry
            known = entry.expiries | {change.expiry} if entry is not None else {change.expiry}
            values["expiries"] = {"SS": sorted(known)[-MOST_EXPIRIES:]}
        if last and not version and (change.entry is None or change.entry.version < change.learned):
            version = change.learned
        if version:
            values["version"] = {"S": version}
        elif change.entry is None:
            values["version"] = {"S": ""}
        key = entry_key(change.source)
        values.update(whole_key(key, change.source))
        add: dict[str, Value] = {"revision": _ONE_MORE}
        if change.retracted:
            add["recent"] = {"SS": sorted(change.retracted)}
        remove = ["ttl"]
        if last and not change.held.isdisjoint(change.goal):
            values["expired"] = {"BOOL": True}
        elif change.entry is not None and change.entry.expired and not change.gone:
            remove.append("expired")
        if last:
            if change.rejected:
                values["refused"] = {"M": {rule: {"S": reason[:_LONGEST_REASON]} for rule, reason in change.rejected}}
            else:
                remove.append("refused")
        why = Purpose("entry", (), change.source)
        return Update(key, set=values, add=add, remove=remove, condition=_entry_condition(change), purpose=why)

    def _group_write(
        self, target: Target, totals: dict[str, Decimal], extremes: Iterable[ItemKey], generation: int
    ) -> Update:
        add: dict[str, Value] = {"version": _ONE_MORE}
        for slot, amount in totals.items():
            if amount:
                add[slot] = {"N": number_text(amount)}
        shard = self._shard(target, generation)
        key = group_key(*target, generation, shard)
        values = dict(whole_key(key, target[1]))
        if any(extreme.partition == key.partition for extreme in extremes):
            values["extremes"] = {"BOOL": True}
        there = self._remembered(target, generation) and shard == 0
        why = Purpose("group", target[:1], target[1])
        return Update(key, set=values, add=add, condition=_OPEN_AND_THERE if there else _OPEN, purpose=why)

    def _remembered(self, target: Target, generation: int) -> bool:
        """Whether a generation is only remembered: the ledger may have been restored since, and not have it."""
        return generation > 0 and (target, generation) not in self._named

    def _shard(self, target: Target, generation: int) -> int:
        """The shard of a group that this transaction adds to. The first shard says how many there have ever been."""
        shards = spread(self._program, target)
        if shards <= 1:
            return 0
        if self._sharded.get((target, generation)) != shards:
            count: Value = {"N": str(shards)}
            path = (SHARD_COUNT,)
            there = _OPEN_AND_THERE if self._remembered(target, generation) else _OPEN
            fewer = AllOf((there, AnyOf((Missing(path), Below(path, count)))))
            try:
                why = Purpose("shards", target[:1], target[1])
                key = group_key(*target, generation)
                self._store.write(Update(key, set={SHARD_COUNT: count}, condition=fewer, purpose=why))
            except ConditionFailed as failed:  # as many or more are known, or it is closed
                if failed.item is None or CLOSED in failed.item:
                    # Which the commit finds closed, or missing; who closed it knew of no more shards than it counted.
                    return 0
            self._sharded[target, generation] = shards
        return int(self._chance() * shards)

    def _member_writes(self, change: Change, target: Target, piece: Piece) -> Iterable[Write]:
        rule, text = target
        generation = change.opened.of(target)
        why = Purpose("member", (rule,), text)
        for member in piece.removes:
            yield Delete(member_key(rule, text, generation, member, change.source), purpose=why)
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
            yield Update(key, set=values, remove=remove, purpose=why)

    def _settle_extremes(self, change: Change, target: Target, piece: Piece, into: dict[ItemKey, Update]) -> None:
        rule, text = target
        generation = change.opened.of(target)
        partition = group_key(rule, text, generation).partition
        for member in piece.settled:
            slot, _, order = member.partition("|")
            for which in EXTREMES:
                key = ItemKey(LEDGER, partition, extreme_sort(generation, slot, which))
                if key in change.not_extreme:
                    continue
                rival = into.get(key)
                if rival is not None:
                    held = rival.set["order"]["S"]
                    if (held <= order) if which == "least" else (held >= order):
                        continue
                path, value = ("order",), {"S": order}
                beaten: Condition = Above(path, value) if which == "least" else Below(path, value)
                into[key] = Update(
                    key,
                    set={
                        "order": value,
                        "v": decode_order(order),
                        "slot": {"S": slot},
                        "which": {"S": which},
                    },
                    condition=AnyOf((Missing(path), beaten)),
                    purpose=Purpose("extreme", (rule,), text),
                )

    # A single change that does not fit into one transaction, or that DynamoDB refuses.

    def _guarded(self, change: Change, commit: Callable[[Deadline], None], deadline: Deadline) -> None:
        try:
            commit(deadline)
        except Transient as error:
            _fail([change], error)

    def _find(self, change: Change, deadline: Deadline) -> bool:
        """Reads the entry; whether there is anything left to do. A refresh has read it, and then the item."""
        deadline.check()
        if not change.version:
            self._predict([change], deadline)
            return True
        if _found(change, self._store.get(entry_key(change.source))):
            return False
        self._predict([change], deadline)
        return True

    def _commit_in_steps(self, change: Change, deadline: Deadline) -> None:
        """More than a transaction holds: several transactions, the version raised by the last."""
        while self._find(change, deadline):
            before = change.entry.contributions if change.entry is not None else {}
            goal = change.goal
            try:
                found = self._walk(change, before, goal, change.settle, deadline, last=True)
            except InvalidRequest:
                return self._commit_by_rule(change, deadline)
            if found:
                change.state = "applied"
                return None
            if not change.version:
                change.state = "moved"
                return None
        return None

    def _walk(
        self,
        change: Change,
        before: Contributions,
        goal: Contributions,
        settle: Contributions,
        deadline: Deadline,
        *,
        last: bool = False,
    ) -> bool:
        """Moves a known entry to `goal` in as many transactions as it takes. `last` says that the goal is the change's.

        False if the entry was not as known any more. Raises InvalidRequest, the entry being true up to there.
        """
        load = Load(
            MOST_ACTIONS - self._reserved - 1, MOST_BYTES - 2 * len(canonical_text(goal)), partial(_put_size, change)
        )
        for step, settled in steps(before, goal, load, settle, change.settling, change.opened.of):
            if not self._advance(change, step, settled, deadline, last=last and step is goal):
                return False
        return True

    def _commit_by_rule(self, change: Change, deadline: Deadline) -> None:
        """DynamoDB refuses the change: its rules one by one; one that cannot be held contributes nothing.

        What a rule settles stays marked until all rules are done, so that starting over settles nothing twice.
        """
        refused: dict[str, str] = {}
        while self._find(change, deadline):
            goal, lost = change.goal, False  # each step sets another goal
            for rule in sorted(self._now(change).keys() | goal.keys() | change.settle.keys()):
                settle = {rule: change.settle[rule]} if rule in change.settle else {}
                wanted = goal.get(rule, {})
                marked = {target: with_mark(wanted.get(target, {}), change.settling) for target in settle.get(rule, {})}
                wishes = [({**wanted, **marked}, settle)] if rule not in refused else []
                least = other_marks(self._now(change), change.settling).get(rule, {})
                for wish, settling in [*wishes, (least, {})]:
                    now = self._now(change)
                    if wish == now.get(rule, {}):
                        break
                    step = {name: targets for name, targets in {**now, rule: wish}.items() if targets}
                    try:
                        lost = not self._walk(change, now, step, settling, deadline)
                    except InvalidRequest as reason:
                        refused.setdefault(rule, refusal(str(reason), entry=True))
                        continue
                    break
                if lost:
                    break
            if lost and not change.version:
                change.state = "moved"
                return
            if lost:
                continue
            done = without_mark(self._now(change), change.settling)
            change.rejected = sorted(refused.items())  # before the last step, which writes it down
            if self._walk(change, self._now(change), done, {}, deadline, last=True):
                change.state = "applied"
                return
            if not change.version:
                change.state = "moved"
                return

    def _find_culprits(self, change: Change) -> None:
        """Replace the reasons of refusals that a group causes, and name its target. Best deadline: nothing depends on it."""
        found: list[tuple[str, str]] = []
        for rule, reason in change.rejected:
            held, wanted = self._now(change).get(rule, {}), change.after.contributions.get(rule, {})
            settle = {rule: change.settle[rule]} if rule in change.settle else {}
            after = self.generations.stamped({rule: wanted})
            pieces = difference({rule: held}, after, settle, change.settling, self.generations.of)
            amounts = {target: piece.amounts for target, piece in pieces.items()}
            with suppress(StoreError):
                if culprit := refusing_group(self._store, self._program, amounts, self.generations):
                    change.culprits[rule], reason = culprit
            found.append((rule, reason))
        change.rejected = found

    @staticmethod
    def _now(change: Change) -> Contributions:
        """What the entry is known to say."""
        return change.entry.contributions if change.entry is not None else {}

    def _advance(
        self, change: Change, step: Contributions, settled: Contributions, deadline: Deadline, *, last: bool
    ) -> bool:
        """Moves a known entry to `step` in one transaction. False if the entry was not as known any more."""
        before = change.entry.contributions if change.entry is not None else {}
        change.goal, change.text = step, canonical_text(step)
        change.pieces = difference(before, step, settled, change.settling, change.opened.of)
        change.retracted = _retracted(before, step, settled)
        return deadline.retry(partial(self._advance_once, change, step, last, deadline))

    def _advance_once(self, change: Change, step: Contributions, last: bool, deadline: Deadline) -> bool:
        while True:
            deadline.check()
            writes, roles = self._writes([change])
            if not last:
                writes[0] = self._entry_write(change, last=False)
            self._counters.add("transactions")
            try:
                self._store.transact(writes)
            except TransactionCancelled as cancelled:
                kinds = {reason.kind for reason in cancelled.reasons if reason is not None}
                if "condition" in kinds:
                    closed = self._learn(cancelled, roles)
                    if closed or cancelled.reasons[0] is not None:
                        return False
                    continue
                if "invalid" in kinds:
                    if self._relieved(change, deadline):
                        continue
                    message = next(r.message for r in cancelled.reasons if r is not None and r.kind == "invalid")
                    raise InvalidRequest(message) from cancelled
                raise Transient(str(cancelled)) from cancelled
            except InvalidRequest:
                if not self._relieved(change, deadline):
                    raise
            else:
                old = change.entry
                change.entry = Entry(
                    (change.version if last else "") or (old.version if old is not None else ""),
                    step,
                    (old.recent if old is not None else frozenset()) | change.retracted,
                    (old.revision if old is not None else 0) + 1,
                    expired=old is not None and old.expired,
                    expiries=old.expiries if old is not None else frozenset(),
                )
                change.touched |= change.entry.targets
                return True

    def _relieved(self, change: Change, deadline: Deadline) -> bool:
        """Whether the entry owes less than before, which may have been what made it too large."""
        entry = change.entry
        if entry is None or not entry.recent:
            return False
        change.touched |= entry.owed
        relieved = self._relieve(change.source, entry, deadline)
        if relieved is None or relieved.recent == entry.recent:
            return False
        change.entry = relieved
        return True


def _found(change: Change, item: Image | None) -> bool:
    """Notes the entry of a change as it is. Whether it is as new as the change: a duplicate.

    What was refused then is told again: the one who committed it may have died, or failed to reach the quarantine, before
    it was told.
    """
    change.known = True
    change.entry = entry = Entry.read(item) if item else None
    if entry is None:
        return False
    change.touched |= entry.targets
    if not change.version or entry.version < change.version:
        return False
    change.state = "duplicate"
    if entry.version == change.version:
        change.rejected = sorted(entry.refused.items())
    return True


def _settle_left(change: Change, before: Contributions) -> None:
    """Adds to `settle` what an earlier expiry left in the entry, of rules that are active by now."""
    if change.left:
        change.settle = {rule: targets for rule, targets in change.settle.items() if rule not in change.left}
        change.left = frozenset()
    if change.entry is not None and change.entry.expired:
        change.left = change.active & before.keys() - change.settle.keys()
        change.settle = {**change.settle, **{rule: unstamped(before[rule]) for rule in change.left}}


def _entry_condition(change: Change) -> Condition:
    if change.known:
        if change.entry is None:
            return _ABSENT
        return AllOf(
            (
                Equal(("revision",), {"N": str(change.entry.revision)}),
                Equal(("version",), {"S": change.entry.version}),
            )
        )
    older = Below(("version",), {"S": change.version})
    if not change.before:
        return AnyOf((_ABSENT, AllOf((older, _NOTHING_BEFORE, _NOTHING_OWED))))
    # An entry that owes publications is looked at, so that they are made and then forgotten.
    return AllOf((older, Equal(("contributions",), {"S": change.before_text}), _NOTHING_OWED))


def _retracted(before: Contributions, after: Contributions, settle: Contributions) -> set[str]:
    """The targets that change, and that the entry does not name afterwards."""
    return {
        recent_element((rule, target))
        for contributions in (before, settle)
        for rule, targets in contributions.items()
        for target in targets
        if target not in after.get(rule, {})
    }


def _put_sizes(change: Change, target: Target, piece: Piece) -> int:
    return sum(_put_size(change, target, member) for member in piece.puts)


def _put_size(change: Change, target: Target, member: str) -> int:
    """About how many bytes the put of a member takes."""
    payload = change.after.payloads.get((*target, member))
    return len(str(payload)) if payload else 0


def _fail(changes: Iterable[Change], error: StoreError) -> None:
    for change in changes:
        if change.state == "pending":
            change.state, change.error = "failed", error


def _pack(changes: Sequence[Change], deadline: Deadline = UNLIMITED) -> list[Transaction]:
    """Into as few transactions as possible: changes of the same targets stand together, the busiest target first."""
    uses = Counter(target for change in changes for target in change.pieces)

    def busiest(change: Change) -> tuple[int, Target]:
        return min([(-uses[target], target) for target in change.pieces], default=(0, ("", "")))

    transactions: list[Transaction] = []
    order = sorted((*busiest(change), number) for number, change in enumerate(deadline.checked(changes)))
    for change in (changes[number] for *_, number in deadline.checked(order)):
        if not transactions or not transactions[-1].take(change):
            transactions.append(Transaction())
            transactions[-1].take(change)
    return transactions


def _lanes(transactions: Sequence[Transaction], deadline: Deadline = UNLIMITED) -> list[list[Transaction]]:
    """Transactions that share a group follow one another, in their order; the others may run at once."""
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
    lanes: dict[int, list[Transaction]] = {}
    for number, transaction in enumerate(transactions):
        lanes.setdefault(leader(number), []).append(transaction)
    return list(lanes.values())
