"""A data model of another tool: proposals for its tables, and the parts that were not read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

from projections.errors import UsageError
from projections.init.proposal import Entity, Pairs, Proposal, Table, overlapping
from projections.init.rows import pascal
from projections.language.forms import shown
from projections.language.syntax import Location, dotted
from projections.language.templates import KeyPattern


class WrongPart(UsageError):
    """A part of a document that cannot be used: its place, and the reason."""

    def __init__(self, part: Part, reason: str) -> None:
        super().__init__(f"{part.file}: {part.place}: {reason}")
        self.place, self.reason = part.place, reason


@dataclass(frozen=True)
class Part:
    """A value of a document, with the name of its file and its path in it."""

    file: str
    value: Any
    path: Location = ()

    @property
    def place(self) -> str:
        return dotted(self.path)

    def wrong(self, reason: str) -> WrongPart:
        """Return the error that this part cannot be used, for the caller to raise."""
        return WrongPart(self, reason)

    def get(self, name: str) -> Part | None:
        """Return a member; None if it is absent or null. Raises WrongPart if this is not a mapping."""
        value = self._mapping().get(name)
        return None if value is None else Part(self.file, value, (*self.path, name))

    def need(self, name: str) -> Part:
        """Return a member. Raises WrongPart if it is absent."""
        member = self.get(name)
        if member is None:
            raise self.wrong(f"{name} is missing")
        return member

    def members(self) -> Iterator[tuple[str, Part]]:
        """Yield the members of a mapping. Raises WrongPart if it is none."""
        for name, value in self._mapping().items():
            yield name, Part(self.file, value, (*self.path, name))

    def elements(self) -> list[Part]:
        """Return the elements of a list. Raises WrongPart if it is none."""
        if not isinstance(self.value, list):
            raise self.wrong(f"expected a list, found {shown(self.value)}")
        return [Part(self.file, value, (*self.path, number)) for number, value in enumerate(self.value)]

    def all(self, name: str) -> list[Part]:
        """Return the elements of a member; none if it is absent."""
        member = self.get(name)
        return [] if member is None else member.elements()

    def text(self) -> str:
        """Return a text that is not empty. Raises WrongPart."""
        if not isinstance(self.value, str) or not self.value:
            raise self.wrong(f"expected a text, found {shown(self.value)}")
        return self.value

    def one_of(self, *texts: str) -> str:
        """Return one of these texts. Raises WrongPart."""
        if self.value not in texts:
            raise self.wrong(f"expected {', '.join(texts[:-1])} or {texts[-1]}, found {shown(self.value)}")
        return str(self.value)

    def _mapping(self) -> Mapping[str, Any]:
        if not isinstance(self.value, dict):
            raise self.wrong(f"expected a mapping, found {shown(self.value)}")
        return self.value


def parse_json(text: str, file: str) -> Part:
    """Return the document in a JSON text. Raises UsageError with the place of the mistake."""
    try:
        return Part(file, json.loads(text))
    except json.JSONDecodeError as error:
        raise UsageError(
            f"{file}:{error.lineno}:{error.colno}: not JSON: {error.msg}. Export the model again"
        ) from None
    except RecursionError:
        raise UsageError(f"{file}: nested too deeply. Export the model again") from None


KEY_TYPES = ("S", "N", "B")


Keys = tuple[Pairs, Pairs]
"""The attributes of a partition key and of a sort key."""


def table_of(name: str, described: Part, ttl: str | None, stream: str | None) -> Table:
    """Return the table that `KeySchema`, `AttributeDefinitions` and the two lists of indexes describe. Raises UsageError."""
    types = {
        definition.need("AttributeName").text(): definition.need("AttributeType").one_of(*KEY_TYPES)
        for definition in described.need("AttributeDefinitions").elements()
    }
    return with_indexes(name, described, ttl, stream, lambda part: _key(part.need("KeySchema"), types))


def with_indexes(
    name: str, described: Part, ttl: str | None, stream: str | None, key_of: Callable[[Part], Keys]
) -> Table:
    """Return the table with its indexes; `key_of` returns the key attributes of each of them. Raises UsageError."""
    partition, sort = key_of(described)
    if not partition:
        raise described.wrong("the partition key is missing")
    indexes, projected, local = {}, {}, set()
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        for index in described.all(kind):
            called = index.need("IndexName").text()
            indexes[called] = key_of(index)
            if kind == "LocalSecondaryIndexes":
                local.add(called)
                indexes[called] = partition, indexes[called][1]
            if not all(indexes[called][: 1 + (called in local)]):
                raise index.wrong("a key attribute is missing")
            projected_attributes = projection(index)
            if projected_attributes != "all":
                projected[called] = projected_attributes
    return Table(name, (*partition, *sort), indexes, ttl, stream, projected=projected, local=frozenset(local))


def projection(index: Part) -> str | tuple[str, ...]:
    """Return what `Projection` of an index says: `all`, `keys_only`, or the attributes that it lists."""
    part = index.get("Projection")
    if part is None:
        return "all"
    kind = part.need("ProjectionType").one_of("ALL", "KEYS_ONLY", "INCLUDE")
    if kind == "INCLUDE":
        return tuple(attribute.text() for attribute in part.need("NonKeyAttributes").elements())
    return kind.lower()


def _key(schema: Part, types: Mapping[str, str]) -> Keys:
    keys: dict[str, list[tuple[str, str]]] = {"HASH": [], "RANGE": []}
    for element in schema.elements():
        name = element.need("AttributeName").text()
        if name not in types:
            raise element.wrong(f"AttributeDefinitions has no type for {name}: add it there")
        keys[element.need("KeyType").one_of("HASH", "RANGE")].append((name, types[name]))
    if not keys["HASH"]:
        raise schema.wrong("no attribute has the KeyType HASH: a key has a partition key")
    return tuple(keys["HASH"]), tuple(keys["RANGE"])


_LONGEST_NAME = 64


@dataclass(frozen=True)
class Unread:
    """A part of a model that the rule file does not have: its place, and the reason."""

    place: str
    reason: str


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
    existing: bool = False

    def leave_out(self, place: str, reason: str) -> None:
        self.unread.append(Unread(place, reason))


def proposal_of(table: Table, entities: Sequence[Entity]) -> Proposal:
    """Return a proposal of declared entities, without a sample."""
    return Proposal(table, "#", distinguish_entities(entities, "#"), [], [], 0, True)


def distinguish_entities(entities: Sequence[Entity], separator: str) -> list[Entity]:
    """Return the entities of a table; those whose keys overlap match their type attribute, if both have one."""
    by_name = {entity.name: entity for entity in entities}
    for first, second in combinations(entities, 2):
        if first.kind and second.kind and first.kind != second.kind and overlapping(first, second, separator):
            for entity in (first, second):
                by_name[entity.name] = replace(by_name[entity.name], match=entity.kind)
    return list(by_name.values())


def key_variables(key: Mapping[str, str], separator: str) -> tuple[str, ...]:
    """Return the variables of key templates. Raises LanguageError."""
    names = (name for template in key.values() for name in KeyPattern.parse(template, separator).names)
    return tuple(dict.fromkeys(names))


def entity_name(text: str, taken: Iterable[str]) -> str:
    """Return a name of an entity that rule files accept and that is not taken."""
    name = text if re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]*", text) else pascal(text) or "Item"
    name = name if name[0].isalpha() else f"Item{name}"
    return free_name(name[:_LONGEST_NAME], set(taken))


def table_names(texts: Sequence[str]) -> list[str]:
    """Return a name for each of several tables that rule files accept."""
    names: list[str] = []
    for text in texts:
        name = re.sub(r"[^A-Za-z0-9_-]+", "-", text).strip("-")
        name = name if name[:1].isalpha() else f"table-{name}".rstrip("-")
        names.append(free_name(name[:_LONGEST_NAME], set(names)))
    return names


def free_name(name: str, taken: Collection[str]) -> str:
    """Return a name, with a number if it is taken."""
    number, free = 2, name
    while free in taken:
        free, number = f"{name[: _LONGEST_NAME - 4]}{number}", number + 1
    return free
