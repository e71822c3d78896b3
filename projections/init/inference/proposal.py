"""What inference comes to: entities, rules to try, and what it could not understand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from projections.init.table import Table

__all__ = ["Attribute", "Entity", "Proposal", "Relation", "Rule", "Unknown", "Variable"]


@dataclass(frozen=True)
class Attribute:
    """An attribute of an entity: its most frequent type as DynamoDB names it, what its texts look like, and how many of
    `of` items have it. `elements` is the type of what a list or set holds. Never a value of the sample.
    """

    name: str
    type: str
    form: str
    seen: int
    of: int
    elements: str = "S"
    whole: bool = True
    """Numbers: all of them are whole, and not negative."""


@dataclass(frozen=True)
class Variable:
    """A variable of a key, what its texts look like, and the type of the key attribute it is in."""

    name: str
    form: str
    type: str = "S"


@dataclass(frozen=True)
class Entity:
    """A kind of item, as a rule file has it, with what was seen of it."""

    name: str
    key: Mapping[str, str]
    variables: tuple[Variable, ...]
    attributes: tuple[Attribute, ...]
    items: int
    match: tuple[str, str] | None = None
    index_key: Mapping[str, str] = field(default_factory=dict)
    kind: tuple[str, str] | None = None
    """The type attribute and what it says, also where the key suffices to recognise the items."""
    expires: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Relation:
    """Items of `child` name an item of `parent`: each variable of its key is the child's name here. `seen` of `of` name
    an item that is in the sample.
    """

    child: str
    parent: str
    binding: Mapping[str, str]
    seen: int
    of: int

    @property
    def bind(self) -> dict[str, str]:
        """What a rule has to say of it."""
        return {variable: "{" + name + "}" for variable, name in self.binding.items() if variable != name}


@dataclass(frozen=True)
class Rule:
    """A rule to try. `body` is as a rule file has it, without `mode`; `evidence` says why, with counts. With `doubt` it
    is written as a comment, and that is why.
    """

    name: str
    body: Mapping[str, Any]
    evidence: str
    doubt: str = ""
    refused: bool = False
    """It cannot be used as it is; the doubt says what it needs."""

    @property
    def kind(self) -> str:
        return next(kind for kind in ("aggregate", "embed", "copy") if kind in self.body)


@dataclass(frozen=True)
class Unknown:
    """Items that no entity describes: their keys with letters and digits masked, how many, and why."""

    key: Mapping[str, str]
    items: int
    why: str


@dataclass(frozen=True)
class Proposal:
    """Everything inferred from a sample of `sampled` items."""

    table: Table
    separator: str
    entities: Sequence[Entity]
    relations: Sequence[Relation]
    rules: Sequence[Rule]
    unknown: Sequence[Unknown]
    sampled: int
    complete: bool
    recognised: int = 0
    """Items of the sample that belong to one of the entities."""
