"""Runs: they begin, stop anywhere, go on, and never pass anything over."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from projections.errors import Transient, UsageError
from projections.operations.backfill.backfill_runs import Overtaken
from projections.operations.backfill.progress import Progress
from projections.operations.backfill.runner import Runner
from tests.operations.backfill.stage import ALL, LIKES, Died, Stage, deadline


def mortal(stage: Stage, deaths: int) -> None:
    """The process dies at its nth write."""
    left = iter(range(deaths - 1))

    def dying(original: Any) -> Any:
        def write(*arguments: Any) -> Any:
            if next(left, None) is None:
                raise Died
            return original(*arguments)

        return write

    for name in ("write", "transact", "write_each"):
        setattr(stage.store, name, dying(getattr(stage.store, name)))


def revived(stage: Stage) -> None:
    for name in ("write", "transact", "write_each"):
        vars(stage.store).pop(name, None)


# Waits.


# Going on.


def test_the_same_command_continues_and_another_begins_anew() -> None:
    stage = Stage(ALL)
    stage.fill()
    backfill = stage.backfill()
    run = backfill.begin(segments=3)
    assert backfill.begin(segments=3) == run
    assert backfill.begin(segments=5) == run, "with the segments that it began with"
    for options in ({"promotes": False}, {"allow_delete": True}, {"restart": True}):
        other = backfill.begin(**{"segments": 3, **options})
        assert other.name != run.name
        run = other
    stage.work(backfill, run)
    assert backfill.begin(segments=3).name != run.name, "after its end it begins anew"


def test_a_run_that_was_replaced_stops() -> None:
    stage = Stage(LIKES)
    stage.fill()
    backfill = stage.backfill()
    run = backfill.begin(segments=1)
    backfill.begin(segments=1, restart=True)
    with pytest.raises(Overtaken, match="another backfill replaced this one"):
        stage.runner(backfill).work(run)


def test_of_two_that_begin_at_once_one_is_reported() -> None:
    stage = Stage(LIKES)
    first, second = stage.backfill(), stage.backfill()
    begun: list[Any] = []
    original = Progress.begin

    def begin(self: Progress, *arguments: Any) -> bool:
        if not begun:
            begun.append(None)
            begun.append(second.begin())
        return original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Progress, "begin", begin)
        with pytest.raises(UsageError, match="began at the same time"):
            first.begin()
    assert first.begin() == begun[1]


@pytest.mark.parametrize("deaths", [*range(1, 40, 3), *range(40, 120, 11)])
def test_a_run_that_dies_anywhere_is_gone_on_with(deaths: int) -> None:
    stage = Stage(filled=False)
    stage.fill()
    mortal(stage, deaths)
    with suppress(Died):
        backfill = stage.backfill()
        stage.work(backfill, backfill.begin(segments=2))
    revived(stage)
    backfill = stage.backfill()
    before_that = backfill.progress.run()
    run = backfill.begin(segments=2)
    if before_that is not None and not before_that.done:
        assert run.name == before_that.name
    stage.work(backfill, run)
    stage.settle()
    stage.right()
    assert stage.published() == set(stage.program.rules)


def test_two_at_once_do_everything_once() -> None:
    """Two processes work off the same run: the counts are those of one."""
    stage = Stage(filled=False)
    stage.fill()
    one, other = stage.backfill(page=2), stage.backfill(page=2)
    run = one.begin(segments=2)
    turns = random.Random(1)

    def beside() -> None:
        now = other.progress.run()
        assert now is not None
        left = [segment for segment in other.segments(now) if not segment.done]
        if left:
            other.page(now, turns.choice(left), deadline())

    run = stage.work(one, run, beside)
    stage.settle()
    stage.right()
    total: Counter[str] = sum(one.report(run).values(), Counter())
    likes = sum(user % 5 for user in range(6))
    assert total["entries"] == likes + 4 + 6
    assert one.report(run)["items"]["items"] >= likes + 4 + 6
    assert one.report(run)["entries"]["items"] > 0


# What fails.


def failing(stage: Stage, method: str, fails: Any) -> None:
    original = getattr(stage.store, method)

    def call(*arguments: Any, **options: Any) -> Any:
        if fails(*arguments, **options):
            raise Transient("throttled")
        return original(*arguments, **options)

    setattr(stage.store, method, call)


def test_a_page_that_fails_is_not_passed_over_and_no_rule_goes_live_without_it() -> None:
    stage = Stage(LIKES, filled=False)
    stage.fill()
    broken = [True]
    failing(stage, "transact", lambda writes: broken[0] and any("LIKE#1" in str(w.key) for w in writes))
    backfill = stage.backfill()
    runner = stage.runner(backfill)
    run = runner.work(backfill.begin(segments=1))
    assert (run.phase, stage.states()) == ("items", {"likes.1": "filling"})
    assert runner.failed
    assert set(runner.failed.values()) == {"throttled"}
    assert all(key.endswith("|LIKE#1") or "|LIKE#" in key for key in runner.failed)
    broken[0] = False
    run = stage.runner(stage.backfill()).work(stage.apply(stage.backfill(), segments=1))
    assert (run.done, stage.states()) == (True, {"likes.1": "active"})
    stage.settle()
    stage.right()


def test_stopping_ends_after_the_pages_under_way_and_loses_none() -> None:
    stage = Stage(LIKES, filled=False)
    stage.fill(users=12)
    pages = iter(range(100))
    stopped = threading.Event()

    def told(run: Any, done: Any) -> None:
        if next(pages) == 1:
            stopped.set()
            raise KeyboardInterrupt

    backfill = stage.backfill(page=3)
    run = backfill.begin(segments=2)
    with pytest.raises(KeyboardInterrupt):
        Runner(backfill, report=told).work(run)
    assert stopped.is_set()
    assert any(segment.after for segment in backfill.segments(run))
    stage.work(backfill, backfill.begin(segments=2))
    stage.settle()
    stage.right()


# Parts of it.


def test_a_run_fills_and_promotes_the_versions_that_are_named() -> None:
    stage = Stage(ALL, filled=False)
    stage.fill()
    stage.filled(versions=["likes.1"])
    filling = {f"{name}.1": "filling" for name, rule in stage.program.rules.items() if rule.recorded}
    assert {name: state for name, state in stage.states().items() if name in filling} == {
        **filling,
        "likes.1": "active",
    }
    assert stage.post(1)["likeCount"] == 3
    assert stage.item("TAG#a", "STATS") is None
    stage.filled()
    assert stage.published() == set(stage.program.rules)
    stage.right()


# Ages.

DAY = 24 * 3600.0


@pytest.mark.parametrize(("seconds", "goes_on"), [(DAY - 1, True), (DAY, True), (DAY + 1, False)])
def test_a_run_is_not_continued_after_24_hours(seconds: float, goes_on: bool) -> None:
    stage = Stage(LIKES)
    stage.fill()
    run = stage.apply(stage.backfill(), segments=1)
    stage.clock.now += seconds
    assert (stage.apply(stage.backfill(), segments=1).name == run.name) is goes_on


def test_changes_during_an_idle_run_are_found_by_the_next_one() -> None:
    stage = Stage(filled=False)
    stage.fill()
    backfill = stage.backfill()
    run = stage.apply(backfill, allow_delete=True)
    while run.phase != "targets":
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


def test_the_end_of_a_run_removes_versions_that_were_replaced_more_than_7_days_before() -> None:
    stage = Stage(LIKES)
    stage.fill()
    after = stage.under(LIKES.replace("max(", "min("))
    after.filled()
    assert after.states() == {"likes.1": "standby", "likes.2": "active"}
    for seconds, left in ((7 * DAY, {"likes.1": "standby"}), (1.0, {})):
        after.clock.sleep(seconds)
        after.filled(restart=True)
        assert after.states() == {**left, "likes.2": "active"}
    after.filled()
    assert {item["pk"].split("|")[1] for item in after.ledger("G|")} == {"likes.2"}
    after.right()
