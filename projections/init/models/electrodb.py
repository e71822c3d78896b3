"""Schemas of ElectroDB entities as JSON: one schema, a list, or a mapping with schemas as values.

A schema names the attributes of which ElectroDB composes the keys. Unless it has a template, a key is a prefix and then
`#label_value` for each attribute: the partition key `$service#storeid_s1`, the sort key `$entity_1#unitid_u7`. The prefix of
the sort key begins with collections, if the index has any; in a clustered index the entity is at the end. By default all of
it is in lower case. Functions, such as `default`, `set` or `condition`, are not part of the JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from projections.init.inference.proposal import Attribute, Entity
from projections.init.inference.words import lower_camel
from projections.init.models.electrodb_keys import Index, Names
from projections.init.models.model import Model, Query, Unread, entity_name, key_variables, proposal_of
from projections.init.models.parts import Part, WrongPart
from projections.init.table import Pairs, Table
from projections.language.syntax import LanguageError

__all__ = ["is_schema", "read"]

_TYPES = {"string": "S", "number": "N", "boolean": "BOOL", "list": "L", "map": "M", "set": "SS"}
_IDENTIFIER = "__edb_e__"


def is_schema(value: Any) -> bool:
    """Return whether a JSON value is a schema: of `model`, or of the form before version 1."""
    return (
        isinstance(value, dict) and "indexes" in value and ("model" in value or {"entity", "service"} <= value.keys())
    )


def read(schemas: Sequence[Part]) -> Model:
    """Return the entities of schemas, by the tables that their keys belong to. Raises UsageError."""
    model = Model("ElectroDB schema", schemas[0].file, [])
    tables: dict[Pairs, _Entities] = {}
    taken: list[str] = []
    for part in schemas:
        schema = _Schema(part, model)
        key = tuple(pair for keys in schema.indexes[0].key_attributes() for pair in keys)
        schema.name = entity_name(schema.names.entity, taken)
        taken.append(schema.name)
        tables.setdefault(key, _Entities(key)).add(schema)
    for number, table in enumerate(tables.values(), 1):
        model.proposals.append(proposal_of(table.described(f"app{number if len(tables) > 1 else ''}"), table.entities))
    model.unread.append(Unread("(top)", "a schema has neither the table's name nor its TTL: add `ttl` to the table"))
    model.unread.append(
        Unread("(top)", "functions such as `default`, `get`, `set` and `condition` are not in the JSON")
    )
    model.queries = list(_queries(tables.values()))
    return model


@dataclass
class _Entities:
    """A table, as the indexes of its entities describe it."""

    key: Pairs
    indexes: dict[str, tuple[Pairs, Pairs]] = field(default_factory=dict)
    projected: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
    schemas: list[_Schema] = field(default_factory=list)
    entities: list[Entity] = field(default_factory=list)

    def add(self, schema: _Schema) -> None:
        for index in schema.indexes:
            if index.name is None:
                continue
            keys, projection = index.key_attributes(), index.projection()
            if self.indexes.setdefault(index.name, keys) != keys:
                raise index.part.wrong(f"{index.name} has other key attributes in another place: correct one of them")
            if projection != "all":
                self.projected[index.name] = projection
            if keys[0] == self.key[:1] and not index.native:
                schema.unread(index.part, f"{index.name} may be a local index: then write `{{ sort: …, local: true }}`")
        self.schemas.append(schema)
        if (entity := schema.entity()) is not None:
            self.entities.append(entity)

    def described(self, name: str) -> Table:
        return Table(name, self.key, self.indexes, stream="NEW_AND_OLD_IMAGES", projected=self.projected)


class _Schema:
    """One entity: its names, its attributes, and its indexes, the primary one first."""

    def __init__(self, part: Part, model: Model) -> None:
        self.part = part
        self.model = model
        self.name = ""
        head = part.get("model")
        named = head or part
        self.names = Names(
            named.need("service").text(),
            named.need("entity").text(),
            str(named.need("version").value),
            head is not None,
            dict(part.need("attributes").members()),
        )
        self.indexes = [Index(name, index, self.names) for name, index in part.need("indexes").members()]
        self.indexes.sort(key=lambda index: index.name is not None)
        if not self.indexes or self.indexes[0].name is not None:
            raise part.need("indexes").wrong("no index is that of the table: it is the one without `index`")

    def unread(self, part: Part, reason: str) -> None:
        self.model.unread.append(Unread(part.place, reason))

    def entity(self) -> Entity | None:
        """Return the entity; None if its key cannot be read."""
        primary = self.indexes[0]
        try:
            key = {one.field: one.template(key=True) for one in primary.ends}
            variables = key_variables(key, "#")
        except WrongPart as error:
            self.model.unread.append(Unread(error.place, f"{self.name} is left out: {error.reason}"))
            return None
        except LanguageError as error:
            self.unread(primary.part, f"{self.name} is left out: no unambiguous key template: {error}")
            return None
        return Entity(
            self.name,
            key,
            variables,
            tuple(self._attributes()),
            0,
            index_key=self._index_key(key),
            required=tuple(self._required(key)),
            kind=(_IDENTIFIER, self.names.entity),
            notes=tuple(dict.fromkeys(note for one in primary.ends for note in one.notes())),
        )

    def _index_key(self, key: Mapping[str, str]) -> dict[str, str]:
        found: dict[str, str] = {}
        for one in (one for index in self.indexes[1:] for one in index.ends):
            if one.index.native:
                found |= {name: "{" + name + "}" for name, _ in one.attributes() if name not in key}
            elif one.field not in key and one.field not in found:  # the first index composes an attribute of several
                try:
                    found[one.field] = one.template(key=False)
                except WrongPart as error:
                    reason = f"{self.name} has no index_key for {one.field}: {error.reason}"
                    self.model.unread.append(Unread(error.place, reason))
        return found

    def _required(self, key: Mapping[str, str]) -> Iterator[str]:
        for name, part in self.names.attributes.items():
            given = part.get("required")
            if given is not None and given.value is True and self.names.field(name) not in key:
                yield self.names.field(name)

    def _attributes(self) -> Iterator[Attribute]:
        keys = {one.field for index in self.indexes for one in index.ends}
        for name, part in self.names.attributes.items():
            if (field_name := self.names.field(name)) in keys:
                continue
            given = part.need("type").value
            kind = "string" if isinstance(given, list) else given
            if not isinstance(kind, str) or kind not in _TYPES:
                self.unread(part, f"the type of {name} is not one of {', '.join(_TYPES)}: the attribute is left out")
                continue
            items = part.get("items") if kind == "set" else None
            numbers = items is not None and items.value == "number"
            yield Attribute(field_name, "NS" if numbers else _TYPES[kind], "text", 1, 1)


def _queries(tables: Iterable[_Entities]) -> Iterator[Query]:
    """Yield one query for each access pattern, and one for each collection of several entities."""
    for table in tables:
        collections: dict[tuple[str, str | None], list[tuple[_Schema, Index]]] = {}
        entities = {entity.name: entity for entity in table.entities}
        for schema, index in [(one, index) for one in table.schemas for index in one.indexes]:
            entity = entities.get(schema.name)
            if entity is None:
                continue
            for collection in index.collections:
                collections.setdefault((collection, index.name), []).append((schema, index))
            present = index.present([*entity.variables, *entity.required])
            name = lower_camel(f"{schema.name} {index.pattern}")
            try:
                yield Query(name, (schema.name,), index.by(entity.key), index.name, present)
            except WrongPart as error:
                schema.model.unread.append(Unread(error.place, f"query {name} is left out: {error.reason}"))
        for (collection, index_name), members in collections.items():
            if len(members) > 1:
                found = tuple(schema.name for schema, _ in members)
                yield Query(lower_camel(collection), found, members[0][1].by(entities[found[0]].key), index_name)
