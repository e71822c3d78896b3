"""The comparison of a template with rules: `disagreements` lists where it differs from the generated one in its effect.

Names and layout may differ. Values from parameters without defaults, from imports and of existing tables cannot be
checked, which is reported.

Of permissions, only statements such as those that we write are read: they allow actions on resources. Their conditions are
not compared: prefixes of partition keys that `--leading-keys` lacks are missing in the filters, too. With any other policy
the permissions of the function are reported as not checked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache, partial
from typing import Any

from projections.aws.wiring import Settings, agree, tables_of
from projections.deploy.cloudformation import (
    FUNCTION,
    QUEUE,
    TABLE,
    VARIABLES,
    Document,
    Resolution,
    Resource,
    mapping_at,
    placeholders,
    template_of,
    value_at,
)
from projections.deploy.comparison import (
    DELIVERY,
    DEPLOY,
    ENVIRONMENT,
    FUNCTIONS,
    NOT_JUDGED,
    PERMISSIONS,
    RECURSION,
    SILENT_ALARMS,
    StreamMapping,
    filter_findings,
    report,
    setting_findings,
    table_findings,
)
from projections.deploy.needs import MAIN, Deployment
from projections.deploy.sam_template import sam_template
from projections.errors import Misconfigured
from projections.language.findings.kinds import Finding, Severity
from projections.language.keys import Schema
from projections.language.program import LEDGER_SCHEMA
from projections.language.syntax import Location

STREAM = "handlers.stream.handler"

_OPTIONAL = ("POWERTOOLS_", "PUSH_", "AUDIT_")
"""Prefixes of variables that a template may set or omit."""

_REQUIRED = ("TABLE_NAME", "TABLES", "LEDGER_TABLE_NAME", "RULES_FILE")
"""Variables without which `Settings.read` fails."""


def disagreements(document: Document, deployment: Deployment) -> list[Finding]:
    """Return where a template does not agree with rules, and what cannot be checked, in the order of its lines."""
    every = dict.fromkeys(_Comparison(document, deployment).findings())
    return sorted(every, key=lambda finding: (finding.line, finding.column, finding.code, finding.reason))


def permission_findings(document: Document, deployment: Deployment) -> list[Finding]:
    """Return the permissions that the roles of a template lack for rules, and those that cannot be checked."""
    comparison = _Comparison(document, deployment)
    if not comparison.pairs:
        reason = "the permissions of the functions cannot be checked: the template has none of our handlers"
        return [report(document, NOT_JUDGED, ("Resources",), reason)]
    lacking = [finding for pair in comparison.pairs for finding in comparison.permissions(*pair)]
    return [replace(each, instead=DEPLOY) if each.code == PERMISSIONS.code else each for each in lacking]


@lru_cache(maxsize=4)
def _ours(deployment: Deployment) -> Resolution:
    return Resolution(template_of(sam_template(deployment), "our template"))


def _variables(function: Resource) -> Mapping[str, str]:
    """Return the environment of a function as texts."""
    variables = mapping_at(function.properties, *VARIABLES)
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in variables.items()}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


class _Comparison:
    """Two resolved templates: the generated one and theirs."""

    def __init__(self, document: Document, deployment: Deployment) -> None:
        self.document = document
        self.deployment = replace(deployment, existing=False)
        self.ours = _ours(self.deployment)
        self.theirs = Resolution(document)
        self.finding = partial(report, document)

    def findings(self) -> Iterator[Finding]:
        yield from self._functions()
        for ours, theirs in self.pairs:
            yield from self._recursion(ours, theirs)
            yield from self._environment(ours, theirs)
            yield from self.permissions(ours, theirs)
            if ledger := _variables(theirs).get("LEDGER_TABLE_NAME"):
                yield from self._table(LEDGER_SCHEMA, ledger, "the ledger", streams=False)
        for needs in self.deployment.tables:
            if needs.name in self.tables:
                called = "the table" if needs.name == MAIN else f"table {needs.name}"
                yield from self._table(needs.schema, self.tables[needs.name], called, streams=True)
        yield from self._delivery()
        yield from self._silent_alarms()

    # Functions

    @cached_property
    def pairs(self) -> list[tuple[Resource, Resource]]:
        """The functions that both templates have, ours and theirs."""
        candidates = list(self.theirs.of_type(FUNCTION, "AWS::Lambda::Function"))
        pairs = []
        for ours in self.ours.of_type(FUNCTION):
            handler = str(ours.properties["Handler"])
            same = [fn for fn in candidates if str(fn.properties.get("Handler")).endswith(handler)]
            if not same and handler == STREAM:  # perhaps a handler that wraps ours
                same = [fn for fn in candidates if "LEDGER_TABLE_NAME" in _variables(fn) and self._mappings(fn)]
            pairs += [(ours, fn) for fn in same[:1]]
        return pairs

    def _functions(self) -> Iterator[Finding]:
        present = {ours.id for ours, _ in self.pairs}
        for ours in self.ours.of_type(FUNCTION):
            if ours.id not in present:
                handler = ours.properties["Handler"]
                reason = f"no function in this template has the handler {handler}"
                instead = f"copy {ours.id} from the output of `projections template`"
                severity: Severity = "error" if handler == STREAM else "warning"
                yield self.finding(FUNCTIONS, ("Resources",), reason, instead, severity)

    def _recursion(self, ours: Resource, theirs: Resource) -> Iterator[Finding]:
        """Yield a worker whose messages to its own queue Lambda would stop."""
        wanted, actual = (function.properties.get("RecursiveLoop") for function in (ours, theirs))
        if wanted == "Allow" and actual != "Allow":
            reason = (
                f"Lambda stops {theirs.id} after about 16 messages to its own queue, so long pushes stop before they "
                "are complete"
            )
            yield self.finding(RECURSION, theirs.path("RecursiveLoop"), reason, "RecursiveLoop: Allow")

    def _silent_alarms(self) -> Iterator[Finding]:
        """Yield the alarms that nobody receives, if the parameters keep their default values."""
        alarms = list(self.theirs.of_type("AWS::CloudWatch::Alarm"))
        silent = [alarm for alarm in alarms if not alarm.properties.get("AlarmActions")]
        if silent:
            names = ", ".join(alarm.id for alarm in silent[:3]) + (" and others" if len(silent) > 3 else "")
            reason = f"{len(silent)} of {len(alarms)} alarms notify nobody, unless a parameter names a topic: {names}"
            instead = "deploy with `AlarmTopicArn`, and `TicketTopicArn` for those that can wait, or set `AlarmActions`"
            yield self.finding(SILENT_ALARMS, silent[0].path(), reason, instead)

    # The environment

    def _environment(self, ours: Resource, function: Resource) -> Iterator[Finding]:
        variables = _variables(function)
        streams = [part for part in variables.get("STREAM_ARN", "").split(",") if self.theirs.is_known(part)]
        if variables.get("TABLES", "").startswith("${"):
            reason = f"TABLES of {function.id} is {variables['TABLES']}, so these tables cannot be checked"
            yield self.finding(NOT_JUDGED, self._place(function, "TABLES"), reason)
        else:
            try:
                settings = Settings.read({**variables, "STREAM_ARN": ",".join(streams)})
                agree(settings.tables, [table.name for table in self.deployment.tables])
            except Misconfigured as error:
                yield self.finding(ENVIRONMENT, self._place(function), f"{function.id}: {error}")
        for name, value in mapping_at(ours.properties, *VARIABLES).items():
            if name not in variables and not name.startswith(_OPTIONAL) and name not in _REQUIRED:
                reason = f"{function.id} has no environment variable {name}"
                instead = f"set it to {value}, as `projections template` does"
                yield self.finding(ENVIRONMENT, self._place(function), reason, instead, "warning")

    def _place(self, function: Resource, *name: str) -> Location:
        """Return the path of a variable: at the function, or in Globals."""
        for path in (function.path(*VARIABLES), ("Globals", "Function", *VARIABLES)):
            if value_at(self.document.data, *path, *name) is not None:
                return (*path, *name)
        return function.path()

    # Tables

    def _tables_of(self, function: Resource) -> Mapping[str, str]:
        """Return the real names of the application's tables in a function's environment, by their names in the rules."""
        with suppress(Misconfigured):  # which `_environment` reports
            return tables_of(_variables(function))
        return {}

    @cached_property
    def tables(self) -> Mapping[str, str]:
        """The real name of each table of the rules that any function's environment names."""
        return {logical: name for _, theirs in self.pairs[::-1] for logical, name in self._tables_of(theirs).items()}

    def _creates(self, name: str) -> Resource | None:
        """Return the resource that creates a table; None if the table exists already."""
        return next((table for table in self.theirs.of_type(*TABLE) if self.theirs.name(table.id) == name), None)

    def _table(self, schema: Schema, name: str, called: str, *, streams: bool) -> Iterator[Finding]:
        if (resource := self._creates(name)) is not None:
            yield from table_findings(self.document, resource, schema, called, streams=streams)
            return
        reason = (
            f"this template does not create {called}, {name}, so its keys, indexes, stream and TTL cannot be checked"
        )
        instead = "run `projections status` after the deployment: it compares the deployed table with the rules"
        yield self.finding(NOT_JUDGED, ("Resources",), reason, instead)

    # Streams

    def _mappings(self, function: Resource) -> list[StreamMapping]:
        """Return the mappings from DynamoDB streams to a function, as events of SAM or as resources."""
        events = mapping_at(function.properties, "Events") if function.type == FUNCTION else {}
        mappings = [
            StreamMapping(properties, function.path("Events", name, "Properties"))
            for name, event in events.items()
            if (properties := mapping_at(event, "Properties")) and event.get("Type") == "DynamoDB"
        ]
        for resource in self.theirs.of_type("AWS::Lambda::EventSourceMapping"):
            target = re.search(r"\$\{([^{}.]*)", str(resource.properties.get("FunctionName")))
            mapping = StreamMapping(resource.properties, resource.path())
            is_stream = ":dynamodb:" in mapping.stream or "StartingPosition" in resource.properties  # a queue has none
            if is_stream and target is not None and target[1] == function.id:
                mappings.append(mapping)
        return mappings

    def _delivery(self) -> Iterator[Finding]:
        """Yield missing mappings, settings under which records are lost, and filters that drop needed records."""
        for ours, function in self.pairs:
            if ours.properties["Handler"] != STREAM:
                continue
            read: dict[str | None, list[StreamMapping]] = {}
            for mapping in self._mappings(function):
                yield from setting_findings(self.document, mapping)
                read.setdefault(self._table_read_by(mapping), []).append(mapping)
            for mapping in read.get(None, ()):
                reason = f"the table of this stream cannot be determined: {mapping.stream}"
                yield self.finding(NOT_JUDGED, mapping.path, reason)
            for table in self.deployment.tables:
                if table.name in read:
                    yield from filter_findings(self.document, self.deployment.program, table, read[table.name])
                elif table.name in self.tables and None not in read:
                    reason = f"no event source mapping delivers the records of table {table.name} to {function.id}"
                    yield self.finding(DELIVERY, function.path("Events"), reason, "add a mapping for its stream")

    def _table_read_by(self, mapping: StreamMapping) -> str | None:
        """Return the table of the rules whose stream a mapping reads, or None if it is unknown."""
        tables = self.deployment.tables
        for table in tables:
            name = self.tables.get(table.name)
            ours = f"${{ExistingStreamArn{table.suffix}}}"
            if (name and f":table/{name}/stream/" in mapping.stream) or mapping.stream == ours:
                return table.name
        return tables[0].name if len(tables) == 1 and not self.theirs.is_known(mapping.stream) else None

    # Permissions

    @cached_property
    def known(self) -> Mapping[str, str]:
        """Our names of tables, queues, log groups and the bucket, with the corresponding names of theirs."""
        known = {
            self.ours.name(f"ApplicationTable{table.suffix}"): self.tables[table.name]
            for table in self.deployment.tables
            if table.name in self.tables
        }
        for ours, function in self.pairs:
            theirs = _variables(function)
            for name, value in _variables(ours).items():
                resource = self.ours.resources.get(next(iter(placeholders(value)), ""))
                if resource is None or name not in theirs or name in ("TABLE_NAME", "TABLES", "STREAM_ARN"):
                    continue
                called: str | None = theirs[name]
                if resource.type == QUEUE:  # its variable is its URL
                    queue = theirs[name].removeprefix("${").removesuffix("}")
                    called = self.theirs.name(queue) if queue in self.theirs.resources else None
                if called is not None:
                    known[self.ours.name(resource.id)] = called
            group, logs = (value_at(function.properties, "LoggingConfig", "LogGroup") for function in (ours, function))
            known |= {str(group): str(logs)} if logs else {}
            for mapping in self._mappings(function) if ours.properties["Handler"] == STREAM else ():
                if mapping.bucket is not None:
                    known["${DiscardedBucket}"] = mapping.bucket
        return known

    def permissions(self, ours: Resource, function: Resource) -> Iterator[Finding]:
        """Yield permissions that a function lacks, or that they cannot be checked."""
        try:
            names = {*self.theirs.resources, *placeholders(list(self.known.values())), "label"}
            path, grants = _grants(function, self.theirs, names)
        except _NotJudgedError as error:
            reason, path = error.args
            yield self.finding(NOT_JUDGED, path, f"the permissions of {function.id} cannot be checked: {reason}")
            return
        lacking: dict[str, list[str]] = {}
        for action, resource in self._needs(ours):
            if not any(grant.covers(action, resource) for grant in grants):
                lacking.setdefault(resource, []).append(action)
        for resource, actions in lacking.items():
            reason = f"{function.id} is not allowed {', '.join(actions)} on {resource}"
            yield self.finding(PERMISSIONS, path, reason, "allow it")

    def _needs(self, function: Resource) -> list[tuple[str, str]]:
        """Return the actions of a function of ours with their resources, in the names of theirs.

        Resources without a corresponding one of theirs, such as log groups, are left out.
        """
        needs: set[tuple[str, str]] = set()
        for grant in _grants(function, self.ours)[1]:
            for resource in grant.resources:
                if any(name in resource for name in self.known):
                    for ours, theirs in self.known.items():
                        resource = resource.replace(ours, theirs)
                    # `stream/*` includes any label; the label of the current stream is sufficient.
                    resource = re.sub(r"/stream/\*$", "/stream/${label}", resource)
                    needs.update((action, resource) for action in grant.actions)
        return sorted(needs)


@dataclass(frozen=True, slots=True)
class _Grant:
    """A statement that allows actions on resources, as `dynamodb table/app`."""

    actions: tuple[str, ...]
    resources: tuple[str, ...]

    def covers(self, action: str, resource: str) -> bool:
        allows = any(fnmatchcase(action.lower(), pattern.lower()) for pattern in self.actions)
        return allows and any(fnmatchcase(resource, pattern) for pattern in self.resources)


class _NotJudgedError(Exception):
    """The permissions of a function cannot be checked: the reason, and the path of what prevents it."""


def _grants(
    function: Resource, resolution: Resolution, known: Collection[str] | None = None
) -> tuple[Location, list[_Grant]]:
    """Return the path of the policies of a function's role, and their statements. Raises _NotJudgedError.

    With `known`, other placeholders in a resource match anything.
    """
    name = re.fullmatch(r"\$\{([^.{}]+)\.Arn\}", str(function.properties.get("Role")))
    role = resolution.resources.get(name[1]) if name else None
    if role is None or role.type != "AWS::IAM::Role":
        raise _NotJudgedError("its role is not in this template", function.path("Role"))
    path, grants = role.path("Policies"), []
    policies = [(policy, (*path, number)) for number, policy in enumerate(_list(role.properties.get("Policies", [])))]
    for arn in map(str, _list(role.properties.get("ManagedPolicyArns", []))):
        if arn.endswith(":policy/service-role/AWSLambdaBasicExecutionRole"):
            continue  # it allows logs only
        managed = resolution.resources.get(arn[2:-1])
        if managed is None:
            raise _NotJudgedError(f"the policy {arn} is not in this template", role.path("ManagedPolicyArns"))
        policies.append((managed.properties, managed.path()))
    for resource in resolution.of_type("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"):
        if role.id in placeholders([resource.properties.get("Roles"), resource.properties.get("RoleName")]):
            policies.append((resource.properties, resource.path()))
    for policy, place in policies:
        for number, entry in enumerate(_list(value_at(policy, "PolicyDocument", "Statement"))):
            at = (*place, "PolicyDocument", "Statement", number)
            if value_at(entry, "Effect") != "Allow" or "Action" not in entry or "Resource" not in entry:
                raise _NotJudgedError("only statements that allow actions on resources are read", at)
            resources = tuple(_short(str(resource), known) for resource in _list(entry["Resource"]))
            grants.append(_Grant(tuple(map(str, _list(entry["Action"]))), resources))
    return path, grants


def _short(arn: str, known: Collection[str] | None) -> str:
    """Return an ARN without partition, Region and account, such as `dynamodb table/app`."""
    text = re.sub(r"\$\{AWS::(Partition|Region|AccountId)\}", "", arn)
    if known is not None:
        names = {name for name in placeholders(text) if name.partition(".")[0] not in known}
        for name in names:
            text = text if name.startswith("AWS::") else text.replace(f"${{{name}}}", "*")
    parts = text.split(":", 5)
    if len(parts) == 6:
        return f"{parts[2]} {parts[5]}"
    return "*" if "*" in text else text
