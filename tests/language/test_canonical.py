"""The canonical document, which is itself a rule file, and facts about rules."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from emulators import ROOT

from projections.errors import RulesError
from projections.language import facts
from projections.language.loader import load, loads
from projections.language.program import Program
from projections.language.syntax import duration_of, seconds_of

FILES = sorted(
    path
    for folder in ("projections/rules", "tests/language/rules", "tests/simulation/rules")
    for path in (ROOT / folder).glob("*.yaml")
    if not path.stem.startswith("broken")
)

RULES = """
table: {key: [PK, SK], indexes: {GSI1: [GSI1PK, GSI1SK], GSI2: [GSI2PK, GSI1SK], GSI3: [GSI3PK]}}
entities:
  Post: {key: {PK: "POST#{post}", SK: "POST"}}
  Comment: {key: {PK: "POST#{post}", SK: "COMMENT#{comment}"}}
  Card: {key: {PK: "CARD#{post}", SK: "CARD"}}
  Total: {key: {PK: "TOTAL#{post}", SK: "TOTAL"}, derived: true}
projections:
  keys: {from: Total, index: {GSI1PK: "T", GSI1SK: "{n}"}}
  card: {from: Post, copy: {into: Card, attributes: [title], values: {kind: card, size: 1}}}
  counts: {from: Comment, aggregate: {into: Card, set: {comments: count}}}
  total: {from: Comment, where: {hidden: [false, {exists: false}]}, aggregate: {into: Total, set: {n: count}}}
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_canonical_document_is_a_rule_file_with_the_same_document(path: Path) -> None:
    text = json.dumps(load(path).document())
    assert json.dumps(loads(text).document()) == text


@pytest.mark.parametrize("within", ["1s", "30s", "90s", "5m", "9999m", "2h", "9999h"])
def test_a_limit_of_freshness_is_written_as_it_can_be_read(within: str) -> None:
    seconds = seconds_of(within)
    assert seconds is not None
    assert seconds_of(duration_of(seconds)) == seconds


def test_claim_that_contradicts_the_keys_is_a_mistake() -> None:
    with pytest.raises(RulesError, match=r"card\.copy\.claimed: follows from the keys: remove it"):
        loads(RULES.replace("copy: {into: Card,", "copy: {into: Card, claimed: true,"))


def test_copies_create_their_items_and_publishes_those_of_derived_entities() -> None:
    document = loads(RULES).completed()
    assert {name: facts.creates(document, rule) for name, rule in document.projections.items()} == {
        "keys": False,  # writes on a derived item, which "total" creates
        "card": True,
        "counts": False,  # "card" creates it
        "total": True,
    }
    assert facts.creators(document) == {"Card": "card", "Total": "total"}


def test_compiled_rules_give_the_same_answers() -> None:
    program = Program.from_document(loads(RULES).document())
    for name, rule in program.rules.items():
        typed = program.model.projections[name]
        assert (rule.source.name, rule.into.name, rule.kind) == (typed.source, typed.into, typed.kind)
        assert rule.creates == facts.creates(program.model, typed)
        assert rule.recorded == typed.action.recorded
        assert set(rule.owned()) == set(typed.action.written)


def test_an_index_rule_feeds_each_index_that_has_one_of_its_attributes() -> None:
    document = loads(RULES).completed()
    assert facts.indexes_fed(document, document.projections["keys"]) == ("GSI1", "GSI2")
    assert facts.indexes_fed(document, document.projections["card"]) == ()


def test_a_condition_names_its_attribute_in_each_alternative() -> None:
    document = loads(RULES).completed()
    assert facts.conditions(document.projections["total"].where) == "hidden is false or hidden is absent"
    assert facts.conditions(document.projections["card"].where) is None
