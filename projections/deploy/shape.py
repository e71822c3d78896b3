"""The shape of the manifest, documented for those who read it: pydantic models, of which its JSON Schema is made."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

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
    """A global secondary index."""

    partition: list[Key] = Field(min_length=1)
    sort: list[Key]
    projection: str


class Table(Part):
    """A DynamoDB table."""

    rules_name: str | None = Field(description="Its name in the rules; null for the ledger, which no rule names.")
    exists: bool = Field(description="It is there already and is not made: it must have what is said here.")
    partition: Key
    sort: Key | None
    indexes: dict[str, Index]
    stream_view_type: str | None = Field(description="What its stream carries; null for no stream.")
    ttl: str | None = Field(description="The attribute by which items expire.")
    billing_mode: str
    point_in_time_recovery: bool
    deletion_protection: bool
    encrypted: bool
    retained: bool = Field(description="It survives the deployment that made it.")


class Event(Part):
    """What invokes a function."""

    type: str = Field(description="`DynamoDB`, `SQS`, or another event type of SAM.")
    source: str | None = Field(
        description="The ARN of the stream or queue; null where there is none, as for a schedule."
    )
    settings: dict[str, Any] = Field(
        description="As Lambda's CreateEventSourceMapping names them; of a schedule: `Schedule` and `State`."
    )
    filters: list[dict[str, Any]] = Field(
        description="Event patterns, of which one has to match; none: all records arrive."
    )


class Statement(Part):
    """What a function may do; `Effect` is always Allow."""

    Sid: str
    Effect: Literal["Allow"]
    Action: list[str] = Field(min_length=1)
    Resource: list[str] = Field(min_length=1)
    Condition: dict[str, Any] | None = Field(default=None, description="Left out where there is none.")

    @model_serializer(mode="wrap")
    def _as_written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        said: dict[str, Any] = write(self)
        return {name: value for name, value in said.items() if value is not None}


class Function(Part):
    """A Lambda function. All are one package, which `make build-<name>` makes; each has a role of its own."""

    handler: str
    runtime: str
    architectures: list[str]
    memory_mb: int
    timeout_seconds: int
    environment: dict[str, str]
    log_group: str | None
    tracing: str
    recursive_loop: Literal["Allow", "Terminate"] = Field(
        description="What Lambda does if the function calls itself by its queue: see PutFunctionRecursionConfig."
    )
    events: dict[str, Event]
    statements: list[Statement]


class Redrive(Part):
    """Where messages go that failed too often."""

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
        description="Which queues may name it for their dead letters, as SQS's RedriveAllowPolicy."
    )
    name: str | None = Field(description="Null where any name will do.")


class Alarm(Part):
    """A CloudWatch alarm, as PutMetricAlarm takes it."""

    description: str
    settings: dict[str, Any]


class Other(Part):
    """Any other resource, in CloudFormation's words."""

    type: str
    properties: dict[str, Any]


class Manifest(Part):
    """Everything that has to be deployed for a rule file. A text may hold placeholders, as `${TaskQueue.url}`."""

    manifest: Literal[1] = Field(description="The version of this format.")
    rules: str = Field(description="The rule file.")
    fingerprint: str = Field(description="Of the rules; it changes with their meaning only.")
    tables: dict[str, Table]
    functions: dict[str, Function]
    queues: dict[str, Queue]
    alarms: dict[str, Alarm]
    resources: dict[str, Other] = Field(description="The rest: buckets, log groups, the dashboard.")
    placeholders: dict[str, str] = Field(description="Every placeholder that occurs, and what to put there.")
