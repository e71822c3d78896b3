"""Refreshing: bringing everything that depends on items up to the items as they are now, without their records.

Backfill, repair and redrive consist of refreshes. An item can be a source in the ledger, a source of copies, a parent, a
child, a target, and have index attributes; each role has its own protocol:

- entries of sources: `engine.entry_refresh`
- copies: `CopyRefresher`; copies without a source, and copies of items that are gone: `Copier.heal`
- children: `Embedder.refresh`; children of parents that are gone: a push with a version of its own, `Embedder.renew`
- targets: `Publisher.heal`; values on items that left their entity: `engine.releases`

All of them read guards or entries before the items that these depend on. Work on one item that fails does not stop the
others (`engine.rejections`).
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from projections.engine.application import ApplicationItems
from projections.engine.copier import Copier, CopyRefresher
from projections.engine.copies import CopyHeal, copies_of
from projections.engine.embeds import Embedder, Push
from projections.engine.entry_refresh import Discarded, EntryRefresher
from projections.engine.guards import Guards
from projections.engine.indexes import index_write, write_index
from projections.engine.ledger_items import Target
from projections.engine.plan import put_whole, release_of
from projections.engine.records import Record
from projections.engine.registry import RegistrySnapshot
from projections.engine.rejections import Failures, rejected_by
from projections.engine.releases import Releaser
from projections.engine.running import Counters, Deadline, Run, one_by_one
from projections.engine.store import Image, ItemKey, Store
from projections.engine.value_counters import ValueCounters
from projections.language.embeds import EmbedRule
from projections.language.entity import Item
from projections.language.keys import encode_key
from projections.language.program import Program


class Refresher:
    """Refreshes items, many at a time, and notes what fails.

    `snapshot` is the registry: which rules publish now, and the id of the ledger. `failed` has reasons by encoded key of
    what can be repeated, `rejected` what no repetition would change. `pace` is called with the number of writes before
    each few are made, to children and, where it is a worker that refreshes entries, to the ledger (`commit_pace`).
    Methods raise Misconfigured.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        snapshot: RegistrySnapshot,
        *,
        values: ValueCounters | None = None,
        run: Run[Any] = one_by_one,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
        pace: Callable[[int], None] = lambda writes: None,
        counters: Counters | None = None,
        commit_pace: Callable[[int], None] | None = None,
    ) -> None:
        self._program = program
        self._store = store
        self._run = run
        self.guards = guards = Guards(program, snapshot.identity, snapshot.promotions, snapshot.replaced)
        self.counters = counters = counters or Counters()
        self._failures = Failures()
        self.failed = self._failures.failed
        self.rejected = self._failures.rejected
        self._items = ApplicationItems(program, store, guards)
        self._releaser = Releaser(program, store, self._items)
        self._copier = Copier(program, store, guards, counters)
        self._copies = CopyRefresher(program, store, guards, self._copier, counters, run)
        self.embedder = Embedder(program, store, guards, pace=pace, counters=counters, run=run)
        parts = program, store, snapshot, guards, values or ValueCounters(), self._failures, counters
        entries = EntryRefresher(*parts, run=run, clock=clock, chance=chance, pace=commit_pace)
        self.sources, self.publish = entries.refresh, entries.publish

    def refresh_scanned(self, images: Mapping[ItemKey, Image], deadline: Deadline) -> None:
        """Refresh items as a scan of an application's table returned them just now, in every role but that of a target.

        Commits are not published here, except where something was retracted: see `targets`.
        """
        items = self._recognise(images)
        self.sources(images, deadline)
        self._refresh_derived(items, deadline)
        self._failures.isolate(items, partial(self._orphans, deadline), _key_of)

    def _orphans(self, deadline: Deadline, items: Sequence[Item]) -> None:
        heals = self._failures.attempt("copies", deadline, partial(self._copies.orphans, items))
        self._heal_copies(heals or [], deadline)

    def keys(
        self,
        keys: Iterable[ItemKey],
        deadline: Deadline,
        known: Mapping[ItemKey, Sequence[Image]] | None = None,
        removed: Collection[ItemKey] = (),
        discarded: Discarded | None = None,
    ) -> list[Push]:
        """Refresh items by their keys, in every role that they have or had, and publish.

        `known` has images that the items had: they lead to the copies of a source that is gone, and to the source of a copy
        that is gone. `removed` has items that were deleted and did not expire, as a record shows. `discarded` has records
        that Lambda discarded: rules that keep what has expired process the expiries in them once. Return the pushes to make;
        their fences are not raised yet.
        """
        wanted = list(dict.fromkeys(keys))
        self.sources(dict.fromkeys(wanted), deadline, publish=True, removed=removed, discarded=discarded)
        images = self._failures.attempt("items", deadline, lambda: self._store.get_many(wanted)) or {}
        items = self._recognise(images)
        self._refresh_derived(items, deadline, renew=True)
        heals = [heal for item in items for heal in self._as_copy(item)]
        for key, olds in (known or {}).items():
            for old in olds:
                heals += self._copies_of_old(key, self._program.recognise(key, old))
        self._release(images, known or {}, deadline)
        distinct = {(heal.rule.name, heal.target, *heal.sources): heal for heal in heals}
        self._heal_copies(distinct.values(), deadline)
        self.targets(wanted, deadline, {item.key: item for item in items})
        pushes: list[Push] = []
        for key in wanted:
            parent = encode_key(key)
            for entity in self._program.entities_at(key):  # also if the item is gone or of another kind now
                for rule in self._program.embeds_from.get(entity.name, ()):
                    pushes += self._renew_children(rule, parent, deadline)
        return pushes

    def _release(
        self, images: Mapping[ItemKey, Image], known: Mapping[ItemKey, Sequence[Image]], deadline: Deadline
    ) -> None:
        """Remove from items of another kind than in `known` what rules had set on them."""

        def release(part: Sequence[tuple[ItemKey, Image]]) -> None:
            for key, old in part:
                if any(put_whole(self.guards, key, image, images[key]) for image in known[key]):
                    continue
                former, now = self._program.recognise(key, old), self._program.recognise(key, images[key])
                leaving = release_of(self._program, self.guards, Record(key, old, images[key], "", ""), former, now)
                if leaving is not None and images[key] not in known[key]:
                    # a value without a guard may be the application's by now
                    values = {name: [pair for pair in each if pair[0]] for name, each in leaving.values.items()}
                    leaving = leaving._replace(values=values)
                if leaving is not None and self._failures.attempt(
                    encode_key(key), deadline, partial(self._releaser.release, leaving)
                ):
                    self.counters.add("released")

        pairs = [(key, old) for key, olds in known.items() if key in images for old in olds]
        self._failures.isolate(pairs, release, lambda pair: encode_key(pair[0]))

    def _renew_children(self, rule: EmbedRule, parent: str, deadline: Deadline) -> list[Push]:
        """The push of a parent's attributes to its children; empty if it failed."""
        pushes: list[Push] = []

        def renew(rules: Sequence[EmbedRule]) -> None:
            push = self._failures.attempt(parent, deadline, partial(self.embedder.renew, rules[0], parent))
            if push is not None:
                pushes.append(push)

        self._failures.isolate([rule], renew, lambda _: parent)
        return pushes

    def targets(self, keys: Iterable[ItemKey], deadline: Deadline, known: Mapping[ItemKey, Item]) -> None:
        """Bring items to their groups, whatever their guards. `known` has those that exist."""
        targets: set[Target] = set()
        into = self._program.ledger_rules_into
        for key in keys:
            item = known.get(key)
            names = {entity.name for entity in self._program.entities_at(key)}
            for name in names:
                for rule in into.get(name, ()):
                    # an item of another kind may have the guard of a rule for the entity that it has left
                    if item is None or item.entity.name == name or self.guards.name(rule.name) in item.image:
                        targets.add((rule.name, encode_key(key)))
        self.publish(targets, deadline)

    # What is derived from an item itself

    def _refresh_derived(self, items: Sequence[Item], deadline: Deadline, *, renew: bool = False) -> None:
        """Refresh the copies of items, their index attributes, and the attributes of their parents.

        `renew` is that of `ListEmbedder.refresh`.
        """
        self._failures.isolate(items, partial(self._refresh_copies, deadline), _key_of)
        indexed = [item for item in items if item.entity.name in self._program.item_rules]
        self._failures.isolate(
            indexed, lambda part: self._run([partial(self._refresh_index, item, deadline) for item in part]), _key_of
        )
        self._failures.isolate(items, partial(self._refresh_children, deadline, renew), _key_of)

    def _refresh_copies(self, deadline: Deadline, items: Sequence[Item]) -> None:
        refresh = partial(self._copies.refresh, items, deadline)
        for rule, target, error in self._failures.attempt("copies", deadline, refresh) or []:
            self._failures.note(rule.name, encode_key(target), error)

    def _refresh_children(self, deadline: Deadline, renew: bool, items: Sequence[Item]) -> None:
        refresh = partial(self.embedder.refresh, items, deadline, renew=renew)
        for embed, child, reason in self._failures.attempt("children", deadline, refresh) or []:
            self._failures.reject(embed.name, reason, encode_key(child))

    def _refresh_index(self, item: Item, deadline: Deadline) -> None:
        write, problems = index_write(self._program, item)
        source = encode_key(item.key)
        for rule, reason in problems:
            self._failures.reject(rule, reason, source)
        done = self._failures.attempt(source, deadline, partial(write_index, self._items, write)) if write else None
        if done is not None:
            written, refused = done
            if written:
                self.counters.add("indexed")
            for rule, error in refused:
                self._failures.rejected[rejected_by(error, rule, source)] = None

    def _heal_copies(self, heals: Iterable[CopyHeal], deadline: Deadline) -> None:
        def attempt(heal: CopyHeal) -> None:
            work = partial(self._copier.heal, heal, deadline)
            self._failures.attempt(encode_key(heal.target), deadline, work, heal.rule.name)

        def heal_all(part: Sequence[CopyHeal]) -> None:
            self._run([partial(attempt, heal) for heal in part])

        self._failures.isolate(list(heals), heal_all, lambda heal: encode_key(heal.target))

    def _copies_of_old(self, key: ItemKey, item: Item | None) -> list[CopyHeal]:
        """Heals of the copies that an item had by an earlier image, and of the copy that it was."""
        if item is None:
            return []
        heals = [
            CopyHeal(rule, target, {encode_key(key): ""})
            for rule in self._program.copy_rules.get(item.entity.name, ())
            for target in copies_of(rule, item)
        ]
        return heals + self._as_copy(item)

    def _as_copy(self, item: Item) -> list[CopyHeal]:
        """The heal of an item that has a copy's guard, by the source that the guard names."""
        rule = self._program.copy_rule_into.get(item.entity.name)
        guard = self.guards.read(rule.name, item.key, item.image) if rule is not None else None
        return [CopyHeal(rule, item.key, {guard.by: ""})] if rule is not None and guard is not None else []

    def _recognise(self, images: Mapping[ItemKey, Image]) -> list[Item]:
        recognised: list[Item] = []

        def recognise(part: Sequence[tuple[ItemKey, Image]]) -> None:
            items = [self._program.recognise(key, image) for key, image in part]
            recognised.extend(item for item in items if item is not None)

        self._failures.isolate(list(images.items()), recognise, lambda pair: encode_key(pair[0]))
        return recognised


def _key_of(item: Item) -> str:
    return encode_key(item.key)
