"""Runs: they begin, wait, stop anywhere, go on, and never pass anything over."""

from __future__ import annotations

import random
import threading
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest

from projections.engine.registry import FILLING, LIVE, Registry
from projections.errors import Misconfigured, Transient, UsageError
from projections.operations.backfill.backfill_runs import Overtaken
from projections.operations.backfill.progress import Progress
from projections.operations.backfill.runner import Runner
from tests.operations.backfill.stage import ALL, BEGINNING, LIKES, TAGS, Died, Stage, deadline


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


def test_with_the_first_rules_a_backfill_waits_only_for_functions_that_read_filling() -> None:
    stage = Stage(LIKES, new_rules=FILLING)
    stage.fill()
    stage.filled(wait=60.0)
    assert stage.clock.slept == [60.0]


@pytest.mark.parametrize("deaths", range(1, 12))
def test_no_death_shortens_a_wait(deaths: int) -> None:
    """Between the raised epoch and the first page, and between a rule that goes live and the first publication."""
    stage = Stage(LIKES)
    stage.fill()
    stage.filled()
    after = stage.under(LIKES.replace("best: max(number(stars))", "best: min(number(stars))"))
    after.clock.slept.clear()
    enforced: list[float] = []
    live: list[float] = []
    first: list[float] = []
    published: list[float] = []

    def watch() -> None:
        snapshot = after.read_or_create()
        if snapshot.program == after.program.fingerprint and not enforced:
            enforced.append(after.clock.now)
        if enforced and snapshot.rules["likes"].state == LIVE and not live:
            live.append(after.clock.now)

    mortal(after, deaths)
    for attempt in range(3):
        with suppress(Died):
            backfill = after.backfill()
            run = backfill.begin(segments=1, wait=60.0)
            watch()
            while not run.done:
                if run.ready > after.clock.now:
                    after.clock.sleep(run.ready - after.clock.now)
                for segment in backfill.segments(run):
                    (first if run.phase == "items" else published if run.phase == "targets" else []).append(
                        after.clock.now
                    )
                    while not segment.done:
                        segment = backfill.page(run, segment, deadline()).segment
                run, _ = backfill.forward(run)
                watch()
        watch()
        revived(after)
        if attempt == 0 and deaths > 1:
            after.clock.now += 1.0  # it takes a moment to begin again
    assert first[0] >= enforced[0] + 60.0
    assert published[0] >= live[0] + 60.0
    after.settle()
    after.right()


# Going on.


def test_the_same_command_continues_and_another_begins_anew() -> None:
    stage = Stage(ALL)
    stage.fill()
    backfill = stage.backfill()
    run = backfill.begin(segments=3)
    assert backfill.begin(segments=3) == run
    assert backfill.begin(segments=5, wait=1.0) == run, "with the segments that it began with"
    for options in ({"rules": ["likes"]}, {"allow_delete": True}, {"restart": True}):
        other = backfill.begin(**{"segments": 3, **options})
        assert other.name != run.name
        run = other
    stage.work(backfill, run)
    assert backfill.begin(segments=3).name != run.name, "after its end it begins anew"


def test_a_run_of_rules_that_were_replaced_and_came_back_begins_anew() -> None:
    """It does not have the changes that the other rules made in between."""
    stage = Stage(LIKES)
    stage.fill()
    backfill = stage.backfill()
    run = backfill.begin(segments=1)
    Registry(stage.under(LIKES + TAGS).program, stage.store).activate()
    with pytest.raises(Overtaken):
        backfill.page(run, backfill.segments(run)[0], deadline())
    with pytest.raises(Misconfigured, match="does not contain it"):
        backfill.begin(segments=1)
    back = stage.under(LIKES, "{tags: remove}")
    again = back.backfill().begin(segments=1)
    assert again.name != run.name
    assert again.ready == BEGINNING + 60.0


def test_a_run_that_was_replaced_stops() -> None:
    stage = Stage(LIKES)
    stage.fill()
    backfill = stage.backfill()
    run = backfill.begin(segments=1)
    backfill.begin(segments=1, restart=True)
    with pytest.raises(Overtaken, match="replaced this backfill"):
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
    stage = Stage(new_rules=FILLING)
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
    assert set(stage.states().values()) == {LIVE}


def test_two_at_once_do_everything_once() -> None:
    """Two processes work off the same run: the counts are those of one."""
    stage = Stage(new_rules=FILLING)
    stage.fill()
    one, other = stage.backfill(page=2), stage.backfill(page=2)
    run = one.begin(segments=2)
    turns = random.Random(1)

    def beside() -> None:
        now = other.progress.run()
        assert now is not None
        left = [segment for segment in other.segments(now) if not segment.done]
        if left and now.ready <= stage.clock.now:
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
    stage = Stage(LIKES, new_rules=FILLING)
    stage.fill()
    broken = [True]
    failing(stage, "transact", lambda writes: broken[0] and any("LIKE#1" in str(w.key) for w in writes))
    backfill = stage.backfill()
    runner = stage.runner(backfill)
    run = runner.work(backfill.begin(segments=1))
    assert (run.phase, stage.states()) == ("items", {"likes": FILLING})
    assert runner.failed
    assert set(runner.failed.values()) == {"throttled"}
    assert all(key.endswith("|LIKE#1") or "|LIKE#" in key for key in runner.failed)
    broken[0] = False
    run = stage.runner(stage.backfill()).work(stage.backfill().begin(segments=1))
    assert (run.done, stage.states()) == (True, {"likes": LIVE})
    stage.settle()
    stage.right()


def test_stopping_ends_after_the_pages_under_way_and_loses_none() -> None:
    stage = Stage(LIKES, new_rules=FILLING)
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


def test_a_backfill_of_some_rules_makes_those_live_and_leaves_the_others_filling() -> None:
    stage = Stage(ALL, new_rules=FILLING)
    stage.fill()
    stage.filled(rules=["likes"])
    assert stage.states() == {**dict.fromkeys(stage.program.rules, FILLING), "likes": LIVE}
    assert stage.post(1)["likeCount"] == 3
    assert stage.item("TAG#a", "STATS") is None
    stage.filled()
    assert set(stage.states().values()) == {LIVE}
    stage.right()
