"""Status: what is in force, how far things are, what waits, and what somebody should do about it.

Facts are gathered by whoever has the connections; here they are judged.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.rebuild import Note, notes
from projections.engine.registry import (
    FILLING,
    LIVE,
    PROVISIONAL,
    RETIRING,
    SHADOW,
    WITHOUT,
    Registry,
    RegistrySnapshot,
    RuleState,
)
from projections.engine.store import Store, all_items
from projections.language.program import Program
from projections.language.rules import Rule
from projections.operations.audit import AUDIT
from projections.operations.backfill.progress import MOST_SECONDS, Progress, Run

__all__ = [
    "ACT",
    "FINE",
    "LOOK",
    "UNKNOWN",
    "Finding",
    "LedgerStatus",
    "Noted",
    "audit",
    "backfill",
    "lag",
    "ledger",
    "noted",
    "queue",
    "rebuilds",
    "rules",
    "states",
    "stream",
    "throttling",
]

FINE, LOOK, ACT, UNKNOWN = "fine", "look", "act", "unknown"
"""Nothing to do; somebody should look, or wait, and come back; something is wrong or lost until somebody acts; not told."""

_LATE, _VERY_LATE = 60.0, 300.0
"""Seconds. The second is what the template's alarm takes."""

_LATE_AUDIT = 900.0
"""Seconds after two intervals of the audit's schedule, by which it should have run."""

_DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing: how it is, and what to do. `value` is the number it is judged by: seconds, messages, drift."""

    subject: str
    level: str
    says: str
    todo: str = ""
    value: float | None = None


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """What the ledger records: the registry's epoch (None if no function has worked with it), the state of each rule, and
    findings about rules, backfills, rebuilds and the audit.
    """

    epoch: int | None
    rules: Mapping[str, str]
    findings: tuple[Finding, ...]


def ledger(
    program: Program,
    store: Store,
    now: datetime,
    *,
    deployed: bool = False,
    schedule: str | None = None,
    since: datetime | None = None,
) -> LedgerStatus:
    """Read and judge what the ledger records. `deployed` is as in `rules`, `schedule` and `since` are as in `audit`."""
    registry = Registry(program, store)
    snapshot = registry.read()
    found = states(program, snapshot, registry.definition) if snapshot is not None else {}
    run = Progress(store).run()
    findings = [
        *rules(program, snapshot, found, deployed=deployed),
        backfill(run, noted(store, run) if run is not None else None, snapshot, now),
        *rebuilds(list(notes(store)), now),
        audit(store.get(AUDIT), now, schedule=schedule, since=since),
    ]
    return LedgerStatus(snapshot.epoch if snapshot is not None else None, found, tuple(findings))


# Rules


def states(
    program: Program, snapshot: RegistrySnapshot, definition: Callable[[str], Mapping[str, Any] | None]
) -> dict[str, RuleState]:
    """Return the state of each rule in the registry, `shadow` for those that publish nothing.

    The mode of a rule whose active version is not that of `program` is in its `definition`, as the registry keeps it.
    """
    found = {name: known.state for name, known in snapshot.rules.items()}
    for name, known in snapshot.rules.items():
        if known.state != LIVE:
            continue
        rule = program.rules.get(name)
        if rule is not None and rule.fingerprint == known.fingerprint:
            mode: str | None = rule.mode
        else:
            mode = ((definition(name) or {}).get("rule") or {}).get("mode")
        if mode == SHADOW:
            found[name] = SHADOW
    return found


def rules(
    program: Program, snapshot: RegistrySnapshot | None, states: Mapping[str, str], *, deployed: bool = False
) -> Iterator[Finding]:
    """Compare the registry with rules: those that functions run (`deployed`), or those of a file."""
    if snapshot is None:
        yield Finding(
            "rules",
            LOOK,
            "the ledger knows of no rules: no function has worked with it yet",
            "Deploy, and write an item; or name the right table with --ledger.",
        )
        return
    numbers = Counter(state for state in states.values() if state != PROVISIONAL)  # those are told below
    said = ", ".join(f"{number} {state}" for state, number in sorted(numbers.items())) or "no rules"
    yield Finding("rules", FINE, f"epoch {snapshot.epoch}: {said}")
    if snapshot.outdated(program) and deployed:
        yield Finding(
            "deployed rules",
            ACT,
            "are older than the active rules: the functions refuse every batch",
            "Deploy the newer rules, or run `projections backfill` to activate the deployed ones again.",
        )
    elif snapshot.outdated(program):
        yield Finding(
            "rule file",
            LOOK,
            "these rules are older than those in force",
            "Name the file that is deployed with --rules. `projections backfill` with these would put them in force again.",
        )
    elif snapshot.program != program.fingerprint:
        yield from _not_in_force(program, snapshot, deployed)
    for name, known in sorted(snapshot.rules.items()):
        rule = program.rules.get(name)
        plain, _, former = name.partition("@")
        if known.state == FILLING:
            yield Finding(f"rule {name}", LOOK, f"filling: {_filling(snapshot, rule)}", "Run `projections backfill`.")
        elif known.state == RETIRING:
            says = f"{'what another version of it wrote' if former else 'retired: what it wrote'} is not removed yet"
            if known.fingerprint == WITHOUT:
                says = "what functions missed that worked without it is not caught up yet"
            todo = "Run `projections backfill`; with --allow-delete if it says that deletions were withheld."
            yield Finding(f"rule {plain}", LOOK, says, todo)
    for name, tried in sorted(snapshot.provisional(program).items()):
        worked = "without it" if tried.fingerprint == WITHOUT else "with another version of it"
        yield Finding(
            f"rule {name}",
            ACT,
            f"functions have worked {worked}, which is not in force",
            "Run `projections backfill` with the rules that are to stay: it undoes what others did.",
        )


def _filling(snapshot: RegistrySnapshot, rule: Rule | None) -> str:
    if rule is not None and rule.mode == SHADOW:
        return "its books lack what was there before it"
    if rule is not None and snapshot.publishes(rule):
        return "what was there before it is not projected yet"
    return "it publishes nothing until its backfill is complete"


def _not_in_force(program: Program, snapshot: RegistrySnapshot, deployed: bool) -> Iterator[Finding]:
    subject = "deployed rules" if deployed else "rule file"
    known = snapshot.active
    kinds = {
        "new": [name for name in program.rules if name not in known],
        "changed": [n for n, rule in program.rules.items() if n in known and known[n].fingerprint != rule.fingerprint],
        "retired": [name for name in program.retired if name in known],
    }
    said = "; ".join(f"{kind}: {', '.join(sorted(names))}" for kind, names in kinds.items() if names)
    if deployed:
        says = f"are not active ({said or 'other definitions'})"
        todo = "Run `projections backfill` to activate them."
    else:
        says = f"not in force ({said or 'other definitions'})"
        todo = "Deploy these rules, then run `projections backfill`. Or name the file that is deployed with --rules."
    yield Finding(subject, LOOK, says, todo)
    vanished = [name for name in known if name not in program.rules and name not in program.retired]
    if vanished:
        yield Finding(
            subject,
            ACT,
            f"{'do not name' if deployed else 'says nothing of'} {', '.join(sorted(vanished))}, "
            f"{'which is active' if deployed else 'in force'}",
            f"Write what becomes of what it wrote: `retired: {{{sorted(vanished)[0]}: keep}}`, or `remove`.",
        )


# Backfills


@dataclass(frozen=True, slots=True)
class Noted:
    """What is noted of a run's present phase (segments done) and of all its phases (counts)."""

    done: int
    counts: Mapping[str, int]
    items: int
    """Read in the present phase."""


def noted(store: Store, run: Run) -> Noted:
    """Reads the notes of a run. Raises Transient and Misconfigured."""
    counts: Counter[str] = Counter()
    done = items = 0
    prefix = f"backfill|{run.name}|"
    for item in all_items(partial(store.query, LEDGER, [{"S": "R"}], prefix=prefix)):
        held = {name: int(value["N"]) for name, value in item["counts"]["M"].items()}
        counts.update(held)
        if item["sk"]["S"].removeprefix(prefix).split("|")[0] == run.phase:
            done += item["done"]["BOOL"]
            items += held.get("items", 0)
    return Noted(done, counts, items)


def backfill(run: Run | None, notes: Noted | None, snapshot: RegistrySnapshot | None, now: datetime) -> Finding:
    """The newest backfill. `notes` are its own."""
    if run is None or notes is None:
        return Finding("backfill", FINE, "none so far; needed only for what was there before the rules")
    which = f"of {', '.join(run.rules)}, " if run.rules else ""
    if run.done:
        left = _left(notes.counts)
        ended = f"{which}completed {_ago(run.ended, now)}"
        if not left:
            return Finding("backfill", FINE, ended)
        todo = "Run it again: it says which; with --allow-delete it deletes what it withheld."
        return Finding("backfill", LOOK, f"{ended}; {left}", todo)
    if snapshot is not None and run.program != snapshot.program:
        return Finding("backfill", FINE, f"{which}begun {_ago(run.began, now)}, was given up for other rules")
    age = (now - datetime.fromisoformat(run.began)).total_seconds()
    if age > MOST_SECONDS:
        says = f"{which}begun {_ago(run.began, now)}, phase {run.phase}, not complete"
        todo = "Run `projections backfill`: it begins a new one, because this one is older than 24 hours."
        return Finding("backfill", LOOK, says, todo, age)
    if run.ready > now.timestamp():
        said = f"waits {run.ready - now.timestamp():.0f} s until functions that know less have ended"
    else:
        said = f"phase {run.phase}: {notes.items:,} items read, {notes.done} segments done"
    todo = (
        "Nothing, if it runs: the worker's task queue, or a terminal somewhere. Else the same command goes on with it."
    )
    return Finding("backfill", LOOK, f"{which}begun {_ago(run.began, now)}, {said}", todo)


def rebuilds(found: Sequence[Note], now: datetime) -> Iterator[Finding]:
    """Rebuilds of groups that were begun and have not ended. Nothing if there are none."""
    if not found:
        return
    oldest = max(0.0, now.timestamp() - min(note.at for note in found))
    rule, target = min(found, key=lambda note: note.at).target
    groups = "1 group" if len(found) == 1 else f"{len(found):,} groups"
    yield Finding(
        "rebuilds",
        LOOK if oldest < _VERY_LATE else ACT,
        f"the rebuild of {groups} has not ended, of {target} (rule {rule}) for one; begun {_duration(oldest)} ago. "
        "These values are not updated until it ends",
        "Wait, if `projections verify --repair` or a backfill runs. Else run `projections verify --repair`, or a backfill.",
        oldest,
    )


def _left(counts: Mapping[str, int]) -> str:
    words = {"failed": "failed", "rejected": "rejected", "withheld": "deletions withheld"}
    total: Counter[str] = Counter()
    for name, number in counts.items():
        total[name.partition("|")[0]] += number
    return ", ".join(f"{total[name]:,} {word}" for name, word in words.items() if total[name])


# What waits


def lag(seconds: float | None) -> Finding:
    """The iterator age."""
    if seconds is None:
        return Finding("lag", FINE, "no records in the last 15 minutes")
    said = f"records are {_duration(seconds)} old when they are projected"
    if seconds < _LATE:
        return Finding("lag", FINE, said, value=seconds)
    todo = "Look at the function's log for throttling or a batch that keeps failing; raise ParallelizationFactor."
    return Finding("lag", ACT if seconds > _VERY_LATE else LOOK, said, todo, seconds)


_TODO = {
    "KeyRangeThroughput": "One partition takes too many requests: `projections check` names hot groups and partitions.",
    "ProvisionedThroughput": "Raise the provisioned capacity.",
    "MaxOnDemandThroughput": "Raise the maximum on-demand throughput.",
    "AccountLimit": "Raise the account's quota for a table.",
}


def throttling(events: Mapping[str, int]) -> Finding:
    """Return what the tables throttled, by the reasons that DynamoDB gives, the most frequent first."""
    if not events:
        return Finding("throttling", FINE, "no throttled requests in the last 15 minutes", value=0)
    said = ", ".join(f"{number:,} × {reason}" for reason, number in events.items())
    todo = next((text for limit, text in _TODO.items() if limit in next(iter(events))), "")
    return Finding("throttling", LOOK, f"in the last 15 minutes: {said}", todo, sum(events.values()))


def queue(subject: str, number: int, kind: str, what: str, todo: str = "", *, most: bool = False) -> Finding:
    """Letters of a kind that wait, and need somebody if there is something `todo`. `most`: there may be more."""
    if not number:
        return Finding(subject, FINE, "empty", value=0)
    kinds = kind if number == 1 else f"{kind}es" if kind.endswith("ch") else f"{kind}s"
    said = f"{number:,}{' or more' if most else ''} {kinds} {what}"
    return Finding(subject, ACT if todo else FINE, said, todo, number)


def audit(
    item: Mapping[str, Any] | None, now: datetime, *, schedule: str | None = None, since: datetime | None = None
) -> Finding:
    """Judge when the audit last ran, as the ledger has it, and what it found.

    `schedule` is the parameter AuditSchedule, `since` when the stack was created; both are None without a stack.
    """
    if schedule == "off" and item is None:
        return Finding("audit", FINE, "off (AuditSchedule); `projections verify` checks everything")
    late = 2 * _interval(schedule) + _LATE_AUDIT
    todo = "Look at the audit function's log, and whether its schedule is enabled."
    if item is None:
        if since is None:
            says = "has never run; with --stack, status says whether it should have"
            return Finding("audit", UNKNOWN, says)
        says = "has not run yet" + (f" ({schedule})" if schedule else "")
        if (now - since).total_seconds() <= late:
            return Finding("audit", FINE, says)
        ago = _duration((now - since).total_seconds())
        return Finding("audit", LOOK, f"{says}; the stack was created {ago} ago", todo)
    told = json.loads(item["audit"]["S"])
    items, drift, at = int(told["items"]), int(told["drift"]), str(told["time"])
    said = f"{items:,} items {_ago(at, now)}: {drift:,} not as they should be"
    whole = told.get("whole")
    said += f"; the last whole round ended {_ago(str(whole), now)}" if whole else ""
    segment, segments = told.get("segment", 0), told.get("segments", 1)
    said += f"; {segment / segments:.0%} of the present round is done" if 0 < segment < segments else ""
    if skipped := told.get("skipped"):
        said += f"; ran {_ago(skipped['time'], now)} and checked nothing, because {skipped['reason']}"
    if drift:
        return Finding(
            "audit", ACT, said, "Run `projections verify` to see which and why, with --repair to correct them."
        )
    if schedule != "off" and (now - datetime.fromisoformat(at)).total_seconds() > late:
        return Finding("audit", LOOK, said, todo, drift)
    return Finding("audit", FINE, said, value=drift)


def _interval(schedule: str | None) -> float:
    """Return about how many seconds are between two runs at most; a day if that is not known."""
    if schedule and (rate := re.fullmatch(r"rate\((\d+) (minute|hour|day)s?\)", schedule)):
        return int(rate[1]) * {"minute": 60.0, "hour": 3600.0, "day": _DAY}[rate[2]]
    fields = schedule.removeprefix("cron(").split() if schedule and schedule.startswith("cron(") else []
    if len(fields) < 5:
        return _DAY
    day, month, weekday = fields[2:5]
    for field, days in ((month, 366), (day, 31), (weekday, 7)):
        if field not in ("*", "?"):
            return days * _DAY
    return _DAY


# The stream


def stream(
    subject: str,
    table: Mapping[str, Any],
    mappings: Sequence[Mapping[str, Any]] | None,
    counts: Mapping[str, float] | None,
    stack: str | None = None,
) -> Finding:
    """Judge whether what is written to a table reaches the function.

    `table` is as DescribeTable returns it, `mappings` are those of the function (ListEventSourceMappings), None if there is
    nobody to ask, `counts` what CloudWatch counted of the mapping in the last 15 minutes: `writes` to the table, events
    `polled`, `invoked` and `failed`; a count that it does not have is missing.
    """
    name, latest = table["TableName"], table.get("LatestStreamArn")
    specification = table.get("StreamSpecification") or {}
    backfill = f"run `projections backfill{f' --stack {stack}' if stack else ''} --restart`"
    enable = f"aws dynamodb update-table --table-name {name} --stream-specification StreamEnabled="
    if not specification.get("StreamEnabled"):
        says = f"table {name} has no stream: no change of an item reaches a projection"
        todo = (
            f"Run `{enable}true,StreamViewType=NEW_AND_OLD_IMAGES`, deploy with the new stream's ARN, then {backfill}."
        )
        return Finding(subject, ACT, says, todo)
    if specification.get("StreamViewType") != "NEW_AND_OLD_IMAGES":
        says = f"the stream of table {name} has {specification.get('StreamViewType')}, not NEW_AND_OLD_IMAGES"
        todo = (
            f"Run `{enable}false`, then `{enable}true,StreamViewType=NEW_AND_OLD_IMAGES`, deploy with the new stream's ARN, "
            f"then {backfill}."
        )
        return Finding(subject, ACT, says, todo)
    if mappings is None:
        return Finding(subject, UNKNOWN, "whether a function reads it was not checked: neither --function nor --stack")
    prefix = str(latest).partition("/stream/")[0] + "/stream/"
    ours = [one for one in mappings if str(one.get("EventSourceArn")).startswith(prefix)]
    if not ours:
        says = f"no event source mapping of the function reads table {name}"
        return Finding(subject, ACT, says, f"Deploy the stack again, then {backfill}.")
    current = [one for one in ours if one["EventSourceArn"] == latest]
    if not current:
        says = f"the function reads {ours[0]['EventSourceArn']}, but the stream of table {name} is {latest}"
        todo = f"Deploy with ExistingStreamArn={latest}, then {backfill}."
        return Finding(subject, ACT, says, todo)
    return _mapping(subject, name, current[0], counts or {})


def _mapping(subject: str, table: str, mapping: Mapping[str, Any], counts: Mapping[str, float]) -> Finding:
    """Judge a mapping that reads the right stream."""
    state, result = str(mapping.get("State")), str(mapping.get("LastProcessingResult") or "")
    log = "Look at the function's log for the reason. Records wait in the stream for up to 24 hours."
    reason = f" ({mapping['StateTransitionReason']})" if mapping.get("StateTransitionReason") else ""
    said = f"{state}, last result: {result or 'none'}"
    if state in ("Disabled", "Disabling"):
        todo = f"Run `aws lambda update-event-source-mapping --uuid {mapping['UUID']} --enabled`."
        says = f"the event source mapping is {state}{reason}: no change of table {table} is projected"
        return Finding(subject, ACT, f"{says}; last result: {result or 'none'}", todo)
    if state == "Deleting":
        return Finding(subject, ACT, f"the event source mapping is {state}{reason}", "Deploy the stack again.")
    if result and not result.startswith(("OK", "No records processed")):
        return Finding(subject, ACT, said, log)
    invoked, failed = counts.get("invoked", 0), counts.get("failed", 0)
    if invoked and failed >= invoked:
        says = f"the function refused all {invoked:,.0f} records that it was given in the last 15 minutes"
        return Finding(subject, ACT, f"{said}; {says}", log, failed)
    if state != "Enabled":
        return Finding(subject, LOOK, f"{said}{reason}", "Wait until the event source mapping is Enabled.")
    if counts.get("writes") and not counts.get("polled"):
        says = f"table {table} had writes in the last 15 minutes, and Lambda read no record of it"
        todo = "If these writes changed items, deploy the stack again, or switch the event source mapping off and on."
        return Finding(subject, LOOK, f"{said}; {says}", todo)
    return Finding(subject, FINE, said)


def _ago(time: str, now: datetime) -> str:
    return f"{_duration(max(0.0, (now - datetime.fromisoformat(time)).total_seconds()))} ago"


def _duration(seconds: float) -> str:
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} s"
