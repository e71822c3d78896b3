"""One item never stops the others: an unexpected error that it causes becomes its rejection, or a finding that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from projections.engine import copier, copies, embeds, indexes, refresh
from projections.engine.rejections import Rejected
from projections.language.program import Program
from projections.operations import audit
from projections.operations.audit import AuditHandler
from projections.operations.verify import examine, verify_scope
from projections.testing.oracle import Oracle
from tests.operations.backfill.stage import ALL, Stage, deadline
from tests.operations.verify_scene import verified

POISON = {"USER#77": "LIKE#1", "POST#77": "METADATA"}


def _breaking(function: Callable[..., Any], item_of: Callable[..., Any]) -> Callable[..., Any]:
    def broken(*arguments: Any, **options: Any) -> Any:
        item = item_of(*arguments)
        if item is not None and item.key.partition in POISON:
            raise KeyError("unexpected")
        return function(*arguments, **options)

    return broken


@pytest.fixture(params=["contributions", "copies", "indexes", "children"])
def broken(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Rules that fail on two items, in one of their roles."""
    second = lambda rule, item, *_: item  # noqa: E731
    match request.param:
        case "contributions":
            monkeypatch.setattr(Program, "contributions", _breaking(Program.contributions, second))
        case "copies":
            for module in (copies, copier, refresh, examine, verify_scope):
                monkeypatch.setattr(module, "copies_of", _breaking(copies.copies_of, second))
        case "indexes":
            original = indexes.index_attributes
            for module in (indexes, examine):
                monkeypatch.setattr(module, "index_attributes", _breaking(original, second))
        case "children":
            original = embeds.reference_of
            for module in (embeds, examine):
                monkeypatch.setattr(module, "reference_of", _breaking(original, second))
    return str(request.param)


def stage_with_poison() -> Stage:
    stage = Stage(ALL, filled=False)
    stage.fill()
    stage.put("POST#77", "METADATA", owner="u77", tags=["z"])
    stage.like(77, 1, stars=1)
    stage.lose()
    return stage


def unharmed(stage: Stage) -> None:
    """Everything that has nothing to do with the two items is right."""
    found = Oracle(stage.program.document).compare({"main": stage.store.items("main")})
    wrong = {difference.key.split("|")[1] for difference in found}
    concerned = {"USER#77", "POST#77", "POST#1", "SEEN#77#1", "TAG#z"}
    assert wrong <= concerned, found


def test_a_backfill_page_rejects_the_item_and_does_the_others(broken: str) -> None:
    stage = stage_with_poison()
    rejected: list[Rejected] = []
    backfill = stage.backfill(page=20, quarantine=rejected.extend)
    run = stage.apply(backfill, segments=1, allow_delete=True)
    while not run.done:
        while left := [segment for segment in backfill.segments(run) if not segment.done]:
            assert backfill.page(run, left[0], deadline()).page.failed == {}
        run, _ = backfill.forward(run)
    keys = {one.key for one in rejected}
    assert keys <= {"main|USER#77|LIKE#1", "main|POST#77|METADATA"}
    assert keys
    assert all("KeyError" in one.reason for one in rejected)
    stage.position = len(stage.store.stream("main"))
    unharmed(stage)


def test_verify_names_the_item_and_compares_the_others(broken: str) -> None:
    stage = stage_with_poison()
    names = [f"{name}.1" for name in stage.program.rules]
    stage.registry().fill(names)
    stage.registry().promote(names)
    with verified(stage) as one:
        found = list(one.drifts())
        assert list(one.busy()) == []
    errors = [drift for drift in found if drift.kind == "error"]
    assert {drift.target for drift in errors} <= {"main|USER#77|LIKE#1", "main|POST#77|METADATA", "main|SEEN#77#1|X"}
    assert errors
    assert all("KeyError" in drift.actual for drift in errors)
    others = {drift.rule for drift in found if drift.kind != "error"}
    assert len(others) >= 4, "nothing was projected, and the others are reported as failed"


def test_a_sample_and_the_audit_name_the_item(broken: str) -> None:
    stage = stage_with_poison()
    names = [f"{name}.1" for name in stage.program.rules]
    stage.registry().fill(names)
    stage.registry().promote(names)
    with verified(stage, begin=lambda one: one.sample(1.0)) as one:
        assert any(drift.kind == "error" for drift in one.drifts())
    seen: list[audit.Audited] = []
    handler = AuditHandler(stage.program, stage.store, sleep=lambda seconds: None, observe=seen.append)
    for _ in range(2):
        handler.handle({}, lambda: 900.0)
    assert any(drift.kind == "error" for drift in seen[-1].drifts)
