"""Times beside what one would write instead: ratios within one run, held with slack for busy machines.

They are told at the end of a run (`measured`, see conftest.py), so that a log of CI shows how they move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from benchmarks import cpu
from benchmarks.figures import OURS

pytestmark = pytest.mark.deep

Record = Callable[[str, object], None]
THOUSAND = OURS[1000]
CPU = pytest.mark.xdist_group("cpu")
"""Measured once, in one process."""


@pytest.fixture(scope="module")
def spent() -> Mapping[tuple[str, str], float]:
    """Microseconds of CPU per event, by case and way."""
    return cpu.measure_all(rounds=4)


@CPU
def test_an_event_takes_a_fraction_of_the_cpu_of_what_one_would_write_instead(
    spent: Mapping[tuple[str, str], float], record_property: Record
) -> None:
    """`python -m benchmarks.cpu` finds 6 times for a plain ADD, 21 for Powertools' idempotency, 7.5 for a claim in a
    transaction. Other processes disturb the measurement.
    """
    times = {}
    for (case, way), taken in spent.items():
        ratio = taken / spent[case, THOUSAND]
        record_property("measured", f"CPU per event, {case}, {way}: {taken:.0f} µs, {ratio:.1f} times {THOUSAND}")
        if case == cpu.TOGETHER:
            times[way[:3]] = ratio
    assert times["(a)"] > 4
    assert times["(b)"] > 14
    assert times["(c)"] > 5


@CPU
def test_a_core_leaves_a_shard_behind(spent: Mapping[tuple[str, str], float], record_property: Record) -> None:
    """A shard gives at most 1000 records a second."""
    for case, least in ((cpu.TOGETHER, 5), (cpu.SPREAD, 2)):
        times = 1e6 / spent[case, THOUSAND] / cpu.SHARD
        record_property(
            "measured", f"{case}, on a core: {times * cpu.SHARD:,.0f} a second, {times:.1f} times a shard's"
        )
        assert times > least
