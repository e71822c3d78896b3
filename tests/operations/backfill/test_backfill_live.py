"""A table full of data gets its projections while the application writes and its stream is worked off."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest

from tests.operations.backfill.stage import LIKES, Stage, before


@pytest.mark.parametrize("seed", range(8))
def test_a_table_with_data_and_no_ledger_under_live_writes(seed: int) -> None:
    chance = random.Random(seed)
    stage = Stage(filled=False)
    stage.fill()

    def meanwhile() -> None:
        for _ in range(chance.randrange(3)):
            stage.act(chance)
        if chance.random() < 0.5:
            stage.settle()
        elif chance.random() < 0.3 and stage.records():
            stage.deliver(stage.records()[: chance.randint(1, 4)])  # and again, with all that follows, later

    stage.filled(meanwhile, segments=chance.randint(1, 3), allow_delete=chance.random() < 0.5)
    assert stage.published() == set(stage.program.rules)
    stage.right()


def test_functions_that_filled_before_the_backfill_began_counted_what_is_theirs() -> None:
    stage = Stage(filled=False)
    stage.fill()
    for user in range(4):
        stage.like(user, 3, stars=7)
    stage.remove("USER#4", "LIKE#0")
    stage.settle()
    assert "likeCount" not in stage.post(3)
    stage.filled()
    assert stage.post(3)["likeCount"] == 4 + 1
    stage.right()


def test_nothing_partial_is_published_while_a_rule_fills() -> None:
    stage = Stage(LIKES, filled=False)
    stage.put("POST#1", "METADATA", likeCount=5000)  # by hand, until now
    for user in range(20):
        stage.like(user, 1, stars=1)
    stage.lose()
    seen: list[Any] = []
    number = iter(range(100, 200))

    def meanwhile() -> None:
        stage.like(next(number), 1, stars=2)
        stage.settle()
        seen.append(stage.post(1)["likeCount"])

    stage.filled(meanwhile, segments=1)
    likes = sum(item["SK"]["S"].startswith("LIKE#") for item in stage.store.items("main"))
    assert stage.post(1)["likeCount"] == likes
    assert seen[0] == 5000
    assert set(seen) <= {5000, *range(20, 200)}
    assert all(one == 5000 or other >= one for one, other in pairwise(seen))


def test_a_function_that_read_filling_and_commits_after_the_promotion_leaves_nothing_unpublished() -> None:
    stage = Stage(LIKES, filled=False)
    stage.fill()
    backfill = stage.backfill()
    run = stage.apply(backfill, segments=1)
    late = stage.worker()
    while run.phase != "promote":
        stage.phase(backfill, run)
        run, _ = backfill.forward(run)
    stage.like(77, 2, stars=1)
    moved = []
    before(stage, "transact", lambda: moved.append(backfill.forward(run)[0]))
    assert late.process(stage.records(), remaining=lambda: 60.0).failed is None
    stage.lose()
    assert stage.states() == {"likes.1": "active"}
    stage.work(backfill, *moved)
    stage.right()
