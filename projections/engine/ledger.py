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
  so that a redelivery goes on where an earlier invocation ended.
- What an item contributed when it expired moves from the entry's contributions to what it keeps, in one write of the entry
  alone, which has the version of the expiry: no total changes.
- Contributions of versions that the registry does not have leave an entry at its next write, without their groups.
- While a new version takes over what others keep in several transactions, the entry names it: the next writer goes on.
- An entry that was written by a newer registry ends the commit (`Reload`): this one lacks versions or has too many.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Literal, NamedTuple

from projections.engine.budget import Budget
from projections.engine.changes import (
    KEPT_BYTES,
    Change,
    Expiry,
    Load,
    Piece,
    Refusal,
    Result,
    combine,
    difference,
    fitting,
    intermediate_goals,
    retracted_targets,
)
from projections.engine.groups import refusing_group
from projections.engine.ledger_items import Entry, Target, entry_key
from projections.engine.registry import NO_REGISTRY, RegistrySnapshot
from projections.engine.rejections import refusal
from projections.engine.running import Counters, Deadline, Run, one_by_one
from projections.engine.store import Image, Store
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
from projections.engine.value_counters import ValueCounters
from projections.errors import InvalidRequest, StoreError, Transient
from projections.language.contribution import Contributions, canonical_text, without
from projections.language.program import Program

_NO_ROOM = (
    f"it expired, and the entry of its key has no room to keep that: at most {KEPT_BYTES:,} bytes. It counts no more. Give "
    "each item a key of its own, or let the rule retract what expires"
)

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

    `snapshot` is the registry that `program` was assembled from. `budget` decides which changes are "deferred"; None defers
    none. `pace` is called with the number of writes before each change is made, and may raise OutOfTime. `read` has groups
    that were read before, as `transactions` take them.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        *,
        run: Run[Any] = one_by_one,
        chance: Callable[[], float] = random.random,
        snapshot: RegistrySnapshot = NO_REGISTRY,
        values: ValueCounters | None = None,
        counters: Counters | None = None,
        budget: Budget | None = None,
        pace: Callable[[int], None] | None = None,
        read: Mapping[Target, Image] | None = None,
    ) -> None:
        self._program = program
        self._store = store
        self._run = run
        self._budget = budget
        self._pace = pace
        self._epoch = epoch = snapshot.epoch
        self._since, self._left_to_lanes = snapshot.since, snapshot.left_to_lanes
        values, counters = values or ValueCounters(), counters or Counters()
        self.transactions = Transactions(program, store, epoch, values, chance, counters, read or {})

    def commit(self, changes: Sequence[Change], deadline: Deadline, stuck: Collection[str] = ()) -> list[Result]:
        """Commit each change or find it committed. Return what became of them, in order. No source item may occur twice.

        A refresh whose entry is not as it was read has "moved": it is not applied, and both have to be read again. A change
        whose entry has no room beside its pending publishes is "full": they have to be made and forgotten, then it has to be
        committed again; or, if they cannot be, with its source among those that are `stuck`.

        An error of one change is in its result: "failed" if it could not be done in time, `refused` for rules whose
        contribution the ledger can never hold and which contribute nothing. Raises Reload and `errors.Misconfigured`.
        """
        results: dict[str, Result] = {}
        pending = {change.source: Attempt.of(change) for change in changes}
        rounds = 0
        try:
            self._read_expiries(pending, results, deadline)
            while pending:
                if (rounds := rounds + 1) > _WITHOUT_PAUSE + 1:
                    deadline.pause(rounds - 1)
                alike: dict[tuple[str, str], Step] = {}
                steps = [self._step(attempt, alike) for attempt in deadline.check_each(list(pending.values()))]
                now = [step for step in steps if self._affords(step)]
                if len(now) < len(steps):
                    deferred = pending.keys() - {step.attempt.change.source for step in now}
                    results.update({source: pending.pop(source).result("deferred") for source in deferred})
                apart = lanes(pack([step for step in now if self._fits(step)], MOST_ACTIONS, deadline), deadline)
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
        """Read the entries of expiries first: what they keep is added to, so it has to be known."""
        expiries = [attempt for attempt in pending.values() if attempt.change.expiries and not attempt.known]
        if not expiries:
            return
        deadline.check()
        items = self._store.get_many([entry_key(attempt.change.source) for attempt in expiries])
        for attempt in expiries:
            source = attempt.change.source
            pending[source] = read = self.transactions.with_entry(attempt, items.get(entry_key(source)))
            if read.is_duplicate and not self._lacks(read):
                results[source] = self._duplicate(pending.pop(source))

    def _affords(self, step: Step) -> bool:
        """Whether a change may be made now, rather than left to a refresh. Raises OutOfTime."""
        if self._pace is not None:
            self._pace(sum(step.writes.values()))
        if self._budget is None or any(map(self._program.lanes.__contains__, step.rules)):
            return True  # a refresh does not make it if the fill has ended by then
        return self._budget.affords(self._program, step.attempt.change, step.writes)

    def _fits(self, step: Step) -> bool:
        """Whether one transaction is enough."""
        return step.actions <= MOST_ACTIONS and step.size <= MOST_BYTES

    def _step(self, attempt: Attempt, alike: dict[tuple[str, str], Step]) -> Step:
        """Return the step that commits an attempt, from the prediction or the entry as found. `alike` has those of this
        round, by contributions before and after.
        """
        change = attempt.change
        before = attempt.held if attempt.known else change.before
        goal = change.after.contributions
        kept, refused = attempt.kept, dict[str, str]()
        then = self._contributions_to_keep(attempt, refused) if attempt.known else kept
        texts = canonical_text(before), canonical_text(goal)
        same = alike.get(texts) if not (kept or then or refused) else None
        if same is not None:  # as all likes of one post are
            size = 500 + 2 * len(texts[1]) + _put_sizes(change, same.pieces, goal)
            return same._replace(attempt=attempt, before=before, goal=goal, size=size)
        step = self._move(attempt, before, goal, then, texts)
        if attempt.carrying:  # only the records of expiries finish what is kept of them in part
            step = step._replace(carrying=frozenset(each for each in attempt.carrying if each.startswith("|")))
        if not (kept or then or refused):
            alike[texts] = step
        return step._replace(refused=dict(sorted(refused.items()))) if refused else step

    def _move(
        self,
        attempt: Attempt,
        before: Contributions,
        goal: Contributions,
        kept: Contributions,
        texts: tuple[str, str] | None = None,
    ) -> Step:
        """Return the step from what the entry holds to `goal` and `kept`. `texts`: of `before` and `goal`, if known."""
        held = combine(self._known_contributions(before), self._known_contributions(attempt.kept))
        then = combine(self._known_contributions(goal), kept)
        pieces = difference(held, then)
        before_text, text = texts or (canonical_text(before), canonical_text(goal))
        return Step(
            attempt,
            before,
            before_text,
            goal,
            text,
            kept,
            pieces,
            retracted_targets(held, then),
            tuple(sorted(before.keys() | goal.keys())),
            frozenset([(*target, value) for target, piece in pieces.items() for value in piece.counted]),
            1 + sum([piece.actions for piece in pieces.values()]),
            500 + 2 * len(text) + _put_sizes(attempt.change, pieces, then),
            carrying=attempt.carrying,
        )

    def _lacks(self, attempt: Attempt) -> bool:
        """Return whether a registry from before the newest versions committed a change, and the entry lacks their part of
        it.

        The fill of such a version may have passed before there was an entry.
        """
        entry, change = attempt.entry, attempt.change
        if entry is None or entry.version != change.version or entry.epoch >= self._epoch:
            return False
        newer = self._newer(entry)
        if not newer:
            return False
        wanted = {rule: held for rule, held in change.after.contributions.items() if rule in newer}
        return wanted != {rule: held for rule, held in entry.contributions.items() if rule in newer} or (
            self._contributions_to_keep(attempt) != self._known_contributions(entry.kept)
        )

    def _newer(self, entry: Entry) -> set[str]:
        """The versions that were registered after an entry was written."""
        return {name for name, since in self._since.items() if since > entry.epoch}

    def _known_contributions(self, contributions: Contributions) -> Contributions:
        """Return contributions under versions that the registry has: others leave the entry, without their groups."""
        rules = self._program.rules
        if all(map(rules.__contains__, contributions)):
            return contributions
        return {rule: targets for rule, targets in contributions.items() if rule in rules}

    def _contributions_to_keep(self, attempt: Attempt, refused: dict[str, str] | None = None) -> Contributions:
        """Return what an entry is to keep: what it does, also under new versions that mean the same, and newer expiries.

        Rules for whose part of an expiry there is no room are added to `refused`; those in it take nothing over.
        """
        then = before = self._known_contributions(attempt.kept)
        left = self._left_to_lanes.union(refused or ())
        for version, carry in self._program.carries.items():
            lacks = version not in left and (version not in before or version in attempt.carrying)
            if before and lacks and (carried := carry(before)):
                then = {**then, version: carried}
        entry = attempt.entry
        if refused is not None and entry is not None:  # an earlier delivery of the expiry may not have reported it
            seen = any(expiry.version in entry.expiries for expiry in attempt.change.expiries)
            refused.update({rule: why for rule, why in entry.refused.items() if seen and why == _NO_ROOM})
        for number, expiry in enumerate(attempt.unseen_expiries):
            fits = _fitting(attempt, expiry, then, first=number == 0)
            if refused is not None:
                refused.update(dict.fromkeys(expiry.kept.keys() - fits.keys(), _NO_ROOM))
            then = attempt.keep(then, fits, expiry)
        if entry is not None and entry.version == attempt.change.version:
            lacking = self._newer(entry) - then.keys()
            for expiry in attempt.change.expiries if lacking else ():
                of_newer = {rule: held for rule, held in expiry.kept.items() if rule in lacking}
                then = combine(of_newer, then)
        return then

    def is_right(self, entry: Entry, goal: Contributions) -> bool:
        """Return whether an entry holds these contributions, and all that it should keep."""
        return entry.contributions == goal and self._contributions_to_keep(Attempt.of_entry(entry)) == entry.kept

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
            cancelled = deadline.retry(partial(self.transactions.send, steps))
        except InvalidRequest:
            if len(steps) == 1:
                return [self._commit_in_steps(steps[0], deadline, stuck, by_rule=True)]
            middle = len(steps) // 2
            return [*self._send(steps[:middle], deadline, stuck), *self._send(steps[middle:], deadline, stuck)]
        except Transient as error:
            return [step.attempt.result("failed", step, error=error) for step in steps]
        if cancelled is None:
            return [self._result_of(step.attempt, step.refused, step) for step in steps]
        outcomes: list[Result | Attempt] = []
        for attempt, step in zip(cancelled.attempts, steps, strict=True):
            if attempt.moved:
                outcomes.append(attempt.result("moved", step))
            else:
                done = attempt.is_duplicate and not self._lacks(attempt)
                outcomes.append(self._duplicate(attempt, step) if done else attempt)
        return outcomes

    def _result_of(self, attempt: Attempt, refused: Mapping[str, str], step: Step) -> Result:
        return attempt.result("applied", step, refused=self._refusals(attempt, refused))

    def _duplicate(self, attempt: Attempt, step: Step | None = None) -> Result:
        """Return the result of a duplicate.

        What was refused then is reported again: the invocation that committed it may have ended before it reported that.
        """
        entry = attempt.entry
        refused = entry.refused if entry is not None and entry.version == attempt.change.version else {}
        return attempt.result("duplicate", step, refused=self._refusals(attempt, refused))

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
                    attempt = self.transactions.with_entry(attempt, self._store.get(entry_key(change.source)))
                    if attempt.is_duplicate and not self._lacks(attempt):
                        return self._duplicate(attempt, step)
                walk, unkept = self._walk_all(attempt, refused, deadline, stuck, by_rule=by_rule)
                attempt = walk.attempt
                if walk.end == "done":
                    return self._result_of(attempt, {**unkept, **refused}, step)
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

    def _walk_all(
        self, attempt: Attempt, refused: dict[str, str], deadline: Deadline, stuck: Collection[str], *, by_rule: bool
    ) -> tuple[_Walk, dict[str, str]]:
        """Let a known entry keep all that it should, move it to what each expiry says, keep that, and go on, to what the
        change says.

        Rules that DynamoDB refuses, `by_rule`, are added to `refused`, and contribute nothing. Return also the rules for
        whose part of what expired there is no room, with the reason.
        """
        move = partial(self._walk_by_rule, refused) if by_rule else self._walk
        unkept: dict[str, str] = {}
        walk = self._carry(attempt, deadline, stuck)
        if walk.end == "refused" and by_rule:
            then = self._contributions_to_keep(Attempt.of_entry(walk.attempt.entry))
            lacking = walk.attempt.carrying | (then.keys() - walk.attempt.kept.keys())
            unkept = dict.fromkeys(sorted(lacking & then.keys()), refusal(walk.reason, entry=True))
            walk = _Walk(walk.attempt, "done")
        if walk.end != "done":
            return walk, unkept
        self._contributions_to_keep(walk.attempt, unkept)
        for expiry in attempt.unseen_expiries:
            walk = move(walk.attempt, expiry.contributions, deadline, stuck)
            if walk.end != "done":
                return walk, unkept
            walk = self._keep(walk.attempt, expiry, refused, unkept, deadline, stuck)
            if walk.end != "done":
                return walk, unkept
        walk = move(walk.attempt, attempt.change.after.contributions, deadline, stuck)
        if walk.end != "done":
            return walk, unkept
        last, kept = walk.attempt, self._contributions_to_keep(walk.attempt, unkept)
        step = self._move(last, last.held, last.held, kept)
        carrying = frozenset(version for version in last.carrying if not version.endswith("|"))
        step = step._replace(refused=dict(sorted({**unkept, **refused}.items())), carrying=carrying)
        return deadline.retry(partial(self._make, step, deadline, stuck)), unkept

    def _carry(self, attempt: Attempt, deadline: Deadline, stuck: Collection[str]) -> _Walk:
        """Let a known entry keep under new versions what it keeps under others, in as many transactions as it takes."""
        now, held = self._known_contributions(attempt.kept), attempt.held
        then = self._contributions_to_keep(Attempt.of_entry(attempt.entry))
        others = frozenset(version for version in attempt.carrying if "|" in version)
        carrying = others.union(then.keys() - now.keys(), attempt.carrying & then.keys())
        walk = _Walk(attempt, "done")
        for part in intermediate_goals(now, then, _load(attempt.change, then)) if then != now else ():
            step = self._move(walk.attempt, held, held, part)
            step = step._replace(last=False, carrying=others if part is then else carrying)
            walk = deadline.retry(partial(self._make, step, deadline, stuck))
            if walk.end != "done":
                break
        return walk

    def _keep(
        self,
        attempt: Attempt,
        expiry: Expiry,
        refused: Mapping[str, str],
        unkept: dict[str, str],
        deadline: Deadline,
        stuck: Collection[str],
    ) -> _Walk:
        """Move what a known entry contributes, which is what expired, to what it keeps, but for what is refused.

        Members first: to repeat that changes nothing. Then all amounts, with the expiry, in one step.
        """
        before = self._contributions_to_keep(Attempt.of_entry(attempt.entry), unkept)
        kept = without(_fitting(attempt, expiry, before), refused)
        reported, ours = dict(sorted(unkept.items())), f"|{expiry.version}"
        decided = {ours, *(f"{ours}|{rule}" for rule in expiry.kept.keys() - kept.keys())}
        walk = _Walk(attempt, "done")
        for part in intermediate_goals({}, _members_of(kept), _load(attempt.change, kept)):
            now, held = walk.attempt, walk.attempt.held
            then = now.keep(self._contributions_to_keep(Attempt.of_entry(now.entry), unkept), part, expiry)
            step = self._move(now, held, held, then)
            step = step._replace(last=False, refused=reported, carrying=step.carrying | decided)
            walk = deadline.retry(partial(self._make, step, deadline, stuck))
            if walk.end != "done":
                return walk
        now, held = walk.attempt, walk.attempt.held
        then = now.keep(self._contributions_to_keep(Attempt.of_entry(now.entry), unkept), kept, expiry)
        step = self._move(now, held, _members_of(held), then)._replace(last=False, expired=expiry.version)
        step = step._replace(refused=reported, carrying=step.carrying - decided)
        return deadline.retry(partial(self._make, step, deadline, stuck))

    def _walk_by_rule(
        self, refused: dict[str, str], attempt: Attempt, goal: Contributions, deadline: Deadline, stuck: Collection[str]
    ) -> _Walk:
        """Bring each rule's part of the entry to its goal, or to nothing where it is `refused`, which is added to."""
        walk = _Walk(attempt, "done")
        for rule in sorted(attempt.held.keys() | goal.keys()):
            wanted = goal.get(rule, {})
            for wish in [wanted, {}] if rule not in refused else [{}]:
                now = walk.attempt.held
                if wish == now.get(rule, {}):
                    break
                then = {name: targets for name, targets in {**now, rule: wish}.items() if targets}
                walk = self._walk(walk.attempt, then, deadline, stuck)
                if walk.end == "refused":
                    refused.setdefault(rule, refusal(walk.reason, entry=True))
                    walk = _Walk(walk.attempt, "done")
                    continue
                if walk.end != "done":
                    return walk
                break
        return walk

    def _walk(self, attempt: Attempt, goal: Contributions, deadline: Deadline, stuck: Collection[str]) -> _Walk:
        """Move the contributions of a known entry to `goal` in as many transactions as it takes; the version stays."""
        walk = _Walk(attempt, "done")
        for part in intermediate_goals(attempt.held, goal, _load(attempt.change, goal)):
            if part == walk.attempt.held:
                continue
            kept = self._known_contributions(walk.attempt.kept)
            step = self._move(walk.attempt, walk.attempt.held, part, kept)
            carrying = step.carrying.union(f"{version}|" for version in attempt.change.carried)
            step = step._replace(last=False, carrying=carrying)
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
                cancelled = self.transactions.send([step])
            except InvalidRequest as error:
                room = attempt.entry is not None and attempt.entry.recent and attempt.change.source not in stuck
                return _Walk(attempt, "full") if room else _Walk(attempt, "refused", str(error))
            if cancelled is None:
                return _Walk(_next_attempt(step, self._epoch), "done")
            step = step._replace(attempt=cancelled.attempts[0])
            if cancelled.changed:
                return _Walk(step.attempt, "changed")

    def _refusals(self, attempt: Attempt, refused: Mapping[str, str]) -> tuple[Refusal, ...]:
        """Return what was refused, in the order of rules. Where a group causes it, that names its target and its reason.

        The latter is best effort: nothing depends on it.
        """
        change, refusals = attempt.change, []
        for rule, reason in sorted(refused.items()):
            after = {rule: change.after.contributions.get(rule, {})}
            pieces = difference({rule: attempt.held.get(rule, {})}, after)
            amounts = {target: piece.amounts for target, piece in pieces.items()}
            culprit = None
            with suppress(StoreError):
                culprit = refusing_group(self._store, self._program, amounts)
            target, why = culprit or (None, reason)
            refusals.append(Refusal(rule, why, target))
        return tuple(refusals)


def _fitting(attempt: Attempt, expiry: Expiry, kept: Contributions, *, first: bool = True) -> Contributions:
    """Return the rules' parts of an expiry that are kept: those of the first under its key always are.

    If it is kept in part already, this was decided then.
    """
    entry = attempt.entry
    if entry is not None and (ours := f"|{expiry.version}") in entry.carrying:
        return {rule: held for rule, held in expiry.kept.items() if f"{ours}|{rule}" not in entry.carrying}
    if first and (entry is None or not entry.expiries):
        return expiry.kept
    return fitting(expiry.kept, kept)


def _members_of(contributions: Contributions) -> Contributions:
    """Return only the members of contributions."""
    members = {
        rule: {target: {"+": held["+"]} for target, held in targets.items() if "+" in held}
        for rule, targets in contributions.items()
    }
    return {rule: targets for rule, targets in members.items() if targets}


def _load(change: Change, goal: Contributions) -> Load:
    """Return the room of a transaction on the way to contributions."""

    def weigh(target: Target, member: str) -> int:
        return _put_sizes(change, {target: Piece(puts=[member])}, goal)

    return Load(MOST_ACTIONS - 1, MOST_BYTES - 2 * len(canonical_text(goal)), weigh)


def _put_sizes(change: Change, pieces: Mapping[Target, Piece], goal: Contributions) -> int:
    """Return about how many bytes the puts of members take, with which the groups have what `goal` says."""
    puts = ((target, put) for target, piece in pieces.items() for put in piece.puts)
    return sum(change.put_size(target, put, goal[target[0]][target[1]]["+"][put]) for target, put in puts)


def _next_attempt(step: Step, epoch: int) -> Attempt:
    """Return the attempt of a step that was made, with the entry as it is now."""
    attempt, old = step.attempt, step.attempt.entry
    versions = [step.expired] if step.expired else list(step.new_expiries)
    entry = Entry(
        step.version or (old.version if old is not None else ""),
        step.goal,
        (old.recent if old is not None else frozenset()) | step.retracted,
        (old.revision if old is not None else 0) + 1,
        epoch,
        step.kept,
        expiries=(old.expiries if old is not None else frozenset()).union(versions),
        carrying=step.carrying,
        refused=step.refused,
    )
    return attempt._replace(entry=entry, touched=attempt.touched | entry.targets)
