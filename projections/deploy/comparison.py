"""A template and the generated one for the same rules, with their corresponding parts."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    mapping_at,
    placeholders,
    template_of,
    text_at,
)
from projections.deploy.finding import Finding, Severity, found
from projections.deploy.needs import MAIN, Deployment
from projections.deploy.template import sam_template
from projections.language.findings.kinds import Kind
from projections.language.mistakes import Location


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
