"""`projections replay`."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from typing import TYPE_CHECKING

import click

from projections.cli.options import (
    as_json,
    batch_size_option,
    find_rules,
    note,
    note_missing,
    parameters_from,
    rules_option,
    select_option,
    selected_rules,
)
from projections.errors import UsageError
from projections.terminal import json_text, print_text

if TYPE_CHECKING:
    from projections.language.access.questions import Query
    from projections.language.ruleset import RuleSet

__all__ = ["command"]


@click.command("replay")
@click.argument("events", nargs=-1, required=True, metavar="EVENTS…")
@rules_option
@as_json
@click.option(
    "--ask",
    "asks",
    multiple=True,
    metavar='"NAME PARAMETER=VALUE…"',
    help="Run this query of the rule file afterwards, and print its items; repeatable.",
)
@select_option
@click.option("--internal", is_flag=True, help="Print the guards on items, too.")
@click.option("-v", "--verbose", is_flag=True, help="First, print each record with the rules that apply to it.")
@click.option("--brief", is_flag=True, help="Print what happened in words, and one item of each entity.")
@click.option("--endpoint-url", metavar="URL", help="Replay on temporary tables at this DynamoDB endpoint.")
@batch_size_option
@click.option(
    "--settle",
    is_flag=True,
    help="Write the items of each batch, and let the functions finish, before those of the next; with `once`, this decides.",
)
def command(
    events: tuple[str, ...],
    rules: str | None,
    as_json: bool,
    select: tuple[str, ...],
    asks: tuple[str, ...],
    internal: bool,
    verbose: bool,
    brief: bool,
    endpoint_url: str | None,
    batch_size: int,
    settle: bool,
) -> int:
    """Run recorded stream events through the real handler, and print the derived items.

    EVENTS are files, - is standard input. A file has stream records, as Lambda or `aws dynamodbstreams get-records` give
    them; an object that Lambda wrote to S3 on failure; or items, each as an insert: plain items, the output of `aws dynamodb
    scan`, or a file of a table export. Steps such as {"put": {…}} are writes; `projections events --help` shows them. A file
    is JSON, JSON lines or YAML, and may be compressed by gzip. A directory must contain a table export.

    First, puts the newest version of each recorded item of the application into temporary tables, in memory
    or at --endpoint-url. Then delivers the recorded events, and then the stream records of the temporary tables, until
    nothing changes. So a rule with `once` reads the newest values. With --settle, it reads those at the time: the items of
    each batch are written as they are recorded, and the functions finish before the next batch (--batch-size 1: before the
    next record).

    With --select, other rules do not run. If a selected rule reads values of other rules, a note is printed.

    With --ask, runs a query of the rule file on the temporary tables afterwards.

    At the end, lists the items that belong to no entity, and the rules that apply to no item, with reasons and similar
    names.

    Exits with 1 if records were quarantined or failed.

    \b
    Examples:
      projections replay --rules social events/social.json
      projections replay --rules social events/social.json --ask "likers postId=p1"
    """
    from projections.api import ask, load
    from projections.cli.printing.replay import Asked, print_replay, replay_document
    from projections.language.values import plain_items
    from projections.local.events import read
    from projections.local.replay import replay
    from projections.local.tables import EndpointTables, MemoryTables, Tables, schemas

    if settle and endpoint_url is not None:
        raise UsageError("--settle replays on tables in memory; omit --endpoint-url")
    whole = load(find_rules(rules))
    note_missing(whole.program, selected_rules(whole.program, select))
    loaded = whole.only(select)
    program = loaded.program
    asked = [_asked(loaded, text) for text in asks]
    records = [recorded.record for recorded in read(events, program, note)]
    with ExitStack() as stack:
        tables: Tables
        if endpoint_url is None:
            tables = MemoryTables(schemas(program), records)
        else:
            tables = stack.enter_context(EndpointTables(endpoint_url, schemas(program)))
        result = replay(program, records, tables, batch_size=batch_size, settle=settle)
        answers = [
            Asked(query, parameters, plain_items(ask(tables.store, loaded, query.name, parameters).page().items))
            for query, parameters in asked
        ]
    if as_json:
        print_text(json_text(replay_document(result, program, answers, internal=internal)))
    else:
        print_replay(result, program, answers, internal=internal, verbose=verbose, brief=brief)
    return 1 if result.quarantined or result.failures else 0


def _asked(rules: RuleSet, text: str) -> tuple[Query, dict[str, str]]:
    """Return the query and the parameters of a text as `likers postId=p1`, in which quotes group words as in a shell."""
    from projections.access.reads import parameters_of

    try:
        name, *words = shlex.split(text)
    except ValueError:
        raise UsageError(f"--ask {text}: expected a query and its parameters, such as `likers postId=p1`") from None
    query = rules.query(name)
    parameters = parameters_from(name, words)
    parameters_of(query, parameters)
    return query, parameters
