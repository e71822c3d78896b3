"""Wrong designs from experience: each is refused with the reason, and with an addition that answers the query."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from projections.language.access.plan import queries_of
from projections.language.access.planner import plan
from projections.language.access.proposals import EXACT, merge, proposal
from projections.language.loader import loads
from projections.language.review import review_text
from projections.testing.counterexamples import refusal
from tests.yaml_text import yaml_data

FILES = sorted((Path(__file__).parent / "wrong_designs").glob("*.yaml"))
DESIGNS: dict[str, dict[str, Any]] = {path.stem: yaml_data(path.read_text()) for path in FILES}


def test_there_are_twenty_of_them() -> None:
    assert len(DESIGNS) >= 20


@pytest.mark.parametrize("name", DESIGNS)
def test_a_wrong_design_is_refused_with_the_reason_and_the_right_proposal(name: str) -> None:
    design = DESIGNS[name]
    rules, asked = design["rules"], design["query"]
    loaded = loads(json.dumps(rules))
    document, queries = loaded.completed(), queries_of(loaded)
    planned = plan(document, queries[asked])
    assert planned.verdict == design["verdict"], planned
    assert design["reason"] in planned.reason

    (finding,) = [one for one in review_text(json.dumps(rules)).findings if one.path.startswith(f"queries.{asked}")]
    assert (finding.code, finding.severity) == (design["finding"], "warning")
    assert design.get("message", design["reason"]) in finding.reason

    offered = proposal(document, queries[asked], planned, queries.values())
    assert offered is not None
    assert finding.paste == offered.text
    assert refusal(document, queries[asked], offered.text) == ""
    assert yaml_data(offered.text) == design["proposal"]

    pasted = {**rules, **merge(rules, {**design["proposal"], "queries": {}})}
    pasted["queries"] = {**rules["queries"], **design["proposal"].get("queries", {})}
    changed = loads(json.dumps(pasted))
    for query in queries_of(changed).values():
        before = plan(document, queries[query.name]).verdict
        assert plan(changed.completed(), query).verdict in (EXACT if query.name == asked else (*EXACT, before))
    left = [one for one in review_text(json.dumps(pasted)).findings if one.path.startswith(f"queries.{asked}")]
    assert {one.severity for one in left} <= {"note"}
