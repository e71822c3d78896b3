"""Estimates what a fill reads and writes, from a few pages that are rehearsed: nothing is written."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.registry import RegistrySnapshot
from projections.engine.running import Deadline, at_once
from projections.engine.store import Store
from projections.language.program import Program
from projections.operations.backfill.backfill_runs import Backfill
from projections.operations.backfill.progress import Segment

ITEMS_PER_SECOND = 200
"""That one process fills with the default segments; docs/cost.md."""

_SEGMENTS, _PAGE = 8, 50
"""Places of a table from which items are sampled, and items of each."""

_READS_OF_AN_ENTRY = 3
"""Read units of an entry that the fill itself adds: the scan of the ledger, the entry, and its item."""


@dataclass(frozen=True, slots=True)
class FillEstimate:
    """The items that a fill reads, and about what it writes. `sampled` items were rehearsed, `rejected` of them are
    rejected. If these were all items, it is `exact` for the moment.
    """

    items: int
    writes: int
    write_units: int
    read_units: int
    sampled: int
    rejected: int
    exact: bool

    def seconds(self, max_writes: int | None = None) -> float:
        """Return how long one process takes."""
        return max(self.items / ITEMS_PER_SECOND, self.writes / max_writes if max_writes else 0.0)

    def document(self, max_writes: int | None = None) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "items": self.items,
            "writes": self.writes,
            "writeUnits": self.write_units,
            "readUnits": self.read_units,
            "seconds": round(self.seconds(max_writes)),
            "sampled": self.sampled,
            "rejected": self.rejected,
            "exact": self.exact,
        }


def estimate_fill(program: Program, store: Store, planned: RegistrySnapshot, sizes: Mapping[str, int]) -> FillEstimate:
    """Return the estimate for the registry as `planned`. `sizes` are about the items of each table. Raises Transient."""
    sampler = Backfill(program, store, now=lambda: datetime.now(UTC), run=at_once(_SEGMENTS), page=_PAGE, dry=True)
    run = sampler.unrecorded_run(planned, _SEGMENTS)
    total, exact, items, sampled, rejected = Counter[str](), True, 0, 0, 0
    for phase in ("items", "entries", "targets"):
        for table in sampler.tables_of(run, phase):
            counts, whole = Counter[str](), True
            for number in range(_SEGMENTS):
                done = sampler.page(run, Segment(phase, table, number, _SEGMENTS), Deadline.after(60))
                counts.update(done.segment.counts)
                whole = whole and done.segment.done
            size = counts["items"] if whole else max(sizes.get(table, 0), counts["items"])
            for name, number in counts.items():
                total[name] += round(number * size / counts["items"]) if counts["items"] else number
            exact = exact and whole
            if phase == "items":
                items, sampled, rejected = items + size, sampled + counts["items"], rejected + counts["rejected"]
    added = max(0, total["entries"] - sizes.get(LEDGER, 0))
    words, changes = ("entries", "groups", "members", "publishable"), ("created|", "changed|")
    writes = sum(number for name, number in total.items() if name in words or name.startswith(changes))
    reads = total["read units"] + _READS_OF_AN_ENTRY * added
    return FillEstimate(items, writes, total["write units"], reads, sampled, rejected, exact)
