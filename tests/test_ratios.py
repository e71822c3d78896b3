"""Times beside what one would write instead: ratios within one run, held with slack for busy machines.

They are told at the end of a run (`measured`, see conftest.py), so that a log of CI shows how they move.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from benchmarks import cpu, growth, profile, throughput
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


def test_a_profile_accounts_for_all_of_a_batch() -> None:
    shares = profile.measure(batches=1)
    assert 99.9 < sum(share.percent for share in shares) < 100.1
    assert {share.part for share in shares} > {"decoding records", "requests as text"}


def test_an_event_costs_as_much_after_ten_thousand_as_after_one_thousand(record_property: Record) -> None:
    """The engine's CPU and memory, its store being a process of its own. What grows with the items grows tenfold here.

    `make bench` goes on to 100,000 items and as many targets.
    """
    few, many = growth.grow(10_000, 10)
    record_property(
        "measured",
        f"CPU of an event after 10,000 source items to that after 1,000: {many.new / few.new:.2f} (new), "
        f"{many.gone / few.gone:.2f} (gone), {many.again / few.again:.2f} (again); "
        f"{many.megabytes - few.megabytes:+.1f} MB, the store {many.store_megabytes - few.store_megabytes:+.1f} MB",
    )
    assert many.new < 3 * few.new
    assert many.gone < 3 * few.gone
    assert many.again < 3 * few.again
    assert many.megabytes - few.megabytes < 4.0, "400 bytes an event"
    assert many.store_megabytes - few.store_megabytes > 9.0, "or there was nothing to remember"


def test_projections_follow_their_writes(ministack_url: str, record_property: Record) -> None:
    """Through the stream of an emulator, beside Powertools' idempotency with `ADD`."""
    ours, theirs = (
        throughput.throughput(ministack_url, way, 200) for way in (OURS[100], "(b) Powertools idempotency + ADD")
    )
    waited = throughput.latency(ministack_url, OURS[100], rate=20.0, seconds=1.0)
    record_property(
        "measured",
        f"end to end on MiniStack: {ours:,.0f} events a second, {ours / theirs:.1f} times (b); "
        f"{waited.p50:.0f} ms from write to projection (p50)",
    )
    assert ours > 1.5 * theirs
    assert 0 < waited.p50 <= waited.p95
