"""Internal errors: an exception that no code raises on purpose rejects its record as such, and the stream goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from projections.engine import processor
from projections.engine.ledger import Ledger
from projections.engine.publishing import Publisher
from projections.language.program import Program
from tests.engine.world import World

RULE = "  likes: {from: Like, aggregate: {into: Post, set: {likes: count}}}\n"


def broken(function: Callable[..., Any], concerned: Callable[[Any], str]) -> Callable[..., Any]:
    """Return the function, which fails where its second argument has to do with post 2."""

    def failing(*arguments: Any, **options: Any) -> Any:
        if "2" in concerned(arguments[1]):
            raise KeyError("a bug")
        return function(*arguments, **options)

    return failing


def sources(changes: Iterable[Any]) -> str:
    return " ".join(change.source for change in changes).replace("USER#1", "").replace("USER#3", "")


def targets(some: Iterable[tuple[str, str]]) -> str:
    return " ".join(target for _, target in some)


@pytest.fixture(params=["plan", "commit", "publish"])
def stage(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    match request.param:
        case "plan":
            key = lambda item: item.key.sort  # noqa: E731
            monkeypatch.setattr(Program, "contributions", broken(Program.contributions, key))
        case "commit":
            monkeypatch.setattr(Ledger, "commit", broken(Ledger.commit, sources))
        case "publish":
            monkeypatch.setattr(Publisher, "publish", broken(Publisher.publish, targets))
    return str(request.param)


def world_with_posts() -> World:
    world = World(RULE)
    for post in (1, 2, 3):
        world.put(f"POST#{post}", "METADATA")
    world.settle()
    return world


def test_the_record_is_rejected_as_an_internal_error_and_the_others_are_applied(stage: str) -> None:
    world = world_with_posts()
    for post in (1, 2, 3):
        world.like(1, post)
    outcome = world.deliver()
    assert outcome.failed is None
    assert outcome.counts["internal"] == outcome.counts["rejected"] == len(outcome.rejected) == 1
    (one,) = world.rejected
    assert (one.fault, one.key, one.table, one.event) == ("internal", "main|USER#1|LIKE#2", "main", "INSERT")
    assert one.reason.startswith("internal error of projections, the item is not the cause: KeyError: 'a bug'. ")
    assert outcome.internal == ()
    world.settle()
    assert [world.post(post).get("likes") for post in (1, 3)] == [1, 1]


def test_the_trace_has_places_in_the_code_and_no_values(stage: str) -> None:
    world = world_with_posts()
    world.like(1, 2)
    world.deliver()
    (one,) = world.rejected
    assert "in _process_singly" in one.trace
    assert one.trace.endswith("KeyError")
    assert "'a bug'" not in one.trace


def test_the_redrive_of_such_a_record_by_a_corrected_version_applies_it(
    stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = world_with_posts()
    world.like(1, 2)
    records = world.records()
    world.deliver()
    assert world.post(2)["likes"] == 0
    monkeypatch.undo()
    world.deliver(records)
    assert world.post(2)["likes"] == 1


def test_an_error_of_the_whole_batch_only_is_counted_and_reported_with_its_trace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with_posts()
    plan = processor.plan

    def failing(program: Program, records: list[Any], *arguments: Any) -> Any:
        if len(records) > 1:
            raise KeyError("a bug")
        return plan(program, records, *arguments)

    monkeypatch.setattr(processor, "plan", failing)
    world.like(1, 1)
    world.like(1, 3)
    outcome = world.deliver()
    assert (outcome.failed, outcome.rejected, outcome.counts["internal"]) == (None, (), 1)
    (trace,) = outcome.internal
    assert trace.endswith("KeyError")
    assert [world.post(post)["likes"] for post in (1, 3)] == [1, 1]
