"""Counting by the shards of the stream, for rules with `ledger: lanes`: no entry is written for each source item.

A group remembers, for each shard that feeds it, the last sequence number that it has counted: a *lane*. Lambda delivers the
records of a shard in their order, and a record's two images say what it changes. So a record at or below its lane was
counted before, and one conditional update of a group counts a whole batch, without a read:

    add the amounts, lane = last   if there is no lane, or lane < first

If that fails, the group shows how far its lane is: all of the batch is a duplicate, or a part is, and the rest is counted if
the lane is as seen. A group whose changes cancel out is written all the same: a shorter delivery may have counted one half.
Within a batch, nothing of a group is counted after a change of it that could not be counted.

**Handover.** A new version fills with entries, as other rules do. Meanwhile each batch first *marks*, for its shard, the
last sequence number that it is about to try with entries. When the fill is complete, each shard is handed over at its first
record that was made long enough afterwards (`registry.HANDOVER_SECONDS`): the fill has not seen it. The mark becomes the
*cut*: records up to it are counted with entries, later ones by lanes. A mark never falls, and is written on the condition
that it is as it was read. From the end of the fill on, refreshes leave the version's part of entries alone. 26 hours after
the handover is due, no record is left that entries count: lanes count alone, and a backfill removes the part.

An invocation that finds a version that was registered since it began gives its batch back (`is_overtaken`). Its records are
older than the fill, and later ones, which functions without the version have processed, have left no entry that shows it.
Neither can it go on without the version: an entry that gets the version of a record makes its next delivery a duplicate.

**Gaps.** A *gap* is a flag of a version: its groups may be wrong, and only a recount clears it. Nothing is counted by lanes
of a batch that has no shard, or whose sequence numbers do not rise.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple

from projections.engine.changes import WIDE
from projections.engine.groups import spread
from projections.engine.ledger_items import LEDGER, Target, group_key, whole_key
from projections.engine.records import Record
from projections.engine.registry import Registry, RegistrySnapshot, Version
from projections.engine.running import Counters, Deadline, Reload, Run, send_all
from projections.engine.store import AllOf, AnyOf, Below, Condition, Equal, ItemKey, Missing, Purpose, Store, Update
from projections.engine.transactions import Spreading
from projections.errors import ConditionFailed, StoreError, Transient
from projections.language.contribution import Contributed, Contributions
from projections.language.program import Program
from projections.language.values import Image, Value, number_text

FORGOTTEN_HOURS = 25
"""Hours after which a lane that has not moved is removed: a stream keeps records for 24."""

MARK_SECONDS = 3 * 24 * 3600
"""How long a mark is kept. By then its shard is closed, and its records are gone."""

_MOST_DIGITS = 38
"""Of a number in DynamoDB."""

_STALE_LANES = 8
"""Lanes that have not moved for long enough are removed from a group when there are so many."""


class Part(NamedTuple):
    """What one record changes in a group: an image's contribution, added (`sign` 1) or taken away (-1)."""

    number: int
    sequence: str
    sign: int
    amounts: Contributed


Parts = dict[Target, list[Part]]
"""What a batch changes in groups, each in the order of its records."""


class Lane(NamedTuple):
    """The lane of a shard, named after its stream and its id."""

    name: str
    number: int

    @classmethod
    def of(cls, table: str, label: str, shard: str) -> Lane:
        """Return the lane of a shard of the stream with this label."""
        digest = blake2b(f"{table}|{label}|{shard}".encode(), digest_size=5)
        return cls(digest.hexdigest(), int.from_bytes(digest.digest(), "big"))

    @property
    def last(self) -> str:
        """The attribute of groups with the last sequence number that was counted."""
        return f"@{self.name}"

    @property
    def moved(self) -> str:
        """The attribute of groups with the hour since 1970 in which the lane last moved."""
        return f"!{self.name}"


class Split(NamedTuple):
    """How the records of a batch are counted, by the version of a rule with lanes.

    Records after the `cuts` of a version are counted by `lane`, others with entries. `uncounted` versions are not counted.
    """

    lane: Lane | None = None
    cuts: Mapping[str, int] = {}
    uncounted: frozenset[str] = frozenset()


NO_LANES = Split()


def is_overtaken(first: RegistrySnapshot, now: RegistrySnapshot) -> bool:
    """Whether a version of a rule that lanes count was registered after an invocation `first` read the registry."""
    by_lanes = {v.rule for each in (first, now) for v in each.versions.values() if v.lanes is not None}
    return any(version.since > first.epoch and version.rule in by_lanes for version in now.maintained)


def add_parts(
    parts: Parts,
    record: Record,
    number: int,
    versions: Iterable[str],
    keeping: Container[str],
    before: Contributions,
    after: Contributions,
) -> None:
    """Add what a record of this number changes in groups of versions: an expiry nothing, where what expired is kept."""
    for version in versions:
        olds, news = before.get(version), after.get(version)
        if olds == news or (record.expired and version in keeping):
            continue
        for sign, targets, others in ((-1, olds, news), (1, news, olds)):
            for target, amounts in (targets or {}).items():
                if others is None or others.get(target) != amounts:
                    parts.setdefault((version, target), []).append(Part(number, record.sequence, sign, amounts))


class Mark(NamedTuple):
    """The last sequence number of a shard that was to be tried with entries, and whether the shard is handed over."""

    tried: int
    over: bool


@dataclass
class Handover:
    """Splits batches, and keeps the marks of shards. It remembers the shards that are handed over: that is for good."""

    store: Store
    registry: Registry
    clock: Callable[[], float]
    _cuts: dict[tuple[str, int, str], int] = field(default_factory=dict)
    """By version, the epoch in which it was registered, and lane: a restored ledger may give a number again."""

    def split(
        self, program: Program, snapshot: RegistrySnapshot, shard: str, records: Sequence[Record], deadline: Deadline
    ) -> Split:
        """Return how a batch is counted, and write the marks for it. Raises Reload, Transient."""
        if not program.lanes or not records:
            return NO_LANES
        table, label = records[0].key.table, records[0].label
        concerned = [snapshot.versions[name] for name in program.lanes_from[table]]
        if reason := _gap(shard, records):
            self.note_gaps(concerned, reason, deadline)
            return Split(uncounted=frozenset(version.name for version in concerned))
        self._note_labels(concerned, table, label, deadline)
        lane = Lane.of(table, label, shard)
        known = {v.name: 0 if v.lanes_count_alone else self._cuts.get((v.name, v.since, lane.name)) for v in concerned}
        cuts = {name: cut for name, cut in known.items() if cut is not None}
        if unknown := [version for version in concerned if version.name not in cuts]:
            cuts.update(deadline.retry(partial(self._hand_over, unknown, lane, records)))
        return Split(lane, dict(sorted(cuts.items())))

    def note_gaps(self, versions: Iterable[Version], reason: str, deadline: Deadline) -> None:
        """Record that the groups of versions may be wrong from now on. Raises Transient."""
        gaps = {version.name: reason for version in versions if version.lanes is not None and not version.gap}
        if gaps:
            deadline.retry(partial(self.registry.note_gaps, gaps))

    def _note_labels(self, versions: Iterable[Version], table: str, label: str, deadline: Deadline) -> None:
        """Note the stream that versions are fed by. Another one than before leaves a gap between the two."""
        stream = f"{table}|{label}"
        new = [version for version in versions if stream not in version.streams]
        if new:
            deadline.retry(partial(self.registry.note_stream, [version.name for version in new], table, label))
            raise Reload(0)  # with the registry as it is now

    def _hand_over(self, versions: Sequence[Version], lane: Lane, records: Sequence[Record]) -> dict[str, int]:
        """Mark what is tried with entries, and hand the shard over where that is due. Return the cuts."""
        keys = {version.name: ItemKey(LEDGER, f"S|{version.name}", lane.name) for version in versions}
        items = self.store.get_many(list(keys.values()))
        numbers = [int(record.sequence) for record in records]
        cuts: dict[str, int] = {}
        for version in versions:
            item = items.get(keys[version.name])
            mark = Mark(int(Decimal(item["tried"]["N"])), "over" in item) if item is not None else Mark(0, False)
            if not mark.over:
                mark = _cut(mark.tried, version.lanes, numbers, records)
                self._write(version, keys[version.name], item, mark, [record.sequence for record in records])
            if mark.over:
                cuts[version.name] = self._cuts[version.name, version.since, lane.name] = mark.tried
        return cuts

    def _write(self, version: Version, key: ItemKey, item: Image | None, mark: Mark, records: Sequence[str]) -> None:
        """Write a mark. Raises Transient if it is not as it was read any more."""
        ends = int(self.clock()) + MARK_SECONDS
        values: dict[str, Value] = {"tried": {"N": str(mark.tried)}, "ttl": {"N": str(ends)}}
        if mark.over:
            values["over"] = {"BOOL": True}
        condition: Condition = Missing(("pk",))
        if item is not None:
            condition = AllOf((Equal(("tried",), item["tried"]), Missing(("over",))))
        purpose = Purpose("handover", (version.name,), key.sort or "", tuple(records))
        try:
            self.store.write(Update(key, set=values, condition=condition, purpose=purpose))
        except ConditionFailed:
            raise Transient(f"another delivery of the shard changes the mark of {version.name}") from None


def _cut(tried: int, due: int | None, numbers: Sequence[int], records: Sequence[Record]) -> Mark:
    """Return up to which record of a shard entries count, and whether lanes count the rest.

    That is from the first record on that was made when the handover was `due`, if it comes after all that were `tried`. An
    earlier one that is delivered again is before the cut, even if no function has tried it since the version exists.
    """
    early = [n for n, record in zip(numbers, records, strict=True) if not due or record.at is None or record.at < due]
    cut = max([tried, *early])
    late = [number for number in numbers if number > cut]
    return Mark(late[0] - 1, True) if due and late else Mark(cut, False)


def _gap(shard: str, records: Sequence[Record]) -> str:
    """Return why a batch cannot be counted by lanes; empty if it can."""
    if not shard:
        return "a batch had no shard id: the event source mapping needs a tumbling window"
    if len({(record.key.table, record.label) for record in records}) > 1:
        return "a batch had records of several streams"
    numbers = [int(record.sequence) for record in records]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        return "the sequence numbers of a batch did not rise"
    if len(records[-1].sequence.lstrip("0")) > _MOST_DIGITS:
        return f"a sequence number had more than {_MOST_DIGITS} digits"
    return ""


class Counted(NamedTuple):
    """Groups after parts were counted, with all their attributes, except those that must be read; and errors by target."""

    groups: Mapping[Target, Image]
    errors: Mapping[Target, StoreError]


class LaneCounter:
    """Counts parts into groups by one lane, each group with one conditional update."""

    def __init__(
        self,
        program: Program,
        store: Store,
        lane: Lane,
        *,
        run: Run[list[Image | StoreError]],
        clock: Callable[[], float],
        counters: Counters,
    ) -> None:
        self._program = program
        self._store = store
        self._lane = lane
        self._run = run
        self._hour = str(int(clock() // 3600))
        self._zeros = {name: dict.fromkeys(rule.slots, Decimal(0)) for name, rule in program.lanes.items()}
        self._absent = Missing((lane.last,))
        self._counters = counters
        self._spreading = Spreading(program, store)
        self._blocked: set[Target] = set()
        """Groups with a change that could not be counted: nothing later may be, before that."""
        self._stopped = False

    def stop(self) -> None:
        """Count nothing more: a record could not be planned, and later ones must not come before it."""
        self._stopped = True

    def count(self, parts: Parts, deadline: Deadline) -> Counted:
        """Count what is not counted yet."""
        groups: dict[Target, Image] = {}
        errors: dict[Target, StoreError] = {}
        left: dict[Target, list[Part]] = {}
        seen: dict[Target, Value] = {}
        for target, changes in parts.items():
            if self._stopped or target in self._blocked:
                errors[target] = Transient("an earlier change of this group could not be counted yet")
            else:
                left[target] = changes
        while left:
            deadline.check()
            updates = {target: self._update(target, changes, seen.get(target)) for target, changes in left.items()}
            # one whose answer was lost is sent again: whether it was made, its lane shows
            answers = send_all(self._store.update_each, list(updates.values()), deadline, self._run)
            for target, answer in zip(updates, answers, strict=True):
                changes = left[target]
                if isinstance(answer, ConditionFailed):
                    image = answer.item or {}
                    lane = image.get(self._lane.last, {"N": "0"})
                    reached = int(Decimal(lane["N"]))
                    if rest := [part for part in changes if part.number > reached]:
                        self._counters.add("duplicates", len(changes) - len(rest))
                        left[target] = rest
                        if self._lane.last in image:
                            seen[target] = lane
                        else:  # the group has been removed since
                            seen.pop(target, None)
                        continue
                    self._counters.add("duplicates", len(changes))
                    groups[target] = image
                elif isinstance(answer, StoreError):
                    errors[target] = answer
                    self._blocked.add(target)
                else:
                    self._counters.add("applied", len(changes))
                    groups[target] = answer
                    self._forget(target, answer)
                del left[target]
        whole = {target: image for target, image in groups.items() if self._program.lanes[target[0]].shards == 1}
        return Counted(whole, errors)

    def _update(self, target: Target, parts: Sequence[Part], seen: Value | None) -> Update:
        """Return the update that counts parts: if the lane is before them, or as it was `seen`."""
        totals = dict(self._zeros[target[0]])
        for _, _, sign, amounts in parts:
            for slot, amount in amounts.items():
                totals[slot] = (WIDE.add if sign > 0 else WIDE.subtract)(totals[slot], Decimal(amount))
        lane = self._lane.last
        condition: Condition = AnyOf((self._absent, Below((lane,), {"N": str(parts[0].number)})))
        if seen is not None:
            condition = Equal((lane,), seen)
        purpose = Purpose("group", target[:1], target[1], tuple(dict.fromkeys([part.sequence for part in parts])))
        key = group_key(*target, self._lane.number % self._spreading.note(target, purpose))
        values: dict[str, Value] = {lane: {"N": str(parts[-1].number)}, self._lane.moved: {"N": self._hour}}
        values |= whole_key(key, target[1])
        add = {"version": {"N": "1"}, **{slot: {"N": number_text(amount)} for slot, amount in totals.items()}}
        return Update(key, set=values, add=add, condition=condition, purpose=purpose)

    def _forget(self, target: Target, image: Image) -> None:
        """Remove lanes from a group that have not moved for so long that none of their records is left."""
        if len(image) < 2 * _STALE_LANES:  # a lane has two attributes
            return
        oldest = int(self._hour) - FORGOTTEN_HOURS
        stale = [name[1:] for name, value in image.items() if name[:1] == "!" and Decimal(value["N"]) < oldest]
        if len(stale) < _STALE_LANES:
            return
        condition = AllOf(tuple(Equal((f"!{name}",), image[f"!{name}"]) for name in stale))
        remove = [f"{sign}{name}" for name in stale for sign in "@!"]
        key = group_key(*target, self._lane.number % spread(self._program, target))
        purpose = Purpose("group", target[:1], target[1])
        self._store.update_each([Update(key, remove=remove, condition=condition, purpose=purpose)])
