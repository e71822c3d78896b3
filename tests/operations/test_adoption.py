"""The dry run of a backfill lists, per rule, the values of the application that would change."""

from __future__ import annotations

from typing import Any

from projections.operations.dry import MOST_CHANGES, ValueChange
from tests.operations.backfill.stage import AUTHOR, LIKES, LISTED, NAMES, OWNERS, TAGS, Stage

LATEST = "  last: {from: Like, latest: {into: Post, by: stars, attributes: {lastStars: stars}}}\n"
STARRED = LIKES.replace("from: Like,", "from: Like, where: {stars: [{numeric: ['>=', 10]}]},")


def by_hand(rules: str, **settings: Any) -> Stage:
    """A table whose derived values the application kept."""
    stage = Stage(rules, filled=False, **settings)
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


def rehearsed(stage: Stage) -> dict[str, list[ValueChange]]:
    """The examples by rule. Nothing is written."""
    before = stage.store.items("main"), stage.store.items("ledger")
    dry = stage.backfill(dry=True)
    stage.runner(dry).rehearse(dry.unrecorded_run(dry.registry.preview(stage.program).snapshot, 2))
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


def test_children_are_compared_with_their_parents() -> None:
    stage = by_hand(AUTHOR)
    found = rehearsed(stage)["author"]
    assert change("USER#1|LIKE#1", "userCity", "Paris", "Rome") in found
    assert not [one for one in found if one.key == "main|USER#1|LIKE#0"], "it is right"


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
