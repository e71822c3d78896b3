"""Findings about queries: the example of each kind has it, and the nearest rules do not."""

from __future__ import annotations

import json

import pytest
from emulators import ROOT

from projections.language.review import review_text
from tests.yaml_text import yaml_data

EXAMPLES = yaml_data((ROOT / "tests/docs/findings.yaml").read_text(encoding="utf-8"))["rules"]

EXACT: list[tuple[str, str, tuple[tuple[str, str], ...]]] = [
    # code; place and severity in the example; the changes after which there is no finding
    (
        "5:3: queries.byTopic: warning [unanswered-query]",
        "only a scan could answer it: the partition key of the table, PK = USER#{user}, needs user "
        "→ add the index GSI1",
        (("[topic], order: createdAt desc", "[user], order: post desc"),),
    ),
    (
        "8:33: queries.meta.consistent: note [consistent-read]",
        "rule meta writes Meta items after the application's write",
        ((", consistent: true", ""),),
    ),
    (
        "5:3: queries.drafts: warning [filtered-query]",
        'the filter keeps only items where state is "draft". Of 200 items read, 98% are discarded',
        ((", where: {state: [draft]}, expect: {items: 5, scanned: 200}", ""),),
    ),
    (
        "7:3: queries.newest: note [several-requests]",
        "takes one request for each of the 4 buckets of post",
        (("POST#{post|bucket(4)}", "POST#{user}"), ("find: Post, order", "find: Post, by: [user], order")),
    ),
    (
        "1:34: table.indexes.GSI1: note [unused-index]",
        "no query of this file reads GSI1",
        (("find: Post, by: [user]", "find: Post, by: [post], where: {title: [{exists: true}]}"),),
    ),
    (
        "5:41: projections.located.index.GSI1PK: note [few-partitions]",
        "GSI1 has Shop items of one country in one partition",
        (("COUNTRY#{country}", "CITY#{city}"), ('GSI1SK: "{city}"', 'GSI1SK: "{country}"')),
    ),
]


@pytest.mark.parametrize(("begins", "words", "changes"), EXACT, ids=lambda one: one if isinstance(one, str) else "")
def test_the_example_has_the_finding_and_the_nearest_rules_do_not(
    begins: str, words: str, changes: tuple[tuple[str, str], ...]
) -> None:
    code = begins.partition("[")[2].rstrip("]")
    text = EXAMPLES[code]["example"]
    found = [str(one).removeprefix("<rules>:") for one in review_text(text).findings]
    assert found[0].startswith(begins)
    assert words in found[0]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    assert [one.code for one in review_text(text).findings] == []


DERIVED = """\
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post}
  Meta: {key: {PK: "POST#{post}", SK: META}}
projections:
  meta: {from: Post, copy: {into: Meta, attributes: [title, state]}}
queries:
  one: {get: Meta, by: [post], attributes: [title]}
"""


def test_names_that_no_rule_writes_are_reported_with_the_nearest_one() -> None:
    assert review_text(DERIVED).findings == ()
    (one,) = review_text(DERIVED.replace("[title]}\n", "[titel]}\n")).findings
    assert str(one) == (
        "<rules>:8:45: queries.one.attributes[0]: warning [unknown-attribute]: Meta items have no attribute titel: only "
        'rules write them, and no rule writes titel → correct the name (did you mean "title"?)'
    )


def test_rules_without_queries_have_no_findings_about_them() -> None:
    text = DERIVED.partition("queries:")[0].replace("[PK, SK]}", "[PK, SK], indexes: {GSI1: [GSI1PK]}}")
    static = '  byPost: {from: Post, index: {GSI1PK: "POST#{post}"}}\n'
    assert review_text(text + static).findings == ()
    (one,) = review_text(text + static + "queries:\n  all: {find: Post, by: [user]}\n").findings
    assert one.code == "unused-index"


def test_an_index_through_which_an_embed_rule_finds_children_is_used() -> None:
    text = """\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK]}}
entities:
  User: {key: {PK: "USER#{user}", SK: PROFILE}}
  Post: {key: {PK: "POST#{post}", SK: POST}, index_key: {GSI1PK: "USER#{author}"}}
projections:
  names: {from: User, embed: {into: Post, match: {author: "{user}"}, attributes: {authorName: name}}}
queries:
  post: {get: Post, by: [post]}
"""
    assert "unused-index" not in [one.code for one in review_text(text).findings]


def test_a_comment_accepts_a_query_that_a_scan_answers() -> None:
    text = DERIVED + "  # check: ignore unanswered-query\n  export: {find: Post}\n"
    assert [one.code for one in review_text(text).findings] == []


def test_what_is_offered_is_valid_json_and_yaml_beside_the_finding() -> None:
    (one,) = review_text(DERIVED + "  all: {find: Post}\n").findings
    assert one.paste.splitlines()[0] == "table:"
    assert str(one).endswith("\n".join("    " + line for line in one.paste.splitlines()))
    assert json.loads(json.dumps(one.paste)) == one.paste
