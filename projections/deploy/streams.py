"""The event source mappings of a template that deliver stream records to a function, and their filters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from projections.deploy.cloudformation import Document, mapping_at, text_at, value_at
from projections.deploy.naming import Naming
from projections.deploy.resolution import FUNCTION, Resolution, Resource, placeholders
from projections.language.mistakes import Location
from projections.local.event_source.filters import Filter, FilterError

__all__ = ["StreamMapping", "Unusable", "mappings_of", "patterns_of"]


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


@dataclass(frozen=True, slots=True)
class Unusable:
    """A filter at `path` that cannot be checked (`unknown`), or that Lambda rejects."""

    reason: str
    path: Location
    unknown: bool


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


def patterns_of(mapping: StreamMapping, document: Document) -> tuple[list[Filter], list[Unusable]]:
    """Return the filters of a mapping, and those that cannot be used."""
    criteria = mapping.properties.get("FilterCriteria")
    path = (*mapping.path, "FilterCriteria")
    if criteria is None:
        return [], []
    listed = value_at(criteria, "Filters")
    if not isinstance(listed, list):
        return [], [Unusable("the filters cannot be read", path, True)]
    built: list[Filter] = []
    unusable: list[Unusable] = []
    for number, one in enumerate(listed):
        place = (*path, "Filters", number, "Pattern")
        text = one.get("Pattern") if isinstance(one, Mapping) else None
        written = isinstance(document.at(place), str)
        if not written and (text is None or any(True for _ in placeholders(text))):
            unusable.append(Unusable("this filter refers to values that are not in the template", place, True))
            continue
        try:
            built.append(Filter(json.loads(str(text))))
        except FilterError as error:
            unusable.append(Unusable(f"Lambda rejects this filter: {error}", place, False))
        except (ValueError, TypeError, RecursionError) as error:
            unusable.append(Unusable(f"Lambda rejects this filter, which is not a JSON object: {error}", place, False))
    return built, unusable
