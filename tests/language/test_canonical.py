"""The canonical rules as typed values, and the facts derived from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from emulators import ROOT

from projections.language import facts
from projections.language.canonical import Document
from projections.language.loader import load, loads
from projections.language.program import Program

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
def test_reading_and_writing_the_document_changes_no_byte(path: Path) -> None:
    text = json.dumps(load(path, executable=False).canonical())
    assert json.dumps(Document.from_document(json.loads(text)).to_document()) == text


def test_a_document_read_back_is_what_the_loader_made() -> None:
    rules = loads(RULES)
    assert Document.from_document(rules.canonical()) == rules.typed()


def test_copies_create_their_items_and_publishes_those_of_derived_entities() -> None:
    document = loads(RULES).typed()
    assert {name: facts.creates(document, rule) for name, rule in document.rules.items()} == {
        "keys": False,  # writes on a derived item, which "total" creates
        "card": True,
        "counts": False,  # "card" creates it
        "total": True,
    }
    assert facts.creators(document) == {"Card": "card", "Total": "total"}


def test_compiled_rules_give_the_same_answers() -> None:
    program = Program.from_document(loads(RULES).canonical())
    for name, rule in program.rules.items():
        typed = program.typed.rules[name]
        assert (rule.source.name, rule.into.name, rule.kind) == (typed.source, typed.into, typed.kind)
        assert rule.creates == facts.creates(program.typed, typed)
        assert rule.recorded == typed.recorded
        assert set(rule.owned()) == set(typed.written)


def test_an_index_rule_feeds_each_index_that_has_one_of_its_attributes() -> None:
    document = loads(RULES).typed()
    assert facts.indexes_fed(document, document.rules["keys"]) == ("GSI1", "GSI2")
    assert facts.indexes_fed(document, document.rules["card"]) == ()


def test_a_condition_names_its_attribute_in_each_alternative() -> None:
    document = loads(RULES).typed()
    assert facts.conditions(document.rules["total"].where) == "hidden is false or hidden is absent"
    assert facts.conditions(document.rules["card"].where) is None
