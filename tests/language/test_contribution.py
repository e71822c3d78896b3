"""The one text that equal contributions have, which DynamoDB compares in conditions."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from projections.language.contribution import (
    ENTRY_BYTES,
    Contributions,
    bytes_at_most,
    canonical_text,
    contributed_bytes,
)
from projections.language.keys import ItemKey
from projections.language.loader import loads
from projections.language.program import Program

_SLOTS = st.dictionaries(st.text(), st.integers(0, 3) | st.text() | st.dictionaries(st.text(), st.text()), max_size=3)
_CONTRIBUTED = st.just({"n": 1}) | _SLOTS
_CONTRIBUTIONS = st.dictionaries(st.text(), st.dictionaries(st.text(), _CONTRIBUTED, max_size=3), max_size=3)


@given(_CONTRIBUTIONS)
def test_the_text_is_json_with_its_names_in_order(contributions: Contributions) -> None:
    """Entries that earlier releases wrote are compared with it."""
    assert canonical_text(contributions) == json.dumps(
        contributions, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )


@given(st.dictionaries(st.text(), st.just({"n": 1}) | st.fixed_dictionaries(
    {"n": st.integers(1, 10**6)},
    optional={
        "=m": st.from_regex(r"-?[0-9]{1,18}(\.[0-9]{1,10})?", fullmatch=True) | st.integers(1, 10**6),
        "#m": st.integers(1, 10**6),
        "+": st.dictionaries(st.text(), st.sampled_from(["", "0123456789abcdef"]), max_size=3),
    },
), max_size=4))  # fmt: skip
def test_the_bytes_of_contributions_are_those_of_the_text_and_of_what_may_be_retracted(targets: Contributions) -> None:
    text = len(canonical_text({"rule": targets}).encode())
    size = contributed_bytes("rule", targets)
    assert text - 2 <= size - len("rule") * len(targets) <= text + 1
    assert size <= bytes_at_most(targets, "rule")
    assert sum(len(f"rule|{target}".encode()) for target in targets) <= size, "what `recent` holds of them"


def test_rules_have_room_in_an_entry_in_the_order_of_the_file() -> None:
    """What one item contributes is a function of that item and the rules alone."""
    program = Program.from_document(
        loads(
            """
table: {key: [PK, SK]}
entities:
  Post: {key: {PK: "POST#{postId}", SK: METADATA}}
  Tag: {key: {PK: "TAG#{tag}", SK: S}, derived: true}
projections:
  small: {from: Post, bind: {tag: all}, aggregate: {into: Tag, set: {all: count}}}
  first: {from: Post, each: {tag: tags, most: 10000}, aggregate: {into: Tag, set: {posts: count}}}
  second: {from: Post, each: {tag: more, most: 10000}, top: {into: Tag, as: newest, by: at, limit: 3, attributes: [at]}}
  third: {from: Post, each: {tag: tags, most: 10000}, aggregate: {into: Tag, set: {reads: sum(reads)}}}
"""
        ).document()
    )

    def contributing(tags: int, more: int) -> tuple[list[str], list[tuple[str, str]]]:
        key = ItemKey("main", "POST#1", "METADATA")
        image = {
            "PK": {"S": key.partition},
            "SK": {"S": "METADATA"},
            "at": {"S": "2026"},
            "tags": {"L": [{"S": f"tag{number:05}"} for number in range(tags)]},
            "more": {"L": [{"S": f"tag{number:05}"} for number in range(more)]},
        }
        found = program.contributions(program.recognise(key, image))
        assert {rule for rule, _, _ in found.payloads} <= found.contributions.keys()
        assert len(canonical_text(found.contributions).encode()) <= ENTRY_BYTES
        return list(found.contributions), list(found.problems)

    assert contributing(1000, 500) == (["small", "first", "second", "third"], [])
    rules, [(rule, reason)] = contributing(2000, 1500)
    assert (rules, rule) == (["small", "first", "third"], "second")
    assert reason.startswith("contributions to 1,500 targets take ")
    assert "; the limit of one item is 190,000 bytes, of which other rules, or versions of them, leave " in reason
    assert [rule for rule, _ in contributing(6000, 10)[1]] == ["first", "third"]
    assert contributing(1000, 500)[1] == []
