"""`projections backfill`."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from projections.tools.commands.connect import connect, live_options
from projections.tools.commands.options import as_json

if TYPE_CHECKING:
    from projections.operations.backfill.backfill import Backfill, Done
    from projections.operations.backfill.progress import Run
    from projections.operations.backfill.runner import Runner
    from projections.operations.caution import Cautious

__all__ = ["command"]

PHASES = {
    "items": "reading items: what they contribute, copies, index attributes, children",
    "entries": "reading the ledger: items that are gone, rules that are retired",
    "groups": "publishing: items that rules create",
    "targets": "publishing: items that exist",
}

WORDS = {
    "items": "read",
    "applied": "entries brought up to date",
    "copies": "copies written",
    "indexed": "items whose index attributes were written",
    "pulled": "children updated",
    "healed": "targets and copies corrected",
    "retired": "items freed of retired rules",
    "withheld": "deletions withheld",
    "rejected": "rejected",
    "failed": "failed",
}


@click.command("backfill")
@live_options
@as_json
@click.option("--rule", "only", multiple=True, metavar="NAME", help="Only for this rule; may be repeated.")
@click.option("--segments", type=click.IntRange(1, 200), default=4, show_default=True, help="Segments scanned at once.")
@click.option("--rate", type=click.IntRange(1), metavar="WRITES", help="Writes a second at most. [default: no limit]")
@click.option(
    "--wait",
    type=click.FloatRange(0, 900),
    default=60.0,
    show_default=True,
    help="Seconds a function runs at most: its Timeout. Rules that change wait for those that know the old ones.",
)
@click.option("--allow-delete", is_flag=True, help="Delete copies and derived items that nothing stands for any more.")
@click.option("--restart", is_flag=True, help="Begin anew instead of going on where the last run stopped.")
@click.option("--dry-run", is_flag=True, help="Write nothing; say what would be written, and about what it costs.")
@click.option("--queue", "queue", metavar="URL", help="Leave the work to the worker function, by its task queue.")
def command(
    rules: str | None,
    tables: tuple[str, ...],
    ledger: str | None,
    endpoint_url: str | None,
    region: str | None,
    as_json: bool,
    only: tuple[str, ...],
    segments: int,
    rate: int | None,
    wait: float,
    allow_delete: bool,
    restart: bool,
    dry_run: bool,
    queue: str | None,
) -> int:
    """Make projections right for what the tables hold already, while the application writes.

    Run it when rules are new, changed or retired, and when the stream was off for longer than 24 hours. Rules go live
    when all items have been read; until then nothing partial is published. It may be stopped at any time: the same
    command goes on where it was. Nothing of yours is deleted without --allow-delete.

    Exits with 1 if anything failed, was rejected, or was not deleted.
    """
    from projections.operations.backfill.backfill import Backfill
    from projections.operations.backfill.runner import Runner
    from projections.operations.caution import Cautious
    from projections.operations.pacing import Pacer

    live = connect(rules, tables, ledger, endpoint_url, region, threads=4 * segments)
    pace = Pacer(rate) if rate else (lambda writes: None)
    store = Cautious(live.store, deletes=allow_delete, writes=not dry_run, pace=pace)
    from projections.operations.wiring import at_once

    backfill = Backfill(
        live.program, store, live.store, now=lambda: datetime.now(UTC), run=at_once(3 * segments), dry=dry_run
    )
    show = _Shown(quiet=as_json)
    runner = Runner(backfill, told=show.page, waiting=show.waiting)
    if dry_run:
        counted = runner.rehearse(backfill.rehearse(only, segments))
        show.end()
        return _report_dry(backfill, counted, store, as_json)
    run = backfill.begin(rules=only, segments=segments, wait=wait, allow_delete=allow_delete, restart=restart)
    if queue:
        from projections.operations.backfill.queued import start
        from projections.operations.tasks import Tasks
        from projections.stores.aws import client
        from projections.stores.queues import Queue

        sqs = client("sqs", region=region)
        start(backfill, run, Tasks(lambda: Queue(sqs, queue)))
        click.echo(f"backfill {run.name} is left to the worker function; `projections status` says how far it is")
        return 0
    try:
        run = runner.work(run)
    except KeyboardInterrupt:
        show.end()
        click.echo("Stopped. The same command goes on where this one was.", err=True)
        return 130
    show.end()
    return _report(backfill, run, runner, store, as_json)


def _report(backfill: Backfill, run: Run, runner: Runner, store: Cautious, as_json: bool) -> int:
    from projections.tools.render import json_text

    phases = backfill.report(run)
    total: Counter[str] = sum(phases.values(), Counter())
    left = total["failed"] + total["rejected"] + total["withheld"]
    if as_json:
        report = {
            "run": run.name,
            "began": run.began,
            "ended": run.ended,
            "phases": phases,
            "failed": runner.failed,
            "rejected": [{"rule": one.rule, "key": one.key, "reason": one.reason} for one in runner.rejected],
            "withheld": store.examples,
        }
        click.echo(json_text(report))
        return 1 if left else 0
    for phase, counts in phases.items():
        said = ", ".join(f"{counts[name]:,} {words}" for name, words in WORDS.items() if counts.get(name))
        click.echo(f"{phase:<8} {said or 'nothing to read'}")
    for key, reason in runner.failed.items():
        click.echo(f"failed: {key}: {reason}", err=True)
    for one in runner.rejected:
        click.echo(f"rejected: {one.rule or ''} {one.key}: {one.reason}", err=True)
    for key in store.examples:
        click.echo(f"not deleted: {key} (--allow-delete deletes it)", err=True)
    return 1 if left else 0


def _report_dry(backfill: Backfill, phases: dict[str, Counter[str]], store: Cautious, as_json: bool) -> int:
    from projections.tools.render import json_text

    states = {name: one.state for name, one in backfill.registry.preview().rules.items()}
    read = sum(counts["items"] for counts in phases.values())
    targets = phases["targets"]["targets"] + phases["items"]["copies"]
    units = store.write_units + targets
    if as_json:
        withheld = dict(store.withheld)
        report = {
            "rules": states,
            "phases": phases,
            "writes": withheld,
            "publishedAtMost": targets,
            "writeUnits": units,
        }
        click.echo(json_text({**report, "deletions": store.examples}))
        return 0
    for name, state in states.items():
        click.echo(f"{name:<24} {state}")
    click.echo(
        f"{read:,} items would be read, twice or three times each: once for what they say, once for their entries"
    )
    for phase in ("items", "entries"):
        said = ", ".join(f"{phases[phase][name]:,} {words}" for name, words in WORDS.items() if phases[phase].get(name))
        click.echo(f"{phase:<8} {said}")
    click.echo(f"targets  {targets:,} to be published at most")
    click.echo(f"about {units:,} write units. Nothing was written.")
    for key in store.examples:
        click.echo(f"with --allow-delete this would be deleted: {key}")
    return 0


class _Shown:
    """How far it is: a line that moves on a terminal, a line per phase elsewhere."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._quiet = quiet
        self._counts: dict[tuple[str, str, int], int] = {}
        self._phase = ""
        self._bar: Any = None
        self._task: Any = None
        console = Console(stderr=True)
        if console.is_terminal and not quiet:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._bar = Progress(*columns, console=console, transient=True)
            self._bar.start()
            self._task = self._bar.add_task("")

    def page(self, run: Run, done: Done) -> None:
        segment, words = done.segment, PHASES.get(run.phase, run.phase)
        self._counts[segment.phase, segment.table, segment.number] = segment.counts.get("items", 0)
        if self._bar is not None:
            read = sum(count for (phase, _, _), count in self._counts.items() if phase == run.phase)
            self._bar.update(self._task, description=f"{words}: {read:,}")
        elif run.phase != self._phase and not self._quiet:
            click.echo(f"{words} …", err=True)
        self._phase = run.phase

    def waiting(self, seconds: float) -> None:
        text = f"waiting {seconds:.0f} s until functions that know the old rules have ended"
        if self._bar is not None:
            self._bar.update(self._task, description=text)
        elif not self._quiet:
            click.echo(text, err=True)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
