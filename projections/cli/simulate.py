"""`projections simulate`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from projections.cli.options import (
    as_json,
    document_of,
    find_rules,
    note_missing,
    rules_option,
    select_option,
    selected_rules,
)
from projections.errors import UsageError
from projections.terminal import Bar, print_json, print_line, print_text

if TYPE_CHECKING:
    from projections.testing.simulation.campaign import Report


@click.command("simulate")
@rules_option
@as_json
@click.option(
    "--histories", type=click.IntRange(1), default=2000, show_default=True, metavar="N", help="Histories to run."
)
@click.option("--seed", type=int, default=0, show_default=True, metavar="S", help="Seed of the first history.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, metavar="J", help="Processes to use.")
@click.option("--keep-going", is_flag=True, help="Run all histories, even after a failure.")
@select_option
@click.option("--trace", is_flag=True, help="Print every event of the history that fails.")
def command(
    rules: str | None,
    as_json: bool,
    histories: int,
    seed: int,
    jobs: int,
    keep_going: bool,
    select: tuple[str, ...],
    trace: bool,
) -> int:
    """Test rules under redelivery, reordering, crashes and external writes.

    A history is a series of random writes to items of the rules' entities, delivered to the real engine with the faults that
    occur on Lambda and DynamoDB. The same seed always gives the same history. At the end of a history, every derived value
    must match the source items, and no item or attribute of the application may have been changed. Prints the first seed
    that fails. Repeat that history with --seed S --histories 1 --trace.

    With --select, other rules do not run. If a selected rule reads values of other rules, a note is printed: the simulated
    application writes these values.

    Exits with 1 if a history fails.

    \b
    Examples:
      projections simulate --rules rules.yaml --histories 500
      projections simulate --rules rules.yaml --seed 42 --histories 1 --trace
    """
    from projections.language.program import Program
    from projections.language.ruleset import restricted
    from projections.testing.simulation.campaign import Campaign
    from projections.testing.simulation.history import Setup

    path = find_rules(rules)
    document = document_of(path)
    if not document["projections"]:
        raise UsageError(f"{path}: no rules to simulate. Add rules under `projections`")
    if select:
        program = Program.from_document(document)
        names = selected_rules(program, select)
        note_missing(program, names)
        document = restricted(document, names)
    campaign = Campaign(document, keep_going=keep_going)
    with Bar("running histories", quiet=as_json) as bar:

        def progress(report: Report) -> None:
            bar.update(f"{report.histories:,} histories, {report.histories / report.seconds:.0f} per second")

        report = campaign.run(seed, histories, jobs=jobs, progress=progress)
    lines: Sequence[str] = ()
    if trace and report.failures:
        lines = Setup(document).play(report.failures[0].seed, trace=True).trace
    if as_json:
        print_json(_document(report, str(path), lines))
    else:
        _print(report, " --select ".join([str(path), *select]), lines)
    return 1 if report.failures else 0


def _document(report: Report, rules: str, lines: Sequence[str]) -> dict[str, object]:
    failure = report.failures[0] if report.failures else None
    return {
        "rules": rules,
        "seed": report.seed,
        "histories": report.histories,
        "writes": report.writes,
        "records": report.records,
        "deliveries": report.deliveries,
        "calls": report.calls,
        "faults": report.faults,
        "seconds": round(report.seconds, 1),
        "wrong": report.wrong,
        "harm": report.harm,
        "failure": None if failure is None else {"seed": failure.seed, "problems": failure.problems},
        "trace": list(lines),
    }


def _print(report: Report, rules: str, lines: Sequence[str]) -> None:
    for entry in lines:
        print_text(entry)
    totals = (
        f"{report.writes:,} writes of the application, {report.records:,} stream records, {report.deliveries:,} deliveries, "
        f"{report.calls:,} calls, {report.faults:,} faults, {report.seconds:.1f} s"
    )
    if not report.failures:
        print_line(f"✓ {report.histories:,} histories passed: {totals}.")
        return
    failure = report.failures[0]
    print_line(f"Seed {failure.seed} of {rules} failed:")
    for problem in failure.problems:
        print_text(f"  {problem}")
    print_line(
        f"{report.histories:,} histories: {report.wrong:,} with wrong values, {report.harm:,} with changed data of the "
        f"application; {totals}."
    )
    print_line(f"To repeat it: projections simulate --rules {rules} --seed {failure.seed} --histories 1 --trace")
