"""Leaderboards that change at random: ranks equal sorting, and changes cost what docs/cost.md says."""

from __future__ import annotations

import pytest

from benchmarks.rank import ANY, BACK, GONE, LAPS, NEW, SIGNED, SMALL, WHOLE, Board, Boards, local, memory
from projections.engine.ledger_items import group_key
from projections.engine.store import Delete, Update

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


@pytest.mark.parametrize(
    ("board", "prefix", "level", "slot"), [(WHOLE, 0, 0, "=00"), (SIGNED, -1, 1, "=99"), (LAPS[7], 0, 1, "=04")]
)
def test_a_counter_that_is_wrong_by_one_is_found(board: Board, prefix: int, level: int, slot: str) -> None:
    boards = memory(1000)
    boards.store.write(Update(group_key(board.rule, board.group(prefix, level)), add={slot: {"N": "1"}}))
    with pytest.raises(AssertionError):
        boards.check(0)


def test_a_missing_group_is_found() -> None:
    boards = memory(1000)
    player = next(player for player in range(500) if boards.boards[player] == WHOLE and player not in boards.gone)
    boards.store.write(Delete(group_key(WHOLE.rule, WHOLE.group(boards.scores[player] // 100, 3))))
    with pytest.raises(AssertionError, match="a group is missing"):
        boards.check(0)


def test_a_board_on_dynamodb_local(dynamodb_local_url: str) -> None:
    costs_at_most(local(dynamodb_local_url, 600))


@pytest.mark.parametrize("kind", [NEW, ANY, SMALL, GONE])
def test_changes_by_themselves_cost_at_least_as_much_as_in_batches(kind: str) -> None:
    alone = memory(120, batch=1).units[kind]
    together = memory(120, batch=100).units[kind]
    assert together[1] <= alone[1] <= MOST[kind] * alone[0]


def costs_at_most(board: Boards) -> None:
    for kind, (changes, units) in board.units.items():
        assert 0 < units <= MOST[kind] * changes
    assert (board.reads.reads, board.reads.requests) == (4, 1)
    assert board.largest <= 2048
