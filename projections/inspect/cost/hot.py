"""The keys that get hot: how many units a second the busiest items take, and from which rate on they take too many."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from projections.inspect.cost.batch import BatchCost
from projections.inspect.cost.figures import GROUP_WRITES_PER_SECOND, PARTITION_WRITE_UNITS
from projections.inspect.cost.reads import Shapes, fixed_targets
from projections.inspect.cost.workload import Assumptions
from projections.language import canonical
from projections.language.facts import indexes_fed
from projections.language.program import Program
from projections.stores.capacity import TRANSACTIONAL

__all__ = ["HotKey", "hot_keys"]

PER_TRANSACTION = 99
"""Sources of one target that share a transaction, with the group's own action."""


@dataclass(frozen=True, slots=True)
class HotKey:
    """One key, or one partition of an index: what it takes now, and what it can take.

    `share` is its part of the rule's events; `limit_events` the events a second of this one target at which the limit is
    met, None if only the number of invocations decides. `advice` says what to do then.
    """

    rule: str
    what: str
    key: str
    units_per_second: float
    events_per_second: float
    limit_events: float | None
    advice: str

    @property
    def load(self) -> float:
        """The part of what a partition takes."""
        return self.units_per_second / PARTITION_WRITE_UNITS

    @property
    def document(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "what": self.what,
            "key": self.key,
            "unitsPerSecond": self.units_per_second,
            "load": self.load,
            "eventsPerSecond": self.events_per_second,
            "eventsPerSecondAtLimit": self.limit_events,
            "advice": self.advice,
        }


def hot_keys(shapes: Shapes, assumed: Assumptions, cost: BatchCost, batches: float) -> list[HotKey]:
    """The busiest first. `batches` are those of all shards in a second; a batch of one event still writes its group."""
    found = [
        *(key for name, rule in shapes.rules.items() for key in _of_rule(shapes, assumed, name, rule, cost, batches)),
        *(key for name, rule in shapes.rules.items() for key in _of_index(shapes.program, name, rule, cost, batches)),
    ]
    return sorted(found, key=lambda key: -key.load)


def _hottest(shapes: Shapes, assumed: Assumptions, rule: str, changes: float) -> float:
    """The part of a rule's events that its busiest target gets."""
    named = assumed.hottest.get(rule, assumed.hottest.get(""))
    if named is not None:
        return named
    known = [assumed.targets_of(rule), fixed_targets(shapes.program, shapes.rules[rule])]
    return 1 / max(1, min((round(number) for number in known if number is not None), default=changes))


def _of_rule(
    shapes: Shapes, assumed: Assumptions, name: str, rule: canonical.Rule, cost: BatchCost, batches: float
) -> Iterator[HotKey]:
    changes = cost.contributions[name]
    if not changes:
        return
    events = changes * _hottest(shapes, assumed, name, changes)  # of the busiest target, in a batch
    per_second = events * batches
    touching = min(1.0, events) * batches  # batches a second that have any
    yield _group(name, rule, events, per_second, touching, batches)
    if cost.targets[name]:
        units = touching * cost.target_units[name] / cost.targets[name]
        advice = (
            "one write per batch, in addition to the application's own writes: larger batches or a longer window need "
        )
        "fewer"
        yield HotKey(name, "target", f"the busiest {rule.into} of {name}", units, per_second, None, advice)
    if cost.member_units[name]:
        each = cost.member_units[name] / changes
        advice = (
            "each event has its own member, and all members of a target share a partition, also with shards: use several "
            "targets"
        )
        limit = PARTITION_WRITE_UNITS / each
        yield HotKey(name, "members", f"members of {name}", each * per_second, per_second, limit, advice)


def _group(
    name: str, rule: canonical.Rule, events: float, per_second: float, touching: float, batches: float
) -> HotKey:
    """The totals of the busiest target: one transactional write in each transaction that touches it."""
    shards = rule.shards if isinstance(rule, canonical.Aggregate | canonical.Rank) else 1
    transactions = max(touching, events * batches / PER_TRANSACTION)
    limit = GROUP_WRITES_PER_SECOND * PER_TRANSACTION * shards if touching < GROUP_WRITES_PER_SECOND * shards else None
    advice = (
        f"up to {PER_TRANSACTION} events share a transaction; an item accepts {GROUP_WRITES_PER_SECOND} transactions a "
        "second"
    )
    if transactions > GROUP_WRITES_PER_SECOND * shards:
        needed = math.ceil(transactions / GROUP_WRITES_PER_SECOND)
        advice = f"needs shards: {needed} on this rule, or a longer window, so that fewer transactions touch it"
        if not isinstance(rule, canonical.Aggregate | canonical.Rank):
            advice = "a longer window, so that fewer transactions touch it: only aggregates and ranks have shards"
    units = TRANSACTIONAL * transactions / shards
    return HotKey(name, "group", f"the busiest group of {name}", units, per_second, limit, advice)


def _of_index(program: Program, name: str, rule: canonical.Rule, cost: BatchCost, batches: float) -> Iterator[HotKey]:
    """Index partitions that many items share: every write to one of these items is a write to the partition."""
    indexes = program.typed.tables[program.entities[rule.source].table].indexes
    for index in indexes_fed(program.typed, rule):
        assert isinstance(rule, canonical.Index)
        if indexes[index].local:  # its partitions are those of the table
            continue
        keys = [n for n, _ in indexes[index].partition]
        template = next((" ".join(c.set[n] for n in keys if n in c.set) for c in rule.cases if c.set.keys() & keys), "")
        partitions = _partitions(template)
        if partitions is None:
            continue
        units = cost.index_units[rule.source, index] * batches / partitions
        at_a_time = "one partition key" if partitions == 1 else f"{partitions} partition keys"
        advice = f"writes to {index} go to {at_a_time} at a time; bucket(n) in the template multiplies this by n"
        yield HotKey(name, "index partition", f"{index} {template}", units, units * partitions, None, advice)


def _partitions(template: str) -> int | None:
    """How many partition keys a template has at a time: one if it is constant or a date, n for bucket(n); None if many."""
    total = 1
    for field in re.findall(r"\{([^}]*)\}", template):
        bucket = re.search(r"\|\s*bucket\((\d+)\)\s*$", field)
        if bucket:
            total *= int(bucket[1])
        elif not re.search(r"\|\s*date\(", field):
            return None
    return total
