"""Leaderboards that change at random: ranks equal sorting, and changes cost what docs/cost.md says."""

from __future__ import annotations

import pytest

from benchmarks.rank import ANY, BACK, GONE, LAPS, NEW, SIGNED, SMALL, WHOLE, Boards, local, memory

pytestmark = pytest.mark.deep

MOST = {NEW: 10, SMALL: 4, ANY: 16, GONE: 11, BACK: 10}
"""Write units of one change by itself."""


def test_boards_in_memory() -> None:
    boards = memory(2000)
    costs_at_most(boards)
    assert set(boards.boards) == {WHOLE, SIGNED, *LAPS}
    assert any(score < 0 for score in boards.scores)
    assert len(set(boards.scores)) < 1990, "scores are tied"
    assert boards.compared > 2000


def test_a_board_on_dynamodb_local(dynamodb_local_url: str) -> None:
    costs_at_most(local(dynamodb_local_url, 600))


def costs_at_most(board: Boards) -> None:
    for kind, (changes, units) in board.units.items():
        assert 0 < units <= MOST[kind] * changes
    assert (board.reads.reads, board.reads.requests) == (5, 1), "the registry and a group for each two digits"
    assert board.largest <= 2048
