"""Queries in tests of rules: `projections.query`, `asks` in case files, and `replay --ask`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from projections.errors import UsageError
from projections.testing.cases import read_cases
from projections.testing.plugin import rules_of
from projections.testing.scenario import Scenario

ROOT = Path(__file__).parents[2]

RULES = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "USER#{userId}", SK: "LIKE#{postId}"}}
projections:
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}
  liked: {from: Like, index: {GSI1PK: "LIKED#{postId}", GSI1SK: "{at}"}}
queries:
  post: {get: Post, by: [postId]}
  likers: {find: Like, by: [postId], where: {at: [{exists: true}]}, range: at, order: at, attributes: [userId, weight]}
  newest: {find: Like, by: [postId], where: {at: [{exists: true}]}, order: at desc, limit: 2}
  byColour: {find: Post, by: [colour]}
"""
LIKES = [
    {"PK": f"USER#{name}", "SK": "LIKE#p1", "at": f"2026-01-0{day}", "weight": day}
    for day, name in enumerate(("ann", "ben", "eve"), 1)
]
GIVEN = f"given: {json.dumps([{'PK': 'POST#p1', 'SK': 'METADATA'}, *LIKES])}"


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    (tmp_path / "rules.yaml").write_text(RULES)
    return Scenario(rules_of("rules.yaml", tmp_path)).given({"PK": "POST#p1", "SK": "METADATA"}, *LIKES)


def test_query_returns_items_in_order_with_derived_values(scenario: Scenario) -> None:
    assert scenario.query("post", postId="p1") == [{"PK": "POST#p1", "SK": "METADATA", "likeCount": 3}]
    assert scenario.query("likers", postId="p1") == [
        {"userId": "ann", "weight": 1},
        {"userId": "ben", "weight": 2},
        {"userId": "eve", "weight": 3},
    ]
    scenario.delete(["USER#ben", "LIKE#p1"])
    assert [item["userId"] for item in scenario.query("likers", postId="p1")] == ["ann", "eve"]


def test_query_returns_one_page_and_takes_bounds(scenario: Scenario) -> None:
    assert [item["weight"] for item in scenario.query("newest", postId="p1")] == [3, 2]
    bounded = scenario.query("likers", postId="p1", at={"from": "2026-01-02", "to": "2026-01-02"})
    assert [item["userId"] for item in bounded] == ["ben"]


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("liker", {}, '(did you mean "likers"?)'),
        ("likers", {}, "query likers: missing postId; its parameters are postId"),
        ("likers", {"postId": "p1", "post": "p"}, 'query likers: unknown parameter "post"'),
        ("likers", {"postId": True}, "query likers: postId is True; give text or a number"),
        ("byColour", {"colour": "red"}, "query byColour cannot be answered: "),
    ],
)
def test_query_reports_wrong_use(scenario: Scenario, name: str, parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        scenario.query(name, **parameters)
    assert message in str(raised.value)


def played(tmp_path: Path, scenario: Scenario, asks: str, more: str = "") -> str:
    """Plays a case, and returns its failure, empty if it passes."""
    path = tmp_path / "a.projections.yaml"
    path.write_text(f"cases:\n- about: a case\n  {GIVEN}\n  asks: {asks}\n{more}")
    (case,) = read_cases(path).cases
    try:
        case.play(scenario)
    except AssertionError as error:
        return str(error).strip()
    return ""


@pytest.mark.parametrize(
    "asks",
    [
        "[{query: likers, with: {postId: p1}, gives: [{userId: ann}, {weight: 2}, {userId: eve, weight: 3}]}]",
        "[{query: likers, with: {postId: p1, at.from: 2026-01-03}, gives: [{userId: eve}]}]",
        "[{query: likers, with: {postId: none}, gives: []}, {query: post, with: {postId: p1}, gives: [{likeCount: 3}]}]",
        "[{query: newest, with: {postId: p1}, page: 2, gives: [{weight: 1}]}]",
        "[{query: newest, with: {postId: p1}, limit: 1, gives: [{weight: 3}]}]",
        "[{query: newest, with: {postId: p1}, page: 4, gives: []}]",
    ],
)
def test_asks_that_are_met(tmp_path: Path, scenario: Scenario, asks: str) -> None:
    assert played(tmp_path, scenario, asks) == ""


def test_a_missing_variable_of_the_key_is_explained(tmp_path: Path, scenario: Scenario) -> None:
    asks = "[{query: newest, with: {postId: p1}, gives: [{userId: eve, colour: red}, {PK: USER#ben}]}]"
    assert played(tmp_path, scenario, asks).split("\n")[2:] == [
        '  - userId: "eve"',
        "  + userId: absent (userId is a variable of the key: compare the key, or list it in `attributes` of the query)",
        '  - colour: "red"',
        "  + colour: absent",
    ]


def test_then_is_compared_beside_asks_only_if_it_is_given(tmp_path: Path, scenario: Scenario) -> None:
    asks = "[{query: likers, with: {postId: p1}, gives: [{}, {}, {}]}]"
    assert played(tmp_path, scenario, asks) == ""
    assert played(tmp_path, scenario, asks, "  then: any\n") == ""
    assert "- likeCount: 4\n  + likeCount: 3" in played(
        tmp_path, scenario, asks, "  then: [{PK: 'POST#p1', SK: METADATA, likeCount: 4}]\n"
    )


@pytest.mark.parametrize(
    ("asks", "message"),
    [
        ("likers", "4:9: cases[0].asks: expected a list of"),
        ("[{query: likers}]", "4:10: cases[0].asks[0]: expected `{query: NAME, with: {…}, gives: […]}`"),
        ("[{query: likers, giver: 1, gives: []}]", '4:26: cases[0].asks[0].giver: unknown (did you mean "gives"?)'),
        ("[{query: likers, with: p1, gives: []}]", "4:32: cases[0].asks[0].with: expected parameters"),
        ("[{query: likers, gives: [1]}]", "4:33: cases[0].asks[0].gives: expected a list of items"),
        ("[{query: likers, limit: 0, gives: []}]", "4:33: cases[0].asks[0].limit: expected a number, 1 or more"),
    ],
)
def test_mistakes_in_asks_have_their_places(tmp_path: Path, scenario: Scenario, asks: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        played(tmp_path, scenario, asks)
    assert message in str(raised.value)


def test_replay_runs_queries_on_the_replayed_tables() -> None:
    command = [sys.executable, "-m", "projections", "replay", "--rules", "social", "events/social.json"]
    asks = ["--ask", "likers postId=p1", "--ask", "feed 'publishedAt.from=2026-03-01' publishedAt.to=2026-03-31"]
    done = subprocess.run([*command, *asks, "--json"], cwd=ROOT, capture_output=True, text=True, check=True)
    likers, feed = json.loads(done.stdout)["asks"]
    assert (likers["query"], likers["with"]) == ("likers", {"postId": "p1"})
    assert [item["userId"] for item in likers["items"]] == ["cleo", "ben"]
    assert [item["title"] for item in feed["items"]] == ["Rivers from above", "Notes on the Analytical Engine"]


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        ("liker", 'has no query "liker" (did you mean "likers"?)'),
        ("likers", "query likers: missing postId; its parameters are postId"),
        ("likers p1", "query likers: expected PARAMETER=VALUE, found 'p1'"),
        ("likers 'postId=1", "expected a query and its parameters, such as `likers postId=p1`"),
        ("", "expected a query and its parameters, such as `likers postId=p1`"),
    ],
)
def test_replay_reports_wrong_asks(run: Any, ask: str, message: str) -> None:
    code, out, err = run("replay", "--rules", "social", str(ROOT / "events/social.json"), "--ask", ask)
    assert (code, out) == (2, "")
    assert message in err


def test_replay_prints_a_line_for_each_item(run: Any) -> None:
    _, out, _ = run("replay", "--rules", "social", str(ROOT / "events/social.json"), "--ask", "likers postId=p1")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    number = lines.index("likers postId=p1: 2 items")
    assert lines[number + 1].startswith("PK SK ")
    assert [line.split()[0] for line in lines[number + 2 : number + 4]] == ["USER#cleo", "USER#ben"]
