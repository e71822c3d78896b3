"""`projections queries`: the table of access patterns, and running one query on a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from place import RULES, Place

QUERIES = """
queries:
  profile: {id: AP-1, get: User, by: [userId], about: The profile of a user}
  postsOf: {find: Post, by: [userId], range: postId, order: postId desc, limit: 2}
  comments: {find: Comment, by: [postId], attributes: [commentId, userName]}
  likers: {find: Like, by: [postId]}
"""
ANSWERED = RULES + QUERIES.replace("  likers: {find: Like, by: [postId]}\n", "")


@pytest.fixture
def asked(tmp_path: Path) -> str:
    path = tmp_path / "asked.yaml"
    path.write_text(RULES + QUERIES)
    return str(path)


def test_table_has_a_row_for_each_query_and_reasons_below_it(run: Any, asked: str) -> None:
    code, out, err = run("queries", "--rules", asked)
    assert (code, err) == (1, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0] == "id query question answer requests path key condition"
    assert "AP-1 profile The profile of a user one request 1 table PK = USER#{userId} and SK = PROFILE" in lines
    assert "- likers - no request - - -" in lines
    assert "the partition key of the table, PK = USER#{userId}, needs userId" in lines
    assert lines[-1] == f"✗ {asked}: 4 queries, 3 answered."


def test_json_has_requests_as_parameters_of_boto3_with_placeholders(run: Any, asked: str) -> None:
    code, out, _ = run("queries", "--rules", asked, "--json")
    found = {one["name"]: one for one in json.loads(out)["queries"]}
    assert code == 1
    assert found["profile"] == {
        "name": "profile",
        "id": "AP-1",
        "about": "The profile of a user",
        "verdict": "one",
        "path": "table",
        "requests": [{"TableName": "{table main}", "Key": {"PK": {"S": "USER#{userId}"}, "SK": {"S": "PROFILE"}}}],
        "reason": "",
        "proposal": None,
        "assumes": [],
        "others": [],
        "tests": [],
    }
    (request,) = found["postsOf"]["requests"]
    assert request["ExpressionAttributeValues"] == {
        ":p": {"S": "USER#{userId}"},
        ":low": {"S": "POST#{postId.from}"},
        ":high": {"S": "POST#{postId.to}"},
    }
    assert (request["Limit"], request["ScanIndexForward"]) == (2, False)
    assert (found["likers"]["verdict"], found["likers"]["path"], found["likers"]["requests"]) == ("none", None, [])


def test_name_without_parameters_shows_one_query_in_detail(run: Any, asked: str) -> None:
    code, out, _ = run("queries", "--rules", asked, "comments")
    assert code == 0
    assert '":p": {' in out
    assert "likers" not in out


def test_bundled_file_without_queries(run: Any, tmp_path: Path) -> None:
    path = tmp_path / "rules.yaml"
    path.write_text(RULES)
    assert run("queries", "--rules", str(path))[:2] == (0, f"{path} has no queries. Add `queries:`.\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["liker"], 'has no query "liker" (did you mean "likers"?)'),
        (["profile", "u1"], "query profile: expected PARAMETER=VALUE, found 'u1'"),
        (["profile", "userId=a", "userId=b"], "query profile: userId is given twice"),
        (["profile", "user=a"], 'query profile: unknown parameter "user" (did you mean "userId"?)'),
        (["profile", "--table", "app"], "query profile: missing userId; its parameters are userId"),
        (["postsOf", "userId=a", "postId.form=1"], 'unknown parameter "postId.form" (did you mean "postId.from"?)'),
        (["profile", "userId=a"], "no table: pass --table NAME or --stack NAME, or set TABLE_NAME"),
        (["likers", "postId=a"], "query likers cannot be answered: the partition key of the table"),
        (["likers", "postId=a"], "`projections queries` shows what to add"),
        (["--table", "app"], "no query to run: name one of profile, postsOf, comments, likers"),
    ],
)
def test_wrong_usage(run: Any, asked: str, words: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TABLE_NAME", raising=False)
    code, out, err = run("queries", "--rules", asked, *words)
    assert (code, out) == (2, "")
    assert message in err


@pytest.fixture
def filled(place: Place) -> Place:
    place.deploy(ANSWERED)
    place.put("USER#ann", "PROFILE", name="Ann")
    for number in range(1, 6):
        place.put("USER#ann", f"POST#p{number}", title=f"Title {number}")
    place.put("POST#p1", "COMMENT#c1", userName="Ben", secret="x")
    return place


def test_runs_a_query_and_shows_its_requests_and_items(filled: Place) -> None:
    code, out, err = filled.say("queries", "postsOf", "userId=ann", "--table", filled.table)
    assert (code, err) == (0, "")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[0].startswith(f'Query {{"TableName": "{filled.table}", "KeyConditionExpression": ')
    items = lines.index("PK SK title")
    assert lines[items + 1 : items + 3] == ["USER#ann POST#p5 Title 5", "USER#ann POST#p4 Title 4"]
    assert any(line.startswith("2 items of ") for line in lines)
    assert lines[-1].startswith("Next page: --token ")


def test_pages_of_a_query_follow_each_other(filled: Place) -> None:
    found, token = [], None
    for _ in range(3):
        more = ["--token", token] if token else []
        code, page = filled.run("queries", "postsOf", "userId=ann", *more)
        assert code == 0
        found += [item["SK"] for item in page["items"]]
        token = page["token"]
        assert page["scanned"] >= len(page["items"])
        assert page["readUnits"] > 0
    assert found == ["POST#p5", "POST#p4", "POST#p3", "POST#p2", "POST#p1"]
    assert token is None


def test_json_has_the_requests_that_were_sent(filled: Place) -> None:
    code, page = filled.run("queries", "profile", "userId=ann", "--table", filled.table)
    assert code == 0
    assert page["items"] == [{"PK": "USER#ann", "SK": "PROFILE", "name": "Ann"}]
    assert page["requests"] == [{"TableName": filled.table, "Key": {"PK": {"S": "USER#ann"}, "SK": {"S": "PROFILE"}}}]
    assert page["token"] is None


def test_bounds_limit_and_attributes(filled: Place) -> None:
    _, page = filled.run("queries", "postsOf", "userId=ann", "postId.from=p2", "postId.to=p4", "--limit", "10")
    assert [item["SK"] for item in page["items"]] == ["POST#p4", "POST#p3", "POST#p2"]
    _, page = filled.run("queries", "postsOf", "userId=ann", "postId.prefix=p5")
    assert [item["SK"] for item in page["items"]] == ["POST#p5"]
    _, page = filled.run("queries", "comments", "postId=p1")
    assert page["items"] == [{"commentId": "c1", "userName": "Ben"}]


def test_token_of_another_query_is_refused(filled: Place) -> None:
    _, page = filled.run("queries", "postsOf", "userId=ann")
    code, _, err = filled.say("queries", "postsOf", "userId=ben", "--token", page["token"])
    assert (code, err.strip()) == (
        2,
        "projections: query postsOf: the page token belongs to other values or another query",
    )


def test_table_that_does_not_exist(filled: Place) -> None:
    code, _, err = filled.say("queries", "profile", "userId=ann", "--table", "nowhere")
    assert code == 2
    assert "there is no table nowhere at " in err
