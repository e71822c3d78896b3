"""`projections redrive`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from projections.aws.connection import connect
from projections.cli.options import as_json, live_options
from projections.cli.stack import Deployed, deployed, stack_option
from projections.errors import UsageError
from projections.terminal import console, json_text, print_line, print_text

if TYPE_CHECKING:
    from projections.aws.queues import Queue
    from projections.operations.redrive.boxes import Box, Outcome
    from projections.operations.redrive.letters import Reader
    from projections.operations.redrive.redrive import Answer, Redrive

__all__ = ["command"]

THREADS = 10
SHOWN = 30
"""Lines for people; --json has all."""

PREFIX = "aws/lambda/"
"""What the keys begin with under which Lambda puts what it gave up."""


@click.command("redrive")
@click.argument("files", nargs=-1, metavar="[FILE]…")
@live_options
@stack_option
@as_json
@click.option("--quarantine", metavar="URL", help="Quarantine queue. [default: of --stack, or $QUARANTINE_QUEUE_URL]")
@click.option("--dead-letters", metavar="URL", help="Dead-letter queue of the task queue. [default: of --stack]")
@click.option("--bucket", metavar="NAME", help="Bucket of discarded batches. [default: of --stack]")
@click.option("--prefix", metavar="P", default=PREFIX, show_default=True, help="Prefix of keys in the bucket.")
@click.option(
    "--queue",
    metavar="URL",
    help="Task queue, for pushes and failed tasks. [default: of --stack, or $TASK_QUEUE_URL]",
)
@click.option(
    "--max", "most", type=click.IntRange(1), metavar="N", help="Maximum messages, objects and parts of files."
)
@click.option(
    "--dry-run", is_flag=True, help="Write nothing; print what would be refreshed, and what would be rejected again."
)
@click.option("--list", "listing", is_flag=True, help="List quarantined and dismissed messages; redrive nothing.")
@click.option(
    "--dismiss",
    metavar="KEY|RULE|AGE",
    help="Delete quarantined messages of an item (PK=POST#p1,SK=METADATA), of a rule, or older than an age (36h, 10d), "
    "without a refresh. Without --because, only list them.",
)
@click.option("--because", metavar="TEXT", help="Reason for the dismissal, which is recorded with your name.")
def command(
    files: tuple[str, ...],
    rules: str | None,
    tables: tuple[str, ...],
    ledger: str | None,
    endpoint_url: str | None,
    region: str | None,
    stack: str | None,
    as_json: bool,
    quarantine: str | None,
    dead_letters: str | None,
    bucket: str | None,
    prefix: str,
    queue: str | None,
    most: int | None,
    dry_run: bool,
    listing: bool,
    dismiss: str | None,
    because: str | None,
) -> int:
    """Refresh the items of quarantined or discarded records, and retry failed tasks.

    Never replays old images: each item that a message, an object in the bucket or a FILE names is refreshed from its
    current state, with everything that depends on it. Only expired items are counted from the records in the bucket's
    objects, once. Then the message is deleted, and the object is marked by an empty object under redriven/. Records that are
    rejected again stay where they are, and are printed. It can be interrupted and repeated. A FILE has stream events, or is
    an object of the bucket.

    Without options for sources, reads the quarantine, the dead letters and the bucket of --stack, or the quarantine of the
    environment. Exits with 1 if anything remains.

    --list and --dismiss concern the quarantine only. A dismissed message is deleted without a refresh; the ledger records
    for 90 days which message it was, why and by whom it was dismissed.

    \b
    Examples:
      projections redrive --stack shop --dry-run
      projections redrive --stack shop --dismiss 10d --because "the posts were deleted"
    """
    from projections.aws.wiring import at_once
    from projections.operations.dry import DryStore
    from projections.operations.redrive.boxes import work_off
    from projections.operations.redrive.letters import Reader
    from projections.operations.redrive.redrive import Redrive

    names = deployed(stack, region)
    document = names.document(rules, writes=not (dry_run or listing or dismiss))
    live = connect(
        document, names.tables(tables, document), names.ledger(ledger), endpoint_url, region, threads=THREADS
    )
    if listing or dismiss is not None or because is not None:
        from projections.cli import dismiss as dismissal

        if files or dead_letters or bucket or most or (listing and (dismiss is not None or dry_run)):
            raise UsageError(
                "--list and --dismiss take the quarantine alone, and one of them at a time. Leave out the rest"
            )
        if not listing and dismiss is None:
            raise UsageError("--because goes with --dismiss KEY|RULE|AGE")
        queue_of = _quarantine(names, quarantine, region)
        if dismiss is None:
            return dismissal.show(live, queue_of, as_json)
        return dismissal.dismiss(live, queue_of, dismiss, because, dry_run, region, as_json)
    reader = Reader(live.program.tables, live.names, label=os.environ.get("STREAM_LABEL", ""))
    boxes = _boxes(files, names, quarantine, dead_letters, bucket, prefix, reader, region)
    show = _Shown(quiet=as_json, listing=dry_run)
    redrive = Redrive(
        live.program,
        DryStore(live.store, live.program) if dry_run else live.store,
        send=_sender(names.name(queue, "TaskQueueUrl", "TASK_QUEUE_URL"), region, dry_run),
        run=at_once(THREADS),
        sleep=(lambda seconds: None) if dry_run else time.sleep,
        dry=dry_run,
    )
    try:
        outcome = work_off(boxes, redrive, now=lambda: datetime.now(UTC), most=most, keep=dry_run, told=show.told)
    except KeyboardInterrupt:
        show.end()
        print_line("Stopped. What was not redriven is where it was; the same command goes on.", err=True)
        return 130
    finally:
        show.end()
    return _report(outcome, redrive, show, as_json, dry_run)


def _quarantine(names: Deployed, url: str | None, region: str | None) -> Queue:
    from projections.aws.clients import client
    from projections.aws.queues import Queue

    url = names.name(url, "QuarantineQueueUrl", "QUARANTINE_QUEUE_URL")
    if not url:
        raise UsageError("which quarantine? Name it with --quarantine URL, --stack or QUARANTINE_QUEUE_URL")
    return Queue(client("sqs", region=region), url)


def _boxes(
    files: Sequence[str],
    names: Deployed,
    quarantine: str | None,
    dead_letters: str | None,
    bucket: str | None,
    prefix: str,
    reader: Reader,
    region: str | None,
) -> list[Box]:
    from projections.aws.buckets import Bucket
    from projections.aws.clients import client
    from projections.aws.queues import Queue
    from projections.local import events
    from projections.operations.redrive.boxes import Bucketful, Files, Messages

    if not (files or quarantine or dead_letters or bucket):
        quarantine = names.name(None, "QuarantineQueueUrl", "QUARANTINE_QUEUE_URL")
        dead_letters, bucket = names.name(None, "TaskDeadLettersUrl"), names.name(None, "DiscardedBucketName")
    boxes: list[Box] = []
    for name, url in (("quarantine", quarantine), ("dead letters", dead_letters)):
        if url:
            boxes.append(Messages(name, Queue(client("sqs", region=region), url), reader))
    if bucket:
        boxes.append(Bucketful("bucket", Bucket(client("s3", region=region), bucket), prefix, reader))
    for file in files:  # read before anything is done: a file that is none is wrong usage
        boxes.append(Files(file, [reader.value(value, place) for place, value in events.documents(file)]))
    if not boxes:
        raise UsageError(
            "what is to be redriven? Name --quarantine URL, --dead-letters URL, --bucket NAME, --stack or files"
        )
    return boxes


class _Nowhere:
    """The task queue of a dry run."""

    def send(self, tasks: Sequence[Any]) -> None:
        return None


def _sender(url: str | None, region: str | None, dry: bool) -> Any:
    if not url or dry:
        return _Nowhere() if url else None
    from projections.aws.clients import client
    from projections.aws.queues import Queue
    from projections.operations.tasks import Tasks

    return Tasks(lambda: Queue(client("sqs", region=region), url))


def _report(outcome: Outcome, redrive: Redrive, show: _Shown, as_json: bool, dry_run: bool) -> int:

    if as_json:
        report: dict[str, Any] = {
            "dryRun": dry_run,
            "items": redrive.items,
            "pushes": redrive.pushes,
            "sources": {name: {"redriven": one.done, "left": len(one.left)} for name, one in outcome.boxes.items()},
            "left": [{"source": name, **left} for name, one in outcome.boxes.items() for left in map(_left, one.left)],
            "stopped": outcome.stopped,
        }
        if dry_run:
            report["refreshed"] = show.items
        print_text(json_text(report))
        return 1 if outcome.remains else 0
    if dry_run:
        for line in show.items[:SHOWN]:
            print_line(f"would be refreshed: {line['key']}" + (f" ({line['reason']})" if line["reason"] else ""))
        _more(len(show.items))
    lines = [f"{left['place']}: {_about(left)}" for one in outcome.boxes.values() for left in map(_left, one.left)]
    for text in lines[:SHOWN]:
        print_line(f"{'would stay' if dry_run else 'stays'}: {text}", err=True)
    _more(len(lines), err=True)
    for name, one in outcome.boxes.items():
        words = ("would be redriven", "would stay") if dry_run else ("redriven", "stay")
        print_line(f"{name}: {one.done:,} {words[0]}, {len(one.left):,} {words[1]}")
    pushes = f", {redrive.pushes:,} to be pushed to children" if redrive.pushes else ""
    print_line(f"{redrive.items:,} {'item' if redrive.items == 1 else 'items'} looked at{pushes}.")
    if outcome.stopped:
        print_line("Stopped at --max; there may be more.")
    return 1 if outcome.remains else 0


def _left(answer: Answer) -> dict[str, Any]:
    reasons = [{"about": about, "reasons": reasons} for about, reasons in answer.left.items()]
    return {"place": answer.letter.place, "reason": answer.letter.reason or None, "now": reasons}


def _about(left: dict[str, Any]) -> str:
    return "; ".join(f"{one['about']}{': ' if one['about'] else ''}{', '.join(one['reasons'])}" for one in left["now"])


def _more(number: int, *, err: bool = False) -> None:
    if number > SHOWN:
        print_line(f"… and {number - SHOWN:,} more (--json has all)", err=err)


class _Shown:
    """How far it is, on a terminal; of a dry run also the items."""

    def __init__(self, *, quiet: bool, listing: bool) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self.items: list[dict[str, str]] = []
        self._listing = listing
        self._done = self._left = 0
        out = console(stderr=True)
        self._bar: Progress | None = None
        if out.is_terminal and not quiet:
            columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
            self._bar = Progress(*columns, console=out, transient=True)
            self._task = self._bar.add_task("looking")
            self._bar.start()

    def told(self, box: Box, answers: Sequence[Answer]) -> None:
        from projections.language.keys import encode_key

        self._left += sum(bool(answer.left) for answer in answers)
        self._done += sum(not answer.left for answer in answers)
        for answer in answers if self._listing else ():
            self.items += [{"key": encode_key(key), "reason": answer.letter.reason} for key in answer.letter.items]
        if self._bar is not None:
            said = f"{box.name}: {self._done:,} redriven, {self._left:,} refused again"
            self._bar.update(self._task, description=said)

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
