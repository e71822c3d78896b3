"""docs/metrics.md lists exactly the metrics that the functions emit. `test_reference_pages` compares the page itself."""

from __future__ import annotations

from typing import Any

import pytest
from metric_words import FRESHNESS, METRICS, NAMESPACE
from metrics_page import SHARED, alarms, emitted, graphs

from projections.engine.running import COUNTS


def test_every_metric_that_a_function_emits_is_described_and_no_other() -> None:
    assert METRICS.keys() == emitted().keys()
    assert set(COUNTS) <= METRICS.keys()


def test_units_and_names_are_those_that_the_functions_write(monkeypatch: pytest.MonkeyPatch) -> None:
    from handlers import common

    written: list[tuple[str, Any]] = []
    monkeypatch.setattr(common.metrics, "add_metric", lambda name, unit, value: written.append((name, unit.value)))
    common.tell(dict.fromkeys(emitted().keys() - {FRESHNESS, *SHARED}, 1), (), {}, (), {"<rule>": (1.0, 2.0)})
    assert dict(written) == {name: one.unit for name, one in METRICS.items()}
    assert common.metrics.namespace == NAMESPACE


def test_alarms_and_graphs_use_metrics_that_exist() -> None:
    used = [one["MetricName"] for one in alarms().values() if one.get("Namespace") == NAMESPACE]
    assert {name.partition(".")[0] for name in used} <= {name.partition(".")[0] for name in METRICS}


def test_every_metric_is_on_the_dashboard() -> None:
    assert {name for _, names in graphs() for name in names} == METRICS.keys()
