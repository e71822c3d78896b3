"""Tells lag from drift by two observations of a candidate.

A candidate is fine if nothing is wrong with it, or if it shows the version that was the newest at the observation before:
then it was only late. It is drift if its item has not changed between two observations. If it has changed, it is observed
again, because a function may be correcting values that the application overwrites repeatedly.
"""

from __future__ import annotations

from typing import NamedTuple

from projections.operations.verify.finding import Finding

__all__ = ["AGAIN", "DRIFT", "FINE", "Observation", "judge"]

FINE, DRIFT, AGAIN = "fine", "drift", "again"


class Observation(NamedTuple):
    """The parts of the last observation that are kept. `steady` if all observations were the same so far."""

    state: str
    known: str
    image: str
    steady: bool = True


def judge(before: Observation | None, now: Finding) -> tuple[str, Observation]:
    """Return the verdict on a candidate, `fine`, `drift` or `again`, and the observation to keep."""
    if before is None:
        return (AGAIN if now.drifts else FINE), Observation(now.state, now.known, now.image)
    same = before.state == now.state
    observation = Observation(now.state, now.known, now.image, before.steady and same)
    late = bool(before.known and now.known and now.reached >= before.known)
    if late or not now.drifts:
        return FINE, observation
    return (DRIFT if same and before.image == now.image else AGAIN), observation
