"""`projections redrive --list` and `--dismiss`: what nobody will redrive is recorded, deleted once, and nothing else."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from place import Place

from projections.aws.queues import Queue
from projections.errors import Transient


def fill(place: Place) -> None:
    """Three rejected records of one rule, one of them older, and a message of somebody else."""
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    place.deliver(*[place.put(f"USER#{user}", "LIKE#1", weight="heavy") for user in "bcd"])
    body: dict[str, str] = {}
    while body.get("key") != "main|USER#b|LIKE#1":
        (first,) = place.sqs.receive_message(QueueUrl=place.quarantine, VisibilityTimeout=0)["Messages"]
        body = json.loads(first["Body"])
    place.sqs.delete_message(QueueUrl=place.quarantine, ReceiptHandle=first["ReceiptHandle"])
    old = {**body, "time": (datetime.now(UTC) - timedelta(days=3)).isoformat()}
    for text in (json.dumps(old), "hello"):
        place.sqs.send_message(QueueUrl=place.quarantine, MessageBody=text)


def test_without_a_reason_nothing_is_written_and_all_can_be_received_at_once(place: Place) -> None:
    fill(place)
    code, out, err = place.say("redrive", "--dismiss", "likes")
    assert code == 1, err
    assert "quarantine: 3 messages would be dismissed, 1 not selected" in out
    assert "Add --because TEXT" in out
    code, said = place.run("redrive", "--list")
    assert (code, len(said["messages"]), said["dismissed"]) == (1, 4, [])
    code, said = place.run("redrive", "--dismiss", "likes", "--because", "x", "--dry-run")
    assert (code, said["dryRun"], len(said["dismissed"]), said["others"]) == (1, True, 3, 1)
    assert place.depth(place.quarantine) == 4


@pytest.mark.parametrize(
    ("which", "number"),
    [("likes", 3), ("PK=USER#c,SK=LIKE#1", 1), ("main|USER#d|LIKE#1", 1), ("2d", 1), ("0s", 3), ("postById", 0)],
)
def test_only_selected_messages_are_recorded_and_deleted(place: Place, which: str, number: int) -> None:
    fill(place)
    code, said = place.run("redrive", "--dismiss", which, "--because", "test data")
    assert (code, len(said["dismissed"]), said["others"]) == (1, number, 4 - number)
    code, listed = place.run("redrive", "--list")
    assert len(listed["messages"]) == 4 - number
    assert {one["id"] for one in listed["dismissed"]} == {one["id"] for one in said["dismissed"]}
    assert {(one["because"], bool(one["by"]), one["rule"]) for one in listed["dismissed"]} <= {
        ("test data", True, "likes")
    }
    again = place.run("redrive", "--dismiss", which, "--because", "again")[1]
    assert again["dismissed"] == []
    status = place.run("status")[1]["findings"]
    (says,) = [one["says"] for one in status if one["subject"] == "quarantine"]
    assert (f"({number} dismissed in the last 90 days)" in says) == bool(number)


@pytest.mark.deep
def test_list_has_the_cause_and_the_triggering_items(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"), place.put("USER#a", "LIKE#1", weight=1))
    place.dynamodb.update_item(
        TableName=place.ledger,
        Key={"pk": {"S": "G|likes.1|main|POST#1|METADATA"}, "sk": {"S": "00"}},
        UpdateExpression="SET n = :text",
        ExpressionAttributeValues={":text": {"S": "x"}},
    )
    place.deliver(place.put("USER#b", "LIKE#1", weight=1))
    code, out, _ = place.say("redrive", "--list")
    assert code == 1
    assert "main|USER#b|LIKE#1: likes: group of main|POST#1|METADATA: the group in the ledger is damaged: " in out
    assert "(triggered by main|USER#b|LIKE#1)" in out
    assert "likes: group of main|POST#1|METADATA" in place.say("status")[1]
    assert place.run("verify", "--repair", "--patience", "0")[0] == 0
    assert place.run("redrive")[0] == 0
    assert place.right()


def test_a_command_that_dies_before_the_deletion_loses_neither_record_nor_message(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(place)
    with monkeypatch.context() as broken:

        def die(queue: Queue, messages: object) -> None:
            raise Transient("killed")

        broken.setattr(Queue, "delete", die)
        code, _, err = place.say("redrive", "--dismiss", "likes", "--because", "test data")
    assert code != 0
    assert "killed" in err
    assert place.depth(place.quarantine) == 4
    code, said = place.run("redrive", "--list")
    assert len(said["messages"]) == 4
    recorded = {one["id"] for one in said["dismissed"]}
    assert recorded == {one["id"] for one in said["messages"] if one["dismissalRecorded"]}
    assert recorded
    assert "still in the queue: dismiss it again" in place.say("redrive", "--list")[1]
    assert len(place.run("redrive", "--dismiss", "likes", "--because", "test data")[1]["dismissed"]) == 3
    code, said = place.run("redrive", "--list")
    assert (len(said["messages"]), len(said["dismissed"])) == (1, 3), "recorded once each"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--because", "x"], "--because requires --dismiss"),
        (["--dismiss", "lieks"], "The rules are author, likes, postById"),
        (["--dismiss", "PK=USER#c"], "is not a key"),
        (["--dismiss", "likes", "--because", " "], "--because is empty"),
        (["--dismiss", "likes", "--list"], "Pass one of them"),
        (["--dismiss", "likes", "--bucket", "b"], "without FILES, --dead-letters, --bucket"),
    ],
)
def test_invalid_selection_is_an_error_with_a_solution(place: Place, arguments: list[str], message: str) -> None:
    fill(place)
    code, _, err = place.say("redrive", *arguments)
    assert code == 2, err
    assert message in err
    assert place.depth(place.quarantine) == 4


def test_backfills_respect_a_dismissal_and_list_it_apart(place: Place) -> None:
    """Other bad items still count: the exit code and `status` are about those only."""
    fill(place)
    assert place.say("redrive", "--dismiss", "likes", "--because", "test data")[0] == 1, "a foreign message is left"
    code, said = place.run("backfill")
    assert (code, said["rejected"]) == (0, [])
    assert {one["key"] for one in said["dismissed"]} == {f"main|USER#{user}|LIKE#1" for user in "bcd"}
    assert said["phases"]["items"]["dismissed"] == 3
    (found,) = [one for one in place.run("status")[1]["findings"] if one["subject"] == "backfill"]
    assert found["level"] == "ok"
    place.put("USER#e", "LIKE#1", weight="heavy")
    code, out, err = place.say("backfill")
    assert (code, "1 rejected, 3 rejected before and dismissed" in out) == (1, True)
    assert "rejected: main|USER#e|LIKE#1: likes: " in err
    assert "dismissed: main|USER#b|LIKE#1: likes: " in err
    code, said = place.run("apply", "--dry-run")
    assert (code, len(said["rejected"]), len(said["dismissed"])) == (1, 1, 3)
