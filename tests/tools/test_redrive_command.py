"""`projections redrive` from end to end: real queues and buckets, and the real handler that fills them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from place import MENDED, Place

from projections.aws.clients import client
from projections.aws.queues import MARKS


def test_quarantined_records_are_redriven_after_the_rule_was_corrected(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"), place.put("USER#b", "LIKE#1", weight="2"))
    assert place.depth(place.quarantine) == 1
    place.deploy(MENDED)
    code, _, err = place.say("redrive")
    assert (code, "`projections apply` would change them" in err, place.depth(place.quarantine)) == (1, True, 1)
    place.activate()
    code, said = place.run("redrive")
    assert (code, said["left"], place.depth(place.quarantine)) == (0, [], 0)
    assert place.right()


def test_files_are_redriven_and_left_as_they_are(place: Place, tmp_path: Path) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    event, downloaded = tmp_path / "event.json", tmp_path / "object.json"
    event.write_text(json.dumps({"Records": [place.put("USER#b", "LIKE#1", weight=3)]}))
    key = place.discard("1", place.put("USER#c", "LIKE#1", weight=4))
    downloaded.write_bytes(place.s3.get_object(Bucket=place.bucket, Key=key)["Body"].read())
    code, out, err = place.say("redrive", str(event), str(downloaded))
    assert (code, err) == (0, "")
    assert f"{event}: 1 redriven, 0 left" in out
    assert "2 items read." in out
    assert place.right()
    assert place.keys(MARKS) == []


@pytest.mark.deep
def test_dry_run_prints_the_refreshes_and_writes_nothing(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    place.deliver(place.put("USER#b", "LIKE#1", weight="heavy"), place.put("USER#c", "LIKE#1", weight="light"))
    place.put("USER#b", "LIKE#1", weight=3)
    before = place.item("POST#1", "METADATA")
    code, out, err = place.say("redrive", "--dry-run")
    assert code == 1
    assert "would be refreshed: main|USER#b|LIKE#1 (likes: " in out
    assert "quarantine: 1 would be redriven, 1 would be left" in out
    assert "would be left: message" in err
    assert "main|USER#c|LIKE#1: likes: " in err
    assert (place.item("POST#1", "METADATA"), place.depth(place.quarantine)) == (before, 2)
    code, said = place.run("redrive", "--dry-run", "--limit", "1")
    assert (code, said["stopped"], len(said["refreshed"])) == (1, True, 1)
    assert place.run("redrive")[1]["sources"] == {"quarantine": {"redriven": 1, "left": 1}}, (
        "and they can be received at once"
    )


Wrong = Callable[[Place], list[str]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (lambda place: ["none.json"], "none.json: cannot be read"),
        (lambda place: ["--quarantine", place.quarantine + "-not"], "Check the queue's URL"),
        (lambda place: ["--bucket", "not-" + place.bucket], "Check the bucket's name"),
        (lambda place: ["--ledger", place.table], "this is a table of the application"),
    ],
)
def test_invalid_sources_are_errors_before_anything_is_written(place: Place, arguments: Wrong, message: str) -> None:
    place.deliver(place.put("USER#b", "LIKE#1", weight="heavy"))
    code, _, err = place.say("redrive", *arguments(place))
    assert code == 2, err
    assert message in err
    assert "Traceback" not in err


@pytest.mark.deep
@pytest.mark.parametrize("place", ["MiniStack"], indirect=True)
def test_stack_provides_the_sources(place: Place) -> None:
    place.deliver(place.put("USER#a", "POST#1", title="t"), place.put("USER#b", "LIKE#1", weight="heavy"))
    (message,) = place.sqs.receive_message(QueueUrl=place.quarantine)["Messages"]
    name, outputs = place.stack()
    place.sqs.send_message(QueueUrl=outputs["QuarantineQueueUrl"], MessageBody=message["Body"])
    place.put("USER#b", "LIKE#1", weight=3)
    place.discard("1", place.put("USER#c", "LIKE#1", weight=4))
    code, said = place.run("redrive", "--stack", name)
    assert (code, place.right()) == (0, True)
    assert said["sources"] == {
        "quarantine": {"redriven": 1, "left": 0},
        "dead letters": {"redriven": 0, "left": 0},
        "bucket": {"redriven": 1, "left": 0},
    }
    assert "stack none: " in place.say("redrive", "--stack", "none")[2]
    other = f"{name}-other"
    client("cloudformation").create_stack(StackName=other, TemplateBody="Resources: {Q: {Type: AWS::SQS::Queue}}")
    assert "so projections did not create it" in place.say("redrive", "--stack", other)[2]


def test_redrive_without_sources_is_an_error(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("QUARANTINE_QUEUE_URL")
    code, _, err = place.say("redrive")
    assert code == 2
    assert "nothing to redrive: pass --quarantine URL" in err
