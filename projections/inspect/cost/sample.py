"""The cost of a sample of recorded events: played through the real processor, every request counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.inspect.cost.batch import BatchCost, spent
from projections.inspect.cost.by_hand import ByHand, by_hand
from projections.inspect.cost.estimate import Estimate, composed
from projections.inspect.cost.hot import HotKey
from projections.inspect.cost.workload import Assumptions, Delivery
from projections.inspect.explain.words import encoded_words
from projections.inspect.rehearsal.recorder import purpose_of
from projections.inspect.rehearsal.rehearse import Rehearsal, rehearse
from projections.language.program import Program

__all__ = ["sample_estimate"]

LISTED = 8
"""The busiest keys that are listed."""


def sample_estimate(
    program: Program,
    records: Sequence[Mapping[str, Any]],
    assumed: Assumptions,
    delivery: Delivery,
    events_per_second: float | None,
) -> Estimate:
    """What these events cost, in batches of `delivery.batch` (or `batch_size`), with all that follows from them."""
    size = round(delivery.batch or delivery.batch_size)
    rehearsal = rehearse(program, records, batch_size=size)
    alone = rehearse(program, records, batch_size=1)
    number = sum(batch.round == 0 for batch in rehearsal.batches)
    mean, hand = BatchCost(), ByHand()
    mean.add(spent(rehearsal), 1 / number)
    hand.add(by_hand(alone), 1 / number)
    hot = _hot(rehearsal, len(records), events_per_second)
    changes = _changes(rehearsal)
    events = len(records) / number
    return composed(changes, events_per_second, events, mean, hand, hot, assumed, delivery, sampled=True)


def _changes(rehearsal: Rehearsal) -> dict[str, float]:
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
            item = rehearsal.program.recognise(record.key, image or {})
            found[words[record.event].format(item.entity.name if item is not None else "item of no entity")] += 1
    return {name: float(number) for name, number in found.most_common()}


def _hot(rehearsal: Rehearsal, events: int, events_per_second: float | None) -> list[HotKey]:
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
    return [
        HotKey(", ".join(rules), kind, key, units * scale, 0.0, None, "")
        for (key, kind, rules), units in found.most_common(LISTED)
    ]
