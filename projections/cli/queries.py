"""`projections queries`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from projections.access.placeholders import condition_words, count_words
from projections.cli.options import Tables, as_json, find_rules, parameters_from, stack_options
from projections.errors import UsageError
from projections.inspect.explain.words import short
from projections.printable import printable
from projections.terminal import count, markup, print_grid, print_json, print_line, print_markup, print_text, units

if TYPE_CHECKING:
    from projections.access.answers import AnswerPage
    from projections.access.ranking import Ranked, ScoreCount
    from projections.inspect.access_patterns import AccessPattern, RankPattern
    from projections.language.access.plan import Query
    from projections.language.program import Program
    from projections.language.ruleset import RuleSet


PAGE = 100
"""The most items that are read if neither the query nor --limit sets a limit."""
NO_BOUND = "any"


@click.command("queries")
@click.argument("words", nargs=-1, metavar="[NAME] [PARAMETER=VALUE…]")
@stack_options
@click.option("--limit", type=click.IntRange(1), metavar="N", help="Maximum items. [default: from the query, or 100]")
@click.option("--token", metavar="T", help="Token of the page to read. [default: the first page]")
@click.option("--score", metavar="N", help="Print the rank of this score. No item needs to have it.")
@click.option("--at", type=click.IntRange(1), metavar="N", help="Print the score at this position; 1 is the best.")
@click.option(
    "--between",
    nargs=2,
    metavar="LOW HIGH",
    help=f"Print the number of scores from LOW to HIGH, both included, and their `sum`; `{NO_BOUND}` means no bound.",
)
@click.option("--markdown", is_flag=True, help="Print the table of access patterns as Markdown.")
@as_json
def command(
    words: tuple[str, ...],
    options: Tables,
    limit: int | None,
    token: str | None,
    score: str | None,
    at: int | None,
    between: tuple[str, str] | None,
    markdown: bool,
    as_json: bool,
) -> int:
    """Show which requests answer the queries of a rule file, run one, or read ranks.

    Without NAME, prints the table of access patterns: each query with its number, its question, and the request that
    answers it, and each rule of the kind `rank`. With NAME, prints that query in detail.

    With PARAMETER=VALUE, --table or --stack, runs the query NAME, and prints its requests and one page of items. Values are
    text; a number attribute is compared as a number. The bounds of `range: x` are x.from, x.to and x.prefix. An upper bound
    that is a date, or the beginning of one, includes all that begins with it: x.to=2026-04 includes April.

    NAME can be a rule of the kind `rank`, and the parameters are the variables of the key of a board. Prints what --score,
    --at or --between ask for, or the number of all scores. Equal scores share a rank. The percentile of a score is the
    percentage of scores that are equal or worse.

    Exits with 1 if a query is incomplete or has no request; for ranks, if no score is found, if the board of --score has no
    scores, or if not all scores are counted yet, because the rule is filling.

    \b
    Examples:
      projections queries --rules social
      projections queries --markdown > access-patterns.md
      projections queries likers postId=p1 --table app
      projections queries feed publishedAt.from=2026-01-01 --limit 20 --stack shop
      projections queries ranks board=weekly --score 1250 --stack game
      projections queries ranks board=weekly --between 1000 any --stack game
    """
    from projections.api import load

    path, names = find_rules(options.rules), words
    options = replace(options, rules=str(path))
    rules = load(path)
    if markdown and (names or as_json):
        raise UsageError("--markdown prints the table of all queries: omit NAME and --json")
    if not names:
        if options.tables or options.stack or limit or token:
            raise UsageError(f"no query to run: name one of {', '.join(rules.queries) or 'none'}")
        return _show(rules, None, as_json, markdown)
    if Path(names[0]).suffix in (".yaml", ".yml", ".json"):
        raise UsageError(f"{names[0]} names no query. Pass the rule file with --rules {names[0]}")
    question = Question(score, at, between)
    kinds = {name: rule.kind for name, rule in rules.program.model.projections.items()}
    if names[0] not in rules.queries and kinds.get(names[0]) == "rank":
        if limit or token:
            raise UsageError(f"{names[0]} is a rule of the kind rank, which has no pages: omit --limit and --token")
        return _rank(names[0], parameters_from(names[0], names[1:]), question, options, as_json)
    if asked := question.options():
        raise UsageError(f"{asked[0]} reads ranks, and {names[0]} is not a rule of the kind rank: omit it")
    query = rules.query(names[0])
    parameters = parameters_from(query.name, names[1:])
    if not parameters and not options.tables and not options.stack:
        return _show(rules, query.name, as_json)
    _run(rules, query, parameters, options, limit, token, as_json)
    return 0


def _show(rules: RuleSet, only: str | None, as_json: bool, markdown: bool = False) -> int:
    from projections.inspect.access_patterns import access_patterns, rank_patterns

    model = rules.program.model
    patterns = access_patterns(model, rules.queries, only)
    if any(pattern.proposal for pattern in patterns):  # otherwise the engine is not imported
        from projections.testing.counterexamples import refusal
    for number, pattern in enumerate(patterns):
        if pattern.proposal and (reason := refusal(model, pattern.query, pattern.proposal.text)):
            plan = pattern.plan._replace(reason=f"{pattern.plan.reason}; {reason}")
            patterns[number] = pattern._replace(proposal=None, plan=plan)
    ranks = [*rank_patterns(model, rules.queries)] if only is None else []
    if as_json:
        more = {"ranks": [rank._asdict() for rank in ranks]} if ranks else {}
        print_json({"queries": [pattern.document() for pattern in patterns], **more})
    elif markdown:
        head, *rows = [[_escape(text) for text, _ in row] for row in _table(patterns, ranks, 1000)]
        print_text("".join(f"| {' | '.join(row)} |\n" for row in (head, ["---"] * len(head), *rows)))
    else:
        print_patterns(patterns, rules.file, verbose=only is not None, ranks=ranks)
    return int(not all(pattern.answered for pattern in patterns))


def _run(
    rules: RuleSet,
    query: Query,
    parameters: dict[str, str],
    options: Tables,
    limit: int | None,
    token: str | None,
    as_json: bool,
) -> None:
    from projections.access.answers import ClientReader, answer_to
    from projections.access.query_reads import parameters_of, reads
    from projections.cli.stack import find_deployed
    from projections.language.access.planner import plan
    from projections.language.values import plain_items

    planned = plan(rules.program.model, query)
    reads(planned, parameters_of(query, parameters))  # reports mistakes before it looks for tables
    there = find_deployed(options)
    live = there.connect(rules.program.document, without_ledger=True)
    requests: list[Mapping[str, Any]] = []
    answer = answer_to(live.program, planned, parameters, ClientReader(live.store, requests.append))
    page = answer.page(limit or query.limit or PAGE, token)
    page.items = plain_items(page.items)
    if as_json:
        print_json(
            {
                "items": page.items,
                "requests": requests,
                "token": page.token,
                "scanned": page.scanned,
                "readUnits": page.units,
            }
        )
    else:
        print_page(page, requests, columns_of(live.program, query))


# --- ranks ---


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked of a board: at most one of these."""

    score: str | None
    at: int | None
    between: tuple[str, str] | None

    def options(self) -> list[str]:
        """Return the options that are given."""
        return [f"--{field.name}" for field in fields(self) if getattr(self, field.name) is not None]


def _rank(rule: str, board: dict[str, str], question: Question, options: Tables, as_json: bool) -> int:
    from projections.access.ranking import check_board, ranking_of
    from projections.cli.stack import find_deployed
    from projections.language.program import Program

    if len(asked := question.options()) > 1:
        raise UsageError(f"{' and '.join(asked)} cannot be combined: pass one of them")
    low, high = (None if bound == NO_BOUND else bound for bound in question.between or (NO_BOUND, NO_BOUND))
    with suppress(InvalidOperation):  # texts that are not numbers are reported later
        if low is not None and high is not None and Decimal(low) > Decimal(high):
            raise UsageError(f"--between {low} {high}: {low} is greater than {high}. Pass --between {high} {low}")
    there = find_deployed(options)
    document = there.document()
    check_board(Program.from_document(document), rule, board)  # reports mistakes before it looks for tables
    live = there.connect(document)
    ranking = ranking_of(live.program, live.store, rule, board)
    answer: Ranked | ScoreCount | None
    if question.score is not None:
        answer = ranking.rank(question.score)
    elif question.at is not None:
        answer = ranking.at(question.at)
    else:
        answer = ranking.sum_between(low, high) if ranking.has_sums else ranking.between(low, high)
    if as_json:
        print_json({"rule": rule, "board": board, "found": None if answer is None else answer.document()})
    elif answer is None:
        print_line(f"{rule}: this board has no score at position {question.at}")
    else:
        counts = question.between is not None
        print_line(_line(answer, counts=counts) if answer.total else f"{rule}: this board has no scores")
        if not answer.complete:
            print_line("incomplete: not all scores are counted yet. See `projections status`")
    return int(answer is None or not answer.complete or (question.score is not None and not answer.total))


def _line(answer: Ranked | ScoreCount, *, counts: bool) -> str:
    from projections.access.ranking import ScoreCount, ScoreSum
    from projections.language.values import number_text

    scores = count(answer.total, "score")
    if isinstance(answer, ScoreCount):
        sums = f", sum {number_text(answer.sum)}" if isinstance(answer, ScoreSum) else ""
        return (f"{answer.count:,} of {scores}" if counts else scores) + sums
    tied = f", {count(answer.equal, 'equal score')}" if answer.equal != 1 else ""
    percentile = f", percentile {answer.percentile:.2f}" if answer.percentile is not None else ""
    score = number_text(answer.score)
    return f"score {score}: rank {answer.rank:,} of {scores}{percentile}{tied}"


COLOURS = {"one": "green", "several": "green", "filtered": "yellow", "incomplete": "red", "none": "red"}


def print_patterns(
    patterns: Sequence[AccessPattern], file: str, *, verbose: bool, ranks: Sequence[RankPattern] = ()
) -> None:
    """Print the table of access patterns, and below it the reasons of those without an exact answer, or all details."""
    if patterns or ranks:
        print_grid(_table(patterns, ranks, 48), indent=0)
    if not patterns:
        print_markup("{} has no queries. Add `queries:`.", file)
        return
    for pattern in patterns:
        if verbose or pattern.plan.verdict in ("filtered", "incomplete", "none"):
            _print_details(pattern, verbose=verbose)
    if sum(pattern.proposal is not None for pattern in patterns) > 1:
        print_line("Each addition is computed for the current rules, and can answer several queries.")
        print_line("Add one, then run the command again.")
    good = sum(pattern.answered for pattern in patterns)
    colour, mark = ("green", "✓") if good == len(patterns) else ("red", "✗")
    print_markup("[{}]{}[/] {}: {}, {} answered.", colour, mark, file, count(len(patterns), "query", "queries"), good)


def _escape(text: str) -> str:
    """Return a text without marks of Markdown."""
    return re.sub(r"([\\`*_\[\]<>|&~])", r"\\\1", printable(text))


def _table(patterns: Sequence[AccessPattern], ranks: Sequence[RankPattern], most: int) -> list[list[tuple[str, str]]]:
    """Return the rows of the table of access patterns, with styles: its head, queries, ranks. Questions are cut at `most`
    characters.
    """
    head = [(name, "bold") for name in ("id", "query", "question", "answer", "requests", "path", "key condition")]
    rows = [row for pattern in patterns for row in _rows(pattern, most)]
    return [head, *rows, *(row for rank in ranks for row in _rank_rows(rank))]


def _rows(pattern: AccessPattern, most: int) -> list[list[tuple[str, str]]]:
    """Return a row for each request of a pattern, one if there is none."""
    word, colour = pattern.words, COLOURS[pattern.plan.verdict]
    conditions = [(read.index or "table", condition_words(read)) for read in pattern.reads] or [("-", "-")]
    number = count_words(pattern.plan) if pattern.reads else "-"
    first = [pattern.query.id or "-", pattern.query.name, short(pattern.query.about or "-", most), word, number]
    styles = ["", "cyan", "dim", colour, ""]
    return [
        [*zip(first if row == 0 else [""] * len(first), styles, strict=True), (path, ""), (condition, "")]
        for row, (path, condition) in enumerate(conditions)
    ]


def _rank_rows(pattern: RankPattern) -> list[list[tuple[str, str]]]:
    """Return the row of a rank, then those of its sums, and of the items at positions if a query lists a board."""
    from projections.inspect.access_patterns import WORDS

    word, question = WORDS["one"], short(pattern.question, 48)
    rows = [("-", pattern.rule, question, word, "1", "ledger", f"{count(pattern.items, 'item')} for {pattern.key}")]
    if (sums := pattern.sums) is not None:
        asked = short(f"The sum of {sums['sum']} between two scores", 48)
        rows.append(("", "", asked, word, "1", "ledger", f"at most {sums['readUnits']} read units"))
    if (at := pattern.positions) is not None:
        reads = f"{at['readUnits']} read units, then {at['query']} from the score on"
        number, path = str(at["requests"]), f"ledger, {at['path']}"
        rows.append(("", "", "The items at positions", WORDS["several"], number, path, reads))
    return [list(zip(row, ("", "cyan", "dim", COLOURS["one"], "", "", ""), strict=True)) for row in rows]


def _print_details(pattern: AccessPattern, *, verbose: bool) -> None:
    word, colour = pattern.words, COLOURS[pattern.plan.verdict]
    about = markup("  [dim]{}[/]", pattern.query.about) if pattern.query.about else ""
    print_markup("[cyan]{}[/]: [{}]{}[/]{}", pattern.query.name, colour, word, about)
    plan = pattern.plan
    if plan.reason:
        print_markup("  {}", plan.reason)
    if verbose:
        rows: list[tuple[str, Iterable[str]]] = [
            ("rule", [plan.copy or plan.rule or ""]),
            ("also read", plan.others),
            ("filtered by", plan.tests),
            ("assumed", plan.assumes),
        ]
        print_grid([[(name, "dim"), (text, "")] for name, texts in rows for text in texts if text], after="")
        for read in pattern.reads:
            print_markup("  [dim]{}[/]", "GetItem" if read.get else "Query")
            for line in json.dumps(pattern.document()["requests"][pattern.reads.index(read)], indent=2).split("\n"):
                print_markup("  [dim]{}[/]", line)
    if pattern.proposal:
        print_markup("  [green]→[/] {}:", pattern.proposal.sentence)
        for line in pattern.proposal.text.rstrip("\n").split("\n"):
            print_markup("    {}", line)
        if pattern.proposal.unused:
            print_markup("  [dim]{}[/]", pattern.proposal.unused)
    print_line()


def print_page(page: AnswerPage, requests: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print the requests that were made, the items with these attributes first, and what they took."""
    for request in requests:
        print_markup("[dim]{} {}[/]", "GetItem" if "Key" in request else "Query", json.dumps(request))
    print_line()
    print_items(page.items, columns)
    print_markup(
        "[bold]{}[/] of {} read, {}, {}.",
        count(len(page.items), "item"),
        count(page.scanned, "item"),
        count(page.requests, "request"),
        units(page.units, "read unit"),
    )
    if page.token is not None:
        print_markup("Next page: --token {}", page.token)


def print_items(items: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print one line for each item, with a column for each attribute: first these, then the others by name."""
    attributes = {name for item in items for name in item}
    names = [*(name for name in columns if name in attributes), *sorted(attributes.difference(columns))]
    if not names:
        return
    rows = [[(name, "bold") for name in names]]
    rows += [[(_value(item[name]) if name in item else "-", "") for name in names] for item in items]
    print_grid(rows)


def columns_of(program: Program, query: Query) -> Sequence[str]:
    """Return the attributes that are printed first: those that a query asks for, or the key."""
    return query.attributes or program.tables[program.entities[query.entities[0]].table].key_attributes


def _value(value: Any) -> str:
    return short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 40)
