"""The cost of recorded events: played through the real processor on tables in memory, every request counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.registry import REGISTRY
from projections.engine.store import ItemKey
from projections.inspect.cost.change_costs import Sum
from projections.inspect.cost.estimate import BATCH_SIZE, Estimate, HotKey, spending
from projections.inspect.explain.words import encoded_words
from projections.inspect.rehearsal.recorder import Read, purpose_of
from projections.inspect.rehearsal.rehearse import Batch, Rehearsal, rehearse
from projections.language.program import Program

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
        readers |= {child: (rule,) for rule, child in batch.plan.pulled}
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
        return (rest.partition("|")[0],) if kind in ("M", "L") else ()
    if read.key.table == LEDGER:
        return (read.key.partition.split("|")[1],) if read.key.partition[:2] in ("G|", "F|", "L|") else ()
    looking = {rule: None for rule, _ in batch.plan.pulled} | {push.rule: None for push in batch.plan.pushes}
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
