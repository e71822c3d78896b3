"""`projections rank`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

import click

from projections.cli.options import Tables, as_json, stack_options
from projections.cli.stack import deployed
from projections.errors import UsageError

if TYPE_CHECKING:
    from projections.access.ranks import Ranked, ScoreCount

__all__ = ["command"]

NO_BOUND = "any"


@click.command("rank")
@click.argument("rule", metavar="RULE")
@stack_options
@click.option("--board", multiple=True, metavar="VARIABLE=VALUE", help="A key variable of the board; repeatable.")
@click.option("--score", metavar="N", help="Print the rank of this score. No item needs to have it.")
@click.option("--at", type=click.IntRange(1), metavar="N", help="Print the score at this position; 1 is the best.")
@click.option("--percentile", metavar="P", help="Print the worst score whose percentile is P or more.")
@click.option(
    "--between",
    nargs=2,
    metavar="LOW HIGH",
    help=f"Print the number of scores from LOW to HIGH, both included; `{NO_BOUND}` means no bound.",
)
@as_json
def command(
    rule: str,
    given: Tables,
    board: tuple[str, ...],
    score: str | None,
    at: int | None,
    percentile: str | None,
    between: tuple[str, str] | None,
    as_json: bool,
) -> int:
    """Print the rank of a score, or the score at a position or percentile of a board.

    RULE is a rule of the kind `rank`. With --between, prints the number of scores in a range; without --score, --at,
    --percentile and --between, the number of all scores. Reads a few items of the ledger.

    Equal scores share a rank. The percentile of a score is the percentage of scores that are equal or worse.

    Exits with 1 if no score is found, if the board of --score has no scores, or if not all scores are counted yet, because a
    backfill or a rebuild is not complete.

    \b
    Examples:
      projections rank ranks --board board=weekly --score 1250 --stack game
      projections rank ranks --board board=weekly --at 10 --stack game
      projections rank ranks --board board=weekly --between 1000 any --stack game
    """
    from projections.access.ranks import check_board, ranking_of
    from projections.language.program import Program
    from projections.terminal import json_text, print_line, print_text

    asked = [name for name, value in (("--score", score), ("--at", at), ("--percentile", percentile),
                                      ("--between", between)) if value is not None]  # fmt: skip
    if len(asked) > 1:
        raise UsageError(f"{' and '.join(asked)} cannot be combined: pass one of them")
    variables = _variables(board)
    low, high = (None if bound == NO_BOUND else bound for bound in between or (NO_BOUND, NO_BOUND))
    _check_bounds(low, high)
    there = deployed(given)
    document = there.document()
    check_board(Program.from_document(document), rule, variables)  # reports mistakes before it looks for tables
    live = there.connect(document)
    ranking = ranking_of(live.program, live.store, rule, variables)
    found: Ranked | ScoreCount | None
    if score is not None:
        found = ranking.rank(score)
    elif at is not None:
        found = ranking.at(at)
    elif percentile is not None:
        found = ranking.at_percentile(percentile)
    else:
        found = ranking.between(low, high)
    if as_json:
        print_text(json_text({"rule": rule, "board": variables, "found": None if found is None else found.document()}))
    elif found is None:
        place = f"at position {at}" if at is not None else f"at percentile {percentile}"
        print_line(f"{rule}: this board has no score {place}")
    else:
        print_line(_line(found, counts=between is not None) if found.total else f"{rule}: this board has no scores")
        if not found.complete:
            print_line("incomplete: not all scores are counted yet. See `projections status`")
    return int(found is None or not found.complete or (score is not None and not found.total))


def _variables(words: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise UsageError(f"--board {word}: expected VARIABLE=VALUE")
        if name in found:
            raise UsageError(f"--board: {name} is given twice")
        found[name] = value
    return found


def _check_bounds(low: str | None, high: str | None) -> None:
    """Raise UsageError if the bounds are reversed. Texts that are not numbers are reported later."""
    with suppress(InvalidOperation):
        if low is not None and high is not None and Decimal(low) > Decimal(high):
            raise UsageError(f"--between {low} {high}: {low} is greater than {high}. Pass --between {high} {low}")


def _line(found: Ranked | ScoreCount, *, counts: bool) -> str:
    from projections.access.ranks import ScoreCount
    from projections.language.values import number_text
    from projections.terminal import count

    scores = count(found.total, "score")
    if isinstance(found, ScoreCount):
        return f"{found.count:,} of {scores}" if counts else scores
    tied = f", {count(found.equal, 'equal score')}" if found.equal != 1 else ""
    percentile = f", percentile {found.percentile:.2f}" if found.percentile is not None else ""
    score = number_text(found.score)
    return f"score {score}: rank {found.rank:,} of {scores}{percentile}{tied}"
