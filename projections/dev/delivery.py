"""What came of a delivery and of a session, and who is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from projections.dev.watched import Written
from projections.engine.rejections import Rejected
from projections.engine.store import ItemKey
from projections.inspect.diff.difference import Difference
from projections.inspect.explain.records import RecordTold
from projections.language.findings import Finding
from projections.terminal import count

__all__ = ["Delivery", "Teller", "Totals"]


@dataclass(slots=True)
class Totals:
    """Of a session. Units are as the endpoint reports them."""

    records: int = 0
    own: int = 0
    writes: int = 0
    ledger_writes: int = 0
    write_units: float = 0.0
    read_units: float = 0.0
    quarantined: int = 0
    given_up: int = 0
    retries: int = 0

    def add(self, delivery: Delivery) -> None:
        """All but the records, which are counted once however often they are delivered."""
        self.own += sum(delivery.own)
        self.writes += delivery.writes
        self.ledger_writes += delivery.ledger_writes
        self.write_units += delivery.write_units
        self.read_units += delivery.read_units
        self.quarantined += len(delivery.rejected)

    def words(self) -> str:
        own = f" ({self.own} of our own writes)" if self.own else ""
        return (
            f"{count(self.records, 'record')}{own}, {count(self.writes, 'write')}, {self.write_units:.1f} write and "
            f"{self.read_units:.1f} read units, {self.quarantined} quarantined, {self.given_up} given up"
        )


@dataclass(slots=True)
class Delivery:
    """What came of a batch of records, or of a task: all that is to be told of it."""

    records: Sequence[RecordTold] = ()
    written: Sequence[Written] = ()
    writes: int = 0
    rejected: Sequence[Rejected] = ()
    needless: int = 0
    ledger_writes: int = 0
    write_units: float = 0.0
    read_units: float = 0.0
    failed: str | None = None
    own: Sequence[bool] = field(default_factory=tuple)


class Teller(Protocol):
    """Who is told what happens."""

    def note(self, text: str, event: str, **fields: Any) -> None: ...

    def trouble(self, reason: str) -> None: ...

    def totals(self, totals: Totals, *, last: bool) -> None: ...

    def delivered(self, delivery: Delivery) -> None: ...

    def task(self, delivery: Delivery) -> None: ...

    def gave_up(self, key: ItemKey, event: str, reason: str) -> None: ...

    def findings(self, found: Sequence[Finding]) -> None: ...

    def refused(self, reason: str) -> None: ...

    def changed(self, difference: Difference, name: str) -> None: ...
