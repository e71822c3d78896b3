"""Index attributes: key attributes of indexes on the source item itself.

No version is needed: the write holds only while every attribute that the rules and `match` read still has the value they
read. If one has changed since, a newer record is on its way and decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from projections.engine.application import ApplicationItems
from projections.engine.guards import as_read
from projections.engine.store import AllOf, Image, ItemKey, Purpose, Value
from projections.errors import BadInput, ConditionFailed
from projections.language.entity import Entity, Item
from projections.language.program import Program
from projections.language.rules import IndexRule
from projections.language.values import differing

__all__ = ["IndexWrite", "index_attributes", "index_write", "write_index"]


@dataclass(frozen=True, slots=True)
class IndexWrite:
    """Attributes to set (or, with None, to remove) on an item, and the values they were derived from."""

    key: ItemKey
    entity: Entity
    image: Image
    values: dict[str, Value | None]
    reads: dict[str, Value | None]
    sequence: str
    rules: tuple[str, ...]


def index_attributes(rule: IndexRule, item: Item) -> tuple[dict[str, Value | None], str | None]:
    """The attributes that an item should have under a rule, None where it should have none, and what is wrong with it.

    A rule that cannot be evaluated leaves the item out of its index.
    """
    try:
        return rule.desired(item), None
    except BadInput as problem:
        return dict.fromkeys((name for name, _, _ in rule.attributes), None), str(problem)


def index_write(program: Program, item: Item, sequence: str) -> tuple[IndexWrite | None, list[tuple[str, str]]]:
    """What an item's image lacks of the index attributes it should have, None if nothing; and the rules that fail on it."""
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
    return IndexWrite(item.key, item.entity, item.image, values, reads, sequence, tuple(names)), problems


def write_index(items: ApplicationItems, write: IndexWrite) -> bool:
    """Writes index attributes. False if the item has changed since, or is gone."""
    read = [as_read(name, value) for name, value in sorted(write.reads.items())]
    try:
        why = Purpose("index", write.rules)
        items.change_as_read(write.entity, write.key, write.values, AllOf(tuple(read)), why, write.image)
    except ConditionFailed:
        return False
    return True
