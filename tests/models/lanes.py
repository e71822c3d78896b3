"""Model of counting by lanes: every process may sleep at any call, die, or run on beside its successors, and time passes.

`play(seed)` plays one history and returns what is wrong with it: at its end, or what must never happen on the way. With the
name of a mutant, one rule of the protocol is left out; `test_protocols.py` shows that each of them is needed. Nothing here
imports the engine: it is the protocol alone. What holds for rules in general is in `versions.py`: here it is only as far as
lanes need it.

    ledger      registry · entries · groups of one or two parts, with lanes · marks of shards
    tables      source items, with a stream of shards that split · targets: posts, which show the active version
    processes   functions with batches · tasks of the worker · operators: apply, fill, promote, roll back, recount, refresh

A step is one call of the store. A transaction changes an entry, and the groups of all versions that count with entries.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

POSTS, KEYS, SIDES = "pq", range(3), range(2)
MOST_MOVES = 10_000

RETENTION, FORGOTTEN, MARKS = 24, 25, 72
"""Hours that a stream keeps records, after which a lane is forgotten that has not moved, and for which a mark is kept."""
LIFE, COMMIT, HANDOVER = 4, 1, 3
"""Hours that a function runs at most; in which a refresh commits after it has read the registry; and between the end of a
fill and the first record that lanes count. Clocks of shards are off by an hour, but the times of an item do not fall where
one shard follows another."""
BEGUN = 1
"""`due` of a version that lanes count alone: its table was empty, or no record is left that was counted with entries."""

Steps = Generator[str, None, Any]
Target = tuple[int, str]
"""A version and a post."""


class Item(NamedTuple):
    post: str
    vip: bool


class Document(NamedTuple):
    """What a version means. `parts`: the items over which each group is spread."""

    lanes: bool
    only_vip: bool
    keeps: bool
    parts: int


class Version(NamedTuple):
    """`due`: the hour from which shards are handed over, 0 while the version fills. `streams`: the labels that it knows."""

    document: Document
    state: str
    due: int = 0
    gap: bool = False
    streams: frozenset[int] = frozenset()
    promoted: int = 0


class Registry(NamedTuple):
    epoch: int
    versions: Mapping[int, Version]
    is_finished: bool = True

    @property
    def active(self) -> int:
        return next((v for v, version in self.versions.items() if version.state == "active"), 0)


class Record(NamedTuple):
    """Of a source item. `at`: the hour in which it was made, by the clock of the stream."""

    label: int
    sequence: int
    key: int
    old: Item | None
    new: Item | None
    expired: bool
    at: int
    made: int

    @property
    def version(self) -> tuple[int, int]:
        return self.label, self.sequence


class Entry(NamedTuple):
    """`held` is by version what the item contributes, `kept` what items that expired under its key did."""

    version: tuple[int, int] = (0, 0)
    held: Mapping[int, str] = {}
    kept: Mapping[Target, int] = {}
    epoch: int = 0
    revision: int = 0


class Group(NamedTuple):
    """A part of a group. `lanes`: by label and shard, the last number that was counted, and the hour in which it was."""

    count: int = 0
    version: int = 0
    lanes: Mapping[Any, tuple[int, int]] = {}


class Mark(NamedTuple):
    """The last number of a shard that was to be tried with entries, whether the shard is handed over, and the hour."""

    tried: int = 0
    over: bool = False
    hour: int = 0


class Change(NamedTuple):
    """What records of one item change in its entry.

    `ended`: versions whose part of the entry ends with these records, each with the last record that is in `after`.
    """

    version: tuple[int, int]
    after: Mapping[int, str]
    expired: tuple[tuple[tuple[int, int], Target], ...]
    """With the versions of their records."""
    ended: Mapping[int, tuple[int, int]]


class Part(NamedTuple):
    """What one record changes in a group."""

    sequence: int
    amount: int


class Again(Exception):
    """A process begins anew: the registry, or the mark of a shard, is not as it was read."""


class Harm(Exception):
    """What must never happen."""


class World:
    """The tables, the stream and the processes. `aim` overrides what the seed decides about the kind of history."""

    def __init__(self, seed: int, mutant: str, aim: Mapping[str, Any]) -> None:
        self.rng = rng = random.Random(seed)
        self.mutant, self.hour, self.moves = mutant, 100, 0
        self.settings: dict[str, Any] = {
            "keeps": rng.random() < 0.3,
            "empty": rng.random() < 0.2,
            "filled": 0.7,
            "begins": rng.choice(["lanes", "lanes", "entries"]),
            "lanes": 0.8,
            "sleepy": rng.choice([0.02, 0.06, 0.12]),
            "writes": rng.randrange(6, 40),
            "changes": rng.randrange(1, 6),
            "operators": ["apply"] * 3 + ["promote", "recount", "refresh", "refresh", "clean"],
            "faults": rng.choice([0.0, 0.0, 0.0, 0.03]),
            "events": rng.choice([[], ["horizon"], ["horizon"], ["restart", "horizon"]]),
            "waits": [1, 1, 1, 1, 6, 25, 80],
            "posts": POSTS,
            "keys": KEYS,
            "parts": rng.choice([1, 1, 2]),
            **aim,
        }
        self.items: dict[int, Item] = {}
        self.registry = Registry(0, {})
        self.entries: dict[int, Entry] = {}
        self.groups: dict[tuple[Target, int], Group] = {}
        self.marks: dict[tuple[int, Any], Mark] = {}
        self.posts: dict[str, tuple[int, tuple[int, int]]] = dict.fromkeys(POSTS, (0, (0, 0)))
        """By post the count that is shown, and its guard: promotion and version of the group."""
        self.label, self.sequence = 1, 0
        self.shards: dict[Any, list[Record]] = {}
        self.parents: dict[Any, Any] = {}
        self.home: dict[int, Any] = {}
        self.earliest: dict[int, int] = {}
        self.position: Counter[Any] = Counter()
        for side in SIDES:
            self.open_shard(side)
        self.expired: list[tuple[int, Item]] = []
        """What has expired, and the epoch in which it did."""
        self.tasks: list[tuple[Any, ...]] = []
        self.running: list[Process] = []
        self.is_repaired = True
        self.is_judged = False

    def without(self, rule: str) -> bool:
        return self.mutant == rule

    def contribution(self, document: Document, item: Item | None) -> str | None:
        """Rule: what an item contributes is a matter of the document alone, whatever the package of a function."""
        only_vip = document.only_vip and not (self.without("judge by the document alone") and self.is_judged)
        return item.post if item and (item.vip or not only_vip) else None

    def write(self, key: int, item: Item | None, *, expired: bool = False, is_recorded: bool = True) -> None:
        old = self.items.pop(key, None)
        if item is not None:
            self.items[key] = item
        if old == item:
            return
        if expired and old:
            self.expired.append((self.registry.epoch, old))
        if is_recorded:
            self.sequence += 1
            at = max(self.hour + self.rng.choice([-1, 0, 0, 0, 0, 1]), self.earliest[key % 2])
            record = Record(self.label, self.sequence, key, old, item, expired, at, self.hour)
            self.shards[self.home[key % 2]].append(record)

    def open_shard(self, side: int) -> None:
        """Open a shard that follows the one of this side. A new stream has shards with the names of those before."""
        former = self.home.get(side)
        self.earliest[side] = max([0, *(record.at for record in self.shards.get(former, []))])
        shard = self.label, len(self.shards) if former and former[0] == self.label else side
        self.shards[shard], self.parents[shard], self.home[side] = [], former, shard

    def is_read(self, shard: Any) -> bool:
        return self.position[shard] >= len(self.shards[shard])

    def deliverable(self, shard: Any) -> bool:
        """Whether the next batch of a shard can be delivered: shards before it are read to their end."""
        parents, parent = [], self.parents[shard]
        while parent:
            parents.append(parent)
            parent = self.parents[parent]
        return not self.is_read(shard) and all(map(self.is_read, parents))

    def pending(self) -> list[Record]:
        return [record for shard, records in self.shards.items() for record in records[self.position[shard] :]]


class Process:
    """A function, a task or an operator, with the registry as it read it."""

    def __init__(self, world: World) -> None:
        self.world, self.registry, self.began, self.read_at = world, Registry(0, {}), world.hour, world.hour
        self.steps: Steps
        self.again: Callable[[], None] | None = None
        """Has it delivered again if it dies."""
        self.shard: Any = None
        self.start = self.wakes = 0
        self.is_function = self.is_shardless = False
        self.known = world.registry.versions.keys()
        """The versions that there were when it began: the first that a function does is to read the registry. Fact: Lambda
        delivers later records of a shard when a function has answered, or has run out of time. So it has begun by then."""

    def read(self) -> Steps:
        yield "read the registry"
        self.registry, self.read_at = self.world.registry, self.world.hour

    def versions(self) -> dict[int, Version]:
        """Return the versions to count for."""
        leaves = self.world.without("raise no entry past a newer version")
        return {v: x for v, x in self.registry.versions.items() if v in self.known or not leaves}

    def change(self, change: Callable[[Registry], Registry]) -> Registry:
        """Change the registry: read it, and write it if it is as read, until that succeeds."""
        now = self.world.registry
        then = change(now)
        if then != now:
            self.world.registry = then._replace(epoch=max(now.epoch + 1, *then.versions))
        return self.world.registry

    def change_version(self, number: int, **fields: Any) -> None:
        def change(now: Registry) -> Registry:
            version = now.versions.get(number)
            return _with(now, {number: version._replace(**fields)}) if version else now

        self.change(change)

    def fence(self, entry: Entry | None) -> None:
        if entry and entry.epoch > self.registry.epoch:
            raise Again


def _with(registry: Registry, versions: Mapping[int, Version], gone: Collection[int] = ()) -> Registry:
    versions = {**registry.versions, **versions}
    return registry._replace(versions={v: version for v, version in versions.items() if v not in gone})


# Functions: how a batch is divided


def divide(me: Process, shard: Any, batch: Sequence[Record]) -> Steps:
    """Return, by version that lanes count, the cut of the shard: lanes count later records. None: nothing is counted.

    Rule: a batch without the id of its shard cannot be counted. That is a gap, which is recorded first.
    """
    world, label = me.world, batch[0].label
    versions = {v: version for v, version in me.versions().items() if version.document.lanes}
    if world.without("read documents") and world.rng.random() < 0.3:  # a package that does not know lanes
        return {}
    if me.is_shardless and versions:
        if world.without("a batch without a shard is a gap"):
            return {}
        yield from note_gaps(me)
        return dict.fromkeys(versions)
    new = [v for v, version in versions.items() if label not in version.streams]
    if new:
        yield "note the stream"
        note_stream(me, new, label)
        raise Again
    cuts: dict[int, int | None] = {}
    for v, version in versions.items():
        # Rule: marks are needed as long as there may be records that were tried with entries. Later, none is read.
        if version.due == BEGUN or (version.due and world.hour > version.due + FORGOTTEN + LIFE):
            cuts[v] = 0
    unknown = {v: version for v, version in versions.items() if v not in cuts}
    if not unknown:
        return cuts
    yield "read the marks of the shard"
    marks = {v: read_mark(world, v, shard) for v in unknown}
    for v, version in unknown.items():
        mark = marks[v]
        if not mark.over:
            due = version.due
            early = [r.sequence for r in batch if not due or r.at < due]
            if world.without("wait for the handover") and due:
                early = []
            cut = max([mark.tried, *early])
            late = [r.sequence for r in batch if r.sequence > cut]
            if world.without("marks never fall") and early:
                cut = early[-1]
            # Rule: lanes count nothing before the first record that they count. The records before it may not be marked:
            # functions that did not know the version have processed them, and they may be delivered again. With it, the
            # marks of what is tried are a second safeguard: that mutant leaves out both.
            is_bound = not any(map(world.without, ("cut at the first record by lanes", "mark what is tried")))
            if due and late and is_bound:
                cut = late[0] - 1
            is_marked = due or not world.without("mark what is tried")
            mark = Mark(cut, bool(due and late), world.hour)
            if is_marked:
                yield "write the mark if it is as it was read"
                now = read_mark(world, v, shard)
                is_late = now.over and not marks[v].over and world.without("hand over once")
                if now != marks[v] and not is_late and not world.without("hand over by the mark as read"):
                    raise Again
                world.marks[v, shard] = mark
        if mark.over:
            cuts[v] = 0 if world.without("the mark is the cut") else mark.tried
    return cuts


def read_mark(world: World, version: int, shard: Any) -> Mark:
    kept = 6 if world.without("keep marks") else MARKS
    mark = world.marks.get((version, shard), Mark())
    return mark if world.hour - mark.hour <= kept else Mark()


def note_gaps(me: Process) -> Steps:
    """Note that lanes could not count something. Rule: only a recount clears such a gap."""
    yield "note a gap"
    now = me.registry.versions

    def change(registry: Registry) -> Registry:
        gaps = {v: x._replace(gap=True) for v, x in registry.versions.items() if x.document.lanes and v in now}
        return _with(registry, gaps)

    me.change(change)


def note_stream(me: Process, versions: Iterable[int], label: int) -> None:
    """Rule: another stream than before is a gap."""

    def change(registry: Registry) -> Registry:
        changed = {}
        for v in versions:
            if (version := registry.versions.get(v)) and label not in version.streams:
                gap = bool(version.streams) and not me.world.without("another stream is a gap")
                changed[v] = version._replace(streams=version.streams | {label}, gap=version.gap or gap)
        return _with(registry, changed)

    me.change(change)


# Functions: what a batch changes


def plan(
    me: Process, records: Iterable[Record], cuts: Mapping[int, int | None]
) -> tuple[dict[int, Change], dict[Target, list[Part]]]:
    """Return the changes of entries, by item, and those of groups by lanes.

    Rule: an item's records are one change, and of a version only those up to its cut. A part of an entry whose version has
    ended leaves it at the next write by the stream, without its group.
    """
    world, documents = me.world, {v: version.document for v, version in me.versions().items()}
    changes: dict[int, Change] = {}
    parts: dict[Target, list[Part]] = {}
    for record in records:
        by_lanes = {v: (0, 0) for v, cut in cuts.items() if cut is None or record.sequence > cut}
        before, after = (
            {v: c for v, document in documents.items() if (c := world.contribution(document, item))}
            for item in (record.old, record.new)
        )
        for v in sorted(by_lanes):
            stays = documents[v].keeps and record.expired and not world.without("an expiry changes nothing")
            if cuts[v] is not None and not stays and before.get(v) != after.get(v):
                for each, amount in ((before, -1), (after, 1)):
                    if v in each:
                        parts.setdefault((v, each[v]), []).append(Part(record.sequence, amount))
        before, after = ({v: c for v, c in each.items() if v not in by_lanes} for each in (before, after))
        expired = tuple((record.version, (v, c)) for v, c in before.items() if record.expired and documents[v].keeps)
        if before == after and not expired:
            continue
        change = Change(record.version, after, expired, by_lanes)
        if (first := changes.get(record.key)) and world.without("compact up to the cut"):
            change = change._replace(expired=first.expired + expired)
        elif first:
            last = {v: c for v, c in first.after.items() if v in by_lanes}
            ended = {v: first.ended.get(v, first.version) for v in by_lanes}
            change = Change(record.version, {**after, **last}, first.expired + expired, ended)
        changes[record.key] = change
    return changes, parts


def count_by_lane(me: Process, lane: Any, parts: Mapping[Target, Sequence[Part]]) -> Steps:
    """Count parts, each group by one conditional update. Return the groups as they were answered.

    Rule: the condition is on the first part. If it fails, what is after the lane is counted if the lane is as seen. Also a
    group is written whose parts cancel out, and published whose parts were all counted before.
    """
    world = me.world
    answers: dict[Target, Group] = {}
    order = sorted(parts)
    world.rng.shuffle(order)
    for target in order:
        left, seen = parts[target], None
        at = part_of(me, target[0], lane)
        while left:
            amount = sum(part.amount for part in left)
            if not amount and world.without("write what cancels out"):
                break
            yield "count in the group, on a condition"
            group = world.groups.get((target, at), Group())
            last = group.lanes.get(lane, (0, 0))[0]
            limit = left[-1].sequence if world.without("compare the first part") else left[0].sequence
            is_free = seen is not None and world.without("count the rest if the lane is as seen")
            counts = is_free or (last < limit if seen is None else last == seen)
            if counts:
                lanes = {**group.lanes, lane: (left[-1].sequence, world.hour)}
                group = world.groups[target, at] = Group(group.count + amount, group.version + 1, lanes)
            yield "the answer: the group as it is"
            if counts:
                answers[target] = group
                kept = 12 if world.without("forget lanes after their records") else FORGOTTEN
                stale = {n: moved for n, moved in group.lanes.items() if world.hour - moved[1] > kept}
                if stale:
                    yield "forget lanes that have not moved"
                    group = world.groups[target, at]
                    lanes = {n: moved for n, moved in group.lanes.items() if stale.get(n) != moved}
                    world.groups[target, at] = group._replace(lanes=lanes)
                break
            seen, left = last, [part for part in left if part.sequence > last]
            if not left and not world.without("publish duplicates"):
                answers[target] = group
    return answers


def part_of(me: Process, version: int, lane: Any) -> int:
    """Rule: the lane decides in which part of a group it counts."""
    parts = me.registry.versions[version].document.parts
    return me.world.rng.randrange(parts) if me.world.without("one part for each lane") else hash(lane) % parts


# Entries


def commit(me: Process, key: int, entry: Entry | None, after: Entry, ended: Collection[int] = ()) -> Steps:
    """Make an entry say `after`, with the groups of all versions but those that `ended`. Return whether it was as read."""
    world, old = me.world, entry or Entry()
    amounts: Counter[Target] = Counter(after.held.items())
    amounts.update(after.kept)
    amounts.subtract(old.held.items())
    amounts.subtract(old.kept)
    is_bounded = any(x.document.lanes and not x.due for x in me.registry.versions.values()) and not me.is_function
    yield "transaction"
    # Rule: a refresh whose registry has versions that fill for lanes commits soon after it was read, or not at all.
    if is_bounded and world.hour > me.read_at + COMMIT and not world.without("commit soon"):
        raise Again
    if world.entries.get(key) != entry:
        return False
    for (v, post), amount in amounts.items():
        version = me.registry.versions.get(v)
        if amount and version and v not in ended:
            at = (v, post), world.rng.randrange(version.document.parts)
            group = world.groups.get(at, Group())
            world.groups[at] = group._replace(count=group.count + amount, version=group.version + 1)
    world.entries[key] = after._replace(epoch=me.registry.epoch, revision=old.revision + 1)
    return True


def contribute(me: Process, key: int, change: Change) -> Steps:
    """Commit a change, or find it committed. Return the targets of the entry, before and after."""
    world = me.world
    while True:
        yield "read the entry"
        entry = world.entries.get(key)
        me.fence(entry)
        old = entry or Entry()
        if old.version >= change.version:
            return set(old.held.items())
        kept = Counter(old.kept)
        kept.update(target for at, target in change.expired if at > old.version)
        # Rule: a part that has ended was counted if the entry is as new as the last record in it. It may have left since.
        ended = {v for v, last in change.ended.items() if old.version >= last}
        if world.without("count an ended part once"):
            ended = {v for v, last in change.ended.items() if last == (0, 0)}
        newer = me.registry.versions.keys() - me.versions().keys()
        held = {v: c for v, c in old.held.items() if v in newer} | {
            v: c for v, c in change.after.items() if v not in ended
        }
        if world.without("an ended part leaves without its group"):
            ended = set()
        if (yield from commit(me, key, entry, Entry(change.version, held, dict(kept)), ended)):
            return {*old.held.items(), *held.items()}


def refresh(me: Process, key: int, learned: tuple[int, int] = (0, 0)) -> Steps:
    """Bring an entry up to its item: entry first, then item.

    Rule: from the end of the fill on, the version's part of the entry stays as it is.
    """
    world = me.world
    while True:
        yield "read the entry"
        entry = world.entries.get(key)
        me.fence(entry)
        yield "read the item"
        item, old = world.items.get(key), entry or Entry()
        held: dict[int, str] = {}
        ended = [v for v, x in me.registry.versions.items() if x.document.lanes and x.due]
        if world.without("refreshes leave what lanes count"):
            ended = []
        for v, version in me.registry.versions.items():
            if v in ended:
                contributed = None if world.without("leave the part in the entry") else old.held.get(v)
            elif item is None and version.document.keeps:  # it may have expired
                contributed = old.held.get(v)
            else:
                contributed = world.contribution(version.document, item)
            if contributed:
                held[v] = contributed
        version_now = max(old.version, learned)
        is_right = (held, version_now) == (old.held, old.version) and (not entry or entry.epoch == me.registry.epoch)
        if is_right or (entry is None and not held and not any(learned)):
            return
        if (yield from commit(me, key, entry, old._replace(version=version_now, held=held), ended)):
            return


# Publishing


def publish(me: Process, targets: Iterable[Target], answers: Mapping[Target, Group]) -> Steps:
    """Show groups of the active version on their posts: only what is newer, by promotion and version of the group.

    Rule: the registry is read again after the commits. If it is newer, the work is done anew.
    """
    world, active = me.world, me.registry.active
    if (len(me.registry.versions) > 1 or not active) and not world.without("read the registry after the commits"):
        yield "read the registry with the groups"
        if world.registry.epoch != me.registry.epoch:
            raise Again
    for v, post in sorted(set(targets)):
        if not active or v != active:
            continue
        document, group = me.registry.versions[v].document, answers.get((v, post))
        if group is None or document.parts > 1:
            groups = []
            for part in range(document.parts):
                yield "read a part of the group"
                groups.append(world.groups.get(((v, post), part), Group()))
            group = Group(sum(each.count for each in groups), sum(each.version for each in groups))
        yield "write the post if its guard is older"
        guard = world.posts[post][1]
        promoted = 0 if world.without("order guards by promotion") else me.registry.versions[v].promoted
        if guard[0] > promoted:
            raise Again
        if guard < (promoted, group.version) or world.without("publish what is newer"):
            world.posts[post] = group.count, (promoted, group.version)


def publish_all(me: Process) -> Steps:
    yield from publish(me, [(me.registry.active, post) for post in POSTS], {})


# Processes


def function(me: Process, shard: Any, batch: Sequence[Record]) -> Steps:
    """Process a batch. Acknowledge what is before the first record that failed.

    Rule: a batch is given back if a version was registered since the function began. The records are older than its fill.
    Later ones, which functions have processed that did not know it, have left no entry that shows it. Neither can this one
    go on without the version: an entry with the version of a record makes the record's next delivery a duplicate.
    """
    left_out = ("give back what is older than a version", "raise no entry past a newer version")
    goes_on = any(map(me.world.without, left_out))
    while True:
        yield from me.read()
        if me.registry.versions.keys() - me.known and not goes_on:
            return
        with suppress(Again):
            yield from process_batch(me, shard, batch)
            return


def process_batch(me: Process, shard: Any, batch: Sequence[Record]) -> Steps:
    world, rng = me.world, me.world.rng
    cuts = yield from divide(me, shard, batch)
    documents = {v: version.document for v, version in me.registry.versions.items()}
    done, rejected, trouble = len(batch), -1, ""
    loses = not world.settings["keeps"] and rng.random() < world.settings["faults"]
    if loses:
        rejected = rng.randrange(len(batch))
        world.tasks.append((redrive, batch[rejected].key))
    elif rng.random() < 0.1:
        trouble, done = rng.choice(["record", "entry", "group"]), rng.randrange(len(batch))
    stuck = batch[min(done, len(batch) - 1)]
    # Rule: what follows a record that cannot be processed now must wait: lanes count in order; and with a later record, for
    # which lanes count, the entry would get a version by which the stuck one is a duplicate.
    entries = [r for i, r in enumerate(batch) if i != rejected]
    if trouble == "record":
        is_free = world.without("stop at a record that is stuck")
        entries = [r for r in batch if r.sequence < stuck.sequence or (is_free and r != stuck)]
    changes, parts = plan(me, entries, cuts)
    if trouble == "record" and is_free:
        parts = plan(me, [r for r in entries if r.sequence < stuck.sequence], cuts)[1]
    if trouble == "record" and world.without("count in order"):
        parts = plan(me, [r for r in batch if r != stuck], cuts)[1]
    if trouble == "group" and parts:
        target = rng.choice(sorted(parts))
        first = parts.pop(target)[0].sequence
        done = next(i for i, r in enumerate(batch) if r.sequence == first)
    elif trouble == "group":
        done = len(batch)
    touched: set[Target] = set()
    for key, change in changes.items():
        if trouble == "entry" and key == stuck.key:
            done = min(i for i, r in enumerate(batch) if r.key == key)
        elif may_be_left(me, change) and rng.random() < 0.2:
            yield "send a task"
            world.tasks.append((refresh_later, key, change.version))
        else:
            touched |= yield from contribute(me, key, change)
            of_item = [item for r in entries if r.key == key for item in (r.old, r.new)]
            touched |= {(v, c) for v, d in documents.items() for item in of_item if (c := world.contribution(d, item))}
    # Rule: before what follows is counted. Otherwise the record is a duplicate when it is delivered again, and not rejected.
    if rejected >= 0 and not world.without("note gaps before counting on"):
        yield from note_gaps(me)
    answers = yield from count_by_lane(me, shard, parts)
    yield from publish(me, touched | answers.keys(), answers)
    if rejected >= 0 and world.without("note gaps before counting on"):
        yield from note_gaps(me)
    yield "acknowledge"
    if me.shard:
        world.position[me.shard] = me.start + done
        me.shard = None


def may_be_left(me: Process, change: Change) -> bool:
    """Rule: no change of a version that lanes will count is left to a task: after the fill, a refresh leaves it alone."""
    documents = {v: version.document for v, version in me.registry.versions.items()}
    is_left = me.world.without("leave nothing to tasks")
    counted = [v for v, d in documents.items() if d.lanes and change.ended.get(v) != (0, 0)]
    ended = [v for v in counted if me.registry.versions[v].due]
    return not any(d.keeps for d in documents.values()) and not (ended if is_left else counted)


def refresh_later(me: Process, key: int, learned: tuple[int, int] = (0, 0)) -> Steps:
    """A task, or an operator: refresh one item."""
    while True:
        yield from me.read()
        with suppress(Again):
            yield from refresh(me, key, learned)
            yield from publish_all(me)
            return


def redrive(me: Process, key: int, discarded: tuple[int, int] = (0, 0)) -> Steps:
    """Correct the entry of an item whose record was rejected, or whose records were discarded: then that is a gap.

    Rule: the entry gets the version of the last of these. A function may be under way with an earlier one.
    """
    while True:
        yield from me.read()
        with suppress(Again):
            if any(discarded) and any(x.document.lanes and x.due for x in me.registry.versions.values()):
                yield from note_gaps(me)
                yield from me.read()
            yield from refresh(me, key, (0, 0) if me.world.without("know what was discarded") else discarded)
            yield from publish_all(me)
            return


def register(me: Process, document: Document | None, state: str = "filling") -> Steps:
    """Register a version, or one with the meaning of the active one. Return its number; 0 if there is nothing to count.

    Rule: it knows the stream at once. If that ends before a batch of it was counted, nothing else shows the gap.
    """
    yield "register"
    world, now = me.world, me.world.registry
    version = now.versions.get(now.active)
    if document is None and version is None:
        return 0
    number = now.epoch + 1
    streams = frozenset() if world.without("know the stream at once") else frozenset({world.label})
    due = BEGUN if state == "active" else 0
    new = Version(document or version.document, state, due, False, streams, number if state == "active" else 0)
    gone = [v for v, each in now.versions.items() if each.state in ("filling", "ready")]
    me.change(lambda registry: _with(registry, {number: new}, gone))
    return number


def fill(me: Process, number: int) -> Steps:
    """Refresh all items and entries by the registry that has the version; then it is ready."""
    for key in KEYS:
        yield from refresh_later(me, key)
    yield "the version is ready"
    version = me.world.registry.versions.get(number)
    if version and version.state == "filling":
        due = me.world.hour + HANDOVER if version.document.lanes else 0
        me.change_version(number, state="ready", due=due)


def promote(me: Process, number: int) -> Steps:
    """Publish a version from now on. Rule: not one with a gap, as the registry is when it is written."""
    yield from me.read()
    read = me.registry.versions.get(number)
    yield "switch"

    def change(now: Registry) -> Registry:
        version = now.versions.get(number)
        is_read = me.world.without("promote without a gap") and read is not None
        checked = read if is_read else version
        if version is None or checked is None or version.state not in ("ready", "standby") or checked.gap:
            return now
        if version.gap:
            raise Harm("a version with a gap is promoted")
        former, gone = now.versions.get(now.active), []
        changed = {number: version._replace(state="active", promoted=now.epoch + 1)}
        if former:
            changed[now.active] = former._replace(state="standby")
            gone = [v for v, each in now.versions.items() if each.state == "standby"]
            gone += [now.active] * former.gap
        return _with(now, changed, [v for v in gone if v != number])._replace(is_finished=False)

    me.change(change)
    yield from finish(me)


def finish(me: Process) -> Steps:
    """Publish all groups of the active version. Whoever finds a promotion that is not finished can finish it."""
    while not me.world.registry.is_finished:
        yield from me.read()
        with suppress(Again):
            yield from publish_all(me)
            yield "the promotion is finished, if it is the last one"
            read = me.registry.active, me.registry.versions[me.registry.active].promoted
            me.change(
                lambda now, read=read: (
                    now._replace(is_finished=True) if (now.active, now.versions[now.active].promoted) == read else now
                )
            )


def apply(me: Process, document: Document | None) -> Steps:
    """Register a version, or recount the active one; fill it and promote it."""
    number = yield from register(me, document)
    if number:
        yield from fill(me, number)
        yield from promote(me, number)


def clean(me: Process) -> Steps:
    """Remove from entries the parts of versions that lanes count alone, and of those that there are no more.

    Rule: that is when no record is left, and no function with one, that was to be counted with entries. Only the entry is
    written, if it is as it was read: no group changes.
    """
    world, left = me.world, 0 if me.world.without("clean up after the last record") else FORGOTTEN + LIFE
    yield "lanes count alone"

    def change(now: Registry) -> Registry:
        due = {v: x for v, x in now.versions.items() if BEGUN < x.due < world.hour - left}
        return _with(now, {v: version._replace(due=BEGUN) for v, version in due.items()})

    registry = me.change(change)

    def stays(number: int) -> bool:
        version = registry.versions.get(number)
        return number > registry.epoch if version is None else version.due != BEGUN

    for key in KEYS:
        is_done = False
        while not is_done:
            yield "read the entry"
            entry = world.entries.get(key)
            held = {v: c for v, c in entry.held.items() if stays(v)} if entry else {}
            kept = {target: n for target, n in entry.kept.items() if stays(target[0])} if entry else {}
            yield "write the entry if it is as it was read"
            is_done = world.entries.get(key) == entry or world.without("clean an entry as it was read")
            if entry and is_done:
                world.entries[key] = entry._replace(held=held, kept=kept, revision=entry.revision + 1)


def backfill(me: Process) -> Steps:
    """Refresh everything: versions that count with entries are right again."""
    for key in KEYS:
        yield from refresh_later(me, key)
    me.world.is_repaired = True


# Histories


def play(
    seed: int, mutant: str = "", trace: Callable[..., None] = lambda *what: None, aim: Mapping[str, Any] = {}
) -> list[str]:
    """Play a history. Return what is wrong with it. `trace` is called with each step."""
    world = World(seed, mutant, aim)
    try:
        begin(world)
        run(world, trace)
        return differences(world)
    except Harm as harm:
        return [str(harm)]


def drain(steps: Steps) -> Any:
    with suppress(StopIteration):
        while True:
            next(steps)


def choose(world: World) -> Document:
    rng = world.rng
    lanes = rng.random() < world.settings["lanes"]
    return Document(lanes, rng.random() < 0.4, world.settings["keeps"], world.settings["parts"])


def begin(world: World) -> None:
    """A table that is empty, whose rule counts by lanes at once; or one with a version that fills, or has filled."""
    document = choose(world)._replace(lanes=world.settings["begins"] == "lanes")
    if world.settings["empty"] and document.lanes:
        drain(register(Process(world), document, "active"))
        return
    for key in KEYS:
        if world.rng.random() < 0.6:
            world.items[key] = item(world)
    if world.rng.random() < world.settings["filled"]:
        drain(apply(Process(world), document))
    else:
        world.running.append(start(world, None, apply, document))


def item(world: World) -> Item:
    return Item(world.rng.choice(world.settings["posts"]), world.rng.random() < 0.7)


def start(world: World, again: Callable[[], None] | None, what: Callable[..., Steps], *arguments: Any) -> Process:
    process = Process(world)
    process.steps, process.again = what(process, *arguments), again
    return process


def run(world: World, trace: Callable[..., None]) -> None:
    """Choose what happens next, until nothing is left to do."""
    rng, settings, running = world.rng, world.settings, world.running
    writes, changes, sleepy = (settings[name] for name in ("writes", "changes", "sleepy"))
    waits, events = 12, list(settings["events"])
    for _ in range(MOST_MOVES):
        world.moves += 1
        moves: list[Any] = [each for each in running if each.wakes <= world.moves] * 3
        moves += ["write"] * min(writes, 2)
        moves += ["operate"] * (changes > 0 and rng.random() < 0.3)
        moves += ["wait"] * (waits > 0 and rng.random() < 0.3)
        moves += ["split"] * (rng.random() < 0.05 and len(world.shards) < 7)
        moves += [event for event in events if rng.random() < 0.1]
        busy = {each.shard for each in running if each.shard}
        moves += [(shard,) for shard in world.shards if shard not in busy and world.deliverable(shard)] * 2
        moves += ["task"] * min(len(world.tasks), 2)
        if not moves and running:
            world.moves = min(each.wakes for each in running)
            continue
        what = rng.choice(moves) if moves else "end"
        if what == "end":
            if (last := close(world)) is None:
                return
            running.append(last)
        elif what == "write":
            writes -= 1
            write(world)
            trace(world.hour, "write", world.items)
        elif what == "operate":
            changes -= 1
            running.append(operate(world))
        elif what == "wait":
            waits -= 1
            hours = rng.choice(settings["waits"])
            world.hour += max(0, min([hours, *(r.made + RETENTION - 1 - world.hour for r in world.pending())]))
            world.is_judged |= hours > 1
            trace(world.hour, "wait")
        elif what == "split":
            world.open_shard(rng.choice(SIDES))
        elif what in ("horizon", "restart"):
            events.remove(what)
            trace(world.hour, what)
            restart(world) if what == "restart" else horizon(world)
        elif what == "task":
            steps, *arguments = task = world.tasks.pop(rng.randrange(len(world.tasks)))
            if rng.random() < 0.15:  # it is delivered again
                world.tasks.append(task)
            running.append(start(world, lambda task=task: world.tasks.append(task), steps, *arguments))
        elif isinstance(what, tuple):
            deliver(world, what[0], trace)
        else:
            step(world, what, sleepy, trace)
    raise Harm("it does not end")


def deliver(world: World, shard: Any, trace: Callable[..., None]) -> None:
    """Start a function with a batch of a shard; or discard the batch."""
    rng, position = world.rng, world.position[shard]
    batch = world.shards[shard][position : position + rng.randrange(1, 6)]
    faults = world.settings["faults"]
    if rng.random() < faults and not world.settings["keeps"]:  # nobody but `versions.py` has expiries that are lost
        world.position[shard] += len(batch)
        world.tasks += [(redrive, key, version) for key, version in {r.key: r.version for r in batch}.items()]
        trace(world.hour, "discard", batch)
        return
    process = Process(world)
    process.steps, process.shard, process.start = function(process, shard, batch), shard, position
    process.is_function, process.is_shardless = True, rng.random() < faults
    world.running.append(process)
    trace(world.hour, process, "receives", shard, batch)


def step(world: World, process: Process, sleepy: float, trace: Callable[..., None]) -> None:
    """Let a process make a step, sleep, or die.

    Rule: a function that is over time does nothing more: AWS refuses requests that were signed too long ago.
    """
    rng, is_over = world.rng, process.is_function and world.hour > process.began + LIFE
    fate = rng.random()
    if (is_over and not world.without("end in time")) or (fate < 0.005 and process.is_function):
        world.running.remove(process)
        trace(world.hour, process, "dies")
    elif fate < 0.005:
        world.running.remove(process)
        trace(world.hour, process, "dies")
        if process.again:
            process.again()
    elif fate < sleepy:
        process.wakes = world.moves + rng.choice([5, 20, 60])
        if process.shard and rng.random() < 0.5:  # it is taken for dead: its batch is delivered again, and it runs on
            process.shard = None
    else:
        try:
            trace(world.hour, process, next(process.steps))
        except StopIteration:
            trace(world.hour, process, "ends")
            world.running.remove(process)


def write(world: World) -> None:
    """The application writes, deletes, or lets expire a source item."""
    rng, key = world.rng, world.rng.choice(world.settings["keys"])
    if key in world.items and rng.random() < 0.35:
        world.write(key, None, expired=rng.random() < (0.7 if world.settings["keeps"] else 0.2))
    else:
        world.write(key, item(world))


def operate(world: World) -> Process:
    rng, what = world.rng, world.rng.choice(world.settings["operators"])
    if what == "apply":
        return start(world, None, apply, choose(world))
    if what == "recount":
        return start(world, None, apply, None)
    if what == "clean":
        return start(world, None, clean)
    if what == "promote":
        return start(world, None, promote, rng.choice(sorted(world.registry.versions) or [0]))
    return start(world, None, refresh_later, rng.choice(KEYS))


def restart(world: World) -> None:
    """The stream is switched off and on: some changes have no record, except where what is gone may have expired."""
    rng, keeps = world.rng, world.settings["keeps"]
    if rng.random() < 0.5 and not keeps:  # what is left of it is not read
        world.position.update({s: len(world.shards[s]) - world.position[s] for s in world.shards})
        for process in world.running:
            process.shard = None
    for key in world.settings["keys"] if not keeps else ():
        if rng.random() < 0.4:
            world.write(key, None if rng.random() < 0.3 else item(world), is_recorded=False)
    world.label += 1
    world.sequence, world.is_repaired = 0, False
    for side in SIDES:
        world.open_shard(side)
    for key in world.settings["keys"]:  # the first records of the new stream show that there is one
        world.write(key, None if key in world.items else item(world))


def horizon(world: World) -> None:
    """The event source mapping is made again: all records that the stream has are delivered again."""
    for process in world.running:
        process.shard = None
    for shard, records in world.shards.items():
        if shard[0] == world.label:
            old = [i for i, r in enumerate(records) if world.hour - r.made >= RETENTION]
            world.position[shard] = min(world.position[shard], len(old))


def close(world: World) -> Process | None:
    """What somebody has to do at last: what `status` names."""
    registry = world.registry
    if not world.is_repaired:
        return start(world, None, backfill)
    if not registry.is_finished:
        return start(world, None, finish)
    if not registry.active or registry.versions[registry.active].gap:
        filling = [v for v, version in registry.versions.items() if version.state != "standby" and not version.gap]
        filling = [v for v in filling if v != registry.active]
        if filling:
            return start(world, None, complete, filling[0])
        return start(world, None, apply, choose(world) if not registry.active else None)
    return None


def complete(me: Process, number: int) -> Steps:
    yield from fill(me, number)
    yield from promote(me, number)


def differences(world: World) -> list[str]:
    """Compare the groups of versions without a gap with the source items, and posts with the active version."""
    wrong, registry = [], world.registry
    for v, version in registry.versions.items():
        if version.gap or version.state == "filling":
            continue
        for post in POSTS:
            document = version.document
            most = sum(world.contribution(document, item) == post for item in world.items.values())
            least = most
            for epoch, expired in world.expired if document.keeps else ():
                if world.contribution(document, expired) == post:
                    most, least = most + 1, least + (epoch >= v)
            count = sum(group.count for (target, _), group in world.groups.items() if target == (v, post))
            shown = world.posts[post][0] if v == registry.active else count
            if not least <= count <= most or shown != count:
                wrong.append(f"{post} of {v}: {count}, shown {shown}, not {least} to {most}")
    return wrong


if __name__ == "__main__":
    import sys

    histories, name = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    bad = [(seed, problems) for seed in range(histories) if (problems := play(seed, name))]
    print(f"{name or 'as it stands'}: {len(bad)} of {histories} histories are wrong")
    for seed, problems in bad[:5]:
        print(seed, problems)
