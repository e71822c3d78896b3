"""The reads of a look at items, as steps, and what one look at a source item finds: its copies, and the parents that it
shows, compared with the rules.

A protocol yields which items it needs next, and a store or a boto3 object reads them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from projections.engine.application import ApplicationItems
from projections.engine.groups import Group, sum_group
from projections.engine.guards import Guards
from projections.engine.ledger_items import SHARD_COUNT, Target, group_key
from projections.engine.registry import RegistrySnapshot
from projections.engine.store import Image, ItemKey, Value
from projections.errors import BadInput, Transient
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Entity, Item
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.language.rules import GuardedCopyRule, LedgerRule, Rule
from projections.language.syntax import root
from projections.language.values import same

T = TypeVar("T")

MOST_TOGETHER = 100
"""The most items that one TransactGetItems reads."""

MOST_TRIES = 5
"""How often a look reads anew what has changed meanwhile."""


class Needed(NamedTuple):
    """Items to read: `together` as they are at one moment, else in any number of strongly consistent requests."""

    keys: Sequence[ItemKey]
    together: bool = False


Steps: TypeAlias = Generator[Needed, Mapping[ItemKey, Image], T]


class GroupReads:
    """The keys of groups, until a read has shown all their shards."""

    def __init__(self, targets: Iterable[tuple[LedgerRule, str]]) -> None:
        self._shards = {(rule.name, target): rule.shards_of(target) for rule, target in targets}

    def keys(self) -> list[ItemKey]:
        return [key for target in self._shards for key in self._of(target)]

    def _of(self, target: Target) -> list[ItemKey]:
        return [group_key(*target, shard) for shard in range(self._shards[target])]

    def complete(self, items: Mapping[ItemKey, Image]) -> bool:
        """Return whether these items have all groups as a whole. If not, `keys` has more."""
        whole = True
        for target, known in self._shards.items():
            first = items.get(group_key(*target), {})
            shards = int(Decimal(first[SHARD_COUNT]["N"])) if SHARD_COUNT in first else 1
            if shards > known:
                self._shards[target] = shards
                whole = False
        return whole

    def groups(self, items: Mapping[ItemKey, Image], registry: RegistrySnapshot | None = None) -> dict[Target, Group]:
        """Return the groups that items which were read make up."""
        return {
            target: sum_group(
                registry.promotion(target[0]) if registry is not None else 0,
                [items[key] for key in self._of(target) if key in items],
            )
            for target in self._shards
        }


def again(reads: GroupReads, other_keys: Sequence[ItemKey], *, together: bool) -> Steps[Mapping[ItemKey, Image]]:
    """Read groups and `other_keys` until the groups are whole. Returns the last read. Raises Transient."""
    for _ in range(MOST_TRIES):
        items = yield Needed([*other_keys, *reads.keys()], together)
        if reads.complete(items):
            return items
    raise Transient("the number of shards of a group kept changing while they were read")


@dataclass(slots=True)
class Look:
    """What is known of a source item now. It is processed if nothing is `missing` and no other field has reasons.

    `missing` may come with time; the other reasons do not go away while a caller waits. `not_covered` names the rules of the
    item of which something is not known.
    """

    missing: dict[str, None] = field(default_factory=dict)
    filling: dict[str, None] = field(default_factory=dict)
    quarantined: dict[str, None] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)
    not_covered: dict[str, None] = field(default_factory=dict)


def is_deployed(registry: RegistrySnapshot, rule: Rule) -> bool:
    """Return whether a rule in this form is published, or will be when it is filled. Its name is that of `as_registered`."""
    version = registry.version(rule)
    return version is not None and version.state in ("active", "filling") and version.fingerprint == rule.fingerprint


def is_published(registry: RegistrySnapshot, rule: Rule) -> bool:
    """Return whether a rule is published in this form."""
    return registry.publishes(rule) and is_deployed(registry, rule)


def as_registered(program: Program, registry: RegistrySnapshot) -> Program:
    """Return the program with the names that its rules have in the registry, as far as functions work with them."""
    names = {
        version.rule: version.name
        for version in sorted(registry.maintained, key=lambda version: version.state == "active")
        if version.recorded and version.rule in program.rules
        if program.rules[version.rule].fingerprint == version.fingerprint
    }
    return _with_names(program, tuple(names.items()))


@lru_cache(maxsize=1)
def _with_names(program: Program, names: tuple[tuple[str, str], ...]) -> Program:
    """Return the program with other names of rules, as (name, other name)."""
    others = dict(names)
    projections = {others.get(name, name): rule for name, rule in program.document["projections"].items()}
    return Program.from_document({**program.document, "projections": projections})


def application_items(program: Program, guards: Guards) -> ApplicationItems:
    """Return the rules' judgement of items that were read; it has no store."""
    return ApplicationItems(program, cast("Any", None), guards)


class Traced(dict[str, Value]):
    """An image that remembers the names of the attributes that were read."""

    def __init__(self, image: Image) -> None:
        super().__init__(image)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(root(name))
        return super().get(name, default)


class Copy(NamedTuple):
    """A copy that the item has, or may have had: then without attributes."""

    rule: GuardedCopyRule
    key: ItemKey
    attributes: Image | None


def copies_of(program: Program, key: ItemKey, item: Item | None, look: Look) -> list[Copy]:
    """Return the guarded copies that the item has, and those that it may have had."""
    copies: list[Copy] = []
    for entity in program.entities_at(key):
        for rule in program.copy_rules.get(entity.name, ()):
            expected: Mapping[ItemKey, Image] = {}
            try:
                expected = rule.copies(item) if item is not None and item.entity is entity else {}
            except BadInput as problem:
                look.quarantined[f"{rule.name}: {problem}"] = None
            former = _fixed_copies(program, rule, key)
            if not former:
                look.not_covered[rule.name] = None
            copies += [Copy(rule, place, expected.get(place)) for place in dict.fromkeys([*former, *expected])]
    return copies


def _fixed_copies(program: Program, rule: GuardedCopyRule, key: ItemKey) -> list[ItemKey]:
    """Return the keys of an item's copies that follow from its own key; none if they also depend on attributes."""
    variables = _variables(rule.source, key)
    image = Traced(program.tables[key.table].wire(key))
    try:
        places = replace(rule, where=None, templates=(), pick=lambda resolve: {}).copies(
            Item(rule.source, key, variables, image)
        )
    except BadInput:
        return []
    return list(places) if image.names <= variables.keys() | set(rule.source.schema.key_attributes) else []


def _variables(entity: Entity, key: ItemKey) -> Mapping[str, str]:
    """Return the variables in the key of an item of an entity."""
    variables: dict[str, str] = {}
    for pattern, text in zip(entity.patterns, (key.partition, key.sort or ""), strict=False):
        variables |= pattern.match(text) or {}
    return variables


def compare_copy(
    program: Program, guards: Guards, copy: Copy, source: ItemKey, image: Image | None, look: Look
) -> None:
    """Compare a guarded copy with its source."""
    rule, key, expected = copy
    is_copy = _is_copy_of(guards, rule, source, key, image)
    if expected is None:
        if is_copy:
            look.missing[f"{rule.name}: the copy {encode_key(key)} is not removed yet"] = None
        return
    if image is not None and not application_items(program, guards).may_write(rule, rule.into, key, image):
        if not any(_is_copy_of(guards, other, source, key, image) for other in program.guarded_copies.values()):
            look.quarantined[f"{rule.name}: an item of another kind has the key {encode_key(key)}"] = None
            return
        is_copy = False  # the key becomes free when another rule removes its copy
    attributes = image or {}
    wanted: dict[str, Value | None] = dict(expected)
    if not rule.copies_all:
        wanted |= {name: None for name in rule.owned() if name not in expected and name not in rule.into.constants}
    else:
        own = {*rule.into.schema.key_attributes, *program.derived_attributes(rule.into.name), *expected}
        if any(name not in own and not name.startswith(program.guard_prefix) for name in attributes):
            look.not_covered[rule.name] = None  # an attribute of the application, or one that the source has lost
    if not is_copy or any(not same(attributes.get(name), value) for name, value in wanted.items()):
        look.missing[f"{rule.name}: the copy {encode_key(key)} is not written yet"] = None


def _is_copy_of(guards: Guards, rule: GuardedCopyRule, source: ItemKey, key: ItemKey, image: Image | None) -> bool:
    """Return whether an item has the guard of a rule's copy of this source."""
    guard = guards.read(rule.name, key, image)
    return guard is not None and guard.by == encode_key(source) and guard.n != 0


def compare_parents(
    program: Program, registry: RegistrySnapshot, guards: Guards, item: Item, look: Look
) -> list[tuple[EmbedRule, ItemKey]]:
    """Compare the parent that the guard of each embed names with the one that the item references.

    Return the parents of rules that have not set their values. The guard of a list does not name its parents.
    """
    awaited = []
    for rule in program.embeds_into.get(item.entity.name, ()):
        if isinstance(rule, ListEmbedRule) or not is_deployed(registry, rule):
            look.not_covered[rule.name] = None
            continue
        try:
            reference = rule.reference(item)
        except BadInput as problem:
            look.quarantined[f"{rule.name}: {problem}"] = None
            continue
        guard = guards.read(rule.name, item.key, item.image)
        if reference is None:
            is_own = rule.on_delete == "keep" and guards.name(rule.name) not in item.image
            if not is_own and any(name in item.image for name in rule.owned()):
                look.missing[f"{rule.name}: its values of the item are not removed yet"] = None
        elif guard is None or guard.by != encode_key(reference):
            awaited.append((rule, reference))
    return awaited
