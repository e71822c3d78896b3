"""Every pattern of the catalogue: its events end in the expected items, and each access pattern is one Query."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from typing import Any

import pytest
from catalogue import PATTERNS, Pattern
from scanned_tables import ScannedTables

from projections.access.answers import Answer, Reader, answer_to, reader_of
from projections.access.ranking import ranking_of
from projections.engine.processor import Processor
from projections.engine.store import Image
from projections.language.access.planner import plan
from projections.language.review import review
from projections.language.values import plain_item, plain_items
from projections.local.event_replay import MemoryTables, Replay, Tables, replay, schemas
from projections.testing.oracle import Oracle
from projections.testing.simulation.campaign import Campaign

NOW = datetime(2026, 4, 1, tzinfo=UTC)
"""After the sample events."""

HISTORIES = 3
"""Of each pattern; `make simulate` plays thousands."""

patterns = pytest.mark.parametrize("pattern", PATTERNS, ids=lambda pattern: pattern.name)


@pytest.fixture(params=["memory", pytest.param("DynamoDB Local", marks=pytest.mark.deep)])
def url(request: pytest.FixtureRequest) -> str | None:
    return None if request.param == "memory" else request.getfixturevalue("dynamodb_local_url")


def replayed(pattern: Pattern, tables: Tables, records: Sequence[Any] = (), **options: Any) -> Replay:
    records = records or pattern.records
    # The indexes of emulators do not lag.
    engine = lambda *given, **more: Processor(*given, **{**more, "sleep": lambda seconds: None})  # noqa: E731
    return replay(pattern.program, records, tables, engine=engine, **options)


def in_memory(pattern: Pattern) -> MemoryTables:
    return MemoryTables(schemas(pattern.program), pattern.records)


def plainly(pattern: Pattern, result: Replay) -> list[dict[str, Any]]:
    """Items without guards, in the order of their keys."""
    prefix = pattern.program.guard_prefix
    return [
        plain_item({name: value for name, value in image.items() if not name.startswith(prefix)})
        for _, image in sorted(result.after.items())
    ]


@patterns
def test_the_events_end_in_the_expected_items_and_every_query_is_answered_by_its_plan(
    pattern: Pattern, url: str | None
) -> None:
    with ExitStack() as stack:
        tables: Tables = in_memory(pattern)
        if url is not None:
            tables = stack.enter_context(ScannedTables(url, schemas(pattern.program)))
        result = replayed(pattern, tables)
        assert plainly(pattern, result) == pattern.case["items"]
        assert result.quarantined == result.failures == []
        assert {ask["query"] for ask in pattern.case["asks"]} == set(pattern.queries)
        for ask in pattern.case["asks"]:
            compare(pattern, reader_of(tables.store), ask, url is not None)
        ranks = pattern.case.get("ranks", [])
        assert {one["rule"] for one in ranks} == {
            name for name, rule in pattern.document.projections.items() if rule.kind == "rank"
        }
        for one in ranks:
            ranked = ranking_of(pattern.program, tables.store, one["rule"], one["board"]).rank(one["score"])
            assert (ranked.rank, ranked.total) == (one["rank"], one["total"]), one


def compare(pattern: Pattern, reader: Reader, ask: dict[str, Any], counted: bool) -> None:
    """Run a planned query: it returns these items in this order, and reads nothing else."""
    planned = plan(pattern.document, pattern.queries[ask["query"]])
    assert planned.verdict in ("one", "several"), planned
    answer = answer_to(pattern.program, planned, ask.get("with", {}), reader, now=NOW)
    found = list(answer)
    plain = plain_items(found)
    shown = [{name: item.get(name) for name in due} for item, due in zip(plain, ask["gives"], strict=False)]
    assert (shown, len(found)) == (ask["gives"], len(ask["gives"])), ask
    assert answer.scanned == len(found)
    assert answer.requests == len(answer.reads)
    if planned.verdict == "one":
        assert answer.requests == 1
    # A page of small items takes half a unit, or one unit if consistent; emulators charge nothing for an empty page.
    if counted:
        each = 1 if planned.query.consistent else 0.5
        assert each * bool(found) <= answer.units <= each * answer.requests


def pages(answer: Answer, limit: int) -> Iterator[list[dict[str, Any]]]:
    """Yield the items of each page, none but the last with fewer than `limit`."""
    page = answer.page(limit)
    while page.token is not None:
        assert len(page.items) == limit
        yield page.items
        page = answer.page(limit, page.token)
    yield page.items


@patterns
def test_an_oracle_that_shares_no_code_says_the_same(pattern: Pattern) -> None:
    tables = in_memory(pattern)
    replayed(pattern, tables)
    items = {table: tables.items(table) for table in pattern.program.tables}
    assert Oracle(pattern.program.document).compare(items, settled(pattern)) == []


def settled(pattern: Pattern) -> list[tuple[str, Image]]:
    """What expired, for each rule that keeps it."""
    expired = [one["dynamodb"]["OldImage"] for one in pattern.records if "userIdentity" in one]
    kept = [name for name, rule in pattern.program.document["projections"].items() if rule.get("expired") == "keep"]
    return [(name, image) for name in kept for image in expired]


@patterns
def test_one_by_one_or_delivered_twice_they_end_in_the_same(pattern: Pattern) -> None:
    for stepwise in (False, True):
        replay = replayed(pattern, in_memory(pattern), batch_size=1, stepwise=stepwise)
        assert plainly(pattern, replay) == pattern.case["items"]
    twice = replayed(pattern, in_memory(pattern), [*pattern.records, *pattern.records], batch_size=7)
    assert plainly(pattern, twice) == pattern.case["items"]


@patterns
def test_histories_with_every_fault_end_as_the_source_items_say(pattern: Pattern) -> None:
    report = Campaign(pattern.program.document).run(0, HISTORIES)
    assert [(failure.seed, failure.problems) for failure in report.failures] == []


@patterns
def test_its_rules_have_no_mistakes_and_no_warnings(pattern: Pattern) -> None:
    assert [one for one in review(pattern.rules).findings if one.severity != "note"] == []


@patterns
def test_every_rule_of_it_wrote_something_and_something_was_corrected_or_removed(pattern: Pattern) -> None:
    names = {name for image in replayed(pattern, in_memory(pattern)).after.values() for name in image}
    for name, rule in pattern.program.document["projections"].items():
        if "rank" in rule:
            marks: Iterable[str] = ()  # it writes only to the ledger, which `ranks` of the case reads
        elif "index" in rule:
            marks = rule["index"][0].keys() - {"where"}
        else:
            marks = rule["compute"]["set"] if "compute" in rule else [pattern.program.guard(name)]
        assert names.issuperset(marks), name
    assert {one["eventName"] for one in pattern.records} > {"INSERT"}
