"""The registry: which rules are active, and in which state. One item of the ledger, read in every invocation.

    pk   sk             what
    R    .              epoch; the active program and the earlier ones; each rule's fingerprint and state
    R    lease|<id>     a running command: see `operations.fenced`
    R    rule|<name>    a rule as it was registered, with its entities: the definition that is needed to retire it

A new or changed rule is *filling*: its contributions are recorded, and nothing is published until a backfill is complete, so
that a counter of 5000 never becomes 1. A backfill raises the epoch; an invocation with an earlier program then stops,
because it would record contributions under rules that do not exist any more.

Attributes that a changed rule no longer sets, and items that it no longer creates, are retired like those of a rule that was
removed, under the name `<name>@<fingerprint>`.

Functions may be deployed with rules that are not active, before the backfill that activates them. Such rules are
*provisional* (`tried` in the stored item): functions note them under the same names before they record contributions. If
they are rolled back before they become active, the next backfill removes what they recorded.

The prefix of guards cannot change while rules are active: guards and marks with another prefix would count as attributes of
the application, so that nothing would remove them, and no item that has them.

Every change of the active rules, or of the state of one of them, raises the epoch. Before and after it the leases of running
commands are closed, because they would write by the earlier state.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from functools import partial
from string import ascii_lowercase, digits
from typing import Any, Literal, NamedTuple

from projections.engine.guards import Identity, new_secret
from projections.engine.ledger_items import LEDGER
from projections.engine.store import (
    AllOf,
    Condition,
    Delete,
    Equal,
    Image,
    ItemKey,
    Missing,
    Purpose,
    Store,
    Update,
    Value,
    Write,
    all_items,
)
from projections.errors import ConditionFailed, Misconfigured, TransactionCancelled, Transient
from projections.language.compiling import into_of
from projections.language.program import Program
from projections.language.rules import Rule

_ALL_RULES = Purpose("registry")

RuleState = Literal["shadow", "filling", "live", "retiring", "tried"]
SHADOW: RuleState = "shadow"
FILLING: RuleState = "filling"
LIVE: RuleState = "live"
RETIRING: RuleState = "retiring"
"""Of a rule that was removed, or an earlier version of one: a backfill removes what it wrote."""
PROVISIONAL: RuleState = "tried"
"""Of a version of a rule that functions have worked with and that was not active."""

WITHOUT = "-"
"""In place of a fingerprint: functions have worked without the rule."""

REGISTRY = ItemKey(LEDGER, "R", ".")

_AT_ONCE = 90
"""Definitions that one transaction writes with the registry; DynamoDB allows 100 actions."""

_MOST_TRIES = 20

_LEASE = "lease|"


def lease_key(name: str) -> ItemKey:
    """Return the key of a lease."""
    return ItemKey(LEDGER, "R", f"{_LEASE}{name}")


def closing(name: str) -> Delete:
    """Return the write that closes a lease."""
    return Delete(lease_key(name), purpose=Purpose("lease"))


def close_leases(
    store: Store, *, before_epoch: int | None = None, run: str | None = None, opened_before: float | None = None
) -> None:
    """Delete all leases, or only those of an older epoch, of one run, or opened before a time.

    With several arguments, a lease that meets any of them is deleted. Raises Transient and Misconfigured.
    """
    everything = before_epoch is None and run is None and opened_before is None
    for item in all_items(partial(store.query, LEDGER, [{"S": "R"}], prefix=_LEASE)):
        if (
            everything
            or (before_epoch is not None and int(Decimal(item["epoch"]["N"])) < before_epoch)
            or (run is not None and item["run"]["S"] == run)
            or (opened_before is not None and int(Decimal(item["at"]["N"])) < opened_before)
        ):
            store.write(closing(item["sk"]["S"].removeprefix(_LEASE)))


def rule_key(rule: str) -> ItemKey:
    """Return the key of the definition of a rule."""
    return ItemKey(LEDGER, "R", f"rule|{rule}")


def former(rule: str, fingerprint: str) -> str:
    """Return the name of a version of a rule. No rule can have such a name."""
    return f"{rule}@{fingerprint}"


def new_identity() -> Identity:
    """Return the identity of a new ledger: an id of 4 lower-case letters and digits, and a secret."""
    return Identity("".join(secrets.choice(ascii_lowercase + digits) for _ in range(4)), (new_secret(),))


class Replaced(Misconfigured):
    """Other rules have been activated meanwhile."""


class Registered(NamedTuple):
    """A rule in the registry: its fingerprint and its state."""

    fingerprint: str
    state: RuleState


class RegistrySnapshot(NamedTuple):
    """The registry as read. `program` is the fingerprint of the active program, `past` has those that it replaced.

    Every change of rules or states raises `epoch`. `since` is the epoch in which the program became active; 0 if an older
    engine wrote the registry, which raised the epoch only then.
    """

    epoch: int
    program: str
    past: frozenset[str]
    rules: Mapping[str, Registered]
    identity: Identity = Identity("", ())
    """The ledger's id, which guards name, and the secrets that sign them. The id never changes."""
    since: int = 0

    @property
    def ledger(self) -> str:
        """The ledger's id."""
        return self.identity.ledger

    @property
    def active_since(self) -> int:
        """The epoch in which the program became active."""
        return self.since or self.epoch

    @classmethod
    def read(cls, item: Image) -> RegistrySnapshot:
        return cls(
            epoch=int(Decimal(item["epoch"]["N"])),
            program=item["program"]["S"],
            past=frozenset(item["past"]["SS"]) if "past" in item else frozenset(),
            rules={
                name: Registered(rule["M"]["f"]["S"], rule["M"]["s"]["S"]) for name, rule in item["rules"]["M"].items()
            },
            identity=Identity.read(item),
            since=int(Decimal(item["since"]["N"])) if "since" in item else 0,
        )

    def is_outdated(self, program: Program) -> bool:
        """Whether other rules replaced these: then they must not be applied any more."""
        return program.fingerprint in self.past

    @property
    def active(self) -> dict[str, Registered]:
        """The active rules, without other versions and those that are retired."""
        return {name: rule for name, rule in self.rules.items() if "@" not in name and rule.state != RETIRING}

    def inactive(self, program: Program) -> list[str]:
        """Return these rules that are not active, by name and version, and active rules that they are `WITHOUT`."""
        if program.fingerprint == self.program:
            return []
        active = {name: rule.fingerprint for name, rule in self.active.items()}
        theirs = {name: rule.fingerprint for name, rule in program.rules.items()}
        names = [former(name, version) for name, version in theirs.items() if active.get(name) != version]
        return names + [former(name, WITHOUT) for name in active if name not in theirs]

    def provisional(self, program: Program) -> dict[str, Registered]:
        """Return the provisional rules that are not of this program, by the names of rules."""
        own = {name: rule.fingerprint for name, rule in program.rules.items()}
        rules = {name: rule for name, rule in self.rules.items() if rule.state == PROVISIONAL}
        return {_base(name): each for name, each in rules.items() if own.get(_base(name), WITHOUT) != each.fingerprint}

    def is_provisional(self, rule: Rule) -> bool:
        """Return whether functions have worked with this version of a rule, and it is not active yet."""
        known = self.rules.get(former(rule.name, rule.fingerprint))
        return known is not None and known.state == PROVISIONAL

    def state(self, rule: Rule) -> RuleState:
        """`shadow`, `filling` or `live`."""
        if rule.mode == SHADOW:
            return SHADOW
        known = self.rules.get(rule.name)
        return known.state if known is not None and known.fingerprint == rule.fingerprint else FILLING

    def settles(self, rule: Rule) -> bool:
        """Return whether an expiry moves the rule's contribution from the entry to the settled totals of its group.

        It does if this version of the rule is active and its backfill is complete. The totals of a group have no version: if
        a version were rolled back later, the totals that it settled could never be removed.
        """
        known = self.rules.get(rule.name)
        return known is not None and known.fingerprint == rule.fingerprint and known.state == LIVE

    def is_mixed(self, rule: Rule) -> bool:
        """Whether other versions of the rule may have recorded contributions that no backfill has corrected yet."""
        return any(_base(name) == rule.name for name in self.rules if "@" in name)

    def publishes(self, rule: Rule) -> bool:
        """Whether the rule writes to its targets.

        While a rule fills, groups are not published, since not everything has contributed to them yet. Guarded copies,
        index attributes and embeds are right one by one.
        """
        state = self.state(rule)
        if rule.recorded:
            return state == LIVE
        return state != SHADOW


class Registry:
    """Reads and changes the registry. `new_rules` is the state of rules that an empty one has: `live` or `filling`."""

    def __init__(self, program: Program, store: Store, new_rules: RuleState = LIVE) -> None:
        self._program = program
        self._store = store
        self._new_rules = new_rules

    def read_or_create(self) -> RegistrySnapshot:
        """Return the registry, and create it if it does not exist. Raise Transient or Misconfigured."""
        for _ in range(_MOST_TRIES):
            item = self._store.get(REGISTRY)
            if item is not None:
                return self._snapshot(item)
            first = self._first()
            if self._put(first, Missing(("pk",)), {name: self._define(name) for name in self._program.rules}):
                return first
        raise Transient("the registry keeps appearing and disappearing")

    def admit(self) -> RegistrySnapshot:
        """Return the registry before contributions are recorded by these rules: those that are not active are provisional.

        That takes one write for each deployment with other rules, and another one if a backfill removed the note. Outdated
        rules are not noted. The definition is stored if the rule may write to items. Raise Transient or Misconfigured.
        """
        for _ in range(_MOST_TRIES):
            now = self.read_or_create()
            # also a version that is being retired: it has to be retired once more
            new = [n for n in now.inactive(self._program) if n not in now.rules or now.rules[n].state != PROVISIONAL]
            if not new or now.is_outdated(self._program):
                return now
            noted = {name: Registered(name.partition("@")[2], PROVISIONAL) for name in new}
            then = now._replace(rules={**now.rules, **noted})
            rules = {name: self._program.rules[_base(name)] for name in new if _base(name) in self._program.rules}
            texts = {name: self._define(rule.name, tried=True) for name, rule in rules.items() if now.publishes(rule)}
            if self._put(then, _as_read(now), texts):
                return then
        raise Transient("the registry keeps changing")

    def read(self) -> RegistrySnapshot | None:
        """Return the registry; None if it does not exist. Raise Transient or Misconfigured."""
        item = self._store.get(REGISTRY)
        return self._snapshot(item) if item is not None else None

    def _snapshot(self, item: Image) -> RegistrySnapshot:
        now, prefix = RegistrySnapshot.read(item), self._program.guard_prefix
        used = item["prefix"]["S"] if "prefix" in item else prefix
        if now.rules and used != prefix:
            fates = ", ".join(f"{name}: remove" for name in sorted(now.active))
            raise Misconfigured(
                f'guard_prefix is "{prefix}", and the active rules use "{used}". It cannot change while rules are active: '
                f'their guards would stay on items. Set `guard_prefix: "{used}"` again; or remove all rules first, with '
                f"`retired: {{{fates}}}` and a backfill."
            )
        return now

    def activate(self) -> RegistrySnapshot:
        """Activate this program: its new and changed rules are filling, those that it retires are retiring.

        Raise Misconfigured if active rules are neither in it nor retired.
        """
        for _ in range(_MOST_TRIES):
            now = self.read_or_create()
            after = self._after(now)
            if after == now:
                close_leases(
                    self._store, before_epoch=now.epoch
                )  # the process that activated them may have stopped before
                return now
            close_leases(self._store)
            texts = self._former_definitions(now, after)
            texts |= {
                name: self._define(name) for name in self._program.rules if now.rules.get(name) != after.rules[name]
            }
            dropped = [name for name in now.rules if "@" in name and name not in after.rules]
            texts |= self._kept_definitions(dropped)
            if self._put(after, _as_read(now), texts, dropped):
                close_leases(self._store, before_epoch=after.epoch)
                return after
        raise Transient("the registry keeps changing")

    def _after(self, now: RegistrySnapshot) -> RegistrySnapshot:
        program = self._program
        known_of = program.rules.keys() | program.retired.keys()
        gone = [name for name in now.rules if "@" not in name and name not in known_of]
        if gone:
            only = len(gone) == 1
            raise Misconfigured(
                f"{', '.join(sorted(gone))}: {'this rule is' if only else 'these rules are'} active, and the rule file does "
                f"not contain {'it' if only else 'them'}. Add {'it' if only else 'them'} to `retired`, to remove or to keep "
                f"the values that {'it' if only else 'they'} set: `retired: {{{gone[0]}: remove}}` or `keep`."
            )
        rules: dict[str, Registered] = {}
        for name, rule in program.rules.items():
            known = now.rules.get(name)
            same = known is not None and known.fingerprint == rule.fingerprint and known.state != RETIRING
            rules[name] = known if same and known is not None else Registered(rule.fingerprint, FILLING)
        for name, known in now.rules.items():
            base = _base(name)
            if base not in program.rules:
                if self._fate(base) == "remove":
                    rules[name] = Registered(known.fingerprint, RETIRING)
            elif known.fingerprint != program.rules[base].fingerprint:
                rules[former(base, known.fingerprint)] = Registered(known.fingerprint, RETIRING)
        for name, fate in program.retired.items():  # it was kept until now, if it has a definition
            if fate == "remove" and name not in now.rules and self.definition(name) is not None:
                rules[name] = Registered("", RETIRING)
        if now.program == program.fingerprint and rules == dict(now.rules):
            return now
        past = (now.past | {now.program}) - {program.fingerprint}
        epoch = now.epoch + 1
        return now._replace(epoch=epoch, program=program.fingerprint, past=past, rules=rules, since=epoch)

    def _fate(self, rule: str) -> str:
        """Whether to `remove` or `keep` what a rule wrote that this program lacks. `retired` may omit provisional rules."""
        if rule in self._program.retired:
            return self._program.retired[rule]
        return "remove" if self.definition(rule) is None else "keep"  # as earlier versions did

    def preview(self) -> RegistrySnapshot:
        """Return the registry as `activate` would write it. Raise Misconfigured as it does."""
        now = self.read()
        return self._after(now) if now is not None else self._first()

    def _first(self) -> RegistrySnapshot:
        rules = {name: Registered(rule.fingerprint, self._new_rules) for name, rule in self._program.rules.items()}
        return RegistrySnapshot(1, self._program.fingerprint, frozenset(), rules, new_identity(), since=1)

    def complete(self, rules: Iterable[str]) -> RegistrySnapshot:
        """Make filling rules live, after their backfill. Raise Replaced if other rules are active now."""
        names = set(rules)
        for _ in range(_MOST_TRIES):
            now = self.read_or_create()
            self._check_active(now)
            after = {
                name: Registered(known.fingerprint, LIVE) if name in names and known.state == FILLING else known
                for name, known in now.rules.items()
            }
            if after == dict(now.rules):
                close_leases(self._store, before_epoch=now.epoch)
                return now
            close_leases(self._store)
            then = now._replace(epoch=now.epoch + 1, rules=after, since=now.active_since)
            if self._put(then, _as_read(now)):
                close_leases(self._store, before_epoch=then.epoch)
                return then
        raise Transient("the registry keeps changing")

    def rotate(self) -> RegistrySnapshot:
        """Sign guards with a new secret from now on. The one before is accepted until `drop_former_secret`."""
        return self._identify(lambda now: now if len(now.secrets) > 1 else now.rotate())

    def drop_former_secret(self) -> RegistrySnapshot:
        """End a rotation, after a backfill has signed all guards again."""
        return self._identify(lambda now: now._replace(secrets=now.secrets[:1]))

    def _identify(self, change: Callable[[Identity], Identity]) -> RegistrySnapshot:
        for _ in range(_MOST_TRIES):
            now = self.read_or_create()
            after = change(now.identity)
            if after == now.identity:
                return now
            close_leases(self._store)
            then = now._replace(epoch=now.epoch + 1, identity=after, since=now.active_since)
            if self._put(then, _as_read(now)):
                close_leases(self._store, before_epoch=then.epoch)
                return then
        raise Transient("the registry keeps changing")

    def forget(self, rules: Iterable[str]) -> None:
        """Remove retired rules from the registry, after a backfill has removed what they wrote."""
        names, tries = set(rules), 0
        while tries < _MOST_TRIES:
            now = self.read_or_create()
            self._check_active(now)
            retired = sorted(name for name in names if name in now.rules and now.rules[name].state == RETIRING)
            if not retired:
                close_leases(self._store, before_epoch=now.epoch)
                return
            close_leases(self._store)
            gone = retired[:_AT_ONCE]
            remaining = {name: known for name, known in now.rules.items() if name not in gone}
            # In one transaction: a function may note one of them as provisional at any time, and define it again.
            then = now._replace(epoch=now.epoch + 1, rules=remaining, since=now.active_since)
            tries += not self._put(then, _as_read(now), gone=gone)
        raise Transient("the registry keeps changing")

    def definition(self, rule: str) -> dict[str, Any] | None:
        """Return a rule as it was registered, `{"rule": …, "entities": {…}, …}` in canonical form; None if it was not.

        `tried` is true in the definition of a rule that was provisional then.
        """
        item = self._store.get(rule_key(rule))
        return json.loads(item["definition"]["S"]) if item is not None else None

    def _check_active(self, now: RegistrySnapshot) -> None:
        if now.program != self._program.fingerprint:
            raise Replaced(
                "other rules have been activated meanwhile. Run the backfill with those, or again with these."
            )

    def _former_definitions(self, now: RegistrySnapshot, after: RegistrySnapshot) -> dict[str, str]:
        """The definitions of the earlier versions of changed rules, by the names of these versions."""
        changed = [name for name in now.rules if former(name, now.rules[name].fingerprint) in after.rules]
        kept = self._store.get_many([rule_key(former(name, now.rules[name].fingerprint)) for name in changed])
        definitions = self._store.get_many([rule_key(name) for name in changed])
        texts: dict[str, str] = {}
        for name in changed:
            item, was = definitions.get(rule_key(name)), former(name, now.rules[name].fingerprint)
            if item is not None and rule_key(was) not in kept:  # else a process stopped before it wrote the registry
                texts[was] = item["definition"]["S"]
        return texts

    def _kept_definitions(self, dropped: Iterable[str]) -> dict[str, str]:
        """The definitions of provisional rules that are dropped, under the rules' own names, for a later removal."""
        texts: dict[str, str] = {}
        for name in dropped:
            base = _base(name)
            item = self._store.get(rule_key(name)) if base not in self._program.rules else None
            if item is not None and self.definition(base) is None:
                texts[base] = item["definition"]["S"]
        return texts

    def _put(
        self,
        snapshot: RegistrySnapshot,
        condition: Condition,
        texts: Mapping[str, str] | None = None,
        gone: Iterable[str] = (),
    ) -> bool:
        """Write the registry and definitions of rules, and delete those in `gone`. Return whether the condition held."""
        definitions: list[Write] = [
            Update(rule_key(name), set={"definition": {"S": text}}, purpose=Purpose("registry", (_base(name),)))
            for name, text in (texts or {}).items()
        ]
        definitions += [
            Delete(rule_key(name), purpose=Purpose("registry", (_base(name),)))
            for name in sorted(gone)[: _AT_ONCE - len(definitions) % _AT_ONCE]
        ]
        values: dict[str, Value] = {
            "epoch": {"N": str(snapshot.epoch)},
            "program": {"S": snapshot.program},
            "rules": _wire(snapshot),
            **snapshot.identity.wire(),
            "prefix": {"S": self._program.guard_prefix},
        }
        if snapshot.since:
            values["since"] = {"N": str(snapshot.since)}
        if snapshot.past:
            values["past"] = {"SS": sorted(snapshot.past)}
        remove = tuple(name for name in ("past", "formerSecret") if name not in values)
        update = Update(REGISTRY, set=values, remove=remove, condition=condition, purpose=_ALL_RULES)
        try:
            while len(definitions) > _AT_ONCE:
                self._store.transact(definitions[:_AT_ONCE])
                definitions = definitions[_AT_ONCE:]
            if definitions:
                self._store.transact([update, *definitions])
            else:
                self._store.write(update)
        except ConditionFailed:
            return False
        except TransactionCancelled as cancelled:
            first = cancelled.reasons[0]
            if first is not None and first.kind == "condition":
                return False
            raise Transient(str(cancelled)) from cancelled
        return True

    def _define(self, name: str, *, tried: bool = False) -> str:
        document = self._program.document
        rule = document["projections"][name]
        names = {*rule["from"], into_of(rule)}
        definition = {
            "rule": rule,
            "entities": {entity: document["entities"][entity] for entity in sorted(names)},
            "tables": document["tables"],
            "guard_prefix": document["guard_prefix"],
        }
        return json.dumps({**definition, "tried": True} if tried else definition, ensure_ascii=False)


def _base(name: str) -> str:
    """Return the name of a rule by the name of one of its versions."""
    return name.partition("@")[0]


def _as_read(snapshot: RegistrySnapshot) -> Condition:
    """The condition that the registry is as it was read: each change alters the epoch or the states of rules."""
    return AllOf((Equal(("epoch",), {"N": str(snapshot.epoch)}), Equal(("rules",), _wire(snapshot))))


def _wire(snapshot: RegistrySnapshot) -> Value:
    rules = {
        name: {"M": {"f": {"S": each.fingerprint}, "s": {"S": each.state}}} for name, each in snapshot.rules.items()
    }
    return {"M": rules}
