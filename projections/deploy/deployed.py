"""Whether deployed tables, and the mappings that read their streams, agree with rules.

DescribeTable and ListEventSourceMappings return what a template sets, in the same form. So both are read as a template of
what is deployed, and the same functions compare it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from projections.deploy.cloudformation import Document, Resource
from projections.deploy.comparison import StreamMapping, filter_findings, setting_findings, table_findings
from projections.deploy.finding import FILTERS, INDEXES, NOT_JUDGED, STREAM, TTL, Finding, report
from projections.deploy.needs import Deployment
from projections.language.keys import Schema
from projections.language.program import LEDGER_SCHEMA, Program

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
