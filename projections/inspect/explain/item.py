"""One item of a live table: the sources of its derived values, and its own contributions. Writes nothing.

    read 1   the item, its ledger entry, its fences, the registry              one BatchGetItem
    read 2   the groups of the rules that write to it                          one BatchGetItem (and a query where sharded)
    read 3   what it is derived from, and what is copied from it               one BatchGetItem
    and a query for each list, extreme or claim

Each read is strongly consistent, but changes between the reads show as differences that are not drift.

The comparison is that of `verify` (`operations.verify.examine`), with the items that are read here. It does not include
whether a group matches its contributions, which requires all source items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

from projections.engine.copies import copies_of
from projections.engine.embed_lists import references_of
from projections.engine.embeds import reference_of
from projections.engine.groups import Generations, read_groups
from projections.engine.ledger_items import entry_key, fence_key
from projections.engine.registry import REGISTRY, RegistrySnapshot
from projections.engine.store import Image, ItemKey, Page, Store, Value
from projections.inspect.explain.derived import derived
from projections.inspect.explain.facts import ItemExplanation, Readings, source
from projections.language.embeds import ListEmbedRule
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import CopyRule
from projections.operations.verify.drift import LEFT_OVER
from projections.operations.verify.examine import Examiner
from projections.operations.verify.scope import COPY, ITEM, LEFT, REBUILD, SOURCE, TARGET, Scope, Subject, of_items
from projections.stores.wrapped import WrappedStore

__all__ = ["item_explanation"]


def item_explanation(program: Program, store: Store, key: ItemKey) -> ItemExplanation:
    """Read and explain an item. Raises what a store raises."""
    text = encode_key(key)
    once = _ReadOnce(store)
    fences = {
        fence_key(rule.name, text): rule.name
        for rules in program.embeds_from.values()
        for rule in rules
        if (rule.source.at(key) if isinstance(rule, ListEmbedRule) else rule.partition_of(key) is not None)
    }
    found = once.get_many([key, entry_key(text), *fences, REGISTRY])
    image = found.get(key)
    item = program.recognise(key, image) if image is not None else None
    snapshot = RegistrySnapshot.read(found[REGISTRY]) if REGISTRY in found else None
    scope = Scope(program, snapshot)
    read = Readings(program, cast(Store, once), scope, key, image, item)
    targets = [(rule.name, text) for rule in read.onto]
    if targets and not scope.offline:
        read.groups = read_groups(read.store, targets, Generations())
    if neighbours := _neighbours(read):
        read.near = once.get_many(neighbours)
    stored = found.get(entry_key(text))
    read.found = Examiner(scope, read.store).examine(_subjects(read, stored))
    versions = tuple((rule, found[at]["version"]["S"]) for at, rule in fences.items() if at in found)
    outdated = snapshot is not None and snapshot.program != program.fingerprint
    drifts = tuple(drift for finding in read.found.values() for drift in finding.drifts)
    left = tuple(drift for drift in drifts if drift.kind == LEFT_OVER)
    drifts = tuple(drift for drift in drifts if drift.kind != LEFT_OVER)
    copied = [rule.name for rule in program.copy_rule_into.values() if image is None and rule.into.at(key)]
    return ItemExplanation(
        key, image, item, derived(read), source(read, stored, versions), drifts, left, outdated, tuple(copied)
    )


def _subjects(read: Readings, entry: Image | None) -> Iterator[Subject]:
    """Yield everything that `verify` examines of an item."""
    if read.image is not None:
        yield Subject(ITEM, "", read.text)
        yield Subject(LEFT, "", read.text)
        yield from of_items(read.scope, read.key.table, [read.image])
        for rule, by in _lost(read):
            yield Subject(COPY, rule.name, read.text, (by,))
    if entry is not None and not read.scope.offline:
        yield Subject(SOURCE, "", read.text)
    for target in read.groups:
        if target[0] in read.scope.published:
            yield Subject(TARGET, *target)
        if target[0] in read.scope.grouped:
            yield Subject(REBUILD, *target)


def _lost(read: Readings) -> Iterator[tuple[CopyRule, str]]:
    """Yield the rules whose guard is on the item although it is not their copy any more, with the source in the guard."""
    for entity, rule in read.scope.copy_into.items():
        if (read.item is None or read.item.entity.name != entity) and rule.into.at(read.key):
            guard = read.scope.guards.read(rule.name, read.key, read.image)
            if guard is not None and guard.by:
                yield rule, guard.by


def _neighbours(read: Readings) -> list[ItemKey]:
    """Return the keys of the items that this one is derived from, and of its copies."""
    keys = [decode_key(by) for _, by in _lost(read)]
    if read.item is None:
        return keys
    name = read.item.entity.name
    copy = read.program.copy_rule_into.get(name)
    if copy is not None:
        keys += read.guard(copy).sources
    for rule in read.program.embeds_into.get(name, ()):
        if isinstance(rule, ListEmbedRule):
            keys += [one.key for one in references_of(rule, read.item)[0] or () if one.key is not None]
            continue
        parent = reference_of(rule, read.item)[0]
        if parent is not None:
            keys += [parent, fence_key(rule.name, encode_key(parent))]
    for own in read.program.copy_rules.get(name, ()):
        keys += copies_of(own, read.item)
    return list(dict.fromkeys(keys))


class _ReadOnce(WrappedStore):
    """A store that reads each item and each page once, so that all functions see the same state."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self._items: dict[ItemKey, Image | None] = {}
        self._pages: dict[str, Page] = {}

    def get(self, key: ItemKey, attributes: Sequence[str] | None = None) -> Image | None:
        return self.get_many([key]).get(key)

    def get_many(self, keys: Sequence[ItemKey]) -> dict[ItemKey, Image]:
        if unread := [key for key in dict.fromkeys(keys) if key not in self._items]:
            found = self._store.get_many(unread)
            self._items |= {key: found.get(key) for key in unread}
        return {key: image for key in keys if (image := self._items[key]) is not None}

    def query(self, table: str, values: Sequence[Value], **options: Any) -> Page:
        name = repr((table, values, sorted(options.items())))
        if name not in self._pages:
            self._pages[name] = self._store.query(table, values, **options)
        return self._pages[name]
