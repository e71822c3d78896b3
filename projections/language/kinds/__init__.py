"""The kinds of rules, each in a module: its model, what it reads and writes, and in which words.

This module has what all kinds have in common. `rules` has their compiled forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict

from projections.language.arithmetic import Expression, Factor
from projections.language.attribute_sources import AttributeSource
from projections.language.patterns import Pattern
from projections.language.spelling import source_text
from projections.language.syntax import Location, written_path
from projections.language.templates import Template

Order = Literal["desc", "asc"]


class Model(BaseModel):
    """The base of all models: strict, frozen, and without unknown names."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        validate_by_name=True,
        defer_build=True,
        alias_generator=lambda name: name.removesuffix("_"),
    )

    def _completed(self, **parts: Any) -> Self:
        """Set fields, for validators that complete what was written."""
        self.__dict__.update(parts)
        return self


@dataclass(frozen=True, slots=True)
class Part:
    """A template, expression or pattern of a rule, which reads its source items, and its place in the rule."""

    value: Template | Expression | Pattern
    place: Location
    attributes: tuple[str, ...] = ()
    """The attributes of the target that depend on it; empty if all do."""
    numeric: bool = False
    """Whether its result must be a number."""
    whole: str = ""
    """The text at the place, if it is more than the value."""

    @property
    def text(self) -> str:
        """What the file has at the place, if that is a text."""
        return self.whole or (self.value.text if not isinstance(self.value, Pattern) else "")


Sources: TypeAlias = tuple[str, ...]
"""The names of a rule's source entities, sorted."""


class Action:
    """What a rule does. Places begin with the kind."""

    kind: ClassVar[str]
    combines: ClassVar[bool] = False
    """Whether a rule of this kind can have several sources."""
    on_source: ClassVar[bool] = False
    """Whether its target is the source item itself."""
    in_ledger: ClassVar[bool] = False
    """Whether the ledger records the contributions of all rules of this kind."""
    writes_items: ClassVar[bool] = True
    """Whether it writes to items of its target entity."""
    makes_key: ClassVar[bool] = True
    """Whether it makes the key of its target from the source."""

    @property
    def written(self) -> dict[str, Location]:
        """The attributes of the target that the rule names and writes, each with its place."""
        raise NotImplementedError

    def parts(self) -> Iterator[Part]:
        """Yield what it reads of source items."""
        raise NotImplementedError

    def origins(self, sources: Sources) -> Iterator[tuple[str, str]]:
        """Yield the attributes that it writes, each with how it makes the value, in the words of the rule file."""
        raise NotImplementedError

    @property
    def recorded(self) -> bool:
        """Whether the ledger records its contributions, from which it publishes."""
        return self.in_ledger

    @property
    def members(self) -> int:
        """The number of members in one contribution: one for a list, a latest item or a claim."""
        return int(self.recorded)

    @property
    def carried(self) -> Mapping[str, AttributeSource]:
        """The attributes of the target that have the value of a source as it is."""
        return {}


EVERY = "*"
"""Stands for all attributes, where a rule copies all."""


def path_expression(name: str) -> Expression:
    """Return the expression that reads a name."""
    return Expression(written_path(name), Factor(name))


def attribute_parts(
    attributes: Mapping[str, AttributeSource], place: Location, into: str | None = None
) -> Iterator[Part]:
    """Yield the sources of attributes; `into` is the attribute that has them all, if it is a list."""
    for name, source in attributes.items():
        yield Part(source, (*place, name), (into or name,))


def places(names: Iterable[str], *place: str) -> dict[str, Location]:
    return {name: (*place, name) for name in names}


def source_words(source: AttributeSource, entity: str) -> str:
    """Return the source of an attribute in words: `User.name`, `qty * price of Order` or `{first} {last} of User`."""
    text = source_text(source)
    return f"{entity}.{text}" if source.path is not None else f"{text} of {entity}"
