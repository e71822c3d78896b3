"""Reads of an item whose aggregates include the caller's own writes, before the functions have processed them.

1. The entries of the caller's source items and the groups of the target, in one TransactGetItems. At that moment the totals
   of a group are the sums of what the entries contribute: commits change both in one transaction.
2. Then the source items, and the target.
3. The corrected totals are those of the group, minus what the entries say, plus what the items contribute.

Any order of separate reads is wrong in some histories: with a commit between entry and group, the item's contribution is
added twice or not at all. With the source item read before the entry, the entry may be newer than the item. And with the
value of the target instead of the totals of the group, contributions are missing that are committed and not yet published.

Other sources contribute what is committed. The registry is read with the groups: while a rule fills, not everything has
contributed to its groups yet.

A source item may have an attribute that another rule sets from other items. The rules that read it are not corrected,
because its next value is unknown. Attributes that rules compute from the source item itself are known.

What rules set on the item that is read, from its own attributes, from its parents, or as soon as they see it (their zeros,
and what others have contributed), is named if it is not as they set it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal
from typing import NamedTuple

from projections.access.look import (
    MOST_TOGETHER,
    MOST_TRIES,
    GroupReads,
    Needed,
    Steps,
    Traced,
    again,
    application_items,
    as_registered,
    is_published,
)
from projections.engine.changes import WIDE
from projections.engine.groups import Group
from projections.engine.guards import Guards
from projections.engine.indexes import index_write
from projections.engine.ledger_items import Entry, Target, entry_key
from projections.engine.registry import REGISTRY, RegistrySnapshot
from projections.engine.store import Image, ItemKey, Value
from projections.errors import BadInput, Transient, UsageError
from projections.language.contribution import Contributed
from projections.language.embeds import EmbedRule, ListEmbedRule
from projections.language.entity import Entity, Item
from projections.language.keys import encode_key
from projections.language.program import Program, writing
from projections.language.rules import AggregateRule, LedgerRule, Rule, Totals, public_name
from projections.language.syntax import an

CORRECTED = ("count", "sum", "avg")
"""The functions of measures that follow from totals."""

_NOTHING: Contributed = {}


class OwnRead(NamedTuple):
    """An item without guards, the attributes that were corrected, and the reasons by attribute why others were not."""

    image: Image | None
    corrected: tuple[str, ...]
    uncorrected: Mapping[str, str]


def without_guards(program: Program, image: Image) -> Image:
    """Return an item without the guards and the mark of rules."""
    return {name: value for name, value in image.items() if not name.startswith(program.guard_prefix)}


class _Own(NamedTuple):
    """One of the caller's source items: what it contributes now, the rules of which that is not known, and its entry."""

    now: Mapping[str, Mapping[str, Contributed]]
    unknown: Mapping[str, str]
    entry: Entry | None

    def of(self, target: Target) -> tuple[Contributed, Contributed]:
        """Return what the item contributes to a target, and what its entry says."""
        rule, key = target
        held = self.entry.contributions.get(rule, {}).get(key, _NOTHING) if self.entry is not None else _NOTHING
        return self.now.get(rule, {}).get(key, _NOTHING), held


def own_read(
    program: Program, key: ItemKey, own: Sequence[ItemKey], known: RegistrySnapshot | None = None
) -> Steps[tuple[OwnRead, RegistrySnapshot | None]]:
    """Read an item with aggregates that include these source items as they are, and the registry.

    `known` is the registry as the last call returned it: without it, the registry is read first. Raises UsageError, and
    Transient.
    """
    registry = known
    if registry is None:
        items = yield Needed([REGISTRY])
        registry = _registry_in(items)
    for _ in range(MOST_TRIES):
        registered = as_registered(program, registry) if registry is not None else program
        answer, now = yield from _own_read(registered, registry, key, own)
        if answer is not None:
            return answer, now
        registry = now
    raise Transient("the registry keeps changing")


def _registry_in(items: Mapping[ItemKey, Image]) -> RegistrySnapshot | None:
    return RegistrySnapshot.read(items[REGISTRY]) if REGISTRY in items else None


def _own_read(
    program: Program, registry: RegistrySnapshot | None, key: ItemKey, own: Sequence[ItemKey]
) -> Steps[tuple[OwnRead | None, RegistrySnapshot | None]]:
    """Read an item as `own_read`, by the versions in a registry. Return None if it has changed, and the registry."""
    own = list(dict.fromkeys(own))
    rules = _rules_between(program, key, own)
    text = encode_key(key)
    reads = GroupReads((rule, text) for rule in rules if isinstance(rule, LedgerRule))
    entries = {own_key: entry_key(encode_key(own_key)) for own_key in own}
    if (number := 1 + len(entries) + len(reads.keys())) > MOST_TOGETHER:
        raise UsageError(
            f"this read needs {number} items of the ledger, and a transaction reads {MOST_TOGETHER}. Pass fewer own keys"
        )
    items = yield from again(reads, [REGISTRY, *entries.values()], together=True)
    now = _registry_in(items)
    if now != registry:
        return None, now
    groups = reads.groups(items, registry)
    stored = yield Needed([*own, key])
    sources = [
        _Own(*_contribute(program, own_key, stored.get(own_key)), Entry.read(items[at]) if at in items else None)
        for own_key, at in entries.items()
    ]
    image = stored.get(key)
    recognised = program.recognise(key, image)
    own_items = [program.recognise(own_key, stored[own_key]) for own_key in own if own_key in stored]
    values: dict[str, Value | None] = {}
    uncorrected: dict[str, str] = {}
    created: Image = {}
    numbers: dict[str, int] = {}
    for rule in rules:
        if image is not None and (recognised is None or rule.into is not recognised.entity):
            continue
        images = [image, *(item.image for item in own_items if item is not None and item.entity in rule.sources)]
        if not isinstance(rule, LedgerRule):
            uncorrected |= dict.fromkeys(
                rule.owned(*images), f"{public_name(rule.name)} is a rule of the kind {rule.kind}"
            )
            continue
        target = (rule.name, text)
        reason = _reason(program, rule, registry, groups[target], sources)
        if reason is not None:
            uncorrected |= dict.fromkeys(rule.owned(*images), reason)
            continue
        totals = _totals(groups[target], [source.of(target) for source in sources])
        numbers[rule.name] = totals.n
        if image is None and totals.n > 0 and rule.creates and not rule.claimed:
            created = {**rule.into.schema.wire(key), **rule.created_with}
        corrected, reasons = _values(rule, totals, images)
        values |= corrected
        uncorrected |= reasons
    if not created if image is None else _is_emptied(program, key, image, registry, numbers):
        return OwnRead(None, (), {}), registry
    shown = dict(created if image is None else without_guards(program, image))
    for name, value in values.items():
        shown.pop(name, None)
        if value is not None:
            shown[name] = value
    uncorrected = {**_set_later(program, key, image, shown, registry, rules, uncorrected), **uncorrected}
    return OwnRead(shown, tuple(sorted(values)), uncorrected), registry


def _set_later(
    program: Program,
    key: ItemKey,
    image: Image | None,
    shown: Image,
    registry: RegistrySnapshot | None,
    rules: Sequence[Rule],
    uncorrected: Collection[str],
) -> Mapping[str, str]:
    """Return the attributes that other rules set on the item as soon as they see it as it is read, with the reason."""
    item = program.recognise(key, shown)
    if item is None or registry is None:
        return {}
    reasons: dict[str, str] = {}
    guards = Guards(program, registry.identity)
    for rule in program.ledger_rules_into.get(item.entity.name, ()):
        publishes = not rule.claimed and is_published(registry, rule)
        if publishes and rule not in rules and guards.read(rule.name, key, image) is None:
            reasons |= dict.fromkeys(rule.owned(), f"{public_name(rule.name)} sets it when it sees the item")
    for embed in program.embeds_into.get(item.entity.name, ()):
        if guards.read(embed.name, key, image) is None and _refers(embed, item):
            reasons |= dict.fromkeys(embed.owned(), f"{embed.name} sets it from other items")
    names = dict(_computed_attributes(program, item.entity, [*uncorrected, *reasons]))
    write, _ = index_write(program, item)
    if write is not None:
        of_rules = {name: rule.name for rule in program.item_rules[item.entity.name] for name in rule.owned()}
        names |= {name: of_rules[name] for name in write.values}
    return {**reasons, **{name: f"{rule} sets it from the item" for name, rule in names.items()}}


def _refers(rule: EmbedRule, child: Item) -> bool:
    """Return whether an item references a parent, whether that exists or not."""
    with suppress(BadInput):
        referenced = rule.references(child) if isinstance(rule, ListEmbedRule) else rule.reference(child)
        return referenced is not None
    return False


def _rules_between(program: Program, key: ItemKey, own: Sequence[ItemKey]) -> list[Rule]:
    """Return the rules by which any of these source items may change the item, each once. Raises UsageError."""
    into = program.entities_at(key)
    sources = []
    for own_key in own:
        entities = program.entities_at(own_key)
        if not entities:
            raise UsageError(f"no entity of the rules has the key {encode_key(own_key)}")
        sources += entities
    return [
        rule
        for rule in writing(program.rules.values())
        if rule.writes_items and rule.has_guard and rule.into in into
        if any(source in sources for source in rule.sources)
    ]


def _contribute(
    program: Program, key: ItemKey, image: Image | None
) -> tuple[Mapping[str, Mapping[str, Contributed]], Mapping[str, str]]:
    """Return what an item contributes, with the attributes that rules set on it from its own, set already or not; and the
    rules of which that is not known, with the reason.
    """
    unknown = {
        rule.name: f"{public_name(rule.name)} reads items of {entity.name}, which rules create"
        for entity in program.entities_at(key)
        for rule in program.ledger_rules.get(entity.name, ())
        if entity.owned_by_rules
    }
    item = program.recognise(key, image)
    if item is None:
        return {}, unknown
    write, _ = index_write(program, item)
    if write is not None:
        after = {**item.image, **write.values}
        item = program.recognise(key, {name: value for name, value in after.items() if value is not None})
    if item is None:
        return {}, unknown
    received = _received_attributes(program, item)
    for rule in program.ledger_rules.get(item.entity.name, ()) if received else ():
        traced = Traced(item.image)
        with suppress(BadInput):
            rule.contributions(Item(item.entity, key, item.variables, traced))
        for name in sorted(traced.names & received.keys()):
            unknown[rule.name] = f"{public_name(rule.name)} reads {name} of the own item, which {received[name]} sets"
    return program.contributions(item).contributions, unknown


def _received_attributes(program: Program, item: Item) -> Mapping[str, str]:
    """Return the attributes of an item that depend on other items, each with the rule that sets it."""
    received = {
        name: public_name(rule.name)
        for rule in writing(program.rules.values())
        if rule.into is item.entity and rule.writes_items and rule.name not in program.on_items
        for name in rule.owned(item.image)
    }
    return {**_computed_attributes(program, item.entity, received), **received}


def _computed_attributes(program: Program, entity: Entity, names: Collection[str]) -> Mapping[str, str]:
    """Return the attributes that rules on items of an entity compute from any of these, each with the rule that sets it."""
    setters: dict[str, str] = {}
    rules = program.item_rules.get(entity.name, ())
    for _ in rules if names else ():  # one may read what another computes
        for rule in rules:
            if not rule.reads.isdisjoint([*names, *setters]):
                setters = {**dict.fromkeys(rule.owned(), rule.name), **setters}
    return setters


def _reason(
    program: Program, rule: LedgerRule, registry: RegistrySnapshot | None, group: Group, sources: Sequence[_Own]
) -> str | None:
    """Return why the totals of a rule cannot be corrected; None if they can."""
    if registry is None or not is_published(registry, rule):
        return f"{public_name(rule.name)} is not published"
    for own_source in sources:
        if rule.name in own_source.unknown:
            return own_source.unknown[rule.name]
    for source in rule.sources:
        for other in program.item_rules.get(source.name, ()):  # another version would set other values
            if not is_published(registry, other):
                return f"{other.name}, which sets attributes of {an(source.name)}, is not active in this form"
    if rule.name in program.lanes:
        return (
            f"{public_name(rule.name)} has no entries (ledger: lanes) that show which of the own items it has counted"
        )
    if rule.expired == "keep":
        name = public_name(rule.name)
        return f"{name} keeps what has expired, and an item does not show whether one under its key has expired"
    if group.damaged:
        return f"the group of {public_name(rule.name)} is damaged"
    if any(own_source.entry is not None and rule.name in own_source.entry.refused for own_source in sources):
        return f"the ledger refused a contribution under {public_name(rule.name)}"
    return None


def _totals(group: Group, amounts: Sequence[tuple[Contributed, Contributed]]) -> Totals:
    """Return the totals of a group, minus what the entries say, plus what the items contribute."""
    n, sums = group.totals.n, dict(group.totals.amounts)
    for now, held in amounts:
        for contributed, sign in ((now, 1), (held, -1)):
            n += sign * int(contributed.get("n", 0))
            for slot, amount in contributed.items():
                if slot[:1] in ("=", "#"):
                    sums[slot] = WIDE.add(sums.get(slot, Decimal(0)), sign * Decimal(amount))
    return Totals(n, sums)


def _values(
    rule: LedgerRule, totals: Totals, images: Sequence[Image | None]
) -> tuple[Mapping[str, Value | None], Mapping[str, str]]:
    """Return the corrected attributes of a rule, and the reasons for the others."""
    if not isinstance(rule, AggregateRule):
        return {}, dict.fromkeys(rule.owned(*images), f"{public_name(rule.name)} is a rule of the kind {rule.kind}")
    corrected = tuple(measure for measure in rule.measures if measure.function in CORRECTED)
    others = {
        measure.name: f"{measure.function} depends on the values of other items"
        for measure in rule.measures
        if measure.function not in CORRECTED
    }
    return replace(rule, measures=corrected).published(totals, {}), others


def _is_emptied(
    program: Program, key: ItemKey, image: Image, registry: RegistrySnapshot | None, numbers: Mapping[str, int]
) -> bool:
    """Return whether rules will delete the item, because nothing contributes to it any more.

    The item must have the mark of items that a rule created, and no attributes of the application.
    """
    if registry is None or not numbers or any(numbers.values()):
        return False
    guards = Guards(program, registry.identity)
    item = program.recognise(key, image)
    if item is None or not item.entity.created_by_publishes:
        return False
    rules = program.ledger_rules_into.get(item.entity.name, ())
    others = [guards.read(rule.name, key, image) for rule in rules if rule.name not in numbers]
    if any(guard is not None and guard.n != 0 for guard in others):
        return False
    return application_items(program, guards).may_delete(item.entity, key, image)
