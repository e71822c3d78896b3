"""The progress of a backfill in the ledger, so that any process can continue it after a crash.

pk   sk                                               what
R    backfill                                         the run: its rules, its phase, when it began and ended
R    backfill|<run>|<phase>|<table>|<segment>         the progress of one segment of a scan
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

from projections.engine.ledger_items import LEDGER
from projections.engine.rejections import Rejected
from projections.engine.store import AllOf, Condition, Delete, Equal, Missing, Purpose, Store, Update, all_items
from projections.errors import ConditionFailed
from projections.language.keys import Image, ItemKey, Value

PHASES = ("items", "entries", "promote", "groups", "targets", "done")
"""In order. `promote` scans nothing: filled versions are published from then on."""

DONE = PHASES[-1]

MOST_SECONDS = 24 * 3600.0
"""Older runs are not continued: a stream keeps the records of changes since then only for this time."""

STANDBY_SECONDS = 7 * 24 * 3600.0
"""How long a version that was replaced is maintained, for a roll back. Then the end of a run removes it."""

RUN = ItemKey(LEDGER, "R", "backfill")

_PREFIX = "backfill|"
_WHY = Purpose("progress")


@dataclass(frozen=True, slots=True)
class Run:
    """One backfill; times are ISO 8601.

    `versions` are those that it fills, and promotes if `promotes`. From its promotion on, `published` are the versions whose
    promotions it carries out, each with its epoch, and `former` those whose values it removes where no other rule sets them.
    """

    name: str
    versions: tuple[str, ...]
    tables: tuple[str, ...]
    segments: int
    phase: str
    began: str
    ended: str = ""
    promotes: bool = True
    scans: bool = True
    """Whether it reads the application's tables to publish. A roll back need not if both versions show the same zeros."""
    published: tuple[tuple[str, int], ...] = ()
    former: tuple[str, ...] = ()
    allow_delete: bool = False
    rotates: bool = False
    """Whether it signs all guards again, with a new secret."""
    epoch: int = 0
    """That of the registry when it began. Of what was registered later, it has not read all items."""

    @property
    def done(self) -> bool:
        return self.phase == DONE

    def text(self) -> str:
        return json.dumps({name: getattr(self, name) for name in self.__slots__}, sort_keys=True)

    @classmethod
    def read(cls, item: Image) -> Run:
        fields: dict[str, Any] = json.loads(item["run"]["S"])
        for name in ("versions", "tables", "former"):
            fields[name] = tuple(fields[name])
        fields["published"] = tuple((version, epoch) for version, epoch in fields["published"])
        return cls(**fields)


_MOST_BYTES = 2000
"""Of the examples of a segment, which are written with every page."""

_LONGEST_REASON = 200


class Example(NamedTuple):
    """A rejected item, the rule that rejected it, empty for all, and the reason."""

    key: str
    rule: str
    reason: str


@dataclass(frozen=True, slots=True)
class Segment:
    """One segment of the scan of one table in one phase. `after` continues it; `counts` has what was done in it, and
    `rejected` the first rejected items, as many as `_MOST_BYTES` hold.
    """

    phase: str
    table: str
    number: int
    of: int
    after: Any = None
    done: bool = False
    counts: Mapping[str, int] = field(default_factory=dict)
    rejected: tuple[Example, ...] = ()

    def after_page(self, after: Any, counts: Mapping[str, int], rejected: Iterable[Rejected] = ()) -> Segment:
        """Return the segment after one more page."""
        total = {name: self.counts.get(name, 0) + counts.get(name, 0) for name in {**self.counts, **counts}}
        examples = dict.fromkeys(self.rejected)
        for record in rejected:
            example = Example(record.key or "", record.rule or "", record.reason[:_LONGEST_REASON])
            if len(_text((*examples, example))) <= _MOST_BYTES:
                examples[example] = None
        total = {name: n for name, n in total.items() if n}
        return replace(self, after=after, done=after is None, counts=total, rejected=tuple(examples))


class Progress:
    """Reads and writes the progress of backfills."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def run(self) -> Run | None:
        """Return the newest run, whether it has ended or not."""
        item = self._store.get(RUN)
        return Run.read(item) if item is not None else None

    def begin(self, run: Run, instead_of: Run | None) -> bool:
        """Make this the newest run, and delete the progress of others. Return False if another run began."""
        if not self._put(run, instead_of):
            return False
        self._clear(run)
        return True

    def move(self, run: Run, **changes: Any) -> tuple[Run, bool]:
        """Change the run, unless another process did. Return the run, and whether this call changed it."""
        after = replace(run, **changes)
        if self._put(after, run):
            return after, True
        return self.run() or after, False

    def _put(self, run: Run, before: Run | None) -> bool:
        condition = Missing(("pk",)) if before is None else Equal(("run",), {"S": before.text()})
        try:
            self._store.write(Update(RUN, set={"run": {"S": run.text()}}, condition=condition, purpose=_WHY))
        except ConditionFailed:
            return False
        return True

    def segments(self, run: Run, phase: str, tables: Iterable[str]) -> list[Segment]:
        """Return all segments of a phase with their progress."""
        segments = [Segment(phase, table, number, run.segments) for table in tables for number in range(run.segments)]
        items = self._store.get_many([_key(run, segment) for segment in segments])
        return [self._read(segment, items.get(_key(run, segment))) for segment in segments]

    def segment(self, run: Run, phase: str, table: str, number: int) -> Segment:
        segment = Segment(phase, table, number, run.segments)
        return self._read(segment, self._store.get(_key(run, segment)))

    @staticmethod
    def _read(segment: Segment, item: Image | None) -> Segment:
        if item is None:
            return segment
        counts = {name: int(Decimal(value["N"])) for name, value in item["counts"]["M"].items()}
        after, done = json.loads(item["after"]["S"]), item["done"]["BOOL"]
        return replace(segment, after=after, done=done, counts=counts, rejected=examples_in(item))

    def keep(self, run: Run, before: Segment, after: Segment) -> bool:
        """Record the progress of a segment. Return False if another process has advanced it."""
        values: dict[str, Value] = {
            "after": {"S": _cursor(after)},
            "done": {"BOOL": after.done},
            "counts": {"M": {name: {"N": str(count)} for name, count in after.counts.items()}},
        }
        if after.rejected:
            values["rejected"] = {"S": _text(after.rejected)}
        condition: Condition = Missing(("pk",))
        if before.after is not None:
            condition = AllOf((Equal(("after",), {"S": _cursor(before)}), Equal(("done",), {"BOOL": False})))
        try:
            self._store.write(Update(_key(run, before), set=values, condition=condition, purpose=_WHY))
        except ConditionFailed as failed:  # this write may have succeeded, and its answer was lost
            return failed.item is not None and self._read(before, failed.item) == after
        return True

    def _clear(self, run: Run) -> None:
        """Delete the progress of other runs."""
        read = partial(self._store.query, LEDGER, [{"S": "R"}], prefix=_PREFIX, attributes=("pk", "sk"))
        for item in all_items(read):
            if not item["sk"]["S"].startswith(f"{_PREFIX}{run.name}|"):
                self._store.write(Delete(ItemKey(LEDGER, item["pk"]["S"], item["sk"]["S"]), purpose=_WHY))


def examples_in(item: Image) -> tuple[Example, ...]:
    """Return the rejected items that the progress of a segment names."""
    return tuple(Example(*fields) for fields in json.loads(item["rejected"]["S"])) if "rejected" in item else ()


def _text(examples: Iterable[Example]) -> str:
    return json.dumps(list(examples))


def _cursor(segment: Segment) -> str:
    return json.dumps(segment.after, sort_keys=True)


def _key(run: Run, segment: Segment) -> ItemKey:
    return ItemKey(LEDGER, "R", f"{_PREFIX}{run.name}|{segment.phase}|{segment.table}|{segment.number:04d}")
