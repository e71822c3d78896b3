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
    why="Without the stream's function nothing is projected: an error. Without the worker or the audit, backfills through "
    "the queue, long pushes, or audits do not run: a warning.",
    fix="Add the function from the output of `projections template`. Functions correspond by their handlers.",
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
    "messages, so long pushes and backfills end in the middle.",
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
    summary="An alias would not follow a change of the template or of its parameters.",
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
    why="The functions read names of tables and queues from their environment. With a wrong value they fail at their "
    "start; without an optional one, a part of them is off.",
    fix="Set the variable as the output of `projections template` has it.",
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
    summary="A table has another key than the rules.",
    why="The functions read and write items by the key in the rules, and DynamoDB rejects other keys.",
    fix="Correct the key in the rules. The key of a table cannot be changed: otherwise create another table.",
    example="""\
Resources:
  ApplicationTable:
    Properties:
      KeySchema: [{AttributeName: PK, KeyType: HASH}]
""",
)
INDEXES = Kind(
    "indexes",
    ("error",),
    summary="A table lacks an index that the rules name, or the index has another key.",
    why="Rules write the key attributes of the index, and no query finds the items.",
    fix="Add the index. The key of an index cannot be changed: add one with another name.",
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
    summary="A table expires items by another attribute than the rules name.",
    why="If only the rules have a TTL attribute, items never expire: an error. If only the table has one, its items expire "
    "and the rules count that like any deletion: a warning.",
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
    summary="Stream records can get lost between the table and the function.",
    why="An event source mapping is missing, is invalid, or has settings under which Lambda drops records or reports them "
    "as done although they failed.",
    fix="Change the setting that the message names, as the output of `projections template` has it.",
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
    fix="Use the filters of `projections template`, or none.",
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
    summary="A function lacks a permission that it needs, or is denied it.",
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
    why="The value depends on a parameter without a default, on an import, or on a resource outside the template, as a "
    "table that exists.",
    fix="Check that part by hand. The message names what is needed.",
    example="""\
Resources:
  StreamFunction:
    Properties: {Role: "arn:aws:iam::123456789012:role/our-role"}
""",
)

KINDS: Mapping[str, Kind] = {kind.code: kind for kind in list(vars().values()) if isinstance(kind, Kind)}
"""All of the above, by code."""
