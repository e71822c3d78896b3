"""Keys of ledger items: readable or hashed, within DynamoDB's limits, and never the same for two texts."""

from __future__ import annotations

import hashlib
import random

from hypothesis import given
from hypothesis import strategies as st

from projections.engine.ledger_items import entry_key, fence_key, group_key, member_key, whole_key
from projections.language.keys import PARTITION_KEY_BYTES, SORT_KEY_BYTES
from tests.engine.test_properties import examples

CHARACTERS = st.sampled_from("a#|\u00e9\u20ac\U0001f600")
"""Of one to four bytes in UTF-8."""


@st.composite
def long_texts(draw: st.DrawFn) -> str:
    """Texts around the lengths where keys are hashed."""
    filler = draw(CHARACTERS) * (draw(st.integers(880, 1620)) // 4)
    return (
        draw(st.text(CHARACTERS, max_size=8)) + filler * draw(st.integers(1, 4)) + draw(st.text(CHARACTERS, max_size=8))
    )


@examples(300)
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


@examples(300)
@given(text=long_texts())
def test_a_hashed_member_key_is_never_the_readable_key_of_another_member(text: str) -> None:
    key = member_key("r", "t", 0, "s|", text)
    assert len((key.sort or "").encode()) <= SORT_KEY_BYTES
    rival = (key.sort or "").removeprefix("0000|s|")
    assert rival == text or member_key("r", "t", 0, "s|", rival) != key


@examples(300)
@given(one=long_texts(), other=long_texts())
def test_hashed_sort_keys_keep_their_order_up_to_the_cut(one: str, other: str) -> None:
    first, second = sorted([one, other], key=str.encode)
    keys = [(member_key("r", "t", 0, "s|", text).sort or "").encode() for text in (first, second)]
    most = 900
    if first.encode()[:most] != second.encode()[:most]:
        assert keys[0] < keys[1]
    assert all(key.startswith(b"0000|s|") for key in keys)


def test_texts_of_every_length_around_the_limits_have_different_keys() -> None:
    rng = random.Random(1)
    texts = ["x" * length for length in range(900, 1700)]
    texts += ["".join(rng.choice("ab\u20ac") for _ in range(length)) for length in range(900, 1700)]
    for text in list(texts):  # and those that look like hashed ones
        for head in (900, 955, 1430, 1434, 1500, 1505):
            cut = text.encode()[:head].decode(errors="ignore")
            texts.append(f"{cut}#{hashlib.sha256(('E|' + text).encode()).hexdigest()}")
    texts = list(dict.fromkeys(texts))
    assert len({entry_key(text) for text in texts}) == len(texts)
    assert len({member_key("r", "t", 0, "s|", text) for text in texts}) == len(texts)
