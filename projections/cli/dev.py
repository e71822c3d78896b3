"""`projections dev`."""

from __future__ import annotations

import signal
import sys
from types import FrameType

import click

from projections.cli.options import as_json, document_of, find_rules, live_options

__all__ = ["command"]


@click.command("dev")
@live_options
@as_json
@click.option(
    "--from",
    "start",
    type=click.Choice(["now", "start"]),
    help="Begin with what is written from now on, or with all the stream holds. [default: now; start with --until-idle]",
)
@click.option("--create", is_flag=True, help="On an emulator, create what is missing: table, indexes, stream.")
@click.option("--until-idle", "--once", is_flag=True, help="End when the stream is read and all is done.")
@click.option(
    "--backfill/--no-backfill",
    default=None,
    help="Make right what the tables hold already, when rules are new or change. [default: yes; at AWS, to be said]",
)
@click.option(
    "--batch-size",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Records per delivery at most. [default: 1 while few wait, so that each is told with its cost; else 100]",
)
@click.option("--aws", is_flag=True, help="Allow real tables at AWS: this writes to them.")
def command(
    rules: str | None,
    tables: tuple[str, ...],
    ledger: str | None,
    endpoint_url: str | None,
    region: str | None,
    as_json: bool,
    start: str | None,
    create: bool,
    until_idle: bool,
    backfill: bool | None,
    batch_size: int | None,
    aws: bool,
) -> int:
    """Follow a table's stream and project live, with what is deployed running in this process.

    For DynamoDB Local, MiniStack, LocalStack and others. Every record is told with the rules it concerns, what they wrote
    and what that cost by the endpoint's own account; what a rule refuses is told with the reason. The rule file may be
    edited meanwhile: what changed is told and backfilled at once; with mistakes in it the old rules stay. The ledger is
    --ledger, or a table named as the first with -ledger behind it, which is created.

    \b
    projections dev --rules rules.yaml --table app --endpoint-url http://localhost:8000 --create

    Ctrl-C ends it. With --until-idle, exits with 1 if records were quarantined or given up.
    """
    from projections.aws.clients import client
    from projections.cli.printing.dev import Teller
    from projections.dev.place import prepare
    from projections.dev.rules_file import RulesFile
    from projections.dev.session import Options, Session
    from projections.language.program import Program

    file = RulesFile(find_rules(rules))
    document = document_of(file.path)
    place = prepare(
        document,
        tables=tables,
        ledger=ledger,
        endpoint_url=endpoint_url,
        region=region,
        aws=aws,
        create=create,
        ask=_ask,
    )
    teller = Teller(as_json=as_json, guard_prefix=document["guard_prefix"])
    for what in place.made:
        teller.note(f"created {what}", "created", what=what)
    session = Session(
        place,
        file,
        Program.from_document(document),
        client("dynamodbstreams", endpoint_url, region=region),
        teller,
        Options(
            latest=(start or ("start" if until_idle else "now")) == "now",
            until_idle=until_idle,
            backfill=backfill,
            batch_size=batch_size,
        ),
    )

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.default_int_handler)  # a second one does not wait
        session.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        session.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 1 if until_idle and (session.totals.quarantined or session.totals.given_up) else 0


def _ask(question: str) -> bool:
    """The answer of a person; no, where there is none."""
    return sys.stdin.isatty() and sys.stdout.isatty() and click.confirm(question, default=True)
