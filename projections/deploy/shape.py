"""The format of the manifest: pydantic models, from which its JSON Schema is generated."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from projections.deploy.checksum import UNSIGNED

__all__ = [
    "Alarm",
    "Event",
    "Function",
    "Index",
    "Key",
    "Manifest",
    "Other",
    "Queue",
    "Redrive",
    "Statement",
    "Table",
]


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Key(Part):
    """A key attribute."""

    name: str
    type: Literal["S", "N", "B"]


class Index(Part):
    """A secondary index."""

    partition: list[Key] = Field(min_length=1)
    sort: list[Key]
    projection: Literal["ALL", "KEYS_ONLY", "INCLUDE"]
    attributes: list[str] = Field(default=[], description="The attributes of the projection INCLUDE.")
    local: bool = Field(default=False, description="It has the partition key of the table: LocalSecondaryIndexes.")


class Table(Part):
    """A DynamoDB table."""

    rules_name: str | None = Field(description="Its name in the rules; null for the ledger.")
    exists: bool = Field(description="It exists already, and must have these properties.")
    partition: Key
    sort: Key | None
    indexes: dict[str, Index]
    stream_view_type: str | None = Field(description="View type of its stream; null for no stream.")
    ttl: str | None = Field(description="The attribute by which items expire.")
    billing_mode: str
    point_in_time_recovery: bool
    deletion_protection: bool
    encrypted: bool
    retained: bool = Field(description="It is kept when the deployment is deleted.")


class Event(Part):
    """An event source of a function."""

    type: str = Field(description="`DynamoDB`, `SQS`, or another event type of SAM.")
    source: str | None = Field(description="The ARN of the stream or queue; null for a schedule.")
    settings: dict[str, Any] = Field(
        description="Parameters of Lambda's CreateEventSourceMapping; of a schedule: `Schedule` and `State`."
    )
    filters: list[dict[str, Any]] = Field(
        description="Event patterns, one of which must match; without patterns, all records arrive."
    )


class Statement(Part):
    """A permission of a function; `Effect` is always Allow."""

    Sid: str
    Effect: Literal["Allow"]
    Action: list[str] = Field(min_length=1)
    Resource: list[str] = Field(min_length=1)
    Condition: dict[str, Any] | None = Field(default=None, description="Absent if there is none.")

    @model_serializer(mode="wrap")
    def _without_none(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        written: dict[str, Any] = write(self)
        return {name: value for name, value in written.items() if value is not None}


class Function(Part):
    """A Lambda function. All use one package, which `make build-<name>` builds; each has a role of its own."""

    handler: str
    runtime: str
    architectures: list[str]
    memory_mb: int
    timeout_seconds: int
    environment: dict[str, str]
    log_group: str | None
    tracing: str
    recursive_loop: Literal["Allow", "Terminate"] = Field(
        description="What Lambda does if the function sends messages to its own queue: see PutFunctionRecursionConfig."
    )
    events: dict[str, Event]
    statements: list[Statement]


class Redrive(Part):
    """The queue of messages that failed too often."""

    dead_letters: str = Field(description="The ARN of a queue.")
    after_receives: int


class Queue(Part):
    """An SQS queue."""

    visibility_timeout_seconds: int
    retention_seconds: int
    encrypted: bool
    retained: bool
    redrive: Redrive | None
    redrive_allow: dict[str, Any] | None = Field(
        description="Queues that may use it for their dead letters, as RedriveAllowPolicy of SQS."
    )
    name: str | None = Field(description="Null for any name.")


class Alarm(Part):
    """A CloudWatch alarm, with the parameters of PutMetricAlarm."""

    description: str
    settings: dict[str, Any]


class Other(Part):
    """Any other resource, with the properties of CloudFormation."""

    type: str
    properties: dict[str, Any]


class Manifest(Part):
    """All resources of a deployment of a rule file. Texts may have placeholders, such as `${TaskQueue.url}`."""

    manifest: Literal[1] = Field(description="The version of this format.")
    rules: str = Field(description="The rule file.")
    fingerprint: str = Field(description="Fingerprint of the rules, which changes only with their meaning.")
    tables: dict[str, Table]
    functions: dict[str, Function]
    queues: dict[str, Queue]
    alarms: dict[str, Alarm]
    resources: dict[str, Other] = Field(description="The rest: buckets, log groups, the dashboard.")
    placeholders: dict[str, str] = Field(description="Every placeholder with its meaning.")
    checksum: str = Field(default=UNSIGNED, description="Checksum of the file, which shows whether it was edited.")
