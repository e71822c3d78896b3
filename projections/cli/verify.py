"""`projections verify`."""

from __future__ import annotations

import click

from projections.aws.connection import connect
from projections.cli.options import as_json, live_options
from projections.cli.stack import deployed, stack_option
from projections.errors import UsageError

__all__ = ["command"]


@click.command("verify")
@live_options
@stack_option
@as_json
@click.option("--rule", "only", multiple=True, metavar="NAME", help="Only this rule; may be repeated.")
@click.option("--sample", metavar="PERCENT", help="Read only this share of the tables, as 1%.")
@click.option("--repair", is_flag=True, help="Correct what is found, and look at it once more.")
@click.option("--allow-delete", is_flag=True, help="With --repair: delete copies and derived items that should not be.")
@click.option(
    "--patience",
    type=click.FloatRange(0, 3600),
    default=20.0,
    show_default=True,
    help="Seconds before what looks wrong is looked at again: what is merely late is no drift.",
)
@click.option("--segments", type=click.IntRange(1, 100), default=4, show_default=True, help="Segments scanned at once.")
@click.option(
    "--show",
    type=click.IntRange(0),
    default=20,
    show_default=True,
    metavar="N",
    help="Differences shown of each rule; --json has all.",
)
def command(
    rules: str | None,
    tables: tuple[str, ...],
    ledger: str | None,
    endpoint_url: str | None,
    region: str | None,
    stack: str | None,
    as_json: bool,
    only: tuple[str, ...],
    sample: str | None,
    repair: bool,
    allow_delete: bool,
    patience: float,
    segments: int,
    show: int,
) -> int:
    """Say whether what is stored is what the rules say, while the application writes.

    Entries of the ledger are compared with items, groups with entries, and published values with groups; copies, index
    attributes and embedded attributes with their sources. Rules in the shadow are compared with what is there. Without
    a ledger, before anything is deployed, the tables are compared with what the rules would make of them: so it tells
    whether values kept by hand are right.

    A difference names the values of the item, of its group and of the entries, and which of them disagree with the source
    items. With --sample not all source items are read: then it only says that an item and its group differ.

    Reads only, unless told to --repair: then what is wrong is refreshed, and groups that disagree with their entries are
    rebuilt, never overwritten.

    Exits with 1 if there is drift (with --repair: if any is left).
    """
    from projections.aws.wiring import at_once
    from projections.cli.printing.verify import Progress, print_json, print_table
    from projections.engine.registry import Registry
    from projections.operations.verify.repair import repair_found
    from projections.operations.verify.scope import Scope
    from projections.operations.verify.scratch import Scratch
    from projections.operations.verify.verification import Verification

    share = _share(sample)
    if allow_delete and not repair:
        raise UsageError("--allow-delete is for --repair; verification alone changes nothing")
    names = deployed(stack, region)
    document = names.document(rules, writes=repair)
    live = connect(
        document,
        names.tables(tables, document),
        names.ledger(ledger),
        endpoint_url,
        region,
        threads=4 * segments,
        without_ledger=True,
    )
    standing = Registry(live.program, live.store).look() if "ledger" in live.names else None
    scope = Scope(live.program, standing, only)
    if repair and scope.offline:
        raise UsageError("there is nothing to repair yet: deploy these rules, or run `projections backfill`")
    with Scratch() as scratch, Progress(live, quiet=as_json) as progress:
        run = at_once(3 * segments)
        one = Verification(scope, live.store, scratch, threads=segments, patience=patience, run=run, told=progress.told)
        if share is None:
            one.all()
        else:
            one.sample(share)
        found = one.suspects.count()
        mended, withheld = None, list[str]()
        if repair:
            mended, withheld = repair_found(one, live.store, allow_delete=allow_delete, threads=segments, run=run)
        progress.end()
        if as_json:
            print_json(one, mended, withheld, share)
        else:
            print_table(one, mended, withheld, share, found, show)
        left = one.suspects.count()
        return int(bool(left or (mended is not None and (mended.failed or mended.rejected))))


def _share(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        share = float(text.removesuffix("%")) / 100
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(f"--sample {text}: a share between 0 and 100 percent, as 1%")
    return share
