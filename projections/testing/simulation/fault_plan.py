"""How likely each thing is in one history. Most histories have few kinds of trouble, so that each shows by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

from projections.engine.registry import FILLING, LIVE, RuleState

__all__ = ["FaultPlan"]

_RATES = (0.0, 0.0, 0.0, 0.01, 0.03, 0.1)


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """Drawn once per history. Rates of faults are per call of the store."""

    writes: int
    """Writes of the application."""
    burst: float
    """How likely one write follows another before anything else happens."""
    batch: int
    shards: int
    invocations: int
    """Batches of all shards in flight at once."""
    threads: float
    """How likely an invocation runs its independent calls at once."""
    again: float
    """How likely the same thread goes on."""
    working: float
    """How likely a thread goes on rather than that a batch is delivered or the application writes."""
    faults: int
    """After so many faults there are no more: every history comes to rest."""
    queue: bool
    """Whether there is a task queue, and pages of a push beyond the first go there."""
    page: int
    """Children per page of a push."""
    lag: float
    """How likely an index shows less than there is."""
    freeze: float
    """That an invocation stands still for long."""
    die: float
    abandon: float
    hurry: float
    throttle: float
    conflict: float
    lose: float
    redeliver: float
    """Per batch that succeeded."""
    rewind: float
    """Per scheduling of a delivery."""
    split: float
    quarantine_down: float
    refreshes: int
    """Of a few items each."""
    rebuilds: int
    damage: float
    """That a group is damaged before it is rebuilt."""
    backfills: int
    scanned: int
    """Items on a page of a backfill."""
    change: bool
    """Whether the rules change in the middle, and a backfill puts the others in force."""
    then: Literal["stays", "back", "on"]
    """Whether such a change stays, or is soon rolled back or followed by another; what comes last is put in force."""
    fill: bool
    """Whether the rules fill at first, as on a table full of data: a backfill ends that."""
    warm: int
    """How many invocations still have the old rules after others are deployed."""
    discard: float
    """Per delivery, that it is given up, and its items are refreshed later."""
    occupy: bool
    """Whether the application puts items of other kinds under keys that rules write to."""
    turn: bool
    """Whether items change their kind."""
    inhabit: bool
    """Whether the application puts items of its own where rules create items."""
    malform: bool
    """Whether the application writes guards that do not parse."""
    clones: bool
    """Whether clones are put several times."""
    outage: bool
    """Whether the stream is switched off and on, and a backfill follows."""
    restore: bool
    """Whether the ledger is restored from an older point, and `verify --repair` or a backfill follows."""
    verifies: int
    """Runs of `verify --repair`."""
    outlive: float
    """How likely a process of operators goes on with what it knew before, and goes on after other rules are deployed."""
    expire_tried: bool
    """Whether items expire while rules are deployed that will be rolled back, though these rules keep what expired."""
    entities: bool
    """Whether a change of the rules is one of their entities."""
    reuse: float
    """How likely an invocation is by a process that is warm, with what it remembers."""
    race: float
    """How likely the application writes to an item at the moment before the engine does."""
    actions: int
    """What the ledger takes for the most actions of a transaction, so that changes are split."""

    @property
    def new_rules(self) -> RuleState:
        """The state of rules that the registry does not have yet."""
        return FILLING if self.fill else LIVE

    @property
    def without(self) -> frozenset[str]:
        """What the application does not do in this history."""
        does = {
            "occupy": self.occupy,
            "vacate": self.occupy or self.turn,
            "turn": self.turn,
            "inhabit": self.inhabit,
            "malform": self.malform,
            "again": self.clones,
        }
        return frozenset(name for name, wanted in does.items() if not wanted)

    @classmethod
    def draw(cls, rng: Random, fixed: Mapping[str, Any] | None = None) -> FaultPlan:
        """Return a plan with random values, except for those in `fixed`, by name."""

        def rate() -> float:
            return _RATES[int(rng.random() * len(_RATES))]

        calm = rng.random() < 0.15
        longest = rng.choice((8, 20, 60))
        plan = cls(
            writes=rng.randint(3, longest),
            burst=rng.choice((0.0, 0.5, 0.9)),
            batch=rng.choice((1, 2, 4, 10)),
            shards=rng.choice((1, 2, 3)),
            invocations=rng.choice((1, 2, 4)),
            threads=rng.choice((0.0, 0.5, 1.0)),
            again=rng.choice((0.0, 0.5, 0.9)),
            working=rng.choice((0.3, 0.7, 0.95)),
            faults=0 if calm else rng.choice((3, 10, 30)),
            queue=rng.random() < 0.6,
            page=rng.choice((1, 2, 100)),
            lag=rng.choice((0.0, 0.5, 0.9)),
            freeze=0.0 if calm else rng.choice((0.0, 0.03, 0.1)),
            die=rate(),
            abandon=rate(),
            hurry=rate(),
            throttle=rate(),
            conflict=rate(),
            lose=rate(),
            redeliver=0.0 if calm else rng.choice((0.0, 0.1, 0.3)),
            rewind=0.0 if calm else rng.choice((0.0, 0.0, 0.02)),
            split=rng.choice((0.0, 0.0, 0.02)),
            quarantine_down=rate(),
            refreshes=rng.choice((0, 0, 0, 1, 3)),
            rebuilds=rng.choice((0, 0, 0, 0, 0, 1, 2)),
            damage=rng.choice((0.0, 0.5, 1.0)),
            scanned=rng.choice((2, 5, 20)),
            backfills=int(rng.random() < 0.05),
            change=rng.random() < 0.12,
            then=rng.choices(("stays", "back", "on"), (4, 3, 3))[0],
            fill=rng.random() < 0.03,
            warm=rng.choice((0, 3, 10)),
            discard=0.0 if calm else rng.choice((0.0, 0.0, 0.0, 0.05)),
            actions=rng.choice((100, 100, 100, 6)),
            occupy=rng.random() < 0.15,
            turn=rng.random() < 0.15,
            inhabit=rng.random() < 0.15,
            malform=rng.random() < 0.15,
            clones=rng.random() < 0.3,
            outage=rng.random() < 0.03,
            restore=rng.random() < 0.03,
            verifies=int(rng.random() < 0.02),
            outlive=rng.choice((0.0, 0.0, 0.5)),
            expire_tried=rng.random() < 0.5,
            entities=rng.random() < 0.15,
            reuse=rng.choice((0.0, 0.5, 0.9)),
            race=rng.choice((0.0, 0.0, 0.0, 0.2)),
        )
        return replace(plan, **fixed) if fixed else plan
