"""What `queries` prints: the table of access patterns, and a page of one query's answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from projections.access.placeholders import condition_words, count_words
from projections.inspect.access_patterns import WORDS
from projections.inspect.explain.words import short
from projections.terminal import console, count, print_grid, styled, units

if TYPE_CHECKING:
    from rich.console import Console

    from projections.access.answers import AnswerPage
    from projections.inspect.access_patterns import AccessPattern, RankPattern
    from projections.language.access.plan import Query
    from projections.language.program import Program

__all__ = ["columns_of", "page_document", "print_items", "print_page", "print_patterns"]

COLOURS = {"one": "green", "several": "green", "filtered": "yellow", "incomplete": "red", "none": "red"}


def print_patterns(
    patterns: Sequence[AccessPattern], file: str, *, verbose: bool, ranks: Sequence[RankPattern] = ()
) -> None:
    """Print the table of access patterns, and below it the reasons of those without an exact answer, or all details."""
    out = console()
    rows = [[(name, "bold") for name in ("id", "query", "question", "answer", "requests", "path", "key condition")]]
    for one in patterns:
        rows += _rows(one)
    rows += map(_rank, ranks)
    if len(rows) > 1:
        print_grid(out, rows, indent=0)
    if not patterns:
        out.print(styled("{} has no queries. Add `queries:`.", file))
        return
    for one in patterns:
        if verbose or one.plan.verdict in ("filtered", "incomplete", "none"):
            _print_details(out, one, verbose=verbose)
    if sum(one.offer is not None for one in patterns) > 1:
        out.print(styled("Each addition is computed for the current rules, and can answer several queries."))
        out.print(styled("Add one, then run the command again."))
    first = next((one.query.name for one in patterns if one.offer is not None), None)
    if first is not None:
        out.print(
            styled(
                "To write the addition for {} into the rule file: [dim]projections queries {} --apply {}[/]",
                first,
                file,
                first,
            )
        )
    good = sum(one.answered for one in patterns)
    colour, mark = ("green", "✓") if good == len(patterns) else ("red", "✗")
    out.print(
        styled("[{}]{}[/] {}: {}, {} answered.", colour, mark, file, count(len(patterns), "query", "queries"), good)
    )


def _rows(one: AccessPattern) -> list[list[tuple[str, str]]]:
    """Return a row for each request of a pattern, one if there is none."""
    word, colour = one.words, COLOURS[one.plan.verdict]
    conditions = [(read.index or "table", condition_words(read)) for read in one.reads] or [("-", "-")]
    number = count_words(one.plan) if one.reads else "-"
    first = [one.query.id or "-", one.query.name, short(one.query.about or "-", 48), word, number]
    styles = ["", "cyan", "dim", colour, ""]
    return [
        [*zip(first if row == 0 else [""] * len(first), styles, strict=True), (path, ""), (condition, "")]
        for row, (path, condition) in enumerate(conditions)
    ]


def _rank(one: RankPattern) -> list[tuple[str, str]]:
    word, colour, question = WORDS["one"], COLOURS["one"], short(one.question, 48)
    reads = f"{count(one.items, 'item')} for {one.key}"
    texts = ("-", one.rule, question, word, "1", "ledger", reads)
    return list(zip(texts, ("", "cyan", "dim", colour, "", "", ""), strict=True))


def _print_details(out: Console, one: AccessPattern, *, verbose: bool) -> None:
    word, colour = one.words, COLOURS[one.plan.verdict]
    about = styled("  [dim]{}[/]", one.query.about) if one.query.about else ""
    out.print(styled("[cyan]{}[/]: [{}]{}[/]{}", one.query.name, colour, word, about))
    plan = one.plan
    if plan.reason:
        out.print(styled("  {}", plan.reason))
    if verbose:
        rows: list[tuple[str, Iterable[str]]] = [
            ("rule", [plan.copy or plan.rule or ""]),
            ("also read", plan.others),
            ("filtered by", plan.tests),
            ("assumed", plan.assumes),
        ]
        print_grid(out, [[(name, "dim"), (text, "")] for name, texts in rows for text in texts if text], after="")
        for read in one.reads:
            out.print(styled("  [dim]{}[/]", "GetItem" if read.get else "Query"))
            for line in json.dumps(one.document()["requests"][one.reads.index(read)], indent=2).split("\n"):
                out.print(styled("  [dim]{}[/]", line))
    if one.offer:
        out.print(styled("  [green]→[/] {}:", one.offer.proposal.sentence))
        for line in one.offer.proposal.text.rstrip("\n").split("\n"):
            out.print(styled("    {}", line))
        if one.offer.cost:
            out.print(styled("  [dim]{}[/]", one.offer.cost))
        if one.offer.proposal.unused:
            out.print(styled("  [dim]{}[/]", one.offer.proposal.unused))
    out.print()


def page_document(page: AnswerPage, requests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return what `queries NAME --json` prints."""
    return {
        "items": page.items,
        "requests": list(requests),
        "token": page.token,
        "scanned": page.scanned,
        "readUnits": page.units,
    }


def print_page(page: AnswerPage, requests: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print the requests that were made, the items with these attributes first, and what they took."""
    out = console()
    for request in requests:
        out.print(styled("[dim]{} {}[/]", "GetItem" if "Key" in request else "Query", json.dumps(request)))
    out.print()
    print_items(out, page.items, columns)
    out.print(
        styled(
            "[bold]{}[/] of {} read, {}, {}.",
            count(len(page.items), "item"),
            count(page.scanned, "item"),
            count(page.requests, "request"),
            units(page.units, "read unit"),
        )
    )
    if page.token is not None:
        out.print(styled("Next page: --token {}", page.token))


def print_items(out: Console, items: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> None:
    """Print one line for each item, with a column for each attribute: first these, then the others by name."""
    found = {name for item in items for name in item}
    names = [*(name for name in columns if name in found), *sorted(found.difference(columns))]
    if not names:
        return
    rows = [[(name, "bold") for name in names]]
    rows += [[(_value(item[name]) if name in item else "-", "") for name in names] for item in items]
    print_grid(out, rows)


def columns_of(program: Program, query: Query) -> Sequence[str]:
    """Return the attributes that are printed first: those that a query asks for, or the key."""
    return query.attributes or program.tables[program.entities[query.entities[0]].table].key_attributes


def _value(value: Any) -> str:
    return short(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 40)
