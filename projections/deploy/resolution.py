"""The values of a template with its parameters at their defaults.

Unresolved values stay in the text as placeholders `${…}`: `${LedgerTable}` and `${LedgerTable.Arn}` for names that AWS
assigns, `${Name}` for a parameter without default, `${AWS::Region}`, `${Fn::ImportValue shared}` for an import.

aws-sam-translator and cfn-lint are not used: the translator leaves conditions and most functions unresolved and needs a
template without mistakes, cfn-lint installs 80 MB, and the command line must work without extras.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from projections.deploy.cloudformation import Document, mapping_at, value_at
from projections.language.mistakes import Location

__all__ = ["FUNCTION", "VARIABLES", "Resolution", "Resource", "placeholders"]

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
    attributes: Mapping[str, Any]
    """Attributes beside its properties, such as `DeletionPolicy`."""

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
                attributes = {
                    key: raw[key] for key in raw if key not in ("Type", "Properties", "Metadata", "Condition")
                }
                found[name] = Resource(name, kind, properties, attributes)
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
            "Fn::FindInMap": self._find,
            "Fn::Select": self._select,
            "Fn::Split": self._split,
            "Fn::ToJsonString": lambda inner: json.dumps(self.value(inner)),
        }
        found = known[name](content) if name in known else None
        return self._undecided(name, content) if found is None else found

    def _undecided(self, name: str, content: Any) -> str:
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
        if kind.startswith("AWS::SSM::"):
            return f"${{{name}}}"  # the default is the name of the SSM parameter
        if kind.startswith(("CommaDelimitedList", "List<")):
            return [each.strip() for each in str(default).split(",")]
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
        condition, *branches = content
        holds = self.condition(condition)
        if holds is not None:
            return self._value(branches[0] if holds else branches[1])
        one, other = map(self._value, branches)
        return one if one == other else None

    def _sub(self, content: Any) -> Any:
        text, given = content if isinstance(content, list) and len(content) == 2 else (content, {})
        if not isinstance(text, str) or not isinstance(given, Mapping):
            return None

        def replaced(found: re.Match[str]) -> str:
            name = found[1].strip()
            value = self.value(given[name]) if name in given else (self._get_att if "." in name else self._ref)(name)
            if isinstance(value, list):
                return ",".join(map(str, value))
            return str(value)

        return _PLACEHOLDER.sub(replaced, text)

    def _join(self, content: Any) -> Any:
        if not isinstance(content, list) or len(content) != 2 or not isinstance(content[0], str):
            return None
        parts = self.value(content[1])
        return content[0].join(map(str, parts)) if isinstance(parts, list) else None

    def _find(self, content: Any) -> Any:
        steps = self.value(content)
        return value_at(self._data, "Mappings", *steps) if isinstance(steps, list) and len(steps) == 3 else None

    def _select(self, content: Any) -> Any:
        chosen = self.value(content)
        if not isinstance(chosen, list) or len(chosen) != 2 or not isinstance(chosen[1], list):
            return None
        number = int(chosen[0]) if str(chosen[0]).isdecimal() else -1
        return chosen[1][number] if 0 <= number < len(chosen[1]) else None

    def _split(self, content: Any) -> Any:
        parts = self.value(content)
        if isinstance(parts, list) and len(parts) == 2 and all(isinstance(part, str) and part for part in parts):
            return parts[1].split(parts[0])
        return None

    def parameters_in(self, value: Any) -> set[str]:
        """Return the parameters on which a value of the template depends, including those in conditions."""
        found: set[str] = set()
        conditions: set[str] = set()
        waiting = [value]
        while waiting:
            one = waiting.pop()
            if isinstance(one, list):
                waiting += one
            elif isinstance(one, Mapping):
                waiting += one.values()
                reference = one.get("Ref")
                names = [reference] if isinstance(reference, str) else []
                condition = _first(one.get("Fn::If")) or _first(one.get("Condition"))
                if condition is not None and condition not in conditions:
                    conditions.add(condition)
                    waiting.append(value_at(self._data, "Conditions", condition))
                names += placeholders(_first(one.get("Fn::Sub")))
                found.update(name for name in names if value_at(self._data, "Parameters", name) is not None)
        return found

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


def _first(argument: Any) -> str | None:
    """Return the argument of a function if it is text, or the first of its arguments."""
    found = argument[0] if isinstance(argument, list) and argument else argument
    return found if isinstance(found, str) else None
