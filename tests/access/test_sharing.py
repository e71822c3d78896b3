"""Entities that share a key range: by their templates, as values of key variables lack the separator."""

from __future__ import annotations

import pytest

from projections.api import from_dict
from projections.language.access.planner import plan

RULES = {
    "table": {"key": ["PK", "SK"]},
    "entities": {
        "Metric": {"key": {"PK": "METRICS#{resource}", "SK": "{at}"}},
        "Sharded": {"key": {"PK": "METRICS#{resource}#{shard}", "SK": "{at}"}},
        "File": {"key": {"PK": "FILES#{path*}", "SK": "{at}"}},
        "Share": {"key": {"PK": "FILES#{path}#SHARES", "SK": "AT#{at}"}},
        "Total": {"key": {"PK": "TOTAL#{resource}", "SK": "ALL"}, "derived": True},
    },
    "projections": {"total": {"from": "Metric", "aggregate": {"into": "Total", "set": {"points": "count"}}}},
    "queries": {
        "metrics": {"find": "Metric", "by": ["resource"]},
        "sharded": {"find": "Sharded", "by": ["resource", "shard"]},
        "files": {"find": "File", "by": ["path"]},
    },
}


@pytest.mark.parametrize(
    ("name", "verdict", "others", "assumed"),
    [("metrics", "one", (), True), ("sharded", "one", (), False), ("files", "filtered", ("Share",), False)],
)
def test_given_value_of_a_key_variable_has_no_separator_unless_it_is_starred(
    name: str, verdict: str, others: tuple[str, ...], assumed: bool
) -> None:
    rules = from_dict(RULES)
    planned = plan(rules.program.model, rules.queries[name])
    found = (planned.verdict, planned.others, "resource has no #" in planned.assumes)
    assert found == (verdict, others, assumed)
