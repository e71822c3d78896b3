"""A single change that one transaction cannot hold, or that DynamoDB refuses: several transactions.

Each step leaves a true entry: the groups have exactly what the entry contributes. Only the last step raises the version, so
that a redelivery goes on where an earlier invocation ended. An expiry that is settled in a step is marked in the entry
until the last one, so that no repetition settles it twice.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial

from projections.engine.attempts import MOST_BYTES, Attempt, fail
from projections.engine.changes import Change
from projections.engine.culprits import refusing_group
from projections.engine.deadline import Deadline
from projections.engine.delta import Load, difference, other_marks, steps, with_mark, without_mark
from projections.engine.groups import Generations
from projections.engine.ledger_items import Entry, entry_key
from projections.engine.limits import refusal
from projections.engine.prediction import Predictor, put_size, retracted
from projections.engine.store import Store
from projections.engine.transactions import Transactions
from projections.errors import InvalidRequest, StoreError, Transient
from projections.language.contribution import Contributions, canonical_text
from projections.language.program import Program

__all__ = ["Steps"]


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
        for step, settled in steps(attempt.held, goal, load, settle, change.mark, attempt.opened.of):
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
