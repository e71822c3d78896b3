"""`projections backfill`."""

from __future__ import annotations

import click

from projections.cli.options import Tables, as_json, select_option, selected_rules, stack_options
from projections.cli.stack import deployed
from projections.errors import UsageError
from projections.terminal import print_line

__all__ = ["command"]

STOPPED = 130
_ENVIRONMENT = "$TASK_QUEUE_URL"


@click.command("backfill")
@stack_options
@as_json
@select_option
@click.option(
    "--segments", type=click.IntRange(1, 200), default=4, show_default=True, help="Segments to scan in parallel."
)
@click.option(
    "--max-writes",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum writes per second. [default: unlimited]",
)
@click.option(
    "--wait",
    type=click.FloatRange(0, 900),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Timeout of the functions. The backfill waits for it, so that functions with the old rules have ended.",
)
@click.option(
    "--allow-delete",
    is_flag=True,
    help="Delete copies and derived items that no longer have a source item, and attributes that rules may have "
    "written before you rolled them back.",
)
@click.option("--restart", is_flag=True, help="Start again instead of continuing where the last run stopped.")
@click.option(
    "--new-secret",
    is_flag=True,
    help="Replace the secret that signs guards, and sign all guards again. The former secret is valid until the end.",
)
@click.option(
    "--dry-run", is_flag=True, help="Write nothing; print what would be written, and an estimate of its cost."
)
@click.option(
    "--queue",
    is_flag=False,
    flag_value=_ENVIRONMENT,
    metavar="[URL]",
    help="Run the backfill in the worker function, through its task queue. [without URL: from --stack, or $TASK_QUEUE_URL]",
)
def command(
    given: Tables,
    as_json: bool,
    select: tuple[str, ...],
    segments: int,
    max_writes: int | None,
    wait: float,
    allow_delete: bool,
    restart: bool,
    new_secret: bool,
    dry_run: bool,
    queue: str | None,
) -> int:
    """Apply the rules to existing items, and activate new or changed rules.

    Run it after rules are added, changed or retired, and if the stream was disabled for longer than 24 hours. The
    application may write meanwhile. Rules become active when all items have been read; until then, no partial values are
    published. If the command is interrupted, run it again: it continues where it stopped. It deletes no item of your tables
    without --allow-delete.

    Exits with 1 if anything failed, was rejected, or was not deleted.

    \b
    Examples:
      projections backfill --stack shop --dry-run
      projections backfill --stack shop --queue
    """
    from projections.cli.printing.backfill import Reporter, report, report_dry
    from projections.operations.backfill.runner import Runner, backfill_with_threads

    if new_secret and dry_run:
        raise UsageError("--new-secret cannot be combined with --dry-run")
    if queue is not None and (dry_run or max_writes):
        raise UsageError(
            "--queue cannot be combined with --dry-run or --max-writes: the worker function has a rate of its own"
        )
    there = deployed(given)
    queue_url = there.task_queue(None) if queue == _ENVIRONMENT else queue
    if queue is not None and not queue_url:
        raise UsageError(
            "no task queue: pass --queue URL or --stack, or set TASK_QUEUE_URL. `sam deploy` prints the URL"
        )
    live = there.connect(there.document(writes=not dry_run), threads=4 * segments)
    warnings = there.warnings(live, refuse=not dry_run)
    only = selected_rules(live.program, select)
    backfill = backfill_with_threads(live.program, live.store, segments=segments, rate=max_writes, dry=dry_run)
    reporter = Reporter(live, warnings, as_json=as_json)
    with reporter.bar:
        runner = Runner(backfill, report=reporter.page, report_wait=reporter.wait, report_read=reporter.reading)
        if dry_run:
            counted = runner.rehearse(backfill.rehearsed(only, segments))
            reporter.bar.end()
            return report_dry(backfill, counted, runner, as_json=as_json)
        known = backfill.progress.run()
        run = backfill.begin(
            rules=only,
            segments=segments,
            wait=wait,
            allow_delete=allow_delete,
            restart=restart,
            new_secret=new_secret,
        )
        reporter.begin(run, resumed=known is not None and known.name == run.name)
        if queue_url:
            from projections.operations.backfill.queued import start
            from projections.operations.tasks import Tasks

            tasks = there.queue(queue_url)
            start(backfill, run, Tasks(lambda: tasks))
            reporter.left(run)
            return 0
        try:
            run = runner.work(run)
        except KeyboardInterrupt:
            reporter.bar.end()
            print_line("Stopped. Run the same command to continue.", err=True)
            return STOPPED
        reporter.bar.end()
        return report(backfill, run, runner, as_json=as_json)
