"""Guarded copies: the copy of an item under a key that no other source can claim.

A copy's guard names its source and the version it shows. A copy heals from its source: a record showing that it appeared,
was deleted, lost its guard or was overwritten makes us look at the source its guard names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from projections.engine.effort import Effort
from projections.engine.guards import as_read, at_of, by_of, guard_value, needs_healing, older_or_foreign
from projections.engine.records import Record
from projections.engine.store import (
    AllOf,
    Below,
    Condition,
    Delete,
    Equal,
    Exists,
    Image,
    ItemKey,
    Store,
    Update,
    Value,
)
from projections.engine.tally import Tally
from projections.errors import BadInput, ConditionFailed, InvalidRequest, Transient
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import CopyRule
from projections.language.scope import Item
from projections.language.values import same

__all__ = ["Copier", "CopyHeal", "CopyWrite", "copies_of", "heals_of", "writes_of"]

_MOST_TRIES = 20


@dataclass(frozen=True, slots=True)
class CopyWrite:
    """What the newest image of a source says of its copies, and which other targets its records named."""

    rule: CopyRule
    source: str
    version: str
    copies: Mapping[ItemKey, Image]
    others: frozenset[ItemKey]
    owned: frozenset[str]
    sequence: str


@dataclass(frozen=True, slots=True)
class CopyHeal:
    """A copy to be compared with the sources its guard names (or named)."""

    rule: CopyRule
    target: ItemKey
    sources: Mapping[str, str]
    """By encoded key, the newest version of each that the record showed; what is healed must not look older."""
    sequence: str


@dataclass(slots=True)
class _Seen:
    """One source item over a batch, in the eyes of one rule."""

    first: str
    version: str = ""
    newest: Item | None = None
    targets: set[ItemKey] = field(default_factory=set)
    images: list[Image] = field(default_factory=list)


def copies_of(rule: CopyRule, item: Item | None, problems: dict[str, str] | None = None) -> dict[ItemKey, Image]:
    """The copies of an item; none if there is no item or the rule cannot be evaluated on it (then see `problems`)."""
    if item is None or item.entity is not rule.source:
        return {}
    try:
        return rule.copies(item)
    except BadInput as problem:
        if problems is not None:
            problems[rule.name] = str(problem)
        return {}


def writes_of(
    program: Program,
    changes: Sequence[tuple[Record, Item | None, Item | None]],
    reject: Callable[[Record, str, str, str | None], None],
) -> list[CopyWrite]:
    """The writes that the changes of a batch ask for: records with old and new item, in the order of each item.

    A record whose copies before and after are equal is dropped; the rest are compacted per source item, and never because
    they cancel out: an earlier, interrupted delivery may have applied some of them.
    """
    seen: dict[tuple[str, ItemKey], _Seen] = {}
    for record, old, new in changes:
        rules = {
            rule.name: rule
            for item in (old, new)
            if item is not None
            for rule in program.copy_rules.get(item.entity.name, ())
        }
        for name, rule in rules.items():
            known: dict[str, str] = {}
            problems: dict[str, str] = {}
            before, after = copies_of(rule, old, known), copies_of(rule, new, problems)
            if problems:
                reject(record, name, problems[name], known.get(name))
            if before == after and before.keys() == after.keys():
                continue
            about = seen.setdefault((name, record.key), _Seen(record.sequence))
            about.version, about.newest = record.version, new
            about.targets |= before.keys() | after.keys()
            about.images += [item.image for item in (old, new) if item is not None]
    writes = []
    for (name, key), about in seen.items():
        copier = program.rules[name]
        assert isinstance(copier, CopyRule)
        copies = copies_of(copier, about.newest)
        others = frozenset(about.targets - copies.keys())
        owned = copier.owned(*about.images)
        writes.append(CopyWrite(copier, encode_key(key), about.version, copies, others, owned, about.first))
    return writes


def heals_of(program: Program, key: ItemKey, old: Item | None, new: Item | None, sequence: str) -> list[CopyHeal]:
    """The healing that a record of a copy asks for."""
    entity = (new or old).entity if (new or old) is not None else None  # type: ignore[union-attr]
    rule = program.copy_rule_into.get(entity.name) if entity is not None else None
    if rule is None:
        return []
    guard = program.guard(rule.name)
    before = old.image if old is not None else None
    after = new.image if new is not None else None
    guards = [image[guard] for image in (before, after) if image is not None and guard in image]
    newest: dict[str, str] = {}
    for value in guards:
        if source := by_of(value):
            newest[source] = max(newest.get(source, ""), at_of(value))
    # No write of ours ever puts another source's copy in a copy's place: no two sources can claim one target.
    changed_hands = len(newest) > 1
    # What took over an item the application put under its key may be a late write of a source that is gone by now, and a
    # copy of all attributes knows nothing of what else that item holds.
    took_over = before is not None and guard not in before and bool(guards)
    heal = after is None or changed_hands or took_over
    if not heal and not needs_healing(guard, rule.owned(before, after), before, after):
        return []
    return [CopyHeal(rule, key, newest, sequence)] if newest else []


class Copier:
    """Applies copies to a store."""

    def __init__(self, program: Program, store: Store, tally: Tally | None = None) -> None:
        self._program = program
        self._store = store
        self._tally = tally or Tally()

    def write(self, copy: CopyWrite, effort: Effort) -> None:
        """Writes what a source's newest image says, where the guard is absent, another's or older."""
        guard = self._program.guard(copy.rule.name)
        stamp = guard_value(copy.version, by=copy.source)
        condition = older_or_foreign(guard, copy.source, copy.version)
        for target, attributes in copy.copies.items():
            try:
                self._put(copy.rule, target, attributes, stamp, copy.owned, condition)
            except ConditionFailed as failed:
                self._look_ahead(copy, target, failed, effort)
            except InvalidRequest:  # too large, say: then there is no copy, rather than an old one
                with suppress(ConditionFailed):
                    self._store.write(Delete(target, AllOf((Exists((guard,)), condition))))
                raise
        by, at = Equal((guard, "by"), {"S": copy.source}), Below((guard, "at"), {"S": copy.version})
        for target in sorted(copy.others):
            try:
                self._store.write(Delete(target, AllOf((by, at))))
                self._tally.add("copies")
            except ConditionFailed as failed:
                self._look_ahead(copy, target, failed, effort)

    def _look_ahead(self, copy: CopyWrite, target: ItemKey, failed: ConditionFailed, effort: Effort) -> None:
        """A guard of this source that is ahead of us: this change is late, or the guard is from nowhere (a cloned item, an
        edited one) and would lock the truth out. The source tells.
        """
        guard = failed.item.get(self._program.guard(copy.rule.name)) if failed.item is not None else None
        if by_of(guard) == copy.source and at_of(guard) > copy.version:
            self.heal(CopyHeal(copy.rule, target, {copy.source: copy.version}, copy.sequence), effort)

    def _put(
        self,
        rule: CopyRule,
        target: ItemKey,
        attributes: Image,
        stamp: Value,
        owned: Iterable[str],
        condition: Condition,
    ) -> None:
        guard = self._program.guard(rule.name)
        gone = tuple(sorted(name for name in owned if name not in attributes))
        self._store.write(Update(target, set={**attributes, guard: stamp}, remove=gone, condition=condition))
        self._tally.add("copies")

    def heal(self, heal: CopyHeal, effort: Effort) -> None:
        """Makes a copy what its source says now: the guard is read first, then the source, so that it is at least as new.

        After creating a copy, the source is read again: had it been removed meanwhile, that removal found no copy to delete.
        """
        rule, guard = heal.rule, self._program.guard(heal.rule.name)
        exists = Exists((self._store.schema(heal.target.table).partition[0],))
        for _ in range(_MOST_TRIES):
            effort.check()
            item = self._store.get(heal.target)
            read = item.get(guard) if item is not None else None
            condition = as_read(guard, read)
            found = self._wanted(rule, heal.target, {*heal.sources, by_of(read)} - {""})
            if found is None:
                if item is None:
                    return
                try:  # without a guard too: the record showed that it was ours, and only the rule makes such items
                    self._store.write(Delete(heal.target, AllOf((exists, condition))))
                except ConditionFailed:
                    continue
                self._tally.add("healed")
                return
            source, image, wanted = found
            at = max(heal.sources.get(source, ""), at_of(read) if by_of(read) == source else "")
            stamp = guard_value(at, by=source)
            owned = rule.owned(item, image)
            desired: dict[str, Value | None] = {**dict.fromkeys(owned), **wanted, guard: stamp}
            if item is not None and all(same(item.get(name), value) for name, value in desired.items()):
                return
            try:
                self._put(rule, heal.target, wanted, stamp, owned, condition)
            except ConditionFailed:
                continue
            self._tally.add("healed")
            if item is not None:
                return
            # round again: the guard as just written, and the source as it is now
        raise Transient(f"{rule.name}: the guard of a copy kept changing while it was healed")

    def _wanted(self, rule: CopyRule, target: ItemKey, sources: Iterable[str]) -> tuple[str, Image, Image] | None:
        """The one of these sources whose copy stands at the target, as it is now: its key, its image, the copy."""
        for source in sorted(sources):
            key = decode_key(source)
            image = self._store.get(key)
            item = self._program.recognise(key, image) if image is not None else None
            wanted = copies_of(rule, item).get(target)
            if image is not None and wanted is not None:
                return source, image, wanted
        return None
