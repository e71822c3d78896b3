"""The audit: verifies a slice of the tables on a schedule, as long as the invocation has time.

Each run continues where the last one stopped, segment by segment of parallel scans, so that all items are verified in time.
A candidate for drift is examined again after a few seconds, and again in the next run. Only then it is drift, which is kept
until it is corrected. The sums of groups are not compared, because that takes a scan of all entries: `verify` does.

    pk   sk      what
    A    .       `audit`: the last run, for people and `status`; `place`: the position of the next one, and its candidates

The partition has only this item and the secret of `operations.redaction`. So the function's role can be limited to it, and
cannot write to the registry.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.registry import Registry
from projections.engine.running import Run, one_by_one, slices
from projections.engine.store import Condition, Equal, Image, ItemKey, Missing, Purpose, Store, Update
from projections.errors import ConditionFailed, Transient
from projections.language.program import Program
from projections.operations.verify.drift import DRIFT, FINE, LEFT_OVER, Drift, Finding, Observation, judge
from projections.operations.verify.examine import Examiner
from projections.operations.verify.verify_scope import Scope, Subject, of_items, of_ledger

AUDIT = ItemKey(LEDGER, "A", ".")

SEGMENTS = 100
"""The number of segments of each table. The progress of a round is counted in segments."""

ITEMS = 10_000
"""The default maximum of items that a run reads, without the items that it reads to compare them."""

PATIENCE = 5.0
"""Seconds before a candidate is examined again within an invocation."""

MARGIN = 10.0
"""Seconds before the end of an invocation. No page begins then."""

_PAGE = 200

_WHY = Purpose("audit")
_AT_ONCE = 100
_MOST_NEW = 1000
"""The number of candidates at which a run stops reading."""

_MOST_BYTES = 200_000
"""The maximum size of the candidates that are kept in one item. The next round finds the others again."""

_MOST_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Audited:
    """The outcome of a run: items of the application that it verified, current drift, counts for metrics.

    `skipped` is the reason if it did nothing.
    """

    items: int
    drifts: tuple[Drift, ...]
    counts: Mapping[str, float]
    skipped: str | None = None


@dataclass(slots=True)
class _Candidate:
    """A candidate: its last observation, the number of observations, and whether it is known to be drift."""

    subject: str
    look: Observation
    looks: int = 1
    drift: bool = False


@dataclass(slots=True)
class _Place:
    """The position of the next run: table, segment and item; and the candidates that it examines again.

    `items` counts the application's items since the round began. A round verifies all tables once.
    """

    rules: str
    segments: int
    table: int = 0
    segment: int = 0
    after: Any = None
    items: int = 0
    size: int = 0
    """Items of the application in the last round."""
    whole: str | None = None
    """When the last round ended."""
    suspects: list[_Candidate] = field(default_factory=list)

    def text(self) -> str:
        while len(text := json.dumps(asdict(self), ensure_ascii=False)) > _MOST_BYTES and self.suspects:
            del self.suspects[len(self.suspects) // 2 :]
        return text

    @classmethod
    def read(cls, text: str) -> _Place:
        fields = json.loads(text)
        suspects = [_Candidate(**{**each, "look": Observation(*each["look"])}) for each in fields.pop("suspects")]
        return cls(**fields, suspects=suspects)


@dataclass(eq=False)
class AuditHandler:
    """Processes the events of a schedule. `observe` is called with each outcome. Writes only its own item of the ledger."""

    packaged: Program
    store: Store
    _: KW_ONLY
    items: int = ITEMS
    segments: int = SEGMENTS
    patience: float = PATIENCE
    observe: Callable[[Audited], None] | None = None
    run: Run[Any] = one_by_one
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    page: int = _PAGE
    margin: float = MARGIN
    _rules: str = field(default="", init=False)
    """Identifies the rules that are verified: when they change, the round begins again."""

    def handle(self, event: Any, remaining: Callable[[], float]) -> dict[str, Any]:
        """Process one event. `remaining` gives the seconds left.

        Raises Misconfigured, and Transient if its own item or its candidates cannot be read.
        """
        del event
        audited = self._audit(remaining)
        if self.observe:
            self.observe(audited)
        return {"items": audited.items, "drift": len(audited.drifts), "skipped": audited.skipped}

    def _audit(self, remaining: Callable[[], float]) -> Audited:
        registry = Registry(self.packaged, self.store, filled=False)
        snapshot = registry.read()
        if snapshot is None:
            return self._skip("the ledger is empty: no function has used it yet")
        snapshot, program = registry.readable(snapshot)
        self._rules = " ".join([program.fingerprint, *sorted(version.name for version in snapshot.active.values())])
        scope = Scope(program, snapshot)
        item = self.store.get(AUDIT)
        place = self._place(item)
        round_ = _Round(self, scope, place, lambda: remaining() - self.margin)
        round_.look_again()
        with suppress(Transient):  # the next run goes on
            round_.go_on()
        round_.confirm()
        return self._end(item, place, round_)

    def _skip(self, reason: str) -> Audited:
        """Record that this run checked nothing, in addition to the last result. `status` shows that the schedule works."""
        now = self.now().isoformat(timespec="seconds")
        item = self.store.get(AUDIT)
        never = {"time": now, "items": 0, "drift": 0, "whole": None}
        last = json.loads(item["audit"]["S"]) if item and "audit" in item else never
        report = {**last, "skipped": {"time": now, "reason": reason}}
        self.store.write(Update(AUDIT, set={"audit": {"S": json.dumps(report)}}, purpose=_WHY))
        return Audited(0, (), {"audited": 0}, reason)

    def _place(self, item: Image | None) -> _Place:
        if item is not None and "place" in item:
            place = _Place.read(item["place"]["S"])
            if place.rules == self._rules and place.segments == self.segments:
                return place
        return _Place(self._rules, self.segments)

    def _end(self, item: Image | None, place: _Place, round_: _Round) -> Audited:
        """Record the position of the next run, unless another run did."""
        drift = len(round_.drifts)
        report = {
            "time": self.now().isoformat(timespec="seconds"),
            "items": round_.items,
            "drift": drift,
            "whole": place.whole,
            "segment": place.table * place.segments + place.segment,
            "segments": place.segments * len(round_.tables),
        }
        known = item["place"] if item is not None and "place" in item else None
        condition: Condition = Missing(("place",)) if known is None else Equal(("place",), known)
        values = {"audit": {"S": json.dumps(report)}, "place": {"S": place.text()}}
        try:
            self.store.write(Update(AUDIT, set=values, condition=condition, purpose=_WHY))
        except ConditionFailed:
            return Audited(round_.items, (), {"audited": round_.items}, "another audit ran at the same time")
        million = 1e6 * drift / max(1, place.items, place.size)
        counts = {"audited": round_.items, "drift": drift, "driftPerMillion": million, "suspects": len(place.suspects)}
        return Audited(round_.items, tuple(round_.drifts), counts)


@dataclass(eq=False)
class _Round:
    """One run through a slice. It advances the position."""

    _handler: AuditHandler
    _scope: Scope
    _place: _Place
    _seconds_left: Callable[[], float]

    def __post_init__(self) -> None:
        self._examiner = Examiner(self._scope, self._handler.store, self._handler.sleep)
        self._new: list[_Candidate] = []
        self.tables = [*self._scope.tables, *([LEDGER] if self._scope.ledger else [])]
        self.drifts: list[Drift] = []
        self.items = self._read = 0

    def look_again(self) -> None:
        """Examine the candidates of earlier runs: each is drift, or fine, or examined again."""
        old, self._place.suspects = self._place.suspects, []
        for suspect, finding in self._examine(old):
            verdict, look = judge(suspect.look, finding)
            if verdict == FINE:
                continue
            drift = suspect.drift or verdict == DRIFT or (look.steady and suspect.looks >= _MOST_LOOKS)
            if drift:
                self.drifts += (replace(each, rule=self._scope.shown_name(each.rule)) for each in finding.drifts)
            elif suspect.looks >= _MOST_LOOKS:
                continue  # it changes constantly; the next round finds it again
            self._place.suspects.append(_Candidate(suspect.subject, look, suspect.looks + 1, drift))

    def go_on(self) -> None:
        """Examine pages while there is time to examine candidates once more; at most all items once."""
        place, handler = self._place, self._handler
        if place.table >= len(self.tables):  # the last run ended a round, or the rules have fewer tables now
            place.table, place.segment, place.after, place.items = 0, 0, None, 0
        while self._seconds_left() > handler.patience and len(self._new) < _MOST_NEW and self._read < handler.items:
            table = self.tables[place.table]
            limit = min(handler.page, handler.items - self._read)
            read = partial(handler.store.scan, table, segment=place.segment, segments=place.segments)
            page = read(limit=limit, after=place.after)
            self._page(table, page.items)
            self._read += len(page.items)
            place.after = page.after
            if page.after is not None:
                continue
            place.segment += 1
            if place.segment == place.segments:
                place.segment, place.table = 0, place.table + 1
                if place.table == len(self.tables):
                    place.whole, place.size = handler.now().isoformat(timespec="seconds"), place.items
                    return

    def confirm(self) -> None:
        """Examine new candidates once more. Those that are not fine, or cannot be read, are left to the next run."""
        if self._new:
            self._handler.sleep(self._handler.patience)
        try:
            for suspect, finding in self._examine(self._new):
                verdict, look = judge(suspect.look, finding)
                if verdict != FINE:
                    self._place.suspects.append(_Candidate(suspect.subject, look))
        except Transient:
            self._place.suspects += self._new

    def _page(self, table: str, images: Sequence[Image]) -> None:
        known = {suspect.subject for suspect in (*self._place.suspects, *self._new)}
        subjects = of_ledger(self._scope, images) if table == LEDGER else of_items(self._scope, table, images)
        fresh = [_Candidate(text, Observation("", "", "")) for each in subjects if (text := each.text()) not in known]
        for suspect, finding in self._examine(fresh):
            if finding.drifts:
                self._new.append(_Candidate(suspect.subject, judge(None, finding)[1]))
        if table != LEDGER:
            self.items += len(images)
            self._place.items += len(images)

    def _examine(self, suspects: Sequence[_Candidate]) -> Iterator[tuple[_Candidate, Finding]]:
        """Yield candidates with their findings, with short states. Raises Transient, before the first."""
        batches = list(slices(suspects, _AT_ONCE))
        calls = [partial(self._examiner.examine, [Subject.read(each.subject) for each in part]) for part in batches]
        for batch, findings in zip(batches, self._handler.run(calls), strict=True):
            for suspect in batch:
                finding = findings[Subject.read(suspect.subject)]
                yield suspect, _short(finding)


def _short(finding: Finding) -> Finding:
    drifts = tuple(drift for drift in finding.drifts if drift.kind != LEFT_OVER)
    state = blake2b(finding.state.encode(), digest_size=8).hexdigest() if finding.state else ""
    return replace(finding, state=state, drifts=drifts)
