"""The table-design page: its data, its checklist, and its Markdown."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from place import Place
from test_printing import EVIL, asked, harmless

from projections.inspect.design.checklist import design_of
from projections.inspect.design.markdown import markdown
from projections.inspect.design.table_design import Check, Design
from projections.language.loader import loads
from projections.language.review import review_text
from projections.language.templates import Template

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = sorted((ROOT / "projections" / "rules").glob("*.yaml"))

GOOD: dict[str, Any] = {
    "table": {"key": ["PK", "SK"], "indexes": {"GSI1": ["GSI1PK", "GSI1SK"]}, "ttl": "expiresAt"},
    "entities": {
        "User": {"key": {"PK": "USER#{userId}", "SK": "PROFILE"}},
        "Post": {"key": {"PK": "USER#{userId}", "SK": "POST#{postId}"}},
        "Session": {
            "key": {"PK": "SESSION#{sessionId}", "SK": "SESSION"},
            "index_key": {"GSI1PK": "SESSIONS#{userId}", "GSI1SK": "{sessionId}"},
            "required": ["userId"],
            "expires": True,
        },
    },
    "projections": {
        "posts": {"from": "Post", "aggregate": {"into": "User", "set": {"postCount": "count"}}},
        "sessions": {
            "from": "Session",
            "expired": "retract",
            "aggregate": {"into": "User", "set": {"sessionCount": "count"}},
        },
    },
    "queries": {
        "profile": {"id": "AP-1", "about": "A profile", "get": "User", "by": ["userId"], "expect": {"bytes": 300}},
        "postsOf": {
            "id": "AP-2",
            "about": "Posts of a user",
            "find": "Post",
            "by": ["userId"],
            "limit": 20,
            "expect": {"bytes": 1000, "per_second": 10},
        },
        "home": {"id": "AP-3", "about": "A user with posts", "find": ["User", "Post"], "by": ["userId"]},
        "sessionsOf": {
            "id": "AP-4",
            "about": "Sessions of a user",
            "find": "Session",
            "by": ["userId"],
            "expect": {"bytes": 200, "items": 3},
        },
    },
    "writes": {
        "signUp": {"id": "AP-5", "about": "A new user", "put": "User", "if": "absent"},
        "publish": {
            "id": "AP-6",
            "about": "A new post",
            "transaction": True,
            "items": [{"put": "Post", "if": "absent"}, {"check": "User", "if": "present"}],
        },
        "login": {"id": "AP-7", "about": "A new session", "put": "Session"},
    },
}
"""A rule file that meets the whole checklist."""


def designed(document: dict[str, Any]) -> Design:
    text = json.dumps(document)
    rules = loads(text)
    return design_of(rules, "rules.yaml", review_text(text))


def checks(document: dict[str, Any]) -> dict[str, Check]:
    return {one.line: one for one in designed(document).checks}


@pytest.fixture(scope="module")
def good() -> Design:
    return designed(GOOD)


# --- the checklist ---


def test_design_that_meets_the_checklist(good: Design) -> None:
    assert [(one.line, one.details) for one in good.checks if one.status != "met"] == []


def changed(changes: dict[str, Any]) -> dict[str, Any]:
    """The good rule file with other values at these paths; None removes a value."""
    document = copy.deepcopy(GOOD)
    for path, value in changes.items():
        *steps, last = path.split("/")
        place = document
        for step in steps:
            place = place[step]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return document


INDEXES = "table/indexes"
LOCAL = {f"LSI{number}": {"sort": f"at{number}", "local": True} for number in range(1, 7)}
ENTRY = {"id": "AP-9", "about": "A question"}

COUNTRY = {"key": {"PK": "COUNTRY#{country}", "SK": "SHOP#{shopId}"}}

WRONG: list[tuple[str, dict[str, Any], str, str]] = [
    ("Each access pattern has an id", {"queries/profile/id": None}, "not met", "query profile has no id"),
    ("Each access pattern has an id", {"writes/login/id": None}, "not met", "write pattern login has no id"),
    ("Each access pattern has an id", {"queries/profile/about": None}, "not met", "query profile has no question"),
    ("Each access pattern has an id", {"queries": {}}, "not met", "the rule file has no queries"),
    (
        "Reads of several entities",
        {"entities/Tag": {"key": {"PK": "USER#{userId}", "SK": "POST#{postId}#{tag}"}}},
        "not met",
        "postsOf also reads Tag, which it does not name",
    ),
    (
        "Reads of several entities",
        {"queries/home/find": ["User", "Session"]},
        "not met",
        "home reads User and Session, which share no partition: one request for each entity",
    ),
    (
        "Each access pattern is one operation",
        {"queries/all": {**ENTRY, "find": "Post", "by": ["postId"]}},
        "not met",
        "only a scan answers all: the partition key of the table, PK = USER#{userId}, needs userId",
    ),
    (
        "Each access pattern is one operation",
        {"queries/titled": {**ENTRY, "find": "Post", "by": ["userId", "title"]}},
        "not met",
        "titled reads items that a filter discards: title is the given value",
    ),
    (
        "Each access pattern is one operation",
        {"queries/both": {**ENTRY, "find": "User", "where": {"userId": ["ann", "ben"]}}},
        "decide",
        "both needs several requests (one request for each value of userId). Is this justified?",
    ),
    ("Each index serves", {"queries/sessionsOf": None}, "not met", "no query and no embed rule reads GSI1"),
    (
        "Each index serves",
        {"queries/sessionsOf/attributes": ["sessionId", "device"]},
        "not met",
        "GSI1 projects all attributes, and needs only device and userId",
    ),
    (
        "Partition keys with one or few values",
        {"entities/Setting": {"key": {"PK": "SETTINGS", "SK": "SETTING#{name}"}}},
        "not met",
        'all Setting items are in one partition, PK = "SETTINGS"',
    ),
    (
        "Partition keys with one or few values",
        {"projections/newest": {"from": "Post", "index": {"GSI1PK": "NEWEST", "GSI1SK": "{postId}"}}},
        "not met",
        "(hot-partition)",
    ),
    (
        "Sort keys sort",
        {"projections/ranked": {"from": "User", "index": {"GSI1PK": "{userId}", "GSI1SK": "{postCount}"}}},
        "not met",
        "10 would come before 9 (unpadded-number)",
    ),
    (
        "Sort keys sort",
        {"queries/postsOf/order": "postId desc"},
        "decide",
        "postsOf is in order if postId sorts as text. Is this so?",
    ),
    ("All writes of the application", {"writes/login": None}, "decide", "No write pattern has Session."),
    (
        "Items have at most 400 KB",
        {"queries/profile/expect/bytes": 500_000},
        "not met",
        "an item of User has 500,000 bytes",
    ),
    (
        "Items have at most 400 KB",
        {
            "projections/recent": {
                "from": "Post",
                "top": {"into": "User", "as": "recent", "by": "postId", "limit": 50, "attributes": ["text"]},
            }
        },
        "not met",
        "(large-list)",
    ),
    (
        "Partition keys with one or few values",
        {"entities/Shop": COUNTRY, "queries/shops": {**ENTRY, "find": "Shop", "by": ["country"]}},
        "not met",
        "(few-partitions)",
    ),
    ("Expiry by TTL", {"table/ttl": None}, "not met", "(no-ttl)"),
]


@pytest.mark.parametrize(("line", "changes", "status", "detail"), WRONG)
def test_each_line_of_the_checklist_can_fail(line: str, changes: dict[str, Any], status: str, detail: str) -> None:
    document = changed(changes)
    (found,) = [one for name, one in checks(document).items() if name.startswith(line)]
    assert found.status == status
    assert any(detail in one for one in found.details), found.details


def test_every_line_of_the_checklist_has_a_rule_file_that_fails_it(good: Design) -> None:
    assert [one.line for one in good.checks if not any(one.line.startswith(line) for line, *_ in WRONG)] == []


def test_table_without_ttl_is_a_question_for_a_person() -> None:
    document = changed({"table/ttl": None, "entities/Session/expires": None, "projections/sessions/expired": None})
    found = checks(document)["Expiry by TTL is decided"]
    assert (found.status, found.details) == ("decide", ("Table main has no `ttl`. Does no item expire?",))


@pytest.mark.parametrize(
    ("line", "lines", "code", "status"),
    [
        ("Partition keys with", '        GSI1PK: "PUBLISHED#.*', "hot-partition", "not met"),
        ("Each access pattern is one", "  (?:feed|mostLiked): .*", "several-requests", "decide"),
    ],
)
def test_accepted_findings_are_justified(line: str, lines: str, code: str, status: str) -> None:
    text = (ROOT / "projections/rules/social.yaml").read_text()
    accepted = re.sub(rf"(?m)^({lines})$", rf"\1 # check: ignore {code}", text)
    for content, expected in ((text, status), (accepted, "accepted")):
        found = design_of(loads(content), "social.yaml", review_text(content, "social.yaml")).checks
        (check,) = [one for one in found if one.line.startswith(line)]
        assert check.status == expected
    assert "Accepted in social.yaml:" in check.details[-1]


FILTERED = """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "USER#{userId}", SK: "POST#{postId}"}}
queries:
  # The author has few drafts.
  # check: ignore filtered-query
  drafts: {id: AP-1, about: Drafts, find: Post, by: [userId], where: {state: draft}}
  hidden: {id: AP-2, about: Hidden, find: Post, by: [userId], where: {state: hidden}}
"""


def test_accepted_filter_is_named_with_the_line_of_its_comment() -> None:
    one = FILTERED.split("  hidden:")[0]
    for text, status in ((one, "accepted"), (FILTERED, "not met"), (one.replace("check:", "uncheck:"), "not met")):
        checks = design_of(loads(text), "rules.yaml", review_text(text, "rules.yaml")).checks
        (check,) = [one for one in checks if one.line.startswith("Each access pattern is one")]
        assert check.status == status
        place = " Accepted in rules.yaml:7"
        assert [one for one in check.details if one.startswith("drafts ") and one.endswith(place)] == [
            one for one in check.details if "uncheck" not in text and one.startswith("drafts ")
        ]
        assert not any(place in one for one in check.details if one.startswith("hidden "))
    page_text = markdown(design_of(loads(one), "rules.yaml", review_text(one, "rules.yaml")))
    assert "1 accepted." in page_text
    assert "Accepted in rules.yaml:7" in page_text


# --- the data ---


def test_read_capacity_from_estimates(good: Design) -> None:
    found = {one.query: one for one in good.reads}
    assert (found["profile"].items, found["profile"].bytes, found["profile"].units) == (1, 300, 0.5)
    assert (found["postsOf"].items, found["postsOf"].units, found["postsOf"].per_second) == (20, 2.5, 25.0)
    assert (found["sessionsOf"].items, found["sessionsOf"].index) == (3, True)
    assert (found["home"].items, found["home"].estimated, found["home"].units) == (None, False, 128.0)


def test_indexes_name_their_queries_and_writers(good: Design) -> None:
    (index,) = good.indexes
    assert (index.queries, index.entities, index.rules, index.needed) == (("sessionsOf",), ("Session",), (), None)


def test_held_rule_writes_nothing() -> None:
    document = changed({"projections/posts/hold": True})
    design = designed(document)
    assert [one.held for one in design.attributes if one.rule == "posts"] == [True]
    assert "not updated: the rule is held" in markdown(design)


def test_dynamodb_charges_the_read_units_of_the_page(place: Place) -> None:
    """DynamoDB Local counts as DynamoDB does."""
    posts = {**GOOD["queries"]["postsOf"], "limit": 15}
    document = changed(
        {
            "entities/Post/index_key": {"GSI1PK": "ALL#{postId|bucket(4)}", "GSI1SK": "{postId}"},
            "queries/postsOf": posts,
            "queries/strong": {**posts, "id": "AP-10", "consistent": True},
            "queries/newest": {**ENTRY, "find": "Post", "order": "postId desc", "limit": 10, "expect": {"bytes": 1000}},
        }
    )
    place.deploy(json.dumps(document))
    index = Template.parse("ALL#{postId|bucket(4)}")
    for number in range(100):
        post = f"p{number:03}"
        keys = {"GSI1PK": index.render({"postId": {"S": post}}.get), "GSI1SK": post}
        place.put("USER#ann", f"POST#{post}", **keys, text="x" * (1000 - 63))
    expected = {one.query: one for one in designed(document).reads}
    assert [one.query for one in expected.values() if one.consistent] == ["strong"]
    for query, parameters in (("postsOf", ["userId=ann"]), ("strong", ["userId=ann"]), ("newest", [])):
        code, answer = place.run("queries", query, *parameters, "--table", place.table)
        assert (code, len(answer["items"])) == (0, expected[query].items)
        assert len(answer["requests"]) == expected[query].requests
        assert answer["readUnits"] == expected[query].units


# --- the page ---


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_rules_have_a_design(path: Path) -> None:
    text = path.read_text()
    rules = loads(text, path.name)
    design = design_of(rules, path.name, review_text(text, path.name))
    found = markdown(design)
    for one in design.patterns:
        assert f"`{one.query.name}`" in found
    assert found.count("\n## ") == 7


def columns(text: str) -> Iterator[tuple[int, int]]:
    """The numbers of cells of each table's head and rows, as GitHub counts them."""
    for block in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        rows = [len(re.split(r"(?<!\\)\|", row)) for row in block.splitlines()]
        yield min(rows), max(rows)


def test_page_has_a_row_for_each_query_and_no_empty_columns(good: Design) -> None:
    found = markdown(good)
    assert "| AP-3 | `home`<br>A user with posts | `User`<br>`Post`<br>read together | `userId` |" in found
    assert "| Query `GSI1` | `GSI1PK = SESSIONS#{userId}` |" in found
    one = markdown(designed({**GOOD, "queries": {"profile": GOOD["queries"]["profile"]}}))
    (head,) = [line for line in one.splitlines() if line.startswith("| ID | Query |")]
    assert ("Filter" in head, "Sort condition" in head) == (False, True)


def test_hostile_names_forge_nothing(tmp_path: Path) -> None:
    text = Path(asked(tmp_path)).read_text()
    rules = loads(text)
    design = design_of(rules, EVIL, review_text(text))
    found = markdown(design)
    harmless(found)
    assert all(low == high for low, high in columns(found))
    outside = re.sub(r"(`+)(?!`).+?(?<!`)\1(?!`)", "", found, flags=re.DOTALL)
    assert re.search(r"(?<!\\)<(?!br>)", outside) is None


def test_code_with_backticks_and_pipes_stays_in_its_cell() -> None:
    document = changed({"entities/Post/index_key": {"GSI1PK": "A`B``|{postId|lower}", "GSI1SK": "`"}})
    found = markdown(designed(document))
    assert "``` A`B``\\|{postId\\|lower} ```" in found or "```A`B``\\|{postId\\|lower}```" in found
    assert "`` ` ``" in found
    assert all(low == high for low, high in columns(found))


# --- the command ---


def test_command_prints_or_writes_the_page(run: Any, tmp_path: Path) -> None:
    rules, target = tmp_path / "rules.yaml", tmp_path / "design"
    rules.write_text(json.dumps(GOOD))
    code, out, err = run("queries", "--rules", str(rules), "--markdown")
    assert (code, err) == (0, "")
    assert out.startswith("# Table design: ")
    assert run("queries", "--rules", str(rules), "--markdown", "-o", str(target)) == (
        0,
        "",
        f"Wrote {target}: 4 queries of rules.yaml.\n",
    )
    assert target.read_text() == out


def test_design_of_a_file_of_queries_has_the_findings_of_the_rules(run: Any, tmp_path: Path) -> None:
    asked = tmp_path / "asked.yaml"
    asked.write_text(json.dumps({"include": ["social"], "queries": {"again": {"get": "User", "by": ["userId"]}}}))
    code, out, _ = run("queries", "--rules", str(asked), "--markdown")
    assert code == 0
    assert "GSI1 has all PostMeta items of one month in one partition" in out
    assert "query again has no id" in out


def test_command_exits_with_1_if_a_query_has_no_answer(run: Any, tmp_path: Path) -> None:
    rules = tmp_path / "rules.yaml"
    queries = {"byTitle": {"find": "Post", "by": ["title"]}}
    rules.write_text(json.dumps({**GOOD, "queries": queries}))
    code, out, _ = run("queries", "--rules", str(rules), "--markdown")
    assert code == 1
    assert "✗ no request" in out


@pytest.mark.parametrize("words", [["-o", "x.md"], ["--markdown", "profile"], ["--markdown", "--json"]])
def test_command_refuses_a_form_with_other_output(run: Any, tmp_path: Path, words: list[str]) -> None:
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps(GOOD))
    code, out, err = run("queries", "--rules", str(rules), *words)
    assert (code, out) == (2, "")
    assert "--markdown" in err
