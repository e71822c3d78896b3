"""All mistakes at once: one message for each, and beside them the findings that no correction can change."""

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
from projections.language.findings import KINDS, Finding
from projections.language.loader import loads
from projections.language.review import reviewed
from projections.language.source import read

ROOT = Path(__file__).resolve().parents[2]
FILES = [
    *sorted((ROOT / "projections/rules").glob("*.yaml")),
    *sorted((ROOT / "tests/simulation/rules").glob("*.yaml")),
]
SECTIONS = ("projections", "projections", "entities", "queries")
LOCAL = {kind.code for kind in KINDS.values() if not kind.depends}
"""Findings that depend only on the parts that they are about."""


@cache
def data_of(path: Path) -> dict[str, Any]:
    return dict(read(path.read_text()).data)


def findings(data: dict[str, Any]) -> tuple[list[Finding], set[tuple[str, str, str, str]]]:
    """The mistakes, and the other findings without their lines."""
    found = reviewed(json.dumps(data)).findings
    others = [one for one in found if one.code != "mistake"]
    return [one for one in found if one.code == "mistake"], {(o.code, o.severity, o.path, o.reason) for o in others}


@cache
def valid(path: Path) -> set[tuple[str, str, str, str]]:
    mistakes, others = findings(data_of(path))
    assert mistakes == []
    return others


def breaks(seed: int, count: int) -> Iterator[tuple[Path, Broken]]:
    random = Random(seed)
    for _ in range(count):
        path = random.choice(FILES)
        section = random.choice([one for one in SECTIONS if data_of(path).get(one)])
        if one := broken(random, data_of(path), section):
            yield path, one


def check_one(path: Path, one: Broken) -> int:
    """Check the findings of broken data, and return how many of the valid file are reported."""
    what = f"{path.stem}: {one.section}.{one.name}: {one.how}"
    mistakes, others = findings(one.data)
    assert len(mistakes) == 1, (what, [str(mistake) for mistake in mistakes])
    assert others <= valid(path), what
    local = {f for f in valid(path) if f[0] in LOCAL and not _is_within(f[2], one)}
    assert local <= others, (what, local - others)
    return len(others)


def _is_within(path: str, one: Broken) -> bool:
    """Return whether a path is in the broken part, or in a rule that needs the broken entity."""
    section, _, rest = path.partition(".")
    name = rest.split(".")[0].split("[")[0]
    if (section, name) == (one.section, one.name.removesuffix("Twin")):
        return True
    part = one.data.get(section, {}).get(name) if one.section == "entities" else None
    return isinstance(part, dict) and one.name.removesuffix("Twin") in json.dumps(part)


def test_one_mistake_is_one_message_and_no_finding_is_new() -> None:
    checked = [check_one(path, one) for path, one in breaks(1, 70)]
    assert len(checked) > 40
    assert sum(checked) > 20


@pytest.mark.deep
def test_one_mistake_is_one_message_in_many_rule_files() -> None:
    assert sum(check_one(path, one) for path, one in breaks(2, 500)) > 150


def test_two_independent_mistakes_are_both_reported() -> None:
    random, checked = Random(3), 0
    for path, first in breaks(4, 90):
        rest = {name: part for name, part in first.data["projections"].items() if name != first.name}
        if first.section != "projections" or not rest or "duplicated" in first.how:
            continue
        second = broken(random, first.data, "projections")
        if second is None or second.name == first.name or "duplicated" in second.how:
            continue
        places = {one.path.split(".")[1].split("[")[0] for one in findings(second.data)[0]}
        assert places == {first.name, second.name}, (path.stem, first.how, second.how)
        assert len(findings(second.data)[0]) == 2
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
        f"{one.path}: {one.severity}: {one.reason}" for one in reviewed(base + rules).findings if one.code != "mistake"
    ] + [f"{one.path}: {one.reason}" for one in reviewed(base + rules).findings if one.code == "mistake"]


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


def test_findings_of_other_parts_are_reported_beside_a_mistake() -> None:
    assert [one.split(": ")[:2] for one in messages(HOT + "  r: {from: User, top: {into: Meta}}\n")] == [
        ["projections.hot.index.GSI1PK", "warning"],
        ["projections.r.top", "needs `as`, `by`, `limit` and `attributes`"],
    ]


READS = "  r: {from: Meta, where: {author: [a]}, index: {GSI1PK: 'A#{post}', GSI1SK: '{post}'}}\n"


@pytest.mark.parametrize(
    ("lost", "reported"),
    [
        ("  l: {from: User, aggregate: {into: Meta, set: {author: cuont}}}\n", False),
        ("  l: {from: User, aggregate: {set: {author: count}}}\n", False),
        ("  l: {from: User, aggregate: {into: Mete, set: {author: count}}}\n", False),
        ("  l: {from: Post, bind: {tag: '{a}'}, aggregate: {into: Tag, set: {author: cuont}}}\n", True),
    ],
    ids=["writes it", "could write it", "unknown target", "writes others"],
)
def test_a_missing_writer_is_only_reported_if_no_broken_rule_can_be_the_writer(lost: str, reported: bool) -> None:
    found = messages(READS + lost)
    assert any("no rule writes author" in one for one in found) is reported
    assert len([one for one in found if one.startswith("projections.l.")]) == 1


def test_nothing_is_said_about_the_creator_of_an_entity_whose_rule_is_broken() -> None:
    assert messages("", BASE.replace("count}}", "cuont}}"))[0].startswith(
        "projections.tags.aggregate.set.posts: unknown"
    )
    assert len(messages("", BASE.replace("count}}", "cuont}}"))) == 1
    other = (
        BASE.replace("  meta:", "  Lost: {key: {PK: 'LOST#{x}', SK: L}, derived: true}\n  meta:")
        .replace("projections:\n  Lost", "  Lost")
        .replace("  meta:", "projections:\n  meta:")
    )
    found = messages("", other.replace("[title]", "[title, title]"))
    assert [one.split(":")[0] for one in found] == ["entities.Lost.derived", "projections.meta.copy.attributes[1]"]


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
