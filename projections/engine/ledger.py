"""Committing contributions to the ledger: many source items per transaction, each applied at most once per version.

    predict   what each entry holds: from the old image, or from the entry as it was found (`prediction`)
    pack      differences with the same targets into one transaction, up to DynamoDB's limits (`packing`)
    send      transactions without a common group at once, the others one after another (`transactions`)
    again     what was found otherwise, from the entries that the cancelled transaction returned
    steps     a change that one transaction cannot hold, or that DynamoDB refuses (`steps`)

Invariants:

- The entry and the groups change in one transaction, under the condition that the entry is as expected. So the totals of a
  group are the sums of what the entries contribute, whichever invocation ends in between, and a version is applied once.
- Nothing is read before: the old image predicts the entry. A wrong prediction costs one more transaction, a right one no
  read. Reading each entry first would cost a request per source item.
- A request that DynamoDB refuses as invalid fails its whole transaction, without naming the item. It is halved until the bad
  change is alone; the rules of that change are then tried one by one.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import partial

from projections.engine.attempts import MOST_ACTIONS, Attempt, fail
from projections.engine.changes import Change, Result
from projections.engine.counters import Counters
from projections.engine.deadline import Deadline, OutOfTime
from projections.engine.groups import Generations
from projections.engine.ledger_items import Entry, entry_key
from projections.engine.packing import Transaction, lanes, pack
from projections.engine.prediction import Predictor
from projections.engine.running import Run, one_by_one
from projections.engine.steps import Steps
from projections.engine.store import Store
from projections.engine.transactions import Transactions
from projections.errors import InvalidRequest, Transient
from projections.language.contribution import Contributions
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
