"""The kinds of findings that a template can have beside rules, as `docs/findings.md` shows them."""

from __future__ import annotations

from collections.abc import Mapping

from projections.language.findings import Kind

__all__ = ["KINDS"]

# The example of each is merged into the template that `projections template` writes for `social`.

FUNCTIONS = Kind(
    "functions",
    ("error", "warning"),
    summary="The template lacks one of the functions.",
    why="The severity is error if the stream function is missing, because no rule works without it. It is warning if the "
    "worker or the audit is missing: backfills through the queue, long pushes or audits do not run.",
    fix="Add the function from the output of `projections template`. A function is identified by its handler.",
    example="""\
Resources:
  WorkerFunction:
    Properties: {Handler: app.worker}
""",
)
RECURSION = Kind(
    "recursion",
    ("error",),
    summary="Lambda would stop the worker as a recursive loop.",
    why="The worker sends messages to its own queue to continue long tasks. Lambda stops such a function after about 16 "
    "messages, so long pushes and backfills stop before they are complete.",
    fix="Set `RecursiveLoop: Allow` on the function.",
    example="""\
Resources:
  WorkerFunction:
    Properties: {RecursiveLoop: Terminate}
""",
)
VERSIONS = Kind(
    "versions",
    ("warning",),
    summary="An alias keeps the old version after a change of the template or of its parameters.",
    why="With `AutoPublishAlias`, SAM publishes a version only if certain properties of the function change in the "
    "template's text. A new value of a parameter is not such a change. Without a new version the alias keeps the old "
    "values.",
    fix="Set `AutoPublishAliasAllProperties: true`, and refer to each parameter in `VersionDescription`, as `projections "
    "template --gradual` does.",
    example="""\
Resources:
  StreamFunction:
    Properties: {AutoPublishAlias: live}
""",
)
ENVIRONMENT = Kind(
    "environment",
    ("error", "warning"),
    summary="An environment variable of a function is missing or does not match the rules.",
    why="The functions read names of tables and queues from their environment. With a wrong value, they fail when they "
    "start. Without an optional variable, the feature that needs it is disabled.",
    fix="Copy the variable from the output of `projections template`.",
    example="""\
Globals:
  Function:
    Environment:
      Variables: {NEW_RULES: sometimes}
""",
)
KEYS = Kind(
    "keys",
    ("error",),
    summary="The key of a table is not the key in the rules.",
    why="The functions read and write items by the key in the rules, and DynamoDB rejects other keys.",
    fix="Correct the key in the rules, or create another table. The key of an existing table cannot be changed.",
    example="""\
Resources:
  ApplicationTable:
    Properties:
      KeySchema: [{AttributeName: PK, KeyType: HASH}]
""",
)
INDEXES = Kind(
    "indexes",
    ("error", "warning"),
    summary="A table lacks an index that the rules name, or the index has a different key or projection.",
    why="Rules write the key attributes, but the items do not appear in the index. An index that projects less than in the "
    "rules lacks attributes that queries need. The severity is warning if an index projects more, which costs more.",
    fix="Add the index. The key and the projection of an index cannot be changed: add one with another name, or correct the "
    "rules.",
    example="""\
Resources:
  ApplicationTable:
    Properties:
      GlobalSecondaryIndexes:
        - IndexName: GSI1
          KeySchema: [{AttributeName: GSI1PK, KeyType: HASH}, {AttributeName: GSI1SK, KeyType: RANGE}]
          Projection: {ProjectionType: ALL}
""",
)
STREAM = Kind(
    "stream",
    ("error",),
    summary="A table's stream is missing or does not have both images.",
    why="A change is computed from the item before and after it, so stream records need the old and the new image.",
    fix="Set `StreamViewType: NEW_AND_OLD_IMAGES`.",
    example="""\
Resources:
  ApplicationTable:
    Properties:
      StreamSpecification: {StreamViewType: NEW_IMAGE}
""",
)
TTL = Kind(
    "ttl",
    ("error", "warning"),
    summary="The TTL attribute of a table is not the one in the rules.",
    why="The severity is error if only the rules name a TTL attribute: items never expire. It is warning if only the table "
    "has one: its items expire, and the rules treat that like any other deletion.",
    fix="Use the same attribute in the template and in the rules.",
    example="""\
Resources:
  ApplicationTable:
    Properties:
      TimeToLiveSpecification: {AttributeName: ttl, Enabled: true}
""",
)
DELIVERY = Kind(
    "delivery",
    ("error", "warning", "note"),
    summary="Stream records can be lost between the table and the function.",
    why="An event source mapping is missing, is invalid, or has settings under which Lambda drops records or reports them "
    "as done although they failed.",
    fix="Copy the setting that the message names from the output of `projections template`.",
    example="""\
Resources:
  StreamFunction:
    Properties:
      Events:
        Changes:
          Properties: {FunctionResponseTypes: []}
""",
)
FILTERS = Kind(
    "filters",
    ("error", "note"),
    summary="The filters of an event source mapping drop records that the rules need.",
    why="A record that no filter matches never reaches the function. Counters and copies then stay wrong without an error.",
    fix="Use the filters of `projections template`, or no filters.",
    example="""\
Resources:
  StreamFunction:
    Properties:
      Events:
        Changes:
          Properties:
            FilterCriteria:
              Filters: [{Pattern: '{"eventName": ["INSERT", "MODIFY"]}'}]
""",
)
PERMISSIONS = Kind(
    "permissions",
    ("error",),
    summary="A function lacks a permission that it needs, or a policy denies it.",
    why="Its requests fail with `AccessDeniedException`, and records are retried until Lambda discards them.",
    fix="Allow the action on the resource, as the output of `projections template` does.",
    example="""\
Resources:
  StreamRole:
    Properties:
      Policies: []
""",
)
NOT_JUDGED = Kind(
    "not-judged",
    ("note",),
    summary="A part of the template cannot be checked.",
    why="The value depends on a parameter without a default, on an import, or on a resource outside the template, such as "
    "an existing table.",
    fix="Check that part yourself. The message names the value that the functions need.",
    example="""\
Resources:
  StreamFunction:
    Properties: {Role: "arn:aws:iam::123456789012:role/our-role"}
""",
)

KINDS: Mapping[str, Kind] = {kind.code: kind for kind in list(vars().values()) if isinstance(kind, Kind)}
"""All of the above, by code."""
