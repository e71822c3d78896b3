"""What one look at a source item finds, and what its comparisons share."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

from projections.engine.application import ApplicationItems
from projections.engine.guards import Guards
from projections.engine.registry import RegistrySnapshot
from projections.language.program import Program
from projections.language.rules import Rule

__all__ = ["Found", "Look", "application_items", "is_deployed"]


class Look(NamedTuple):
    """What is known of a source item now. It is processed if nothing is `missing` and no other field has reasons.

    `missing` may come with time; the other reasons do not go away while a caller waits. `not_covered` names the rules of the
    item of which something is not known.
    """

    missing: tuple[str, ...] = ()
    filling: tuple[str, ...] = ()
    quarantined: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    not_covered: tuple[str, ...] = ()


class Found:
    """The reasons, as they are found."""

    def __init__(self) -> None:
        self.missing: dict[str, None] = {}
        self.filling: dict[str, None] = {}
        self.quarantined: dict[str, None] = {}
        self.unknown: dict[str, None] = {}
        self.not_covered: dict[str, None] = {}

    def look(self) -> Look:
        return Look(*map(tuple, (self.missing, self.filling, self.quarantined, self.unknown, self.not_covered)))


def is_deployed(registry: RegistrySnapshot, rule: Rule) -> bool:
    """Return whether this version of a rule is active, or functions have worked with it."""
    known = registry.active.get(rule.name)
    return (known is not None and known.fingerprint == rule.fingerprint) or registry.is_provisional(rule)


def application_items(program: Program, guards: Guards) -> ApplicationItems:
    """Return the rules' judgement of items that were read; it has no store."""
    return ApplicationItems(program, cast("Any", None), guards)
