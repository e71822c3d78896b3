"""The simulation as one assertion."""

from __future__ import annotations

import os

from projections.language.ruleset import RuleSet
from projections.printable import printable

__all__ = ["assert_simulation"]

TRACED = 120
"""Entries of a trace in a message: its end, where things went wrong."""

LONGEST = 300
"""Characters of a line."""


def assert_simulation(rules: RuleSet, histories: int = 200, *, seed: int = 0) -> None:
    """Plays random histories of the rules' entities, those of the seeds from `seed` on, with every fault there is.

    Raises AssertionError with the first seed that ends wrong, its problems and trace, and how to play it again.
    """
    __tracebackhide__ = True
    from projections.testing.simulation.campaign import Campaign
    from projections.testing.simulation.setup import Setup

    report = Campaign(rules.document).run(seed, histories)
    if not report.failures:
        return
    failure = report.failures[0]
    trace = Setup(rules.document).play(failure.seed, trace=True).trace
    left_out = max(0, len(trace) - TRACED)
    file = os.path.relpath(rules.path) if rules.path else "FILE"
    raise AssertionError(
        "\n".join(
            [
                f"the history of seed {failure.seed} ends wrong, number {failure.seed - seed + 1} of {histories}:",
                *(f"  {printable(problem)}" for problem in failure.problems),
                f"what happened{f' (the last {TRACED} of {len(trace)} entries)' if left_out else ''}:",
                *(f"  {short}" for line in trace[left_out:] for short in _lines(line)),
                f"to see it again: projections simulate --rules {file} --seed {failure.seed} --histories 1 --trace",
            ]
        )
    )


def _lines(entry: str) -> list[str]:
    return [line if len(line) <= LONGEST else line[: LONGEST - 1] + "…" for line in map(printable, entry.split("\n"))]
