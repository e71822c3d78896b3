"""SAM and CloudFormation templates: YAML with short forms such as `!Ref`, or JSON.

A `Document` has the places of its values. A `Resolution` has its resources with parameters at their defaults. Unresolved
values stay in the text as placeholders: `${LedgerTable}` and `${LedgerTable.Arn}` for names that AWS assigns, `${Name}` for
a parameter without default, `${AWS::Region}`, `${Fn::ImportValue shared}` for an import. `Naming` gives names and ARNs of
resources one notation, so that they can be compared.

aws-sam-translator and cfn-lint are not used: the translator leaves conditions and most functions unresolved and needs a
template without mistakes, cfn-lint installs 80 MB, and the command line must work without extras.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from projections.errors import Problem, RulesError
from projections.language.files import text_of_file
from projections.language.mistakes import Location, dotted
from projections.language.source import UnreadableError, compose

_MOST_NODES = 100_000
_DEEPEST = 100
_TAG = "tag:yaml.org,2002:"


class TemplateError(RulesError):
    """The template cannot be read. `problems` has the place and the reason."""


@dataclass(frozen=True)
class Document:
    """A template with functions in their long form, such as `{"Ref": "TaskQueue"}`."""

    file: str
    data: Mapping[str, Any]
    places: Mapping[Location, tuple[int, int]] = field(default_factory=dict, repr=False)

    def at(self, path: Location) -> Any:
        """Return the value at a path, or None."""
        return value_at(self.data, *path)

    def place(self, path: Location) -> tuple[int, int]:
        """Return line and column, from 1, of the value at a path, or of the nearest value around it."""
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path, (1, 1))


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
    found = value_at(value, *path)
    return found if isinstance(found, Mapping) else {}


def text_at(value: Any, *path: Any) -> str | None:
    """Return the text at a path, or None."""
    found = value_at(value, *path)
    return found if isinstance(found, str) else None


def read_template(path: str | Path) -> Document:
    """Return the template in a file. Raises TemplateError."""
    file = str(path)
    try:
        text = text_of_file(path)
    except UnicodeDecodeError:
        raise _unreadable(file, "it is not UTF-8") from None
    except (OSError, ValueError) as error:
        raise _unreadable(file, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    return template_of(text, file)


def template_of(text: str, file: str = "<template>") -> Document:
    """Return the template in a text. Raises TemplateError if it cannot be read, or is not a template."""
    reading = _Reading(file)
    try:
        node = compose(text, _MOST_NODES)
        data = None if node is None else reading.value(node, ())
    except RecursionError:
        raise _unreadable(file, "is nested too deeply") from None
    except UnreadableError as error:
        raise _unreadable(file, f"is {error}") from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        reason = ", ".join(part for part in (error.context, error.problem) if part)
        raise _unreadable(file, f"not YAML: {reason}", *place) from None
    except YAMLError as error:
        raise _unreadable(file, f"not YAML: {' '.join(str(error).split())}") from None
    except (ValueError, IndexError, KeyError, AttributeError, TypeError, AssertionError, NotImplementedError) as error:
        raise _unreadable(file, f"not YAML: {error}") from None
    if not isinstance(data, dict) or not isinstance(data.get("Resources"), dict):
        raise _unreadable(file, "is not a SAM or CloudFormation template: there is no mapping `Resources`")
    return Document(file, data, reading.places)


def _unreadable(file: str, message: str, line: int = 1, column: int = 1) -> TemplateError:
    return TemplateError([Problem(file, line, column, "(top)", message)])


class _Reading:
    """A walk over the nodes of a YAML document."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.places: dict[Location, tuple[int, int]] = {}
        self.count = 0

    def value(self, node: Node, path: Location) -> Any:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        self.places.setdefault(path, (line, column))
        self.count += 1
        if self.count > _MOST_NODES:
            raise _unreadable(
                self.file,
                f"is too large: more than {_MOST_NODES:,} values, counting each use of an alias",
                line,
                column,
            )
        if len(path) > _DEEPEST:
            raise _unreadable(self.file, "is nested too deeply", line, column)
        tag = str(node.tag)
        if not tag.startswith("!") or tag == "!":
            return self._plain(node, path)
        name = {"!Ref": "Ref", "!Condition": "Condition"}.get(tag, f"Fn::{tag[1:]}")
        content = self._plain(node, (*path, name), text=True)
        if name == "Fn::GetAtt" and isinstance(content, str):
            content = content.split(".", 1)
        return {name: content}

    def _plain(self, node: Node, path: Location, *, text: bool = False) -> Any:
        if isinstance(node, MappingNode):
            return dict(self._entries(node, path))
        if isinstance(node, SequenceNode):
            return [self.value(element, (*path, number)) for number, element in enumerate(node.value)]
        assert isinstance(node, ScalarNode)
        return str(node.value) if text else _scalar(str(node.tag), str(node.value))

    def _entries(self, node: MappingNode, path: Location) -> Iterator[tuple[str, Any]]:
        seen: set[str] = set()
        for key, value in node.value:
            name, mark = str(key.value) if isinstance(key, ScalarNode) else "", key.start_mark
            if not name or name in seen:
                wrong = f"duplicate key {name}" if name else "a key must be plain text"
                raise _unreadable(self.file, f"{dotted(path)}: {wrong}", mark.line + 1, mark.column + 1)
            seen.add(name)
            self.places[(*path, name)] = (mark.line + 1, mark.column + 1)
            yield name, self.value(value, (*path, name))


def _scalar(tag: str, text: str) -> Any:
    """Return the value of a scalar. Dates and other types that JSON lacks stay text."""
    kind = tag.removeprefix(_TAG)
    try:
        if kind == "int":
            return int(text.replace("_", ""), 10 if text[1:].isdecimal() else 0)  # 0123 is 123 here
        if kind == "float":
            return float(text.replace("_", ""))
    except ValueError:
        return text
    if kind == "bool":
        return text.lower() == "true"
    return None if kind == "null" else text


FUNCTION = "AWS::Serverless::Function"

VARIABLES = ("Environment", "Variables")
"""The path of the environment in the properties of a function."""

_NO_VALUE = object()
_PLACEHOLDER = re.compile(r"\$\{([^!{}][^{}]*)\}")


@dataclass(frozen=True)
class Resource:
    """A resource with resolved properties; those of a function include `Globals`."""

    id: str
    type: str
    properties: Mapping[str, Any]

    def path(self, *steps: str | int) -> Location:
        """Return the path of one of its properties in the template."""
        return ("Resources", self.id, "Properties", *steps)


def placeholders(value: Any) -> Iterator[str]:
    """Yield the names of all placeholders in a value."""
    if isinstance(value, str):
        yield from _PLACEHOLDER.findall(value)
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from placeholders(each)
    elif isinstance(value, list):
        for each in value:
            yield from placeholders(each)


class Resolution:
    """A resolved template. Malformed parts are left unresolved and raise no exception."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self._data = document.data
        self._decided: dict[str, bool | None] = {}

    @cached_property
    def resources(self) -> Mapping[str, Resource]:
        """The resources that exist with parameters at their defaults, and those whose condition is undecided."""
        found = {}
        for name, raw in self._data["Resources"].items():
            if isinstance(raw, Mapping) and isinstance(kind := raw.get("Type"), str):
                if "Condition" in raw and self.condition(raw["Condition"]) is False:
                    continue
                properties = self._properties(kind, raw)
                found[name] = Resource(name, kind, properties)
        return found

    def of_type(self, *types: str) -> Iterator[Resource]:
        return (resource for resource in self.resources.values() if resource.type in types)

    def _properties(self, kind: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        own = self.value(raw.get("Properties") or {})
        if not isinstance(own, Mapping):
            return {}
        if kind != FUNCTION:
            return own
        shared = self.value(value_at(self._data, "Globals", "Function") or {})
        if not isinstance(shared, Mapping):
            return own
        variables = {**mapping_at(shared, *VARIABLES), **mapping_at(own, *VARIABLES)}
        return {**shared, **own, **({"Environment": {"Variables": variables}} if variables else {})}

    def value(self, value: Any) -> Any:
        """Return a value of the template with its functions resolved."""
        resolved = self._value(value)
        return None if resolved is _NO_VALUE else resolved

    def _value(self, value: Any) -> Any:
        if isinstance(value, list):
            return [each for each in map(self._value, value) if each is not _NO_VALUE]
        if not isinstance(value, Mapping):
            return value
        if len(value) == 1:
            ((name, content),) = value.items()
            if name == "Ref":
                return self._ref(content)
            if name.startswith("Fn::"):
                return self._function(name, content)
        return {name: each for name, part in value.items() if (each := self._value(part)) is not _NO_VALUE}

    def _function(self, name: str, content: Any) -> Any:
        known: dict[str, Callable[[Any], Any]] = {
            "Fn::GetAtt": self._get_att,
            "Fn::If": self._if,
            "Fn::Sub": self._sub,
            "Fn::Join": self._join,
            "Fn::Select": self._select,
            "Fn::Split": self._split,
        }
        found = known[name](content) if name in known else None
        if found is not None:
            return found
        content = self.value(content)
        text = content if isinstance(content, str) else json.dumps(content, separators=(",", ":"), default=str)
        return f"${{{name} {re.sub('[{}]', '', text)}}}"

    def _ref(self, name: Any) -> Any:
        if name == "AWS::NoValue":
            return _NO_VALUE
        parameter = value_at(self._data, "Parameters", name) if isinstance(name, str) else None
        if not isinstance(parameter, Mapping) or "Default" not in parameter:
            return f"${{{name}}}"
        kind, default = str(parameter.get("Type")), parameter["Default"]
        if kind.startswith(("AWS::SSM::", "CommaDelimitedList", "List<")):
            return f"${{{name}}}"  # the default is the name of an SSM parameter, or the text of a list
        if kind == "Number" and isinstance(default, str) and re.fullmatch(r"-?\d+", default):
            return int(default)
        return default

    def _get_att(self, content: Any) -> Any:
        if isinstance(content, str):
            content = content.split(".", 1)
        if isinstance(content, list) and content and all(isinstance(part, str) for part in content):
            return f"${{{'.'.join(content)}}}"
        return None

    def _if(self, content: Any) -> Any:
        if not isinstance(content, list) or len(content) != 3:
            return None
        condition, one, other = content
        holds = self.condition(condition)
        return None if holds is None else self._value(one if holds else other)

    def _sub(self, content: Any) -> Any:
        text, given = content if isinstance(content, list) and len(content) == 2 else (content, {})
        if not isinstance(text, str) or not isinstance(given, Mapping):
            return None

        def replaced(found: re.Match[str]) -> str:
            name = found[1].strip()
            value = self.value(given[name]) if name in given else (self._get_att if "." in name else self._ref)(name)
            return str(value)

        return _PLACEHOLDER.sub(replaced, text)

    def _join(self, content: Any) -> Any:
        if not isinstance(content, list) or len(content) != 2 or not isinstance(content[0], str):
            return None
        parts = self.value(content[1])
        return content[0].join(map(str, parts)) if isinstance(parts, list) else None

    def _select(self, content: Any) -> Any:
        chosen = self.value(content)
        number = chosen[0] if isinstance(chosen, list) and len(chosen) == 2 else None
        return value_at(chosen, 1, number) if isinstance(number, int) and isinstance(chosen[1], list) else None

    def _split(self, content: Any) -> Any:
        parts = self.value(content)
        if isinstance(parts, list) and len(parts) == 2 and all(isinstance(part, str) and part for part in parts):
            return parts[1].split(parts[0])
        return None

    def condition(self, condition: Any) -> bool | None:
        """Return whether a condition holds; None if that depends on unresolved values."""
        if isinstance(condition, str):
            if condition not in self._decided:
                self._decided[condition] = None  # a condition that depends on itself is undecided
                self._decided[condition] = self.condition(value_at(self._data, "Conditions", condition))
            return self._decided[condition]
        if not isinstance(condition, Mapping) or len(condition) != 1:
            return None
        ((name, content),) = condition.items()
        if name == "Condition":
            return self.condition(content)
        if not isinstance(content, list):
            return None
        if name == "Fn::Equals" and len(content) == 2:
            one, other = map(self.value, content)
            undecided = any(True for value in (one, other) for _ in placeholders(value))
            return None if undecided and one != other else str(one) == str(other)
        answers = [self.condition(each) for each in content]
        if name == "Fn::Not" and len(answers) == 1:
            return None if answers[0] is None else not answers[0]
        if name == "Fn::And":
            return False if False in answers else None if None in answers else True
        if name == "Fn::Or":
            return True if True in answers else None if None in answers else False
        return None


# Names

TABLE = ("AWS::DynamoDB::Table", "AWS::DynamoDB::GlobalTable")
QUEUE = "AWS::SQS::Queue"
BUCKET = "AWS::S3::Bucket"

_NAMED_BY = {**dict.fromkeys(TABLE, "TableName"), QUEUE: "QueueName", BUCKET: "BucketName"}
_PLACE = "${AWS::Region}:${AWS::AccountId}"
_ARNS = {
    **dict.fromkeys(TABLE, f"arn:${{AWS::Partition}}:dynamodb:{_PLACE}:table/"),
    QUEUE: f"arn:${{AWS::Partition}}:sqs:{_PLACE}:",
    BUCKET: "arn:${AWS::Partition}:s3:::",
}


class Naming:
    """The names in a template. A resource without a name is called `${LogicalId}`."""

    def __init__(self, resolution: Resolution) -> None:
        self._resources = resolution.resources

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
