"""What the planner claims, compared with reading the whole table: the same items, the same order, the same pages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

from random_tables import NOW, BruteForce, fitting_query, items, parameters, query, rules, variables_of

from projections.access.answers import StoreReader, answer_to
from projections.api import from_dict
from projections.errors import RulesError
from projections.language.access.plan import Plan, query_of
from projections.language.access.planner import plan
from projections.language.loader import loads
from projections.testing.scenario import Scenario

QUERIES = 12


def compared(seed: int, tally: Counter[str]) -> None:
    random = Random(seed)
    document = rules(random)
    queries = {f"q{number}": random.choice([query, fitting_query])(random, document) for number in range(QUERIES)}
    try:
        loaded = from_dict(document)
    except RulesError:
        return
    scenario = Scenario(loaded)
    table = items(random, document, 40)
    scenario.given(*table)
    program = loaded.program

    variables = variables_of(program)
    import json

    models = loads(json.dumps({**document, "queries": queries})).queries
    for name, asked in queries.items():
        planned = plan(program.model, query_of(name, models[name]))
        tally[planned.verdict] += 1
        if planned.requests:
            given = parameters(random, asked, table, variables)
            check(planned, asked, given, table, variables, scenario, tally)


def check(
    planned: Plan,
    asked: Mapping[str, Any],
    given: Mapping[str, Any],
    table: Any,
    variables: Any,
    scenario: Scenario,
    tally: Counter[str],
) -> None:
    reader = StoreReader(scenario.store)
    answer = answer_to(scenario.program, planned, given, reader, now=NOW)
    found = list(answer)
    expected = BruteForce(table, variables).answer(asked, given)
    by_uid = {item["uid"]: item for item in table}
    context = (planned, asked, given)
    assert Counter(item["uid"] for item in found) == Counter(item["uid"] for item in expected), context
    if expected:
        tally["answers that are not empty"] += 1
    alone = not any(" items lack " in text for text in planned.assumes)
    if planned.verdict in ("one", "several") and alone:
        assert answer.scanned == len(found), context
    order = asked.get("order", "").split()
    if order and order[0] not in ("asc", "desc"):
        values = [variables(by_uid[item["uid"]], order[0]) for item in found]
        assert values == [variables(item, order[0]) for item in expected], context
    pages: list[list[Any]] = []
    token: str | None = None
    size = asked.get("limit", 3)
    while True:
        page = answer_to(scenario.program, planned, given, reader, now=NOW).page(size, token)
        pages.append([item["uid"] for item in page.items])
        token = page.token
        if token is None:
            break
    assert [uid for one in pages for uid in one] == [item["uid"] for item in found], context
    assert all(len(one) == size for one in pages[:-1]), context


def test_planned_requests_return_what_reading_all_items_does() -> None:
    tally = Counter[str]()
    for seed in range(20):
        compared(seed, tally)
    assert tally["one"] >= 20
    assert tally["several"] >= 12
    assert tally["filtered"] >= 20
    assert tally["incomplete"] >= 20
    assert tally["answers that are not empty"] >= 50
