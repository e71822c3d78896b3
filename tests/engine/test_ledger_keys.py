"""Keys of ledger items: readable or hashed, within DynamoDB's limits, and never the same for two texts."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.engine.ledger_items import (
    entry_key,
    fence_key,
    group_key,
    member_key,
    member_order,
    shared_head,
    whole_key,
)
from projections.language.keys import PARTITION_KEY_BYTES, SORT_KEY_BYTES, ItemKey, encode_key
from tests.operations.backfill.stage import Stage
from tests.operations.verify_scene import drifts

SAME = settings(max_examples=100, derandomize=True, database=None)

CHARACTERS = st.sampled_from("a#|\u00e9\u20ac\U0001f600")
"""Of one to four bytes in UTF-8."""


@st.composite
def long_texts(draw: st.DrawFn) -> str:
    """Texts around the lengths where keys are hashed."""
    filler = draw(CHARACTERS) * (draw(st.integers(880, 1620)) // 4)
    return (
        draw(st.text(CHARACTERS, max_size=8)) + filler * draw(st.integers(1, 4)) + draw(st.text(CHARACTERS, max_size=8))
    )


@SAME
@given(text=long_texts())
def test_a_hashed_key_is_never_the_readable_key_of_another_item(text: str) -> None:
    for prefix, key in (("E|", entry_key(text)), ("F|r|", fence_key("r", text)), ("G|r|", group_key("r", text))):
        assert len(key.partition.encode()) <= PARTITION_KEY_BYTES
        if key.partition == prefix + text:
            assert whole_key(key, text) == {}
            continue
        assert whole_key(key, text) == {"key": {"S": text}}
        # what somebody may name an item who knows how keys are hashed
        rival = key.partition.removeprefix(prefix)
        assert entry_key(rival) != entry_key(text)
        assert fence_key("r", rival) != fence_key("r", text)
        assert group_key("r", rival) != group_key("r", text)


@SAME
@given(text=long_texts())
def test_a_hashed_member_key_is_never_the_readable_key_of_another_member(text: str) -> None:
    key = member_key("r", "t", "s|", text)
    assert len((key.sort or "").encode()) <= SORT_KEY_BYTES
    rival = (key.sort or "").removeprefix("s|")
    assert rival == text or member_key("r", "t", "s|", rival) != key


@SAME
@given(one=long_texts(), other=long_texts())
def test_hashed_sort_keys_keep_their_order_up_to_the_cut(one: str, other: str) -> None:
    first, second = sorted([one, other], key=str.encode)
    keys = [(member_key("r", "t", "s|", text).sort or "").encode() for text in (first, second)]
    most = 900
    if first.encode()[:most] != second.encode()[:most]:
        assert keys[0] < keys[1]
    assert all(key.startswith(b"s|") for key in keys)


PARTS = st.builds(
    lambda filler, many, rest: filler * many + rest,
    st.sampled_from("a\u00e9\u20ac\U0001f600"),
    st.sampled_from((0, 0, 200, 230, 231, 232, 300, 460, 461, 462, 930, 931, 932, 950)),
    st.text(st.sampled_from("a~!|%#\0\x01\x7f27C\u00e9\u20ac\U0001f600"), max_size=6),
)
"""Parts of source keys with everything that is escaped, some around the length where keys of members are hashed."""


@SAME
@given(data=st.data())
def test_members_are_in_the_order_of_the_texts_of_source_keys(data: st.DataObject) -> None:
    """By sort key alone, except that those with the same head are put in order by what they hold."""
    prefix = data.draw(PARTS)
    keys = [ItemKey("main", prefix + data.draw(PARTS), data.draw(PARTS)) for _ in range(6)]
    positions = data.draw(st.sampled_from(("", " 000001")))
    found: dict[str, ItemKey] = {}
    held = {}
    for key in keys:
        source = encode_key(key)
        sort = member_key("r", "t", f"s|n2501!{positions}", source).sort or ""
        assert len(sort.encode()) <= SORT_KEY_BYTES
        assert found.setdefault(sort, key) == key
        held[key] = {"sk": {"S": sort}, "s": {"S": source}, "o": {"S": "n2501!"}}
    right = sorted(held, key=lambda key: ("|".join(part or "" for part in key), key.partition))
    assert sorted(held, key=lambda key: member_order(held[key])) == right
    sorts = [held[key]["sk"]["S"] for key in right]
    for one, other in pairwise(sorts):
        head = shared_head(one)
        assert one < other or (head is not None and head == shared_head(other))


@pytest.mark.parametrize("text", ["x" * 1000, pytest.param("x" * 939 + "\u20ac" * 30, marks=pytest.mark.deep)])
def test_ties_of_long_keys_are_broken_by_the_whole_key(text: str) -> None:
    """In every place that reads members: publishes, claims, `verify` and the oracle."""
    stage = Stage("""# entities:
    table: { key: [PK, SK] }
    entities:
      M: { key: { PK: "M#{mail}", SK: X } }
      T: { key: { PK: "T#{t}", SK: X } }
      U: { key: { PK: "U#{u}", SK: "{s}" } }
    projections:
      byMail: { from: U, copy: { into: M, attributes: [name] } }
      newest: { from: U, top: { into: T, as: newest, by: at, limit: 3, attributes: [name] } }
      oldest: { from: U, top: { into: T, as: oldest, by: at, order: asc, limit: 3, attributes: [name] } }
      first: { from: U, aggregate: { into: T, set: { first: "first(name, at)", last: "last(name, at)" } } }
    """)
    stage.put("T#1", "X")
    names = [f"{number:03d}" for number in range(230)]
    for number in (*names[::2], *names[1::2]):
        stage.put("U#" + text, number, t="1", at=1, name=number, mail="m")
    stage.settle()
    item = stage.item("T#1", "X")
    assert item is not None
    assert [one["name"] for one in item["oldest"]] == names[:3]
    assert [one["name"] for one in item["newest"]] == names[:-4:-1]
    assert (item["first"], item["last"]) == (names[0], names[-1])
    claim = stage.item("M#m", "X")
    assert claim is not None
    assert claim["name"] == names[0]
    assert drifts(stage) == []
    stage.remove("U#" + text, names[0])
    stage.settle()
    item, claim = stage.item("T#1", "X"), stage.item("M#m", "X")
    assert item is not None
    assert [one["name"] for one in item["oldest"]] == names[1:4]
    assert claim is not None
    assert claim["name"] == names[1]
    assert drifts(stage) == []
