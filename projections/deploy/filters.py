"""Which stream records the rules need, as Lambda's event filters: key prefixes of all sources and targets, nothing else.

Healing needs INSERT, MODIFY and REMOVE of both, so a filter never looks at the event's name or at attributes. Too much
may pass, too little never: where there are more prefixes than Lambda takes, filters get coarser, or there are none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from projections.language.keys import Schema
from projections.language.templates import KeyPattern
from projections.local.event_source.filters import LONGEST

__all__ = ["MOST", "NOTHING", "Filters", "Prefix", "filters", "key_prefixes"]

NOTHING: Mapping[str, Any] = {"eventName": [{"exists": False}]}
"""A filter that lets no record through."""

MOST = 5
"""Filters per event source mapping; more only after a change of the account's quota."""


@dataclass(frozen=True, slots=True)
class Prefix:
    """What the texts of one key attribute begin with, or are: `exact` says which."""

    text: str
    exact: bool = False

    @property
    def anything(self) -> bool:
        return not (self.text or self.exact)

    def covers(self, other: Prefix) -> bool:
        return self == other or (not self.exact and other.text.startswith(self.text))

    @property
    def rule(self) -> Any:
        """As a filter says it."""
        return self.text if self.exact else {"prefix": self.text}


ANYTHING = Prefix("")


@dataclass(frozen=True, slots=True)
class Filters:
    """The filters of one table's event source mapping: a record passes if any matches; with none, all records pass.

    `notes` says where they let through more than the rules need, and why.
    """

    patterns: tuple[Mapping[str, Any], ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Box:
    """Keys that begin with one of these in every key attribute: a filter."""

    sides: tuple[frozenset[Prefix], ...]

    def covers(self, other: _Box) -> bool:
        return all(
            all(any(ours.covers(theirs) for ours in mine) for theirs in its)
            for mine, its in zip(self.sides, other.sides, strict=True)
        )

    def joined(self, other: _Box) -> _Box:
        return _Box(tuple(_least(mine | its) for mine, its in zip(self.sides, other.sides, strict=True)))

    @property
    def size(self) -> int:
        """How many combinations of prefixes it lets through."""
        product = 1
        for side in self.sides:
            product *= len(side)
        return product


def key_prefixes(schema: Schema, patterns: Sequence[KeyPattern]) -> tuple[Prefix, ...]:
    """What an entity's keys begin with, for each key attribute. Numbers and binaries have no prefix that a filter knows."""
    kinds = [kind for _, kind in (schema.partition, schema.sort) if kind] if schema.sort else [schema.partition[1]]
    return tuple(
        Prefix(pattern.literal if pattern.literal is not None else pattern.literal_prefix, pattern.literal is not None)
        if kind == "S"
        else ANYTHING
        for kind, pattern in zip(kinds, patterns, strict=True)
    )


def filters(schema: Schema, entities: Mapping[str, tuple[Prefix, ...]], most: int = MOST) -> Filters:
    """The filters that let through every record of these entities (name → prefixes), and as little else as possible."""
    for name, prefixes in entities.items():
        if all(prefix.anything for prefix in prefixes):
            return Filters((), (f"keys of {name} begin with a variable or are numbers, so all records have to arrive",))
    if not entities:
        return Filters((NOTHING,), ("no rule reads or writes items of this table, so none of its records arrives",))
    order = _order(entities.values())
    boxes = _merged([_Box(tuple(frozenset([prefix]) for prefix in prefixes)) for prefixes in entities.values()])
    notes = []
    if len(boxes) > most:
        notes.append(
            f"{most} filters are allowed and {len(boxes)} would be exact, so some let through more than the rules need"
        )
        boxes = _fewer(boxes, most)
    patterns = []
    for box in boxes:
        fitting = _fitting(box, schema, order)
        if fitting is None:
            return Filters((), (f"the prefixes do not fit into the {LONGEST} characters of a filter",))
        if fitting != box:
            notes.append(f"a filter has at most {LONGEST} characters, so one leaves out a key attribute")
        patterns.append(_pattern(fitting, schema, order))
    return Filters(tuple(patterns), tuple(dict.fromkeys(notes)))


Order = Mapping[Prefix, int]


def _order(entities: Iterable[tuple[Prefix, ...]]) -> Order:
    """Prefixes in the order in which the rules name them, so that filters read like the rules."""
    return {p: n for n, p in reversed(list(enumerate(prefix for prefixes in entities for prefix in prefixes)))}


def _least(prefixes: frozenset[Prefix]) -> frozenset[Prefix]:
    """Without those that another one covers."""
    return frozenset(p for p in prefixes if not any(o.covers(p) and o != p for o in prefixes))


def _merged(boxes: list[_Box]) -> list[_Box]:
    """The same keys in fewer filters: without what another covers, joined where only one key attribute differs."""
    boxes = [
        box
        for number, box in enumerate(boxes)
        if not any(o.covers(box) and (o != box or n < number) for n, o in enumerate(boxes) if n != number)
    ]
    for side in (0, -1):  # first those of one partition prefix: such filters read best
        boxes = _joined(boxes, side)
    return boxes


def _joined(boxes: list[_Box], side: int) -> list[_Box]:
    """Those that agree in one key attribute, of which there are two at most, are one."""
    found: list[_Box] = []
    for box in boxes:
        place = next((n for n, o in enumerate(found) if len(box.sides) == 1 or o.sides[side] == box.sides[side]), None)
        if place is None:
            found.append(box)
        else:
            found[place] = found[place].joined(box)
    return found


def _fewer(boxes: list[_Box], most: int) -> list[_Box]:
    """At most so many, each step joining the two that let through the least beyond what they did before."""
    while len(boxes) > most:
        one, other = min(combinations(boxes, 2), key=lambda two: two[0].joined(two[1]).size - two[0].size - two[1].size)
        boxes[boxes.index(one)] = one.joined(other)
        boxes.remove(other)
        boxes = _merged(boxes)
    return boxes


def _fitting(box: _Box, schema: Schema, order: Order) -> _Box | None:
    """The same filter if it is short enough, else with one key attribute only, whichever says more; None if neither fits."""
    anything = frozenset([ANYTHING])
    choices = [box]
    if len(box.sides) > 1:
        choices += [_Box((box.sides[0], anything)), _Box((anything, box.sides[1]))]
    for choice in choices:
        pattern = _pattern(choice, schema, order)
        if pattern["dynamodb"]["Keys"] and len(json.dumps(pattern)) <= LONGEST:
            return choice
    return None


def _pattern(box: _Box, schema: Schema, order: Order) -> Mapping[str, Any]:
    keys = {
        attribute: {"S": [prefix.rule for prefix in sorted(side, key=order.__getitem__)]}
        for attribute, side in zip(schema.key_attributes, box.sides, strict=True)
        if not any(prefix.anything for prefix in side)
    }
    return {"dynamodb": {"Keys": keys}}
