"""Tests of rules: given items, when the application writes, then items. The real engine runs the rules in memory.

In pytest, with a fixture (pytest loads the plugin itself; `plugin` describes how to name the rules):

    def test_a_like_counts(projections):
        projections.given({"PK": "USER#ada", "SK": "POST#2024#p1", "title": "Notes"})
        projections.put({"PK": "USER#bob", "SK": "LIKE#POST#p1"})
        projections.then({"PK": "POST#p1", "SK": "METADATA", "title": "Notes", "likeCount": 1})

    def test_histories_pass(projections):
        projections.assert_simulation(histories=200)

or as files `*.projections.yaml`, each case a test:

    rules: rules.yaml
    simulate: 200
    cases:
      - about: a like counts
        given: [{PK: USER#ada, SK: "POST#2024#p1", title: Notes}]
        when: [{put: {PK: USER#bob, SK: "LIKE#POST#p1"}}]
        then: [{PK: "POST#p1", SK: METADATA, title: Notes, likeCount: 1}]

`then` lists the items with derived values. All others must be as the application wrote them. The fixture is a `Scenario`,
which works without pytest too:

    from projections.testing import Scenario

    scenario = Scenario(projections.load("rules.yaml"))
    scenario.put({"PK": "USER#bob", "SK": "LIKE#POST#p1"})
    assert scenario.item(["POST#p1", "METADATA"]) == …
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
