"""The audit verifies all items in time, and reports drift once it is certain and until it is repaired."""

from __future__ import annotations

import importlib
import json
import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from emulators import ROOT

from projections.engine.guards import Guards, Identity
from projections.engine.registry import document_key
from projections.engine.store import ItemKey, Update
from projections.operations.audit import AUDIT, Audited, AuditHandler
from projections.operations.health import ACT, FINE
from projections.operations.health import audit as finding
from tests.engine.world import World
from tests.operations.verify_scene import HEAD, RULES, TAG, brief, edit, filled, lost, of, repaired, rules_text

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Scheduled:
    """An audit of a world, run after run. Each has time for so many pages, and records its pauses."""

    def __init__(self, world: World, pause: Callable[[], None] = lambda: None, **settings: Any) -> None:
        self.world = world
        self.seen: list[Audited] = []
        self.pauses = 0
        self.time = NOON

        def sleep(seconds: float) -> None:
            self.pauses += 1
            pause()

        chosen = {"segments": 3, "page": 6, "patience": 1.0, "margin": 0.0, **settings}
        self.handler = AuditHandler(
            world.program, world.store, observe=self.seen.append, sleep=sleep, now=lambda: self.time, **chosen
        )

    def run(self, pages: int = 1000) -> Audited:
        left = iter([9.0] * pages)
        self.handler.handle({}, lambda: next(left, 0.0))
        self.time += timedelta(minutes=5)
        return self.seen[-1]

    @property
    def note(self) -> dict[str, Any]:
        item = self.world.store.get(AUDIT)
        assert item is not None
        told: dict[str, Any] = json.loads(item["audit"]["S"])
        return told


def test_the_whole_table_is_examined_in_time() -> None:
    world = filled()
    audit = Scheduled(world)
    runs = 0
    while not audit.seen or audit.note["whole"] is None:
        audit.run(pages=2)
        runs += 1
    assert runs > 5
    assert sum(one.items for one in audit.seen) == len(world.store.items("main"))
    assert {one.counts["drift"] for one in audit.seen} == {0}
    audit.run(pages=2)  # and begins again
    assert 0 < audit.seen[-1].items <= 12
    assert audit.note["whole"] is not None


def test_one_run_looks_at_everything_at_most_once() -> None:
    world = filled()
    assert Scheduled(world).run().items == len(world.store.items("main"))


def test_drift_is_reported_when_two_runs_have_seen_it_and_until_it_is_right() -> None:
    world = filled()
    edit(world, "POST#1", "METADATA", likeCount=99)
    audit = Scheduled(world)
    first = audit.run()
    assert (first.drifts, first.counts["suspects"]) == ((), 1)
    expected = {of("value", "likes", "POST#1|METADATA", "likeCount", 99, 3)}
    for _ in range(3):
        again = audit.run()
        assert brief(again.drifts) == expected
        assert again.counts["drift"] == 1
    assert again.counts["driftPerMillion"] == pytest.approx(1e6 / len(world.store.items("main")))
    assert finding(world.store.get(AUDIT), audit.time).level == ACT
    assert repaired(world) == []
    world.settle()
    assert audit.run().drifts == ()
    assert finding(world.store.get(AUDIT), audit.time).level == FINE


def test_the_function_reports_it_by_metrics_and_keys(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = str(ROOT / "projections/rules/social.yaml")
    for name, value in {"TABLE_NAME": "app", "LEDGER_TABLE_NAME": "ledger", "RULES_FILE": rules}.items():
        monkeypatch.setenv(name, value)
    function, metrics = importlib.import_module("handlers.audit"), importlib.import_module("handlers.common").metrics
    for handler in logging.getLogger("projections").handlers:  # made by an earlier test of this process, perhaps
        monkeypatch.setattr(handler, "stream", sys.stdout)
    world = filled()
    edit(world, "POST#1", "METADATA", likeCount=99)
    audit = Scheduled(world)
    audit.run()
    metrics.clear_metrics()
    function.observe(audit.run())
    said = metrics.serialize_metric_set()
    metrics.clear_metrics()
    items = len(world.store.items("main"))
    assert {name: said[name] for name in ("audited", "drift", "driftPerMillion", "suspects", "failures")} == {
        "audited": [items],
        "drift": [1.0],
        "driftPerMillion": [pytest.approx(1e6 / items)],
        "suspects": [1.0],
        "failures": [0.0],
    }
    (line,) = [json.loads(line) for line in capsys.readouterr().out.splitlines() if "drift" in line]
    assert (line["message"], line["rule"], line["key"]) == ("drift: value", "likes", "main|POST#1|METADATA")
    assert "99" not in line.values()


@pytest.mark.parametrize("ledger", ["", "zzzz"])
def test_guards_and_marks_that_a_user_wrote_are_no_drift(ledger: str) -> None:
    """The audit verifies their signatures. Signed with the ledger's secret, these would be a copy without a source."""
    world = filled()
    registry = world.registry().read_or_create()
    seen = ItemKey("main", "SEEN#9#9", "X")
    forging = Guards(world.program, Identity(ledger or registry.ledger, (b"guess",)))
    genuine = Guards(world.program, registry.identity)
    for guards, drifts in ((forging, 0), (genuine, 1)):
        fields = {"~": guards.mark_of(seen), "~seen": guards.stamp("seen", seen, "~", by="main|USER#9|LIKE#9")}
        world.store.seed("main", {**world.program.tables["main"].wire(seen), "stars": {"N": "9"}, **fields})
        audit = Scheduled(world)
        audit.run()
        assert len(audit.run().drifts) == drifts


def test_missing_items_are_found_from_the_ledger() -> None:
    world = filled()
    lost(world, lambda: world.remove("USER#3", "LIKE#1"))
    lost(world, lambda: world.remove("TAG#t1", "STATS"))
    audit = Scheduled(world)
    audit.run()
    found = {(drift.kind, drift.rule) for drift in audit.run().drifts}
    assert found == {
        ("entry extra", "likes"),
        ("entry extra", "sharded"),
        ("entry extra", "newest"),
        ("copy extra", "seen"),
        ("target missing", "tags"),
    }


def test_an_audit_writes_nothing_but_its_place() -> None:
    world = filled()
    edit(world, "POST#1", "METADATA", likeCount=99)
    before = world.store.items("main"), [item for item in world.store.items("ledger") if item["pk"]["S"] != "A"]
    audit = Scheduled(world)
    audit.run()
    audit.run()
    after = world.store.items("main"), [item for item in world.store.items("ledger") if item["pk"]["S"] != "A"]
    assert after == before


def test_an_audit_leaves_out_a_version_that_it_cannot_read() -> None:
    world = filled()
    newer = {"document": {"S": '{"tables": {}, "entities": {}, "rule": {"kind": "newer"}}'}}
    world.store.write(Update(document_key("likes.1"), set=newer))
    edit(world, "POST#1", "METADATA", likeCount=99, starSum=99)
    before, older = (
        world.registry().read(),
        world.under(rules_text(RULES.keys() - {"likes"}), HEAD + TAG + "projections:\n"),
    )
    audit = Scheduled(older)
    audit.run()
    assert {(drift.rule, drift.attribute) for drift in audit.run().drifts} == {("sharded", "starSum")}
    assert world.registry().read() == before


@pytest.mark.parametrize(
    "event", [None, [], {"items": 0}, {"Records": [{"body": "x"}]}, {"place": {"S": "x"}, "drift": 9}]
)
def test_an_event_has_no_effect(event: Any) -> None:
    world = filled()
    edit(world, "POST#1", "METADATA", likeCount=99)
    before = world.store.items("main")
    audit = AuditHandler(world.program, world.store, sleep=lambda seconds: None)
    assert [audit.handle(given, lambda: 60.0)["drift"] for given in (event, event)] == [0, 1]
    assert world.store.items("main") == before


def test_two_audits_at_once_do_not_undo_each_other() -> None:
    world = filled()

    def other() -> None:
        world.store.write(Update(AUDIT, set={"place": {"S": "elsewhere"}}))

    edit(world, "POST#1", "METADATA", likeCount=99)
    audit = Scheduled(world, pause=other)
    assert audit.run().skipped == "another audit ran at the same time"
    assert world.store.get(AUDIT) is not None
    item = world.store.get(AUDIT) or {}
    assert item["place"] == {"S": "elsewhere"}
