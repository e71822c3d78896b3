"""What is late, and what is wrong: two looks at a suspect tell them apart.

A suspect is fine as soon as nothing is wrong with it, or as it shows what was known when it was looked at before: then it is
late. It is drift if nothing has happened to the item between two looks. If something has, it is to be looked at again:
somebody may be putting right what is overwritten time and again.
"""

from __future__ import annotations

from typing import NamedTuple

from projections.operations.verify.examine import Finding

__all__ = ["AGAIN", "DRIFT", "FINE", "Look", "told_apart"]

FINE, DRIFT, AGAIN = "fine", "drift", "again"


class Look(NamedTuple):
    """What is remembered of the last look at a suspect. `steady` if it was the same at all looks so far."""

    state: str
    known: str
    image: str
    steady: bool = True


def told_apart(before: Look | None, now: Finding) -> tuple[str, Look]:
    """What a look says of a suspect, `fine`, `drift` or `again`; and what is to be remembered of it."""
    if before is None:
        return (AGAIN if now.drifts else FINE), Look(now.state, now.known, now.image)
    same = before.state == now.state
    look = Look(now.state, now.known, now.image, before.steady and same)
    late = bool(before.known and now.known and now.reached >= before.known)  # it shows what was known then
    if late or not now.drifts:
        return FINE, look
    return (DRIFT if same and before.image == now.image else AGAIN), look
