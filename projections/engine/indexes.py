"""Index attributes: key attributes of indexes on the source item itself.

No version is needed: the write holds only while every attribute the rules read still has the value they read. If one has
changed since, a newer record is on its way and decides.
"""

from __future__ import annotations

from dataclasses import dataclass

from projections.engine.store import AllOf, Condition, Equal, Exists, ItemKey, Missing, Store, Update, Value
from projections.errors import BadInput, ConditionFailed
from projections.language.program import Program
from projections.language.rules import IndexRule
from projections.language.scope import Item
from projections.language.values import same

__all__ = ["IndexWrite", "index_attributes", "index_write", "write_index"]


@dataclass(frozen=True, slots=True)
class IndexWrite:
    """Attributes to set (or, with None, to remove) on an item, and the values they were derived from."""

    key: ItemKey
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
        wrong = {name: value for name, value in desired.items() if not same(item.image.get(name), value)}
        if wrong:
            values.update(wrong)
            names.append(rule.name)
            reads.update((name, item.image.get(name)) for name in rule.reads)
    return (IndexWrite(item.key, values, reads, sequence, tuple(names)) if values else None), problems


def write_index(store: Store, write: IndexWrite) -> bool:
    """Writes index attributes. False if the item has changed since, or is gone."""
    conditions: list[Condition] = [Exists((store.schema(write.key.table).partition[0],))]
    for name, value in sorted(write.reads.items()):
        conditions.append(Missing((name,)) if value is None else Equal((name,), value))
    update = Update(
        write.key,
        set={name: value for name, value in write.values.items() if value is not None},
        remove=tuple(sorted(name for name, value in write.values.items() if value is None)),
        condition=AllOf(tuple(conditions)),
    )
    try:
        store.write(update)
    except ConditionFailed:
        return False
    return True
