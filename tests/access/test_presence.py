"""`required` attributes: the planner relies on them, and rules do not change with them."""

from __future__ import annotations

from typing import Any

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
