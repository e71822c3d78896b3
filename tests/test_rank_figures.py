"""Leaderboards that change at random: ranks equal sorting, and changes cost what docs/cost.md says."""

from __future__ import annotations

import pytest

from benchmarks.rank import ANY, GONE, NEW, SMALL, Board, local, memory

pytestmark = pytest.mark.deep

MOST = {NEW: 10, SMALL: 4, ANY: 16, GONE: 11}
"""Write units of one change by itself."""


def test_a_board_in_memory() -> None:
    costs_at_most(memory(2000))


def test_a_board_on_dynamodb_local(dynamodb_local_url: str) -> None:
    costs_at_most(local(dynamodb_local_url, 600))


@pytest.mark.parametrize("kind", [NEW, ANY, SMALL, GONE])
def test_changes_by_themselves_cost_at_least_as_much_as_in_batches(kind: str) -> None:
    alone = memory(120, batch=1).units[kind]
    together = memory(120, batch=100).units[kind]
    assert together[1] <= alone[1] <= MOST[kind] * alone[0]


def costs_at_most(board: Board) -> None:
    for kind, (changes, units) in board.units.items():
        assert 0 < units <= MOST[kind] * changes
    assert (board.reads.reads, board.reads.requests) == (4, 1)
    assert board.largest <= 1024
