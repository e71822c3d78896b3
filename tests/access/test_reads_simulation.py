"""Reads of own writes are right, and no wait ends too early, in random histories; each defect of the reader is found."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from typing import Any
from unittest.mock import patch

import pytest
from reads_simulation import (
    FORMER_ORDERS,
    MANY,
    Defect,
    ReadHistory,
    groups_first,
    no_registry_needed,
    own_source_first,
)

from projections.access import look, own_reads, waiting
from projections.engine.ledger_items import Entry, group_key
from projections.engine.registry import RegistrySnapshot
from projections.language.rules import AggregateRule

HISTORIES = 10


def problems(first: int, count: int, defect: Defect = lambda one: one, **settings: Any) -> list[str]:
    """The problems of the first history that has any."""
    for seed in range(first, first + count):
        if found := ReadHistory(seed, defect, **settings).play().problems:
            return [f"seed {seed}", *found]
    return []


FRESH, CHANGED = {"fresh": True}, {"former": FORMER_ORDERS}
BEFORE_ACTIVE = [pytest.param(*each, marks=pytest.mark.deep) for each in ((FRESH, True), (CHANGED, False))]


@pytest.mark.parametrize(("settings", "reached"), [({}, True), *BEFORE_ACTIVE])
def test_own_reads_are_right_and_no_wait_ends_too_early(settings: dict[str, Any], reached: bool) -> None:
    reads: Counter[str] = Counter()
    for seed in range(HISTORIES // 2):
        history = ReadHistory(seed, **settings).play()
        assert not history.problems, f"seed {seed}: {history.problems}"
        reads.update(history.reads)
    assert reads["reached"] > HISTORIES // 2 if reached else not reads["reached"], reads
    assert min(reads["own"], reads["late"]) > HISTORIES // 2, reads


@pytest.mark.deep
def test_own_reads_are_right_and_no_wait_ends_too_early_in_many_histories() -> None:
    for settings in ({}, FRESH, CHANGED):
        assert not problems(HISTORIES, MANY, **settings)


def _compare(*arguments: Any) -> Any:
    """What the entry says is not compared with what the item contributes."""
    found = arguments[-1]
    before = dict(found.missing)
    targets = _COMPARE(*arguments)
    found.missing = before | {reason: None for reason in found.missing if reason.endswith("has a pending publish")}
    return targets


def _compare_contributing(program: Any, registry: Any, rules: Any, now: Any, entry: Any, *more: Any) -> Any:
    """A rule that fills is left out if the item contributes nothing to it, and its entry has nothing."""
    held = entry.contributions if entry is not None else {}
    some = [one for one in rules if registry.state(one) != "filling" or now.get(one.name) or held.get(one.name)]
    return _COMPARE(program, registry, some, now, entry, *more)


_TOTALS, _COMPARE, _COMPARE_TARGET = own_reads._totals, waiting._compare, waiting._compare_target

DEFECTS: dict[str, tuple[dict[str, Any], tuple[Any, str, Any] | None]] = {
    "entry and group are read one after another": ({"apart": True}, None),
    "the source item is read before its entry": ({"defect": own_source_first}, None),
    "what the entry says is not subtracted": (
        {},
        (own_reads, "_totals", lambda group, amounts: _TOTALS(group, [(now, {}) for now, _ in amounts])),
    ),
    "what the item contributes is not added": (
        {},
        (own_reads, "_totals", lambda group, amounts: _TOTALS(group, [({}, held) for _, held in amounts])),
    ),
    "only the first shard of a group is read": (
        {},
        (look.GroupReads, "_of", lambda reads, target: [group_key(*target)]),
    ),
    "an item that rules will delete is returned": ({}, (own_reads, "_is_emptied", lambda *_: False)),
    "an item that rules will create is not returned": ({}, (AggregateRule, "creates", False)),
    "pending publishes are forgotten": ({}, (Entry, "pending", property(lambda entry: set()))),
    "guards are not compared with groups": (
        {},
        (waiting, "_compare_target", lambda *some: _COMPARE_TARGET(*some[:5], "", some[6])),
    ),
    "the entry is not compared with the item": ({}, (waiting, "_compare", _compare)),
    "groups and targets are read before the entry": ({"defect": groups_first}, None),
    "a missing registry is taken for processed": ({"defect": no_registry_needed, **FRESH}, None),
    "rules that fill are left out for items that contribute nothing": (
        CHANGED,
        (waiting, "_compare", _compare_contributing),
    ),
    "rules that fill are compared as live ones": (
        CHANGED,
        (RegistrySnapshot, "state", lambda registry, rule: "active"),
    ),
}
SEEDS = {
    "only the first shard of a group is read": 1,
    "entry and group are read one after another": 2,
    "the source item is read before its entry": 5,
    "an item that rules will delete is returned": 2,
    "pending publishes are forgotten": 12,
    "guards are not compared with groups": 2,
    "groups and targets are read before the entry": 2,
    "a missing registry is taken for processed": 27,
    "rules that fill are left out for items that contribute nothing": 84,
    "rules that fill are compared as live ones": 5,
}
"""A history that finds each; 0 for the others."""

TRIED = 200
"""Histories that are searched for another seed, if this one does not find the defect any more."""


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_of_the_reader_is_found(name: str) -> None:
    settings, replaced = DEFECTS[name]
    seed = SEEDS.get(name, 0)
    with patch.object(*replaced) if replaced is not None else nullcontext():
        if problems(seed, 1, **settings):
            return
        other = problems(0, TRIED, **settings)
    pytest.fail(f"{name}: write this seed into SEEDS: {other[0]}" if other else f"{name}: no history finds it")
