"""The filters of a mapping let through every record that the rules need, and hardly any other."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulators import ROOT
from hypothesis import given
from hypothesis import strategies as st

from projections.deploy.comparison import passes as fits
from projections.deploy.needs import MOST, Deployment, Filters, Prefix, entities_of, filters, key_prefixes
from projections.language.keys import Schema
from projections.language.loader import load
from projections.language.program import Program
from projections.language.templates import KeyPattern

RULE_FILES = [
    *sorted((ROOT / "projections/rules").glob("*.yaml")),
    *sorted((ROOT / "tests/simulation/rules").glob("*.yaml")),
]
TWO = Schema(("PK", "S"), ("SK", "S"))
ONE = Schema(("id", "S"))
READINGS = Schema(("device", "S"), ("second", "N"))


def of(schema: Schema, **keys: tuple[str, ...]) -> Filters:
    """The filters for entities with these key templates."""
    return filters(schema, {n: key_prefixes(schema, [KeyPattern.parse(text) for text in k]) for n, k in keys.items()})


def passes(found: Filters, schema: Schema, *texts: str) -> bool:
    """Whether records of the item with this key arrive: all of INSERT, MODIFY, REMOVE, or none."""
    kinds = [kind for _, kind in (schema.partition, schema.sort or ("", "")) if kind]
    keys = {name: {kind: text} for name, kind, text in zip(schema.key_attributes, kinds, texts, strict=True)}
    answers = {
        not found.patterns
        or any(fits(each, {"eventName": event, "dynamodb": {"Keys": keys, **images}}) for each in found.patterns)
        for event, images in (("INSERT", {"NewImage": keys}), ("MODIFY", {}), ("REMOVE", {"OldImage": keys}))
    }
    (answer,) = answers
    return answer


def test_a_filter_has_the_sort_keys_of_one_partition_prefix() -> None:
    found = of(TWO, Post=("USER#{u}", "POST#{p}"), Like=("USER#{u}", "LIKE#{p}"), Meta=("POST#{p}", "META"))
    assert [pattern["dynamodb"]["Keys"] for pattern in found.patterns] == [
        {"PK": {"S": [{"prefix": "USER#"}]}, "SK": {"S": [{"prefix": "POST#"}, {"prefix": "LIKE#"}]}},
        {"PK": {"S": [{"prefix": "POST#"}]}, "SK": {"S": ["META"]}},
    ]
    assert found.notes == ()
    assert not passes(found, TWO, "USER#1", "META")


def test_a_prefix_that_another_one_covers_is_left_out() -> None:
    found = of(TWO, A=("A#{x}", "B#{y}"), B=("A#{x}", "B#C#{y}"), C=("A#{x}", "B#"), D=("A#B", "B#x"))
    assert [pattern["dynamodb"]["Keys"] for pattern in found.patterns] == [
        {"PK": {"S": [{"prefix": "A#"}]}, "SK": {"S": [{"prefix": "B#"}]}}
    ]


def test_partitions_with_the_same_sort_keys_share_a_filter() -> None:
    found = of(TWO, A=("A#{x}", "STATS"), B=("B#{x}", "STATS"), C=("C", "STATS"))
    assert [pattern["dynamodb"]["Keys"] for pattern in found.patterns] == [
        {"PK": {"S": [{"prefix": "A#"}, {"prefix": "B#"}, "C"]}, "SK": {"S": ["STATS"]}}
    ]


def test_a_key_that_begins_with_a_variable_or_is_a_number_has_no_condition() -> None:
    assert of(TWO, A=("{a}", "X#{b}")).patterns == ({"dynamodb": {"Keys": {"SK": {"S": [{"prefix": "X#"}]}}}},)
    found = of(READINGS, Reading=("DEVICE#{device}", "{second}"))
    assert found.patterns == ({"dynamodb": {"Keys": {"device": {"S": [{"prefix": "DEVICE#"}]}}}},)
    assert passes(found, READINGS, "DEVICE#1", "17")


def test_entity_without_prefix_gives_no_filters_and_a_note() -> None:
    found = of(READINGS, Other=("OTHER#{x}", "{y}"), Reading=("{device}", "{second}"))
    assert found.patterns == ()
    assert "Reading" in found.notes[0]


def test_more_prefixes_than_filters_make_coarser_filters_and_a_note() -> None:
    keys = {f"E{n}": (f"P{n}#{{x}}", f"S{n}#{{y}}") for n in range(8)}
    found = of(TWO, **keys)
    assert len(found.patterns) == MOST
    assert "exact filters would need 8" in found.notes[0]
    assert all(passes(found, TWO, f"P{n}#1", f"S{n}#1") for n in range(8))
    assert not passes(found, TWO, "Q#1", "S1#1")
    assert sum(passes(found, TWO, f"P{a}#1", f"S{b}#1") for a in range(8) for b in range(8)) == 8 + 2 * 3


def test_a_filter_too_long_for_lambda_drops_all_filters() -> None:
    found = of(TWO, **{f"E{n}": ("A#{x}", f"{'Z' * 50}{n}#{{y}}") for n in range(100)})
    assert (found.patterns, "4096" in found.notes[0]) == ((), True)


@pytest.mark.parametrize("path", RULE_FILES, ids=lambda path: path.stem)
def test_every_source_and_target_of_real_rules_passes_and_strangers_do_not(path: Path) -> None:
    program = Program.from_document(load(path).document())
    for table in Deployment(str(path), program).tables:
        keys = [
            tuple(pattern.render(dict.fromkeys(pattern.names, "7")) for pattern in entity.patterns)
            for entity in entities_of(program, table.name)
        ]
        assert all(passes(table.filters, table.schema, *key) for key in keys)
        assert len(table.filters.patterns) <= MOST
        if table.filters.patterns:
            assert not passes(table.filters, table.schema, *(["STRANGER"] * len(table.schema.key_attributes)))


texts = st.text('AB#é"\\\u2028 ', max_size=4)
prefixes = st.builds(Prefix, texts, st.booleans()).filter(lambda prefix: prefix.text or not prefix.exact)


@given(st.lists(st.tuples(prefixes, prefixes), max_size=12), st.integers(1, 5))
def test_filters_match_all_needed_records_for_any_prefixes(entities: list[tuple[Prefix, Prefix]], most: int) -> None:
    found = filters(TWO, {f"E{number}": entity for number, entity in enumerate(entities)}, most)
    assert len(found.patterns) <= most
    for entity in entities:
        for tail in ("", "x", "A#x"):
            if all(prefix.text or tail for prefix in entity):
                assert passes(found, TWO, *(prefix.text + ("" if prefix.exact else tail) for prefix in entity))


@given(st.lists(st.tuples(prefixes, prefixes), min_size=1, max_size=12), texts, texts)
def test_filters_without_a_note_match_only_needed_records(
    entities: list[tuple[Prefix, Prefix]], a: str, b: str
) -> None:
    found = filters(TWO, {f"E{number}": entity for number, entity in enumerate(entities)})
    if found.notes or not (a and b):
        return
    sides = [((one, a), (two, b)) for one, two in entities]
    needed = any(all(t == p.text if p.exact else t.startswith(p.text) for p, t in pair) for pair in sides)
    assert passes(found, TWO, a, b) == needed
