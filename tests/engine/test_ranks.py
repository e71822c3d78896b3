"""Ranks: the counters that a `rank` rule keeps, what they cost, and that ranks read from them equal sorting."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import astuple
from decimal import Decimal
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

import projections
from projections.access.ranking import Ranking, ranking_of
from projections.errors import UsageError
from projections.testing import Scenario
from projections.testing.cases import Case
from tests.engine.world import World

HEAD = """
table: {key: [PK, SK], ttl: expiresAt}
entities:
  Score: {key: {PK: "BOARD#{board}", SK: "PLAYER#{playerId}"}}
  Board: {key: {PK: "BOARD#{board}", SK: META}}
projections:
"""
RANK = "  ranks: {from: Score, rank: {into: Board, by: score, digits: 8}}\n"


def world(rule: str = RANK, **settings: Any) -> World:
    return World(rule, HEAD, **settings)


def score(one: World, player: object, value: object, board: str = "b", **others: object) -> None:
    one.put(f"BOARD#{board}", f"PLAYER#{player}", score=value, **others)


def ranking(one: World, board: str = "b") -> Ranking:
    return ranking_of(one.program, one.store, "ranks", {"board": board})


def agrees(
    found: Ranking, scores: Sequence[Decimal], *, descending: bool = True, asked: Sequence[Decimal] = ()
) -> None:
    """Check each answer against sorting."""
    ordered = sorted(scores, reverse=descending)
    for value in {*scores, *asked}:
        better = sum(other > value if descending else other < value for other in scores)
        one = found.rank(value)
        assert (one.rank, one.equal, one.total) == (1 + better, scores.count(value), len(scores))
        assert one.percentile == (Decimal(100 * (len(scores) - better)) / len(scores) if scores else None)
    for position, value in enumerate(ordered, 1):
        at = found.at(position)
        assert at is not None
        assert (at.score, at.rank, at.equal) == (value, 1 + ordered.index(value), ordered.count(value))
    assert found.at(len(scores) + 1) is None
    between = [value + Decimal(step) for value in (*scores[:3], *asked[:1]) for step in ("-0.0000001", "0.50000001")]
    bounds = [*scores[:5], *asked, *between, Decimal("1e40"), Decimal("-1e40")]
    for low in bounds:
        for high in bounds:
            assert found.between(low, high).count == sum(low <= value <= high for value in scores)
        assert found.between(low).count == sum(low <= value for value in scores)
        assert found.between(None, low).count == sum(value <= low for value in scores)
    assert found.between().count == len(scores)


@pytest.mark.parametrize("order", ["desc", "asc"])
@pytest.mark.parametrize(
    ("digits", "decimals", "scores"),
    [
        (4, 0, ["0", "1", "9999", "10", "100", "99", "100", "-1", "-9999", "-100", "-99", "5050"]),
        (3, 1, ["0", "0.1", "99.9", "-99.9", "-0.1", "12.5", "12.5"]),
        (1, 0, ["9", "0", "-9", "3", "3"]),
        (7, 7, ["0.1234567", "-0.9999999", "0"]),
        (4, 0, []),
    ],
)
def test_ranks_equal_sorting_at_the_ends_of_the_range(
    digits: int, decimals: int, scores: list[str], order: str
) -> None:
    rule = f"{{into: Board, by: score, digits: {digits}, decimals: {decimals}, order: {order}}}"
    one = world(f"  ranks: {{from: Score, rank: {rule}}}\n")
    values = [Decimal(text) for text in scores]
    for player, value in enumerate(values):
        score(one, player, value)
    one.settle()
    least = Decimal(1).scaleb(-decimals)
    most = Decimal(10) ** (digits - decimals) - least
    agrees(ranking(one), values, descending=order == "desc", asked=[most, -most, Decimal(0), least])


@pytest.mark.parametrize("shards", [1, 3])
def test_ranks_equal_sorting_while_scores_change_at_random(shards: int) -> None:
    chance = random.Random(shards)
    one = world(RANK.replace("8}", f"6, sum: bet, shards: {shards}}}"), chance=chance.random)
    now: dict[int, Decimal] = {}
    bets: dict[int, Decimal | None] = {}
    for _ in range(3):
        for _ in range(40):
            player = chance.randrange(30)
            if chance.random() < 0.2:
                one.remove("BOARD#b", f"PLAYER#{player}")
                now.pop(player, None)
            else:
                if player not in now or chance.random() < 0.7:
                    now[player] = Decimal(chance.choice([chance.randrange(-999_999, 10**6), chance.randrange(50)]))
                bets[player] = chance.choice([None, Decimal("-2.5"), Decimal(10**18 - 1), Decimal("1E-10"), Decimal(0)])
                score(one, player, now[player], **({} if bets[player] is None else {"bet": bets[player]}))
        one.settle()
        found, asked = ranking(one), [Decimal(chance.randrange(-999_999, 10**6)) for _ in range(5)]
        agrees(found, list(now.values()), asked=asked)
        for low, high in product((*asked, *list(now.values())[:5], Decimal("1e40"), Decimal("-1e40")), repeat=2):
            due = sum(Fraction(bets[player] or 0) for player, value in now.items() if low <= value <= high)
            assert Fraction((between := found.sum_between(low, high)).sum) == due, (low, high)
            assert astuple(between)[:3] == astuple(found.between(low, high))
    assert ranking(one, "other").rank(1).total == 0


def test_a_rule_writes_no_item_and_leaves_no_pending_publish() -> None:
    one = world()
    one.put("BOARD#b", "META", name="weekly")
    for player in range(3):
        score(one, player, player * 1000)
    one.settle()
    before = one.item("BOARD#b", "META", guards=True)
    score(one, 0, 77_000_000)
    one.remove("BOARD#b", "PLAYER#1")
    one.settle()
    assert one.item("BOARD#b", "META", guards=True) == before
    entries = [item for item in one.store.items("ledger") if item["pk"]["S"].startswith("E|")]
    assert len(entries) == 3
    assert not any("recent" in item for item in entries)
    assert one.store.calls["update"] == 1, "only the entry of the removed item is written again: it expires"


def test_a_change_of_the_last_digits_touches_one_group() -> None:
    one = world()
    score(one, 1, 12_345_678)
    one.settle()
    assert [len(writes) for writes in one.store.transactions] == [1 + 4]
    score(one, 1, 12_345_699)
    one.settle()
    assert len(one.store.transactions[-1]) == 1 + 1
    score(one, 1, 12_999_999)
    one.settle()
    assert len(one.store.transactions[-1]) == 1 + 1 + 2 + 2, (
        "the group where the scores part, then two for each later part"
    )
    score(one, 1, 99_999_999)
    one.settle()
    assert len(one.store.transactions[-1]) == 1 + 1 + 2 + 2 + 2


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (100_000_000, "the score 100000000 has more than 8 digits"),
        (Decimal("1.5"), "the score 1.5 has decimal places"),
        (Decimal("-1E+30"), "the score -1000000000000000000000000000000 has more than 8 digits"),
        ("12", 'expression "score": score is a string, '),
    ],
)
def test_a_score_that_does_not_fit_is_rejected_and_not_counted(value: object, reason: str) -> None:
    one = world()
    score(one, 1, 5)
    score(one, 2, value)
    one.settle()
    assert [each.reason.startswith(reason) for each in one.rejected] == [True], one.rejected
    assert ranking(one).rank(5).total == 1


def test_a_sum_takes_and_rejects_what_a_sum_of_an_aggregate_does() -> None:
    total = "  total: {from: Score, aggregate: {into: Board, set: {total: sum(bet), bets: count}}}\n"
    one = world(RANK.replace("digits: 8", "digits: 8, sum: bet") + total)
    one.put("BOARD#b", "META")
    bets = [5, None, "12", 10**18, 10**18 - 1, Decimal("1E-11"), Decimal("-0.0000000001"), {"a": 1}, True, Decimal(0)]
    for player, bet in enumerate(bets):
        score(one, player, 10 * player, bet=bet)
    score(one, "without", 70)
    one.settle()
    item, found = one.item("BOARD#b", "META"), ranking(one).sum_between()
    assert ({"$number": str(found.sum)}, found.count) == (item["total"], item["bets"])
    assert (found.sum, found.count) == (Decimal("1000000000000000003.9999999999"), 6)
    reasons = {rule: [each.reason for each in one.rejected if each.rule == rule] for rule in ("ranks", "total")}
    assert [reason.replace('"sum"', '"total"') for reason in reasons["ranks"]] == reasons["total"]
    assert len(reasons["ranks"]) == 5


def test_only_a_published_version_with_a_sum_has_sums() -> None:
    head = HEAD.replace('SK: "PLAYER#{playerId}"}}', 'SK: "PLAYER#{playerId}"}, expires: true}')
    kept = RANK.replace("{from: Score,", "{from: Score, expired: keep,")
    one = World(kept, head)
    for player in range(3):
        score(one, player, 10 * player, bet=1 + player, fee=5)
    one.settle()
    one.remove("BOARD#b", "PLAYER#0", by_ttl=True)
    one.settle()
    with pytest.raises(UsageError, match="ranks: the published version has no `sum`"):
        ranking(one).sum_between()
    for text, due in (("bet", 5), ("fee", 10)):  # of what expired before, no version knows what it would add
        one = one.under(kept.replace("digits: 8", f"digits: 8, sum: {text}"), head)
        one.apply()
        assert (ranking(one).sum_between(0, 20).sum, ranking(one).between().count) == (due, 3)
    one.remove("BOARD#b", "PLAYER#2", by_ttl=True)
    one.settle()
    one = one.under(kept.replace("digits: 8", "digits: 8, sum: fee, shards: 2"), head)
    one.apply()
    assert ranking(one).sum_between(11).sum == 5


def test_elements_of_one_item_are_counted_each() -> None:
    rule = "rank: {into: Board, by: run.points, digits: 3, sum: run.bet}"
    one = world(f"  ranks: {{from: Score, each: {{run: runs}}, {rule}}}\n")
    runs = [{"points": 7, "bet": 1}, {"points": 7, "bet": Decimal("-0.5")}, {"points": 120}, {"other": 1}]
    one.put("BOARD#b", "PLAYER#1", runs=runs)
    one.settle()
    agrees(ranking(one), [Decimal(7), Decimal(7), Decimal(120)])
    assert ranking(one).sum_between(0, 7).sum == Decimal("0.5")
    one.put("BOARD#b", "PLAYER#1", runs=[{"points": 121}])
    one.settle()
    agrees(ranking(one), [Decimal(121)])


def test_questions_that_have_no_answer_are_refused() -> None:
    found = ranking(world())
    for ask in (
        lambda: found.rank("many"), lambda: found.rank(10**8), lambda: found.rank(True), lambda: found.at(0),
        lambda: found.between("x"),
    ):  # fmt: skip
        with pytest.raises(UsageError):
            ask()
    one = world()
    for name, board in (
        ("rank", {"board": "b"}),
        ("ranks", {}),
        ("ranks", {"board": "b", "week": 1}),
        ("ranks", {"board": ""}),
    ):
        with pytest.raises(UsageError):
            ranking_of(one.program, one.store, name, board)


def test_items_of_several_entities_share_a_board() -> None:
    head = HEAD.replace("  Board:", '  Guest: {key: {PK: "BOARD#{board}", SK: "GUEST#{guestId}"}}\n  Board:')
    one = World("  ranks: {from: [Score, Guest], rank: {into: Board, by: score, digits: 2}}\n", head)
    score(one, 1, 5)
    one.put("BOARD#b", "GUEST#1", score=7)
    one.settle()
    agrees(ranking(one), [Decimal(5), Decimal(7)])


def test_a_case_lists_the_scores_of_a_board() -> None:
    put = {"PK": "BOARD#a", "bet": 2}
    document = {"when": [{"put": {**put, "SK": f"PLAYER#{n}", "score": 7 - n // 2}} for n in range(3)]}
    rules = projections.loads(HEAD + RANK.replace("8}", "8, sum: bet}"))
    wrong = ([7, 6], 6, "- 7 (1), 6 (2)\n  + 7 (1), 7 (1), 6 (3)"), ([7, 7, 6], 5.5, "has the sum 6 instead of 5.5")
    for scores, total, words in (([7, 7, 6], 6, ""), *wrong):
        due = {"rule": "ranks", "board": {"board": "a"}, "scores": scores, "sum": total}
        case = Case("a board", 1, {**document, "ranks": [due]})
        with pytest.raises(AssertionError, match=re.escape(words)) if words else nullcontext():
            case.play(Scenario(rules))
