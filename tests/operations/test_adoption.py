"""The dry run of a backfill lists, per rule, the values of the application that would change."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.cli.backfill import report, report_dry
from projections.operations.adoption import MOST_CHANGES, ValueChange
from tests.operations.backfill.stage import (
    AUTHOR,
    LIKES,
    LISTED,
    NAMES,
    OWNERS,
    SIGHT,
    TAGS,
    Stage,
)

NEWEST = "  newest: {from: Like, top: {into: Post, as: newest, by: stars, limit: 2, attributes: [stars]}}\n"
LATEST = "  last: {from: Like, latest: {into: Post, by: stars, attributes: {lastStars: stars}}}\n"
STARRED = LIKES.replace("from: Like,", "from: Like, where: {stars: [{numeric: ['>=', 10]}]},")
KEEPING = AUTHOR.replace("userCity: city}", "userCity: city}, on_delete: keep")


def by_hand(rules: str, **settings: Any) -> Stage:
    """A table whose derived values the application kept."""
    stage = Stage(rules, new_rules="filling", **settings)
    for post, count in enumerate((2, 5, 0)):
        stage.put(
            f"POST#{post}", "METADATA", likeCount=count, best=11, owner="u1", lastStars=11, newest=[{"stars": 11}]
        )
    stage.put("USER#1", "PROFILE", name="ada", city="Rome")
    stage.put("USER#1", "LIKE#0", stars=10, userCity="Rome")
    stage.put("USER#2", "LIKE#0", stars=11, userCity="Oslo")
    stage.put("USER#1", "LIKE#1", stars=3, userCity="Paris")
    stage.lose()
    return stage


def rehearsed(stage: Stage, rules: tuple[str, ...] = ()) -> dict[str, list[ValueChange]]:
    """The examples by rule. Nothing is written."""
    before = stage.store.items("main"), stage.store.items("ledger")
    dry = stage.backfill(dry=True)
    stage.runner(dry).rehearse(dry.rehearsed(rules, 2))
    assert (stage.store.items("main"), stage.store.items("ledger")) == before
    assert dry.adoption is not None
    examples = dry.adoption.examples
    assert {rule: min(number, MOST_CHANGES) for rule, number in dry.adoption.changed.items()} == {
        rule: len(some) for rule, some in examples.items()
    }
    return {rule: sorted(some, key=lambda one: (one.key, one.attribute)) for rule, some in examples.items()}


def change(key: str, attribute: str, old: Any, new: Any) -> ValueChange:
    return ValueChange(f"main|{key}", attribute, old, new)


def test_totals_are_computed_from_the_items() -> None:
    stage = by_hand(LIKES)
    assert rehearsed(stage) == {
        "likes": [
            change("POST#1|METADATA", "best", 11, 3),
            change("POST#1|METADATA", "likeCount", 5, 1),
            change("POST#2|METADATA", "best", 11, None),
        ]
    }


def test_a_dry_run_lists_the_values_that_the_backfill_changes() -> None:
    stage = by_hand(LIKES + LATEST)
    listed = rehearsed(stage)
    before = {(item["PK"]["S"], item["SK"]["S"]): item for item in stage.store.items("main")}
    stage.filled()
    changed = set()
    for item in stage.store.items("main"):
        old = before[item["PK"]["S"], item["SK"]["S"]]
        changed |= {(item["PK"]["S"], name) for name in old if old[name] != item.get(name)}
    assert changed == {(one.key.split("|")[1], one.attribute) for some in listed.values() for one in some}


def test_lists_are_compared_whole() -> None:
    stage = by_hand(NEWEST)
    found = rehearsed(stage)["newest"]
    assert [(one.key, one.attribute) for one in found] == [(f"main|POST#{n}|METADATA", "newest") for n in range(3)]
    assert found[0].old == [{"stars": 11}]
    assert found[0].new == [{"stars": 11}, {"stars": 10}]
    assert found[2].new == []


def test_children_are_compared_with_their_parents() -> None:
    stage = by_hand(AUTHOR)
    found = rehearsed(stage)["author"]
    assert change("USER#1|LIKE#1", "userCity", "Paris", "Rome") in found
    assert not [one for one in found if one.key == "main|USER#1|LIKE#0"], "it is right"


def test_copies_and_index_attributes_are_compared_with_their_items() -> None:
    stage = by_hand(SIGHT + LISTED)
    stage.put("SEEN#1#0", "X", stars=7)
    stage.put("SEEN#1#1", "X", stars=3)
    stage.put("POST#0", "METADATA", owner="u1", GSI1PK="BY#u2", GSI1SK="0")
    stage.lose()
    assert rehearsed(stage) == {
        "listed": [change("POST#0|METADATA", "GSI1PK", "BY#u2", "BY#u1")],
        "seen": [change("SEEN#1#0|X", "stars", 7, 10)],
    }


def test_claimed_copies_and_derived_items_are_computed() -> None:
    stage = by_hand(NAMES + TAGS + OWNERS)
    stage.put("POST#3", "METADATA", owner="u7", tags=["a"])
    stage.put("NAME#ada", "USER", userId="9", city="Rome")
    stage.put("TAG#a", "STATS", posts=4)
    stage.lose()
    found = rehearsed(stage)
    assert found["names"] == [change("NAME#ada|USER", "userId", "9", "1")]
    assert found["tags"] == [change("TAG#a|STATS", "posts", 4, 1)]
    assert "owners" not in found, "there was nothing of it"


def test_values_that_the_rule_itself_wrote_are_not_values_of_the_application() -> None:
    stage = by_hand(LIKES)
    stage.filled()
    assert rehearsed(stage.under(STARRED)) == {}
    assert rehearsed(stage) == {}


def test_a_live_rule_changes_what_was_put_back_without_its_guard() -> None:
    stage = by_hand(LIKES)
    stage.filled()
    stage.put("POST#0", "METADATA", likeCount=7)
    stage.lose()
    assert rehearsed(stage) == {"likes": [change("POST#0|METADATA", "likeCount", 7, 2)]}


def test_index_attributes_of_a_rule_that_was_active_are_not_values_of_the_application() -> None:
    stage = by_hand(LISTED)
    stage.filled()
    assert rehearsed(stage.under(LISTED.replace("BY#", "OF#"))) == {}


def test_only_the_rules_that_were_named_are_listed() -> None:
    stage = by_hand(LIKES + NEWEST)
    assert rehearsed(stage, ("newest",)).keys() == {"newest"}


def test_a_rule_in_the_shadow_changes_nothing() -> None:
    assert rehearsed(by_hand(LIKES.replace("from: Like,", "mode: shadow, from: Like,"))) == {}


def test_at_most_five_examples_are_kept_and_all_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(LIKES, new_rules="filling")
    for post in range(9):
        stage.put(f"POST#{post}", "METADATA", likeCount=1)
    stage.lose()
    dry = stage.backfill(dry=True)
    runner = stage.runner(dry)
    counted = runner.rehearse(dry.rehearsed((), 2))
    assert dry.adoption is not None
    assert dry.adoption.changed == {"likes": 9}
    report_dry(dry, counted, runner, as_json=False)
    text = capsys.readouterr().out
    assert "likes: 9 values of the application would change" in text
    assert "main|POST#0|METADATA  likeCount: 1 → 0" in text or "and 4 more" in text
    assert "and 4 more" in text
    report_dry(dry, counted, runner, as_json=True)
    found = json.loads(capsys.readouterr().out)["applicationValues"]
    assert found["likes"]["changed"] == 9
    assert len(found["likes"]["examples"]) == 5
    assert found["likes"]["examples"][0] | {"key": ""} == {"key": "", "attribute": "likeCount", "old": 1, "new": 0}


def test_report_of_a_backfill_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(LIKES, new_rules="filling")
    stage.put("POST#1", "METADATA")
    stage.lose()
    backfill = stage.backfill()
    runner = stage.runner(backfill)
    run = runner.work(backfill.begin())
    assert report(backfill, run, runner, as_json=True) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["rules"], printed["phases"]["items"]["items"]) == ({"likes": "live"}, 1)
