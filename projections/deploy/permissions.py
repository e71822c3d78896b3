"""The permissions of the functions of a template, and those that the rules need.

Only statements such as those that we write are read: they allow actions on resources, and of their conditions only
`dynamodb:LeadingKeys` is compared. With any other policy the permissions of the function are reported as not checked.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from projections.deploy.cloudformation import Naming, Resolution, Resource, placeholders, value_at
from projections.deploy.comparison import Comparison, Pair
from projections.deploy.finding import NOT_JUDGED, PERMISSIONS, Finding
from projections.deploy.needs import IN_POLICIES
from projections.language.mistakes import Location


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
    return f"{parts[2]} {parts[5]}" if len(parts) == 6 else text


def _known(name: str, known: Collection[str]) -> bool:
    return name.startswith("AWS::") or name.partition(".")[0] in known


def _glob(pattern: str) -> re.Pattern[str]:
    """Return a pattern of a policy, with wildcards `*` and `?`, as a regular expression."""
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
