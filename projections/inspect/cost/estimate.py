"""An estimate: a batch's cost by the formulas, made into units, calls, Lambda time and dollars per event and per month."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from projections.aws.wiring import THREADS
from projections.inspect.cost.context import BatchCost
from projections.inspect.cost.figures import (
    ACTION_CPU_MS,
    CALL_CPU_MS,
    CORE_MB,
    IDEMPOTENCY_CPU_MS,
    INVOCATION_MS,
    NAIVE_CALL_CPU_MS,
    RECORD_CPU_MS,
    REGISTRY_CALLS,
    REGISTRY_READ_UNITS,
    SECONDS_PER_MONTH,
)
from projections.inspect.cost.flow import Flow
from projections.inspect.cost.hot import HotKey, hot_keys
from projections.inspect.cost.model import CostModel
from projections.inspect.cost.naive import NaiveCost, naive
from projections.inspect.cost.terms import Sum, Term, totals
from projections.inspect.cost.workload import Assumptions, Delivery, Workload

__all__ = ["Estimate", "Way", "by_hand_ways", "estimate", "milliseconds", "our_way"]

POLL_SECONDS = 0.25
"""Lambda asks a shard four times a second, without a window."""

PAYLOAD_BYTES = 6_000_000
"""Of one invocation's event."""

MILLION = 1_000_000


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
        return sum(self.dollars.values())

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


def estimate(model: CostModel, workload: Workload, delivery: Delivery) -> Estimate:
    """What a workload costs in the long run, by the formulas."""
    events, batch = _batch(model, workload, delivery)
    assumed = model.context.assumed
    batch.terms.append(_registry())
    records = events + batch.records
    spent = milliseconds(batch, records, assumed)
    per_second = workload.events_per_second / events
    by_hand = naive(model.context, _composition(workload, events))
    lanes = delivery.shards * delivery.parallelization
    return Estimate(
        changes={str(flow): rate for flow, rate in workload.rates.items()},
        events_per_second=workload.events_per_second,
        events=events,
        records=records,
        terms=tuple(batch.terms),
        milliseconds=spent,
        busy=per_second * spent / 1000 / lanes,
        ways=(our_way(batch, events, spent, assumed), *by_hand_ways(by_hand, events, assumed)),
        rules=totals(batch.terms).rules,
        naive_rules=by_hand.rules,
        hot=tuple(hot_keys(model.context, batch, per_second)),
        assumptions=assumed,
        delivery=delivery,
        entry_bytes=batch.entry_bytes,
    )


def our_way(batch: BatchCost, events: float, spent: float, assumed: Assumptions) -> Way:
    """Per event, of a batch of so many that takes so many milliseconds. The worker does what pushes leave for later."""
    sums = totals(batch.terms).all
    return Way(
        "projections",
        sums.write_units / events,
        sums.read_units / events,
        sums.calls / events,
        (1 + batch.tasks) / events,
        spent / 1000 * assumed.memory_mb / 1024 / events,
        3 * batch.tasks / events,
        assumed.prices,
    )


def _registry() -> Term:
    why = "the state of the rules, read once in every invocation"
    return Term((), "registry", 1, why, read_units=REGISTRY_READ_UNITS, calls=REGISTRY_CALLS)


def _composition(workload: Workload, events: float) -> dict[Flow, float]:
    """So many events in the proportions of the workload."""
    total = workload.events_per_second
    return {flow: events * rate / total for flow, rate in workload.rates.items()}


def _batch(model: CostModel, workload: Workload, delivery: Delivery) -> tuple[float, BatchCost]:
    """How many of the application's events come at once, and what they cost.

    The records of our own writes come through the same stream and fill batches too. How many they are depends on how many
    events share a write, so the two are found together.
    """
    if delivery.batch is not None:
        return delivery.batch, model.batch(_composition(workload, delivery.batch))
    lanes = delivery.shards * delivery.parallelization
    size = max((model.context.assumed.bytes_of(flow.entity) for flow in workload.rates), default=1.0)
    most = min(delivery.batch_size, PAYLOAD_BYTES / (2 * size + 500))
    wait = max(delivery.window, POLL_SECONDS)
    back = 0.0
    events, batch = 1.0, BatchCost()
    for _ in range(12):
        records = min(most, 1 + workload.events_per_second * (1 + back) / lanes * wait)
        following = max(records / (1 + back), 1.0)
        if math.isclose(following, events, rel_tol=1e-3) and batch.terms:
            break
        events = following
        batch = model.batch(_composition(workload, events))
        back = batch.records / events
    return events, batch


def milliseconds(batch: BatchCost, records: float, assumed: Assumptions) -> float:
    """Of one invocation: waiting for answers, at most ten requests at once, and what one core computes meanwhile."""
    waiting = max(batch.row, batch.transactions / THREADS) * assumed.transaction_ms
    calls: dict[str, float] = {}
    for term in batch.terms:
        if term.what != "transaction":
            calls[term.what] = calls.get(term.what, 0.0) + term.count * term.calls
    waiting += sum(max(min(1.0, number), number / THREADS) for number in calls.values()) * assumed.call_ms
    computing = records * RECORD_CPU_MS + batch.actions * ACTION_CPU_MS + sum(calls.values()) * CALL_CPU_MS
    return INVOCATION_MS + waiting + computing * CORE_MB / min(assumed.memory_mb, CORE_MB)


def by_hand_ways(cost: NaiveCost, events: float, assumed: Assumptions) -> tuple[Way, Way]:
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
