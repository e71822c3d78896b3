"""Answers on tables in memory: the order over buckets and periods, and items of no entity."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from projections.access.answers import Answer, answer_to
from projections.access.readers import StoreReader
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
    "queries": {
        "event": {"get": "Event", "by": ["id"]},
        "events": {"find": "Event", "range": "at", "order": "asc", "limit": 3},
    },
}
NOW = datetime(2026, 5, 20, tzinfo=UTC)


def event(number: int, **attributes: Any) -> dict[str, Any]:
    at = f"2026-0{number % 4 + 1}-0{number % 7 + 1}T00:00:00Z"
    return {"PK": f"EVENT#{number}", "SK": "EVENT", "at": at, **attributes}


def answer(items: list[dict[str, Any]], query: str, **given: Any) -> Answer:
    rules = loads(json.dumps(RULES))
    scenario = Scenario(rules).given(*items)
    planned = plan(rules.program.typed, rules.queries[query])
    return answer_to(rules.program, planned, given, StoreReader(scenario._store), now=NOW)


def test_items_of_a_period_are_merged_over_its_buckets() -> None:
    items = [event(number, kind="Event") for number in range(20)]
    found = [item["at"] for item in answer(items, "events", at={"from": "2026-01-01"})]
    assert found == sorted(item["at"] for item in items)


def test_pages_go_on_over_buckets_and_periods() -> None:
    items = [event(number, kind="Event") for number in range(20)]
    found, token = [], None
    while True:
        page = answer(items, "events", at={"from": "2026-01-01"}).page(3, token)
        found += [item["at"] for item in page.items]
        if (token := page.token) is None:
            break
    assert found == sorted(item["at"] for item in items)


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_of_no_items_is_a_usage_error(limit: int) -> None:
    with pytest.raises(UsageError, match=f"query events: the limit is {limit}. It must be at least 1"):
        answer([], "events", at={"from": "2026-01-01"}).page(limit)


def test_an_item_without_the_attribute_that_marks_its_entity_is_not_returned() -> None:
    assert list(answer([event(1)], "event", id="1")) == []
    assert [item["kind"] for item in answer([event(1, kind="Event")], "event", id="1")] == ["Event"]
