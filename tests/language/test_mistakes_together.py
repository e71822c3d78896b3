"""All mistakes at once: one message for each, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from breaking import Broken, broken

from projections.errors import RulesError
from projections.language.findings.kinds import Finding
from projections.language.loader import loads
from projections.language.review import review_text
from projections.language.source import read

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    *sorted((ROOT / "projections/rules").glob("*.yaml")),
    *sorted((ROOT / "tests/simulation/rules").glob("*.yaml")),
]
SECTIONS = ("projections", "projections", "entities", "queries")


@cache
def data_of(path: Path) -> dict[str, Any]:
    return dict(read(path.read_text()).data)


def mistakes(data: dict[str, Any]) -> list[Finding]:
    found = [*review_text(json.dumps(data)).findings]
    assert {one.code for one in found} <= {"mistake"}
    return found


def breaks(seed: int, count: int) -> Iterator[tuple[Path, Broken]]:
    random = Random(seed)
    for _ in range(count):
        path = random.choice(FILES)
        section = random.choice([one for one in SECTIONS if data_of(path).get(one)])
        if one := broken(random, data_of(path), section):
            yield path, one


def check_one(path: Path, one: Broken) -> None:
    found = mistakes(one.data)
    assert len(found) == 1, (path.stem, one.section, one.name, one.how, [str(mistake) for mistake in found])


def test_one_mistake_is_one_message() -> None:
    for path, one in breaks(1, 70):
        check_one(path, one)


@pytest.mark.deep
def test_one_mistake_is_one_message_in_many_rule_files() -> None:
    for path, one in breaks(2, 500):
        check_one(path, one)


def test_two_independent_mistakes_are_both_reported() -> None:
    random, checked = Random(3), 0
    for path, first in breaks(4, 90):
        rest = {name: part for name, part in first.data["projections"].items() if name != first.name}
        if first.section != "projections" or not rest or "duplicated" in first.how:
            continue
        second = broken(random, first.data, "projections")
        if second is None or second.name == first.name or "duplicated" in second.how:
            continue
        places = {one.path.split(".")[1].split("[")[0] for one in mistakes(second.data)}
        assert places == {first.name, second.name}, (path.stem, first.how, second.how)
        assert len(mistakes(second.data)) == 2
        checked += 1
    assert checked > 15


BASE = """\
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  User: {key: {PK: "USER#{user}", SK: PROFILE}}
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post}
  Meta: {key: {PK: "POST#{post}", SK: META}}
  Tag:  {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
projections:
  meta: {from: Post, copy: {into: Meta, attributes: [title]}}
  tags: {from: Post, bind: {tag: "{topic}"}, aggregate: {into: Tag, set: {posts: count}}}
"""


def messages(rules: str, base: str = BASE) -> list[str]:
    return [
        f"{one.path}: {one.severity}: {one.reason}"
        for one in review_text(base + rules).findings
        if one.code != "mistake"
    ] + [f"{one.path}: {one.reason}" for one in review_text(base + rules).findings if one.code == "mistake"]


def test_a_misspelt_name_is_only_guessed_if_its_value_fits() -> None:
    """`embad: false` is not an embed."""
    (one,) = messages("  r: {from: Post, embad: false, index: {GSI1PK: 'A#{user}', GSI1SK: '{post}'}}\n")
    assert one.startswith("projections.r.embad: unknown: expected from, where, bind, each,")
    (one,) = messages("  r: {from: Post, indxe: {GSI1PK: 'A#{user}', GSI1SK: '{post}'}}\n")
    assert one == 'projections.r.indxe: unknown (did you mean "index"?)'


def test_an_unknown_name_beside_a_missing_one_is_one_message() -> None:
    (one,) = messages("  r: {source: Post, index: {GSI1PK: 'A#{user}', GSI1SK: '{post}'}}\n")
    assert one.startswith("projections.r.source: unknown: expected from, where,")
    assert one.endswith("(`from` is missing)")


def test_a_comma_that_ends_a_value_without_quotes_is_explained() -> None:
    *_, last = messages("  r: {from: Post, compute: {set: {free: 1}, coalesce(held, 0)}}\n")
    assert last.endswith("Inside { }, a comma ends a value that has no quotes")


def test_a_parenthesis_that_is_not_closed_is_written_out() -> None:
    text = "  r:\n    from: Post\n    aggregate:\n      into: Meta\n      set:\n        spent: sum(price\n"
    (one,) = messages(text)
    assert "the parenthesis is not closed: write sum(price); " in one
    assert "comma" not in one
    found = messages("  r: {from: Post, aggregate: {into: Meta, set: {stars: avg(stars, 2)}}}\n")
    assert [("a comma ends a value that has no quotes" in one) for one in found] == [False, True]


def test_an_embed_without_match_has_an_example_with_the_key_of_its_parent() -> None:
    (one,) = messages("  r: {from: User, embed: {into: Post, attributes: [name]}}\n")
    assert one == 'projections.r.embed: needs `match`, such as match: {user: "{user}"}'
    first, *_ = messages("  r: {from: Usr, embed: {into: Post, attributes: [name]}}\n")
    assert "such as" not in first


def test_a_rule_of_a_repeated_name_may_create_items() -> None:
    found = messages("  meta: {from: Post, bind: {tag: '{topic}'}, aggregate: {into: New, set: {n: count}}}\n", NEW)
    assert found == ["projections.meta: is defined twice, first on line 9"]


NEW = BASE.replace("projections:", '  New:  {key: {PK: "NEW#{tag}", SK: STATS}, derived: true}\nprojections:')


def test_a_tab_is_explained() -> None:
    with pytest.raises(RulesError, match=r"cannot start any token \(use spaces\)"):
        loads("table:\n\tkey: [PK]\n")


HOT = "  hot: {from: Post, index: {GSI1PK: ALL, GSI1SK: '{post}'}}\n"


def test_a_file_with_a_mistake_has_no_findings() -> None:
    assert [one.split(": ")[:2] for one in messages(HOT + "  r: {from: User, top: {into: Meta}}\n")] == [
        ["projections.r.top", "needs `as`, `by`, `limit` and `attributes`"]
    ]


def test_nothing_is_said_about_the_creator_of_an_entity_if_a_rule_is_broken() -> None:
    (one,) = messages("", BASE.replace("count}}", "cuont}}"))
    assert one.startswith("projections.tags.aggregate.set.posts: unknown")


def test_a_mistake_in_a_query_hides_none_in_rules() -> None:
    found = messages(
        "queries: {q: {find: Posts, by: [post]}}\n", BASE.replace("into: Tag", "into: Meta").replace("{tag", "{post")
    )
    assert sorted(one.split(":")[0] for one in found) == ["entities.Tag.derived", "queries.q.find"]


def test_two_writers_are_one_mistake() -> None:
    (one,) = messages(
        "  again: {from: Post, latest: {into: Tag, by: a, attributes: [posts, b]}, bind: {tag: '{topic}'}}\n"
    )
    assert one.startswith("projections.again.latest.attributes[0]: Tag.posts is already written by rule tags")
    (one,) = messages("  again: {from: User, bind: {post: '{p}'}, copy: {into: Meta, attributes: [title]}}\n")
    assert one.startswith("projections.again.copy.into: Meta is already created by rule meta")


def test_comments_of_parts_with_mistakes_accept_findings_that_come_later() -> None:
    accepted = HOT.rstrip() + " # check: ignore hot-partition\n"
    assert messages(accepted) == []
    (one,) = messages(accepted.replace("from: Post", "from: Pots"))
    assert "unknown entity" in one
    (one,) = messages(accepted + "  r: {from: Pots, index: {GSI1PK: 'a{b}', GSI1SK: '{b}'}}\n")
    assert "unknown entity" in one


def test_a_get_by_a_part_of_the_key_is_a_mistake_unless_it_has_the_id() -> None:
    query = "queries: {{q: {{get: Post, by: [{}]}}}}\n".format
    (one,) = [one for one in messages(query("user")) if one.startswith("queries.q")]
    assert one == "queries.q.by: several Post items can have the same user: add post, or write `find`"
    for names in ("post", "user, post"):
        assert [one for one in messages(query(names)) if one.startswith("queries.q.by")] == []
