"""Freshness by rule: the age of changes at the end of a batch, as metric and in `status`; right within a second."""

from __future__ import annotations

import copy
import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from emulators import ROOT

import projections
from projections.aws.metrics import freshness
from projections.deploy.cloudformation import template_of
from projections.deploy.needs import Deployment
from projections.deploy.sam_template import sam_template
from projections.operations import health
from tests.engine.world import World

RULES = """
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}
  stars: {from: Like, hold: true, aggregate: {into: Post, set: {stars: sum(stars)}}}
  feed: {from: Post, index: {GSI1PK: FEED, GSI1SK: "{postId}"}}
"""


class Clock:
    """Seconds since 1970. Each call of the store takes as long as the test wants."""

    now = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("delay", [0.0, 3.4, 61.0])
def test_the_ages_of_the_oldest_and_newest_change_are_right_within_a_second(delay: float) -> None:
    clock = Clock()
    world = World(RULES, clock=clock)
    records = []
    for at, write in [
        (clock.now - 40, lambda: world.put("POST#1", "METADATA")),
        (clock.now - 30, lambda: world.like(1, 1)),
        (clock.now - 20, lambda: world.like(2, 1)),
        (clock.now - 90, lambda: world.put("OTHER", "ITEM")),
    ]:
        write()
        record = copy.deepcopy(world.records()[-1])
        record["dynamodb"]["ApproximateCreationDateTime"] = int(at + 0.9)  # as DynamoDB rounds it
        records.append(record)
    usual = world.store.transact

    def slow(writes: Any) -> None:
        usual(writes)
        clock.now += delay

    world.store.transact = slow  # type: ignore[method-assign]
    outcome = world.deliver(records)
    assert outcome.failed is None
    assert outcome.freshness.keys() == {"likes", "feed"}
    for rule, ages in {"likes": (30 + delay, 20 + delay), "feed": (40 + delay, 40 + delay)}.items():
        assert outcome.freshness[rule] == pytest.approx(ages, abs=1)


def test_a_clock_that_is_behind_gives_no_negative_age_and_a_record_without_time_none() -> None:
    world = World(RULES, clock=lambda: 1.0)
    world.like(1, 1)
    (record,) = copy.deepcopy(world.records())
    assert world.deliver([record]).freshness == {"likes": (0.0, 0.0)}
    for time in (10**400, float("nan"), "2026-01-01", None):
        record["dynamodb"]["ApproximateCreationDateTime"] = time
        outcome = world.deliver([record])
        assert (outcome.freshness, outcome.failed, outcome.rejected) == ({}, None, ())
    del record["dynamodb"]["ApproximateCreationDateTime"]
    assert world.deliver([record]).freshness == {}


def test_a_filling_rule_has_an_age_only_if_it_publishes() -> None:
    """While a rule fills, its groups are not published, and its index attributes are."""
    world = World(RULES, filled=False, clock=lambda: 1_700_000_000.0)
    world.put("POST#1", "METADATA")
    world.like(1, 1)
    assert world.deliver().freshness.keys() == {"feed"}
    world.registry().fill(["likes.1"])
    world.registry().promote(["likes.1"])
    world.like(2, 1)
    assert "likes" in world.deliver().freshness


class CloudWatch:
    """Answers with p50 and p99 of `likes`, in two periods."""

    def get_metric_data(self, **request: Any) -> Any:
        queries = request["MetricDataQueries"]
        self.asked = [one["MetricStat"]["Metric"] for one in queries]
        values = {"p50_0": [1.0, 2.0], "p99_0": [30.5], "p50_1": [], "p99_1": []}
        return {"MetricDataResults": [{"Id": one["Id"], "Values": values[one["Id"]]} for one in queries]}


def test_rules_that_publish_only_after_their_backfill_are_counted() -> None:
    """Not those that publish already."""
    for filled, filling in ((False, 2), (True, 0)):
        world = World(RULES, filled=filled)
        world.like(1, 1)
        world.like(2, 1)
        assert world.deliver().counts["filling"] == filling
        world.put("POST#1", "METADATA")
        assert world.deliver().counts["filling"] == 0


def test_status_reports_p50_and_p99_by_rule() -> None:
    cloudwatch = CloudWatch()
    ages = freshness(cloudwatch, "stack", ["likes", "feed"], datetime.now(UTC))
    assert ages == {"likes": (2.0, 30.5)}
    assert cloudwatch.asked[0]["MetricName"] == "freshness.likes"
    assert cloudwatch.asked[0]["Dimensions"] == [{"Name": "service", "Value": "stack"}]
    found = health.freshness({**ages, "feed": (0.2, 40.0)})
    assert (found.subject, found.value) == ("freshness", 40.0)
    assert found.says.endswith("p50 / p99: feed 0.2 s / 40.0 s, likes 2.0 s / 30.5 s")


WITHIN = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
projections:
  like-count: {from: Like, within: 2m, aggregate: {into: Post, set: {likeCount: count}}}
  likeCount: {from: Like, within: 30s, aggregate: {into: Post, set: {likers: count}}}
  stars: {from: Like, within: 9s, hold: true, aggregate: {into: Post, set: {stars: sum(stars)}}}
"""


def test_within_makes_an_alarm_for_each_rule_that_publishes() -> None:
    program = projections.loads(WITHIN).program
    text = sam_template(Deployment("rules.yaml", program))
    resources = template_of(text).data["Resources"]
    alarms = {name: one["Properties"] for name, one in resources.items() if name.startswith("Freshness")}
    assert {name: (one["MetricName"], one["Threshold"]) for name, one in alarms.items()} == {
        "FreshnessLikeCountAlarm": ("freshness.like-count", 120),
        "FreshnessLikeCount2Alarm": ("freshness.likeCount", 30),
    }
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_status_warns_where_p99_exceeds_within() -> None:
    ages = {"likes": (2.0, 30.5), "feed": (0.2, 40.0)}
    found = health.freshness(ages, {"likes": 30, "feed": 40})
    assert (found.level, found.todo.partition(".")[0]) == (health.LOOK, "p99 exceeds `within` of likes (30 s)")
    assert health.freshness(ages, {"likes": 31}).level == health.FINE


TOLD = """
from handlers.common import metrics, tell, writes
writes.add("likes", 3)
tell({"records": 2}, [], {}, (), {"likes": (3.5, 1.0)})
metrics.flush_metrics()
"""


def test_the_function_writes_both_ages_as_one_metric_of_the_rule_in_seconds() -> None:
    done = subprocess.run([sys.executable, "-c", TOLD], cwd=ROOT, text=True, capture_output=True, check=True)
    (line,) = [json.loads(text) for text in done.stdout.splitlines() if "_aws" in text]
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Dimensions"] == [["service"]]
    assert {"Name": "freshness.likes", "Unit": "Seconds"} in directive["Metrics"]
    assert (line["freshness.likes"], line["records"]) == ([3.5, 1.0], [2.0])
    assert line["writes"] == {"likes": 3}, "a field for the dashboard, which no metric has to be paid for"
