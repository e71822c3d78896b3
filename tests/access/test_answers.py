"""Answers on tables in memory: the bounds of times."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest

from projections.access.answers import Answer, StoreReader, answer_to
from projections.api import loads
from projections.errors import UsageError
from projections.language.access.planner import plan
from projections.testing.scenario import Scenario

RULES = {
    "table": {"key": ["PK", "SK"], "indexes": {"GSI1": ["GSI1PK", "GSI1SK"]}},
    "entities": {"Event": {"key": {"PK": "EVENT#{id}", "SK": "EVENT"}, "match": {"kind": "Event"}, "required": ["at"]}},
    "projections": {
        "byMonth": {"from": "Event", "index": {"GSI1PK": "B#{id|bucket(3)}#{at|date(%Y-%m)}", "GSI1SK": "{at}"}}
    },
    "queries": {"events": {"find": "Event", "range": "at", "order": "asc", "limit": 3}},
}
NOW = datetime(2026, 5, 20, tzinfo=UTC)


def answer(items: list[dict[str, Any]], query: str, **given: Any) -> Answer:
    rules = loads(json.dumps(RULES))
    scenario = Scenario(rules).given(*items)
    planned = plan(rules.program.model, rules.queries[query])
    return answer_to(rules.program, planned, given, StoreReader(scenario._store), now=NOW)


def at_times(*times: str) -> list[dict[str, Any]]:
    return [{"PK": f"EVENT#{number}", "SK": "EVENT", "kind": "Event", "at": at} for number, at in enumerate(times)]


@pytest.mark.parametrize("offset", ["+14:00", "+02:00", "Z", "-05:00", "-12:00"])
def test_bounds_without_offset_find_times_with_any_offset(offset: str) -> None:
    times = [f"{time}{offset}" for time in ("2026-03-31T23:59:59", "2026-04-01T00:00:00", "2026-04-30T23:59:59")]
    others = [f"{time}{offset}" for time in ("2026-03-30T23:59:59", "2026-05-01T00:00:00")]
    items = at_times(*times, *others)
    assert [item["at"] for item in answer(items, "events", at=("2026-04", "2026-04"))] == times[1:]
    assert [item["at"] for item in answer(items, "events", at=("2026-03-31", "2026-04-30"))] == times
    assert [item["at"] for item in answer(items, "events", at=("2026-04-01T00", "2026-04-30T23:59:59"))] == times[1:]


@pytest.mark.parametrize(
    "high", ["2026", "2026-04", "2026-04-15", "2026-04-15T10", "2026-04-15T10:20", "2026-04-15T10:20:30"]
)
def test_a_shortened_upper_bound_includes_what_begins_with_it(high: str) -> None:
    items = at_times("2026-04-15T10:20:30.5Z", "2027-01-01T00:00:00Z")
    assert [item["at"] for item in answer(items, "events", at=("2026", high))] == ["2026-04-15T10:20:30.5Z"]


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        (("20260401", "20260430"), "a bound of at would be a time before 1973, as seconds since 1970. If it is a date"),
        (("2026-02-31", "2026-04"), "a bound of at is not a time that exists"),
        (("9999", "9999"), "a bound of at is not"),
        (("soon", "2026-04"), "a bound of at is neither ISO 8601"),
    ],
)
def test_a_bound_that_is_no_time_is_a_usage_error(bounds: tuple[str, str], reason: str) -> None:
    with pytest.raises(UsageError, match=re.escape(reason)):
        answer([], "events", at=bounds)
