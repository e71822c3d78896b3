"""`projections status` on real queues, buckets and metrics: one screen, and 1 where something needs attention."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from place import MENDED, Place

from projections.stores.aws import client


def levels(said: dict[str, Any]) -> dict[str, str]:
    return {one["subject"]: one["level"] for one in said["findings"]}


def finding(said: dict[str, Any], subject: str) -> dict[str, Any]:
    (found,) = [one for one in said["findings"] if one["subject"] == subject]
    return dict(found)


def test_a_deployment_nobody_used_yet_wants_a_look(place: Place) -> None:
    code, said = place.run("status")
    assert (code, said["attention"]) == (1, True)
    assert "knows of no rules" in finding(said, "rules")["says"]
    assert levels(said) == {
        "rules": "look", "backfill": "fine", "audit": "fine", "quarantine": "fine",
        "lag": "unknown", "tasks": "unknown", "dead letters": "unknown", "discarded": "unknown",
    }  # fmt: skip


def test_what_works_is_fine_and_what_waits_is_told_with_what_to_do(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    everything = ["--queue", place.tasks, "--dead-letters", place.dead, "--bucket", place.bucket]
    code, said = place.run("status", *everything)
    assert (code, {level for subject, level in levels(said).items() if subject != "lag"}) == (0, {"fine"})
    place.deliver(place.put("USER#b", "LIKE#1", weight="heavy"))
    place.sqs.send_message(QueueUrl=place.tasks, MessageBody="{}")
    place.sqs.send_message(QueueUrl=place.dead, MessageBody="{}")
    place.discard("1", place.put("USER#b", "LIKE#1", weight=1))
    code, said = place.run("status", *everything)
    assert code == 1
    assert [finding(said, name)["level"] for name in ("quarantine", "tasks", "dead letters", "discarded")] == [
        "act", "fine", "act", "act",
    ]  # fmt: skip
    told = finding(said, "quarantine")
    assert (told["says"], told["value"]) == ("1 record that a rule could not use; likes: main|USER#b|LIKE#1", 1)
    assert (said["epoch"], said["rules"]) == (1, {"postById": "live", "likes": "live", "author": "live"})
    assert f"`projections redrive --quarantine {place.quarantine}`" in finding(said, "quarantine")["todo"]
    assert f"`projections redrive --dead-letters {place.dead}`" in finding(said, "dead letters")["todo"]
    assert f"`projections redrive --bucket {place.bucket}`" in finding(said, "discarded")["todo"]
    code, out, err = place.say("status", *everything)
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert len(lines) < 25, "one screen"
    assert "ok   rules" in lines[0]
    assert any(line.startswith("act  discarded") and "1 batch given up" in line for line in lines)
    assert place.run("redrive", "--bucket", place.bucket)[0] == 0
    assert finding(place.run("status", *everything)[1], "discarded")["level"] == "fine"


def test_other_rules_than_those_in_force_are_told(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    place.deploy(MENDED)
    code, said = place.run("status")
    assert (code, finding(said, "rule file")["says"]) == (1, "not in force (changed: likes)")
    place.enforce()
    code, said = place.run("status")
    assert (code, finding(said, "rules")["says"]) == (0, "epoch 4: 3 live")


def test_a_table_without_a_stream_is_told(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    place.dynamodb.update_table(TableName=place.table, StreamSpecification={"StreamEnabled": False})
    code, said = place.run("status")
    assert (code, finding(said, "table")["level"]) == (1, "look")
    assert "has no stream" in finding(said, "table")["says"]


def test_a_queue_that_does_not_answer_is_told_and_the_rest_too(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    code, said = place.run("status", "--quarantine", place.quarantine + "-not", "--bucket", "not-" + place.bucket)
    assert code == 1
    assert [finding(said, name)["level"] for name in ("quarantine", "discarded", "rules")] == ["look", "look", "fine"]
    assert finding(said, "quarantine")["says"].startswith("not known: ")


@pytest.mark.parametrize("place", ["MiniStack"], indirect=True)
def test_a_stack_names_everything_and_its_function_tells_the_lag(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    name, outputs = place.stack()
    code, said = place.run("status", "--stack", name)
    assert (code, set(levels(said).values())) == (0, {"fine"})
    assert finding(said, "lag")["says"] == "no records in the last 15 minutes"
    for minutes, age in ((5, 900_000.0), (2, 90_000.0)):
        client("cloudwatch").put_metric_data(
            Namespace="AWS/Lambda",
            MetricData=[
                {
                    "MetricName": "IteratorAge",
                    "Dimensions": [{"Name": "FunctionName", "Value": outputs["StreamFunctionName"]}],
                    "Timestamp": datetime.now(UTC) - timedelta(minutes=minutes),
                    "Value": age,
                }
            ],
        )
    code, said = place.run("status", "--stack", name)
    assert (code, finding(said, "lag")["says"]) == (1, "records are 90 s old when they are projected")


def test_where_cloudwatch_is_not_reached_the_lag_is_unknown_and_that_is_all(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    monkeypatch.setenv("AWS_ENDPOINT_URL_CLOUDWATCH", "http://127.0.0.1:9")
    code, said = place.run("status", "--function", "stream")
    assert (code, finding(said, "lag")["level"]) == (0, "unknown")
    assert finding(said, "lag")["says"].startswith("not known: CloudWatch: ")
