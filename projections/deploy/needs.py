"""What rules require of a deployment: for each table its schema, event filters, and the functions' operations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Any, NamedTuple

from projections.engine.publishing import shares_calls
from projections.errors import UsageError
from projections.language.entity import Entity
from projections.language.keys import Schema
from projections.language.program import Program
from projections.language.rules import LedgerRule
from projections.language.syntax import suggest
from projections.language.templates import KeyPattern

NOTHING: Mapping[str, Any] = {"eventName": [{"exists": False}]}
"""A filter that matches no record."""

MOST = 5
"""Maximum filters of an event source mapping; more require a higher quota of the account."""

LONGEST = 4096
"""The maximum number of characters of a filter."""


class Prefix(NamedTuple):
    """A prefix of the texts of a key attribute, or with `exact` the whole text."""

    text: str
    exact: bool = False

    @property
    def anything(self) -> bool:
        return not (self.text or self.exact)

    def covers(self, narrower: Prefix) -> bool:
        return self == narrower or (not self.exact and narrower.text.startswith(self.text))

    @property
    def rule(self) -> Any:
        """The condition in a filter."""
        return self.text if self.exact else {"prefix": self.text}


ANYTHING = Prefix("")


class Filters(NamedTuple):
    """The filters of one table's event source mapping: a record passes if any matches, or if there are none.

    `notes` list where more records pass than the rules need, and why.
    """

    patterns: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()


class _Box(NamedTuple):
    """A filter: keys that begin with one of these prefixes in each key attribute."""

    sides: tuple[frozenset[Prefix], ...]

    def covers(self, box: _Box) -> bool:
        return all(
            all(any(prefix.covers(theirs) for prefix in own) for theirs in its)
            for own, its in zip(self.sides, box.sides, strict=True)
        )

    def join(self, box: _Box) -> _Box:
        return _Box(tuple(_least(own | its) for own, its in zip(self.sides, box.sides, strict=True)))

    @property
    def size(self) -> int:
        """The number of combinations of prefixes."""
        return prod(map(len, self.sides))


def key_prefixes(schema: Schema, patterns: Sequence[KeyPattern]) -> tuple[Prefix, ...]:
    """Return the prefix of each key attribute of an entity. Numbers and binaries have none that a filter can test."""
    kinds = [kind for _, kind in (schema.partition, schema.sort) if kind] if schema.sort else [schema.partition[1]]
    return tuple(
        Prefix(pattern.literal if pattern.literal is not None else pattern.literal_prefix, pattern.literal is not None)
        if kind == "S"
        else ANYTHING
        for kind, pattern in zip(kinds, patterns, strict=True)
    )


def filters(schema: Schema, entities: Mapping[str, tuple[Prefix, ...]], most: int = MOST) -> Filters:
    """Return filters that match every record of these entities (name → prefixes), and as few others as possible."""
    for name, prefixes in entities.items():
        if all(prefix.anything for prefix in prefixes):
            return Filters((), (f"keys of {name} begin with a variable or are numbers, so all records must arrive",))
    if not entities:
        return Filters((NOTHING,), ("no rule reads or writes items of this table, so none of its records arrives",))
    order = _order(entities.values())
    boxes = _merge([_Box(tuple(frozenset([prefix]) for prefix in prefixes)) for prefixes in entities.values()])
    notes = []
    if len(boxes) > most:
        notes.append(
            f"Lambda accepts {most} filters, and exact filters would need {len(boxes)}, so some match more records than the "
            "rules need"
        )
        boxes = _fewer(boxes, most)
    patterns = tuple(_pattern(box, schema, order) for box in boxes)
    if any(not pattern["dynamodb"]["Keys"] or len(json.dumps(pattern)) > LONGEST for pattern in patterns):
        return Filters((), (f"the prefixes do not fit into the {LONGEST} characters of a filter",))
    return Filters(patterns, tuple(notes))


IN_POLICIES = str.maketrans({"*": "${*}", "?": "${?}", "$": "${$}"})
"""How a policy writes characters that have a meaning in it."""


def leading_keys(partitions: Sequence[Prefix]) -> tuple[str, ...]:
    """Return the patterns of partition keys for IAM's operator StringLike, in the order of the rules."""
    least = _least(frozenset(partitions))
    return tuple(
        prefix.text.translate(IN_POLICIES) + ("" if prefix.exact else "*")
        for prefix in dict.fromkeys(partitions)
        if prefix in least
    )


Order = Mapping[Prefix, int]


def _order(entities: Iterable[tuple[Prefix, ...]]) -> Order:
    """Return the order of prefixes in the rules."""
    return {p: n for n, p in reversed(list(enumerate(prefix for prefixes in entities for prefix in prefixes)))}


def _least(prefixes: frozenset[Prefix]) -> frozenset[Prefix]:
    """Return the prefixes without those that another one covers."""
    return frozenset(p for p in prefixes if not any(o.covers(p) and o != p for o in prefixes))


def _merge(boxes: list[_Box]) -> list[_Box]:
    """Return fewer filters for the same keys: without covered ones, and joined where only one key attribute differs."""
    boxes = [
        box
        for number, box in enumerate(boxes)
        if not any(o.covers(box) and (o != box or n < number) for n, o in enumerate(boxes) if n != number)
    ]
    for side in (0, -1):  # first those of one partition prefix: such filters read best
        boxes = _join(boxes, side)
    return boxes


def _join(boxes: list[_Box], side: int) -> list[_Box]:
    """Join the filters that agree in one of the two key attributes."""
    result: list[_Box] = []
    for box in boxes:
        place = next((n for n, o in enumerate(result) if len(box.sides) == 1 or o.sides[side] == box.sides[side]), None)
        if place is None:
            result.append(box)
        else:
            result[place] = result[place].join(box)
    return result


def _fewer(boxes: list[_Box], most: int) -> list[_Box]:
    """Return at most so many filters: each step joins the two whose join adds the fewest combinations."""
    while len(boxes) > most:
        box, other = min(combinations(boxes, 2), key=lambda two: two[0].join(two[1]).size - two[0].size - two[1].size)
        boxes[boxes.index(box)] = box.join(other)
        boxes.remove(other)
        boxes = _merge(boxes)
    return boxes


def _pattern(box: _Box, schema: Schema, order: Order) -> Mapping[str, Any]:
    keys = {
        attribute: {"S": [prefix.rule for prefix in sorted(side, key=order.__getitem__)]}
        for attribute, side in zip(schema.key_attributes, box.sides, strict=True)
        if not any(prefix.anything for prefix in side)
    }
    return {"dynamodb": {"Keys": keys}}


# --- tables ---

MAIN = "main"
"""The name of the only table of rules with `table:`."""

_INDEX_NAME = re.compile(r"[A-Za-z0-9_.-]{3,255}")


class TableNeeds(NamedTuple):
    """What the rules require of one of the application's tables."""

    name: str
    """Its name in the rules."""
    suffix: str
    """The suffix of the names of its resources, empty for the only table."""
    schema: Schema
    filters: Filters
    updates: bool
    """Rules write to its items."""
    deletes: bool
    """Rules create and delete items in it: copies and derived items."""
    children: bool
    """It has children of embed rules, which a push updates in batches of statements."""
    searched: bool
    """A push queries it, or its indexes, for children; those of several parents are found in the ledger."""
    published: bool
    """Rules publish to its items in batches of statements."""
    queried: tuple[str, ...]
    """The indexes that a push queries."""
    leading: tuple[str, ...]
    """The partition keys of the items that rules read and write, as values of `dynamodb:LeadingKeys`."""
    lanes: tuple[str, ...]
    """The rules that count its items by the shards of its stream."""
    unrestricted: str
    """Why a condition on partition keys is not possible, empty if it is."""
    messages: tuple[Mapping[str, Any], ...]
    """The filters of the pipe that sends its records to an event bus; none without a pipe."""


@dataclass(frozen=True)
class Deployment:
    """A deployment of rules.

    `existing`: all tables exist already, and the template creates none. `leading_keys`: the roles may write only items whose
    partition keys rules make or read. `notify`: the rules whose values a pipe sends to an event bus.
    """

    file: str
    """The rule file, as the template's header names it."""
    program: Program
    existing: bool = False
    leading_keys: bool = False
    notify: tuple[str, ...] = ()

    @cached_property
    def tables(self) -> tuple[TableNeeds, ...]:
        """The tables in the order of the rules. Raises UsageError for a name that AWS rejects, and for `notify`."""
        suffixes = _suffixes(self.program.tables)
        return tuple(_needs(self.program, name, suffixes[name], self.notify) for name in self.program.tables)

    @cached_property
    def within(self) -> tuple[tuple[str, str, int], ...]:
        """Each rule with `within`: its name, a suffix for a logical id, and the seconds. Held rules publish nothing."""
        rules = self.program.rules
        limits = {name: limit for name, limit in self.program.within.items() if not rules[name].held}
        suffixes = _suffixes(dict.fromkeys(limits))
        return tuple((name, suffixes[name], limit) for name, limit in limits.items())


def entities_of(program: Program, table: str) -> list[Entity]:
    """Return the entities of a table that any rule reads or writes."""
    used = {entity.name for rule in program.rules.values() for entity in (*rule.sources, rule.into)}
    return [entity for entity in program.entities.values() if entity.name in used and entity.table == table]


def _message_filters(program: Program, table: str, notify: Iterable[str]) -> tuple[Mapping[str, Any], ...]:
    """Return filters for the records of a table's items that have the guards of these rules. Raises UsageError.

    A pattern cannot compare the images of a record, so all changes of these items match. It cannot test `eventName` in a
    pipe either: a deletion is a record whose old image has the guard, and only of an item that the rule deletes it is a
    change of a derived value.
    """
    patterns: list[Mapping[str, Any]] = []
    for name in dict.fromkeys(notify):
        rule = program.rules.get(name)
        if rule is None:
            raise UsageError(f"--notify {name}: there is no such rule{suggest(name, list(program.rules))}")
        if not isinstance(rule, LedgerRule) or rule.claimed or not rule.writes_items:
            raise UsageError(
                f"--notify {name}: only guards of aggregate, top, latest and flag rules number the values that they publish"
            )
        if rule.into.table == table:
            images = ("NewImage", "OldImage") if rule.into.owned_by_rules else ("NewImage",)
            guard = {program.guard(name): {"S": [{"exists": True}]}}
            patterns += [{"dynamodb": {image: guard}} for image in images]
    if len(patterns) > MOST:
        raise UsageError(
            f"--notify: a pipe accepts {MOST} filters, and the rules of table {table} need {len(patterns)}: one each, "
            "and two for an item that rules create. Omit rules"
        )
    return tuple(patterns)


def _needs(program: Program, name: str, suffix: str, notify: tuple[str, ...]) -> TableNeeds:
    schema, rules = program.tables[name], program.rules.values()
    for index in schema.indexes:
        if not _INDEX_NAME.fullmatch(index):
            raise UsageError(
                f'table {name}: invalid name of an index "{index}". It must have 3 to 255 letters, digits and _ . -'
            )
    targets = [rule.into for rule in rules if rule.writes_items and rule.into.table == name]
    children = [rule for rule in program.embeds.values() if rule.into.table == name]
    # The targets of removed rules are unknown.
    removed = "remove" in program.retired.values()
    prefixes = {e.name: key_prefixes(schema, e.patterns) for e in entities_of(program, name)}
    free = next((entity for entity, (partition, *_) in prefixes.items() if partition.anything), None)
    unrestricted = f"the partition key of {free} begins with a variable or is no text" if free is not None else ""
    if not prefixes:
        unrestricted = f"no rule reads or writes items of table {name}"
    if removed:
        unrestricted = "the keys of items from which a rule in `retired` is removed are unknown"
    return TableNeeds(
        name=name,
        suffix=suffix,
        schema=schema,
        filters=filters(schema, prefixes),
        updates=removed or bool(targets),
        deletes=removed or any(target.owned_by_rules for target in targets),
        children=bool(children),
        searched=any(rule.searches for rule in children),
        published=any(
            rule.writes_items and shares_calls(rule) for rule in program.recorded.values() if rule.into.table == name
        ),
        queried=tuple(dict.fromkeys(rule.children.index for rule in children if rule.children.index)),
        lanes=program.lanes_from[name],
        leading=leading_keys([partition for partition, *_ in prefixes.values()]),
        unrestricted=unrestricted,
        messages=_message_filters(program, name, notify),
    )


def _suffixes(names: Mapping[str, object]) -> dict[str, str]:
    """Return suffixes for logical ids, of letters and digits: OrderLines for `order-lines`."""
    suffixes: dict[str, str] = {}
    for name in names:
        words = re.findall(r"[A-Za-z0-9]+", name)
        suffix = "" if name == MAIN else "".join(word[0].upper() + word[1:] for word in words)
        number = 2
        while suffix in suffixes.values():
            suffix, number = f"{suffix.rstrip('0123456789')}{number}", number + 1
        suffixes[name] = suffix
    return suffixes
