"""Writing and healing guarded copies, each with one conditional write.

A write from a record is conditional on the guard: absent, of another source, or older than the record's version. So
records may be delivered late, twice and at once.

A heal reads the guard first and then the source, and writes if the guard is as it was read. What it writes is at least as
new as the guard. With the source read first, a write in between would be replaced by an older image. After a heal has
created a copy, it reads the source again: if the source was deleted meanwhile, its record found no copy to delete.

If the application has an item of another kind under the copy's key, nothing is written. The ledger notes which source waits
for the key, and the record of that item's removal leads to a heal. The note is written before the item is read again:
otherwise the item could be removed between the two, and nothing would create the copy.

`CopyRefresher` heals the copies of many sources with few requests:

    1. Read the targets of all sources. A copy that shows its source as it was read is left: if the source has changed since,
       a record is on its way.
    2. Read the sources of the others again, after their guards, and write each copy if its guard is as it was read.
    3. Do the same once more for copies that were created: their source may have been deleted before they existed.

Anything else, as a guard of another source or an item of another kind, is left to `Copier.heal`, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from projections.engine.application import ApplicationItems, occupied_error, purpose_of
from projections.engine.copies import CopyHeal, CopyWrite, copies_of
from projections.engine.guards import Guard, Guards
from projections.engine.ledger_items import waiting_key
from projections.engine.running import Counters, Deadline, Run, one_by_one, tries
from projections.engine.store import Delete, Image, ItemKey, Purpose, Records, Store, Update, Value, Values
from projections.errors import ConditionFailed, InvalidRequest, Occupied, StoreError, Transient
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import CopyRule, public_name
from projections.language.values import differing


class Copier:
    """Writes guarded copies. `pace` is called before each write of a copy that was read, and may wait."""

    def __init__(
        self,
        program: Program,
        store: Store,
        guards: Guards,
        counters: Counters | None = None,
        pace: Callable[[Image], None] = lambda copy: None,
    ) -> None:
        self._program = program
        self._store = store
        self._guards = guards
        self._items = ApplicationItems(program, store, guards)
        self._counters = counters or Counters()
        self._pace = pace

    def write_left(self, name: str, source: str, version: str, deadline: Deadline) -> None:
        """Write the copies that a record of this version left, as their source is now; without a version, heal them.

        What the source has lost since is left to the records of that, and a rule that has changed since to its backfill.
        """
        item = self._program.recognise(decode_key(source), self._store.get(decode_key(source)))
        if item is None:
            return
        for rule in self._program.copy_rules.get(item.entity.name, ()):
            copies = copies_of(rule, item) if rule.name == name else {}
            if version:
                owned = rule.owned(item.image)
                self.write(CopyWrite(rule, source, version, copies, frozenset(), owned, (), reads=True), deadline)
            for target in () if version else copies:
                self.heal(CopyHeal(rule, target, {source: ""}), deadline)

    def write(self, copy: CopyWrite, deadline: Deadline) -> None:
        """Bring all copies of a source to its newest image. Raise InvalidRequest after everything else is written."""
        refused: InvalidRequest | None = None
        for target, attributes in copy.copies.items():
            try:
                self._write(copy, target, attributes, deadline)
            except Occupied as error:
                refused, refused.target = error, encode_key(target)
            except InvalidRequest as error:  # for example too large: no copy is better than an old one
                self._retract(copy, target, deadline)
                refused, refused.target = error, encode_key(target)
        for target in sorted(copy.others):
            self._retract(copy, target, deadline)
        if refused is not None:
            raise refused

    def _write(self, copy: CopyWrite, target: ItemKey, attributes: Image, deadline: Deadline) -> None:
        """Bring one copy to a version of its source: by an update without a read if the copy should exist.

        If its condition fails, the store returns the item, and the next attempt decides by it.
        """
        rule, why = copy.rule, purpose_of(copy.rule, copy.sequences)
        gone = {name: None for name in sorted(copy.owned) if name not in attributes}
        wanted = {**gone, **_add_guard(self._guards, rule, target, copy.version, copy.source, attributes)}
        reads = (
            copy.reads or public_name(rule.name) in self._guards.replaced
        )  # which may have written what this version does not
        item: Image | None = self._store.get(target) if reads else None
        try:
            if target in copy.known and not reads:
                before = self._guards.names(rule, target, copy.known[target])
                condition = self._guards.older_or_foreign(rule.name, target, copy.source, copy.version, before)
                update = self._items.change(rule.into, target, wanted, condition, why)
                if update is None:
                    item = self._store.get(target)
                else:
                    self._store.write(update)
                    return self._counters.add("copies")
        except ConditionFailed as failed:
            item = failed.item
        for _ in tries(f"{rule.name}: a copy kept changing while it was written", deadline):
            try:
                return self._write_read(copy, target, wanted, item, deadline)
            except ConditionFailed as failed:
                item = failed.item
        return None

    def _write_read(
        self, copy: CopyWrite, target: ItemKey, wanted: Values, item: Image | None, deadline: Deadline
    ) -> None:
        """Bring an item that was read to a version of its source. Raise ConditionFailed, Occupied."""
        rule, why = copy.rule, purpose_of(copy.rule, copy.sequences)
        if item is None:
            self._pace(copy.copies[target])
            self._items.create(target, wanted, why)
            return self._counters.add("copies")
        self._require_kind(why, rule, target, item, copy.source)
        guard = self._items.guard(rule, target, item)
        if guard is not None and guard.by == copy.source and guard.at >= copy.version:
            return self._heal_newer(copy, target, guard, deadline)
        owned = self._guards.owned_attributes(rule, target, item)
        gone = {name: None for name in sorted(owned) if name not in wanted}
        self._pace(copy.copies[target])
        self._items.write(rule.into, target, {**gone, **wanted}, rule, item, why)
        return self._counters.add("copies")

    def _retract(self, copy: CopyWrite, target: ItemKey, deadline: Deadline) -> None:
        """Remove a copy that its source does not have any more."""
        rule = copy.rule
        for _ in tries(f"{rule.name}: a copy kept changing while it was removed", deadline):
            item = self._store.get(target)
            guard = self._items.guard(rule, target, item)
            if item is None or guard is None or guard.by != copy.source:
                break
            owned = copy.owned.union(self._guards.owned_attributes(rule, target, item))
            if guard.at >= copy.version or self.is_removed(rule, target, item, guard, owned):
                return self._heal_newer(copy, target, guard, deadline)
            try:
                self._remove(copy.sequences, rule, target, item, guard, owned)
            except ConditionFailed:
                continue
            return self._counters.add("copies")
        return None

    def _heal_newer(self, copy: CopyWrite, target: ItemKey, guard: Guard, deadline: Deadline) -> None:
        """Heal a copy with a newer guard: the record is late, or the guard was edited, which would lock the copy."""
        if guard.at > copy.version:
            self.heal(CopyHeal(copy.rule, target, {copy.source: copy.version}, copy.sequences), deadline)

    # Healing

    def heal(self, heal: CopyHeal, deadline: Deadline) -> None:
        """Bring a copy to the present image of its source. Raise Transient, Occupied."""
        rule, target = heal.rule, heal.target
        waiting = self._waiting(heal) if heal.freed else ""
        if not waiting and not heal.sources:
            return
        created = False
        for _ in tries(f"{rule.name}: the guard of a copy kept changing while it was healed", deadline):
            item = self._store.get(target)
            guard = self._items.guard(rule, target, item)
            # the sources of the record, the one that waits, and that of the guard
            present = self._source(rule, target, {*heal.sources, waiting, guard.by if guard is not None else ""} - {""})
            try:
                if present is None:
                    healed = item is not None and self._remove_left_over(heal, item, guard)
                elif item is None:
                    source, _, wanted = present
                    stamped = _add_guard(self._guards, rule, target, heal.sources.get(source, ""), source, wanted)
                    self._items.create(target, stamped, purpose_of(rule, heal.sequences))
                    self._counters.add("healed")
                    created = True
                    continue  # the source may have been deleted since it was read
                else:
                    healed = self._update(heal, item, guard, *present) and not created
            except ConditionFailed:
                continue
            self._counters.add("healed", int(healed))
            self._forget_waiting(heal, waiting)
            return

    def _source(self, rule: CopyRule, target: ItemKey, sources: Iterable[str]) -> tuple[str, Image, Image] | None:
        """The source that has this copy now: its key, its image, the copy."""
        for source in sorted(sources):
            key = decode_key(source)
            item = self._program.recognise(key, self._store.get(key))
            wanted = copies_of(rule, item).get(target)
            if item is not None and wanted is not None:
                return source, item.image, wanted
        return None

    def _update(
        self, heal: CopyHeal, item: Image, guard: Guard | None, source: str, image: Image, wanted: Image
    ) -> bool:
        """Bring an item that was read to the image of its source. Return whether that changed it."""
        rule, target, why = heal.rule, heal.target, purpose_of(heal.rule, heal.sequences)
        self._require_kind(why, rule, target, item, source)
        at = max(heal.sources.get(source, ""), guard.at if guard is not None and guard.by == source else "")
        owned = dict.fromkeys(sorted(self._guards.owned_attributes(rule, target, item, image)))
        desired = {**owned, **_add_guard(self._guards, rule, target, at, source, wanted)}
        if not differing(item, desired):
            return False
        self._items.write(rule.into, target, desired, rule, item, why)
        return True

    # Removing

    def _remove_left_over(self, heal: CopyHeal, item: Image, guard: Guard | None) -> bool:
        """Remove what the rule set on an item without a source. Return whether there was anything.

        An item without a guard is the application's, unless the rule created it and nothing else is on it.
        """
        rule, target = heal.rule, heal.target
        shown = heal.shown if self._guards.is_marked(target, item) else ()
        if guard is not None:
            left_over = not self.is_removed(rule, target, item, guard)
        else:
            is_copy = self._items.is_of(rule.into, target, item)
            left_over = is_copy and self._items.may_delete(rule.into, target, item, shown)
        if left_over:
            owned = {*self._guards.owned_attributes(rule, target, item), *shown}
            self._remove(heal.sequences, rule, target, item, guard, owned)
        return left_over

    def _remove(
        self, records: Records, rule: CopyRule, target: ItemKey, item: Image, guard: Guard | None, owned: Iterable[str]
    ) -> None:
        """Because of these records, delete a copy that the rule created; from any other item, remove what the rule set.

        Raise ConditionFailed.

        An item that the rule created and that has other attributes keeps a guard with `n` = 0: another version of the rule
        may have set them, whose retirement finds them by the guard.
        """
        name, why = self._guards.name(rule.name), purpose_of(rule, records)
        if not self._items.may_write(rule, rule.into, target, item):
            return  # it has left its entity: its record shows what the rule set
        if self._items.may_delete(rule.into, target, item, frozenset(owned)):
            self._items.delete(rule.into, target, item, why, rules=(rule.name,))
        elif guard is not None:
            keep = {*rule.into.constants, *rule.into.schema.key_attributes}
            names = [each for each in sorted(owned) if each in item and each not in keep]
            stamp: Value | None = None
            if self._guards.is_marked(target, item):
                wrote = self._guards.names(rule, target, ())
                stamp = self._guards.stamp(rule.name, target, guard.at, by=guard.by, n=0, wrote=wrote)
            self._items.write(rule.into, target, {**dict.fromkeys(names), name: stamp}, rule, item, why)

    def is_removed(self, rule: CopyRule, key: ItemKey, item: Image, guard: Guard, known: Collection[str] = ()) -> bool:
        """Whether nothing that the rule set is left on an item, which stays because it has other attributes."""
        if guard.n != 0 or not self._items.foreign(rule.into, key, item, known):
            return False
        return item.keys().isdisjoint({*rule.owned(), *known} - rule.into.constants.keys())

    # Waiting for a key

    def _require_kind(self, why: Purpose, rule: CopyRule, target: ItemKey, item: Image, source: str) -> None:
        """Raise Occupied if an item of another kind has the key, after noting that a source waits for it.

        Raise ConditionFailed if the key is free by now.
        """
        if self._items.may_write(rule, rule.into, target, item):
            return
        self._note_waiting(why, rule, target, source)
        now = self._store.get(target)
        if now is None or self._items.may_write(rule, rule.into, target, now):
            raise ConditionFailed(now)
        raise occupied_error(rule.into)

    def _note_waiting(self, why: Purpose, rule: CopyRule, target: ItemKey, source: str) -> None:
        text = encode_key(target)
        why = Purpose("wait", (rule.name,), text, why.records)
        self._store.write(Update(waiting_key(rule.name, text), set={"source": {"S": source}}, purpose=why))

    def _waiting(self, heal: CopyHeal) -> str:
        """The source that waits for the key of a copy, or the empty text."""
        note = self._store.get(waiting_key(heal.rule.name, encode_key(heal.target)))
        return note["source"]["S"] if note is not None else ""

    def _forget_waiting(self, heal: CopyHeal, waiting: str) -> None:
        if waiting:
            text = encode_key(heal.target)
            why = Purpose("wait", (heal.rule.name,), text, heal.sequences)
            self._store.write(Delete(waiting_key(heal.rule.name, text), purpose=why))


def _add_guard(guards: Guards, rule: CopyRule, target: ItemKey, at: str, by: str, attributes: Image) -> Values:
    """Return the attributes of a copy with its guard: of this version of the source `by`."""
    stamp = guards.stamp(rule.name, target, at, by=by, wrote=guards.names(rule, target, attributes))
    return {**attributes, guards.name(rule.name): stamp}


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
        targets = self._store.get_many(list(dict.fromkeys(target for _, target in wanted)))
        stale = [
            (name, target, source)
            for (name, target), (source, attributes) in wanted.items()
            if not self._shows(name, target, targets.get(target), source, attributes)
        ]
        failures: list[tuple[CopyRule, ItemKey, StoreError]] = []
        created: list[tuple[str, ItemKey, ItemKey]] = []
        for last in (False, True):
            if not stale:
                return failures
            deadline.check()
            sources = self._store.get_many(list(dict.fromkeys(source for _, _, source in stale)))
            work = [partial(self._renew, *copy, targets, sources, deadline, failures, created, last) for copy in stale]
            self._run(work)
            if not last:
                targets = self._store.get_many(list(dict.fromkeys(target for _, target, _ in created)))
                stale, created = created, []
        return failures

    def _shows(self, name: str, target: ItemKey, item: Image | None, source: ItemKey, attributes: Image) -> bool:
        """Whether an item is this copy of this source, with these attributes."""
        rule = self._program.guarded_copies[name]
        guard = self._items.guard(rule, target, item)
        if item is None or guard is None or guard.former or guard.by != encode_key(source):
            return False
        if guard.promotion != self._guards.promotion(name):
            return False
        if guard.wrote != self._guards.names(rule, target, attributes):
            return False
        owned = self._guards.owned_attributes(rule, target, item)
        desired: dict[str, Value | None] = {**dict.fromkeys(owned), **attributes}
        return not differing(item, desired)

    def _renew(
        self,
        name: str,
        target: ItemKey,
        source: ItemKey,
        targets: Mapping[ItemKey, Image],
        sources: Mapping[ItemKey, Image],
        deadline: Deadline,
        failures: list[tuple[CopyRule, ItemKey, StoreError]],
        created: list[tuple[str, ItemKey, ItemKey]],
        last: bool,
    ) -> None:
        """Bring one copy to its source, which was read after the copy; or heal it, if that is not enough to decide."""
        rule, item, by = self._program.guarded_copies[name], targets.get(target), encode_key(source)
        image = sources.get(source)
        attributes = copies_of(rule, self._program.recognise(source, image)).get(target)
        guard = self._items.guard(rule, target, item)
        try:
            unclear = (guard is not None and guard.by != by) or (item is None and last)
            if attributes is None or unclear or (item is not None and not self._items.is_of(rule.into, target, item)):
                return self._copier.heal(CopyHeal(rule, target, {by: ""}), deadline)
            if self._shows(name, target, item, source, attributes):
                return None
            wanted = _add_guard(self._guards, rule, target, guard.at if guard is not None else "", by, attributes)
            try:
                if item is None:
                    self._items.create(target, wanted, purpose_of(rule))
                    created.append((name, target, source))
                else:
                    owned = self._guards.owned_attributes(rule, target, item, image)
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
            if rule is None or guard is None or not guard.by:
                continue
            if not self._copier.is_removed(rule, item.key, item.image, guard):
                copies.append((rule, item.key, guard.by, decode_key(guard.by)))
        images = self._store.get_many(list(dict.fromkeys(key for _, _, _, key in copies)))
        heals = []
        for rule, target, source, key in copies:
            if target not in copies_of(rule, self._program.recognise(key, images.get(key))):
                heals.append(CopyHeal(rule, target, {source: ""}))
        return heals
