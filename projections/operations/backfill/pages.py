"""The work of a backfill by pages. A page may be done twice, by any process, in any order within its phase.

items     scan of the application's tables: entries, copies, index attributes, children; copies without a source
entries   scan of the ledger: entries of deleted items; links of removed rules; groups, members and parts of entries of
          removed versions; parts of entries that lanes count
promote   filled versions are published from now on
groups    scan of the ledger: targets of promoted versions, and of those that they replace; items that rules create
targets   scan of the application's tables: values of groups on existing items; traces of former versions
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property, partial
from typing import Any

from projections.engine.clearing import Past, clear
from projections.engine.groups import read_groups
from projections.engine.ledger_items import LEDGER, Entry, Target, group_of, rule_of_link, source_of
from projections.engine.publishing import TOMBSTONE_SECONDS
from projections.engine.refresh import Refresher
from projections.engine.registry import Registry, RegistrySnapshot
from projections.engine.rejections import Rejected, rejection
from projections.engine.running import Deadline, Reload, send_all
from projections.engine.running import Run as RunPieces
from projections.engine.store import AllOf, Delete, Equal, Exists, Image, ItemKey, Purpose, Role, Store, Update, Value
from projections.engine.value_counters import ValueCounters
from projections.errors import Misconfigured, Transient
from projections.language.contribution import canonical_text, without
from projections.language.embeds import ListEmbedRule
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key, is_range
from projections.language.program import Program
from projections.language.rules import LedgerRule, public_name
from projections.operations.backfill.progress import Run, Segment
from projections.operations.dry import Adoption, Cautious, DryStore

PAGE = 500
"""Items of a page: five requests for their entries, and at most as many transactions of writes."""

_GROUP_ATTRIBUTES = ("pk", "sk", "key")

_MOST_PUBLISHES = 20
"""How often a target is published while its group moves. Then the page fails, and is repeated."""


@dataclass(frozen=True, slots=True)
class Page:
    """The outcome of a page: where the scan continues, counts, failed keys, rejected and dismissed records.

    If any key failed, the page is not done. `withheld` has the keys of the first few items that were not deleted, and `left`
    those of items of another kind on which values of a removed rule stay.
    """

    after: Any
    counts: Mapping[str, int]
    failed: Mapping[str, str]
    rejected: Sequence[Rejected]
    withheld: Sequence[str]
    dismissed: Sequence[Rejected] = ()
    left: Sequence[str] = ()


@dataclass(eq=False)
class Pages:
    """Does pages. Safe for threads. With `dry` it writes nothing, and counts what it would write."""

    store: Store
    registry: Registry
    _: KW_ONLY
    run: RunPieces[Any]
    size: int = PAGE
    pace: Callable[[int], None] = lambda writes: None
    dry: bool = False
    dismissed: Callable[[Sequence[Rejected]], Sequence[Rejected]] = lambda rejected: ()
    clock: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random
    _values: ValueCounters = field(default_factory=ValueCounters, init=False)
    adoption: Adoption | None = field(default=None, init=False)
    """With `dry`: the values of the application that would change."""

    def do(self, run: Run, segment: Segment, snapshot: RegistrySnapshot, program: Program, deadline: Deadline) -> Page:
        """Do the next page of a segment under the rules as they are in the registry now.

        Raises Reload, and Transient if the page cannot be read.
        """
        store: Cautious | DryStore
        if self.dry:
            store = DryStore(self.store, self.adoption)
        else:
            store = Cautious(self.store, deletes=run.allow_delete, pace=self.pace)
        attributes = _GROUP_ATTRIBUTES if segment.phase == "groups" else None
        read = partial(store.scan, segment.table, segment=segment.number, segments=segment.of, limit=self.size)
        page = read(attributes=attributes, after=segment.after)
        work = _Work(self, run, snapshot, program, store, deadline)
        work.do(segment, page.items)
        rejected = work.new_rejections(segment)
        skipped = self.dismissed(rejected)
        rejected = [record for record in rejected if record not in skipped]
        counts = Counter({"items": len(page.items), "rejected": len(rejected)})
        if skipped:
            counts["dismissed"] = len(skipped)
        counts.update(work.counts)
        counts.update(store.done)
        everything = segment.phase in ("groups", "targets")  # each such item is read in at least one phase

        def reports(rule: str) -> bool:
            return everything or rule in program.guarded_copies

        counts.update({f"withheld|{rule}": number for rule, number in store.withheld.items() if reports(rule)})
        examples = [key for key, rule in store.examples.items() if reports(rule)]
        return Page(page.after, counts, dict(work.refresher.failed), rejected, examples, skipped, work.left)

    def _refresher(self, store: Store, snapshot: RegistrySnapshot, program: Program) -> Refresher:
        return Refresher(
            program, store, snapshot, values=self._values, run=self.run, clock=self.clock, chance=self.chance
        )

    def past(self, run: Run, snapshot: RegistrySnapshot, program: Program) -> list[Past]:
        """Return the former versions of a run that have not been published again since."""
        former = [snapshot.versions[name] for name in run.former if name in snapshot.versions]
        documents = self.registry.documents([version for version in former if version.state != "active"])
        return [Past(name, document, program) for name, document in documents.items()]


@dataclass(eq=False)
class _Work:
    """One page: the work on its items, by phase."""

    pages: Pages
    run: Run
    snapshot: RegistrySnapshot
    program: Program
    store: Cautious | DryStore
    deadline: Deadline
    counts: Counter[str] = field(default_factory=Counter, init=False)
    left: list[str] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self._dry = self.pages.dry
        self.refresher = self.pages._refresher(self.store, self.snapshot, self.program)

    def do(self, segment: Segment, items: Sequence[Image]) -> None:
        if segment.phase == "entries":
            if self._dry:
                self._count_kept(items)
            self._remove_garbage(items)
            self._clean_entries([item for item in items if item["pk"]["S"].startswith("E|")])
            return self._refresh_sources(items)
        if segment.phase == "groups":
            return self._publish_groups(items)
        schema = self.program.tables[segment.table]
        images = {schema.key(segment.table, image): image for image in items}
        if segment.phase == "items":
            return self.refresher.refresh_scanned(images, self.deadline)
        self._publish(images)
        return self._clear(images)

    def new_rejections(self, segment: Segment) -> list[Rejected]:
        """Return what was rejected. In the phase `entries`, without what was reported when the item was read."""
        rejected = list(self.refresher.rejected)
        if segment.phase != "entries" or not rejected:
            return rejected
        keys: dict[str, ItemKey] = {}
        for record in rejected:
            with suppress(ValueError):
                key = decode_key(record.key or "")
                if key.table in self.program.tables:
                    keys[record.key or ""] = key
        there = self.store.get_many(list(keys.values()))
        return [record for record in rejected if keys.get(record.key or "") not in there]

    def _count_kept(self, items: Sequence[Image]) -> None:
        """Count the entries that keep what has expired, where a filling version does not take over all of it."""
        lacking = {public_name(rule.name): rule.name for rule in self._filling if self.program.not_carried(rule.name)}
        for item in items if lacking else ():
            kept = json.loads(item["kept"]["S"]) if "kept" in item else {}
            rules = {public_name(version) for version in kept if version not in lacking.values()}
            self.counts.update(f"kept|{rule}" for rule in rules & lacking.keys())

    def _refresh_sources(self, items: Sequence[Image]) -> None:
        """Refresh the source items of entries: of those that are gone, no other page reads what they contributed."""
        keys = dict.fromkeys(self._sources(items))
        if self._dry:  # what the phase `items` would have written is not in the entries
            there = self.store.get_many(list(keys))
            keys = {key: None for key in keys if key not in there}
        self.refresher.sources(keys, self.deadline)

    def _remove_garbage(self, items: Sequence[Image]) -> None:
        """Delete links of rules that are no embeds of several parents now, and groups and members of removed versions.

        A writer with an older registry may write some again; a later backfill finds them.
        """
        lists = {name for name, rule in self.program.embeds.items() if isinstance(rule, ListEmbedRule)}
        for item in items:
            kind, _, rest = item["pk"]["S"].partition("|")
            rule = rule_of_link(item) or rest.partition("|")[0]
            if kind == "L" and rule not in lists:
                role: Role = "link"
            elif kind in ("G", "M") and self._is_removed(rule):
                role = "sweep"
            else:
                continue
            delete = Delete(ItemKey(LEDGER, item["pk"]["S"], item["sk"]["S"]), purpose=Purpose(role, (rule,)))
            try:
                self.deadline.retry(partial(self.store.write, delete))
            except Transient as error:
                self.refresher.failed[item["pk"]["S"]] = str(error)

    def _clean_entries(self, entries: Sequence[Image]) -> None:
        """Remove from entries what they have of removed versions, and what versions that lanes count alone contribute, not
        what these keep: no group changes. An empty entry expires. One that cannot be read is rejected by its refresh.
        """
        updates = []
        for item in entries:
            try:
                entry = Entry.read(item)
                over = [version for version in entry.contributions if self._is_over(version)]
                over += [version for version in entry.kept if version not in over and self._is_removed(version)]
                held = without(entry.contributions, over)
                kept = {version: each for version, each in entry.kept.items() if not self._is_removed(version)}
                values: dict[str, Value] = {"contributions": {"S": canonical_text(held)}}
                if kept:
                    values["kept"] = {"S": canonical_text(kept)}
            except (AttributeError, KeyError, TypeError, ValueError):
                continue
            if not (held or kept or entry.recent):
                values["ttl"] = {"N": str(int(self.pages.clock()) + TOMBSTONE_SECONDS)}
            key = ItemKey(LEDGER, item["pk"]["S"], item["sk"]["S"])
            why = Purpose("forget", tuple(over), source_of(item))
            unchanged = AllOf((Exists(("pk",)), Equal(("revision",), item["revision"])))
            remove, add = () if kept else ("kept",), {"revision": {"N": "1"}}
            if over:
                updates.append(Update(key, values, remove, add, condition=unchanged, purpose=why))
        answers = send_all(self.store.write_each, updates, self.deadline, self.pages.run)
        self.refresher.failed.update({u.key.partition: str(a) for u, a in zip(updates, answers, strict=True) if a})

    def _is_over(self, version: str) -> bool:
        known = self.snapshot.versions.get(version)
        return self._is_removed(version) or (known is not None and known.lanes_count_alone)

    def _is_removed(self, version: str) -> bool:
        """Whether a version of the registry is gone. A later number is of the future: its registry is newer."""
        rule, _, number = version.rpartition(".")
        there = version in self.snapshot.versions and self.snapshot.versions[version].state != "gone"
        return not there and number.isdecimal() and int(number) < self.snapshot.next.get(rule, 0)

    def _sources(self, items: Sequence[Image]) -> list[ItemKey]:
        """Return the keys of the items of entries, except for empty entries that expire."""
        keys = []
        for item in items:
            is_empty = item.get("contributions", {}).get("S", "{}") == "{}" and item.keys().isdisjoint(
                ("recent", "kept")
            )
            if not item["pk"]["S"].startswith("E|") or (is_empty and "ttl" in item):
                continue
            text = source_of(item)
            try:
                key = decode_key(text)
            except ValueError as error:
                reason = f"the key of a ledger entry cannot be read: {error}"
                self.refresher.rejected[Rejected(None, reason, text)] = None
                continue
            if key.table in self.program.tables:  # otherwise its outcome is unknown
                keys.append(key)
        return keys

    def _publish_groups(self, items: Sequence[Image]) -> None:
        """Publish the targets of promoted versions and of those that they replace, and remove what these have left.

        Of other groups, publish items that rules create and that do not exist or are not recognised; the phase `targets`
        reads others.
        """
        targets = _groups(items)
        promoted, former = set(dict(self.run.published)) & self._unfinished, set(self.run.former)
        active = {version.rule: version.name for version in self.snapshot.active.values() if version.recorded}
        names = {version: active[rule] for version in former if (rule := public_name(version)) in active}
        wanted = [target for target in targets if target[0] not in promoted | former and self._creates(target)]
        keys = {target: decode_key(target[1]) for target in wanted}
        there = self.store.get_many(list(dict.fromkeys(keys.values())))
        publish = [target for target, key in keys.items() if not self._is_there(target, key, there)]
        publish += [target for target in targets if target[0] in promoted]
        publish += [
            (names[rule], target)
            for rule, target in targets
            if rule in names and not is_range(target) and self.program.rules[names[rule]].into.at(decode_key(target))
        ]
        self._publish_targets(list(dict.fromkeys(publish)))
        cleared = dict.fromkeys(decode_key(text) for rule, text in targets if rule in former and not is_range(text))
        if cleared:
            self._clear(self.store.get_many([key for key in cleared if key.table in self.program.tables]))

    @cached_property
    def _unfinished(self) -> set[str]:
        return {version.name for version in self.snapshot.versions.values() if version.unfinished}

    def _is_there(self, target: Target, key: ItemKey, images: Mapping[ItemKey, Image]) -> bool:
        return self.program.recognise_as(self.program.rules[target[0]].into, key, images.get(key)) is not None

    def _creates(self, target: Target) -> bool:
        rule = self.program.rules.get(target[0])
        return rule is not None and rule.creates and not rule.held

    def _publish(self, images: Mapping[ItemKey, Image]) -> None:
        into = self.program.ledger_rules_into
        targets: list[Target] = []
        for key, image in images.items():
            try:
                item: Item | None = self.program.recognise(key, image)
            except Exception as error:
                self.refresher.rejected[rejection(error, encode_key(key))] = None
                continue
            text = encode_key(key)
            for each in (item, *self.program.alternative_items(key, image)):
                if each is not None and each.entity.name in into:
                    targets += [(rule.name, text) for rule in into[each.entity.name]]
                if each is not None and self._dry:  # the totals of filling versions are not known yet
                    filling = sum(rule.into is each.entity for rule in self._filling)
                    self.counts.update({"publishable": filling, "write units": filling})
            targets += [(rule.name, text) for rule in self._strange(image, item)]
        self._publish_targets(targets)

    @cached_property
    def _filling(self) -> list[LedgerRule]:
        """The versions that will be published when they are filled."""
        versions = {v.name for v in self.snapshot.versions.values() if v.state == "filling" and not v.held}
        return [rule for name, rule in self.program.recorded.items() if name in versions and rule.writes_items]

    def _strange(self, image: Image, item: Item | None) -> Sequence[LedgerRule]:
        """Return the rules whose guards are on an item of another kind: publishing removes what they set on it."""
        prefix, into = self.program.guard_prefix, self.program.ledger_rules_into.items()
        names = {name.removeprefix(prefix) for name in image if name.startswith(prefix)}
        others = [rules for entity, rules in into if names and (item is None or item.entity.name != entity)]
        return [rule for rules in others for rule in rules if public_name(rule.name) in names]

    def _publish_targets(self, targets: Sequence[Target]) -> None:
        self.counts["targets"] += len(targets)
        moved, unfinished = list(targets), self._unfinished
        for _ in range(_MOST_PUBLISHES):
            promoted = [target for target in moved if target[0] in unfinished and not is_range(target[1])]
            before = self._versions(promoted)
            failed = self.refresher.publish(moved, self.deadline)
            # A function with a registry from before the promotion publishes only the former version of what it commits.
            after = self._versions(promoted)
            moved = [target for target in promoted if before[target] != after[target] and target not in failed]
            if not moved:
                return
        self.refresher.failed.update((target, "its group keeps changing while it is published") for _, target in moved)

    def _versions(self, targets: Sequence[Target]) -> dict[Target, int]:
        if not targets or self._dry:
            return dict.fromkeys(targets, 0)
        groups = self.deadline.retry(partial(read_groups, self.store, targets))
        return {target: group.version for target, group in groups.items()}

    def _clear(self, images: Mapping[ItemKey, Image]) -> None:
        past = self._past
        for key, image in images.items() if past else ():
            work = partial(clear, past, key, image, self.program, self.store, self.refresher.guards)
            try:
                counts = self.deadline.retry(work)
                self.counts.update(counts)
                if any(name.startswith("left|") for name in counts):
                    self.left.append(encode_key(key))
            except (Misconfigured, Reload):
                raise
            except Transient as error:
                self.refresher.failed[encode_key(key)] = str(error)
            except Exception as error:
                self.refresher.rejected[rejection(error, encode_key(key))] = None

    @cached_property
    def _past(self) -> list[Past]:
        return self.pages.past(self.run, self.snapshot, self.program)


def _groups(items: Sequence[Image]) -> list[Target]:
    """Return the groups of which these items are the first shards."""
    return [group_of(item) for item in items if item["pk"]["S"].startswith("G|") and item["sk"]["S"] == "00"]
