"""The figures the README quotes, exact and asserted: write units and calls per event and per child of a push.

Units are MiniStack's consumed capacity, and for single updates that of DynamoDB Local.
"""

from __future__ import annotations

import tracemalloc

import pytest

from benchmarks.push import Pushes
from benchmarks.units import Units, measure_all
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
        ("1000 edits that change nothing we keep", 0.0, 0),
        ("1000 likes of 1000 posts", 5000.0, 1031),
        ("one like into 8 counters", 26.0, 11),
        ("(a) plain ADD: 100 likes of 10 posts", 100.0, 100),
        ("(b) Powertools idempotency + ADD: 100 likes of 10 posts", 300.0, 300),
        ("(c) claim in a transaction: 100 likes of 10 posts", 400.0, 100),
    ],
)
def test_units_and_calls(units: dict[str, Units], case: str, write_units: float, calls: int) -> None:
    assert (units[case].write_units, units[case].calls) == (write_units, calls)


def test_a_push_in_statements(dynamodb_local_url: str) -> None:
    """In batches: one statement for each child, none for what has the name already, and one for the trial."""
    with Pushes(dynamodb_local_url, 3000) as pushes:
        first, second = pushes.push(), pushes.push()
        members = list(pushes.members())
    assert [member["teamName"]["S"] for member in members] == [pushes.name] * 3000
    assert 1000 < max(map(item_size, members)) <= 1024
    assert (first.children, first.statements) == (3000, 3001)
    assert (second.children, second.statements) == (3000, 3000)
    assert second.write_units == 1.0, "the fence; DynamoDB Local does not price statements"
    assert second.calls <= 0.045 * 3000


def test_a_push_in_single_updates(ministack_url: str) -> None:
    """The same updates one by one, where statements are refused: what each of them costs."""
    with Pushes(ministack_url, 1000) as pushes:
        first, second = pushes.push(), pushes.push()
    assert (first.statements, second.statements) == (1, 0)
    assert (first.write_units, second.write_units) == (1001.0, 1001.0)


def test_the_memory_of_a_push_does_not_grow_with_its_children(dynamodb_local_url: str) -> None:
    most = []
    for children in (2000, 6000):
        with Pushes(dynamodb_local_url, children) as pushes:
            pushes.push()
            tracemalloc.start()
            pushes.push()
            most.append(tracemalloc.get_traced_memory()[1])
            tracemalloc.stop()
    assert most[1] < 1.2 * most[0] < 30_000_000, most
