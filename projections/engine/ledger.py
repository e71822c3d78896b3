"""Committing contributions to the ledger: many source items per transaction, each applied at most once per version.

    predict   what each entry holds: from the old image, or from the entry as it was found (`attempts`)
    pack      differences with the same targets into one transaction, up to DynamoDB's limits (`attempts`)
    send      transactions without a common group at once, the others one after another (`transactions`)
    again     what was found otherwise, from the entries that the cancelled transaction returned
    steps     a change that one transaction cannot hold, or that DynamoDB refuses: several transactions

Invariants:

- The entry and the groups change in one transaction, under the condition that the entry is as expected. So the totals of a
  group are the sums of what the entries contribute, whichever invocation ends in between, and a version is applied once.
- Nothing is read before: the old image predicts the entry. A wrong prediction costs one more transaction, a right one no
  read. Reading each entry first would cost a request per source item.
- A request that DynamoDB refuses as invalid fails its whole transaction, without naming the item. It is halved until the bad
  change is alone; the rules of that change are then tried one by one.
- Each step leaves a true entry: the groups have exactly what the entry contributes. Only the last step raises the version,
  so that a redelivery goes on where an earlier invocation ended. An expiry that is settled in a step is marked in the entry
  until the last one, so that no repetition settles it twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

from projections.engine.attempts import (
    MOST_ACTIONS,
    MOST_BYTES,
    Attempt,
    Predictor,
    Transaction,
    fail,
    lanes,
    pack,
    put_size,
    retracted,
)
from projections.engine.changes import (
    Change,
    Load,
    Result,
    difference,
    intermediate_goals,
    other_marks,
    with_mark,
    without_mark,
)
from projections.engine.groups import Generations, refusing_group
from projections.engine.ledger_items import Entry, entry_key
from projections.engine.rejections import refusal
from projections.engine.report import Counters
from projections.engine.running import Deadline, OutOfTime, Run, one_by_one
from projections.engine.store import Store
from projections.engine.transactions import Transactions
from projections.errors import InvalidRequest, StoreError, Transient
from projections.language.contribution import Contributions, canonical_text
from projections.language.program import Program

__all__ = ["MOST_ACTIONS", "Ledger"]

_WITHOUT_PAUSE = 3
"""Rounds after which an attempt waits: entries and groups that change so often are busy."""


class Ledger:
    """Commits changes. `run` runs transactions with disjoint groups, `chance` picks a group's shard.

    `reserved` is how many actions the store adds to each transaction.
    `relieve` makes the pending publishes of an entry that would become too large, and removes them from it; it returns the
    entry as it is then, None if none could be removed, and raises Transient. It is called within pieces that `run` runs.
    `spend` is called with each attempt before it is made, and may raise OutOfTime. If it returns False, the change is
    "deferred".
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
        relieve: Callable[[Change, Entry, Deadline], Entry | None] = lambda change, entry, deadline: None,
        spend: Callable[[Attempt], bool] = lambda attempt: True,
    ) -> None:
        self._store = store
        self._spend = spend
        self._run = run
        generations = generations or Generations()
        self._predictor = Predictor(program, generations, MOST_ACTIONS - reserved)
        self._transactions = Transactions(program, store, generations, chance, counters or Counters())
        self._steps = Steps(program, store, generations, self._predictor, self._transactions, relieve)

    def commit(self, changes: Sequence[Change], deadline: Deadline) -> list[Result]:
        """Commit each change or find it committed. Return what became of them, in order. No source item may occur twice.

        A refresh whose entry is not as it was read has "moved": it is not applied, and both have to be read again.

        An error of one change is in its result: "failed" if it could not be done in time, `refused` for rules whose
        contribution the ledger can never hold and which contribute nothing. Raises `errors.Misconfigured`.
        """
        attempts = [Attempt(change) for change in changes]
        self._commit(attempts, deadline)
        for attempt in attempts:
            if attempt.refused:
                self._steps.find_culprits(attempt)
        return [attempt.result() for attempt in attempts]

    def goal(self, before: Contributions, after: Contributions, removed: bool) -> Contributions:
        """Return what an entry is to hold after a refresh. `removed`: the item was deleted, and did not expire."""
        return self._predictor.goal(before, after, removed)

    def _commit(self, attempts: Sequence[Attempt], deadline: Deadline) -> None:
        rounds = 0
        try:
            self._read([attempt for attempt in attempts if attempt.change.expiry and not attempt.known], deadline)
        except Transient as error:
            return fail(attempts, error)
        while pending := [attempt for attempt in attempts if attempt.state == "pending"]:
            if (rounds := rounds + 1) > _WITHOUT_PAUSE + 1:
                try:
                    deadline.pause(rounds - 1)
                except Transient as error:
                    return fail(pending, error)
            try:
                self._predictor.predict(pending, deadline)
                for attempt in pending:
                    if not self._spend(attempt):
                        attempt.state = "deferred"
                pending = [attempt for attempt in pending if attempt.state == "pending"]
                found = lanes(pack([attempt for attempt in pending if attempt.fits], deadline), deadline)
            except OutOfTime as error:
                return fail(pending, error)
            for attempt in [attempt for attempt in pending if not attempt.fits]:
                self._steps.commit(attempt, deadline)
            self._run([partial(self._send_in_order, lane, deadline) for lane in found])
        return None

    def _read(self, attempts: Sequence[Attempt], deadline: Deadline) -> None:
        """Read the entries of expiries first: an entry remembers only so many, so its list is never added to blindly."""
        if not attempts:
            return
        deadline.check()
        items = self._store.get_many([entry_key(attempt.change.source) for attempt in attempts])
        for attempt in attempts:
            attempt.found(items.get(entry_key(attempt.change.source)))

    def _send_in_order(self, lane: Sequence[Transaction], deadline: Deadline) -> None:
        for number, transaction in enumerate(lane):
            if deadline.over:
                return fail([attempt for left in lane[number:] for attempt in left.attempts], deadline.out_of_time)
            self._send(transaction.attempts, deadline)
        return None

    def _send(self, attempts: Sequence[Attempt], deadline: Deadline) -> None:
        """Send one transaction. Attempts that it finds otherwise than predicted stay pending."""
        try:
            if deadline.retry(partial(self._transactions.send, attempts)) == "committed":
                for attempt in attempts:
                    attempt.state = "applied"
        except InvalidRequest:
            self._halve(attempts, deadline)
        except Transient as error:
            fail(attempts, error)

    def _halve(self, attempts: Sequence[Attempt], deadline: Deadline) -> None:
        if len(attempts) == 1:
            return self._steps.commit_by_rule(attempts[0], deadline)
        middle = len(attempts) // 2
        self._send(attempts[:middle], deadline)
        return self._send(attempts[middle:], deadline)


class Steps:
    """Commits single changes in steps; see `Ledger` for `relieve`."""

    def __init__(
        self,
        program: Program,
        store: Store,
        generations: Generations,
        predictor: Predictor,
        transactions: Transactions,
        relieve: Callable[[Change, Entry, Deadline], Entry | None],
    ) -> None:
        self._program = program
        self._store = store
        self._generations = generations
        self._predictor = predictor
        self._transactions = transactions
        self._relieve = relieve

    def commit(self, attempt: Attempt, deadline: Deadline) -> None:
        """Commit a change that needs more than one transaction."""
        try:
            self._commit(attempt, deadline)
        except Transient as error:
            fail([attempt], error)

    def commit_by_rule(self, attempt: Attempt, deadline: Deadline) -> None:
        """Commit a change that DynamoDB refuses, rule by rule. A rule that the ledger cannot hold contributes nothing."""
        try:
            self._commit_by_rule(attempt, deadline)
        except Transient as error:
            fail([attempt], error)

    def find_culprits(self, attempt: Attempt) -> None:
        """Replace the reasons of refusals that a group causes, and name its target. Best effort: nothing depends on it."""
        change = attempt.change
        for rule in attempt.refused:
            wanted = change.after.contributions.get(rule, {})
            settle = {rule: attempt.settle[rule]} if rule in attempt.settle else {}
            after = self._generations.stamped({rule: wanted})
            held = {rule: attempt.held.get(rule, {})}
            pieces = difference(held, after, settle, change.mark, self._generations.of)
            amounts = {target: piece.amounts for target, piece in pieces.items()}
            with suppress(StoreError):
                if culprit := refusing_group(self._store, self._program, amounts, self._generations):
                    target, reason = culprit
                    attempt.culprits = {**attempt.culprits, rule: target}
                    attempt.refused = {**attempt.refused, rule: reason}

    def _commit(self, attempt: Attempt, deadline: Deadline) -> None:
        while self._find(attempt, deadline):
            try:
                done = self._walk(attempt, attempt.goal, attempt.settle, deadline, last=True)
            except InvalidRequest:
                return self._commit_by_rule(attempt, deadline)
            if self._ended(attempt, done):
                return None
        return None

    def _commit_by_rule(self, attempt: Attempt, deadline: Deadline) -> None:
        """The marks of a settled expiry stay until all rules are done, so that starting over settles nothing twice."""
        refused: dict[str, str] = {}
        while self._find(attempt, deadline):
            done = self._rules(attempt, refused, deadline)
            if done:
                attempt.refused = dict(sorted(refused.items()))  # before the last step, which writes it down
                goal = without_mark(attempt.held, attempt.change.mark)
                done = self._walk(attempt, goal, {}, deadline, last=True)
            if self._ended(attempt, done):
                return

    def _rules(self, attempt: Attempt, refused: dict[str, str], deadline: Deadline) -> bool:
        """Bring each rule's part of the entry to its goal, or to nothing where it is `refused`, which is added to.

        Return False if the entry was not as known any more.
        """
        mark = attempt.change.mark
        goal = attempt.goal  # each step sets another goal
        for rule in sorted(attempt.held.keys() | goal.keys() | attempt.settle.keys()):
            settle = {rule: attempt.settle[rule]} if rule in attempt.settle else {}
            wanted = goal.get(rule, {})
            marked = {target: with_mark(wanted.get(target, {}), mark) for target in settle.get(rule, {})}
            wishes = [({**wanted, **marked}, settle)] if rule not in refused else []
            least = other_marks(attempt.held, mark).get(rule, {})
            for wish, settling in [*wishes, (least, {})]:
                now = attempt.held
                if wish == now.get(rule, {}):
                    break
                step = {name: targets for name, targets in {**now, rule: wish}.items() if targets}
                try:
                    if not self._walk(attempt, step, settling, deadline):
                        return False
                except InvalidRequest as reason:
                    refused.setdefault(rule, refusal(str(reason), entry=True))
                    continue
                break
        return True

    def _find(self, attempt: Attempt, deadline: Deadline) -> bool:
        """Read the entry, but not that of a refresh, which has read it, and then the item. Return whether work is left."""
        deadline.check()
        if not attempt.change.is_refresh and attempt.found(self._store.get(entry_key(attempt.change.source))):
            return False
        self._predictor.predict([attempt], deadline)
        return True

    @staticmethod
    def _ended(attempt: Attempt, done: bool) -> bool:
        """Record that a change is done, or that the entry of a refresh has moved. Else the entry has to be read again."""
        if done:
            attempt.state = "applied"
        elif attempt.change.is_refresh:
            attempt.state = "moved"
        return attempt.state != "pending"

    def _walk(
        self,
        attempt: Attempt,
        goal: Contributions,
        settle: Contributions,
        deadline: Deadline,
        *,
        last: bool = False,
    ) -> bool:
        """Move a known entry to `goal` in as many transactions as it takes. `last`: the goal is that of the change.

        Return False if the entry was not as known any more. Raises InvalidRequest; the entry is true up to there.
        """
        change = attempt.change
        room = self._predictor.most_actions - 1
        load = Load(room, MOST_BYTES - 2 * len(canonical_text(goal)), partial(put_size, change))
        for step, settled in intermediate_goals(attempt.held, goal, load, settle, change.mark, attempt.opened.of):
            before = attempt.held
            attempt.goal, attempt.text = step, canonical_text(step)
            attempt.pieces = difference(before, step, settled, change.mark, attempt.opened.of)
            attempt.retracted = retracted(before, step, settled)
            if not deadline.retry(partial(self._step, attempt, last and step is goal, deadline)):
                return False
        return True

    def _step(self, attempt: Attempt, last: bool, deadline: Deadline) -> bool:
        """Make one step in one transaction. Return False if the entry was not as known any more."""
        while True:
            deadline.check()
            try:
                sent = self._transactions.send([attempt], last=last)
            except InvalidRequest:
                if not self._relieved(attempt, deadline):
                    raise
                continue
            if sent == "changed":
                return False
            if sent == "committed":
                old = attempt.entry
                attempt.entry = Entry(
                    (attempt.change.version if last else "") or (old.version if old is not None else ""),
                    attempt.goal,
                    (old.recent if old is not None else frozenset()) | attempt.retracted,
                    (old.revision if old is not None else 0) + 1,
                    expired=old is not None and old.expired,
                    expiries=old.expiries if old is not None else frozenset(),
                )
                attempt.touched = attempt.touched | attempt.entry.targets
                return True

    def _relieved(self, attempt: Attempt, deadline: Deadline) -> bool:
        """Return whether pending publishes could be removed from the entry: they may have made it too large."""
        entry = attempt.entry
        if entry is None or not entry.recent:
            return False
        attempt.touched = attempt.touched | entry.pending
        relieved = self._relieve(attempt.change, entry, deadline)
        if relieved is None or relieved.recent == entry.recent:
            return False
        attempt.entry = relieved
        return True
