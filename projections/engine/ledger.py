"""Committing contributions to the ledger: many source items per transaction, each applied at most once per version.

    predict   what each entry holds: from the old image, or from the entry as it was found
    pack      differences with the same targets into one transaction, up to DynamoDB's limits (`transactions`)
    send      transactions without a common group at once, the others one after another (`transactions`)
    again     what was found otherwise, from the entries that the cancelled transaction returned
    steps     a change that one transaction cannot hold, or that DynamoDB refuses: several transactions

An `Attempt` and a `Step` never change: a transaction that is cancelled returns new attempts, with what it showed.

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
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple

from projections.engine.budget import Budget
from projections.engine.changes import (
    Change,
    Load,
    Refusal,
    Result,
    difference,
    intermediate_goals,
    other_marks,
    retracted_targets,
    with_mark,
    with_marks,
    without_mark,
)
from projections.engine.groups import Generations, refusing_group
from projections.engine.ledger_items import Entry, entry_key
from projections.engine.rejections import refusal
from projections.engine.running import Counters, Deadline, Run, one_by_one
from projections.engine.store import Store
from projections.engine.transactions import (
    MOST_ACTIONS,
    MOST_BYTES,
    Attempt,
    Step,
    Transaction,
    Transactions,
    lanes,
    pack,
)
from projections.errors import InvalidRequest, StoreError, Transient
from projections.language.contribution import Contributions, canonical_text
from projections.language.program import Program

__all__ = ["MOST_ACTIONS", "Ledger"]

_WITHOUT_PAUSE = 3
"""Rounds after which an attempt waits: entries and groups that change so often are busy."""


class _Walk(NamedTuple):
    """How far an attempt came in several transactions: `attempt` has the entry as it is then.

    Changed: the entry or a group was not as known. Refused: DynamoDB refuses a step as invalid. Full: it does, and the entry
    names pending publishes.
    """

    attempt: Attempt
    end: Literal["done", "changed", "refused", "full"]
    reason: str = ""


class Ledger:
    """Commits changes. `run` runs transactions with disjoint groups, `chance` picks a group's shard.

    `reserved` is how many actions the store adds to each transaction. `budget` decides which changes are "deferred"; None
    defers none. `pace` is called with the number of writes before each change is made, and may raise OutOfTime.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        *,
        run: Run[Any] = one_by_one,
        chance: Callable[[], float] = random.random,
        generations: Generations | None = None,
        counters: Counters | None = None,
        reserved: int = 0,
        budget: Budget | None = None,
        pace: Callable[[int], None] | None = None,
    ) -> None:
        self._program = program
        self._store = store
        self._run = run
        self._budget = budget
        self._pace = pace
        self._most_actions = MOST_ACTIONS - reserved
        self._generations = generations or Generations()
        self._transactions = Transactions(program, store, self._generations, chance, counters or Counters())

    def commit(self, changes: Sequence[Change], deadline: Deadline, stuck: Collection[str] = ()) -> list[Result]:
        """Commit each change or find it committed. Return what became of them, in order. No source item may occur twice.

        A refresh whose entry is not as it was read has "moved": it is not applied, and both have to be read again. A change
        whose entry has no room beside its pending publishes is "full": they have to be made and forgotten, then it has to be
        committed again; or, if they cannot be, with its source among those that are `stuck`.

        An error of one change is in its result: "failed" if it could not be done in time, `refused` for rules whose
        contribution the ledger can never hold and which contribute nothing. Raises `errors.Misconfigured`.
        """
        results: dict[str, Result] = {}
        pending = {change.source: Attempt.of(change) for change in changes}
        rounds = 0
        try:
            self._read_expiries(pending, results, deadline)
            while pending:
                if (rounds := rounds + 1) > _WITHOUT_PAUSE + 1:
                    deadline.pause(rounds - 1)
                steps = self._steps(list(pending.values()), deadline)
                now = [step for step in steps if self._affords(step)]
                if len(now) < len(steps):
                    deferred = pending.keys() - {step.attempt.change.source for step in now}
                    results.update({source: pending.pop(source).result("deferred") for source in deferred})
                apart = lanes(pack([step for step in now if self._fits(step)], self._most_actions, deadline), deadline)
                large = [step for step in now if not self._fits(step)]
                outcomes: list[Result | Attempt] = [self._commit_in_steps(step, deadline, stuck) for step in large]
                for sent in self._run([partial(self._send_in_order, lane, deadline, stuck) for lane in apart]):
                    outcomes += sent
                for outcome in outcomes:
                    if isinstance(outcome, Attempt):
                        pending[outcome.change.source] = outcome
                    else:
                        results[outcome.change.source] = outcome
                        del pending[outcome.change.source]
        except Transient as error:
            results.update({source: attempt.result("failed", error=error) for source, attempt in pending.items()})
        return [results[change.source] for change in changes]

    # What to commit

    def _read_expiries(self, pending: dict[str, Attempt], results: dict[str, Result], deadline: Deadline) -> None:
        """Read the entries of expiries first: an entry remembers only so many, so its list is never added to blindly."""
        expiries = [attempt for attempt in pending.values() if attempt.change.expiry and not attempt.known]
        if not expiries:
            return
        deadline.check()
        items = self._store.get_many([entry_key(attempt.change.source) for attempt in expiries])
        for attempt in expiries:
            source = attempt.change.source
            pending[source] = read = attempt.with_entry(items.get(entry_key(source)))
            if read.is_duplicate:
                results[source] = self._duplicate(pending.pop(source))

    def _affords(self, step: Step) -> bool:
        """Whether a change may be made now, rather than left to a refresh. Raises OutOfTime."""
        if self._pace is not None:
            self._pace(sum(step.writes.values()))
        return self._budget is None or self._budget.affords(self._program, step.attempt.change, step.writes)

    def _fits(self, step: Step) -> bool:
        """Whether one transaction is enough."""
        return step.actions <= self._most_actions and step.size <= MOST_BYTES

    def _steps(self, attempts: Sequence[Attempt], deadline: Deadline) -> list[Step]:
        """Return the step that commits each attempt, from the prediction or from the entry as it was found.

        Raises OutOfTime.
        """
        for attempt in attempts:
            if attempt.known:
                self._generations.learn(attempt.held)
        opened = self._generations.as_now()
        alike: dict[tuple[str, str], Step] = {}
        return [self._step(attempt, opened, alike) for attempt in deadline.check_each(attempts)]

    def _step(self, attempt: Attempt, opened: Generations, alike: dict[tuple[str, str], Step]) -> Step:
        """Return the step that commits an attempt. `alike` has those of this round, by contributions before and after."""
        change, settle = attempt.change, attempt.settle
        before = attempt.held if attempt.known else opened.stamp(change.before)
        removed = change.gone and not change.expired
        goal = self._goal(before, change.after.contributions, opened, removed=removed, held=change.held)
        if attempt.known and not change.is_refresh:
            for rule, marks in other_marks(before, change.mark).items():
                if rule in self._program.rules:
                    goal = {**goal, rule: with_marks(goal.get(rule, {}), marks, change.version)}
        before_text, text = canonical_text(before), canonical_text(goal)
        same = alike.get((before_text, text)) if not settle else None
        pieces = same.pieces if same is not None else difference(before, goal, settle, change.mark, opened.of)
        size = 500 + 2 * len(text)
        if change.after.payloads:
            size += sum(change.put_size(target, put) for target, piece in pieces.items() for put in piece.puts)
        if same is not None:  # as all likes of one post are
            return same._replace(attempt=attempt, before=before, goal=goal, size=size)
        step = Step(
            attempt,
            opened,
            before,
            before_text,
            goal,
            text,
            settle,
            pieces,
            retracted_targets(before, goal, settle),
            tuple(sorted(before.keys() | goal.keys())),
            frozenset([(*target, value) for target, piece in pieces.items() for value in piece.counted]),
            1 + sum([piece.actions for piece in pieces.values()]),
            size,
        )
        if not settle:
            alike[before_text, text] = step
        return step

    def goal(self, before: Contributions, after: Contributions, removed: bool) -> Contributions:
        """Return what an entry is to hold after a refresh. `removed`: the item was deleted, and did not expire."""
        return self._goal(before, after, self._generations, removed=removed)

    def _goal(
        self,
        before: Contributions,
        after: Contributions,
        opened: Generations,
        *,
        removed: bool,
        held: frozenset[str] = frozenset(),
    ) -> Contributions:
        """Return the contributions that an entry is to have.

        Rules that this program does not have, because they are newer or retired, keep what they contributed, unless the item
        was removed: that means the same to all rules, and no later record would report it to the programs that have them.
        Rules that are `held` keep their part exactly as it is.
        """
        after = opened.stamp(after)
        if not before:
            return after
        kept = {
            rule: targets
            for rule, targets in before.items()
            if rule in held
            or (rule not in self._program.rules and self._program.retired.get(rule) != "remove" and not removed)
        }
        return {**kept, **after} if kept else after

    # One transaction

    def _send_in_order(
        self, lane: Sequence[Transaction], deadline: Deadline, stuck: Collection[str]
    ) -> list[Result | Attempt]:
        outcomes: list[Result | Attempt] = []
        for transaction in lane:
            if deadline.over:
                late = deadline.out_of_time
                outcomes += [step.attempt.result("failed", step, error=late) for step in transaction.steps]
            else:
                outcomes += self._send(transaction.steps, deadline, stuck)
        return outcomes

    def _send(self, steps: Sequence[Step], deadline: Deadline, stuck: Collection[str]) -> list[Result | Attempt]:
        """Send one transaction. Return results, and the attempts that have to be made again."""
        try:
            cancelled = deadline.retry(partial(self._transactions.send, steps))
        except InvalidRequest:
            if len(steps) == 1:
                return [self._commit_in_steps(steps[0], deadline, stuck, by_rule=True)]
            middle = len(steps) // 2
            return [*self._send(steps[:middle], deadline, stuck), *self._send(steps[middle:], deadline, stuck)]
        except Transient as error:
            return [step.attempt.result("failed", step, error=error) for step in steps]
        if cancelled is None:
            return [step.attempt.result("applied", step) for step in steps]
        outcomes: list[Result | Attempt] = []
        for attempt, step in zip(cancelled.attempts, steps, strict=True):
            if attempt.moved:
                outcomes.append(attempt.result("moved", step))
            else:
                outcomes.append(self._duplicate(attempt, step) if attempt.is_duplicate else attempt)
        return outcomes

    def _duplicate(self, attempt: Attempt, step: Step | None = None) -> Result:
        """Return the result of a duplicate.

        What was refused then is reported again: the invocation that committed it may have ended before it reported that.
        """
        entry = attempt.entry
        refused = entry.refused if entry is not None and entry.version == attempt.change.version else {}
        return attempt.result("duplicate", step, refused=self._refusals(attempt, attempt.settle, refused))

    # Several transactions

    def _commit_in_steps(
        self, step: Step, deadline: Deadline, stuck: Collection[str], *, by_rule: bool = False
    ) -> Result:
        """Commit a change that one transaction cannot hold, or that DynamoDB refuses; then rule by rule.

        The entry is read first, but not that of a refresh, which has read it, and then the item.
        """
        refused: dict[str, str] = {}
        attempt, change = step.attempt, step.attempt.change
        try:
            while True:
                deadline.check()
                if not change.is_refresh:
                    attempt = attempt.with_entry(self._store.get(entry_key(change.source)))
                    if attempt.is_duplicate:
                        return self._duplicate(attempt, step)
                (step,) = self._steps([attempt], deadline)
                if by_rule:
                    walk = self._walk_by_rule(step, refused, deadline, stuck)
                else:
                    walk = self._walk(step, step.goal, step.settle, deadline, stuck, last=True)
                attempt = walk.attempt
                if walk.end == "done":
                    refusals = self._refusals(attempt, step.settle, refused)
                    return attempt.result("applied", step, refused=refusals)
                if walk.end == "full":
                    return attempt.result("full")
                if walk.end == "refused":
                    if by_rule:
                        raise InvalidRequest(walk.reason)
                    by_rule = True
                elif change.is_refresh:
                    return attempt.result("moved")
        except Transient as error:
            return attempt.result("failed", error=error)

    def _walk_by_rule(self, step: Step, refused: dict[str, str], deadline: Deadline, stuck: Collection[str]) -> _Walk:
        """Bring each rule's part of the entry to its goal, or to nothing where it is `refused`, which is added to.

        The marks of a settled expiry stay until all rules are done, so that starting over settles nothing twice.
        """
        mark = step.attempt.change.mark
        walk = _Walk(step.attempt, "done")
        for rule in sorted(walk.attempt.held.keys() | step.goal.keys() | step.settle.keys()):
            settle = {rule: step.settle[rule]} if rule in step.settle else {}
            wanted = step.goal.get(rule, {})
            marked = {target: with_mark(wanted.get(target, {}), mark) for target in settle.get(rule, {})}
            wishes = [({**wanted, **marked}, settle)] if rule not in refused else []
            least = other_marks(walk.attempt.held, mark).get(rule, {})
            for wish, settling in [*wishes, (least, {})]:
                now = walk.attempt.held
                if wish == now.get(rule, {}):
                    break
                goal = {name: targets for name, targets in {**now, rule: wish}.items() if targets}
                walk = self._walk(step._replace(attempt=walk.attempt), goal, settling, deadline, stuck)
                if walk.end == "refused":
                    refused.setdefault(rule, refusal(walk.reason, entry=True))
                    continue
                if walk.end != "done":
                    return walk
                break
        final = step._replace(attempt=walk.attempt, refused=dict(sorted(refused.items())))
        return self._walk(final, without_mark(walk.attempt.held, mark), {}, deadline, stuck, last=True)

    def _walk(
        self,
        step: Step,
        goal: Contributions,
        settle: Contributions,
        deadline: Deadline,
        stuck: Collection[str],
        *,
        last: bool = False,
    ) -> _Walk:
        """Move a known entry to `goal` in as many transactions as it takes. `last`: the goal is that of the change."""
        change, of = step.attempt.change, step.opened.of
        load = Load(self._most_actions - 1, MOST_BYTES - 2 * len(canonical_text(goal)), change.put_size)
        walk = _Walk(step.attempt, "done")
        for part, settled in intermediate_goals(step.attempt.held, goal, load, settle, change.mark, of):
            before = walk.attempt.held
            step = step._replace(
                attempt=walk.attempt,
                goal=part,
                text=canonical_text(part),
                pieces=difference(before, part, settled, change.mark, of),
                retracted=retracted_targets(before, part, settled),
                last=last and part is goal,
            )
            walk = deadline.retry(partial(self._make, step, deadline, stuck))
            if walk.end != "done":
                break
        return walk

    def _make(self, step: Step, deadline: Deadline, stuck: Collection[str]) -> _Walk:
        """Make one step of a known entry in one transaction."""
        while True:
            deadline.check()
            attempt = step.attempt
            try:
                cancelled = self._transactions.send([step])
            except InvalidRequest as error:
                room = attempt.entry is not None and attempt.entry.recent and attempt.change.source not in stuck
                return _Walk(attempt, "full") if room else _Walk(attempt, "refused", str(error))
            if cancelled is None:
                return _Walk(_next_attempt(step), "done")
            step = step._replace(attempt=cancelled.attempts[0])
            if cancelled.changed:
                return _Walk(step.attempt, "changed")

    def _refusals(self, attempt: Attempt, settle: Contributions, refused: Mapping[str, str]) -> tuple[Refusal, ...]:
        """Return what was refused, in the order of rules. Where a group causes it, that names its target and its reason.

        The latter is best effort: nothing depends on it.
        """
        change, refusals = attempt.change, []
        for rule, reason in sorted(refused.items()):
            after = self._generations.stamp({rule: change.after.contributions.get(rule, {})})
            settling = {rule: settle[rule]} if rule in settle else {}
            held = {rule: attempt.held.get(rule, {})}
            pieces = difference(held, after, settling, change.mark, self._generations.of)
            amounts = {target: piece.amounts for target, piece in pieces.items()}
            culprit = None
            with suppress(StoreError):
                culprit = refusing_group(self._store, self._program, amounts, self._generations)
            target, why = culprit or (None, reason)
            refusals.append(Refusal(rule, why, target))
        return tuple(refusals)


def _next_attempt(step: Step) -> Attempt:
    """Return the attempt of a step that was made, with the entry as it is now."""
    attempt, old = step.attempt, step.attempt.entry
    entry = Entry(
        (attempt.change.version if step.last else "") or (old.version if old is not None else ""),
        step.goal,
        (old.recent if old is not None else frozenset()) | step.retracted,
        (old.revision if old is not None else 0) + 1,
        expired=old is not None and old.expired,
        expiries=old.expiries if old is not None else frozenset(),
    )
    return attempt._replace(entry=entry, touched=attempt.touched | entry.targets)
