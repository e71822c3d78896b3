"""Data models of NoSQL Workbench for Amazon DynamoDB: tables, facets and sample items."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from projections.init.models.aws import KEY_TYPES, projection
from projections.init.models.facets import Facet, FacetTable
from projections.init.models.model import Model, Unread, not_read
from projections.init.models.parts import Part
from projections.init.table import Pairs, Table
from projections.language.values import Image

__all__ = ["SERVICE", "is_workbench", "read"]

SERVICE = "Amazon DynamoDB"

_TABLE_MEMBERS = (
    *("TableName", "KeyAttributes", "NonKeyAttributes", "TableFacets", "GlobalSecondaryIndexes", "TableData"),
    *("LocalSecondaryIndexes", "DataAccess", "SampleDataFormats", "BillingMode", "ProvisionedCapacitySettings"),
)
_FACET_MEMBERS = ("FacetName", "KeyAttributeAlias", "TableData", "NonKeyAttributes", "DataAccess")


def is_workbench(document: Mapping[str, Any]) -> bool:
    """Return whether a JSON document is a model of NoSQL Workbench."""
    return "DataModel" in document


def read(document: Part) -> Model:
    """Return the tables of a model, with entities from facets and sample items. Raises UsageError."""
    metadata = document.get("ModelMetadata")
    service = metadata.get("AWSService") if metadata is not None else None
    if service is not None and service.value != SERVICE:
        raise service.wrong(f"a model of {service.value}: this command reads models of {SERVICE}")
    parts = document.need("DataModel").elements()
    if not parts:
        raise document.need("DataModel").wrong(
            "the model has no table: add one in NoSQL Workbench, and export it again"
        )
    model = Model("NoSQL Workbench model", document.file, [])
    taken: list[str] = []
    for part in parts:
        facets = _facets(part, _table(part), model)
        proposal = facets.proposal(taken)
        taken += [entity.name for entity in proposal.entities]
        model.proposals.append(proposal)
        model.queries += facets.queries(proposal)
    model.unread.append(
        Unread("(top)", "a model does not have the TTL of its tables: if items expire, add `ttl` to the table")
    )
    return model


def _table(part: Part) -> Table:
    partition, sort = _key(part)
    if len(partition) != 1:
        raise part.wrong("KeyAttributes.PartitionKey is missing")
    indexes: dict[str, tuple[Pairs, Pairs]] = {}
    projected: dict[str, str | tuple[str, ...]] = {}
    local = set()
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        for index in part.all(kind):
            called = index.need("IndexName").text()
            indexes[called] = _key(index)
            if kind == "LocalSecondaryIndexes":
                local.add(called)
                indexes[called] = (partition, indexes[called][1])
            if not all(indexes[called][: 1 + (called in local)]):
                raise index.wrong("KeyAttributes lacks a key attribute")
            shown = projection(index)
            if shown != "all":
                projected[called] = shown
    return Table(
        part.need("TableName").text(),
        (*partition, *sort),
        indexes,
        stream="NEW_AND_OLD_IMAGES",
        projected=projected,
        local=frozenset(local),
    )


def _key(part: Part) -> tuple[Pairs, Pairs]:
    keys = part.need("KeyAttributes")

    def pairs(name: str) -> Pairs:
        one = keys.get(name)
        if one is None:
            return ()
        return ((one.need("AttributeName").text(), one.need("AttributeType").one_of(*KEY_TYPES)),)

    return pairs("PartitionKey"), pairs("SortKey")


def _facets(part: Part, table: Table, model: Model) -> FacetTable:
    """Return the facets and sample items of a table."""
    model.unread += not_read(part, _TABLE_MEMBERS, "not a documented part of a table")
    capacity = part.get("ProvisionedCapacitySettings")
    if capacity is not None and (mode := part.get("BillingMode")) is not None and mode.value == "PROVISIONED":
        model.unread.append(Unread(capacity.place, "capacity is not part of a rule file: the template is on-demand"))
    types = {
        one.need("AttributeName").text(): str(one.need("AttributeType").value) for one in part.all("NonKeyAttributes")
    }
    facets = [_facet(one, table, model) for one in part.all("TableFacets")]
    return FacetTable(table, types, facets, list(_items(part, table, model)), model.unread)


def _facet(part: Part, table: Table, model: Model) -> Facet:
    model.unread += not_read(part, _FACET_MEMBERS, "not a documented part of a facet")
    alias, aliases = part.need("KeyAttributeAlias"), {}
    for (name, _), called in zip(table.key, ("PartitionKeyAlias", "SortKeyAlias"), strict=False):
        given = alias.get(called)
        aliases[name] = given.text() if given is not None and given.value else name
    attributes = [one.text() for one in part.all("NonKeyAttributes")]
    items = list(_items(part, table, model))
    return Facet(part.need("FacetName").text(), alias.place, aliases, attributes, items)


def _items(part: Part, table: Table, model: Model) -> Iterator[Image]:
    """Yield the valid sample items of a table or facet."""
    for one in part.all("TableData"):
        if not isinstance(one.value, dict) or not all(map(_is_value, one.value.values())):
            model.unread.append(Unread(one.place, "a sample item with values that are not DynamoDB's JSON"))
            continue
        lacking = [name for name, kind in table.key if kind not in one.value.get(name, {})]
        if lacking:
            model.unread.append(Unread(one.place, f"a sample item without the key attribute {', '.join(lacking)}"))
        else:
            yield one.value


_LISTS = ("SS", "NS", "BS", "L")


def _is_value(value: Any) -> bool:
    """Return whether a value is in DynamoDB's JSON."""
    if not isinstance(value, dict) or len(value) != 1:
        return False
    ((kind, content),) = value.items()
    if kind == "M":
        return isinstance(content, dict) and all(map(_is_value, content.values()))
    if kind in _LISTS:
        return isinstance(content, list) and all(
            _is_value(one) if kind == "L" else isinstance(one, str) for one in content
        )
    return isinstance(content, bool) if kind in ("BOOL", "NULL") else kind in KEY_TYPES and isinstance(content, str)
