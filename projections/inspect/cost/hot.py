"""The keys that get hot: how many units a second the busiest items take, and from which rate on they take too many."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from projections.inspect.cost.context import BatchCost, Context
from projections.inspect.cost.facts import RuleFacts, index_keys
from projections.inspect.cost.figures import GROUP_WRITES_PER_SECOND, PARTITION_WRITE_UNITS
from projections.language.rules import AggregateRule, IndexRule
from projections.stores.capacity import TRANSACTIONAL, write_units

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


def hot_keys(at: Context, cost: BatchCost, batches_per_second: float) -> list[HotKey]:
    """The busiest first. `batches_per_second` are those of all shards; a batch of one event still writes its group."""
    found = [
        *(key for facts in at.facts.values() for key in _of_rule(at, facts, cost, batches_per_second)),
        *(key for facts in at.facts.values() for key in _of_index(at, facts, cost, batches_per_second)),
    ]
    return sorted(found, key=lambda key: -key.load)


def _hottest(at: Context, facts: RuleFacts, cost: BatchCost) -> float:
    """The part of a rule's events that its busiest target gets."""
    named = at.assumed.hottest.get(facts.name, at.assumed.hottest.get(""))
    if named is not None:
        return named
    different = at.different(facts)
    if different is not None:
        return 1 / different
    return 1 / max(1.0, cost.pieces.get(facts.name, 1.0))


def _of_rule(at: Context, facts: RuleFacts, cost: BatchCost, batches: float) -> Iterator[HotKey]:
    pieces = cost.pieces.get(facts.name, 0.0)
    if not pieces:
        return
    events = pieces * _hottest(at, facts, cost)  # of the busiest target, in a batch
    per_second = events * batches
    touching = min(1.0, events) * batches  # batches a second that have any
    yield _group(facts, events, per_second, touching, batches)
    if facts.writes_targets:
        yield _target(at, facts, per_second, touching)
    if facts.members:
        each = TRANSACTIONAL * write_units(round(at.member_bytes(facts))) * facts.members
        advice = (
            "each event is an element of its own in this target's order, which shards do not split: use several targets"
        )
        limit = PARTITION_WRITE_UNITS / each
        yield HotKey(facts.name, "members", f"members of {facts.name}", each * per_second, per_second, limit, advice)


def _target(at: Context, facts: RuleFacts, per_second: float, touching: float) -> HotKey:
    """The busiest target itself: one write for each batch that touches it, and one for index attributes that follow."""
    following = [f for f in at.from_entity.get(facts.into, ()) if isinstance(f.rule, IndexRule) and f.writes_targets]
    writes = 1 + sum(bool(other.changed(facts.writes)) for other in following)
    units = touching * writes * write_units(round(at.assumed.bytes_of(facts.into)))
    advice = "one write for each batch, beside the application's own: larger batches or a longer window make fewer"
    return HotKey(facts.name, "target", f"the busiest {facts.into}", units, per_second, None, advice)


def _group(facts: RuleFacts, events: float, per_second: float, touching: float, batches: float) -> HotKey:
    """The totals of the busiest target: one transactional write in each transaction that touches it."""
    shards = facts.rule.shards if isinstance(facts.rule, AggregateRule) else 1
    transactions = max(touching, events * batches / PER_TRANSACTION)
    limit = GROUP_WRITES_PER_SECOND * PER_TRANSACTION * shards if touching < GROUP_WRITES_PER_SECOND * shards else None
    advice = (
        f"{PER_TRANSACTION} events of it share a transaction; an item takes {GROUP_WRITES_PER_SECOND} of these a second"
    )
    if transactions > GROUP_WRITES_PER_SECOND * shards:
        needed = math.ceil(transactions / GROUP_WRITES_PER_SECOND)
        advice = f"needs shards: {needed} on this rule, or a longer window, so that fewer transactions touch it"
        if not isinstance(facts.rule, AggregateRule):
            advice = "a longer window, so that fewer transactions touch it: only aggregates have shards"
    units = TRANSACTIONAL * transactions / shards
    return HotKey(facts.name, "group", f"the busiest group of {facts.name}", units, per_second, limit, advice)


def _of_index(at: Context, facts: RuleFacts, cost: BatchCost, batches: float) -> Iterator[HotKey]:
    """Index partitions that many items share: every write to one of these items is a write to the partition."""
    if not isinstance(facts.rule, IndexRule):
        return
    entity = facts.rule.source.name
    writes = sum(
        term.count
        for term in cost.terms
        if term.what in ("publish", "copy", "embed", "index")
        and term.write_units
        and all(at.facts[rule].into == entity for rule in term.rules)
    )
    for case in index_keys(at.program, facts):
        partitions = _partitions(case.partition)
        if partitions is None:
            continue
        whole = at.assumed.projections.get(case.index) is None
        size = write_units(round(at.assumed.bytes_of(entity))) if whole else 1
        units = writes * at.assumed.share(facts.name) * size * batches / partitions
        keys = "one partition key" if partitions == 1 else f"{partitions} partition keys"
        advice = f"{case.index} has {keys} at a time; bucket(n) in its template makes n times as many"
        what = f"{case.index} {case.partition}"
        yield HotKey(facts.name, "index partition", what, units, writes * batches, None, advice)


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
