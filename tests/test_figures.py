"""The figures the README quotes, exact and asserted: write units and calls per event and per child of a push.

Units are MiniStack's consumed capacity, and for single updates that of DynamoDB Local.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.push import Pushes
from benchmarks.units import Units, measure_all
from projections.engine.embeds import Embedder
from projections.stores.limits import item_size


@pytest.fixture(scope="module")
def units(ministack_url: str) -> dict[str, Units]:
    return {case.case: case for case in measure_all(ministack_url)}


@pytest.mark.parametrize(
    ("case", "write_units", "calls"),
    [
        ("a lone like", 5.0, 4),
        ("1000 likes of one post", 2023.0, 14),
        ("1000 likes of 10 posts", 2050.0, 23),
        ("the same 1000 delivered again", 0.0, 23),  # MiniStack reports nothing for what is cancelled; AWS charges
        ("1000 edits that change nothing we keep", 0.0, 1),
        ("1000 likes of 1000 posts", 5000.0, 1031),
        ("one like into 8 counters", 26.0, 11),
        ("(a) plain ADD: 100 likes of 10 posts", 100.0, 100),
        ("(b) Powertools idempotency + ADD: 100 likes of 10 posts", 300.0, 300),
        ("(c) claim in a transaction: 100 likes of 10 posts", 400.0, 100),
        ("1000 unlikes of 10 posts", 3050.0, 1033),
        ("1000 likes into 8 counters", 2184.0, 21),
        ("100 copies", 100.0, 101),
        ("(a) plain ADD: the same 100 delivered again", 100.0, 100),  # and counts them twice
        ("(b) Powertools idempotency + ADD: the same 100 delivered again", 0.0, 100),
        ("(b) Powertools idempotency + ADD: one like into 8 counters", 10.0, 10),
        ("(c) claim in a transaction: one like into 8 counters", 18.0, 1),
        ("(d) conditional put: 100 copies", 100.0, 100),
    ],
)
def test_units_and_calls(units: dict[str, Units], case: str, write_units: float, calls: int) -> None:
    assert (units[case].write_units, units[case].calls) == (write_units, calls)


@pytest.fixture(scope="module")
def pushes(dynamodb_local_url: str) -> Iterator[Pushes]:
    with Pushes(dynamodb_local_url, 2100) as found:
        found.push()  # tries PartiQL; the emulator's compiler begins to work
        yield found


def test_a_push_in_statements(pushes: Pushes) -> None:
    """One statement for each child, in as few calls as hold them; for each page the fence, the parent and the children."""
    pushed = pushes.push()
    members = list(pushes.members())
    assert [member["teamName"]["S"] for member in members] == [pushes.name] * 2100
    assert 1000 < max(map(item_size, members)) <= 1024
    assert (pushed.children, pushed.statements, pushed.calls) == (2100, 2100, 1 + 3 * 3 + 2100 // 25)
    assert pushed.calls < 0.05 * 2100
    assert pushed.write_units == 1.0, "the fence; DynamoDB Local does not price statements"


def test_a_push_in_single_updates(ministack_url: str) -> None:
    """The same updates one by one, where statements are refused: what each of them costs."""
    with Pushes(ministack_url, 100) as pushes:
        first, second = pushes.push(), pushes.push()
    assert (first.statements, second.statements) == (1, 0)
    assert (first.write_units, second.write_units) == (101.0, 101.0)


def test_a_push_is_faster_than_a_loop(pushes: Pushes) -> None:
    """Some milliseconds away, as AWS is. On a quiet machine it is 9 times; a busy one slows the emulator down."""
    pushed = pushes.push(away=0.005, looped=30)
    assert pushed.per_second > 3 * pushed.looped_per_second


def test_the_memory_of_a_push_does_not_grow_with_its_pages(pushes: Pushes, monkeypatch: pytest.MonkeyPatch) -> None:
    push_page, most = Embedder.push_page, []

    def measured(*arguments: Any) -> Any:
        tracemalloc.reset_peak()
        found = push_page(*arguments)
        most.append(tracemalloc.get_traced_memory()[1])
        return found

    monkeypatch.setattr(Embedder, "push_page", measured)
    tracemalloc.start()
    try:
        pushes.push()
    finally:
        tracemalloc.stop()
    assert len(most) == 3
    assert most[1] < 1.1 * most[0] < 30_000_000, most
