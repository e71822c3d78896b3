"""The audit: on a schedule, a slice of the tables is verified, as far as the invocation's time goes.

Each run goes on where the last one stopped, segment by segment of parallel scans, so that everything is looked at in time.
What looks wrong is looked at again after a few seconds, and what still does in the next run; only then it is drift, and is
remembered until it is right again. The sums of groups are not compared, which only all entries together tell: `verify`.

    pk   sk      what
    A    .       `audit`: the last run, for people and `status`; `place`: where the next one goes on, and what it looks at

The partition holds nothing but that and the secret of `operations.redaction`. So the function's role can be limited to it,
and cannot write to the registry.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import partial
from hashlib import blake2b
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.registry import Registry
from projections.engine.running import Run, one_by_one
from projections.engine.store import Condition, Equal, Image, ItemKey, Missing, Store, Update
from projections.errors import ConditionFailed, Transient
from projections.language.program import Program
from projections.operations.verify.drift import Drift
from projections.operations.verify.examine import Examiner, Finding
from projections.operations.verify.looks import DRIFT, FINE, Look, told_apart
from projections.operations.verify.scope import Scope
from projections.operations.verify.subject import Subject, of_items, of_ledger

__all__ = ["AUDIT", "ITEMS", "PATIENCE", "SEGMENTS", "AuditHandler", "Audited"]

AUDIT = ItemKey(LEDGER, "A", ".")

SEGMENTS = 100
"""Into how many segments each table is divided: they tell how far a round is."""

ITEMS = 10_000
"""How many items a run reads at most, if nobody says; what belongs to them comes on top."""

PATIENCE = 5.0
"""Seconds before what looks wrong is looked at again, within an invocation."""

MARGIN = 10.0
"""Seconds before the end of an invocation in which no page begins any more."""

_PAGE = 200
_AT_ONCE = 100
_MOST_NEW = 1000
"""Suspects at which a run stops to look for more."""

_MOST_BYTES = 200_000
"""Of the suspects that are remembered, in one item; those beyond are found again when their turn comes."""

_MOST_LOOKS = 5


@dataclass(frozen=True, slots=True)
class Audited:
    """What a run did: items of the application that it looked at, the drift that stands, counts for metrics.

    `skipped` says why it did nothing.
    """

    items: int
    drifts: tuple[Drift, ...]
    counts: Mapping[str, float]
    skipped: str | None = None


@dataclass(slots=True)
class _Suspect:
    """Something that looked wrong: how it did, how often it was looked at, and whether it is known to be drift."""

    subject: str
    look: tuple[str, str, str, bool]
    looks: int = 1
    drift: bool = False


@dataclass(slots=True)
class _Place:
    """Where the next run goes on: which table, which segment of it, after which item; and what it looks at again.

    `items` are those of the application since the round began, in which everything is looked at once.
    """

    program: str
    segments: int
    table: int = 0
    segment: int = 0
    after: Any = None
    items: int = 0
    size: int = 0
    """Items of the application in the last round."""
    whole: str | None = None
    """When that ended."""
    suspects: list[_Suspect] = field(default_factory=list)

    def text(self) -> str:
        while len(text := json.dumps(asdict(self), ensure_ascii=False)) > _MOST_BYTES and self.suspects:
            del self.suspects[len(self.suspects) // 2 :]
        return text

    @classmethod
    def read(cls, text: str) -> _Place:
        fields = json.loads(text)
        suspects = [_Suspect(**{**one, "look": tuple(one["look"])}) for one in fields.pop("suspects")]
        return cls(**fields, suspects=suspects)


class AuditHandler:
    """Takes the events of a schedule. `observe` is told what became of each. Writes nothing but its place in the ledger."""

    def __init__(
        self,
        program: Program,
        store: Store,
        *,
        items: int = ITEMS,
        segments: int = SEGMENTS,
        patience: float = PATIENCE,
        observe: Callable[[Audited], None] | None = None,
        run: Run[Any] = one_by_one,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        page: int = _PAGE,
        margin: float = MARGIN,
    ) -> None:
        self._program = program
        self._store = store
        self._items = items
        self._segments = segments
        self._patience = patience
        self._observe = observe
        self._run = run
        self._sleep = sleep
        self._now = now
        self._page = page
        self._margin = margin

    def handle(self, event: Any, remaining: Callable[[], float]) -> dict[str, Any]:
        """`remaining` gives the seconds left.

        Raises Misconfigured, and Transient if not even its place, or what it remembers, can be read.
        """
        del event
        audited = self._audit(remaining)
        if self._observe:
            self._observe(audited)
        return {"items": audited.items, "drift": len(audited.drifts), "skipped": audited.skipped}

    def _audit(self, remaining: Callable[[], float]) -> Audited:
        snapshot = Registry(self._program, self._store).read()
        if snapshot is None:
            return self._skip("there is nothing in the ledger yet")
        if snapshot.program != self._program.fingerprint:
            return self._skip("other rules are active than the ones this function was deployed with")
        scope = Scope(self._program, snapshot)
        item = self._store.get(AUDIT)
        place = self._place(item)
        round_ = _Round(self, scope, place, lambda: remaining() - self._margin)
        round_.look_again()
        with suppress(Transient):  # the next run goes on
            round_.go_on()
        round_.settle()
        return self._end(item, place, round_)

    def _skip(self, reason: str) -> Audited:
        """Note that this run checked nothing, beside what the last one found: so `status` knows that the schedule works."""
        now = self._now().isoformat(timespec="seconds")
        item = self._store.get(AUDIT)
        last = (
            json.loads(item["audit"]["S"])
            if item and "audit" in item
            else {"time": now, "items": 0, "drift": 0, "whole": None}
        )
        told = {**last, "skipped": {"time": now, "reason": reason}}
        self._store.write(Update(AUDIT, set={"audit": {"S": json.dumps(told)}}))
        return Audited(0, (), {"audited": 0}, reason)

    def _place(self, item: Image | None) -> _Place:
        if item is not None and "place" in item:
            place = _Place.read(item["place"]["S"])
            if place.program == self._program.fingerprint and place.segments == self._segments:
                return place
        return _Place(self._program.fingerprint, self._segments)

    def _end(self, item: Image | None, place: _Place, round_: _Round) -> Audited:
        """Notes where the next run goes on, unless another run did so meanwhile."""
        drift = len(round_.drifts)
        told = {
            "time": self._now().isoformat(timespec="seconds"),
            "items": round_.items,
            "drift": drift,
            "whole": place.whole,
            "segment": place.table * place.segments + place.segment,
            "segments": place.segments * len(round_.tables),
        }
        known = item["place"] if item is not None and "place" in item else None
        condition: Condition = Missing(("place",)) if known is None else Equal(("place",), known)
        values = {"audit": {"S": json.dumps(told)}, "place": {"S": place.text()}}
        try:
            self._store.write(Update(AUDIT, set=values, condition=condition))
        except ConditionFailed:
            return Audited(round_.items, (), {"audited": round_.items}, "another audit ran at the same time")
        million = 1e6 * drift / max(1, place.items, place.size)
        counts = {"audited": round_.items, "drift": drift, "driftPerMillion": million, "suspects": len(place.suspects)}
        return Audited(round_.items, tuple(round_.drifts), counts)


class _Round:
    """One run through a slice: it changes the place as it goes."""

    def __init__(self, handler: AuditHandler, scope: Scope, place: _Place, left: Callable[[], float]) -> None:
        self._handler = handler
        self._scope = scope
        self._place = place
        self._left = left
        self._examiner = Examiner(scope, handler._store, handler._sleep)
        self._new: list[_Suspect] = []
        self.tables = [*scope.tables, *([LEDGER] if scope.ledger else [])]
        self.drifts: list[Drift] = []
        self.items = 0
        self._read = 0

    def look_again(self) -> None:
        """At what looked wrong in earlier runs: now it is drift, or fine, or comes again."""
        old, self._place.suspects = self._place.suspects, []
        for suspect, finding in self._examined(old):
            verdict, look = told_apart(Look(*suspect.look), finding)
            if verdict == FINE:
                continue
            drift = suspect.drift or verdict == DRIFT or (look.steady and suspect.looks >= _MOST_LOOKS)
            if drift:
                self.drifts += finding.drifts
            elif suspect.looks >= _MOST_LOOKS:
                continue  # it never comes to rest; its turn comes again
            self._place.suspects.append(_Suspect(suspect.subject, _kept(look), suspect.looks + 1, drift))

    def go_on(self) -> None:
        """Looks at page after page while there is time to look at what is wrong once more; at most at everything once."""
        place, handler = self._place, self._handler
        if place.table >= len(self.tables):  # the rules name fewer tables now, or the last run ended a round
            place.table, place.segment, place.after, place.items = 0, 0, None, 0
        while self._left() > handler._patience and len(self._new) < _MOST_NEW and self._read < handler._items:
            table = self.tables[place.table]
            limit = min(handler._page, handler._items - self._read)
            page = handler._store.scan(
                table, segment=place.segment, segments=place.segments, limit=limit, after=place.after
            )
            self._page(table, page.items)
            self._read += len(page.items)
            place.after = page.after
            if page.after is not None:
                continue
            place.segment += 1
            if place.segment == place.segments:
                place.segment, place.table = 0, place.table + 1
                if place.table == len(self.tables):
                    place.whole, place.size = handler._now().isoformat(timespec="seconds"), place.items
                    return

    def settle(self) -> None:
        """Looks at what is wrong once more: what still is, or cannot be read now, the next run looks at."""
        if self._new:
            self._handler._sleep(self._handler._patience)
        try:
            for suspect, finding in self._examined(self._new):
                verdict, look = told_apart(Look(*suspect.look), finding)
                if verdict != FINE:
                    self._place.suspects.append(_Suspect(suspect.subject, _kept(look)))
        except Transient:
            self._place.suspects += self._new

    def _page(self, table: str, images: Sequence[Image]) -> None:
        known = {suspect.subject for suspect in (*self._place.suspects, *self._new)}
        subjects = of_ledger(self._scope, images) if table == LEDGER else of_items(self._scope, table, images)
        fresh = [_Suspect(text, ("", "", "", True)) for one in subjects if (text := one.text()) not in known]
        for suspect, finding in self._examined(fresh):
            if finding.drifts:
                self._new.append(_Suspect(suspect.subject, _kept(told_apart(None, finding)[1])))
        if table != LEDGER:
            self.items += len(images)
            self._place.items += len(images)

    def _examined(self, suspects: Sequence[_Suspect]) -> Iterator[tuple[_Suspect, Finding]]:
        """Suspects with what they look like now; states as short as they are remembered.

        Raises Transient, before the first.
        """
        batches = [suspects[start : start + _AT_ONCE] for start in range(0, len(suspects), _AT_ONCE)]
        pieces = [partial(self._examiner.examine, [Subject.read(one.subject) for one in some]) for some in batches]
        for some, found in zip(batches, self._handler._run(pieces), strict=True):
            for suspect in some:
                finding = found[Subject.read(suspect.subject)]
                yield suspect, _short(finding)


def _short(finding: Finding) -> Finding:
    state = blake2b(finding.state.encode(), digest_size=8).hexdigest() if finding.state else ""
    return Finding(state, finding.drifts, finding.image, finding.reached, finding.known, finding.push)


def _kept(look: Look) -> tuple[str, str, str, bool]:
    return look.state, look.known, look.image, look.steady
