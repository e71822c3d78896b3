"""The registry: which versions of rules there are, and their states. One item of the ledger, read in every invocation.

    pk   sk             what
    R    .              the epoch, the ledger's identity, and of each rule the next number and its versions
    R    rule|<id>      the document of a version: the rule with its entities and tables, in canonical form

Functions run what the registry says, not what their package contains: the packaged rules only begin an empty registry. A
version is a rule's name and a number that is never used again, such as `likes.3`.

    filling   maintained: contributions are recorded, nothing is published, and not everything has contributed
    ready     maintained and complete, not published: it is held, or about to be promoted
    active    published; at most one of a rule
    standby   maintained, and published before: a roll back promotes it
    leaving   neither; what it wrote on items is still to be removed
    gone      was published, and is removed; for a day, so are values that a late function with an older registry writes
    stale     neither: a function could not read its document, because its package is older. Its values stay as they are

Every change raises the epoch, at least to the seconds since 1970: so a ledger that is restored from a backup never gets
an epoch that it had before. Entries carry the epoch of their writer, and guards of groups the epoch of the version's last
promotion. *A function that finds an entry of a newer epoch, or a guard of a newer promotion, reads the registry again and
does the work anew* (`Reload`).

Copies, index attributes, embeds and compute record nothing. A new version of them is active at once, and the old one leaves.

The prefix of guards cannot change while there are rules: guards and marks with another prefix would count as attributes of
the application, so that nothing would remove them, and no item that has them.
"""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache, partial
from string import ascii_lowercase, digits
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from projections.engine.guards import Identity, new_secret
from projections.engine.ledger_items import LEDGER
from projections.engine.running import MOST_TRIES, Reload
from projections.engine.store import Condition, Equal, Missing, Purpose, Store, Update, Write, all_items
from projections.errors import ConditionFailed, Misconfigured, ProjectionsError, TransactionCancelled, Transient
from projections.language.keys import Image, ItemKey, Value
from projections.language.program import Program
from projections.language.rules import AggregateRule, Rule, public_name, version_name

_ALL_RULES = Purpose("registry")

State: TypeAlias = Literal["filling", "ready", "active", "standby", "leaving", "gone", "stale"]

MAINTAINED: frozenset[State] = frozenset(("filling", "ready", "active", "standby"))
"""The states of versions whose contributions are recorded."""

REGISTRY = ItemKey(LEDGER, "R", ".")

_AT_ONCE = 90
"""Documents that one transaction writes with the registry; DynamoDB allows 100 actions."""

HANDOVER_SECONDS = 3600
"""How long after the end of a fill the records were made that lanes count: the fill has not seen what they say.

A refresh begins at most 15 minutes after its process has read the registry, commits within 5 more (`entry_refresh`), AWS
refuses requests that were signed more than 15 minutes ago, and clocks differ: https://docs.aws.amazon.com/IAM/latest/UserGuide/signature-v4-troubleshooting.html
"""

GAP_TODO = "Correct the cause, then run `projections apply` with the rule: it fills a new version"
"""What to do about a gap of a version that is not published."""

_LONGEST_GAP = 200
"""Characters of the reason of a gap."""

_LATE_SECONDS = 24 * 3600
"""How long a version that was replaced is known, so that values that late functions write are removed: they end sooner."""

_BETWEEN_COPIES = 300
"""Seconds in which the promotion of a rule is raised at most once because of guards."""

_UNREADABLE = (KeyError, TypeError, ValueError, StopIteration, AssertionError, ProjectionsError)
"""Errors in compiling a document that has constructs of a newer package."""


def document_key(version: str) -> ItemKey:
    """Return the key of the document of a version."""
    return ItemKey(LEDGER, "R", f"rule|{version}")


@lru_cache(maxsize=1024)
def _parse_document(text: str) -> Mapping[str, Any]:
    """Return a document. Equal texts are one object: the registries of a process read the same ones."""
    return cast(Mapping[str, Any], json.loads(text))


def new_identity() -> Identity:
    """Return the identity of a new ledger: an id of 4 lower-case letters and digits, and a secret."""
    return Identity("".join(secrets.choice(ascii_lowercase + digits) for _ in range(4)), (new_secret(),))


class Version(NamedTuple):
    """A version of a rule in the registry."""

    rule: str
    number: int
    fingerprint: str
    state: State
    recorded: bool
    """Whether the ledger records its contributions: then it can be maintained without being published."""
    since: int
    """The epoch in which it was registered."""
    promoted: int = 0
    """The epoch of its last promotion; 0 if it was never published."""
    changed: int = 0
    """The second since 1970 when it got its state."""
    place: int = 0
    """The position of the rule in the file that registered it."""
    held: bool = False
    """Whether its rule file declares that it is not to be published (`hold`)."""
    unfinished: bool = False
    """Whether targets may show another version: its promotion has not been carried out everywhere."""
    doubted: bool = False
    """Whether it was to be counted again, because its groups may be wrong: another version has to replace it."""
    overtaken: int = 0
    """The second since 1970 when its promotion was raised, because a guard showed one that the ledger has lost."""
    lanes: int | None = None
    """Of a rule with `ledger: lanes`: the second since 1970 from which shards of the stream are handed over to lanes
    (`engine.lanes`); 0 while it fills, 1 if lanes count alone, 2 if entries may have a part of it all the same."""
    gap: str = ""
    """Why its groups may be wrong since something was not counted by lanes. Only a recount clears it."""
    streams: frozenset[str] = frozenset()
    """The streams that it is counted from by lanes, each as its table and label."""

    @property
    def replaced_by_apply(self) -> bool:
        """Whether its groups may be wrong, and a new version of the same meaning is to be filled."""
        return self.doubted or (bool(self.gap) and self.state != "active")

    @property
    def lanes_count_alone(self) -> bool:
        """Whether no record is left that entries count: nothing was counted before, or long ago."""
        return self.lanes in (1, 2)

    @property
    def name(self) -> str:
        """The name of the version, `likes.3`."""
        return version_name(self.rule, self.number)

    @property
    def maintained(self) -> bool:
        """Whether functions work with it."""
        return self.state in MAINTAINED

    @classmethod
    def read(cls, rule: str, number: str, fields: Mapping[str, Value]) -> Version:
        """Read a version of a rule from the registry's item."""
        values: dict[str, Any] = {name: _number(fields, letter) for letter, name in _NUMBERS.items()}
        values |= {name: letter in fields for letter, name in _FLAGS.items()}
        values["lanes"] = _number(fields, "l") if "l" in fields else None
        values["gap"] = fields["g"]["S"] if "g" in fields else ""
        values["streams"] = frozenset(fields["a"]["SS"]) if "a" in fields else frozenset()
        return cls(rule, int(number), fields["f"]["S"], fields["s"]["S"], **values)

    def wire(self) -> Value:
        """Return it as a value of the registry's item."""
        fields: dict[str, Value] = {"f": {"S": self.fingerprint}, "s": {"S": self.state}}
        fields |= {field: {"N": str(number)} for field, name in _NUMBERS.items() if (number := getattr(self, name))}
        fields |= {field: {"BOOL": True} for field, name in _FLAGS.items() if getattr(self, name)}
        if self.lanes is not None:
            fields["l"] = {"N": str(self.lanes)}
        if self.gap:
            fields["g"] = {"S": self.gap}
        if self.streams:
            fields["a"] = {"SS": sorted(self.streams)}
        return {"M": fields}


_NUMBERS = {"e": "since", "p": "promoted", "t": "changed", "i": "place", "o": "overtaken"}
_FLAGS = {"r": "recorded", "h": "held", "u": "unfinished", "d": "doubted"}
"""How versions are stored: the fields that are numbers, absent if 0, and those that are absent if false."""


def _number(fields: Mapping[str, Value], name: str) -> int:
    return int(Decimal(fields[name]["N"])) if name in fields else 0


class RegistrySnapshot(NamedTuple):
    """The registry as read. `versions` are by name, `next` has the number of the next version of each rule that ever was."""

    epoch: int
    next: Mapping[str, int]
    versions: Mapping[str, Version]
    identity: Identity = Identity("", ())
    """The ledger's id, which guards name, and the secrets that sign them. The id never changes."""
    prefix: str = ""
    planned: Mapping[str, Mapping[str, Any]] = {}
    """Of a registry that is not written: the documents of its new versions, by name."""

    @property
    def ledger(self) -> str:
        """The ledger's id."""
        return self.identity.ledger

    @classmethod
    def read(cls, item: Image) -> RegistrySnapshot:
        """Read the registry's item."""
        rules = {rule: dict(fields["M"]) for rule, fields in item["rules"]["M"].items()}
        following = {rule: int(Decimal(fields.pop("next")["N"])) for rule, fields in rules.items()}
        versions = [Version.read(rule, each, of[each]["M"]) for rule, of in rules.items() for each in of]
        ordered = sorted(versions, key=lambda version: (version.since, version.place, version.number))
        by_name = {version.name: version for version in ordered}
        return cls(epoch_of(item), following, by_name, Identity.read(item), item["prefix"]["S"])

    @property
    def active(self) -> dict[str, Version]:
        """The published versions, by rule."""
        return {version.rule: version for version in self.versions.values() if version.state == "active"}

    @property
    def maintained(self) -> list[Version]:
        """The versions that functions work with, the oldest first."""
        return [version for version in self.versions.values() if version.maintained]

    @property
    def removed(self) -> frozenset[str]:
        """The rules whose values are removed, or are being removed."""
        rules = {version.rule for version in self.versions.values() if version.state in ("leaving", "gone")}
        published = {version.rule for version in self.maintained if version.promoted}  # if held, its values stay
        return frozenset(rules - published - self.unreadable)

    @property
    def unreadable(self) -> frozenset[str]:
        """The rules whose published version is stale: what it has published stays until another one is published."""
        return frozenset(v.rule for v in self.versions.values() if v.state == "stale" and v.promoted)

    @property
    def stale(self) -> frozenset[str]:
        """The versions that no function works with, because one of them could not read their documents."""
        return frozenset(version.name for version in self.versions.values() if version.state == "stale")

    @property
    def standby(self) -> frozenset[str]:
        """The versions that a roll back publishes. Contributions that they cannot record need no action."""
        return frozenset(version.name for version in self.versions.values() if version.state == "standby")

    @property
    def left_to_lanes(self) -> frozenset[str]:
        """The versions that refreshes leave alone: lanes count what the fill has not seen."""
        return frozenset(version.name for version in self.maintained if version.lanes)

    @property
    def since(self) -> dict[str, int]:
        """By version that functions work with: the epoch in which it was registered."""
        return {version.name: version.since for version in self.maintained}

    def of(self, rule: str) -> list[Version]:
        """Return the versions of a rule, the oldest first."""
        return [version for version in self.versions.values() if version.rule == rule]

    def lacking(self, program: Program) -> list[str]:
        """Return the rules that have published values, and that these rules lack, in the order of their names."""
        return sorted({version.rule for version in self.others(program) if version.promoted})

    def others(self, program: Program) -> list[Version]:
        """Return the versions of rules that these rules lack, except those that leave or have left."""
        others = [v for v in self.versions.values() if v.rule not in program.rules]
        return [version for version in others if version.state not in ("leaving", "gone")]

    def last_published(self, version: Version) -> Version | None:
        """Return the version of a rule that was published last, if it is not this one."""
        published = [other for other in self.of(version.rule) if other.maintained and other.promoted]
        last = max(published, key=lambda other: other.promoted, default=version)
        return last if last.name != version.name else None

    def version(self, rule: Rule) -> Version | None:
        """Return the version of a compiled rule, which has its name, or the name of the rule if it is not recorded."""
        return self.versions.get(rule.name) or self.active.get(rule.name)

    def state(self, rule: Rule) -> State | None:
        """Return the state of a compiled rule of this registry."""
        version = self.version(rule)
        return version.state if version is not None else None

    def publishes(self, rule: Rule) -> bool:
        """Whether a compiled rule of this registry writes to its targets."""
        return self.state(rule) == "active"

    @property
    def promotions(self) -> dict[str, int]:
        """The epoch of the last promotion, by version, and of the published versions also by rule."""
        return {name: version.promoted for name, version in {**self.versions, **self.active}.items()}

    @property
    def replaced(self) -> frozenset[str]:
        """The rules that have a version which was published before, and is not cleared yet, or is on standby."""
        return frozenset(v.rule for v in self.versions.values() if v.state in ("leaving", "standby"))

    def promotion(self, rule: str) -> int:
        """Return the epoch of the last promotion of a version; 0 if it was never published."""
        known = self.versions.get(rule)
        return known.promoted if known is not None else 0

    @property
    def contested(self) -> frozenset[str]:
        """All versions of the rules of which another one may be published meanwhile: it is maintained, or filling."""
        numbers, active = Counter(version.rule for version in self.maintained), self.active
        return frozenset(v.name for v in self.versions.values() if numbers[v.rule] > 1 or v.rule not in active)

    def with_versions(self, epoch: int, *changed: Version, gone: Iterable[str] = ()) -> RegistrySnapshot:
        """Return the registry of a new epoch, with these versions as they are now, and without some."""
        versions = {**self.versions, **{version.name: version for version in changed}}
        for name in gone:
            versions.pop(name, None)
        following = dict(self.next)
        for version in changed:
            following[version.rule] = max(version.number + 1, following.get(version.rule, 1))
        return self._replace(epoch=epoch, versions=versions, next=following)


NO_REGISTRY = RegistrySnapshot(0, {}, {})


def epoch_of(item: Image) -> int:
    """Return the epoch in the registry's item."""
    return _number(item, "epoch")


_Changes: TypeAlias = tuple[list[Version], list[str]]
"""Versions of the registry as they are from now on, and the names of those that it has no longer."""


class Registered(NamedTuple):
    """The outcome of a change: the registry, and by rule the versions of a file's rules, or those to be counted again."""

    snapshot: RegistrySnapshot
    versions: Mapping[str, Version] = {}


class Registry:
    """Reads and changes the registry. `packaged` are the rules that begin an empty one.

    `filled` is whether they are active at once: nothing is in the tables yet. `now` gives seconds since 1970. Methods raise
    Transient and Misconfigured.
    """

    def __init__(
        self, packaged: Program, store: Store, *, filled: bool = True, now: Callable[[], float] = time.time
    ) -> None:
        self._packaged = packaged
        self._store = store
        self._filled = filled
        self._now = now
        self._documents: dict[tuple[str, int], Mapping[str, Any]] = {}
        """By name and epoch: after the ledger was restored, a number may be given again."""
        self._known: tuple[Image, RegistrySnapshot] | None = None
        """The registry's item as it was read last, and what is in it."""
        self._program: tuple[int, str, Program] | None = None
        self.marked: list[str] = []
        """The versions that were marked as stale here, because this code cannot read them."""

    # Reading

    def read(self) -> RegistrySnapshot | None:
        """Return the registry; None if it does not exist."""
        item = self._store.get(REGISTRY)
        return self._snapshot(item) if item is not None else None

    def _snapshot(self, item: Image) -> RegistrySnapshot:
        """Return what is in the registry's item, which is parsed only if it has changed."""
        known = self._known
        if known is None or known[0] != item:
            known = self._known = item, RegistrySnapshot.read(item)
        return known[1]

    def read_or_create(self, item: Image | None = None) -> RegistrySnapshot:
        """Return the registry, and create it from the packaged rules if it does not exist. `item`: as it was just read."""
        numbers: Mapping[str, int] = {}
        for _ in range(MOST_TRIES):
            snapshot = self._snapshot(item) if item is not None else self.read()
            if snapshot is not None:
                return snapshot
            empty = RegistrySnapshot(0, numbers, {}, new_identity(), self._packaged.guard_prefix)
            first, _ = self._after(empty, self._packaged, filled=self._filled)
            if self._put(first, Missing(("pk",)), self._new_texts(empty, first, self._packaged)):
                return first
            numbers = self._numbers()
        raise Transient("the registry keeps appearing and disappearing")

    def _numbers(self) -> dict[str, int]:
        """Return each rule's next number after those of a registry that was lost: their groups may exist."""
        read = partial(self._store.query, LEDGER, [{"S": "R"}], prefix="rule|", attributes=("pk", "sk"))
        names = [item["sk"]["S"].partition("|")[2].rpartition(".") for item in all_items(read)]
        return {rule: int(number) + 1 for rule, _, number in sorted(names, key=lambda name: int(name[2]))}

    def program(self, snapshot: RegistrySnapshot) -> Program:
        """Return the compiled versions that functions work with."""
        known = self._program
        if known is not None and known[:2] == (snapshot.epoch, snapshot.ledger) and not snapshot.planned:
            return known[2]
        stored = self.documents([version for version in snapshot.maintained if version.name not in snapshot.planned])
        documents = {**stored, **snapshot.planned}
        versions = {
            version.name if version.recorded else version.rule: (documents[version.name], version.state == "active")
            for version in snapshot.maintained
        }
        program = Program.assembled(self._packaged, versions)
        if not snapshot.planned:
            self._program = snapshot.epoch, snapshot.ledger, program
        return program

    def current(self, item: Image | None = None) -> tuple[RegistrySnapshot, Program]:
        """Return the registry, and its compiled versions. `item` is that of `read_or_create`.

        Those that this code cannot read are stale from then on: what it commits has no part of them.
        """
        for _ in range(MOST_TRIES):
            snapshot, item = self.read_or_create(item), None
            readable, program = self.readable(snapshot)
            if readable is snapshot:
                return snapshot, program
            self._mark_stale(readable.stale - snapshot.stale)
            self.marked += sorted(readable.stale - snapshot.stale)
        raise Transient("the registry keeps changing")

    def readable(self, snapshot: RegistrySnapshot) -> tuple[RegistrySnapshot, Program]:
        """Return the registry as `current` would record it, unreadable versions as stale, and compiled. Writes nothing."""
        try:
            return snapshot, self.program(snapshot)
        except _UNREADABLE:
            unreadable = self._unreadable(snapshot)
            if not unreadable:
                raise
            stale = (snapshot.versions[name]._replace(state="stale") for name in unreadable)
            readable = snapshot.with_versions(snapshot.epoch, *stale)
            program, self._program = self.program(readable), None  # that is not this epoch's until they are marked
            return readable, program

    def _unreadable(self, snapshot: RegistrySnapshot) -> list[str]:
        """Return the versions that this code cannot compile, alone or with others: an `embed` may need an index rule."""

        def compiles(documents: Mapping[str, Mapping[str, Any]]) -> bool:
            try:
                Program.assembled(self._packaged, {name: (document, True) for name, document in documents.items()})
            except _UNREADABLE:
                return False
            return True

        documents = self.documents(snapshot.maintained)
        alone = {name: document for name, document in documents.items() if compiles({name: document})}
        return [name for name in documents if name not in alone and not compiles({**alone, name: documents[name]})]

    def _mark_stale(self, versions: Iterable[str]) -> None:
        def change(now: RegistrySnapshot) -> _Changes:
            return [self._as(now.versions[name], "stale") for name in versions if name in now.versions], []

        self._change_versions(change)

    def documents(self, versions: Sequence[Version]) -> dict[str, Mapping[str, Any]]:
        """Return the documents of versions by name. Each is read once, unless the package has it. Raises Transient."""
        for version in versions:
            rule = self._packaged.rules.get(version.rule)
            if rule is not None and rule.fingerprint == version.fingerprint:
                self._documents[version.name, version.since] = self._packaged.closed_document(version.rule)
        missing = [version for version in versions if (version.name, version.since) not in self._documents]
        if missing:
            items = self._store.get_many([document_key(version.name) for version in missing])
            for version in missing:
                item = items.get(document_key(version.name))
                if item is None:
                    raise Transient(f"the ledger has no document of {version.name}")
                self._documents[version.name, version.since] = _parse_document(item["document"]["S"])
        return {version.name: self._documents[version.name, version.since] for version in versions}

    def document(self, snapshot: RegistrySnapshot, *, pending: bool = False) -> dict[str, Any]:
        """Return the rules that are published or held as one canonical document, under the names of the rules.

        `pending` includes rules of which no version is published yet, as if they were held.
        """
        newest = {v.rule: v for v in snapshot.maintained if v.held or pending}
        chosen = sorted({**newest, **snapshot.active}.values(), key=lambda version: (version.since, version.number))
        documents = self.documents(chosen)
        base = {"format": self._packaged.document["format"], "guard_prefix": snapshot.prefix, "tables": {}}
        versions = {v.rule: (documents[v.name], v.state == "active") for v in chosen}
        document = Program.assemble(base, versions)
        rules = sorted(chosen, key=lambda version: version.place)
        return {**document, "projections": {v.rule: document["projections"][v.rule] for v in rules}}

    # Changing

    def register(self, program: Program, fates: Mapping[str, str] | None = None, *, hold: bool = False) -> Registered:
        """Register the rules of a file: new and changed ones get a version, others keep theirs.

        With `hold`, not those that cannot be maintained without being published.

        `fates` says what becomes of rules that the file lacks: `remove` their values, or `keep` them. Raises
        Misconfigured if that is not said.
        """
        known = {**program.retired, **(fates or {})}
        return self._change(lambda now: self._after(now, program, known, hold=hold), program)

    def preview(self, program: Program, fates: Mapping[str, str] | None = None, *, hold: bool = False) -> Registered:
        """Return the registry as `register` would write it. The values of rules whose fate is not said are kept."""
        snapshot = self.read() or RegistrySnapshot(0, {}, {}, new_identity(), program.guard_prefix)
        kept = dict.fromkeys(snapshot.lacking(program), "keep")
        then, versions = self._after(snapshot, program, {**kept, **program.retired, **(fates or {})}, hold=hold)
        texts = self._new_texts(snapshot, then, program)
        return Registered(then._replace(planned={name: json.loads(text) for name, text in texts.items()}), versions)

    def fill(self, versions: Iterable[str]) -> RegistrySnapshot:
        """Record that the fill of versions is complete: all items and entries have been read."""
        names = set(versions)

        def change(now: RegistrySnapshot) -> _Changes:
            filled = [v for v in now.versions.values() if v.name in names and v.state == "filling"]
            ready = [self._as(v, "ready") for v in filled]
            cleaned = [v._replace(lanes=1) for v in now.versions.values() if v.lanes == 2]
            ready = [v if v.lanes is None else v._replace(lanes=v.changed + HANDOVER_SECONDS) for v in ready]
            return cleaned + ready, []

        return self._change_versions(change)

    def promote(self, versions: Iterable[str]) -> RegistrySnapshot:
        """Publish these versions from now on, instead of those that are active, except those that are gone or have a gap."""
        names = set(versions)

        def change(now: RegistrySnapshot) -> _Changes:
            changed, epoch = [], self._epoch(now)
            for version in now.versions.values():
                if version.name in names and version.state in ("ready", "standby") and not version.gap:
                    former = now.active.get(version.rule) or now.last_published(version)
                    if former is not None:
                        leaves = former.doubted or not former.recorded
                        changed.append(self._as(former, "leaving" if leaves else "standby"))
                    changed.append(self._as(version, "active")._replace(promoted=epoch, unfinished=True))
            rules = {version.rule for version in changed}
            changed += [v for rule in rules for v in self._replaced_versions(now, rule)]
            known = {version.name for version in changed}
            spare = [v for v in now.versions.values() if v.rule in rules and v.name not in known]
            left, gone = self._drop(now, [v for v in spare if v.state in ("standby", "stale")])
            return changed + left, gone

        return self._change_versions(change)

    def finish(self, versions: Iterable[Version]) -> RegistrySnapshot:
        """Record that promotions were carried out, and that what versions that leave have written was removed."""
        done = {(version.name, version.promoted) for version in versions}

        def change(now: RegistrySnapshot) -> _Changes:
            same = [v for v in now.versions.values() if (v.name, v.promoted) in done]
            changed = [v._replace(unfinished=False) for v in same if v.unfinished]
            return changed + [self._as(v, "gone") for v in same if v.state == "leaving"], []

        return self._change_versions(change)

    def remove(self, versions: Iterable[str], cleaned: Collection[str] = ()) -> RegistrySnapshot:
        """Remove versions that are not published. Those that are `cleaned` are counted by lanes alone from now on."""
        names = set(versions)

        def change(now: RegistrySnapshot) -> _Changes:
            versions = [v for v in now.versions.values() if v.name in names]
            left, gone = self._drop(now, [v for v in versions if v.state in ("filling", "ready", "standby")])
            alone = [v._replace(lanes=2) for v in now.versions.values() if v.name in cleaned and v.lanes != 2]
            return left + alone, gone

        return self._change_versions(change)

    def recount(self, rules: Iterable[str]) -> Registered:
        """Register a new version of the same meaning for each of these rules: to be filled, and promoted."""
        names = set(rules)

        def change(now: RegistrySnapshot) -> Registered:
            added: dict[str, Version] = {}
            epoch = self._epoch(now)
            doubted = [v._replace(doubted=True) for v in now.active.values() if v.rule in names and v.recorded]
            for active in doubted:
                filling = self._as(active, "filling")._replace(number=now.next[active.rule], since=epoch)
                filling = filling._replace(promoted=0, unfinished=False, doubted=False, gap="")
                if len({each.partition("|")[0] for each in active.streams}) < len(active.streams):
                    filling = filling._replace(streams=frozenset())  # its first batch tells which of them is the latest
                added[active.rule] = filling if filling.lanes is None else filling._replace(lanes=0)
            gone = [v.name for v in now.versions.values() if v.rule in added and v.state in ("filling", "ready")]
            then = now.with_versions(epoch, *doubted, *added.values(), gone=gone)
            return Registered(then if added else now, added)

        return self._change(change)

    def note_gaps(self, gaps: Mapping[str, str]) -> RegistrySnapshot:
        """Record that the groups of versions with lanes may be wrong from now on, each with the reason."""

        def change(now: RegistrySnapshot) -> _Changes:
            concerned = [v for v in now.versions.values() if v.name in gaps and v.lanes is not None and not v.gap]
            return [v._replace(gap=gaps[v.name][:_LONGEST_GAP]) for v in concerned], []

        return self._change_versions(change)

    def note_stream(self, versions: Collection[str], table: str, label: str) -> RegistrySnapshot:
        """Record the stream that versions with lanes are counted from. If it is another one than before, that is a gap:
        what the application wrote in between is in neither.
        """
        stream = f"{table}|{label}"

        def change(now: RegistrySnapshot) -> _Changes:
            new = [v for v in now.versions.values() if v.name in versions and stream not in v.streams]
            changed = []
            for version in new:
                others = any(each.startswith(f"{table}|") for each in version.streams)
                gap = version.gap or (f"the table {table} has another stream than before" if others else "")
                changed.append(version._replace(streams=version.streams | {stream}, gap=gap))
            return changed, []

        return self._change_versions(change)

    def overtake(self, reload: Reload) -> None:
        """Raise the epoch above one that the ledger or an item shows, unless the registry has reached it by now."""
        self._change(lambda now: Registered(self.overtaken(now, reload)))

    def overtaken(self, now: RegistrySnapshot, reload: Reload) -> RegistrySnapshot:
        """Return a registry with an epoch above one that the ledger or an item shows; the same if it has reached it.

        If it has not, the ledger was restored from a backup: without this, what carries a lost epoch could never be written
        again. Of a guard, also the promotion of the rule's active version is raised above it. Raises Misconfigured if that
        was done shortly before: then two copies of one ledger are in use, which would outbid each other for ever.
        """
        active = now.active.get(reload.rule)
        if (active.promoted if active is not None else now.epoch) >= reload.epoch:
            return now
        epoch = max(reload.epoch + 1, self._epoch(now))
        if active is None:
            return now.with_versions(epoch)
        if active.overtaken and self._now() - active.overtaken < _BETWEEN_COPIES:
            raise Misconfigured(
                f"{reload.rule}: another copy of the ledger {now.ledger} is in use, and publishes to the same items. Stop "
                "the functions of one of them"
            )
        renewed = active._replace(promoted=epoch, unfinished=True, overtaken=int(self._now()))
        return now.with_versions(epoch, renewed)

    def rotate(self) -> RegistrySnapshot:
        """Sign guards with a new secret from now on. The one before is accepted until `drop_former_secret`."""
        return self._identify(lambda now: now if len(now.secrets) > 1 else now.rotate())

    def drop_former_secret(self) -> RegistrySnapshot:
        """End a rotation, after a backfill has signed all guards again."""
        return self._identify(lambda now: now._replace(secrets=now.secrets[:1]))

    def _identify(self, change: Callable[[Identity], Identity]) -> RegistrySnapshot:
        def identify(now: RegistrySnapshot) -> Registered:
            after = change(now.identity)
            then = now if after == now.identity else now.with_versions(self._epoch(now))._replace(identity=after)
            return Registered(then)

        return self._change(identify).snapshot

    def _epoch(self, now: RegistrySnapshot) -> int:
        """Return the epoch of the next change."""
        return max(now.epoch + 1, int(self._now()))

    def _as(self, version: Version, state: State) -> Version:
        unfinished = version.unfinished and state == "active"
        return version._replace(state=state, changed=int(self._now()), unfinished=unfinished)

    def _after(
        self,
        now: RegistrySnapshot,
        program: Program,
        fates: Mapping[str, str] | None = None,
        *,
        filled: bool = False,
        hold: bool = False,
    ) -> Registered:
        """Return the registry with the rules of a file, and their versions. `filled`: new ones are active at once."""
        gone = [name for name in now.versions if now.prefix != program.guard_prefix]
        if any(now.versions[name].state != "gone" for name in gone):
            fate = ", ".join(f"{name}: remove" for name in sorted(now.active))
            raise Misconfigured(
                f'guard_prefix is "{program.guard_prefix}", and the active rules use "{now.prefix}". It cannot change while '
                f'rules are active: their guards would stay on items. Set `guard_prefix: "{now.prefix}"` again; or remove '
                f"all rules first, with `retired: {{{fate}}}`."
            )
        chosen: dict[str, Version] = {}
        changed: list[Version] = []
        epoch = self._epoch(now)
        for place, (name, rule) in enumerate(program.rules.items()):
            versions = [version for version in now.of(name) if version.maintained]
            same = (v for v in reversed(versions) if v.fingerprint == rule.fingerprint and not v.replaced_by_apply)
            known = next(same, None)
            if known is None:
                if (rule.held or hold) and not rule.recorded:
                    continue  # it cannot be maintained without being published
                known = self._first(rule, now.next.get(name, 1), epoch, filled=filled)._replace(place=place)
                changed.append(known)
            elif rule.held and not rule.recorded:  # it is published no longer, and its values stay
                gone.append(known.name)
                continue
            elif known.held != rule.held:
                stops = rule.held and known.state == "active"
                known = (self._as(known, "standby") if stops else known)._replace(held=rule.held)
                changed.append(known)
            chosen[name] = known
            gone += [v.name for v in now.of(name) if v.state == "stale" and not v.promoted]
            gone += [v.name for v in now.of(name) if v.state == "gone" and v.changed < self._now() - _LATE_SECONDS]
            for version in versions:
                if version.name == known.name:
                    continue
                if version.state in ("filling", "ready"):
                    gone.append(version.name)
                elif version.state == "active" and known.state == "active":
                    changed.append(self._as(version, "leaving"))
            if known.state == "active":
                changed += self._replaced_versions(now, name)
        self._remove_others(now, program, fates or {}, changed, gone)
        if not changed and not gone:
            return Registered(now, chosen)
        then = now.with_versions(epoch, *changed, gone=gone)
        return Registered(then._replace(prefix=program.guard_prefix), chosen)

    def _drop(self, now: RegistrySnapshot, versions: Collection[Version]) -> _Changes:
        """Return which of these versions leave or are gone, and the others. Targets may show a version on standby still:
        the one that replaced it has not reached all of them. What a held one has published stays.
        """
        half = {version.rule for version in now.active.values() if version.unfinished}
        published = [version for version in versions if version.state == "standby" and not version.held]
        left = [self._as(version, "leaving" if version.rule in half else "gone") for version in published]
        return left, [version.name for version in versions if version not in published]

    def _replaced_versions(self, now: RegistrySnapshot, rule: str) -> list[Version]:
        """Return the stale versions of a rule that were published, as they are when another one is: they leave."""
        stale = [version for version in now.of(rule) if version.state == "stale" and version.promoted]
        return [self._as(version, "leaving")._replace(unfinished=False) for version in stale]

    def _first(self, rule: Rule, number: int, epoch: int, *, filled: bool) -> Version:
        """Return a new version of a rule."""
        complete = filled or not rule.recorded
        state: State = "filling" if not complete else "ready" if rule.held else "active"
        promoted = epoch if state == "active" else 0
        now = int(self._now())
        new = Version(rule.name, number, rule.fingerprint, state, rule.recorded, epoch, promoted, now, held=rule.held)
        lanes = int(complete) if isinstance(rule, AggregateRule) and rule.lanes else None
        return new._replace(unfinished=not (filled or rule.recorded), lanes=lanes)

    def _remove_others(
        self, now: RegistrySnapshot, program: Program, fates: Mapping[str, str], changed: list[Version], gone: list[str]
    ) -> None:
        """Let the versions of rules go that a file lacks. Raises Misconfigured if their fate is not said."""
        unsaid = [rule for rule in now.lacking(program) if rule not in fates]
        if unsaid:
            only = len(unsaid) == 1
            raise Misconfigured(
                f"{', '.join(unsaid)}: {'this rule is' if only else 'these rules are'} active, and the rule file does not "
                f"contain {'it' if only else 'them'}. Add {'it' if only else 'them'} to `retired`, to remove or to keep the "
                f"values that {'it' if only else 'they'} set: `retired: {{{unsaid[0]}: remove}}` or `keep`."
            )
        for version in now.others(program):
            if version.promoted and fates.get(version.rule) == "remove":
                changed.append(self._as(version, "leaving"))
            else:
                gone += [version.name, *(v.name for v in now.of(version.rule) if v.state == "gone")]

    def _change_versions(self, change: Callable[[RegistrySnapshot], _Changes]) -> RegistrySnapshot:
        """Put versions in the place of former ones, and remove others. Without any, nothing is written."""

        def replace(now: RegistrySnapshot) -> Registered:
            versions, gone = change(now)
            return Registered(now.with_versions(self._epoch(now), *versions, gone=gone) if versions or gone else now)

        return self._change(replace).snapshot

    def _change(self, change: Callable[[RegistrySnapshot], Registered], program: Program | None = None) -> Registered:
        for _ in range(MOST_TRIES):
            now = self.read_or_create()
            then, _ = changed = change(now)
            if then is now:
                return changed
            if self._put(then, Equal(("epoch",), {"N": str(now.epoch)}), self._new_texts(now, then, program)):
                return changed
        raise Transient("the registry keeps changing")

    def _new_texts(self, now: RegistrySnapshot, then: RegistrySnapshot, program: Program | None) -> dict[str, str]:
        """Return the documents of new versions, by name: from a file, or that of the version that is active."""
        texts: dict[str, str] = {}
        for name, version in then.versions.items():
            if name in now.versions:
                continue
            rule = program.rules.get(version.rule) if program is not None else None
            if program is not None and rule is not None and rule.fingerprint == version.fingerprint:
                texts[name] = json.dumps(program.closed_document(version.rule), ensure_ascii=False)
            else:
                (document,) = self.documents([now.active[version.rule]]).values()
                texts[name] = json.dumps(document, ensure_ascii=False)
        return texts

    def _put(self, snapshot: RegistrySnapshot, condition: Condition, texts: Mapping[str, str]) -> bool:
        """Write the registry and the documents of new versions. Return whether the condition held.

        Documents are never deleted: by them, numbers are not used again where the registry is lost.
        """
        new = condition if isinstance(condition, Missing) else None
        documents: list[Write] = []
        for name, text in texts.items():
            why = Purpose("registry", (public_name(name),))
            documents.append(Update(document_key(name), {"document": {"S": text}}, condition=new, purpose=why))
        rules: dict[str, dict[str, Value]] = {rule: {"next": {"N": str(n)}} for rule, n in snapshot.next.items()}
        for version in snapshot.versions.values():
            rules[version.rule][str(version.number)] = version.wire()
        values: dict[str, Value] = {
            "epoch": {"N": str(snapshot.epoch)},
            "rules": {"M": {rule: {"M": fields} for rule, fields in rules.items()}},
            **snapshot.identity.wire(),
            "prefix": {"S": snapshot.prefix},
        }
        remove = ("formerSecret",) if "formerSecret" not in values else ()
        update = Update(REGISTRY, set=values, remove=remove, condition=condition, purpose=_ALL_RULES)
        try:
            while len(documents) > _AT_ONCE:  # documents first: one that no registry names harms nothing
                self._store.transact(documents[:_AT_ONCE])
                documents = documents[_AT_ONCE:]
            if documents:
                self._store.transact([update, *documents])
            else:
                self._store.write(update)
        except ConditionFailed:
            return False
        except TransactionCancelled as cancelled:
            if any(reason is not None and reason.kind == "condition" for reason in cancelled.reasons):
                return False
            raise Transient(str(cancelled)) from cancelled
        return True
