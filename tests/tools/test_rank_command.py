"""`projections rank`: each question, and what cannot be answered."""

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
  ranks: {from: Score, rank: {into: Board, by: points, digits: 6, decimals: 1}}
  players: {from: Score, aggregate: {into: Board, set: {players: count}}}
"""


@pytest.fixture
def game(place: Place) -> Place:
    place.deploy(RULES)
    place.activate()
    scores = {"ann": 500, "ben": 300, "cat": 300, "dan": -12.5}
    place.deliver(*(place.put("BOARD#w", f"PLAYER#{player}", points=points) for player, points in scores.items()))
    return place


@pytest.mark.parametrize("place", ["DynamoDB Local and moto"], indirect=True)
def test_each_question_has_its_answer(game: Place) -> None:
    def said(*options: str) -> tuple[int, str]:
        code, out, err = game.say("rank", "ranks", "--board", "board=w", *options)
        assert err == ""
        return code, out

    assert said() == (0, "4 scores\n")
    assert said("--score", "300") == (0, "score 300: rank 2 of 4 scores, percentile 75.00, 2 equal scores\n")
    assert said("--score", "-12.5") == (0, "score -12.5: rank 4 of 4 scores, percentile 25.00\n")
    assert said("--score", "1000") == (0, "score 1000: rank 1 of 4 scores, percentile 100.00, 0 equal scores\n")
    assert said("--at", "4") == (0, "score -12.5: rank 4 of 4 scores, percentile 25.00\n")
    assert said("--at", "5") == (1, "ranks: this board has no score at position 5\n")
    assert said("--percentile", "76") == (0, "score 500: rank 1 of 4 scores, percentile 100.00\n")
    assert said("--between", "0", "300") == (0, "2 of 4 scores\n")
    assert said("--between", "any", "-12.5") == (0, "1 of 4 scores\n")
    code, out = said("--score", "300", "--json")
    assert (code, json.loads(out)) == (
        0,
        {
            "rule": "ranks",
            "board": {"board": "w"},
            "found": {"score": 300, "rank": 2, "equal": 2, "total": 4, "percentile": 75.0, "complete": True},
        },
    )


@pytest.mark.parametrize("place", ["DynamoDB Local and moto"], indirect=True)
def test_a_board_without_scores_is_stated(game: Place) -> None:
    none = "ranks: this board has no scores\n"
    for options, code in ((["--score", "20"], 1), (["--between", "10", "30"], 0), ([], 0)):
        assert game.say("rank", "ranks", "--board", "board=x", *options) == (code, none, "")
    assert game.say("rank", "ranks", "--board", "board=x", "--at", "1")[0] == 1


@pytest.mark.parametrize("place", ["DynamoDB Local and moto"], indirect=True)
def test_a_rule_that_fills_has_incomplete_answers(game: Place) -> None:
    game.file.write_text(RULES.replace("digits: 6", "digits: 7"))
    code, out, _ = game.say("rank", "ranks", "--board", "board=w", "--score", "300", "--rules", str(game.file))
    assert code == 1
    assert "incomplete" in out


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["ranks", "--board", "board"], "--board board: expected VARIABLE=VALUE"),
        (["ranks", "--board", "bord=w"], 'the key of Board has no variable "bord" (did you mean "board"?)'),
        (["ranks"], "the key of Board needs board: pass --board board=VALUE"),
        (["ranks", "--board", "board=w", "--score", "1", "--at", "2"], "--score and --at cannot be combined"),
        (["ranks", "--board", "board=w", "--score", "many"], "the score is 'many'. It is a number"),
        (["ranks", "--board", "board=w", "--score", "100000"], "the score 100000 has more than 5 digits"),
        (["ranks", "--board", "board=w", "--percentile", "0"], "the percentile is 0"),
        (
            ["ranks", "--board", "board=w", "--between", "30", "-10"],
            "--between 30 -10: 30 is greater than -10. Pass --between",
        ),
        (["ranks", "--board", "board=w", "--between", "1", "x"], "the score is 'x'. It is a number"),
        (["players", "--board", "board=w"], "rule players is of the kind aggregate"),
        (["rank", "--board", "board=w"], 'unknown rule "rank" (did you mean "ranks"?)'),
    ],
)
@pytest.mark.parametrize("place", ["DynamoDB Local and moto"], indirect=True)
def test_a_question_that_cannot_be_answered_is_refused(game: Place, options: list[str], reason: str) -> None:
    code, out, err = game.say("rank", *options)
    assert (code, out) == (2, "")
    assert err.startswith(f"projections: {reason}"), err
