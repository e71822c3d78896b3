"""`projections redrive`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from projections.cli.options import Sources, Tables, as_json, source_options, stack_options
from projections.cli.printing.progress import Bar
from projections.cli.stack import Deployed, deployed
from projections.errors import UsageError
from projections.terminal import count, json_text, print_first, print_line, print_text

if TYPE_CHECKING:
    from projections.aws.queues import Queue
    from projections.operations.redrive.messages import Reader
    from projections.operations.redrive.redrive import Answer, Redrive
    from projections.operations.redrive.sources import MessageSource, Outcome

__all__ = ["command"]

THREADS = 10


@click.command("redrive")
@click.argument("files", nargs=-1, metavar="[FILE]…")
@stack_options
@as_json
@source_options
@click.option(
    "--limit",
    "most",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum number of messages, objects and events of files.",
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
    given: Tables,
    as_json: bool,
    sources: Sources,
    most: int | None,
    dry_run: bool,
    listing: bool,
    dismiss: str | None,
    because: str | None,
) -> int:
    """Refresh the items of quarantined or discarded records, and retry failed tasks.

    Reads the keys of items from messages, from objects in the bucket, or from FILEs. Refreshes each item, and everything
    that depends on it, from the item's current state, then deletes the message. For an object in the bucket, writes a
    marker under redriven/. Uses the old image of a record only if the item expired, and counts that item once. Records
    that are rejected again stay where they are, and are printed. You can interrupt and repeat the command. A FILE contains
    stream events, or is a copy of an object from the bucket.

    Without options for sources, reads the quarantine, the dead letters and the bucket of --stack, or the queue
    $QUARANTINE_QUEUE_URL. Exits with 1 if anything remains.

    --list and --dismiss apply to the quarantine only. A dismissed message is deleted without a refresh; for 90 days, the
    ledger records the message, the reason, and the user who dismissed it.

    \b
    Examples:
      projections redrive --stack shop --dry-run
      projections redrive --stack shop --dismiss 10d --because "the posts were deleted"
    """
    from projections.cli import dismiss as dismissal
    from projections.engine.running import at_once
    from projections.language.program import Program
    from projections.operations.dry import DryStore
    from projections.operations.redrive.messages import Reader
    from projections.operations.redrive.redrive import Redrive
    from projections.operations.redrive.sources import redrive_all

    others = files or sources.dead_letters or sources.bucket or most
    alone = listing or dismiss is not None or because is not None
    if alone and (others or (listing and (dismiss is not None or dry_run))):
        raise UsageError(
            "--list and --dismiss read the quarantine only. Pass one of them, without FILES, --dead-letters, --bucket "
            "and --limit; --list also without --dry-run"
        )
    if because is not None and not listing and dismiss is None:
        raise UsageError("--because requires --dismiss KEY|RULE|AGE")
    there = deployed(given)
    document = there.document(writes=not (dry_run or listing or dismiss))
    if dismiss is not None:
        dismissal.check(Program.from_document(document), dismiss, because)  # before it looks for tables
    live = there.connect(document, threads=THREADS)
    if alone:
        quarantine = _quarantine(there, sources.quarantine)
        if dismiss is None:
            return dismissal.show(live, quarantine, as_json)
        return dismissal.dismiss(live, quarantine, dismiss, because, dry_run, given.region, as_json)
    reader = Reader(live.program.tables, live.names, label=os.environ.get("STREAM_LABEL", ""))
    found = _message_sources(files, there, sources, reader)
    reporter = _Reporter(quiet=as_json, listing=dry_run)
    redrive = Redrive(
        live.program,
        DryStore(live.store) if dry_run else live.store,
        send=_sender(there, there.task_queue(sources.queue), dry_run),
        run=at_once(THREADS),
        sleep=(lambda seconds: None) if dry_run else time.sleep,
        dry=dry_run,
    )
    try:
        with reporter.bar:
            outcome = redrive_all(
                found, redrive, now=lambda: datetime.now(UTC), most=most, keep=dry_run, report=reporter.answered
            )
    except KeyboardInterrupt:
        print_line("Stopped. Nothing is lost: run the same command to continue.", err=True)
        return 130
    return _report(outcome, redrive, reporter, as_json, dry_run)


def _quarantine(there: Deployed, option: str | None) -> Queue:
    url = there.quarantine(option)
    if not url:
        raise UsageError("no quarantine: pass --quarantine URL or --stack, or set QUARANTINE_QUEUE_URL")
    return there.queue(url)


def _message_sources(files: Sequence[str], there: Deployed, sources: Sources, reader: Reader) -> list[MessageSource]:
    from projections.local.json_text import documents
    from projections.operations.redrive.sources import BucketSource, FileSource, QueueSource

    quarantine, dead_letters, bucket = sources.quarantine, sources.dead_letters, sources.bucket
    if not (files or quarantine or dead_letters or bucket):
        quarantine = there.quarantine(None)
        dead_letters, bucket = there.name(None, "TaskDeadLettersUrl"), there.name(None, "DiscardedBucketName")
    found: list[MessageSource] = []
    for name, url in (("quarantine", quarantine), ("dead letters", dead_letters)):
        if url:
            found.append(QueueSource(name, there.queue(url), reader))
    if bucket:
        found.append(BucketSource("bucket", there.bucket(bucket), sources.prefix, reader))
    for file in files:  # read before anything is written: an invalid file is wrong usage
        found.append(FileSource(file, [reader.value(value, place) for place, value in documents(file)]))
    if not found:
        raise UsageError(
            "nothing to redrive: pass --quarantine URL, --dead-letters URL, --bucket NAME, --stack or files"
        )
    return found


class _Nowhere:
    """The task queue of a dry run."""

    def send(self, tasks: Sequence[Any]) -> None:
        return None


def _sender(there: Deployed, url: str | None, dry: bool) -> Any:
    if not url or dry:
        return _Nowhere() if url else None
    from projections.operations.tasks import Tasks

    return Tasks(lambda: there.queue(url))


def _report(outcome: Outcome, redrive: Redrive, reporter: _Reporter, as_json: bool, dry_run: bool) -> int:
    left = [(name, _left(answer)) for name, one in outcome.sources.items() for answer in one.left]
    if as_json:
        report: dict[str, Any] = {
            "dryRun": dry_run,
            "items": redrive.items,
            "pushes": redrive.pushes,
            "sources": {name: {"redriven": one.done, "left": len(one.left)} for name, one in outcome.sources.items()},
            "left": [{"source": name, **one} for name, one in left],
            "stopped": outcome.stopped,
        }
        if dry_run:
            report["refreshed"] = reporter.items
        print_text(json_text(report))
        return 1 if outcome.remains else 0
    done, remain = ("would be redriven", "would be left") if dry_run else ("redriven", "left")
    if dry_run:
        print_first(
            f"would be refreshed: {one['key']}" + (f" ({one['reason']})" if one["reason"] else "")
            for one in reporter.items
        )
    print_first(
        (f"{'would be left' if dry_run else 'left'}: {one['place']}: {_about(one)}" for _, one in left), err=True
    )
    for name, source in outcome.sources.items():
        print_line(f"{name}: {source.done:,} {done}, {len(source.left):,} {remain}")
    pushes = f", {redrive.pushes:,} to be pushed to children" if redrive.pushes else ""
    print_line(f"{count(redrive.items, 'item')} read{pushes}.")
    if outcome.stopped:
        print_line("Stopped at --limit; there may be more.")
    return 1 if outcome.remains else 0


def _left(answer: Answer) -> dict[str, Any]:
    reasons = [{"about": about, "reasons": reasons} for about, reasons in answer.left.items()]
    return {"place": answer.message.place, "reason": answer.message.reason or None, "now": reasons}


def _about(left: dict[str, Any]) -> str:
    return "; ".join(f"{one['about']}{': ' if one['about'] else ''}{', '.join(one['reasons'])}" for one in left["now"])


class _Reporter:
    """Shows the progress on a terminal, and collects the items of a dry run."""

    def __init__(self, *, quiet: bool, listing: bool) -> None:
        self.items: list[dict[str, str]] = []
        self.bar = Bar("reading", quiet=quiet)
        self._listing = listing
        self._done = self._left = 0

    def answered(self, source: MessageSource, answers: Sequence[Answer]) -> None:
        from projections.language.keys import encode_key

        self._left += sum(bool(answer.left) for answer in answers)
        self._done += sum(not answer.left for answer in answers)
        for answer in answers if self._listing else ():
            self.items += [{"key": encode_key(key), "reason": answer.message.reason} for key in answer.message.items]
        self.bar.update(f"{source.name}: {self._done:,} redriven, {self._left:,} rejected again")
