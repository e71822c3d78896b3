"""The simulation as one assertion."""

from __future__ import annotations

import os

from projections.language.ruleset import RuleSet
from projections.printable import printable

__all__ = ["assert_simulation"]

TRACED = 120
"""Events of a trace in a message: the last ones, where the failure is."""

LONGEST = 300
"""Characters of a line."""


def assert_simulation(rules: RuleSet, histories: int = 200, *, seed: int = 0) -> None:
    """Run random histories, of the seeds from `seed` on, with every kind of fault.

    Raises AssertionError with the first seed that fails, its problems and trace, and the command that runs it again.
    """
    __tracebackhide__ = True
    from projections.testing.simulation.campaign import Campaign
    from projections.testing.simulation.history import Setup

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
                f"Seed {failure.seed} failed (history {failure.seed - seed + 1} of {histories}):",
                *(f"  {printable(problem)}" for problem in failure.problems),
                f"Trace{f' (the last {TRACED} of {len(trace)} events)' if left_out else ''}:",
                *(f"  {short}" for line in trace[left_out:] for short in _lines(line)),
                f"To repeat it: projections simulate --rules {file} --seed {failure.seed} --histories 1 --trace",
            ]
        )
    )


def _lines(entry: str) -> list[str]:
    return [line if len(line) <= LONGEST else line[: LONGEST - 1] + "…" for line in map(printable, entry.split("\n"))]
