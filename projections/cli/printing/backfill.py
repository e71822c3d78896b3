"""What a backfill tells: how far it is, and what it did or would do."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from projections.terminal import console, json_text, print_line, print_text

if TYPE_CHECKING:
    from projections.aws.connection import Live
    from projections.operations.backfill.backfill import Backfill, Done
    from projections.operations.backfill.progress import Run
    from projections.operations.backfill.runner import Runner

__all__ = ["Told", "report", "report_dry"]

PHASES = {
    "items": "reading items",
    "entries": "reading the ledger",
    "groups": "creating what rules create",
    "targets": "publishing",
}

WORDS = {
    "items": "items read",
    "entries": "entries written",
    "groups": "groups written",
    "members": "members written",
    "targets": "targets compared",
    "rejected": "rejected",
}

OF_RULES = {
    "created": "created",
    "changed": "changed",
    "written": "written",
    "deleted": "deleted",
    "retired": "freed of what the rule wrote",
    "withheld": "not deleted",
}
"""What is counted by rule, as `<what>|<rule>`."""

_LONGEST = 60
"""Characters shown of a value."""

_EVERY = 5.0
"""Seconds between two lines about the same phase."""


class Told:
    """Says on standard error how far a backfill is: a bar on a terminal, lines elsewhere, JSON lines for programs."""

    def __init__(self, live: Live, *, as_json: bool) -> None:

        self._live = live
        self._json = as_json
        self._read: Counter[tuple[str, str, int]] = Counter()
        self._phase = ""
        self._said = 0.0
        self._bar: Any = None
        self._task: Any = None
        out = console(stderr=True)
        if out.is_terminal and not as_json:
            self._bar = _bar(out)
            self._task = self._bar.add_task("connected", total=None)
        for text in live.warnings:
            self._say(f"warning: {text}", warning=text)

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def begin(self, run: Run, resumed: bool) -> None:
        """A run begins, or goes on."""
        text = f"backfill {run.name} {'goes on' if resumed else 'begins'} with {run.segments} segments"
        self._say(text, run=run.name, phase=run.phase, resumed=resumed)

    def left(self, run: Run) -> None:
        """A run is left to the worker function."""
        self.end()
        text = f"backfill {run.name} is left to the worker function; `projections status` says how far it is"
        print_text(json_text({"run": run.name, "left": True}) if self._json else text)

    def page(self, run: Run, done: Done) -> None:
        """A page is done."""
        segment = done.segment
        self._read[segment.phase, segment.table, segment.number] = segment.counts.get("items", 0)
        read = sum(count for (phase, _, _), count in self._read.items() if phase == segment.phase)
        tables = {table for phase, table, _ in self._read if phase == segment.phase}
        about = sum(self._live.sizes.get(table, 0) for table in tables)
        text, now = PHASES.get(segment.phase, segment.phase), time.monotonic()
        if self._bar is not None:
            if self._phase != segment.phase:
                self._bar.reset(self._task, description=text)
            self._bar.update(self._task, completed=read, total=max(about, read) or None)
        elif self._phase != segment.phase or now - self._said > _EVERY:
            of = f" of about {about:,}" if about >= read else ""
            self._say(f"{text}: {read:,}{of}", phase=segment.phase, read=read, about=about)
            self._said = now
        self._phase = segment.phase

    def reading(self, what: str, items: int) -> None:
        """A page is read to compute what rules would publish."""
        self._phase = ""
        text = "computing what would be published"
        if self._bar is not None:
            self._bar.update(self._task, description=text, advance=items)
        elif time.monotonic() - self._said > _EVERY:
            self._say(text, computing=what)
            self._said = time.monotonic()

    def wait(self, seconds: float) -> None:
        """Nothing is done for so many seconds."""
        text = f"waiting {seconds:.0f} s, until functions that know the old rules have ended"
        if self._bar is not None:
            self._bar.reset(self._task, description=text, total=None)
            self._phase = ""
        else:
            self._say(text, waiting=round(seconds, 1))

    def end(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _say(self, text: str, **fields: Any) -> None:
        if self._json:
            print_line(json.dumps(fields), err=True)
        elif self._bar is None or not self._bar.live.is_started:
            print_line(text, err=True)
        else:
            self._bar.console.print(text)


def _bar(out: Any) -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    return Progress(*columns, console=out, transient=True)


def report(backfill: Backfill, run: Run, runner: Runner, *, as_json: bool) -> int:
    """Says what a run did; the exit code of that."""
    phases = backfill.report(run)
    total: Counter[str] = sum(phases.values(), Counter())
    states = {name: one.state for name, one in backfill.registry.read_or_create().rules.items()}
    withheld = sum(count for name, count in total.items() if name.startswith("withheld|"))
    code = 0 if run.done and not (total["rejected"] or withheld) else 1
    if as_json:
        rejected = [{"rule": one.rule, "key": one.key, "reason": one.reason} for one in runner.rejected]
        print_line(
            json_text(
                {
                    "run": run.name,
                    "phase": run.phase,
                    "began": run.began,
                    "ended": run.ended or None,
                    "rules": states,
                    "phases": {phase: _document(counts) for phase, counts in phases.items()},
                    "failed": runner.failed,
                    "rejected": rejected,
                    "notDeleted": list(runner.withheld),
                }
            )
        )
        return code
    _print(phases)
    _print_states(states)
    _print_rejected(runner)
    for key in runner.withheld:
        print_line(f"not deleted: {key}", err=True)
    if withheld:
        what = "items were not deleted, or not freed of what a rolled back rule may have written"
        print_line(f"{withheld:,} {what}; --allow-delete does that", err=True)
    for key, reason in runner.failed.items():
        print_line(f"failed: {key}: {reason}", err=True)
    if not run.done:
        print_line(f"The backfill is not complete ({run.phase}). The same command goes on where it is.", err=True)
    return code


def report_dry(backfill: Backfill, phases: Mapping[str, Counter[str]], runner: Runner, *, as_json: bool) -> int:
    """Says what a backfill would do; the exit code of that."""
    total: Counter[str] = sum(phases.values(), Counter())
    states = {name: one.state for name, one in backfill.registry.preview().rules.items()}
    code = 1 if runner.failed or total["rejected"] else 0
    if as_json:
        costs = {"writeUnits": total["write units"], "readUnits": total["read units"]}
        document = {
            "dry": True,
            "rules": states,
            "phases": {phase: _document(counts) for phase, counts in phases.items()},
            "publishedAtMost": total["publishable"],
            **costs,
            "failed": runner.failed,
            "rejected": [{"rule": one.rule, "key": one.key, "reason": one.reason} for one in runner.rejected],
            "deletions": list(runner.withheld),
            "keptByHand": _kept(backfill),
        }
        print_text(json_text(document))
        return code
    _print(phases)
    _print_states(states)
    if total["publishable"]:
        print_line(f"{total['publishable']:,} values of filling rules would be published at most, and items created")
    print_line(
        f"about {total['write units']:,} write units and {total['read units']:,} read units; nothing was written"
    )
    _print_kept(backfill)
    for key in runner.withheld:
        print_line(f"would be deleted with --allow-delete: {key}")
    _print_rejected(runner)
    for key, reason in runner.failed.items():
        print_line(f"failed: {key}: {reason}", err=True)
    return code


def _kept(backfill: Backfill) -> dict[str, Any]:
    """The values kept by hand that would change, by rule: how many, and examples."""
    adoption = backfill.adoption
    if adoption is None:
        return {}
    return {
        rule: {"changed": number, "examples": [asdict(one) for one in adoption.examples[rule]]}
        for rule, number in sorted(adoption.changed.items())
    }


def _print_kept(backfill: Backfill) -> None:
    for rule, kept in _kept(backfill).items():
        number = kept["changed"]
        said = "1 value kept by hand would change" if number == 1 else f"{number:,} values kept by hand would change"
        print_line(f"{rule}: {said}")
        for one in kept["examples"]:
            old, new = _shown(one["old"]), _shown(one["new"])
            print_line(f"{'':<8} {one['key']}  {one['attribute']}: {old} → {new}")
        if number > len(kept["examples"]):
            print_line(f"{'':<8} and {number - len(kept['examples']):,} more")


def _shown(value: Any) -> str:
    if value is None:
        return "removed"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _print_rejected(runner: Runner) -> None:
    for one in runner.rejected:
        print_line(f"rejected: {one.key}: {one.rule or 'all rules'}: {one.reason}", err=True)


def _print(phases: Mapping[str, Counter[str]]) -> None:
    for phase, counts in phases.items():
        said = [f"{counts[name]:,} {words}" for name, words in WORDS.items() if counts[name]]
        if said:
            print_line(f"{phase:<8} {', '.join(said)}")
        by_rule = _by_rule(counts)
        width = max(map(len, by_rule), default=0)
        for rule, counted in by_rule.items():
            done = ", ".join(f"{counted[what]:,} {words}" for what, words in OF_RULES.items() if counted.get(what))
            print_line(f"{'':<8} {rule:<{width}}  {done}")


def _print_states(states: Mapping[str, str]) -> None:
    by_state: dict[str, list[str]] = {}
    for name, state in sorted(states.items()):
        by_state.setdefault(state, []).append(name)
    for state, names in sorted(by_state.items()):
        print_line(f"{state:<8} {', '.join(names)}")


def _by_rule(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, count in sorted(counts.items()):
        what, bar, rule = name.partition("|")
        if bar and count:
            found.setdefault(rule, {})[what] = count
    return found


def _document(counts: Mapping[str, int]) -> dict[str, Any]:
    plain = {_camel(name): count for name, count in sorted(counts.items()) if "|" not in name}
    return {**plain, "rules": _by_rule(counts)}


def _camel(name: str) -> str:
    first, *rest = name.split()
    return first + "".join(map(str.capitalize, rest))
