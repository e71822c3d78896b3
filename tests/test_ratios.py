"""CPU beside what one would write instead: ratios within one run, printed (`-rP`) and held with slack for busy machines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from benchmarks import cpu, profile

Rows = Mapping[str, Mapping[str, Any]]


@pytest.fixture(scope="module")
def rows() -> Rows:
    found = cpu.rows(cpu.measure_all(rounds=4))
    for row in found:
        print(row)
    return {str(row["way"])[:3]: row for row in found}


def test_an_event_takes_a_fraction_of_the_cpu_of_what_one_would_write_instead(rows: Rows) -> None:
    """`make bench` finds 10 times for a plain ADD, 35 for Powertools' idempotency, 12 for a claim in a transaction."""
    assert rows["(a)"]["times ours"] > 6
    assert rows["(b)"]["times ours"] > 20
    assert rows["(c)"]["times ours"] > 7


def test_a_core_leaves_a_shard_behind(rows: Rows) -> None:
    """A shard gives at most 1000 records a second."""
    assert rows["our"]["records a second on a core"] > 5000


def test_a_profile_accounts_for_all_of_a_batch() -> None:
    shares = profile.measure(batches=1)
    assert 99.9 < sum(share.percent for share in shares) < 100.1
    assert {share.part for share in shares} > {"decoding records", "requests as text"}
