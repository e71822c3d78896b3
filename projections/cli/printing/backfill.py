"""What a backfill prints: its progress, and what it did or would do."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from projections.cli.printing.progress import Bar
from projections.inspect.explain.words import json_words
from projections.terminal import count, json_text, print_line, print_text

if TYPE_CHECKING:
    from projections.aws.tables import Live
    from projections.operations.backfill.backfill import Backfill, Done
    from projections.operations.backfill.progress import Run
    from projections.operations.backfill.runner import Runner

__all__ = ["Reporter", "report", "report_dry"]

PHASES = {
    "items": "reading items",
    "entries": "reading the ledger",
    "groups": "creating derived items",
    "targets": "publishing",
}

WORDS = {
    "items": ("item read", "items read"),
    "entries": ("entry written", "entries written"),
    "groups": ("group written", "groups written"),
    "members": ("member written", "members written"),
    "targets": ("target compared", "targets compared"),
    "rejected": ("rejected", "rejected"),
    "dismissed": ("rejected before and dismissed", "rejected before and dismissed"),
}
"""What is counted in a phase: of one, and of several."""

OF_RULES = {
    "created": "{:,} created",
    "changed": "{:,} changed",
    "written": "{:,} written",
    "deleted": "{:,} deleted",
    "retired": "the rule's attributes removed from {items}",
    "withheld": "{:,} not deleted",
}
"""What is counted by rule, as `<what>|<rule>`."""

_EVERY = 5.0
"""Seconds between two lines about the same phase."""


class Reporter:
    """Shows the progress of a backfill on standard error: a bar on a terminal, otherwise lines, or JSON lines."""

    def __init__(self, live: Live, warnings: Sequence[str], *, as_json: bool) -> None:
        self._live = live
        self._json = as_json
        self._read: Counter[tuple[str, str, int]] = Counter()
        self._phase = ""
        self._printed = 0.0
        for text in warnings:
            self._print(f"warning: {text}", warning=text)
        self.bar = Bar("connected", quiet=as_json, counts=True)

    def begin(self, run: Run, resumed: bool) -> None:
        """A run begins or continues."""
        text = f"backfill {run.name} {'continues' if resumed else 'begins'} with {count(run.segments, 'segment')}"
        self._print(text, run=run.name, phase=run.phase, resumed=resumed)

    def left(self, run: Run) -> None:
        """Print that the worker function continues a run."""
        self.bar.end()
        text = f"backfill {run.name} continues in the worker function; `projections status` shows its progress"
        print_text(json_text({"run": run.name, "left": True}) if self._json else text)

    def page(self, run: Run, done: Done) -> None:
        """A page is done."""
        segment = done.segment
        self._read[segment.phase, segment.table, segment.number] = segment.counts.get("items", 0)
        read = sum(number for (phase, _, _), number in self._read.items() if phase == segment.phase)
        tables = {table for phase, table, _ in self._read if phase == segment.phase}
        about = sum(self._live.sizes.get(table, 0) for table in tables)
        text, now = PHASES.get(segment.phase, segment.phase), time.monotonic()
        if self.bar.shown:
            if self._phase != segment.phase:
                self.bar.restart(text)
            self.bar.update(text, read, max(about, read) or None)
        elif self._phase != segment.phase or now - self._printed > _EVERY:
            of = f" of about {about:,}" if about >= read else ""
            self._print(f"{text}: {read:,}{of}", phase=segment.phase, read=read, about=about)
            self._printed = now
        self._phase = segment.phase

    def reading(self, what: str, items: int) -> None:
        """A page is read to compute what rules would publish."""
        self._phase = ""
        text = "computing what would be published"
        if self.bar.shown:
            self.bar.update(text)
        elif time.monotonic() - self._printed > _EVERY:
            self._print(text, computing=what)
            self._printed = time.monotonic()

    def wait(self, seconds: float) -> None:
        """The run waits for so many seconds."""
        text = f"waiting {seconds:.0f} s until functions with the old rules have ended"
        if self.bar.shown:
            self.bar.restart(text)
            self._phase = ""
        else:
            self._print(text, waiting=round(seconds, 1))

    def _print(self, text: str, **fields: Any) -> None:
        if self._json:
            print_line(json.dumps(fields), err=True)
        elif self._phase and self.bar.shown:
            self.bar.print(text)
        else:
            print_line(text, err=True)


def report(backfill: Backfill, run: Run, runner: Runner, *, as_json: bool) -> int:
    """Print what a run did. Return the exit code."""
    phases = backfill.report(run)
    total: Counter[str] = sum(phases.values(), Counter())
    withheld = sum(number for name, number in total.items() if name.startswith("withheld|"))
    states = {name: one.state for name, one in backfill.registry.read_or_create().rules.items()}
    code = 0 if run.done and not (total["rejected"] or withheld) else 1
    if as_json:
        document = {
            "run": run.name,
            "phase": run.phase,
            "began": run.began,
            "ended": run.ended or None,
            **_common(states, phases, runner),
            "notDeleted": list(runner.withheld),
        }
        print_text(json_text(document))
        return code
    _print(states, phases)
    _print_rejected(runner)
    if runner.rejected:
        print_line(
            "Rejected values do not stop the backfill. If you correct an item, the stream function processes it. If you "
            "correct the rules, deploy them and run the backfill again.",
            err=True,
        )
    for key in runner.withheld:
        print_line(f"not deleted: {key}", err=True)
    if withheld:
        what = "not deleted, or still with attributes that a rolled back rule may have written"
        print_line(f"{count(withheld, 'item')} {what}. To delete these, add --allow-delete", err=True)
    _print_failed(runner)
    if not run.done:
        print_line(f"The backfill is not complete ({run.phase}). Run the same command to continue.", err=True)
    return code


def report_dry(backfill: Backfill, phases: Mapping[str, Counter[str]], runner: Runner, *, as_json: bool) -> int:
    """Print what a backfill would do. Return the exit code."""
    total: Counter[str] = sum(phases.values(), Counter())
    states = {name: one.state for name, one in backfill.registry.preview().rules.items()}
    code = 1 if runner.failed or total["rejected"] else 0
    if as_json:
        document = {
            "dry": True,
            **_common(states, phases, runner),
            "publishedAtMost": total["publishable"],
            "writeUnits": total["write units"],
            "readUnits": total["read units"],
            "deletions": list(runner.withheld),
            "applicationValues": _application_values(backfill),
        }
        print_text(json_text(document))
        return code
    _print(states, phases, dry=True)
    if total["publishable"]:
        values = count(total["publishable"], "value")
        print_line(f"at most {values} of filling rules would be published, and items created")
    writes, reads = count(total["write units"], "write unit"), count(total["read units"], "read unit")
    print_line(f"about {writes} and {reads}; nothing was written")
    _print_application_values(backfill)
    for key in runner.withheld:
        print_line(f"would be deleted with --allow-delete: {key}")
    _print_rejected(runner)
    _print_failed(runner)
    return code


def _common(states: Mapping[str, str], phases: Mapping[str, Counter[str]], runner: Runner) -> dict[str, Any]:
    """Return what the documents of both reports have."""
    return {
        "rules": states,
        "phases": {phase: _document(counts) for phase, counts in phases.items()},
        "failed": runner.failed,
        **{
            name: [{"rule": one.rule, "key": one.key, "reason": one.reason} for one in found]
            for name, found in (("rejected", runner.rejected), ("dismissed", runner.dismissed))
        },
    }


def _application_values(backfill: Backfill) -> dict[str, Any]:
    """Return the values of the application that would change, by rule: how many, and examples."""
    adoption = backfill.adoption
    if adoption is None:
        return {}
    return {
        rule: {"changed": number, "examples": [asdict(one) for one in adoption.examples[rule]]}
        for rule, number in sorted(adoption.changed.items())
    }


def _print_application_values(backfill: Backfill) -> None:
    for rule, found in _application_values(backfill).items():
        print_line(f"{rule}: {count(found['changed'], 'value')} of the application would change")
        for one in found["examples"]:
            old, new = (json_words(one[side], absent="removed") for side in ("old", "new"))
            print_line(f"{'':<8} {one['key']}  {one['attribute']}: {old} → {new}")
        if found["changed"] > len(found["examples"]):
            print_line(f"{'':<8} and {found['changed'] - len(found['examples']):,} more")


def _print_rejected(runner: Runner) -> None:
    for word, found in (("rejected", runner.rejected), ("dismissed", runner.dismissed)):
        for one in found:
            print_line(f"{word}: {one.key}: {one.rule or 'all rules'}: {one.reason}", err=True)


def _print_failed(runner: Runner) -> None:
    for key, reason in runner.failed.items():
        print_line(f"failed: {key}: {reason}", err=True)


def _print(states: Mapping[str, str], phases: Mapping[str, Counter[str]], *, dry: bool = False) -> None:
    for phase, counts in phases.items():
        if done := [count(counts[name], *words) for name, words in WORDS.items() if counts[name]]:
            text = ", ".join(done)
            print_line(f"{phase:<8} {text.replace(' written', ' to write') if dry else text}")
        by_rule = _by_rule(counts)
        width = max(map(len, by_rule), default=0)
        for rule, counted in by_rule.items():
            done = [
                words.format(counted[what], items=count(counted[what], "item"))
                for what, words in OF_RULES.items()
                if what in counted
            ]
            print_line(f"{'':<8} {rule:<{width}}  {', '.join(done)}")
    for state in sorted(set(states.values())):
        print_line(f"{state:<8} {', '.join(sorted(name for name, one in states.items() if one == state))}")


def _by_rule(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, number in sorted(counts.items()):
        what, bar, rule = name.partition("|")
        if bar and number:
            found.setdefault(rule, {})[what] = number
    return found


def _document(counts: Mapping[str, int]) -> dict[str, Any]:
    plain = {_camel(name): number for name, number in sorted(counts.items()) if "|" not in name}
    return {**plain, "rules": _by_rule(counts)}


def _camel(name: str) -> str:
    first, *rest = name.split()
    return first + "".join(map(str.capitalize, rest))
