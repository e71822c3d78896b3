"""`projections status`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any

import click

from projections.aws.connection import Live, connect
from projections.cli.options import as_json, live_options
from projections.cli.redrive import PREFIX
from projections.cli.stack import deployed, stack_option
from projections.errors import StoreError
from projections.terminal import console, json_text, print_line, print_text, styled

if TYPE_CHECKING:
    from projections.operations.status import Finding

__all__ = ["command"]

_BACKFILL = re.compile(r"(?<=`projections backfill)(?! --stack)")
"""Where --stack is added to what findings advise, so that the command can be copied."""

_PEEK_SECONDS = 1
"""For so long nobody else receives the messages that are looked at."""

_MOST_CAUSES = 3
"""Causes of rejections that are named; `redrive --list` names all."""

_MOST_OBJECTS = 1000
"""That are looked for in the bucket."""


@click.command("status")
@live_options
@stack_option
@as_json
@click.option("--function", metavar="NAME", help="Stream function, to show its lag. [default: of --stack]")
@click.option("--quarantine", metavar="URL", help="Quarantine queue. [default: of --stack, or $QUARANTINE_QUEUE_URL]")
@click.option("--queue", metavar="URL", help="Task queue. [default: of --stack, or $TASK_QUEUE_URL]")
@click.option("--dead-letters", metavar="URL", help="Dead-letter queue of the task queue. [default: of --stack]")
@click.option("--bucket", metavar="NAME", help="Bucket of discarded batches. [default: of --stack]")
@click.option("--prefix", metavar="P", default=PREFIX, show_default=True, help="Prefix of keys in the bucket.")
def command(
    rules: str | None,
    tables: tuple[str, ...],
    ledger: str | None,
    endpoint_url: str | None,
    region: str | None,
    stack: str | None,
    as_json: bool,
    function: str | None,
    quarantine: str | None,
    queue: str | None,
    dead_letters: str | None,
    bucket: str | None,
    prefix: str,
) -> int:
    """Show the state of rules, backfills and queues, and what needs to be done.

    Checks everything in --stack, otherwise what other options name. Reads a few items of the ledger, and writes nothing.
    Exits with 1 if anything needs attention.

    \b
    Example:
      projections status --stack shop
    """
    from projections.operations import status

    names = deployed(stack, region)
    chosen = names.rules(rules, "ignore")
    document = chosen.document
    live = connect(document, names.tables(tables, document), names.ledger(ledger), endpoint_url, region)
    now = datetime.now(UTC)
    schedule, since = (
        (names.stack.parameters.get("AuditSchedule"), names.stack.created) if names.stack else (None, None)
    )
    recorded = status.ledger(live.program, live.store, now, deployed=chosen.deployed, schedule=schedule, since=since)
    findings: list[Finding] = []
    if chosen.note and chosen.about_option:
        todo = "Without --rules, commands use the deployed rules."
        findings.append(status.Finding("rule file", status.LOOK, chosen.note, todo))
    elif chosen.note:
        print_line(f"note: {chosen.note}.", err=True)
    findings += recorded.findings
    function = names.name(function, "StreamFunctionName")
    findings += _streams(live, function, stack, region, now)
    findings.append(_lag(function, region, now))
    findings.append(_known("throttling", function, partial(_throttling, live, region, now), optional=True))
    quarantine = names.name(quarantine, "QuarantineQueueUrl", "QUARANTINE_QUEUE_URL")
    dead_letters = names.name(dead_letters, "TaskDeadLettersUrl")
    queues = {
        "quarantine": (
            quarantine,
            "record",
            "that a rule could not use",
            f"Mend the items or the rule it names, then run {_redrive(stack, 'quarantine', quarantine)}.",
        ),
        "tasks": (names.name(queue, "TaskQueueUrl", "TASK_QUEUE_URL"), "task", "for the worker", ""),
        "dead letters": (
            dead_letters,
            "task",
            "that failed ten times",
            f"The worker's log says why. Then run {_redrive(stack, 'dead-letters', dead_letters)}.",
        ),
    }
    for subject, (url, *words) in queues.items():
        found = _known(subject, url, partial(_depth, subject, url, region, words))
        findings.append(_quarantine(found, live, url, region) if subject == "quarantine" else found)
    name = names.name(bucket, "DiscardedBucketName")
    findings.append(_known("discarded", name, partial(_discarded, name, prefix, region, stack)))
    if stack:
        findings = [replace(one, todo=_BACKFILL.sub(f" --stack {stack}", one.todo)) for one in findings]
    attention = any(finding.level in (status.LOOK, status.ACT) for finding in findings)
    if as_json:
        report = {
            "attention": attention,
            "findings": [_plain(finding) for finding in findings],
            "epoch": recorded.epoch,
            "rules": dict(recorded.rules),
        }
        print_text(json_text(report))
    else:
        _print(findings)
    return 1 if attention else 0


def _streams(
    live: Live, function: str | None, stack: str | None, region: str | None, now: datetime
) -> Iterator[Finding]:
    """Whether what is written to each table reaches the function."""
    from projections.aws.clients import client
    from projections.aws.functions import event_source_mappings
    from projections.aws.metrics import stream_counts
    from projections.operations import status

    several = len(live.program.tables) > 1
    tables = {f"stream {name}" if several else "stream": live.described[name] for name in live.program.tables}
    mappings = None
    if function:
        streams = [table["LatestStreamArn"] for table in tables.values() if table.get("LatestStreamArn")]
        try:
            mappings = event_source_mappings(client("lambda", region=region), function, streams)
        except StoreError as error:
            yield from (status.Finding(subject, status.LOOK, f"not known: {error}") for subject in tables)
            return
    for subject, table in tables.items():
        counts = None
        for one in mappings or ():
            if one.get("EventSourceArn") == table.get("LatestStreamArn"):
                with suppress(StoreError):  # `lag` says that CloudWatch does not answer
                    counts = stream_counts(client("cloudwatch", region=region), one["UUID"], table["TableName"], now)
        yield status.stream(subject, table, mappings, counts, stack)


def _known(subject: str, name: str | None, ask: Callable[[], Finding], *, optional: bool = False) -> Finding:
    """What somebody else tells, if it is known whom to ask; that it does not answer is told, and no reason to stop."""
    from projections.operations.status import LOOK, UNKNOWN, Finding

    if not name:
        return Finding(subject, UNKNOWN, "not looked at: not named, nor --stack")
    try:
        return ask()
    except StoreError as error:
        return Finding(subject, UNKNOWN if optional else LOOK, f"not known: {error}")


def _lag(function: str | None, region: str | None, now: datetime) -> Finding:
    from projections.aws.clients import client
    from projections.aws.metrics import iterator_age
    from projections.operations import status

    def ask() -> Finding:
        return status.lag(iterator_age(client("cloudwatch", region=region), function or "", now))

    return _known("lag", function, ask, optional=True)


def _throttling(live: Live, region: str | None, now: datetime) -> Finding:
    from projections.aws.clients import client
    from projections.aws.metrics import throttle_events
    from projections.operations import status

    schemas = live.program.tables
    tables = {name: schemas[logical].indexes if logical in schemas else () for logical, name in live.names.items()}
    return status.throttling(throttle_events(client("cloudwatch", region=region), tables, now))


def _depth(subject: str, url: str | None, region: str | None, words: Sequence[str]) -> Finding:
    from projections.aws.clients import client
    from projections.aws.queues import Queue
    from projections.operations import status

    return status.queue(subject, Queue(client("sqs", region=region), url or "").depth().total, *words)


def _quarantine(found: Finding, live: Live, url: str | None, region: str | None) -> Finding:
    """The finding with what some of the messages are about, and how many were dismissed."""
    from projections.aws.clients import client
    from projections.aws.queues import Queue
    from projections.operations.redrive.dismissal import Quarantined, dismissed

    says = found.says
    if found.value and url:
        with suppress(StoreError):
            messages = Queue(client("sqs", region=region), url).receive(_PEEK_SECONDS, wait=0)
            causes = dict.fromkeys(Quarantined.read(message).cause for message in messages)
            says += "".join(f"; {cause}" for cause in [cause for cause in causes if cause][:_MOST_CAUSES])
    if number := len(dismissed(live.store)):
        says += f" ({number:,} dismissed in the last 90 days)"
    return replace(found, says=says)


def _redrive(stack: str | None, option: str, name: str | None) -> str:
    """The command that redrives what was found, as it can be copied."""
    return f"`projections redrive --stack {stack}`" if stack else f"`projections redrive --{option} {name}`"


def _discarded(name: str | None, prefix: str, region: str | None, stack: str | None) -> Finding:
    from projections.aws.buckets import Bucket
    from projections.aws.clients import client
    from projections.operations import status

    found = list(islice(Bucket(client("s3", region=region), name or "").pending(prefix), _MOST_OBJECTS))
    todo = f"Look at the function's log for the reason, then run {_redrive(stack, 'bucket', name)}."
    return status.queue("discarded", len(found), "batch", "given up", todo, most=len(found) == _MOST_OBJECTS)


def _plain(finding: Finding) -> dict[str, Any]:
    told = {"subject": finding.subject, "level": finding.level, "says": finding.says, "todo": finding.todo or None}
    return told if finding.value is None else {**told, "value": finding.value}


def _print(findings: Sequence[Finding]) -> None:
    from projections.operations import status

    signs = {status.FINE: ("ok", "green"), status.LOOK: ("look", "yellow"), status.ACT: ("act", "red")}
    out = console()
    width = max(len(finding.subject) for finding in findings)
    for finding, following in zip_longest(findings, findings[1:]):
        sign, style = signs.get(finding.level, ("?", "dim"))
        says = styled("[dim]{}[/]", finding.says) if finding.level == status.UNKNOWN else finding.says
        subject = finding.subject.ljust(width)
        out.print(styled("[{}]{:<5}[/][bold]{}[/]  {}", style, sign, subject, says), soft_wrap=True)
        if finding.todo and (following is None or following.todo != finding.todo):
            out.print(f"{'':<{width + 7}}{finding.todo}", soft_wrap=True)
