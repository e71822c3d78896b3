"""Rules with `hold: true`: what they wrote stays, and nothing is written until they are applied without it."""

from __future__ import annotations

import random

import pytest

from projections.engine.store import Image
from tests.operations.backfill.stage import ALL, AUTHOR, LIKES, LISTED, NAMES, SIGHT, TAGS, Stage
from tests.operations.verify_scene import drifts

ONE = {"likes": LIKES, "tags": TAGS, "names": NAMES, "seen": SIGHT, "listed": LISTED, "author": AUTHOR}
WHOLE = SIGHT.replace("attributes: [stars]", "attributes: all")


def held(rules: str) -> str:
    return rules.replace(": {from", ": {hold: true, from")


def written(stage: Stage) -> dict[str, Image]:
    """The items of the application's table."""
    return {f"{item['PK']['S']} {item['SK']['S']}": item for item in stage.store.items("main")}


def running(rules: str) -> Stage:
    stage = Stage(rules)
    stage.fill()
    stage.filled()
    stage.right()
    return stage


@pytest.mark.parametrize("rule", [*ONE.values(), WHOLE, ALL], ids=[*ONE, "all attributes", "all rules"])
def test_values_stay_while_a_rule_is_held_and_are_right_after_that(rule: str) -> None:
    stage = running(rule)
    before = written(stage)
    off = stage.under(held(rule))
    off.filled()
    assert written(off) == before
    chance = random.Random(4)
    own = {key: item for key, item in before.items() if any(name.startswith("~") for name in item)}
    for _ in range(30):
        off.act(chance)
        off.settle()
    after = written(off)
    for key, item in own.items():
        guards = {name: value for name, value in item.items() if name.startswith("~")}
        if key in after and guards.keys() <= after[key].keys():
            assert {name: after[key][name] for name in guards} == guards
    on = off.under(rule)
    on.filled(restart=True)
    on.right()


@pytest.mark.parametrize("rule", ONE.values(), ids=ONE)
def test_verify_compares_the_ledger_of_a_held_rule_and_not_what_it_wrote(rule: str) -> None:
    off = running(rule).under(held(rule))
    off.put("POST#1", "METADATA", owner="u9", tags=["new"])
    off.put("USER#1", "PROFILE", name="other", city="elsewhere")
    off.like(1, 1, stars=99)
    off.settle()
    assert drifts(off) == []
    if rule == LIKES:
        off.like(2, 1, stars=98)
        off.lose()
        assert {one.kind for one in drifts(off)} == {"entry stale"}
