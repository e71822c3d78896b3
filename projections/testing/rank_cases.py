"""`ranks` of case files: the scores of a board, the best first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from projections.api import ranking
from projections.language.mistakes import Location, Mistake
from projections.language.values import number_text
from projections.local.items import json_words
from projections.printable import printable
from projections.testing.scenario import Scenario

__all__ = ["board_words", "places_of", "rank_differences", "rank_mistakes"]

_NAMES = {"rule", "board", "scores"}
_FORM = "expected `{rule: NAME, board: {…}, scores: […]}`, with the scores of the board, the best first"


def rank_mistakes(ranks: object, path: Location) -> Iterator[Mistake]:
    """Yield the mistakes in the form of `ranks`."""
    for number, one in enumerate(ranks if isinstance(ranks, list) else [None]):
        whole = isinstance(one, dict) and one.keys() == _NAMES and isinstance(one["rule"], str)
        if not (whole and isinstance(one["board"], dict) and isinstance(one["scores"], list)):
            yield Mistake((*path, number) if isinstance(ranks, list) else path, _FORM)
        elif not all(
            isinstance(score, int | float | Decimal) and not isinstance(score, bool) for score in one["scores"]
        ):
            yield Mistake((*path, number, "scores"), "expected a list of numbers")


def places_of(scenario: Scenario, one: Mapping[str, Any]) -> list[tuple[Decimal, int]]:
    """Return the scores of a board with their ranks, the best first."""
    board = ranking(scenario.store, scenario.rules, one["rule"], one["board"])
    places = (board.at(position) for position in range(1, board.between().count + 1))
    return [(place.score, place.rank) for place in places if place is not None]


def rank_differences(scenario: Scenario, one: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line with the board, and its scores with their ranks as they are and as they should be; nothing if equal."""
    due = [Decimal(str(score)) for score in one["scores"]]
    expected = [(score, 1 + due.index(score)) for score in due]
    found = places_of(scenario, one)
    if found != expected:
        yield printable(f"{board_words(one)} has other scores (with their ranks; - expected, + found):")
        yield f"  - {_words(expected)}"
        yield f"  + {_words(found)}"


def board_words(one: Mapping[str, Any]) -> str:
    """Return words for a board of a case: its rule and the variables of its key."""
    return " ".join(
        ["the board", one["rule"], *(f"{name}={json_words(value)}" for name, value in one["board"].items())]
    )


def _words(places: list[tuple[Decimal, int]]) -> str:
    return ", ".join(f"{number_text(score)} ({rank})" for score, rank in places) or "none"
