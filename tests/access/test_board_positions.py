"""Items at positions of random boards, and random items: from the Python API and from generated modules, against sorting."""

from __future__ import annotations

import asyncio
import random
from dataclasses import astuple
from decimal import Decimal
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from generated import module_of, table_of
from test_client import Waiting

import projections
from projections.access import ranking as reading
from projections.errors import UsageError
from projections.inspect.client import client_of
from projections.language.program import LEDGER_SCHEMA
from projections.language.ruleset import RuleSet
from projections.stores.memory import MemoryStore
from projections.testing import Scenario
from tests.engine.world import World

HEAD = """
table:
  key: [PK, SK]
  indexes: {GSI1: {GSI1PK: S, GSI1SK: N}, GSI2: [GSI2PK, GSI2SK], LSI1: {local: true, sort: {points: N}}}
entities:
  Score: {key: {PK: "BOARD#{board}", SK: "PLAYER#{playerId}"}}
  Board: {key: {PK: "BOARD#{board}", SK: META}}
projections:
"""
KEYS = {
    "number": '{GSI1PK: "{board}", GSI1SK: "{points}"}',
    "buckets": '{GSI1PK: "{board}#{playerId|bucket(3)}", GSI1SK: "{points}"}',
    "padded": '{GSI2PK: "{board}#{playerId|bucket(2)}", GSI2SK: "{points|pad(9)}#{playerId}"}',
    "inverted": '{GSI2PK: "{board}", GSI2SK: "{points|invert(9)}"}',
    "local": "",
}


def rules_of(key: str, digits: int, decimals: int, order: str, shards: int = 1, more: str = "") -> str:
    scale = f"digits: {digits}, decimals: {decimals}, order: {order}, shards: {shards}, sum: bet"
    listed = f"  listed: {{from: Score, index: {KEYS[key]}}}\n" if KEYS[key] else ""
    query = f"{{find: Score, by: [board], order: points {order}, limit: 3{more}}}"
    return f"  ranks: {{from: Score, rank: {{into: Board, by: points, {scale}}}}}\n{listed}queries: {{top: {query}}}\n"


def boards(seed: int) -> tuple[str, dict[str, Decimal], str]:
    """Return rules, the scores of the players of a board, and the order."""
    chance = random.Random(seed)
    key = list(KEYS)[seed % len(KEYS)]
    text = key in ("padded", "inverted")
    digits, decimals = chance.choice([(1, 0), (4, 0), (9, 0), *([] if text else [(3, 1), (5, 5)])])
    order = chance.choice(["asc", "desc"])
    most = chance.choice([3, 10**digits])
    least = 0 if text else -most + 1
    scores = {
        f"p{n}": Decimal(chance.randrange(least, min(most, 10**digits))).scaleb(-decimals)
        for n in range(chance.randrange(1, 25))
    }
    return rules_of(key, digits, decimals, order, chance.choice([1, 3])), scores, order


def played(rules: RuleSet, scores: dict[str, Decimal]) -> Scenario:
    items = [{"PK": "BOARD#b", "SK": f"PLAYER#{player}", "points": points} for player, points in scores.items()]
    for number, item in enumerate(items[1:]):
        item["bet"] = Decimal(number * 7 - 11).scaleb(-number % 4)
    return Scenario(rules).given(*items, {"PK": "BOARD#c", "SK": "PLAYER#other", "points": 0})


class Client(NamedTuple):
    """A generated module on the tables of a store, with the methods of `Ranking`."""

    module: ModuleType
    table: Any
    ledger: Any
    ranking: Any

    def positions(self, first: int, last: int) -> Any:
        return self.module.ranks_positions(self.table, self.ledger, "b", first, last)

    def random(self) -> Any:
        return self.module.ranks_random(self.table, self.ledger, "b")


def client(url: str, rules: RuleSet, store: Any) -> Client:
    module = module_of(client_of(rules, "rules.yaml").text)
    schemas = {**rules.program.tables, "ledger": LEDGER_SCHEMA}
    table, ledger = (table_of(url, schema, store.items(name)) for name, schema in schemas.items())
    return Client(module, table, ledger, module.ranks(ledger, "b"))


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(9))
def test_a_generated_module_reads_what_the_api_does(seed: int, dynamodb_local_url: str) -> None:
    text, scores, _ = boards(seed)
    rules = projections.loads(HEAD + text)
    store = played(rules, scores).store
    board, other = projections.ranking(store, rules, "ranks", {"board": "b"}), client(dynamodb_local_url, rules, store)
    values = [None, *scores.values(), Decimal("-1e40"), Decimal("0.123456"), Decimal("1e40")]
    for low, high in zip(values, random.Random(seed).sample(values, len(values)), strict=True):
        assert astuple(other.ranking.between(low, high)) == astuple(board.between(low, high)), (low, high)
        assert astuple(other.ranking.sum_between(low, high)) == astuple(board.sum_between(low, high)), (low, high)
    for value in {*values[1:6]} & {*scores.values()}:
        ranked = other.ranking.rank(value)
        assert (astuple(ranked), ranked.percentile) == (astuple(board.rank(value)), board.rank(value).percentile)
    for first in (1, 2, len(scores) // 2 + 1, len(scores), len(scores) + 1):
        mine, page, at = other.positions(first, first + 2), board.positions(first, first + 2), board.at(first)
        assert (at and astuple(at)) == ((ranked := other.ranking.at(first)) and astuple(ranked))
        assert [item["points"] for item in mine.items] == [item["points"] for item in page.items]
        assert (mine.first, mine.skipped, mine.total, mine.complete) == (first, page.skipped, page.total, True)
    assert {other.random()["SK"] for _ in range(5)} <= {f"PLAYER#{player}" for player in scores}


def test_a_generated_module_reads_the_version_that_is_published(dynamodb_local_url: str) -> None:
    one, rules = world({"ann": 3, "ben": 2}), projections.loads(HEAD + FIXED.replace("digits: 4", "digits: 7"))
    changed = one.under(rules.text.removeprefix(HEAD), HEAD)
    changed.registry().register(changed.program)
    board = client(dynamodb_local_url, rules, one.store)
    assert astuple(board.ranking.rank(2)) == (2, 2, 1, 2, True)
    assert (len(board.positions(1, 2).items), board.positions(1, 2).complete) == (2, False)
    changed.apply()
    board = client(dynamodb_local_url, rules, one.store)
    assert board.positions(1, 2).complete
    other = projections.loads(HEAD.replace("META", "OTHER") + FIXED)
    with pytest.raises(ValueError, match="generate this module again"):
        client(dynamodb_local_url, other, one.store).ranking.rank(2)


def test_a_generated_module_is_not_complete_before_all_scores_are_counted(dynamodb_local_url: str) -> None:
    rules = projections.loads(HEAD + FIXED)
    filling = World(FIXED, HEAD, filled=False)
    filling.put("BOARD#b", "PLAYER#ann", points=3)
    filling.settle()
    for store, total in ((filling.store, 1), (MemoryStore({**rules.program.tables, "ledger": LEDGER_SCHEMA}), 0)):
        board = client(dynamodb_local_url, rules, store)
        page = board.positions(1, 2)
        assert (len(page.items), page.total, page.complete) == (total, total, False)
        assert not board.ranking.between().complete
        assert (board.random() is None) == (total == 0)
        for positions in ((0, 3), (5, 4)):
            with pytest.raises(ValueError, match="position"):
                board.positions(*positions)


@pytest.mark.parametrize("name", ["a|b%", "é" * 800 + "x"])
def test_a_generated_module_for_aioboto3_reads_boards_with_any_key(name: str, dynamodb_local_url: str) -> None:
    rules = projections.loads(HEAD + rules_of("local", 4, 0, "desc"))
    store = Scenario(rules).given({"PK": f"BOARD#{name}", "SK": "PLAYER#ann", "points": 7}).store
    board = client(dynamodb_local_url, rules, store)
    module = module_of(client_of(rules, "rules.yaml", "aioboto3").text)
    table, ledger = Waiting(board.table), Waiting(board.ledger)
    page = asyncio.run(module.ranks_positions(table, ledger, name, 1, 3))
    assert ([item["points"] for item in page.items], page.total) == ([7], 1)
    assert asyncio.run(module.ranks(ledger, name).rank("7")).rank == 1
    assert asyncio.run(module.ranks_random(table, ledger, name))["SK"] == "PLAYER#ann"


@pytest.mark.parametrize("seed", range(6))
def test_items_at_positions_equal_sorting(seed: int) -> None:
    text, scores, order = boards(seed)
    rules = projections.loads(HEAD + text)
    board = projections.ranking(played(rules, scores).store, rules, "ranks", {"board": "b"})
    expected, seen = sorted(scores.values(), reverse=order == "desc"), []
    for first in range(1, len(scores) + 2):
        for last in (first, first + 2, len(scores) + 5):
            page = board.positions(first, last)
            assert [item["points"] for item in page.items] == expected[first - 1 : last], (first, last)
            assert (page.first, page.total, page.complete) == (first, len(scores), True)
        seen += [item["SK"] for item in board.positions(first, first).items]
    assert sorted(seen) == sorted(f"PLAYER#{player}" for player in scores)
    drawn = {item["SK"] for _ in range(12 * min(5, len(scores))) if (item := board.random()) is not None}
    assert drawn <= {*seen}
    assert len(drawn) >= min(5, len(seen))


FIXED = rules_of("number", 4, 0, "desc")


def world(scores: dict[str, int], rules: str = FIXED) -> World:
    one = World(rules, HEAD)
    for player, points in scores.items():
        one.put("BOARD#b", f"PLAYER#{player}", points=points)
    one.settle()
    return one


def ranking(one: World, rules: str = FIXED) -> reading.Ranking:
    queries = projections.loads(HEAD + rules).queries
    return reading.ranking_of(one.program, one.store, "ranks", {"board": "b"}, queries)


def test_an_empty_board_has_no_items() -> None:
    board = ranking(world({}))
    assert board.positions(1, 10) == reading.Positions([], 1, 0)
    assert board.random() is None
    for positions in ((0, 3), (5, 4)):
        with pytest.raises(UsageError, match="position"):
            board.positions(*positions)


def test_a_board_that_fills_has_the_items_that_are_counted_and_is_not_complete() -> None:
    one = world({"ann": 3, "ben": 2}, FIXED.replace("rank: {", "hold: true, rank: {"))
    one = one.under(FIXED.replace("digits: 4", "digits: 6"), HEAD)
    one.registry().register(one.program)
    one.put("BOARD#b", "PLAYER#cat", points=1)
    one.settle()
    page = ranking(one).positions(1, 5)
    assert (len(page.items), page.total, page.complete) == (1, 1, False)
    assert ranking(one).random() is not None
    other = FIXED.replace("desc", "asc")
    assert not ranking(world({"ann": 3}).under(other, HEAD), other).positions(1, 1).complete


def test_an_index_that_lags_gives_a_page_and_no_error() -> None:
    one = world({"ann": 3, "ben": 2, "cat": 2, "dan": 1})
    one.remove("BOARD#b", "PLAYER#ben")
    one.remove("BOARD#b", "PLAYER#dan")
    pages = [ranking(one).positions(first, first) for first in (1, 2, 3, 4)]
    assert [[item["SK"] for item in page.items] for page in pages] == [["PLAYER#ann"], ["PLAYER#cat"], [], []]
    assert {page.total for page in pages} == {4}


def test_at_most_so_many_items_of_one_score_are_skipped(
    monkeypatch: pytest.MonkeyPatch, dynamodb_local_url: str
) -> None:
    monkeypatch.setattr(reading, "MOST_SKIPPED", 2)
    one = world({f"p{number}": 5 for number in range(8)})
    board, other = ranking(one), client(dynamodb_local_url, projections.loads(HEAD + FIXED), one.store)
    other.module.__dict__["_MOST_SKIPPED"] = 2
    for page in (board.positions(7, 8), other.positions(7, 8)):
        assert (page.first, page.skipped, len(page.items)) == (3, 2, 2)
    assert {item["SK"] for item in (board.random() for _ in range(40)) if item} == {
        "PLAYER#p7",
        "PLAYER#p6",
        "PLAYER#p5",
    }


def test_a_negative_score_has_no_item_in_an_index_of_padded_scores() -> None:
    rules = rules_of("inverted", 4, 0, "desc")
    page = ranking(world({"ann": 3, "ben": -2}, rules), rules).positions(2, 2)
    assert (page.items, page.total, page.complete) == ([], 2, False)


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ("points desc", "points asc", "order: points desc"),
        ("points desc", "playerId desc", "no query lists"),
        ("by: [board]", "by: [playerId]", "no query lists"),
        ("limit: 3", 'where: {team: ["x"]}', "no query lists"),
        ("{from: Score, rank", '{from: Score, where: {team: ["x"]}, rank', "no query lists"),
        ("by: points,", "by: points + 1,", "no query can list"),
        ("rank: {", 'bind: {board: "{board}!"}, rank: {', "no query can list"),
    ],
)
def test_a_query_of_other_items_or_another_order_gives_no_positions(before: str, after: str, reason: str) -> None:
    rules = FIXED.replace(before, after)
    with pytest.raises(UsageError, match=reason):
        ranking(world({"ann": 1}, rules), rules).random()
