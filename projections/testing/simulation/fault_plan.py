"""What a history consists of. Most histories have few kinds of faults, so that each kind also occurs alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

_RATES = (0.0, 0.0, 0.0, 0.01, 0.03, 0.1)


@dataclass(frozen=True, slots=True)
class FaultPlan:
    """What a history consists of, and the rates of faults: probabilities for each call of the store, unless noted."""

    writes: int
    """Writes of the application."""
    burst: float
    """Probability that the application makes another write before anything else happens."""
    batch: int
    """Most records of a batch."""
    shards: int
    """Shards of each stream."""
    invocations: int
    """Most invocations of functions at once."""
    threads: float
    """Probability that an invocation runs independent pieces of work at once."""
    same_thread: float
    """Probability that the thread that made the last step makes the next one."""
    any_thread: float
    """Probability that a thread makes the next step, and not the application or an event source."""
    faults: int
    """Most faults. Later there are none, so that every history ends."""
    queue: bool
    """Whether there is a task queue, which gets all pages of a push but the first."""
    page: int
    """Children on a page of a push."""
    lag: float
    """Probability that a read of an index returns an earlier state."""
    freeze: float
    """An invocation stops for some time."""
    die: float
    """The process of an invocation ends."""
    abandon: float
    """The event source does not wait for an invocation any longer, and the invocation continues."""
    out_of_time: float
    """Almost no time is left for an invocation."""
    throttle: float
    """A call is throttled."""
    conflict: float
    """A transaction is cancelled because of another one."""
    lose_answer: float
    """The answer to a call is lost."""
    redeliver: float
    """Probability that a batch that succeeded is delivered again."""
    rewind: float
    """Probability, at each delivery, that a shard is read again from an earlier record."""
    split: float
    """Probability, at each delivery, that a shard is split."""
    quarantine_down: float
    """Probability that a message cannot be sent to the quarantine."""
    refreshes: int
    """Refreshes of a few items."""
    recounts: int
    """Recounts of a rule."""
    damage: float
    """Probability that a group is damaged before its rule is recounted."""
    backfills: int
    """Backfills without a change of rules."""
    scan_page: int
    """Items on a page of a backfill or a verification."""
    change: bool
    """Whether other rules are deployed and activated by a backfill."""
    then: Literal["stays", "rolled back", "changed again"]
    """What happens to a change of rules: it stays, is rolled back, or is followed by another one before it may be active."""
    fill: bool
    """Whether the rules are filling at first, as on a table with data. A backfill completes that."""
    warm: int
    """Invocations that may still have the old package after another one is deployed."""
    discard: float
    """Probability, at each delivery, that a batch is discarded and redriven later."""
    occupy: bool
    """Whether the application puts items of other kinds under keys that rules write to."""
    change_kind: bool
    """Whether the application changes the kind of items."""
    adopt: bool
    """Whether the application puts items of its own under keys where rules create items."""
    malform: bool
    """Whether the application writes guards that do not parse."""
    clones: bool
    """Whether clones are put several times."""
    outage: bool
    """Whether the stream is switched off and on, and a backfill follows."""
    restore: bool
    """Whether the ledger is restored from a backup, and `verify --repair` or a backfill follows."""
    verifies: int
    """Runs of `verify --repair`."""
    outlive: float
    """Probability that a process of operators does the next piece, and that it continues when other rules are deployed."""
    swaps: int
    """Promotions of a version that stands by: roll backs."""
    entities: bool
    """Whether a change of the rules changes an entity."""
    old: bool
    """Whether the first package cannot read what later ones have changed."""
    removes: bool
    """Whether versions that stand by are removed at once, rather than after days."""
    reuse: float
    """Probability that an invocation gets a warm process."""
    race: float
    """Probability that the application writes to an item right before the engine does."""
    actions: int
    """Most actions of a transaction, beyond which the ledger divides a change."""
    defer: float = 0.0
    """Probability that a change exceeds the budget of its rule, and is left to the worker."""
    shardless: float = 0.0
    """Probability, at each delivery in a tumbling window, that the event lacks the shard's ID."""
    defer_copies: float = 0.0
    """Probability that the copies of an item exceed the budget of their rule, and are left to the worker."""

    @property
    def without(self) -> frozenset[str]:
        """Operations that the application does not do in this history."""
        does = {
            "occupy": self.occupy,
            "vacate": self.occupy or self.change_kind,
            "change_kind": self.change_kind,
            "adopt": self.adopt,
            "malform_guard": self.malform,
            "clone_again": self.clones,
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
            same_thread=rng.choice((0.0, 0.5, 0.9)),
            any_thread=rng.choice((0.3, 0.7, 0.95)),
            faults=0 if calm else rng.choice((3, 10, 30)),
            queue=rng.random() < 0.6,
            page=rng.choice((1, 2, 100)),
            lag=rng.choice((0.0, 0.5, 0.9)),
            freeze=0.0 if calm else rng.choice((0.0, 0.03, 0.1)),
            die=rate(),
            abandon=rate(),
            out_of_time=rate(),
            throttle=rate(),
            conflict=rate(),
            lose_answer=rate(),
            redeliver=0.0 if calm else rng.choice((0.0, 0.1, 0.3)),
            rewind=0.0 if calm else rng.choice((0.0, 0.0, 0.02)),
            split=rng.choice((0.0, 0.0, 0.02)),
            quarantine_down=rate(),
            refreshes=rng.choice((0, 0, 0, 1, 3)),
            recounts=rng.choice((0, 0, 0, 0, 0, 1, 2)),
            damage=rng.choice((0.0, 0.5, 1.0)),
            scan_page=rng.choice((2, 5, 20)),
            backfills=int(rng.random() < 0.05),
            change=rng.random() < 0.5,
            then=rng.choices(("stays", "rolled back", "changed again"), (4, 3, 3))[0],
            fill=rng.random() < 0.03,
            warm=rng.choice((0, 3, 10)),
            discard=0.0 if calm else rng.choice((0.0, 0.0, 0.0, 0.05)),
            actions=rng.choice((100, 100, 100, 6)),
            occupy=rng.random() < 0.15,
            change_kind=rng.random() < 0.15,
            adopt=rng.random() < 0.15,
            malform=rng.random() < 0.15,
            clones=rng.random() < 0.3,
            outage=rng.random() < 0.03,
            restore=rng.random() < 0.03,
            verifies=int(rng.random() < 0.02),
            outlive=rng.choice((0.0, 0.0, 0.5)),
            swaps=rng.choice((0, 0, 0, 1, 2)),
            entities=rng.random() < 0.15,
            old=Random(rng.getstate()[1][3]).random() < 0.2,
            removes=Random(rng.getstate()[1][4]).random() < 0.3,
            reuse=rng.choice((0.0, 0.5, 0.9)),
            race=rng.choice((0.0, 0.0, 0.0, 0.2)),
            # another generator: a draw from this one would change all histories
            defer=Random(rng.getstate()[1][0]).choice((0.0, 0.0, 0.0, 0.0, 0.5, 0.9)),
            shardless=0.0 if calm else Random(rng.getstate()[1][5]).choice((0.0, 0.0, 0.0, 0.0, 0.0, 0.05)),
            defer_copies=Random(rng.getstate()[1][1]).choice((0.0, 0.0, 0.0, 0.0, 0.5, 0.9)),
        )
        return replace(plan, **fixed) if fixed else plan
