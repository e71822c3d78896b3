"""Invented items with the shapes of a proposal, so that a project has no production data."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from projections.errors import BadInput
from projections.init.inference.proposal import Attribute, Entity, Proposal, Relation, Variable
from projections.init.inference.words import words
from projections.language.keys import ItemKey
from projections.language.program import Program
from projections.language.templates import KeyPattern, Template
from projections.language.values import Image, Value

__all__ = ["Invented", "changed", "invent", "text_of"]

_PARENTS = 2
_CHILDREN = 3
_CHOICES = ((0, 0, 1), (0, 1, 0), (1, 0, 0))
"""The parent of each child, by relation: in the first one, the first parent has two children."""
_OFTEN = 0.5
_END_OF_TIME = "1893456000"


@dataclass(frozen=True)
class Invented:
    """An item with its entity and the variables of its key."""

    entity: str
    number: int
    item: Image
    variables: Mapping[str, str]

    def text(self, name: str) -> str | None:
        if name in self.variables:
            return self.variables[name]
        value = self.item.get(name, {})
        return next((str(value[kind]) for kind in ("S", "N") if kind in value), None)


def invent(proposal: Proposal, program: Program) -> list[Invented]:
    """Return a few items of each entity, parents before the children that reference them. Attributes that rules
    write are left out."""
    found: dict[str, list[Invented]] = {}
    for entity in _parents_first(proposal):
        derived = program.derived_attributes(entity.name)
        relations = [one for one in proposal.relations if one.child == entity.name and one.parent in found]
        items = []
        for number in range(_CHILDREN if relations else _PARENTS):
            given = _given(relations, found, number)
            item = _item(entity, given, number + 1, derived, proposal)
            if item is not None:
                items.append(item)
        found[entity.name] = _distinct(items, program, proposal)
    return [one for items in found.values() for one in items]


def _distinct(items: Sequence[Invented], program: Program, proposal: Proposal) -> list[Invented]:
    """Return the items that are recognised as their entity, one for each key."""
    kept: dict[ItemKey, Invented] = {}
    for one in items:
        table = program.entities[one.entity].table
        key = program.tables[table].key(table, one.item)
        recognised = program.recognise(key, one.item)
        if recognised is not None and recognised.entity.name == one.entity:
            kept.setdefault(key, one)
    return list(kept.values())


def _parents_first(proposal: Proposal) -> list[Entity]:
    waiting, done = list(proposal.entities), []
    while waiting:
        names = {one.name for one in waiting}
        ready = [one for one in waiting if not names & _parents_of(one, proposal) - {one.name}]
        first = ready[0] if ready else min(waiting, key=lambda one: len(one.variables))
        waiting.remove(first)
        done.append(first)
    return done


def _parents_of(entity: Entity, proposal: Proposal) -> set[str]:
    return {one.parent for one in proposal.relations if one.child == entity.name}


def _given(relations: Sequence[Relation], found: Mapping[str, Sequence[Invented]], number: int) -> dict[str, str]:
    """Return the attributes and variables by which a child references its parents."""
    given: dict[str, str] = {}
    for position, relation in enumerate(relations):
        choice = _CHOICES[min(position, len(_CHOICES) - 1)][number]
        fitting = [
            parent
            for parent in found[relation.parent]
            if all(
                given.get(name, parent.variables[variable]) == parent.variables[variable]
                for variable, name in relation.binding.items()
            )
        ]
        if fitting:
            parent = fitting[min(choice, len(fitting) - 1)]
            given |= {name: parent.variables[variable] for variable, name in relation.binding.items()}
    return given


def _item(
    entity: Entity, given: Mapping[str, str], number: int, derived: frozenset[str] | set[str], proposal: Proposal
) -> Invented | None:
    variables = {one.name: given.get(one.name) or _variable(one, number) for one in entity.variables}
    item: dict[str, Any] = {}
    for name, kind in proposal.table.key:
        try:
            text = KeyPattern.parse(entity.key[name], proposal.separator).render(variables)
        except BadInput:
            return None
        item[name] = {kind: text}
    for attribute in entity.attributes:
        if attribute.name in derived or attribute.seen < _OFTEN * attribute.of:
            continue
        known = given.get(attribute.name) or variables.get(attribute.name)
        if known is not None and attribute.type in ("S", "N"):
            item[attribute.name] = {attribute.type: known}
        else:
            item[attribute.name] = _value(attribute, number)
    if entity.kind:
        item[entity.kind[0]] = {"S": entity.kind[1]}

    def resolve(name: str) -> Value | None:
        return {"S": variables[name]} if name in variables else item.get(name)

    types = {name: kind for keys in proposal.table.indexes.values() for part in keys for name, kind in part}
    for name, template in entity.index_key.items():
        if Template.parse(template).single == name:
            item[name] = _value(Attribute(name, types[name], "text", 1, 1), number)
        elif (rendered := Template.parse(template).render(resolve)) is not None:
            item[name] = {types[name]: rendered}
    return Invented(entity.name, number, item, variables)


def _variable(variable: Variable, number: int) -> str:
    text = text_of(
        variable.name, "digits" if variable.type == "N" and variable.form == "text" else variable.form, number
    )
    return base64.b64encode(text.encode()).decode() if variable.type == "B" else text


def _stem(name: str) -> str:
    found = [word for word in words(name) if word not in ("id", "key", "pk", "sk") and word.isascii()]
    return found[0] if found else "item"


def text_of(name: str, form: str, number: int) -> str:
    """Return an invented text of this form; one without a form begins with a word of the name."""
    match form:
        case "time":
            return f"2026-01-{number:02d}T10:00:00Z"
        case "date":
            return f"2026-01-{number:02d}"
        case "month":
            return f"2026-{number:02d}"
        case "uuid":
            return f"00000000-0000-4000-8000-{number:012d}"
        case "ulid":
            return f"01KDWAA0Q0{number:016d}"
        case "digits":
            return str(100 + number)
        case "number":
            return f"{number}.5"
        case "email":
            return f"someone{number}@example.com"
        case "url":
            return f"https://example.com/{number}"
    return f"{_stem(name)}{number}"


def _value(attribute: Attribute, number: int) -> Value:
    text = text_of(attribute.name, attribute.form, number)
    match attribute.type:
        case "N":
            if attribute.form == "ttl":
                return {"N": _END_OF_TIME}
            return {"N": str(number * 10) if attribute.whole else f"{number}.5"}
        case "BOOL":
            return {"BOOL": number % 2 == 1}
        case "NULL":
            return {"NULL": True}
        case "L":
            return {
                "L": [_value(Attribute(attribute.name, attribute.elements, "text", 1, 1), n) for n in (1, number + 1)]
            }
        case "M":
            return {"M": {"note": {"S": text}}}
        case "SS":
            return {"SS": [f"{_stem(attribute.name)}{n}" for n in (1, number + 1)]}
        case "NS":
            return {"NS": ["1", str(number + 1)]}
        case "B":
            return {"B": base64.b64encode(text.encode()).decode()}
        case "BS":
            return {"BS": [base64.b64encode(text.encode()).decode()]}
    return {"S": text}


def changed(value: Value) -> Value:
    """Return another value of the same type."""
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return {"S": f"{content} (changed)"}
        case "N":
            return {"N": str(int(content) + 1) if str(content).isdecimal() else "2"}
        case "BOOL":
            return {"BOOL": not content}
    return {"S": "something else"}
