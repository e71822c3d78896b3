"""A template and the generated one for the same rules: corresponding parts, and whether every needed record arrives."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from projections.deploy.cloudformation import (
    FUNCTION,
    QUEUE,
    VARIABLES,
    Document,
    Naming,
    Resolution,
    Resource,
    judged,
    mapping_at,
    placeholders,
    template_of,
    text_at,
    value_at,
)
from projections.deploy.finding import DELIVERY, FILTERS, NOT_JUDGED, Finding, Severity, found
from projections.deploy.needs import MAIN, Deployment, TableNeeds, entities_of
from projections.deploy.template import sam_template
from projections.language.entity import Entity
from projections.language.findings.kinds import Kind
from projections.language.keys import Schema
from projections.language.mistakes import Location
from projections.language.program import Program
from projections.local.filters import Filter, FilterError, NotJudgedError


@dataclass(frozen=True, slots=True)
class StreamMapping:
    """An event source mapping of a stream."""

    properties: Mapping[str, Any]
    path: Location
    """The path of its properties."""
    stream: str
    """The ARN of its stream, in the notation of `Naming`."""

    @property
    def destination(self) -> str | None:
        """The ARN of the on-failure destination, if the template has it."""
        return text_at(self.properties, "DestinationConfig", "OnFailure", "Destination")

    @property
    def bucket(self) -> str | None:
        """The name of the bucket, if the destination is one."""
        _, found, name = (self.destination or "").partition(":s3:::")
        return name if found else None


def mappings_of(function: Resource, resolution: Resolution, names: Naming) -> list[StreamMapping]:
    """Return the mappings from DynamoDB streams to a function, as events of SAM or as resources."""
    found = []
    events = mapping_at(function.properties, "Events") if function.type == FUNCTION else {}
    for name, event in events.items():
        properties = mapping_at(event, "Properties")
        if properties and event.get("Type") == "DynamoDB":
            found.append(_mapping(properties, "Stream", function.path("Events", name, "Properties"), names))
    for resource in resolution.of_type("AWS::Lambda::EventSourceMapping"):
        target = str(resource.properties.get("FunctionName"))
        mapping = _mapping(resource.properties, "EventSourceArn", resource.path(), names)
        is_stream = ":dynamodb:" in mapping.stream or "StartingPosition" in resource.properties  # a queue has none
        if is_stream and (f"${{{function.id}}}" in target or f"${{{function.id}." in target):
            found.append(mapping)
    return found


def _mapping(properties: Mapping[str, Any], source: str, path: Location, names: Naming) -> StreamMapping:
    return StreamMapping(names.spelled(properties), path, str(names.spelled(properties.get(source))))


STREAM = "handlers.stream.handler"


@dataclass(frozen=True, slots=True)
class Pair:
    """A function of ours, and the corresponding one of theirs."""

    ours: Resource
    theirs: Resource


class Comparison:
    """Two resolved templates. Their names are in the notation of `Naming`."""

    def __init__(self, document: Document, deployment: Deployment) -> None:
        self.document = document
        self.deployment = replace(deployment, existing=False)
        self.ours = _ours(self.deployment)
        self.theirs = Resolution(document)
        self.our_names = Naming(self.ours)
        self.names = Naming(self.theirs)

    def finding(
        self, kind: Kind, path: Location, reason: str, instead: str = "", rated: Severity | None = None
    ) -> Finding:
        return found(self.document, kind, path, reason, instead, rated)

    @cached_property
    def pairs(self) -> list[Pair]:
        """The functions that both templates have."""
        candidates = list(self.theirs.of_type(FUNCTION, "AWS::Lambda::Function"))
        pairs = []
        for ours in self.ours.of_type(FUNCTION):
            handler = str(ours.properties["Handler"])
            same = [one for one in candidates if str(one.properties.get("Handler")).endswith(handler)]
            if not same and handler == STREAM:  # perhaps a handler that wraps ours
                named = [one for one in candidates if "LEDGER_TABLE_NAME" in variables(one)]
                same = [one for one in named if mappings_of(one, self.theirs, self.names)]
            if same:
                pairs.append(Pair(ours, same[0]))
        return pairs

    @property
    def stream(self) -> Pair | None:
        """The function that receives stream records."""
        return next((pair for pair in self.pairs if pair.ours.properties["Handler"] == STREAM), None)

    def text(self, value: Any) -> str:
        """Return a value of theirs as text in the notation of `Naming`."""
        return str(value).lower() if isinstance(value, bool) else str(self.names.spelled(value))

    def tables_of(self, function: Resource) -> dict[str, str]:
        """Return the real names of the application's tables in a function's environment, by their names in the rules."""
        given = variables(function)
        several = self.text(given.get("TABLES", ""))
        if not several:
            single = self.text(given.get("TABLE_NAME", ""))
            return {MAIN: single} if single else {}
        try:
            tables = json.loads(several)
        except ValueError:
            return {}
        return {str(key): str(value) for key, value in tables.items()} if isinstance(tables, dict) else {}

    @cached_property
    def tables(self) -> Mapping[str, str]:
        """The real name of each table of the rules that any function's environment names."""
        named: dict[str, str] = {}
        for pair in self.pairs:
            named = {**self.tables_of(pair.theirs), **named}
        return named

    @cached_property
    def known(self) -> Mapping[str, str]:
        """Our names of tables, queues, log groups and the bucket, with the corresponding names of theirs."""
        known = {
            f"${{ApplicationTable{table.suffix}}}": self.tables[table.name]
            for table in self.deployment.tables
            if table.name in self.tables
        }
        for pair in self.pairs:
            theirs = variables(pair.theirs)
            for name, value in variables(pair.ours).items():
                ours = self.ours.resources.get(next(iter(placeholders(value)), ""))
                if ours is None or name not in theirs or name in ("TABLE_NAME", "TABLES", "STREAM_ARN"):
                    continue
                text = self.text(theirs[name])
                if ours.type == QUEUE:  # named by its URL
                    queue = self.theirs.resources.get(text.removeprefix("${").removesuffix("}"))
                    if queue is None:
                        continue
                    text = self.names.of(queue)
                known[self.our_names.of(ours)] = text
            if logs := _log_group(pair.theirs):
                known[str(_log_group(pair.ours))] = logs
        for mapping in mappings_of(self.stream.theirs, self.theirs, self.names) if self.stream else ():
            if mapping.bucket is not None:
                known["${DiscardedBucket}"] = mapping.bucket
        return known


@lru_cache(maxsize=4)
def _ours(deployment: Deployment) -> Resolution:
    return Resolution(template_of(sam_template(deployment), "our template"))


def _log_group(function: Resource) -> str | None:
    return text_at(function.properties, "LoggingConfig", "LogGroup")


def variables(function: Resource) -> Mapping[str, Any]:
    """Return the environment of a function."""
    return mapping_at(function.properties, *VARIABLES)


def delivery_findings(both: Comparison) -> Iterator[Finding]:
    """Yield missing mappings, settings under which records are lost, and filters that drop needed records."""
    if both.stream is None:
        return
    function = both.stream.theirs
    read: dict[str, list[StreamMapping]] = {}
    unknown = False
    for mapping in mappings_of(function, both.theirs, both.names):
        yield from setting_findings(both.document, mapping)
        name = _table(both, mapping)
        if name is None:
            unknown = True
            reason = f"the table of this stream cannot be determined: {mapping.stream}"
            yield both.finding(NOT_JUDGED, mapping.path, reason)
        else:
            read.setdefault(name, []).append(mapping)
    for table in both.deployment.tables:
        if table.name in read:
            yield from filter_findings(both.document, both.deployment.program, table, read[table.name])
        elif table.name in both.tables and not unknown:
            reason = f"no event source mapping delivers the records of table {table.name} to {function.id}"
            yield both.finding(DELIVERY, function.path("Events"), reason, "add a mapping for its stream")


def _table(both: Comparison, mapping: StreamMapping) -> str | None:
    """Return the table of the rules whose stream a mapping reads, or None if it is unknown."""
    tables = both.deployment.tables
    for table in tables:
        name = both.tables.get(table.name)
        if (
            name and f":table/{name}/stream/" in mapping.stream
        ) or mapping.stream == f"${{ExistingStreamArn{table.suffix}}}":
            return table.name
    return tables[0].name if len(tables) == 1 and not both.names.judged(mapping.stream) else None


def setting_findings(document: Document, mapping: StreamMapping) -> Iterator[Finding]:
    """Yield settings of a mapping under which records are lost."""
    if "ReportBatchItemFailures" not in str(mapping.properties.get("FunctionResponseTypes")):
        reason = "without ReportBatchItemFailures Lambda treats failed records of a batch as processed"
        instead = "FunctionResponseTypes: [ReportBatchItemFailures]"
        yield found(document, DELIVERY, (*mapping.path, "FunctionResponseTypes"), reason, instead)
    if mapping.properties.get("TumblingWindowInSeconds"):
        reason = "with a tumbling window Lambda expects a state in the response, which the function does not return"
        yield found(document, DELIVERY, (*mapping.path, "TumblingWindowInSeconds"), reason, "remove it")
    if mapping.properties.get("StartingPosition") == "LATEST":
        reason = "LATEST misses records that are written while the mapping is created"
        path = (*mapping.path, "StartingPosition")
        yield found(document, DELIVERY, path, reason, "StartingPosition: TRIM_HORIZON", rated="warning")
    if not mapping.properties.get("DestinationConfig"):
        reason = "records that Lambda discards are lost: there is no on-failure destination"
        yield found(
            document, DELIVERY, mapping.path, reason, "add DestinationConfig with an S3 bucket", rated="warning"
        )
    elif mapping.destination and mapping.destination.startswith("arn:") and mapping.bucket is None:
        reason = "a queue or topic receives only the sequence numbers of discarded records"
        path = (*mapping.path, "DestinationConfig")
        yield found(
            document, DELIVERY, path, reason, "use the ARN of a bucket, which receives the records", rated="note"
        )


def filter_findings(
    document: Document, program: Program, table: TableNeeds, mappings: Sequence[StreamMapping]
) -> Iterator[Finding]:
    """Yield the filters of a table's mappings that drop needed records, or that cannot be checked.

    If they drop all changes of an entity, `rule` of the finding names the rules that read it.
    """
    every: list[Filter] = []
    unknown = False
    for mapping in mappings:
        path = (*mapping.path, "FilterCriteria")
        if mapping.properties.get("FilterCriteria") is None:
            return  # everything arrives
        filters, unusable = _filters(mapping, document)
        unknown = unknown or any(one.code == NOT_JUDGED.code for one in unusable)
        yield from unusable
        if not filters and not unusable:
            return
        every += filters
    path = (*mappings[0].path, "FilterCriteria")
    ours = [json.dumps(pattern, ensure_ascii=False) for pattern in table.filters.patterns]
    instead = "remove FilterCriteria"
    if ours:
        instead = f"use the filters that `projections template` writes: {', '.join(ours)}"
    for entity in entities_of(program, table.name):
        records = list(_records(entity, entity.schema))
        lost = [event for event, record in records if not any(one.matches(record) for one in every)]
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
        finding = found(document, FILTERS, path, reason, instead, rated="note" if unknown else "error")
        yield replace(finding, rule=rules) if rules else finding


def _filters(mapping: StreamMapping, document: Document) -> tuple[list[Filter], list[Finding]]:
    """Return the filters of a mapping, and findings on those that cannot be checked or that Lambda rejects."""
    path = (*mapping.path, "FilterCriteria")
    listed = value_at(mapping.properties, "FilterCriteria", "Filters")
    if not isinstance(listed, list):
        return [], [found(document, NOT_JUDGED, path, "the filters cannot be read")]
    built: list[Filter] = []
    unusable: list[Finding] = []
    for number, one in enumerate(listed):
        place = (*path, "Filters", number, "Pattern")
        text = one.get("Pattern") if isinstance(one, Mapping) else None
        if not isinstance(document.at(place), str) and (text is None or not judged(text)):
            reason = "this filter refers to values that are not in the template"
            unusable.append(found(document, NOT_JUDGED, place, reason))
            continue
        try:
            built.append(Filter(json.loads(str(text))))
        except NotJudgedError as error:
            unusable.append(found(document, NOT_JUDGED, place, str(error)))
        except FilterError as error:
            unusable.append(found(document, FILTERS, place, f"Lambda rejects this filter: {error}"))
        except (ValueError, TypeError, RecursionError) as error:
            reason = f"Lambda rejects this filter, which is not a JSON object: {error}"
            unusable.append(found(document, FILTERS, place, reason))
    return built, unusable


# Records that have only what the rules determine: do filters match every record that the rules need?

_RARE = "\U0010fffd"
"""The value of variables: filters for certain values do not match it."""


def _records(entity: Entity, schema: Schema) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield events of an item of an entity, with the record. Other attributes than the key may be missing."""
    kinds = [kind for _, kind in (schema.partition, schema.sort or ("", "")) if kind]
    keys = {
        attribute: {kind: pattern.render(dict.fromkeys(pattern.names, "-12.5" if kind == "N" else _RARE))}
        for attribute, kind, pattern in zip(schema.key_attributes, kinds, entity.patterns, strict=True)
    }
    old, new = ({image: {**keys, **entity.constants}} for image in ("OldImage", "NewImage"))
    for event, images in (("INSERT", new), ("MODIFY", {**old, **new}), ("REMOVE", old)):
        yield event, {"eventName": event, "eventSource": "aws:dynamodb", "dynamodb": {"Keys": keys, **images}}
    if schema.ttl:
        service = {"type": "Service", "principalId": "dynamodb.amazonaws.com"}
        record = {"eventName": "REMOVE", "eventSource": "aws:dynamodb", "dynamodb": {"Keys": keys, **old}}
        yield "REMOVE by TTL", {**record, "userIdentity": service}
