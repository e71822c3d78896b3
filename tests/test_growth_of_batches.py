"""Time grows with the work: a large batch takes as long per change as a small one, and ends when its time is up."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from projections.engine.processor import full_collections
from projections.engine.transactions import Transaction, lanes, pack
from projections.errors import Transient
from tests.engine.world import World

LIKES = "  likes: {from: Like, aggregate: {into: Post, set: {likeCount: count}}}\n"
TAGS = "  tags: {from: Doc, each: {tag: tags}, latest: {into: Tag, by: at, attributes: {last: title}}}\n"
HEAD = """
table: {key: [PK, SK]}
entities:
  Doc: {key: {PK: "DOC#{id}", SK: D}}
  Tag: {key: {PK: "TAG#{tag}", SK: T}}
projections:
"""
MOST = 1.6
"""How much longer a change may take in a batch of ten times as many."""
ROUNDS = 4
LATE = 0.2 * float(os.environ.get("PATIENCE", "1"))  # of the 3 s that are left for the answer
"""Seconds after its time is up within which a batch is answered."""


def liked(number: int, **settings: Any) -> World:
    """Likes of as many posts."""
    w = World(LIKES, **settings)
    for user in range(number):
        w.like(user, user)
    return w


def documents(number: int, **settings: Any) -> World:
    """Documents of 30 tags, no two the same."""
    w = World(TAGS, HEAD, **settings)
    for doc in range(number):
        w.put(f"DOC#{doc}", "D", at=doc, title="t", tags=[f"{doc}-{tag}" for tag in range(30)])
    return w


def growth(measure: Callable[[int], float], small: int, large: int, most: float = MOST) -> float:
    """How many times as long a change takes in the large batch: the best of some rounds, as other processes disturb."""
    best = {small: float("inf"), large: float("inf")}
    for _ in range(ROUNDS):
        for number in (small, large):
            gc.collect()
            best[number] = min(best[number], measure(number) / number)
        if best[large] <= most * best[small]:
            break
    return best[large] / best[small]


def seconds(work: Callable[[], Any]) -> float:
    """Of this process, whatever others do."""
    start = time.process_time()
    with full_collections.postpone():  # as the engine has it in large batches; here the tables are in memory, too
        work()
    return time.process_time() - start


def processed(w: World) -> float:
    records = w.records()

    def work() -> None:
        assert w.processor.process(records, remaining=lambda: 900.0).failed is None

    return seconds(work)


@pytest.mark.deep
def test_ten_times_as_many_changes_of_as_many_targets_take_ten_times_as_long() -> None:
    assert growth(lambda number: processed(liked(number)), 500, 5000) <= MOST


@pytest.mark.deep
def test_ten_times_as_many_throttled_targets_take_ten_times_as_long() -> None:
    def measure(number: int) -> float:
        now = [0.0]

        def slept(pause: float) -> None:
            now[0] += pause

        w = liked(number, sleep=slept, chance=lambda: 1.0)
        w.store.write_each = throttled  # type: ignore[method-assign]
        records, outcomes = w.records(), []
        taken = seconds(lambda: outcomes.append(w.processor.process(records, remaining=lambda: 30.0 - now[0])))
        assert outcomes[0].failed == records[0]["dynamodb"]["SequenceNumber"]
        return taken

    assert growth(measure, 100, 1000) <= MOST


def throttled(*_: Any, **__: Any) -> Any:
    raise Transient("throttled")


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "in chains"])
def test_packing_and_finding_lanes_does_not_grow_with_the_square(shared: bool) -> None:
    """With 2000 documents of 30 tags, of which neighbours may have one in common. Caches cost such small work a part."""

    def measure(number: int) -> float:
        steps: list[Any] = []
        for doc in range(number):
            tags = [("tags", f"{doc}-{tag}") for tag in range(30)]
            pieces = dict.fromkeys([*tags, ("tags", f"{doc + 1}-0")] if shared else tags)
            steps.append(SimpleNamespace(pieces=pieces, counted=frozenset(), actions=61, size=0))
        found: list[list[Transaction]] = []
        taken = seconds(lambda: found.extend(lanes(pack(steps, 100))))
        assert len(found) == (1 if shared else number)
        assert sum(len(transaction.steps) for lane in found for transaction in lane) == number
        return taken

    assert growth(measure, 200, 2000, 3.0) <= 3.0


@pytest.mark.deep
@pytest.mark.parametrize("refused", [("write_each",), ("write_each", "write", "transact"), ()])
@pytest.mark.parametrize(
    "make", [lambda **s: liked(10_000, **s), lambda **s: documents(300, **s)], ids=["likes", "docs"]
)
def test_a_batch_is_answered_when_its_time_is_up(make: Callable[..., World], refused: tuple[str, ...]) -> None:
    late = [float("inf")]
    for _ in range(ROUNDS):
        w = make(sleep=time.sleep, margin=3.0)
        for name in refused:
            setattr(w.store, name, throttled)
        records = w.records()
        gc.collect()
        end = time.monotonic() + 0.2
        outcome = w.processor.process(records, remaining=lambda end=end: 3.0 + end - time.monotonic())
        late.append(time.monotonic() - end)
        if refused:
            assert outcome.failed is not None
        if min(late) <= LATE:
            break
    assert min(late) <= LATE
