"""What a delivery and a session did, and the interface of what reports it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from projections.engine.records import Record
from projections.engine.rejections import Rejected
from projections.engine.store import ItemKey, Value
from projections.inspect.diff.difference import Difference
from projections.inspect.explain.document import RecordReport
from projections.language.facts import EVERY, Origin
from projections.language.findings import Finding
from projections.language.program import Program
from projections.language.values import changed_attributes, same
from projections.terminal import count

__all__ = ["Delivery", "Reporter", "Totals", "Written", "due_to", "is_own"]


@dataclass(frozen=True, slots=True)
class Written:
    """A write to an item of the application's tables. `set` and `removed` are without guards."""

    key: ItemKey
    rules: tuple[str, ...]
    set: Mapping[str, Value]
    removed: tuple[str, ...]
    deleted: bool


@dataclass(slots=True)
class Delivery:
    """What a batch of records, or a task, did. `writes` counts those to the application's tables, of which `written` has
    the first; `needless` counts writes whose condition did not hold. `own`: which records show our own writes, and `due`
    the rules to which each of them is due.
    `freshness` has, by rule, the ages in seconds of the oldest and of the newest change that it read.
    """

    records: Sequence[RecordReport] = ()
    own: Sequence[bool] = ()
    due: Sequence[tuple[str, ...]] = ()
    written: list[Written] = field(default_factory=list)
    writes: int = 0
    rejected: Sequence[Rejected] = ()
    needless: int = 0
    ledger_writes: int = 0
    write_units: float = 0.0
    read_units: float = 0.0
    failed: str | None = None
    freshness: Mapping[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(slots=True)
class Totals:
    """The sums of a session. Units are as the endpoint reports them."""

    records: int = 0
    own: int = 0
    writes: int = 0
    ledger_writes: int = 0
    write_units: float = 0.0
    read_units: float = 0.0
    quarantined: int = 0
    discarded: int = 0
    retries: int = 0

    def add(self, delivery: Delivery) -> None:
        """Add a delivery, without its records: they are counted once, however often they are delivered."""
        self.own += sum(delivery.own)
        self.quarantined += len(delivery.rejected)
        for name in ("writes", "ledger_writes", "write_units", "read_units"):
            setattr(self, name, getattr(self, name) + getattr(delivery, name))

    def words(self) -> str:
        own = f" ({self.own} of the rules' own writes)" if self.own else ""
        return (
            f"{count(self.records, 'record')}{own}, {count(self.writes, 'write')}, {self.write_units:.1f} write and "
            f"{self.read_units:.1f} read units, {self.quarantined} quarantined, {self.discarded} discarded"
        )


class Reporter(Protocol):
    """Reports what happens."""

    def note(self, text: str, event: str, **fields: Any) -> None: ...

    def trouble(self, reason: str) -> None: ...

    def totals(self, totals: Totals, *, last: bool) -> None: ...

    def delivered(self, delivery: Delivery) -> None: ...

    def task(self, delivery: Delivery) -> None: ...

    def discarded(self, key: ItemKey, event: str, reason: str) -> None: ...

    def findings(self, found: Sequence[Finding]) -> None: ...

    def refused(self, reason: str) -> None: ...

    def changed(self, difference: Difference, name: str) -> None: ...


def due_to(program: Program, written: Mapping[str, Mapping[str, Origin]], report: RecordReport) -> tuple[str, ...]:
    """Return the rules to which the changes of a record are due, in the order of the file: those whose values changed.

    `written` has the origin of each derived attribute by entity. If only guards changed, the rules of these guards.
    """
    record = report.record
    if record is None or report.entity is None:
        return ()
    known = written.get(report.entity, {})
    changed = changed_attributes(record.old, record.new)
    origins = (known.get(name, known.get(EVERY)) for name in changed if not name.startswith(program.guard_prefix))
    found = {origin.rule for origin in origins if origin is not None}
    if not found:
        found = {name.removeprefix(program.guard_prefix) for name in changed}
    return tuple(name for name in program.rules if name in found)


def is_own(program: Program, report: RecordReport, recent: list[Written]) -> bool:
    """Return whether a record shows a write of ours: rules created the item, or only derived values changed and no rule
    corrects them.

    A correction leaves the guard as it was, as an external write does. Its record is known by the values of one of the
    `recent` writes of this session, which is then removed.
    """
    record = report.record
    if record is None or report.entity is None:
        return False
    changed = changed_attributes(record.old, record.new)
    guarded = any(name.startswith(program.guard_prefix) for name in changed)
    owned = program.entities[report.entity].owned_by_rules
    if owned and guarded and record.old is None:
        return True  # even if other rules correct it, because they add attributes
    if any(rule.effect == "heals" for rule in report.rules):
        shown = next((one for one in recent if _shows(program, record, changed, one)), None)
        if shown is not None:
            recent.remove(shown)
        return shown is not None
    if owned and guarded:
        return True
    derived = program.derived_attributes(report.entity)
    return bool(changed) and all(name in derived or name.startswith(program.guard_prefix) for name in changed)


def _shows(program: Program, record: Record, changed: Iterable[str], written: Written) -> bool:
    """Return whether all changes of a record are values of a write."""
    if written.key != record.key or written.deleted or record.new is None:
        return False
    names = [name for name in changed if not name.startswith(program.guard_prefix)]
    return bool(names) and all(
        same(record.new.get(name), written.set.get(name)) and (name in written.set or name in written.removed)
        for name in names
    )
