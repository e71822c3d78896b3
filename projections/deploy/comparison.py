"""Whether a table and the mappings of its stream are as rules require: in a template, or as they are deployed.

A table has the keys, indexes, stream and TTL of its schema. Mappings lose no record, and their filters let through every
record that the rules need: they are tried on records that have only what the rules determine.

DescribeTable and ListEventSourceMappings return what a template sets, in the same form. So deployed tables are read as a
template of what is deployed, and the same functions compare them. The kinds of findings are also those of `agreement`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from projections.aws.live_tables import GLOBAL, LOCAL, listed_attributes, projection_text
from projections.deploy.cloudformation import Document, Resource, is_plain, value_at
from projections.deploy.needs import Deployment, Filter, NotJudgedError, TableNeeds, entities_of
from projections.language.entity import Entity
from projections.language.findings.kinds import Finding, Kind, Severity
from projections.language.keys import Schema
from projections.language.program import LEDGER_SCHEMA, Program
from projections.language.syntax import Location, dotted

# The example of each is merged into the template that `projections template` writes for `social`.

FUNCTIONS = Kind("functions", ("error", "warning"))
RECURSION = Kind("recursion", ("error",))
ENVIRONMENT = Kind("environment", ("error", "warning"))
KEYS = Kind("keys", ("error",))
INDEXES = Kind("indexes", ("error", "warning"))
STREAM = Kind("stream", ("error",))
TTL = Kind("ttl", ("error", "warning"))
DELIVERY = Kind("delivery", ("error", "warning", "note"))
FILTERS = Kind("filters", ("error", "note"))
PERMISSIONS = Kind("permissions", ("error",))
SILENT_ALARMS = Kind("silent-alarms", ("note",))
NOT_JUDGED = Kind("not-judged", ("note",))

KINDS: Mapping[str, Kind] = {kind.code: kind for kind in list(vars().values()) if isinstance(kind, Kind)}
"""All of the above, by code."""


def report(
    document: Document, kind: Kind, path: Location, reason: str, instead: str = "", rated: Severity | None = None
) -> Finding:
    """Return a finding at a path of a template; `rated` is its severity where that is not the usual one of its kind."""
    line, column = document.place(path)
    severity = rated or kind.severities[0]
    return Finding(severity, kind.code, document.file, line, column, dotted(path), None, reason, instead)


Key = list[tuple[str, str, str]]
"""Attributes with type and role."""


def table_findings(
    document: Document, table: Resource, schema: Schema, called: str, *, streams: bool
) -> Iterator[Finding]:
    """Yield where a table differs from its schema, or cannot be checked. `streams`: it needs a stream."""
    path, want = table.path("KeySchema"), _wanted_key([schema.partition], [schema.sort] if schema.sort else [])
    have = _keys(table.properties, table.properties)
    if have is None or not all(isinstance(table.properties.get(kind, []), list) for kind in (GLOBAL, LOCAL)):
        yield report(document, NOT_JUDGED, path, f"the key and the indexes of {called} cannot be checked")
    else:
        if have != want:
            reason = f"the key of {called} is {_key_text(have)}, the rules require {_key_text(want)}"
            instead = "the key of a table cannot be changed: correct the rules, or create another table"
            yield report(document, KEYS, path, reason, instead)
        for name, (partition, sort) in schema.indexes.items():
            yield from _index(document, table, schema, name, _wanted_key(partition, sort), called)
    if streams:
        yield from _stream(document, table, called)
    yield from _ttl(document, table, schema, called)


def _index(document: Document, table: Resource, schema: Schema, name: str, want: Key, called: str) -> Iterator[Finding]:
    path, index = next(
        (
            (table.path(kind, number), index)
            for kind in (GLOBAL, LOCAL)
            for number, index in enumerate(table.properties.get(kind, []))
            if value_at(index, "IndexName") == name
        ),
        (table.path(LOCAL if name in schema.local else GLOBAL), None),
    )
    if index is None:
        reason = f"{called} has no index {name}, which the rules name: {_key_text(want)}"
        yield report(document, INDEXES, path, reason, "add it")
        return
    have, written = _keys(index, table.properties), index.get("Projection")
    if have is None or not (isinstance(written, Mapping) and is_plain(written)):
        yield report(document, NOT_JUDGED, path, f"index {name} cannot be checked")
        return
    if have != want:
        reason = f"the key of index {name} is {_key_text(have)}, the rules require {_key_text(want)}"
        yield report(document, INDEXES, path, reason, "an index cannot be changed: give the new one another name")
    local = LOCAL in path
    if local != (name in schema.local):
        kind = "global" if local else "local"
        reason = f"index {name} is {'local' if local else 'global'}, the rules have a {kind} one"
        instead = f"{'add' if local else 'remove'} `local: true` {'to' if local else 'from'} it in the rules"
        yield report(document, INDEXES, path, reason, instead, "warning" if local else "error")
    has, wanted = listed_attributes(index, table.properties), schema.projected.get(name)
    if has != wanted:  # less is an error, more only costs more
        less = has is not None and (wanted is None or not has >= wanted)
        reason = f"index {name} projects {projection_text(has)}, the rules have {projection_text(wanted)}"
        instead = f"set `projection: {projection_text(has)}` in the rules, or give the new index another name"
        yield report(document, INDEXES, (*path, "Projection"), reason, instead, "error" if less else "warning")


def _keys(described: Mapping[str, Any], table: Mapping[str, Any]) -> Key | None:
    """Return the attributes of the key of a table or index, or None if it cannot be read."""
    elements, definitions = described.get("KeySchema"), table.get("AttributeDefinitions")
    if not isinstance(elements, list) or not all(isinstance(part, Mapping) and is_plain(part) for part in elements):
        return None
    listed = definitions if isinstance(definitions, list) else []
    types = {str(value_at(definition, "AttributeName")): value_at(definition, "AttributeType") for definition in listed}
    keys = [
        (name := str(part.get("AttributeName")), str(types.get(name, "?")), str(part.get("KeyType")))
        for part in elements
    ]
    return sorted(keys, key=lambda key: {"HASH": 0, "RANGE": 1}.get(key[2], 2))


def _wanted_key(partition: Sequence[tuple[str, str]], sort: Sequence[tuple[str, str]]) -> Key:
    return [(*key, "HASH") for key in partition] + [(*key, "RANGE") for key in sort]


def _key_text(keys: Key) -> str:
    return "[" + ", ".join(f"{name}: {kind}" for name, kind, _ in keys) + "]"


def _stream(document: Document, table: Resource, called: str) -> Iterator[Finding]:
    stream, path = table.properties.get("StreamSpecification"), table.path("StreamSpecification")
    view = stream.get("StreamViewType") if isinstance(stream, Mapping) else stream
    if not is_plain(view):
        yield report(document, NOT_JUDGED, path, f"the stream of {called} cannot be checked: {view}")
    elif view != "NEW_AND_OLD_IMAGES":
        reason = f"the stream of {called} has {view} instead of both images" if view else f"{called} has no stream"
        instead = "StreamSpecification: { StreamViewType: NEW_AND_OLD_IMAGES }"
        yield report(document, STREAM, path, reason, instead)


def _ttl(document: Document, table: Resource, schema: Schema, called: str) -> Iterator[Finding]:
    ttl, path = table.properties.get("TimeToLiveSpecification"), table.path("TimeToLiveSpecification")
    if isinstance(ttl, str) or not is_plain(ttl):
        yield report(document, NOT_JUDGED, path, f"the TTL of {called} cannot be checked")
        return
    enabled = str(value_at(ttl, "Enabled")).lower() in ("true", "yes", "on")
    attribute = value_at(ttl, "AttributeName") if enabled else None
    if attribute == schema.ttl:
        return
    expire = f"items of {called} expire by {attribute}" if attribute else f"items of {called} never expire"
    if schema.ttl is None:
        instead = f"add `ttl: {attribute}` to the table in the rules, and `expires: true` to entities that expire"
        yield report(document, TTL, path, f"{expire}, and the rules have no `ttl`", instead, "warning")
    else:
        instead = f"TimeToLiveSpecification: {{ AttributeName: {schema.ttl}, Enabled: true }}"
        yield report(document, TTL, path, f"{expire}, the rules require {schema.ttl}", instead)


# Mappings of a stream


@dataclass(frozen=True, slots=True)
class StreamMapping:
    """An event source mapping of a stream, and the path of its properties."""

    properties: Mapping[str, Any]
    path: Location

    @property
    def stream(self) -> str:
        """The ARN of its stream, as an event of SAM or as a resource has it."""
        return str(self.properties.get("Stream", self.properties.get("EventSourceArn")))

    @property
    def destination(self) -> str:
        """The ARN of the on-failure destination, empty if the template does not have it."""
        return str(value_at(self.properties, "DestinationConfig", "OnFailure", "Destination") or "")

    @property
    def bucket(self) -> str | None:
        """The name of the bucket, if the destination is one."""
        _, is_bucket, name = self.destination.partition(":s3:::")
        return name if is_bucket else None


def setting_findings(document: Document, mapping: StreamMapping) -> Iterator[Finding]:
    """Yield settings of a mapping under which records are lost."""

    def wrong(name: str, reason: str, instead: str, severity: Severity = "error") -> Finding:
        return report(document, DELIVERY, (*mapping.path, name), reason, instead, severity)

    properties = mapping.properties
    if "ReportBatchItemFailures" not in str(properties.get("FunctionResponseTypes")):
        reason = "without ReportBatchItemFailures Lambda treats failed records of a batch as processed"
        yield wrong("FunctionResponseTypes", reason, "FunctionResponseTypes: [ReportBatchItemFailures]")
    if properties.get("TumblingWindowInSeconds"):
        reason = "with a tumbling window Lambda expects a state in the response, which the function does not return"
        yield wrong("TumblingWindowInSeconds", reason, "remove it")
    if properties.get("StartingPosition") == "LATEST":
        reason = "LATEST misses records that are written while the mapping is created"
        yield wrong("StartingPosition", reason, "StartingPosition: TRIM_HORIZON", "warning")
    if not properties.get("DestinationConfig"):
        reason = "records that Lambda discards are lost: there is no on-failure destination"
        yield wrong("DestinationConfig", reason, "add DestinationConfig with an S3 bucket", "warning")
    elif mapping.destination.startswith("arn:") and mapping.bucket is None:
        reason = "a queue or topic receives only the sequence numbers of discarded records"
        yield wrong("DestinationConfig", reason, "use the ARN of a bucket, which receives the records", "note")


def filter_findings(
    document: Document, program: Program, table: TableNeeds, mappings: Sequence[StreamMapping]
) -> Iterator[Finding]:
    """Yield the filters of a table's mappings that drop needed records, or that cannot be checked.

    If they drop all changes of an entity, `rule` of the finding names the rules that read it.
    """
    every: list[Filter] = []
    unknown = False
    for mapping in mappings:
        if mapping.properties.get("FilterCriteria") is None:
            return  # everything arrives
        filters, unusable = _filters(mapping, document)
        unknown = unknown or any(finding.code == NOT_JUDGED.code for finding in unusable)
        yield from unusable
        if not filters and not unusable:
            return
        every += filters
    instead = "remove FilterCriteria"
    if patterns := [json.dumps(pattern, ensure_ascii=False) for pattern in table.filters.patterns]:
        instead = f"use the filters that `projections template` writes: {', '.join(patterns)}"
    for entity in entities_of(program, table.name):
        records = list(_records(entity, entity.schema))
        lost = [event for event, record in records if not any(pattern.matches(record) for pattern in every)]
        if not lost:
            continue
        key = ", ".join(
            f"{attribute} {json.dumps(pattern.text, ensure_ascii=False)}"
            for attribute, pattern in zip(entity.schema.key_attributes, entity.patterns, strict=True)
        )
        reason = f"no filter matches all {entity.name} items ({key}); these events are dropped: {', '.join(lost)}"
        blind = [name for name, rule in program.rules.items() if entity in rule.sources and len(lost) == len(records)]
        rules = "" if unknown else ", ".join(blind)
        if unknown:
            reason += ", unless a filter that cannot be checked matches them"
        elif rules:
            reason += f"; rule {rules} receives no change of them"
        path = (*mappings[0].path, "FilterCriteria")
        finding = report(document, FILTERS, path, reason, instead, "note" if unknown else "error")
        yield replace(finding, rule=rules) if rules else finding


def _filters(mapping: StreamMapping, document: Document) -> tuple[list[Filter], list[Finding]]:
    """Return the filters of a mapping, and findings on those that cannot be checked or that Lambda rejects."""
    path = (*mapping.path, "FilterCriteria")
    listed = value_at(mapping.properties, "FilterCriteria", "Filters")
    if not isinstance(listed, list):
        return [], [report(document, NOT_JUDGED, path, "the filters cannot be read")]
    filters: list[Filter] = []
    unusable: list[Finding] = []
    for number, listed_filter in enumerate(listed):
        place, text = (*path, "Filters", number, "Pattern"), value_at(listed_filter, "Pattern")
        if not isinstance(value_at(document.data, *place), str) and (text is None or not is_plain(text)):
            reason = "this filter refers to values that are not in the template"
            unusable.append(report(document, NOT_JUDGED, place, reason))
            continue
        try:
            filters.append(Filter(json.loads(str(text))))
        except NotJudgedError as error:
            unusable.append(report(document, NOT_JUDGED, place, str(error)))
        except (ValueError, RecursionError) as error:
            unusable.append(report(document, FILTERS, place, f"Lambda rejects this filter: {error}"))
    return filters, unusable


_RARE = "\U0010fffd"
"""The value of variables: filters for certain values do not match it."""


def _records(entity: Entity, schema: Schema) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield events of an item of an entity, with the record. Other attributes than the key may be missing."""
    types = [kind for _, kind in (schema.partition, schema.sort or ("", "")) if kind]
    keys = {
        attribute: {kind: pattern.render(dict.fromkeys(pattern.names, "-12.5" if kind == "N" else _RARE))}
        for attribute, kind, pattern in zip(schema.key_attributes, types, entity.patterns, strict=True)
    }
    old, new = ({image: {**keys, **entity.constants}} for image in ("OldImage", "NewImage"))
    for event, images in (("INSERT", new), ("MODIFY", {**old, **new}), ("REMOVE", old)):
        yield event, {"eventName": event, "eventSource": "aws:dynamodb", "dynamodb": {"Keys": keys, **images}}
    if schema.ttl:
        service = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
        record = {"eventName": "REMOVE", "eventSource": "aws:dynamodb", "dynamodb": {"Keys": keys, **old}}
        yield "REMOVE by TTL", {**record, "userIdentity": service}


# Deployed tables

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
        current = [mapping for mapping in table.mappings if mapping.get("EventSourceArn") == latest]
        properties = [
            {**entry, "FilterCriteria": _UNREADABLE} if "FilterCriteriaError" in entry else entry for entry in current
        ]
        document = _document(name, properties)
        read = [
            StreamMapping(properties, ("Resources", name, number))
            for number, properties in enumerate(document.data["Resources"][name])
        ]
        if not read:
            reason = f"no event source mapping of the function reads the stream of table {name}"
            yield report(document, STREAM, (), reason, "deploy the stack again")
            continue
        for mapping in read:
            for finding in setting_findings(document, mapping):
                if finding.severity == "error":  # the others are choices, or cannot be changed any more
                    yield replace(finding, instead=DEPLOY)
        for finding in filter_findings(document, program, needs, read):
            if finding.severity != "note" or finding.code == NOT_JUDGED.code:
                about = f"table {name}: {finding.reason}"
                yield replace(finding, reason=about, instead=DEPLOY if finding.code == FILTERS.code else "")
    if ledger is not None:
        yield from _table(ledger, LEDGER_SCHEMA, streams=False)


DEPLOY = "write the template again with `projections template`, then run `sam build` and `sam deploy`"


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
                finding, instead=f"add it: {DEPLOY}, or `aws dynamodb update-table` for an existing table"
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
