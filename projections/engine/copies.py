"""Guarded copies: the copy of an item under a key that no other source can claim.

A copy's guard names its source and the version it shows. A copy heals from its source: a record showing that it appeared,
was deleted, lost its guard or was overwritten makes us look at the source its guard names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from projections.engine.effort import Effort
from projections.engine.guards import as_read, at_of, by_of, guard_value, needs_healing, older_or_foreign
from projections.engine.records import Record
from projections.engine.store import AllOf, Below, Condition, Delete, Equal, Image, ItemKey, Store, Update, Value
from projections.engine.tally import Tally
from projections.errors import BadInput, ConditionFailed, Transient
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
    """A copy to be compared with the source its guard names (or named)."""

    rule: CopyRule
    target: ItemKey
    source: str
    at: str
    """The newest version by this source that the record showed; what is healed must not look older."""
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
    reject: Callable[[Record, str, str], None],
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
            problems: dict[str, str] = {}
            before, after = copies_of(rule, old), copies_of(rule, new, problems)
            if problems:
                reject(record, name, problems[name])
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
    if after is not None:
        ours = rule.owned(before, after)
        if not needs_healing(guard, ours, before, after):
            return []
    newest: dict[str, str] = {}
    for image in (before, after):
        if image is not None and (source := by_of(image.get(guard))):
            newest[source] = max(newest.get(source, ""), at_of(image.get(guard)))
    return [CopyHeal(rule, key, source, at, sequence) for source, at in newest.items()]


class Copier:
    """Applies copies to a store."""

    def __init__(self, program: Program, store: Store, tally: Tally | None = None) -> None:
        self._program = program
        self._store = store
        self._tally = tally or Tally()

    def write(self, copy: CopyWrite) -> None:
        """Writes what a source's newest image says, where the guard is absent, another's or older."""
        guard = self._program.guard(copy.rule.name)
        stamp = guard_value(copy.version, by=copy.source)
        condition = older_or_foreign(guard, copy.source, copy.version)
        for target, attributes in copy.copies.items():
            self._put(copy.rule, target, attributes, stamp, copy.owned, condition)
        by, at = Equal((guard, "by"), {"S": copy.source}), Below((guard, "at"), {"S": copy.version})
        for target in sorted(copy.others):
            try:
                self._store.write(Delete(target, AllOf((by, at))))
                self._tally.add("copies")
            except ConditionFailed:
                continue  # no copy, another's, or newer

    def _put(
        self,
        rule: CopyRule,
        target: ItemKey,
        attributes: Image,
        stamp: Value,
        owned: Iterable[str],
        condition: Condition,
    ) -> bool:
        guard = self._program.guard(rule.name)
        gone = tuple(sorted(name for name in owned if name not in attributes))
        try:
            self._store.write(Update(target, set={**attributes, guard: stamp}, remove=gone, condition=condition))
        except ConditionFailed:
            return False
        self._tally.add("copies")
        return True

    def heal(self, heal: CopyHeal, effort: Effort) -> None:
        """Makes a copy what its source says now: the guard is read first, then the source, so that it is at least as new.

        After creating a copy, the source is read again: had it been removed meanwhile, that removal found no copy to delete.
        """
        rule, guard = heal.rule, self._program.guard(heal.rule.name)
        for _ in range(_MOST_TRIES):
            effort.check()
            item = self._store.get(heal.target)
            read = item.get(guard) if item is not None else None
            if read is not None and by_of(read) != heal.source:
                return  # another source's copy; its own records look after it
            key = decode_key(heal.source)
            image = self._store.get(key)
            source = self._program.recognise(key, image) if image is not None else None
            wanted = copies_of(rule, source).get(heal.target)
            condition = as_read(guard, read)
            if wanted is None:
                if read is None:
                    return
                try:
                    self._store.write(Delete(heal.target, condition))
                except ConditionFailed:
                    continue
                self._tally.add("healed")
                return
            stamp = guard_value(max(heal.at, at_of(read)), by=heal.source)
            owned = rule.owned(item, image)
            desired: dict[str, Value | None] = {**dict.fromkeys(owned), **wanted, guard: stamp}
            if item is not None and all(same(item.get(name), value) for name, value in desired.items()):
                return
            if self._put(rule, heal.target, wanted, stamp, owned, condition):
                self._tally.add("healed")
                if item is not None:
                    return
                # round again: the guard as just written, and the source as it is now
        raise Transient(f"{rule.name}: the guard of a copy kept changing while it was healed")
