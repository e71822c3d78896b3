"""The tests of a proposal: for each rule a few invented items, and what it writes when it is live."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from projections.init.inference.measures import measured
from projections.init.inference.proposal import Proposal, Relation, Rule
from projections.init.inference.words import words
from projections.init.invent import Invented, changed
from projections.language.values import Value

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

def live(*names):
    """The rules, of which only these are live, and the others in shadow mode."""
    rules = {name: {**rule, "mode": "live" if name in names else "shadow"} for name, rule in RULES["projections"].items()}
    return {**RULES, "projections": rules}


@pytest.mark.projections(rules=live())
def test_rules_in_shadow_mode_write_nothing(projections):
    for items in ITEMS.values():
        for item in items:
            projections.put(item)
    projections.then()  # every item is unchanged


@pytest.mark.projections(rules=live(*RULES["projections"]))
def test_live_rules_converge_under_faults(projections):
    """All rules are live, in random histories with redelivery, reordering, crashes and overwrites."""
    projections.assert_simulation(histories=30)
'''


def test_file(proposals: Sequence[Proposal], items: Sequence[Invented]) -> str:
    """Return the Python module with the tests."""
    rules = [(rule, proposal) for proposal in proposals for rule in proposal.rules if not rule.doubt]
    scenarios = [text for rule, proposal in rules for text in _scenario(rule, proposal, items)]
    return _HEAD + (_RULES if rules else "") + "".join(scenarios)


def _scenario(rule: Rule, proposal: Proposal, items: Sequence[Invented]) -> Iterator[str]:
    relation = _relation(rule, proposal)
    if relation is None:
        return
    parents = [one for one in items if one.entity == relation.parent]
    families = [(parent, [one for one in items if _belongs(one, parent, relation)]) for parent in parents]
    families = [(parent, children) for parent, children in families if children]
    if not families:
        return
    parent, children = max(families, key=lambda family: len(family[1]))
    make = {"aggregate": _aggregate, "embed": _embed}.get(rule.kind)
    text = make(rule, parent, children, items) if make else ""
    if text:
        yield text


def _relation(rule: Rule, proposal: Proposal) -> Relation | None:
    source, into = rule.body["from"], rule.into
    child, parent = (into, source) if rule.kind == "embed" else (source, into)
    for one in proposal.relations:
        if (one.child, one.parent) == (child, parent) and _is_of(rule, one):
            return one
    return None


def _is_of(rule: Rule, relation: Relation) -> bool:
    if rule.kind == "embed":
        match = {name: "{" + variable + "}" for variable, name in relation.binding.items()}
        return bool(rule.body["embed"]["match"] == match)
    return bool(rule.body.get("bind", {}) == relation.bind)


def _belongs(child: Invented, parent: Invented, relation: Relation) -> bool:
    return child.entity == relation.child and all(
        child.text(name) == parent.variables[variable] for variable, name in relation.binding.items()
    )


def _name(rule: Rule) -> str:
    return "test_" + "_".join(words(rule.name))


def _ref(one: Invented, items: Sequence[Invented]) -> str:
    position = [other for other in items if other.entity == one.entity].index(one)
    return f'ITEMS["{one.entity}"][{position}]'


def _family_test(
    rule: Rule, parent: Invented, children: Sequence[Invented], items: Sequence[Invented], *then: str
) -> str:
    """Return a test in which children are added to a parent with the rule live; `then` are its last lines."""
    refs = [_ref(child, items) for child in children]
    lines = [
        "",
        "",
        f"@pytest.mark.projections(rules=live({json.dumps(rule.name)}))",
        f"def {_name(rule)}(projections):",
        f"    parent, children = {_ref(parent, items)}, [{', '.join(refs)}]",
        "    projections.given(parent)",
        "    for child in children:",
        "        projections.put(child)",
        *then,
        "",
    ]
    return "\n".join(lines)


# Aggregates


def _aggregate(rule: Rule, parent: Invented, children: Sequence[Invented], items: Sequence[Invented]) -> str:
    every, fewer = (_measured(rule.body["aggregate"]["set"], some) for some in (children, children[:-1]))
    if every is None or fewer is None:
        return ""
    return _family_test(
        rule,
        parent,
        children,
        items,
        f"    projections.then({{**parent, {_members(every)}}})",
        "    projections.delete(children[-1])",
        f"    projections.then({{**parent, {_members(fewer)}}})",
    )


def _measured(measures: Mapping[str, str], children: Sequence[Invented]) -> dict[str, Value] | None:
    """Return the measures of some items, without extremes of no items; None if a value is missing."""
    found = {name: measured(measure, [child.item for child in children]) for name, measure in measures.items()}
    if children and None in found.values():
        return None
    return {name: value for name, value in found.items() if value is not None}


def _members(values: Mapping[str, Value]) -> str:
    return ", ".join(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in values.items())


# Embeds


def _embed(rule: Rule, parent: Invented, children: Sequence[Invented], items: Sequence[Invented]) -> str:
    attributes: Mapping[str, str] = rule.body["embed"]["attributes"]
    if not all(theirs in parent.item for theirs in attributes.values()):
        return ""
    now = {mine: parent.item[theirs] for mine, theirs in attributes.items()}
    later = {theirs: changed(parent.item[theirs]) for theirs in attributes.values()}
    then = {mine: later[theirs] for mine, theirs in attributes.items()}
    return _family_test(
        rule,
        parent,
        children,
        items,
        f"    projections.then(*({{**child, {_members(now)}}} for child in children))",
        f"    projections.update(parent, {{{_members(later)}}})",
        f"    projections.then(*({{**child, {_members(then)}}} for child in children))",
    )
