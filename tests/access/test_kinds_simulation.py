"""Random histories with changed entities, parents, replaced targets and copies; each defect of the reader is found."""

from __future__ import annotations

from collections import Counter
from typing import Any
from unittest.mock import patch

import pytest
from kinds_simulation import KindHistory
from reads_simulation import MANY

from projections.access import look, own_reads, waiting
from projections.engine.store import ItemKey

HISTORIES = 20


def problems(first: int, count: int) -> list[str]:
    """The problems of the first history that has any."""
    for seed in range(first, first + count):
        if found := KindHistory(seed).play().problems:
            return [f"seed {seed}", *found]
    return []


def test_reads_of_items_that_change_their_entity_are_right() -> None:
    reads: Counter[str] = Counter()
    for seed in range(HISTORIES):
        history = KindHistory(seed).play()
        assert not history.problems, f"seed {seed}: {history.problems}"
        reads.update(history.reads)
    assert min(reads["own"], reads["reached"], reads["late"]) > 2 * HISTORIES, reads


@pytest.mark.deep
def test_reads_of_items_that_change_their_entity_are_right_in_many_histories() -> None:
    assert not problems(HISTORIES, MANY)


_COMPARE, _COPIES = waiting._compare, waiting.copies_of


def _compare(program: Any, registry: Any, rules: Any, contributions: Any, *more: Any) -> Any:
    return _COMPARE(program, registry, [rule for rule in rules if rule.name in contributions], contributions, *more)


def _copies(*arguments: Any) -> Any:
    return [copy for copy in _COPIES(*arguments) if copy.attributes is not None]


def _overridden(*arguments: Any) -> Any:
    return list({copy.key: copy for copy in _COPIES(*arguments)}.values())


DEFECTS: dict[str, tuple[Any, str, Any]] = {
    "rules of the former entity are not compared": (waiting, "_compare", _compare),
    "the rules that publish to the item are not compared": (waiting, "_compare_received", lambda *_: None),
    "values of the former entity are not named": (waiting, "_compare_left", lambda *_: None),
    "the item is not compared with its parents": (waiting, "parents_of", lambda *_: []),
    "the list of the item is not compared": (waiting, "compare_list", lambda *_: None),
    "the attributes of the item itself are not compared": (waiting, "_compare_item", lambda *_: None),
    "former copies are not compared": (waiting, "copies_of", _copies),
    "one of two copies under a key is compared": (waiting, "copies_of", _overridden),
    "copies with other keys are taken for covered": (
        look,
        "_fixed_copies",
        lambda *_: [ItemKey("main", "C#1", "NONE")],
    ),
    "rules that read what others set are corrected": (own_reads, "_received", lambda *_: {}),
    "values of rules without guards are not read": (own_reads, "_first_values", lambda *_: []),
    "attributes that rules set later are not named": (own_reads, "_set_later", lambda *_: {}),
}
SEEDS = {
    "rules of the former entity are not compared": 9,
    "the rules that publish to the item are not compared": 42,
    "values of the former entity are not named": 48,
    "the attributes of the item itself are not compared": 105,
    "former copies are not compared": 26,
    "one of two copies under a key is compared": 2,
    "copies with other keys are taken for covered": 10,
    "rules that read what others set are corrected": 1,
    "values of rules without guards are not read": 10,
    "attributes that rules set later are not named": 1,
}
"""A history that finds each; 0 for the others."""

TRIED = 200
"""Histories that are searched for another seed, if this one does not find the defect any more."""


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_of_the_reader_is_found(name: str) -> None:
    seed = SEEDS.get(name, 0)
    replaced = DEFECTS[name]
    with patch.object(*replaced):
        if problems(seed, 1):
            return
        other = problems(0, TRIED)
    pytest.fail(f"{name}: write this seed into SEEDS: {other[0]}" if other else f"{name}: no history finds it")
