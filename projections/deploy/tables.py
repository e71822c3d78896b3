"""Whether a table of a template has the keys, indexes, stream and TTL that a schema names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from projections.deploy.cloudformation import Document
from projections.deploy.finding import Finding, found
from projections.deploy.kinds import INDEXES, KEYS, NOT_JUDGED, STREAM, TTL
from projections.deploy.naming import judged
from projections.deploy.resolution import Resource
from projections.language.keys import Schema

__all__ = ["table_findings"]

Pairs = list[tuple[str, str]]
"""Attributes with their types."""


def table_findings(
    document: Document, table: Resource, schema: Schema, called: str, *, streams: bool
) -> Iterator[Finding]:
    """Where a table does not have what it needs, or that cannot be judged. `streams` says that it needs a stream."""
    properties = table.properties
    types = _types(properties.get("AttributeDefinitions"))
    yield from _key(document, table, schema, types, called)
    yield from _indexes(document, table, schema, types, called)
    if streams:
        yield from _stream(document, table, called)
    yield from _ttl(document, table, schema, called)


def _key(
    document: Document, table: Resource, schema: Schema, types: Mapping[str, str], called: str
) -> Iterator[Finding]:
    path = table.path("KeySchema")
    have, want = _keys(table.properties.get("KeySchema"), types), _wanted([schema.partition], schema.sort)
    if have is None:
        yield found(document, NOT_JUDGED, path, f"the key of {called} cannot be checked")
    elif have != want:
        reason = f"the key of {called} is {_shown(have)}, the rules require {_shown(want)}"
        yield found(
            document,
            KEYS,
            path,
            reason,
            "the key of a table cannot be changed: correct the rules, or create another table",
        )


def _indexes(
    document: Document, table: Resource, schema: Schema, types: Mapping[str, str], called: str
) -> Iterator[Finding]:
    found_indexes: dict[str, tuple[Any, tuple[str | int, ...], str | None]] = {}
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        listed = table.properties.get(kind, [])
        if not isinstance(listed, list):
            yield found(document, NOT_JUDGED, table.path(kind), f"{kind} of {called} cannot be checked")
            return
        for number, index in enumerate(listed):
            if isinstance(index, Mapping):
                projection = index.get("Projection")
                shown = projection.get("ProjectionType") if isinstance(projection, Mapping) else None
                found_indexes[str(index.get("IndexName"))] = (index.get("KeySchema"), table.path(kind, number), shown)
    for name, (partition, sort) in schema.indexes.items():
        want = [(*key, "HASH") for key in partition] + [(*key, "RANGE") for key in sort]
        if name not in found_indexes:
            reason = f"{called} has no index {name}, which the rules name: {_shown(want)}"
            yield found(document, INDEXES, table.path("GlobalSecondaryIndexes"), reason, "add it")
            continue
        written, path, _ = found_indexes[name]
        have = _keys(written, types)
        if have is None:
            yield found(document, NOT_JUDGED, path, f"the key of index {name} cannot be checked")
        elif have != want:
            reason = f"the key of index {name} is {_shown(have)}, the rules require {_shown(want)}"
            yield found(document, INDEXES, path, reason, "an index cannot be changed: give the new one another name")


def _stream(document: Document, table: Resource, called: str) -> Iterator[Finding]:
    stream = table.properties.get("StreamSpecification")
    path = table.path("StreamSpecification")
    kind = stream.get("StreamViewType") if isinstance(stream, Mapping) else stream
    if kind == "NEW_AND_OLD_IMAGES":
        return
    if isinstance(kind, str) and not judged(kind):
        yield found(document, NOT_JUDGED, path, f"the stream of {called} cannot be checked: {kind}")
        return
    reason = f"{called} has no stream" if not kind else f"the stream of {called} has {kind} instead of both images"
    yield found(document, STREAM, path, reason, "StreamSpecification: { StreamViewType: NEW_AND_OLD_IMAGES }")


def _ttl(document: Document, table: Resource, schema: Schema, called: str) -> Iterator[Finding]:
    ttl = table.properties.get("TimeToLiveSpecification")
    path = table.path("TimeToLiveSpecification")
    if isinstance(ttl, str) or (isinstance(ttl, Mapping) and not judged(dict(ttl))):
        yield found(document, NOT_JUDGED, path, f"the TTL of {called} cannot be checked")
        return
    enabled = isinstance(ttl, Mapping) and str(ttl.get("Enabled")).lower() in ("true", "yes", "on")
    attribute = ttl.get("AttributeName") if isinstance(ttl, Mapping) and enabled else None
    if attribute == schema.ttl:
        return
    if schema.ttl is None:
        reason = f"items of {called} expire by {attribute}, and the rules have no `ttl`"
        yield found(
            document,
            TTL,
            path,
            reason,
            f"add `ttl: {attribute}` to the table in the rules, and `expires: true` to entities that expire",
            rated="warning",
        )
    else:
        reason = f"items of {called} expire by {attribute or 'nothing'}, the rules require {schema.ttl}"
        instead = f"TimeToLiveSpecification: {{ AttributeName: {schema.ttl}, Enabled: true }}"
        yield found(document, TTL, path, reason, instead)


def _types(definitions: Any) -> Mapping[str, str]:
    listed = definitions if isinstance(definitions, list) else []
    return {str(one.get("AttributeName")): str(one.get("AttributeType")) for one in listed if isinstance(one, Mapping)}


def _keys(elements: Any, types: Mapping[str, str]) -> list[tuple[str, str, str]] | None:
    """The attributes of a key schema with type and role; None if it cannot be read."""
    if not isinstance(elements, list) or not all(isinstance(one, Mapping) and judged(dict(one)) for one in elements):
        return None
    order = {"HASH": 0, "RANGE": 1}
    keys = [(name := str(one.get("AttributeName")), types.get(name, "?"), str(one.get("KeyType"))) for one in elements]
    return sorted(keys, key=lambda key: order.get(key[2], 2))


def _wanted(partition: Pairs, sort: tuple[str, str] | None) -> list[tuple[str, str, str]]:
    return [(*key, "HASH") for key in partition] + ([(*sort, "RANGE")] if sort else [])


def _shown(keys: list[tuple[str, str, str]]) -> str:
    return "[" + ", ".join(f"{name}: {kind}" for name, kind, _ in keys) + "]"
