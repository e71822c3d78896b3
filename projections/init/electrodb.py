"""Schemas of ElectroDB entities as JSON: one schema, a list, or a mapping with schemas as values.

A schema names the attributes of which ElectroDB composes the keys. Unless it has a template, a key is a prefix and then
`#label_value` for each attribute: the partition key `$service#storeid_s1`, the sort key `$entity_1#unitid_u7`. The prefix of
the sort key begins with collections, if the index has any; in a clustered index the entity is at the end. By default all of
it is in lower case. Functions, such as `default`, `set` or `condition`, are not part of the JSON.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from projections.init.data_model import Keys, Model, Part, WrongPart, entity_name, key_variables, proposal_of
from projections.init.proposal import Attribute, Entity, Pairs, Table
from projections.init.rows import escape_braces, lower_camel
from projections.language.syntax import LanguageError

_CASINGS = {"default": "lower", "lower": "lower", "upper": "upper", "none": "none"}
_PLACEHOLDER = re.compile(r"\$\{([^{}]+)\}")
_SCALARS = ("string", "number", "boolean")


@dataclass(frozen=True)
class Names:
    """The names in a schema that are parts of keys."""

    service: str
    entity: str
    version: str
    attributes: Mapping[str, Part]

    def field(self, attribute: str) -> str:
        """Return the name of an attribute in items."""
        part = self.attributes[attribute].get("field")
        return part.text() if part is not None else attribute

    def type(self, attribute: str) -> str:
        """Return the type of an attribute; an enumeration is a string. Raises UsageError for types that keys cannot have."""
        part = self.attributes[attribute].need("type")
        kind = "string" if isinstance(part.value, list) else part.value
        if kind not in _SCALARS:
            raise part.wrong(f"a key is composed of attributes of type {', '.join(_SCALARS)} or an enumeration")
        return str(kind)


class Index:
    """An access pattern of a schema. `name` is that of the table's index, None for the table's key."""

    def __init__(self, part: Part, names: Names) -> None:
        self.part, self.names = part, names
        name, kind, scope = part.get("index"), part.get("type"), part.get("scope")
        self.name = name.text() if name is not None and name.value != "" else None
        self.kind = kind.text() if kind is not None else "isolated"
        self.scope = scope.text() if scope is not None else ""
        collection = part.get("collection")
        several = collection is not None and isinstance(collection.value, list)
        texts = collection.elements() if collection and several else [collection] if collection else []
        self.collections = tuple(text.text() for text in texts)
        self.ends = [End(end, role, self) for role in ("pk", "sk") if (end := part.get(role)) is not None]
        if not self.ends or self.ends[0].role != "pk":
            raise part.wrong("pk is missing")

    @property
    def native(self) -> bool:
        """Whether its keys are the attributes themselves, as DynamoDB allows for indexes."""
        return self.kind == "composite"

    def key_attributes(self) -> Keys:
        """Return partition and sort attributes with their types."""
        parts = [tuple(end.attributes()) for end in self.ends]
        return parts[0], parts[1] if len(parts) > 1 else ()

    def projection(self) -> str | tuple[str, ...]:
        projection = self.part.get("projection") or self.part.get("project")
        if projection is not None and isinstance(projection.value, list):
            return tuple(self.names.field(attribute.text()) for attribute in projection.elements())
        return projection.one_of("all", "keys_only") if projection is not None else "all"

    def prefixes(self) -> tuple[str, str, str]:
        """Return the beginnings of partition and sort key, and the end of the sort key."""
        names = self.names
        pk = f"${names.service}"
        collections = "$" + "#".join(self.collections) if self.collections else ""
        own = ("#" if collections else "$") + f"{names.entity}_{names.version}"
        sk, end = (collections, own) if self.kind == "clustered" else (collections + own, "")
        if len(self.ends) == 1:
            pk, sk, end = pk + sk + end, "", ""
        return pk + (f"_{self.scope}" if self.scope else ""), sk, end


class End:
    """The partition or the sort key of an index."""

    def __init__(self, part: Part, role: str, index: Index) -> None:
        self.part, self.role, self.index, self.names = part, role, index, index.names
        composite = part.get("composite")
        if composite is None or not isinstance(composite.value, list):
            raise part.wrong("composite is missing: a list of attributes. Other forms of it cannot be read")
        self.composite = [attribute.text() for attribute in composite.elements()]
        for attribute in composite.elements():
            if attribute.value not in self.names.attributes:
                raise attribute.wrong(f"the schema has no attribute {attribute.value}")
        casing = part.get("casing")
        self.casing = _CASINGS[casing.one_of(*_CASINGS)] if casing is not None else "lower"
        template = part.get("template")
        self.text = template.text() if template is not None else None
        self.field = "" if index.native else part.need("field").text()

    @cached_property
    def itself(self) -> bool:
        """Whether the key attribute is an attribute of the schema."""
        return [self.names.field(name) for name in self.composite] == [self.field]

    def attributes(self) -> Iterator[tuple[str, str]]:
        """Yield the key attributes with their types."""
        if self.index.native:
            for name in self.composite:
                yield self.names.field(name), "N" if self.names.type(name) == "number" else "S"
        else:
            yield self.field, "N" if self._numeric() else "S"

    def _numeric(self) -> bool:
        cast = self.part.get("cast")
        if cast is not None:
            return bool(cast.value == "number")
        alone = len(self.composite) == 1 and (self.itself or self.text == "${" + self.composite[0] + "}")
        return alone and self.names.type(self.composite[0]) == "number"

    def template(self, *, key: bool) -> str:
        """Return the template of an entity's key, or of an index key. Raises UsageError if there is none."""
        if self.itself or self._numeric():
            return "{" + self.names.field(self.composite[0]) + "}"
        text = ""
        for literal, name in self._pieces():
            text += escape_braces(_in_casing(literal, self.casing))
            if name is not None:
                text += "{" + (self._names(name)[0] if key else self.names.field(name) + self.pipes(name)) + "}"
        return text

    def _pieces(self) -> Iterator[tuple[str, str | None]]:
        """Yield texts, each with the attribute after it."""
        if self.text is not None:
            start = 0
            for placeholder in _PLACEHOLDER.finditer(self.text):
                if placeholder[1] not in self.names.attributes:
                    raise self.part.need("template").wrong(f"the schema has no attribute {placeholder[1]}")
                yield self.text[start : placeholder.start()], placeholder[1]
                start = placeholder.end()
            yield self.text[start:], None
            return
        pk, sk, end = self.index.prefixes()
        before = pk if self.role == "pk" else sk
        for name in self.composite:
            label = self.names.attributes[name].get("label")
            yield f"{before}#{label.text() if label is not None else name}_", name
            before = ""
        yield before + (end if self.role == "sk" else ""), None

    def notes(self) -> Iterator[str]:
        """Yield what the names of variables cannot say."""
        for name in [] if self.itself or self._numeric() else self.composite:
            variable, difference = self._names(name)
            if difference:
                yield f"In keys, {variable} is {self.names.field(name)} {difference}, as ElectroDB composes them."

    def _names(self, name: str) -> tuple[str, str]:
        """Return the variable for an attribute, and how its texts differ from the attribute's values.

        A variable with the name of an attribute must have its value, so others have a name of their own.
        """
        field = self.names.field(name)
        field = field if field.isidentifier() else lower_camel(field)
        if self.names.attributes[name].get("padding") is not None:
            return f"{field}Padded", "with padding"
        if self.names.type(name) == "boolean":
            return f"{field}Text", "as text"
        if self._changes_case(name):
            return f"{field}{self.casing.capitalize()}", f"in {self.casing} case"
        return field, ""

    def _changes_case(self, name: str) -> bool:
        part = self.names.attributes[name].need("type")
        if self.casing == "none" or part.value == "number":
            return False
        if isinstance(part.value, list):
            return any(_in_casing(choice.text(), self.casing) != choice.value for choice in part.elements())
        return True

    def pipes(self, name: str) -> str:
        """Return the pipes that make the text in the key of an attribute, such as `|lower`. Raises WrongPart."""
        kind, padding = self.names.type(name), self.names.attributes[name].get("padding")
        if padding is not None:
            length = padding.need("length").value
            if kind != "number" or padding.need("char").value != "0" or not isinstance(length, int):
                raise padding.wrong("only the padding of numbers with 0 can be written as a template")
            return f"|pad({length})"
        if kind == "boolean":
            raise self.part.wrong(f"{name} is a boolean: a template takes texts and numbers")
        return f"|{self.casing}" if self._changes_case(name) else ""


def _in_casing(text: str, casing: str) -> str:
    return text if casing == "none" else text.lower() if casing == "lower" else text.upper()


_TYPES = {"string": "S", "number": "N", "boolean": "BOOL", "list": "L", "map": "M", "set": "SS"}
_IDENTIFIER = "__edb_e__"


def is_schema(value: Any) -> bool:
    """Return whether a JSON value is a schema, in its form since version 1 of ElectroDB."""
    return isinstance(value, dict) and {"model", "indexes"} <= value.keys()


def read_schemas(schemas: Sequence[Part]) -> Model:
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
        name = f"app{number if len(tables) > 1 else ''}"
        stored = Table(name, table.key, table.indexes, stream="NEW_AND_OLD_IMAGES", projected=table.projected)
        model.proposals.append(proposal_of(stored, table.entities))
    model.leave_out("(top)", "a schema has neither the table's name nor its TTL: add `ttl` to the table")
    model.leave_out("(top)", "functions such as `default`, `get`, `set` and `condition` are not in the JSON")
    return model


@dataclass
class _Entities:
    """A table, as the indexes of its entities describe it."""

    key: Pairs
    indexes: dict[str, Keys] = field(default_factory=dict)
    projected: dict[str, str | tuple[str, ...]] = field(default_factory=dict)
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
                hint = f"{index.name} may be a local index: then write `{{ sort: …, local: true }}`"
                schema.model.leave_out(index.part.place, hint)
        if (entity := schema.entity()) is not None:
            self.entities.append(entity)


class _Schema:
    """One entity: its names, its attributes, and its indexes, the primary one first."""

    def __init__(self, part: Part, model: Model) -> None:
        self.model = model
        self.name = ""
        named = part.need("model")
        self.names = Names(
            named.need("service").text(),
            named.need("entity").text(),
            str(named.need("version").value),
            dict(part.need("attributes").members()),
        )
        self.indexes = [Index(index, self.names) for _, index in part.need("indexes").members()]
        self.indexes.sort(key=lambda index: index.name is not None)
        if not self.indexes or self.indexes[0].name is not None:
            raise part.need("indexes").wrong("no index is that of the table: it is the one without `index`")

    def entity(self) -> Entity | None:
        """Return the entity; None if its key cannot be read."""
        primary = self.indexes[0]
        try:
            key = {end.field: end.template(key=True) for end in primary.ends}
            variables = key_variables(key, "#")
        except WrongPart as error:
            self.model.leave_out(error.place, f"{self.name} is left out: {error.reason}")
            return None
        except LanguageError as error:
            self.model.leave_out(primary.part.place, f"{self.name} is left out: no unambiguous key template: {error}")
            return None
        return Entity(
            self.name,
            key,
            variables,
            tuple(self._attributes()),
            0,
            index_key=self._index_key(key),
            required=tuple(self._required_attributes(key)),
            kind=(_IDENTIFIER, self.names.entity),
            notes=tuple(dict.fromkeys(note for end in primary.ends for note in end.notes())),
        )

    def _index_key(self, key: Mapping[str, str]) -> dict[str, str]:
        keys: dict[str, str] = {}
        for end in (end for index in self.indexes[1:] for end in index.ends):
            if end.index.native:
                keys |= {name: "{" + name + "}" for name, _ in end.attributes() if name not in key}
            elif end.field not in key and end.field not in keys:  # the first index composes an attribute of several
                try:
                    keys[end.field] = end.template(key=False)
                except WrongPart as error:
                    self.model.leave_out(error.place, f"{self.name} has no index_key for {end.field}: {error.reason}")
        return keys

    def _required_attributes(self, key: Mapping[str, str]) -> Iterator[str]:
        for name, part in self.names.attributes.items():
            required = part.get("required")
            if required is not None and required.value is True and (field_name := self.names.field(name)) not in key:
                yield field_name

    def _attributes(self) -> Iterator[Attribute]:
        keys = {end.field for index in self.indexes for end in index.ends}
        for name, part in self.names.attributes.items():
            if (field_name := self.names.field(name)) in keys:
                continue
            type_ = part.need("type").value
            kind = "string" if isinstance(type_, list) else type_
            if not isinstance(kind, str) or kind not in _TYPES:
                reason = f"the type of {name} is not one of {', '.join(_TYPES)}: the attribute is left out"
                self.model.leave_out(part.place, reason)
                continue
            items = part.get("items") if kind == "set" else None
            numbers = items is not None and items.value == "number"
            yield Attribute(field_name, "NS" if numbers else _TYPES[kind])
