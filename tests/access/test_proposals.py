"""What a proposal adds answers the query exactly, as reading all items does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from random_tables import fitting_query, query, rules

from projections.api import from_dict, load
from projections.api import loads as from_text
from projections.errors import RulesError
from projections.inspect.access_patterns import access_patterns
from projections.language.access.plan import queries_of, query_form
from projections.language.access.planner import plan
from projections.language.access.proposals import EXACT, file_data, merge, proposal
from projections.language.files import SHIPPED
from projections.language.loader import loads
from projections.language.review import review_text
from projections.testing.counterexamples import refusal
from projections.testing.scenario import Scenario
from tests.yaml_text import yaml_data


@pytest.mark.parametrize("seed", range(1000, 1006))
def test_pasted_proposals_answer_the_query_as_reading_all_items_does(seed: int, tally: Counter[str]) -> None:
    proposed(seed, tally)


def proposed(seed: int, tally: Counter[str]) -> None:
    random = Random(seed)
    data = rules(random)
    asked = {f"q{number}": random.choice([query, fitting_query])(random, data) for number in range(5)}
    try:
        from_dict(data)
    except RulesError:
        return
    models = loads(json.dumps({**data, "queries": asked}))
    document, queries = models.completed(), queries_of(models)
    for name, one in queries.items():
        before = plan(document, one)
        found = proposal(document, one, before, queries.values())
        if before.verdict in EXACT:
            assert found is None
            continue
        tally["proposed" if found is not None else "none known"] += 1
        if found is None:
            continue
        pasted = merge({**data, "queries": {name: asked[name]}}, yaml_data(found.text))
        changed = loads(json.dumps(pasted))
        planned = plan(changed.completed(), queries_of(changed)[name])
        assert planned.verdict in EXACT
        assert planned.requests == found.plan.requests
        assert not refusal(document, one, found.text)
        assert not _complaints(pasted) - _complaints(data)


@pytest.mark.parametrize("file", sorted(SHIPPED.glob("*.yaml")), ids=lambda file: file.stem)
def test_what_is_proposed_without_one_rule_of_a_bundled_file_passes_its_test(file: Path) -> None:
    rules = load(file)
    data = {**file_data(rules.program.model), "queries": {name: query_form(one) for name, one in rules.queries.items()}}
    for name in [name for name, rule in data["projections"].items() if "index" in rule]:
        less = {**data, "projections": {other: rule for other, rule in data["projections"].items() if other != name}}
        with suppress(RulesError):  # another rule reads what this one writes
            changed = from_dict(less)
            for found in access_patterns(changed.program.model, changed.queries):
                assert not found.proposal or not refusal(changed.program.model, found.query, found.proposal.text)


RANKED = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK]}}
entities:
  Proposal: {key: {PK: "PI#{pi}", SK: "PROPOSAL#{id}"}}
  Copy: {key: {PK: "COPY#{id}", SK: INFO}}
  Board: {key: {PK: "BOARD#{semester}", SK: BOARD}}
projections:
  copies: {from: Proposal, copy: {into: Copy, attributes: all}}
  ranks: {from: Proposal, rank: {into: Board, by: score, digits: 4}}
queries:
  best: {find: Proposal, by: [semester], order: score desc}
"""
SCORES = [{"PK": "PI#v", "SK": f"PROPOSAL#{n}", "semester": "s", "score": n} for n in (9, 100, 88)]


def offered_for_best(text: str) -> tuple[Any, str]:
    """Return the access pattern of `best`, and the rules with what is offered for it."""
    rules = from_text(text)
    (found,) = access_patterns(rules.program.model, rules.queries)
    assert found.proposal is not None
    data = merge(yaml_data(text), yaml_data(found.proposal.text))
    return found, json.dumps(data)


def test_a_proposal_pads_what_a_rule_ranks() -> None:
    found, pasted = offered_for_best(RANKED)
    assert json.loads(pasted)["projections"]["bestCopy"]["bind"] == {"score": "{score|pad(10)}"}
    assert found.proposal.unused.startswith("GSI1 is not used: `all` also copies GSI1PK and GSI1SK")
    rules = from_text(pasted)
    assert [one.plan.verdict for one in access_patterns(rules.program.model, rules.queries)] == ["one"]
    assert not [one for one in review_text(pasted).findings if one.code == "unpadded-number"]
    answered = Scenario(rules).given(*SCORES).query("best", semester="s")
    assert [item["score"] for item in answered] == [100, 88, 9]


@pytest.mark.parametrize("pipe", ["pad(5)", "invert(10)"])
def test_a_copy_under_padded_numbers_answers_the_query_with_bounds(pipe: str) -> None:
    _, pasted = offered_for_best(RANKED.replace("order:", "range: score, order:"))
    rules = from_text(pasted.replace("pad(10)", pipe))
    asked = Scenario(rules).given(*SCORES)
    assert [item["score"] for item in asked.query("best", semester="s", score=(10, 100))] == [100, 88]
    assert [item["score"] for item in asked.query("best", semester="s", score={"to": 88})] == [88, 9]


def test_a_copy_under_numbers_that_are_not_padded_does_not_sort_by_them() -> None:
    _, pasted = offered_for_best(RANKED)
    data = json.loads(pasted)
    del data["projections"]["bestCopy"]["bind"]
    rules = from_text(json.dumps(data))
    (found,) = access_patterns(rules.program.model, rules.queries)
    assert found.plan.verdict == "none"
    assert "score is a number (rule ranks ranks it), and as text 10 sorts before 9" in found.plan.reason


def test_a_proposal_for_an_attribute_of_unknown_type_says_that_it_sorts_as_text() -> None:
    found, _ = offered_for_best(
        RANKED.replace("  ranks: {from: Proposal, rank: {into: Board, by: score, digits: 4}}\n", "")
    )
    assert "score sorts as text; if it is a number, write {score|pad(10)}" in found.proposal.sentence


def test_a_summary_shows_that_an_attribute_of_unknown_type_sorts_as_text() -> None:
    text = """
    table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK], GSI2: [GSI2PK, GSI2SK]}}
    entities: {E: {key: {PK: "E#{id}", SK: E}, required: [level, joinedAt]}}
    projections:
      level: {from: E, index: {GSI1PK: ALL, GSI1SK: "{level}"}}
      joined: {from: E, index: {GSI2PK: ALL, GSI2SK: "{joinedAt}"}}
    queries:
      levels: {find: E, order: level}
      joined: {find: E, order: joinedAt}
      one: {get: E, by: [id]}
    """
    rules = from_text(text)
    words = [one.words for one in access_patterns(rules.program.model, rules.queries)]
    assert words == ["one request, sorted as text", "one request", "one request"]


def test_a_proposal_of_months_reads_the_time_as_other_rules_do() -> None:
    text = """
    table: {key: [PK, SK]}
    entities:
      Sale: {key: {PK: "SALE#{id}", SK: SALE}, required: [soldAt]}
      Day: {key: {PK: "DAY#{day}", SK: DAY}, derived: true}
    projections:
      days: {from: Sale, bind: {day: "{soldAt|date(%Y-%m-%d, from=%Y%m%d)}"}, aggregate: {into: Day, set: {n: count}}}
    queries:
      sales: {find: Sale, range: soldAt}
    """
    rules = from_text(text)
    (found,) = access_patterns(rules.program.model, rules.queries)
    assert found.proposal is not None
    assert "SALE#{soldAt|date(%Y-%m, from=%Y%m%d)}" in found.proposal.text


def _complaints(data: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the errors and warnings of `check`, without those about queries."""
    rest = {name: part for name, part in data.items() if name != "queries"}
    return {(one.code, one.path) for one in review_text(json.dumps(rest)).findings if one.severity != "note"}


@pytest.fixture(scope="module")
def tally() -> Counter[str]:
    return Counter()


@pytest.mark.deep
def test_most_random_queries_have_a_proposal(tally: Counter[str]) -> None:
    for seed in range(20):
        proposed(seed, tally)
    assert tally["proposed"] >= 2 * tally["none known"]
