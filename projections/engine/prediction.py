"""The difference that an attempt commits: to the prediction of its entry, or to the entry as it was found."""

from __future__ import annotations

from collections.abc import Sequence

from projections.engine.attempts import Attempt
from projections.engine.changes import Change
from projections.engine.deadline import Deadline
from projections.engine.delta import difference, other_marks, unstamped, with_marks
from projections.engine.groups import Generations
from projections.engine.ledger_items import Target, recent_element
from projections.language.contribution import Contributions, canonical_text
from projections.language.keys import is_range
from projections.language.program import Program

__all__ = ["Predictor", "put_size", "retracted"]


class Predictor:
    """Computes the differences to commit, each from the prediction or from the entry as it was found.

    `most_actions` is how many actions of a transaction the ledger may use.
    """

    def __init__(self, program: Program, generations: Generations, most_actions: int) -> None:
        self._program = program
        self._generations = generations
        self.most_actions = most_actions

    def predict(self, attempts: Sequence[Attempt], deadline: Deadline) -> None:
        """Set the difference that each attempt commits. Raises OutOfTime."""
        for attempt in attempts:
            if attempt.known:
                self._generations.learn(attempt.held)
        opened = self._generations.as_now()
        alike: dict[tuple[str, str], Attempt] = {}
        for attempt in deadline.checked(attempts):
            change = attempt.change
            attempt.opened, attempt.most_actions = opened, self.most_actions
            if attempt.known:
                before = attempt.held
                _settle_left(attempt)
            else:
                before = attempt.before = opened.stamped(change.before)
            removed = change.gone and not change.expired
            goal = self._goal(before, change.after.contributions, opened, removed=removed, held=change.held)
            if attempt.known and not change.is_refresh:
                for rule, marks in other_marks(before, change.mark).items():
                    if rule in self._program.rules:
                        goal = {**goal, rule: with_marks(goal.get(rule, {}), marks, change.version)}
            attempt.goal = goal
            attempt.before_text, attempt.text = canonical_text(before), canonical_text(goal)
            other = None if attempt.settle else alike.setdefault((attempt.before_text, attempt.text), attempt)
            if other is None or other is attempt:
                attempt.pieces = difference(before, goal, attempt.settle, change.mark, opened.of)
                attempt.retracted = retracted(before, goal, attempt.settle)
                attempt.actions = 1 + sum([piece.actions for piece in attempt.pieces.values()])
                attempt.counted = frozenset(
                    [(*target, value) for target, piece in attempt.pieces.items() for value in piece.counted]
                )
                attempt.rules = tuple(sorted(before.keys() | goal.keys()))
            else:  # as all likes of one post are
                attempt.pieces, attempt.retracted, attempt.actions = other.pieces, other.retracted, other.actions
                attempt.rules, attempt.counted = other.rules, other.counted
            attempt.size = 500 + 2 * len(attempt.text)
            if change.after.payloads:
                attempt.size += sum(
                    put_size(change, target, member)
                    for target, piece in attempt.pieces.items()
                    for member in piece.puts
                )

    def goal(self, before: Contributions, after: Contributions, removed: bool) -> Contributions:
        """Return the contributions of an entry after a refresh. `removed`: the item was deleted, and did not expire."""
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
        after = opened.stamped(after)
        if not before:
            return after
        kept = {
            rule: targets
            for rule, targets in before.items()
            if rule in held
            or (rule not in self._program.rules and self._program.retired.get(rule) != "remove" and not removed)
        }
        return {**kept, **after} if kept else after


def _settle_left(attempt: Attempt) -> None:
    """Add to `settle` what an earlier expiry left in the entry, of rules that are active by now."""
    if attempt.left:
        attempt.settle = {rule: targets for rule, targets in attempt.settle.items() if rule not in attempt.left}
        attempt.left = frozenset()
    if attempt.entry is not None and attempt.entry.expired:
        before = attempt.entry.contributions
        attempt.left = attempt.change.active & before.keys() - attempt.settle.keys()
        attempt.settle = {**attempt.settle, **{rule: unstamped(before[rule]) for rule in attempt.left}}


def retracted(before: Contributions, after: Contributions, settle: Contributions) -> set[str]:
    """Return the targets that change, and that the entry does not name afterwards, as elements of `recent`.

    Groups of `rank` rules have no publish that could be pending.
    """
    return {
        recent_element((rule, target))
        for contributions in (before, settle)
        for rule, targets in contributions.items()
        for target in targets
        if target not in after.get(rule, {}) and not is_range(target)
    }


def put_size(change: Change, target: Target, member: str) -> int:
    """Return about how many bytes the put of a member takes."""
    payload = change.after.payloads.get((*target, member))
    return len(str(payload)) if payload else 0
