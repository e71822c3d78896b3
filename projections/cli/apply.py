"""`projections apply`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from projections.aws.live_tables import LEDGER
from projections.cli.backfill import (
    STOPPED,
    Reporter,
    RunOptions,
    Work,
    applied_options,
    cost_words,
    queue_option,
    queue_url_of,
    report_dry,
    run_options,
    states_of,
)
from projections.cli.options import Tables, as_json, document_of, find_rules
from projections.cli.stack import Deployed, find_deployed
from projections.errors import UsageError
from projections.inspect.explain.words import json_words
from projections.terminal import Bar, count, interactive, json_text, print_json, print_line, print_text

if TYPE_CHECKING:
    from projections.aws.live_tables import Live
    from projections.engine.registry import RegistrySnapshot, Version
    from projections.inspect.diff.difference import Difference
    from projections.language.program import Program
    from projections.operations.backfill.backfill_runs import Backfill
    from projections.operations.backfill.fill_estimate import FillEstimate
    from projections.operations.backfill.progress import Run
    from projections.operations.backfill.version_changes import VersionChanges


_FATES = ("keep", "remove")


@click.command("apply")
@applied_options
@as_json
@run_options
@click.option("--dry-run", is_flag=True, help="Write nothing; rehearse, and print what would be written and its cost.")
@click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal.")
@click.option(
    "--hold",
    is_flag=True,
    help="Fill new versions, and do not publish them: `promote`, or `apply` without --hold, publishes them.",
)
@click.option(
    "--retire",
    multiple=True,
    metavar="RULE=keep|remove",
    help="What happens to the values of a rule that FILE lacks. Repeat it for each. [default: `retired` of FILE, or asked]",
)
@queue_option
def command(
    options: Tables,
    as_json: bool,
    running: RunOptions,
    dry_run: bool,
    yes: bool,
    hold: bool,
    retire: tuple[str, ...],
    queue: str | None,
) -> int:
    """Apply a rule file: register new and changed rules, fill them from existing items, and publish them.

    Prints what changes, asks, fills the new versions while those before stay published, prints which values change, asks
    again, and publishes. Refuses if tables, streams, filters or permissions lack something that the rules need. Run it again
    after an interruption: it continues. Copies, index attributes, `embed` and `compute` record nothing: they are published
    at once, and their values are written during the fill.

    Exits with 1 if anything failed, was rejected or was not deleted, or with --dry-run would be refused; with 2 if it was
    refused, and with 130 if it was declined or stopped. --json asks nothing.

    \b
    Examples:
      projections apply rules.yaml --stack shop --dry-run
      projections apply rules.yaml --stack shop --yes
    """
    from projections.cli.diff import print_difference
    from projections.operations.backfill.runner import Runner, backfill_with_threads

    asks = not (yes or as_json or dry_run)
    segments, max_writes, restart = running.segments, running.max_writes, running.restart
    path = find_rules(options.rules)
    document = document_of(path)
    there = find_deployed(options)
    queue_url = queue_url_of(there, queue, alone=not (dry_run or max_writes))
    live = there.connect(document, threads=4 * segments, other_indexes=True)
    backfill = backfill_with_threads(live.program, live.store, segments=segments, rate=max_writes, dry=dry_run)
    before = backfill.registry.read()
    fates = _fates(live.program, before, retire, asks=asks)
    plan = _plan(there, live, backfill, before, fates, hold=hold, restart=restart, counts=dry_run)
    if not as_json:
        print_difference(plan.difference, "published rules", path.name, steps=False)
        for line in _plan_lines(plan, max_writes, queued=queue_url is not None):
            print_line(line)
    refused = plan.difference.impossible
    try:
        for text in there.warnings(live, refuse=True, permissions=True):
            print_line(f"warning: {text}", err=True)
    except UsageError as error:
        refused = (*refused, *error.lines)
    if refused and not dry_run:
        raise UsageError(*refused)
    page = {**plan.document(max_writes), "refused": list(refused)}
    if dry_run:
        with Bar("connected", quiet=as_json) as bar:
            reporter = Reporter(live, bar)
            runner = Runner(backfill, report=reporter.page, report_read=reporter.reading)
            counted = runner.rehearse(backfill.unrecorded_run(plan.after, segments))
        if plan.filled and not hold:  # these are published at once
            publication = Publication(live, backfill, segments, as_json=as_json, asks=False)
            changes = publication.show([version.name for version in plan.filled], plan.after)
            page["changes"] = {change.rule: change.document() for change in changes}
        code = report_dry(backfill, states_of(plan.after), counted, runner, page, as_json=as_json)
        for text in refused:
            print_line(f"would be refused: {text}", err=True)
        return 1 if refused else code
    if plan.is_empty and not restart:
        if as_json:
            print_json({"versions": states_of(plan.after), **page})
        return 0
    if asks and not ask("Apply these rules?"):
        print_line("Nothing was written.", err=True)
        return STOPPED
    run = backfill.apply(
        live.program,
        fates,
        hold=hold,
        segments=segments,
        allow_delete=running.allow_delete,
        restart=restart,
        streams={name: live.described[name].get("LatestStreamLabel", "") for name in live.program.tables},
    )
    if run is None:
        states = states_of(backfill.registry.read_or_create())
        text = "Applied: nothing is to be filled."
        print_text(json_text({"versions": states, **page}) if as_json else text)
        return 0
    publication = Publication(live, backfill, segments, as_json=as_json, asks=asks)
    return Work(there, live, backfill, as_json=as_json, page=page).work(run, queue_url, publication.confirm)


# What is going to happen


class _Plan(NamedTuple):
    """What `apply` would do: the difference from the rules that are published or held, and the registry after it registered
    the rules.
    """

    difference: Difference
    after: RegistrySnapshot
    filling: Sequence[Version]
    at_once: Sequence[str]
    """The new and changed rules that record nothing, so that they are published while their values are written."""
    left_out: Sequence[str]
    """Those that --hold leaves out for that reason."""
    filled: Sequence[Version]
    """The versions that are filled already, and not published."""
    kept: Sequence[str]
    """The rules to remove that have no version any more, because their values were kept when they were removed."""
    open: Sequence[Version]
    """The versions whose promotion or removal has not been carried out."""
    cleaned: Sequence[str]
    """The versions that lanes count, and whose part of entries is removed."""
    not_carried: Mapping[str, Sequence[str]]
    """By version that is filled: its attributes that begin without what has expired, and former versions keep."""
    estimate: FillEstimate | None
    """The cost of the fill; None if there is none, or if it is going to be counted."""

    @property
    def is_empty(self) -> bool:
        return not (self.difference.rules or self.filling or self.filled or self.open or self.cleaned)

    def document(self, max_writes: int | None) -> dict[str, Any]:
        """Return it as JSON."""
        from projections.cli.diff import as_data

        lists = {"leftOut": list(self.left_out), "notRemoved": list(self.kept), "cleaned": list(self.cleaned)}
        document = {"change": as_data(self.difference), **lists, "notCarried": self.not_carried}
        return {**document, "estimate": self.estimate and self.estimate.document(max_writes)}


def _plan(
    there: Deployed,
    live: Live,
    backfill: Backfill,
    before: RegistrySnapshot | None,
    fates: Mapping[str, str],
    *,
    hold: bool,
    restart: bool,
    counts: bool,
) -> _Plan:
    from projections.inspect.diff.difference import difference
    from projections.operations.backfill.backfill_runs import cleanable_versions, incomplete, spare_versions, unread
    from projections.operations.backfill.fill_estimate import estimate_fill

    document, known = live.program.document, before.versions if before is not None else {}
    published = _in_order_of(there.registered_rules(refuse=True) or {**document, "projections": {}}, document)
    after, chosen = backfill.registry.preview(live.program, fates, hold=hold)
    rules = live.program.rules.values()
    filling = [version for version in chosen.values() if version.state == "filling"]
    now = backfill.now().timestamp()
    cleaned = cleanable_versions(after, now, () if filling else spare_versions(after, now))
    fills = bool(restart or filling or unread(after) or cleaned)
    then = backfill.registry.program(after)
    filled = [v for v in chosen.values() if v.state in ("ready", "standby") and not v.held]
    changes = difference(published, {**document, "retired": {**document["retired"], **fates}})
    is_filled = {version.rule for version in filled}
    entries = [rule._replace(fill=()) if rule.change.rule in is_filled else rule for rule in changes.rules]
    return _Plan(
        # what is deployed is compared with what the rules need, not former rules with new ones
        changes._replace(rules=tuple(entries), deployment=(), indexes=()),
        after,
        filling=filling,
        at_once=[v.rule for v in chosen.values() if not v.recorded and v.name not in known],
        left_out=[rule.name for rule in rules if hold and not rule.held and rule.name not in chosen],
        filled=filled,
        kept=[
            rule
            for rule, fate in document["retired"].items()
            if fate == "remove" and before is not None and rule in before.next and not before.of(rule)
        ],
        open=[v for v in incomplete(after) if v.name in known],
        cleaned=cleaned,
        not_carried={v.name: names for v in filling if (names := then.not_carried(v.name))},
        estimate=estimate_fill(live.program, live.store, after, live.sizes) if fills and not counts else None,
    )


def _in_order_of(published: Mapping[str, Any], document: Mapping[str, Any]) -> dict[str, Any]:
    """Return rules with their entities in the order of another document, so that the order makes no difference."""
    entities = published["entities"]
    ordered = {name: entities[name] for name in document["entities"] if name in entities}
    return {**published, "retired": {}, "entities": {**ordered, **entities}}


def _fates(program: Program, before: RegistrySnapshot | None, retire: Sequence[str], *, asks: bool) -> dict[str, str]:
    """Return what happens to the values of rules that the file lacks. Raises UsageError."""
    lacking = before.lacking(program) if before is not None else []
    fates: dict[str, str] = {}
    for text in retire:
        rule, _, fate = text.partition("=")
        if fate not in _FATES:
            raise UsageError(f"--retire {text}: expected RULE=keep or RULE=remove")
        if rule not in lacking:
            there = f"; these rules are: {', '.join(lacking)}" if lacking else ""
            raise UsageError(f"--retire {text}: {rule} is not a published rule that the file lacks{there}")
        fates[rule] = fate
    unsaid = [rule for rule in lacking if rule not in fates and rule not in program.retired]
    if unsaid and not (asks and interactive()):
        raise UsageError(
            *(
                f"rule {rule} is published, and the rule file does not contain it. Add --retire {rule}=keep to keep its "
                f"values, or --retire {rule}=remove to remove them; or add it to `retired` of the file"
                for rule in unsaid
            )
        )
    for rule in unsaid:
        question = f"The file does not contain rule {rule}. Keep its values, or remove them?"
        fates[rule] = click.prompt(question, type=click.Choice(_FATES))
    return fates


def _plan_lines(plan: _Plan, max_writes: int | None, *, queued: bool) -> Iterator[str]:
    if plan.estimate is not None:
        yield from _estimate_lines(plan.estimate, max_writes, queued=queued)
    for version, names in plan.not_carried.items():
        yield (
            f"{version}: {', '.join(names)} {'begins' if len(names) == 1 else 'begin'} without what has expired before, "
            "which is kept as the version before counts it. --dry-run, and the page before publishing, say how much"
            ", except of what lanes count: of that, the page says which values change."
        )
    for rules, what in (
        ([v.name for v in plan.filling], "Filled before they are published"),
        (plan.at_once, "Published at once, because these rules record nothing; values are written during the fill"),
        (plan.left_out, "Not applied with --hold, because these rules record nothing: apply them without it"),
        ([v.name for v in plan.filled], "Filled already, and not published"),
        (plan.kept, "Not removed: the values were kept before. To remove them, add the rule, apply, and remove it"),
        ([v.name for v in plan.open], "Promotion or removal to be completed"),
        (plan.cleaned, "Removed from entries, which lanes do not need, for 1 write unit each"),
    ):
        if rules:
            yield f"{what}: {', '.join(rules)}."


def _estimate_lines(estimate: FillEstimate, max_writes: int | None, *, queued: bool) -> Iterator[str]:
    from projections.operations.backfill.fill_estimate import ITEMS_PER_SECOND
    from projections.operations.health import duration

    spent = cost_words(estimate.write_units, estimate.read_units)
    time = "the worker does it"
    if not queued:
        time = f"{duration(max(1.0, estimate.seconds(max_writes)))} at {ITEMS_PER_SECOND} items a second"
        time += f" and {max_writes:,} writes a second" if max_writes else ""
    yield f"The fill reads {count(estimate.items, 'item')} of the tables: about {spent}; {time}."
    if estimate.rejected:
        yield f"{count(estimate.rejected, 'value')} of {count(estimate.sampled, 'item')} would be rejected: see --dry-run."
    if not estimate.exact:
        yield f"Estimated from {count(estimate.sampled, 'item')}; --dry-run counts all."


def ask(question: str) -> bool:
    """Ask a question. Raises UsageError without a terminal."""
    if not interactive():
        raise UsageError(
            "nothing was written: there is no terminal to ask. Pass --yes. `apply --dry-run` counts the writes"
        )
    return click.confirm(question, default=False)


# Filling and publishing


class Publication:
    """Asks before versions are promoted, and shows what that changes."""

    def __init__(self, live: Live, backfill: Backfill, segments: int, *, as_json: bool, asks: bool) -> None:
        self._live = live
        self._backfill = backfill
        self._segments = segments
        self._as_json = as_json
        self._asks = asks

    def confirm(self, run: Run) -> tuple[Run, Mapping[str, Any]]:
        """Show which values the promotion of a run's versions changes, and ask. Return the run, and JSON."""
        changes = self.show(run.versions)
        if run.promotes and run.versions and self._asks and not ask("Publish?"):
            run = self._backfill.decline(run)
            print_line("Not published. The same command, or `projections promote RULE`, publishes it.", err=True)
        return run, {"changes": {change.rule: change.document() for change in changes}}

    def show(self, versions: Collection[str], planned: RegistrySnapshot | None = None) -> list[VersionChanges]:
        """Print which values the promotion of versions changes, and return it; by the registry, or as it is `planned`."""
        from projections.operations.backfill.version_changes import version_changes

        registry = self._backfill.registry
        snapshot, program = (planned, registry.program(planned)) if planned else registry.current()
        names = [name for name in versions if name in snapshot.versions and not snapshot.versions[name].held]
        read = Counter[str]()
        with Bar("comparing", quiet=self._as_json) as bar:

            def report(items: int) -> None:
                read["items"] += items
                bar.step("comparing values", read["items"], self._live.sizes.get(LEDGER, 0))

            changes = version_changes(
                program, self._live.store, snapshot, names, segments=self._segments, report=report
            )
        if not self._as_json:
            print_changes(changes)
        return changes


def print_changes(changes: Sequence[VersionChanges]) -> None:
    """Print which published values change when versions are promoted."""
    for change in changes:
        place = f"instead of {change.active}" if change.active else "without a version before"
        values = "no published value changes"
        if change.changed:
            values = count(change.changed, "published value changes", "published values change")
        print_line(f"{change.version}, {place}: {values}, {count(change.targets, 'target')} compared")
        if change.kept:
            names = ", ".join(change.not_carried)
            entries = count(change.kept, "entry keeps", "entries keep")
            print_line(f"{'':<8} {entries} what has expired; {names} of {change.version} begin without it")
        for name, attribute in sorted(change.attributes.items()):
            total = f", by {attribute.total:+f} in total" if attribute.total is not None else ""
            print_line(f"{'':<8} {name}: {count(attribute.changed, 'value')}{total}")
            for _, example in attribute.examples:
                old, new = (json_words(side, absent="absent") for side in (example.old, example.new))
                print_line(f"{'':<10} {example.key}: {old} → {new}")
            if attribute.changed > len(attribute.examples):
                print_line(f"{'':<10} and {attribute.changed - len(attribute.examples):,} more")
