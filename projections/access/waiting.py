"""One look at whether the rules have processed a source item as it is: what `ItemReader.wait` repeats.

The reads are in the order in which a change travels: the source item, its entry, the groups, the targets. If the entry says
what the item contributes, the groups that are read later include it. If the guard of a target, which is read last, is at
least as new as its group, the target shows it. A group that is read before the entry may lack the contribution, and a guard
that is as new as that group proves nothing. Children that the caller names are read with the targets: they show the item if
they have its guard and the values that it gives them. In the same way the item is compared with its own parents, and a list
with all of them. If a rule that publishes to the item has no guard on it, the rule has not seen the item yet; if it has one,
nothing is concluded about its values.

Rules of all entities whose items can have the key are compared, because the item may have been of another one before its
last change. What cannot be compared is `not_covered`:

- Copies that can have other keys than those that follow from the key of their source: a guarded copy leaves no trace of its
  former key in the item or in the ledger.
- Values on the item of an entity of which it is not. They may be the application's.
- Rules that write to the item and are not active, and copies: the item does not show of what source it is one.

An item that was changed and changed back is found processed although records of both changes may be on their way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from projections.access.steps import GroupReads, Needed, Steps, again
from projections.access.traced import Traced
from projections.engine.application import ApplicationItems
from projections.engine.delta import unstamped
from projections.engine.guards import Guards
from projections.engine.ledger_items import Entry, Target, entry_key
from projections.engine.registry import FILLING, LIVE, REGISTRY, RegistrySnapshot
from projections.engine.store import Image, ItemKey, Value
from projections.errors import BadInput
from projections.language.contribution import Contributions
from projections.language.embeds import EmbedRule, ListEmbedRule, Reference
from projections.language.entity import Entity, Item
from projections.language.keys import decode_key, encode_key, is_range
from projections.language.program import Program, writing
from projections.language.rules import LIST_BYTES, GuardedCopyRule, LedgerRule, Rule
from projections.language.sizes import size
from projections.language.values import same

__all__ = ["Look", "look_at"]


class Look(NamedTuple):
    """What is known of a source item now. It is processed if nothing is `missing` and no other field has reasons.

    `missing` may come with time; the other reasons do not go away while a caller waits. `not_covered` names the rules of the
    item of which something is not known.
    """

    missing: tuple[str, ...] = ()
    filling: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


class _Found:
    """The reasons, as they are found."""

    def __init__(self) -> None:
        self.missing: dict[str, None] = {}
        self.filling: dict[str, None] = {}
        self.quarantined: dict[str, None] = {}
        self.unknown: dict[str, None] = {}
        self.not_covered: dict[str, None] = {}

    def look(self) -> Look:
        return Look(*map(tuple, (self.missing, self.filling, self.quarantined, self.unknown, self.not_covered)))


def look_at(program: Program, key: ItemKey, children: Sequence[ItemKey] = ()) -> Steps[Look]:
    """Read how far the rules have processed a source item, and whether these items have what embeds take from it.

    Raises Transient.
    """
    source = encode_key(key)
    image = (yield Needed([key])).get(key)
    at = entry_key(source)
    items = yield Needed([at, REGISTRY])
    found = _Found()
    if REGISTRY not in items:
        found.missing["no rules are active yet: the functions create the registry with their first batch"] = None
        return found.look()
    registry = RegistrySnapshot.read(items[REGISTRY])
    entry = Entry.read(items[at]) if at in items else None
    item = program.recognise(key, image) if image is not None else None
    entities = program.entities_at(key)
    rules = [rule for rule in writing(program.rules.values()) if any(source in entities for source in rule.sources)]
    for rule in rules:
        if not _is_deployed(registry, rule):
            found.unknown[f"{rule.name} is not active in this form: another version of the rules is active"] = None
        if isinstance(rule, EmbedRule) and not any(rule.into in program.entities_at(child) for child in children):
            found.not_covered[rule.name] = None
    if found.unknown:
        return found.look()

    evaluated = program.contributions(item)
    writes = {rule.name for rule in rules}  # a shadow rule writes nothing
    for name, reason in evaluated.problems:
        if name not in writes:
            continue
        found.quarantined[f"{name}: {reason}"] = None
    recorded = [rule for rule in rules if isinstance(rule, LedgerRule)]
    targets = _compare(program, registry, recorded, evaluated.contributions, entry, image is None, found)
    guards = Guards(program, registry.ledger)
    if item is not None:
        _compare_item(program, item, found)
        _compare_received(program, registry, guards, item, found)
    _compare_left(program, guards, entities, key, item, image, found)
    copies = _copies(program, key, item, found)
    parents = _parents(program, registry, guards, item, found)
    if found.missing or found.unknown:
        return found.look()

    groups = {}
    if targets:
        reads = GroupReads(program, targets)
        groups = reads.groups((yield from again(reads, [], together=False)))
    places = [decode_key(target) for _, target in targets]
    wanted = dict.fromkeys([*places, *(copy.key for copy in copies), *children])
    wanted |= dict.fromkeys(parent for _, keys in parents for parent in keys)
    shown = (yield Needed(list(wanted))) if wanted else {}
    for name, target in targets:
        rule, place, group = program.recorded[name], decode_key(target), groups[name, target]
        if group.damaged:
            found.quarantined[f"{name}: the group of {target} is damaged"] = None
        elif group.rebuilding:
            found.missing[f"{name}: the group of {target} is being rebuilt"] = None
        else:
            _compare_target(program, guards, rule, place, shown.get(place), group.at, found)
    for place in children:
        for rule in rules:
            if isinstance(rule, EmbedRule) and rule.into in program.entities_at(place):
                _compare_child(program, guards, rule, key, item, place, shown.get(place), found)
    for rule, keys in parents:
        known = {place: program.recognise(place, shown[place]) for place in keys if place in shown}
        if isinstance(rule, ListEmbedRule):
            assert item is not None
            _compare_list(guards, rule, item, known, found)
            continue
        for place in keys:
            _compare_child(program, guards, rule, place, known.get(place), key, image, found)
    for copy in copies:
        _compare_copy(program, guards, copy, key, shown.get(copy.key), found)
    return found.look()


def _compare(
    program: Program,
    registry: RegistrySnapshot,
    rules: list[LedgerRule],
    contributions: Contributions,
    entry: Entry | None,
    gone: bool,
    found: _Found,
) -> list[Target]:
    """Compare an entry with what the item contributes. Return the targets that have to show it."""
    held = entry.contributions if entry is not None else {}
    targets: list[Target] = []
    for rule in rules:
        now, recorded = contributions.get(rule.name, {}), unstamped(held.get(rule.name, {}))
        if registry.state(rule) == FILLING:
            why = (
                "no backfill has activated this version"
                if registry.is_provisional(rule)
                else "its backfill is not complete"
            )
            found.filling[f"{rule.name} is filling: {why}"] = None
            continue
        if entry is not None and rule.name in entry.refused:
            found.quarantined[f"{rule.name}: {entry.refused[rule.name]}"] = None
            continue
        if gone and recorded and rule.expired == "keep":
            found.unknown[
                f"{rule.name} keeps what has expired, and a missing item does not show whether it expired"
            ] = None
            continue
        if now != recorded:
            found.missing[f"{rule.name}: the ledger does not record the item as it is"] = None
        targets += [(rule.name, target) for target in now if rule.writes_items and not is_range(target)]
    if entry is not None:
        for name, target in sorted(entry.pending):
            known = program.recorded.get(name)
            if known is not None and registry.state(known) == LIVE:
                found.missing[f"{name}: {target} has a pending publish"] = None
    return targets


def _compare_item(program: Program, item: Item, found: _Found) -> None:
    """Compare the attributes that rules set on the item itself."""
    for rule in program.item_rules.get(item.entity.name, ()):
        try:
            wanted = rule.desired(item)
        except BadInput as problem:
            found.quarantined[f"{rule.name}: {problem}"] = None
            continue
        for name, value in wanted.items():
            stored = item.image.get(name)
            if not same(stored, value) and (value is not None or rule.removes):
                found.missing[f"{rule.name}: {name} of the item is not set yet"] = None


def _compare_received(program: Program, registry: RegistrySnapshot, guards: Guards, item: Item, found: _Found) -> None:
    """Name the rules that publish to the item and have not done so since it appeared."""
    for rule in writing(program.rules.values()):
        if rule.into is not item.entity or not isinstance(rule, LedgerRule | GuardedCopyRule) or not rule.writes_items:
            continue
        if not isinstance(rule, LedgerRule) or rule.claimed or registry.state(rule) != LIVE:
            found.not_covered[rule.name] = None  # the item does not show whether it is the target of a copy
        elif guards.read(rule.name, item.key, item.image) is None:
            found.missing[f"{rule.name}: its values of the item are not set yet"] = None


def _compare_left(
    program: Program,
    guards: Guards,
    entities: Sequence[Entity],
    key: ItemKey,
    item: Item | None,
    image: Image | None,
    found: _Found,
) -> None:
    """Name the rules that write to other entities under this key, if the item still has their guard or attributes."""
    if image is None:
        return
    here = program.derived_attributes(item.entity.name) if item is not None else frozenset[str]()
    for rule in writing(program.rules.values()):
        if rule.into not in entities or (item is not None and rule.into is item.entity):
            continue
        if rule.has_guard:
            left = guards.read(rule.name, key, image) is not None
        else:
            left = rule.writes_items and any(name in image and name not in here for name in rule.owned())
        if left:
            found.not_covered[rule.name] = None


def _parents(
    program: Program, registry: RegistrySnapshot, guards: Guards, item: Item | None, found: _Found
) -> list[tuple[EmbedRule, list[ItemKey]]]:
    """Return the rules that embed attributes in the item, each with the parents that the item references."""
    parents: list[tuple[EmbedRule, list[ItemKey]]] = []
    for rule in program.embeds_into.get(item.entity.name, ()) if item is not None else ():
        assert item is not None
        if not _is_deployed(registry, rule):
            found.not_covered[rule.name] = None
            continue
        try:
            if isinstance(rule, ListEmbedRule):
                references = rule.references(item)
                keys = None if references is None else [one.key for one in references if one.key is not None]
            else:
                reference = rule.reference(item)
                keys = None if reference is None else [reference]
        except BadInput as problem:
            found.quarantined[f"{rule.name}: {problem}"] = None
            continue
        if keys is not None:
            parents.append((rule, keys))
        elif rule.on_delete == "keep" and guards.name(rule.name) not in item.image:
            continue  # these values are not the rule's
        elif any(name in item.image for name in rule.owned()):
            found.missing[f"{rule.name}: its values of the item are not removed yet"] = None
    return parents


def _is_deployed(registry: RegistrySnapshot, rule: Rule) -> bool:
    """Return whether this version of a rule is active, or functions have worked with it."""
    known = registry.active.get(rule.name)
    return (known is not None and known.fingerprint == rule.fingerprint) or registry.is_provisional(rule)


class _Copy(NamedTuple):
    """A copy that the item has, or may have had: then without attributes."""

    rule: GuardedCopyRule
    key: ItemKey
    attributes: Image | None


def _copies(program: Program, key: ItemKey, item: Item | None, found: _Found) -> list[_Copy]:
    """Return the guarded copies that the item has, and those that it may have had."""
    copies: list[_Copy] = []
    for entity in program.entities_at(key):
        for rule in program.copy_rules.get(entity.name, ()):
            expected: Mapping[ItemKey, Image] = {}
            try:
                expected = rule.copies(item) if item is not None and item.entity is entity else {}
            except BadInput as problem:
                found.quarantined[f"{rule.name}: {problem}"] = None
            former = _fixed_copies(program, rule, key)
            if not former:
                found.not_covered[rule.name] = None
            copies += [_Copy(rule, place, expected.get(place)) for place in dict.fromkeys([*former, *expected])]
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
    found: dict[str, str] = {}
    for pattern, text in zip(entity.patterns, (key.partition, key.sort or ""), strict=False):
        found |= pattern.match(text) or {}
    return found


def _compare_target(
    program: Program, guards: Guards, rule: LedgerRule, key: ItemKey, image: Image | None, at: str, found: _Found
) -> None:
    """Compare the guard of a target with its group."""
    if not _items(program, guards).is_of(rule.into, key, image):
        if image is not None and rule.creates:
            found.quarantined[f"{rule.name}: an item of another kind has the key {encode_key(key)}"] = None
        elif rule.creates:
            found.missing[f"{rule.name}: {encode_key(key)} does not exist yet"] = None
        return  # without an item there is nothing to publish to
    guard = guards.read(rule.name, key, image)
    if guard is None or guard.at < at:
        found.missing[f"{rule.name}: {encode_key(key)} does not show it yet"] = None


def _compare_child(
    program: Program,
    guards: Guards,
    rule: EmbedRule,
    source: ItemKey,
    parent: Item | None,
    key: ItemKey,
    image: Image | None,
    found: _Found,
) -> None:
    """Compare what a child has with what its parent gives it."""
    child = program.recognise(key, image) if image is not None else None
    if child is None or child.entity is not rule.into:
        found.missing[f"{rule.name}: there is no {rule.into.name} {encode_key(key)}"] = None
        return
    if parent is None or parent.entity is not rule.source:
        if rule.on_delete == "keep":  # the ledger has what it gave last
            found.not_covered[rule.name] = None
            return
        parent = None
    guard = guards.read(rule.name, key, image)
    try:
        if isinstance(rule, ListEmbedRule):
            references = rule.references(child) or []
            refers = any(one.key == source for one in references)
            shows = _lists(rule, child, references, source, parent)
            if refers and not shows and _may_be_cut(rule, child, references, source, parent):
                found.not_covered[rule.name] = None
                return
        else:
            refers = rule.reference(child) == source
            values, texts = rule.offered(parent)
            given = values if values and rule.belongs(child, texts) else {}
            shows = guard is not None and guard.by == encode_key(source)
            shows = shows and all(same(child.image.get(name), given.get(name)) for name in rule.owned())
    except BadInput as problem:
        found.quarantined[f"{rule.name}: {problem}"] = None
        return
    if not refers:
        found.unknown[f"{rule.name}: {encode_key(key)} does not reference the item"] = None
    elif guard is None or not shows:
        found.missing[f"{rule.name}: {encode_key(key)} does not show it yet"] = None


def _compare_list(
    guards: Guards, rule: ListEmbedRule, child: Item, parents: Mapping[ItemKey, Item | None], found: _Found
) -> None:
    """Compare the list of the item with what all its parents give it."""
    references = rule.references(child) or []
    given = [rule.given(child, one, parents.get(one.key) if one.key is not None else None) for one in references]
    value, _ = rule.listed(references, given)
    guard = guards.read(rule.name, child.key, child.image)
    if guard is None or not same(child.image.get(rule.list_name), value):
        found.missing[f"{rule.name}: {encode_key(child.key)} does not show it yet"] = None


def _lists(
    rule: ListEmbedRule, child: Item, references: Sequence[Reference], source: ItemKey, parent: Item | None
) -> bool:
    """Return whether the list of a child has what this parent gives it."""
    value = child.image.get(rule.list_name)
    if value is None or not value.keys() & {"L", "M"}:
        return False
    ((_, held),) = value.items()
    for one in references:
        if one.key != source:
            continue
        expected, _ = rule.listed([one], [rule.given(child, one, parent)])
        ((_, elements),) = expected.items()
        if not elements:  # a missing parent is left out
            names = held if rule.as_map else [element.get("M", {}).get(rule.id_name) for element in held]
            return (one.text if rule.as_map else one.value) not in names
        if rule.as_map:
            return one.text in held and same(held[one.text], elements[one.text])
        return any(same(element, elements[0]) for element in held)
    return False


def _may_be_cut(
    rule: ListEmbedRule, child: Item, references: Sequence[Reference], source: ItemKey, parent: Item | None
) -> bool:
    """Return whether the list of a child has no room for what this parent gives it."""
    held = child.image.get(rule.list_name)
    some = [one for one in references if one.key == source]
    element, _ = rule.listed(some, [rule.given(child, one, parent) for one in some])
    return held is not None and size(held) + size(element) > LIST_BYTES


def _compare_copy(
    program: Program, guards: Guards, copy: _Copy, source: ItemKey, image: Image | None, found: _Found
) -> None:
    """Compare a guarded copy with its source."""
    rule, key, expected = copy
    ours = _is_copy_of(guards, rule, source, key, image)
    if expected is None:
        if ours:
            found.missing[f"{rule.name}: the copy {encode_key(key)} is not removed yet"] = None
        return
    if image is not None and not _items(program, guards).may_write(rule, rule.into, key, image):
        if not any(_is_copy_of(guards, other, source, key, image) for other in program.guarded_copies.values()):
            found.quarantined[f"{rule.name}: an item of another kind has the key {encode_key(key)}"] = None
            return
        ours = False  # the key becomes free when another rule removes its copy
    attributes = image or {}
    wanted: dict[str, Value | None] = dict(expected)
    if not rule.copies_all:
        wanted |= {name: None for name in rule.owned() if name not in expected and name not in rule.into.constants}
    elif any(not _is_owned(program, rule, name) for name in attributes.keys() - expected.keys()):
        found.not_covered[rule.name] = None  # an attribute of the application, or one that the source has lost
    if not ours or any(not same(attributes.get(name), value) for name, value in wanted.items()):
        found.missing[f"{rule.name}: the copy {encode_key(key)} is not written yet"] = None


def _is_copy_of(guards: Guards, rule: GuardedCopyRule, source: ItemKey, key: ItemKey, image: Image | None) -> bool:
    """Return whether an item has the guard of a rule's copy of this source."""
    guard = guards.read(rule.name, key, image)
    return guard is not None and guard.by == encode_key(source) and guard.n != 0


def _items(program: Program, guards: Guards) -> ApplicationItems:
    return ApplicationItems(program, cast("Any", None), guards)  # nothing is read or written


def _is_owned(program: Program, rule: GuardedCopyRule, name: str) -> bool:
    """Return whether an attribute of a copy of all attributes is of its key, a guard, or of another rule."""
    if name.startswith(program.guard_prefix) or name in rule.into.schema.key_attributes:
        return True
    return name in program.derived_attributes(rule.into.name)
