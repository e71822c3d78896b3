"""`projections redrive`."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

from projections.cli.options import DISCARDED, Sources, Tables, as_json, source_options, stack_options
from projections.cli.stack import Deployed, find_deployed
from projections.errors import UsageError
from projections.terminal import Bar, count, print_first, print_json, print_line

if TYPE_CHECKING:
    from projections.aws.live_tables import Live
    from projections.aws.queues import Queue
    from projections.language.program import Program
    from projections.operations.dismissal import Dismissed, Quarantined, Wanted
    from projections.operations.failed_messages import Reader
    from projections.operations.message_redrive import Answer, MessageSource, Outcome, Redrive


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
    options: Tables,
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
    from projections.engine.running import at_once
    from projections.language.program import Program
    from projections.operations.dry import DryStore
    from projections.operations.failed_messages import Reader
    from projections.operations.message_redrive import Redrive, redrive_all

    others = files or sources.dead_letters or sources.bucket or most
    alone = listing or dismiss is not None or because is not None
    if alone and (others or (listing and (dismiss is not None or dry_run))):
        raise UsageError(
            "--list and --dismiss read the quarantine only. Pass one of them, without FILES, --dead-letters, --bucket "
            "and --limit; --list also without --dry-run"
        )
    if because is not None and not listing and dismiss is None:
        raise UsageError("--because requires --dismiss KEY|RULE|AGE")
    there = find_deployed(options)
    document = there.document(writes=not (dry_run or listing or dismiss))
    if dismiss is not None:
        _dismissal_filter(Program.from_document(document), dismiss)  # reports mistakes before it looks for tables
        if because is not None and not because.strip():
            raise UsageError("--because is empty. Write why these messages are dismissed: it is recorded")
    live = there.connect(document, threads=THREADS)
    if alone:
        url = there.quarantine(sources.quarantine)
        if not url:
            raise UsageError("no quarantine: pass --quarantine URL or --stack, or set QUARANTINE_QUEUE_URL")
        quarantine = there.queue(url)
        if dismiss is None:
            return _show(live, quarantine, as_json)
        return _dismiss(live, quarantine, dismiss, because, dry_run, options.region, as_json)
    reader = Reader(live.program.tables, live.names, label=os.environ.get("STREAM_LABEL", ""))
    queues = _message_sources(files, there, sources, reader)
    reporter = _Reporter(quiet=as_json, listing=dry_run)
    redrive = Redrive(
        live.program,
        DryStore(live.store) if dry_run else live.store,
        send=_sender(there, there.task_queue(sources.queue), dry_run),
        run=at_once(THREADS),
        sleep=(lambda seconds: None) if dry_run else time.sleep,
    )
    try:
        with reporter.bar:
            outcome = redrive_all(
                queues, redrive, now=lambda: datetime.now(UTC), most=most, keep=dry_run, report=reporter.progress
            )
    except KeyboardInterrupt:
        print_line("Stopped. Nothing is lost: run the same command to continue.", err=True)
        return 130
    return _report(outcome, redrive, reporter, as_json, dry_run)


def _message_sources(files: Sequence[str], there: Deployed, sources: Sources, reader: Reader) -> list[MessageSource]:
    from projections.local.event_files import documents
    from projections.operations.failed_messages import BucketSource, FileSource, QueueSource

    quarantine, dead_letters, bucket = sources.quarantine, sources.dead_letters, sources.bucket
    if not (files or quarantine or dead_letters or bucket):
        quarantine = there.quarantine(None)
        dead_letters, bucket = there.name(None, "TaskDeadLettersUrl"), there.name(None, "DiscardedBucketName")
    message_sources: list[MessageSource] = [
        QueueSource(name, there.queue(url), reader)
        for name, url in (("quarantine", quarantine), ("dead letters", dead_letters))
        if url
    ]
    if bucket:
        message_sources.append(BucketSource("bucket", there.bucket(bucket), DISCARDED, reader))
    for file in files:  # read before anything is written: an invalid file is wrong usage
        message_sources.append(FileSource(file, [reader.value(value, place) for place, value in documents(file)]))
    if not message_sources:
        raise UsageError(
            "nothing to redrive: pass --quarantine URL, --dead-letters URL, --bucket NAME, --stack or files"
        )
    return message_sources


def _sender(there: Deployed, url: str | None, dry: bool) -> Any:
    if not url or dry:
        return SimpleNamespace(send=lambda tasks: None) if url else None
    from projections.operations.tasks import Tasks

    return Tasks(lambda: there.queue(url))


def _report(outcome: Outcome, redrive: Redrive, reporter: _Reporter, as_json: bool, dry_run: bool) -> int:
    left = [(name, _left_document(answer)) for name, source in outcome.sources.items() for answer in source.left]
    if as_json:
        report: dict[str, Any] = {
            "dryRun": dry_run,
            "items": redrive.items,
            "pushes": redrive.pushes,
            "gaps": sorted(redrive.gaps),
            "sources": {name: {"redriven": of.done, "left": len(of.left)} for name, of in outcome.sources.items()},
            "left": [{"source": name, **message} for name, message in left],
            "stopped": outcome.stopped,
        }
        if dry_run:
            report["refreshed"] = reporter.items
        print_json(report)
        return 1 if outcome.remains else 0
    done, remain = ("would be redriven", "would be left") if dry_run else ("redriven", "left")
    if dry_run:
        print_first(
            f"would be refreshed: {item['key']}" + (f" ({item['reason']})" if item["reason"] else "")
            for item in reporter.items
        )
    print_first(
        (f"{'would be left' if dry_run else 'left'}: {each['place']}: {_about(each)}" for _, each in left), err=True
    )
    for name, source in outcome.sources.items():
        print_line(f"{name}: {source.done:,} {done}, {len(source.left):,} {remain}")
    pushes = f", {redrive.pushes:,} to be pushed to children" if redrive.pushes else ""
    print_line(f"{count(redrive.items, 'item')} read{pushes}.")
    if redrive.gaps:
        print_line(
            f"Lanes have not counted these records, and a redrive cannot: {', '.join(sorted(redrive.gaps))} may be wrong. "
            "Run `projections verify --repair`, which counts again.",
            err=True,
        )
    if outcome.stopped:
        print_line("Stopped at --limit; there may be more.")
    return 1 if outcome.remains else 0


def _left_document(answer: Answer) -> dict[str, Any]:
    reasons = [{"about": about, "reasons": reasons} for about, reasons in answer.left.items()]
    return {"place": answer.message.place, "reason": answer.message.reason or None, "now": reasons}


def _about(left: dict[str, Any]) -> str:
    return "; ".join(f"{now['about']}{': ' if now['about'] else ''}{', '.join(now['reasons'])}" for now in left["now"])


class _Reporter:
    """Shows the progress on a terminal, and collects the items of a dry run."""

    def __init__(self, *, quiet: bool, listing: bool) -> None:
        self.items: list[dict[str, str]] = []
        self.bar = Bar("reading", quiet=quiet)
        self._listing = listing
        self._done = self._left = 0

    def progress(self, source: MessageSource, answers: Sequence[Answer]) -> None:
        from projections.language.keys import encode_key

        self._left += sum(bool(answer.left) for answer in answers)
        self._done += sum(not answer.left for answer in answers)
        for answer in answers if self._listing else ():
            self.items += [{"key": encode_key(key), "reason": answer.message.reason} for key in answer.message.items]
        self.bar.update(f"{source.name}: {self._done:,} redriven, {self._left:,} rejected again")


def _show(live: Live, queue: Queue, as_json: bool) -> int:
    """Print the messages of the quarantine and the dismissals. Return the exit code, 1 if there are messages."""
    from projections.operations.dismissal import dismissed_messages, quarantined_messages

    messages, records = list(quarantined_messages(queue)), dismissed_messages(live.store)
    if as_json:
        recorded = {record.message.id for record in records}
        listed = [{**_plain(message), "dismissalRecorded": message.id in recorded} for message in messages]
        print_json({"messages": listed, "dismissed": [_record(record) for record in records]})
        return 1 if messages else 0
    print_line(f"quarantine: {count(len(messages), 'message')}")
    print_first(map(_line, messages))
    queued = {message.id for message in messages}
    print_line(f"dismissed in the last 90 days: {count(len(records), 'message')}")
    lines = []
    for record in records:
        unfinished = " (still in the queue: dismiss it again)" if record.message.id in queued else ""
        decision = record.decision
        lines.append(f"  {decision.at:%Y-%m-%d %H:%M} {decision.by}: {decision.because}{unfinished}")
        lines.append(f"    {_complaint(record.message)}")
    print_first(lines)
    return 1 if messages else 0


def _dismiss(
    live: Live, queue: Queue, which: str, because: str | None, dry_run: bool, region: str | None, as_json: bool
) -> int:
    """Dismiss messages, or print which would be. Return the exit code, 1 if any would be, or others remain."""
    from projections.operations.dismissal import Decision
    from projections.operations.dismissal import dismiss as dismissed

    now = datetime.now(UTC)
    wanted = _dismissal_filter(live.program, which)
    dry = dry_run or because is None
    decision = None if dry else Decision(str(because).strip(), _caller(region), now)
    done: list[Quarantined] = []
    number, others = dismissed(queue, live.store, wanted, decision, now, done.append)
    if wanted.rule is not None and not number and which not in live.program.rules:
        raise UsageError(
            f"--dismiss {which}: expected a key such as PK=POST#p1,SK=METADATA, an age such as 36h or 10d, or a rule. "
            f"The rules are {', '.join(sorted(live.program.rules))}, and no message names another"
        )
    if as_json:
        report = {"dryRun": dry, "dismissed": [_plain(message) for message in done], "others": others}
        report |= {} if decision is None else {"because": decision.because, "by": decision.by}
        print_json(report)
    else:
        print_first(map(_line, done))
        dismissals = "would be dismissed" if dry else "dismissed"
        print_line(f"quarantine: {count(number, 'message')} {dismissals}, {others:,} not selected")
        if number and because is None:
            print_line(
                "Nothing was written. Add --because TEXT to dismiss: the text and your name are recorded in the ledger."
            )
    return 1 if others or (dry and number) else 0


def _dismissal_filter(program: Program, which: str) -> Wanted:
    from projections.inspect.explain.item import read_key
    from projections.operations.dismissal import Wanted, age

    if (older := age(which)) is not None:
        return Wanted(older=older)
    if "=" in which or "|" in which or "·" in which:
        return Wanted(item=read_key(program, which))
    return Wanted(rule=which)


def _caller(region: str | None) -> str:
    """Return the caller's ARN, or the user and host of the operating system."""
    import getpass
    import socket

    from botocore.exceptions import BotoCoreError, ClientError

    from projections.aws.clients import client

    try:
        return str(client("sts", region=region).get_caller_identity()["Arn"])
    except (BotoCoreError, ClientError):
        return f"{getpass.getuser()}@{socket.gethostname()}"


def _complaint(message: Quarantined) -> str:
    from projections.operations.quarantine import complaint

    key = message.key or "no item"
    reason = message.reason or "not a message of this package"
    text = f"{key}: {complaint(message.rule, reason, key=key, target=message.target, fault=message.fault)}"
    if not message.triggered_by:
        return text
    more = message.triggers - len(message.triggered_by)
    return f"{text} (triggered by {', '.join(message.triggered_by)}{f' and {more:,} more' if more > 0 else ''})"


def _line(message: Quarantined) -> str:
    return f"  {f'{message.time:%Y-%m-%d %H:%M}' if message.time else 'no time'} {_complaint(message)}"


def _plain(message: Quarantined) -> dict[str, Any]:
    return {
        "id": message.id,
        "rule": message.rule,
        "key": message.key,
        "target": message.target,
        "fault": message.fault,
        "reason": message.reason,
        "triggeredBy": list(message.triggered_by),
        "time": message.time.isoformat() if message.time else None,
    }


def _record(dismissal: Dismissed) -> dict[str, Any]:
    decision = dismissal.decision
    return {**_plain(dismissal.message), "because": decision.because, "by": decision.by, "at": decision.at.isoformat()}
