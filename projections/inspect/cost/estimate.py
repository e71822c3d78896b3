"""An estimate: a batch's cost, made into units, calls, Lambda time and dollars per event and per month."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Any

from projections.aws.wiring import THREADS
from projections.inspect.cost.batch import BatchCost, expected, situations
from projections.inspect.cost.by_hand import ByHand, by_hand
from projections.inspect.cost.figures import (
    ACTION_CPU_MS,
    CALL_CPU_MS,
    CORE_MB,
    IDEMPOTENCY_CPU_MS,
    INVOCATION_MS,
    NAIVE_CALL_CPU_MS,
    RECORD_CPU_MS,
    SECONDS_PER_MONTH,
)
from projections.inspect.cost.hot import HotKey, hot_keys
from projections.inspect.cost.reads import Shapes
from projections.inspect.cost.terms import Sum, Term, totals
from projections.inspect.cost.workload import Assumptions, Delivery, Flow, Workload
from projections.language.program import Program

__all__ = ["Estimate", "Way", "composed", "estimate"]

POLL_SECONDS = 0.25
"""Lambda asks a shard four times a second, without a window."""

PAYLOAD_BYTES = 6_000_000
"""Of one invocation's event."""

MILLION = 1_000_000

_FEW = 10
"""Changes of one kind in a batch of which a fraction is not rounded off."""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to keep the derived values, per event of the application. `dollars` are by what they are paid for."""

    name: str
    write_units: float
    read_units: float
    calls: float
    invocations: float
    gb_seconds: float
    sqs_requests: float
    prices: Mapping[str, float]

    @property
    def dollars(self) -> dict[str, float]:
        return {
            "writeUnits": self.write_units * self.prices["write"] / MILLION,
            "readUnits": self.read_units * self.prices["read"] / MILLION,
            "requests": self.invocations * self.prices["request"] / MILLION,
            "gbSeconds": self.gb_seconds * self.prices["gb-second"],
            "sqsRequests": self.sqs_requests * self.prices["sqs"] / MILLION,
        }

    @property
    def per_event(self) -> float:
        """Dollars."""
        return fsum(self.dollars.values())

    def document(self, events_per_second: float) -> dict[str, Any]:
        return {
            "name": self.name,
            "perEvent": {
                "writeUnits": self.write_units,
                "readUnits": self.read_units,
                "calls": self.calls,
                "invocations": self.invocations,
                "gbSeconds": self.gb_seconds,
                "sqsRequests": self.sqs_requests,
            },
            "dollarsPerMillionEvents": {name: d * MILLION for name, d in self.dollars.items()}
            | {"total": self.per_event * MILLION},
            "dollarsPerMonth": self.per_event * events_per_second * SECONDS_PER_MONTH,
        }


@dataclass(frozen=True, slots=True)
class Estimate:
    """What one batch costs, and what that comes to.

    `changes` are rates, or numbers of a sample. `events` of the application come in one invocation on average, `records`
    with what comes back of our own writes. `events_per_second` is None where only a sample is known. `naive_rules` are
    write units per batch by hand, by rule.
    """

    changes: Mapping[str, float]
    events_per_second: float | None
    events: float
    records: float
    terms: tuple[Term, ...]
    milliseconds: float
    busy: float | None
    """The part of the time that a shard's invocations take: beyond 1 the records wait ever longer."""
    ways: tuple[Way, ...]
    rules: Mapping[str, Sum]
    naive_rules: Mapping[str, float]
    hot: tuple[HotKey, ...]
    assumptions: Assumptions
    delivery: Delivery
    entry_bytes: float
    """Of a ledger entry: the ledger keeps one for each source item."""
    sampled: bool = False

    @property
    def ours(self) -> Way:
        return self.ways[0]


def estimate(program: Program, assumed: Assumptions, workload: Workload, delivery: Delivery) -> Estimate:
    """What a workload costs in the long run: batches that follow from its rates are rehearsed."""
    shapes = Shapes(program)
    events, batch = _batch(shapes, assumed, workload, delivery)
    hand = ByHand()
    for flow, number in _composition(workload, events).items():
        for weight, rehearsal in situations(shapes, assumed, {flow: 1.0}):
            hand.add(by_hand(rehearsal), number * weight)
    changes = {str(flow): rate for flow, rate in workload.rates.items()}
    rate = workload.events_per_second
    hot = hot_keys(shapes, assumed, batch, rate / events)
    return composed(changes, rate, events, batch, hand, hot, assumed, delivery)


def composed(
    changes: Mapping[str, float],
    events_per_second: float | None,
    events: float,
    batch: BatchCost,
    hand: ByHand,
    hot: Sequence[HotKey],
    assumed: Assumptions,
    delivery: Delivery,
    *,
    sampled: bool = False,
) -> Estimate:
    """Units, calls, time and dollars of a batch of so many events. The worker does what pushes leave for later."""
    records = events + batch.records
    spent = milliseconds(batch, records, assumed)
    per_second = events_per_second / events if events_per_second else None
    sums = totals(batch.terms)
    ours = Way(
        "projections",
        sums.all.write_units / events,
        sums.all.read_units / events,
        sums.all.calls / events,
        (1 + batch.tasks) / events,
        spent / 1000 * assumed.memory_mb / 1024 / events,
        3 * batch.tasks / events,
        assumed.prices,
    )
    return Estimate(
        changes=changes,
        events_per_second=events_per_second,
        events=events,
        records=records,
        terms=tuple(batch.terms),
        milliseconds=spent,
        busy=per_second * spent / 1000 / (delivery.shards * delivery.parallelization) if per_second else None,
        ways=(ours, *_by_hand_ways(hand, events, assumed)),
        rules=sums.rules,
        naive_rules=hand.rules,
        hot=tuple(hot),
        assumptions=assumed,
        delivery=delivery,
        entry_bytes=batch.entry_bytes,
        sampled=sampled,
    )


def _composition(workload: Workload, events: float) -> dict[Flow, float]:
    """So many events in the proportions of the workload."""
    total = workload.events_per_second
    return {flow: events * rate / total for flow, rate in workload.rates.items()}


def _batch(shapes: Shapes, assumed: Assumptions, workload: Workload, delivery: Delivery) -> tuple[float, BatchCost]:
    """How many of the application's events come at once, and what they cost.

    The records of our own writes come through the same stream and fill batches too. How many they are depends on how many
    events share a write, so the two are found together.
    """
    if delivery.batch is not None:
        return delivery.batch, expected(shapes, assumed, _composition(workload, delivery.batch))
    lanes = delivery.shards * delivery.parallelization
    size = max((assumed.bytes_of(flow.entity) for flow in workload.rates), default=1.0)
    most = min(delivery.batch_size, PAYLOAD_BYTES / (2 * size + 500))
    wait = max(delivery.window, POLL_SECONDS)
    arriving = workload.events_per_second / lanes * wait
    events = max(1.0, arriving if arriving < 2 * _FEW else _FEW)
    while True:
        counts = {flow: round(n) if n > _FEW else n for flow, n in _composition(workload, events).items()}
        found = sum(counts.values())
        batch = expected(shapes, assumed, counts)
        each = 1 + batch.records / found
        following = max(1.0, min(most / each, 1 / each + arriving))
        if abs(following - events) < 0.02 * events:
            return found, batch
        events = following


def milliseconds(batch: BatchCost, records: float, assumed: Assumptions) -> float:
    """Of one invocation: waiting for answers, at most ten requests at once, and what one core computes meanwhile."""
    waiting = max(batch.row, batch.transactions / THREADS) * assumed.transaction_ms
    calls: dict[str, float] = {}
    for term in batch.terms:
        if term.what != "transaction":
            calls[term.what] = calls.get(term.what, 0.0) + term.count * term.calls
    waiting += fsum(max(min(1.0, number), number / THREADS) for number in calls.values()) * assumed.call_ms
    computing = records * RECORD_CPU_MS + batch.actions * ACTION_CPU_MS + fsum(calls.values()) * CALL_CPU_MS
    return INVOCATION_MS + waiting + computing * CORE_MB / min(assumed.memory_mb, CORE_MB)


def _by_hand_ways(cost: ByHand, events: float, assumed: Assumptions) -> tuple[Way, Way]:
    """Without and with idempotency. One call after the other, as a handler written by hand makes them."""

    def way(name: str, more: float, computing: float) -> Way:
        calls = cost.calls + more
        computing += calls * NAIVE_CALL_CPU_MS
        spent = INVOCATION_MS + calls * assumed.call_ms + computing * CORE_MB / min(assumed.memory_mb, CORE_MB)
        return Way(
            name,
            (cost.write_units + more) / events,
            cost.read_units / events,
            calls / events,
            1 / events,
            spent / 1000 * assumed.memory_mb / 1024 / events,
            0.0,
            assumed.prices,
        )

    claimed = 2 * cost.handled  # a claim before, and its completion after
    return (
        way("one UpdateItem per record and rule", 0.0, 0.0),
        way("the same behind Powertools' idempotency", claimed, cost.handled * IDEMPOTENCY_CPU_MS),
    )
