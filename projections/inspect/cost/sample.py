"""The cost of a sample of recorded events: played through the real processor, every request counted."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from projections.engine.ledger_items import LEDGER, read_recent
from projections.engine.registry import REGISTRY
from projections.engine.store import Purpose, Update
from projections.inspect.cost.context import BatchCost
from projections.inspect.cost.estimate import Estimate, by_hand_ways, milliseconds, our_way
from projections.inspect.cost.hot import HotKey
from projections.inspect.cost.naive import NaiveCost
from projections.inspect.cost.terms import Term, totals
from projections.inspect.cost.workload import Assumptions, Delivery
from projections.inspect.explain.records import record_report
from projections.inspect.explain.words import encoded_words
from projections.inspect.rehearsal.recorder import DONE, Action, Read, Request
from projections.inspect.rehearsal.rehearse import Rehearsal, rehearse
from projections.inspect.rehearsal.roles import ROLES, purpose_of
from projections.language.program import Program
from projections.stores.limits import item_size

__all__ = ["sample_estimate"]

LISTED = 8
"""The busiest keys that are told of."""


def sample_estimate(
    program: Program,
    records: Sequence[Mapping[str, Any]],
    assumed: Assumptions,
    delivery: Delivery,
    events_per_second: float | None,
) -> Estimate:
    """What these events cost, in batches of `delivery.batch` (or `batch_size`), with all that follows from them."""
    size = round(delivery.batch or delivery.batch_size)
    rehearsal = rehearse(program, records, batch_size=size, projections=assumed.projections)
    batches = [batch for batch in rehearsal.batches if batch.round == 0]
    cost = _cost(rehearsal)
    number = len(batches)
    events = len(records) / number
    terms = tuple(
        Term(t.rules, t.what, t.count / number, t.why, t.write_units, t.read_units, t.calls) for t in cost.terms
    )
    mean = BatchCost(
        terms=list(terms),
        records=cost.records / number,
        row=cost.row / number,
        transactions=cost.transactions / number,
        actions=cost.actions / number,
    )
    spent = milliseconds(mean, events + mean.records, assumed)
    by_hand = _by_hand(program, rehearsal, number)
    per_second = events_per_second / events if events_per_second else None
    lanes = delivery.shards * delivery.parallelization
    return Estimate(
        changes=_changes(program, rehearsal),
        events_per_second=events_per_second,
        events=events,
        records=events + mean.records,
        terms=terms,
        milliseconds=spent,
        busy=per_second * spent / 1000 / lanes if per_second is not None else None,
        ways=(our_way(mean, events, spent, assumed), *by_hand_ways(by_hand, events, assumed)),
        rules=totals(terms).rules,
        naive_rules=by_hand.rules,
        hot=_hot(rehearsal, len(records), events_per_second),
        assumptions=assumed,
        delivery=delivery,
        entry_bytes=max(_entry_sizes(rehearsal), default=0.0),
        sampled=True,
    )


def _entry_sizes(rehearsal: Rehearsal) -> list[float]:
    assert rehearsal.tables is not None
    return [float(item_size(item)) for item in rehearsal.tables.items(LEDGER) if item["pk"]["S"].startswith("E|")]


def _changes(program: Program, rehearsal: Rehearsal) -> dict[str, float]:
    """How many of the recorded events are of which kind."""
    words = {"INSERT": "a new {}", "MODIFY": "an edit of {}", "REMOVE": "a removed {}"}
    found: Counter[str] = Counter()
    for batch in rehearsal.batches:
        for decoded in batch.records if batch.round == 0 else ():
            record = decoded.record
            if record is None:
                found["a record that cannot be read"] += 1
                continue
            image = record.new if record.new is not None else record.old
            item = program.recognise(record.key, image or {})
            found[words[record.event].format(item.entity.name if item is not None else "an item of no entity")] += 1
    return {name: float(number) for name, number in found.most_common()}


def _cost(rehearsal: Rehearsal) -> BatchCost:
    """Every request as a term; equal ones together."""
    cost = BatchCost()
    found: Counter[tuple[Any, ...]] = Counter()
    for batch in rehearsal.batches:
        for request in batch.requests:
            if batch.round and [read.key for read in request.reads] == [REGISTRY]:
                continue  # what a table's stream says of our own writes comes in one batch with further events
            if request.operation == "TransactWriteItems":
                cost.transactions += 1
                cost.row += 1
                cost.actions += len(request.actions)
            for term in _terms(request):
                found[term] += 1
            cost.records += sum(a.write.key.table != LEDGER and a.outcome == DONE for a in request.actions)
    for (rules, what, why, write_units, read_units, calls), count in found.items():
        cost.terms.append(Term(rules, what, count, why, write_units, read_units, calls))
    return cost


def _terms(request: Request) -> list[tuple[Any, ...]]:
    """Rules, what, why, write units, read units and calls of each part of a request."""
    if not request.actions:
        rules = tuple(dict.fromkeys(rule for read in request.reads for rule in _asking(read)))
        return [(rules, request.operation, "what the engine looks up", 0.0, request.read_units, 1.0)]
    terms: list[tuple[Any, ...]] = []
    told: list[tuple[str, ...]] = []
    for action in request.actions:
        role = purpose_of(action.write)
        rules = _rules(action, role)
        what: str = role.kind if action.outcome == DONE else "in vain"
        units = float(request.factor * action.units.total)
        terms.append((rules, what, ROLES[role.kind], units, 0.0, 0.0))
        told.append(rules)
    what = "transaction" if request.operation == "TransactWriteItems" else terms[0][1]
    terms.append((tuple(dict.fromkeys(r for rules in told for r in rules)), what, "the call itself", 0.0, 0.0, 1.0))
    return terms


def _asking(read: Read) -> tuple[str, ...]:
    """The rule that asks for an item of the ledger; items of the application are not asked for by one."""
    if read.key is not None and read.key.table == LEDGER and read.key.partition[:2] in ("G|", "F|"):
        return (read.key.partition.split("|")[1],)
    _, _, members = read.query.partition(f"{LEDGER} M|")
    return (members.partition("|")[0],) if members else ()


def _rules(action: Action, role: Purpose) -> tuple[str, ...]:
    """The rules a write is for; of an entry those that it has contributions of, or owed publications of."""
    write = action.write
    if role.rules or not isinstance(write, Update):
        return role.rules
    if role.kind == "forget":
        owed = write.discard.get("recent") or (action.before or {}).get("recent") or {"SS": []}
        return tuple(sorted({read_recent(element)[0] for element in owed["SS"]}))
    images = [image for image in (action.before, write.set) if image is not None]
    texts = [image["contributions"]["S"] for image in images if "contributions" in image]
    return tuple(sorted({rule for text in texts for rule in json.loads(text)}))


def _by_hand(program: Program, rehearsal: Rehearsal, number: int) -> NaiveCost:
    """One update for each record, rule and target, as large as ours of that rule; per batch."""
    sizes: dict[str, list[int]] = {}
    children: Counter[str] = Counter()
    for batch in rehearsal.batches:
        for request in batch.requests:
            for action in request.actions:
                role = purpose_of(action.write)
                if role.kind in ("publish", "copy", "index", "embed", "delete", "release", "restore"):
                    for rule in role.rules:
                        sizes.setdefault(rule, []).append(action.units.total)
                        children[rule] += role.kind == "embed"
    cost = NaiveCost()
    for batch in rehearsal.batches:
        for decoded in batch.records:
            handled = False
            for told in record_report(program, decoded).rules:
                updates = {"changes": len(told.changes), "copies": len(told.changes), "indexes": 1, "pulls": 1}.get(
                    told.effect, 0
                )
                if told.effect == "pushes":
                    updates, children[told.rule] = children[told.rule], 0
                if not updates:
                    continue
                handled = True
                known = sizes.get(told.rule) or [1]
                units = updates * sum(known) / len(known)
                cost.write_units += units / number
                cost.rules[told.rule] = cost.rules.get(told.rule, 0.0) + units / number
                cost.calls += (updates + (told.effect in ("pulls", "pushes"))) / number
            cost.handled += handled / number
    return cost


def _hot(rehearsal: Rehearsal, events: int, events_per_second: float | None) -> tuple[HotKey, ...]:
    """The items that took most units, at the rate of the events or, without one, in the sample itself."""
    found: Counter[tuple[str, str, tuple[str, ...]]] = Counter()
    for batch in rehearsal.batches:
        for request in batch.requests:
            for action in request.actions:
                role = purpose_of(action.write)
                if role.kind in ("entry", "forget"):
                    continue  # each source has its own
                key = encoded_words(role.about)
                if action.write.key.table == LEDGER:
                    key = f"{role.kind} of {', '.join(role.rules)} for {key}"
                found[key, role.kind, role.rules] += request.factor * action.units.table
    scale = events_per_second / events if events_per_second else 1.0
    return tuple(
        HotKey(", ".join(rules), kind, key, units * scale, 0.0, None, "")
        for (key, kind, rules), units in found.most_common(LISTED)
    )
