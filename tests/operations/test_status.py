"""Status: what there is to be known is judged, and what to do is said."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from projections.engine.registry import FILLING, Registry
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.operations import status
from projections.operations.backfill.backfill import Backfill
from projections.operations.backfill.progress import Progress
from projections.operations.backfill.runner import Runner
from projections.operations.status import ACT, FINE, LOOK, Finding
from projections.stores.memory import MemoryStore
from tests.engine.world import World

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
HEAD = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
projections:
"""
LIKES = "  likes: {from: Like, MODEaggregate: {into: Post, set: {likeCount: count}}}\n"
LISTED = '  listed: {from: Post, index: {GSI1PK: "BY#{owner}", GSI1SK: x}}\n'
BOTH = LIKES.replace("MODE", "") + LISTED


def program(rules: str, tail: str = "") -> Program:
    return Program.from_document(loads(HEAD + rules.replace("MODE", "") + tail).canonical())


def memory(rules: str = BOTH, state: str = "live") -> MemoryStore:
    store = MemoryStore({**program(rules).tables, "ledger": LEDGER_SCHEMA})
    Registry(program(rules), store, state).standing()
    return store


def findings_of(store: MemoryStore, rules: Program, *, deployed: bool = False) -> list[Finding]:
    registry = Registry(rules, store)
    standing = registry.look()
    states = status.states(rules, standing, registry.definition) if standing is not None else {}
    return list(status.rules(rules, standing, states, deployed=deployed))


def judged(store: MemoryStore, rules: Program, *, deployed: bool = False) -> dict[str, Finding]:
    return {one.subject: one for one in findings_of(store, rules, deployed=deployed)}


# Rules.


def test_rules_that_are_live_as_in_the_file_are_fine() -> None:
    assert list(judged(memory(), program(BOTH)).values()) == [Finding("rules", FINE, "epoch 1: 2 live")]


def test_a_ledger_that_nobody_used_is_looked_at() -> None:
    ((finding),) = status.rules(program(BOTH), None, {})
    assert (finding.level, "knows of no rules" in finding.says, "--ledger" in finding.todo) == (LOOK, True, True)


def test_each_kind_of_filling_says_what_it_means() -> None:
    shadow = LIKES.replace("likes", "shade").replace("likeCount", "shadeCount").replace("MODE", "mode: shadow, ")
    rules = program(BOTH + shadow)
    store = MemoryStore({**rules.tables, "ledger": LEDGER_SCHEMA})
    Registry(rules, store, FILLING).standing()
    found = judged(store, rules)
    assert found["rules"].says == "epoch 1: 3 filling"
    assert found["rule likes"].says == "filling: it publishes nothing until its backfill is complete"
    assert found["rule listed"].says == "filling: what was there before it is not projected yet"
    assert found["rule shade"].says == "filling: its books lack what was there before it"
    assert {one.todo for one in found.values() if one.level == LOOK} == {"Run `projections backfill`."}
    Registry(rules, store).complete(rules.rules)
    assert judged(store, rules) == {"rules": Finding("rules", FINE, "epoch 2: 2 live, 1 shadow")}


def test_a_file_that_is_not_in_force_says_how_it_differs() -> None:
    new = LISTED.replace("listed", "more").replace("GSI1PK", "GSI2PK").replace("GSI1SK", "GSI2SK")
    head = HEAD.replace("GSI1: [GSI1PK, GSI1SK]", "GSI1: [GSI1PK, GSI1SK], GSI2: [GSI2PK, GSI2SK]")
    changed = LISTED.replace("x}", "y}")
    document = loads(head + changed + new + "retired: {likes: remove}\n").canonical()
    found = judged(memory(), Program.from_document(document))
    assert found["rule file"].says == "not in force (new: more; changed: listed; retired: likes)"
    assert found["rule file"].level == LOOK
    assert "projections backfill" in found["rule file"].todo


def test_a_file_that_forgets_a_rule_is_wrong() -> None:
    findings = findings_of(memory(), program(LISTED))
    assert [(one.level, one.says) for one in findings[-1:]] == [(ACT, "says nothing of likes, in force")]
    assert "`retired: {likes: keep}`" in findings[-1].todo


def test_a_file_that_was_replaced_is_told_as_older() -> None:
    store = memory()
    newer = program(LISTED, "retired: {likes: remove}\n")
    Registry(newer, store).enforce()
    assert judged(store, program(BOTH))["rule file"].says == "these rules are older than those in force"
    retiring = judged(store, newer)["rule likes"]
    assert (retiring.level, retiring.says) == (LOOK, "retired: what it wrote is not removed yet")


def test_what_a_rule_was_before_it_changed_is_told_beside_what_it_is() -> None:
    store, changed = memory(LISTED), program(LISTED.replace("x}", "y}"))
    Registry(changed, store).enforce()
    findings = findings_of(store, changed)
    assert findings[0].says == "epoch 2: 1 filling, 1 retiring"
    assert [(one.subject, one.says) for one in findings[1:]] == [
        ("rule listed", "filling: what was there before it is not projected yet"),
        ("rule listed", "what another version of it wrote is not removed yet"),
    ]


def test_rules_that_functions_have_worked_with_and_that_are_not_in_force_need_somebody() -> None:
    store, other = memory(BOTH), program(LISTED.replace("x}", "y}"), "retired: {likes: remove}\n")
    Registry(other, store).admit()
    found = judged(store, program(BOTH))
    assert found["rules"].says == "epoch 1: 2 live, 2 tried"
    assert (found["rule listed"].level, found["rule likes"].level) == (ACT, ACT)
    assert found["rule listed"].says == "functions have worked with another version of it, which is not in force"
    assert found["rule likes"].says == "functions have worked without it, which is not in force"
    assert "projections backfill" in found["rule listed"].todo
    theirs = judged(store, other)
    assert theirs.keys() == {"rules", "rule file"}, "of the file that is deployed it is known already"
    assert theirs["rule file"].says == "not in force (changed: listed; retired: likes)"


# Backfills.


def backfilled(store: MemoryStore, rules: Program, **settings: Any) -> Finding:
    run = Progress(store).run()
    notes = status.noted(store, run) if run is not None else None
    now = settings.pop("now", NOW)
    return status.backfill(run, notes, Registry(rules, store).look(), now)


def backfill_of(world: World) -> Backfill:
    return Backfill(world.program, world.store, now=lambda: NOW - timedelta(hours=3), page=5)


def filled(likes: int = 20) -> World:
    world = World(BOTH, HEAD, new_rules=FILLING)
    for user in range(likes):
        world.like(user, 1)
    return world


def test_without_a_backfill_nothing_is_missed() -> None:
    assert backfilled(memory(), program(BOTH)).level == FINE


def test_a_backfill_that_stopped_says_how_far_it_came_and_how_to_go_on() -> None:
    class Stopped(Exception):
        pass

    world = filled()
    pages = iter(range(3))

    def told(run: Any, done: Any) -> None:
        if next(pages, None) is None:
            raise Stopped

    backfill = backfill_of(world)
    run = backfill.begin(segments=1)
    with pytest.raises(Stopped):
        Runner(backfill, told=told, sleep=lambda seconds: None).work(run)
    finding = backfilled(world.store, world.program)
    assert finding.level == LOOK
    assert finding.says.startswith("begun 3 h ago, phase items: ")
    assert "items read, " in finding.says
    assert "the same command goes on" in finding.todo


def test_a_backfill_that_is_complete_is_fine_and_says_since_when() -> None:
    world = filled()
    backfill = backfill_of(world)
    Runner(backfill, sleep=lambda seconds: None).work(backfill.begin(segments=2))
    assert backfilled(world.store, world.program) == Finding("backfill", FINE, "complete since 3 h ago")


def test_what_a_backfill_left_is_told() -> None:
    world = filled(3)
    world.put("USER#x", "LIKE#1", postId="2")  # bad input
    backfill = backfill_of(world)
    Runner(backfill, sleep=lambda seconds: None).work(backfill.begin(segments=1))
    finding = backfilled(world.store, world.program)
    assert (finding.level, "1 rejected" in finding.says) == (LOOK, True)


def test_a_backfill_of_rules_that_were_replaced_is_over() -> None:
    world = filled()
    backfill_of(world).begin(segments=1)
    other = program(LISTED, "retired: {likes: remove}\n")
    Registry(other, world.store).enforce()
    finding = backfilled(world.store, other)
    assert (finding.level, "given up for other rules" in finding.says) == (FINE, True)


# What waits.


@pytest.mark.parametrize(
    ("seconds", "level", "says"),
    [
        (None, FINE, "no records in the last 15 minutes"),
        (0.4, FINE, "records are 0 s old"),
        (59.0, FINE, "59 s old"),
        (90.0, LOOK, "90 s old"),
        (7200.0, ACT, "2 h old"),
        (500_000.0, ACT, "6 d old"),
    ],
)
def test_lag_is_judged_as_the_alarm_judges_it(seconds: float | None, level: str, says: str) -> None:
    finding = status.lag(seconds)
    assert (finding.level, says in finding.says, bool(finding.todo)) == (level, True, level != FINE)


def test_a_queue_is_empty_or_waits_or_needs_somebody() -> None:
    assert status.queue("q", 0, "record", "of old", "Act.") == Finding("q", FINE, "empty", value=0)
    assert status.queue("q", 1234, "record", "of old", "Act.") == Finding(
        "q", ACT, "1,234 records of old", "Act.", 1234
    )
    assert status.queue("q", 1, "task", "for the worker") == Finding("q", FINE, "1 task for the worker", value=1)
    assert status.queue("q", 1000, "batch", "given up", "Act.", most=True).says == "1,000 or more batches given up"


@pytest.mark.parametrize(
    ("told", "level", "says"),
    [
        (None, FINE, "none so far"),
        (
            {"time": "2026-01-05T11:00:00+00:00", "items": 5000, "drift": 0, "whole": None},
            FINE,
            "5,000 items 60 min ago",
        ),
        ({"time": "2026-01-05T11:00:00+00:00", "items": 5000, "drift": 3}, ACT, "3 not as they should be"),
        ({"time": "2026-01-01T11:00:00+00:00", "items": 5000, "drift": 0}, LOOK, "5,000 items 4 d ago"),
        (
            {"time": "2026-01-05T11:00:00+00:00", "items": 1, "drift": 0, "whole": "2026-01-03T12:00:00+00:00"},
            FINE,
            "the last whole round ended 2 d ago",
        ),
        (
            {"time": "2026-01-05T11:00:00+00:00", "items": 1, "drift": 0, "whole": None, "segment": 3, "segments": 200},
            FINE,
            "; 2% of the present round is done",
        ),
    ],
)
def test_the_last_audit_is_told(told: Any, level: str, says: str) -> None:
    item = None if told is None else {"audit": {"S": json.dumps(told)}}
    finding = status.audit(item, NOW)
    assert (finding.level, says in finding.says) == (level, True), finding
