"""One item of a live table: where each derived value came from, and what it contributes itself. Nothing is written.

    read 1   the item, its ledger entry, its fences, the registry              one BatchGetItem
    read 2   the groups of the rules that write to it                          one BatchGetItem (and a query where sharded)
    read 3   what it is derived from, and what is copied from it               one BatchGetItem
    and a query for each list, extreme or claim

Each read is consistent, but they are not one: what changes between them shows as a difference that is none.
"""

from __future__ import annotations

from projections.engine.copies import copies_of
from projections.engine.embeds import reference_of
from projections.engine.groups import Generations, read_groups
from projections.engine.ledger_items import entry_key, fence_key
from projections.engine.registry import REGISTRY, Standing
from projections.engine.store import ItemKey, Store
from projections.language.keys import encode_key
from projections.language.program import Program
from projections.tools.explain.derived import derived
from projections.tools.explain.facts import ItemTold
from projections.tools.explain.given import source
from projections.tools.explain.readings import Readings

__all__ = ["tell_item"]


def tell_item(program: Program, store: Store, key: ItemKey) -> ItemTold:
    """Reads what there is to know of an item. Raises what a store raises."""
    text = encode_key(key)
    fences = {
        fence_key(rule.name, text): rule.name
        for rules in program.embeds_from.values()
        for rule in rules
        if rule.partition_of(key) is not None
    }
    found = store.get_many([key, entry_key(text), *fences, REGISTRY])
    image = found.get(key)
    item = program.recognise(key, image) if image is not None else None
    standing = Standing.read(found[REGISTRY]) if REGISTRY in found else None
    read = Readings(program, store, key, image, item, standing)
    targets = [(rule.name, text) for rule in read.onto]
    if targets:
        read.groups = read_groups(store, targets, Generations())
    if neighbours := _neighbours(read):
        read.near = store.get_many(neighbours)
    versions = tuple((rule, found[at]["version"]["S"]) for at, rule in fences.items() if at in found)
    outdated = standing is not None and standing.program != program.fingerprint
    given = source(read, found.get(entry_key(text)), versions)
    return ItemTold(key, image, item, derived(read), given, outdated)


def _neighbours(read: Readings) -> list[ItemKey]:
    """The items that this one is derived from, and the copies that are made of it."""
    if read.item is None:
        return []
    keys: list[ItemKey] = []
    name = read.item.entity.name
    copy = read.program.copy_rule_into.get(name)
    if copy is not None:
        keys += read.guard(copy).sources
    for rule in read.program.embeds_into.get(name, ()):
        parent = reference_of(rule, read.item)[0]
        if parent is not None:
            keys += [parent, fence_key(rule.name, encode_key(parent))]
    for own in read.program.copy_rules.get(name, ()):
        keys += copies_of(own, read.item)
    return list(dict.fromkeys(keys))
