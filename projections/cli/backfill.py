"""`projections backfill`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from projections.cli.options import (
    STACK_TABLES,
    F,
    Tables,
    as_argument,
    as_json,
    rules_argument,
    rules_option,
    stack_options,
)
from projections.cli.stack import Deployed, find_deployed
from projections.errors import UsageError
from projections.inspect.explain.words import json_words
from projections.terminal import Bar, count, json_text, print_line, print_text

if TYPE_CHECKING:
    from projections.aws.live_tables import Live
    from projections.engine.registry import RegistrySnapshot
    from projections.operations.backfill.backfill_runs import Backfill, Done
    from projections.operations.backfill.progress import Run
    from projections.operations.backfill.runner import Runner


STOPPED = 130
_ENVIRONMENT = "$TASK_QUEUE_URL"


_TABLE_OPTIONS = tuple(option for option in STACK_TABLES if option is not rules_option)

applied_options = as_argument(Tables, "options", rules_argument, *_TABLE_OPTIONS)
"""The options of tables and --stack, with the rule file as the argument of the command, as the argument `options`."""

registered_options = as_argument(Tables, "options", *_TABLE_OPTIONS)
"""The options of tables and --stack, for commands that use the rules in the registry."""

segments_option = click.option(
    "--segments", type=click.IntRange(1, 200), default=4, show_default=True, help="Segments to scan in parallel."
)

_DELETE = click.option(
    "--allow-delete",
    is_flag=True,
    help="Delete copies and derived items that no longer have a source item, and attributes that rules may have "
    "written before you rolled them back.",
)
_RESTART = click.option("--restart", is_flag=True, help="Start again instead of continuing where the last run stopped.")
_MAX_WRITES = click.option(
    "--max-writes", type=click.IntRange(1), metavar="N", help="Maximum writes per second. [default: unlimited]"
)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is carried out."""

    segments: int
    max_writes: int | None
    allow_delete: bool
    restart: bool


run_options = as_argument(RunOptions, "running", segments_option, _MAX_WRITES, _DELETE, _RESTART)
"""--segments, --max-writes, --allow-delete and --restart, as the argument `running`."""


def queue_option(function: F) -> F:
    """--queue [URL], for `queue_url_of`."""
    return click.option(
        "--queue",
        is_flag=False,
        flag_value=_ENVIRONMENT,
        metavar="[URL]",
        help="Let the worker function do the work, through its task queue. [without URL: from --stack, or $TASK_QUEUE_URL]",
    )(function)


def queue_url_of(there: Deployed, queue: str | None, *, alone: bool) -> str | None:
    """Return the URL of the task queue that --queue names; None without it. `alone` if no option excludes it."""
    if queue is None:
        return None
    if not alone:
        raise UsageError(
            "--queue cannot be combined with --dry-run or --max-writes: the worker function has a rate of its own"
        )
    url = there.task_queue(None) if queue == _ENVIRONMENT else queue
    if not url:
        raise UsageError(
            "no task queue: pass --queue URL or --stack, or set TASK_QUEUE_URL. `sam deploy` prints the URL"
        )
    return url


@click.command("backfill")
@stack_options
@as_json
@run_options
@click.option(
    "--new-secret",
    is_flag=True,
    help="Replace the secret that signs guards, and sign all guards again. The former secret is valid until the end.",
)
@queue_option
def command(options: Tables, as_json: bool, running: RunOptions, new_secret: bool, queue: str | None) -> int:
    """Refresh everything that depends on existing items, under all versions of rules.

    Run it if the stream was disabled for longer than 24 hours, or after you restored a table. The application may write
    meanwhile. If the command is interrupted, run it again: it continues where it stopped. It publishes no version of a rule
    that is not published: `apply` does. Rules with `ledger: lanes` are counted again, and published when that is complete.
    It deletes no item of your tables without --allow-delete.

    Exits with 1 if anything failed, was rejected, not deleted, or not published because of a gap.

    \b
    Examples:
      projections backfill --stack shop
      projections backfill --stack shop --queue
    """
    from projections.operations.backfill.runner import backfill_with_threads

    there = find_deployed(options)
    queue_url = queue_url_of(there, queue, alone=not running.max_writes)
    segments = running.segments
    live = there.connect(there.document(writes=True), threads=4 * segments)
    backfill = backfill_with_threads(live.program, live.store, segments=segments, rate=running.max_writes)
    for text in there.warnings(live, refuse=True):
        print_line(f"warning: {text}", err=True)
    before = backfill.registry.read()
    run = backfill.begin(
        promotes=False,
        segments=segments,
        allow_delete=running.allow_delete,
        restart=running.restart,
        new_secret=new_secret,
    )
    recounted, dropped = _recounts(before, backfill.registry.read_or_create(), run)
    if recounted and not as_json:
        print_line(f"Counted again, because lanes count them and a refresh corrects nothing: {', '.join(recounted)}.")
    if dropped and not as_json:
        print_line(
            f"Dropped, because the published versions are counted again: {', '.join(dropped)}. Apply them again."
        )
    page = {"recounted": recounted, "dropped": dropped}
    return Work(there, live, backfill, as_json=as_json, page=page).work(run, queue_url)


def _recounts(before: RegistrySnapshot | None, after: RegistrySnapshot, run: Run) -> tuple[list[str], list[str]]:
    """Return the versions that a run counts again, and the unpublished ones that they replace."""
    from projections.operations.backfill.backfill_runs import is_recount

    versions = [after.versions[name] for name in run.versions if name in after.versions]
    recounted = [version for version in versions if is_recount(after, version)]
    rules = {version.rule for version in recounted}
    known = before.versions.values() if before is not None else ()
    dropped = [v.name for v in known if v.rule in rules and v.name not in after.versions and v.state != "gone"]
    return [version.name for version in recounted], dropped


class Work:
    """The work of a command on a run: in this process, or in the worker function."""

    def __init__(
        self, there: Deployed, live: Live, backfill: Backfill, *, as_json: bool, page: Mapping[str, Any] | None = None
    ) -> None:
        self._there = there
        self._live = live
        self._backfill = backfill
        self._as_json = as_json
        self._page = page or {}

    def work(
        self,
        run: Run,
        queue_url: str | None = None,
        before_promotion: Callable[[Run], tuple[Run, Mapping[str, Any]]] = lambda run: (run, {}),
    ) -> int:
        """Do the rest of a run. Return the exit code.

        `before_promotion` may change the run when its versions are filled, and returns more for --json.
        """
        from projections.operations.backfill.runner import Runner

        if queue_url is not None:
            return self._send(run, queue_url)
        more: Mapping[str, Any] = {}
        with Bar("connected", quiet=self._as_json) as bar:
            reporter = Reporter(self._live, bar)
            runner = Runner(self._backfill, report=reporter.page)
            bar.print(f"{run.name}: {count(run.segments, 'segment')}, from phase {run.phase}")
            try:
                run = runner.work(run, until="promote")
                if run.phase == "promote":
                    bar.end()
                    run, more = before_promotion(run)
                run = runner.work(run)
            except (KeyboardInterrupt, click.Abort):
                bar.end()
                print_line("Stopped. Run the same command to continue.", err=True)
                return STOPPED
            bar.end()
        return self._report(run, runner, more)

    def _send(self, run: Run, queue_url: str) -> int:
        from projections.operations.backfill.runner import send_tasks
        from projections.operations.tasks import Tasks

        tasks = self._there.queue(queue_url)
        send_tasks(self._backfill, run, Tasks(lambda: tasks))
        publishes = " and publishes what it has filled" if run.promotes and run.versions else ""
        text = f"{run.name} continues in the worker function{publishes}; `projections status` shows its progress"
        print_text(json_text({"run": run.name, "left": True, **self._page}) if self._as_json else text)
        return 0

    def _report(self, run: Run, runner: Runner, more: Mapping[str, Any]) -> int:
        """Print what a run did. Return the exit code."""
        from projections.operations.backfill.backfill_runs import unpublished_gaps

        phases = self._backfill.report(run)
        total: Counter[str] = sum(phases.values(), Counter())
        withheld = sum(number for name, number in total.items() if name.startswith("withheld|"))
        snapshot = self._backfill.registry.read_or_create()
        states, gaps = states_of(snapshot), unpublished_gaps(snapshot)
        code = 0 if run.done and not (total["rejected"] or withheld or gaps) else 1
        if self._as_json:
            document = {
                "run": run.name,
                "phase": run.phase,
                "began": run.began,
                "ended": run.ended or None,
                **_common(states, phases, runner),
                "notDeleted": list(runner.withheld),
                "valuesStayOn": list(runner.left),
                "notPublished": gaps,
                **self._page,
                **more,
            }
            print_text(json_text(document))
            return code
        _print(states, phases)
        _print_rejected(runner)
        if runner.rejected:
            print_line(
                "Rejected values do not stop it. If you correct an item, the stream function processes it. If you correct "
                "the rules, apply them.",
                err=True,
            )
        for key in runner.left:
            why = "of another kind by now, so the values may be the application's. Remove them if they are not"
            print_line(f"values stay on {key}: it is {why}", err=True)
        for key in runner.withheld:
            print_line(f"not deleted: {key}", err=True)
        if withheld:
            what = "not deleted, or still with attributes that a rolled back rule may have written"
            print_line(f"{count(withheld, 'item')} {what}. To delete these, add --allow-delete", err=True)
        for name, reason in gaps.items():
            print_line(f"{name}: {reason}.", err=True)
        _print_failed(runner)
        if not run.done:
            print_line(f"It is not complete ({run.phase}). Run the same command to continue.", err=True)
        return code


def states_of(snapshot: RegistrySnapshot) -> dict[str, str]:
    """Return the state of each version."""
    return {name: version.state for name, version in snapshot.versions.items()}


PHASES = {
    "items": "reading items",
    "entries": "reading the ledger",
    "groups": "reading totals in the ledger",
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
    "left": "its values stay on {items} of another kind",
    "withheld": "{:,} not deleted",
    "kept": "{:,} keep what expired, which the new version does not count",
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


def report_dry(
    backfill: Backfill,
    states: Mapping[str, str],
    phases: Mapping[str, Counter[str]],
    runner: Runner,
    more: Mapping[str, Any],
    *,
    as_json: bool,
) -> int:
    """Print what a run would do, with the states that versions would have before it. Return the exit code."""
    total: Counter[str] = sum(phases.values(), Counter())
    code = 1 if runner.failed or total["rejected"] else 0
    if as_json:
        document = {
            "dry": True,
            **_common(states, phases, runner),
            "publishedOnExisting": total["publishable"],
            "writeUnits": total["write units"],
            "readUnits": total["read units"],
            "deletions": list(runner.withheld),
            "applicationValues": _application_values(backfill),
            **more,
        }
        print_text(json_text(document))
        return code
    _print(states, phases, dry=True)
    if total["publishable"]:
        values = count(total["publishable"], "value")
        print_line(
            f"{values} of filling rules would be published on items that exist, and others on items that are created"
        )
    print_line(f"about {cost_words(total['write units'], total['read units'])}; nothing was written")
    _print_application_values(backfill)
    for key in runner.withheld:
        print_line(f"would be deleted with --allow-delete: {key}")
    _print_rejected(runner)
    _print_failed(runner)
    return code


def cost_words(write_units: int, read_units: int) -> str:
    """Return units with their price."""
    from projections.inspect.cost.estimate import PRICES

    dollars = (write_units * PRICES["write"][0] + read_units * PRICES["read"][0]) / 1e6
    units = f"{count(write_units, 'write unit')} and {count(read_units, 'read unit')}"
    price = f"${dollars:,.2f}" if dollars >= 0.01 else "less than $0.01"
    return f"{units} ({price} in us-east-1, on demand)"


def _common(states: Mapping[str, str], phases: Mapping[str, Counter[str]], runner: Runner) -> dict[str, Any]:
    """Return what the documents of both reports have."""
    return {
        "versions": states,
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
