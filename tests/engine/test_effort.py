"""How long to try."""

from __future__ import annotations

import pytest

from projections.engine.effort import Effort, OutOfTime


def test_pauses_grow_to_two_seconds_and_no_further() -> None:
    slept: list[float] = []
    effort = Effort(lambda: 1e9, sleep=slept.append, chance=lambda: 1.0)
    for attempt in (1, 2, 7, 100, 5000):
        effort.pause(attempt)
    assert slept == [0.04, 0.08, 2.0, 2.0, 2.0]


def test_a_pause_that_would_last_longer_than_there_is_time_is_not_made() -> None:
    slept: list[float] = []
    effort = Effort(lambda: 3.0, margin=1.0, sleep=slept.append, chance=lambda: 1.0)
    with pytest.raises(OutOfTime):
        effort.pause(100)
    assert slept == []
