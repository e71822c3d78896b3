"""`projections verify`."""

from __future__ import annotations

import click

from projections.cli.options import Tables, as_json, select_option, selected_rules, stack_options
from projections.cli.stack import deployed
from projections.errors import UsageError
from projections.terminal import print_line

__all__ = ["command"]


@click.command("verify")
@stack_options
@as_json
@select_option
@click.option("--sample", metavar="PERCENT", help="Read only this share of the tables, such as 1%.")
@click.option("--repair", is_flag=True, help="Repair the differences, and check them again.")
@click.option(
    "--allow-delete", is_flag=True, help="With --repair, delete copies and derived items that should not exist."
)
@click.option(
    "--patience",
    type=click.FloatRange(0, 3600),
    default=20.0,
    show_default=True,
    help="Seconds before a difference is checked again: a delayed change is not drift.",
)
@click.option(
    "--segments", type=click.IntRange(1, 100), default=4, show_default=True, help="Segments to scan in parallel."
)
@click.option(
    "--show",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="N",
    help="Maximum differences to print for each rule; --json has all.",
)
def command(
    given: Tables,
    as_json: bool,
    select: tuple[str, ...],
    sample: str | None,
    repair: bool,
    allow_delete: bool,
    patience: float,
    segments: int,
    show: int,
) -> int:
    """Compare stored values with the rules; --repair corrects differences.

    The application may write meanwhile. Compares each source item with its entry in the ledger, the totals of each target
    (its group in the ledger) with the entries, and published values with groups. Compares copies, index attributes and
    embedded attributes with their sources. Rules in shadow mode are compared as well. If nothing is deployed yet, compares
    the tables with the values that the rules would write: this checks values that the application maintains itself. A rule
    that reads what another rule writes is compared only if the values of that rule are right.

    For each difference, prints the values of the item, of its group and of the entries, and which of them disagree with the
    source items. With --sample, not all source items are read: the command can only report that an item and its group
    differ.

    Writes nothing without --repair. With --repair, refreshes wrong items, and rebuilds groups that disagree with their
    entries.

    Exits with 1 if there is drift; with --repair, if any is left.

    \b
    Examples:
      projections verify --stack shop --sample 1%
      projections verify --stack shop --repair
    """
    from projections.cli.printing.verify import Progress, print_json, print_table
    from projections.operations.verify.repair import verified

    share = _share(sample)
    if allow_delete and not repair:
        raise UsageError("--allow-delete has no effect without --repair. Add --repair, or omit it")
    there = deployed(given)
    live = there.connect(there.document(writes=repair), threads=4 * segments, without_ledger=True)
    for text in there.warnings(live):
        print_line(f"warning: {text}.", err=True)
    progress = Progress(live, quiet=as_json)
    with (
        progress.bar,
        verified(
            live.program,
            live.store,
            ledger="ledger" in live.names,
            only=selected_rules(live.program, select),
            sample=share,
            repair=repair,
            allow_delete=allow_delete,
            patience=patience,
            segments=segments,
            report=progress.reading,
        ) as done,
    ):
        progress.bar.end()
        one, repaired = done.verification, done.repair
        if as_json:
            print_json(one, repaired, done.withheld, share)
        else:
            print_table(one, repaired, done.withheld, share, done.found, show)
        left = one.candidates.count()
        return int(bool(left or (repaired is not None and (repaired.failed or repaired.rejected))))


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"--sample {text}: expected a percentage above 0 and up to 100, such as 1%")
    return share
