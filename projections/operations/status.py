"""Status: what is in force, how far things are, what waits, and what somebody should do about it.

Facts are gathered by whoever has the connections; here they are judged.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from projections.engine.ledger_items import LEDGER
from projections.engine.rebuild import Note
from projections.engine.registry import FILLING, LIVE, RETIRING, SHADOW, WITHOUT, Standing
from projections.engine.store import Store
from projections.language.program import Program
from projections.language.rules import Rule
from projections.operations.backfill.progress import MOST_SECONDS, Run

__all__ = [
    "ACT",
    "FINE",
    "LOOK",
    "UNKNOWN",
    "Finding",
    "Noted",
    "audit",
    "backfill",
    "lag",
    "noted",
    "queue",
    "rebuilds",
    "rules",
]

FINE, LOOK, ACT, UNKNOWN = "fine", "look", "act", "unknown"
"""Nothing to do; somebody should look, or wait, and come back; something is wrong or lost until somebody acts; not told."""

_LATE, _VERY_LATE = 60.0, 300.0
"""Seconds. The second is what the template's alarm takes."""

_OLD_AUDIT = 2 * 24 * 3600.0
"""Seconds after which an audit that is scheduled should have run again."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing: how it is, and what to do. `value` is the number it is judged by: seconds, messages, drift."""

    subject: str
    level: str
    says: str
    todo: str = ""
    value: float | None = None


# Rules


def rules(program: Program, standing: Standing | None) -> Iterator[Finding]:
    """The registry, beside the rules of a file."""
    if standing is None:
        yield Finding(
            "rules",
            LOOK,
            "the ledger knows of no rules: no function has worked with it yet",
            "Deploy, and write an item; or name the right table with --ledger.",
        )
        return
    states = Counter(_state(program, standing, name) for name in standing.rules)
    said = ", ".join(f"{number} {state}" for state, number in sorted(states.items())) or "no rules"
    yield Finding("rules", FINE, f"epoch {standing.epoch}: {said}")
    if standing.outdated(program):
        yield Finding(
            "rule file",
            LOOK,
            "these rules are older than those in force",
            "Name the file that is deployed with --rules. `projections backfill` with these would put them in force again.",
        )
    elif standing.program != program.fingerprint:
        yield from _not_in_force(program, standing)
    for name, known in sorted(standing.rules.items()):
        rule = program.rules.get(name)
        plain, _, former = name.partition("@")
        if known.state == FILLING:
            yield Finding(f"rule {name}", LOOK, f"filling: {_filling(standing, rule)}", "Run `projections backfill`.")
        elif known.state == RETIRING:
            says = f"{'what another version of it wrote' if former else 'retired: what it wrote'} is not removed yet"
            if known.fingerprint == WITHOUT:
                says = "what functions missed that worked without it is not caught up yet"
            todo = "Run `projections backfill`; with --allow-delete if it says that deletions were withheld."
            yield Finding(f"rule {plain}", LOOK, says, todo)
    for name, tried in sorted(standing.tried(program).items()):
        worked = "without it" if tried.fingerprint == WITHOUT else "with another version of it"
        yield Finding(
            f"rule {name}",
            ACT,
            f"functions have worked {worked}, which is not in force",
            "Run `projections backfill` with the rules that are to stay: it undoes what others did.",
        )


def _filling(standing: Standing, rule: Rule | None) -> str:
    if rule is not None and rule.mode == SHADOW:
        return "its books lack what was there before it"
    if rule is not None and standing.publishes(rule):
        return "what was there before it is not projected yet"
    return "it publishes nothing until its backfill is complete"


def _not_in_force(program: Program, standing: Standing) -> Iterator[Finding]:
    known = standing.in_force
    kinds = {
        "new": [name for name in program.rules if name not in known],
        "changed": [n for n, rule in program.rules.items() if n in known and known[n].fingerprint != rule.fingerprint],
        "retired": [name for name in program.retired if name in known],
    }
    said = "; ".join(f"{kind}: {', '.join(sorted(names))}" for kind, names in kinds.items() if names)
    yield Finding(
        "rule file",
        LOOK,
        f"not in force ({said or 'other definitions'})",
        "Deploy these rules, then run `projections backfill`. Or name the file that is deployed with --rules.",
    )
    vanished = [name for name in known if name not in program.rules and name not in program.retired]
    if vanished:
        yield Finding(
            "rule file",
            ACT,
            f"says nothing of {', '.join(sorted(vanished))}, in force",
            f"Write what becomes of what it wrote: `retired: {{{sorted(vanished)[0]}: keep}}`, or `remove`.",
        )


def _state(program: Program, standing: Standing, name: str) -> str:
    known, rule = standing.rules[name], program.rules.get(name)
    return SHADOW if rule is not None and rule.mode == SHADOW and known.state == LIVE else known.state


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
    prefix, after = f"backfill|{run.name}|", None
    while True:
        page = store.query(LEDGER, [{"S": "R"}], prefix=prefix, after=after)
        for item in page.items:
            held = {name: int(value["N"]) for name, value in item["counts"]["M"].items()}
            counts.update(held)
            if item["sk"]["S"].removeprefix(prefix).split("|")[0] == run.phase:
                done += item["done"]["BOOL"]
                items += held.get("items", 0)
        after = page.after
        if after is None:
            return Noted(done, counts, items)


def backfill(run: Run | None, notes: Noted | None, standing: Standing | None, now: datetime) -> Finding:
    """The newest backfill. `notes` are its own."""
    if run is None or notes is None:
        return Finding("backfill", FINE, "none so far; needed only for what was there before the rules")
    which = f"of {', '.join(run.rules)}, " if run.rules else ""
    if run.done:
        left = _left(notes.counts)
        ended = f"{which}complete since {_ago(run.ended, now)}"
        if not left:
            return Finding("backfill", FINE, ended)
        todo = "Run it again: it says which; with --allow-delete it deletes what it withheld."
        return Finding("backfill", LOOK, f"{ended}; {left}", todo)
    if standing is not None and run.program != standing.program:
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


def queue(subject: str, number: int, kind: str, what: str, todo: str = "", *, most: bool = False) -> Finding:
    """Letters of a kind that wait, and need somebody if there is something `todo`. `most`: there may be more."""
    if not number:
        return Finding(subject, FINE, "empty", value=0)
    kinds = kind if number == 1 else f"{kind}es" if kind.endswith("ch") else f"{kind}s"
    said = f"{number:,}{' or more' if most else ''} {kinds} {what}"
    return Finding(subject, ACT if todo else FINE, said, todo, number)


def audit(item: Mapping[str, Any] | None, now: datetime) -> Finding:
    """The last scheduled audit, as the ledger has it."""
    if item is None:
        return Finding("audit", FINE, "none so far; `projections verify` looks at everything")
    told = json.loads(item["audit"]["S"])
    items, drift, at = int(told["items"]), int(told["drift"]), str(told["time"])
    said = f"{items:,} items {_ago(at, now)}: {drift:,} not as they should be"
    whole = told.get("whole")
    said += f"; the last whole round ended {_ago(str(whole), now)}" if whole else ""
    segment, segments = told.get("segment", 0), told.get("segments", 1)
    said += f"; {segment / segments:.0%} of the present round is done" if 0 < segment < segments else ""
    if drift:
        return Finding(
            "audit", ACT, said, "Run `projections verify` to see which and why, with --repair to correct them."
        )
    if (now - datetime.fromisoformat(at)).total_seconds() > _OLD_AUDIT:
        return Finding("audit", LOOK, said, "It should run on its schedule: look at the audit function's log.", drift)
    return Finding("audit", FINE, said, value=drift)


def _ago(time: str, now: datetime) -> str:
    return f"{_duration(max(0.0, (now - datetime.fromisoformat(time)).total_seconds()))} ago"


def _duration(seconds: float) -> str:
    for size, word in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {word}"
    return f"{seconds:.0f} s"
