"""Backfills and retirement of computed attributes."""

from __future__ import annotations

from tests.operations.backfill.stage import LISTED, Stage
from tests.operations.verify_scene import drifts, repaired

PRICED = "  priced: {from: Post, compute: {set: {label: '{owner} of {postId}'}}}\n"
KEPT = "  kept: {from: Post, compute: {set: {firstOwner: owner}, once: true}}\n"


def owned(stage: Stage, post: int, *names: str) -> list[object]:
    return [stage.post(post).get(name) for name in names]


def test_a_backfill_sets_absent_values_and_leaves_present_ones() -> None:
    stage = Stage(PRICED + KEPT)
    stage.put("POST#1", "METADATA", owner="ann", label="mine")
    stage.put("POST#2", "METADATA", owner="ben", firstOwner="zoe", label="ben of 2")
    stage.lose()
    stage.filled()
    assert owned(stage, 1, "label", "firstOwner") == ["ann of 1", "ann"]
    assert owned(stage, 2, "label", "firstOwner") == ["ben of 2", "zoe"]
    stage.put("POST#1", "METADATA", owner="cid", firstOwner="ann")
    stage.lose()
    stage.filled()
    assert owned(stage, 1, "label", "firstOwner") == ["cid of 1", "ann"]


def test_retirement_removes_what_is_computed_and_keeps_what_was_set_once() -> None:
    stage = Stage(PRICED + KEPT + LISTED)
    stage.filled()
    stage.put("POST#1", "METADATA", owner="ann")
    stage.settle()
    after = stage.under(LISTED, "{priced: remove, kept: remove}")
    after.filled()
    assert owned(after, 1, "label", "firstOwner", "GSI1PK") == [None, "ann", "BY#ann"]


def test_a_rule_without_once_corrects_what_it_set_before() -> None:
    stage = Stage(KEPT)
    stage.filled()
    stage.put("POST#1", "METADATA", owner="ann")
    stage.settle()
    stage.put("POST#1", "METADATA", owner="ben", firstOwner="ann")
    stage.settle()
    assert owned(stage, 1, "firstOwner") == ["ann"]
    after = stage.under(KEPT.replace(", once: true", ""))
    after.filled()
    assert owned(after, 1, "firstOwner") == ["ben"]
    gone = after.under(LISTED, "{kept: remove}")
    gone.filled()
    assert owned(gone, 1, "firstOwner") == [None]


def test_verify_reports_absent_values_of_once_and_accepts_present_ones() -> None:
    stage = Stage(PRICED + KEPT)
    stage.filled()
    stage.put("POST#1", "METADATA", owner="ann", label="ann of 1", firstOwner="zoe")
    stage.put("POST#2", "METADATA", owner="ben", label="old")
    stage.lose()
    found = drifts(stage)
    assert sorted((one.kind, one.rule, one.target, one.expected, one.actual) for one in found) == [
        ("compute", "kept", "main|POST#2|METADATA", "ben", None),
        ("compute", "priced", "main|POST#2|METADATA", "ben of 2", "old"),
    ]
    assert repaired(stage) == []
    assert owned(stage, 1, "firstOwner") == ["zoe"]
    assert owned(stage, 2, "label", "firstOwner") == ["ben of 2", "ben"]
