"""Lists of references in simulations, where rules leave few values for them."""

from __future__ import annotations

import pytest

from projections.testing.simulation.pools import _several


@pytest.mark.parametrize("texts", [[], ["a"], ["a", "b"], ["a", "b", "c"]])
def test_lists_are_made_of_any_number_of_references(texts: list[str]) -> None:
    found = _several([{"S": text} for text in texts])
    assert {"L": []} in found
    assert {"L": [{"S": text} for text in texts]} in found
    assert {"SS": []} not in found
