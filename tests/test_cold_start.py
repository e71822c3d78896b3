"""How long a function takes to start, beside one that has nothing to do."""

from __future__ import annotations

from benchmarks.cold import measure


def test_a_cold_start_takes_little_longer_than_that_of_a_handler_that_writes_one_item() -> None:
    """Most of the difference is Powertools. 1.3 is what `make bench` finds; a busy machine makes it vary."""
    assert measure(rounds=3).ratio <= 1.6
