"""`projections verify`."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from projections.errors import UsageError
from projections.tools.commands.connect import Live, connect, live_options
from projections.tools.commands.options import as_json

if TYPE_CHECKING:
    from projections.operations.verify.drift import Drift
    from projections.operations.verify.repair import Repair
    from projections.operations.verify.verification import Verification

__all__ = ["command"]

_SHOWN = 20
"""Differences of one rule that people are shown; programs get all."""


@click.command("verify")
@live_options
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
@click.option("--threads", type=click.IntRange(1, 100), default=4, show_default=True, help="Segments read at once.")
def command(
    rules: str | None,
    tables: tuple[str, ...],
    ledger: str | None,
    endpoint_url: str | None,
    region: str | None,
    as_json: bool,
    only: tuple[str, ...],
    sample: str | None,
    repair: bool,
    allow_delete: bool,
    patience: float,
    threads: int,
) -> int:
    """Say whether what is stored is what the rules say, while the application writes.

    Entries of the ledger are compared with items, groups with entries, and published values with groups; copies, index
    attributes and embedded attributes with their sources. Rules in the shadow are compared with what is there. Reads
    only, unless told to --repair; then rows that are wrong are refreshed, and groups that disagree with their entries
    rebuilt, never overwritten.

    Exits with 1 if there is drift (with --repair: if any is left).
    """
    from projections.engine.registry import Registry
    from projections.operations.verify.scope import Scope
    from projections.operations.verify.scratch import Scratch
    from projections.operations.verify.verification import Verification
    from projections.operations.wiring import at_once

    share = _share(sample)
    live = connect(rules, tables, ledger, endpoint_url, region, threads=4 * threads)
    scope = Scope(live.program, Registry(live.program, live.store).look(), only)
    with Scratch() as scratch:
        run = at_once(3 * threads)
        one = Verification(
            scope, live.store, scratch, threads=threads, patience=patience, run=run, told=_told(quiet=as_json)
        )
        if share is None:
            one.all()
        else:
            one.sample(share)
        found = one.suspects.count()
        mended = None
        if repair and (found or any(True for _ in one.busy())):
            mended = _repair(one, live, allow_delete, threads)
        return _report(one, found, mended, as_json, share)


def _repair(one: Verification, live: Live, allow_delete: bool, threads: int) -> Repair:
    from projections.operations.caution import Cautious
    from projections.operations.verify.repair import Repair
    from projections.operations.wiring import at_once

    store = Cautious(live.store, live.program, deletes=allow_delete)
    mended = Repair(one.scope, store, one.suspects, threads=threads, run=at_once(3 * threads))
    groups = mended.all()
    one.suspects.again()
    one.suspect_groups(groups)
    one.examine()
    return mended


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


def _told(quiet: bool) -> Any:
    """Says on standard error what comes next, once."""
    said: set[str] = set()

    def told(what: str, items: int) -> None:
        if what not in said and not quiet:
            said.add(what)
            click.echo(f"reading {what} …" if items else f"{what} …", err=True)

    return told


def _report(one: Verification, found: int, mended: Repair | None, as_json: bool, share: float | None) -> int:
    left = one.suspects.count()
    busy = [*islice(one.busy(), _SHOWN)]
    failed = {**mended.failed, **mended.rejected} if mended is not None else {}
    if as_json:
        _print_json(one, mended, failed)
        return int(bool(left or failed))
    shown: Counter[str] = Counter()
    rule = None
    for drift in one.drifts():
        if drift.rule != rule:
            rule = drift.rule
            click.echo(f"\n{rule} ({one.scope.states.get(rule, 'gone')})")
        shown[rule] += 1
        if shown[rule] <= _SHOWN:
            click.echo("  " + _line(drift))
    for name, count in shown.items():
        if count > _SHOWN:
            click.echo(f"{name}: {count - _SHOWN:,} more; --json has all")
    for drift in busy:
        click.echo(f"could not be told, it kept changing: {drift.rule} {drift.target}; --repair rebuilds it safely")
    for key, reason in failed.items():
        click.echo(f"not repaired: {key}: {reason}", err=True)
    for name in one.scope.filling:
        click.echo(f"{name} is filling: it publishes nothing until its backfill is complete")
    if one.scope.keeping:
        click.echo(
            f"taken as they are, no entry tells them any more: settled amounts of {', '.join(one.scope.keeping)}"
        )
    if share is not None and one.scope.grouped:
        click.echo("sums of groups were not compared: only all entries together tell them")
    read = ", ".join(f"{count:,} of {table}" for table, count in sorted(one.counts.items()))
    if mended is not None:
        click.echo(f"{found:,} were wrong, {left:,} are left. Read: {read}.")
    else:
        click.echo(f"{'✓ No drift' if not left else f'{left:,} wrong'}. Read: {read}.")
    return int(bool(left or failed))


def _line(drift: Drift) -> str:
    what = f" {drift.attribute}" if drift.attribute else ""
    source = f" (source {drift.source})" if drift.source else ""
    at = f" [written at {drift.at}]" if drift.at else ""
    return (
        f"{drift.kind}: {drift.target}{what}: is {_value(drift.actual)}, should be {_value(drift.expected)}{source}{at}"
    )


def _value(value: Any) -> str:
    return "absent" if value is None else json.dumps(value, ensure_ascii=False)


def _print_json(one: Verification, mended: Repair | None, failed: Mapping[str, str]) -> None:
    """One object, written as it comes: there may be more drift than fits into memory."""
    click.echo('{"drift": [')
    separator = ""
    for drift in one.drifts():
        click.echo(separator + drift.text(), nl=False)
        separator = ",\n"
    rest = {
        "busy": [json.loads(drift.text()) for drift in one.busy()],
        "read": dict(one.counts),
        "filling": one.scope.filling,
        "repaired": dict(mended.counts) if mended is not None else None,
        "failed": dict(failed),
    }
    click.echo("\n], " + json.dumps(rest, ensure_ascii=False)[1:])
