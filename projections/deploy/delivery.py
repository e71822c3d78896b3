"""Event source mappings: whether every record that the rules need reaches the function."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

from projections.deploy.cloudformation import Document, mapping_at
from projections.deploy.comparison import Comparison
from projections.deploy.finding import Finding, found
from projections.deploy.kinds import DELIVERY, FILTERS, NOT_JUDGED
from projections.deploy.needs import TableNeeds
from projections.deploy.resolution import placeholders
from projections.deploy.streams import StreamMapping, mappings_of, patterns_of
from projections.deploy.witnesses import dropped
from projections.language.program import Program
from projections.local.event_source.filters import Filter
from projections.local.event_source.settings import Settings

__all__ = ["delivery_findings", "filter_findings", "setting_findings"]

ALLOWED = 5
"""Maximum filters of a mapping without a higher quota."""


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
    known = {name: value for name, value in mapping.properties.items() if not any(placeholders(value))}
    known.pop("FilterCriteria", None)
    try:
        settings = Settings.from_properties(known)
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        yield found(document, DELIVERY, mapping.path, f"Lambda rejects this mapping: {error}")
        return
    if not settings.report_batch_item_failures:
        reason = "without ReportBatchItemFailures Lambda treats failed records of a batch as processed"
        instead = "FunctionResponseTypes: [ReportBatchItemFailures]"
        yield found(document, DELIVERY, (*mapping.path, "FunctionResponseTypes"), reason, instead)
    if mapping.properties.get("TumblingWindowInSeconds"):
        reason = "with a tumbling window Lambda expects a state in the response, which the function does not return"
        yield found(document, DELIVERY, (*mapping.path, "TumblingWindowInSeconds"), reason, "remove it")
    if settings.starting_position == "LATEST":
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
        filters, unusable = patterns_of(mapping, document)
        for wrong in unusable:
            unknown = unknown or wrong.unknown
            kind = NOT_JUDGED if wrong.unknown else FILTERS
            yield found(document, kind, wrong.path, wrong.reason)
        if not filters and not unusable:
            return  # everything arrives
        for attribute in _numeric(filters):
            reason = f"`numeric` never matches the key attribute {attribute}: events have numbers as text"
            yield found(document, FILTERS, path, reason, "remove this condition")
        if len(filters) > ALLOWED:
            reason = f"{len(filters)} filters: Lambda accepts {ALLOWED} for a mapping, unless the quota was raised"
            yield found(document, FILTERS, path, reason, rated="note")
        every += filters
    path = (*mappings[0].path, "FilterCriteria")
    ours = [json.dumps(pattern, ensure_ascii=False) for pattern in table.filters.patterns]
    for one in dropped(program, table.name, every):
        reason = (
            f"no filter matches all {one.entity} items ({one.key}); these events are dropped: {', '.join(one.events)}"
        )
        rules = "" if unknown else ", ".join(one.blind)
        if unknown:
            reason += ", unless a filter that cannot be checked matches them"
        elif rules:
            reason += f"; rule {rules} receives no change of them"
        instead = (
            f"use the filters that `projections template` writes: {', '.join(ours)}"
            if ours
            else "remove FilterCriteria"
        )
        finding = found(document, FILTERS, path, reason, instead, rated="note" if unknown else "error")
        yield replace(finding, rule=rules) if rules else finding


def _numeric(filters: Sequence[Filter]) -> Iterator[str]:
    """Yield the key attributes that filters compare as numbers."""
    for one in filters:
        for attribute, kinds in mapping_at(one.pattern, "dynamodb", "Keys").items():
            if '"numeric"' in json.dumps(kinds):
                yield str(attribute)
