"""The manifest: the resources of the SAM template as JSON, for CDK, Terraform or SST.

It is derived from the generated template with parameters at their defaults, so that the two agree. Names inside
`settings`, `statements`, `alarms` and `resources` are those of AWS's API.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from projections.deploy.cloudformation import template_of
from projections.deploy.needs import MAIN, Deployment
from projections.deploy.resolution import FUNCTION, Resolution, Resource, placeholders
from projections.deploy.shape import (
    Alarm,
    Event,
    Function,
    Index,
    Key,
    Manifest,
    Other,
    Queue,
    Redrive,
    Statement,
    Table,
)
from projections.deploy.template import sam_template
from projections.stores.indexes import described_indexes

__all__ = ["Manifest", "manifest"]


def manifest(deployment: Deployment) -> Manifest:
    """Return the manifest of rules. Raises UsageError as `sam_template` does."""
    reading = _Reading(Resolution(template_of(sam_template(deployment), deployment.file)), deployment)
    tables = reading.tables()
    parts: dict[str, Any] = {
        "manifest": 1,
        "rules": deployment.file,
        "fingerprint": deployment.program.fingerprint,
        "tables": tables,
        "functions": dict(reading.functions()),
        "queues": dict(reading.queues()),
        "alarms": dict(reading.alarms()),
        "resources": dict(reading.others()),
    }
    found = Manifest(**parts, placeholders={})
    return found.model_copy(update={"placeholders": reading.meanings(found.model_dump())})


_TABLE, _QUEUE, _ALARM, _ROLE = "AWS::DynamoDB::Table", "AWS::SQS::Queue", "AWS::CloudWatch::Alarm", "AWS::IAM::Role"

_NAMES = {
    (_TABLE, ""): ("name", "name of table"),
    (_QUEUE, ""): ("url", "URL of queue"),
    (_QUEUE, "QueueName"): ("name", "name of queue"),
    (FUNCTION, ""): ("name", "name of function"),
}
"""Names and meanings of `Ref` and `Fn::GetAtt` that do not follow from type and attribute."""


class _Reading:
    def __init__(self, resolution: Resolution, deployment: Deployment) -> None:
        self.resolution = resolution
        self.deployment = deployment
        self.resources = resolution.resources
        self.mappings = {
            f"{function.id}{event}": (function.id, event)
            for function in resolution.of_type(FUNCTION)
            for event in function.properties.get("Events", {})
        }

    def tables(self) -> dict[str, Table]:
        created = self.resolution
        if self.deployment.existing:
            text = sam_template(replace(self.deployment, existing=False))
            created = Resolution(template_of(text, self.deployment.file))
        names = {f"ApplicationTable{table.suffix}": table.name for table in self.deployment.tables}
        return {one.id: _table(one, names.get(one.id), one.id not in self.resources) for one in created.of_type(_TABLE)}

    def functions(self) -> Iterator[tuple[str, Function]]:
        for one in self.resolution.of_type(FUNCTION):
            properties = self._spelled(one.properties)
            role = self.resources[str(one.properties["Role"])[2:].split(".")[0]]
            documents = [policy["PolicyDocument"] for policy in self._spelled(role.properties["Policies"])]
            yield (
                one.id,
                Function(
                    handler=properties["Handler"],
                    runtime=properties["Runtime"],
                    architectures=properties["Architectures"],
                    memory_mb=properties["MemorySize"],
                    timeout_seconds=properties["Timeout"],
                    environment={name: str(value) for name, value in properties["Environment"]["Variables"].items()},
                    log_group=properties.get("LoggingConfig", {}).get("LogGroup"),
                    tracing=properties["Tracing"],
                    recursive_loop=properties.get("RecursiveLoop", "Terminate"),
                    events={name: _event(event) for name, event in properties.get("Events", {}).items()},
                    statements=[
                        Statement.model_validate(
                            {**said, "Action": _list(said["Action"]), "Resource": _list(said["Resource"])}
                        )
                        for document in documents
                        for said in document["Statement"]
                    ],
                ),
            )

    def queues(self) -> Iterator[tuple[str, Queue]]:
        for one in self.resolution.of_type(_QUEUE):
            properties = self._spelled(one.properties)
            redrive = properties.get("RedrivePolicy")
            yield (
                one.id,
                Queue(
                    visibility_timeout_seconds=properties.get("VisibilityTimeout", 30),
                    retention_seconds=properties["MessageRetentionPeriod"],
                    encrypted=properties["SqsManagedSseEnabled"],
                    retained=_retained(one),
                    redrive=None
                    if redrive is None
                    else Redrive(
                        dead_letters=redrive["deadLetterTargetArn"], after_receives=redrive["maxReceiveCount"]
                    ),
                    redrive_allow=properties.get("RedriveAllowPolicy"),
                    name=properties.get("QueueName"),
                ),
            )

    def alarms(self) -> Iterator[tuple[str, Alarm]]:
        for one in self.resolution.of_type(_ALARM):
            settings = self._spelled(one.properties)
            yield one.id, Alarm(description=settings.pop("AlarmDescription"), settings=settings)

    def others(self) -> Iterator[tuple[str, Other]]:
        for one in self.resources.values():
            if one.type not in (_TABLE, _QUEUE, _ALARM, _ROLE, FUNCTION):
                yield one.id, Other(type=one.type, properties=self._spelled(one.properties))

    # Placeholders

    def _spelled(self, value: Any) -> Any:
        """Return a value with descriptive placeholders: `${TaskQueue.url}` for `${TaskQueue}`."""
        if isinstance(value, str):
            return re.sub(r"\$\{([^!{}][^{}]*)\}", lambda found: f"${{{self._name(found[1])[0]}}}", value)
        if isinstance(value, list):
            return [self._spelled(each) for each in value]
        if isinstance(value, Mapping):
            return {name: self._spelled(each) for name, each in value.items()}
        return value

    def _name(self, text: str) -> tuple[str, str]:
        """Return the name of a placeholder, and its meaning."""
        if text in self.mappings:
            function, event = self.mappings[text]
            return f"{function}.{event}.uuid", f"UUID of the event source mapping {event} of {function}"
        name, _, attribute = text.partition(".")
        resource = self.resources.get(name)
        if resource is None:
            return text, self._outside(text)
        noun = resource.type.rpartition("::")[2].lower()
        spelled = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", attribute).lower() or "name"
        last, meaning = _NAMES.get((resource.type, attribute), (spelled, f"{spelled.replace('_', ' ')} of {noun}"))
        return f"{name}.{last}", f"{meaning} {name}".replace("arn ", "ARN ")

    def _outside(self, text: str) -> str:
        for table in self.deployment.tables:
            called = "the application's table" + (f" {table.name}" if table.name != MAIN else "")
            if text == f"ExistingTableName{table.suffix}":
                return f"name of {called}"
            if text == f"ExistingStreamArn{table.suffix}":
                return f"ARN of the stream of {called}"
        known = {"AWS::Region": "Region", "AWS::AccountId": "account", "AWS::Partition": "partition, usually aws"}
        return known.get(text, "name of this deployment" if text == "AWS::StackName" else text)

    def meanings(self, value: Any) -> dict[str, str]:
        """Return every placeholder in a manifest with its meaning."""
        used = set(placeholders(value))
        known = dict(map(self._name, self._all_names()))
        return {f"${{{name}}}": known.get(name) or self._outside(name) for name in sorted(used)}

    def _all_names(self) -> Iterator[str]:
        yield from self.mappings
        for resource in self.resources.values():
            yield resource.id
            properties = [one.properties for one in self.resources.values()]
            yield from (name for name in placeholders(properties) if name.startswith(f"{resource.id}."))


def _event(event: Mapping[str, Any]) -> Event:
    settings = dict(event.get("Properties") or {})
    source = settings.pop("Stream", None) or settings.pop("Queue", None)
    filters = (settings.pop("FilterCriteria", None) or {}).get("Filters", [])
    return Event(
        type=event["Type"], source=source, settings=settings, filters=[json.loads(one["Pattern"]) for one in filters]
    )


def _table(resource: Resource, rules_name: str | None, exists: bool) -> Table:
    properties = resource.properties
    types = {one["AttributeName"]: one["AttributeType"] for one in properties["AttributeDefinitions"]}

    def keys(schema: list[dict[str, str]], kind: str) -> list[Key]:
        names = [element["AttributeName"] for element in schema if element["KeyType"] == kind]
        return [Key(name=name, type=types[name]) for name in names]

    return Table(
        rules_name=rules_name,
        exists=exists,
        partition=keys(properties["KeySchema"], "HASH")[0],
        sort=next(iter(keys(properties["KeySchema"], "RANGE")), None),
        indexes={
            index["IndexName"]: Index(
                partition=keys(index["KeySchema"], "HASH"),
                sort=keys(index["KeySchema"], "RANGE"),
                projection=index["Projection"]["ProjectionType"],
                attributes=index["Projection"].get("NonKeyAttributes", []),
                local=local,
            )
            for index, local in described_indexes(properties)
        },
        stream_view_type=properties.get("StreamSpecification", {}).get("StreamViewType"),
        ttl=properties.get("TimeToLiveSpecification", {}).get("AttributeName"),
        billing_mode=properties["BillingMode"],
        point_in_time_recovery=properties["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"],
        deletion_protection=properties["DeletionProtectionEnabled"] == "true",
        encrypted=properties["SSESpecification"]["SSEEnabled"],
        retained=_retained(resource),
    )


def _retained(resource: Resource) -> bool:
    return resource.attributes.get("DeletionPolicy") in ("Retain", "RetainExceptOnCreate")


def _list(value: Any) -> list[str]:
    return list(value) if isinstance(value, list) else [value]
