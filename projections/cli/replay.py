"""`projections replay`."""

from __future__ import annotations

from contextlib import ExitStack

import click

from projections.cli.options import as_json, batch_size_option, program_of, rules_option
from projections.cli.printing.replay import print_replay, replay_document
from projections.terminal import json_text, print_text

__all__ = ["command"]


@click.command("replay")
@click.argument("events", nargs=-1, required=True, metavar="EVENTS…")
@rules_option
@as_json
@click.option("--internal", is_flag=True, help="Print the guards on items, too.")
@click.option("--endpoint-url", metavar="URL", help="Replay on temporary tables at this DynamoDB endpoint.")
@batch_size_option
def command(
    events: tuple[str, ...],
    rules: str | None,
    as_json: bool,
    internal: bool,
    endpoint_url: str | None,
    batch_size: int,
) -> int:
    """Run recorded stream events through the real handler, and print the derived items.

    EVENTS are files with a Lambda event ({"Records": […]}), a list of records, a single record, or JSON lines of these; - is
    standard input. The application's items are first put into temporary tables, in memory or at --endpoint-url. Then the
    records are delivered as recorded, and after them the records of these tables' own streams, until nothing changes.

    Exits with 1 if records were quarantined or failed.

    \b
    Example:
      projections replay --rules social events/social.json
    """
    from projections.local.events import read
    from projections.local.replay import replay
    from projections.local.tables import EndpointTables, MemoryTables, Tables, schemas

    program = program_of(rules)
    records = [recorded.record for recorded in read(events)]
    with ExitStack() as stack:
        tables: Tables
        if endpoint_url is None:
            tables = MemoryTables(schemas(program), records)
        else:
            tables = stack.enter_context(EndpointTables(endpoint_url, schemas(program)))
        result = replay(program, records, tables, batch_size=batch_size)
    if as_json:
        print_text(json_text(replay_document(result, program, internal=internal)))
    else:
        print_replay(result, program, internal=internal)
    return 1 if result.quarantined or result.failures else 0
