"""`projections queries`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from projections.cli.generated import agreed, force_option, write_generated
from projections.cli.options import (
    Tables,
    as_json,
    find_rules,
    note_written,
    output_option,
    parameters_from,
    stack_options,
    write_output,
)
from projections.errors import UsageError
from projections.language.files import bundled

if TYPE_CHECKING:
    from projections.access.ranks import Ranked, ScoreCount
    from projections.language.access.plan import Query
    from projections.language.ruleset import RuleSet

__all__ = ["command"]

PAGE = 100
"""The most items that are read if neither the query nor --limit sets a limit."""
NO_BOUND = "any"


@click.command("queries")
@click.argument("words", nargs=-1, metavar="[FILE] [NAME] [PARAMETER=VALUE…]")
@stack_options
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum items. [default: from the query, or 100]")
@click.option("--token", metavar="T", help="Token of the page to read. [default: the first page]")
@click.option("--score", metavar="N", help="Print the rank of this score. No item needs to have it.")
@click.option("--at", type=click.IntRange(1), metavar="N", help="Print the score at this position; 1 is the best.")
@click.option("--percentile", metavar="P", help="Print the worst score whose percentile is P or more.")
@click.option(
    "--between",
    nargs=2,
    metavar="LOW HIGH",
    help=f"Print the number of scores from LOW to HIGH, both included; `{NO_BOUND}` means no bound.",
)
@click.option("-v", "--verbose", is_flag=True, help="Print the reasons, assumptions and filters of all queries.")
@click.option("--markdown", is_flag=True, help="Write the table-design page as Markdown.")
@click.option(
    "--apply", "chosen", metavar="QUERY", help="Write the addition proposed for this query into the rule file."
)
@output_option
@force_option
@as_json
def command(
    words: tuple[str, ...],
    given: Tables,
    limit: int | None,
    token: str | None,
    score: str | None,
    at: int | None,
    percentile: str | None,
    between: tuple[str, str] | None,
    verbose: bool,
    markdown: bool,
    chosen: str | None,
    output: str | None,
    force: bool,
    as_json: bool,
) -> int:
    """Show which requests answer the queries of a rule file, run one, or read ranks.

    Without NAME, prints the table of access patterns: each query with its number, its question, and the request that
    answers it, and each rule of the kind `rank`. With NAME, prints that query in detail.

    With PARAMETER=VALUE, --table or --stack, runs the query NAME, and prints its requests and one page of items. Values are
    text; a number attribute is compared as a number. The bounds of `range: x` are x.from, x.to and x.prefix. An upper bound
    that is a date, or the beginning of one, includes all that begins with it: x.to=2026-04 includes April.

    NAME can be a rule of the kind `rank`, and the parameters are the variables of the key of a board. Prints the rank of
    --score, the score --at a position or --percentile, the number of scores --between two, or else of all. Equal scores
    share a rank. The percentile of a score is the percentage of scores that are equal or worse.

    With --markdown, writes the table-design page: entities with their keys, indexes, the access pattern
    matrix, write patterns, the writer of each attribute, read capacity, and the checklist of single-table design. If FILE of
    -o was edited since this command wrote it, the command shows the difference and asks before it overwrites the file.
    Without a terminal it writes nothing; --force overwrites.

    With --apply QUERY, writes the proposed addition for QUERY into the rule file, or a file that it includes. It shows the
    difference and asks before it writes. Comments and layout stay. Without a terminal it writes nothing; --force writes.

    FILE is a rule file or a bundled name. If a query has the name of a file, use --rules for the file.

    Exits with 1 if a query is incomplete or has no request; for ranks, if no score is found, if the board of --score has no
    scores, or if not all scores are counted yet, because a backfill or a rebuild is not complete.

    \b
    Examples:
      projections queries rules.yaml
      projections queries rules.yaml --markdown -o design.md
      projections queries likers postId=p1 --table app
      projections queries feed publishedAt.from=2026-01-01 --limit 20 --stack shop
      projections queries ranks board=weekly --score 1250 --stack game
      projections queries ranks board=weekly --between 1000 any --stack game
    """
    from projections.api import load

    file, names = _divided(words, given.rules)
    path = find_rules(file, given.rules)
    rules = load(path)
    if chosen is not None:
        if names or markdown or output or as_json:
            raise UsageError(
                "--apply QUERY cannot be combined with another query, --markdown, -o or --json: omit these"
            )
        return _apply(rules, path, chosen, force)
    if markdown or output is not None:
        if not markdown or names or as_json:
            raise UsageError("--markdown writes the page of all queries, -o to a file; omit NAME and --json")
        return _design(rules, path, output, force)
    if not names:
        if given.tables or given.stack or limit or token:
            raise UsageError(f"no query to run: name one of {', '.join(rules.queries) or 'none'}")
        return _show(rules, None, as_json, verbose)
    question = Question(score, at, percentile, between)
    kinds = {name: rule.kind for name, rule in rules.program.typed.rules.items()}
    if names[0] not in rules.queries and kinds.get(names[0]) == "rank":
        if limit or token:
            raise UsageError(f"{names[0]} is a rule of the kind rank, which has no pages: omit --limit and --token")
        return _rank(names[0], parameters_from(names[0], names[1:]), question, replace(given, rules=str(path)), as_json)
    if asked := question.options():
        raise UsageError(f"{asked[0]} reads ranks, and {names[0]} is not a rule of the kind rank: omit it")
    query = rules.query(names[0])
    parameters = parameters_from(query.name, names[1:])
    if not parameters and not given.tables and not given.stack:
        return _show(rules, query.name, as_json, True)
    _run(rules, query, parameters, replace(given, rules=str(path)), limit, token, as_json)
    return 0


def _divided(words: Sequence[str], rules: str | None) -> tuple[str | None, Sequence[str]]:
    """Return the rule file, if the first word names one, and the other words."""
    if not words or rules is not None:
        return None, words
    first = words[0]
    named = Path(first).suffix in (".yaml", ".yml", ".json") or Path(first).exists()
    return (first, words[1:]) if named or bundled(first) else (None, words)


def _show(rules: RuleSet, only: str | None, as_json: bool, verbose: bool) -> int:
    from projections.cli.printing.queries import print_patterns
    from projections.inspect.access_patterns import access_patterns, rank_patterns
    from projections.terminal import json_text, print_text

    found = access_patterns(rules.program.typed, rules.queries, only)
    ranks = [*rank_patterns(rules.program.typed)] if only is None else []
    if as_json:
        more = {"ranks": [one.document() for one in ranks]} if ranks else {}
        print_text(json_text({"queries": [one.document() for one in found], **more}))
    else:
        print_patterns(found, rules.file, verbose=verbose, ranks=ranks)
    return int(not all(one.answered for one in found))


def _apply(rules: RuleSet, path: Path, name: str, force: bool) -> int:
    """Write the proposal for a query into the rule files."""
    from projections.inspect.access_patterns import access_patterns
    from projections.inspect.applying import applied
    from projections.language.access.proposals import EXACT
    from projections.language.editing import LayoutError
    from projections.language.files import SHIPPED
    from projections.terminal import print_line, print_text

    query = rules.query(name)
    (found,) = access_patterns(rules.program.typed, rules.queries, query.name)
    if found.proposal is None:
        if found.plan.verdict in EXACT:
            print_line(f"{query.name} is answered already. Nothing was written.")
            return 0
        raise UsageError(f"no addition is known that answers {query.name} exactly: {found.plan.reason}")
    others = [other for other in rules.queries.values() if other.name != query.name]
    try:
        changes = applied(path, rules.text, rules.program.typed, query, found.proposal, others)
    except LayoutError as error:
        print_text(found.proposal.text)
        raise UsageError(f"nothing was written: {error}. Add the YAML above to the rule file by hand") from None
    bundled_files = [str(file) for file in changes if file.resolve().is_relative_to(SHIPPED.resolve())]
    if bundled_files:
        raise UsageError(f"{bundled_files[0]} is part of this package. Copy it, and apply the addition to the copy")
    sentence = f"Addition for {query.name}: {found.proposal.sentence}"
    if not force and not agreed(
        changes, sentence, "To write it, pass --force, or run the command in a terminal", "Write it?"
    ):
        return 1
    for file, (_, text) in changes.items():
        write_output(str(file), text)
        print_line(f"Changed {file}.")
    return 0


def _design(rules: RuleSet, path: Path, output: str | None, force: bool) -> int:
    """Write the table-design page."""
    from projections.deploy.checksum import with_checksum
    from projections.inspect.design.checklist import design_of
    from projections.inspect.design.markdown import markdown
    from projections.language.loader import loads
    from projections.language.review import reviewed
    from projections.terminal import count, print_line, print_text

    review = reviewed(rules.text, path.name, path)
    design = design_of(loads(rules.text, rules.file), path.name, review)
    text = with_checksum(markdown(design), "<!-- {} -->")
    if output is None:
        print_text(text, end="")
    elif not write_generated(output, text, force=force):
        return 1
    else:
        note_written(output, f"{count(len(design.patterns), 'query', 'queries')} of {path.name}")
    for one in design.patterns:
        if not one.answered:
            print_line(f"query {one.query.name}: {one.plan.reason}", err=True)
    return int(not all(one.answered for one in design.patterns))


def _run(
    rules: RuleSet,
    query: Query,
    parameters: dict[str, str],
    given: Tables,
    limit: int | None,
    token: str | None,
    as_json: bool,
) -> None:
    from projections.access.answers import ClientReader, answer_to
    from projections.access.reads import parameters_of, reads
    from projections.cli.printing.queries import columns_of, page_document, print_page
    from projections.cli.stack import deployed
    from projections.language.access.planner import plan
    from projections.language.values import plain_items
    from projections.terminal import json_text, print_text

    planned = plan(rules.program.typed, query)
    reads(rules.program.typed, planned, parameters_of(query, parameters))  # reports mistakes before it looks for tables
    there = deployed(given)
    live = there.connect(there.document(), without_ledger=True)
    requests: list[Mapping[str, Any]] = []
    answer = answer_to(live.program, planned, parameters, ClientReader(live.store, requests.append))
    page = answer.page(limit or query.limit or PAGE, token)
    page.items = plain_items(page.items)
    if as_json:
        print_text(json_text(page_document(page, requests)))
    else:
        print_page(page, requests, columns_of(live.program, query))


# --- ranks ---


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a board: at most one of these."""

    score: str | None
    at: int | None
    percentile: str | None
    between: tuple[str, str] | None

    def options(self) -> list[str]:
        """Return the options that are given."""
        return [f"--{field.name}" for field in fields(self) if getattr(self, field.name) is not None]


def _rank(rule: str, board: dict[str, str], question: Question, given: Tables, as_json: bool) -> int:
    from projections.access.ranks import check_board, ranking_of
    from projections.cli.stack import deployed
    from projections.language.program import Program
    from projections.terminal import json_text, print_line, print_text

    if len(asked := question.options()) > 1:
        raise UsageError(f"{' and '.join(asked)} cannot be combined: pass one of them")
    low, high = (None if bound == NO_BOUND else bound for bound in question.between or (NO_BOUND, NO_BOUND))
    _check_bounds(low, high)
    there = deployed(given)
    document = there.document()
    check_board(Program.from_document(document), rule, board)  # reports mistakes before it looks for tables
    live = there.connect(document)
    ranking = ranking_of(live.program, live.store, rule, board)
    found: Ranked | ScoreCount | None
    if question.score is not None:
        found = ranking.rank(question.score)
    elif question.at is not None:
        found = ranking.at(question.at)
    elif question.percentile is not None:
        found = ranking.at_percentile(question.percentile)
    else:
        found = ranking.between(low, high)
    if as_json:
        print_text(json_text({"rule": rule, "board": board, "found": None if found is None else found.document()}))
    elif found is None:
        asked_at = f"position {question.at}" if question.at is not None else f"percentile {question.percentile}"
        print_line(f"{rule}: this board has no score at {asked_at}")
    else:
        counts = question.between is not None
        print_line(_line(found, counts=counts) if found.total else f"{rule}: this board has no scores")
        if not found.complete:
            print_line("incomplete: not all scores are counted yet. See `projections status`")
    return int(found is None or not found.complete or (question.score is not None and not found.total))


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
