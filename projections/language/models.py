"""Rules as pydantic models: the form of rules that all tools use, with the names of the rule file.

A model accepts each spelling of a rule file and holds one value for all of them. `Rules.document` is the canonical document,
plain JSON, that is deployed and that fingerprints are computed from; it is itself a valid rule file. The engine compiles it
without these classes, so that a cold start does not load pydantic.

Names that Python reserves have a trailing underscore here (`from_`, `as_`, `copy_`) and none in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from pydantic import Field

from projections.language.kinds import SINGLE as SINGLE
from projections.language.kinds import Action, AnyProjection, AnyRules, Name
from projections.language.kinds import Entity as Entity
from projections.language.kinds import Table as Table
from projections.language.kinds import once as once
from projections.language.kinds.aggregate import Aggregate as Aggregate
from projections.language.kinds.compute import Compute as Compute
from projections.language.kinds.copy import Copy as Copy
from projections.language.kinds.embed import Embed as Embed
from projections.language.kinds.flag import Flag as Flag
from projections.language.kinds.index import Index as Index
from projections.language.kinds.rank import Rank as Rank
from projections.language.kinds.top import Latest as Latest
from projections.language.kinds.top import Top as Top


def _by_kind(*actions: type[Action]) -> Mapping[str, type[Action]]:
    """Return kinds of rules by name. The type checker reports one that lacks answers: its `__abstractmethods__`."""
    return {action.kind: action for action in actions}


ACTIONS = _by_kind(Copy, Aggregate, Top, Latest, Flag, Rank, Index, Compute, Embed)


class Projection(AnyProjection):
    """One rule: its sources, and one action."""

    copy_: Copy | None = None
    aggregate: Aggregate | None = None
    top: Top | None = None
    latest: Latest | None = None
    flag: Flag | None = None
    rank: Rank | None = None
    index: Index | None = None
    compute: Compute | None = None
    embed: Embed | None = None


class Rules(AnyRules):
    """Projections for DynamoDB: tables, the entities in them, and the rules that derive data from data."""

    projections: dict[Name, Projection] = Field(default={}, description="The rules, by name.")

    def variants(self) -> Iterator[tuple[str, Projection]]:
        return cast(Iterator[tuple[str, Projection]], super().variants())
