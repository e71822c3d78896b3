"""Tests of rules: given items, when the application writes, then items. The real engine runs the rules in memory.

`docs/testing.md` has the fixture of pytest, case files `*.projections.yaml`, and `Scenario`, which works without pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from projections.testing.scenario import Scenario

__all__ = ["Scenario"]


if not TYPE_CHECKING:  # else type checkers would accept every name

    def __getattr__(name):
        """Load `Scenario` when it is first used: pytest imports this package in every run, for the plugin."""
        if name != "Scenario":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from projections.testing.scenario import Scenario

        return Scenario
