"""Generated modules, and ClientReader, on random rules and tables: the items, order and pages that StoreReader gives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

import boto3
import pytest
from generated import CREDENTIALS, module_of, simple, table_of, without
from moto import mock_aws
from random_tables import NOW, fitting_query, items, parameters, query, rules, variables_of

from projections.access.answers import ClientReader, StoreReader, answer_to
from projections.api import loads
from projections.errors import RulesError
from projections.inspect.client import client_of
from projections.language.access.planner import plan
from projections.language.ruleset import RuleSet
from projections.stores.dynamodb import DynamoDBStore
from projections.testing.scenario import Scenario

SEVERAL = "GSI4"
"""The index with keys of several attributes, which DynamoDB Local does not create."""


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(6, 40))
def test_many_generated_functions_return_what_answers_do(seed: int, dynamodb_local_url: str) -> None:
    compared(seed, dynamodb_local_url, Counter())


@pytest.mark.parametrize("seed", range(2))
def test_generated_functions_read_indexes_of_several_attributes_on_moto(seed: int) -> None:
    with mock_aws():
        compared(seed, None, Counter(), using=SEVERAL)


def test_generated_functions_return_what_answers_do_on_dynamodb_local(dynamodb_local_url: str) -> None:
    tally: Counter[str] = Counter()
    for seed in range(3):
        compared(seed, dynamodb_local_url, tally)
    assert tally["answers"] >= 6
    assert tally["pages"] >= 4


@pytest.mark.deep
@pytest.mark.parametrize(
    ("declared", "times", "bounds"),
    [
        (
            "",
            ["2026-01-31T23:30:00-05:00", "2026-02-01T00:30:00-05:00", "2026-02-28T23:30:00.5Z"],
            [("2026-02", "2026-02"), ("2026-01-31", "2026"), ("2026-02-28T23", "2026-02-28T23:30:00")],
        ),
        ("", ["2026-01-31T23:30:00Z", "2026-02-28T23:30:00.5Z"], [("2025", "2026")]),
        (", from=%Y%m%d", ["20260131", "20260201", "20260301"], [("20260131", "20260201"), ("20260201", "20260301")]),
        (", Asia/Tokyo, from=%Y.%m.%d", ["2026.01.31", "2026.02.28"], [("2026.01.01", "2026.02.27")]),
        (", from=%G-W%V", ["2026-W01", "2026-W52"], [("2026-W01", "2026-W10"), ("2026-W10", "2026-W53")]),
        (", from=seconds", ["0000000001", "1767225600"], [("0000000001", "1767225600")]),
    ],
)
def test_generated_functions_read_times_as_rules_do(
    declared: str, times: list[str], bounds: list[tuple[str, str]]
) -> None:
    document = {
        "table": {"key": ["PK", "SK"], "indexes": {"GSI1": ["GSI1PK", "GSI1SK"]}},
        "entities": {"E": {"key": {"PK": "E#{id}", "SK": "E"}, "required": ["at"]}},
        "projections": {
            "e": {"from": "E", "index": {"GSI1PK": f"{{at|date(%Y-%m{declared})}}", "GSI1SK": "{at}#{id}"}}
        },
        "queries": {"events": {"find": "E", "range": "at", "order": "at"}},
    }
    loaded = loads(json.dumps(document))
    scenario = Scenario(loaded).given(*({"PK": f"E#{at}", "SK": "E", "at": at} for at in times))
    assert not scenario.quarantined
    planned = plan(loaded.program.model, loaded.queries["events"])
    module = module_of(client_of(loaded, "rules.yaml").text)
    with mock_aws():
        table = table_of(None, loaded.program.tables["main"], scenario._store.items("main"))
        for low, high in bounds:
            given = {"at": (low, high)}
            expected = [
                item["at"] for item in answer_to(scenario.program, planned, given, StoreReader(scenario._store))
            ]
            assert [item["at"] for item in module.events(table, at_from=low, at_to=high)] == expected
            assert expected or "-W" in low


@dataclass
class Case:
    """A query on a table, with what it must return: `read` returns the answer by ClientReader.

    `function` is the name of its function in Python, `size` the number of items of a page.
    """

    rules: RuleSet
    function: str
    table: Any
    given: Mapping[str, Any]
    expected: Sequence[Any]
    read: Callable[[], Any]
    order: str
    size: int

    def compare(self, items: Sequence[Any], pages: Sequence[Sequence[Any]]) -> None:
        """Compare all items that were read, and the pages of them."""
        context = (self.function, self.given)
        assert Counter(map(_text, items)) == Counter(map(_text, self.expected)), context
        if self.order:  # items with equal sort keys have no order
            orders = [[item.get(self.order) for item in each] for each in (items, self.expected)]
            assert orders[0] == orders[1], context
        assert [item for page in pages for item in page] == items, context
        assert all(len(page) == self.size for page in pages[:-1]), context
        assert len(pages) == max(1, -(-len(items) // self.size)), context


def cases(seed: int, url: str | None, using: str | None = None) -> Iterator[Case]:
    """Yield random queries on a random table, except those that no request answers."""
    random = Random(seed)
    document = rules(random)
    queries = {f"q{number}": random.choice([query, fitting_query])(random, document) for number in range(12)}
    if using is not None:
        queries = {"several": {"find": "E", "by": ["s", "m"], "attributes": ["uid"]}}
        queries["ordered"] = {**queries["several"], "order": "t desc", "limit": 2}
        document["entities"]["E"]["required"] = [one for one in ("s", "m", "t", "n") if one in _free(document)]
        queries = {name: {**asked, "using": using} for name, asked in queries.items()}
    try:
        loaded = loads(json.dumps({**document, "queries": queries}))
    except RulesError:
        return
    scenario = Scenario(loaded)
    table = items(random, document, 40)
    scenario.given(*table)
    client = client_of(loaded, "rules.yaml")
    schema = loaded.program.tables["main"]
    made = table_of(url, without(schema, SEVERAL) if using is None else schema, scenario._store.items("main"))
    for name, asked in queries.items():
        planned = plan(loaded.program.model, loaded.queries[name])
        assert (name in client.functions) == (planned.verdict not in ("none", "incomplete"))
        if name not in client.functions or (using is None and SEVERAL in {one.index for one in planned.requests}):
            continue
        given = parameters(random, asked, table, variables_of(loaded.program))
        connection = boto3.client("dynamodb", endpoint_url=made.meta.client.meta.endpoint_url, **CREDENTIALS)
        reader = ClientReader(DynamoDBStore(connection, {"main": made.name}, loaded.program.tables))
        answer = partial(answer_to, scenario.program, planned, given, now=NOW)
        order = asked.get("order", "").split()[:1]
        ordered = "attributes" not in asked and order not in ([], ["asc"], ["desc"])
        order_by, size = order[0] if ordered else "", asked.get("limit", 3)
        expected = [*map(simple, answer(StoreReader(scenario._store)))]
        read = partial(answer, reader)
        yield Case(loaded, client.functions[name], made, given, expected, read, order_by, size)


def compared(seed: int, url: str | None, tally: Counter[str], using: str | None = None) -> None:
    module = None
    for case in cases(seed, url, using):
        module = module or module_of(client_of(case.rules, "rules.yaml").text)
        arguments = {name.replace(".", "_"): value for name, value in case.given.items()}
        for read in (partial(getattr(module, case.function), case.table, **arguments), case.read):
            pages, token = [], None
            while True:
                page = read().page(case.size, token)
                pages.append([simple(item) for item in page.items])
                if (token := page.token) is None:
                    break
            found = [simple(item) for item in read()]
            case.compare(found, pages)
        tally["answers"] += bool(found)
        tally["pages"] += len(pages) > 1


def _free(document: Mapping[str, Any]) -> list[str]:
    """Return the attributes that are not variables of the key of E."""
    key = " ".join(document["entities"]["E"]["key"].values())
    return [name for name in "smtn" if "{" + name + "}" not in key]


def _text(item: Mapping[str, Any]) -> str:
    return json.dumps(item, sort_keys=True)
