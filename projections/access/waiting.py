"""One look at whether the rules have processed a source item as it is: what `ItemReader.wait` repeats.

The reads are in the order in which a change travels: the source item, its entry, the groups, the targets. If the entry says
what the item contributes, the groups that are read later include it. If the guard of a target, which is read last, is at
least as new as its group, the target shows it. A group that is read before the entry may lack the contribution, and a guard
that is as new as that group proves nothing. The guard of an embed names the parent whose values the item has. If a
rule that publishes to the item has no guard on it, the rule has not seen the item yet; if it has one, nothing is concluded
about its values.

Rules of all entities whose items can have the key are compared, because the item may have been of another one before its
last change. What cannot be compared is `not_covered`:

- Copies that can have other keys than those that follow from the key of their source: a guarded copy leaves no trace of its
  former key in the item or in the ledger.
- Children that embed the item, and the item's own list of parents.
- Values on the item of an entity of which it is not. They may be the application's.
- Rules that write to the item and are not active, and copies: the item does not show of what source it is one.

An item that was changed and changed back is found processed although records of both changes may be on their way.
"""

from __future__ import annotations

from collections.abc import Sequence

from projections.access.look import (
    GroupReads,
    Look,
    Needed,
    Steps,
    again,
    application_items,
    as_registered,
    compare_copy,
    compare_parents,
    copies_of,
    is_deployed,
    is_published,
)
from projections.engine.guards import Guards
from projections.engine.ledger_items import Entry, Target, entry_key
from projections.engine.registry import REGISTRY, RegistrySnapshot
from projections.engine.store import Image, ItemKey
from projections.errors import BadInput
from projections.language.contribution import Contributions
from projections.language.embeds import EmbedRule
from projections.language.entity import Entity, Item
from projections.language.keys import decode_key, encode_key, is_range
from projections.language.program import Program, writing
from projections.language.rules import GuardedCopyRule, LedgerRule, public_name
from projections.language.values import same


def look_at(program: Program, key: ItemKey) -> Steps[Look]:
    """Read how far the rules have processed a source item. Raises Transient."""
    source = encode_key(key)
    image = (yield Needed([key])).get(key)
    at = entry_key(source)
    items = yield Needed([at, REGISTRY])
    look = Look()
    if REGISTRY not in items:
        look.missing["no rules are active yet: the functions create the registry with their first batch"] = None
        return look
    registry = RegistrySnapshot.read(items[REGISTRY])
    program = as_registered(program, registry)
    entry = Entry.read(items[at]) if at in items else None
    item = program.recognise(key, image)
    entities = program.entities_at(key)
    rules = [rule for rule in writing(program.rules.values()) if any(source in entities for source in rule.sources)]
    for rule in rules:
        if not is_deployed(registry, rule):
            name = public_name(rule.name)
            look.unknown[f"{name} is not active in this form: another version of the rules is active"] = None
        if isinstance(rule, EmbedRule):
            look.not_covered[public_name(rule.name)] = None
    if look.unknown:
        return look

    evaluated = program.contributions(item)
    writes = {rule.name for rule in rules}  # a held rule writes nothing
    for name, reason in evaluated.problems:
        if name in writes:
            look.quarantined[f"{public_name(name)}: {reason}"] = None
    recorded = [rule for rule in rules if isinstance(rule, LedgerRule)]
    targets = _compare(program, registry, recorded, evaluated.contributions, entry, image is None, look)
    guards = Guards(program, registry.identity)
    if item is not None:
        _compare_item(program, item, look)
        _compare_received(program, registry, guards, item, look)
    _compare_left(program, guards, entities, key, item, image, look)
    copies = copies_of(program, key, item, look)
    parents = compare_parents(program, registry, guards, item, look) if item is not None else []
    if look.missing or look.unknown:
        return look

    groups = {}
    if targets:
        reads = GroupReads((program.recorded[name], target) for name, target in targets)
        groups = reads.groups((yield from again(reads, [], together=False)), registry)
    places = [decode_key(target) for _, target in targets]
    wanted = dict.fromkeys([*places, *(copy.key for copy in copies), *(parent for _, parent in parents)])
    images = (yield Needed(list(wanted))) if wanted else {}
    for name, target in targets:
        rule, place, group = program.recorded[name], decode_key(target), groups[name, target]
        if group.damaged:
            look.quarantined[f"{public_name(name)}: the group of {target} is damaged"] = None
        else:
            _compare_target(program, guards, rule, place, images.get(place), group.at, look)
    for embed, parent in parents:
        there = program.recognise(parent, images[parent]) if parent in images else None
        if embed.on_delete == "keep" and embed.parent_values(there) is None:
            look.not_covered[embed.name] = None  # the ledger has the values that the parent gave last
        else:
            look.missing[f"{embed.name}: {source} does not show it yet"] = None
    for copy in copies:
        compare_copy(program, guards, copy, key, images.get(copy.key), look)
    return look


def _compare(
    program: Program,
    registry: RegistrySnapshot,
    rules: list[LedgerRule],
    contributions: Contributions,
    entry: Entry | None,
    gone: bool,
    look: Look,
) -> list[Target]:
    """Compare an entry with what the item contributes. Return the targets that have to show it."""
    held = entry.contributions if entry is not None else {}
    targets: list[Target] = []
    for rule in rules:
        now, recorded = contributions.get(rule.name, {}), held.get(rule.name, {})
        if registry.state(rule) == "filling":
            look.filling[f"{public_name(rule.name)} is filling: its fill is not complete"] = None
            continue
        if rule.name in program.lanes:
            look.unknown[
                f"{public_name(rule.name)} has no entry (ledger: lanes) that shows whether it has counted the item"
            ] = None
            continue
        if entry is not None and rule.name in entry.refused:
            look.quarantined[f"{public_name(rule.name)}: {entry.refused[rule.name]}"] = None
            continue
        if gone and recorded and rule.expired == "keep":
            name = public_name(rule.name)
            look.unknown[f"{name} keeps what has expired, and a missing item does not show whether it expired"] = None
            continue
        if now != recorded:
            look.missing[f"{public_name(rule.name)}: the ledger does not record the item as it is"] = None
        targets += [(rule.name, target) for target in now if rule.writes_items and not is_range(target)]
        if entry is not None and registry.versions[rule.name].unfinished:
            named = {target for name, target in entry.targets if public_name(name) == public_name(rule.name)}
            for target in sorted(named - now.keys()):
                if not is_range(target):
                    look.missing[f"{public_name(rule.name)}: {target} may show the former version of the rule"] = None
    if entry is not None:
        for name, target in sorted(entry.pending):
            known = program.recorded.get(name)
            if known is not None and is_published(registry, known):
                look.missing[f"{public_name(name)}: {target} has a pending publish"] = None
    return targets


def _compare_item(program: Program, item: Item, look: Look) -> None:
    """Compare the attributes that rules set on the item itself."""
    for rule in program.item_rules.get(item.entity.name, ()):
        try:
            wanted = rule.desired(item)
        except BadInput as problem:
            look.quarantined[f"{public_name(rule.name)}: {problem}"] = None
            continue
        for name, value in wanted.items():
            stored = item.image.get(name)
            if not same(stored, value) and (value is not None or rule.removes):
                look.missing[f"{public_name(rule.name)}: {name} of the item is not set yet"] = None


def _compare_received(program: Program, registry: RegistrySnapshot, guards: Guards, item: Item, look: Look) -> None:
    """Name the rules that publish to the item and have not done so since it appeared."""
    for rule in writing(program.rules.values()):
        if rule.into is not item.entity or not isinstance(rule, LedgerRule | GuardedCopyRule) or not rule.writes_items:
            continue
        if not isinstance(rule, LedgerRule) or rule.claimed or not is_published(registry, rule):
            look.not_covered[public_name(rule.name)] = None  # the item does not show whether it is the target of a copy
        elif guards.read(rule.name, item.key, item.image) is None:
            look.missing[f"{public_name(rule.name)}: its values of the item are not set yet"] = None


def _compare_left(
    program: Program,
    guards: Guards,
    entities: Sequence[Entity],
    key: ItemKey,
    item: Item | None,
    image: Image | None,
    look: Look,
) -> None:
    """Name the rules that write to other entities under this key, if the item still has their guard or attributes."""
    if image is None:
        return
    here = program.derived_attributes(item.entity.name) if item is not None else frozenset[str]()
    for rule in writing(program.rules.values()):
        if rule.into not in entities or (item is not None and rule.into is item.entity):
            continue
        if rule.has_guard:
            remains = guards.read(rule.name, key, image) is not None
        else:
            remains = rule.writes_items and any(name in image and name not in here for name in rule.owned())
        if remains:
            look.not_covered[public_name(rule.name)] = None


def _compare_target(
    program: Program, guards: Guards, rule: LedgerRule, key: ItemKey, image: Image | None, at: str, look: Look
) -> None:
    """Compare the guard of a target with its group."""
    if not application_items(program, guards).is_of(rule.into, key, image):
        if image is not None and rule.creates:
            look.quarantined[f"{public_name(rule.name)}: an item of another kind has the key {encode_key(key)}"] = None
        elif rule.creates:
            look.missing[f"{public_name(rule.name)}: {encode_key(key)} does not exist yet"] = None
        return  # without an item there is nothing to publish to
    guard = guards.read(rule.name, key, image)
    if guard is None or guard.at < at:
        look.missing[f"{public_name(rule.name)}: {encode_key(key)} does not show it yet"] = None
