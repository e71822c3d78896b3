"""The comparison of a template with rules: `disagreements` lists where it differs from the generated one in its effect.

Names and layout may differ. Values from parameters without defaults, from imports and of existing tables cannot be
checked, which is reported.

Of permissions, only statements such as those that we write are read: they allow actions on resources, and of their
conditions only `dynamodb:LeadingKeys` is compared. With any other policy the permissions of the function are reported as not
checked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from projections.aws.wiring import Settings, agree
from projections.deploy.cloudformation import (
    FUNCTION,
    TABLE,
    VARIABLES,
    Document,
    Naming,
    Resolution,
    Resource,
    placeholders,
    value_at,
)
from projections.deploy.comparison import STREAM, Comparison, Pair, delivery_findings, variables
from projections.deploy.finding import (
    ENVIRONMENT,
    FUNCTIONS,
    NOT_JUDGED,
    PERMISSIONS,
    RECURSION,
    SILENT_ALARMS,
    Finding,
    Severity,
)
from projections.deploy.needs import IN_POLICIES, MAIN, Deployment
from projections.deploy.tables import table_findings
from projections.errors import Misconfigured
from projections.language.keys import Schema
from projections.language.mistakes import Location
from projections.language.program import LEDGER_SCHEMA

_HOW = ("POWERTOOLS_", "PUSH_", "AUDIT_")
"""Prefixes of variables that a template may set or omit."""

_NAMED = ("TABLE_NAME", "TABLES", "LEDGER_TABLE_NAME")


def disagreements(document: Document, deployment: Deployment) -> list[Finding]:
    """Return where a template does not agree with rules, and what cannot be checked, in the order of its lines."""
    every = dict.fromkeys(_findings(Comparison(document, deployment)))
    return sorted(every, key=lambda one: (one.line, one.column, one.code, one.reason))


def _findings(both: Comparison) -> Iterator[Finding]:
    yield from _functions(both)
    for pair in both.pairs:
        yield from _recursion(both, pair)
        yield from _environment(both, pair)
        yield from _new_rules(both, pair)
    for needs in both.deployment.tables:
        if needs.name in both.tables:
            called = "the table" if needs.name == MAIN else f"table {needs.name}"
            yield from _stored(both, needs.schema, both.tables[needs.name], called, streams=True)
    for pair in both.pairs:
        if ledger := both.text(variables(pair.theirs).get("LEDGER_TABLE_NAME", "")):
            yield from _stored(both, LEDGER_SCHEMA, ledger, "the ledger", streams=False)
    yield from delivery_findings(both)
    yield from _silent_alarms(both)
    for pair in both.pairs:
        yield from permission_findings(both, pair)


def _functions(both: Comparison) -> Iterator[Finding]:
    present = {pair.ours.id for pair in both.pairs}
    for ours in both.ours.of_type(FUNCTION):
        if ours.id not in present:
            severity: Severity = "error" if ours.properties["Handler"] == STREAM else "warning"
            reason = f"no function in this template has the handler {ours.properties['Handler']}"
            instead = f"copy {ours.id} from the output of `projections template`"
            yield both.finding(FUNCTIONS, ("Resources",), reason, instead, rated=severity)


def _silent_alarms(both: Comparison) -> Iterator[Finding]:
    """Yield the alarms that nobody receives, if the parameters keep their default values."""
    alarms = list(both.theirs.of_type("AWS::CloudWatch::Alarm"))
    silent = [alarm for alarm in alarms if not alarm.properties.get("AlarmActions")]
    if silent:
        names = ", ".join(alarm.id for alarm in silent[:3]) + (" and others" if len(silent) > 3 else "")
        reason = f"{len(silent)} of {len(alarms)} alarms notify nobody, unless a parameter names a topic: {names}"
        instead = "deploy with `AlarmTopicArn`, and `TicketTopicArn` for those that can wait, or set `AlarmActions`"
        yield both.finding(SILENT_ALARMS, silent[0].path(), reason, instead)


def _recursion(both: Comparison, pair: Pair) -> Iterator[Finding]:
    """Yield a worker whose messages to its own queue Lambda would stop."""
    wanted, given = (one.properties.get("RecursiveLoop") for one in (pair.ours, pair.theirs))
    if wanted == "Allow" and given != "Allow":
        reason = (
            f"Lambda stops {pair.theirs.id} after about 16 messages to its own queue, so long pushes stop before they are "
            "complete"
        )
        yield both.finding(RECURSION, pair.theirs.path("RecursiveLoop"), reason, "RecursiveLoop: Allow")


# The environment


def _environment(both: Comparison, pair: Pair) -> Iterator[Finding]:
    function = pair.theirs
    given = {name: both.text(value) for name, value in variables(function).items()}
    streams = [part for part in given.get("STREAM_ARN", "").split(",") if both.names.judged(part)]
    if given.get("TABLES", "").startswith("${"):
        reason = f"TABLES of {function.id} is {given['TABLES']}, so these tables cannot be checked"
        yield both.finding(NOT_JUDGED, _place(both, function, "TABLES"), reason)
    else:
        try:
            settings = Settings.read({**given, "STREAM_ARN": ",".join(streams)})
            agree(settings.tables, [table.name for table in both.deployment.tables])
        except Misconfigured as error:
            yield both.finding(ENVIRONMENT, _place(both, function), f"{function.id}: {error}")
    for name, value in variables(pair.ours).items():
        if name not in given and not name.startswith(_HOW) and name not in (*_NAMED, "RULES_FILE"):
            reason = f"{function.id} has no environment variable {name}"
            instead = f"set it to {value}, as `projections template` does"
            yield both.finding(ENVIRONMENT, _place(both, function), reason, instead, rated="warning")


def _new_rules(both: Comparison, pair: Pair) -> Iterator[Finding]:
    """Yield rules that publish at once to a table that may hold data."""
    existing = [name for name in both.tables_of(pair.theirs).values() if _made(both, name) is None]
    if existing and both.text(variables(pair.theirs).get("NEW_RULES", "live")) == "live":
        reason = (
            f"NEW_RULES is live, but this template does not create {existing[0]}: rules would overwrite values in it"
        )
        path = _place(both, pair.theirs, "NEW_RULES")
        yield both.finding(
            ENVIRONMENT, path, reason, "set NEW_RULES to fill, and run `projections backfill`", rated="warning"
        )


def _place(both: Comparison, function: Resource, *name: str) -> Location:
    """Return the path of a variable: at the function, or in Globals."""
    for path in (function.path(*VARIABLES), ("Globals", "Function", *VARIABLES)):
        if both.document.at((*path, *name)) is not None:
            return (*path, *name)
    return function.path()


# Tables


def _made(both: Comparison, name: str) -> Resource | None:
    """Return the resource that creates a table; None if the table exists already."""
    return next((one for one in both.theirs.of_type(*TABLE) if both.names.of(one) == name), None)


def _stored(both: Comparison, schema: Schema, name: str, called: str, *, streams: bool) -> Iterator[Finding]:
    if (resource := _made(both, name)) is not None:
        yield from table_findings(both.document, resource, schema, called, streams=streams)
        return
    reason = f"this template does not create {called}, {name}, so its keys, indexes, stream and TTL cannot be checked"
    instead = "run `projections status` after the deployment: it compares the deployed table with the rules"
    yield both.finding(NOT_JUDGED, ("Resources",), reason, instead)


@dataclass(frozen=True, slots=True)
class Grant:
    """A statement that allows actions on resources, in the notation of `Naming`, and the path of the statement.

    `keys`: the patterns of partition keys to which a condition restricts it; None without one.
    """

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    path: Location
    keys: tuple[str, ...] | None

    def covers(self, action: str, resource: str) -> bool:
        named = any(_glob(one.lower()).fullmatch(action.lower()) for one in self.actions)
        return named and any(_glob(one).fullmatch(resource) for one in self.resources)

    def excluded(self, action: str, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of these partition keys the condition excludes. A scan names none, and so is not restricted."""
        if self.keys is None or action == "dynamodb:Scan":
            return ()
        begins = tuple(one.removesuffix("*") for one in self.keys if one.endswith("*"))
        return tuple(one for one in keys if one not in self.keys and not one.startswith(begins))


class _NotJudgedError(Exception):
    """The permissions of a function cannot be checked: the reason, and the path of what prevents it."""


def permission_findings(both: Comparison, pair: Pair) -> Iterator[Finding]:
    """Yield permissions that a function lacks, or that they cannot be checked."""
    function = pair.theirs
    try:
        names = {*both.theirs.resources, *placeholders(list(both.known.values())), "label"}
        path, grants = _grants(function, both.theirs, both.names, names)
    except _NotJudgedError as error:
        reason, path = error.args
        yield both.finding(NOT_JUDGED, path, f"the permissions of {function.id} cannot be checked: {reason}")
        return
    keys = {f"table/{both.tables[one.name]}": one.leading for one in both.deployment.tables if one.name in both.tables}
    lacking: dict[str, list[str]] = {}
    restricted: dict[tuple[Location, str, tuple[str, ...]], list[str]] = {}
    for action, resource in _needs(pair.ours, both):
        allowing = [one for one in grants if one.covers(action, resource)]
        own = keys.get(resource.partition(" ")[2], ())
        if not allowing:
            lacking.setdefault(resource, []).append(action)
        elif all(one.excluded(action, own) for one in allowing):
            first = allowing[0]
            restricted.setdefault((first.path, resource, first.excluded(action, own)), []).append(action)
    for (place, resource, excluded), actions in restricted.items():
        reason = (
            f"{function.id} is allowed {', '.join(actions)} on {resource} only for some partition keys, and the rules "
            f"also need {', '.join(excluded)}"
        )
        yield both.finding(PERMISSIONS, place, reason, "add them to `dynamodb:LeadingKeys` of this statement")
    for resource, actions in lacking.items():
        reason = f"{function.id} is not allowed {', '.join(actions)} on {resource}"
        yield both.finding(PERMISSIONS, path, reason, "allow it")


def _needs(function: Resource, both: Comparison) -> list[tuple[str, str]]:
    """Return the actions of a function of ours with their resources, in the names of theirs.

    Resources without a corresponding one of theirs, such as log groups, are left out.
    """
    needs: set[tuple[str, str]] = set()
    for grant in _grants(function, both.ours, both.our_names)[1]:
        for resource in grant.resources:
            if any(name in resource for name in both.known):
                for ours, theirs in both.known.items():
                    resource = resource.replace(ours, theirs)
                # `stream/*` includes any label; the label of the current stream is sufficient.
                resource = re.sub(r"/stream/\*$", "/stream/${label}", resource)
                needs.update((action, resource) for action in grant.actions)
    return sorted(needs)


def _grants(
    function: Resource, resolution: Resolution, naming: Naming, known: Collection[str] | None = None
) -> tuple[Location, list[Grant]]:
    """Return the path of the policies of a function's role, and their statements. Raises _NotJudgedError.

    With `known`, other placeholders in a resource match anything.
    """
    role = function.properties.get("Role")
    named = re.fullmatch(r"\$\{([^.{}]+)\.Arn\}", role) if isinstance(role, str) else None
    resource = resolution.resources.get(named[1]) if named else None
    if resource is None or resource.type != "AWS::IAM::Role":
        raise _NotJudgedError("its role is not in this template", function.path("Role"))
    path, grants = resource.path("Policies"), []
    inline = _list(resource.properties.get("Policies", []))
    policies = [(policy, (*path, number)) for number, policy in enumerate(inline)]
    for arn in _list(resource.properties.get("ManagedPolicyArns", [])):
        if str(arn).endswith(":policy/service-role/AWSLambdaBasicExecutionRole"):
            continue  # it allows logs only
        managed = resolution.resources.get(str(arn)[2:-1])
        if managed is None:
            raise _NotJudgedError(f"the policy {arn} is not in this template", resource.path("ManagedPolicyArns"))
        policies.append((managed.properties, managed.path()))
    for other in resolution.of_type("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"):
        if resource.id in placeholders([other.properties.get("Roles"), other.properties.get("RoleName")]):
            policies.append((other.properties, other.path()))
    for policy, place in policies:
        for number, one in enumerate(_list(value_at(policy, "PolicyDocument", "Statement"))):
            at = (*place, "PolicyDocument", "Statement", number)
            if value_at(one, "Effect") != "Allow" or "Action" not in one or "Resource" not in one:
                raise _NotJudgedError("only statements that allow actions on resources are read", at)
            resources = tuple(_short(resource, known) for resource in _list(naming.spelled(one["Resource"])))
            actions = tuple(map(str, _list(one["Action"])))
            grants.append(Grant(actions, resources, at, _keys(one.get("Condition"))))
    return path, grants


def _keys(condition: Any) -> tuple[str, ...] | None:
    """Return the partition keys to which a condition restricts a statement, as patterns."""
    like, equal = (
        value_at(condition, f"ForAllValues:{operator}", "dynamodb:LeadingKeys")
        for operator in ("StringLike", "StringEquals")
    )
    if like is None and equal is not None:
        return tuple(str(one).translate(IN_POLICIES) for one in _list(equal))
    return None if like is None else tuple(map(str, _list(like)))


def _short(resource: Any, known: Collection[str] | None) -> str:
    """Return an ARN without partition, Region and account, such as `dynamodb table/app`."""
    text = re.sub(r"\$\{AWS::(Partition|Region|AccountId)\}", "", str(resource))
    if known is not None:
        text = re.sub(r"\$\{([^{}]*)\}", lambda name: name[0] if _known(name[1], known) else "*", text)
    parts = text.split(":", 5)
    if len(parts) == 6:
        return f"{parts[2]} {parts[5]}"
    return "*" if "*" in text else text


def _known(name: str, known: Collection[str]) -> bool:
    return name.startswith("AWS::") or name.partition(".")[0] in known


def _glob(pattern: str) -> re.Pattern[str]:
    """Return a pattern of a policy, with wildcards `*` and `?`, as a regular expression."""
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
