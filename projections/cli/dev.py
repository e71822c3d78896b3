"""`projections dev`."""

from __future__ import annotations

import signal
import time
from collections.abc import Sequence
from types import FrameType
from typing import TYPE_CHECKING

import click

from projections.cli.options import Tables, document_of, find_rules, table_options
from projections.inspect.explain.words import encoded_words, key_words, value_words
from projections.terminal import Styled, markup, print_line, print_markup, units

if TYPE_CHECKING:
    from projections.dev.projector import Delivery, Written
    from projections.inspect.diff.difference import Difference
    from projections.inspect.explain.record_effects import RecordReport
    from projections.language.findings.kinds import Finding


@click.command("dev")
@table_options
@click.option("--create", is_flag=True, help="Create missing tables, indexes and streams.")
@click.option("--until-idle", is_flag=True, help="Stop when the stream is read and all work is done.")
def command(options: Tables, create: bool, until_idle: bool) -> int:
    """Run rules on a table's stream, and reload them when they change.

    Runs the code of the deployed functions in this process, on DynamoDB Local, MiniStack, LocalStack and other emulators;
    not on AWS, because it writes. At the start, applies the rules to the items that the tables hold. Prints every record
    with its rules, what they wrote and the capacity that the endpoint reports. For a rejected record, prints the reason.
    When the rule file changes, the changed rules are printed and applied; if it has mistakes, the old rules stay. Without
    --ledger, creates a ledger named after the first table, such as app-ledger.

    Press Ctrl-C to stop. With --until-idle, exits with 1 if records were quarantined or discarded.

    \b
    Example:
      projections dev --rules rules.yaml --table app --endpoint-url http://localhost:8000 --create
    """
    from projections.aws.clients import client
    from projections.dev.session import Session
    from projections.dev.target import prepare
    from projections.language.including import Watched
    from projections.language.program import Program

    file = Watched(find_rules(options.rules))
    program = Program.from_document(document_of(file.path))
    target = prepare(program, options.tables, options.ledger, options.endpoint_url, options.region, create=create)
    printer = Printer()
    for what in target.created:
        printer.note(f"created {what}")
    streams = client("dynamodbstreams", options.endpoint_url, region=options.region)
    session = Session(target, file, program, streams, printer, until_idle=until_idle)

    def stop(number: int, frame: FrameType | None) -> None:
        signal.signal(number, signal.default_int_handler)  # a second signal stops at once
        session.stop()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        totals = session.run()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 1 if until_idle and (totals.quarantined or totals.discarded) else 0


class Printer:
    """Reports on standard output."""

    def note(self, text: str) -> None:
        """Print a text, which may have markup."""
        print_line(text)

    def report_delivery(self, delivery: Delivery, *, task: bool = False) -> None:
        """Print what a delivery did, or a task, if it wrote something."""
        if task and not delivery.written and not delivery.rejected:
            return
        if task:
            print_markup("{}  task  [dim]the other pages of a push[/]", time.strftime("%H:%M:%S"))
        alone = len(delivery.records) == 1
        for report, own in zip(delivery.records, delivery.own, strict=True):
            if not own or any(rule.effect for rule in report.rules):
                self._record(report, own, delivery if alone else None)
        for written in delivery.written:
            print_markup("          [green]→[/] {}", _write_words(written))
        if more := delivery.writes - len(delivery.written):
            print_markup("          [green]→[/] and {:,} more writes", more)
        if not alone and (spent := _units(delivery)):
            print_markup("          [dim]{}[/]", spent)
        for rejection in delivery.rejected:
            by = markup(" by [cyan]{}[/]", rejection.rule) if rejection.rule else ""
            key = encoded_words(rejection.key) if rejection.key else "a record"
            print_markup("          [yellow]quarantined[/]{}  {}", by, f"{key}: {rejection.reason}")
        if delivery.failed is not None:
            print_markup("          [red]failed[/]  {}; will be retried", delivery.failed)

    def _record(self, report: RecordReport, own: bool, alone: Delivery | None) -> None:
        """Print a record, with the rules that it concerns, and its cost if it came alone."""
        record = report.record
        clock = time.strftime("%H:%M:%S")
        if record is None:
            print_markup("{}  [yellow]unreadable[/]  {}", clock, report.flaw or "")
            return
        style = "dim" if own else "bold"
        entity = report.entity or "(no entity)"
        line = markup("{}  {:<6}  {}  [{}]{}[/]", clock, record.event, entity, style, key_words(record.key))
        rules = list(dict.fromkeys(rule.rule for rule in report.rules if rule.effect))
        if own:
            line += markup("  [dim]own write[/]")
        if rules:
            line += markup("  {}[cyan]{}[/]", "→ " if own else "", ", ".join(rules))
        elif not own and report.entity is not None and not (alone and alone.written):
            line += markup("  [dim]nothing to do[/]")
        elif not own and report.nearest:
            name, reasons = report.nearest[0]
            line += markup("  [dim]nearest is {}: {}[/]", name, "; ".join(reasons[:1]))
        if alone is not None and (spent := _units(alone)):
            line += markup("  [dim]{}[/]", spent)
        print_line(line)

    def findings(self, findings: Sequence[Finding]) -> None:
        """Print errors and warnings of a rule file."""
        for finding in findings:
            colour = {"error": "red", "warning": "yellow"}.get(finding.severity)
            for line in str(finding).split("\n") if colour else ():
                print_markup("[{}]{}[/]", colour, line)

    def report_change(self, difference: Difference, name: str) -> None:
        """Print how the new rules differ."""
        from projections.cli.diff import print_difference

        print_difference(difference, f"{name} before", "now", brief=True)


def _units(delivery: Delivery) -> str:
    return units(delivery.write_units, "write unit") if delivery.write_units else ""


def _write_words(written: Written) -> Styled:
    key = markup("[bold]{}[/]", key_words(written.key))
    by = markup("  [cyan]{}[/]", ", ".join(written.rules)) if written.rules else ""
    if written.deleted:
        return markup("{}  deleted{}", key, by)
    parts = [f"{name} {value_words(value, 40)}" for name, value in written.set.items()]
    parts += [f"without {name}" for name in written.removed]
    return markup("{}  {}{}", key, ", ".join(parts), by)
