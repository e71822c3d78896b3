"""`projections backfill`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from projections.cli.options import Tables, as_json, select_option, selected_rules, stack_options
from projections.cli.stack import find_deployed
from projections.errors import UsageError
from projections.inspect.explain.words import json_words
from projections.terminal import Bar, count, json_text, print_line, print_text

if TYPE_CHECKING:
    from projections.aws.live_tables import Live
    from projections.operations.backfill.backfill_runs import Backfill, Done
    from projections.operations.backfill.progress import Run
    from projections.operations.backfill.runner import Runner


STOPPED = 130
_ENVIRONMENT = "$TASK_QUEUE_URL"


@click.command("backfill")
@stack_options
@as_json
@select_option
@click.option(
    "--segments", type=click.IntRange(1, 200), default=4, show_default=True, help="Segments to scan in parallel."
)
@click.option(
    "--max-writes",
    type=click.IntRange(1),
    metavar="N",
    help="Maximum writes per second. [default: unlimited]",
)
@click.option(
    "--wait",
    type=click.FloatRange(0, 900),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Timeout of the functions. The backfill waits for it, so that functions with the old rules have ended.",
)
@click.option(
    "--allow-delete",
    is_flag=True,
    help="Delete copies and derived items that no longer have a source item, and attributes that rules may have "
    "written before you rolled them back.",
)
@click.option("--restart", is_flag=True, help="Start again instead of continuing where the last run stopped.")
@click.option(
    "--new-secret",
    is_flag=True,
    help="Replace the secret that signs guards, and sign all guards again. The former secret is valid until the end.",
)
@click.option(
    "--dry-run", is_flag=True, help="Write nothing; print what would be written, and an estimate of its cost."
)
@click.option(
    "--queue",
    is_flag=False,
    flag_value=_ENVIRONMENT,
    metavar="[URL]",
    help="Run the backfill in the worker function, through its task queue. [without URL: from --stack, or $TASK_QUEUE_URL]",
)
def command(
    options: Tables,
    as_json: bool,
    select: tuple[str, ...],
    segments: int,
    max_writes: int | None,
    wait: float,
    allow_delete: bool,
    restart: bool,
    new_secret: bool,
    dry_run: bool,
    queue: str | None,
) -> int:
    """Apply the rules to existing items, and activate new or changed rules.

    Run it after rules are added, changed or retired, and if the stream was disabled for longer than 24 hours. The
    application may write meanwhile. Rules become active when all items have been read; until then, no partial values are
    published. If the command is interrupted, run it again: it continues where it stopped. It deletes no item of your tables
    without --allow-delete.

    Exits with 1 if anything failed, was rejected, or was not deleted.

    \b
    Examples:
      projections backfill --stack shop --dry-run
      projections backfill --stack shop --queue
    """
    from projections.operations.backfill.runner import Runner, backfill_with_threads

    if new_secret and dry_run:
        raise UsageError("--new-secret cannot be combined with --dry-run")
    if queue is not None and (dry_run or max_writes):
        raise UsageError(
            "--queue cannot be combined with --dry-run or --max-writes: the worker function has a rate of its own"
        )
    there = find_deployed(options)
    queue_url = there.task_queue(None) if queue == _ENVIRONMENT else queue
    if queue is not None and not queue_url:
        raise UsageError(
            "no task queue: pass --queue URL or --stack, or set TASK_QUEUE_URL. `sam deploy` prints the URL"
        )
    live = there.connect(there.document(writes=not dry_run), threads=4 * segments)
    only = selected_rules(live.program, select)
    backfill = backfill_with_threads(live.program, live.store, segments=segments, rate=max_writes, dry=dry_run)
    for text in there.warnings(live, refuse=not dry_run):
        print_line(f"warning: {text}", err=True)
    with Bar("connected", quiet=as_json) as bar:
        reporter = Reporter(live, bar)
        runner = Runner(backfill, report=reporter.page, report_wait=reporter.wait, report_read=reporter.reading)
        if dry_run:
            counted = runner.rehearse(backfill.unrecorded_run(only, segments))
            bar.end()
            return report_dry(backfill, counted, runner, as_json=as_json)
        known = backfill.progress.run()
        run = backfill.begin(
            rules=only,
            segments=segments,
            wait=wait,
            allow_delete=allow_delete,
            restart=restart,
            new_secret=new_secret,
        )
        begins = "continues" if known is not None and known.name == run.name else "begins"
        bar.print(f"backfill {run.name} {begins} with {count(run.segments, 'segment')}")
        if queue_url:
            from projections.operations.tasks import Tasks

            tasks = there.queue(queue_url)
            from projections.operations.backfill.runner import send_tasks

            send_tasks(backfill, run, Tasks(lambda: tasks))
            bar.end()
            text = f"backfill {run.name} continues in the worker function; `projections status` shows its progress"
            print_text(json_text({"run": run.name, "left": True}) if as_json else text)
            return 0
        try:
            run = runner.work(run)
        except KeyboardInterrupt:
            bar.end()
            print_line("Stopped. Run the same command to continue.", err=True)
            return STOPPED
        bar.end()
        return report(backfill, run, runner, as_json=as_json)


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


class Reporter:
    """Shows the progress of a backfill."""

    def __init__(self, live: Live, bar: Bar) -> None:
        self._sizes = live.sizes
        self._bar = bar
        self._read: Counter[tuple[str, str, int]] = Counter()

    def page(self, run: Run, done: Done) -> None:
        """A page is done."""
        segment = done.segment
        self._read[segment.phase, segment.table, segment.number] = segment.counts.get("items", 0)
        read = sum(number for (phase, _, _), number in self._read.items() if phase == segment.phase)
        tables = {table for phase, table, _ in self._read if phase == segment.phase}
        about = sum(self._sizes.get(table, 0) for table in tables)
        self._bar.step(PHASES.get(segment.phase, segment.phase), read, about)

    def reading(self, what: str, items: int) -> None:
        """A page is read to compute what rules would publish."""
        self._bar.step("computing what would be published")

    def wait(self, seconds: float) -> None:
        """The run waits for so many seconds."""
        self._bar.step(f"waiting {seconds:.0f} s until functions with the old rules have ended")


def report(backfill: Backfill, run: Run, runner: Runner, *, as_json: bool) -> int:
    """Print what a run did. Return the exit code."""
    phases = backfill.report(run)
    total: Counter[str] = sum(phases.values(), Counter())
    withheld = sum(number for name, number in total.items() if name.startswith("withheld|"))
    states = {name: state.state for name, state in backfill.registry.read_or_create().rules.items()}
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
    states = {name: state.state for name, state in backfill.registry.preview().rules.items()}
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
            name: [{"rule": each.rule, "key": each.key, "reason": each.reason} for each in rejections]
            for name, rejections in (("rejected", runner.rejected), ("dismissed", runner.dismissed))
        },
    }


def _application_values(backfill: Backfill) -> dict[str, Any]:
    """Return the values of the application that would change, by rule: how many, and examples."""
    adoption = backfill.adoption
    if adoption is None:
        return {}
    return {
        rule: {"changed": number, "examples": [asdict(example) for example in adoption.examples[rule]]}
        for rule, number in sorted(adoption.changed.items())
    }


def _print_application_values(backfill: Backfill) -> None:
    for rule, values in _application_values(backfill).items():
        print_line(f"{rule}: {count(values['changed'], 'value')} of the application would change")
        for example in values["examples"]:
            old, new = (json_words(example[side], absent="removed") for side in ("old", "new"))
            print_line(f"{'':<8} {example['key']}  {example['attribute']}: {old} → {new}")
        if values["changed"] > len(values["examples"]):
            print_line(f"{'':<8} and {values['changed'] - len(values['examples']):,} more")


def _print_rejected(runner: Runner) -> None:
    for word, rejections in (("rejected", runner.rejected), ("dismissed", runner.dismissed)):
        for rejection in rejections:
            print_line(f"{word}: {rejection.key}: {rejection.rule or 'all rules'}: {rejection.reason}", err=True)


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
        print_line(f"{state:<8} {', '.join(sorted(name for name in states if states[name] == state))}")


def _by_rule(counts: Mapping[str, int]) -> dict[str, dict[str, int]]:
    by_rule: dict[str, dict[str, int]] = {}
    for name, number in sorted(counts.items()):
        what, bar, rule = name.partition("|")
        if bar and number:
            by_rule.setdefault(rule, {})[what] = number
    return by_rule


def _document(counts: Mapping[str, int]) -> dict[str, Any]:
    plain = {_camel(name): number for name, number in sorted(counts.items()) if "|" not in name}
    return {**plain, "rules": _by_rule(counts)}


def _camel(name: str) -> str:
    first, *rest = name.split()
    return first + "".join(map(str.capitalize, rest))
