"""An entry that holds targets to be published beside large contributions: these are published first, and the change fits."""

from __future__ import annotations

import random
from typing import Any

import pytest

from projections.engine.changes import Load, intermediate_goals
from projections.engine.store import ItemKey
from projections.errors import Transient
from projections.language import contribution
from projections.language.contribution import Contributions, canonical_text
from projections.stores.limits import ITEM_BYTES, LEVELS
from tests.engine.scene import Scene
from tests.operations.verify_scene import drifts

HEAD = """
table: {key: [PK, SK]}
entities:
  Doc: {key: {PK: "DOC#{id}", SK: D}}
  Tag: {key: {PK: "TAG#{tag}", SK: STATS}, derived: true}
projections:
"""
SHORT = "tags"
LONG = "tagsOfDocumentsAsTheyAreCounted"
NUMBER = 1100
KEY = ItemKey("main", "DOC#1", "D")


def scene(rule: str = SHORT) -> Scene:
    return Scene(
        f"  {rule}: {{from: Doc, each: {{tag: tags, most: 10000}}, aggregate: {{into: Tag, set: {{docs: count}}}}}}\n",
        HEAD,
    )


def tagged(w: Scene, prefix: str, length: int = 100) -> None:
    w.put("DOC#1", "D", tags=[f"{prefix}-{number:05}-{'x' * length}" for number in range(NUMBER)])


def shown(w: Scene) -> list[int]:
    items = [item["PK"]["S"] for item in w.store.items("main")]
    return [sum(f"TAG#{prefix}-" in key for key in items) for prefix in ("a", "b")]


@pytest.mark.deep
@pytest.mark.parametrize("rule", [SHORT, LONG])
@pytest.mark.parametrize("order", ["ab", "ba"])
def test_an_item_whose_targets_all_change_is_counted_in_one_delivery(rule: str, order: str) -> None:
    """Old contributions, new ones and the targets to be published are more than an item holds."""
    w = scene(rule)
    for prefix in order:
        tagged(w, prefix)
        w.settle()
    assert w.rejected == []
    assert shown(w) == ([0, NUMBER] if order == "ab" else [NUMBER, 0])
    entry = w.entry("DOC#1|D") or {}
    assert "recent" not in entry
    assert 2 * len(entry["contributions"]) + NUMBER * 120 > ITEM_BYTES


@pytest.mark.deep
def test_a_refresh_of_an_item_whose_targets_all_changed_fits() -> None:
    w = scene()
    tagged(w, "a")
    w.settle()
    tagged(w, "b")
    w.lose()
    refresher = w.refresh(KEY)
    w.settle()
    assert (refresher.failed, refresher.rejected) == ({}, {})
    assert shown(w) == [0, NUMBER]


@pytest.mark.deep
def test_a_throttled_table_fails_the_change_and_the_next_delivery_ends_it() -> None:
    w = scene()
    tagged(w, "a")
    w.settle()
    tagged(w, "b")
    records, original = w.records(), w.store.write

    def throttled(write: Any) -> None:
        if write.key.table == "main":
            raise Transient("throttled")
        original(write)

    w.store.write = throttled  # type: ignore[method-assign]
    ends = iter([900.0] * 400)
    outcome = w.processor.process(records, remaining=lambda: next(ends, 0.0))
    assert outcome.failed is not None
    assert w.rejected == []
    w.store.write = original  # type: ignore[method-assign]
    w.settle()
    assert w.rejected == []
    assert shown(w) == [0, NUMBER]


def drawn(rng: random.Random) -> Contributions:
    """Contributions with amounts and members of many lengths."""
    found: Contributions = {}
    for rule in "rs":
        targets = rng.sample(range(60), rng.randrange(0, 60))
        for target in targets:
            members = {f"m|{rng.randrange(40):03}": "" for _ in range(rng.choice([0, 0, 3, 30]))}
            given = {"n": rng.randrange(1, 10**9), **({"+": members} if members else {})}
            found.setdefault(rule, {})["t" * rng.randrange(1, 9) + str(target)] = given
    return found


@pytest.mark.parametrize("seed", range(40))
def test_no_step_needs_more_room_than_the_larger_end(seed: int) -> None:
    rng = random.Random(seed)
    before, after = drawn(rng), drawn(rng)
    most = max(len(canonical_text(before)), len(canonical_text(after)))
    some = list(intermediate_goals(before, after, Load(20, 10_000, lambda target, member: 1)))
    assert some[-1] == after
    assert max(len(canonical_text(step)) for step in some) <= most + 60


def test_verify_reports_a_contribution_that_was_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Something that only DynamoDB refuses: here levels of lists, of which the rule does not know the limit."""
    monkeypatch.setattr(contribution, "MOST_LEVELS", 1000)
    top = "  first: {from: Doc, bind: {tag: all}, top: {into: Tag, as: docs, by: at, limit: 1, attributes: [big]}}\n"
    w = Scene(top, HEAD)
    deep: Any = "x"
    for _ in range(LEVELS - 1):
        deep = [deep]
    w.put("DOC#1", "D", at=1, big=deep)
    w.settle()
    assert [(one.rule, one.key) for one in w.rejected] == [("first", "main|DOC#1|D")]
    assert "refused" in (w.entry("DOC#1|D") or {})
    assert [(drift.kind, drift.rule, drift.source) for drift in drifts(w)] == [
        ("entry missing", "first", "main|DOC#1|D")
    ]
    w.put("DOC#1", "D", at=1, big="x")
    w.settle()
    assert w.item("TAG#all", "STATS") == {"PK": "TAG#all", "SK": "STATS", "docs": [{"big": "x"}]}
