"""Rules of the kind `rank` among the access patterns: the table, the page, and the reads that they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from projections.access.ranking import ranking_of
from projections.api import load, loads
from projections.engine.store import ItemKey
from projections.errors import UsageError
from projections.inspect.access_patterns import rank_patterns
from tests.engine.world import World

HEAD = """
table: {key: [PK, SK], indexes: {GSI1: {GSI1PK: S, GSI1SK: N}}}
entities:
  Score: {key: {PK: "GAME#{game}", SK: "WEEK#{week}#{playerId}"}}
  Board: {key: {PK: "GAME#{game}", SK: "WEEK#{week}"}}
projections:
"""
RULES = """  weekly:
    from: Score
    description: The place of a player in a week
    rank: {into: Board, by: won * 3 + drawn, digits: 5}
  laps: {from: Score, rank: {into: Board, by: lap, digits: 6, decimals: 3, order: asc, shards: 4, sum: won}}
  tries: {from: Score, rank: {into: Board, by: tries, digits: 2, shards: 3}}
  listed: {from: Score, index: {GSI1PK: "{game}#{week}#{playerId|bucket(2)}", GSI1SK: "{lap}"}}
queries: {fastest: {find: Score, by: [game, week], order: lap}}
"""


@pytest.mark.parametrize("name", ["weekly", "laps", "tries"])
def test_reads_of_a_rank_are_those_that_are_shown(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = World(RULES, HEAD)
    for player in range(3):
        one.put("GAME#g", f"WEEK#1#{player}", won=player, drawn=1, lap=60 + player, tries=player)
    one.settle()
    reads: list[int] = []
    get_many = one.store.get_many

    def counted(keys: list[ItemKey]) -> Any:
        reads.append(len(keys))
        return get_many(keys)

    monkeypatch.setattr(one.store, "get_many", counted)
    queries = loads(HEAD + RULES).queries
    shown = next(found for found in rank_patterns(one.program.model, queries) if found.rule == name)
    ranking = ranking_of(one.program, one.store, name, {"game": "g", "week": "1"}, queries)
    reads.clear()
    assert ranking.rank(1).total == 3
    assert reads == [shown.items]
    reads.clear()
    assert ranking.at(1) is not None
    assert len(reads) == shown.requests
    if name == "laps":
        reads.clear()
        assert ranking.sum_between(1, "60.5").sum == 0
        assert reads == [shown.sums["readUnits"]]
        reads.clear()
        assert len(ranking.positions(1, 3).items) == 3
        assert (len(reads) + 2, sum(reads)) == (shown.positions["requests"], shown.positions["readUnits"])


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "rules.yaml"
    path.write_text(HEAD + RULES)
    return str(path)


def test_ranks_have_rows_in_the_table_of_access_patterns(run: Any, file: str) -> None:
    code, out, _ = run("queries", "--rules", file)
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0
    assert lines[2:7] == [
        "- weekly The place of a player in a week one request 1 ledger 4 items for GAME#{game} · WEEK#{week}",
        "- laps The rank of a score (lap) on a Board one request 1 ledger 10 items for GAME#{game} · WEEK#{week}",
        "The sum of won between two scores one request 1 ledger at most 15 read units",
        "The items at positions several requests 5 ledger, GSI1 12 read units, then fastest from the score on",
        "- tries The rank of a score (tries) on a Board one request 1 ledger 4 items for GAME#{game} · WEEK#{week}",
    ]


def test_a_rank_is_no_query(file: str) -> None:
    with pytest.raises(UsageError, match=r"weekly is a rule: .* queries weekly` and `projections\.ranking` read"):
        load(file).query("weekly")


def test_check_shows_score_sum_and_reads_of_a_rank(run: Any, file: str) -> None:
    shown = " ".join(run("check", file)[1].split())
    assert "entry and 3 groups of lap, with sums of won, in one transaction" in shown
    assert "To find a rank, 1 request reads 10 items of the ledger." in shown
