"""Whether a table has the keys, indexes, stream and TTL of a schema: in a template, or as it is deployed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from projections.aws.tables import GLOBAL, LOCAL, listed_attributes, projection_text
from projections.deploy.cloudformation import Document, Resource, judged
from projections.deploy.comparison import StreamMapping, filter_findings, setting_findings
from projections.deploy.finding import FILTERS, INDEXES, KEYS, NOT_JUDGED, STREAM, TTL, Finding, found
from projections.deploy.needs import Deployment
from projections.language.keys import Schema
from projections.language.program import LEDGER_SCHEMA, Program

Key = list[tuple[str, str, str]]
"""Attributes with type and role."""


def table_findings(
    document: Document, table: Resource, schema: Schema, called: str, *, streams: bool
) -> Iterator[Finding]:
    """Yield where a table differs from its schema, or cannot be checked. `streams`: it needs a stream."""
    path, want = table.path("KeySchema"), _wanted([schema.partition], [schema.sort] if schema.sort else [])
    have = _keys(table.properties.get("KeySchema"), table.properties.get("AttributeDefinitions"))
    if not all(isinstance(table.properties.get(kind, []), list) for kind in (GLOBAL, LOCAL)):
        have = None
    if have is None:
        yield found(document, NOT_JUDGED, path, f"the key and the indexes of {called} cannot be checked")
    elif have != want:
        reason = f"the key of {called} is {_shown(have)}, the rules require {_shown(want)}"
        instead = "the key of a table cannot be changed: correct the rules, or create another table"
        yield found(document, KEYS, path, reason, instead)
    if have is not None:
        for name, (partition, sort) in schema.indexes.items():
            yield from _index(document, table, schema, name, _wanted(partition, sort), called)
    if streams:
        yield from _stream(document, table, called)
    yield from _ttl(document, table, schema, called)


def _index(document: Document, table: Resource, schema: Schema, name: str, want: Key, called: str) -> Iterator[Finding]:
    given = [
        (index, table.path(kind, number))
        for kind in (GLOBAL, LOCAL)
        for number, index in enumerate(_listed(table.properties.get(kind)))
        if index.get("IndexName") == name
    ]
    if not given:
        reason = f"{called} has no index {name}, which the rules name: {_shown(want)}"
        yield found(document, INDEXES, table.path(LOCAL if name in schema.local else GLOBAL), reason, "add it")
        return
    index, path = given[0]
    have, written = _keys(index.get("KeySchema"), table.properties.get("AttributeDefinitions")), index.get("Projection")
    if have is None or not (isinstance(written, Mapping) and judged(written)):
        yield found(document, NOT_JUDGED, path, f"index {name} cannot be checked")
        return
    if have != want:
        reason = f"the key of index {name} is {_shown(have)}, the rules require {_shown(want)}"
        yield found(document, INDEXES, path, reason, "an index cannot be changed: give the new one another name")
    local = LOCAL in path
    if local != (name in schema.local):
        reason = (
            f"index {name} is {'local' if local else 'global'}, the rules have a {'global' if local else 'local'} one"
        )
        instead = f"{'add' if local else 'remove'} `local: true` {'to' if local else 'from'} it in the rules"
        yield found(document, INDEXES, path, reason, instead, rated="warning" if local else "error")
    has, wanted = listed_attributes(index, table.properties), schema.projected.get(name)
    if has != wanted:  # less is an error, more only costs more
        less = has is not None and (wanted is None or not has >= wanted)
        reason = f"index {name} projects {projection_text(has)}, the rules have {projection_text(wanted)}"
        instead = f"set `projection: {projection_text(has)}` in the rules, or give the new index another name"
        yield found(document, INDEXES, (*path, "Projection"), reason, instead, rated="error" if less else "warning")


def _listed(value: Any) -> list[Mapping[str, Any]]:
    """Return the mappings in a list."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


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
    types = {str(one.get("AttributeName")): str(one.get("AttributeType")) for one in _listed(definitions)}
    keys = [(name := str(one.get("AttributeName")), types.get(name, "?"), str(one.get("KeyType"))) for one in elements]
    return sorted(keys, key=lambda key: {"HASH": 0, "RANGE": 1}.get(key[2], 2))


def _wanted(partition: Sequence[tuple[str, str]], sort: Sequence[tuple[str, str]]) -> Key:
    return [(*key, "HASH") for key in partition] + [(*key, "RANGE") for key in sort]


def _shown(keys: Key) -> str:
    return "[" + ", ".join(f"{name}: {kind}" for name, kind, _ in keys) + "]"


# Deployed tables
#
# DescribeTable and ListEventSourceMappings return what a template sets, in the same form. So both are read as a template of
# what is deployed, and the same functions compare it.

_UNREADABLE = "not readable"
"""A value that cannot be checked, in the place of a mapping."""


@dataclass(frozen=True, slots=True)
class LiveTable:
    """A deployed table: the answers of DescribeTable and DescribeTimeToLive, and the mappings that read its stream.

    `ttl` is None if it could not be read, `mappings` are those of the stream's function, None if they are unknown.
    """

    described: Mapping[str, Any]
    ttl: Mapping[str, Any] | None
    mappings: Sequence[Mapping[str, Any]] | None = None


def live_findings(program: Program, tables: Mapping[str, LiveTable], ledger: LiveTable | None) -> Iterator[Finding]:
    """Yield where deployed tables, by logical name, and their mappings do not agree with rules, and what to deploy.

    If filters drop all changes of an entity, `rule` of the finding names the rules that read it.
    """
    for needs in Deployment("", program).tables:
        table = tables[needs.name]
        yield from _table(table, needs.schema, streams=True)
        if table.mappings is None or not (table.described.get("StreamSpecification") or {}).get("StreamEnabled"):
            continue
        name, latest = table.described["TableName"], table.described.get("LatestStreamArn")
        current = [one for one in table.mappings if one.get("EventSourceArn") == latest]
        properties = [
            {**one, "FilterCriteria": _UNREADABLE} if "FilterCriteriaError" in one else one for one in current
        ]
        document = _document(name, properties)
        read = [
            StreamMapping(properties, ("Resources", name, number), str(latest))
            for number, properties in enumerate(document.data["Resources"][name])
        ]
        if not read:
            reason = f"no event source mapping of the function reads the stream of table {name}"
            yield found(document, STREAM, (), reason, "deploy the stack again")
            continue
        for mapping in read:
            for finding in setting_findings(document, mapping):
                if finding.severity == "error":  # the others are choices, or cannot be changed any more
                    yield replace(finding, instead=_DEPLOY)
        for finding in filter_findings(document, program, needs, read):
            if finding.severity != "note" or finding.code == NOT_JUDGED.code:
                about = f"table {name}: {finding.reason}"
                yield replace(finding, reason=about, instead=_DEPLOY if finding.code == FILTERS.code else "")
    if ledger is not None:
        yield from _table(ledger, LEDGER_SCHEMA, streams=False)


_DEPLOY = "write the template again with `projections template`, then run `sam build` and `sam deploy`"


def _document(name: str, resource: Any) -> Document:
    return Document(name, {"Resources": {name: resource}})


def _table(table: LiveTable, schema: Schema, *, streams: bool) -> Iterator[Finding]:
    name = str(table.described["TableName"])
    properties = {**table.described, "TimeToLiveSpecification": _described_ttl(table.ttl)}
    if not (table.described.get("StreamSpecification") or {}).get("StreamEnabled"):
        properties.pop("StreamSpecification", None)
    update = f"aws dynamodb update-table --table-name {name} --stream-specification StreamEnabled="
    ways = {
        STREAM.code: f"run `{update}true,StreamViewType=NEW_AND_OLD_IMAGES`, then deploy with the new stream's ARN",
        TTL.code: f"run `aws dynamodb update-time-to-live --table-name {name} --time-to-live-specification "
        f"Enabled=true,AttributeName={schema.ttl}`",
    }
    if "StreamSpecification" in properties:
        ways[STREAM.code] = f"run `{update}false`, then {ways[STREAM.code].removeprefix('run ')}"
    document = _document(name, {"Properties": properties})
    resource = Resource(name, "AWS::DynamoDB::Table", properties)
    for finding in table_findings(document, resource, schema, f"table {name}", streams=streams):
        if finding.code == INDEXES.code and finding.instead == "add it":
            finding = replace(
                finding, instead=f"add it: {_DEPLOY}, or `aws dynamodb update-table` for an existing table"
            )
        elif finding.code in ways and not (finding.code == TTL.code and schema.ttl is None):
            finding = replace(finding, instead=ways[finding.code])
        yield finding


def _described_ttl(described: Mapping[str, Any] | None) -> Any:
    """Return DescribeTimeToLive's answer in the form of a template."""
    if described is None:
        return f"${{{_UNREADABLE}}}"
    status = str(described.get("TimeToLiveStatus"))
    return {"AttributeName": described.get("AttributeName"), "Enabled": status in ("ENABLED", "ENABLING")}
