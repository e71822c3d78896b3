"""An estimate: the cost of batches as units, calls, Lambda time and dollars.

Prices are those of us-east-1, on demand (2026-11).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

from projections.aws.wiring import THREADS
from projections.engine.ledger_items import LEDGER
from projections.engine.registry import REGISTRY
from projections.engine.store import ItemKey
from projections.inspect.cost.change_costs import PER_TRANSACTION, BatchCost, Flow, Sum, fixed_targets
from projections.inspect.explain.words import camel, encoded_words
from projections.inspect.rehearsal.recorder import Read, purpose_of
from projections.inspect.rehearsal.rehearse import Batch, Rehearsal, rehearse
from projections.language.models import Projection, Rules
from projections.language.program import Program
from projections.language.rules import public_name
from projections.stores.limits import TRANSACTIONAL

PRICES: Mapping[str, tuple[float, str]] = {
    "write": (0.625, "million write units"),
    "read": (0.125, "million read units"),
    "request": (0.20, "million Lambda requests"),
    "gb-second": (0.0000133334, "GB-second of Lambda on arm64"),
}
"""Dollars, and for what."""

SECONDS_PER_MONTH = 730 * 3600
MILLION = 1_000_000

BATCH_SIZE, WINDOW = 500, 1.0
"""Of the template: the most records of an invocation, and how many seconds it waits for them after the first."""

PARTITION_UNITS = 1000
"""Write units that a partition accepts in a second; a single item is in one partition."""

GROUP_WRITES = 500
"""Transactional writes of one item in a second: each takes two units of its partition."""

CALL_MS, INVOCATION_MS = 5.0, 2.0
"""A request to DynamoDB within a Region, and an invocation beside its work; assumed."""

RECORD_CPU_MS, CALL_CPU_MS = 0.05, 0.4
"""CPU of a record and of a call, as `make bench` measures it."""


class Spending(NamedTuple):
    """What is used per event of the application."""

    write_units: float
    read_units: float
    calls: float
    invocations: float
    gb_seconds: float

    @property
    def dollars(self) -> dict[str, float]:
        """The price by what is paid for."""
        used = (self.write_units / MILLION, self.read_units / MILLION, self.invocations / MILLION, self.gb_seconds)
        names = ("writeUnits", "readUnits", "requests", "gbSeconds")
        return {name: number * price for name, number, (price, _) in zip(names, used, PRICES.values(), strict=True)}

    @property
    def per_event(self) -> float:
        return math.fsum(self.dollars.values())

    def document(self, events_per_second: float) -> dict[str, Any]:
        return {
            "perEvent": {camel(name): used for name, used in self._asdict().items()},
            "dollarsPerMillionEvents": {name: dollars * MILLION for name, dollars in self.dollars.items()}
            | {"total": self.per_event * MILLION},
            "dollarsPerMonth": self.per_event * events_per_second * SECONDS_PER_MONTH,
        }


class HotKey(NamedTuple):
    """A key with its write units a second, or those of the sample.

    `limit` is the number of events of this one key in a second that it accepts, None if only batches decide.
    """

    rule: str
    key: str
    units: float
    limit: float | None = None
    advice: str = ""

    @property
    def load(self) -> float:
        """The part of what a partition accepts."""
        return self.units / PARTITION_UNITS

    @property
    def document(self) -> dict[str, Any]:
        return {
            "rule": self.rule,
            "key": self.key,
            "unitsPerSecond": self.units,
            "load": self.load,
            "eventsPerSecondAtLimit": self.limit,
            "advice": self.advice,
        }


class Estimate(NamedTuple):
    """The cost per event of the application.

    `changes` are rates, or numbers of a sample; `events` come in one invocation; `events_per_second` is None if only a
    sample is known.
    """

    changes: Mapping[str, float]
    events_per_second: float | None
    events: float
    spending: Spending
    rules: Mapping[str, Sum]
    hot: Sequence[HotKey]
    sampled: bool = False

    def document(self) -> dict[str, Any]:
        """Return the JSON of `cost --json`."""
        return {
            "sample": self.sampled,
            "changes": dict(self.changes),
            "eventsPerSecond": self.events_per_second,
            "eventsPerInvocation": self.events,
            **self.spending.document(self.events_per_second or 0.0),
            "rules": {
                rule or "(of no single rule)": {
                    **{camel(name): used for name, used in asdict(rule_cost).items()},
                    "dollarsPerMillionEvents": dollars(rule_cost) * MILLION,
                }
                for rule, rule_cost in self.rules.items()
            },
            "hot": [key.document for key in self.hot],
            "prices": {name: {"dollars": price, "per": unit} for name, (price, unit) in PRICES.items()},
        }


def dollars(spent: Sum) -> float:
    """Return the price of units alone: Lambda is paid for all rules together."""
    return (spent.write_units * PRICES["write"][0] + spent.read_units * PRICES["read"][0]) / MILLION


def spending(spent: Sum, events: float) -> Spending:
    """Return the cost per event of batches of so many events, with a function of 1 GB.

    The first requests of a batch follow one another.
    """
    waiting = max(min(spent.calls, 4.0), spent.calls / THREADS) * CALL_MS
    milliseconds = INVOCATION_MS + waiting + events * RECORD_CPU_MS + spent.calls * CALL_CPU_MS
    units = (spent.write_units / events, spent.read_units / events, spent.calls / events)
    return Spending(*units, 1 / events, milliseconds / 1000 / events)


# From rates


def estimate(
    model: Rules,
    rates: Mapping[Flow, float],
    *,
    targets: float | None = None,
    children: float = 0.0,
    batch: float | None = None,
) -> Estimate:
    """Return the cost of changes at these rates per second, in batches of the template's size and window.

    `targets` is the number of different targets of each rule in a batch (None: one for each event), `children` that of
    the children of a parent, `batch` that of the events in a batch.
    """
    per_second = math.fsum(rates.values())
    events = batch or min(BATCH_SIZE, 1 + per_second * WINDOW)
    flows = {flow: rate * events / per_second for flow, rate in rates.items()}
    cost = BatchCost(model, targets, children)
    cost.add(flows)
    hot = _hot_groups(model, cost, per_second / events)
    rules = {name: Sum() for name in model.projections if name in cost.rules} | {name: Sum() for name in cost.rules}
    for name, spent in cost.rules.items():
        rules[name].add(spent, 1 / events)
    return Estimate(
        changes={str(flow): rate for flow, rate in rates.items()},
        events_per_second=per_second,
        events=events,
        spending=spending(cost.total, events),
        rules=rules,
        hot=sorted(hot, key=lambda key: -key.load),
    )


def _hot_groups(model: Rules, cost: BatchCost, batches: float) -> Iterator[HotKey]:
    """Yield the groups and members of the busiest target of each rule. `batches` are those of a second."""
    for name, changes in cost.contributions.items():
        rule = model.projections[name]
        known = [number for number in (cost.targets, fixed_targets(model, rule)) if number is not None]
        events = changes / max(1.0, min([changes, *known]))  # of one target in a batch
        yield _group(name, rule, events, batches)
        if members := TRANSACTIONAL * rule.action.ledger_actions:
            advice = "all members of a target share a partition, also with shards: use several targets"
            limit = PARTITION_UNITS / members
            yield HotKey(name, f"members of {name}", members * events * batches, limit, advice)


def _group(name: str, rule: Projection, events: float, batches: float) -> HotKey:
    """Return the group of a target: one transactional write in each transaction that changes it, or one of each batch."""
    shards = rule.action.spread or 1
    if rule.action.by_lanes:
        advice = "each batch writes it once: a longer window, so that batches are fewer, or shards"
        return HotKey(name, f"the busiest group of {name}", min(1.0, events) * batches / shards, advice=advice)
    transactions = max(min(1.0, events), events / PER_TRANSACTION) * batches
    advice = f"up to {PER_TRANSACTION} events share a transaction; an item accepts {GROUP_WRITES} transactions a second"
    if transactions > GROUP_WRITES * shards:
        advice = "a longer window, so that fewer transactions change it"
        if rule.action.spread is not None:
            advice = f"needs shards: {math.ceil(transactions / GROUP_WRITES)} on this rule, or {advice}"
    limit = GROUP_WRITES * PER_TRANSACTION * shards
    return HotKey(name, f"the busiest group of {name}", TRANSACTIONAL * transactions / shards, limit, advice)


# From recorded events, played through the real processor on tables in memory, every request counted

LISTED = 8
"""The busiest keys that are listed."""


def estimate_events(
    program: Program, records: Sequence[Mapping[str, Any]], batch: int | None, events_per_second: float | None
) -> Estimate:
    """Return the cost of these events, in batches of `batch`, with all that follows from them."""
    rehearsal = rehearse(program, records, batch_size=batch or BATCH_SIZE)
    events, batches = len(records), sum(batch.round == 0 for batch in rehearsal.batches)
    rules, mean, total = spent(rehearsal), Sum(), Sum()
    for cost in rules.values():
        total.add(cost)
    mean.add(total, 1 / batches)
    per_event = {name: Sum() for name in (*program.rules, "") if name in rules}
    for name, cost in per_event.items():
        cost.add(rules[name], 1 / events)
    return Estimate(
        changes=_changes(rehearsal),
        events_per_second=events_per_second,
        events=events / batches,
        spending=spending(mean, events / batches),
        rules=per_event,
        hot=_hot(rehearsal, events_per_second / events if events_per_second else 1.0),
        sampled=True,
    )


def _changes(rehearsal: Rehearsal) -> dict[str, float]:
    """Return how many of the recorded events are of which kind."""
    words = {"INSERT": "a new {}", "MODIFY": "an edit of {}", "REMOVE": "a removed {}"}
    counts: Counter[str] = Counter()
    for batch in rehearsal.batches:
        for decoded in batch.records if batch.round == 0 else ():
            record = decoded.record
            if record is None:
                counts["a record that cannot be read"] += 1
                continue
            image = record.new if record.new is not None else record.old
            item = rehearsal.program.recognise(record.key, image or {})
            counts[words[record.event].format(item.entity.name if item is not None else "item of no entity")] += 1
    return {name: float(number) for name, number in counts.most_common()}


def spent(rehearsal: Rehearsal) -> dict[str, Sum]:
    """Return the cost of all batches of a rehearsal, by rule; under "" what no single rule causes.

    Rules share what is written or read for several of them, such as the ledger entry of a source.
    """
    costs: dict[str, Sum] = {}
    for batch in rehearsal.batches:
        readers = {a.write.key: purpose_of(a.write).rules for request in batch.requests for a in request.actions}
        readers |= {child: (rule,) for rule, child in batch.plan.pulls}
        for request in batch.requests:
            if batch.round and [read.key for read in request.reads] == [REGISTRY]:
                continue  # records of our own writes come in one batch with further events
            parts = [(_asking(read, readers, batch, rehearsal.program), 0.0) for read in request.reads]
            parts += [(purpose_of(a.write).rules, float(request.factor * a.units.total)) for a in request.actions]
            callers = tuple(dict.fromkeys(rule for rules, _ in parts for rule in rules)) or ("",)
            for rule in callers:
                costs.setdefault(rule, Sum()).calls += 1 / len(callers)
            for rules, units in parts:
                for rule in rules or ("",):
                    share = costs.setdefault(rule, Sum())
                    share.write_units += units / max(1, len(rules))
                    share.read_units += request.read_units / len(parts) / max(1, len(rules))
    return costs


def _asking(read: Read, readers: Mapping[ItemKey, tuple[str, ...]], batch: Batch, program: Program) -> tuple[str, ...]:
    """Return the rules for which something is read: those that write it, and those that look for parents or children."""
    if read.key is None:
        if not read.query.startswith(f"{LEDGER} "):
            return tuple({push.rule: None for push in batch.plan.pushes})
        kind, _, rest = read.query.removeprefix(f"{LEDGER} ").partition("|")
        return (public_name(rest.partition("|")[0]),) if kind in ("M", "L") else ()
    if read.key.table == LEDGER:
        return (public_name(read.key.partition.split("|")[1]),) if read.key.partition[:2] in ("G|", "F|", "L|") else ()
    looking = {rule: None for rule, _ in batch.plan.pulls} | {push.rule: None for push in batch.plan.pushes}
    return tuple(rule for rule in looking if program.rules[rule].source.at(read.key)) or readers.get(read.key, ())


def _hot(rehearsal: Rehearsal, scale: float) -> list[HotKey]:
    """Return the items that took most units, times `scale`."""
    units_by_key: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for batch in rehearsal.batches:
        for request in batch.requests:
            for action in request.actions:
                purpose = purpose_of(action.write)
                if purpose.kind in ("entry", "forget"):
                    continue  # each source has its own
                key = encoded_words(purpose.about)
                if action.write.key.table == LEDGER:
                    key = f"{purpose.kind} of {', '.join(purpose.rules)} for {key}"
                units_by_key[key, purpose.rules] += request.factor * action.units.table
    return [HotKey(", ".join(rules), key, units * scale) for (key, rules), units in units_by_key.most_common(LISTED)]
