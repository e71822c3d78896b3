"""The time of an invocation, on paper: nothing takes any but pauses, and these are not waited for."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SECONDS", "Invocation"]

SECONDS = 60.0
"""What the template gives the function."""


@dataclass(slots=True)
class Invocation:
    """What is left of an invocation, in seconds."""

    left: float = SECONDS

    def begin(self) -> None:
        self.left = SECONDS

    def remaining(self) -> float:
        return self.left

    def sleep(self, seconds: float) -> None:
        self.left -= seconds
