"""One look at whether the rules have processed a source item as it is: what `ItemReader.wait` repeats.

The reads are in the order in which a change travels: the source item, its entry, the groups, the targets. If the entry says
what the item contributes, the groups that are read later include it. If the guard of a target, which is read last, is at
least as new as its group, the target shows it. A group that is read before the entry may lack the contribution, and a guard
that is as new as that group proves nothing. Children that the caller names are read with the targets: they show the item if
they have its guard and the values that it gives them.

An item that was changed and changed back is found processed although records of both changes may be on their way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from projections.access.steps import GroupReads, Needed, Steps, again
from projections.engine.application import ApplicationItems
from projections.engine.delta import unstamped
from projections.engine.guards import Guards
from projections.engine.ledger_items import Entry, Target, entry_key
from projections.engine.registry import FILLING, LIVE, REGISTRY, SHADOW, RegistrySnapshot
from projections.engine.store import Image, ItemKey, Value
from projections.errors import BadInput
from projections.language.contribution import Contributions
from projections.language.embeds import EmbedRule, ListEmbedRule, Reference
from projections.language.entity import Item
from projections.language.keys import decode_key, encode_key, is_range
from projections.language.program import Program, writing
from projections.language.rules import GuardedCopyRule, LedgerRule
from projections.language.values import same

__all__ = ["Look", "look_at"]


class Look(NamedTuple):
    """What is known of a source item now. It is processed if nothing is `missing` and no other field has reasons.

    `missing` may come with time; the other reasons do not go away while a caller waits. `not_covered` names the rules of the
    item's entity of which nothing is known.
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
        found.unknown["no rules are active yet: the registry is missing in the ledger"] = None
        return found.look()
    registry = RegistrySnapshot.read(items[REGISTRY])
    entry = Entry.read(items[at]) if at in items else None
    item = program.recognise(key, image) if image is not None else None
    entities = program.entities_at(key) if item is None else [item.entity]
    rules = [rule for rule in writing(program.rules.values()) if any(source in entities for source in rule.sources)]
    for rule in rules:
        known = registry.active.get(rule.name)
        if known is None or known.fingerprint != rule.fingerprint:
            found.unknown[f"{rule.name} is not active in this form: another version of the rules is active"] = None
        if isinstance(rule, EmbedRule) and not any(rule.into in program.entities_at(child) for child in children):
            found.not_covered[rule.name] = None
    if found.unknown:
        return found.look()

    evaluated = program.contributions(item)
    for name, reason in evaluated.problems:
        found.quarantined[f"{name}: {reason}"] = None
    recorded = [rule for rule in rules if isinstance(rule, LedgerRule)]
    targets = _compare(program, registry, recorded, evaluated.contributions, entry, image is None, found)
    if item is not None:
        _compare_item(program, item, found)
    copies = _copies(program, key, item, image, found)
    if found.missing or found.unknown:
        return found.look()

    groups = {}
    if targets:
        reads = GroupReads(program, targets)
        groups = reads.groups((yield from again(reads, [], together=False)))
    wanted = dict.fromkeys([*(decode_key(target) for _, target in targets), *copies, *children])
    shown = (yield Needed(list(wanted))) if wanted else {}
    guards = Guards(program, registry.ledger)
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
    for place, (name, expected) in copies.items():
        _compare_copy(program, guards, program.guarded_copies[name], key, place, expected, shown.get(place), found)
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
        if registry.state(rule) == FILLING and (now or recorded):
            found.filling[rule.name] = None
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


def _copies(
    program: Program, key: ItemKey, item: Item | None, image: Image | None, found: _Found
) -> dict[ItemKey, tuple[str, Image | None]]:
    """Return the keys of guarded copies with the rule and the attributes that they should have; None for no copy."""
    copies: dict[ItemKey, tuple[str, Image | None]] = {}
    if item is None:  # removed, or of no entity any more: what its key alone shows
        bare = dict(program.tables[key.table].wire(key))
        kinds = [Item(entity, key, variables, bare) for entity in program.entities_at(key)
                 if (variables := _variables(program, entity.name, key)) is not None]  # fmt: skip
    else:
        kinds = [item]
    for one in kinds:
        for rule in program.copy_rules.get(one.entity.name, ()):
            if rule.mode == SHADOW:
                continue
            try:
                expected = rule.copies(item) if item is not None else {}
                if expected:
                    copies |= {place: (rule.name, attributes) for place, attributes in expected.items()}
                    continue
                former = replace(rule, where=None, templates=(), pick=lambda resolve: {}).copies(one)
            except BadInput as problem:
                if item is not None:
                    found.quarantined[f"{rule.name}: {problem}"] = None
                else:
                    found.not_covered[rule.name] = None
                continue
            if not former or rule.each is not None:
                found.not_covered[rule.name] = None
            copies |= dict.fromkeys(former, (rule.name, None))
    return copies


def _variables(program: Program, entity: str, key: ItemKey) -> Mapping[str, str] | None:
    """Return the variables in the key of an item of an entity."""
    patterns = program.entities[entity].patterns
    found: dict[str, str] = {}
    for pattern, text in zip(patterns, (key.partition, key.sort or ""), strict=False):
        variables = pattern.match(text)
        if variables is None:
            return None
        found |= variables
    return found


def _compare_target(
    program: Program, guards: Guards, rule: LedgerRule, key: ItemKey, image: Image | None, at: str, found: _Found
) -> None:
    """Compare the guard of a target with its group."""
    nowhere = cast("Any", None)  # nothing is read or written
    if not ApplicationItems(program, nowhere, guards).is_of(rule.into, key, image):
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


def _compare_copy(
    program: Program,
    guards: Guards,
    rule: GuardedCopyRule,
    source: ItemKey,
    key: ItemKey,
    expected: Image | None,
    image: Image | None,
    found: _Found,
) -> None:
    """Compare a guarded copy with its source."""
    guard = guards.read(rule.name, key, image)
    ours = guard is not None and guard.by == encode_key(source) and guard.n != 0
    if expected is None:
        if ours:
            found.missing[f"{rule.name}: the copy {encode_key(key)} is not removed yet"] = None
        return
    if image is not None and not ours and guard is None and not program.recognise(key, image):
        found.quarantined[f"{rule.name}: an item of another kind has the key {encode_key(key)}"] = None
        return
    attributes = image or {}
    wanted: dict[str, Value | None] = dict(expected)
    if not rule.copies_all:
        wanted |= {name: None for name in rule.owned() if name not in expected and name not in rule.into.constants}
    if not ours or any(not same(attributes.get(name), value) for name, value in wanted.items()):
        found.missing[f"{rule.name}: the copy {encode_key(key)} is not written yet"] = None
