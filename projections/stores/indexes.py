"""Indexes in the form of DynamoDB's API: what CreateTable takes and DescribeTable returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from projections.engine.store import Schema

__all__ = ["GLOBAL", "LOCAL", "described_indexes", "listed_attributes", "projection", "projection_text"]

GLOBAL, LOCAL = "GlobalSecondaryIndexes", "LocalSecondaryIndexes"


def projection(schema: Schema, index: str) -> dict[str, Any]:
    """Return the projection of an index of the rules."""
    if index not in schema.projected:
        return {"ProjectionType": "ALL"}
    if not schema.projected[index]:
        return {"ProjectionType": "KEYS_ONLY"}
    return {"ProjectionType": "INCLUDE", "NonKeyAttributes": sorted(schema.projected[index])}


def described_indexes(table: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], bool]]:
    """Yield the indexes in DescribeTable's answer, each with whether it is local."""
    for kind in (GLOBAL, LOCAL):
        yield from ((index, kind == LOCAL) for index in table.get(kind) or ())


def listed_attributes(index: Mapping[str, Any], table: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the attributes that an index projects besides keys; None for all. Its projection may list keys, too."""
    written = index.get("Projection") or {}
    if written.get("ProjectionType", "ALL") == "ALL":
        return None
    keys = {key.get("AttributeName") for one in (index, table) for key in one["KeySchema"]}
    return frozenset(written.get("NonKeyAttributes") or ()) - keys


def projection_text(attributes: frozenset[str] | None) -> str:
    """Return the attributes that a projection adds to the keys as the rule file has them."""
    if attributes is None:
        return "all"
    return f"[{', '.join(sorted(attributes))}]" if attributes else "keys_only"
