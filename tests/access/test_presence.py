"""What the planner relies on: `required` attributes, and key variables whose values lack the separator."""

from __future__ import annotations

from typing import Any

import pytest

from projections.api import from_dict
from projections.language.access.planner import plan


def rules(required: list[str]) -> dict[str, Any]:
    entity: dict[str, Any] = {"key": {"PK": "POST#{postId}", "SK": "POST"}}
    if required:
        entity["required"] = required
    return {
        "table": {"key": ["PK", "SK"], "indexes": {"GSI1": ["GSI1PK", "GSI1SK"]}},
        "entities": {"Post": entity, "Copy": {"key": {"PK": "COPY#{postId}", "SK": "{at}"}}},
        "projections": {
            "byAuthor": {"from": "Post", "index": {"GSI1PK": "AUTHOR#{author}", "GSI1SK": "{at}#{postId}"}},
            "copy": {"from": "Post", "copy": {"into": "Copy", "attributes": ["author", "title"]}},
        },
        "queries": {
            "ofAuthor": {"find": "Post", "by": ["author"]},
            "copies": {"find": "Post", "by": ["postId"], "attributes": ["title"], "order": "desc", "using": "table"},
        },
    }


def verdict(required: list[str]) -> tuple[str, str]:
    loaded = from_dict(rules(required))
    found = plan(loaded.program.model, loaded.queries["ofAuthor"])
    return found.verdict, found.reason


def test_index_is_incomplete_without_a_required_attribute() -> None:
    word, reason = verdict([])
    assert word == "incomplete"
    assert "GSI1 does not hold items without at" in reason


def test_required_attribute_makes_the_index_complete() -> None:
    assert verdict(["at"]) == ("one", "")


def test_required_does_not_change_fingerprints() -> None:
    plain, required = from_dict(rules([])).program, from_dict(rules(["at"])).program
    assert {name: rule.fingerprint for name, rule in plain.rules.items()} == {
        name: rule.fingerprint for name, rule in required.rules.items()
    }


def test_claimed_copy_answers_no_query_about_its_source() -> None:
    """Several users may claim one address: the copy shows one of them."""
    loaded = from_dict(
        {
            "table": {"key": ["PK", "SK"]},
            "entities": {
                "User": {"key": {"PK": "USER#{userId}", "SK": "PROFILE"}, "required": ["mail"]},
                "ByMail": {"key": {"PK": "MAIL#{mail}", "SK": "USER"}},
            },
            "projections": {"byMail": {"from": "User", "copy": {"into": "ByMail", "attributes": ["userId"]}}},
            "queries": {
                "users": {"find": "User", "by": ["mail"], "attributes": ["userId"]},
                "copy": {"get": "ByMail", "by": ["mail"]},
            },
        }
    )
    verdicts = {name: plan(loaded.program.model, query).verdict for name, query in loaded.queries.items()}
    assert verdicts == {"users": "none", "copy": "one"}


SHARING = {
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
    rules = from_dict(SHARING)
    planned = plan(rules.program.model, rules.queries[name])
    found = (planned.verdict, planned.others, "resource has no #" in planned.assumes)
    assert found == (verdict, others, assumed)
