"""The figures the README quotes, exact and asserted: write units and calls per event, from MiniStack's consumed capacity."""

from __future__ import annotations

import pytest

from benchmarks.units import Units, measure_all


@pytest.fixture(scope="module")
def units(ministack_url: str) -> dict[str, Units]:
    return {case.case: case for case in measure_all(ministack_url)}


@pytest.mark.parametrize(
    ("case", "write_units", "calls"),
    [
        ("a lone like", 5.0, 4),
        ("1000 likes of one post", 2023.0, 14),
        ("1000 likes of 10 posts", 2050.0, 23),
        ("the same 1000 delivered again", 0.0, 23),  # MiniStack reports nothing for what is cancelled; AWS charges
        ("1000 edits that change nothing we keep", 0.0, 1),
        ("1000 likes of 1000 posts", 5000.0, 1031),
        ("one like into 8 counters", 26.0, 11),
        ("(a) plain ADD: 100 likes of 10 posts", 100.0, 100),
        ("(b) Powertools idempotency + ADD: 100 likes of 10 posts", 300.0, 300),
        ("(c) claim in a transaction: 100 likes of 10 posts", 400.0, 100),
        ("1000 unlikes of 10 posts", 3050.0, 1033),
        ("1000 likes into 8 counters", 2184.0, 21),
        ("100 copies", 100.0, 101),
        ("(a) plain ADD: the same 100 delivered again", 100.0, 100),  # and counts them twice
        ("(b) Powertools idempotency + ADD: the same 100 delivered again", 0.0, 100),
        ("(b) Powertools idempotency + ADD: one like into 8 counters", 10.0, 10),
        ("(c) claim in a transaction: one like into 8 counters", 18.0, 1),
        ("(d) conditional put: 100 copies", 100.0, 100),
    ],
)
def test_units_and_calls(units: dict[str, Units], case: str, write_units: float, calls: int) -> None:
    assert (units[case].write_units, units[case].calls) == (write_units, calls)
