"""The names and ARNs of a template's resources in one notation, so that they can be compared.

A resource without a name in the template is called `${LogicalId}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from projections.deploy.resolution import Resolution, Resource, placeholders

__all__ = ["QUEUE", "TABLE", "Naming", "covers", "glob", "judged"]

TABLE = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable")
QUEUE = "AWS::SQS::Queue"
BUCKET = "AWS::S3::Bucket"

_HERE = "${here}"
"""The partition, Region or account of the deployment."""

_NAMED_BY = {**dict.fromkeys(TABLE, "TableName"), QUEUE: "QueueName", BUCKET: "BucketName"}
_PLACE = "${AWS::Region}:${AWS::AccountId}"
_ARNS = {
    **dict.fromkeys(TABLE, f"arn:${{AWS::Partition}}:dynamodb:{_PLACE}:table/"),
    QUEUE: f"arn:${{AWS::Partition}}:sqs:{_PLACE}:",
    BUCKET: "arn:${AWS::Partition}:s3:::",
}


class Naming:
    """The names in a template."""

    def __init__(self, resolution: Resolution) -> None:
        self._resources = resolution.resources

    @cached_property
    def given(self) -> frozenset[str]:
        """The names of tables, queues and buckets that the template sets."""
        listed = [one for one in self._resources.values() if one.type in _NAMED_BY]
        return frozenset(name for one in listed if (name := self.of(one)) != f"${{{one.id}}}")

    def of(self, resource: Resource) -> str:
        """Return the name of a table, queue or bucket."""
        name = resource.properties.get(_NAMED_BY.get(resource.type, ""))
        return name if isinstance(name, str) and name else f"${{{resource.id}}}"

    def spelled(self, value: Any) -> Any:
        """Return a value with all names and ARNs of tables, queues and buckets in this notation."""
        if isinstance(value, str):
            return re.sub(r"\$\{([^!{}.]+)(?:\.([^{}]+))?\}", self._one, value)
        if isinstance(value, list):
            return [self.spelled(each) for each in value]
        if isinstance(value, Mapping):
            return {name: self.spelled(each) for name, each in value.items()}
        return value

    def _one(self, found: re.Match[str]) -> str:
        resource = self._resources.get(found[1])
        if resource is None or resource.type not in _NAMED_BY:
            return found[0]
        name, arn = self.of(resource), _ARNS[resource.type]
        match found[2]:
            case "Arn":
                return f"{arn}{name}"
            case "StreamArn":
                return f"{arn}{name}/stream/${{label}}"
            case "QueueName":
                return name
            case None if resource.type != QUEUE:  # a queue's `Ref` is its URL
                return name
            case _:
                return found[0]

    def judged(self, text: str) -> bool:
        """Return whether a text in this notation has no placeholder of a parameter or import."""
        return all(
            name.split(".")[0] in self._resources or name == "label" or name.startswith("AWS::")
            for name in placeholders(text)
        )


def judged(text: Any) -> bool:
    """Return whether a value has no placeholders."""
    return not any(True for _ in placeholders(text))


def covers(pattern: str, wanted: str) -> bool:
    """Return whether a resource pattern of a policy, with wildcards `*` and `?`, includes another.

    Partition, Region and account are equal unless both are given and differ.
    """
    if pattern == "*":
        return True
    ours, theirs = (re.sub(r"\$\{AWS::\w+\}", _HERE, text).split(":", 5) for text in (pattern, wanted))
    if len(ours) != 6 or len(theirs) != 6:
        return glob(pattern).fullmatch(wanted) is not None
    for mine, its in zip(ours[:5], theirs[:5], strict=True):
        if not (_HERE in (mine, its) or glob(mine).fullmatch(its)):
            return False
    return glob(ours[5]).fullmatch(theirs[5]) is not None


def glob(pattern: str) -> re.Pattern[str]:
    """Return a pattern of a policy as a regular expression."""
    parts = (".*" if part == "*" else "." if part == "?" else re.escape(part) for part in re.split(r"([*?])", pattern))
    return re.compile("".join(parts), re.DOTALL)
