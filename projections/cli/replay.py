"""`projections replay`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from projections.cli.options import (
    as_json,
    batch_size_option,
    find_rules,
    note,
    note_missing,
    note_written,
    parameters_from,
    rules_option,
    select_option,
    selected_rules,
    write_output,
)
from projections.errors import UsageError
from projections.terminal import count, json_text, print_text

if TYPE_CHECKING:
    from projections.language.access.plan import Query
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
@click.option("--save", metavar="FILE", help="Also write the records of EVENTS to this file, as one Lambda event.")
@click.option(
    "--table",
    "tables",
    multiple=True,
    metavar="[LOGICAL=]NAME",
    help="With --save, the name of this table in the records; repeat it for each of `tables:`.",
)
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
    save: str | None,
    tables: tuple[str, ...],
    batch_size: int,
    settle: bool,
) -> int:
    """Run recorded stream events through the real handler, and print the derived items.

    EVENTS are files, - is standard input. A file has stream records, as Lambda or `aws dynamodbstreams get-records` give
    them; an object that Lambda wrote to S3 on failure; or items, each as an insert: plain items, the output of `aws dynamodb
    scan`, or a file of a table export. Steps are writes. A file is JSON, JSON lines or YAML, and may be compressed by gzip.
    A directory must contain a table export.

    \b
    A file of steps, and of a plain item:
      - put: {PK: USER#bob, SK: "LIKE#POST#p1"}
      - update: {PK: "POST#p1", SK: METADATA, title: New}
        remove: [draft]
        add: {views: 1}
      - delete: {PK: USER#bob, SK: "LIKE#POST#p1"}
      - {PK: USER#ann, SK: "LIKE#POST#p1"}

    First, puts the newest version of each recorded item of the application into temporary tables in memory. Then delivers
    the recorded events, and then the stream records of the temporary tables, until nothing changes. So a rule with `once`
    reads the newest values. With --settle, it reads those at the time: the items of each batch are written as they are
    recorded, and the functions finish before the next batch (--batch-size 1: before the next record).

    With --select, other rules do not run. If a selected rule reads values of other rules, a note is printed.

    With --ask, runs a query of the rule file on the temporary tables afterwards.

    With --save, writes the records as a Lambda event, for `sam local invoke`: name the function's table with --table,
    because the function rejects records of other tables. Records made of items count as older than those of any real
    stream, so a function ignores them for items of which it has processed real records.

    At the end, lists the items that belong to no entity, and the rules that apply to no item, with reasons and similar
    names.

    Exits with 1 if records were quarantined or failed.

    \b
    Examples:
      projections replay --rules social events/social.json
      projections replay --rules social events/social.json --ask "likers postId=p1"
      aws dynamodb scan --table-name shop | projections replay --rules social - --save event.json --table shop
    """
    from projections.api import ask, load
    from projections.aws.tables import real_names
    from projections.cli.printing.replay import Asked, print_replay, replay_document
    from projections.language.values import plain_items
    from projections.local.events import read
    from projections.local.replay import replay
    from projections.local.tables import MemoryTables, schemas

    if tables and save is None:
        raise UsageError("--table names the table in the records of --save: pass --save FILE")
    whole = load(find_rules(rules))
    note_missing(whole.program, selected_rules(whole.program, select))
    loaded = whole.only(select)
    program = loaded.program
    asked = [_asked(loaded, text) for text in asks]
    records = [recorded.record for recorded in read(events, program, note)]
    if save is not None:
        names = real_names(tables, [*program.tables]) if tables else {}
        write_output(save, json_text({"Records": [_renamed(record, names) for record in records]}) + "\n")
        note_written(save, count(len(records), "record"))
    temporary = MemoryTables(schemas(program), records)
    result = replay(program, records, temporary, batch_size=batch_size, settle=settle)
    answers = [
        Asked(query, parameters, plain_items(ask(temporary.store, loaded, query.name, parameters).page().items))
        for query, parameters in asked
    ]
    if as_json:
        print_text(json_text(replay_document(result, program, answers, internal=internal)))
    else:
        print_replay(result, program, answers, internal=internal, verbose=verbose, brief=brief)
    return 1 if result.quarantined or result.failures else 0


def _renamed(record: Any, names: Mapping[str, str]) -> Any:
    """Return a record with the given name of its table."""
    head, _, rest = str(record.get("eventSourceARN", "")).partition(":table/")
    table, _, label = rest.partition("/")
    name = next(iter(names.values())) if len(names) == 1 else names.get(table)
    return {**record, "eventSourceARN": f"{head}:table/{name}/{label}"} if rest and name else record


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
