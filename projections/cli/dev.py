"""`projections dev`."""

from __future__ import annotations

import signal
from types import FrameType

import click

from projections.cli.options import Tables, as_json, document_of, find_rules, table_options

__all__ = ["command"]


@click.command("dev")
@table_options
@as_json
@click.option(
    "--from",
    "start",
    type=click.Choice(["now", "start"]),
    help="Start with new records, or with all records in the stream. [default: now, or start if --until-idle is set]",
)
@click.option("--create", is_flag=True, help="Create missing tables, indexes and streams; on emulators only.")
@click.option("--until-idle", "--once", is_flag=True, help="Stop when the stream is read and all work is done.")
@click.option(
    "--backfill/--no-backfill",
    default=None,
    help="Backfill new and changed rules. [default: yes; on AWS, pass one of the two]",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Maximum records per delivery. [default: 1 while few records wait, to print the cost of each; else 100]",
)
@click.option("--aws", is_flag=True, help="Allow tables on AWS. This writes to them.")
def command(
    given: Tables,
    as_json: bool,
    start: str | None,
    create: bool,
    until_idle: bool,
    backfill: bool | None,
    batch_size: int | None,
    aws: bool,
) -> int:
    """Run rules on a table's stream, and reload them when they change.

    Runs the code of the deployed functions in this process, on DynamoDB Local, MiniStack, LocalStack and other emulators.
    Prints every record with its rules, what they wrote and the capacity that the endpoint reports. For a rejected record,
    prints the reason. When the rule file changes, the changed rules are printed and backfilled at once; if it has mistakes,
    the old rules stay active. Without --ledger, creates a ledger named after the first table, such as app-ledger.

    Press Ctrl-C to stop. With --until-idle, exits with 1 if records were quarantined or discarded.

    \b
    Example:
      projections dev --rules rules.yaml --table app --endpoint-url http://localhost:8000 --create
    """
    from projections.aws.clients import client
    from projections.cli.printing.dev import Printer
    from projections.dev.rules_file import RulesFile
    from projections.dev.session import Options, Session
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
        aws=aws,
        create=create,
        confirm=_confirm,
    )
    printer = Printer(as_json=as_json, guard_prefix=program.guard_prefix)
    for what in target.created:
        printer.note(f"created {what}", "created", what=what)
    session = Session(
        target,
        file,
        program,
        client("dynamodbstreams", given.endpoint_url, region=given.region),
        printer,
        Options(
            latest=(start or ("start" if until_idle else "now")) == "now",
            until_idle=until_idle,
            backfill=backfill,
            batch_size=batch_size,
        ),
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


def _confirm(question: str) -> bool:
    """Return the answer at the terminal, or no without a terminal."""
    from projections.terminal import interactive

    return interactive() and click.confirm(question, default=True)
