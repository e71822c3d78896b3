"""Verification while the application writes: late values are not reported, and a repair is correct."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from projections.engine.store import ItemKey, Store
from projections.operations.backfill.backfill_runs import Backfill
from projections.operations.dry import Cautious
from projections.operations.verify.drift import Drift
from projections.operations.verify.repair import Repair
from projections.operations.verify.verification import Verification
from tests.engine.world import World
from tests.operations.verify_scene import (
    assert_right,
    drifts,
    edit,
    filled,
    ledger_edit,
    ledger_lose,
    lost,
    repaired,
    verified,
)


class Live:
    """A store beside which something happens every few calls."""

    def __init__(self, store: Store, step: Callable[[], None], every: int) -> None:
        self._store = store
        self._step = step
        self._every = every
        self._calls = 0

    def __getattr__(self, name: str) -> Any:
        work = getattr(self._store, name)
        if name == "schema":
            return work

        def call(*arguments: Any, **options: Any) -> Any:
            self._calls += 1
            if self._calls % self._every == 0:
                self._step()
            return work(*arguments, **options)

        return call


class Traffic:
    """An application that writes, and a function that delivers what it hears of, a little later."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.writes = 0

    def step(self) -> None:
        for _ in range(2):
            self.write()
        if self.chance.random() < 0.5:
            records = self.world.records()
            some = records[: self.chance.randint(0, len(records))]
            self.world.position += len(some)
            assert self.world.deliver(some).failed is None

    def write(self) -> None:
        world, chance = self.world, self.chance
        user, post = chance.randint(0, 7), chance.randint(0, 5)
        self.writes += 1
        match chance.randint(0, 8):
            case 0 | 1 | 2:
                world.like(user, post, stars=chance.randint(1, 60))
            case 3:
                world.remove(f"USER#{user}", f"LIKE#{post}")
            case 4:
                world.put(f"USER#{user}", "PROFILE", name=f"n{user // 2}", city=f"c{self.writes}", tags=["a", "b"])
            case 5:
                world.put(f"POST#{post}", "METADATA", owner=f"u{user}", tags=[f"t{user}"])
            case 6:
                world.remove(f"POST#{post}", "METADATA")
            case 7:
                world.put(f"VISIT#{self.writes}", "V", postId=str(post), seconds=self.writes)
            case 8:
                key = ItemKey("main", f"POST#{post}", "METADATA")
                if (held := world.store.get(key)) is not None:  # read a while ago, put back as a whole with an edit
                    world.store.put("main", {**held, "likeCount": {"N": "77"}, "edits": {"N": str(self.writes)}})

    def pause(self, seconds: float) -> None:
        """Deliver late records, and let the application write."""
        self.world.settle()
        for _ in range(3):
            self.step()


DAMAGE: list[Callable[[World], Any]] = [
    lambda world: edit(world, "POST#9", "METADATA", likeCount=99),
    lambda world: lost(world, lambda: world.like(9, 9, stars=1)),
    lambda world: lost(world, lambda: world.remove("USER#8", "LIKE#9")),
    lambda world: ledger_edit(world, "G|likes.1|main|POST#9", n={"N": "77"}),
    lambda world: ledger_edit(world, "G|newest.1|main|POST#9", n={"N": "77"}),
    lambda world: ledger_lose(world, "M|likes.1|main|POST#9"),
    lambda world: ledger_lose(world, "E|main|USER#8|LIKE#9"),
    lambda world: ledger_lose(world, "G|sharded.1|main|POST#9"),
    lambda world: lost(world, lambda: world.remove("SEEN#8#9", "X")),
    lambda world: edit(world, "USER#8", "PROFILE", city="unheard"),
]
"""To a post that the traffic leaves alone, and to two of its likes."""


def mend(one: Verification, world: World, store: Store, pause: Callable[[float], None]) -> list[Drift]:
    """Repairs, and verifies again; what is left."""
    backfill = Backfill(world.program, store, now=lambda: datetime.fromtimestamp(1_700_000_000, UTC))
    settings: Any = {"allow_delete": True, "segments": 1, "clock": lambda: 1_700_000_000.0}
    repair = Repair(one.scope, world.program, Cautious(store, deletes=True), one.candidates, backfill, **settings)
    repair.all()
    assert (repair.failed, repair.rejected) == ({}, {})
    if world.registry().read() != one.scope.snapshot:
        with verified(world, store, sleep=pause, patience=1.0) as again:
            return list(again.drifts())
    one.candidates.reset()
    one.examine()
    return list(one.drifts())


def with_an_own_post() -> World:
    world = filled()
    world.put("POST#9", "METADATA", owner="u9", tags=["t9"])
    for user in (8, 10, 11):
        world.put(f"USER#{user}", "PROFILE", name=f"m{user}", city=f"c{user}")
        world.like(user, 9, stars=user)
    world.settle()
    return world


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.deep) for seed in range(10)])
def test_damage_is_found_and_repaired_while_the_application_writes(seed: int) -> None:
    world = with_an_own_post()
    DAMAGE[seed](world)
    quiet = {(drift.kind, drift.rule, drift.target, drift.attribute) for drift in drifts(world)}
    assert quiet
    traffic = Traffic(world, seed)
    store: Any = Live(world.store, traffic.step, 4 + seed % 3)
    with verified(world, store, sleep=traffic.pause, patience=1.0, page=4 + seed % 9) as one:
        found = list(one.drifts())
        assert {(drift.kind, drift.rule, drift.target, drift.attribute) for drift in found} == quiet
        assert mend(one, world, store, traffic.pause) == []
    world.settle()
    assert drifts(world) == []
    assert_right(world)


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.deep) for seed in range(3)])
def test_a_ledger_that_was_restored_to_an_earlier_point_is_repaired_while_the_application_writes(seed: int) -> None:
    world = with_an_own_post()
    before = world.store.items("ledger")
    traffic = Traffic(world, seed)
    for _ in range(30):
        traffic.write()
    world.settle()
    ledger_lose(world, "")
    for item in before:
        world.store.put("ledger", item)
    store: Any = Live(world.store, traffic.step, 7 + seed)
    left: list[Drift] = []
    for _ in range(4):  # what live traffic does with such a ledger meanwhile may be wrong in new ways
        with verified(world, store, sleep=traffic.pause, patience=1.0) as one:
            left = mend(one, world, store, traffic.pause)
    assert left == []
    world.settle()
    assert repaired(world) == []
    world.settle()
    assert drifts(world) == []
    assert_right(world)
