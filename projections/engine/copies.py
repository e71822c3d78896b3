"""Guarded copies: the copy of an item under a key that no other source can claim.

A copy's guard names its source and the version it shows. A copy heals from its source: a record showing that it appeared,
was deleted, lost its guard or was overwritten makes us look at the source its guard names.

Where the application has an item of another kind under the copy's key, nothing is written; the ledger notes which source
waits for the key, and the record of that item's removal creates the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from projections.engine.application import ApplicationItems, occupied, purpose_of
from projections.engine.counters import Counters
from projections.engine.deadline import Deadline
from projections.engine.guards import Guard, Guards, needs_healing
from projections.engine.ledger_items import waiting_key
from projections.engine.records import Record
from projections.engine.running import Run, one_by_one
from projections.engine.store import Delete, Image, ItemKey, Purpose, Store, Update, Value
from projections.errors import BadInput, ConditionFailed, InvalidRequest, Occupied, StoreError, Transient
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import CopyRule
from projections.language.values import differing

__all__ = ["Copier", "CopyHeal", "CopyWrite", "copies_of", "freed_by", "heals_of", "writes_of"]

_MOST_TRIES = 20


@dataclass(frozen=True, slots=True)
class CopyWrite:
    """What the newest image of a source says of its copies, and which other targets its records named.

    `known` has the copies that the source had before any of these records: as a rule they exist.
    """

    rule: CopyRule
    source: str
    version: str
    copies: Mapping[ItemKey, Image]
    others: frozenset[ItemKey]
    owned: frozenset[str]
    sequence: str
    known: frozenset[ItemKey] = frozenset()


@dataclass(frozen=True, slots=True)
class CopyHeal:
    """A copy to be compared with the sources its guard names (or named)."""

    rule: CopyRule
    target: ItemKey
    sources: Mapping[str, str]
    """By encoded key, the newest version of each that the record showed; what is healed must not look older."""
    sequence: str
    freed: bool = False
    """Whether an item of another kind made room: then the source that waits for the key is asked, too."""


@dataclass(slots=True)
class _Seen:
    """One source item over a batch, in the eyes of one rule."""

    first: str
    version: str = ""
    newest: Item | None = None
    known: set[ItemKey] | None = None
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
            if about.known is None:
                about.known = set(before)
            about.targets |= before.keys() | after.keys()
            about.images += [item.image for item in (old, new) if item is not None]
    writes = []
    for (name, key), about in seen.items():
        copier = program.guarded_copies[name]
        copies = copies_of(copier, about.newest)
        others = frozenset(about.targets - copies.keys())
        owned = copier.owned(*about.images)
        had = frozenset(about.known or ())
        writes.append(CopyWrite(copier, encode_key(key), about.version, copies, others, owned, about.first, had))
    return writes


def heals_of(
    program: Program, guards: Guards, key: ItemKey, old: Item | None, new: Item | None, sequence: str
) -> list[CopyHeal]:
    """The healing that a record of a copy asks for: of what was there, and of what is."""
    names = dict.fromkeys(item.entity.name for item in (old, new) if item is not None)
    rules = [rule for name in names if (rule := program.copy_rule_into.get(name)) is not None]
    return [heal for rule in rules for heal in _heals_of(rule, guards, key, old, new, sequence)]


def _heals_of(
    rule: CopyRule, guards: Guards, key: ItemKey, old: Item | None, new: Item | None, sequence: str
) -> list[CopyHeal]:
    before = old.image if old is not None and old.entity is rule.into else None
    after = new.image if new is not None and new.entity is rule.into else None
    held, holds = guards.read(rule.name, key, before), guards.read(rule.name, key, after)
    newest: dict[str, str] = {}
    for guard in (held, holds):
        if guard is not None and guard.by:
            newest[guard.by] = max(newest.get(guard.by, ""), guard.at)
    # No write of ours ever puts another source's copy in a copy's place: no two sources can claim one target.
    owner_changed = len(newest) > 1
    # What took over an item the application put under its key may be a late write of a source that is gone by now, and a
    # copy of all attributes knows nothing of what else that item holds.
    took_over = before is not None and _is_gone(held) and not _is_gone(holds)
    # Without a source, an item stays for what else is on it: some of that was removed.
    emptied = before is not None and after is not None and _is_gone(holds) and not before.keys() <= after.keys()
    heal = after is None or owner_changed or took_over or emptied
    if not heal and not needs_healing(guards, rule.name, key, rule.owned(before, after), before, after):
        return []
    return [CopyHeal(rule, key, newest, sequence)] if newest else []


def _is_gone(guard: Guard | None) -> bool:
    """Whether a guard says that there is no copy."""
    return guard is None or guard.n == 0


def freed_by(program: Program, record: Record, old: Item | None, new: Item | None) -> list[CopyHeal]:
    """The copies that may be created now because an item of another kind under their key is gone."""
    found = []
    for entity, rule in program.copies_with_match.items():
        was = old is not None and old.entity is entity
        frees = record.new is None or (new is not None and new.entity is entity)
        if record.old is not None and not was and frees and entity.at(record.key):
            found.append(CopyHeal(rule, record.key, {}, record.sequence, freed=True))
    return found


class Copier:
    """Applies copies to a store."""

    def __init__(
        self,
        program: Program,
        store: Store,
        guards: Guards,
        counters: Counters | None = None,
        run: Run[None] = one_by_one,
    ) -> None:
        self._program = program
        self._store = store
        self._guards = guards
        self._items = ApplicationItems(program, store, guards)
        self._counters = counters or Counters()
        self._run = run

    def write(self, copy: CopyWrite, deadline: Deadline) -> None:
        """Writes what a source's newest image says. Raises InvalidRequest when everything that can be written is written."""
        refused: InvalidRequest | None = None
        for target, attributes in copy.copies.items():
            try:
                self._write(copy, target, attributes, deadline)
            except Occupied as error:
                refused, refused.target = error, encode_key(target)
            except InvalidRequest as error:  # too large, say: then there is no copy, rather than an old one
                self._retract(copy, target, deadline)
                refused, refused.target = error, encode_key(target)
        for target in sorted(copy.others):
            self._retract(copy, target, deadline)
        if refused is not None:
            raise refused

    def _write(self, copy: CopyWrite, target: ItemKey, attributes: Image, deadline: Deadline) -> None:
        """One copy: created where the source had none before, else updated if the rule created it and its guard is older.

        What else may be there is told by the item that comes back with the failed condition.
        """
        rule = copy.rule
        stamp = self._guards.stamp(target, copy.version, by=copy.source)
        gone = {name: None for name in sorted(copy.owned) if name not in attributes}
        wanted: dict[str, Value | None] = {**gone, **attributes, self._guards.name(rule.name): stamp}
        item: Image | None = None
        try:
            if target in copy.known:
                condition = self._guards.older_or_foreign(rule.name, target, copy.source, copy.version)
                update = self._items.change(rule.into, target, wanted, condition, purpose_of(rule))
                if update is None:
                    item = self._store.get(target)
                else:
                    self._store.write(update)
                    return self._counters.add("copies")
        except ConditionFailed as failed:
            item = failed.item
        for _ in range(_MOST_TRIES):
            deadline.check()
            try:
                return self._bring(copy, target, wanted, item, deadline)
            except ConditionFailed as failed:
                item = failed.item
        raise Transient(f"{rule.name}: a copy kept changing while it was written")

    def _bring(
        self,
        copy: CopyWrite,
        target: ItemKey,
        wanted: Mapping[str, Value | None],
        item: Image | None,
        deadline: Deadline,
    ) -> None:
        """Brings an item, as it was read, to a version of its source. Raises ConditionFailed, Occupied."""
        rule = copy.rule
        if item is None:
            self._items.create(target, wanted, rule)
            return self._counters.add("copies")
        if not self._items.may_write(rule, rule.into, target, item):
            self._wait(rule, target, copy.source)
        guard = self._items.guard(rule, target, item)
        if guard is not None and guard.by == copy.source and guard.at >= copy.version:
            if guard.at > copy.version:
                # This change is late, or the guard is from nowhere (an edited one) and would lock the truth out.
                self.heal(CopyHeal(rule, target, {copy.source: copy.version}, copy.sequence), deadline)
            return None
        self._items.write(rule.into, target, wanted, rule, item)
        return self._counters.add("copies")

    def _retract(self, copy: CopyWrite, target: ItemKey, deadline: Deadline) -> None:
        """The source makes this copy no more."""
        rule = copy.rule
        for _ in range(_MOST_TRIES):
            deadline.check()
            item = self._store.get(target)
            guard = self._items.guard(rule, target, item)
            if item is None or guard is None or guard.by != copy.source:
                return None
            if guard.at >= copy.version or self._is_removed(rule, item, guard):
                if guard.at > copy.version:
                    self.heal(CopyHeal(rule, target, {copy.source: copy.version}, copy.sequence), deadline)
                return None
            try:
                self._remove(rule, target, item, guard, copy.owned)
            except ConditionFailed:
                continue
            return self._counters.add("copies")
        raise Transient(f"{rule.name}: a copy kept changing while it was removed")

    def _is_left_over(self, rule: CopyRule, target: ItemKey, item: Image, guard: Guard | None) -> bool:
        """Whether there is anything to be removed from an item that no source makes. One without a guard is the
        application's, unless the rule created it and nothing else is on it.
        """
        if guard is not None:
            return not self._is_removed(rule, item, guard)
        created = self._items.is_of(rule.into, target, item) and self._items.created(target, item)
        return created and not self._items.foreign(rule.into, item)

    def _remove(self, rule: CopyRule, target: ItemKey, item: Image, guard: Guard | None, owned: Iterable[str]) -> None:
        """Deletes a copy that the rule created; from any other item, removes what the rule set. Raises ConditionFailed.

        An item that the rule created and that has other attributes keeps a guard with `n` = 0: they may be those of another
        version of the rule, whose retirement has to find them.
        """
        name = self._guards.name(rule.name)
        if not self._items.may_write(rule, rule.into, target, item):
            return  # it has left its entity: the record of that tells what was the copy's
        if self._items.created(target, item) and not self._items.foreign(rule.into, item):
            self._items.delete(rule.into, target, item, rules=(rule.name,))
        elif guard is not None:
            keep = {*rule.into.constants, *rule.into.schema.key_attributes}
            names = [each for each in sorted(owned) if each in item and each not in keep]
            created = self._items.created(target, item)
            stamp = self._guards.stamp(target, guard.at, by=guard.by, n=0) if created else None
            self._items.write(rule.into, target, {**dict.fromkeys(names), name: stamp}, rule, item)

    def _is_removed(self, rule: CopyRule, item: Image, guard: Guard) -> bool:
        """Whether everything that the rule set is removed already, and the item stays for what else is on it."""
        return guard.n == 0 and bool(self._items.foreign(rule.into, item)) and not self._set_on(rule, item)

    def _set_on(self, rule: CopyRule, item: Image) -> bool:
        return any(name in item for name in rule.owned() - rule.into.constants.keys())

    def _wait(self, rule: CopyRule, target: ItemKey, source: str) -> None:
        """Notes that a source waits for a key. Raises Occupied; ConditionFailed if the key is free by now.

        The note is written before the item is read again: whoever removes it later finds the note.
        """
        text = encode_key(target)
        why = Purpose("wait", (rule.name,), text)
        self._store.write(Update(waiting_key(rule.name, text), set={"source": {"S": source}}, purpose=why))
        item = self._store.get(target)
        if item is None or self._items.may_write(rule, rule.into, target, item):
            raise ConditionFailed(item)
        raise occupied(rule.into)

    def heal(self, heal: CopyHeal, deadline: Deadline) -> None:
        """Makes a copy what its source says now: the guard is read first, then the source, so that it is at least as new.

        After creating a copy, the source is read again: had it been removed meanwhile, that removal found no copy to delete.
        """
        rule, name, target = heal.rule, self._guards.name(heal.rule.name), heal.target
        waiting = self._waiting(heal) if heal.freed else ""
        if not waiting and not heal.sources:
            return None
        healed = False
        for _ in range(_MOST_TRIES):
            deadline.check()
            item = self._store.get(target)
            guard = self._items.guard(rule, target, item)
            by = guard.by if guard is not None else ""
            found = self._wanted(rule, target, {*heal.sources, waiting, by} - {""})
            try:
                if found is None:
                    if item is not None and self._is_left_over(rule, target, item, guard):
                        self._remove(rule, target, item, guard, self._guards.owned(rule, target, item))
                        self._counters.add("healed")
                    return self._waits_no_more(heal, waiting)
                source, image, wanted = found
                if item is None:
                    stamp = self._guards.stamp(target, heal.sources.get(source, ""), by=source)
                    self._items.create(target, {**wanted, name: stamp}, rule)
                    self._counters.add("healed")
                    healed = True
                    continue  # round again: the guard as just written, and the source as it is now
                if not self._items.may_write(rule, rule.into, target, item):
                    self._wait(rule, target, source)
                at = max(heal.sources.get(source, ""), guard.at if guard is not None and by == source else "")
                owned = self._guards.owned(rule, target, item, image)
                stamp = self._guards.stamp(target, at, by=source)
                desired: dict[str, Value | None] = {**dict.fromkeys(sorted(owned)), **wanted, name: stamp}
                if differing(item, desired):
                    self._items.write(rule.into, target, desired, rule, item)
                    self._counters.add("healed", 0 if healed else 1)
                return self._waits_no_more(heal, waiting)
            except ConditionFailed:
                continue
        raise Transient(f"{rule.name}: the guard of a copy kept changing while it was healed")

    def _waiting(self, heal: CopyHeal) -> str:
        """The source that waits for the key of a copy; empty if none does."""
        note = self._store.get(waiting_key(heal.rule.name, encode_key(heal.target)))
        return note["source"]["S"] if note is not None else ""

    def _waits_no_more(self, heal: CopyHeal, waiting: str) -> None:
        if waiting:
            text = encode_key(heal.target)
            why = Purpose("wait", (heal.rule.name,), text)
            self._store.write(Delete(waiting_key(heal.rule.name, text), purpose=why))

    def refresh(self, items: Iterable[Item], deadline: Deadline) -> list[tuple[CopyRule, ItemKey, StoreError]]:
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
            if not self._shows(name, target, shown.get(target), source, attributes)
        ]
        failures: list[tuple[CopyRule, ItemKey, StoreError]] = []
        created: list[tuple[str, ItemKey, ItemKey]] = []
        for number in range(2):
            if not stale:
                return failures
            deadline.check()
            sources = self._store.get_many(list(dict.fromkeys(source for _, _, source in stale)))
            last = number == 1
            self._run([partial(self._renew, *one, shown, sources, deadline, failures, created, last) for one in stale])
            if not last:  # of what was created, the source once more
                shown = self._store.get_many(list(dict.fromkeys(target for _, target, _ in created)))
                stale, created = created, []
        return failures

    def _shows(self, name: str, target: ItemKey, item: Image | None, source: ItemKey, attributes: Image) -> bool:
        """Whether an item is this copy of this source."""
        rule = self._program.guarded_copies[name]
        guard = self._items.guard(rule, target, item)
        if item is None or guard is None or guard.by != encode_key(source):
            return False
        owned = self._guards.owned(rule, target, item)
        desired: dict[str, Value | None] = {**dict.fromkeys(owned), **attributes}
        return not differing(item, desired)

    def _renew(
        self,
        name: str,
        target: ItemKey,
        source: ItemKey,
        shown: Mapping[ItemKey, Image],
        sources: Mapping[ItemKey, Image],
        deadline: Deadline,
        failures: list[tuple[CopyRule, ItemKey, StoreError]],
        created: list[tuple[str, ItemKey, ItemKey]],
        last: bool,
    ) -> None:
        """One copy, from its target and its source as they were read in this order; the slow way if that is not enough."""
        rule, item, by = self._program.guarded_copies[name], shown.get(target), encode_key(source)
        image = sources.get(source)
        found = self._program.recognise(source, image) if image is not None else None
        attributes = copies_of(rule, found).get(target)
        guard = self._items.guard(rule, target, item)
        try:
            if (
                attributes is None
                or (guard is not None and guard.by != by)
                or (item is None and last)
                or (item is not None and not self._items.is_of(rule.into, target, item))
            ):
                return self.heal(CopyHeal(rule, target, {by: ""}, ""), deadline)
            if self._shows(name, target, item, source, attributes):
                return None
            stamp = self._guards.stamp(target, guard.at if guard is not None else "", by=by)
            wanted: dict[str, Value | None] = {**attributes, self._guards.name(name): stamp}
            try:
                if item is None:
                    self._items.create(target, wanted, rule)
                    created.append((name, target, source))
                else:
                    owned = self._guards.owned(rule, target, item, image)
                    gone = {each: None for each in sorted(owned) if each not in attributes}
                    self._items.write(rule.into, target, {**gone, **wanted}, rule, item)
            except ConditionFailed:
                return self.heal(CopyHeal(rule, target, {by: ""}, ""), deadline)
            self._counters.add("copies")
        except (Transient, InvalidRequest) as error:
            failures.append((rule, target, error))
        return None

    def orphans(self, items: Iterable[Item]) -> list[CopyHeal]:
        """Of items that bear a copy's guard, those whose source does not make that copy now: to be healed."""
        suspects = []
        for item in items:
            rule = self._program.copy_rule_into.get(item.entity.name)
            guard = self._items.guard(rule, item.key, item.image) if rule is not None else None
            if rule is not None and guard is not None and guard.by and not self._is_removed(rule, item.image, guard):
                suspects.append((rule, item.key, guard.by, decode_key(guard.by)))
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
