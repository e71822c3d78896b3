"""How far a backfill has come: kept in the ledger, so that it goes on after a crash, here or elsewhere.

pk   sk                                               what
R    backfill                                         the run: its program, its phase, when it began and ended
R    backfill|<run>|<phase>|<table>|<segment>         how far one segment of a scan has come
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.store import Condition, Delete, Equal, Image, ItemKey, Missing, Store, Update, Value
from projections.errors import ConditionFailed

__all__ = ["PHASES", "RUN", "Progress", "Run", "Segment"]

PHASES = ("items", "entries", "live", "groups", "targets", "done")
"""In this order. `live` scans nothing: it is where filled rules go live."""

RUN = ItemKey(LEDGER, "R", "backfill")


@dataclass(frozen=True, slots=True)
class Run:
    """One backfill. `program` is the fingerprint of the rules, `rules` the names that it completes, times are ISO 8601."""

    name: str
    program: str
    rules: tuple[str, ...]
    tables: tuple[str, ...]
    segments: int
    phase: str
    began: str
    ended: str = ""
    allow_delete: bool = False
    wait: float = 0.0
    """Seconds an invocation takes at most."""
    ready: float = 0.0
    """When the phase may begin, in seconds since 1970: when all invocations that knew less have ended."""

    def text(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, sort_keys=True)

    @classmethod
    def read(cls, item: Image) -> Run:
        fields = json.loads(item["run"]["S"])
        return cls(**{**fields, "rules": tuple(fields["rules"]), "tables": tuple(fields["tables"])})


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of the scan of one table in one phase. `after` continues it; `counts` say what was done in it."""

    phase: str
    table: str
    number: int
    of: int
    after: Any = None
    done: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)

    def advanced(self, after: Any, counts: Mapping[str, int]) -> Segment:
        """The segment after one more page."""
        total = {name: self.counts.get(name, 0) + counts.get(name, 0) for name in self.counts.keys() | counts.keys()}
        return replace(self, after=after, done=after is None, counts=total)


class Progress:
    """Reads and writes the progress of backfills."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> Run | None:
        """The newest run, ended or not."""
        item = self._store.get(RUN)
        return Run.read(item) if item is not None else None

    def begin(self, run: Run, instead_of: Run | None) -> bool:
        """Makes this the newest run. False if another one began meanwhile."""
        return self._put(run, instead_of)

    def move(self, run: Run, **changes: Any) -> tuple[Run, bool]:
        """Changes the run, unless somebody did; gives what it is then, and whether it was this call that changed it."""
        after = replace(run, **changes)
        if self._put(after, run):
            return after, True
        return self.run() or after, False

    def _put(self, run: Run, before: Run | None) -> bool:
        condition: Condition = Missing(("pk",)) if before is None else Equal(("run",), {"S": before.text()})
        try:
            self._store.write(Update(RUN, set={"run": {"S": run.text()}}, condition=condition))
        except ConditionFailed:
            return False
        return True

    def segments(self, run: Run, phase: str, tables: Iterable[str]) -> list[Segment]:
        """All segments of a phase, as far as each has come."""
        found = [Segment(phase, table, number, run.segments) for table in tables for number in range(run.segments)]
        items = self._store.get_many([_key(run, segment) for segment in found])
        return [self._read(segment, items.get(_key(run, segment))) for segment in found]

    def segment(self, run: Run, phase: str, table: str, number: int) -> Segment:
        one = Segment(phase, table, number, run.segments)
        return self._read(one, self._store.get(_key(run, one)))

    @staticmethod
    def _read(segment: Segment, item: Image | None) -> Segment:
        if item is None:
            return segment
        counts = {name: int(Decimal(value["N"])) for name, value in item["counts"]["M"].items()}
        return replace(segment, after=json.loads(item["after"]["S"]), done=item["done"]["BOOL"], counts=counts)

    def keep(self, run: Run, segment: Segment) -> None:
        """Notes how far a segment has come."""
        values: dict[str, Value] = {
            "after": {"S": json.dumps(segment.after)},
            "done": {"BOOL": segment.done},
            "counts": {"M": {name: {"N": str(count)} for name, count in segment.counts.items()}},
        }
        self._store.write(Update(_key(run, segment), set=values))

    def clear(self, run: Run, tables: Iterable[str]) -> None:
        """Deletes what was noted of the segments of a run."""
        for phase in PHASES:
            for table in tables:
                for number in range(run.segments):
                    self._store.write(Delete(_key(run, Segment(phase, table, number, run.segments))))


def _key(run: Run, segment: Segment) -> ItemKey:
    return ItemKey(LEDGER, "R", f"backfill|{run.name}|{segment.phase}|{segment.table}|{segment.number:04d}")
