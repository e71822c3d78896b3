"""A data model of another tool, as proposals for its tables, with the parts that were not read."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from projections.init.inference.proposal import Entity, Proposal, overlapping
from projections.init.inference.words import pascal
from projections.init.models.parts import Part
from projections.init.table import Table
from projections.language.templates import KeyPattern

__all__ = [
    *("Model", "Query", "Unread", "distinguished", "entity_name", "key_variables", "not_read", "proposal_of"),
    "table_names",
]

_LONGEST_NAME = 64


@dataclass(frozen=True)
class Unread:
    """A part of a model that the rule file does not have: its place, and the reason."""

    place: str
    reason: str


@dataclass(frozen=True)
class Query:
    """A query that a model implies: items of these entities with the same `by`, by an index or the table's key.

    `by` are variables of the key, or attributes that index keys are made of.
    """

    name: str
    find: tuple[str, ...]
    by: tuple[str, ...]
    index: str | None = None
    present: tuple[str, ...] = ()
    """Attributes that all items of the answer have."""


@dataclass
class Model:
    """What was read from a file. `form` names its format; `existing`: something else creates the tables."""

    form: str
    file: str
    proposals: list[Proposal]
    """One for each table, with the table's name in rule files."""
    tables: list[str] = field(default_factory=list)
    """The names of the tables in the file."""
    unread: list[Unread] = field(default_factory=list)
    queries: list[Query] = field(default_factory=list)
    existing: bool = False


def not_read(part: Part, known: Iterable[str], reason: str) -> Iterator[Unread]:
    """Yield the members of a mapping that are not among those known."""
    for name, member in part.members():
        if name not in known and member.value not in (None, [], {}, ""):
            yield Unread(member.place, reason)


def proposal_of(table: Table, entities: Sequence[Entity], separator: str = "#") -> Proposal:
    """Return a proposal of declared entities, without a sample."""
    return Proposal(table, separator, distinguished(entities, separator), [], [], [], 0, True)


def distinguished(entities: Sequence[Entity], separator: str) -> list[Entity]:
    """Return the entities of a table; those whose keys overlap match their type attribute, if both have one."""
    found = {entity.name: entity for entity in entities}
    for one, other in combinations(entities, 2):
        if one.kind and other.kind and one.kind != other.kind and overlapping(one, other, separator):
            for entity in (one, other):
                found[entity.name] = replace(found[entity.name], match=entity.kind)
    return list(found.values())


def key_variables(key: Mapping[str, str], separator: str) -> tuple[str, ...]:
    """Return the variables of key templates. Raises LanguageError."""
    names = (name for template in key.values() for name in KeyPattern.parse(template, separator).names)
    return tuple(dict.fromkeys(names))


def entity_name(given: str, taken: Iterable[str]) -> str:
    """Return a name of an entity that rule files accept and that is not taken."""
    name = given if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", given) else pascal(given) or "Item"
    name = name if name[0].isalpha() else f"Item{name}"
    return _free(name[:_LONGEST_NAME], set(taken))


def table_names(given: Sequence[str]) -> list[str]:
    """Return a name for each of several tables that rule files accept."""
    found: list[str] = []
    for text in given:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")
        name = name if name[:1].isalpha() else f"table-{name}".rstrip("-")
        found.append(_free(name[:_LONGEST_NAME], set(found)))
    return found


def _free(name: str, taken: set[str]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name[: _LONGEST_NAME - 4]}{number}", number + 1
    return free
