"""How long a function takes to start, beside one that has nothing to do."""

from __future__ import annotations

from benchmarks.cold import measure


def test_a_cold_start_takes_little_longer_than_that_of_a_handler_that_writes_one_item() -> None:
    """Nearly all of the difference is Powertools. `make bench` finds 1.3 to 1.45, as busy as the machine is."""
    assert measure(rounds=3).ratio <= 1.8
