"""The permissions of the functions of a template, and those that the rules need."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from projections.deploy.cloudformation import mapping_at, text_at
from projections.deploy.comparison import Comparison, Pair
from projections.deploy.filters import IN_POLICIES
from projections.deploy.finding import Finding
from projections.deploy.kinds import NOT_JUDGED, PERMISSIONS
from projections.deploy.naming import Naming, covers, glob
from projections.deploy.resolution import FUNCTION, Resolution, Resource, placeholders
from projections.language.mistakes import Location

__all__ = ["permission_findings"]

_CRUD = (
    *("BatchGetItem", "BatchWriteItem", "ConditionCheckItem", "DeleteItem", "DescribeTable"),
    *("GetItem", "PutItem", "Query", "Scan", "UpdateItem"),
)
_READ = ("BatchGetItem", "DescribeTable", "GetItem", "Query", "Scan")
_TEMPLATES: Mapping[str, tuple[str, tuple[str, ...], str, tuple[str, ...]]] = {
    "DynamoDBCrudPolicy": ("dynamodb", _CRUD, "TableName", ("table/{}", "table/{}/index/*")),
    "DynamoDBReadPolicy": ("dynamodb", _READ, "TableName", ("table/{}", "table/{}/index/*")),
    "DynamoDBWritePolicy": ("dynamodb", ("BatchWriteItem", "PutItem", "UpdateItem"), "TableName", ("table/{}",)),
    "SQSSendMessagePolicy": ("sqs", ("SendMessage",), "QueueName", ("{}",)),
}
"""Policy templates of SAM: service, actions, the parameter that names the resource, and the ends of its ARNs."""

_STREAMS = ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")
_MANAGED: Mapping[str, tuple[str, ...]] = {
    "AWSLambdaBasicExecutionRole": ("logs:*",),
    "AWSLambdaDynamoDBExecutionRole": ("logs:*", *(f"dynamodb:{name}" for name in _STREAMS)),
    "AWSLambdaSQSQueueExecutionRole": ("logs:*", "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"),
    "AmazonDynamoDBFullAccess": ("dynamodb:*",),
    "AmazonSQSFullAccess": ("sqs:*",),
    "AdministratorAccess": ("*",),
}
"""Managed policies of AWS that functions usually have; all allow any resource."""


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

    def names(self, action: str) -> bool:
        return any(covers(one.lower(), action.lower()) for one in self.actions)


@dataclass
class Grants:
    """The permissions of a function. `unknown` lists what could not be read: reason and path."""

    path: Location
    statements: list[Grant] = field(default_factory=list)
    unknown: list[tuple[str, Location]] = field(default_factory=list)

    def allows(self, need: Need) -> bool:
        return any(
            grant.names(need.action) and _covered(grant, need) and not _short_of_keys(grant, need)
            for grant in self.statements
            if grant.allows
        )

    def restricted(self, need: Need) -> Grant | None:
        """Return the statement that would allow it, if its condition on partition keys had all that the rules need."""
        return next((g for g in self.statements if g.allows and g.names(need.action) and _covered(g, need)), None)

    def denies(self, need: Need) -> Grant | None:
        return next((g for g in self.statements if not g.allows and g.names(need.action) and _covered(g, need)), None)

    def may_allow(self, need: Need, known: Container[str]) -> bool:
        """Return whether something that cannot be checked may allow it; placeholders in `known` match only themselves."""
        if self.unknown:
            return True

        def perhaps(resource: str) -> str:
            return re.sub(r"\$\{(?!AWS::|label)[^{}]*\}", lambda name: name[0] if name[0] in known else "*", resource)

        return any(
            grant.allows
            and grant.names(need.action)
            and any(covers(perhaps(r), need.resource) for r in grant.resources)
            for grant in self.statements
        )


@dataclass(frozen=True, slots=True, order=True)
class Need:
    """An action on a resource."""

    action: str
    resource: str
    keys: tuple[str, ...] = ()
    """The partition keys of a table that the rules need, as patterns of `dynamodb:LeadingKeys`."""


def _short_of_keys(grant: Grant, need: Need) -> list[str]:
    """Return the partition keys that a condition excludes. A scan names none, and so is not restricted."""
    if grant.keys is None or need.action == "dynamodb:Scan":
        return []
    patterns = [glob(_escaped(one)) for one in grant.keys]
    return [key for key in need.keys if not any(one.fullmatch(_witness(key)) for one in patterns)]


def _escaped(pattern: str) -> str:
    """Return a pattern with other characters in place of those that it escapes."""
    return re.sub(r"\$\{([*?$])\}", lambda found: f"\0{ord(found[1])}", pattern)


def _witness(pattern: str) -> str:
    """Return a text that only patterns match which match all that this one does."""
    return _escaped(pattern).replace("*", "\1" * 2048)


def _covered(grant: Grant, need: Need) -> bool:
    return any(covers(resource, need.resource) for resource in grant.resources)


def permission_findings(both: Comparison, pair: Pair) -> Iterator[Finding]:
    """Yield permissions that a function lacks or is denied, and those that cannot be checked."""
    function = pair.theirs
    grants = grants_of(function, both.theirs, both.names)
    for reason, path in grants.unknown:
        yield both.finding(NOT_JUDGED, path, f"the permissions of {function.id} cannot be checked completely: {reason}")
    lacking: dict[str, list[str]] = {}
    restricted: dict[tuple[Location, str, tuple[str, ...]], list[str]] = {}
    keys = {f":table/{both.tables[one.name]}": one.leading for one in both.deployment.tables if one.name in both.tables}
    names = {f"${{{name}}}" for name in (*both.theirs.resources, *placeholders(list(both.known.values())))}
    for one in needs_of(pair.ours, both.ours, both.our_names, both.known):
        need = replace(one, keys=next((found for end, found in keys.items() if one.resource.endswith(end)), ()))
        if (denied := grants.denies(need)) is not None:
            reason = f"{function.id} is denied {need.action} on {_short(need.resource)}, which it needs"
            yield both.finding(PERMISSIONS, denied.path, reason, "remove it from this statement")
        elif not grants.allows(need) and (short := grants.restricted(need)) is not None:
            restricted.setdefault((short.path, need.resource, tuple(_short_of_keys(short, need))), []).append(
                need.action
            )
        elif not grants.allows(need) and not grants.may_allow(need, names):
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


def needs_of(function: Resource, resolution: Resolution, naming: Naming, known: Mapping[str, str]) -> list[Need]:
    """Return the permissions of a function of ours, in their names; `known` maps our names to theirs.

    Resources without a corresponding one of theirs, such as log groups, are left out.
    """
    needs: set[Need] = set()
    for grant in grants_of(function, resolution, naming).statements:
        for resource in grant.resources:
            names = {f"${{{name}}}" for name in placeholders(resource) if not name.startswith("AWS::")}
            names |= {name for name in naming.given if name in resource}
            if resource == "*" or not names <= known.keys():
                continue
            for ours, theirs in known.items():
                resource = resource.replace(ours, theirs)
            # `stream/*` includes any label; the label of the current stream is sufficient.
            resource = re.sub(r"/stream/\*$", "/stream/${label}", resource)
            needs.update(Need(action, resource) for action in grant.actions)
    return sorted(needs)


def grants_of(function: Resource, resolution: Resolution, naming: Naming) -> Grants:
    """Return the permissions of a function, by its role, or by the policies from which SAM creates one."""
    role = function.properties.get("Role")
    if role is None and function.type == FUNCTION:
        grants = Grants(function.path("Policies"))
        kinds = {text_at(event, "Type") for event in mapping_at(function.properties, "Events").values()}
        for kind, name in (("DynamoDB", "AWSLambdaDynamoDBExecutionRole"), ("SQS", "AWSLambdaSQSQueueExecutionRole")):
            if kind in kinds:  # SAM adds these
                _managed(grants, name, grants.path)
        _managed(grants, "AWSLambdaBasicExecutionRole", grants.path)
        _policies(grants, function.properties.get("Policies"), naming, grants.path)
        return grants
    named = re.fullmatch(r"\$\{([^.{}]+)\.Arn\}", role) if isinstance(role, str) else None
    resource = resolution.resources.get(named[1]) if named else None
    if resource is None or resource.type != "AWS::IAM::Role":
        grants = Grants(function.path("Role"))
        grants.unknown.append(("its role is not in this template", grants.path))
        return grants
    grants = Grants(resource.path("Policies"))
    _policies(grants, resource.properties.get("Policies"), naming, resource.path("Policies"))
    _policies(grants, resource.properties.get("ManagedPolicyArns"), naming, resource.path("ManagedPolicyArns"))
    for policy in resolution.of_type("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy", "AWS::IAM::RolePolicy"):
        roles = policy.properties.get("Roles") or [policy.properties.get("RoleName")]
        if isinstance(roles, list) and f"${{{resource.id}}}" in roles:
            _policies(grants, [policy.properties], naming, resource.path("Policies"))
    return grants


def _policies(grants: Grants, policies: Any, naming: Naming, path: Location) -> None:
    if policies is None:
        return
    for number, policy in enumerate(policies if isinstance(policies, list) else [policies]):
        place = (*path, number) if isinstance(policies, list) else path
        if isinstance(policy, str):
            _managed(grants, policy.rpartition("/")[2], place)
        elif not isinstance(policy, Mapping):
            grants.unknown.append(("this is not a policy", place))
        elif "Statement" in policy:
            _document(grants, policy, naming, place)
        elif isinstance(policy.get("PolicyDocument"), Mapping):
            _document(grants, policy["PolicyDocument"], naming, (*place, "PolicyDocument"))
        else:
            for name, parameters in policy.items():
                _template(grants, name, parameters, naming, place)


def _managed(grants: Grants, name: str, path: Location) -> None:
    if name in _MANAGED:
        grants.statements.append(Grant(_MANAGED[name], ("*",), path))
    else:
        grants.unknown.append((f"the policy {name} is not in this template", path))


def _template(grants: Grants, name: str, parameters: Any, naming: Naming, path: Location) -> None:
    if name not in _TEMPLATES or not isinstance(parameters, Mapping):
        grants.unknown.append((f"the policy template {name} is unknown", path))
        return
    service, actions, parameter, ends = _TEMPLATES[name]
    resource = naming.spelled(parameters.get(parameter))
    here = f"arn:${{AWS::Partition}}:{service}:${{AWS::Region}}:${{AWS::AccountId}}:"
    arns = tuple(here + end.format(resource) for end in ends)
    grants.statements.append(Grant(tuple(f"{service}:{action}" for action in actions), arns, path))


def _document(grants: Grants, document: Mapping[str, Any], naming: Naming, path: Location) -> None:
    for number, statement in enumerate(_list(document.get("Statement"))):
        place = (*path, "Statement", number)
        if not isinstance(statement, Mapping) or "Action" not in statement or "Resource" not in statement:
            grants.unknown.append(("this statement has no Action or no Resource", place))
            continue
        actions, resources = _list(statement["Action"]), _list(naming.spelled(statement["Resource"]))
        grants.statements.append(
            Grant(
                tuple(map(str, actions)),
                tuple(map(str, resources)),
                place,
                str(statement.get("Effect")) == "Allow",
                _keys(statement.get("Condition")),
            )
        )


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
