"""`projections promote`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from projections.cli.apply import Publication, ask
from projections.cli.backfill import STOPPED, Work, queue_option, queue_url_of, registered_options, segments_option
from projections.cli.options import Tables, as_argument, as_json
from projections.cli.stack import find_deployed
from projections.engine.registry import GAP_TODO
from projections.errors import UsageError
from projections.terminal import print_line

if TYPE_CHECKING:
    from projections.engine.registry import RegistrySnapshot, Version


@dataclass(frozen=True, slots=True)
class PromotionOptions:
    """How a version is promoted."""

    as_json: bool
    segments: int
    yes: bool
    allow_delete: bool
    queue: str | None


_promotion_options = as_argument(
    PromotionOptions,
    "promotion",
    as_json,
    segments_option,
    click.option("--yes", is_flag=True, help="Do not ask. Required without a terminal."),
    click.option("--allow-delete", is_flag=True, help="Delete items that only the version before has created."),
    queue_option,
)


def promotion_options(function: Callable[..., int]) -> Callable[..., int]:
    """RULE, the options of tables and --stack, and those of a promotion as the argument `promotion`."""
    return click.argument("rule", metavar="RULE")(registered_options(_promotion_options(function)))


@click.command("promote")
@promotion_options
def command(rule: str, options: Tables, promotion: PromotionOptions) -> int:
    """Publish the filled version of a rule, for example after `apply --hold`.

    Prints which published values change, asks, and publishes. Scans tables only if the versions set other
    attributes or write to other items. Run it again after an interruption.

    \b
    Example:
      projections promote likes --stack shop
    """

    def choose(snapshot: RegistrySnapshot) -> tuple[Version, str]:
        versions, active = snapshot.of(rule), snapshot.active.get(rule)
        if not versions:
            known = ", ".join(dict.fromkeys(version.rule for version in snapshot.versions.values())) or "none"
            raise UsageError(f"there is no rule {rule} in the registry. Its rules: {known}")
        ready = [version for version in versions if version.state == "ready"]
        if not ready and active is not None and active.unfinished and active.recorded:
            return active, goes_on(active)
        if not ready:
            states = ", ".join(f"{version.name} is {version.state}" for version in versions)
            filling = any(version.state == "filling" for version in versions)
            todo = "Run `projections apply` to fill it" if filling else "To publish the version before, use `rollback`"
            if any(version.state == "stale" for version in versions):
                todo = "Deploy the current package to all functions, then run `projections apply`"
            raise UsageError(f"rule {rule} has no version that is filled and not published: {states}. {todo}")
        return ready[-1], ""

    return promote(choose, options, promotion)


def goes_on(version: Version) -> str:
    """Return the sentence about a version of which an earlier command has not published or deleted everything."""
    return f"The publication of {version.name} is not complete: it goes on."


def promote(
    choose: Callable[[RegistrySnapshot], tuple[Version, str]], options: Tables, promotion: PromotionOptions
) -> int:
    """Promote, or go on to, the version that `choose` returns with a sentence to print before. Return the exit code."""
    from projections.operations.backfill.runner import backfill_with_threads

    as_json, segments = promotion.as_json, promotion.segments
    answered = promotion.yes or as_json
    there = find_deployed(options)
    queue_url = queue_url_of(there, promotion.queue, alone=True)
    live = there.connect(there.document(writes=True), threads=4 * segments)
    backfill = backfill_with_threads(live.program, live.store, segments=segments)
    snapshot = backfill.registry.read()
    if snapshot is None:
        raise UsageError("the ledger has no registry yet. Run `projections apply`")
    version, sentence = choose(snapshot)
    if version.held:
        raise UsageError(
            f"{version.name} is held by `hold: true` in the rule file that was applied. Remove it there, and run "
            "`projections apply`"
        )
    if version.gap:
        raise UsageError(f"{version.name} cannot be published: {version.gap}. {GAP_TODO}")
    if sentence and not as_json:
        print_line(sentence)
    publication = Publication(live, backfill, segments, as_json=as_json, asks=False)
    names = [version.name] if version.state != "active" else []
    if names and not answered:
        publication.show(names)
        if not ask(f"Publish {version.name}?"):
            print_line("Nothing was written.", err=True)
            return STOPPED
    run = backfill.begin(versions=names, fills=False, segments=segments, allow_delete=promotion.allow_delete)
    work = Work(there, live, backfill, as_json=as_json)
    return work.work(run, queue_url, publication.confirm) if answered else work.work(run, queue_url)
