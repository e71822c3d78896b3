"""`projections status`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any

import click

from projections.cli.options import DISCARDED, Sources, Tables, as_json, source_options, stack_options
from projections.cli.stack import Chosen, Deployed, find_deployed
from projections.errors import StoreError
from projections.terminal import markup, print_json, print_line, print_markup

if TYPE_CHECKING:
    from projections.aws.live_tables import Live
    from projections.language.program import Program
    from projections.operations.health import Finding, LedgerStatus


_PEEK_SECONDS = 1
"""How long messages that are read here stay invisible to other consumers."""

_MOST_CAUSES = 3
"""Causes of rejections that are listed; `redrive --list` lists all."""

_MOST_SAMPLED = 100
"""Items of each table that are read if functions met records of no entity."""

_MOST_OBJECTS = 1000
"""Objects of the bucket that are counted."""


@click.command("status")
@stack_options
@as_json
@click.option("--function", metavar="NAME", help="Stream function, to show its lag. [default: from --stack]")
@source_options
def command(options: Tables, as_json: bool, function: str | None, sources: Sources) -> int:
    """Show the state of rules, backfills and queues, and what needs to be done.

    Checks all resources of --stack, or the resources that other options name. Reads a few items of the ledger, and the
    function's log if values were corrected. Writes nothing. Exits with 1 if anything needs attention.

    \b
    Example:
      projections status --stack shop
    """
    from projections.operations import health

    there = find_deployed(options)
    chosen = there.rules()
    live = there.connect(chosen.document, other_indexes=True)
    now = datetime.now(UTC)
    recorded = ledger_status(there, chosen, live, now)
    findings: list[Finding] = []
    if chosen.note and (chosen.about_option or recorded.rolled_back):
        back = f"Rolled back to {', '.join(recorded.rolled_back)}: correct the file, or the next `apply` undoes that."
        todo = "Without --rules, commands use the deployed rules." if chosen.about_option else back
        findings.append(health.Finding("rule file", health.LOOK, chosen.note, todo))
    elif chosen.note:
        print_line(f"note: {chosen.note}.", err=True)
    findings += recorded.findings
    findings += service_findings(there, live, function, sources, now, rule_ages(there, live, now))
    attention = any(finding.level in (health.LOOK, health.ACT) for finding in findings)
    if as_json:
        report = {
            "attention": attention,
            "findings": [plain_finding(finding) for finding in findings],
            "epoch": recorded.epoch,
            "versions": dict(recorded.versions),
        }
        print_json(report)
    else:
        _print(findings)
    return 1 if attention else 0


def ledger_status(there: Deployed, chosen: Chosen, live: Live, now: datetime) -> LedgerStatus:
    """Return what the ledger records of the rules that a command uses."""
    from projections.operations import health

    stack = there.stack
    schedule, since = (stack.parameters.get("AuditSchedule"), stack.created) if stack else (None, None)
    return health.ledger(live.program, live.store, now, stack=there.stack_name, schedule=schedule, since=since)


def service_findings(
    there: Deployed,
    live: Live,
    function: str | None,
    sources: Sources,
    now: datetime,
    ages: Mapping[str, tuple[float, float]],
    *,
    peek: bool = True,
) -> list[Finding]:
    """Return what Lambda, CloudWatch, the queues and the bucket report. `ages` are those of `rule_ages`.

    `peek` also receives messages of the quarantine to name causes: other consumers do not see them for a second.
    """
    function = there.name(function, "StreamFunctionName")
    return [
        *_functions(there, live, function, now, ages),
        *_external(there, live, function, now),
        *_sources(there, live, sources, peek),
    ]


def rule_ages(there: Deployed, live: Live, now: datetime) -> dict[str, tuple[float, float]]:
    """Return p50 and p99 of the age of changes when rules had read them, in seconds; empty if they are not known."""
    from projections.aws.metrics import freshness

    if there.stack is None:
        return {}
    try:
        return freshness(there.client("cloudwatch"), there.stack.name, list(live.program.rules), now)
    except StoreError:  # `lag` reports that CloudWatch does not answer
        return {}


def limits(program: Program) -> dict[str, float]:
    """Return `within` of the rules that have it, in seconds."""
    return {name: float(limit) for name, limit in program.within.items()}


def _functions(
    there: Deployed, live: Live, function: str | None, now: datetime, ages: Mapping[str, tuple[float, float]]
) -> Iterator[Finding]:
    """Whether the writes to each table reach the function, its lag, and which tables are throttled."""
    from projections.aws.metrics import alarms, iterator_age, throttle_events
    from projections.operations import health

    yield from _streams(there, live, function, now)
    yield _ask("lag", function, lambda name: health.lag(iterator_age(there.client("cloudwatch"), name, now)), True)

    if ages:
        yield health.freshness(ages, limits(live.program))

    def throttling(name: str) -> Finding:
        schemas = live.program.tables
        tables = {name: schemas[logical].indexes if logical in schemas else () for logical, name in live.names.items()}
        return health.throttling(throttle_events(there.client("cloudwatch"), tables, now))

    yield _ask("throttling", function, throttling, True)
    if stack := there.stack_name:
        yield _ask("alarms", stack, lambda name: health.alarms(alarms(there.client("cloudwatch"), name)), True)


def _streams(there: Deployed, live: Live, function: str | None, now: datetime) -> Iterator[Finding]:
    from projections.aws.metrics import stream_counts
    from projections.operations import health

    several = len(live.program.tables) > 1
    tables = {f"stream {name}" if several else "stream": live.described[name] for name in live.program.tables}
    mappings = None
    try:
        mappings = there.mappings(live, function)
    except StoreError as error:
        yield from (health.Finding(subject, health.LOOK, f"not known: {error}") for subject in tables)
        yield from _deployment(there, live, None)
        return
    for subject, table in tables.items():
        counts = None
        for mapping in mappings or ():
            if mapping.get("EventSourceArn") == table.get("LatestStreamArn"):
                with suppress(StoreError):  # `lag` reports that CloudWatch does not answer
                    counts = stream_counts(there.client("cloudwatch"), mapping["UUID"], table["TableName"], now)
        yield health.stream(subject, table, mappings, counts, there.stack_name)
    with suppress(StoreError):  # the caller may not read other functions; what they write is reported as `other ledger`
        for other in there.other_maintainers(live, function):
            yield health.maintainer(*other, stack=there.stack_name)
    yield from _deployment(there, live, mappings)


def _deployment(there: Deployed, live: Live, mappings: Sequence[Mapping[str, Any]] | None) -> Iterator[Finding]:
    """Whether tables, and their event source mappings if they are known, agree with the rules. `_streams` reports streams.

    If nothing differs, names what was compared.
    """
    from projections.operations import health

    findings = there.findings(live, mappings)
    levels = {"error": health.ACT, "warning": health.LOOK, "note": health.UNKNOWN}
    differences = [finding for finding in findings if finding.code != "stream"]
    for finding in differences:
        todo = finding.instead[:1].upper() + finding.instead[1:]
        if finding.code in ("filters", "delivery") and todo:
            todo += f", then {health.command('backfill --restart', there.stack_name)}"
        yield health.Finding("deployment", levels[finding.severity], finding.reason, todo and f"{todo}.")
    if not differences:
        compared = ["keys", "indexes"]
        compared += ["TTL"] if there.compares_ttl(live) else []
        compared += ["filters"] if mappings is not None and not findings else []
        what = f"{', '.join(compared[:-1])} and {compared[-1]}"
        yield health.Finding("deployment", health.FINE, f"{what} agree with the rules")


def _external(there: Deployed, live: Live, function: str | None, now: datetime) -> Iterator[Finding]:
    """What other processes wrote: over values that rules own, and of items that no rule uses."""
    from projections.aws.metrics import function_counts, overwrites
    from projections.operations import health

    stack = there.stack_name
    if not stack or not function:
        yield health.Finding(health.EXTERNAL, health.UNKNOWN, "not checked: pass --stack NAME")
        return
    try:
        counts = function_counts(there.client("cloudwatch"), stack, ("healed", "ignored", "records"), now)
    except StoreError as error:
        yield health.Finding(health.EXTERNAL, health.UNKNOWN, f"not known: {error}")
        return
    corrections, logged, unknown = counts.get("healed", []), [], ""
    if corrections:
        end = corrections[-1][0] + timedelta(minutes=5)
        try:
            logged = overwrites(there.client("lambda"), there.client("logs"), function, end - health.LOGGED, end)
        except StoreError as error:
            unknown = str(error)
    yield from health.external_writes(corrections, logged, now, unknown)
    records, ignored = (sum(number for _, number in counts.get(name, [])) for name in ("records", "ignored"))
    yield health.no_entity(records, ignored, list(_of_no_entity(live)) if ignored else (), stack=stack)


def _of_no_entity(live: Live) -> Iterator[str]:
    """Yield a few items of no entity, each with the reason, from the first items of each table."""
    from projections.inspect.explain.matching import find_unused
    from projections.language.keys import encode_key

    for name, schema in live.program.tables.items():
        with suppress(StoreError):
            images = [(schema.key(name, image), image) for image in live.store.scan(name, limit=_MOST_SAMPLED).items]
            for key, why in find_unused(live.program, images).items[:_MOST_CAUSES]:
                yield f"{encode_key(key)} ({why})" if why else encode_key(key)


def _sources(there: Deployed, live: Live, sources: Sources, peek: bool) -> Iterator[Finding]:
    """What waits in the queues and in the bucket."""
    from projections.operations import health

    stack = there.stack_name

    def redrive(option: str, name: str | None) -> str:
        """Return the command that redrives what was found, as it can be copied."""
        return f"`projections redrive --stack {stack}`" if stack else f"`projections redrive --{option} {name}`"

    quarantine = there.quarantine(sources.quarantine)
    dead_letters = there.name(sources.dead_letters, "TaskDeadLettersUrl")
    correct = f"Correct these items or the rule, then run {redrive('quarantine', quarantine)}."
    look = f"Read the worker's log for the reason, then run {redrive('dead-letters', dead_letters)}."
    for subject, url, words in (
        ("quarantine", quarantine, ("record", "that a rule could not use", correct)),
        ("tasks", there.task_queue(sources.queue), ("task", "for the worker", "")),
        ("dead letters", dead_letters, ("task", "that failed ten times", look)),
    ):

        def depth(url: str, subject: str = subject, words: tuple[str, str, str] = words) -> Finding:
            return health.queue(subject, there.queue(url).depth(), *words)

        finding = _ask(subject, url, depth)
        yield _quarantine(there, finding, live, url if peek else None) if subject == "quarantine" else finding

    def count_discarded(name: str) -> Finding:
        number = len(list(islice(there.bucket(name).pending(DISCARDED), _MOST_OBJECTS)))
        todo = f"Read the function's log for the reason, then run {redrive('bucket', name)}."
        return health.queue("discarded", number, "batch", "that Lambda discarded", todo, most=number == _MOST_OBJECTS)

    yield _ask("discarded", there.name(sources.bucket, "DiscardedBucketName"), count_discarded)


_OPTIONS = {
    "lag": "--function NAME",
    "throttling": "--function NAME",
    "quarantine": "--quarantine URL",
    "tasks": "--queue URL",
    "dead letters": "--dead-letters URL",
    "discarded": "--bucket NAME",
}
"""The option that names the resource of a finding."""


def _ask(subject: str, name: str | None, ask: Callable[[str], Finding], optional: bool = False) -> Finding:
    """Return what a service reports of a resource, or that it is not named, or that the service does not answer."""
    from projections.operations.health import LOOK, UNKNOWN, Finding

    if not name:
        return Finding(subject, UNKNOWN, f"not checked: pass --stack NAME or {_OPTIONS[subject]}")
    try:
        return ask(name)
    except StoreError as error:
        return Finding(subject, UNKNOWN if optional else LOOK, f"not known: {error}")


def _quarantine(there: Deployed, finding: Finding, live: Live, url: str | None) -> Finding:
    """Return the finding with the causes of some messages, and how many were dismissed."""
    from projections.operations.dismissal import Quarantined, dismissed_messages

    says = finding.says
    if finding.value and url:
        with suppress(StoreError):
            messages = there.queue(url).receive(_PEEK_SECONDS, wait=0)
            causes = dict.fromkeys(Quarantined.read(message).cause for message in messages)
            says += "".join(f"; {cause}" for cause in [cause for cause in causes if cause][:_MOST_CAUSES])
    if number := len(dismissed_messages(live.store)):
        says += f" ({number:,} dismissed in the last 90 days)"
    return replace(finding, says=says)


def plain_finding(finding: Finding) -> dict[str, Any]:
    """Return the JSON of a finding."""
    document: dict[str, Any] = {
        "subject": finding.subject,
        "level": finding.level,
        "says": finding.says,
        "todo": finding.todo or None,
    }
    if finding.value is not None:
        document["value"] = finding.value
    if finding.examples:
        document["examples"] = [{**example._asdict(), "rule": example.rule or None} for example in finding.examples]
    return document


def _print(findings: Sequence[Finding]) -> None:
    from projections.operations import health

    signs = {health.FINE: ("OK", "green"), health.LOOK: ("WARN", "yellow"), health.ACT: ("ACTION", "red")}
    width = max(len(finding.subject) for finding in findings)
    for finding, following in zip_longest(findings, findings[1:]):
        sign, style = signs.get(finding.level, ("?", "dim"))
        says = markup("[dim]{}[/]", finding.says) if finding.level == health.UNKNOWN else finding.says
        subject = finding.subject.ljust(width)
        print_markup("[{}]{:<8}[/][bold]{}[/]  {}", style, sign, subject, says)
        for each in finding.examples:
            print_markup("{}[dim]{}: {}: {}[/]", f"{'':<{width + 10}}", each.key, each.rule or "all rules", each.reason)
        if finding.todo and (following is None or following.todo != finding.todo):
            print_line(f"{'':<{width + 10}}{finding.todo}")
    levels = Counter(finding.level for finding in findings)
    words = {health.ACT: "ACTION", health.LOOK: "WARN", health.UNKNOWN: "not checked"}
    parts = [f"{levels[level]} {text}" for level, text in words.items() if levels[level]]
    bad = levels[health.ACT] or levels[health.LOOK]
    text = ", ".join(parts if bad else ["Nothing needs attention", *parts])
    print_markup("[{}]{}[/] {}.", *(("red", "✗") if bad else ("green", "✓")), text)
