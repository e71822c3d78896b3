"""Compares the attributes that parents embed in their children, on both sides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from projections.access.look import Found, is_deployed
from projections.engine.guards import Guards
from projections.engine.registry import RegistrySnapshot
from projections.engine.store import Image, ItemKey
from projections.errors import BadInput
from projections.language.embeds import EmbedRule, ListEmbedRule, Reference
from projections.language.entity import Item
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.language.rules import LIST_BYTES
from projections.language.sizes import size
from projections.language.values import same

__all__ = ["compare_child", "compare_list", "parents_of"]


def parents_of(
    program: Program, registry: RegistrySnapshot, guards: Guards, item: Item | None, found: Found
) -> list[tuple[EmbedRule, list[ItemKey]]]:
    """Return the rules that embed attributes in the item, each with the parents that the item references."""
    parents: list[tuple[EmbedRule, list[ItemKey]]] = []
    for rule in program.embeds_into.get(item.entity.name, ()) if item is not None else ():
        assert item is not None
        if not is_deployed(registry, rule):
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


def compare_child(
    program: Program,
    guards: Guards,
    rule: EmbedRule,
    source: ItemKey,
    parent: Item | None,
    key: ItemKey,
    image: Image | None,
    found: Found,
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


def compare_list(
    guards: Guards, rule: ListEmbedRule, child: Item, parents: Mapping[ItemKey, Item | None], found: Found
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
