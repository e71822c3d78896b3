"""Refreshing the copies of many sources: the algorithm of `Copier.heal` with few requests.

    1. Read the targets of all sources. A copy that shows its source as it was read is left: if the source has changed since,
       a record is on its way.
    2. Read the sources of the others again, after their guards, and write each copy if its guard is as it was read.
    3. Do the same once more for copies that were created: their source may have been deleted before they existed.

Anything else, as a guard of another source or an item of another kind, is left to `Copier.heal`, one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from projections.engine.application import ApplicationItems, purpose_of
from projections.engine.copier import Copier
from projections.engine.copies import CopyHeal, copies_of
from projections.engine.counters import Counters
from projections.engine.deadline import Deadline
from projections.engine.guards import Guards
from projections.engine.running import Run, one_by_one
from projections.engine.store import Image, ItemKey, Store, Value
from projections.errors import ConditionFailed, InvalidRequest, StoreError, Transient
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import CopyRule
from projections.language.values import differing

__all__ = ["CopyRefresher"]


class CopyRefresher:
    """Refreshes the copies of many sources, and finds copies without a source."""

    def __init__(
        self,
        program: Program,
        store: Store,
        guards: Guards,
        copier: Copier,
        counters: Counters,
        run: Run[None] = one_by_one,
    ) -> None:
        self._program = program
        self._store = store
        self._guards = guards
        self._copier = copier
        self._items = ApplicationItems(program, store, guards)
        self._counters = counters
        self._run = run

    def refresh(self, items: Iterable[Item], deadline: Deadline) -> list[tuple[CopyRule, ItemKey, StoreError]]:
        """Bring the copies of items to these items, which were read just now. Return the failures."""
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
            if not last:
                shown = self._store.get_many(list(dict.fromkeys(target for _, target, _ in created)))
                stale, created = created, []
        return failures

    def _shows(self, name: str, target: ItemKey, item: Image | None, source: ItemKey, attributes: Image) -> bool:
        """Whether an item is this copy of this source, with these attributes."""
        rule = self._program.guarded_copies[name]
        guard = self._items.guard(rule, target, item)
        if item is None or guard is None or guard.former or guard.by != encode_key(source):
            return False
        if guard.wrote != self._guards.names(rule, target, attributes):
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
        """Bring one copy to its source, which was read after the copy; or heal it, if that is not enough to decide."""
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
                return self._copier.heal(CopyHeal(rule, target, {by: ""}), deadline)
            if self._shows(name, target, item, source, attributes):
                return None
            at, wrote = guard.at if guard is not None else "", self._guards.names(rule, target, attributes)
            stamp = self._guards.stamp(rule.name, target, at, by=by, wrote=wrote)
            wanted: dict[str, Value | None] = {**attributes, self._guards.name(name): stamp}
            try:
                if item is None:
                    self._items.create(target, wanted, purpose_of(rule))
                    created.append((name, target, source))
                else:
                    owned = self._guards.owned(rule, target, item, image)
                    gone = {each: None for each in sorted(owned) if each not in attributes}
                    self._items.write(rule.into, target, {**gone, **wanted}, rule, item, purpose_of(rule))
            except ConditionFailed:
                return self._copier.heal(CopyHeal(rule, target, {by: ""}), deadline)
            self._counters.add("copies")
        except (Transient, InvalidRequest) as error:
            failures.append((rule, target, error))
        return None

    def orphans(self, items: Iterable[Item]) -> list[CopyHeal]:
        """Return the heals of items that have a copy's guard, and whose source does not have that copy now."""
        copies = []
        for item in items:
            rule = self._program.copy_rule_into.get(item.entity.name)
            guard = self._items.guard(rule, item.key, item.image) if rule is not None else None
            if (
                rule is not None
                and guard is not None
                and guard.by
                and not self._copier.is_removed(rule, item.key, item.image, guard)
            ):
                copies.append((rule, item.key, guard.by, decode_key(guard.by)))
        images = self._store.get_many(list(dict.fromkeys(key for _, _, _, key in copies)))
        found = []
        for rule, target, source, key in copies:
            image = images.get(key)
            if target not in copies_of(rule, self._program.recognise(key, image) if image is not None else None):
                found.append(CopyHeal(rule, target, {source: ""}))
        return found
