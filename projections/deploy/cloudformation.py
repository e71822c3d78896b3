"""Read a SAM or CloudFormation template, YAML with short forms such as `!Ref` or JSON, with the places of its values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from projections.errors import Problem, RulesError
from projections.language.bounded import text_of_file
from projections.language.mistakes import Location, dotted
from projections.language.source import UnreadableError, compose

__all__ = ["Document", "TemplateError", "mapping_at", "read_template", "template_of", "text_at", "value_at"]

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
        # JSON may be indented with tabs, which YAML forbids. Places are unknown then.
        data = _json(text)
        if data is None:
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


def _json(text: str) -> Any:
    if not text.lstrip().startswith("{"):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


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
