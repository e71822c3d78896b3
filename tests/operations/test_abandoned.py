"""Everything that was begun ends: rebuilds and backfills whose process died."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from projections.engine import rebuild
from projections.engine.rebuild import notes
from projections.engine.registry import Registry
from projections.operations import health
from projections.operations.backfill.progress import Progress
from projections.operations.dry import Cautious
from projections.operations.health import ACT, LOOK
from projections.operations.verify.repair import Repair
from tests.engine.scene import Stopped, die, live
from tests.operations.backfill.stage import LIKES, TAGS, Stage, before, deadline
from tests.operations.verify_scene import drifts, verified

SHARDED = LIKES.replace("aggregate: {", "aggregate: {shards: 3, ")
DAY = 24 * 3600.0


def damaged(rules: str = LIKES + TAGS) -> Stage:
    """All groups of likes are wrong."""
    stage = Stage(rules)
    stage.fill()
    stage.filled()
    for item in stage.store.items("ledger"):
        if item["pk"]["S"].startswith("G|likes") and "n" in item:
            stage.store.put("ledger", {**item, "n": {"N": "77"}})
    return stage


def repair(stage: Stage) -> None:
    with verified(stage) as one:
        store = Cautious(stage.store, deletes=True)
        mended = Repair(one.scope, store, one.candidates, threads=1, sleep=lambda seconds: None, clock=stage.clock)
        mended.all()
        assert (mended.failed, mended.rejected) == ({}, {})


def drift(stage: Stage) -> list[str]:
    return [f"{found.kind} {found.rule}" for found in drifts(stage)]


def killed(stage: Stage, writes: int) -> bool:
    """A repair that dies after so many writes; whether it did."""
    left: Iterator[Any] = iter(range(writes))
    die(stage, left)
    try:
        repair(stage)
    except Stopped:
        return True
    finally:
        live(stage)
    return False


def traffic(stage: Stage) -> None:
    for user in range(10, 13):
        stage.like(user, 0, stars=user)
    stage.remove("USER#1", "LIKE#0")
    stage.settle()


@pytest.mark.deep
@pytest.mark.parametrize("rules", [LIKES + TAGS, SHARDED])
@pytest.mark.parametrize("by", ["backfill", "repair"])
def test_a_rebuild_that_died_anywhere_is_ended_by_the_next_backfill_or_repair(by: str, rules: str) -> None:
    writes, died = 0, True
    while died:
        stage = damaged(rules)
        died = killed(stage, writes)
        traffic(stage)
        writes += 1
        if by == "backfill":
            stage.filled()
            if died and [one for one in drift(stage) if one.startswith("group")]:
                continue  # no group was closed yet: a damaged group is for a repair
        else:
            repair(stage)
        stage.right()
        assert list(notes(stage.store)) == []
        assert drift(stage) == []
    assert writes > 10


def test_a_note_names_the_group_and_is_gone_at_the_end() -> None:
    stage = damaged()
    closed = []
    close = rebuild.close

    def seen(*arguments: Any) -> int:
        generation = close(*arguments)
        closed.extend(notes(stage.store))
        return generation

    rebuild.close = seen
    try:
        repair(stage)
    finally:
        rebuild.close = close
    assert {(note.target[0], note.generation, note.at) for note in closed} == {("likes", 1, int(stage.clock.now))}
    assert "main|POST#0|METADATA" in {note.target[1] for note in closed}
    assert list(notes(stage.store)) == []


def test_a_backfill_that_takes_the_place_of_one_under_way_does_so_whatever_phase_that_reaches() -> None:
    stage = damaged(LIKES)
    assert killed(stage, 14)
    older = stage.backfill()
    run = older.begin(segments=1, allow_delete=True)
    stage.phase(older, run)
    before(stage, "transact", lambda: older.forward(run), 1)
    newer = stage.backfill()
    begun = newer.begin(segments=1, restart=True, allow_delete=True)
    assert begun.replaces == run.name
    stage.work(newer, begun)
    assert list(notes(stage.store)) == []


@pytest.mark.parametrize(("seconds", "goes_on"), [(DAY - 1, True), (DAY, True), (DAY + 1, False)])
def test_a_run_is_not_continued_after_24_hours(seconds: float, goes_on: bool) -> None:
    stage = Stage(LIKES)
    stage.fill()
    backfill = stage.backfill()
    run = backfill.begin(segments=1)
    stage.clock.now += seconds
    assert (stage.backfill().begin(segments=1).name == run.name) is goes_on


def test_changes_during_an_idle_run_are_found_by_the_next_one() -> None:
    stage = Stage(new_rules="filling")
    stage.fill()
    backfill = stage.backfill()
    run = backfill.begin(segments=2, allow_delete=True)
    while run.phase != "targets":
        if run.ready > stage.clock.now:
            stage.clock.sleep(run.ready - stage.clock.now)
        stage.phase(backfill, run)
        run, _ = backfill.forward(run)
    backfill.page(run, backfill.segments(run)[0], deadline())
    stage.clock.sleep(90 * DAY)
    for user in range(6):
        stage.like(user + 10, 0, stars=1)
        stage.remove(f"USER#{user}", "LIKE#0")
    stage.lose()
    stage.filled()
    stage.right()


def test_status_names_what_was_abandoned_its_age_and_what_to_run() -> None:
    stage = damaged()
    assert killed(stage, 12)
    backfill = stage.backfill()
    backfill.begin(segments=1, rules=["tags"])
    found = list(notes(stage.store))
    later = datetime.fromtimestamp(stage.clock.now + 2 * DAY, UTC)
    (finding,) = health.rebuilds(found, later)
    assert finding.level == ACT
    assert "started 2 d ago" in finding.says
    assert "projections verify --repair" in finding.todo
    assert next(health.rebuilds(found, datetime.fromtimestamp(stage.clock.now + 10, UTC))).level == LOOK
    assert list(health.rebuilds([], later)) == []
    run = Progress(stage.store).run()
    assert run is not None
    said = health.backfill(run, health.read_notes(stage.store, run), Registry(stage.program, stage.store).read(), later)
    assert said.level == LOOK
    assert "started 2 d ago" in said.says
    assert "starts a new one" in said.todo
