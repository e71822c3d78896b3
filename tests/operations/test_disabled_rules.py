"""Rules with `enabled: false`: what they wrote stays, nothing is written, and a backfill makes up for it."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from projections.engine.store import Image
from projections.operations.health import FINE, Finding, ledger
from tests.operations.backfill.stage import ALL, AUTHOR, LIKES, LISTED, NAMES, SIGHT, TAGS, Stage
from tests.operations.verify_scene import drifts

ONE = {"likes": LIKES, "tags": TAGS, "names": NAMES, "seen": SIGHT, "listed": LISTED, "author": AUTHOR}
WHOLE = SIGHT.replace("attributes: [stars]", "attributes: all")


def disabled(rules: str) -> str:
    return rules.replace(": {from", ": {enabled: false, from")


def written(stage: Stage) -> dict[str, Image]:
    """The items of the application's table."""
    return {f"{item['PK']['S']} {item['SK']['S']}": item for item in stage.store.items("main")}


def running(rules: str) -> Stage:
    stage = Stage(rules)
    stage.fill()
    stage.filled()
    stage.right()
    return stage


@pytest.mark.parametrize("backfilled", [False, True])
@pytest.mark.parametrize("rule", [*ONE.values(), WHOLE, ALL], ids=[*ONE, "all attributes", "all rules"])
def test_values_stay_while_a_rule_is_disabled_and_are_right_after_it_is_enabled(rule: str, backfilled: bool) -> None:
    stage = running(rule)
    before = written(stage)
    off = stage.under(disabled(rule))
    if backfilled:
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
def test_verify_compares_the_ledger_of_a_disabled_rule_and_not_what_it_wrote(rule: str) -> None:
    off = running(rule).under(disabled(rule))
    off.put("POST#1", "METADATA", owner="u9", tags=["new"])
    off.put("USER#1", "PROFILE", name="other", city="elsewhere")
    off.like(1, 1, stars=99)
    off.settle()
    assert drifts(off) == []
    if rule == LIKES:
        off.like(2, 1, stars=98)
        off.lose()
        assert {one.kind for one in drifts(off)} == {"entry stale"}


def test_status_names_a_disabled_rule_with_its_owner_and_asks_for_nothing() -> None:
    stage = running(LIKES + TAGS)
    rule = disabled(LIKES).replace(
        "enabled: false", "enabled: false, owner: the feed team, description: Likes of a post"
    )
    off = stage.under(rule + TAGS)
    off.like(3, 3, stars=1)
    off.settle()
    found = ledger(off.program, off.store, datetime(2023, 11, 15, tzinfo=UTC), deployed=True)
    says = "disabled: it publishes nothing, and the values that it wrote stay (owner: the feed team; Likes of a post)"
    assert Finding("rule likes", FINE, says) in found.findings
    assert {one.level for one in found.findings if one.subject != "audit"} == {FINE}
    off.filled()
    found = ledger(off.program, off.store, datetime(2023, 11, 15, tzinfo=UTC), deployed=True)
    assert found.rules == {"likes": "disabled", "tags": "live"}
    assert Finding("rule likes", FINE, says) in found.findings
