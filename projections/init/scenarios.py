"""The tests of a proposal: invented items, which the rules recognise, and simulations of the rules as if they were live."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from projections.init.inference.proposal import Proposal
from projections.init.invent import Invented

__all__ = ["items_file", "test_file"]


def items_file(items: Sequence[Invented]) -> str:
    """Return the invented items by entity as JSON, in wire form, which keeps all types."""
    found: dict[str, list[Any]] = {}
    for one in items:
        found.setdefault(one.entity, []).append(one.item)
    blocks = []
    for entity, images in found.items():
        lines = ",\n".join(f"    {json.dumps(image, ensure_ascii=False)}" for image in images)
        blocks.append(f"  {json.dumps(entity)}: [\n{lines}\n  ]")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


_HEAD = '''"""What the rules in rules.yaml write for the invented items in items.json, which have no value of the table."""

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from projections.language.loader import load
from projections.language.program import Program

HERE = Path(__file__).parent
FILE = HERE.parent / "rules.yaml"
RULES = YAML(typ="safe", pure=True).load(FILE)
RULES.setdefault("projections", {})
ITEMS = json.loads((HERE / "items.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("entity", "item"), [(entity, item) for entity in ITEMS for item in ITEMS[entity]])
def test_item_is_recognised(entity, item):
    program = Program.from_document(load(FILE).canonical())
    table = program.entities[entity].table
    found = program.recognise(program.tables[table].key(table, item), item)
    assert found is not None, "no entity has such a key: check its template"
    assert found.entity.name == entity
'''

_RULES = '''

def all_rules(mode):
    return {**RULES, "projections": {name: {**rule, "mode": mode} for name, rule in RULES["projections"].items()}}


@pytest.mark.projections(rules=all_rules("shadow"))
def test_rules_in_shadow_mode_write_nothing(projections):
    for items in ITEMS.values():
        for item in items:
            projections.put(item)
    projections.then()  # every item is unchanged


@pytest.mark.projections(rules=all_rules("live"))
def test_live_rules_converge_under_faults(projections):
    """All rules are live, in random histories with redelivery, reordering, crashes and overwrites."""
    projections.assert_simulation(histories=30)
'''


def test_file(proposals: Sequence[Proposal]) -> str:
    """Return the Python module with the tests."""
    rules = any(not rule.doubt for proposal in proposals for rule in proposal.rules)
    return _HEAD + (_RULES if rules else "")
