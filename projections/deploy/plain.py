"""The SAM template as plain CloudFormation, for tools that cannot run SAM's transform, such as CDK.

The functions and their events become the resources that SAM makes of them, under the same logical ids. Tests compare them
with those of aws-sam-translator, which is not used here because the command line must work without extras. Where the
functions' package is, the parameters CodeBucket and CodeKey say.

`with_values` replaces parameters by their values, for CDK: `cdk deploy` keeps the former value of a parameter whose default
changes, so a template of CDK should have no parameters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from projections.deploy.checksum import UNSIGNED
from projections.deploy.cloudformation import (
    FUNCTION,
    VARIABLES,
    Document,
    Resolution,
    mapping_at,
    template_of,
    value_at,
)
from projections.deploy.needs import Deployment
from projections.deploy.sam_template import sam_template
from projections.errors import UsageError
from projections.language.loader import load
from projections.language.program import Program
from projections.language.syntax import suggest

Template = dict[str, Any]

NOTES = "DynamoDBProjections"
"""The entry in the template's metadata that has its checksum, and the suffix of each table's parameters."""

_NO_LINT = {"cfn-lint": {"config": {"ignore_checks": ["W1030"]}}}
"""cfn-lint takes the default of a parameter for its value, also in a branch that is not taken then."""

CODE: Mapping[str, Mapping[str, Any]] = {
    "CodeBucket": {
        "Type": "String",
        "MinLength": 3,
        "Description": "The bucket of the functions' package, in the Region of the stack.",
    },
    "CodeKey": {
        "Type": "String",
        "MinLength": 1,
        "Description": "The key of the functions' package, which `projections template --package` writes. "
        "Use a new key for each package: the functions are updated when it changes.",
    },
}


def cloudformation_template(deployment: Deployment) -> Template:
    """Return the template. Raises UsageError as `sam_template` does."""
    data = template_of(sam_template(deployment), deployment.file).data
    template: Template = {name: part for name, part in data.items() if name not in ("Transform", "Globals")}
    groups = value_at(data, "Metadata", "AWS::CloudFormation::Interface", "ParameterGroups")
    groups.insert(0, {"Label": {"default": "Package"}, "Parameters": list(CODE)})
    tables = {table.name: table.suffix for table in deployment.tables}
    template["Metadata"] = {**data["Metadata"], **_NO_LINT, NOTES: {"Tables": tables, "Checksum": UNSIGNED}}
    template["Parameters"] = {**CODE, **data["Parameters"]}
    template["Resources"] = {}
    shared = mapping_at(data, "Globals", "Function")
    for name, resource in data["Resources"].items():
        if resource["Type"] == FUNCTION:
            template["Resources"].update(_function(name, resource, shared))
        else:
            template["Resources"][name] = resource
    return template


# What SAM makes of a function


def _function(name: str, resource: Mapping[str, Any], shared: Mapping[str, Any]) -> Iterator[tuple[str, Template]]:
    """Yield the function and the resources of its events, with their logical ids."""
    own = resource["Properties"]
    properties = {**shared, **own, "Code": {"S3Bucket": {"Ref": "CodeBucket"}, "S3Key": {"Ref": "CodeKey"}}}
    properties["Environment"] = {"Variables": {**mapping_at(shared, *VARIABLES), **mapping_at(own, *VARIABLES)}}
    properties["TracingConfig"] = {"Mode": properties.pop("Tracing")}
    events = properties.pop("Events")
    del properties["CodeUri"]
    yield name, {"Type": "AWS::Lambda::Function", "Properties": properties}
    for event, described in events.items():
        yield from _event(name, f"{name}{event}", described["Type"], dict(described["Properties"]))


def _event(function: str, name: str, kind: str, settings: dict[str, Any]) -> Iterator[tuple[str, Template]]:
    if kind in ("DynamoDB", "SQS"):
        source = settings.pop("Stream" if kind == "DynamoDB" else "Queue")
        properties = {"FunctionName": {"Ref": function}, "EventSourceArn": source, **settings}
        yield name, {"Type": "AWS::Lambda::EventSourceMapping", "Properties": properties}
        return
    assert kind == "Schedule", f"{name}: SAM makes other resources of {kind}"
    target = {"Arn": {"Fn::GetAtt": [function, "Arn"]}, "Id": f"{name}LambdaTarget"}
    rule = {"ScheduleExpression": settings.pop("Schedule"), **settings, "Targets": [target]}
    yield name, {"Type": "AWS::Events::Rule", "Properties": rule}
    permission = {
        "Action": "lambda:InvokeFunction",
        "FunctionName": {"Ref": function},
        "Principal": "events.amazonaws.com",
        "SourceArn": {"Fn::GetAtt": [name, "Arn"]},
    }
    yield f"{name}Permission", {"Type": "AWS::Lambda::Permission", "Properties": permission}


# Values of parameters


def with_values(template: Template, chosen: Mapping[str, str | None]) -> Template:
    """Return a template whose parameters are replaced by the given values, or by their defaults.

    Parameters without default remain, and those whose value is None: it is known only on deployment, and not empty. Raises
    UsageError with every value that the template rejects.
    """
    parameters = template["Parameters"]
    wrong = [text for name, value in chosen.items() for text in _mistakes(name, value, parameters)]
    wrong += [
        f"{name}: conditions depend on its value. Pass the value itself, not a token"
        for name, value in _comparisons(template.get("Conditions"))
        if name in chosen and chosen[name] is None and value != ""
    ]
    if wrong:
        raise UsageError(*wrong)
    values = {name: chosen.get(name, spec.get("Default")) for name, spec in parameters.items()}
    return _Settling(template, {name: value for name, value in values.items() if value is not None}).template()


def _comparisons(conditions: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each parameter that conditions compare, with the value that they compare it with."""
    match conditions:
        case {"Fn::Equals": [{"Ref": name}, value]}:
            yield name, value
        case {}:
            yield from (pair for each in conditions.values() for pair in _comparisons(each))
        case [*several]:
            yield from (pair for each in several for pair in _comparisons(each))


def _mistakes(name: str, value: str | None, parameters: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if name not in parameters:
        yield f"{name}: the template has no such parameter{suggest(name, list(parameters))}"
        return
    parameter = parameters[name]
    if value is None:
        return
    if parameter["Type"] == "Number":
        if not re.fullmatch(r"-?[0-9]+", value):
            yield f'{name}: "{value}" is not a whole number'
        elif not parameter.get("MinValue", int(value)) <= int(value) <= parameter.get("MaxValue", int(value)):
            yield f"{name}: {value} is not between {parameter['MinValue']} and {parameter['MaxValue']}"
    elif "AllowedPattern" in parameter and not re.fullmatch(parameter["AllowedPattern"], value):
        yield f'{name}: "{value}" is not allowed. It must be {parameter["ConstraintDescription"]}'
    elif len(value) < parameter.get("MinLength", 0):
        yield f"{name}: at least {parameter['MinLength']} characters are required"
    elif len(value) > parameter.get("MaxLength", len(value)):
        yield f"{name}: at most {parameter['MaxLength']} characters are allowed"
    if "AllowedValues" in parameter and value not in map(str, parameter["AllowedValues"]):
        yield f'{name}: "{value}" is not one of {", ".join(map(str, parameter["AllowedValues"]))}'


_GIVEN = "given"
"""Stands for a value that is known only on deployment: conditions only ask whether it is empty."""

_SUBSTITUTED = re.compile(r"\$\{([A-Za-z0-9]+)\}")


class _Settling:
    """A template whose conditions are decided, because each parameter has a value, or remains and is not empty."""

    def __init__(self, template: Template, values: Mapping[str, Any]) -> None:
        self.source = template
        self.values = values
        defaults = {name: {"Type": "String", "Default": values.get(name, _GIVEN)} for name in template["Parameters"]}
        self.resolution = Resolution(Document("", {**template, "Parameters": defaults}))

    def template(self) -> Template:
        """Return the template. Raises UsageError for what CloudFormation checks before it deploys."""
        wrong = [
            assertion["AssertDescription"]
            for rule in self.source.get("Rules", {}).values()
            if self._holds(rule["RuleCondition"])
            for assertion in rule["Assertions"]
            if not self._holds(assertion["Assert"])
        ]
        if wrong:
            raise UsageError(*wrong)
        # Without a description: that of the stack is the user's.
        result: Template = {"Metadata": {NOTES: self.source["Metadata"][NOTES]}}
        parameters = self.source["Parameters"].items()
        result["Parameters"] = {
            name: {key: value for key, value in parameter.items() if key in ("Type", "Description")}
            for name, parameter in parameters
            if name not in self.values
        }
        for section in ("Resources", "Outputs"):
            result[section] = {
                name: self._settle({key: value for key, value in part.items() if key != "Condition"})
                for name, part in self.source[section].items()
                if "Condition" not in part or self._holds(part["Condition"])
            }
        return result

    def _holds(self, condition: Any) -> bool:
        answer = self.resolution.condition(condition)
        assert answer is not None, f"{condition} depends on more than parameters"
        return answer

    def _settle(self, value: Any) -> Any:
        if isinstance(value, list):
            return [settled for each in value if (settled := self._settle(each)) != {"Ref": "AWS::NoValue"}]
        if not isinstance(value, Mapping):
            return value
        if len(value) == 1:
            ((name, content),) = value.items()
            if name == "Ref" and content in self.values:
                return self.values[content]
            if name == "Fn::If":
                return self._settle(content[1] if self._holds(content[0]) else content[2])
            if name == "Fn::Sub":
                return self._substitute(content)
        settled = {name: self._settle(each) for name, each in value.items()}
        return {name: each for name, each in settled.items() if each != {"Ref": "AWS::NoValue"}}

    def _substitute(self, content: Any) -> Any:
        """Return `Fn::Sub` with the values of parameters in its text."""
        text, variables = content if isinstance(content, list) else (content, {})
        variables = {name: self._settle(each) for name, each in variables.items()}
        known = {**self.values, **{name: each for name, each in variables.items() if isinstance(each, str)}}
        text = _SUBSTITUTED.sub(lambda match: str(known.get(match[1], match[0])), text)
        unknown = {name: each for name, each in variables.items() if name not in known}
        if unknown:
            return {"Fn::Sub": [text, unknown]}
        return {"Fn::Sub": text} if "${" in text else text


TYPESCRIPT = Path(__file__).with_name("projections.ts")
"""The construct in TypeScript."""


def cdk_template(
    rules: str | Path, chosen: Mapping[str, str | None], *, existing: bool, notify: tuple[str, ...] = ()
) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Return the template with these values of parameters (see `with_values`), and the suffix of each table's parameters.

    Raises RulesError, and UsageError for values that the template rejects.
    """
    deployment = Deployment(str(rules), Program.from_document(load(rules).document()), existing, notify=notify)
    template = with_values(cloudformation_template(deployment), chosen)
    return template, template.pop("Metadata")[NOTES]["Tables"]
