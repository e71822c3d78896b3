"""The kinds of rules, each in a module: its model, what it reads and writes, and in which words.

This module has what all kinds have in common. `rules` has their compiled forms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict

from projections.language.arithmetic import Expression, Factor
from projections.language.attribute_sources import AttributeSource
from projections.language.forms import Case
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


@dataclass(frozen=True, slots=True)
class WritePath:
    """The writes of a rule. Write units are those of items of up to 1 KB, with the index entries of an index rule; other
    entries of the target in secondary indexes cost one more each.

    `alone` is the cost of a single change for one target (one child, for an embed); `shared` the cost of each of many
    changes for one target in one batch, if that is less.
    """

    name: str
    how: str
    alone: int
    shared: int | None = None

    @property
    def units(self) -> str:
        """The cost as text: `5 write units alone, about 2 each in a large batch`."""
        noun = "write unit" if self.alone == 1 else "write units"
        return f"{self.alone} {noun}" + (f" alone, about {self.shared} each in a large batch" if self.shared else "")

    def document(self) -> dict[str, Any]:
        """Return the JSON."""
        return asdict(self)


class Action:
    """What a rule does. Places begin with the kind."""

    kind: ClassVar[str]
    colours: ClassVar[tuple[str, str]]
    """Its colour in pictures, on a light and on a dark ground."""
    icon: ClassVar[str]
    """SVG paths of 16 by 16."""
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
    makes_items: ClassVar[bool] = False
    """Whether its targets are items that it creates and deletes, whatever their entity declares."""
    makes_index_keys: ClassVar[bool] = False
    """Whether the attributes that it writes are keys of indexes."""

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
    def counters(self) -> int:
        """The number of value counters that one contribution changes."""
        return 0

    @property
    def ledger_actions(self) -> int:
        """The actions of a contribution in a transaction, beside its entry and the group that targets share."""
        return self.members + self.counters

    @property
    def queries(self) -> int:
        """The number of queries for members and value counters that a publish makes."""
        return 0

    @property
    def spread(self) -> int | None:
        """The number of ledger items that hold the totals of one target; None if that cannot be set."""
        return None

    @property
    def first_only(self) -> bool:
        """Whether it writes an attribute only where it is absent."""
        return False

    @property
    def copies_all(self) -> bool:
        """Whether it writes all attributes of its source."""
        return False

    @property
    def carried(self) -> Mapping[str, AttributeSource]:
        """The attributes of the target that have the value of a source as it is."""
        return {}

    @property
    def matched(self) -> Mapping[str, Template]:
        """The names by which targets reference their source, if it makes no key: name → template over the source."""
        return {}

    @property
    def elements(self) -> tuple[str, ...]:
        """The attributes of each element, if it writes a list."""
        return ()

    @property
    def several_parents(self) -> bool:
        """Whether a target can reference several sources."""
        return False

    @property
    def cases(self) -> tuple[Case, ...]:
        """The index keys that it sets in each case."""
        return ()

    def type_of(self, name: str) -> str | None:
        """Return the DynamoDB type of an attribute that it writes; None if it is unknown."""
        values = (part.value for part in self.parts() if name in part.attributes)
        types = {value.type for value in values if not isinstance(value, Pattern)}
        return types.pop() if len(types) == 1 else None

    def gist(self, indexes: Sequence[str]) -> str:
        """Return what it writes, in a few words. `indexes` are those whose keys it makes."""
        names = list(self.written)
        text = ", ".join(names)
        return text if len(names) == 1 or len(text) <= _SHORT else f"{names[0]} and {len(names) - 1} more"

    def sentence(self, source: str, target: str, indexes: Sequence[str]) -> str:
        """Return what it does with the items of an entity, in a sentence."""
        raise NotImplementedError

    def write_path(self, each: str, indexes: Sequence[str]) -> WritePath:
        """Return its writes; those of a recorded rule go through the ledger.

        `each` has the words about elements of a list, if the rule has `each`; `indexes` are those whose keys it makes, or by
        which it finds its targets.
        """
        return self._ledger_path()

    def _ledger_path(self, longest: int = 1) -> WritePath:
        """Return the path through the ledger. In a transaction, entry, group and each member and counter cost two units."""
        group = f"one of {self.spread} shards of the group" if (self.spread or 1) > 1 else "group"
        members = [f"{self.members} members" if self.members > 1 else "member"] if self.members else []
        counters = (
            [f"{self.counters} value counters" if self.counters > 1 else "value counter"] if self.counters else []
        )
        *first, last = ["entry", group, *members, *counters]
        target = "1 write of the target" if longest == 1 else f"1 write of the target, with the first {longest}"
        how = f"{', '.join(first)} and {last} in one transaction of the ledger, then {target}"
        return WritePath(self.kind, how, 5 + 2 * self.ledger_actions, 2 + 2 * self.ledger_actions)


_SHORT = 22


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
