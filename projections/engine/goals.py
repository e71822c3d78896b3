"""The goal of a refresh: what an entry should record of an item. It is computed here, and nothing is read or written.

For most rules the goal is what the item contributes now: nothing if it is gone. Rules that keep what has expired
(`expired: keep`) need more, because an item that is gone does not show whether it expired or was deleted:

- Without a record, its contribution stays in the entry: the record of an expiry is still to come, or was lost, and `keep`
  means keep. But the entry gets the epoch of this registry, so that no function with an older one processes the expiry
  without the versions that it does not have.
- A discarded record of an expiry moves the contribution to what the entry keeps. This must happen once, however often the
  record is redriven, so the entry records the versions of the newest expiries. An expiry that is older than what the ledger
  remembers is rejected: to count it again would be wrong for good.
- The entry may be older than the newest discarded record, where it misses the last changes of the item. Then that record
  shows what the item contributed last.

The part of a rule with lanes is left as it is from the end of the rule's fill on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import NamedTuple

from projections.engine.changes import Change, Expiry, targets_of
from projections.engine.ledger_items import MOST_EXPIRIES, Entry
from projections.engine.publishing import TOMBSTONE_SECONDS
from projections.engine.registry import RegistrySnapshot
from projections.engine.rejections import Failures
from projections.engine.store import Image, ItemKey
from projections.language.contribution import Contributions, without
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


@dataclass(eq=False)
class Goals:
    """Computes the changes that bring entries to their goals, and rejects what cannot be computed.

    `snapshot` is the registry. `is_right` returns whether an entry holds contributions, and keeps what it should:
    `Ledger.is_right`. `clock` gives seconds since 1970.
    """

    program: Program
    snapshot: RegistrySnapshot
    failures: Failures
    _: KW_ONLY
    is_right: Callable[[Entry, Contributions], bool]
    clock: Callable[[], float]

    def __post_init__(self) -> None:
        self._left_to_lanes = self.snapshot.left_to_lanes

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
        """Return the change that brings an entry to its item and keeps expiries; None if there is nothing to commit.

        `version` is that of a record of the item that was left to this refresh.
        """
        source = encode_key(key)
        evaluated = self.program.evaluate(key, image)
        for rule, reason in evaluated.problems:
            if rule not in self.snapshot.standby:
                self.failures.reject(rule, reason, source)
        expiries = self._unprocessed_expiries(key, entry, discarded)
        last = max(discarded, default=None, key=lambda record: record.version)
        shown = last.version if last is not None else version
        newer = entry is None or entry.version < shown
        if shown and not newer:
            may_have_expired = True  # the record shows the removal of an earlier item under the key
        held = entry.contributions if entry is not None else {}
        goal, learned = evaluated.contributions, shown if shown and newer else ""
        carried, is_outdated = set[str](), False
        if self._left_to_lanes:
            stay = {rule: targets for rule, targets in held.items() if rule in self._left_to_lanes}
            goal = {**without(goal, self._left_to_lanes), **stay}
        if image is None and may_have_expired and not (last is not None and newer and last.expired):
            stays = {rule: targets for rule, targets in held.items() if rule in self._keeping}
            if last is not None and newer and stays:
                stays = {rule: held for rule, held in self._keep(key, last.new).items() if rule in stays}
            elif last is None and not version:
                learned = ""
            unfinished = entry.carrying if entry is not None else frozenset[str]()
            for version, carry in self.program.carries.items():  # as it does of what is kept
                lacks = version in self._keeping and (version not in stays or f"{version}|" in unfinished)
                if stays and lacks and (part := carry(stays)):
                    stays = {**stays, version: part}
                    carried.add(version)
            goal = {**goal, **stays}
            if stays and entry is not None and entry.epoch < self.snapshot.epoch:
                is_outdated, learned = True, learned or entry.version  # what the entry gets with it is the epoch
        if not (is_outdated or expiries or learned) and (self.is_right(entry, goal) if entry is not None else not goal):
            return None
        touched = targets_of(goal) | (entry.targets if entry is not None else set())
        for expiry in expiries:
            touched |= targets_of(expiry.contributions)
        change = Change(source, "", held, evaluated._replace(contributions=goal), entry, touched, gone=image is None)
        return change._replace(expiries=expiries, learned=learned, carried=carried)

    def _unprocessed_expiries(
        self, key: ItemKey, entry: Entry | None, discarded: Sequence[DiscardedRecord]
    ) -> tuple[Expiry, ...]:
        """Return those of these expiries that have not been processed. Reject an expiry if this is unknown."""
        expiries, entities = [], self.program.entities_at(key)
        for record in sorted((record for record in discarded if record.expired), key=lambda record: record.version):
            if record.old is None and any(source in entities for rule in self._keepers for source in rule.sources):
                self.failures.reject(None, _BLIND, encode_key(key))
                continue
            expiry = Expiry.of(record.version, self.program.evaluate(key, record.old), self._keeping)
            if not expiry.contributions or (entry is not None and record.version in entry.expiries):
                continue
            if self._is_remembered(record, entry):
                expiries.append(expiry)
            else:
                self.failures.reject(None, _FORGOTTEN, encode_key(key))
        return tuple(expiries)

    def _is_remembered(self, record: DiscardedRecord, entry: Entry | None) -> bool:
        """Whether the ledger would record the expiry if it had been processed."""
        # An entry that a refresh made has no version: it may be younger than one that DynamoDB deleted.
        newer = entry is not None and "" < entry.version < record.version
        if not newer and self.clock() - record.at > _REMEMBERED:
            return False
        return entry is None or entry.knows(record.version)

    def _keep(self, key: ItemKey, image: Image | None) -> Contributions:
        """The contributions of an item under rules that keep what has expired."""
        contributed = self.program.evaluate(key, image).contributions
        return {rule: targets for rule, targets in contributed.items() if rule in self._keeping}

    @cached_property
    def _keeping(self) -> frozenset[str]:
        return frozenset(rule.name for rule in self._keepers)

    @cached_property
    def _keepers(self) -> list[Rule]:
        """The rules that keep what has expired in entries."""
        rules = self.program.rules.items()
        return [rule for name, rule in rules if rule.expired == "keep" and name not in self._left_to_lanes]
