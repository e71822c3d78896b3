"""Index attributes: key attributes of indexes on the source item itself.

No version is needed: the condition of the write is that every attribute that the rules and `match` read still has the value
that they read. If one of them has changed, a newer record is on its way, and leads to another write.
"""

from __future__ import annotations

from typing import NamedTuple

from projections.engine.application import ApplicationItems
from projections.engine.guards import as_read
from projections.engine.store import AllOf, Image, ItemKey, Purpose, Records, Update, Value
from projections.errors import BadInput, ConditionFailed
from projections.language.entity import Entity, Item
from projections.language.program import Program
from projections.language.rules import IndexRule
from projections.language.values import differing

__all__ = ["IndexWrite", "index_attributes", "index_write", "write_index"]


class IndexWrite(NamedTuple):
    """Attributes to set (or, with None, to remove) on an item, and the values they were derived from."""

    key: ItemKey
    entity: Entity
    image: Image
    values: dict[str, Value | None]
    reads: dict[str, Value | None]
    rules: tuple[str, ...]
    sequences: Records = ()
    """The sequence number of the item's newest record; none if a refresh makes the write."""


def index_attributes(rule: IndexRule, item: Item) -> tuple[dict[str, Value | None], str | None]:
    """Return the attributes that a rule sets on an item, None to remove one, and why the rule cannot be evaluated.

    If it cannot be evaluated, the item is not in the rule's index.
    """
    try:
        return rule.desired(item), None
    except BadInput as problem:
        return dict.fromkeys((name for name, _, _ in rule.attributes), None), str(problem)


def index_write(
    program: Program, item: Item, sequences: Records = ()
) -> tuple[IndexWrite | None, list[tuple[str, str]]]:
    """Return the write that corrects the index attributes of an item, None if they are right; and the rules that fail."""
    values: dict[str, Value | None] = {}
    reads: dict[str, Value | None] = {}
    problems: list[tuple[str, str]] = []
    names: list[str] = []
    for rule in program.index_rules.get(item.entity.name, ()):
        desired, problem = index_attributes(rule, item)
        if problem is not None:
            problems.append((rule.name, problem))
        wrong = differing(item.image, desired)
        if wrong:
            values.update(wrong)
            names.append(rule.name)
            reads.update((name, item.image.get(name)) for name in rule.reads)
    if not values:
        return None, problems
    return IndexWrite(item.key, item.entity, item.image, values, reads, tuple(names), sequences), problems


def index_update(items: ApplicationItems, write: IndexWrite) -> Update:
    """Return the update of an item on which every attribute that the rules and `match` read is as it was read."""
    read = [as_read(name, value) for name, value in sorted(write.reads.items())]
    why = Purpose("index", write.rules, "", write.sequences)
    return items.change_as_read(write.entity, write.key, write.values, AllOf(tuple(read)), why, write.image)


def write_index(items: ApplicationItems, write: IndexWrite) -> bool:
    """Write index attributes. Return False if the item has changed since it was read, or does not exist any more."""
    try:
        items.store.write(index_update(items, write))
    except ConditionFailed:
        return False
    return True
