"""Names in messages have the article that a reader would say."""

from __future__ import annotations

import pytest

from projections.language.syntax import an


@pytest.mark.parametrize(
    "text",
    [
        "a User",
        "an Update",
        "an Upload",
        "a Unit",
        "an Unpaid",
        "an Order",
        "an apiary",
        "a Hive",
        "a European",
        "a one",
        "a Use",
    ],
)
def test_a_name_has_its_article(text: str) -> None:
    assert an(text.split()[1]) == text
