"""Random tables on DynamoDB Local: ClientReader returns the items, the order and the pages that StoreReader does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import boto3
import pytest
from generated import CREDENTIALS, table_of
from random_tables import NOW, fitting_query, items, parameters, query, rules, variables_of

from projections.access.answers import Answer, ClientReader, Reader, StoreReader, answer_to
from projections.api import loads
from projections.language.access.planner import plan
from projections.stores.dynamodb import DynamoDBStore
from projections.testing.scenario import Scenario

QUERIES = 20


@pytest.mark.parametrize("seed", range(5))
def test_dynamodb_local_returns_what_memory_does(seed: int, dynamodb_local_url: str) -> None:
    tally: Counter[str] = Counter()
    compared(seed, dynamodb_local_url, tally)
    assert tally["answers"] >= 1
    assert tally["requests"] >= tally["answers"]


def compared(seed: int, url: str, tally: Counter[str]) -> None:
    random = Random(seed)
    document = rules(random)
    del document["table"]["indexes"]["GSI4"]  # keys of several attributes, which DynamoDB Local does not create
    queries = {f"q{number}": random.choice([query, fitting_query])(random, document) for number in range(QUERIES)}
    loaded = loads(json.dumps({**document, "queries": queries}))
    program = loaded.program
    scenario = Scenario(loaded)
    table = items(random, document, 40)
    scenario.given(*table)
    schema = program.tables["main"]
    name = table_of(url, schema, scenario.store.items("main")).name
    client = boto3.client("dynamodb", endpoint_url=url, **CREDENTIALS)
    requests: list[Mapping[str, Any]] = []
    on_dynamodb = ClientReader(DynamoDBStore(client, {"main": name}, {"main": schema}), requests.append)
    variables = variables_of(program)
    by_uid = {item["uid"]: item for item in table}
    for number, asked in queries.items():
        planned = plan(program.model, loaded.queries[number])
        if not planned.requests:
            continue
        given = parameters(random, asked, table, variables)
        order = asked.get("order", "asc").split()[0]
        size = asked.get("limit", 3)

        def answer(reader: Reader, planned: Any = planned, given: Any = given) -> Answer:
            return answer_to(program, planned, given, reader, now=NOW)

        def sorted_by(found: list[Any], order: str = order) -> list[Any]:
            return [variables(by_uid[item["uid"]], order) for item in found]

        found, expected = list(answer(on_dynamodb)), list(answer(StoreReader(scenario.store)))
        context = (planned, asked, given)
        assert Counter(map(_text, found)) == Counter(map(_text, expected)), context
        if order not in ("asc", "desc"):
            assert sorted_by(found) == sorted_by(expected), context  # items with equal sort keys have no order
        pages = pages_of(answer, on_dynamodb, size)
        assert [item for page in pages for item in page] == found, context
        assert [len(page) for page in pages] == [
            len(page) for page in pages_of(answer, StoreReader(scenario.store), size)
        ]
        tally["answers"] += bool(found)
        tally["pages"] += len(pages) > 1
        index = planned.requests[0].index
        tally["partial"] += bool(found) and index is not None and schema.projected_names(index) is not None
    tally["requests"] += len(requests)


def pages_of(answer: Any, reader: Reader, size: int) -> list[list[dict[str, Any]]]:
    """Return all pages of an answer, each read by an answer of its own."""
    pages, token = [], None
    while True:
        page = answer(reader).page(size, token)
        pages.append(page.items)
        if (token := page.token) is None:
            return pages


def _text(item: Mapping[str, Any]) -> str:
    return json.dumps(item, sort_keys=True, default=str)
