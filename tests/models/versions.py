"""Model of rule versions in one ledger: every process may sleep at any call, die, or run on beside its successors.

`play(seed)` plays one history and returns what is wrong with it: at its end, or what must never happen on the way. With the
name of a mutant, one rule of the protocol is left out; `test_protocols.py` shows that each of them is needed. Nothing here
imports the engine: it is the protocol alone.

    ledger      registry · documents of versions · entries · groups of two shards · members · value counters
    tables      source items, with attributes of index rules · targets: posts ("a"), items that a rule creates ("A"), copies
    processes   functions with batches, tasks of the worker, records of targets · operators: apply, fill, promote, roll back,
                remove, recount, backfill, repair, collect · readers of ranks

A step is one call of the store. A transaction changes an entry, and the groups, members and counters of all versions.
"""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

POSTS, KEYS, VALUES, SHARDS = "pq", range(4), range(3), range(2)
GROUP_TARGETS = [space + post for space in "aA" for post in POSTS]
COPY_TARGETS = [f"{space}{key}" for space in "cC" for key in KEYS]
MOST_VERSIONS, MOST_MOVES = 5, 10_000
EMPTY = [[0, 0, 0] for _ in SHARDS]

Steps = Generator[str, None, Any]
Contribution = tuple[str, int]
"""A target and a value."""


class Item(NamedTuple):
    post: str
    vip: bool
    value: int


class Document(NamedTuple):
    """What a version means; it never changes. `space`: the key template of targets, or the attribute of an index rule."""

    kind: str
    match: str
    space: str
    shows: tuple[str, ...]
    keeps: bool = False
    newer: bool = False
    """Whether the older package cannot read it."""

    def contribution(self, item: Item | None) -> Contribution | None:
        if item is None or self.match == "none" or (self.match == "vip" and not item.vip):
            return None
        return self.space + item.post, item.value

    def derived(self, item: Item | None) -> Any:
        """The value of a copy or an index attribute."""
        return getattr(item, self.shows[0]) if self.contribution(item) else None

    def is_like(self, other: Document) -> bool:
        """Whether both have the same contributions."""
        return self[:3] == other[:3] and self.keeps == other.keeps


class Version(NamedTuple):
    """`filling`, `ready` or `stale`. `after`: versions with the same contributions when it was registered, oldest first."""

    state: str
    after: tuple[int, ...] = ()


class Rule(NamedTuple):
    """`promoted` is the epoch of the last promotion, which made `active` the version that is published.

    `leaving`: versions whose values targets may still have. The promotion is not finished while there are any.
    """

    versions: Mapping[int, Version]
    active: int
    promoted: int
    leaving: tuple[int, ...] = ()


class Registry(NamedTuple):
    epoch: int
    rules: Mapping[str, Rule]


class Entry(NamedTuple):
    """`held` and `kept` are by version: what the item contributes, and what items that expired under its key did."""

    sequence: int = 0
    held: Mapping[int, Contribution] = {}
    kept: Mapping[int, Mapping[Contribution, int]] = {}
    expiries: frozenset[int] = frozenset()
    recent: frozenset[str] = frozenset()
    epoch: int = 0
    revision: int = 0


class Guard(NamedTuple):
    """Ordered by promotion and version of the group, or of the source of a copy. `version`: whose values the target has."""

    promoted: int
    at: int
    version: int


class Target(NamedTuple):
    """`made`: a rule created it. `own`: it has attributes of the application."""

    values: Mapping[str, Any]
    guard: Guard | None = None
    made: bool = False
    own: bool = False


class Record(NamedTuple):
    """Of a source item. `old_set` and `new_set` are the attributes that index rules set."""

    sequence: int
    key: int
    old: Item | None
    new: Item | None
    expired: bool
    old_set: Mapping[str, Any]
    new_set: Mapping[str, Any]


class Future(Exception):
    """A guard or an entry of a newer epoch was met."""


class Stop(Exception):
    """A process ends without having done its work.

    Rule: where the registry, read after a guard or an entry, is older than they are, the ledger was restored. A function
    then writes nothing and raises an alarm; only an operator raises the epoch. Of two copies of a ledger with running
    functions, each would raise it above the other for ever.

    Rule: a function whose time is over reads no registry. Its batch is delivered again, perhaps to a function with an older
    registry, which drops records that change nothing by that one; and a fill has read the items since.
    """


class Harm(Exception):
    """What must never happen."""


class Ledger:
    """The ledger table. A process keeps the one that it began with: a restored ledger is another table."""

    def __init__(self) -> None:
        self.registry = Registry(0, {})
        self.documents: dict[int, Document] = {}
        self.entries: dict[int, Entry] = {}
        self.groups: dict[tuple[int, str], list[list[int]]] = {}
        """By version and target, for each shard: contributions, value counters, version."""
        self.members: dict[tuple[int, str], Counter[tuple[int, int, str]]] = {}
        self.counters: dict[tuple[int, str], Counter[int]] = {}
        self.pages: dict[int, set[str]] = {}
        """What the worker has not done yet of a promotion."""
        self.collected: set[int] = set()


class World:
    """The tables, the streams and the processes. `aim` overrides what the seed decides about the kind of history."""

    def __init__(self, seed: int, mutant: str, aim: Mapping[str, Any]) -> None:
        self.rng = rng = random.Random(seed)
        self.mutant, self.clock, self.sequence = mutant, 0, 0
        self.items: dict[int, Item] = {}
        self.set: dict[int, dict[str, Any]] = {key: {} for key in KEYS}
        self.targets: dict[str, Target] = {"a" + post: Target({}) for post in POSTS}
        self.shards: list[list[Record]] = [[], []]
        self.position = [0, 0]
        self.changed: list[tuple[str, Target | None, Target | None]] = []
        """Records of targets that no function has taken yet."""
        self.seen: dict[str, list[Target]] = {}
        self.tasks: list[tuple[Any, ...]] = []
        self.discarded: list[Record] = []
        """Expiries that Lambda discarded, to be redriven: late, and perhaps twice."""
        self.lost: list[Record] = []
        """Discarded expiries that cannot be redriven. `verify --repair` corrects their items at last: DroppedAlarm."""
        self.knows: dict[int, int] = {}
        """By version, the sequence from which on it knows of each expiry; of older ones it may know, too."""
        self.registered: dict[int, int] = {}
        self.cached: Registry | None = None
        self.cached_scan: set[str] = set()
        self.running: list[Process] = []
        self.is_damaged, self.is_repaired = False, True
        self.backup: Ledger | None = None
        self.wanted: dict[str, Document] = {}
        """After the ledger was restored: the documents that were active."""
        self.settings: dict[str, Any] = {
            "ahead": seed % 4 == 2,
            "keeps": rng.random() < 0.4,
            "other": rng.choice(["", "", "copy", "index"]),
            "old": rng.random() < 0.2,
            "restores": rng.random() < 0.2,
            "sleepy": rng.choice([0.02, 0.06, 0.12]),
            "writes": rng.randrange(5, 40),
            "changes": rng.randrange(1, 9),
            "operators": ["apply"] * 3 + ["promote"] * 2 + ["remove", "repair", "recount", "collect", "read"],
            "matches": ["all", "all", "vip", "vip", "none"],
            "posts": POSTS,
            "keys": KEYS,
            "spaces": "aaA",
            "shows": ["count", "distinct", "owner", "top"],
            **aim,
        }
        self.keeps, self.other, self.may_be_old = (self.settings[name] for name in ("keeps", "other", "old"))
        self.may_restore = self.settings["restores"] and not (self.keeps or self.may_be_old or self.other == "index")
        self.ledger = Ledger()

    def without(self, rule: str) -> bool:
        return self.mutant == rule

    def write(self, key: int, item: Item | None, *, expired: bool = False, put: bool = True) -> None:
        """Write a source item, put as a whole or updated."""
        old, old_set = self.items.pop(key, None), self.set[key]
        if item is not None:
            self.items[key] = item
        self.set[key] = {} if put or item is None else old_set
        self.record(key, old, old_set, expired)

    def set_attribute(self, key: int, name: str, value: Any) -> None:
        old_set = self.set[key]
        self.set[key] = {n: v for n, v in {**old_set, name: value}.items() if v is not None}
        self.record(key, self.items.get(key), old_set)

    def record(self, key: int, old: Item | None, old_set: Mapping[str, Any], expired: bool = False) -> None:
        new, new_set = self.items.get(key), self.set[key]
        if (old, old_set) != (new, new_set):
            self.sequence += 1
            self.shards[key % 2].append(Record(self.sequence, key, old, new, expired, old_set, new_set))

    def show(self, name: str, target: Target | None, by: Process | None = None) -> None:
        """Write a target, by a rule or by the application."""
        before = self.targets.pop(name, None)
        met, guard = before and before.guard, target and target.guard
        if target is not None:
            self.targets[name] = target
            self.seen.setdefault(name, []).append(target)
        if before != target:
            self.changed.append((name, before, target))
        if by and before and (before.own and target is None):
            raise Harm(f"{name}: an item of the application is deleted")
        if by and met and guard and guard.promoted < met.promoted:
            raise Harm(f"{name}: {guard} replaces the newer {met}")
        if by and met and guard and met.version != guard.version and guard.promoted == met.promoted:
            raise Harm(f"{name}: {guard} replaces {met} without a promotion")
        if by and guard and by.registry.rules["copy" if name in COPY_TARGETS else "group"].active != guard.version:
            raise Harm(f"{name}: {guard} is not of the version that was active for its writer")


class Process:
    """A function, a worker or an operator: its ledger, its package, and the registry as it read it."""

    def __init__(self, world: World, package: str = "new") -> None:
        self.world, self.ledger, self.package = world, world.ledger, package
        self.registry = Registry(0, {})
        self.met = {"entry": 0, "group": 0, "copy": 0}
        """The newest epoch of an entry, and the newest promotions of guards, that it met."""
        self.known: dict[tuple[int, str, int], int] = {}
        self.read_before: dict[tuple[int, str], list[list[int]]] = {}
        self.left: dict[tuple[int, str], list[list[int]]] = {}
        """Groups as they were read before a commit, and as it left them."""
        self.steps: Steps
        self.again: Callable[[], None] | None = None
        """Has it delivered again if it dies; None for an operator."""
        self.shard: int | None = None
        self.size = self.wakes = 0
        self.is_over = False

    def read(self) -> Steps:
        """Read the registry, and documents that are new to this process.

        Rule: who cannot read a document marks its version as stale before it commits anything without that version. Nothing
        is taken over from a stale version, nor from one that was stale and is removed since.
        """
        world = self.world
        while True:
            yield "read the registry"
            self.registry = self.ledger.registry
            newest = {"entry": self.registry.epoch} | {
                kind: rule.promoted for kind, rule in self.registry.rules.items()
            }
            if self.is_over or any(epoch > newest.get(kind, epoch) for kind, epoch in self.met.items()):
                raise Stop
            stale = (
                {v for v in self.registry.rules["group"].versions if not self.reads(v)} if self.registry.rules else {}
            )
            if all(self.state(v) == "stale" for v in stale) or world.without("mark stale versions"):
                return
            rule = self.registry.rules["group"]
            prunes = not world.without("take nothing over from stale versions")
            versions = {
                v: Version("stale" if v in stale else state, tuple(u for u in after if not prunes or u not in stale))
                for v, (state, after) in rule.versions.items()
            }
            yield "mark versions as stale"
            if self.change("group", lambda epoch, rule=rule, versions=versions: rule._replace(versions=versions)):
                for v in versions:
                    if self.state(v) == "filling" and not versions[v].after:
                        world.knows[v] = world.registered[v]

    def reads(self, version: int) -> bool:
        return self.package == "new" or not self.ledger.documents[version].newer

    def state(self, version: int) -> str:
        return self.registry.rules["group"].versions.get(version, Version("")).state

    def active(self, kind: str) -> Document:
        return self.ledger.documents[self.registry.rules[kind].active]

    def maintained(self) -> dict[int, Document]:
        """The versions of the group rule that this process can read, oldest first."""
        return {v: self.ledger.documents[v] for v in sorted(self.registry.rules["group"].versions) if self.reads(v)}

    def change(self, kind: str, rule: Callable[[int], Rule]) -> int:
        """Change a rule in the registry. Return the new epoch; 0 if the registry is not as read.

        Rule: each change is conditional on the epoch as read, and raises it: to the clock's seconds, or by one. So a ledger
        that was restored gets epochs, and numbers of versions, that the lost time cannot have used.
        """
        now, world = self.ledger.registry, self.world
        if now.epoch != self.registry.epoch and not world.without("change the registry as read"):
            return 0
        epoch = now.epoch + 1 if world.without("epochs by the clock") else max(now.epoch + 1, world.clock)
        self.ledger.registry = self.registry = Registry(epoch, {**self.registry.rules, kind: rule(epoch)})
        return epoch

    def fence(self, entry: Entry | None) -> None:
        """Rule: who meets an entry of a newer epoch, or a guard of a newer promotion, begins anew by the registry."""
        if entry and entry.epoch > self.registry.epoch and not self.world.without("fence of entries"):
            self.met["entry"] = entry.epoch
            raise Future

    def fence_guard(self, kind: str, guard: Guard | None) -> None:
        fenced = not self.world.without("fence of guards" if kind == "group" else "fence of copies")
        if guard and guard.promoted > self.registry.rules[kind].promoted and fenced:
            self.met[kind] = guard.promoted
            raise Future


# Contributions


def goal(me: Process, entry: Entry | None, item: Item | None, expired: Item | None, gone: str = "") -> Any:
    """What an entry is to hold and to keep. `gone`: how an item disappeared: `deleted`, `expired`, or `unknown`."""
    world, documents, versions = me.world, me.maintained(), me.registry.rules["group"].versions
    entry = entry or Entry()
    held = {v: c for v, document in documents.items() if (c := document.contribution(item))}
    kept = {v: dict(pieces) for v, pieces in entry.kept.items()}
    if gone != "deleted":  # of versions that this process cannot read, everything stays
        held |= {v: c for v, c in entry.held.items() if v in versions and v not in documents}
    keeping = [v for v, document in documents.items() if document.keeps]
    # Rule: a version takes over what versions with equal contributions keep, also those that are removed since. First all
    # take over, then the expiry is added: else it would be taken over, and added once more.
    for v in keeping if not world.without("take over what is kept") else ():
        like = [kept[u] for u in versions[v].after if u in kept]
        if v not in kept and like:
            kept[v] = dict(like[0])
        if (
            world.without("take over before an expiry is added")
            and expired
            and (c := documents[v].contribution(expired))
        ):
            kept.setdefault(v, {})[c] = kept.get(v, {}).get(c, 0) + 1
    for v in keeping:
        if expired and not any(map(world.without, ("keep what expired", "take over before an expiry is added"))):
            kept.setdefault(v, {})
            if c := documents[v].contribution(expired):
                kept[v][c] = kept[v].get(c, 0) + 1
        # Rule: of an item that is gone, nobody knows how, everything stays, and a new version takes it over.
        if gone == "unknown" and not world.without("leave what is gone"):
            like = [entry.held[u] for u in (v, *versions[v].after) if u in entry.held]
            held |= dict.fromkeys([v][: len(like)], like[0] if like else ("", 0))
    return held, {v: pieces for v, pieces in kept.items() if v in versions}


def pieces(entry: Entry) -> Counter[tuple[int, str, int, str]]:
    amounts: Counter[Any] = Counter({(v, *c, "live"): 1 for v, c in entry.held.items()})
    amounts.update({(v, *c, "kept"): n for v, each in entry.kept.items() for c, n in each.items()})
    return amounts


def commit(me: Process, key: int, entry: Entry | None, after: Entry, *, at_once: bool = False) -> Steps:
    """Make an entry say `after`, with groups, members and counters of all versions. Return whether it was as read."""
    ledger, versions = me.ledger, me.registry.rules["group"].versions
    difference = pieces(after)
    difference.subtract(pieces(entry or Entry()))
    # Rule: contributions of versions that are removed leave the entry and touch no group.
    changes = {piece: n for piece, n in sorted(difference.items()) if n and piece[0] in versions}
    # Rule: a target that is left under one version is recent, also if it is held under another.
    left = {t for (v, t, _, _), n in changes.items() if n < 0 and t != after.held.get(v, ("",))[0]}
    if me.world.without("recent targets by version"):
        left -= {t for t, _ in after.held.values()}
    revision = entry.revision + 1 if entry else 1
    after = after._replace(recent=after.recent | left, epoch=me.registry.epoch, revision=revision)
    counted: Counter[tuple[int, str, int]] = Counter()
    for (v, target, value, _), n in changes.items():
        counted[v, target, value] += n
    while True:
        if not at_once:
            yield "transaction"
        at_once = False
        if ledger.entries.get(key) != entry:
            return False
        edges, is_wrong = Counter[tuple[int, str]](), False
        for (v, target, value), n in counted.items():
            there = ledger.counters.get((v, target), Counter())[value]
            assumed = me.known.get((v, target, value), 0 if n > 0 else 99)
            edge = (assumed + n > 0) - (assumed > 0)
            edges[v, target] += edge
            is_wrong |= edge != (there + n > 0) - (there > 0)
            me.known[v, target, value] = there
        if is_wrong and not me.world.without("counters as assumed"):
            continue
        # Rule: groups that were read before are as read. Else the transaction is sent again, whatever they are then.
        read, me.read_before, touched = me.read_before, {}, {(v, target) for v, target, _, _ in changes}
        is_wrong = any(at in touched and ledger.groups.get(at, EMPTY) != group for at, group in read.items())
        if is_wrong and not me.world.without("groups as read"):
            continue
        shard = me.world.rng.choice(SHARDS)
        for (v, target, value, which), n in changes.items():
            ledger.groups.setdefault((v, target), [[0, 0, 0] for _ in SHARDS])[shard][0] += n
            ledger.members.setdefault((v, target), Counter())[key, value, which] += n
        for at in touched:
            ledger.groups[at][shard][1] += edges[at]
            ledger.groups[at][shard][2] += 1
            if at in read:
                added = sum(n for (v, target, _, _), n in changes.items() if (v, target) == at)
                me.left[at] = [*read[at], [added, edges[at], 1]]
        for (v, target, value), n in counted.items():
            ledger.counters.setdefault((v, target), Counter())[value] += n
            me.known[v, target, value] += n
        ledger.entries[key] = after
        return True


def contribute(me: Process, record: Record, done: dict[int, Entry]) -> Steps:
    """Commit what a record changes, or find it committed. Add the entry to `done`, as it is then."""
    world, key, documents = me.world, record.key, me.maintained()
    alike = [document.contribution(record.old) == document.contribution(record.new) for document in documents.values()]
    if all(alike) and not record.expired:
        return
    keeps = record.expired and any(document.keeps for document in documents.values())
    while True:
        predicts = world.rng.random() < 0.3 and not record.expired
        yield "transaction as the old image predicts" if predicts else "read the entry"
        entry = me.ledger.entries.get(key)
        me.fence(entry)
        old = entry or Entry()
        is_late = entry is not None and old.sequence >= record.sequence
        is_kept = record.sequence in old.expiries and not world.without("note expiries")
        expired = record.old if keeps and not is_kept else None
        if old.sequence > record.sequence and not expired:
            break
        held, kept = goal(me, entry, record.new, expired, "" if record.new else "expired" if keeps else "deleted")
        if is_late:  # the entry is of this record or a later one, or a refresh has read the item since
            held = {v: c for v, c in old.held.items() if v in me.registry.rules["group"].versions}
        if predicts and entry and (is_late or old.held != goal(me, None, record.old, None)[0]):
            continue  # the prediction was wrong: the cancelled transaction returns the entry
        if predicts:
            kept = dict(old.kept)  # an update that sets the contributions knows nothing else of the entry
        # Rule: a duplicate takes over what a new version lacks. A function with an older registry may have committed item
        # and expiry after the fill had passed; it reads the registry after that, and meets its own duplicates.
        if (
            is_late
            and not expired
            and ((held, kept) == (old.held, old.kept) or world.without("take over at duplicates"))
        ):
            break
        # Rule: an entry is left, even if nothing contributes: to a scan that has read the item before, none means unchanged.
        if entry is None and not (held or kept) and world.without("leave an entry"):
            return
        expiries = old.expiries | {record.sequence} if record.expired else old.expiries
        after = Entry(max(record.sequence, old.sequence), held, kept, expiries, old.recent)
        if (yield from commit(me, key, entry, after, at_once=predicts)):
            break
    if key in me.ledger.entries:
        done[key] = me.ledger.entries[key]


def read_ahead(me: Process, batch: list[Record]) -> Steps:
    """Read the groups of a lone record with the registry. If its transaction finds them so, none has to be read after it."""
    me.read_before, me.left = {}, {}
    if len(batch) == 1 and me.world.settings["ahead"]:
        yield "read groups with the registry"
        contributions = {(v, d.contribution(item)) for v, d in me.maintained().items() for item in batch[0][2:4]}
        ats = {(v, c[0]) for v, c in contributions if c}
        me.read_before = {at: copy.deepcopy(me.ledger.groups.get(at, EMPTY)) for at in ats}


def refresh(me: Process, key: int, done: dict[int, Entry], learned: int = 0, gone: str = "unknown") -> Steps:
    """Bring an entry up to its item: entry first, then item. A scan reads the item first: enough if there is no entry."""
    scans = me.world.rng.random() < 0.5
    while True:
        if scans:
            yield "scan the item"
            item = me.world.items.get(key)
        yield "read the entry"
        entry = me.ledger.entries.get(key)
        me.fence(entry)
        if not scans or entry is not None:
            yield "read the item"
            item = me.world.items.get(key)
        scans, old = False, entry or Entry()
        held, kept = goal(me, entry, item, None, "" if item else gone)
        sequence = max(learned, old.sequence)
        if entry is None and not held and not learned:
            return
        if (held, kept, sequence) == (old.held, old.kept, old.sequence) or (
            yield from commit(me, key, entry, old._replace(sequence=sequence, held=held, kept=kept))
        ):
            done[key] = me.ledger.entries[key]
            return


def redrive(me: Process, record: Record) -> Steps:
    """Count an expiry that Lambda discarded: once. Rule: of the record only the old image is used; the item is read."""
    key = record.key
    while True:
        yield from me.read()
        with suppress(Future):
            yield "read the entry"
            entry = me.ledger.entries.get(key)
            me.fence(entry)
            yield "read the item"
            item, old = me.world.items.get(key), entry or Entry()
            if record.sequence not in old.expiries:
                gone = "" if item else "unknown" if old.sequence > record.sequence else "expired"
                held, kept = goal(me, entry, item, record.old, gone)
                sequence, expiries = max(old.sequence, record.sequence), old.expiries | {record.sequence}
                if not (yield from commit(me, key, entry, Entry(sequence, held, kept, expiries, old.recent))):
                    continue
            yield from publish_committed(me, {key: me.ledger.entries[key]})
            return


# Publishing


def read_group(me: Process, version: int, name: str) -> Steps:
    """Return contributions, value counters, version and members of a group. The members are read after the version."""
    left = me.read_before if me.world.without("publish groups as commits left them") else me.left
    shards: list[Any] = list(left.get((version, name), []))
    members: Mapping[Any, int] = {}
    parts = ("members", *SHARDS) if me.world.without("members after the group") else (*SHARDS, "members")
    for part in ["members"] if shards else parts:
        yield f"read the group: {part}"
        if part == "members":
            members = dict(me.ledger.members.get((version, name), {}))
        else:
            shards.append(tuple(me.ledger.groups.get((version, name), [(0, 0, 0)] * 2)[part]))
    return *(sum(column) for column in zip(*shards, strict=True)), members


def shown(document: Document, count: int, values: int, members: Mapping[tuple[int, int, str], int]) -> dict[str, Any]:
    """What a target shows of its group."""
    ranked = sorted((value for (_, value, _), n in members.items() for _ in range(n)), reverse=True)
    owner = min(((key, value) for (key, value, _), n in members.items() if n > 0), default=(0, None))[1]
    every = {"count": count, "distinct": values, "top": tuple(ranked[:2]), "owner": owner}
    return {name: every[name] for name in document.shows if every[name] is not None}


def publish(me: Process, name: str, *, heals: bool = False) -> Steps:
    """Show the group of the active version on a target.

    Rule: a publish replaces an older guard. A heal, which reads the guard before the group, replaces any guard that is as
    read. Neither replaces one of a newer promotion. Guards are ordered by promotion, then by version of the group.
    """
    world, rule, documents = me.world, me.registry.rules["group"], me.ledger.documents
    version = max(rule.versions) if world.without("publish the active version") else rule.active
    if not me.reads(version):
        return
    read: Any = None
    while True:
        if heals:
            yield "read the target"
            read = world.targets.get(name)
        count, values, at, members = yield from read_group(me, version, name)
        yield "write the target on a condition"
        target = world.targets.get(name)
        met = target.guard if target else None
        me.fence_guard("group", met)
        if heals and (met, target is None) != (read.guard if read else None, read is None):
            continue
        if not heals and met and met[:2] >= (rule.promoted, at):
            return
        is_target = name[0] == documents[version].space
        wanted = shown(documents[version], count, values, members) if is_target else {}
        guard = Guard(rule.promoted, at, version)
        if target is None:
            if is_target and count > 0 and name[0] == "A":
                world.show(name, Target(wanted, guard, made=True), me)
            return
        if not is_target and met is None:
            return
        # Rule: what the version of the guard has set goes with the first publish by a later promotion, and not before. Its
        # document stays when the version is removed: late writers, and the application, may still bring back what it set.
        known = {version} if met is None else {version, met.version}
        if world.without("documents stay"):
            known &= {version, *rule.versions}
        if world.without("clear what the old version has set"):
            known = {version}
        owned = {attribute for v in known if v in documents for attribute in documents[v].shows}
        others = {attribute: value for attribute, value in target.values.items() if attribute not in owned}
        if is_target and (count > 0 or name[0] == "a"):
            world.show(name, target._replace(values={**others, **wanted}, guard=guard), me)
        elif target.made and not target.own:
            world.show(name, None, me)
        else:
            world.show(name, target._replace(values=others, guard=None), me)
        return


def publish_committed(me: Process, done: Mapping[int, Entry], *, heals: bool = False) -> Steps:
    """Publish what entries name, then forget their pending publishes.

    Rule: by a registry that was read after the commits (in the request that reads the groups). If it is newer, the work is
    done anew: the promotion that it shows may have scanned before a group was first committed.
    """
    if not me.world.without("read the registry after the commit"):
        yield "read the registry with the groups"
        if me.is_over:
            raise Stop
        if me.ledger.registry.epoch != me.registry.epoch:
            raise Future
    version = me.registry.rules["group"].active
    names: set[str] = set()
    for entry in done.values():
        names |= entry.recent | {t for t, _ in entry.kept.get(version, {})} | {entry.held.get(version, ("",))[0]}
    for name in sorted(names - {""}):
        yield from publish(me, name, heals=heals)
    for key, entry in done.items():
        if entry.recent:
            yield "forget pending publishes if the entry is as it was before the publish"
            if me.ledger.entries.get(key) == entry:
                me.ledger.entries[key] = entry._replace(recent=frozenset(), revision=entry.revision + 1)


# Copies and attributes: no entry, no group


def write_copy(me: Process, record: Record) -> Steps:
    """Bring the copy of a source to its newest image. Its guard has the version of the source.

    Rule: who meets a guard of an older promotion heals by the source, instead of writing by its record.
    """
    world, rule, document = me.world, me.registry.rules["copy"], me.active("copy")
    name, value = f"{document.space}{record.key}", document.derived(record.new)
    if document.derived(record.old) == value:
        return
    yield "write the copy on a condition"
    target = world.targets.get(name)
    met = target.guard if target else None
    me.fence_guard("copy", met)
    if met and (met.promoted < rule.promoted or met.at >= record.sequence):
        yield from heal_copy(me, name)
    elif value is not None:
        guard = Guard(rule.promoted, record.sequence, rule.active)
        world.show(name, Target({document.shows[0]: value}, guard, made=True), me)
    elif met:
        world.show(name, None, me)


def heal_copy(me: Process, name: str) -> Steps:
    """Bring a copy to its source: guard first, then the source, and once more after it was created."""
    world, rule, document = me.world, me.registry.rules["copy"], me.active("copy")
    while True:
        yield "read the copy"
        read = world.targets.get(name)
        yield "read the source"
        value = document.derived(world.items.get(int(name[1:]))) if name[0] == document.space else None
        yield "write the copy if its guard is as read"
        target = world.targets.get(name)
        met = target.guard if target else None
        me.fence_guard("copy", met)
        if (met, target is None) != (read.guard if read else None, read is None):
            continue
        guard = Guard(rule.promoted, met.at if met else 0, rule.active)
        wanted = Target({document.shows[0]: value}, guard, made=True) if value is not None else None
        if target != wanted:
            world.show(name, wanted, me)
        if target is not None or wanted is None:
            return


def set_attributes(me: Process, key: int, record: Record | None = None) -> Steps:
    """Set the attribute of an index or compute rule on the source item, by a record of it or as it is read.

    There is no guard. Each write is conditional on what was read, and has a record, which a function with a newer registry
    corrects. Rule: the attributes of all versions that the registry knows are the rule's, and those of former versions are
    removed. They are the application's when the former version is removed, 7 days later.
    """
    world, rule, document = me.world, me.registry.rules["index"], me.active("index")
    if record is None:
        yield "read the item"
    item, before = (record.new, record.new_set) if record else (world.items.get(key), world.set[key])
    if item is None:
        return
    if before.get(document.space) != document.derived(item):
        yield "set the attribute if the item is as read"
        if world.items.get(key) == item:
            world.set_attribute(key, document.space, document.derived(item))
    for former in {me.ledger.documents[v].space for v in rule.versions} - {document.space}:
        if former in before and not world.without("remove attributes of former versions"):
            yield "remove the attribute of a former version if it is as read"
            if world.set[key].get(former) == before[former]:
                world.set_attribute(key, former, None)


# Functions and worker


def function(me: Process, batch: Iterable[Record]) -> Steps:
    """Process a batch. Rule: the registry is read after the batch was received."""
    world = me.world
    cached = world.cached if world.without("read the registry after the batch") and me.ledger is world.ledger else None
    while True:
        if cached:
            cached, me.registry = None, cached
        else:
            yield from me.read()
        world.cached = me.registry if me.ledger is world.ledger else world.cached
        # Rule: no change is left to a task while any version keeps what expires, or cannot be read.
        documents = me.maintained()
        keeps = any(document.keeps for document in documents.values())
        may_defer = len(documents) == len(me.registry.rules["group"].versions) and not keeps
        with suppress(Future):
            done: dict[int, Entry] = {}
            yield from read_ahead(me, batch)
            for record in batch:
                if (may_defer or world.without("defer nothing that is kept")) and world.rng.random() < 0.2:
                    yield "send a task"
                    world.tasks.append((refresh_later, record.key, record.sequence, record.new is None))
                else:
                    yield from contribute(me, record, done)
            yield from publish_committed(me, done)
            for record in batch:
                if world.other == "copy":
                    yield from write_copy(me, record)
                elif world.other == "index":
                    yield from set_attributes(me, record.key, record)
            return


def refresh_later(me: Process, key: int, sequence: int, is_gone: bool) -> Steps:
    """A task, which a queue delivers late, and perhaps again: bring an entry up to its item."""
    while True:
        yield from me.read()
        with suppress(Future):
            done: dict[int, Entry] = {}
            yield from refresh(me, key, done, sequence, "deleted" if is_gone else "unknown")
            yield from publish_committed(me, done, heals=True)
            return


def heal(me: Process, name: str, before: Target | None, after: Target | None) -> Steps:
    """Process the record of a target."""
    is_copy = name in COPY_TARGETS
    old, new = before and before.guard, after and after.guard
    while True:
        yield from me.read()
        promoted = me.registry.rules["copy" if is_copy else "group"].promoted
        why = (
            before is None
            or (after is None and name[0] != "a")
            or (after is not None and new is None)
            or (old and new and new[:2] < old[:2])
            or (old == new and after is not None and before.values != after.values)
            or (old is None and name[0] != "a")
            or (is_copy and old and new and old.at == 0 < new.at)
            # Rule: a target that shows an older promotion than the registry is healed: a late write by an old registry.
            or (new and new.promoted < promoted and not me.world.without("heal older promotions"))
        )
        if not why:
            return
        with suppress(Future):
            yield from heal_copy(me, name) if is_copy else publish(me, name, heals=True)
            return


def reader(me: Process) -> Steps:
    """Read ranks, which only the ledger has. Rule: read the registry again after the rows: is the version still there?"""
    while True:
        yield "read the registry"
        version = me.ledger.registry.rules["group"].active
        for name in GROUP_TARGETS:
            yield f"read rows of {name}"
        yield "read the registry again"
        is_there = version in me.ledger.registry.rules["group"].versions
        if is_there or me.world.without("read the registry after the ranks"):
            if version in me.ledger.collected:
                raise Harm("ranks of a version that was collected meanwhile")
            return


# Operators


def register(me: Process, document: Document) -> Steps:
    """Register a version. Its number is the epoch: never used again. Return the number; 0 if there are too many."""
    world, documents, kind = me.world, me.ledger.documents, document.kind
    while True:
        yield from me.read()
        rule = me.registry.rules.get(kind, Rule({}, 0, 0))
        like = [
            v for v in sorted(rule.versions) if documents[v].is_like(document) and rule.versions[v].state != "stale"
        ]
        if len(rule.versions) == MOST_VERSIONS:
            return 0
        at_once = kind != "group" or not rule.versions
        state = "ready" if at_once or world.without("fill before the version is ready") else "filling"
        new = rule._replace(versions={**rule.versions, 0: Version(state, tuple(like))})
        yield "register"
        number = me.change(kind, lambda epoch, new=new, at_once=at_once: numbered(new, epoch, at_once))
        if number:
            documents[number] = document
            world.registered[number] = world.sequence + 1
            world.knows[number] = min((world.knows[v] for v in like), default=world.sequence + 1)
            return number


def numbered(rule: Rule, number: int, at_once: bool) -> Rule:
    """The rule with its new version under a number. Copies and attributes are switched at once."""
    rule = rule._replace(versions={v or number: version for v, version in rule.versions.items()})
    return switched(rule, number, number) if at_once else rule


def switched(rule: Rule, number: int, epoch: int) -> Rule:
    leaving = (*rule.leaving, rule.active) if rule.active else ()
    return rule._replace(active=number, promoted=epoch, leaving=leaving)


def fill(me: Process, number: int) -> Steps:
    """Refresh the items, and the entries of items that are gone; then the version is ready.

    Rule: at once, without waiting. A batch that a function still holds by the old registry was written before the
    registration, so the scan sees at least what it says.
    """
    key = 0
    while True:
        yield from me.read()
        if me.state(number) != "filling":
            return
        with suppress(Future):
            while key in KEYS:
                done: dict[int, Entry] = {}
                if key in me.world.items or key in me.ledger.entries:
                    yield from refresh(me, key, done)
                    yield from publish_committed(me, done, heals=True)
                key += 1
            yield "the version is ready, if it is still filling"
            rule = me.registry.rules["group"]
            versions = {**rule.versions, number: rule.versions[number]._replace(state="ready")}
            if me.change("group", lambda epoch, rule=rule, versions=versions: rule._replace(versions=versions)):
                return


def promote(me: Process, number: int, queue: bool = False) -> Steps:
    """Make a version that is ready the active one, and publish it. To roll back is to promote the one before."""
    while True:
        yield from me.read()
        rule = me.registry.rules["group"]
        if me.state(number) != "ready":
            return
        if me.world.without("scan after the switch"):
            me.world.cached_scan = {name for _, name in me.ledger.groups}
        if rule.active == number:
            break
        yield "switch"
        if me.change("group", lambda epoch, rule=rule: switched(rule, number, epoch)):
            break
    yield from finish(me, queue=queue)


def finish(me: Process, kind: str = "group", queue: bool = False) -> Steps:
    """Finish a promotion: publish all groups of the rule, and targets that show other zeros than this version.

    Of copies and attributes: bring all sources up to date, then targets with a guard of an older promotion.

    Rule: whoever finds a promotion that is not finished can finish it. It is finished when one pass over all targets by the
    registry of that promotion is complete.
    """
    world = me.world
    while True:
        yield from me.read()
        rule = me.registry.rules[kind]
        if not rule.leaving or not me.reads(rule.active):
            return
        if queue:
            yield "send the pages of the promotion"
            me.ledger.pages[rule.promoted] = set(GROUP_TARGETS)
            world.tasks += [(page, rule.promoted, name) for name in GROUP_TARGETS]
            if world.without("finish when all pages are done"):
                yield from finished(me, kind, rule.promoted)
            return
        with suppress(Future):
            for name in GROUP_TARGETS if kind == "group" else ():
                yield from scan(me, name)
            for key in KEYS if kind == "copy" else ():
                yield "scan the source"
                if key in world.items:
                    yield from heal_copy(me, f"{me.active(kind).space}{key}")
            for name in COPY_TARGETS if kind == "copy" and not world.without("scan the copies") else ():
                yield "scan a copy"
                if (target := world.targets.get(name)) and target.guard and target.guard.promoted < rule.promoted:
                    yield from heal_copy(me, name)
            for key in KEYS if kind == "index" else ():
                yield from set_attributes(me, key)
            if (yield from finished(me, kind, rule.promoted)):
                return


def scan(me: Process, name: str) -> Steps:
    """Find whether a target has a group, of any version, or shows zeros that change, and publish it."""
    rule, documents = me.registry.rules["group"], me.ledger.documents
    yield "scan a page of the ledger"
    is_found = any((v, name) in me.ledger.groups for v in documents)
    if me.world.without("scan after the switch"):
        is_found = name in me.world.cached_scan
    zeros = {documents[v][2:4] if v in documents else () for v in (rule.active, *rule.leaving)}
    if len(zeros) > 1 and not is_found and not me.world.without("scan the targets"):
        yield "scan a page of the targets"
        is_found = name in me.world.targets
    if is_found:
        yield from publish(me, name, heals=True)


def page(me: Process, promoted: int, name: str) -> Steps:
    """A task: a page of a promotion. Rule: who cannot read the document of the active version leaves the page undone."""
    while True:
        yield from me.read()
        rule = me.registry.rules["group"]
        is_readable = me.reads(rule.active) or me.world.without("leave pages undone")
        if rule.promoted != promoted or not is_readable:
            return
        with suppress(Future):
            yield from scan(me, name)
            yield "note that the page is done"
            pages = me.ledger.pages.get(promoted, set())
            pages.discard(name)
            if not pages:
                yield from finished(me, "group", promoted)
            return


def finished(me: Process, kind: str, promoted: int) -> Steps:
    """Note that a promotion is finished, if it is still the last one. Return False if the registry has changed."""
    yield from me.read()
    rule = me.registry.rules[kind]
    if rule.promoted != promoted and not me.world.without("finish the promotion that was begun"):
        return False
    yield "the promotion is finished"
    return bool(me.change(kind, lambda epoch: rule._replace(leaving=())))


def remove(me: Process, number: int, kind: str = "group") -> Steps:
    """Remove a version. Rule: not the active one, and none whose values targets may still have."""
    yield from me.read()
    rule = me.registry.rules[kind]
    is_leaving = number in rule.leaving and not me.world.without("remove no version that is leaving")
    if number in rule.versions and number != rule.active and not is_leaving:
        yield "remove"
        versions = {v: version for v, version in rule.versions.items() if v != number}
        me.change(kind, lambda epoch: rule._replace(versions=versions))


def collect(me: Process) -> Steps:
    """Delete groups of removed versions. Rule: of numbers that are not in the registry, and not of its future."""
    yield from me.read()
    for name in GROUP_TARGETS:
        yield "scan a page of the ledger, and delete rows"
        for v in [v for v, target in me.ledger.groups if target == name]:
            is_past = v < me.registry.epoch or me.world.without("collect nothing of the future")
            if v not in me.registry.rules["group"].versions and is_past:
                me.ledger.collected.add(v)
                for rows in (me.ledger.groups, me.ledger.members, me.ledger.counters):
                    rows.pop((v, name), None)


def apply(me: Process, document: Document, hold: bool = False, queue: bool = False) -> Steps:
    """Register a changed rule, fill its version and promote it. Copies and attributes are switched at once, then filled."""
    number = yield from register(me, document)
    if number and document.kind != "group":
        yield from finish(me, document.kind)
    elif number:
        yield from fill(me, number)
        if not hold:
            yield from promote(me, number, queue)


def recount(me: Process, mends: bool = False) -> Steps:
    """Fill a new version of the same meaning, compare it with the active one, and promote or remove it."""
    yield from me.read()
    active = me.registry.rules["group"].active
    number = yield from register(me, me.ledger.documents[active])
    if number:
        yield from fill(me, number)
        is_wrong = me.state(active) == "stale"
        for name in GROUP_TARGETS:
            yield "read two groups in one transaction"
            a, b = (sum(shard[0] for shard in me.ledger.groups.get((v, name), [[0]])) for v in (active, number))
            is_wrong |= a != b
        yield from (promote if is_wrong else remove)(me, number)
        me.world.is_damaged &= not mends


def backfill(me: Process) -> Steps:
    """After the ledger was restored: promote all active versions anew, refresh all entries, publish all targets.

    Rule: a restored ledger gets a newer epoch than the lost time first. Whatever that time published is older then.
    """
    yield from me.read()
    for kind in sorted(me.registry.rules):
        while not me.world.without("promote restored versions anew"):
            yield "promote the active version anew"
            rule = me.registry.rules[kind]
            leaving = (*rule.leaving, 0)
            if me.change(kind, lambda epoch, rule=rule, new=leaving: rule._replace(promoted=epoch, leaving=new)):
                break
            yield from me.read()
    yield from repair(me, *KEYS)
    for kind in sorted(me.registry.rules):
        yield from finish(me, kind)


def repair(me: Process, *keys: int) -> Steps:
    for key in keys:
        yield from refresh_later(me, key, 0, False)
    me.world.is_repaired |= len(keys) > 1


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


def drain(steps: Steps) -> None:
    for _ in steps:
        pass


def choose(world: World, kind: str = "group") -> Document:
    """A document of a rule that changes."""
    rng, match = world.rng, world.rng.choice(world.settings["matches"])
    if kind != "group":
        return Document(kind, match, rng.choice("cC"), (rng.choice(["post", "value"]),))
    shows = world.settings["shows"]
    shows = tuple(sorted(rng.sample(shows, min(len(shows), rng.randrange(1, 4)))))
    match = "all" if match == "vip" and world.keeps else match
    newer = world.may_be_old and rng.random() < 0.4
    space, other = rng.choice(world.settings["spaces"]), rng.random() < 0.03
    # a rule that keeps what is gone keeps what was deleted in the time that a restored ledger has lost
    return Document(kind, match, space, shows, world.keeps != (other and not world.settings["restores"]), newer)


def begin(world: World) -> None:
    rng = world.rng
    drain(register(Process(world), choose(world)._replace(newer=False)))
    if world.other:
        drain(register(Process(world), choose(world, world.other)))
    for key in KEYS:
        if rng.random() < 0.5:
            write(world, key)
            drain(function(Process(world), world.shards[key % 2][-1:]))
    for name, target in list(world.targets.items()):
        drain(heal(Process(world), name, None, target))
    world.position = [len(shard) for shard in world.shards]
    world.clock = world.ledger.registry.epoch


def run(world: World, trace: Callable[..., None]) -> None:
    """Choose what happens next, until nothing is left to do."""
    rng, running, busy = world.rng, world.running, dict[int, Process]()
    writes, changes, sleepy = (world.settings[name] for name in ("writes", "changes", "sleepy"))
    for _ in range(MOST_MOVES):
        world.clock += 1
        moves: list[Any] = [each for each in running if each.wakes <= world.clock] * 3
        moves += ["write"] * min(writes, 3) + ["touch"] * (writes > 0 and rng.random() < 0.15)
        moves += ["operate"] * (changes > 0 and rng.random() < 0.5)
        moves += [s for s in (0, 1) if s not in busy and world.position[s] < len(world.shards[s])] * 2
        moves += ["record"] * min(len(world.changed), 2) + ["task"] * min(len(world.tasks), 2)
        moves += ["redrive"] * (len(world.discarded) > 0 and rng.random() < 0.1)
        if not moves and running:
            world.clock = min(each.wakes for each in running)
            continue
        what = rng.choice(moves) if moves else "end"
        if what == "end":
            if (last := close(world)) is None:
                return
            running.append(last)
        elif what == "write":
            writes -= 1
            write(world, rng.choice(world.settings["keys"]))
        elif what == "touch":
            writes -= 1
            touch(world, rng.choice(GROUP_TARGETS + COPY_TARGETS * (world.other == "copy")))
        elif what == "operate":
            changes -= 1
            running.append(operate(world))
        elif what in ("record", "task", "redrive"):
            queue: list[Any] = {"record": world.changed, "task": world.tasks, "redrive": world.discarded}[what]
            message = queue.pop(0 if what == "record" else rng.randrange(len(queue)))
            queue += [message] * (what != "record" and rng.random() < 0.15)  # it is delivered again
            steps = {"record": heal, "redrive": redrive}.get(what)
            arguments = (message,) if what == "redrive" else message
            again = lambda queue=queue, message=message: queue.append(message)  # noqa: E731
            running.append(start(world, again, *((steps,) if steps else ()), *arguments))
        elif isinstance(what, int):
            shard, position = world.shards[what], world.position[what]
            if shard[position].expired and world.other != "copy" and rng.random() < 0.1:
                world.position[what] += 1  # Lambda discards the record
                (world.discarded if rng.random() < 0.7 else world.lost).append(shard[position])
                continue
            batch = shard[position : position + rng.randrange(1, 4)]
            busy[what] = each = start(world, lambda: None, function, batch)
            each.shard, each.size = what, len(batch)
            running.append(each)
        elif (fate := rng.random()) < sleepy:
            what.wakes = world.clock + rng.choice([10, 50, 200])
            if (
                what.shard is not None and rng.random() < 0.5
            ):  # its time is over, its batch is delivered again; it runs on
                del busy[what.shard]
                what.shard = None
                what.is_over = not world.without("no registry when the time is over")
        elif fate < sleepy + 0.005:  # it dies
            running.remove(what)
            if what.shard is not None:
                del busy[what.shard]
            elif what.again:
                what.again()
            else:
                world.is_repaired = False
        else:
            try:
                trace(world.clock, what, next(what.steps))
            except (StopIteration, Stop) as end:
                trace(world.clock, what, type(end).__name__)
                running.remove(what)
                if what.shard is not None:
                    world.position[what.shard] += what.size
                    del busy[what.shard]
    raise Harm("it does not end")


def start(world: World, again: Callable[[], None] | None, what: Callable[..., Steps], *arguments: Any) -> Process:
    is_old = again is not None and world.may_be_old and world.rng.random() < 0.3
    process = Process(world, "old" if is_old else "new")
    process.steps, process.again = what(process, *arguments), again
    return process


def operate(world: World) -> Process:
    """What an operator may do."""
    rng = world.rng
    kind = world.other if world.other and rng.random() < 0.4 else "group"
    rule = world.ledger.registry.rules[kind]
    number = rng.choice(sorted(rule.versions))
    what = rng.choice(world.settings["operators"])
    is_quiet = not world.running and world.position == [len(shard) for shard in world.shards]
    if world.may_restore and rng.random() < 0.2:
        restore(world)
    elif what == "apply":
        return start(world, None, apply, choose(world, kind), rng.random() < 0.3, rng.random() < 0.3)
    elif what == "promote" and kind == "group":
        return start(world, None, promote, number, rng.random() < 0.3)
    elif what == "remove" and (kind != "index" or is_quiet):
        return start(world, None, remove, number, kind)
    elif what == "recount":
        name = rng.choice(GROUP_TARGETS)
        if rng.random() < 0.5 and kind == "group" and (rule.active, name) in world.ledger.groups:
            world.ledger.groups[rule.active, name][0][0] += 1  # the ledger is damaged
            world.is_damaged = True
        return start(world, None, recount)
    elif what in ("collect", "read"):
        return start(world, None, collect if what == "collect" else reader)
    return start(world, None, repair, rng.choice(KEYS))


def restore(world: World) -> None:
    """Back up the ledger, or restore it as another table: functions with the lost one run on, its operators do not."""
    if world.backup is None:
        world.backup = copy.deepcopy(world.ledger)
        return
    rules = world.ledger.registry.rules
    world.wanted = {kind: world.ledger.documents[rule.active] for kind, rule in rules.items()}
    world.ledger = copy.deepcopy(world.backup)
    world.running[:] = [each for each in world.running if each.again]
    world.is_repaired, world.may_restore, world.cached = False, False, None


def close(world: World) -> Process | None:
    """What somebody has to do at last: what `status` names."""
    rules, documents = world.ledger.registry.rules, world.ledger.documents
    if not world.is_repaired:
        return start(world, None, *((backfill,) if world.backup else (repair, *KEYS)))
    for kind, document in sorted(world.wanted.items()):
        del world.wanted[kind]
        if documents[rules[kind].active] != document:
            return start(world, None, apply, document)
    if world.discarded:
        return start(world, None, redrive, world.discarded.pop())
    if world.lost:
        return start(world, None, repair, world.lost.pop().key)
    world.may_be_old = False
    for kind in sorted(rules):
        if rules[kind].leaving:
            return start(world, None, finish, kind)
    versions, active = rules["group"].versions, rules["group"].active
    if world.is_damaged or versions[active].state == "stale":
        if len(versions) == MOST_VERSIONS:
            return start(world, None, remove, min(v for v in versions if v != active))
        return start(world, None, recount, True)
    return None


def write(world: World, key: int) -> None:
    """The application writes, deletes, or lets expire a source item."""
    rng = world.rng
    if key in world.items and rng.random() < 0.4:
        world.write(key, None, expired=world.keeps and rng.random() < 0.7)
    else:
        item = Item(rng.choice(world.settings["posts"]), rng.random() < 0.5, rng.choice(VALUES))
        world.write(key, item, put=rng.random() < 0.5)


def touch(world: World, name: str) -> None:
    """The application deletes a target, creates it, or puts back what it read some time ago."""
    rng, target = world.rng, world.targets.get(name)
    if target is None:
        if name in GROUP_TARGETS:
            world.show(name, Target({}, own=True))
    elif rng.random() < 0.4 and world.seen.get(name):
        world.show(name, rng.choice(world.seen[name]))
    elif rng.random() < 0.5:
        world.show(name, None)
    elif name in GROUP_TARGETS:
        world.show(name, target._replace(own=True))


def differences(world: World) -> list[str]:
    """Compare what tables show with what the source items say, by the documents of the active versions."""
    rules, documents = world.ledger.registry.rules, world.ledger.documents
    wrong = [problem for name in GROUP_TARGETS if (problem := wrong_group(world, name))]
    document = documents[rules[world.other or "group"].active]
    for name in COPY_TARGETS if world.other == "copy" else ():
        value = document.derived(world.items.get(int(name[1:]))) if name[0] == document.space else None
        target = world.targets.get(name)
        if (target.values if target else None) != ({document.shows[0]: value} if value is not None else None):
            wrong.append(f"{name} shows {target}, not {value}")
    for key, item in world.items.items() if world.other == "index" else ():
        value = document.derived(item)
        if world.set[key] != ({document.space: value} if value is not None else {}):
            wrong.append(f"item {key} has {world.set[key]}, not {document.space}={value}")
    for number in set(rules["group"].versions) - {rules["group"].active}:
        drain(remove(Process(world), number))
    drain(collect(Process(world)))
    rows = {v for v, _ in world.ledger.groups} - {rules["group"].active}
    return wrong + [f"rows of removed versions: {rows}"] * bool(rows)


def wrong_group(world: World, name: str) -> str:
    """What is wrong with a target of the group rule."""
    active = world.ledger.registry.rules["group"].active
    document, members, unsure = world.ledger.documents[active], Counter[tuple[int, int, str]](), 0
    for key, item in world.items.items():
        if (c := document.contribution(item)) and c[0] == name:
            members[key, c[1], "live"] += 1
    records = [record for shard in world.shards for record in shard]
    for record in records:
        c = document.contribution(record.old)
        if not record.expired or not document.keeps or c is None or c[0] != name:
            continue
        is_lost = record.sequence not in world.ledger.entries.get(record.key, Entry()).expiries
        if is_lost and any(r.key == record.key and r.sequence > record.sequence for r in records):
            continue  # the application has written the item again: nobody knows of the one before
        members[record.key, c[1], "kept"] += 1
        unsure += record.sequence < world.knows[active] or (is_lost and world.knows[active] > 1)
    count, target = members.total(), world.targets.get(name)
    values = dict(target.values) if target else {}
    if world.backup:  # versions that only the lost ledger knew have set attributes that nobody knows
        values = {n: v for n, v in values.items() if n in document.shows}
    if unsure:
        is_right = "count" not in values or count - unsure <= values["count"] <= count
        return "" if is_right else f"{name} shows {values}, not {count - unsure} to {count}"
    is_target = name[0] == document.space and (name[0] == "a" or count > 0)
    expected = shown(document, count, len({value for _, value, _ in members}), members) if is_target else {}
    if target is None:
        return f"{name} is missing: {expected}" if name[0] == "A" and expected else ""
    if values != expected or (name[0] != document.space and target.guard):
        return f"{name} shows {target}, not {expected}"
    return f"{name} was not deleted" if name[0] == "A" and not is_target and target.made and not target.own else ""


if __name__ == "__main__":
    import sys

    histories, name = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""
    bad = [(seed, problems) for seed in range(histories) if (problems := play(seed, name))]
    print(f"{name or 'as it stands'}: {len(bad)} of {histories} histories are wrong")
    for seed, problems in bad[:5]:
        print(seed, problems)
