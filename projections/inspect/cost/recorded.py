"""The cost of recorded events: played through the real processor on tables in memory, every request counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.plan import plan
from projections.engine.registry import REGISTRY
from projections.engine.store import ItemKey
from projections.inspect.cost.changes import Sum
from projections.inspect.cost.estimate import BATCH_SIZE, Estimate, HotKey, by_hand, projections_way
from projections.inspect.explain.words import encoded_words
from projections.inspect.rehearsal.recorder import DONE, Read, Request, purpose_of
from projections.inspect.rehearsal.rehearse import Batch, Rehearsal, rehearse
from projections.language.embeds import EmbedRule
from projections.language.program import Program

__all__ = ["estimate_events"]

LISTED = 8
"""The busiest keys that are listed."""


def estimate_events(
    program: Program, records: Sequence[Mapping[str, Any]], batch: int | None, events_per_second: float | None
) -> Estimate:
    """Return the cost of these events, in batches of `batch`, with all that follows from them.

    By hand, nothing is put together: ten likes of one post are ten updates of it. So its writes are those of a rehearsal in
    which each event comes alone, without what only the ledger needs.
    """
    rehearsal = rehearse(program, records, batch_size=batch or BATCH_SIZE)
    events, batches = len(records), sum(one.round == 0 for one in rehearsal.batches)
    rules, mean, total = spent(rehearsal), Sum(), Sum()
    for one in rules.values():
        total.add(one)
    mean.add(total, 1 / batches)
    per_event = {name: Sum() for name in (*program.rules, "") if name in rules}
    for name, one in per_event.items():
        one.add(rules[name], 1 / events)
    hand, handled, units = _alone(rehearse(program, records, batch_size=1))
    return Estimate(
        changes=_changes(rehearsal),
        events_per_second=events_per_second,
        events=events / batches,
        ways=(projections_way(mean, events / batches), *by_hand(hand, handled, events)),
        rules=per_event,
        by_hand={name: number / events for name, number in units.items()},
        hot=_hot(rehearsal, events_per_second / events if events_per_second else 1.0),
        sampled=True,
    )


def _changes(rehearsal: Rehearsal) -> dict[str, float]:
    """Return how many of the recorded events are of which kind."""
    words = {"INSERT": "a new {}", "MODIFY": "an edit of {}", "REMOVE": "a removed {}"}
    found: Counter[str] = Counter()
    for batch in rehearsal.batches:
        for decoded in batch.records if batch.round == 0 else ():
            record = decoded.record
            if record is None:
                found["a record that cannot be read"] += 1
                continue
            image = record.new if record.new is not None else record.old
            item = rehearsal.program.recognise(record.key, image or {})
            found[words[record.event].format(item.entity.name if item is not None else "item of no entity")] += 1
    return {name: float(number) for name, number in found.most_common()}


def spent(rehearsal: Rehearsal) -> dict[str, Sum]:
    """Return the cost of all batches of a rehearsal, by rule; under "" what no single rule causes.

    Rules share what is written or read for several of them, such as the ledger entry of a source.
    """
    found: dict[str, Sum] = {}
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
                found.setdefault(rule, Sum()).calls += 1 / len(callers)
            for rules, units in parts:
                for rule in rules or ("",):
                    share = found.setdefault(rule, Sum())
                    share.write_units += units / max(1, len(rules))
                    share.read_units += request.read_units / len(parts) / max(1, len(rules))
    return found


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
    found: Counter[tuple[str, tuple[str, ...]]] = Counter()
    for batch in rehearsal.batches:
        for request in batch.requests:
            for action in request.actions:
                purpose = purpose_of(action.write)
                if purpose.kind in ("entry", "forget"):
                    continue  # each source has its own
                key = encoded_words(purpose.about)
                if action.write.key.table == LEDGER:
                    key = f"{purpose.kind} of {', '.join(purpose.rules)} for {key}"
                found[key, purpose.rules] += request.factor * action.units.table
    return [HotKey(", ".join(rules), key, units * scale) for (key, rules), units in found.most_common(LISTED)]


# By hand

_WRITES = ("publish", "copy", "index", "compute", "embed", "delete")


def _alone(rehearsal: Rehearsal) -> tuple[Sum, float, dict[str, float]]:
    """Return what a handler written by hand uses for events one by one, the records that concern a rule, and the write
    units by rule.
    """
    cost, handled = Sum(), 0.0
    units: dict[str, float] = {}
    for batch in rehearsal.batches:
        for (rules, _), number in _updates(batch).items():
            cost.add(Sum(number, 0, 1))
            for rule in rules:
                units[rule] = units.get(rule, 0.0) + number / len(rules)
        _look_up(rehearsal.program, batch, cost)
        for decoded in batch.records:
            made = plan(rehearsal.program, [decoded.record] if decoded.record is not None else [])
            handled += bool(made.changes or made.copies or made.indexes or made.pushes or made.pulled)
    return cost, handled, units


def _updates(batch: Batch) -> dict[tuple[tuple[str, ...], str], int]:
    """Return the units of each update, by rules and item, without what is published again on an item that appeared."""
    changed = {target for changes in batch.plan.changes for change in changes for target in change.touched}
    found: dict[tuple[tuple[str, ...], str], int] = {}
    for request in batch.requests:
        for action in request.actions:
            purpose = purpose_of(action.write)
            healed = {(rule, purpose.about) for rule in purpose.rules} & batch.plan.heals.keys() - changed
            if purpose.kind in _WRITES and action.outcome == DONE and not healed:
                place = (purpose.rules, purpose.about)
                found[place] = max(action.units.total, found.get(place, 0))
    return found


def _look_up(program: Program, batch: Batch, cost: Sum) -> None:
    """Add the reads: a new child reads its parent; a parent that changes finds its children by a query, once."""
    cost.add(Sum(0, len(batch.plan.pulled), len(batch.plan.pulled) + len(batch.plan.pushes)))
    asked = sum(request.read_units for request in batch.requests if _finds_children(request))
    for push in batch.plan.pushes:
        rule = program.rules[push.rule]
        assert isinstance(rule, EmbedRule)
        passes = 2 if rule.children.index is not None else 1
        cost.read_units += asked / passes / len(batch.plan.pushes)


def _finds_children(request: Request) -> bool:
    return request.operation == "Query" and not any(read.query.startswith(f"{LEDGER} ") for read in request.reads)
