"""Files of queries: they name the rule file that they are about, and messages name the right file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from yaml import safe_load

import projections
from projections.errors import RulesError
from projections.language.review import review
from projections.language.schema import json_schema

RULES = """\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK]}}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Like: {key: {PK: "POST#{postId}", SK: "LIKE#{userId}"}}
projections:
  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}
  all: {from: Post, index: {GSI1PK: ALL}}
queries:
  post: {id: AP-1, get: Post, by: [postId]}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "rules.yaml").write_text(RULES)
    (tmp_path / "queries").mkdir()
    return tmp_path / "queries" / "app.yaml"


def test_has_the_rules_and_the_queries_of_both_files(file: Path) -> None:
    file.write_text(ABOUT + "queries:\n  likers: {find: Like, by: [postId]}\nwrites:\n  like: {put: Like}\n")
    found = projections.load(file)
    assert found.document == projections.loads(RULES).document
    assert list(found.queries) == ["post", "likers"]
    assert list(found.writes) == ["like"]


def test_may_name_a_bundled_file(file: Path) -> None:
    file.write_text("rules: social\nqueries:\n  mine: {find: Like, by: [userId]}\n")
    found = projections.load(file)
    assert "engagement" in found.names
    assert "mine" in found.queries


ABOUT = "rules: ../rules.yaml\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ABOUT + "queries:\n  q: {find: Lik, by: [postId]}\n", '3:13: queries.q.find: unknown entity "Lik"'),
        (ABOUT + "queries:\n  q: {fnd: Like}\n", '3:7: queries.q.fnd: unknown (did you mean "find"?)'),
        (ABOUT + "queries:\n  q: {id: AP-1, find: Like}\n", "3:11: queries.q.id: AP-1 is already the id of post"),
        (ABOUT + "writes:\n  w: {puts: Like}\n", "3:7: writes.w.puts: unknown"),
        (ABOUT + "writes:\n  post: {put: Like}\n", "3:3: writes.post: post is also a query: give them different names"),
        (ABOUT + "queries:\n  post: {get: Post, by: [postId]}\n", "3:3: queries.post: "),
        (ABOUT + "query: {}\n", '2:1: query: unknown (did you mean "queries"?)'),
        (ABOUT + "entities: {}\n", "2:1: entities: unknown: a file with `rules` has only rules, queries, writes"),
        (ABOUT + "queries: [a]\n", "2:10: queries: expected a mapping of names to queries"),
        ("rules: [a]\n", "1:8: rules: expected a path that is relative to this file, or a bundled name"),
        (
            "rules: none.yaml\n",
            "none.yaml does not exist: give a path that is relative to this file, or a bundled name",
        ),
        ("rules: app.yaml\n", "names a rule file, too: name that file here"),
        (ABOUT + ABOUT, "2:1: rules: is defined twice, first on line 1"),
    ],
)
def test_mistakes_have_their_places_in_this_file(file: Path, text: str, expected: str) -> None:
    file.write_text(text)
    with pytest.raises(RulesError) as raised:
        projections.load(file)
    (problem,) = raised.value.problems
    assert problem.file == str(file)
    assert expected in str(problem)


def test_mistakes_of_the_rule_file_name_that_file(file: Path) -> None:
    rules = file.parents[1] / "rules.yaml"
    rules.write_text(RULES.replace("from: Like", "from: Lik").replace("get: Post", "get: Pots"))
    file.write_text(ABOUT + "queries:\n  likers: {find: Likes, by: [postId]}\n")
    with pytest.raises(RulesError) as raised:
        projections.load(file)
    assert [(problem.file, problem.line) for problem in raised.value.problems] == [
        (str(file), 3),
        (str(rules), 6),
        (str(rules), 9),
    ]


def test_comments_accept_findings_of_their_own_file(file: Path) -> None:
    rules = file.parents[1] / "rules.yaml"
    file.write_text(ABOUT + "queries:\n  likers: {find: Like, by: [postId]} # check: ignore hot-partition\n")
    found = [(one.file, one.line, one.code) for one in review(file).findings]
    assert (str(rules), 7, "hot-partition") in found
    assert (str(file), 3, "unused-ignore") in found
    rules.write_text(RULES.replace("GSI1PK: ALL}}", "GSI1PK: ALL}} # check: ignore hot-partition"))
    assert "hot-partition" not in [one.code for one in review(file).findings]
    assert [one.code for one in projections.lint(projections.load(file))] == [one.code for one in review(file).findings]


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("rules: a.yaml\nqueries: {q: {find: Like}}", True),
        ("rules: a.yaml\nentities: {}", False),
        ("rules: 5", False),
        ("queries: {}", False),
        (RULES, True),
        (RULES + "rules: a.yaml", False),
    ],
)
def test_json_schema_knows_files_of_queries(text: str, valid: bool) -> None:
    assert Draft202012Validator(json_schema()).is_valid(safe_load(text)) is valid
