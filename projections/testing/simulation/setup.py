"""The setup that all histories of one rule file share."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from projections.local.tables import schemas
from projections.testing.simulation.fault_plan import FaultPlan
from projections.testing.simulation.history import History, Outcome
from projections.testing.simulation.pools import Pools
from projections.testing.simulation.rule_versions import RuleVersion, RuleVersions, changed, changed_again, rolled_back
from projections.testing.simulation.trace import Trace

__all__ = ["Setup"]

_CHANGES = 48
"""Different changes of one rule file, each computed when it is first used."""
_SECOND_CHANGES = 4
"""Different second changes after each of them, where rules change twice."""


class Setup:
    """The rule file, its changes, and fixed values of the fault plan, for any number of histories.

    `without` names operations that the application does not do. `fixed` are values of the fault plan that are not drawn.
    """

    def __init__(
        self,
        document: Mapping[str, Any],
        without: frozenset[str] = frozenset(),
        fixed: Mapping[str, Any] | None = None,
    ) -> None:
        version = RuleVersion(document)
        self._alone = RuleVersions(version, version, version.program, Pools(version.program))
        self._changed: dict[tuple[int, bool], RuleVersions] = {}
        self._rolled_back: dict[tuple[int, bool, bool], RuleVersions] = {}
        self._onward: dict[tuple[int, bool, int], RuleVersions] = {}
        self.schemas = schemas(version.program)
        self.without = without
        self._fixed = fixed or {}

    def plan(self, rng: Random) -> FaultPlan:
        return FaultPlan.draw(rng, self._fixed)

    def versions(self, plan: FaultPlan, rng: Random) -> RuleVersions:
        """The rules of one history."""
        if not plan.change:
            return self._alone
        number = int(rng.random() * _CHANGES), plan.entities
        if number not in self._changed:
            words = f"change {number[0]}" + (" of entities" if number[1] else "")
            self._changed[number] = changed(self._alone, Random(words), entities=number[1])
        versions = self._changed[number]
        if plan.then == "rolled back" and versions.change:
            retires = rng.random() < 0.5
            if (*number, retires) not in self._rolled_back:
                self._rolled_back[*number, retires] = rolled_back(versions, retires)
            return self._rolled_back[*number, retires]
        if plan.then == "changed again" and versions.change:
            second = int(rng.random() * _SECOND_CHANGES)
            if (*number, second) not in self._onward:
                rng = Random(f"change {number[0]} and {second}")
                self._onward[*number, second] = changed_again(versions, rng)
            return self._onward[*number, second]
        return versions

    def play(self, seed: int, *, trace: bool = False) -> Outcome:
        return History(self, seed, Trace(kept=trace)).play()
