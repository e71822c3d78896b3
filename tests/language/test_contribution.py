"""The one text that equal contributions have, which DynamoDB compares in conditions."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from projections.language.contribution import Contributions, canonical_text

_SLOTS = st.dictionaries(st.text(), st.integers(0, 3) | st.text() | st.dictionaries(st.text(), st.text()), max_size=3)
_CONTRIBUTED = st.just({"n": 1}) | _SLOTS
_CONTRIBUTIONS = st.dictionaries(st.text(), st.dictionaries(st.text(), _CONTRIBUTED, max_size=3), max_size=3)


@given(_CONTRIBUTIONS)
def test_the_text_is_json_with_its_names_in_order(contributions: Contributions) -> None:
    """Entries that earlier releases wrote are compared with it."""
    assert canonical_text(contributions) == json.dumps(
        contributions, sort_keys=True, separators=(",", ":"), ensure_ascii=False
    )
