"""Generated functions for ranks: they return what sorting gives, for boto3 and for aioboto3."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from generated import module_of

from projections.api import loads
from projections.inspect.client import client_of
from projections.language.values import plain_item
from projections.testing import Scenario

RULES = loads("""
table: {key: [PK, SK]}
entities:
  Score: {key: {PK: "BOARD#{board}", SK: "PLAYER#{playerId}"}}
  Board: {key: {PK: "BOARD#{board}", SK: META}}
projections:
  ranks: {from: Score, rank: {into: Board, by: points, digits: 5, decimals: 1, shards: 3}}
  worst-first: {from: Score, rank: {into: Board, by: points, digits: 5, decimals: 1, order: asc}}
queries:
  worstFirst: {get: Board, by: [board]}
""")
BOARD = "50 %|" + "x" * 1600
"""Its group has a hashed key."""


class Ledger:
    """The ledger of a scenario, as a table of boto3."""

    def __init__(self, scenario: Scenario) -> None:
        self._items = [plain_item(image) for image in scenario.store.items("ledger")]  # type: ignore[attr-defined]

    def query(self, **arguments: Any) -> Any:
        _, value = arguments["KeyConditionExpression"].get_expression()["values"]
        found = [item for item in self._items if item["pk"] == value]
        return {"Items": [{name: Decimal(str(one)) if isinstance(one, int) else one for name, one in item.items()}
                          for item in found]}  # fmt: skip


class Waiting(Ledger):
    async def query(self, **arguments: Any) -> Any:
        return super().query(**arguments)


@pytest.fixture(scope="module", params=["b", BOARD], ids=["short", "long"])
def played(request: pytest.FixtureRequest) -> tuple[Scenario, str, list[Decimal]]:
    chance = random.Random(3)
    scenario = Scenario(RULES)
    scores = [Decimal(chance.randrange(-300, 300)) / 10 for _ in range(40)] + [Decimal("-9999.9"), Decimal("9999.9")]
    for player, points in enumerate(scores):
        scenario.put({"PK": f"BOARD#{request.param}", "SK": f"PLAYER#{player}", "points": points})
    scenario.then_all(None)
    return scenario, request.param, scores


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(("function", "descending"), [("ranks", True), ("worst_first_", False)])
def test_generated_functions_return_what_sorting_gives(
    played: tuple[Scenario, str, list[Decimal]], function: str, descending: bool, waits: bool
) -> None:
    scenario, board, scores = played
    module = module_of(client_of(RULES, "rules.yaml", waits=waits).text)
    ranking = getattr(module, function)((Waiting if waits else Ledger)(scenario), board)

    def said(answer: Any) -> Any:
        return asyncio.run(answer) if waits else answer

    ordered = sorted(scores, reverse=descending)
    for position, score in enumerate(ordered, 1):
        better = sum(other > score if descending else other < score for other in scores)
        rank, at = said(ranking.rank(score)), said(ranking.at(position))
        assert rank == at
        assert (rank.rank, rank.equal, rank.total, rank.complete) == (
            1 + better,
            scores.count(score),
            len(scores),
            True,
        )
        assert rank.percentile == Decimal(100 * (len(scores) - better)) / len(scores)
    assert said(ranking.at(len(scores) + 1)) is None
    assert said(ranking.between(Decimal("-0.1"), 5)) == sum(Decimal("-0.1") <= one <= 5 for one in scores)
    assert said(ranking.between(5, 4)) == 0
    odd = Decimal("-1e9"), Decimal("0.44444"), Decimal("0.45"), Decimal("2.9999999"), 10**12
    for low, high in product(odd, odd):  # with more digits than scores have
        assert said(ranking.between(low, high)) == sum(low <= one <= high for one in scores)
    for wrong in (Decimal("0.01"), 10_000):
        with pytest.raises(ValueError, match="cannot have the score"):
            said(ranking.rank(wrong))


@pytest.mark.deep
def test_a_module_with_ranks_passes_ruff_and_mypy(tmp_path: Path) -> None:
    for waits in (False, True):
        (tmp_path / f"access{waits}.py").write_text(client_of(RULES, "rules.yaml", waits=waits).text, encoding="utf-8")
    for command in (
        ["ruff", "check", "--isolated", "--no-cache", str(tmp_path)],
        ["ruff", "format", "--isolated", "--no-cache", "--diff", str(tmp_path)],
        ["mypy", "--strict", "--config-file=", f"--cache-dir={tmp_path / 'cache'}", str(tmp_path)],
    ):
        done = subprocess.run([sys.executable, "-m", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
