"""Whether a table and the mappings of its stream are as rules require: in a template, or as they are deployed.

A table has the keys, indexes, stream and TTL of its schema. Mappings lose no record, and their filters let through every
record that the rules need: they are tried on records that have only what the rules determine.

DescribeTable and ListEventSourceMappings return what a template sets, in the same form. So deployed tables are read as a
template of what is deployed, and the same functions compare them. The kinds of findings are also those of `agreement`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from projections.aws.live_tables import GLOBAL, LEDGER, LOCAL, Key, key_of, key_text, listed_attributes, projection_text
from projections.deploy.cloudformation import Document, Resource, is_plain, value_at
from projections.deploy.needs import Deployment, TableNeeds, entities_of
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
DELIVERY = Kind("delivery", ("error", "warning"))
FILTERS = Kind("filters", ("error",))
PERMISSIONS = Kind("permissions", ("error",))
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


def table_findings(
    document: Document, table: Resource, schema: Schema, called: str, *, streams: bool
) -> Iterator[Finding]:
    """Yield where a table differs from its schema, or cannot be checked. `streams`: it needs a stream."""
    path, want = table.path("KeySchema"), ((schema.partition,), (schema.sort,) if schema.sort else ())
    have = _key(table.properties, table.properties)
    if have is None or not all(isinstance(table.properties.get(kind, []), list) for kind in (GLOBAL, LOCAL)):
        yield report(document, NOT_JUDGED, path, f"the key and the indexes of {called} cannot be checked")
    else:
        if have != want:
            reason = f"the key of {called} is {key_text(have)}, the rules require {key_text(want)}"
            instead = "the key of a table cannot be changed: correct the rules, or create another table"
            yield report(document, KEYS, path, reason, instead)
        for name in schema.indexes:
            yield from _index(document, table, schema, name, called)
    if streams:
        yield from _stream(document, table, called)
    yield from _ttl(document, table, schema, called)


def _index(document: Document, table: Resource, schema: Schema, name: str, called: str) -> Iterator[Finding]:
    partition, sort = schema.indexes[name]
    want, wanted_local = (tuple(partition), tuple(sort)), name in schema.local
    path, index = next(
        (
            (table.path(kind, number), index)
            for kind in (GLOBAL, LOCAL)
            for number, index in enumerate(table.properties.get(kind, []))
            if value_at(index, "IndexName") == name
        ),
        (table.path(LOCAL if wanted_local else GLOBAL), None),
    )
    if index is None:
        reason = f"{called} has no index {name}, which the rules name: {key_text(want)}"
        yield report(document, INDEXES, path, reason, "add it")
        return
    have, written, local = _key(index, table.properties), index.get("Projection"), LOCAL in path
    if have is None or not (isinstance(written, Mapping) and is_plain(written)):
        yield report(document, NOT_JUDGED, path, f"index {name} cannot be checked")
        return
    if have != want or local != wanted_local:  # a local index does for a global one
        there, here = ("local" if is_local else "global" for is_local in (local, wanted_local))
        reason = f"index {name} is {there} with the key {key_text(have)}, the rules have {here} with {key_text(want)}"
        instead = "an index cannot be changed: correct it in the rules, or give the new one another name"
        yield report(document, INDEXES, path, reason, instead, "warning" if have == want and local else "error")
    has, wanted = listed_attributes(index, table.properties), schema.projected.get(name)
    if has != wanted:  # less is an error, more only costs more
        less = has is not None and (wanted is None or not has >= wanted)
        reason = f"index {name} projects {projection_text(has)}, the rules have {projection_text(wanted)}"
        instead = f"set `projection: {projection_text(has)}` in the rules, or give the new index another name"
        yield report(document, INDEXES, (*path, "Projection"), reason, instead, "error" if less else "warning")


def _key(described: Mapping[str, Any], table: Mapping[str, Any]) -> Key | None:
    """Return the key of a table or index, or None if it cannot be read."""
    elements, definitions = described.get("KeySchema"), table.get("AttributeDefinitions")
    try:
        types = {each["AttributeName"]: str(each["AttributeType"]) for each in definitions or ()}
        return key_of(elements, types) if elements and is_plain(elements) else None
    except (AttributeError, KeyError, TypeError):
        return None


def _stream(document: Document, table: Resource, called: str) -> Iterator[Finding]:
    stream, path = table.properties.get("StreamSpecification"), table.path("StreamSpecification")
    view = stream.get("StreamViewType") if isinstance(stream, Mapping) else stream
    if value_at(stream, "StreamEnabled") is False:  # of a deployed table
        view = None
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
    enabled = str(value_at(ttl, "Enabled") or value_at(ttl, "TimeToLiveStatus")).lower()
    attribute = value_at(ttl, "AttributeName") if enabled in ("true", "yes", "on", "enabled", "enabling") else None
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


class StreamMapping(NamedTuple):
    """An event source mapping of a stream, and the path of its properties."""

    properties: Mapping[str, Any]
    path: Location

    @property
    def stream(self) -> str:
        """The ARN of its stream, as an event of SAM or as a resource has it."""
        return str(self.properties.get("Stream", self.properties.get("EventSourceArn")))


def setting_findings(document: Document, mapping: StreamMapping) -> Iterator[Finding]:
    """Yield settings of a mapping under which records are lost."""

    def wrong(name: str, reason: str, instead: str, severity: Severity = "error") -> Finding:
        return report(document, DELIVERY, (*mapping.path, name), reason, instead, severity)

    properties = mapping.properties
    if "ReportBatchItemFailures" not in str(properties.get("FunctionResponseTypes")):
        reason = "without ReportBatchItemFailures Lambda treats failed records of a batch as processed"
        yield wrong("FunctionResponseTypes", reason, "FunctionResponseTypes: [ReportBatchItemFailures]")
    if properties.get("StartingPosition") == "LATEST":
        reason = "LATEST misses records that are written while the mapping is created"
        yield wrong("StartingPosition", reason, "StartingPosition: TRIM_HORIZON", "warning")
    destination = str(properties.get("DestinationConfig") or "")
    if not destination or ":sqs:" in destination or ":sns:" in destination:
        reason = "records that Lambda discards are lost: a queue or topic receives only their sequence numbers"
        yield wrong("DestinationConfig", reason, "add DestinationConfig with the ARN of an S3 bucket", "warning")


_LANES = (
    ("TumblingWindowInSeconds", "60", "[1-9][0-9]*", "without a tumbling window, events do not name their shard"),
    ("ParallelizationFactor", "1", "[01]", "several batches of a shard are processed at the same time"),
    ("BisectBatchOnFunctionError", "false", "0|false", "the second half of a failed batch may come before the first"),
)
"""Settings of a mapping for rules that count by shards: what to write, correct values as a pattern, and the reason."""


def lane_findings(document: Document, table: TableNeeds, mapping: StreamMapping) -> Iterator[Finding]:
    """Yield settings of a mapping with which rules cannot count by the shards of a table's stream."""
    for name, right, pattern, reason in _LANES if table.lanes else ():
        value, path = str(mapping.properties.get(name) or 0), (*mapping.path, name)
        rules = f"rules with `ledger: lanes` ({', '.join(table.lanes)})"
        if not is_plain(value):
            yield report(document, NOT_JUDGED, path, f"whether {rules} can count cannot be checked: {name} is {value}")
        elif not re.fullmatch(pattern, value.lower()):
            yield report(document, DELIVERY, path, f"{reason}, so {rules} cannot count", f"{name}: {right}")


def filter_findings(
    document: Document, program: Program, table: TableNeeds, mappings: Sequence[StreamMapping]
) -> Iterator[Finding]:
    """Yield the filters of a table's mappings that drop needed records, or that cannot be checked."""
    patterns: list[Any] = []
    unread: list[Finding] = []
    for mapping in mappings:
        path, criteria = (*mapping.path, "FilterCriteria"), mapping.properties.get("FilterCriteria")
        listed = value_at(criteria, "Filters")
        if criteria is None or listed == []:
            return  # everything arrives
        for number, entry in enumerate(listed if isinstance(listed, list) else [None]):
            try:
                patterns.append(_pattern(value_at(entry, "Pattern")))
            except (ValueError, RecursionError) as error:
                reason = f"whether the filters drop needed records cannot be checked: {error}"
                unread.append(report(document, NOT_JUDGED, (*path, "Filters", number, "Pattern"), reason))
    yield from unread
    instead = "remove FilterCriteria"
    if table.filters.patterns:
        written = ", ".join(json.dumps(pattern, ensure_ascii=False) for pattern in table.filters.patterns)
        instead = f"use the filters that `projections template` writes: {written}"
    for entity in entities_of(program, table.name) if not unread else ():
        records = _records(entity)
        lost = [event for event, record in records if not any(passes(pattern, record) for pattern in patterns)]
        if lost:
            reason = f"no filter matches all {entity.name} items; these events are dropped: {', '.join(lost)}"
            readers = [name for name, rule in program.rules.items() if entity in rule.sources]
            reason += f"; rules that read them: {', '.join(readers)}" if readers else ""
            yield report(document, FILTERS, (*mappings[0].path, "FilterCriteria"), reason, instead)


def _pattern(text: Any) -> Any:
    """Return a filter's pattern. Raises ValueError or RecursionError if it cannot be judged."""
    if not isinstance(text, str) or not is_plain(text):
        raise ValueError("its text cannot be read")
    pattern = json.loads(text)
    passes(pattern, {})
    return pattern


def passes(pattern: Any, value: Any) -> bool:
    """Return whether a record, or a part of one, passes a filter's pattern, as Lambda evaluates it. The records that are
    tried have no lists. Raises ValueError for conditions other than equality, `prefix` and `exists`, which filters on keys
    need.

    A pattern names leaves: `exists` does not match `NewImage.status`, which is an object, only `NewImage.status.S`.
    """
    fields, leaf = (value, None) if isinstance(value, Mapping) else ({}, value)
    match pattern:
        case {} if pattern:
            fits = [passes(part, fields.get(name)) for name, part in pattern.items()]  # all, because any may raise
            return all(fits)
        case [*rules]:
            fits = [_fits(rule, leaf) for rule in rules]
            return any(fits)
    raise ValueError(f"expected an object, or a list of values to match, not {json.dumps(pattern)}")


def _fits(rule: Any, leaf: Any) -> bool:
    match rule:
        case str():
            return bool(rule == leaf)
        case {"prefix": str(prefix), **others} if not others:
            return isinstance(leaf, str) and leaf.startswith(prefix)
        case {"exists": bool(exists), **others} if not others:
            return exists == (leaf is not None)
    raise ValueError(f"the condition {json.dumps(rule)} is not judged")


_RARE = "\U0010fffd"
"""The value of variables: filters for certain values do not match it."""


def _records(entity: Entity) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield events of an item of an entity, with the record. Other attributes than the key may be missing."""
    schema = entity.schema
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


class LiveTable(NamedTuple):
    """A deployed table: the answers of DescribeTable and DescribeTimeToLive, and the mappings that read its stream.

    `ttl` is None if it could not be read, `mappings` are those of the stream's function, None if they are unknown.
    """

    described: Mapping[str, Any]
    ttl: Mapping[str, Any] | None
    mappings: Sequence[Mapping[str, Any]] | None = None


def live_findings(program: Program, tables: Mapping[str, LiveTable]) -> Iterator[Finding]:
    """Yield where deployed tables, by logical name, and their mappings do not agree with rules, and what to deploy."""
    if LEDGER in tables:
        yield from _table(tables[LEDGER], LEDGER_SCHEMA, streams=False)
    for needs in Deployment("", program).tables:
        table = tables[needs.name]
        yield from _table(table, needs.schema, streams=True)
        if table.mappings is None or not value_at(table.described, "StreamSpecification", "StreamEnabled"):
            continue
        name, latest = str(table.described["TableName"]), table.described.get("LatestStreamArn")
        document = Document(name, {})
        read = [
            # Lambda returns the error if it cannot read the filters.
            StreamMapping({"FilterCriteria": entry.get("FilterCriteriaError"), **entry}, ("Resources", name))
            for entry in table.mappings
            if entry.get("EventSourceArn") == latest
        ]
        if not read:
            reason = f"no event source mapping of the function reads the stream of table {name}"
            yield report(document, STREAM, (), reason, "deploy the stack again")
            continue
        for mapping in read:
            for finding in (*setting_findings(document, mapping), *lane_findings(document, needs, mapping)):
                if finding.severity == "error":  # the others are choices, or cannot be changed any more
                    yield replace(finding, instead=DEPLOY)
        for finding in filter_findings(document, program, needs, read):
            about = f"table {name}: {finding.reason}"
            yield replace(finding, reason=about, instead=DEPLOY if finding.instead else "")


DEPLOY = "write the template again with `projections template`, then run `sam build` and `sam deploy`"


def _table(table: LiveTable, schema: Schema, *, streams: bool) -> Iterator[Finding]:
    name = str(table.described["TableName"])
    properties = {**table.described, "TimeToLiveSpecification": table.ttl or "not readable"}
    update = f"aws dynamodb update-table --table-name {name} --stream-specification StreamEnabled="
    ways = {
        STREAM.code: f"run `{update}true,StreamViewType=NEW_AND_OLD_IMAGES`, before that `{update}false` if it has another "
        "stream, then deploy with the new stream's ARN",
        TTL.code: f"run `aws dynamodb update-time-to-live --table-name {name} --time-to-live-specification "
        f"Enabled=true,AttributeName={schema.ttl}`",
    }
    resource = Resource(name, "AWS::DynamoDB::Table", properties)
    for finding in table_findings(Document(name, {}), resource, schema, f"table {name}", streams=streams):
        if finding.severity == "error" and finding.code in ways:
            finding = replace(finding, instead=ways[finding.code])
        elif finding.severity == "error" and finding.code == INDEXES.code:
            instead = f"{finding.instead}. Then {DEPLOY}; for an existing table, run `aws dynamodb update-table`"
            finding = replace(finding, instead=instead)
        yield finding
