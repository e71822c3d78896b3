"""SAM and CloudFormation templates: YAML with short forms such as `!Ref`, or JSON.

A `Document` has the places of its values. A `Resolution` has its resources with parameters at their defaults. Unresolved
values stay in the text as placeholders: `${TaskQueue}` for names that AWS assigns, `${Name}` for a parameter without
default, `${AWS::Region}`, `${Fn::ImportValue shared}` for an import. Names and ARNs of tables, queues and buckets have one
notation, however the template refers to them, so that they can be compared.

aws-sam-translator and cfn-lint are not used: the translator leaves conditions and most functions unresolved and needs a
template without mistakes, cfn-lint installs 80 MB, and the command line must work without extras. cfn-flip, which only
reads short forms, has no places.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from projections.errors import Problem, RulesError
from projections.language.including import text_of
from projections.language.source import Source, UnreadableError, read
from projections.language.syntax import Location, Mistake, dotted

_TAG = "tag:yaml.org,2002:"


class Document(NamedTuple):
    """A template with functions in their long form, such as `{"Ref": "TaskQueue"}`."""

    file: str
    data: Mapping[str, Any]
    source: Source | None = None

    def place(self, path: Location) -> tuple[int, int]:
        """Return line and column, from 1, of the entry at a path, or of the nearest one around it."""
        return (1, 1) if self.source is None else self.source.position(Mistake(path, "", at_key=True))


def value_at(value: Any, *path: Any) -> Any:
    """Return the value at a path into mappings and lists, or None."""
    for step in path:
        try:
            value = value[step]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def mapping_at(value: Any, *path: Any) -> Mapping[str, Any]:
    """Return the mapping at a path, empty if there is none."""
    value_there = value_at(value, *path)
    return value_there if isinstance(value_there, Mapping) else {}


def read_template(path: str | Path) -> Document:
    """Return the template in a file. Raises RulesError."""
    return template_of(text_of(path), str(path))


def template_of(text: str, file: str = "<template>") -> Document:
    """Return the template in a text. Raises RulesError if it cannot be read, or is not a template."""
    try:
        source = read(text, long_form=_long_form)
    except UnreadableError as error:
        raise RulesError([Problem(file, error.line, error.column, "(top)", error.message)]) from None
    if source.mistakes:
        raise RulesError(
            [Problem(file, *source.position(fault), dotted(fault.path), fault.message) for fault in source.mistakes]
        )
    if not isinstance(source.data, dict) or not isinstance(source.data.get("Resources"), dict):
        reason = "is not a SAM or CloudFormation template: there is no mapping `Resources`"
        raise RulesError([Problem(file, 1, 1, "(top)", reason)])
    return Document(file, source.data, source)


def _long_form(node: Node) -> Node:
    """Return the node of a short form such as `!Ref Table` as the mapping that it stands for, other nodes as they are."""
    tag, start, end = str(node.tag), node.start_mark, node.end_mark
    if tag == "!" or not tag.startswith("!"):
        return node
    name = tag[1:] if tag in ("!Ref", "!Condition") else f"Fn::{tag[1:]}"
    content = copy(node)
    kind = "map" if isinstance(node, MappingNode) else "seq" if isinstance(node, SequenceNode) else "str"
    content.tag = f"{_TAG}{kind}"
    if name == "Fn::GetAtt" and isinstance(node, ScalarNode):
        parts = [ScalarNode(f"{_TAG}str", part, start, end) for part in node.value.split(".", 1)]
        content = SequenceNode(f"{_TAG}seq", parts, start, end)
    return MappingNode(f"{_TAG}map", [(ScalarNode(f"{_TAG}str", name, start, end), content)], start, end)


FUNCTION = "AWS::Serverless::Function"
TABLE = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable")
QUEUE = "AWS::SQS::Queue"
BUCKET = "AWS::S3::Bucket"

VARIABLES = ("Environment", "Variables")
"""The path of the environment in the properties of a function."""

_PLACE = "${AWS::Region}:${AWS::AccountId}"
_NAMED: Mapping[Any, tuple[str, str]] = {
    **dict.fromkeys(TABLE, ("TableName", f"arn:${{AWS::Partition}}:dynamodb:{_PLACE}:table/")),
    QUEUE: ("QueueName", f"arn:${{AWS::Partition}}:sqs:{_PLACE}:"),
    BUCKET: ("BucketName", "arn:${AWS::Partition}:s3:::"),
}
"""Types of resources with their property for the name, and their ARN without the name."""

_PLACEHOLDER = re.compile(r"\$\{([^!{}][^{}]*)\}")


class Resource(NamedTuple):
    """A resource with resolved properties; those of a function include `Globals`."""

    id: str
    type: str
    properties: Mapping[str, Any]

    def path(self, *steps: str | int) -> Location:
        """Return the path of one of its properties in the template."""
        return ("Resources", self.id, "Properties", *steps)


def placeholders(value: Any) -> Iterator[str]:
    """Yield what the placeholders in a value refer to: logical ids of resources, parameters, `AWS` or `Fn`."""
    if isinstance(value, str):
        yield from (re.split("[.:]", name)[0] for name in _PLACEHOLDER.findall(value))
    elif isinstance(value, Mapping | list):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from placeholders(each)


def is_plain(value: Any) -> bool:
    """Return whether a value has no placeholders."""
    return not any(True for _ in placeholders(value))


class Resolution:
    """A resolved template. Malformed parts are left unresolved and raise no exception.

    `names` are the names of tables, queues and buckets, by logical id, that are not those of the template.
    """

    def __init__(self, document: Document, names: Mapping[str, str] | None = None) -> None:
        self._data = document.data
        self._decided: dict[str, bool | None] = {}
        self._names = dict(names or {})

    @cached_property
    def resources(self) -> Mapping[str, Resource]:
        """The resources that exist with parameters at their defaults, and those whose condition is undecided."""
        resources = {}
        for name, raw in self._data["Resources"].items():
            if isinstance(raw, Mapping) and isinstance(kind := raw.get("Type"), str):
                if "Condition" in raw and self.condition(raw["Condition"]) is False:
                    continue
                resources[name] = Resource(name, kind, self._properties(kind, raw))
        return resources

    def of_type(self, *types: str) -> Iterator[Resource]:
        return (resource for resource in self.resources.values() if resource.type in types)

    def name(self, resource: str) -> str:
        """Return the name of a table, queue or bucket; `${LogicalId}` if the template does not set it."""
        if resource not in self._names:
            self._names[resource] = f"${{{resource}}}"  # also of one that is named after itself
            raw = value_at(self._data, "Resources", resource)
            own, _ = _NAMED.get(str(value_at(raw, "Type")), ("", ""))
            text = self.value(value_at(raw, "Properties", own))
            self._names[resource] = text if isinstance(text, str) and text else self._names[resource]
        return self._names[resource]

    def is_known(self, text: str) -> bool:
        """Return whether a text has no placeholder of a parameter or import."""
        return {"AWS", "label", *self.resources}.issuperset(placeholders(text))

    def _properties(self, kind: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        own = self.value(raw.get("Properties") or {})
        if not isinstance(own, Mapping):
            return {}
        shared = self.value(value_at(self._data, "Globals", "Function") or {}) if kind == FUNCTION else None
        if not isinstance(shared, Mapping):
            return own
        variables = {**mapping_at(shared, *VARIABLES), **mapping_at(own, *VARIABLES)}
        return {**shared, **own, **({"Environment": {"Variables": variables}} if variables else {})}

    def value(self, value: Any) -> Any:
        """Return a value of the template with its functions resolved; None for `AWS::NoValue`."""
        if isinstance(value, list):
            return [each for each in map(self.value, value) if each is not None]
        if not isinstance(value, Mapping):
            return value
        if len(value) == 1:
            ((name, content),) = value.items()
            if name == "Ref" or name.startswith("Fn::"):
                return self._function(name, content)
        return {name: each for name, part in value.items() if (each := self.value(part)) is not None}

    def _function(self, name: str, content: Any) -> Any:
        """Return the value of a function, or its name and content as a placeholder."""
        if name == "Fn::If" and isinstance(content, list) and len(content) == 3:
            holds = self.condition(content[0])  # the other branch may not be resolvable
            if holds is not None:
                return self.value(content[1 if holds else 2])
        if name == "Fn::Sub":
            text, variables = content if isinstance(content, list) and len(content) == 2 else (content, {})
            if isinstance(text, str) and isinstance(variables, Mapping):
                return _PLACEHOLDER.sub(lambda match: str(self._substitute(match[1].strip(), variables)), text)
        content = self.value(content)
        match name, content:
            case "Ref", "AWS::NoValue":
                return None
            case "Ref", _:
                return self._ref(content)
            case "Fn::GetAtt", [str(resource), str(attribute)]:
                return self._attribute(resource, attribute)
            case "Fn::Join", [str(between), [*parts]]:
                return between.join(map(str, parts))
            case "Fn::Split", [str(between), str(text)] if between:
                return text.split(between)
            case "Fn::Select", [int(number), [*parts]] if 0 <= number < len(parts):
                return parts[number]
        text = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"), default=str)
        return f"${{{name} {re.sub('[{}]', '', text)}}}"

    def _substitute(self, name: str, variables: Mapping[str, Any]) -> Any:
        if name in variables:
            return self.value(variables[name])
        resource, _, attribute = name.partition(".")
        return self._attribute(resource, attribute) if attribute else self._ref(name)

    def _ref(self, name: Any) -> Any:
        parameter = value_at(self._data, "Parameters", name) if isinstance(name, str) else None
        if isinstance(parameter, Mapping) and "Default" in parameter:
            kind, default = str(parameter.get("Type")), parameter["Default"]
            if kind.startswith(("AWS::SSM::", "CommaDelimitedList", "List<")):
                return f"${{{name}}}"  # the default is the name of an SSM parameter, or the text of a list
            return default
        is_url = value_at(self._data, "Resources", name, "Type") == QUEUE
        return f"${{{name}}}" if is_url or not isinstance(name, str) else self.name(name)

    def _attribute(self, resource: str, attribute: str) -> str:
        _, arn = _NAMED.get(str(value_at(self._data, "Resources", resource, "Type")), ("", ""))
        match attribute:
            case "Arn" if arn:
                return f"{arn}{self.name(resource)}"
            case "StreamArn" if arn:
                return f"{arn}{self.name(resource)}/stream/${{label}}"
        return f"${{{resource}.{attribute}}}"

    def condition(self, condition: Any) -> bool | None:
        """Return whether a condition holds; None if that depends on unresolved values."""
        match condition:
            case str():
                if condition not in self._decided:
                    self._decided[condition] = None  # a condition that depends on itself is undecided
                    self._decided[condition] = self.condition(value_at(self._data, "Conditions", condition))
                return self._decided[condition]
            case {"Condition": name}:
                return self.condition(name)
            case {"Fn::Equals": [left, right]}:
                left, right = self.value(left), self.value(right)
                decided = left == right or is_plain([left, right])
                return str(left) == str(right) if decided else None
            case {"Fn::Not": [part]}:
                holds = self.condition(part)
                return None if holds is None else not holds
            case {"Fn::Or": [*parts]}:
                answers = [self.condition(part) for part in parts]
                return True if True in answers else None if None in answers else False
        return None
