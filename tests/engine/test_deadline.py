"""How long to try."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from projections.engine.running import Deadline, OutOfTime, one_by_one, send_all
from projections.engine.store import ItemKey, Update
from projections.errors import StoreError, Transient
from projections.stores.memory import MemoryStore


def test_pauses_grow_to_two_seconds_and_no_further() -> None:
    slept: list[float] = []
    deadline = Deadline(lambda: 1e9, sleep=slept.append, chance=lambda: 1.0)
    for attempt in (1, 2, 7, 100, 5000):
        deadline.pause(attempt)
    assert slept == [0.04, 0.08, 2.0, 2.0, 2.0]


def limited(seconds: float) -> tuple[Deadline, list[float]]:
    """Time of which only pauses take some, with the margin of 1 second, and the pauses made."""
    slept: list[float] = []
    return Deadline(lambda: 1.0 + seconds - sum(slept), sleep=slept.append, chance=lambda: 1.0), slept


def failing(*reasons: StoreError) -> Callable[[], str]:
    """Work that fails for these reasons, one after the other, and then succeeds."""
    left: Iterator[StoreError] = iter(reasons)

    def work() -> str:
        for reason in left:
            raise reason
        return "done"

    return work


def test_a_retry_for_which_time_runs_out_raises_the_last_reason_before_that() -> None:
    deadline, slept = limited(0.2)
    with pytest.raises(Transient, match="conflict"):
        deadline.retry(failing(Transient("throttled"), Transient("conflict"), OutOfTime("the time is up")))
    assert slept == [0.04, 0.08]


def test_a_retry_ends_after_its_tries_and_at_any_other_error() -> None:
    deadline, slept = limited(60.0)
    with pytest.raises(Transient, match="second"):
        deadline.retry(failing(Transient("first"), Transient("second")), tries=2)
    with pytest.raises(StoreError, match="permanent"):
        deadline.retry(failing(StoreError("permanent")))
    assert slept == [0.04]


def test_updates_that_time_runs_out_for_keep_their_own_reasons() -> None:
    class Throttled(MemoryStore):
        def write_each(self, writes: Sequence[Update]) -> list[StoreError | None]:
            return [Transient(f"throttled: {write.key.partition}") for write in writes]

    writes = [Update(ItemKey("t", name), set={"a": {"S": "x"}}) for name in ("one", "two")]
    deadline, slept = limited(0.1)
    answers = send_all(Throttled({}).write_each, writes, deadline, one_by_one)
    assert [str(answer) for answer in answers] == ["throttled: one", "throttled: two"]
    assert slept == [0.04]
    answers = send_all(Throttled({}).write_each, writes, limited(0.0)[0], one_by_one)
    assert [type(answer) for answer in answers] == [OutOfTime, OutOfTime]
