"""What a proposal adds answers the query exactly, as reading all items does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from random_tables import fitting_query, items, parameters, query, rules
from ruamel.yaml import YAML
from test_random import check

from projections.api import from_dict
from projections.errors import RulesError
from projections.language.access.planner import plan
from projections.language.access.proposals import EXACT, proposal
from projections.language.access.questions import queries_of
from projections.language.keys import ItemKey
from projections.language.loader import loads
from projections.language.review import reviewed
from projections.language.rewriting import merged
from projections.language.templates import Template
from projections.local.items import wire_item
from projections.testing.scenario import Scenario

SEEDS = range(1000, 1040)
QUERIES = 5


@pytest.mark.parametrize("seed", SEEDS)
def test_pasted_proposals_answer_the_query_as_reading_all_items_does(seed: int, tally: Counter[str]) -> None:
    proposed(seed, tally)


def proposed(seed: int, tally: Counter[str]) -> None:
    random = Random(seed)
    data = rules(random)
    asked = {f"q{number}": random.choice([query, fitting_query])(random, data) for number in range(QUERIES)}
    try:
        from_dict(data)
    except RulesError:
        return
    models = loads(json.dumps({**data, "queries": asked}))
    document, queries = models.typed(), queries_of(models)
    table = items(random, data, 40)
    for name, one in queries.items():
        before = plan(document, one)
        found = proposal(document, one, before, queries.values())
        if before.verdict in EXACT:
            assert found is None
            continue
        tally["proposed" if found is not None else "none known"] += 1
        if found is None:
            continue
        pasted = merged({**data, "queries": {name: asked[name]}}, YAML(typ="safe").load(found.text))
        changed = loads(json.dumps(pasted))
        planned = plan(changed.typed(), queries_of(changed)[name])
        assert planned.verdict in EXACT
        assert planned.requests == found.plan.requests
        assert not _complaints(pasted) - _complaints(data)
        holds(random, pasted, planned, deepcopy(table), tally)


def holds(random: Random, pasted: Mapping[str, Any], planned: Any, table: Any, tally: Counter[str]) -> None:
    """Run the plan on a table that the changed rules maintain, and compare it with reading all items.

    The items have what the changed rules declare that the application writes.
    """
    (asked,) = pasted["queries"].values()
    scenario = Scenario(from_dict({name: part for name, part in pasted.items() if name != "queries"}))
    declared = {name: pasted["entities"][name].get("index_key", {}) for name in ("E", "F")}
    for item in table:
        found = scenario.program.recognise(ItemKey("main", item["PK"], item["SK"]), wire_item(item, ""))
        assert found is not None
        values = {name: {"S": value} for name, value in found.variables.items()}
        for name, text in declared[item["kind"]].items():
            item[name] = Template.parse(text).render(values.get)
    scenario.given(*table)

    def variables(item: Mapping[str, Any], name: str) -> Any:
        if name in item:
            return item[name]
        found = scenario.program.recognise(ItemKey("main", item["PK"], item["SK"]), wire_item(item, ""))
        return None if found is None else found.variables.get(name)

    check(planned, asked, parameters(random, asked, table, variables), table, variables, scenario, tally)


def _complaints(data: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the errors and warnings of `check`, without those about queries."""
    rest = {name: part for name, part in data.items() if name != "queries"}
    return {(one.code, one.path) for one in reviewed(json.dumps(rest)).findings if one.severity != "note"}


@pytest.fixture(scope="module")
def tally() -> Counter[str]:
    return Counter()


@pytest.mark.deep
def test_most_random_queries_have_a_proposal(tally: Counter[str]) -> None:
    for seed in range(20):
        proposed(seed, tally)
    assert tally["proposed"] >= 2 * tally["none known"]
    assert tally["answers that are not empty"] >= 20
