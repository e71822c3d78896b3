"""Compares the copies of a source item with what its rules copy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from projections.access.look import Found, application_items
from projections.access.traced import Traced
from projections.engine.guards import Guards
from projections.engine.store import Image, ItemKey, Value
from projections.errors import BadInput
from projections.language.entity import Entity, Item
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.language.rules import GuardedCopyRule
from projections.language.values import same

__all__ = ["Copy", "compare_copy", "copies_of"]


class Copy(NamedTuple):
    """A copy that the item has, or may have had: then without attributes."""

    rule: GuardedCopyRule
    key: ItemKey
    attributes: Image | None


def copies_of(program: Program, key: ItemKey, item: Item | None, found: Found) -> list[Copy]:
    """Return the guarded copies that the item has, and those that it may have had."""
    copies: list[Copy] = []
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
    found: dict[str, str] = {}
    for pattern, text in zip(entity.patterns, (key.partition, key.sort or ""), strict=False):
        found |= pattern.match(text) or {}
    return found


def compare_copy(
    program: Program, guards: Guards, copy: Copy, source: ItemKey, image: Image | None, found: Found
) -> None:
    """Compare a guarded copy with its source."""
    rule, key, expected = copy
    ours = _is_copy_of(guards, rule, source, key, image)
    if expected is None:
        if ours:
            found.missing[f"{rule.name}: the copy {encode_key(key)} is not removed yet"] = None
        return
    if image is not None and not application_items(program, guards).may_write(rule, rule.into, key, image):
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


def _is_owned(program: Program, rule: GuardedCopyRule, name: str) -> bool:
    """Return whether an attribute of a copy of all attributes is of its key, a guard, or of another rule."""
    if name.startswith(program.guard_prefix) or name in rule.into.schema.key_attributes:
        return True
    return name in program.derived_attributes(rule.into.name)
