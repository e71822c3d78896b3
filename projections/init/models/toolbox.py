"""Entities and tables of DynamoDB-Toolbox as JSON: what its actions `EntityDTO` and `TableDTO` return.

A DTO has no functions: a key that `computeKey` or a link computes cannot be read from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from projections.init.inference.proposal import Attribute, Entity
from projections.init.inference.words import lower_camel
from projections.init.models.model import Model, Query, Unread, entity_name, key_variables, proposal_of
from projections.init.models.parts import Part, WrongPart
from projections.init.table import Pairs, Table
from projections.language.syntax import LanguageError

__all__ = ["is_dto", "read"]

_KEY_TYPES = {"string": "S", "number": "N", "binary": "B"}
_TYPES = _KEY_TYPES | {
    **dict.fromkeys(("list", "tuple"), "L"),
    **dict.fromkeys(("map", "record"), "M"),
    "boolean": "BOOL",
    "null": "NULL",
    "set": "SS",
}
_SETS = {"string": "SS", "number": "NS", "binary": "BS"}
_LINKS = ("keyLink", "putLink", "updateLink")


def is_dto(value: Any) -> bool:
    """Return whether a JSON value is the DTO of an entity or of a table."""
    return isinstance(value, dict) and ({"entityName", "schema", "table"} <= value.keys() or _is_table(value))


def _is_table(value: dict[str, Any]) -> bool:
    return "partitionKey" in value and "entityName" not in value


def read(documents: Sequence[Part]) -> Model:
    """Return the tables and entities of DTOs. Raises UsageError."""
    model = Model("DynamoDB-Toolbox DTO", documents[0].file, [])
    tables: dict[str, _Entities] = {}
    taken: list[str] = []
    for part in documents:
        described = part if _is_table(part.value) else part.need("table")
        table = _table(described)
        entities = tables.setdefault(table.name, _Entities(table))
        if entities.table != table:
            raise described.wrong(f"the table {table.name} has another key or other indexes in another DTO")
        if part is described:
            continue
        name = entity_name(part.need("entityName").text(), taken)
        taken.append(name)
        entity = _entity(name, part, described, table, model)
        if entity is not None:
            entities.entities.append(entity)
    for entities in tables.values():
        model.proposals.append(proposal_of(entities.table, entities.entities))
        for index in entities.table.indexes:
            model.unread.append(Unread(f"index {index}", "a DTO does not have its projection: it is taken to be all"))
        model.queries += [
            Query(lower_camel(one.name), (one.name,), _partition_variables(one, entities.table))
            for one in entities.entities
        ]
    return model


@dataclass
class _Entities:
    """The entities of a table."""

    table: Table
    entities: list[Entity] = field(default_factory=list)


def _partition_variables(entity: Entity, table: Table) -> tuple[str, ...]:
    name, _ = table.key[0]
    return tuple(variable.name for variable in key_variables({name: entity.key[name]}, table, "#"))


def _table(part: Part) -> Table:
    partition, sort = _pairs(part, "partitionKey"), _pairs(part, "sortKey")
    if len(partition) != 1:
        raise part.wrong("partitionKey is missing")
    indexes: dict[str, tuple[Pairs, Pairs]] = {}
    local = set()
    given = part.get("indexes")
    for name, index in given.members() if given is not None else ():
        if index.need("type").one_of("global", "local") == "local":
            local.add(name)
            indexes[name] = (partition, _pairs(index, "sortKey"))
        else:
            indexes[name] = (_pairs(index, "partitionKey"), _pairs(index, "sortKey"))
        if not all(indexes[name][: 1 + (name in local)]):
            raise index.wrong(f"{'sortKey' if name in local else 'partitionKey'} is missing")
    called = part.get("tableName")
    return Table(
        called.text() if called is not None else "app",
        (*partition, *sort),
        indexes,
        stream="NEW_AND_OLD_IMAGES",
        local=frozenset(local),
    )


def _pairs(part: Part, name: str) -> Pairs:
    """Return `partitionKey`, or the several attributes in `partitionKeys`."""
    one = part.get(name)
    listed = [one] if one is not None else part.all(f"{name}s")
    return tuple((key.need("name").text(), _KEY_TYPES[key.need("type").one_of(*_KEY_TYPES)]) for key in listed)


def _entity(name: str, part: Part, described: Part, table: Table, model: Model) -> Entity | None:
    """Return the entity; None if its key is computed by a function."""
    attributes = {
        _saved_as(called, one): (called, one) for called, one in part.need("schema").need("attributes").members()
    }
    key, notes = {}, []
    for key_name, _ in table.key:
        called, one = attributes.get(key_name, (key_name, None))
        try:
            if one is None:
                raise part.wrong(f"no attribute is saved as {key_name}")
            key[key_name], note = _key_template(called, one, part)
            notes += [note] if note else []
            key_variables({key_name: key[key_name]}, table, "#")
        except WrongPart as error:
            model.unread.append(Unread(error.place, f"{name} is left out: {error.reason}. Write its key template"))
            return None
        except LanguageError as error:
            model.unread.append(
                Unread(part.place, f"{name} is left out: no unambiguous template for {key_name}: {error}")
            )
            return None
    kind = None
    given = part.get("entityAttribute")
    if given is None or given.value is not False:
        saved = described.get("entityAttributeSavedAs")
        kind = (saved.text() if saved is not None else "_et", part.need("entityName").text())
    return Entity(
        name,
        key,
        key_variables(key, table, "#"),
        tuple(_attributes(part, table, model)),
        0,
        index_key={one: "{" + one + "}" for one in sorted(table.index_names & attributes.keys())},
        kind=kind,
        notes=tuple(notes),
    )


def _saved_as(name: str, part: Part) -> str:
    saved = part.get("savedAs")
    return saved.text() if saved is not None else name


def _key_template(name: str, part: Part, entity: Part) -> tuple[str, str]:
    """Return the template of a key attribute and a note. Raises UsageError if a function computes it."""
    for link in _LINKS:
        if part.get(link) is not None:
            raise part.wrong(f"{link} computes it, a function, which a DTO does not have")
    hidden = part.get("hidden")
    others = [
        called
        for called, one in entity.need("schema").need("attributes").members()
        if called != name and one.get("key") is not None and one.get("savedAs") is None and one.get("hidden") is None
    ]
    if hidden is not None and hidden.value is True and others:
        raise part.wrong(f"computeKey computes it from {', '.join(others)}, a function, which a DTO does not have")
    allowed = part.get("enum")
    default = part.get("keyDefault") or part.get("putDefault")
    note = ""
    if allowed is not None and len(allowed.elements()) == 1:
        text = str(allowed.elements()[0].value).replace("{", "{{").replace("}", "}}")
    else:
        text = "{" + (name if name.isidentifier() else "key") + "}"
        if default is not None and default.get("value") is not None:
            note = f"{name} is {default.need('value').value} by default."
    transform = part.get("transform")
    return (_transformed(text, transform) if transform is not None else text), note


def _transformed(text: str, transform: Part) -> str:
    kind = transform.need("transformerId").text()
    if kind == "pipe":
        for one in transform.need("transformers").elements():
            text = _transformed(text, one)
        return text
    if kind not in ("prefix", "suffix"):
        raise transform.wrong(f"the transformer {kind} cannot be written as a template")
    given = transform.get("delimiter")
    added = (transform.need(kind).text(), str(given.value) if given is not None else "#")
    literal, delimiter = (one.replace("{", "{{").replace("}", "}}") for one in added)
    return literal + delimiter + text if kind == "prefix" else text + delimiter + literal


def _attributes(part: Part, table: Table, model: Model) -> Iterator[Attribute]:
    keys = {*table.key_names, *table.index_names}
    for name, one in part.need("schema").need("attributes").members():
        saved = _saved_as(name, one)
        kind = one.need("type").text()
        if saved in keys:
            continue
        if kind not in _TYPES:
            model.unread.append(Unread(one.place, f"the type {kind} is not one of DynamoDB: the attribute is left out"))
            continue
        elements = one.get("elements") if kind == "set" else None
        yield Attribute(
            saved, _SETS.get(str(elements.need("type").value), "SS") if elements else _TYPES[kind], "text", 1, 1
        )
