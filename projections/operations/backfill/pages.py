"""The work of a backfill by pages. A page may be done twice, by any process, in any order within its phase.

items     scan of the application's tables: entries, copies, index attributes, children; copies without a source
entries   scan of the ledger: entries of deleted items, or that no rule needs any more; links of removed rules
live      filling rules become live
groups    scan of the ledger: items that rules create and that do not exist, or are not recognised
targets   scan of the application's tables: values of groups on existing items; traces of removed rules
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from projections.engine import rebuild
from projections.engine.groups import Generations, is_amount, parts_of, sum_group
from projections.engine.guards import Guards
from projections.engine.ledger_items import CLOSED, LEDGER, Target, group_key, rule_of_link
from projections.engine.refresh import Refresher
from projections.engine.registry import FILLING, Registry, RegistrySnapshot
from projections.engine.rejections import Rejected, rejection
from projections.engine.running import Deadline
from projections.engine.running import Run as RunPieces
from projections.engine.store import Delete, Equal, Image, ItemKey, Purpose, Store, Update
from projections.errors import Misconfigured, TransactionCancelled, Transient
from projections.language.embeds import ListEmbedRule
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key
from projections.language.program import Program
from projections.language.rules import LedgerRule, Rule
from projections.operations.backfill.progress import Run, Segment
from projections.operations.backfill.retirement import Past, retire
from projections.operations.dry import Adoption, Cautious, DryStore
from projections.operations.fenced import RESERVED

PAGE = 500
"""Items of a page: five requests for their entries, and at most as many transactions of writes."""

_GROUP_ATTRIBUTES = ("pk", "sk", "key", CLOSED)


def creates(rule: Rule) -> bool:
    """Return whether publishes of a rule create items."""
    return rule.creates and rule.mode != "shadow"


@dataclass(frozen=True, slots=True)
class Page:
    """The outcome of a page: where the scan continues, counts, failed keys, rejected and dismissed records.

    If any key failed, the page is not done. `withheld` has the keys of the first few items that were not deleted.
    """

    after: Any
    counts: Mapping[str, int]
    failed: Mapping[str, str]
    rejected: Sequence[Rejected]
    withheld: Sequence[str]
    dismissed: Sequence[Rejected] = ()


class Pages:
    """Does pages. Safe for threads. With `dry` it writes nothing, and counts what it would write."""

    def __init__(
        self,
        program: Program,
        store: Store,
        registry: Registry,
        *,
        run: RunPieces[Any],
        size: int = PAGE,
        pace: Callable[[int], None] = lambda writes: None,
        dry: bool = False,
        dismissed: Callable[[Sequence[Rejected]], Sequence[Rejected]] = lambda rejected: (),
        clock: Callable[[], float] = time.time,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._program = program
        self._store = store
        self._registry = registry
        self._run = run
        self._size = size
        self._pace = pace
        self._dry = dry
        self._dismissed = dismissed
        self._clock = clock
        self._chance = chance
        self._generations = Generations()
        self._learned = ""
        self.adoption: Adoption | None = None
        """With `dry`: the values of the application that would change."""
        self._past: dict[str, Past | None] = {}

    def do(
        self, run: Run, segment: Segment, snapshot: RegistrySnapshot, deadline: Deadline, fenced: Store | None = None
    ) -> Page:
        """Do the next page of a segment under the rules as they are in the registry now, and write to `fenced`.

        Raises Transient if the page cannot be read, and Replaced.
        """
        store: Cautious | DryStore
        if fenced is None:
            store = DryStore(self._store, self.adoption)
        else:
            store = Cautious(fenced, deletes=run.allow_delete, pace=self._pace)
            self._learn(run)
        attributes = _GROUP_ATTRIBUTES if segment.phase == "groups" else None
        page = store.scan(
            segment.table,
            segment=segment.number,
            segments=segment.of,
            limit=self._size,
            attributes=attributes,
            after=segment.after,
        )
        work = _Work(self, run, snapshot, store, deadline)
        work.do(segment, page.items)
        # rejections of an entry's item were reported when the item was read
        rejected = list(work.refresher.rejected) if segment.phase != "entries" else []
        skipped = self._dismissed(rejected)
        rejected = [record for record in rejected if record not in skipped]
        counts = Counter({"items": len(page.items), "rejected": len(rejected)})
        if skipped:
            counts["dismissed"] = len(skipped)
        counts.update(work.counts)
        counts.update(store.done)
        reports = self._reports(segment)
        counts.update({f"withheld|{rule}": number for rule, number in store.withheld.items() if reports(rule)})
        examples = [key for key, rule in store.examples.items() if reports(rule)]
        return Page(page.after, counts, dict(work.refresher.failed), rejected, examples, skipped)

    def _learn(self, run: Run) -> None:
        """Set the generations of groups whose rebuild this run ends: each page moves the entries that it reads into them."""
        if self._learned != run.name:
            for note in rebuilds(self._store, run):
                self._generations.at_least(note.target, note.generation)
            self._learned = run.name

    def rebuilt(self, run: Run, snapshot: RegistrySnapshot, deadline: Deadline, fenced: Store) -> None:
        """Publish the groups whose rebuild this run ends, and end it. The next backfill or repair repeats failures."""
        ended = [note for note in rebuilds(self._store, run) if note.target[0] in self._program.rules]
        store = Cautious(fenced, deletes=run.allow_delete, pace=self._pace)
        failed = self._refresher(store, snapshot).publish([note.target for note in ended], deadline)
        for note in ended:
            if note.target not in failed:
                rebuild.sweep(fenced, note.target, note.generation)

    def _refresher(self, store: Store, snapshot: RegistrySnapshot) -> Refresher:
        return Refresher(
            self._program,
            store,
            snapshot,
            generations=self._generations,
            run=self._run,
            clock=self._clock,
            chance=self._chance,
            reserved=RESERVED,
        )

    def _reports(self, segment: Segment) -> Callable[[str], bool]:
        """Return the rules for which this phase reports withheld deletions: each such item is read in at least one phase."""

        def reports(name: str) -> bool:
            return segment.phase == "targets" or name in self._program.guarded_copies

        return reports

    def past(self, names: Sequence[str]) -> list[Past]:
        """Return removed rules, as far as the registry has their definitions."""
        for name in names:
            if name not in self._past:
                definition = self._registry.definition(name)
                if definition is None and self._dry:  # the definition of a rule is recorded when it changes
                    definition = self._registry.definition(name.partition("@")[0])
                self._past[name] = Past(name, definition, self._program) if definition is not None else None
        return [past for name in names if (past := self._past[name]) is not None]


class _Work:
    """One page: the work on its items, by phase."""

    def __init__(
        self, pages: Pages, run: Run, snapshot: RegistrySnapshot, store: Cautious | DryStore, deadline: Deadline
    ) -> None:
        self._pages = pages
        self._program = pages._program
        self._run = run
        self._snapshot = snapshot
        self._store = store
        self._deadline = deadline
        self._dry = pages._dry
        self.counts: Counter[str] = Counter()
        self.refresher = pages._refresher(store, snapshot)

    def do(self, segment: Segment, items: Sequence[Image]) -> None:
        if segment.phase == "entries":
            self._unlink(items)
            return self._refresh_sources(items)
        if segment.phase == "groups":
            self._forget_scores(items)
            return self._create(items)
        schema = self._program.tables[segment.table]
        images = {schema.key(segment.table, image): image for image in items}
        if segment.phase == "items":
            return self.refresher.refresh_scanned(images, self._deadline)
        self._publish(images)
        return self._retire(images)

    def _refresh_sources(self, items: Sequence[Image]) -> None:
        """Refresh the source items of entries: of those that are gone, no other page reads what they contributed."""
        self.refresher.sources(dict.fromkeys(self._sources(items)), self._deadline)

    def _unlink(self, items: Sequence[Image]) -> None:
        """Delete links of rules that are no embeds of several parents now. The functions that wrote them have ended."""
        lists = {name for name, rule in self._program.embeds.items() if isinstance(rule, ListEmbedRule)}
        for item in items:
            rule = rule_of_link(item)
            if rule is None or rule in lists:
                continue
            link = Delete(ItemKey(LEDGER, item["pk"]["S"], item["sk"]["S"]), purpose=Purpose("link", (rule,)))
            try:
                self._deadline.retry(partial(self._store.write, link))
            except Transient as error:
                self.refresher.failed[item["child"]["S"]] = str(error)

    def _sources(self, items: Sequence[Image]) -> list[ItemKey]:
        """Return the keys of the items of entries, except for empty entries that expire."""
        keys = []
        for item in items:
            partition = item["pk"]["S"]
            if not partition.startswith("E|"):
                continue
            if item.get("contributions", {}).get("S", "{}") == "{}" and "recent" not in item and "ttl" in item:
                continue
            text = item["key"]["S"] if "key" in item else partition[2:]
            try:
                key = decode_key(text)
            except ValueError as error:
                self.refresher.rejected[Rejected(None, f"the key of a ledger entry cannot be read: {error}", text)] = (
                    None
                )
                continue
            if key.table in self._program.tables:  # otherwise its outcome is unknown
                keys.append(key)
        return keys

    def _create(self, items: Sequence[Image]) -> None:
        """Refresh items that rules create and that do not exist or are not recognised; the phase `targets` reads others."""
        wanted = [target for target in _groups(items) if self._creates(target)]
        keys = {target: decode_key(target[1]) for target in wanted}
        there = self._store.get_many(list(dict.fromkeys(keys.values())))
        self._publish_targets([target for target, key in keys.items() if not self._is_there(target, key, there)])

    def _forget_scores(self, items: Sequence[Image]) -> None:
        """Remove the settled scores of ranks whose digits changed: if they change back, these scores must not count again.

        All entries have left such a group by now. One that has not keeps it as it is, and `verify` reports the entry.
        """
        for target in _groups(items) if not self._dry else ():
            rule = self._program.recorded.get(target[0])
            if rule is None or rule.counts_in(target[1]):
                continue
            key = group_key(*target)
            parts = [part for part in parts_of(self._store, key.partition) if CLOSED not in part]
            group = sum_group(0, parts)
            if group.damaged or any(group.live.values()):
                continue
            why = Purpose("rebuild", (rule.name,), target[1])
            writes = [
                Update(
                    ItemKey(LEDGER, key.partition, part["sk"]["S"]),
                    remove=tuple(name for name in part if is_amount(name) and name != "version"),
                    condition=Equal(("version",), part["version"]),
                    purpose=why,
                )
                for part in parts
                if "version" in part and any(is_amount(name) and name != "version" for name in part)
            ]
            try:
                if writes:
                    self._deadline.retry(partial(self._store.transact, writes))
            except (Transient, TransactionCancelled) as error:
                self.refresher.failed[target[1]] = str(error)

    def _is_there(self, target: Target, key: ItemKey, images: Mapping[ItemKey, Image]) -> bool:
        item = self._program.recognise(key, images[key]) if key in images else None
        return item is not None and item.entity is self._program.rules[target[0]].into

    def _creates(self, target: Target) -> bool:
        rule = self._program.rules.get(target[0])
        return rule is not None and creates(rule)

    def _publish(self, images: Mapping[ItemKey, Image]) -> None:
        into = self._program.ledger_rules_into
        targets: list[Target] = []
        for key, image in images.items():
            try:
                item: Item | None = self._program.recognise(key, image)
            except Exception as error:
                self.refresher.rejected[rejection(error, encode_key(key))] = None
                continue
            text = encode_key(key)
            if item is not None and item.entity.name in into:
                targets += [(rule.name, text) for rule in into[item.entity.name] if rule.mode != "shadow"]
            targets += [(rule.name, text) for rule in self._strange(image, item)]
        self._publish_targets(targets)

    def _strange(self, image: Image, item: Item | None) -> Sequence[LedgerRule]:
        """Return the rules whose guards are on an item of another kind: publishing removes what they set on it."""
        prefix = self._program.guard_prefix
        names = {name.removeprefix(prefix) for name in image if name.startswith(prefix)}
        return [
            rule
            for entity, rules in self._program.ledger_rules_into.items()
            if names and (item is None or item.entity.name != entity)
            for rule in rules
            if rule.name in names and rule.mode != "shadow"
        ]

    def _publish_targets(self, targets: Sequence[Target]) -> None:
        self.counts["targets"] += len(targets)
        if self._dry:  # the totals of filling rules are not known yet
            filling = [t for t in targets if self._snapshot.state(self._program.rules[t[0]]) == FILLING]
            self.counts["publishable"] += len(filling)
            self.counts["write units"] += len(filling)
        self.refresher.publish(targets, self._deadline)

    def _retire(self, images: Mapping[ItemKey, Image]) -> None:
        past = self._pages.past(self._run.retiring)
        if not past:
            return
        guards = Guards(self._program, self._snapshot.identity)
        withhold = self._store.withhold if not self._run.allow_delete else None
        for key, image in images.items():
            work = partial(retire, past, {key: image}, self._program, self._store, guards, withhold)
            try:
                self.counts.update(self._deadline.retry(work))
            except Misconfigured:
                raise
            except Transient as error:
                self.refresher.failed[encode_key(key)] = str(error)
            except Exception as error:
                self.refresher.rejected[rejection(error, encode_key(key))] = None


def rebuilds(store: Store, run: Run) -> list[rebuild.Note]:
    """Return the rebuilds that a run ends."""
    return [note for note in rebuild.notes(store) if run.replaces in note.before]


def _groups(items: Sequence[Image]) -> list[Target]:
    """Return the groups of which these items are the open first shards."""
    targets = []
    for item in items:
        kind, _, group = item["pk"]["S"].partition("|")
        rule, _, target = group.partition("|")
        if kind == "G" and item["sk"]["S"].endswith("|00") and CLOSED not in item:
            targets.append((rule, item["key"]["S"] if "key" in item else target))
    return targets
