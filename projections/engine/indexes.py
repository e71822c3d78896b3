"""Index attributes and computed attributes: what rules write on their source items themselves.

No version is needed: the condition of the write is that every attribute that the rules and `match` read still has the value
that they read. If one of them has changed, a newer record is on its way, and leads to another write.

Rules of one entity may read what the others write. They are applied again to what they wrote, until nothing changes, so that
one write makes all of it: `check` refuses rules that depend on their own results. A value that is set once is computed again
each time, as long as the stored item lacks it: the first time it may have read what another rule is about to change.

If DynamoDB refuses the write, for example because the item would be too large, each rule writes what follows from the stored
item alone: a rule that cannot write does not stop the others. Rules with `once` write last, and only what the whole write
had: otherwise they would set for good what follows from a value that is about to change, or that was refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from projections.engine.application import ApplicationItems
from projections.engine.guards import as_read
from projections.engine.store import AllOf, Image, ItemKey, Purpose, Records, Role, Update, Value, Values
from projections.errors import BadInput, ConditionFailed, InvalidRequest
from projections.language.entity import Entity, Item
from projections.language.program import Program
from projections.language.rules import ItemRule
from projections.language.values import differing


class IndexWrite(NamedTuple):
    """Attributes to set (or, with None, to remove) on an item, and the values they were derived from."""

    key: ItemKey
    entity: Entity
    image: Image
    values: Values
    reads: Values
    rules: tuple[str, ...]
    kind: Role
    sequences: Records = ()
    """The sequence number of the item's newest record; none if a refresh makes the write."""
    apart: tuple[Item, Sequence[ItemRule]] | None = None
    """The item as it was read, and its rules, if there are several: each can write its attributes alone."""


Refused: TypeAlias = Sequence[tuple[str, InvalidRequest]]
"""Rules whose attributes DynamoDB refused to write."""


def index_attributes(rule: ItemRule, item: Item, stored: Item | None = None) -> tuple[Values, str | None]:
    """Return the attributes that a rule sets on an item, None to remove one, and why the rule cannot be evaluated.

    If it cannot be evaluated, it does not apply to the item. `stored` is that of `ItemRule.desired`.
    """
    try:
        return rule.desired(item, stored=stored), None
    except BadInput as problem:
        return rule.without(stored or item), str(problem)


def index_write(
    program: Program, item: Item, sequences: Records = ()
) -> tuple[IndexWrite | None, list[tuple[str, str]]]:
    """Return the write that corrects what rules write on an item itself, None if it is right; and the rules that fail."""
    rules = program.item_rules.get(item.entity.name, ())
    desired, problems = _wanted_attributes(rules, item, item)
    written = item
    for _ in range(program.item_chains.get(item.entity.name, 0)):
        wrong = differing(written.image, desired)
        if not wrong:
            break
        written = _with(written, wrong)
        desired, problems = _wanted_attributes(rules, written, item)
    return _write(rules, item, desired, sequences), problems


def _write(rules: Sequence[ItemRule], item: Item, desired: Values, sequences: Records) -> IndexWrite | None:
    """Return the write that gives an item what it lacks of the desired attributes of some rules."""
    values = differing(item.image, desired)
    if not values:
        return None
    writing = [rule for rule in rules if not values.keys().isdisjoint(rule.owned())]
    reads = {name: item.image.get(name) for rule in writing for name in rule.reads}
    kind: Role = "index" if all(rule.kind == "index" for rule in writing) else "compute"
    names = tuple(rule.name for rule in writing)
    apart = (item, rules) if len(rules) > 1 else None
    return IndexWrite(item.key, item.entity, item.image, values, reads, names, kind, sequences, apart)


def _wanted_attributes(rules: Sequence[ItemRule], item: Item, stored: Item) -> tuple[Values, list[tuple[str, str]]]:
    """Return the attributes of all rules on an item, and the rules that cannot be evaluated."""
    values: dict[str, Value | None] = {}
    problems: list[tuple[str, str]] = []
    for rule in rules:
        desired, problem = index_attributes(rule, item, stored)
        values.update(desired)
        if problem is not None:
            problems.append((rule.name, problem))
    return values, problems


def index_update(items: ApplicationItems, write: IndexWrite) -> Update:
    """Return the update of an item on which every attribute that the rules and `match` read is as it was read."""
    read = [as_read(name, value) for name, value in sorted(write.reads.items())]
    why = Purpose(write.kind, write.rules, "", write.sequences)
    return items.change_as_read(write.entity, write.key, write.values, AllOf(tuple(read)), why, write.image)


def write_index(items: ApplicationItems, write: IndexWrite) -> tuple[bool, Refused]:
    """Write index attributes; if that is refused, those of each rule. Return whether any were written, and the refusals.

    None is written if the item has changed since it was read, or does not exist any more.
    """
    try:
        items.store.write(index_update(items, write))
    except ConditionFailed:
        return False, ()
    except InvalidRequest as error:
        done = _write_apart(items, write, error) if write.apart is not None else None
        return done if done is not None else (False, [(name, error) for name in write.rules])
    return True, ()


def _write_apart(items: ApplicationItems, whole: IndexWrite, error: InvalidRequest) -> tuple[bool, Refused] | None:
    """Write what each rule sets on the item as it is stored, after those before it; None if that is nothing."""
    assert whole.apart is not None
    item, rules = whole.apart
    done: list[bool] = []
    refused: list[tuple[str, InvalidRequest]] = []
    for rule in sorted(rules, key=lambda rule: not rule.removes):
        write = _write([rule], item, index_attributes(rule, item)[0], whole.sequences)
        if not rule.removes:  # it sets attributes once
            due = {name: whole.values[name] for name in rule.owned() if name in whole.values}
            if due != (write.values if write is not None else {}):
                write = None  # it reads what was refused: the value that it would set now would stay
                if due:
                    refused.append((rule.name, error))
                    done.append(False)
        if write is None:
            continue
        again = write.values == whole.values  # it was refused just now
        written, by = (False, [(rule.name, error)]) if again else write_index(items, write)
        refused += by
        done.append(written)
        if written:
            item = _with(item, write.values)
    return (any(done), refused) if done else None


def _with(item: Item, values: Values) -> Item:
    """Return an item with other values of some attributes."""
    image = {name: value for name, value in {**item.image, **values}.items() if value is not None}
    return Item(item.entity, item.key, item.variables, image)
