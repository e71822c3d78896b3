"""Refreshing: making everything that depends on an item what the item says today, whatever became of its records.

For the ledger, the entry is read first and the item after it (consistently), and the change is committed under the
condition that the entry is as read. No condition is on the item: a change since then has a record on its way, which will
find this entry. Where an item was read before its entry, as by a scan, that is enough in two cases:

- There is no entry. Any record of the item that was processed since would have left one, if only to say "nothing".
- The entry says what the item says. Then there is nothing to commit.

Everything else is read again.

An unexpected error that one item's content causes is that item's rejection: the others are refreshed without it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, NamedTuple, TypeVar

from projections.engine.application import ApplicationItems
from projections.engine.changes import Change, Result, targets_of
from projections.engine.copies import Copier, CopyHeal, copies_of
from projections.engine.counters import Counters
from projections.engine.deadline import Deadline
from projections.engine.delta import SETTLED, unmarked, without_mark
from projections.engine.embeds import Embedder, Push
from projections.engine.groups import Generations
from projections.engine.guards import Guards
from projections.engine.indexes import index_write, write_index
from projections.engine.ledger import Ledger
from projections.engine.ledger_items import MOST_EXPIRIES, Entry, Target, entry_key
from projections.engine.limits import refusal
from projections.engine.plan import release_of
from projections.engine.publishing import Publisher, unpublished
from projections.engine.recent import TOMBSTONE_SECONDS, forget, pending_entries, relieved
from projections.engine.records import Record
from projections.engine.registry import SHADOW, RegistrySnapshot
from projections.engine.rejections import (
    Rejected,
    internal,
    internal_reason,
    is_internal,
    refused,
    rejected_by,
    rejection,
)
from projections.engine.running import Run, one_by_one
from projections.engine.store import Image, ItemKey, Store
from projections.errors import InvalidRequest, Misconfigured, StoreError, Transient
from projections.language.contribution import Contributions, Evaluated
from projections.language.embeds import EmbedRule
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import Rule

__all__ = ["Refresher", "Told", "goal_of"]

_MOST_ROUNDS = 20

_DAY = 24 * 3600
_REMEMBERED = TOMBSTONE_SECONDS - _DAY
"""Seconds for which the ledger certainly remembers an expiry, whatever the clocks."""

_FORGOTTEN = (
    f"it expired, and the ledger does not tell any more whether that was counted: it remembers the last {MOST_EXPIRIES} "
    f"expiries under a key, for {_REMEMBERED // _DAY} days. Nothing was counted for it now"
)

_FILLING = "the rule keeps what has expired and is being filled: redrive this again when the backfill is done"
_BLIND = "it expired, and the record does not say what it was, so that nothing was counted for it"

T = TypeVar("T")


class Told(NamedTuple):
    """A record that Lambda discarded: the version, the item before and after, whether it expired, the second since 1970."""

    version: str
    old: Image | None
    new: Image | None
    expired: bool
    at: float


_Records = Mapping[ItemKey, Sequence[Told]]


def goal_of(
    program: Program,
    held: Contributions,
    contributions: Contributions,
    gone: bool,
    publishes: Callable[[Rule], bool] = lambda rule: True,
    *,
    expired: bool = False,
) -> Contributions:
    """What an entry should say of an item: what the item says, and what only records can tell.

    An expiry that is halfway through has marked what it settled. Of an item that is gone nobody knows whether it
    expired; where that makes a difference, what it contributed stays until its record tells. Not so while a rule fills
    (it does not publish yet): an invocation with the rules before may have taken that record, and it meant nothing to them.
    Unless the entry records that the item `expired` (`Entry.expired`): then the contribution stays.
    """
    goal = {rule: dict(targets) for rule, targets in contributions.items()}
    for name, targets in held.items():
        rule = program.rules.get(name)
        if gone and rule is not None and rule.expired == "keep" and (expired or rule.mode == SHADOW or publishes(rule)):
            goal[name] = dict(targets)
            continue
        for target, contributed in targets.items():
            if SETTLED in contributed:
                marked = goal.setdefault(name, {})
                marked[target] = {**marked.get(target, {}), SETTLED: contributed[SETTLED]}
    return goal


class Refresher:
    """Refreshes items, many at a time. What cannot be done is gathered, never raised for one item's sake.

    `snapshot` is the registry: which rules publish now, and the id of the ledger. `failed` has what is to be tried again by
    encoded key, with the reason; `rejected` what no repetition will achieve. `reserved` is how many actions the store adds
    to each transaction. Raises `errors.Misconfigured`.
    """

    def __init__(
        self,
        program: Program,
        store: Store,
        snapshot: RegistrySnapshot,
        *,
        generations: Generations | None = None,
        run: Run[Any] = one_by_one,
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
        pace: Callable[[int], None] = lambda writes: None,
        counters: Counters | None = None,
        reserved: int = 0,
    ) -> None:
        self._program = program
        self._store = store
        self._publishes = publishes = snapshot.publishes
        self._settles = snapshot.settles
        self.guards = guards = Guards(program, snapshot.ledger)
        self._items = ApplicationItems(program, store, guards)
        self._run = run
        self._clock = clock
        self.generations = generations or Generations()
        self.counters = counters or Counters()
        self._ledger = Ledger(
            program,
            store,
            run=run,
            chance=chance,
            generations=self.generations,
            counters=self.counters,
            reserved=reserved,
            relieve=self._relieve,
        )
        self._publisher = Publisher(
            program, store, self.generations, guards=guards, run=run, counters=self.counters, publishes=publishes
        )
        self._copier = Copier(program, store, guards, self.counters, run)
        self.embedder = Embedder(program, store, guards, pace=pace, counters=self.counters, run=run)
        self.failed: dict[str, str] = {}
        self.rejected: dict[Rejected, None] = {}

    def scanned(self, images: Mapping[ItemKey, Image], deadline: Deadline) -> None:
        """Refreshes items as a scan of an application's table gave them just now, in every role but that of a target.

        What is recorded is not published, except where something was retracted: see `targets`.
        """
        items = self._recognised(images)
        self.sources(images, deadline)
        self._derived(items, deadline)
        self._isolated(items, partial(self._orphans, deadline), _key_of)
        self._heal_copies(self._without_kind(images, items), deadline)

    def _orphans(self, deadline: Deadline, items: Sequence[Item]) -> None:
        self._heal_copies(self._attempt("copies", deadline, lambda: self._copier.orphans(items)) or [], deadline)

    def _without_kind(self, images: Mapping[ItemKey, Image], items: Sequence[Item]) -> list[CopyHeal]:
        """The copies that a rule created and that lost what `match` reads: only the guard tells what they are."""
        unknown = images.keys() - {item.key for item in items}
        return [
            CopyHeal(rule, key, {guard.by: ""}, "")
            for key in images
            if key in unknown and self.guards.created(key, images[key])
            for rule in self._program.copies_with_match.values()
            if (guard := self.guards.read(rule.name, key, images[key])) is not None and guard.by
        ]

    def keys(
        self,
        keys: Iterable[ItemKey],
        deadline: Deadline,
        known: Mapping[ItemKey, Sequence[Image]] | None = None,
        removed: Collection[ItemKey] = (),
        told: _Records | None = None,
    ) -> list[Push]:
        """Refreshes items by their keys, in every role they have or had, and publishes.

        `known` holds images that the items had, by which the copies of a source that is gone, and the source of a copy that
        is gone, are found. `removed` has those of which a record tells that they did not expire but were removed. `told` has
        what Lambda discarded: rules that keep what has expired count the expiries in it, unless they have. Gives the pushes
        that remain to be made, from their fence on.
        """
        wanted = list(dict.fromkeys(keys))
        self.sources(dict.fromkeys(wanted), deadline, publish=True, removed=removed, told=told)
        images = self._attempt("items", deadline, lambda: self._store.get_many(wanted)) or {}
        items = self._recognised(images)
        self._derived(items, deadline)
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
            for entity in self._program.entities_at(key):  # a parent that is gone, or no parent any more, has children
                for rule in self._program.embeds_from.get(entity.name, ()):
                    pushes += self._renewed(rule, parent, deadline)
        return pushes

    def _release(
        self, images: Mapping[ItemKey, Image], known: Mapping[ItemKey, Sequence[Image]], deadline: Deadline
    ) -> None:
        """Takes from items of another kind than they were what rules had set on them then."""

        def release(some: Sequence[tuple[ItemKey, Image]]) -> None:
            for key, old in some:
                left, now = self._program.recognise(key, old), self._program.recognise(key, images[key])
                found = release_of(self._program, self.guards, Record(key, old, images[key], "", ""), left, now)
                if found is not None and images[key] not in known[key]:
                    # what has no guard may be the application's by now
                    values = {name: [one for one in each if one[0] is not None] for name, each in found.values.items()}
                    found = replace(found, values=values)
                if found is not None and self._attempt(encode_key(key), deadline, partial(self._items.release, found)):
                    self.counters.add("released")

        pairs = [(key, old) for key, olds in known.items() if key in images for old in olds]
        self._isolated(pairs, release, lambda one: encode_key(one[0]))

    def _renewed(self, rule: EmbedRule, parent: str, deadline: Deadline) -> list[Push]:
        """The push of a parent's attributes to its children, if there is to be one."""
        found: list[Push] = []

        def renew(rules: Sequence[EmbedRule]) -> None:
            push = self._attempt(parent, deadline, partial(self.embedder.renew, rules[0], parent))
            if push is not None:
                found.append(push)

        self._isolated([rule], renew, lambda _: parent)
        return found

    def targets(self, keys: Iterable[ItemKey], deadline: Deadline, known: Mapping[ItemKey, Item]) -> None:
        """Publishes what groups say of these items, whatever the guards on them say. `known` has those that exist."""
        found: set[Target] = set()
        into = self._program.ledger_rules_into
        for key in keys:
            item = known.get(key)
            names = {one.name for one in self._program.entities_at(key)}
            for name in names:
                for rule in into.get(name, ()):
                    # an item of another kind may bear the guard of a rule for the entity that it has left
                    if item is None or item.entity.name == name or self.guards.name(rule.name) in item.image:
                        found.add((rule.name, encode_key(key)))
        self.publish(found, deadline)

    def publish(self, targets: Iterable[Target], deadline: Deadline) -> dict[Target, StoreError]:
        """Brings targets up to their groups, whatever their guards say. Gives the failures, which are noted too."""
        failures: dict[Target, StoreError] = {}

        def heal(some: Sequence[Target]) -> None:
            failures.update(self._publisher.heal(some, deadline))

        broken: dict[Target, StoreError] = {}
        for target, error in self._apart(list(targets), heal):
            if is_internal(error):
                self.rejected[internal(error, target[1])] = None
                broken[target] = InvalidRequest(internal_reason(error))
            else:
                failures[target] = InvalidRequest(str(error))
        for (rule, key), failure in failures.items():
            self._note(rule, key, failure)
        return failures | broken

    # The ledger

    def sources(
        self,
        images: Mapping[ItemKey, Image | None],
        deadline: Deadline,
        *,
        publish: bool = False,
        removed: Collection[ItemKey] = (),
        told: _Records | None = None,
    ) -> None:
        """Brings the entries of source items up to date. None for an item that was not read; the others as in `keys`.

        Publishes all targets these entries name, or, without `publish`, those that something was retracted from.
        """
        self._isolated(
            list(images.items()),
            lambda some: self._sources(dict(some), deadline, publish, removed, told or {}),
            lambda one: encode_key(one[0]),
        )

    def _sources(
        self,
        images: Mapping[ItemKey, Image | None],
        deadline: Deadline,
        publish: bool,
        removed: Collection[ItemKey],
        told: _Records,
    ) -> None:
        unread = {key: image for key, image in images.items() if image is None or self._contributes(key, image)}
        done: list[Result] = []
        rounds = 0
        while unread:
            try:
                deadline.check()
                changes = self._changes(unread, done, removed, told)
            except Transient as error:
                return self._fail(unread, error)
            moved: list[ItemKey] = []
            settled: dict[ItemKey, str] = {}
            for result in self._ledger.commit(changes, deadline):
                change, source = result.change, result.change.source
                if result.state == "failed":
                    self.failed[source] = str(result.error)
                elif result.state == "moved":
                    moved.append(decode_key(source))
                elif result.state == "applied":
                    self.counters.add("applied")
                    done.append(result)
                    if change.expiry:
                        settled[decode_key(source)] = change.expiry
                for no in result.refused:
                    self.rejected[refused(source, no)] = None
            unread = dict.fromkeys([*moved, *settled])
            if settled:  # the next one, if there are more
                told = {key: [one for one in told[key] if one.version != settled.get(key)] for key in told}
            else:
                rounds += 1
            if unread and rounds == _MOST_ROUNDS:
                return self._fail(unread, Transient("its entry keeps changing"))
        self._publish(done, deadline, publish)
        return None

    def _relieve(self, source: str, entry: Entry, deadline: Deadline) -> Entry | None:
        """Make the pending publishes of one entry, one after another: this may be one of the pieces that run at once."""
        publisher = Publisher(
            self._program,
            self._store,
            self.generations,
            guards=self.guards,
            counters=self.counters,
            publishes=self._publishes,
        )
        return relieved(self._store, publisher.heal, source, entry, self._clock(), deadline)

    def _contributes(self, key: ItemKey, image: Image) -> bool:
        """Whether an item may have an entry, or should have one."""
        item = self._program.recognise(key, image)
        return item is not None and item.entity.name in self._program.ledger_rules

    def _changes(
        self,
        images: Mapping[ItemKey, Image | None],
        done: list[Result],
        removed: Collection[ItemKey],
        told: _Records,
    ) -> list[Change]:
        """Return the changes to commit. Entries that need none, but may have pending publishes, are added to `done`."""
        sources = {key: encode_key(key) for key in images}
        entries = self._store.get_many([entry_key(source) for source in sources.values()])
        changes: list[Change] = []
        again: dict[ItemKey, Entry | None] = {}
        for key, image in images.items():
            found = entries.get(entry_key(sources[key]))
            entry = Entry.read(found) if found is not None else None
            if entry is not None:
                self.generations.learn(entry.contributions)
            if image is None:
                again[key] = entry
                continue
            change = self._change(key, image, entry, may_have_expired=True)
            if change is None:
                self._settled(sources[key], entry, done)
            elif entry is None:
                changes.append(change)
            else:
                again[key] = entry
        now = self._store.get_many(list(again))  # after their entries
        for key, entry in again.items():
            records = told.get(key, ())
            if (filling := self._filling) and records and (key not in now or any(one.expired for one in records)):
                self.failed[sources[key]] = f"{', '.join(filling)}: {_FILLING}"
                continue
            change = self._change(key, now.get(key), entry, may_have_expired=key not in removed, told=records)
            if change is not None:
                changes.append(change)
            else:
                self._settled(sources[key], entry, done)
        return changes

    def _unsettled(self, key: ItemKey, entry: Entry | None, told: Sequence[Told]) -> tuple[str, Contributions] | None:
        """The first of these expiries that has not been settled, by its version, and what it settles.

        That is nothing where a discarded edit had taken away what the entry still says.
        """
        keeping = self._keeping
        for version, image, _, _, at in sorted([one for one in told if one.expired], key=lambda one: one.version):
            if image is None and any(rule.source in self._program.entities_at(key) for rule in self._keepers):
                self._reject(None, _BLIND, encode_key(key))
                continue
            settled = self._kept(key, image)
            ends = entry is not None and entry.version < version and not keeping.isdisjoint(entry.contributions)
            if not (settled or ends) or (entry is not None and version in entry.expiries):
                continue
            # an entry that a refresh made has no version: it may be younger than one that DynamoDB deleted
            newest = entry is not None and "" < entry.version < version
            old = self._clock() - at > _REMEMBERED and not newest
            if not old and (entry is None or entry.knows(version)):
                return version, settled
            self._reject(None, _FORGOTTEN, encode_key(key))
        return None

    def _kept(self, key: ItemKey, image: Image | None) -> Contributions:
        """What an item contributes to the rules that keep what has expired, and settle it."""
        item = self._program.recognise(key, image) if image is not None else None
        contributed = self._program.contributions(item).contributions
        return {rule: targets for rule, targets in contributed.items() if rule in self._keeping}

    @cached_property
    def _keeping(self) -> frozenset[str]:
        """The names of the rules that keep what has expired, and settle it."""
        return frozenset(rule.name for rule in self._keepers if self._settles(rule))

    @cached_property
    def _filling(self) -> list[str]:
        """The rules that keep what has expired, and will settle it once they are filled."""
        return [rule.name for rule in self._keepers if rule.mode != SHADOW and not self._settles(rule)]

    @cached_property
    def _keepers(self) -> list[Rule]:
        """The rules that keep what has expired."""
        return [rule for rule in self._program.rules.values() if rule.expired == "keep"]

    def _change(
        self,
        key: ItemKey,
        image: Image | None,
        entry: Entry | None,
        *,
        may_have_expired: bool,
        told: Sequence[Told] = (),
    ) -> Change | None:
        """The change that brings an entry to what the item says, and settles an expiry; None if there is nothing to do.

        What an entry older than the expiry says ended with it. Of an item that is gone, and nobody knows how, the newest of
        the discarded records tells better than an older entry what it contributed last.
        """
        evaluated = self._program.contributions(self._program.recognise(key, image) if image is not None else None)
        source = encode_key(key)
        for rule, reason in evaluated.problems:
            self._reject(rule, reason, source)
        held = entry.contributions if entry is not None else {}
        expired = entry is not None and entry.expired
        version, settle = self._unsettled(key, entry, told) or ("", {})
        ended = bool(version) and (entry is None or entry.version < version)
        last = max(told, default=None, key=lambda one: one.version)
        newer = last is not None and entry is not None and entry.version < last.version and not version
        if last is not None and entry is not None and last.version < entry.version:
            may_have_expired = True  # the removal that is told of was of an earlier item under the key
        gone = image is None and ((may_have_expired and not ended) or expired)
        goal = goal_of(self._program, held, evaluated.contributions, gone, self._publishes, expired=expired)
        learned = ""
        keeping = frozenset(rule for rule in self._keeping & held.keys() if unmarked(held[rule]))
        if last is not None and newer and gone and not expired and keeping:
            learned = last.version
            kept = {rule: targets for rule, targets in self._kept(key, last.new).items() if rule in keeping}
            kept = goal_of(self._program, {rule: held[rule] for rule in keeping}, kept, gone=False)
            goal = {**{rule: targets for rule, targets in goal.items() if rule not in keeping}, **kept}
        if not version and not learned and self._ledger.goal(held, goal) == held:
            return None
        goal = without_mark(goal, version) if version else goal
        active: frozenset[str] = frozenset()
        if expired and not gone:  # another item has the key by now
            active = frozenset(rule.name for rule in self._keepers if self._publishes(rule))
        return Change(
            source,
            "",
            held,
            Evaluated(goal, evaluated.payloads, evaluated.problems),
            entry,
            touched=targets_of(goal) | targets_of(settle) | (entry.targets if entry is not None else set()),
            gone=image is None,
            expiry=version,
            settle=settle,
            held=frozenset(rule.name for rule in self._keepers) - self._keeping
            if ended and image is None
            else frozenset(),
            active=active,
            learned=version or learned,
        )

    def _settled(self, source: str, entry: Entry | None, done: list[Result]) -> None:
        """Add the result for an entry that needs no change: it may have pending publishes, or should expire."""
        if entry is None:
            return
        change = Change(source, "", entry.contributions, Evaluated(entry.contributions), entry)
        done.append(
            Result(change, "applied", entry.targets, may_have_pending=not entry.contributions or bool(entry.recent))
        )

    def _publish(self, results: Sequence[Result], deadline: Deadline, everything: bool) -> None:
        try:
            entries = pending_entries(self._store, results)
        except Transient as error:
            return self._fail({decode_key(result.change.source): None for result in results}, error)
        targets = {target for entry in entries.values() for target in (entry.targets if everything else entry.pending)}
        if everything:
            targets.update(*[result.touched for result in results])
        failures = self.publish(targets, deadline)
        left = unpublished(failures)
        published = [(source, entry, targets - left) for source, entry in entries.items()]
        for source, failure in forget(self._store, published, self._clock(), deadline, self._run).items():
            if isinstance(failure, InvalidRequest):
                self._reject(None, refusal(str(failure)), source)
            else:
                self.failed[source] = str(failure)
        return None

    # What is derived from an item itself

    def _derived(self, items: Sequence[Item], deadline: Deadline) -> None:
        """Copies of items, index attributes on them, and their parents' attributes in them."""
        self._isolated(items, partial(self._copies, deadline), _key_of)
        indexed = [item for item in items if item.entity.name in self._program.index_rules]
        self._isolated(indexed, partial(self._indexes, deadline), _key_of)
        self._isolated(items, partial(self._children, deadline), _key_of)

    def _copies(self, deadline: Deadline, items: Sequence[Item]) -> None:
        for rule, target, error in (
            self._attempt("copies", deadline, lambda: self._copier.refresh(items, deadline)) or []
        ):
            self._note(rule.name, encode_key(target), error)

    def _indexes(self, deadline: Deadline, items: Sequence[Item]) -> None:
        self._run([partial(self._index, item, deadline) for item in items])

    def _children(self, deadline: Deadline, items: Sequence[Item]) -> None:
        for embed, child, reason in (
            self._attempt("children", deadline, lambda: self.embedder.refresh(items, deadline)) or []
        ):
            self._reject(embed.name, reason, encode_key(child))

    def _index(self, item: Item, deadline: Deadline) -> None:
        write, problems = index_write(self._program, item, "")
        source = encode_key(item.key)
        for rule, reason in problems:
            self._reject(rule, reason, source)
        if write is not None and self._attempt(source, deadline, partial(write_index, self._items, write)):
            self.counters.add("indexed")

    def _heal_copies(self, heals: Iterable[CopyHeal], deadline: Deadline) -> None:
        self._isolated(list(heals), partial(self._heal_some, deadline), lambda heal: encode_key(heal.target))

    def _heal_some(self, deadline: Deadline, heals: Sequence[CopyHeal]) -> None:
        pieces = [
            partial(
                self._attempt,
                encode_key(heal.target),
                deadline,
                partial(self._copier.heal, heal, deadline),
                heal.rule.name,
            )
            for heal in heals
        ]
        self._run(pieces)

    def _copies_of_old(self, key: ItemKey, item: Item | None) -> list[CopyHeal]:
        """The copies that an item of the past had, and the one it was, to be compared with what their sources are now."""
        if item is None:
            return []
        heals = [
            CopyHeal(rule, target, {encode_key(key): ""}, "")
            for rule in self._program.copy_rules.get(item.entity.name, ())
            for target in copies_of(rule, item)
        ]
        return heals + self._as_copy(item)

    def _as_copy(self, item: Item) -> list[CopyHeal]:
        """An item that bears a copy's guard, to be compared with the source which that names."""
        rule = self._program.copy_rule_into.get(item.entity.name)
        guard = self.guards.read(rule.name, item.key, item.image) if rule is not None else None
        return [CopyHeal(rule, item.key, {guard.by: ""}, "")] if rule is not None and guard is not None else []

    # What fails

    def _isolated(self, things: Sequence[T], work: Callable[[Sequence[T]], object], key: Callable[[T], str]) -> None:
        """Do work on many things; one that causes an unexpected error is rejected, and the others are done without it."""
        for thing, error in self._apart(things, work):
            self.rejected[rejection(error, key(thing))] = None

    def _apart(self, things: Sequence[T], work: Callable[[Sequence[T]], object]) -> Iterator[tuple[T, Exception]]:
        """Do work on many things, on fewer where it fails unexpectedly. Yield the things that fail alone.

        What was done before is found done.
        """
        if not things:
            return
        try:
            work(things)
        except (Misconfigured, Transient):
            raise
        except Exception as error:
            if len(things) == 1:
                yield things[0], error
                return
        else:
            return
        middle = len(things) // 2
        yield from self._apart(things[:middle], work)
        yield from self._apart(things[middle:], work)

    def _attempt(self, what: str, deadline: Deadline, work: Callable[[], Any], rule: str | None = None) -> Any:
        """The result of a piece of work, of one rule perhaps; None if it failed, which is noted."""
        try:
            return deadline.retry(work)
        except Transient as error:
            self.failed[what] = str(error)
        except InvalidRequest as error:
            self.rejected[rejected_by(error, rule, what)] = None
        return None

    def _note(self, rule: str, key: str, error: StoreError) -> None:
        if isinstance(error, InvalidRequest):
            self.rejected[rejected_by(error, rule, key, target=key)] = None
        else:
            self.failed[key] = str(error)

    def _reject(self, rule: str | None, reason: str, key: str) -> None:
        self.rejected[Rejected(rule, reason, key, table=key.partition("|")[0])] = None

    def _fail(self, keys: Iterable[ItemKey], error: StoreError) -> None:
        self.failed.update((encode_key(key), str(error)) for key in keys)

    def _recognised(self, images: Mapping[ItemKey, Image]) -> list[Item]:
        found: list[Item] = []

        def recognise(some: Sequence[tuple[ItemKey, Image]]) -> None:
            items = [self._program.recognise(key, image) for key, image in some]
            found.extend(item for item in items if item is not None)

        self._isolated(list(images.items()), recognise, lambda one: encode_key(one[0]))
        return found


def _key_of(item: Item) -> str:
    return encode_key(item.key)
