"""The SAM template for rules: `base.yaml` with its directives evaluated."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from projections.aws.live_tables import GLOBAL, LOCAL, projection
from projections.deploy.checksum import with_checksum
from projections.deploy.needs import MAIN, NOTHING, Deployment, TableNeeds
from projections.errors import UsageError
from projections.language.files import scalar
from projections.printable import printable

BASE = Path(__file__).with_name("base.yaml")

_DIRECTIVE = re.compile(r"(?P<indent> *)#: ?(?P<word>each|if|else|end|insert|#)(?: (?P<rest>.*))?")
_VALUE = re.compile(r"<([A-Za-z][A-Za-z ]*)>")


def sam_template(deployment: Deployment) -> str:
    """Return the text of the template with comments, and its checksum.

    Raises UsageError for names that AWS rejects, and for keys that no condition can restrict.
    """
    reason = next((table.unrestricted for table in deployment.tables if table.unrestricted), "")
    if deployment.leading_keys and reason:
        raise UsageError(
            f"--leading-keys needs partition keys that begin with constant text: {reason}. Omit --leading-keys"
        )
    lines = BASE.read_text(encoding="utf-8").splitlines()
    return with_checksum("".join(f"{line}\n" for line in _lines(lines, deployment, None)))


def _lines(lines: list[str], deployment: Deployment, table: TableNeeds | None) -> Iterator[str]:
    facts, values = _facts(deployment, table), _values(deployment, table)
    position = 0
    while position < len(lines):
        line = lines[position]
        match = _DIRECTIVE.fullmatch(line)
        if match is None:
            yield from _line(line, facts, values)
        elif match["word"] == "each":
            position, body, _ = _block(lines, position)
            for each_table in deployment.tables:
                yield from _lines(body, deployment, each_table)
        elif match["word"] == "if":
            position, body, otherwise = _block(lines, position)
            yield from _lines(body if facts[match["rest"]] else otherwise, deployment, table)
        elif match["word"] == "insert":
            yield from ((match["indent"] + text).rstrip() for text in _part(match["rest"], deployment, table))
        position += 1


def _line(line: str, facts: dict[str, bool], values: dict[str, str]) -> Iterator[str]:
    """Yield a line with its values, if its fact holds; values of several lines are indented."""
    text, _, fact = line.partition(" #: if ")
    if fact and not facts[fact]:
        return
    indent = " " * (len(text) - len(text.lstrip()))
    first, *further_lines = _VALUE.sub(lambda match: values[match[1]], text).split("\n")
    yield first.rstrip()
    yield from (indent + each for each in further_lines)


def _block(lines: list[str], start: int) -> tuple[int, list[str], list[str]]:
    """Return the end of the block that begins at `start`, the lines in it, and those after its `else`."""
    depth, middle = 0, None
    for position in range(start, len(lines)):
        match = _DIRECTIVE.fullmatch(lines[position])
        word = match["word"] if match else ""
        depth += (word in ("each", "if")) - (word == "end")
        if word == "else" and depth == 1:
            middle = position
        if depth == 0:
            return position, lines[start + 1 : middle or position], lines[middle + 1 : position] if middle else []
    raise AssertionError(f"line {start + 1} of {BASE.name} is not ended")


# The facts, values and inserted parts to which the directives refer

_PAGES = "!If [HasAlarmTopic, [!Ref AlarmTopicArn], !Ref AWS::NoValue]"
_TICKETS = f"!If [HasTicketTopic, [!Ref TicketTopicArn], {_PAGES}]"
"""The receivers of alarms that somebody must act on now, and of those that can wait until working hours."""

_MOST_LINES = 100
"""Lines of a graph; a query of CloudWatch Logs has at most 10,000 characters."""

_LEDGER = "ExistingLedgerTableName"
_TABLE_ARN = "arn:${AWS::Partition}:dynamodb:${AWS::Region}:${AWS::AccountId}:table"


def _facts(deployment: Deployment, table: TableNeeds | None) -> dict[str, bool]:
    """Return the facts of `#: if FACT`; with those of a table inside `#: each table`."""
    facts = {
        "new": not deployment.existing,
        "existing": deployment.existing,
        "restricted": deployment.leading_keys,
        "unrestricted": not deployment.leading_keys,
        "parallel": not all(each.lanes for each in deployment.tables),
        "sends messages": any(each.messages for each in deployment.tables),
    }
    if table is not None:
        facts |= {
            "updates": table.updates,
            "deletes": table.deletes,
            "has children": table.children,
            "searches children": table.searched,
            "takes statements": table.children or table.published,
            "looks up children": bool(table.queried),
            "lanes": bool(table.lanes),
            "has a pipe": bool(table.messages),
        }
    return facts


def _values(deployment: Deployment, table: TableNeeds | None) -> dict[str, str]:
    """Return the values of `<name>`; with those of a table inside `#: each table`."""
    tables = deployment.tables
    parameters = [f"{name}{each.suffix}" for each in tables for name in ("ExistingTableName", "ExistingStreamArn")]
    flags = " --existing-table" * deployment.existing + " --leading-keys" * deployment.leading_keys
    flags += "".join(f" --notify {shlex.quote(printable(rule))}" for rule in dict.fromkeys(deployment.notify))
    values = {
        "rules file": shlex.quote(printable(deployment.file)),
        "flags": flags,
        "table parameters": ", ".join(parameters),
        "ledger name": f"!If [CreateLedger, !Ref LedgerTable, !Ref {_LEDGER}]",
        "ledger arn": f"!If\n  - CreateLedger\n  - !GetAtt LedgerTable.Arn\n  - !Sub {_TABLE_ARN}/${{{_LEDGER}}}",
        "pages": _PAGES,
        "writes by rule": ", ".join(
            f"sum(`writes.{name}`) as `{name}`" for name in ["(entry)", *deployment.program.rules][:_MOST_LINES]
        ),
        "tickets": _TICKETS,
        "streams of all tables": _one_or_list([_within(deployment, each, "/stream/*") for each in tables]),
    }
    if table is not None:
        values |= {
            "T": table.suffix,
            "called": f" as {table.name} of the rules" if table.name != MAIN else "",
            "table name": _name(deployment, table),
            "stream arn": _stream(deployment, table),
            "table arn": _within(deployment, table, ""),
            "leading keys": f"[{', '.join(json.dumps(key) for key in table.leading)}]",
            "index arns": _one_or_list([_within(deployment, table, f"/index/{index}") for index in table.queried]),
        }
    return values


def _part(name: str, deployment: Deployment, table: TableNeeds | None) -> list[str]:
    """Return the lines of `#: insert NAME`."""
    if name == "tables":
        return _environment(deployment)
    if name == "freshness alarms":
        return _freshness_alarms(deployment)
    assert table is not None, f"{name} is of one table"
    parts = {"keys and indexes": _keys, "ttl": _ttl, "filters": _filters, "message filters": _message_filters}
    return parts[name](table)


def _freshness_alarms(deployment: Deployment) -> list[str]:
    """Return an alarm for each rule with `within`."""
    lines: list[str] = []
    for name, suffix, seconds in deployment.within:
        lines += [
            f"Freshness{suffix}Alarm:",
            "  Type: AWS::CloudWatch::Alarm",
            "  Properties:",
            f"    AlarmDescription: The rule {name} processes changes later than its `within` of {seconds} s. Check the lag "
            "and the log of the stream function.",
            "    Namespace: Projections",
            f"    MetricName: freshness.{name}",
            "    Dimensions: [{ Name: service, Value: !Ref AWS::StackName }]",
            "    Statistic: Maximum",
            "    Period: 60",
            "    EvaluationPeriods: 5",
            "    DatapointsToAlarm: 2",
            f"    Threshold: {seconds}",
            "    ComparisonOperator: GreaterThanThreshold",
            "    TreatMissingData: notBreaching",
            f"    AlarmActions: {_TICKETS}",
            f"    OKActions: {_TICKETS}",
            "",
        ]
    return lines


# A table by its name, its ARN, its stream


def _choice(deployment: Deployment, table: TableNeeds, created: str, existing: str, *, long: bool = False) -> str:
    """Return one of two values, chosen by the parameters; for existing tables only, the second."""
    if deployment.existing:
        return existing
    if long:
        return f"!If\n  - CreateTable{table.suffix}\n  - {created}\n  - {existing}"
    return f"!If [CreateTable{table.suffix}, {created}, {existing}]"


def _name(deployment: Deployment, table: TableNeeds) -> str:
    created, existing = f"!Ref ApplicationTable{table.suffix}", f"!Ref ExistingTableName{table.suffix}"
    return _choice(deployment, table, created, existing)


def _stream(deployment: Deployment, table: TableNeeds) -> str:
    created, existing = f"!GetAtt ApplicationTable{table.suffix}.StreamArn", f"!Ref ExistingStreamArn{table.suffix}"
    return _choice(deployment, table, created, existing)


def _within(deployment: Deployment, table: TableNeeds, what: str) -> str:
    """Return the ARN of a table, or of its stream or an index."""
    created = f"!GetAtt ApplicationTable{table.suffix}.Arn"
    if what:
        created = f"!Sub ${{ApplicationTable{table.suffix}.Arn}}{what}"
    existing = f"!Sub {_TABLE_ARN}/${{ExistingTableName{table.suffix}}}{what}"
    return _choice(deployment, table, created, existing, long=True)


def _environment(deployment: Deployment) -> list[str]:
    tables = deployment.tables
    names = [_name(deployment, table) for table in tables]
    streams = [_stream(deployment, table) for table in tables]
    if [table.name for table in tables] == [MAIN]:
        return [f"TABLE_NAME: {names[0]}", f"STREAM_ARN: {streams[0]}"]
    keys = [f"Table{table.suffix}" for table in tables]
    real = ", ".join(f'"{table.name}": "${{{key}}}"' for table, key in zip(tables, keys, strict=True))
    return [
        "TABLES: !Sub",
        f"  - '{{{real}}}'",
        *_items([f"{key}: {name}" for key, name in zip(keys, names, strict=True)], "  - ", "    "),
        "STREAM_ARN: !Join",
        '  - ","',
        *_items(streams, "  - - ", "    - "),
    ]


def _items(texts: Sequence[str], first: str, others: str) -> list[str]:
    return [(others if number else first) + text for number, text in enumerate(texts)]


def _one_or_list(values: Sequence[str]) -> str:
    """Return one value unchanged, several as a list."""
    if len(values) == 1:
        return values[0]
    return "\n" + "\n".join("  - " + value.replace("\n", "\n    ") for value in values)


def _keys(table: TableNeeds) -> list[str]:
    schema = table.schema
    sort = [schema.sort] if schema.sort else []
    attributes = dict([schema.partition, *sort])
    for partition, sorted_by in schema.indexes.values():
        attributes |= dict([*partition, *sorted_by])
    lines = ["AttributeDefinitions:"]
    lines += [f"  - {{ AttributeName: {scalar(name)}, AttributeType: {kind} }}" for name, kind in attributes.items()]
    lines += _key_schema([schema.partition], sort)
    for kind in (GLOBAL, LOCAL):
        names = [name for name in schema.indexes if (name in schema.local) == (kind == LOCAL)]
        lines += [f"{kind}:"] if names else []
        for name in names:
            lines.append(f"  - IndexName: {scalar(name)}")
            lines += [f"    {line}" for line in _key_schema(*schema.indexes[name])]
            lines += _projection(projection(schema, name))
    return lines


def _projection(written: Mapping[str, Any]) -> list[str]:
    if "NonKeyAttributes" not in written:
        return [f"    Projection: {{ ProjectionType: {written['ProjectionType']} }}"]
    lines = ["    Projection:", f"      ProjectionType: {written['ProjectionType']}", "      NonKeyAttributes:"]
    return lines + [f"        - {scalar(name)}" for name in written["NonKeyAttributes"]]


def _key_schema(partition: Sequence[tuple[str, str]], sort: Sequence[tuple[str, str]]) -> list[str]:
    elements = [(name, "HASH") for name, _ in partition] + [(name, "RANGE") for name, _ in sort]
    return ["KeySchema:", *(f"  - {{ AttributeName: {scalar(name)}, KeyType: {kind} }}" for name, kind in elements)]


def _ttl(table: TableNeeds) -> list[str]:
    if table.schema.ttl is None:
        return []
    return ["TimeToLiveSpecification:", f"  AttributeName: {scalar(table.schema.ttl)}", "  Enabled: true"]


def _filters(table: TableNeeds) -> list[str]:
    filters = table.filters
    if not filters.patterns:
        return [f"# No filter: {note}." for note in filters.notes]
    return [
        "# Key prefixes only, so that INSERT, MODIFY and REMOVE of sources and targets all arrive (healing needs them).",
        *(f"# Note: {note}." for note in filters.notes),
        "FilterCriteria:",
        "  Filters:",
        *(line for pattern in filters.patterns for line in _pattern(pattern)),
    ]


def _message_filters(table: TableNeeds) -> list[str]:
    return [line for pattern in table.messages for line in ("- Pattern: >-", f"    {_json(pattern)}")]


def _pattern(pattern: Mapping[str, Any]) -> list[str]:
    """Return a filter as folded text with a line for each key attribute. Folding joins lines with a space."""
    lines = [_json(pattern)]
    if pattern != NOTHING:
        lines = [f"{_json(name)}: {_json(rules)}," for name, rules in pattern["dynamodb"]["Keys"].items()]
        lines[0] = '{"dynamodb": {"Keys": {' + lines[0]
        lines[-1] = lines[-1].removesuffix(",") + "}}}"
    return ["    - Pattern: >-", *(f"        {line}" for line in lines)]


def _json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isprintable() else json.dumps(value)
