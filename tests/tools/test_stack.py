"""The stack knows its rules: commands with --stack use what the functions run, and say how a local file differs."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from place import MENDED, RULES, Place

from projections.aws.clients import client

pytestmark = [pytest.mark.deep, pytest.mark.parametrize("place", ["MiniStack"], indirect=True)]

HELD = RULES.replace("likes: {from: Like, aggregate", "likes: {from: Like, hold: true, aggregate")
MORE = (
    RULES
    + """  latest: {from: Like, latest: {into: PostMeta, by: weight, attributes: {lastWeight: weight}}}
"""
)
COMMANDS = [
    ["status"],
    ["verify", "--patience", "0"],
    ["verify", "--patience", "0", "--repair"],
    ["redrive"],
    ["redrive", "--dry-run"],
    ["explain", "--item", "PK=POST#1,SK=METADATA"],
    ["backfill"],
]
"""Those that read and those that write."""
WRITING = [words for words in COMMANDS if words[0] in ("verify", "redrive", "backfill") and "--dry-run" not in words][
    1:
]


@pytest.fixture
def stack(place: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """A stack in use, and a directory without a rule file."""
    place.deliver(place.put("USER#a", "POST#1", title="t"))
    place.deliver(place.put("USER#b", "LIKE#1", weight=2))
    assert place.say("apply", "--yes")[0] == 0
    name, _ = place.stack()
    monkeypatch.delenv("RULES")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    return name


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_no_rule_file_is_needed(place: Place, stack: str, words: list[str]) -> None:
    code, out, err = place.say(*words, "--stack", stack)
    assert (code, "note:" in err) == (0, False), (out, err)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_file_here_that_differs_is_pointed_out_and_not_used(place: Place, stack: str, words: list[str]) -> None:
    Path("rules.yaml").write_text(MENDED)
    before = place.registry()
    code, out, err = place.say(*words, "--stack", stack)
    assert err.startswith(
        f"note: rules.yaml differs from the rules that stack {stack} runs (changed: likes). "
        "`projections apply` would change them.\n"
    )
    assert (code, place.registry()) == (0, before), out


@pytest.mark.parametrize("words", WRITING, ids=" ".join)
def test_commands_that_write_reject_a_file_that_is_not_deployed(place: Place, stack: str, words: list[str]) -> None:
    Path("other.yaml").write_text(MORE.replace("sum(weight)", "sum(number(weight))"))
    before = place.registry()
    code, out, err = place.say(*words, "--stack", stack, "--rules", "other.yaml")
    assert (code, out) == (2, "")
    assert err == (
        f"projections: other.yaml differs from the rules that stack {stack} runs (new: latest; changed: likes). Run "
        "`projections apply other.yaml` first, or omit --rules to use those rules\n"
    )
    assert place.registry() == before
    Path("other.yaml").write_text(RULES)
    assert place.say(*words, "--stack", stack, "--rules", "other.yaml")[0] == 0


@pytest.mark.parametrize("words", [["verify", "--patience", "0"]], ids=" ".join)
def test_commands_that_read_use_a_named_file_with_a_note(place: Place, stack: str, words: list[str]) -> None:
    Path("other.yaml").write_text(MORE)
    _, out, err = place.say(*words, "--stack", stack, "--rules", "other.yaml")
    assert err.startswith(
        f"note: other.yaml differs from the rules that stack {stack} runs (new: latest). `projections apply"
    )
    assert "latest" not in out


def test_status_shows_a_held_rule_whatever_file_is_named(place: Place, stack: str) -> None:
    Path("held.yaml").write_text(HELD)
    code, out, err = place.say("apply", "held.yaml", "--stack", stack, "--yes")
    assert code == 0, (out, err)
    Path("other.yaml").write_text(RULES)
    code, said = place.run("status", "--stack", stack, "--rules", "other.yaml")
    found = {one["subject"]: one for one in said["findings"]}
    assert (code, said["versions"]["likes.1"]) == (1, "standby")
    assert found["rule likes.1"]["says"].startswith("standby: held: it publishes nothing")
    assert "differs from the rules that stack" in found["rule file"]["says"]


def other_file(place: Place) -> None:
    variables = {"RULES_FILE": "other.json"}
    client("lambda").update_function_configuration(FunctionName=place.function, Environment={"Variables": variables})


def other_version(place: Place) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as package:
        package.writestr("rules.json", json.dumps({"projections": {}}))
    client("lambda").update_function_code(FunctionName=place.function, ZipFile=content.getvalue())


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda place: client("lambda").delete_function(FunctionName=place.function), "Function not found"),
        (other_file, "its package has no other.json"),
        (other_version, "rules.json was compiled by another version of dynamodb-projections"),
    ],
)
def test_rules_that_cannot_be_read_are_asked_for(
    place: Place, stack: str, damage: Callable[[Place], None], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(place)
    place.forget_rules()
    monkeypatch.delenv("RULES", raising=False)
    code, out, err = place.say("backfill", "--stack", stack)
    assert (code, out, says in err) == (2, "", True), err
    assert "Allow lambda:GetFunction, or name the file of the deployed rules with --rules FILE" in err
    Path("mine.yaml").write_text(RULES)
    code, _, err = place.say("backfill", "--stack", stack, "--rules", "mine.yaml")
    assert (code, "note: mine.yaml was not compared with the rules that stack" in err) == (0, True), err
