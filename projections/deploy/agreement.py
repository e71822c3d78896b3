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
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache, partial
from typing import Any

from projections.aws.live_tables import LEDGER
from projections.aws.wiring import Settings, agree, tables_of
from projections.deploy.cloudformation import (
    FUNCTION,
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
    StreamMapping,
    filter_findings,
    lane_findings,
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

_NEEDED = ("STREAM_ARN", "QUARANTINE_QUEUE_URL", "TASK_QUEUE_URL")
"""Variables without which a function works, but not all of it. `Settings.read` reports those without which it fails."""


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
def _ours(deployment: Deployment) -> Document:
    return template_of(sam_template(deployment), "our template")


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
        self.ours = Resolution(_ours(self.deployment))
        self.theirs = Resolution(document)
        self.finding = partial(report, document)

    def findings(self) -> Iterator[Finding]:
        yield from self._functions()
        for ours, theirs in self.pairs:
            yield from self._environment(ours, theirs)
            yield from self.permissions(ours, theirs)
        for name, schema in {**self.deployment.program.tables, LEDGER: LEDGER_SCHEMA}.items():
            if name in self.tables:
                yield from self._table(name, schema)
        yield from self._delivery()

    # Functions

    @cached_property
    def pairs(self) -> list[tuple[Resource, Resource]]:
        """The functions that both templates have, ours and theirs: those with our handler, else with our logical id."""
        functions = list(self.theirs.of_type(FUNCTION, "AWS::Lambda::Function"))
        pairs = []
        for ours in self.ours.of_type(FUNCTION):
            same = [fn for fn in functions if _has_handler(fn, ours)] or [fn for fn in functions if fn.id == ours.id]
            pairs += [(ours, fn) for fn in same[:1]]
        return pairs

    def _functions(self) -> Iterator[Finding]:
        pairs = {ours.id: theirs for ours, theirs in self.pairs}
        for ours in self.ours.of_type(FUNCTION):
            handler, theirs = ours.properties["Handler"], pairs.get(ours.id)
            if theirs is None:
                reason = f"no function in this template has the handler {handler}, or is called {ours.id}"
                instead = f"copy {ours.id} from the output of `projections template`"
                severity: Severity = "error" if handler == STREAM else "warning"
                yield self.finding(FUNCTIONS, ("Resources",), reason, instead, severity)
                continue
            if not _has_handler(theirs, ours):
                reason = f"whether the handler of {theirs.id} calls {handler} cannot be checked"
                yield self.finding(NOT_JUDGED, theirs.path("Handler"), reason)
            if ours.properties.get("RecursiveLoop") not in (None, theirs.properties.get("RecursiveLoop")):
                reason = f"Lambda stops {theirs.id} after about 16 messages to its own queue: pushes stay incomplete"
                yield self.finding(RECURSION, theirs.path("RecursiveLoop"), reason, "RecursiveLoop: Allow")

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
        for name in _NEEDED:
            if name not in variables:
                reason = f"{function.id} has no environment variable {name}"
                instead = f"set it to {_variables(ours)[name]}, as `projections template` does"
                yield self.finding(ENVIRONMENT, self._place(function), reason, instead, "warning")

    def _place(self, function: Resource, *name: str) -> Location:
        """Return the path of a variable: at the function, or in Globals."""
        for path in (function.path(*VARIABLES), ("Globals", "Function", *VARIABLES)):
            if value_at(self.document.data, *path, *name) is not None:
                return (*path, *name)
        return function.path()

    # Tables

    @cached_property
    def tables(self) -> Mapping[str, str]:
        """The real names of the tables of the rules and of the ledger that any function's environment names."""
        tables: dict[str, str] = {}
        for variables in (_variables(function) for _, function in self.pairs[::-1]):
            with suppress(Misconfigured):  # which `_environment` reports
                tables |= tables_of(variables)
            if "LEDGER_TABLE_NAME" in variables:
                tables[LEDGER] = variables["LEDGER_TABLE_NAME"]
        return tables

    def _table(self, logical: str, schema: Schema) -> Iterator[Finding]:
        name = self.tables[logical]
        called = {MAIN: "the table", LEDGER: "the ledger"}.get(logical, f"table {logical}")
        created = [table for table in self.theirs.of_type(*TABLE) if self.theirs.name(table.id) == name]
        if created:
            yield from table_findings(self.document, created[0], schema, called, streams=logical != LEDGER)
            return
        reason = f"this template does not create {called}, {name}: keys, indexes, stream and TTL cannot be checked"
        instead = "run `projections status` after the deployment: it compares the deployed table with the rules"
        yield self.finding(NOT_JUDGED, ("Resources",), reason, instead)

    # Streams

    def _mappings(self, function: Resource) -> list[StreamMapping]:
        """Return the mappings from DynamoDB streams to a function, as events of SAM or as resources."""
        mappings = [
            StreamMapping(mapping_at(event, "Properties"), function.path("Events", name, "Properties"))
            for name, event in mapping_at(function.properties, "Events").items()
            if value_at(event, "Type") == "DynamoDB"
        ]
        for resource in self.theirs.of_type("AWS::Lambda::EventSourceMapping"):
            targets = placeholders(resource.properties.get("FunctionName"))
            if function.id in targets and "StartingPosition" in resource.properties:  # a queue has none
                mappings.append(StreamMapping(resource.properties, resource.path()))
        return mappings

    def _delivery(self) -> Iterator[Finding]:
        """Yield missing mappings, settings under which records are lost, and filters that drop needed records."""
        for function in (theirs for ours, theirs in self.pairs if ours.properties["Handler"] == STREAM):
            read: dict[str | None, list[StreamMapping]] = {}
            for mapping in self._mappings(function):
                yield from setting_findings(self.document, mapping)
                read.setdefault(self._table_read_by(mapping), []).append(mapping)
            for mapping in read.get(None, ()):
                reason = f"the table of this stream cannot be determined: {mapping.stream}"
                yield self.finding(NOT_JUDGED, mapping.path, reason)
            for table in self.deployment.tables:
                if table.name in read:
                    for mapping in read[table.name]:
                        yield from lane_findings(self.document, table, mapping)
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
    def names(self) -> Mapping[str, str]:
        """The names that our tables, queues, buckets and log groups have in theirs, by our logical ids."""
        names = {name: self.theirs.name(name) for name in self.ours.resources}
        created = {table.name: f"ApplicationTable{table.suffix}" for table in self.deployment.tables}
        created[LEDGER] = "LedgerTable"
        return names | {created[logical]: name for logical, name in self.tables.items() if logical in created}

    @cached_property
    def needs(self) -> Resolution:
        """Our template with these names."""
        return Resolution(_ours(self.deployment), self.names)

    def permissions(self, ours: Resource, function: Resource) -> Iterator[Finding]:
        """Yield permissions that a function lacks, or that they cannot be checked."""
        try:
            path, grants = _grants(function, self.theirs)
        except _NotJudgedError as error:
            reason, path = error.args
            yield self.finding(NOT_JUDGED, path, f"the permissions of {function.id} cannot be checked: {reason}")
            return
        missing = self.ours.resources.keys() - self.theirs.resources.keys()
        known = {"AWS", *self.theirs.resources, *placeholders(list(self.names.values()))} - missing
        allowed = [(action.lower(), _shape(arn, known)) for action, arn in grants]
        lacking: dict[str, list[str]] = {}
        elsewhere: set[str] = set()
        for action, arn in sorted(set(_grants(self.needs.resources[ours.id], self.needs)[1])):
            shape = _shape(arn, known)
            if unknown := set(placeholders(arn)) - known:
                elsewhere |= unknown
            elif not any(
                fnmatchcase(action.lower(), allows) and fnmatchcase(shape, resource) for allows, resource in allowed
            ):
                lacking.setdefault(shape, []).append(action)
        for arn, actions in lacking.items():
            reason = f"{function.id} is not allowed {', '.join(actions)} on {arn}"
            yield self.finding(PERMISSIONS, path, reason, "allow it")
        if elsewhere:
            reason = f"the permissions of {function.id} on resources that this template lacks cannot be checked: "
            yield self.finding(NOT_JUDGED, path, reason + ", ".join(sorted(elsewhere)))


def _has_handler(function: Resource, ours: Resource) -> bool:
    return str(function.properties.get("Handler")).endswith(str(ours.properties["Handler"]))


class _NotJudgedError(Exception):
    """The permissions of a function cannot be checked: the reason, and the path of what prevents it."""


def _grants(function: Resource, resolution: Resolution) -> tuple[Location, list[tuple[str, str]]]:
    """Return the path of the policies of a function's role, and each action that they allow with its resource.

    Raises _NotJudgedError.
    """
    name = re.fullmatch(r"\$\{([^.{}]+)\.Arn\}", str(function.properties.get("Role")))
    role = resolution.resources.get(name[1]) if name else None
    if role is None or role.type != "AWS::IAM::Role":
        raise _NotJudgedError("its role is not in this template", function.path("Role"))
    path, grants = role.path("Policies"), []
    policies = [(policy, (*path, number)) for number, policy in enumerate(_list(role.properties.get("Policies", [])))]
    managed = [str(arn)[2:-1] for arn in _list(role.properties.get("ManagedPolicyArns", []))]
    if outside := [arn for arn in managed if arn not in resolution.resources]:
        reason = f"not all of its role's policies are in this template: {', '.join(outside)}"
        raise _NotJudgedError(reason, role.path("ManagedPolicyArns"))
    for resource in resolution.of_type("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"):
        roles = placeholders([resource.properties.get("Roles"), resource.properties.get("RoleName")])
        if resource.id in managed or role.id in roles:
            policies.append((resource.properties, resource.path()))
    for policy, place in policies:
        for number, entry in enumerate(_list(value_at(policy, "PolicyDocument", "Statement"))):
            if value_at(entry, "Effect") != "Allow" or "Action" not in entry or "Resource" not in entry:
                at = (*place, "PolicyDocument", "Statement", number)
                raise _NotJudgedError("only statements that allow actions on resources are read", at)
            grants += [(str(action), str(arn)) for action in _list(entry["Action"]) for arn in _list(entry["Resource"])]
    return path, grants


def _shape(arn: str, known: Collection[str]) -> str:
    """Return an ARN with wildcards for partition, Region, account and the values that are not known."""
    text = re.sub(r"\$\{([^{}.:]*)[^{}]*\}", lambda match: match[0] if match[1] in known else "*", arn)
    parts = re.sub(r"\$\{AWS::(Partition|Region|AccountId)\}", "*", text).split(":", 5)
    return ":".join("*" if number in (1, 3, 4) else part for number, part in enumerate(parts))
