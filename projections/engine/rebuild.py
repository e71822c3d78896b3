"""Rebuilding a group that disagrees with the entries: a new generation next to the old one, filled while traffic runs.

1. Close the old generation, and make the new one with what has settled, in one transaction per shard. From then on commits
   to the old one fail, and learn from the reason which generation is open. The extremes of what has settled follow when
   all shards are closed: a commit to any shard may change them. So do value counters, as far as they have settled.
2. Refresh every entry that names the target. An entry says in which generation its contribution is counted, so that each is
   moved exactly once: by the refresh, or by a change that comes first. Nothing is published meanwhile.
3. Open the group for publishing, and publish it.

To correct the totals in place would be wrong: commits change them between the read of the entries and the write. In a new
generation each contribution is counted exactly once, because the entry and the group change in one transaction.

Any step may be repeated by any process. Settled totals are taken over as they are: no entry records them.

    pk   sk                   what
    R    rebuild|<hash>       note: a group that is being rebuilt, its new generation, when that began

The note is written in the transaction that begins the new generation, and deleted in the last step. If the process stops,
the note stays, and the next backfill or repair finishes the rebuild. `before` has names of backfills: a backfill that began
after one of these finishes the rebuild, since the group was closed before it read its first page.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from functools import partial

from projections.engine.changes import SETTLED
from projections.engine.groups import Generations, extreme_sort, parts_of, spread, successor
from projections.engine.guards import as_read
from projections.engine.ledger_items import (
    CLOSED,
    COUNT,
    KEPT,
    LEDGER,
    REBUILDING,
    SHARD_COUNT,
    Target,
    group_key,
    members_key,
    slot_in,
    whole_key,
)
from projections.engine.running import Deadline
from projections.engine.store import (
    Above,
    Action,
    AllOf,
    AnyOf,
    Below,
    Check,
    Condition,
    Delete,
    Equal,
    Exists,
    Image,
    ItemKey,
    Missing,
    Purpose,
    Role,
    Store,
    Update,
    Value,
    all_items,
)
from projections.errors import ConditionFailed, TransactionCancelled, Transient
from projections.language.program import Program

_MOST_TRIES = 20
_PREFIX = "rebuild|"
_AFTER = "after|"
"""Prefix of the names of backfills, since a set cannot have an empty text."""


@dataclass(frozen=True, slots=True)
class Note:
    """A rebuild that has begun and not ended: the group, its new generation, when it began.

    `before` has names of backfills, "" if there was no backfill: one that began after one of them ends the rebuild.
    """

    target: Target
    generation: int
    at: float
    """Seconds since 1970."""
    before: frozenset[str] = frozenset()


def notes(store: Store) -> Iterator[Note]:
    """Yield the rebuilds that have begun and not ended, by processes that run or have stopped. Raise Transient."""
    return map(_read, all_items(partial(store.query, LEDGER, [{"S": "R"}], prefix=_PREFIX)))


def _read(item: Image) -> Note:
    target = item["rule"]["S"], item["target"]["S"]
    before = frozenset(name.removeprefix(_AFTER) for name in item["before"]["SS"]) if "before" in item else frozenset()
    return Note(target, int(Decimal(item["generation"]["N"])), float(item["at"]["N"]), before)


def forgotten(note: Note) -> Delete:
    """Return the write that deletes a note, unless another rebuild of the group has begun."""
    unchanged = Equal(("generation",), {"N": str(note.generation)})
    return Delete(_note_key(note.target), unchanged, _why("note", note.target))


def _why(role: Role, target: Target) -> Purpose:
    return Purpose(role, target[:1], target[1])


def _note_key(target: Target) -> ItemKey:
    digest = hashlib.sha256("|".join(target).encode()).hexdigest()
    return ItemKey(LEDGER, "R", f"{_PREFIX}{digest}")


@dataclass(frozen=True, slots=True)
class Claim:
    """A backfill that is about to begin, and ends the rebuilds that began before it.

    `newest` is the newest backfill, "" if there is none. `unchanged` is the check that it still is the newest, so that a
    group is closed and claimed only before a backfill that ends the rebuild has read a page.
    """

    newest: str
    unchanged: Check

    @property
    def names(self) -> Value:
        return {"SS": [f"{_AFTER}{self.newest}"]}


def _claim(store: Store, note: Note, claim: Claim | None) -> None:
    """Claim a rebuild that another process began, and write its note if it is missing.

    Raise TransactionCancelled if the rebuild ended or the note changed, and ConditionFailed as `close` does.
    """
    key = _note_key(note.target)
    item = store.get(key)
    stored_note = _read(item) if item is not None else None
    same = stored_note is not None and stored_note.generation == note.generation
    if same and (claim is None or (stored_note is not None and claim.newest in stored_note.before)):
        return
    condition = Equal(("generation",), item["generation"]) if item is not None else Missing(("pk",))
    add = {"before": claim.names} if same and claim is not None else {}
    write = _noting(note, claim, condition)
    if same:
        write = Update(key, add=add, condition=condition, purpose=write.purpose)
    under_way = Check(group_key(*note.target, note.generation), Exists((REBUILDING,)))
    _transact(store, [write, under_way], claim)


def _noting(note: Note, claim: Claim | None, condition: Condition | None = None) -> Update:
    """Return the write of a note, which replaces any other note of the group."""
    values: dict[str, Value] = {
        "rule": {"S": note.target[0]},
        "target": {"S": note.target[1]},
        "generation": {"N": str(note.generation)},
        "at": {"N": str(int(note.at))},
    }
    if claim is not None:
        values["before"] = claim.names
    remove = ("before",) if claim is None else ()
    why = _why("note", note.target)
    return Update(_note_key(note.target), set=values, remove=remove, condition=condition, purpose=why)


def _begin_generation(store: Store, note: Note, claim: Claim | None, writes: Sequence[Action]) -> None:
    """Begin a generation and write its note."""
    _transact(store, [*writes, _noting(note, claim)], claim)


def _transact(store: Store, writes: Sequence[Action], claim: Claim | None) -> None:
    """Write, if the claim still holds."""
    if claim is None:
        store.transact(writes)
        return
    try:
        store.transact([*writes, claim.unchanged])
    except TransactionCancelled as cancelled:
        reason = cancelled.reasons[len(writes)] if len(cancelled.reasons) > len(writes) else None
        if reason is not None and reason.kind == "condition":
            raise ConditionFailed(reason.item) from cancelled
        raise


def close(
    store: Store,
    program: Program,
    target: Target,
    generations: Generations,
    deadline: Deadline,
    clock: Callable[[], float] = time.time,
    claim: Claim | None = None,
) -> int:
    """Close the open generation of a group, and make the next, which is not published yet; or find that done.

    Write a note, for the backfill of `claim` if there is one. Return the new generation, which is recorded in `generations`.
    Raise Transient, and ConditionFailed if the claim's backfill must not begin any more.
    """
    attempt = 0
    seen: int | None = None
    while True:
        deadline.check()
        known = _by_generation(store, target)
        generation = 0
        while CLOSED in (first := known.get(generation, {}).get(0, {})):
            generation = successor(generation, first)
        if REBUILDING in first:  # another process has begun, and perhaps not closed all shards
            following = generation
            replaced = (old for old, parts in known.items() if old < following and CLOSED in parts.get(0, {}))
            generation = next((old for old in replaced if successor(old, known[old][0]) == following), following)
        elif seen is not None and generation > seen:  # another process has closed and rebuilt it
            generations.exists(target, generation)
            return generation
        else:
            seen = generation
            following = max(generation, generations.of(target), *known) + 1
        # There is no generation between the two, unless the ledger was restored and processes went on with later ones.
        strays = [number for number in known if generation < number < following]
        note = Note(target, following, clock())
        try:
            if REBUILDING in first:
                _claim(store, note, claim)
            for number in [generation, *strays]:
                begins = partial(_begin_generation, store, note, claim) if number == generation else None
                _close_generation(store, program, target, number, following, known.get(number, {}), begins)
        except (TransactionCancelled, Transient) as error:  # as a rule because of a commit in between
            attempt += 1
            if attempt == _MOST_TRIES:
                raise Transient(f"the group kept changing while it was closed: {error}") from error
            deadline.pause(attempt)
            continue
        generations.exists(target, following)
        return following


def _close_generation(
    store: Store,
    program: Program,
    target: Target,
    generation: int,
    following: int,
    parts: dict[int, Image],
    begins: Callable[[Sequence[Action]], None] | None,
) -> None:
    """Close all shards of one generation. `begins` writes the first shard's close, and begins the following generation."""
    if generation == following:  # the generation that it replaces is lost
        return
    first = parts.get(0, {})
    # If the first shard was lost, the number of shards is unknown, and a commit may write to one that does not exist yet.
    counted = int(Decimal(first[SHARD_COUNT]["N"])) if SHARD_COUNT in first else 1
    for shard in range(max([counted, spread(program, target), *(shard + 1 for shard in parts)])):
        _close_shard(store, target, generation, shard, parts, following, begins if shard == 0 else None)
    _carry_extremes(store, target, generation, following)
    if any(name.startswith("%") for part in parts.values() for name in part):  # each shard was closed as it was read
        _carry_counters(store, target, generation, following)


def _by_generation(store: Store, target: Target) -> dict[int, dict[int, Image]]:
    """The shards of each generation by number; the extremes of settled values have the numbers -1, -2 and so on."""
    generations: dict[int, dict[int, Image]] = {0: {}}
    for item in parts_of(store, group_key(*target).partition):
        generation, _, number = item["sk"]["S"].partition("|")
        parts = generations.setdefault(int(generation), {})
        parts[int(number) if number.isdecimal() else -1 - len(parts)] = item
    return generations


def _close_shard(
    store: Store,
    target: Target,
    generation: int,
    shard: int,
    parts: dict[int, Image],
    following: int,
    begins: Callable[[Sequence[Action]], None] | None,
) -> None:
    """Close one shard, and move its settled totals to the next generation, in one transaction.

    The first shard is closed first: as long as it is open, no commit writes to the next generation.
    """
    part = parts.get(shard)
    if part is not None and CLOSED in part:
        return
    key, next_key = group_key(*target, generation, shard), group_key(*target, following)
    settled: dict[str, Value] = {
        name: value for name, value in (part or {}).items() if name.startswith(SETTLED) and "N" in value
    }
    why = _why("rebuild", target)
    writes: list[Action] = [
        Update(
            key,
            set={CLOSED: {"N": str(following)}, **whole_key(key, target[1])},
            condition=_unchanged_condition(part),
            purpose=why,
        )
    ]
    if begins is None:
        if settled:
            writes.append(Update(next_key, add=settled, condition=Exists((REBUILDING,)), purpose=why))
        store.transact(writes)
        return
    begun: dict[str, Value] = {REBUILDING: {"BOOL": True}, **whole_key(next_key, target[1])}
    added: dict[str, Value] = {"version": {"N": "1"}, **settled}
    writes.append(Update(next_key, set=begun, add=added, condition=Missing(("pk",)), purpose=why))
    begins(writes)


def _unchanged_condition(part: Image | None) -> Condition:
    """The condition that a shard is open, and that nothing was committed to it since it was read."""
    read = {name: part.get(name) if part is not None else None for name in ("version", SHARD_COUNT)}
    return AllOf((Missing((CLOSED,)), *(as_read(name, value) for name, value in read.items())))


def _carry_extremes(store: Store, target: Target, generation: int, following: int) -> None:
    """Copy the least and greatest settled values to the next generation, unless it has lesser or greater ones by now."""
    next_key, why = group_key(*target, following), _why("rebuild", target)
    extremes = [item for item in parts_of(store, next_key.partition, generation) if "order" in item]
    if extremes:
        store.write(Update(next_key, set={"extremes": {"BOOL": True}}, purpose=why))
    for item in extremes:
        slot, which, order = item["slot"]["S"], item["which"]["S"], item["order"]
        held = {name: item[name] for name in ("order", "v", "slot", "which")}
        beaten = Above(("order",), order) if which == "least" else Below(("order",), order)
        key = ItemKey(LEDGER, next_key.partition, extreme_sort(following, slot, which))
        with suppress(ConditionFailed):
            store.write(Update(key, set=held, condition=AnyOf((Missing(("order",)), beaten)), purpose=why))


def _carry_counters(store: Store, target: Target, generation: int, following: int) -> None:
    """Move what has settled in value counters to the next generation, each in a transaction with the number of counters.

    The transaction takes it out of the old counter, so each part is moved once, whoever repeats this.
    """
    read = partial(store.query, LEDGER, [{"S": members_key(*target)}], prefix=f"{generation:04d}|")
    for item in all_items(read):
        if KEPT in item:
            _carry_counter(store, target, ItemKey(LEDGER, item["pk"]["S"], item["sk"]["S"]), item, following)


def _carry_counter(store: Store, target: Target, old: ItemKey, item: Image | None, following: int) -> None:
    """Move what has settled in one counter. Raise TransactionCancelled if commits keep changing the new one."""
    key = ItemKey(LEDGER, old.partition, f"{following:04d}{(old.sort or '')[4:]}")
    why = _why("rebuild", target)
    for attempt in range(_MOST_TRIES):
        if item is None or KEPT not in item:  # another process has moved it
            return
        kept, there = item[KEPT], store.get(key)
        number: dict[str, Value] = {"version": {"N": "1"}}
        if there is None:
            number["%" + slot_in(item)] = {"N": "1"}
        described = {name: item[name] for name in ("o", "v") if there is None}
        condition = Missing(("pk",)) if there is None else Above((COUNT,), {"N": "0"})
        writes = [
            Update(old, remove=(KEPT,), condition=Equal((KEPT,), kept), purpose=why),
            Update(key, set=described, add={COUNT: kept, KEPT: kept}, condition=condition, purpose=why),
            Update(group_key(*target, following), add=number, purpose=why),
        ]
        try:
            store.transact(writes)
        except TransactionCancelled:
            if attempt == _MOST_TRIES - 1:
                raise
            item = store.get(old)
        else:
            return


def reopen(store: Store, target: Target, generation: int) -> None:
    """Allow publishes of a group again, after all entries that name its target have moved."""
    key, why = group_key(*target, generation), _why("rebuild", target)
    with suppress(ConditionFailed):
        store.write(Update(key, remove=(REBUILDING,), condition=Exists((REBUILDING,)), purpose=why))


def sweep(store: Store, target: Target, generation: int) -> None:
    """Delete the members of the generations before this one, and the note. The closed groups stay."""
    for old in range(generation):
        for item in all_items(partial(store.query, LEDGER, [{"S": members_key(*target)}], prefix=f"{old:04d}|")):
            store.write(Delete(ItemKey(LEDGER, item["pk"]["S"], item["sk"]["S"]), purpose=_why("sweep", target)))
    with suppress(ConditionFailed):  # no note, or that of a later rebuild
        store.write(forgotten(Note(target, generation, 0.0)))
