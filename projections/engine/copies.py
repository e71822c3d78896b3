"""Guarded copies: which writes and heals the records of sources and copies require. Nothing is read or written here.

A guarded copy has a key that no other source can have. Its guard names the source, and the version of the source that the
copy shows. A record that shows that a copy appeared, was deleted, lost its guard or was overwritten requires a heal, which
reads the source that the guard names. `engine.copier` does both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from projections.engine.guards import Guard, Guards, Healing, needs_healing
from projections.engine.records import Record
from projections.engine.store import Image, ItemKey, Records
from projections.errors import BadInput
from projections.language.entity import Item
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.language.rules import CopyRule
from projections.language.values import item_size, valued


class CopyWrite(NamedTuple):
    """The copies of a source by its newest image, and the other targets that its records named.

    `known` has the copies that the source had before any of these records. As a rule they exist, and show that.
    """

    rule: CopyRule
    source: str
    version: str
    copies: Mapping[ItemKey, Image]
    others: frozenset[ItemKey]
    owned: frozenset[str]
    sequences: Records
    """The sequence numbers of the records, in order."""
    known: Mapping[ItemKey, Image] = MappingProxyType({})
    reads: bool = False
    """Whether each item is read before it is written, because nothing shows whether it exists."""

    @property
    def removals(self) -> CopyWrite:
        """What of this cannot be left to a task, which knows only the newest image of the source.

        If that lacks attributes which a copy of all attributes may show, the copy is removed until the task writes it again.
        """
        lost = [t for t, values in self.copies.items() if not self.owned <= {*self.rule.owned(), *values}]
        return self._replace(copies={}, others=self.others.union(lost))


class CopyHeal(NamedTuple):
    """A copy to compare with the sources that its guard names or named."""

    rule: CopyRule
    target: ItemKey
    sources: Mapping[str, str]
    """By encoded key, the newest version of each that the record showed. The healed copy must not have an older one."""
    sequences: Records = ()
    """The sequence numbers of the records that require it, in order; none if a refresh does."""
    freed: bool = False
    """Whether an item of another kind was removed: then the source that waits for the key is read, too."""
    why: Healing | None = None
    """Why the record of the copy requires it."""
    shown: frozenset[str] = frozenset()
    """Of a copy of all attributes: those of the record's old image, if its guard shows that the rule wrote them all."""


class _Seen:
    """The records of one source item in a batch, under one rule."""

    def __init__(self, known: Mapping[ItemKey, Image]) -> None:
        self.sequences: list[str] = []
        self.known = known
        self.version = ""
        self.newest: Item | None = None
        self.targets: set[ItemKey] = set()
        self.images: list[Image] = []


def copies_of(rule: CopyRule, item: Item | None, problems: dict[str, str] | None = None) -> dict[ItemKey, Image]:
    """Return the copies of an item by key; empty without an item, or if the rule cannot be evaluated (see `problems`)."""
    if item is None or item.entity is not rule.source:
        return {}
    try:
        return rule.copies(item)
    except BadInput as problem:
        if problems is not None:
            problems[rule.name] = str(problem)
        return {}


def units_of(copy: Image) -> int:
    """Return the write units of a copy, whose key and guard take a part of the last one."""
    return item_size(copy) // 1024 + 1


def writes_of(
    program: Program,
    changes: Sequence[tuple[Record, Item | None, Item | None]],
    reject: Callable[[Record, str, str, str | None], None],
) -> list[CopyWrite]:
    """Return the writes that the changes of a batch require: records with old and new item, in the order of each item.

    A record whose copies before and after are equal is dropped; the others are compacted per source item. Changes that
    cancel out are kept: an earlier, interrupted delivery may have applied some of them.
    """
    seen: dict[tuple[str, ItemKey], _Seen] = {}
    for record, old, new in changes:
        items = [item for item in (old, new) if item is not None]
        rules = {rule.name: rule for item in items for rule in program.copy_rules.get(item.entity.name, ())}
        for name, rule in rules.items():
            known: dict[str, str] = {}
            problems: dict[str, str] = {}
            before, after = copies_of(rule, old, known), copies_of(rule, new, problems)
            if problems:
                reject(record, name, problems[name], known.get(name))
            if before == after and before.keys() == after.keys():
                continue
            about = seen.get((name, record.key))
            if about is None:
                about = seen[name, record.key] = _Seen(before)
            about.version, about.newest = record.version, new
            about.sequences.append(record.sequence)
            about.targets |= before.keys() | after.keys()
            about.images += [item.image for item in items]
    writes = []
    for (name, key), about in seen.items():
        copier = program.guarded_copies[name]
        copies = copies_of(copier, about.newest)
        others = frozenset(about.targets - copies.keys())
        owned = copier.owned(*map(valued, about.images))
        source, records = encode_key(key), tuple(about.sequences)
        writes.append(CopyWrite(copier, source, about.version, copies, others, owned, records, about.known))
    return writes


def heals_of(program: Program, guards: Guards, record: Record, old: Item | None, new: Item | None) -> list[CopyHeal]:
    """Return the heals that the record of a copy requires, by the entities of its old and its new image."""
    key, heals = record.key, []
    names = dict.fromkeys(item.entity.name for item in (old, new) if item is not None)
    for rule in [rule for name in names if (rule := program.copy_rule_into.get(name)) is not None]:
        before = old.image if old is not None and old.entity is rule.into else None
        after = new.image if new is not None and new.entity is rule.into else None
        held, holds = guards.read(rule.name, key, before), guards.read(rule.name, key, after)
        newest: dict[str, str] = {}
        for guard in (held, holds):
            if guard is not None and guard.by:
                newest[guard.by] = max(newest.get(guard.by, ""), guard.at)
        why = _why(rule, guards, key, before, after, held, holds) if newest else None
        if why is not None:
            proven = rule.copies_all and before is not None and guards.is_created(key, before)
            shown = frozenset(rule.owned(before)) if proven else frozenset[str]()
            heals.append(CopyHeal(rule, key, newest, (record.sequence,), why=why, shown=shown))
    return heals


def _why(
    rule: CopyRule,
    guards: Guards,
    key: ItemKey,
    before: Image | None,
    after: Image | None,
    held: Guard | None,
    holds: Guard | None,
) -> Healing | None:
    """Return why a copy, by its old and its new image and their guards, is compared with its sources; or None."""
    if after is None:
        return "gone"
    healing = needs_healing(guards, rule.name, key, rule.owned(before, after), before, after)
    if healing is not None or before is None:
        return healing
    # No rule replaces a copy by that of another source: no two sources have copies with the same key.
    if held is not None and holds is not None and held.by and holds.by and held.by != holds.by:
        return "owner changed"
    # A refresh knows no version of the source, so its guard does not show that the other one is newer.
    if held is not None and holds is not None and not held.at and holds.at:
        return "unknown version"
    # An item without a source stays as long as it has other attributes: some of these were removed.
    if _is_gone(holds) and not before.keys() <= after.keys():
        return "emptied"
    # A late write, of a source that may be gone by now, may have adopted an item of the application; and a copy of all
    # attributes does not record which other attributes that item has.
    is_adopted = _is_gone(held) and not _is_gone(holds)
    return "taken over" if is_adopted and not (held is None and guards.is_left(rule.name, key, before)) else None


def _is_gone(guard: Guard | None) -> bool:
    """Whether the guard is missing, or records that the copy was removed."""
    return guard is None or guard.n == 0


def freed_by(program: Program, record: Record, old: Item | None, new: Item | None) -> list[CopyHeal]:
    """Return the heals of copies that may be created now, because an item of another kind under their key is gone."""
    heals = []
    for entity, rule in program.copies_with_match.items():
        was = old is not None and old.entity is entity
        frees = record.new is None or (new is not None and new.entity is entity)
        if record.old is not None and not was and frees and entity.at(record.key):
            heals.append(CopyHeal(rule, record.key, {}, (record.sequence,), freed=True))
    return heals
