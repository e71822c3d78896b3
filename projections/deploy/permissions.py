"""The permissions of the functions of a template, and those that the rules need."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from projections.deploy.cloudformation import Naming, Resolution, Resource, covers, glob, placeholders
from projections.deploy.comparison import Comparison, Pair
from projections.deploy.finding import NOT_JUDGED, PERMISSIONS, Finding
from projections.deploy.needs import IN_POLICIES
from projections.language.mistakes import Location

_STREAMS = ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")
_MANAGED: Mapping[str, tuple[str, ...]] = {
    "AWSLambdaBasicExecutionRole": ("logs:*",),
    "AWSLambdaDynamoDBExecutionRole": ("logs:*", *(f"dynamodb:{name}" for name in _STREAMS)),
    "AWSLambdaSQSQueueExecutionRole": ("logs:*", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"),
}
"""Managed policies of AWS that functions usually have; all allow any resource."""


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """An action on a resource."""

    action: str
    resource: str


@dataclass(frozen=True, slots=True)
class Grant:
    """A statement: its actions and resources, in the notation of `Naming`."""

    actions: tuple[str, ...]
    resources: tuple[str, ...]
    path: Location
    """The path of the statement."""
    allows: bool = True
    keys: tuple[str, ...] | None = None
    """The patterns of partition keys to which a condition restricts the statement; None without one."""

    def covers(self, need: Need, known: Container[str] | None = None) -> bool:
        """Return whether it is about an action on a resource. With `known`, other placeholders match anything."""

        def read(resource: str) -> str:
            if known is None:
                return resource
            return re.sub(r"\$\{(?!AWS::|label)[^{}]*\}", lambda name: name[0] if name[0] in known else "*", resource)

        named = any(covers(one.lower(), need.action.lower()) for one in self.actions)
        return named and any(covers(read(one), need.resource) for one in self.resources)

    def short_of(self, need: Need, keys: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of these partition keys a condition excludes. A scan names none, and so is not restricted."""
        if self.keys is None or need.action == "dynamodb:Scan":
            return ()
        patterns = [glob(_escaped(one)) for one in self.keys]
        # Only patterns that match all keys of another one match it with many characters for each `*`.
        witnesses = {key: _escaped(key).replace("*", "\1" * 2048) for key in keys}
        return tuple(key for key, text in witnesses.items() if not any(one.fullmatch(text) for one in patterns))


def _escaped(pattern: str) -> str:
    """Return a pattern with other characters in place of those that it escapes."""
    return re.sub(r"\$\{([*?$])\}", lambda found: f"\0{ord(found[1])}", pattern)


@dataclass(frozen=True, slots=True)
class Grants:
    """The permissions of a function, with the path of its policies. `unknown`: what could not be read, and its path."""

    path: Location
    statements: list[Grant]
    unknown: list[tuple[str, Location]]


def permission_findings(both: Comparison, pair: Pair) -> Iterator[Finding]:
    """Yield permissions that a function lacks or is denied, and those that cannot be checked."""
    function = pair.theirs
    grants = _grants(function, both.theirs, both.names)
    for reason, path in grants.unknown:
        yield both.finding(NOT_JUDGED, path, f"the permissions of {function.id} cannot be checked completely: {reason}")
    lacking: dict[str, list[str]] = {}
    restricted: dict[tuple[Location, str, tuple[str, ...]], list[str]] = {}
    keys = {f":table/{both.tables[one.name]}": one.leading for one in both.deployment.tables if one.name in both.tables}
    names = {f"${{{name}}}" for name in (*both.theirs.resources, *placeholders(list(both.known.values())))}
    for need in _needs(pair.ours, both):
        matching = [one for one in grants.statements if one.covers(need)]
        allowing = [one for one in matching if one.allows]
        if len(allowing) < len(matching):
            denied = next(one for one in matching if not one.allows)
            reason = f"{function.id} is denied {need.action} on {_short(need.resource)}, which it needs"
            yield both.finding(PERMISSIONS, denied.path, reason, "remove it from this statement")
        elif allowing:
            own = next((found for end, found in keys.items() if need.resource.endswith(end)), ())
            missing = [one.short_of(need, own) for one in allowing]
            if all(missing):
                restricted.setdefault((allowing[0].path, need.resource, missing[0]), []).append(need.action)
        elif not grants.unknown and not any(one.allows and one.covers(need, names) for one in grants.statements):
            lacking.setdefault(need.resource, []).append(need.action)
    for (path, resource, short_of), actions in restricted.items():
        reason = (
            f"{function.id} is allowed {', '.join(actions)} on {_short(resource)} only for some partition keys, and the "
            f"rules also need {', '.join(short_of)}"
        )
        yield both.finding(PERMISSIONS, path, reason, "add them to `dynamodb:LeadingKeys` of this statement")
    for resource, actions in lacking.items():
        reason = f"{function.id} is not allowed {', '.join(actions)} on {_short(resource)}"
        yield both.finding(PERMISSIONS, grants.path, reason, "allow it")


def _short(arn: str) -> str:
    """Return an ARN without partition, Region and account."""
    parts = re.sub(r"\$\{AWS::\w+\}", "", arn).split(":", 5)
    return f"{parts[2]} {parts[5]}" if len(parts) == 6 else arn


def _needs(function: Resource, both: Comparison) -> list[Need]:
    """Return the permissions of a function of ours, in their names.

    Resources without a corresponding one of theirs, such as log groups, are left out.
    """
    needs: set[Need] = set()
    for grant in _grants(function, both.ours, both.our_names).statements:
        for resource in grant.resources:
            names = {f"${{{name}}}" for name in placeholders(resource) if not name.startswith("AWS::")}
            names |= {name for name in both.our_names.given if name in resource}
            if resource == "*" or not names <= both.known.keys():
                continue
            for ours, theirs in both.known.items():
                resource = resource.replace(ours, theirs)
            # `stream/*` includes any label; the label of the current stream is sufficient.
            resource = re.sub(r"/stream/\*$", "/stream/${label}", resource)
            needs.update(Need(action, resource) for action in grant.actions)
    return sorted(needs)


def _grants(function: Resource, resolution: Resolution, naming: Naming) -> Grants:
    """Return the permissions of a function, by its role. Policies of which SAM makes a role are not read."""
    role = function.properties.get("Role")
    named = re.fullmatch(r"\$\{([^.{}]+)\.Arn\}", role) if isinstance(role, str) else None
    resource = resolution.resources.get(named[1]) if named else None
    if resource is None or resource.type != "AWS::IAM::Role":
        path = function.path("Role")
        return Grants(path, [], [("its role is not in this template", path)])
    grants = Grants(resource.path("Policies"), [], [])
    for name in ("Policies", "ManagedPolicyArns"):
        for number, policy in enumerate(_list(resource.properties.get(name, []))):
            _read(grants, policy, naming, resource.path(name, number))
    for policy in resolution.of_type("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"):
        if f"${{{resource.id}}}" in [*_list(policy.properties.get("Roles")), policy.properties.get("RoleName")]:
            _read(grants, policy.properties, naming, policy.path())
    return grants


def _read(grants: Grants, policy: Any, naming: Naming, path: Location) -> None:
    """Add the statements of a policy, or why it cannot be read."""
    name = policy.rpartition("/")[2] if isinstance(policy, str) else ""
    document = policy.get("PolicyDocument") if isinstance(policy, Mapping) else None
    if name in _MANAGED:
        grants.statements.append(Grant(_MANAGED[name], ("*",), path))
    elif not isinstance(document, Mapping):
        grants.unknown.append((f"the policy {name} is not in this template" if name else "this is not a policy", path))
    else:
        for number, statement in enumerate(_list(document.get("Statement"))):
            place = (*path, "PolicyDocument", "Statement", number)
            if not isinstance(statement, Mapping) or "Action" not in statement or "Resource" not in statement:
                grants.unknown.append(("this statement has no Action or no Resource", place))
                continue
            actions = tuple(map(str, _list(statement["Action"])))
            resources = tuple(map(str, _list(naming.spelled(statement["Resource"]))))
            allows = str(statement.get("Effect")) == "Allow"
            grants.statements.append(Grant(actions, resources, place, allows, _keys(statement.get("Condition"))))


def _keys(condition: Any) -> tuple[str, ...] | None:
    """Return the partition keys to which a condition restricts a statement, as patterns."""
    for operator, tests in condition.items() if isinstance(condition, Mapping) else ():
        kind = str(operator).rpartition(":")[2]
        values = tests.get("dynamodb:LeadingKeys") if isinstance(tests, Mapping) else None
        if values is not None and kind in ("StringLike", "StringEquals"):
            texts = tuple(map(str, _list(values)))
            return texts if kind == "StringLike" else tuple(one.translate(IN_POLICIES) for one in texts)
    return None


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
