"""`projections queries` of a rank rule: each question, and what cannot be answered."""

from __future__ import annotations

import json

import pytest
from place import Place

RULES = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Score: {key: {PK: "BOARD#{board}", SK: "PLAYER#{playerId}"}}
  Board: {key: {PK: "BOARD#{board}", SK: META}}
projections:
  ranks: {from: Score, rank: {into: Board, by: points, digits: 6, decimals: 1, sum: bet}}
  players: {from: Score, aggregate: {into: Board, set: {players: count}}}
"""


@pytest.fixture
def game(place: Place) -> Place:
    place.deploy(RULES)
    place.activate()
    scores = {"ann": 500, "ben": 300, "cat": 300, "dan": -12.5}
    place.deliver(*(place.put("BOARD#w", f"PLAYER#{name}", points=score, bet=1.5) for name, score in scores.items()))
    return place


def test_each_question_has_its_answer(game: Place) -> None:
    def said(*options: str) -> tuple[int, str]:
        code, out, err = game.say("queries", "ranks", "board=w", *options)
        assert err == ""
        return code, out

    assert said() == (0, "4 scores, sum 6\n")
    assert said("--score", "300") == (0, "score 300: rank 2 of 4 scores, percentile 75.00, 2 equal scores\n")
    assert said("--score", "-12.5") == (0, "score -12.5: rank 4 of 4 scores, percentile 25.00\n")
    assert said("--score", "1000") == (0, "score 1000: rank 1 of 4 scores, percentile 100.00, 0 equal scores\n")
    assert said("--at", "4") == (0, "score -12.5: rank 4 of 4 scores, percentile 25.00\n")
    assert said("--at", "5") == (1, "ranks: this board has no score at position 5\n")
    assert said("--between", "0", "300") == (0, "2 of 4 scores, sum 3\n")
    assert said("--between", "any", "-12.5") == (0, "1 of 4 scores, sum 1.5\n")
    code, out = said("--score", "300", "--json")
    assert (code, json.loads(out)) == (
        0,
        {
            "rule": "ranks",
            "board": {"board": "w"},
            "found": {"score": 300, "rank": 2, "equal": 2, "total": 4, "percentile": 75.0, "complete": True},
        },
    )


def test_a_board_without_scores_is_stated(game: Place) -> None:
    none = "ranks: this board has no scores\n"
    for options, code in ((["--score", "20"], 1), (["--between", "10", "30"], 0), ([], 0)):
        assert game.say("queries", "ranks", "board=x", *options) == (code, none, "")
    assert game.say("queries", "ranks", "board=x", "--at", "1")[0] == 1


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["ranks", "board"], "query ranks: expected PARAMETER=VALUE, found 'board'"),
        (["ranks", "bord=w"], 'the key of Board has no variable "bord" (did you mean "board"?)'),
        (["ranks", "board=w", "--limit", "1"], "ranks is a rule of the kind rank, which has no pages"),
        (["ranks"], "the key of Board needs board: pass board=VALUE"),
        (["ranks", "board=w", "--score", "1", "--at", "2"], "--score and --at cannot be combined"),
        (["ranks", "board=w", "--score", "many"], "the score is 'many'. It is a number"),
        (["ranks", "board=w", "--score", "100000"], "the score 100000 has more than 5 digits"),
        (["ranks", "board=w", "--between", "30", "-10"], "--between 30 -10: 30 is greater than -10. Pass --between"),
        (["ranks", "board=w", "--between", "1", "x"], "the score is 'x'. It is a number"),
        (["players", "board=w"], 'rules.yaml has no query "players"'),
        (["rank", "board=w"], 'rules.yaml has no query "rank" (did you mean "ranks"?)'),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(game: Place, options: list[str], reason: str) -> None:
    code, out, err = game.say("queries", *options)
    assert (code, out) == (2, "")
    assert reason in err
