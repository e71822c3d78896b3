"""The goal of a refresh: what an entry should record of an item. It is computed here, and nothing is read or written.

For most rules the goal is what the item contributes now: nothing if it is gone. Rules that keep what has expired
(`expired: keep`) need more, because an item that is gone does not show whether it expired or was deleted:

- Without a record, its contribution stays in the entry. To remove it would lose an expiry whose record is still to come.
- A discarded record of an expiry settles the contribution: it moves from the entry to the settled totals of its group. This
  must happen once, however often the record is redriven, so the entry records the versions of the newest expiries. An expiry
  that is older than what the ledger remembers is rejected: to count it again would be wrong for good.
- The entry may be older than the newest discarded record, where it misses the last changes of the item. Then that record
  shows what the item contributed last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import NamedTuple

from projections.engine.changes import SETTLED, Change, targets_of, without_mark, without_marks
from projections.engine.ledger_items import MOST_EXPIRIES, Entry
from projections.engine.publishing import TOMBSTONE_SECONDS
from projections.engine.registry import SHADOW, RegistrySnapshot
from projections.engine.rejections import Failures
from projections.engine.store import Image, ItemKey
from projections.language.contribution import Contributions, Evaluated
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.language.rules import Rule

_DAY = 24 * 3600
_REMEMBERED = TOMBSTONE_SECONDS - _DAY
"""Seconds for which the ledger certainly remembers an expiry: a day less than a tombstone stays, for inexact clocks."""

_FORGOTTEN = (
    f"it expired, and the ledger no longer records whether that was counted (it keeps the last {MOST_EXPIRIES} "
    f"expiries under a key, for {_REMEMBERED // _DAY} days). It was not counted now"
)
_BLIND = "it expired, and the record does not have its old image, so it was not counted"


class DiscardedRecord(NamedTuple):
    """A record that Lambda discarded: the version, the item before and after, whether it expired, the second since 1970."""

    version: str
    old: Image | None
    new: Image | None
    expired: bool
    at: float


def goal_of(
    program: Program,
    held: Contributions,
    contributions: Contributions,
    gone: bool,
) -> Contributions:
    """Return what an entry should record: what the item contributes, and what only records can show.

    `held` is what the entry records now. Marks of an expiry that is partly settled stay. If the item is `gone` and it is
    unknown whether it expired, contributions under rules that keep what has expired stay, also while the rule fills: the
    record of the expiry may still be to come, and would find nothing to settle.
    """
    goal = {rule: dict(targets) for rule, targets in contributions.items()}
    for name, targets in held.items():
        rule = program.rules.get(name)
        if gone and rule is not None and rule.expired == "keep":
            goal[name] = dict(targets)
            continue
        for target, contributed in targets.items():
            if SETTLED in contributed:
                marked = goal.setdefault(name, {})
                marked[target] = {**marked.get(target, {}), SETTLED: contributed[SETTLED]}
    return goal


class _Expiry(NamedTuple):
    """An expiry that is not settled yet: its version, and what it settles."""

    version: str
    settles: Contributions

    def has_ended(self, entry: Entry | None) -> bool:
        """Whether the contributions in the entry ended with this expiry. A newer entry is about a later item."""
        return entry is None or entry.version < self.version


class Goals:
    """Computes the changes that bring entries to their goals, and rejects what cannot be computed.

    `stored` returns a goal as the ledger would write it over what an entry records: `Ledger.goal`. `clock` gives seconds
    since 1970.
    """

    def __init__(
        self,
        program: Program,
        snapshot: RegistrySnapshot,
        failures: Failures,
        *,
        stored: Callable[[Contributions, Contributions, bool], Contributions],
        clock: Callable[[], float],
    ) -> None:
        self._program = program
        self._publishes = snapshot.publishes
        self._settles = snapshot.settles
        self._failures = failures
        self._stored = stored
        self._clock = clock

    def change(
        self,
        key: ItemKey,
        image: Image | None,
        entry: Entry | None,
        *,
        may_have_expired: bool,
        discarded: Sequence[DiscardedRecord] = (),
        version: str = "",
    ) -> Change | None:
        """Return the change that brings an entry to its item and settles an expiry; None if there is nothing to commit.

        `version` is that of a record of the item that was left to this refresh.
        """
        source = encode_key(key)
        evaluated = self._program.contributions(self._program.recognise(key, image) if image is not None else None)
        for rule, reason in evaluated.problems:
            self._failures.reject(rule, reason, source)
        expiry = self._first_unsettled(key, entry, discarded)
        last = max(discarded, default=None, key=lambda record: record.version)
        shown_version = last.version if last is not None else version
        if shown_version and entry is not None and shown_version < entry.version:
            may_have_expired = True  # the record shows the removal of an earlier item under the key
        ended = expiry is not None and expiry.has_ended(entry)
        expired = entry is not None and entry.expired
        kept = image is None and ((may_have_expired and not ended) or expired)
        held = entry.contributions if entry is not None else {}
        goal = goal_of(self._program, held, evaluated.contributions, kept)
        learned = version if entry is None or entry.version < version else ""
        if entry is not None and last is not None and entry.version < last.version and kept and not (expired or expiry):
            corrected = self._correct(goal, held, key, last)
            if corrected is not None:
                goal, learned = corrected, last.version
        if expiry is not None:
            goal = without_mark(goal, expiry.version)
        elif not learned and self._stored(held, goal, image is None and not (may_have_expired or expired)) == held:
            return None
        touched = targets_of(goal) | (entry.targets if entry is not None else set())
        change = Change(
            source,
            "",
            held,
            Evaluated(goal, evaluated.payloads, evaluated.problems),
            entry,
            touched,
            gone=image is None,
            expired=may_have_expired or expired or expiry is not None,
            learned=learned,
        )
        if expiry is not None:
            version, settles = expiry
            touched |= targets_of(settles)
            change = change._replace(touched=touched, expiry=version, settle=settles, learned=version)
        if ended and image is None:
            change = change._replace(held=frozenset(rule.name for rule in self._keepers) - self._keeping)
        if expired and not kept:  # another item has the key now
            active = frozenset(rule.name for rule in self._keepers if self._publishes(rule))
            change = change._replace(active=active)
        return change

    def _first_unsettled(
        self, key: ItemKey, entry: Entry | None, discarded: Sequence[DiscardedRecord]
    ) -> _Expiry | None:
        """The first of these expiries that has not been settled. Reject an expiry if this is unknown.

        It settles nothing if a discarded change had removed the contribution before; then it only ends what the entry
        records.
        """
        for record in sorted((record for record in discarded if record.expired), key=lambda record: record.version):
            if record.old is None and self._may_be_kept(key):
                self._failures.reject(None, _BLIND, encode_key(key))
                continue
            expiry = _Expiry(record.version, self._keep_expired(key, record.old))
            ends = entry is not None and expiry.has_ended(entry) and not self._keeping.isdisjoint(entry.contributions)
            settled = entry is not None and record.version in entry.expiries
            if settled or not (expiry.settles or ends):
                continue
            if self._is_remembered(record, entry):
                return expiry
            self._failures.reject(None, _FORGOTTEN, encode_key(key))
        return None

    def _may_be_kept(self, key: ItemKey) -> bool:
        """Whether an item with this key may contribute to a rule that keeps what has expired."""
        entities = self._program.entities_at(key)
        return any(source in entities for rule in self._keepers for source in rule.sources)

    def _is_remembered(self, record: DiscardedRecord, entry: Entry | None) -> bool:
        """Whether the ledger would record the expiry if it had been settled."""
        # An entry that a refresh made has no version: it may be younger than one that DynamoDB deleted.
        newer = entry is not None and "" < entry.version < record.version
        if not newer and self._clock() - record.at > _REMEMBERED:
            return False
        return entry is None or entry.knows(record.version)

    def _correct(
        self, goal: Contributions, held: Contributions, key: ItemKey, last: DiscardedRecord
    ) -> Contributions | None:
        """The goal with contributions by the newest discarded record, under rules whose contribution stays.

        None if there is no such rule.
        """
        keeping = frozenset(rule for rule in self._keeping & held.keys() if without_marks(held[rule]))
        if not keeping:
            return None
        kept = {rule: targets for rule, targets in self._keep_expired(key, last.new).items() if rule in keeping}
        kept = dict(goal_of(self._program, {rule: held[rule] for rule in keeping}, kept, gone=False))
        return {**{rule: targets for rule, targets in goal.items() if rule not in keeping}, **kept}

    def _keep_expired(self, key: ItemKey, image: Image | None) -> Contributions:
        """The contributions of an item under rules that keep what has expired, and settle it."""
        item = self._program.recognise(key, image) if image is not None else None
        contributed = self._program.contributions(item).contributions
        return {rule: targets for rule, targets in contributed.items() if rule in self._keeping}

    @cached_property
    def filling(self) -> list[str]:
        """The rules that keep what has expired, and will settle it when they are filled."""
        return [rule.name for rule in self._keepers if rule.mode != SHADOW and not self._settles(rule)]

    @cached_property
    def _keeping(self) -> frozenset[str]:
        """The names of the rules that keep what has expired, and settle it."""
        return frozenset(rule.name for rule in self._keepers if self._settles(rule))

    @cached_property
    def _keepers(self) -> list[Rule]:
        """The rules that keep what has expired."""
        return [rule for rule in self._program.rules.values() if rule.expired == "keep"]
