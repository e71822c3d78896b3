"""Guarded copies: the copy of an item under a key that no other source can claim.

A copy's guard names its source and the version it shows. A copy heals from its source: a record showing that it appeared,
was deleted, lost its guard or was overwritten makes us look at the source its guard names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

from projections.engine.effort import Effort, Run, one_by_one
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
from projections.errors import BadInput, ConditionFailed, InvalidRequest, StoreError, Transient
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

    def __init__(self, program: Program, store: Store, tally: Tally | None = None, run: Run[None] = one_by_one) -> None:
        self._program = program
        self._store = store
        self._tally = tally or Tally()
        self._run = run

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

    def refresh(self, items: Iterable[Item], effort: Effort) -> list[tuple[CopyRule, ItemKey, StoreError]]:
        """Makes the copies of items what their sources say now; `items` were read just now. Few requests for many items.

        Per copy as in `heal`: its guard is read, then the source, and it is written if the guard is as read; after one was
        created the source is read again. What the items as they were read show already is left: had they changed since, a
        record would be on its way. Gives the failures.
        """
        wanted: dict[tuple[str, ItemKey], tuple[ItemKey, Image]] = {}
        for item in items:
            for rule in self._program.copy_rules.get(item.entity.name, ()):
                for target, attributes in copies_of(rule, item).items():
                    wanted[rule.name, target] = item.key, attributes
        shown = self._store.get_many(list(dict.fromkeys(target for _, target in wanted)))
        stale = [
            (name, target, source)
            for (name, target), (source, attributes) in wanted.items()
            if not self._shows(name, shown.get(target), source, attributes)
        ]
        failures: list[tuple[CopyRule, ItemKey, StoreError]] = []
        created: list[tuple[str, ItemKey, ItemKey]] = []
        for number in range(2):
            if not stale:
                return failures
            effort.check()
            sources = self._store.get_many(list(dict.fromkeys(source for _, _, source in stale)))
            last = number == 1
            self._run([partial(self._renew, *one, shown, sources, effort, failures, created, last) for one in stale])
            if not last:  # of what was created, the source once more
                shown = self._store.get_many(list(dict.fromkeys(target for _, target, _ in created)))
                stale, created = created, []
        return failures

    def _shows(self, name: str, item: Image | None, source: ItemKey, attributes: Image) -> bool:
        """Whether an item is this copy of this source."""
        rule = self._program.rules[name]
        assert isinstance(rule, CopyRule)
        if item is None or by_of(item.get(self._program.guard(name))) != encode_key(source):
            return False
        desired: dict[str, Value | None] = {**dict.fromkeys(rule.owned(item)), **attributes}
        return all(same(item.get(attribute), value) for attribute, value in desired.items())

    def _renew(
        self,
        name: str,
        target: ItemKey,
        source: ItemKey,
        shown: Mapping[ItemKey, Image],
        sources: Mapping[ItemKey, Image],
        effort: Effort,
        failures: list[tuple[CopyRule, ItemKey, StoreError]],
        created: list[tuple[str, ItemKey, ItemKey]],
        last: bool,
    ) -> None:
        """One copy, from its target and its source as they were read in this order; the slow way if that is not enough."""
        rule, guard, item = self._program.rules[name], self._program.guard(name), shown.get(target)
        assert isinstance(rule, CopyRule)
        image = sources.get(source)
        found = self._program.recognise(source, image) if image is not None else None
        attributes = copies_of(rule, found).get(target)
        held = item.get(guard) if item is not None else None
        by = encode_key(source)
        try:
            if attributes is None or by_of(held) not in ("", by) or (item is None and last):
                return self.heal(CopyHeal(rule, target, {by: ""}, ""), effort)
            if self._shows(name, item, source, attributes):
                return None
            stamp = guard_value(at_of(held) if by_of(held) == by else "", by=by)
            try:
                self._put(rule, target, attributes, stamp, rule.owned(item, image), as_read(guard, held))
            except ConditionFailed:
                return self.heal(CopyHeal(rule, target, {by: ""}, ""), effort)
            if item is None:
                created.append((name, target, source))
        except (Transient, InvalidRequest) as error:
            failures.append((rule, target, error))
        return None

    def orphans(self, items: Iterable[Item]) -> list[CopyHeal]:
        """Of items that bear a copy's guard, those whose source does not make that copy now: to be healed."""
        suspects = []
        for item in items:
            rule = self._program.copy_rule_into.get(item.entity.name)
            source = by_of(item.image.get(self._program.guard(rule.name))) if rule is not None else ""
            if rule is not None and source:
                suspects.append((rule, item.key, source, decode_key(source)))
        images = self._store.get_many(list(dict.fromkeys(key for _, _, _, key in suspects)))
        found = []
        for rule, target, source, key in suspects:
            image = images.get(key)
            if target not in copies_of(rule, self._program.recognise(key, image) if image is not None else None):
                found.append(CopyHeal(rule, target, {source: ""}, ""))
        return found

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
