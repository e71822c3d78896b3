"""docs/how-to/erase-a-person.md: its steps, where tables, queues and a bucket hold data of a person."""

from __future__ import annotations

import json
import re
import shlex
import sys
from itertools import pairwise
from typing import Any

import pytest
from guide import DOCS, ROOT
from place import Place

sys.path.append(str(ROOT / "tests/deploy"))

from runbook import page_blocks

PAGE = (DOCS / "deployment.md").read_text()
STEPS = (DOCS / "how-to/erase-a-person.md").read_text()
ANN = "ann@example.org"
RULES = """
table:
  key: [PK, SK]
  indexes: {GSI1: [GSI1PK, GSI1SK]}
entities:
  User: {key: {PK: "USER#{email}", SK: PROFILE}}
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{email}", SK: "LIKE#{postId}"}}
  Follow: {key: {PK: "USER#{follower}", SK: "FOLLOWS#{email}"}}
  Comment: {key: {PK: "POST#{postId}", SK: "COMMENT#{commentId}"}, index_key: {GSI1PK: "AUTHOR#{author}"}}
  ByPhone: {key: {PK: "PHONE#{phone}", SK: OWNER}, match: {type: ByPhone}}
projections:
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count, total: sum(weight)}}}
  newest: {from: Like, top: {into: Post, as: newest, by: at, limit: 3, attributes: [name]}}
  followers: {from: Follow, aggregate: {into: User, set: {followers: count}}}
  byPhone: {from: User, copy: {into: ByPhone, attributes: [name]}}
  author: {from: User, embed: {into: Comment, match: {author: "{email}"}, attributes: {userName: name}, on_delete: remove}}
"""
WORDS = (ANN, "Annabel", "5550199")


def lived(place: Place) -> list[tuple[str, str]]:
    """Ann's data in every place. Return the keys of the items that are hers or name her."""
    place.environ["TASK_QUEUE_URL"] = place.tasks
    place.deploy(RULES)
    place.activate()
    user = f"USER#{ANN}"
    place.deliver(
        place.put("POST#1", "METADATA"),
        place.put(user, "PROFILE", name="Annabel", phone="5550199"),
        place.put("USER#bob", "PROFILE", name="Bob", phone="1"),
        place.put(user, "LIKE#1", weight=1, at=1, name="Annabel"),
        place.put("USER#bob", "LIKE#1", weight=2, at=2, name="Bob"),
        place.put("USER#bob", f"FOLLOWS#{ANN}"),
        place.put(user, "FOLLOWS#bob"),
        place.put("POST#1", "COMMENT#1", author=ANN, GSI1PK=f"AUTHOR#{ANN}", GSI1SK="1"),
    )
    place.deliver(place.put(user, "LIKE#2", weight="Annabel", at=1, name="Annabel"))  # quarantined
    place.discard("1", place.put(user, "LIKE#3", weight=1, at=3, name="Annabel"))
    likes = [(user, f"LIKE#{post}") for post in (1, 2, 3)]
    return [
        (user, "PROFILE"), *likes, (user, "FOLLOWS#bob"), ("USER#bob", f"FOLLOWS#{ANN}"), ("POST#1", "COMMENT#1"),
    ]  # fmt: skip


def scanned(place: Place, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = place.dynamodb.scan(TableName=table, ConsistentRead=True)["Items"]
    return found


def naming(items: list[Any]) -> list[Any]:
    return [item for item in items if any(word in json.dumps(item) for word in WORDS)]


def command(words: str) -> dict[str, str]:
    """The options of a command of the page, by their names."""
    (line,) = [
        line for block in page_blocks(STEPS) if block.language == "sh" for line in block.text.splitlines()
        if line.startswith(f"aws {words}")
    ]  # fmt: skip
    given = shlex.split(line)
    return {name.removeprefix("--"): value for name, value in pairwise(given) if name.startswith("--")}


def remaining(place: Place, who: str) -> list[dict[str, Any]]:
    """The keys that the page's scan of the ledger finds."""
    options = command("dynamodb scan")
    values = json.loads(options["expression-attribute-values"].replace("USER#ann", who))
    found: list[dict[str, Any]] = place.dynamodb.scan(
        TableName=place.ledger,
        FilterExpression=options["filter-expression"],
        ProjectionExpression=options["projection-expression"],
        ExpressionAttributeNames=json.loads(options["expression-attribute-names"]),
        ExpressionAttributeValues=values,
    )["Items"]
    return found


@pytest.mark.deep
def test_the_steps_leave_nothing_of_a_person(place: Place) -> None:
    hers = lived(place)
    assert len(naming(scanned(place, place.table))) > len(hers)  # and what is derived
    assert {one["pk"]["S"][0] for one in naming(scanned(place, place.ledger))} == {"E", "G", "M", "F"}
    assert place.depth(place.quarantine) == 1

    # 1 and 2: her items go, and the stream is read
    place.deliver(*[place.remove(*key) for key in hers])
    assert naming(scanned(place, place.table)) == []
    assert place.item("POST#1", "METADATA")["newest"] == [{"name": "Bob"}]
    assert place.right()
    assert place.run("verify", "--patience", "0")[0] == 0

    # 3: what waited for a redrive
    for source in (["--quarantine", place.quarantine], ["--bucket", place.bucket]):
        assert place.say("redrive", *source)[0] == 0
    assert place.depth(place.quarantine) == 0
    assert naming(scanned(place, place.table)) == []
    assert place.right()

    # 4: the objects
    listed = command("s3api list-objects-v2")
    for key in place.keys(listed["prefix"]):
        assert "Annabel" in place.s3.get_object(Bucket=place.bucket, Key=key)["Body"].read().decode()
        place.s3.delete_object(Bucket=place.bucket, Key=key)
    left = [place.s3.get_object(Bucket=place.bucket, Key=key)["Body"].read().decode() for key in place.keys("")]
    assert naming(left) == []

    # 6: what is left in the ledger are tombstones, without contributions, and empty groups and fences
    left = naming(scanned(place, place.ledger))
    assert not any("Annabel" in json.dumps(item) for item in left)
    tombstones = [item for item in left if "ttl" in item]
    assert {item["pk"]["S"][0] for item in tombstones} == {"E"}
    assert {item["contributions"]["S"] for item in tombstones} == {"{}"}
    kept = [item for item in left if "ttl" not in item]
    assert {item["pk"]["S"] for item in kept} == {
        f"G|followers.1|main|USER#{ANN}|PROFILE", f"F|author|main|USER#{ANN}|PROFILE",
        "G|byPhone.1|main|PHONE#5550199|OWNER",
    }  # fmt: skip
    assert {item["n"]["N"] for item in kept if "n" in item} == {"0"}
    for item in tombstones:  # as TTL does after 7 days
        place.dynamodb.delete_item(TableName=place.ledger, Key={"pk": item["pk"], "sk": item["sk"]})
    for who in (ANN, "5550199"):
        for key in remaining(place, who):
            place.dynamodb.delete_item(TableName=place.ledger, Key=key)
    assert naming(scanned(place, place.ledger)) == []
    assert place.run("verify", "--patience", "0")[0] == 0


@pytest.mark.deep
def test_a_person_who_comes_back_after_the_erasure_counts_from_the_start(place: Place) -> None:
    """What is deleted from the ledger by hand orders nothing that can still come."""
    hers = lived(place)
    place.deliver(*[place.remove(*key) for key in hers])
    for item in naming(scanned(place, place.ledger)):
        place.dynamodb.delete_item(TableName=place.ledger, Key={"pk": item["pk"], "sk": item["sk"]})
    lived(place)
    for source in (["--quarantine", place.quarantine], ["--bucket", place.bucket]):
        place.say("redrive", *source)
    user = place.item(f"USER#{ANN}", "PROFILE")
    assert (user["followers"], user["name"]) == (1, "Annabel")
    assert place.item("PHONE#5550199", "OWNER")["name"] == "Annabel"
    assert place.item("POST#1", "COMMENT#1")["userName"] == "Annabel"
    assert place.run("verify", "--patience", "0")[0] == 0
    assert place.right()


@pytest.mark.parametrize("resource", ["Quarantine", "TaskDeadLetters", "TaskQueue"])
def test_retentions_are_those_of_the_template(resource: str) -> None:
    text = (DOCS.parent / "template.yaml").read_text()
    (seconds,) = re.findall(
        rf"^  {resource}\w*:\n(?:    .*\n)*?      MessageRetentionPeriod: (\d+)", text, re.MULTILINE
    )
    days = int(seconds) // 86400
    row = {
        "Quarantine": "| quarantine |",
        "TaskQueue": "| tasks, dead letters |",
        "TaskDeadLetters": "| tasks, dead letters |",
    }
    (line,) = [line for line in PAGE.splitlines() if line.startswith(row[resource])]
    assert f"{days} days" in line or f"{days} and " in line


def test_the_bucket_and_the_logs_are_kept_as_the_page_says() -> None:
    text = (DOCS.parent / "template.yaml").read_text()
    assert "ExpirationInDays: 90" in text
    assert "whole records, as Lambda writes them | 90 days" in PAGE
    assert re.search(r"LogRetentionDays:\n    Type: Number\n    Default: 30\n", text)
