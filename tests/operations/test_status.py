"""Status judges rules, backfills, the audit, queues and the stream, and gives advice."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from projections.engine.registry import Registry, document_key
from projections.engine.rivals import Rival
from projections.language.loader import loads
from projections.language.program import LEDGER_SCHEMA, Program
from projections.operations import health
from projections.operations.backfill.backfill_runs import Backfill
from projections.operations.backfill.progress import Progress
from projections.operations.backfill.runner import Runner
from projections.operations.health import ACT, FINE, LOOK, UNKNOWN, Finding
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
    return Program.from_document(loads(HEAD + rules.replace("MODE", "") + tail).document())


def registry_of(store: MemoryStore, rules: Program, *, filled: bool = True) -> Registry:
    return Registry(rules, store, filled=filled, now=lambda: NOW.timestamp() - 3600)


def memory(rules: str = BOTH, *, filled: bool = True) -> MemoryStore:
    store = MemoryStore({**program(rules).tables, "ledger": LEDGER_SCHEMA})
    registry_of(store, program(rules), filled=filled).read_or_create()
    return store


def judged(store: MemoryStore, rules: Program, now: datetime = NOW) -> dict[str, Finding]:
    return {one.subject: one for one in health.rules(rules, registry_of(store, rules).read(), now, stack="shop")}


# Rules.

EPOCH = int(NOW.timestamp()) - 3600
APPLY = "`projections apply --stack shop RULES`"


def test_each_state_of_a_version_has_its_message() -> None:
    held = LIKES.replace("likes", "tried").replace("likeCount", "tries").replace("MODE", "hold: true, owner: feed, ")
    rules = program(BOTH + held)
    store = memory(BOTH + held, filled=False)
    assert judged(store, rules) == {
        "rules": Finding("rules", FINE, f"epoch {EPOCH}: 1 active, 2 filling"),
        "rule listed.1": Finding(
            "rule listed.1",
            LOOK,
            "active: its promotion is not complete: some items may lack its values, or show another version, since 60 min",
            f"Run {APPLY}: it goes on; with --allow-delete if it reports withheld deletions.",
        ),
        "rule likes.1": Finding(
            "rule likes.1",
            LOOK,
            "filling: it publishes nothing until all items have been read, since 60 min",
            f"Run {APPLY}: it fills and publishes it.",
        ),
        "rule tried.1": Finding(
            "rule tried.1",
            LOOK,
            "filling: it publishes nothing until all items have been read, since 60 min (owner: feed)",
            f"Run {APPLY}: it fills and publishes it.",
        ),
    }
    registry = registry_of(store, rules)
    registry.fill(["likes.1", "tried.1"])
    found = judged(store, rules)
    assert (found["rule likes.1"].level, found["rule likes.1"].todo) == (
        LOOK,
        "Run `projections promote --stack shop likes`.",
    )
    assert found["rule tried.1"] == Finding(
        "rule tried.1", FINE, "ready: complete, and held: it publishes nothing, since 60 min (owner: feed)"
    )
    snapshot = registry.promote(["likes.1"])
    assert judged(store, rules)["rule likes.1"].says == (
        "active: its promotion is not complete: some items may lack its values, or show another version, since 60 min"
    )
    registry.finish(snapshot.versions.values())
    assert judged(store, rules).keys() == {"rules", "rule tried.1"}


def test_versions_that_were_replaced_are_reported_with_what_becomes_of_them() -> None:
    changed = program(LIKES.replace("count}", "count, most: max(number(stars))}") + LISTED.replace("x}", "y}"))
    store = memory()
    registry = registry_of(store, changed)
    registry.register(changed)
    registry.fill(["likes.2"])
    registry.promote(["likes.2"])
    found = judged(store, changed)
    assert found["rules"].says == f"epoch {EPOCH + 3}: 2 active, 1 leaving, 1 standby"
    standby = (
        "standby: replaced, and maintained, since {}: `projections rollback --stack shop likes` publishes it again"
    )
    assert found["rule likes.1"] == Finding("rule likes.1", FINE, standby.format("60 min"))
    assert found["rule listed.1"].says == "leaving: values that it has written are not removed yet, since 60 min"
    later = judged(store, changed, NOW + timedelta(days=8))
    assert later["rule likes.1"].says == standby.format("8 d") + ". The end of the next backfill removes it"


def test_a_version_that_a_function_cannot_read_needs_action() -> None:
    store = memory()
    item = dict(store.get(document_key("likes.1")) or {})
    store.put("ledger", {**item, "document": {"S": '{"rule": {"from": {"Like": {}}, "newer": {}}}'}})
    registry_of(store, program(LISTED)).current()
    finding = judged(store, program(BOTH))["rule likes.1"]
    assert finding.level == ACT
    assert finding.says.startswith("stale: a function could not read it, because its package is older, since 60 min")
    assert finding.todo == f"Deploy the current package to all functions, then run {APPLY}."


def test_differences_of_a_rule_file_that_is_not_applied_are_reported() -> None:
    new = LISTED.replace("listed", "more").replace("GSI1PK", "GSI2PK").replace("GSI1SK", "GSI2SK")
    head = HEAD.replace("GSI1: [GSI1PK, GSI1SK]", "GSI1: [GSI1PK, GSI1SK], GSI2: [GSI2PK, GSI2SK]")
    held = LISTED.replace("listed: {", "held: {hold: true, ").replace("GSI1", "GSI2")
    document = loads(head + LISTED.replace("x}", "y}") + new).document()
    found = judged(memory(), Program.from_document(document))
    assert found["rule file"].says == (
        "it is not what the functions work with (new: more; changed: listed; missing: likes)"
    )
    assert (found["rule file"].level, APPLY in found["rule file"].todo) == (LOOK, True)
    same = Program.from_document(loads(head + BOTH + held).document())
    assert "rule file" not in judged(memory(), same), "a held index rule is not in the registry"


# Backfills.


def backfilled(store: MemoryStore, rules: Program, **settings: Any) -> Finding:
    run = Progress(store).run()
    notes = health.read_notes(store, run) if run is not None else None
    now = settings.pop("now", NOW)
    return health.backfill(run, notes, now)


def backfill_of(world: World) -> Backfill:
    return Backfill(world.program, world.store, now=lambda: NOW - timedelta(hours=3), page=5)


def filled(likes: int = 20) -> World:
    world = World(BOTH, HEAD, filled=False)
    for user in range(likes):
        world.like(user, 1)
    return world


def test_progress_of_a_stopped_backfill_and_how_to_continue_are_reported() -> None:
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
        Runner(backfill, report=told, sleep=lambda seconds: None).work(run)
    finding = backfilled(world.store, world.program)
    assert finding.level == LOOK
    assert finding.says.startswith("of likes.1, started 3 h ago, phase items: ")
    assert "items read, " in finding.says
    assert "run the same command again" in finding.todo


def test_a_complete_backfill_is_fine_and_has_its_age() -> None:
    world = filled()
    backfill = backfill_of(world)
    Runner(backfill, sleep=lambda seconds: None).work(backfill.begin(segments=2))
    assert backfilled(world.store, world.program) == Finding("backfill", FINE, "of likes.1, completed 3 h ago")


def test_a_backfill_records_rejected_items_in_the_writes_of_its_progress_and_within_bounds() -> None:
    world = filled(3)
    for number in range(60):
        world.put(f"USER#{number}{'x' * 100}", "LIKE#1", postId="2")  # bad input
    backfill = backfill_of(world)
    pages: list[Any] = []
    Runner(backfill, report=lambda run, done: pages.append(done), sleep=lambda seconds: None).work(
        backfill.begin(segments=1)
    )
    finding = backfilled(world.store, world.program)
    assert 5 <= len(finding.examples) < 20
    assert f"60 rejected, of which the first {len(finding.examples)} are listed here" in finding.says
    kept = [item for item in world.store.items("ledger") if item["sk"]["S"].startswith("backfill|")]
    assert len(kept) == len({(done.segment.phase, done.segment.table) for done in pages})
    assert all(len(item["rejected"]["S"]) <= 2000 for item in kept if "rejected" in item)


def test_rejected_items_of_a_backfill_are_reported() -> None:
    world = filled(3)
    world.put("USER#x", "LIKE#1", postId="2")  # bad input
    backfill = backfill_of(world)
    Runner(backfill, sleep=lambda seconds: None).work(backfill.begin(segments=1))
    finding = backfilled(world.store, world.program)
    assert (finding.level, "1 rejected" in finding.says) == (LOOK, True)
    assert finding.todo == (
        "Correct these items or the rules, then run `projections backfill` again. "
        "This warning remains until a backfill finds none."
    )
    (example,) = finding.examples
    assert (example.key, example.rule) == ("main|USER#x|LIKE#1", "likes")
    assert "postId" in example.reason
    world.put("USER#x", "LIKE#1", postId="1")  # corrected
    world.settle()
    again = backfill_of(world)
    Runner(again, sleep=lambda seconds: None).work(again.begin(segments=1))
    assert backfilled(world.store, world.program).level == FINE


# What waits.


@pytest.mark.parametrize(
    ("seconds", "level", "says"),
    [
        (None, FINE, "CloudWatch reports no records in the last 15 minutes"),
        (0.4, FINE, "records are 0 s old"),
        (59.0, FINE, "59 s old"),
        (90.0, LOOK, "90 s old"),
        (7200.0, ACT, "2 h old"),
        (500_000.0, ACT, "6 d old"),
    ],
)
def test_lag_has_the_threshold_of_the_alarm(seconds: float | None, level: str, says: str) -> None:
    finding = health.lag(seconds)
    assert (finding.level, says in finding.says, bool(finding.todo)) == (level, True, level != FINE)


def audited(minutes: float, **more: Any) -> dict[str, Any]:
    at = (NOW - timedelta(minutes=minutes)).isoformat(timespec="seconds")
    return {"audit": {"S": json.dumps({"time": at, "items": 10, "drift": 0, **more})}}


def test_overwritten_values_need_attention_for_an_hour_and_records_of_no_entity_if_there_are_no_others() -> None:
    writes = [health.Overwrite("likes", "values changed", "likeCount", 3, "main|POST#1|METADATA")]
    for minutes, level in ((50, LOOK), (90, FINE)):
        corrections = [(NOW - timedelta(hours=9), 2.0), (NOW - timedelta(minutes=minutes), 3.0)]
        total, rule = health.external_writes(corrections, writes, NOW)
        assert (total.level, total.value, rule.subject, rule.level) == (FINE, 5, "rule likes", level)
    assert [health.no_entity(8, ignored).level for ignored in (0, 7, 8)] == [FINE, FINE, LOOK]


@pytest.mark.parametrize(
    ("minutes", "record", "level", "says"),
    [
        (60, {"items": 5000}, FINE, "5,000 items 60 min ago"),
        (60, {"drift": 3}, ACT, "3 with drift"),
        (4 * 24 * 60, {}, LOOK, "10 items 4 d ago"),
        (60, {"whole": "2026-01-03T12:00:00+00:00"}, FINE, "the last complete round ended 2 d ago"),
        (60, {"whole": None, "segment": 3, "segments": 200}, FINE, "; 2% of the current round is done"),
    ],
)
def test_the_last_audit_is_reported(minutes: float, record: dict[str, Any], level: str, says: str) -> None:
    finding = health.audit(audited(minutes, **record), NOW)
    assert (finding.level, says in finding.says) == (level, True), finding


def test_an_audit_that_has_never_run_is_not_known_without_a_stack() -> None:
    assert health.audit(None, NOW).level == UNKNOWN


@pytest.mark.parametrize(
    ("schedule", "fine", "late"),
    [
        ("rate(5 minutes)", 24, 26),
        ("rate(1 hour)", 130, 140),
        ("rate(7 days)", 13 * 24 * 60, 15 * 24 * 60),
        ("cron(0 3 * * ? *)", 47 * 60, 49 * 60),
        ("cron(0 3 ? * SUN *)", 13 * 24 * 60, 15 * 24 * 60),
        ("cron(0 3 1 * ? *)", 61 * 24 * 60, 63 * 24 * 60),
        (None, 47 * 60, 49 * 60),
    ],
)
def test_an_audit_is_late_after_two_intervals_of_its_schedule(schedule: str | None, fine: float, late: float) -> None:
    for minutes, level in ((fine, FINE), (late, LOOK)):
        assert health.audit(audited(minutes), NOW, schedule=schedule, since=NOW).level == level
        if schedule is not None:
            never = health.audit(None, NOW, schedule=schedule, since=NOW - timedelta(minutes=minutes))
            assert (never.level, f"has not run yet ({schedule})" in never.says) == (level, True)


# The stream.

LATEST = "arn:aws:dynamodb:us-east-1:111122223333:table/app/stream/2026-02-01T00:00:00.000"
FORMER = LATEST.replace("02-01", "01-01")
BOTH_IMAGES = {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}


def streamed(
    state: str = "Enabled",
    result: str = "OK",
    arn: str = LATEST,
    counts: dict[str, float] | None = None,
    view: str = "NEW_AND_OLD_IMAGES",
) -> Finding:
    table = {
        "TableName": "app",
        "LatestStreamArn": LATEST,
        "StreamSpecification": BOTH_IMAGES | {"StreamViewType": view},
    }
    mapping = {
        "UUID": "u-1",
        "EventSourceArn": arn,
        "State": state,
        "StateTransitionReason": "User action",
        "LastProcessingResult": result,
    }
    return health.stream("stream", table, [mapping], counts, "shop")


@pytest.mark.parametrize(
    ("facts", "level", "says", "todo"),
    [
        ({"state": "Disabled"}, ACT, "is Disabled (User action), so no rule processes changes", "--uuid u-1 --en"),
        ({"state": "Disabling"}, ACT, "the event source mapping is Disabling", "--uuid u-1 --enabled"),
        ({"state": "Deleting"}, ACT, "the event source mapping is Deleting", "Deploy the stack"),
        ({"state": "Creating", "result": ""}, LOOK, "Creating, last result: none (User action)", "Wait"),
        ({"state": "Enabling"}, LOOK, "Enabling", "Wait"),
        ({"state": "Updating"}, LOOK, "Updating", "Wait"),
        ({"result": "PROBLEM: Function failed"}, ACT, "Enabled, last result: PROBLEM: Function failed", "log"),
        ({"state": "Updating", "result": "PROBLEM: x"}, ACT, "Updating, last result: PROBLEM: x", "log"),
        ({"arn": FORMER}, ACT, f"reads {FORMER}, but the stream of table app is {LATEST}", f"Arn={LATEST}"),
        ({"arn": LATEST.replace("app/", "apples/")}, ACT, "no event source mapping of the function reads", "Deploy"),
        ({"view": "NEW_IMAGE"}, ACT, "has NEW_IMAGE, not NEW_AND_OLD_IMAGES", "StreamEnabled=false"),
        ({"counts": {"invoked": 7, "failed": 7}}, ACT, "failed with all 7 records", "log"),
        ({"counts": {"invoked": 7, "failed": 9}}, ACT, "failed with all 7 records", "log"),
        ({"counts": {"writes": 3, "polled": 0}}, LOOK, "had writes in the last 15 minutes", "disable and enable"),
        ({"counts": {"writes": 3}}, LOOK, "had writes in the last 15 minutes", "disable and enable"),
        ({"counts": {"polled": 0}}, FINE, "Enabled, last result: OK", ""),
    ],
)
def test_why_a_stream_does_not_reach_the_function_is_reported(
    facts: dict[str, Any], level: str, says: str, todo: str
) -> None:
    finding = streamed(**facts)
    assert (finding.level, says in finding.says, todo in finding.todo) == (level, True, True), finding


def test_an_unknown_function_is_not_fine_and_one_current_mapping_is_enough() -> None:
    table = {"TableName": "app", "LatestStreamArn": LATEST, "StreamSpecification": BOTH_IMAGES}
    assert health.stream("stream", table, None, None).level == UNKNOWN
    assert health.stream("stream", table, [], None).level == ACT
    fed = {"UUID": "u-1", "State": "Enabled", "LastProcessingResult": "OK"}
    former, right = (fed | {"EventSourceArn": arn} for arn in (FORMER, LATEST))
    assert health.stream("stream", table, [former, right], None).level == FINE


def test_another_stack_and_another_ledger_are_actions_with_the_command_of_this_stack() -> None:
    rival = Rival("aaaa", NOW.timestamp() - 90, NOW.timestamp() - 30, 0)
    (found,) = health.others("bbbb", [rival], NOW, stack="shop")
    stack = health.maintainer("twin-stream", "twin", "twin-ledger", stack="shop")
    assert found.says == (
        "ledger aaaa replaces guards of this ledger (bbbb), last 30 s ago; its guards stay until none is seen for 60 min"
    )
    assert stack.says == (
        "stack twin maintains this table too: its function twin-stream reads the stream, with ledger table twin-ledger"
    )
    for one in (found, stack):
        assert one.level == ACT
        assert "If this stack stays, then run `projections backfill --stack shop --restart`." in one.todo
    (gone,) = health.others("bbbb", [rival], NOW + timedelta(hours=2), stack="shop")
    assert gone.level == LOOK
