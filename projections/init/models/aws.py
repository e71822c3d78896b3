"""A table as CreateTable, DescribeTable and CloudFormation describe it."""

from __future__ import annotations

from collections.abc import Mapping

from projections.init.models.parts import Part
from projections.init.table import Pairs, Table

__all__ = ["KEY_TYPES", "projection", "table_of"]

KEY_TYPES = ("S", "N", "B")


def table_of(name: str, described: Part, ttl: str | None, stream: str | None) -> Table:
    """Return the table that `KeySchema`, `AttributeDefinitions` and the two lists of indexes describe. Raises UsageError."""
    types = {
        one.need("AttributeName").text(): one.need("AttributeType").one_of(*KEY_TYPES)
        for one in described.need("AttributeDefinitions").elements()
    }
    partition, sort = _key(described.need("KeySchema"), types)
    indexes, projected, local = {}, {}, set()
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        for index in described.all(kind):
            called = index.need("IndexName").text()
            indexes[called] = _key(index.need("KeySchema"), types)
            shown = projection(index)
            if shown != "all":
                projected[called] = shown
            if kind == "LocalSecondaryIndexes":
                local.add(called)
    return Table(name, (*partition, *sort), indexes, ttl, stream, projected=projected, local=frozenset(local))


def projection(index: Part) -> str | tuple[str, ...]:
    """Return what `Projection` of an index says: `all`, `keys_only`, or the attributes that it lists."""
    given = index.get("Projection")
    if given is None:
        return "all"
    kind = given.need("ProjectionType").one_of("ALL", "KEYS_ONLY", "INCLUDE")
    if kind == "INCLUDE":
        return tuple(one.text() for one in given.need("NonKeyAttributes").elements())
    return kind.lower()


def _key(schema: Part, types: Mapping[str, str]) -> tuple[Pairs, Pairs]:
    found: dict[str, list[tuple[str, str]]] = {"HASH": [], "RANGE": []}
    for one in schema.elements():
        name = one.need("AttributeName").text()
        if name not in types:
            raise one.wrong(f"AttributeDefinitions has no type for {name}: add it there")
        found[one.need("KeyType").one_of("HASH", "RANGE")].append((name, types[name]))
    if not found["HASH"]:
        raise schema.wrong("no attribute has the KeyType HASH: a key has a partition key")
    return tuple(found["HASH"]), tuple(found["RANGE"])
