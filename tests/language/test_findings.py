"""Findings: each is shown by rules that have it, and by the nearest that do not."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from projections.language.findings.kinds import CODES
from projections.language.review import Review, review_text
from tests.yaml_text import yaml_data

ROOT = Path(__file__).resolve().parents[2]
CASES = yaml_data((Path(__file__).parent / "cases" / "findings.yaml").read_text())

BASE = """\
tables:
  main:
    key: [PK, SK]
    indexes: {GSI1: [GSI1PK, GSI1SK], Score: {board: S, score: N}, Flat: [flat]}
entities:
  User:   {key: {PK: "USER#{user}", SK: PROFILE}}
  Post:   {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post}
  Like:   {key: {PK: "POST#{post}", SK: "LIKE#{user}"}}
  Meta:   {key: {PK: "POST#{post}", SK: META}}
  Tag:    {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
  Total:  {key: {PK: TOTAL, SK: "{what}"}}
  Event:  {key: {PK: "EVENT#{event}", SK: E}}
  Sorted: {key: {PK: "SORTED#{post}", SK: "{rank}"}}
projections:
  meta: {from: Post, copy: {into: Meta, attributes: [title, state, price]}}
  likes: {from: Like, aggregate: {into: Meta, set: {likes: count, stars: avg(stars), debt: {sum: -owed}}}}
  tags: {from: Post, bind: {tag: "{topic}"}, aggregate: {into: Tag, set: {posts: count}}}
"""


def found(rules: str, entity: str = "", index: str = "", more: str = "") -> list[str]:
    """`code severity reason → way out` of what is found in the base with this index, this entity, these rules and `more`.

    A § in these is not read; it marks the place of the one finding, which is checked.
    """
    text = BASE.replace("projections:\n", f"  {entity}\nprojections:\n")
    text = text.replace("GSI1: [GSI1PK, GSI1SK]", index or "GSI1: [GSI1PK, GSI1SK]")
    text += "".join(f"  {line}\n" for line in rules.strip().splitlines()) + more
    before, mark, after = text.partition("§")
    result = review_text(before + after)
    assert result.rules is not None, "\n".join(map(str, result.findings))
    if mark:
        place = before.count("\n") + 1, len(before) - before.rfind("\n")
        assert [(one.line, one.column) for one in result.findings] == [place]
    return [f"{one.code} {one.severity} {one.reason} → {one.instead}" for one in result.findings]


def test_the_base_of_these_tests_has_no_findings() -> None:
    assert found("") == []


@pytest.mark.parametrize("case", CASES["found"].values(), ids=CASES["found"])
def test_a_finding_names_place_reason_and_way_out(case: dict[str, str]) -> None:
    given = [case.get(part, "") for part in ("rules", "entity", "index", "more")]
    assert "§" in "".join(given)
    assert found(*given) == [case["finding"]]


@pytest.mark.parametrize("case", CASES["not found"].values(), ids=CASES["not found"])
def test_the_nearest_rules_without_a_finding_have_none(case: dict[str, str]) -> None:
    assert found(*(case.get(part, "") for part in ("rules", "entity", "index", "more"))) == []


@pytest.mark.parametrize(
    ("global_", "local", "finding"),
    [
        (20, 5, None),
        (21, 0, "error [many-indexes]: the table has 21 global indexes, and DynamoDB creates at most 20"),
        (0, 6, "error [many-indexes]: the table has 6 local indexes, and DynamoDB creates at most 5"),
    ],
)
def test_more_indexes_than_a_table_can_have_are_an_error(global_: int, local: int, finding: str | None) -> None:
    indexes = [f"G{number}: [g{number}]" for number in range(global_)]
    indexes += [f"L{number}: {{sort: l{number}, local: true}}" for number in range(local)]
    text = f'table: {{key: [PK, SK], indexes: {{{", ".join(indexes)}}}}}\nentities: {{A: {{key: {{PK: "{{a}}", SK: A}}}}}}\n'
    many = [str(one) for one in review_text(text).findings if one.code == "many-indexes"]
    assert len(many) == (finding is not None)
    assert finding is None or f"table.indexes: {finding}" in many[0]


EXPIRY = """\
table: {{key: [PK, SK]{ttl}}}
entities:
  Session: {{key: {{PK: "SESSION#{{session}}", SK: S}}{expires}}}
  User: {{key: {{PK: "USER#{{user}}", SK: U}}}}
  Copy: {{key: {{PK: "COPY#{{session}}", SK: C}}}}
projections:
  count: {{from: Session{expired}, aggregate: {{into: User, set: {{n: count}}}}}}
"""


def expiry(ttl: str, expires: str, expired: str, more: str = "") -> list[str]:
    text = EXPIRY.format(ttl=ttl, expires=expires, expired=expired) + more
    result = review_text(text)
    assert result.rules is not None, result.findings
    return [str(one).removeprefix("<rules>:") for one in result.findings]


def test_a_table_with_ttl_whose_entities_do_not_expire() -> None:
    assert expiry(", ttl: gone", "", "") == [
        "1:24: table.ttl: note [expiry-undecided]: no entity has `expires`, so a deletion by gone counts like any other: "
        "the item's contributions are retracted → if items of Session have gone, add `expires: true` to the entity, and "
        "`expired: keep` or `expired: retract` to its rules"
    ]
    assert expiry(", ttl: gone", ", expires: true", ", expired: retract") == []
    assert expiry("", "", "") == []


def test_what_expires_and_stays_counted_can_be_repeated_by_who_sets_the_ttl() -> None:
    assert expiry(", ttl: gone", ", expires: true", ", expired: keep") == [
        "1:24: table.ttl: note [kept-expiry]: expired items of Session stay counted (rule count): a user who sets gone can "
        "let an item expire and create it again, and it counts each time → if users can set it, use `expired: retract`; "
        "otherwise accept this: `# check: ignore kept-expiry`"
    ]
    rule = "  ttl: {from: Session, compute: {set: {gone: at + 3600}}}\n"
    assert expiry(", ttl: gone", ", expires: true", ", expired: keep", rule) == []


def test_items_that_expire_in_a_table_that_has_no_attribute_for_it() -> None:
    assert expiry("", ", expires: true", ", expired: keep") == [
        "3:52: entities.Session.expires: warning [no-ttl]: items of Session expire, and their table has no `ttl` "
        "→ add `ttl: expiresAt` to the table, with the name of the attribute"
    ]


@pytest.mark.parametrize("attributes", ["[a, gone]", "all", "{gone: gone}"])
def test_a_copy_that_expires_by_itself(attributes: str) -> None:
    rule = "  r: {{from: Session, expired: retract, copy: {{into: Copy, attributes: {}}}}}\n".format
    (one,) = expiry(", ttl: gone", ", expires: true", ", expired: retract", rule(attributes))
    assert one.partition(": ")[0].startswith("8:")
    assert "note [derived-ttl]: if DynamoDB deletes a Copy by gone, the rules create it again with the same gone" in one
    assert expiry(", ttl: gone", ", expires: true", ", expired: retract", rule("[a]")) == []


def test_an_index_that_is_the_table_turned_round() -> None:
    text = """\
table: {key: [PK, SK], indexes: {Inverted: [SK, PK]}}
entities:
  Post: {key: {PK: "USER#{user}", SK: "POST#{post}"}, id: post}
  Meta: {key: {PK: "POST#{post}", SK: META}}
projections:
  meta: {from: Post, copy: {into: Meta, attributes: [title]}}
"""
    (one,) = review_text(text).findings
    assert str(one).startswith(
        "<rules>:4:39: entities.Meta.key.SK: note [hot-partition]: Inverted has the keys of the table in reverse, and "
        'every Meta has SK "META": all are in one partition of it'
    )
    assert review_text(text.replace("SK: META", 'SK: "META#{post}"')).findings == ()


SHARED = """\
table: {key: [PK, SK]}
entities:
  Like: {key: {PK: "USER#{user}", SK: "LIKE#{post}"}}
  Note: {key: {PK: "POST#{note}", SK: INFO}, match: {type: Note}}
  Stats: {key: {PK: "POST#{post}", SK: "{part}"}, match: {type: Stats}, derived: true}
projections:
  likes: {from: Like, bind: {part: INFO}, aggregate: {into: Stats, set: {likes: count}}}
"""


def test_items_that_rules_make_under_keys_of_what_the_application_writes() -> None:
    (one,) = review_text(SHARED).findings
    assert str(one).startswith(
        "<rules>:5:3: entities.Stats: warning [shared-key]: rules create Stats items, and the application "
    )
    assert 'may have an item of Note under the same key, such as PK "POST#' in str(one)
    assert str(one).endswith(
        ": then no Stats item is created until that item is removed (`occupied` in the "
        "quarantine and in `verify`) → give Stats items keys that no Note item has"
    )
    assert review_text(SHARED.replace('SK: "{part}"', "SK: STATS").replace("bind: {part: INFO}, ", "")).findings == ()
    alone = SHARED.replace(", derived: true", "")
    assert "shared-key" not in [finding.code for finding in review_text(alone).findings], "the application makes both"


def test_every_finding_there_can_be_is_shown_here() -> None:
    shown = {case["finding"].split()[0] for case in CASES["found"].values()}
    text = Path(__file__).read_text() + Path(__file__).with_name("test_query_findings.py").read_text()
    missing = [code for code in CODES if code not in shown and f"[{code}]" not in text]
    assert missing == [], "add a case under `found` in tests/language/cases/findings.yaml"


# --- mistakes and findings together ---


def test_mistakes_are_findings_of_severity_error() -> None:
    result = review_text(BASE + "  r: {from: Posts, copy: {into: Meta, attributes: [a]}}\n", "f")
    assert result.rules is None
    assert [str(one) for one in result.findings] == [
        f'f:{FIRST}:13: projections.r.from: error [mistake]: unknown entity "Posts" (did you mean "Post"?)'
    ]
    assert (result.findings[0].rule, result.findings[0].severity) == ("r", "error")


@pytest.mark.parametrize("text", ["", "a: [", "[1]"])
def test_a_file_that_is_none_is_one_finding(text: str) -> None:
    (one,) = review_text(text).findings
    assert (one.severity, one.code) == ("error", "mistake")


# --- accepted findings ---

HOT = "  r: {from: Meta, index: {GSI1PK: ALL, GSI1SK: '{post}'}}"


FIRST = BASE.count("\n") + 1


def codes(result: Review) -> list[str]:
    return [f"{one.line - FIRST + 1}:{one.column} {one.code}" for one in result.findings]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([HOT + " # check: ignore hot-partition"], []),
        (["  # check: ignore hot-partition", "  # few writes", HOT], []),
        (["  # check: ignore hot-group, hot-partition", HOT], ["1:3 unused-ignore"]),
        ([HOT, "  # check: ignore hot-partition"], ["1:35 hot-partition", "2:3 unused-ignore"]),
        (["  # check: ignore hot-partition", "", HOT], []),
        (["  # check: ignore all", HOT], ["1:3 unused-ignore", "2:35 hot-partition"]),
    ],
)
def test_a_comment_accepts_a_finding_on_its_line_or_the_next(lines: list[str], expected: list[str]) -> None:
    assert codes(review_text(BASE + "\n".join(lines) + "\n")) == expected


def test_an_error_cannot_be_accepted() -> None:
    text = BASE + f"  r: {{from: Event, index: {{flat: '{'x' * 2049}{{event}}'}}}} # check: ignore long-key\n"
    assert codes(review_text(text)) == ["1:34 long-key", "1:2095 unused-ignore"]


def test_a_comment_that_accepts_nothing_is_reported() -> None:
    (one,) = review_text(BASE + "  # check: ignore hot-partitions\n").findings
    assert str(one) == (
        f'<rules>:{FIRST}:3: (comment): note [unused-ignore]: unknown finding "hot-partitions" '
        '(did you mean "hot-partition"?) → correct the code, which docs/findings.md explains, or remove the comment'
    )


# --- places ---


def _files() -> Iterator[str]:
    for case in CASES["found"].values():
        entity, rules = case.get("entity", ""), case["rules"].splitlines()
        text = BASE.replace("projections:\n", f"  {entity}\nprojections:\n")
        yield (text + "".join(f"  {line}\n" for line in rules)).replace("§", "")
    for path in json.loads((ROOT / "tests/goldens/findings.json").read_text()):
        yield (ROOT / path).read_text()


FILES = list(_files())


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A rule file with findings, some of its rules taken out and the rest written in another way."""
    data = yaml_data(draw(st.sampled_from(FILES)))
    names = list(data["projections"])
    for name in draw(st.sets(st.sampled_from(names), max_size=len(names) - 1)):
        del data["projections"][name]
    order = draw(st.permutations(["projections", *(key for key in data if key != "projections")]))
    data = {key: data[key] for key in order}
    if draw(st.booleans()):
        return json.dumps(data, indent=draw(st.sampled_from([None, 1, 4])), ensure_ascii=draw(st.booleans()))
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = draw(st.sampled_from([True, False, None]))
    yaml.width = draw(st.sampled_from([40, 100, 4096]))
    yaml.indent = draw(st.integers(2, 7))
    out = io.StringIO()
    yaml.dump(data, out)
    lines = out.getvalue().splitlines()
    if yaml.width == 4096:  # no text goes over several lines
        lines = ["\n" * draw(st.integers(0, 2)) + "# Größe 🎲\n" + line for line in lines]
    return "\n".join(lines)


@settings(max_examples=25)
@given(texts())
def test_the_place_of_every_finding_exists_and_equals_its_path(text: str) -> None:
    """Where it is, another reader of YAML finds the name or the value that the path leads to."""
    lines = text.splitlines()
    for one in review_text(text).findings:
        found: Any = YAML().load(text)
        *steps, last = [part.strip(".") for part in re.findall(r"\[\d+\]|[^.\[]+", one.path)]
        for step in steps:
            found = found[int(step[1:-1]) if step.startswith("[") else step]
        places = [found.lc.value(last)] if isinstance(found, dict) else [found.lc.item(int(last[1:-1]))]
        if isinstance(found, dict):
            places.append(found.lc.key(last))
        place = one.line - 1, one.column - 1
        if place not in places:  # inside a template or a measure, at a variable
            line, column = places[0]
            assert line == place[0]
            assert column < place[1]
            assert lines[line][place[1] - 1] in "{( *"
        assert 0 <= place[1] < len(lines[place[0]])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{score|pad(8)}", ["{score|pad(8)} has leading zeros for small values"]),
        ("{score|invert(8)}", ["{score|invert(8)} has leading zeros for small values"]),
        ("{score}", []),
    ],
)
def test_padded_text_for_a_numeric_key_of_a_target_is_a_warning(text: str, expected: list[str]) -> None:
    result = review_text(
        "table: {key: {PK: S, SK: N}}\n"
        'entities: {A: {key: {PK: "A#{a}", SK: "{n}"}}, B: {key: {PK: "B#{a}", SK: "{rank}"}, derived: true}}\n'
        f'projections: {{r: {{from: A, bind: {{rank: "{text}"}}, aggregate: {{into: B, set: {{n: count}}}}}}}}\n'
    )
    assert result.rules is not None
    found = list(map(str, result.findings))
    assert len(found) == len(expected)
    assert all("warning [padded-number]" in one and words in one for one, words in zip(found, expected, strict=True))
