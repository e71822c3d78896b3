"""`apply`, `promote` and `rollback`: what they print before anything happens, what they ask, and what is published then."""

from __future__ import annotations

from typing import Any

import pytest
from place import RULES, Place

from projections.deploy.agreement import permission_findings
from projections.deploy.cloudformation import template_of
from projections.deploy.needs import Deployment
from projections.deploy.sam_template import sam_template
from projections.engine.registry import Registry, RegistrySnapshot
from projections.language.program import LEDGER_SCHEMA
from projections.operations.backfill.fill_estimate import ITEMS_PER_SECOND, estimate_fill
from projections.stores.dynamodb import DynamoDBStore

CHANGED = RULES.replace("likeCount: count,", "likeCount: {count: {where: {weight: [{exists: true}]}}},")
KEEPING = RULES.replace("key: [PK, SK]", "key: [PK, SK]\n  ttl: expiresAt", 1).replace(
    'SK: "LIKE#{postId}"}}', 'SK: "LIKE#{postId}"}, expires: true}'
)
LIKES = next(line for line in RULES.splitlines(keepends=True) if line.startswith("  likes:"))


@pytest.fixture
def used(place: Place) -> Place:
    """Rules that are published, with two likes of one post and one of another, one of them without a weight."""
    place.deliver(place.put("USER#a", "POST#1", title="t"), place.put("USER#a", "POST#2", title="u"))
    place.deliver(place.put("USER#b", "LIKE#1", weight=2), place.put("USER#c", "LIKE#1"))
    place.deliver(place.put("USER#b", "LIKE#2", weight=3))
    code, out, err = place.say("apply", "--yes")
    assert code == 0, (out, err)
    return place


def states(place: Place) -> dict[str, str]:
    return {name: version.state for name, version in RegistrySnapshot.read(place.registry()).versions.items()}


def answer(monkeypatch: pytest.MonkeyPatch, *answers: Any) -> list[str]:
    """Answer the questions of a terminal; return them."""
    asked: list[str] = []
    left = list(answers)

    def confirm(text: str, **options: Any) -> Any:
        asked.append(text)
        return left.pop(0)

    monkeypatch.setattr("projections.cli.apply.interactive", lambda: True)
    monkeypatch.setattr("click.confirm", confirm)
    monkeypatch.setattr("click.prompt", confirm)
    return asked


def test_a_first_file_is_filled_and_published(place: Place) -> None:
    place.forget_rules()
    place.put("USER#a", "POST#1", title="t")
    place.put("USER#b", "LIKE#1", weight=2)  # the stream has not delivered it
    code, out, err = place.say("apply", "--yes")
    assert code == 0, (out, err)
    assert "likes.1, without a version before" in out
    assert states(place) == {"postById.1": "active", "likes.1": "active", "author.1": "active"}
    assert place.right()
    code, out, _ = place.say("apply", "--yes")
    assert (code, "Nothing to do" in out) == (0, True), out


def test_a_changed_rule_shows_its_values_before_it_is_published(used: Place) -> None:
    used.file.write_text(CHANGED)
    code, result = used.run("apply")
    assert code == 0
    (likes,) = result["changes"].values()
    assert (likes["version"], likes["published"], likes["changed"]) == ("likes.2", "likes.1", 1)
    assert likes["attributes"]["likeCount"] == {
        "changed": 1,
        "sum": "-1",
        "examples": [{"key": "main|POST#1|METADATA", "old": 2, "new": 1}],
    }
    assert used.item("POST#1", "METADATA")["likeCount"] == 1
    assert states(used)["likes.1"] == "standby"


def test_a_page_and_two_questions_come_before_a_value_changes(used: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    used.file.write_text(CHANGED)
    assert answer(monkeypatch, False) == []
    code, out, _ = used.say("apply")
    assert (code, states(used)) == (130, {"postById.1": "active", "likes.1": "active", "author.1": "active"})
    assert "likes changed: aggregate of Like" in out
    assert "Filled before they are published: likes.2" in out
    asked = answer(monkeypatch, True, False)
    code, out, _ = used.say("apply")
    assert (code, asked) == (0, ["Apply these rules?", "Publish?"])
    assert "main|POST#1|METADATA: 2 → 1" in out
    assert (states(used)["likes.2"], used.item("POST#1", "METADATA")["likeCount"]) == ("ready", 2)


def test_without_a_terminal_and_without_yes_there_is_only_the_page(used: Place) -> None:
    used.file.write_text(CHANGED)
    before = used.registry()
    code, out, err = used.say("apply")
    assert (code, used.registry()) == (2, before)
    assert "The fill reads 7 items of the tables: about " in out
    assert "nothing was written" in err
    assert "the permissions of the functions were not checked" in err


def test_the_estimate_is_what_a_dry_run_counts_if_all_items_are_sampled(used: Place) -> None:
    used.file.write_text(CHANGED)
    _, counted = used.run("apply", "--dry-run")
    code, result = used.run("apply", "--max-writes", "1")
    estimate = result["estimate"]
    assert (code, estimate["exact"], estimate["items"], estimate["sampled"]) == (0, True, 7, 7)
    assert estimate["writeUnits"] == counted["writeUnits"]
    assert estimate["seconds"] == estimate["writes"] > 7 / ITEMS_PER_SECOND


@pytest.mark.deep
def test_an_estimate_of_a_large_table_is_the_sample_times_its_size(used: Place) -> None:
    used.file.write_text(CHANGED)
    program = used.program(CHANGED)
    store = DynamoDBStore(
        used.dynamodb, {"main": used.table, "ledger": used.ledger}, {**program.tables, "ledger": LEDGER_SCHEMA}
    )
    for number in range(500):
        used.put(f"USER#{number}", "LIKE#1", weight=1)
    planned = Registry(program, store).preview(program).snapshot
    estimate = estimate_fill(program, store, planned, {"main": 50_000})
    assert (estimate.exact, estimate.items) == (False, 50_000)
    assert estimate.sampled <= 8 * 50
    assert 45_000 < estimate.writes < 200_000


def test_what_expired_and_is_not_carried_over_is_said_before_it_is_published(place: Place) -> None:
    rules = KEEPING.replace("likes: {from: Like,", "likes: {from: Like, expired: keep,")
    place.deploy(rules)
    place.put("USER#a", "POST#1", title="t")
    assert place.say("apply", "--yes")[0] == 0
    place.deliver(place.put("USER#b", "LIKE#1", weight=2), place.put("USER#c", "LIKE#1", weight=3))
    expired = place.remove("USER#b", "LIKE#1")
    place.deliver({**expired, "userIdentity": {"type": "Service", "principalId": "dynamodb.amazonaws.com"}})
    place.file.write_text(rules.replace("sum(weight)", "max(number(weight))"))
    code, out, _ = place.say("apply", "--dry-run")
    assert (code, "likes.3: total begins without what has expired before" in out) == (0, True), out
    assert "likes  1 keep what expired, which the new version does not count" in out
    code, result = place.run("apply")
    assert (code, result["notCarried"]) == (0, {"likes.3": ["total"]})
    assert result["changes"]["likes"]["notCarried"] == {"attributes": ["total"], "entries": 1}
    item = place.item("POST#1", "METADATA")
    assert (item["likeCount"], item["total"]) == (2, 3)


def test_a_role_that_lacks_a_permission_is_named() -> None:
    """As `apply` compares it: the deployed template with new rules."""
    before = Place.program(RULES.partition("  author:")[0])
    template = template_of(sam_template(Deployment("rules.yaml", before)))
    assert permission_findings(template, Deployment("", before)) == []
    lacking = permission_findings(template, Deployment("", Place.program(RULES)))
    assert {finding.code for finding in lacking} == {"permissions"}
    assert any("StreamFunction is not allowed dynamodb:Query" in finding.reason for finding in lacking)
    assert all("sam deploy" in finding.instead for finding in lacking)
    (unknown,) = permission_findings(template_of("Resources: {}"), Deployment("", before))
    assert "cannot be checked" in unknown.reason


def test_a_pipeline_gets_json_and_an_exit_code(used: Place) -> None:
    code, result = used.run("apply", "--yes")
    assert (code, result["change"]["needsDoing"], result["estimate"], "run" in result) == (0, False, None, False)
    used.file.write_text(CHANGED.replace("GSI1: [GSI1PK, GSI1SK]", "GSI1: [GSI1PK, GSI1SK], GSI9: [GSI9PK]"))
    code, result = used.run("apply", "--dry-run")
    assert (code, len(result["refused"])) == (1, 1)
    assert used.say("apply", "--yes", "--json")[:2] == (2, "")
    used.file.write_text(CHANGED.replace("sum(weight)", "sum(number(weight))"))
    used.put("USER#d", "LIKE#1", weight="many")
    code, result = used.run("apply", "--yes")
    assert (code, result["phase"], {each["key"] for each in result["rejected"]}) == (1, "done", {"main|USER#d|LIKE#1"})
    assert (result["refused"], result["versions"]["likes.2"]) == ([], "active")
    used.file.write_text(CHANGED)
    code, result = used.run("apply", "--yes", "--queue", used.tasks)
    assert (code, result["left"], states(used)["likes.3"]) == (0, True, "filling")
    assert used.depth(used.tasks) > 0


def test_a_dry_run_writes_nothing_and_counts(used: Place) -> None:
    used.file.write_text(CHANGED)
    before = used.registry()
    code, result = used.run("apply", "--dry-run")
    assert (code, used.registry()) == (0, before)
    assert result["versions"]["likes.2"] == "filling"
    assert [rule["rule"] for rule in result["change"]["rules"]] == ["likes"]
    assert result["writeUnits"] > 0


def test_the_fate_of_a_removed_rule_is_asked_or_named(used: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    used.file.write_text(RULES.replace(LIKES, ""))
    code, _, err = used.say("apply", "--yes")
    assert (code, "--retire likes=keep" in err) == (2, True)
    code, _, err = used.say("apply", "--yes", "--retire", "likes=gone")
    assert (code, "expected RULE=keep or RULE=remove" in err) == (2, True)
    code, _, err = used.say("apply", "--yes", "--retire", "author=keep")
    assert (code, "author is not a published rule that the file lacks" in err) == (2, True)
    asked = answer(monkeypatch, "remove", True)
    code, _, err = used.say("apply")
    assert (code, len(asked)) == (0, 2), err
    assert "likeCount" not in used.item("POST#1", "METADATA")
    assert states(used).get("likes.1", "gone") == "gone"


def test_items_of_another_kind_on_which_values_of_a_removed_rule_stay_are_named(used: Place) -> None:
    """Nothing shows whether these values are the application's by now, so only the guard is removed."""
    other, key = {":type": {"S": "Else"}}, {"PK": {"S": "POST#1"}, "SK": {"S": "METADATA"}}
    used.dynamodb.update_item(
        TableName=used.table,
        Key=key,
        UpdateExpression="SET #type = :type",
        ExpressionAttributeNames={"#type": "type"},
        ExpressionAttributeValues=other,
    )
    used.file.write_text(RULES.replace(LIKES, "") + "retired: {likes: remove}\n")
    code, out, err = used.say("apply", "--yes")
    assert (code, used.item("POST#1", "METADATA")["likeCount"]) == (0, 2)
    assert "~likes" not in used.item("POST#1", "METADATA")
    assert "removed from 1 item, its values stay on 1 item of another kind\n" in out
    assert "values stay on main|POST#1|METADATA: it is of another kind by now, so the values may be the" in err


def test_values_of_a_removed_rule_are_kept(used: Place) -> None:
    used.file.write_text(RULES.replace(LIKES, ""))
    assert used.say("apply", "--yes", "--retire", "likes=keep")[0] == 0
    assert used.item("POST#1", "METADATA")["likeCount"] == 2
    used.file.write_text(RULES.replace(LIKES, "") + "retired: {likes: remove}\n")
    assert "Not removed: the values were kept before." in used.say("apply", "--yes")[1]
    assert used.item("POST#1", "METADATA")["likeCount"] == 2
    used.file.write_text(RULES)
    assert used.say("apply", "--yes")[0] == 0
    used.file.write_text(RULES.replace(LIKES, "") + "retired: {likes: remove}\n")
    assert "Not removed" not in used.say("apply", "--yes")[1]
    assert "likeCount" not in used.item("POST#1", "METADATA")
    assert "Not removed" not in used.say("apply", "--yes")[1]


def test_a_held_version_is_filled_verified_promoted_and_rolled_back(used: Place) -> None:
    used.file.write_text(CHANGED)
    assert used.say("apply", "--yes", "--hold")[0] == 0
    assert (states(used)["likes.2"], used.item("POST#1", "METADATA")["likeCount"]) == ("ready", 2)
    _, out, err = used.say("apply", "--dry-run")
    assert ("Filled already, and not published: likes.2" in out, "is filled from the items" in out) == (True, False)
    assert "(not published: likes)" in used.say("verify", "--patience", "0")[2]
    code, result = used.run("promote", "likes")
    assert (code, result["changes"]["likes"]["changed"]) == (0, 1)
    assert used.item("POST#1", "METADATA")["likeCount"] == 1
    assert used.say("promote", "likes", "--yes")[0] == 2
    code, out, err = used.say("rollback", "likes", "--yes")
    assert (code, "likes.2 replaced likes.1" in out) == (0, True), (out, err)
    assert used.item("POST#1", "METADATA")["likeCount"] == 2
    assert states(used) == {"postById.1": "active", "likes.1": "active", "author.1": "active", "likes.2": "standby"}


TAGS = RULES.replace("projections:", '  Tag: {key: {PK: "TAG#{tag}", SK: S}, derived: true}\nprojections:', 1)
TAGGED = '  tags: {from: Like, bind: {tag: "USER"}, aggregate: {into: Tag, set: {n: count}}}\n'
"""Counts into an item of its own, under a key that a change of the rule moves."""


@pytest.mark.parametrize("name", ["rollback", "promote"])
def test_the_same_command_goes_on_after_a_withheld_deletion(used: Place, name: str) -> None:
    used.file.write_text(TAGS + TAGGED)
    assert used.say("apply", "--yes")[0] == 0
    used.file.write_text(TAGS + TAGGED.replace("USER", "{userId|upper}"))
    before, after = {"rollback": (2, 1), "promote": (1, 2)}[name]
    hold = ["--hold"] if name == "promote" else ["--allow-delete"]
    assert used.say("apply", "--yes", *hold)[0] == 0
    code, out, err = used.say(name, "tags", "--yes")
    assert (code, "not deleted: main|TAG#" in err) == (1, True), (out, err)
    code, out, err = used.say(name, "tags", "--yes", "--allow-delete")
    assert (code, f"The publication of tags.{after} is not complete: it goes on." in out) == (0, True), (out, err)
    assert (states(used)[f"tags.{after}"], states(used)[f"tags.{before}"]) == ("active", "standby")
    items = used.dynamodb.scan(TableName=used.table)["Items"]
    tags = {item["PK"]["S"]: item["n"]["N"] for item in items if item["PK"]["S"].startswith("TAG#")}
    assert tags == ({"TAG#USER": "3"} if name == "rollback" else {"TAG#B": "2", "TAG#C": "1"})
    code, out, err = used.say("status")
    assert ("rolled back to tags.1" in out.lower(), code) == (name == "rollback", name == "rollback"), (out, err)


def test_a_dry_run_shows_what_a_filled_version_changes(used: Place) -> None:
    used.file.write_text(CHANGED)
    assert used.say("apply", "--yes", "--hold")[0] == 0
    _, result = used.run("apply", "--dry-run")
    assert result["changes"]["likes"]["attributes"]["likeCount"]["sum"] == "-1"
    assert "likes.2" in used.say("apply", "--dry-run")[1]
    assert used.item("POST#1", "METADATA")["likeCount"] == 2
    assert "not what the functions work with" not in used.say("status")[1]


def test_a_roll_back_reads_no_source_items(used: Place) -> None:
    used.file.write_text(CHANGED)
    used.say("apply", "--yes")
    code, result = used.run("rollback", "likes")
    assert (code, "items" in result["phases"]) == (0, True)
    assert result["phases"]["items"] == {"rules": {}}


def test_rules_that_record_nothing_are_left_out_by_hold(used: Place) -> None:
    used.file.write_text(RULES.replace("attributes: [title]", "attributes: {heading: title}"))
    code, out, _ = used.say("apply", "--yes", "--hold")
    assert (code, "Not applied with --hold" in out) == (0, True)
    assert states(used)["postById.1"] == "active"
    assert used.say("apply", "--yes")[0] == 0
    assert used.item("POST#1", "METADATA")["heading"] == "t"
    assert states(used).get("postById.1", "gone") == "gone"


def test_a_rule_that_is_held_stops_and_goes_on_without_a_fill(used: Place) -> None:
    used.file.write_text(RULES.replace("likes: {from", "likes: {hold: true, from"))
    assert used.say("apply", "--yes")[0] == 0
    assert (states(used)["likes.1"], used.item("POST#1", "METADATA")["likeCount"]) == ("standby", 2)
    used.deploy(used.file.read_text())
    used.deliver(used.put("USER#d", "LIKE#1", weight=1))
    assert used.item("POST#1", "METADATA")["likeCount"] == 2
    assert used.say("promote", "likes", "--yes")[0] == 2
    used.file.write_text(RULES)
    code, result = used.run("apply")
    assert (code, result["phases"]["items"]) == (0, {"rules": {}})
    assert (states(used)["likes.1"], used.item("POST#1", "METADATA")["likeCount"]) == ("active", 3)


def test_an_index_that_the_table_lacks_is_refused_before_anything_is_registered(used: Place) -> None:
    before = used.registry()
    used.file.write_text(RULES.replace("GSI1: [GSI1PK, GSI1SK]", "GSI1: [GSI1PK, GSI1SK], GSI9: [GSI9PK]"))
    code, _, err = used.say("apply", "--yes")
    assert (code, used.registry()) == (2, before)
    assert "has no index GSI9" in err


def test_a_command_that_reads_uses_the_rules_of_the_registry(used: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    used.file.write_text(CHANGED)
    code, out, err = used.say("verify", "--patience", "0")
    assert (code, "`projections apply` would change them" in err) == (0, True), (out, err)
    monkeypatch.delenv("RULES")
    assert used.say("verify", "--patience", "0")[0] == 0


def test_a_gap_ends_with_a_backfill_and_forbids_promotion(used: Place) -> None:
    lanes = RULES.replace("total: sum(weight)}", "total: sum(weight)}, ledger: lanes")
    used.file.write_text(lanes)
    assert used.say("apply", "--yes")[0] == 0
    used.deliver(used.put("USER#d", "LIKE#1", weight=1))  # without the id of a shard
    code, out, _ = used.say("verify", "--patience", "0")
    assert (code, "likes has a gap: a batch had no shard id" in out) == (1, True), out
    assert "likes has no entries (ledger: lanes): 2 groups compared with the items." in out
    code, out, err = used.say("backfill")
    assert (code, "a refresh corrects nothing: likes.3." in out) == (0, True), (out, err)
    assert used.item("POST#1", "METADATA")["likeCount"] == 3
    assert used.say("verify", "--patience", "0")[0] == 0
    used.file.write_text(lanes.replace("likeCount: count,", "likeCount: {count: {where: {weight: [{exists: true}]}}},"))
    assert used.say("apply", "--yes", "--hold")[0] == 0
    used.deliver(used.put("USER#e", "LIKE#1", weight=1))
    code, _, err = used.say("promote", "likes", "--yes")
    assert (code, "likes.4 cannot be published: a batch had no shard id" in err) == (2, True), err
    assert states(used)["likes.3"] == "active"
