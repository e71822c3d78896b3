"""`projections rollback`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from projections.cli.options import Tables
from projections.cli.promote import age, promote, promotion_options
from projections.errors import UsageError

if TYPE_CHECKING:
    from projections.engine.registry import RegistrySnapshot, Version


@click.command("rollback")
@promotion_options
def command(
    rule: str,
    options: Tables,
    as_json: bool,
    segments: int,
    yes: bool,
    allow_delete: bool,
    queue: str | None,
) -> int:
    """Publish the version of a rule again that was published before.

    It was maintained meanwhile, so its values are up to date, and no source items are read. Prints which published values
    change, asks, and publishes. Correct the rule file, too: the next `apply` applies what it says.

    \b
    Example:
      projections rollback likes --stack shop
    """

    def choose(snapshot: RegistrySnapshot) -> tuple[Version, str]:
        standby = [version for version in snapshot.of(rule) if version.state == "standby"]
        active = snapshot.active.get(rule)
        if not standby or active is None:
            states = ", ".join(f"{version.name} is {version.state}" for version in snapshot.of(rule)) or "it has none"
            raise UsageError(
                f"rule {rule} has no former version to roll back to: {states}. Apply the former rule file: rules that "
                "record nothing in the ledger have no version on standby"
            )
        version = max(standby, key=lambda version: version.promoted)
        return version, f"{active.name} replaced {version.name} {age(version)} ago."

    return promote(choose, options, as_json, segments, yes, allow_delete, queue)
