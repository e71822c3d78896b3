"""Selections of rules: `--select` by name, tag and owner."""

from __future__ import annotations

from pathlib import Path

import pytest

import projections
from projections.errors import UsageError
from projections.language.loader import loads
from projections.language.models import Rules
from projections.language.ruleset import missing, restricted, selected

ROOT = Path(__file__).parents[2]
RULES = """\
table: {key: [PK, SK]}
entities:
  Like: {key: {PK: "POST#{post}", SK: "LIKE#{user}"}}
  Post: {key: {PK: "POST#{post}", SK: POST}}
  User: {key: {PK: "USER#{author}", SK: USER}}
  Board: {key: {PK: BOARD, SK: "{author}"}, derived: true}
projections:
  likes: {from: Like, tags: [counters, feed], owner: feed-team, aggregate: {into: Post, set: {likes: count}}}
  karma: {from: Post, tags: [counters], aggregate: {into: User, set: {karma: sum(likes)}}}
  board: {from: User, owner: games-team, copy: {into: Board, attributes: [karma]}}
  posts: {from: Post, tags: [feed], hold: true, aggregate: {into: User, set: {posts: count}}}
"""


@pytest.fixture(scope="module")
def document() -> Rules:
    return loads(RULES).completed()


@pytest.mark.parametrize(
    ("terms", "names"),
    [
        ([], ""),
        (["karma"], "karma"),
        (["tag:counters"], "likes karma"),
        (["owner:games-team"], "board"),
        (["posts, board"], "board posts"),
        (["posts", "likes"], "likes posts"),
    ],
)
def test_terms_select_rules_in_the_order_of_the_file(document: Rules, terms: list[str], names: str) -> None:
    assert selected(document, terms) == tuple(names.split())


@pytest.mark.parametrize(
    ("term", "message"),
    [
        ("kama", 'unknown rule "kama" (did you mean "karma"?)'),
        ("xyz", 'unknown rule "xyz"; the rules are likes, karma, board, posts'),
        ("tag:counter", 'no rule has the tag "counter" (did you mean "counters"?)'),
        ("owner:nobody-knows", 'no rule has the owner "nobody-knows"; the owners are feed-team, games-team'),
    ],
)
def test_term_that_selects_nothing_is_a_mistake(document: Rules, term: str, message: str) -> None:
    with pytest.raises(UsageError) as raised:
        selected(document, [term])
    assert str(raised.value) == message


def test_rule_whose_input_is_not_selected_is_named(document: Rules) -> None:
    assert missing(document, ["likes", "karma"]) == []
    assert missing(document, ["karma"]) == [
        "karma reads Post.likes, which rule likes writes. likes is not selected, so its values are not computed: pass "
        "--select likes,karma to run both rules"
    ]


def test_rules_that_are_not_selected_do_not_run() -> None:
    rules = projections.loads(RULES)
    assert rules.only(["tag:counters"]).names == ("likes", "karma")
    assert rules.only([]) is rules
    assert restricted(rules.document, ["board"])["entities"] == rules.document["entities"]
