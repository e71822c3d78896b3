"""Rules as a data model of NoSQL Workbench.

The form follows the models that NoSQL Workbench exports, version 3.0. AWS documents only facets. An attribute has one type
in a model, and the data of tables with facets is in the facets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from projections.deploy.checksum import UNSIGNED
from projections.init.models.model import Unread
from projections.init.models.samples import sample_items
from projections.init.models.workbench import SERVICE
from projections.language import canonical
from projections.language.keys import Image
from projections.language.program import Program

__all__ = ["Exported", "workbench_model"]

_VERSION = "3.0"
_DATA_ACCESS: Mapping[str, Any] = {"MySql": {}}
_MAIN = "main"
_LOCAL = "it is in LocalSecondaryIndexes, which AWS does not document. If NoSQL Workbench rejects the model, remove it"


@dataclass(frozen=True)
class Exported:
    """A model as JSON, and the parts of the rules that it does not have."""

    document: Mapping[str, Any]
    left_out: Sequence[Unread]
    items: int


def workbench_model(name: str, program: Program, now: datetime) -> Exported:
    """Return the model with this name: tables, indexes, a facet with sample items for each entity."""
    samples = sample_items(program)
    rules = program.typed
    tables = [
        _table(name if table == _MAIN else table, table, rules, samples)
        for table in rules.tables
        if table in program.tables
    ]
    stamp = now.strftime("%b %d, %Y, %I:%M %p")
    document = {
        "ModelName": name,
        "ModelMetadata": {
            "Author": "",
            "DateCreated": stamp,
            "DateLastModified": stamp,
            "Description": UNSIGNED,
            "AWSService": SERVICE,
            "Version": _VERSION,
        },
        "DataModel": tables,
    }
    return Exported(document, list(_left_out(rules)), sum(map(len, samples.values())))


def _table(called: str, name: str, rules: canonical.Document, samples: Mapping[str, Sequence[Image]]) -> dict[str, Any]:
    table = rules.tables[name]
    entities = [entity for entity, one in rules.entities.items() if one.table == name]
    types = _types(table, rules, entities, samples)
    keys = [one for one, _ in filter(None, (table.partition, table.sort))]
    found: dict[str, Any] = {
        "TableName": called,
        "KeyAttributes": _key((table.partition,), (table.sort,) if table.sort else ()),
        "NonKeyAttributes": [
            {"AttributeName": attribute, "AttributeType": kind}
            for attribute, kind in types.items()
            if attribute not in keys
        ],
        "TableFacets": [_facet(entity, rules, keys, types, samples[entity]) for entity in entities],
        "GlobalSecondaryIndexes": list(_indexes(table, local=False)),
    }
    local = list(_indexes(table, local=True))
    if local:
        found["LocalSecondaryIndexes"] = local
    return {**found, "DataAccess": _DATA_ACCESS, "BillingMode": "PAY_PER_REQUEST"}


def _key(partition: canonical.Attributes, sort: canonical.Attributes) -> dict[str, Any]:
    parts = {"PartitionKey": partition, "SortKey": sort}
    return {
        part: {"AttributeName": name, "AttributeType": kind}
        for part, pairs in parts.items()
        for name, kind in pairs[:1]
    }


def _indexes(table: canonical.Table, *, local: bool) -> Iterator[dict[str, Any]]:
    for name, index in table.indexes.items():
        if index.local is not local or _several(index):
            continue
        kind = index.projection.upper() if isinstance(index.projection, str) else "INCLUDE"
        projection: dict[str, Any] = {"ProjectionType": kind}
        if kind == "INCLUDE":
            projection["NonKeyAttributes"] = [*index.projection]
        yield {"IndexName": name, "KeyAttributes": _key(index.partition, index.sort), "Projection": projection}


def _several(index: canonical.IndexKeys) -> bool:
    return len(index.partition) > 1 or len(index.sort) > 1


def _types(
    table: canonical.Table, rules: canonical.Document, entities: Sequence[str], samples: Mapping[str, Sequence[Image]]
) -> dict[str, str]:
    """Return the type of each attribute: of keys first, then as in the first sample item that has it, else text."""
    types = dict(filter(None, (table.partition, table.sort)))
    for index in table.indexes.values():
        types |= dict((*index.partition, *index.sort))
    if table.ttl:
        types[table.ttl] = "N"
    for entity in entities:
        for item in samples[entity]:
            for name, value in item.items():
                types.setdefault(name, next(iter(value)))
        for name in _written(entity, rules):
            types.setdefault(name, "S")
    return types


def _written(entity: str, rules: canonical.Document) -> Iterator[str]:
    for rule in rules.rules.values():
        if rule.into == entity:
            yield from (name for name in rule.written if "." not in name)


def _facet(
    entity: str, rules: canonical.Document, keys: Sequence[str], types: Mapping[str, str], items: Sequence[Image]
) -> dict[str, Any]:
    rows = [{name: value for name, value in item.items() if types[name] in value} for item in items]
    names = dict.fromkeys([name for row in rows for name in row if name not in keys] + [*_written(entity, rules)])
    alias = dict(
        zip(("PartitionKeyAlias", "SortKeyAlias"), (rules.entities[entity].key[key] for key in keys), strict=False)
    )
    return {
        "FacetName": entity,
        "KeyAttributeAlias": alias,
        "TableData": rows,
        "NonKeyAttributes": list(names),
        "DataAccess": _DATA_ACCESS,
    }


def _left_out(rules: canonical.Document) -> Iterator[Unread]:
    for name, table in rules.tables.items():
        if table.ttl:
            yield Unread(f"tables.{name}.ttl", "a model has no TTL")
        for index, keys in table.indexes.items():
            place = f"tables.{name}.indexes.{index}"
            if _several(keys):
                yield Unread(place, "a key of several attributes: the index is left out")
            elif keys.local:
                yield Unread(place, _LOCAL)
    for name, entity in rules.entities.items():
        given = {"match": entity.match, "id": entity.id, "derived": entity.derived, "expires": entity.expires}
        for part in (part for part, value in given.items() if value):
            yield Unread(f"entities.{name}.{part}", "a facet cannot contain it")
    if rules.rules:
        yield Unread("projections", "a model has no rules; the sample items have the values that rules derive")
