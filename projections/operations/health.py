"""Status: the state of rules, backfills, the audit, queues and the stream, and what an operator should do.

The functions here judge facts that their caller has gathered. `stack` is the deployed stack, if one is named: the commands
in advice include it, so that they can be copied.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from projections.engine.ledger_items import LEDGER
from projections.engine.registry import Registry, RegistrySnapshot, Version
from projections.engine.rivals import QUIET, Rival, rivals
from projections.engine.store import Store, all_items
from projections.language.program import Program
from projections.operations.audit import AUDIT
from projections.operations.backfill.backfill_runs import cleanable_versions, spare_versions
from projections.operations.backfill.progress import MOST_SECONDS, STANDBY_SECONDS, Example, Progress, Run, examples_in
from projections.operations.dry import MOST_EXAMPLES

RIVAL = "other ledger"
"""The subject of findings about rivals."""

MAINTAINER = "other stack"
"""The subject of findings about other functions that maintain the same table."""

FINE, LOOK, ACT, UNKNOWN = "ok", "warn", "action", "unknown"
"""Levels: nothing to do; look at it, or wait and look again; act, because something fails until you do; not known."""

_LATE, _VERY_LATE = 60.0, 300.0
"""Seconds of lag. The second is the threshold of the template's alarm."""

_LATE_AUDIT = 900.0
"""Seconds after two intervals of the audit's schedule, by which it should have run."""

_DAY = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Finding:
    """The state of one subject, and what to do. `value` is the number that was judged: seconds, messages, drift."""

    subject: str
    level: str
    says: str
    todo: str = ""
    value: float | None = None
    examples: tuple[Example, ...] = ()
    """Some of the items that the finding is about."""


@dataclass(frozen=True, slots=True)
class LedgerStatus:
    """What the ledger records: the registry's epoch (None if no function has worked with it), the state of each version, and
    findings about rules, backfills and the audit.
    """

    epoch: int | None
    versions: Mapping[str, str]
    findings: tuple[Finding, ...]
    rolled_back: tuple[str, ...] = ()
    """The published versions that have replaced newer ones."""


def ledger(
    program: Program,
    store: Store,
    now: datetime,
    *,
    stack: str | None = None,
    schedule: str | None = None,
    since: datetime | None = None,
) -> LedgerStatus:
    """Read and judge what the ledger records. `schedule` and `since` are as in `audit`."""
    registry = Registry(program, store, filled=False)
    snapshot = registry.read()
    run = Progress(store).run()
    findings = [
        *rules(program, snapshot, now, stack=stack),
        backfill(run, read_notes(store, run) if run is not None else None, now, stack=stack),
        *others(snapshot.ledger if snapshot is not None else "", list(rivals(store)), now, stack=stack),
        audit(store.get(AUDIT), now, stack=stack, schedule=schedule, since=since),
    ]
    states = {name: version.state for name, version in snapshot.versions.items()} if snapshot is not None else {}
    back = rolled_back(snapshot) if snapshot is not None else ()
    return LedgerStatus(snapshot.epoch if snapshot is not None else None, states, tuple(findings), back)


def command(text: str, stack: str | None) -> str:
    """Return a command to run, as Markdown code."""
    name, _, options = text.partition(" ")
    return f"`projections {' '.join(filter(None, (name, stack and f'--stack {stack}', options)))}`"


# Rules


def rules(
    program: Program, snapshot: RegistrySnapshot | None, now: datetime, *, stack: str | None = None
) -> Iterator[Finding]:
    """Compare the versions in the registry, which functions work with, with the rules of a file."""
    apply = command("apply RULES", stack)
    if snapshot is None:
        todo = "Deploy, and write an item; or name the right table with --ledger."
        yield Finding("rules", LOOK, "the ledger has no rules: no function has used it yet", todo)
        return
    numbers = Counter(version.state for version in snapshot.versions.values())
    counted = ", ".join(f"{number} {state}" for state, number in sorted(numbers.items())) or "no rules"
    yield Finding("rules", FINE, f"epoch {snapshot.epoch}: {counted}")
    yield from _of_file(program, snapshot, apply)
    cleaned = cleanable_versions(snapshot, now.timestamp(), spare_versions(snapshot, now.timestamp()))
    back = rolled_back(snapshot)
    for version in snapshot.versions.values():
        for says, todo, level in (
            _of_version(version, version.name in back, now, apply, stack),
            _of_gap(version, apply, stack),
            _of_lanes(version, now, apply if version.name in cleaned else ""),
        ):
            if says:
                says = f"{version.state}: {says}{_about(program, version.rule)}"
                yield Finding(f"rule {version.name}", level, says, todo)


def rolled_back(snapshot: RegistrySnapshot) -> tuple[str, ...]:
    """Return the published versions that have replaced newer ones."""
    standby = [(version.rule, version.number) for version in snapshot.maintained if version.state == "standby"]
    return tuple(v.name for v in snapshot.active.values() if any(v.rule == r and v.number < n for r, n in standby))


def _of_version(version: Version, is_back: bool, now: datetime, apply: str, stack: str | None) -> tuple[str, str, str]:
    """Return what an operator should know of a version, what to do, and the level; empty texts if there is nothing."""
    since = f", since {duration(max(0.0, now.timestamp() - version.changed))}" if version.changed else ""
    match version.state:
        case "filling":
            says = f"it publishes nothing until all items have been read{since}"
            return says, f"Run {apply}: it fills and publishes it.", LOOK
        case "ready" if version.held:
            return f"complete, and held: it publishes nothing{since}", "", FINE
        case "standby" if version.held:
            return f"held: it publishes nothing, and the values that it has published stay{since}", "", FINE
        case "ready":
            return f"complete, and not published{since}", f"Run {command(f'promote {version.rule}', stack)}.", LOOK
        case "active" if version.unfinished:
            says = f"its promotion is not complete: some items may lack its values, or show another version{since}"
            todo = command(f"rollback {version.rule}", stack) if is_back else apply
            return says, f"Run {todo}: it goes on; with --allow-delete if it reports withheld deletions.", LOOK
        case "standby":
            says = f"replaced, and maintained{since}: {command(f'rollback {version.rule}', stack)} publishes it again"
            kept = now.timestamp() - version.changed <= STANDBY_SECONDS
            return says + ("" if kept else ". The end of the next backfill removes it"), "", FINE
        case "leaving":
            todo = f"Run {apply}; with --allow-delete if it reports withheld deletions."
            return f"values that it has written are not removed yet{since}", todo, LOOK
        case "stale":
            says = f"a function could not read it, because its package is older{since}. Its values stay as they are"
            return says, f"Deploy the current package to all functions, then run {apply}.", ACT
        case _:
            return "", "", FINE


def _of_gap(version: Version, apply: str, stack: str | None) -> tuple[str, str, str]:
    """Return what an operator should know of a gap, as `_of_version` does."""
    if not version.gap or not version.maintained:
        return "", "", FINE
    todo = f"run {command('verify --repair', stack)}, which counts the rule again."
    if version.state != "active":
        todo = f"run {apply}: it fills a new version. This one is never published."
    return f"it may have missed changes: {version.gap}", f"Correct the cause, then {todo}", ACT


def _of_lanes(version: Version, now: datetime, clean: str) -> tuple[str, str, str]:
    """Return how a version with `ledger: lanes` is counted, as `_of_version` does. `clean` removes its part of entries."""
    if version.lanes is None or not version.maintained:
        return "", "", FINE
    left = version.lanes - now.timestamp()
    if version.lanes == 0:
        return "counted with entries, until it is filled", "", FINE
    if left > 0:
        return f"counted with entries; the shards of the stream are handed over to lanes in {duration(left)}", "", FINE
    says = "counted by lanes" + ("; entries have a part of it still" if version.lanes != 1 else "")
    return (says, f"Run {clean}: it removes that, 1 write unit each.", LOOK) if clean else (says, "", FINE)


def _of_file(program: Program, snapshot: RegistrySnapshot, apply: str) -> Iterator[Finding]:
    """Compare the rules of a file with those that are published, filling or ready."""
    live = [version for version in snapshot.maintained if version.state != "standby" or version.held]
    known = {v.rule: {other.fingerprint for other in live if other.rule == v.rule} for v in live}
    kinds = {
        "new": [n for n, rule in program.rules.items() if n not in known and (rule.recorded or not rule.held)],
        "changed": [n for n, rule in program.rules.items() if n in known and rule.fingerprint not in known[n]],
        "missing": [name for name in known if name not in program.rules],
    }
    differs = "; ".join(f"{kind}: {', '.join(sorted(names))}" for kind, names in kinds.items() if names)
    if differs:
        todo = f"Run {apply} to apply this file. Or name the applied one with --rules."
        yield Finding("rule file", LOOK, f"it is not what the functions work with ({differs})", todo)


def _about(program: Program, rule: str) -> str:
    """Return the owner and the description of a rule, for the end of a sentence about it; empty without them."""
    about = program.about(rule)
    return f" ({about})" if about else ""


# Backfills


@dataclass(frozen=True, slots=True)
class Noted:
    """The recorded progress of a run: segments `done` and `items` read in the current phase, `counts` of all phases."""

    done: int
    counts: Mapping[str, int]
    items: int
    rejected: tuple[Example, ...] = ()
    """The first rejected items of all phases."""


def read_notes(store: Store, run: Run) -> Noted:
    """Read the recorded progress of a run. Raises Transient and Misconfigured."""
    counts: Counter[str] = Counter()
    done = items = 0
    rejected: dict[Example, None] = {}
    prefix = f"backfill|{run.name}|"
    for item in all_items(partial(store.query, LEDGER, [{"S": "R"}], prefix=prefix)):
        held = {name: int(value["N"]) for name, value in item["counts"]["M"].items()}
        counts.update(held)
        rejected |= dict.fromkeys(examples_in(item))
        if item["sk"]["S"].removeprefix(prefix).split("|")[0] == run.phase:
            done += item["done"]["BOOL"]
            items += held.get("items", 0)
    return Noted(done, counts, items, tuple(rejected)[:MOST_EXAMPLES])


def backfill(run: Run | None, notes: Noted | None, now: datetime, *, stack: str | None = None) -> Finding:
    """Judge the newest backfill by its notes."""
    if run is None or notes is None:
        return Finding("backfill", FINE, "none so far; needed only for items that existed before the rules")
    which = f"of {', '.join(run.versions)}, " if run.versions else ""
    if run.done:
        problems = _problems_left(notes.counts)
        ended = f"{which}completed {_ago(run.ended, now)}"
        if not problems:
            return Finding("backfill", FINE, ended)
        again = command("backfill", stack)
        if notes.rejected:
            if notes.counts.get("rejected", 0) > len(notes.rejected):
                problems += f", of which the first {len(notes.rejected)} are listed here"
            todo = f"Correct these items or the rules, then run {again} again"
        else:
            todo = f"Run {again} again to list them"
        also = "; --allow-delete makes the withheld deletions" if "withheld" in problems else ""
        todo += f"{also}. This warning remains until a backfill finds none."
        return Finding("backfill", LOOK, f"{ended}; {problems}", todo, examples=notes.rejected)
    age = (now - datetime.fromisoformat(run.began)).total_seconds()
    if age > MOST_SECONDS:
        says = f"{which}started {_ago(run.began, now)}, phase {run.phase}, not complete"
        todo = f"Run {command('backfill', stack)}: it starts a new one, because this one is older than 24 hours."
        return Finding("backfill", LOOK, says, todo, age)
    progress = f"phase {run.phase}: {notes.items:,} items read, {notes.done} segments done"
    todo = "Wait if it runs, in the worker or in a terminal. Otherwise run the same command again: it continues."
    return Finding("backfill", LOOK, f"{which}started {_ago(run.began, now)}, {progress}", todo)


def others(own: str, rivals: Sequence[Rival], now: datetime, *, stack: str | None = None) -> Iterator[Finding]:
    """Yield a finding for each other ledger that replaced guards of ours within the last 7 days."""
    for rival in rivals:
        seen, gone = max(0.0, now.timestamp() - rival.seen), rival.is_quiet(now.timestamp())
        does = f"guards stay until none is seen for {duration(QUIET)}" if rival.left == 0 else "guards are corrected"
        verb = "replaced" if gone else "replaces"
        says = f"ledger {rival.ledger} {verb} guards of this ledger ({own}), last {duration(seen)} ago"
        correct = f"run {command('backfill --restart', stack)}"
        if gone:
            yield Finding(RIVAL, LOOK, says, f"If that stack is gone, {correct} to correct its values.", seen)
        else:
            todo = (
                "Another stack, or `projections dev`, maintains this table. Delete or stop one of them, or give it a "
                f"table of its own. If this stack stays, then {correct}."
            )
            yield Finding(RIVAL, ACT, f"{says}; its {does}", todo, seen)


def maintainer(function: str, theirs: str, table: str, *, stack: str | None = None) -> Finding:
    """Return a finding about a function of another stack, `theirs` if known, with a ledger of its own."""
    who, its = (f"stack {theirs}", "its ") if theirs else ("another stack", "")
    says = f"{who} maintains this table too: {its}function {function} reads the stream, with ledger table {table}"
    todo = (
        "Delete one of the two stacks (its tables are retained), or deploy it with a table of its own. If this stack stays, "
        f"then run {command('backfill --restart', stack)}."
    )
    return Finding(MAINTAINER, ACT, says, todo)


def _problems_left(counts: Mapping[str, int]) -> str:
    words = {"failed": "failed", "rejected": "rejected", "withheld": "deletions withheld"}
    total: Counter[str] = Counter()
    for name, number in counts.items():
        total[name.partition("|")[0]] += number
    return ", ".join(f"{total[name]:,} {word}" for name, word in words.items() if total[name])


# What waits


def lag(seconds: float | None) -> Finding:
    """Judge the iterator age."""
    if seconds is None:
        return Finding("lag", FINE, "CloudWatch reports no records in the last 15 minutes")
    says = f"records are {duration(seconds)} old when they are processed"
    if seconds < _LATE:
        return Finding("lag", FINE, says, value=seconds)
    todo = "Check the function's log for throttling or a failing batch; raise ParallelizationFactor or MemorySize."
    return Finding("lag", ACT if seconds > _VERY_LATE else LOOK, says, todo, seconds)


def freshness(ages: Mapping[str, tuple[float, float]], within: Mapping[str, float] = MappingProxyType({})) -> Finding:
    """Report p50 and p99 of the age of changes by rule, the oldest first. `within` has the limits of rules in seconds."""
    oldest = sorted(ages.items(), key=lambda pair: (-pair[1][1], pair[0]))
    text = ", ".join(f"{rule} {p50:.1f} s / {p99:.1f} s" for rule, (p50, p99) in oldest)
    worst = oldest[0][1][1]
    late = [f"{rule} ({within[rule]:g} s)" for rule, (_, p99) in oldest if p99 > within.get(rule, p99)]
    if late:
        todo = f"p99 exceeds `within` of {', '.join(late)}. Check `lag` and the log of the stream function."
        return Finding("freshness", LOOK, f"age of changes when the rule had read them, p50 / p99: {text}", todo, worst)
    return Finding("freshness", FINE, f"age of changes when the rule had read them, p50 / p99: {text}", value=worst)


class Overwrite(NamedTuple):
    """Values of a rule that another process overwrote, as the stream function logged it when it corrected them.

    `reason` is that of the heal, `attributes` are those that differed, and `key` is the encoded key of one item.
    """

    rule: str
    reason: str
    attributes: str
    times: int
    key: str


EXTERNAL = "external writes"
"""The subject of findings about writes of other processes to values that rules own."""

LOGGED = timedelta(hours=1)
"""The time before the last correction for which the log is read."""

_WHOLE = (
    "Find the code that writes whole items from what it has read. It should update only the attributes that it changes."
)
_DONE = {
    "guard removed": "another process replaced an item by one without the guard of the rule",
    "guard invalid": "another process wrote an invalid guard of the rule",
    "guard not advanced": "another process wrote back an item that it had read before",
    "put back": "another process wrote back an item that it had read before",
}
"""What another process did, by the reason of the heal; otherwise it wrote the attributes."""


def external_writes(
    corrections: Sequence[tuple[datetime, float]], overwrites: Sequence[Overwrite], now: datetime, unknown: str = ""
) -> Iterator[Finding]:
    """Judge what rules corrected in the last 24 hours: one finding in all, and one for each rule with overwritten values.

    `corrections` are the numbers of corrections of periods of 5 minutes, by their begin. `overwrites` are those of the
    time `LOGGED` before the end of the last one, `unknown` says why they could not be read.
    """
    if not corrections:
        yield Finding(EXTERNAL, FINE, "no value was corrected in the last 24 hours", value=0)
        return
    (first, _), (last, _), total = corrections[0], corrections[-1], sum(number for _, number in corrections)
    times = f"the first at {first:%H:%M}, the last at {last:%H:%M} UTC"
    says = f"{total:,.0f} correction{'s' if total != 1 else ''} of values in the last 24 hours, {times}"
    if unknown:
        todo = "Allow lambda:GetFunction on the stream function, and logs:FilterLogEvents on its log group."
        yield Finding(EXTERNAL, UNKNOWN, f"{says}; the rules are not known: {unknown}", todo, total)
        return
    by_rule: dict[str, list[Overwrite]] = {}
    for each in overwrites:
        if each.reason != "another ledger":  # `others` reports it
            by_rule.setdefault(each.rule, []).append(each)
    says += "" if by_rule else "; the log has no line that another process overwrote a value"
    yield Finding(EXTERNAL, FINE, says, value=total)
    end = last + timedelta(minutes=5)
    for rule, parts in by_rule.items():
        acts = "; ".join(
            f"{_DONE.get(part.reason, f'another process wrote {part.attributes}')} "
            f"{'once' if part.times == 1 else f'{part.times:,} times'}, for example on {part.key}"
            for part in parts[:3]
        )
        written = ", ".join(part.attributes for part in parts if part.reason not in _DONE)
        todo = f"Find the code that writes {written}, and remove these writes: only the rule sets these values."
        level, number = LOOK if now - end <= LOGGED else FINE, sum(part.times for part in parts)
        says = f"in the hour before {end:%H:%M} UTC, {acts}; the rule corrected the values"
        yield Finding(f"rule {rule}", level, says, todo if written else _WHOLE, number)


def no_entity(records: float, ignored: float, examples: Sequence[str] = (), *, stack: str | None = None) -> Finding:
    """Judge how many records of the last 24 hours were of no entity. `examples` are such items, each with the reason."""
    subject = "no entity"
    if not ignored:
        says = f"{records:,.0f} records in the last 24 hours, each of an entity"
        says = says if records else "CloudWatch reports no records in the last 24 hours"
        return Finding(subject, FINE, says, value=0)
    says = f"{ignored:,.0f} of {records:,.0f} records in the last 24 hours were of no entity, so no rule used them"
    says += "".join(f"; {'for example ' if not number else ''}{text}" for number, text in enumerate(examples))
    why = command("explain --item KEY", stack)
    todo = f"If a rule should use such items, correct its entity: {why} shows why an item does not match."
    return Finding(subject, LOOK if ignored >= records else FINE, says, todo, ignored)


_TODO = {
    "KeyRangeThroughput": "One partition gets too many requests: `projections check` names hot groups and partitions.",
    "ProvisionedThroughput": "Raise the provisioned capacity.",
    "MaxOnDemandThroughput": "Raise the maximum on-demand throughput.",
    "AccountLimit": "Raise the account's quota for a table.",
}


def throttling(events: Mapping[str, int]) -> Finding:
    """Judge throttled requests by reason, the most frequent first."""
    if not events:
        return Finding("throttling", FINE, "no throttled requests in the last 15 minutes", value=0)
    reasons = ", ".join(f"{number:,} × {reason}" for reason, number in events.items())
    todo = next((text for limit, text in _TODO.items() if limit in next(iter(events))), "")
    return Finding("throttling", LOOK, f"in the last 15 minutes: {reasons}", todo, sum(events.values()))


def queue(subject: str, number: int, kind: str, what: str, todo: str = "", *, most: bool = False) -> Finding:
    """Judge messages that wait in a queue: an operator has to act if there is `todo`. With `most`, there may be more."""
    if not number:
        return Finding(subject, FINE, "empty", value=0)
    kinds = kind if number == 1 else f"{kind}es" if kind.endswith("ch") else f"{kind}s"
    says = f"{number:,}{' or more' if most else ''} {kinds} {what}"
    return Finding(subject, ACT if todo else FINE, says, todo, number)


def audit(
    item: Mapping[str, Any] | None,
    now: datetime,
    *,
    stack: str | None = None,
    schedule: str | None = None,
    since: datetime | None = None,
) -> Finding:
    """Judge the audit by its record in the ledger.

    `schedule` is the parameter AuditSchedule, `since` when the stack was created; both are None without a stack.
    """
    if schedule == "off" and item is None:
        return Finding("audit", FINE, f"off (AuditSchedule); {command('verify', stack)} checks everything")
    late = 2 * _interval(schedule) + _LATE_AUDIT
    todo = "Check the audit function's log, and that its schedule is enabled."
    if item is None:
        if since is None:
            return Finding("audit", UNKNOWN, "has never run; with --stack, status checks whether it should have")
        says = "has not run yet" + (f" ({schedule})" if schedule else "")
        if (now - since).total_seconds() <= late:
            return Finding("audit", FINE, says)
        ago = duration((now - since).total_seconds())
        return Finding("audit", LOOK, f"{says}; the stack was created {ago} ago", todo)
    last = json.loads(item["audit"]["S"])
    items, drift, at = int(last["items"]), int(last["drift"]), str(last["time"])
    says = f"verified {items:,} items {_ago(at, now)}: {f'{drift:,} with drift' if drift else 'no drift'}"
    if whole := last.get("whole"):
        says += f"; the last complete round ended {_ago(str(whole), now)}"
    segment, segments = last.get("segment", 0), last.get("segments", 1)
    says += f"; {segment / segments:.0%} of the current round is done" if 0 < segment < segments else ""
    if skipped := last.get("skipped"):
        says += f"; ran {_ago(skipped['time'], now)} and checked nothing: {skipped['reason']}"
    if drift:
        verify = command("verify", stack)
        return Finding("audit", ACT, says, f"Run {verify} to list the differences, with --repair to correct them.")
    if schedule != "off" and (now - datetime.fromisoformat(at)).total_seconds() > late:
        return Finding("audit", LOOK, says, todo, drift)
    return Finding("audit", FINE, says, value=drift)


def _interval(schedule: str | None) -> float:
    """Return the maximum seconds between two runs, roughly; a day if it is not known."""
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
    """Judge whether the changes of a table reach the function.

    `table` is as DescribeTable returns it, `mappings` are those of the function (ListEventSourceMappings), None if the
    function is not known. `counts` are CloudWatch's for the mapping in the last 15 minutes: `writes` to the table, events
    `polled`, `invoked` and `failed`, as far as CloudWatch has them.
    """
    name, latest = table["TableName"], table.get("LatestStreamArn")
    specification = table.get("StreamSpecification") or {}
    backfill = f"run {command('backfill --restart', stack)}"
    enable = f"aws dynamodb update-table --table-name {name} --stream-specification StreamEnabled="
    if not specification.get("StreamEnabled"):
        says = f"table {name} has no stream, so no rule processes changes of its items"
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
        return Finding(subject, UNKNOWN, "not checked: pass --stack NAME or --function NAME")
    prefix = str(latest).partition("/stream/")[0] + "/stream/"
    own = [mapping for mapping in mappings if str(mapping.get("EventSourceArn")).startswith(prefix)]
    if not own:
        says = f"no event source mapping of the function reads table {name}"
        return Finding(subject, ACT, says, f"Deploy the stack again, then {backfill}.")
    current = [mapping for mapping in own if mapping["EventSourceArn"] == latest]
    if not current:
        says = f"the function reads {own[0]['EventSourceArn']}, but the stream of table {name} is {latest}"
        todo = f"Deploy with ExistingStreamArn={latest}, then {backfill}."
        return Finding(subject, ACT, says, todo)
    return _mapping(subject, name, current[0], counts or {})


def _mapping(subject: str, table: str, mapping: Mapping[str, Any], counts: Mapping[str, float]) -> Finding:
    """Judge a mapping that reads the current stream."""
    state, result = str(mapping.get("State")), str(mapping.get("LastProcessingResult") or "")
    log = "Check the function's log for the reason. Records wait in the stream for up to 24 hours."
    reason = f" ({mapping['StateTransitionReason']})" if mapping.get("StateTransitionReason") else ""
    text = f"{state}, last result: {result or 'none'}"
    if state in ("Disabled", "Disabling"):
        todo = f"Run `aws lambda update-event-source-mapping --uuid {mapping['UUID']} --enabled`."
        says = f"the event source mapping is {state}{reason}, so no rule processes changes of table {table}"
        return Finding(subject, ACT, f"{says}; last result: {result or 'none'}", todo)
    if state == "Deleting":
        return Finding(subject, ACT, f"the event source mapping is {state}{reason}", "Deploy the stack again.")
    if result and not result.startswith(("OK", "No records processed")):
        return Finding(subject, ACT, text, log)
    invoked, failed = counts.get("invoked", 0), counts.get("failed", 0)
    if invoked and failed >= invoked:
        says = f"the function failed with all {invoked:,.0f} records of the last 15 minutes"
        return Finding(subject, ACT, f"{text}; {says}", log, failed)
    if state != "Enabled":
        return Finding(subject, LOOK, f"{text}{reason}", "Wait until the event source mapping is Enabled.")
    if counts.get("writes") and not counts.get("polled"):
        says = f"table {table} had writes in the last 15 minutes, and Lambda read no records"
        todo = "If these writes changed items, deploy the stack again, or disable and enable the event source mapping."
        return Finding(subject, LOOK, f"{text}; {says}", todo)
    return Finding(subject, FINE, text)


def alarms(every: Sequence[Mapping[str, Any]]) -> Finding:
    """Judge the alarms of a stack, in the form of DescribeAlarms: those without a receiver, and those that fire."""

    def names_of(some_alarms: Sequence[Mapping[str, Any]]) -> str:
        """Return the names in the template: `shop-ErrorsAlarm-1ABC` is `ErrorsAlarm`."""
        return ", ".join(sorted(alarm["AlarmName"].split("-")[-2] for alarm in some_alarms))

    if not every:
        return Finding("alarms", UNKNOWN, "no alarms with names of this stack were found")
    silent = [alarm for alarm in every if not alarm.get("AlarmActions") or alarm.get("ActionsEnabled") is False]
    firing = [alarm for alarm in every if alarm.get("StateValue") == "ALARM"]
    fires = f"; in ALARM: {names_of(firing)}" if firing else ""
    if len(silent) == len(every) and not firing:  # as the template's parameters have it: no cause to fail a pipeline
        return Finding("alarms", FINE, "all alarms notify nobody: deploy with AlarmTopicArn, the ARN of an SNS topic")
    if silent:
        what = "all" if len(silent) == len(every) else f"{len(silent)} of {len(every)}"
        names = "" if len(silent) == len(every) else f": {names_of(silent)}"
        todo = (
            "Deploy with AlarmTopicArn, the ARN of an SNS topic with a receiver, and enable the actions of the alarms."
        )
        return Finding("alarms", LOOK, f"{what} alarms notify nobody{names}{fires}", todo, len(silent))
    if firing:
        todo = "The page Operations has a section for each."
        return Finding("alarms", LOOK, f"{len(every)} alarms, each with a receiver{fires}", todo, len(firing))
    return Finding("alarms", FINE, f"{len(every)} alarms, each with a receiver")


def _ago(time: str, now: datetime) -> str:
    return f"{duration(max(0.0, (now - datetime.fromisoformat(time)).total_seconds()))} ago"


def duration(seconds: float) -> str:
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} s"
