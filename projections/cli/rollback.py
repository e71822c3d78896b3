"""`projections rollback`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from projections.cli.options import Tables
from projections.cli.promote import PromotionOptions, goes_on, promote, promotion_options
from projections.errors import UsageError

if TYPE_CHECKING:
    from projections.engine.registry import RegistrySnapshot, Version


@click.command("rollback")
@promotion_options
def command(rule: str, options: Tables, promotion: PromotionOptions) -> int:
    """Publish the version of a rule again that was published before.

    It was maintained meanwhile: nothing is filled. Prints which published values change, asks, and publishes. Continues
    after an interruption. Correct the rule file: the next `apply` applies it.

    \b
    Example:
      projections rollback likes --stack shop
    """
    from projections.operations.health import duration

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
        if active.unfinished and active.number < version.number:
            return active, goes_on(active)
        age = duration(max(0.0, time.time() - version.changed))
        return version, f"{active.name} replaced {version.name} {age} ago."

    return promote(choose, options, promotion)
