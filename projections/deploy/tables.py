"""Whether a table of a template has the keys, indexes, stream and TTL of a schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from projections.deploy.cloudformation import Document
from projections.deploy.finding import Finding, found
from projections.deploy.kinds import INDEXES, KEYS, NOT_JUDGED, STREAM, TTL
from projections.deploy.naming import judged
from projections.deploy.resolution import Resource
from projections.language.findings import Kind
from projections.language.keys import Schema
from projections.language.mistakes import Location

__all__ = ["table_findings"]

Key = list[tuple[str, str, str]]
"""Attributes with type and role."""


def table_findings(
    document: Document, table: Resource, schema: Schema, called: str, *, streams: bool
) -> Iterator[Finding]:
    """Yield where a table differs from its schema, or cannot be checked. `streams`: it needs a stream."""
    sort = [schema.sort] if schema.sort else []
    instead = "the key of a table cannot be changed: correct the rules, or create another table"
    path, written = table.path("KeySchema"), table.properties.get("KeySchema")
    yield from _key(
        document, table, KEYS, path, written, _wanted([schema.partition], sort), f"the key of {called}", instead
    )
    yield from _indexes(document, table, schema, called)
    if streams:
        yield from _stream(document, table, called)
    yield from _ttl(document, table, schema, called)


def _key(
    document: Document, table: Resource, kind: Kind, path: Location, written: Any, want: Key, called: str, instead: str
) -> Iterator[Finding]:
    have = _keys(written, table.properties.get("AttributeDefinitions"))
    if have is None:
        yield found(document, NOT_JUDGED, path, f"{called} cannot be checked")
    elif have != want:
        yield found(document, kind, path, f"{called} is {_shown(have)}, the rules require {_shown(want)}", instead)


def _indexes(document: Document, table: Resource, schema: Schema, called: str) -> Iterator[Finding]:
    indexes: dict[str, tuple[Any, Location]] = {}
    for kind in ("GlobalSecondaryIndexes", "LocalSecondaryIndexes"):
        listed = table.properties.get(kind, [])
        if not isinstance(listed, list):
            yield found(document, NOT_JUDGED, table.path(kind), f"{kind} of {called} cannot be checked")
            return
        for number, index in enumerate(listed):
            if isinstance(index, Mapping):
                indexes[str(index.get("IndexName"))] = (index.get("KeySchema"), table.path(kind, number))
    for name, (partition, sort) in schema.indexes.items():
        want = _wanted(partition, sort)
        if name in indexes:
            instead = "an index cannot be changed: give the new one another name"
            written, path = indexes[name]
            yield from _key(document, table, INDEXES, path, written, want, f"the key of index {name}", instead)
        else:
            reason = f"{called} has no index {name}, which the rules name: {_shown(want)}"
            yield found(document, INDEXES, table.path("GlobalSecondaryIndexes"), reason, "add it")


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
    expire = f"items of {called} expire by {attribute}" if attribute else f"items of {called} never expire"
    if schema.ttl is None:
        instead = f"add `ttl: {attribute}` to the table in the rules, and `expires: true` to entities that expire"
        yield found(document, TTL, path, f"{expire}, and the rules have no `ttl`", instead, rated="warning")
    else:
        instead = f"TimeToLiveSpecification: {{ AttributeName: {schema.ttl}, Enabled: true }}"
        yield found(document, TTL, path, f"{expire}, the rules require {schema.ttl}", instead)


def _keys(elements: Any, definitions: Any) -> Key | None:
    """Return the attributes of a key schema, or None if it cannot be read."""
    if not isinstance(elements, list) or not all(isinstance(one, Mapping) and judged(dict(one)) for one in elements):
        return None
    listed = [one for one in definitions if isinstance(one, Mapping)] if isinstance(definitions, list) else []
    types = {str(one.get("AttributeName")): str(one.get("AttributeType")) for one in listed}
    keys = [(name := str(one.get("AttributeName")), types.get(name, "?"), str(one.get("KeyType"))) for one in elements]
    return sorted(keys, key=lambda key: {"HASH": 0, "RANGE": 1}.get(key[2], 2))


def _wanted(partition: Sequence[tuple[str, str]], sort: Sequence[tuple[str, str]]) -> Key:
    return [(*key, "HASH") for key in partition] + [(*key, "RANGE") for key in sort]


def _shown(keys: Key) -> str:
    return "[" + ", ".join(f"{name}: {kind}" for name, kind, _ in keys) + "]"
