"""`projections dev`."""

from __future__ import annotations

import signal
from types import FrameType

import click

from projections.cli.options import Tables, document_of, find_rules, table_options

__all__ = ["command"]


@click.command("dev")
@table_options
@click.option("--create", is_flag=True, help="Create missing tables, indexes and streams.")
@click.option("--until-idle", is_flag=True, help="Stop when the stream is read and all work is done.")
def command(given: Tables, create: bool, until_idle: bool) -> int:
    """Run rules on a table's stream, and reload them when they change.

    Runs the code of the deployed functions in this process, on DynamoDB Local, MiniStack, LocalStack and other emulators;
    not on AWS, because it writes. At the start, items that the tables hold are backfilled. Prints every record with its
    rules, what they wrote and the capacity that the endpoint reports. For a rejected record, prints the reason. When the
    rule file changes, the changed rules are printed and backfilled at once; if it has mistakes, the old rules stay active.
    Without --ledger, creates a ledger named after the first table, such as app-ledger.

    Press Ctrl-C to stop. With --until-idle, exits with 1 if records were quarantined or discarded.

    \b
    Example:
      projections dev --rules rules.yaml --table app --endpoint-url http://localhost:8000 --create
    """
    from projections.aws.clients import client
    from projections.cli.printing.dev import Printer
    from projections.dev.session import RulesFile, Session
    from projections.dev.target import prepare
    from projections.language.program import Program

    file = RulesFile(find_rules(given.rules))
    program = Program.from_document(document_of(file.path))
    target = prepare(
        program,
        tables=given.tables,
        ledger=given.ledger,
        endpoint_url=given.endpoint_url,
        region=given.region,
        create=create,
    )
    printer = Printer()
    for what in target.created:
        printer.note(f"created {what}")
    session = Session(
        target,
        file,
        program,
        client("dynamodbstreams", given.endpoint_url, region=given.region),
        printer,
        until_idle=until_idle,
    )

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.default_int_handler)  # a second signal stops at once
        session.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        session.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 1 if until_idle and (session.totals.quarantined or session.totals.discarded) else 0
