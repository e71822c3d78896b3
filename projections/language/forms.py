"""The types of a rule's parts: texts with a syntax, and values with several forms.

`shapes` checks them; this module makes pydantic types with a JSON Schema of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PlainValidator,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from projections.language.contribution import ELEMENTS, MOST_ELEMENTS
from projections.language.mistakes import Mistake
from projections.language.shapes import (
    check_attribute_list,
    check_by,
    check_case_list,
    check_computed,
    check_condition,
    check_constant,
    check_copied,
    check_each,
    check_entities,
    check_expression,
    check_index_key,
    check_match,
    check_measure,
    check_names_template,
    check_order,
    check_path,
    check_pattern,
    check_sources,
    check_table_key,
    check_template,
    each_named,
    in_quotes,
    match_named,
    shown,
    sources_named,
)
from projections.language.syntax import name_of


def _plain(name: str) -> str:
    """Raise PydanticCustomError for a name in quotes: the attribute of that name would have the quotes in it."""
    if found := in_quotes(name):
        raise PydanticCustomError("name", "{message}", {"message": found})
    return name


AttributeName = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(_plain)]


@dataclass(frozen=True, slots=True)
class TextForm:
    """The constraint that a pattern matches a text. `words` begin the message for another text."""

    pattern: str
    words: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._checked, handler(source))

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}

    def _checked(self, text: str) -> str:
        if re.fullmatch(self.pattern, text) is None:
            raise PydanticCustomError("form", "{words}, found {found}", {"words": self.words, "found": shown(text)})
        return text


_NAME = {"type": "string", "minLength": 1, "maxLength": 255}
_PATH = {"type": "string", "minLength": 1}
_NAMES_TEMPLATE = {
    "type": "string",
    "minLength": 1,
    "description": "Literal text and `{variable}`, with pipes as in `{score|pad(8)}`.",
}
_TEMPLATE = {
    **_NAMES_TEMPLATE,
    "description": "Literal text and `{variable}`, with pipes as in `{score|pad(8)}`, or `{qty * price}`.",
}
_PATTERN = {"x-ref": "Pattern"}
_LIST = {"type": "array", "items": _NAME, "minItems": 1, "uniqueItems": True}
_TYPED = {"type": "object", "additionalProperties": {"enum": ["S", "N", "B"]}, "minProperties": 1}
_MAP = {"type": "object", "additionalProperties": _PATH}
_SEVERAL = {"anyOf": [_NAME, {**_LIST, "maxItems": 4}, {**_TYPED, "maxProperties": 4}]}
_PROJECTED = {
    "anyOf": [{"enum": ["all", "keys_only"]}, _LIST],
    "default": "all",
    "description": "The attributes of an item that the index returns, besides keys.",
}
_LOCAL = {
    "type": "boolean",
    "default": False,
    "description": "It has the partition key of the table, and sorts by one other attribute.",
}


def _checked(check: Callable[[Any], list[Mistake]], converted: Callable[[Any], Any] | None = None) -> PlainValidator:
    """Return a validator that raises all mistakes of a value at once, each with its place in the value.

    Without mistakes, the value is `converted`: to one with names (see `syntax`) instead of paths as they are written.
    """

    def validate(value: Any) -> Any:
        mistakes = check(value)
        if mistakes:
            text = "; ".join(mistake.message for mistake in mistakes)
            raise PydanticCustomError("forms", "{message}", {"message": text, "mistakes": mistakes})
        return value if converted is None else converted(value)

    return PlainValidator(validate)


_CASE = {"type": "object", "additionalProperties": _TEMPLATE, "minProperties": 1}
_MEASURE = {"x-ref": "Measure"}

TemplateText = Annotated[str, _checked(check_template), WithJsonSchema(_TEMPLATE)]
NamesTemplateText = Annotated[str, _checked(check_names_template), WithJsonSchema(_NAMES_TEMPLATE)]
ConstantForm = Annotated[
    Any, _checked(check_constant), WithJsonSchema({"description": "Text is a template; anything else a constant."})
]
ExpressionText = Annotated[str, _checked(check_expression), WithJsonSchema(_PATH)]
PathText = Annotated[str, _checked(check_path, name_of), WithJsonSchema(_PATH)]
PatternForm = Annotated[dict[str, Any], _checked(check_pattern), WithJsonSchema(_PATTERN)]
KeyForm = Annotated[
    list[str] | dict[str, str],
    _checked(check_table_key),
    WithJsonSchema({"anyOf": [{**_LIST, "maxItems": 2}, {**_TYPED, "maxProperties": 2}]}),
]
IndexForm = Annotated[
    list[str] | dict[str, Any],
    _checked(check_index_key),
    WithJsonSchema(
        {
            "anyOf": [
                {**_LIST, "maxItems": 2},
                {**_TYPED, "maxProperties": 2},
                {
                    "type": "object",
                    "properties": {"partition": _SEVERAL, "sort": _SEVERAL, "projection": _PROJECTED, "local": _LOCAL},
                    "anyOf": [
                        {"required": ["partition"], "properties": {"local": {"const": False}}},
                        {"required": ["sort", "local"], "properties": {"partition": False, "local": {"const": True}}},
                    ],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
AttributesForm = Annotated[
    list[str] | dict[str, str], _checked(check_attribute_list), WithJsonSchema({"anyOf": [_LIST, _MAP]})
]
CopyForm = Annotated[
    list[str] | dict[str, str] | Literal["all"],
    _checked(check_copied),
    WithJsonSchema({"anyOf": [{**_LIST, "minItems": 0}, _MAP, {"const": "all"}]}),
]
_EACH = {
    "type": "object",
    "properties": {
        "most": {
            "type": "integer",
            "minimum": 1,
            "maximum": MOST_ELEMENTS,
            "default": ELEMENTS,
            "description": "How many elements one item may have; with more, it contributes nothing and is quarantined.",
        }
    },
    "anyOf": [
        {"minProperties": 1, "maxProperties": 1, "properties": {"most": False}},
        {"minProperties": 2, "maxProperties": 2, "required": ["most"]},
    ],
    "additionalProperties": {
        "anyOf": [
            _PATH,
            {
                "type": "object",
                "properties": {
                    "ancestors": {**_PATH, "description": "The path of a text such as /a/b/c."},
                    "separator": {"type": "string", "minLength": 1, "default": "/"},
                },
                "required": ["ancestors"],
                "additionalProperties": False,
            },
        ]
    },
}
EachForm = Annotated[dict[str, Any], _checked(check_each, each_named), WithJsonSchema(_EACH)]
_SOURCE = {
    "type": "object",
    "description": "The `where`, `bind` and `each` of this source, which replace those of the rule.",
    "properties": {
        "where": _PATTERN,
        "bind": {"type": "object", "additionalProperties": _TEMPLATE},
        "each": _EACH,
    },
    "additionalProperties": False,
}
SourcesForm = Annotated[
    str | list[str] | dict[str, dict[str, Any]],
    _checked(check_sources, sources_named),
    WithJsonSchema(
        {
            "anyOf": [
                _NAME,
                {**_LIST, "minItems": 1},
                {"type": "object", "additionalProperties": _SOURCE, "minProperties": 1},
            ]
        }
    ),
]
CaseForm = Annotated[
    dict[str, str] | list[dict[str, Any]],
    _checked(check_case_list),
    WithJsonSchema(
        {"anyOf": [_CASE, {"type": "array", "minItems": 1, "items": {**_CASE, "properties": {"where": _PATTERN}}}]}
    ),
]
_COMPUTED_CASE = {
    "anyOf": [
        {"type": "string", "minLength": 1},
        {
            "type": "object",
            "properties": {"value": {"type": "string", "minLength": 1}, "constant": {}, "where": _PATTERN},
            "anyOf": [{"required": ["value"]}, {"required": ["constant"]}],
            "additionalProperties": False,
        },
    ]
}
ComputedForm = Annotated[
    str | dict[str, Any] | list[Any],
    _checked(check_computed),
    WithJsonSchema({"anyOf": [*_COMPUTED_CASE["anyOf"], {"type": "array", "minItems": 1, "items": _COMPUTED_CASE}]}),
]
MatchForm = Annotated[
    dict[str, str],
    _checked(check_match, match_named),
    WithJsonSchema({"type": "object", "additionalProperties": _NAMES_TEMPLATE, "minProperties": 1}),
]
MeasureForm = Annotated[str | dict[str, Any], _checked(check_measure), WithJsonSchema(_MEASURE)]
ByForm = Annotated[
    list[str], _checked(check_by), WithJsonSchema({"type": "array", "items": _PATH, "minItems": 1, "uniqueItems": True})
]
EntitiesForm = Annotated[
    str | list[str], _checked(check_entities), WithJsonSchema({"anyOf": [_NAME, {**_LIST, "minItems": 1}]})
]
ConditionForm = Annotated[
    str | dict[str, str],
    _checked(check_condition),
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["absent", "present"]},
                {
                    "type": "object",
                    "properties": {"unchanged": _NAME},
                    "required": ["unchanged"],
                    "additionalProperties": False,
                },
            ]
        }
    ),
]
OrderForm = Annotated[
    str, _checked(check_order), WithJsonSchema({"type": "string", "pattern": r"^(asc|desc|\S.*( (asc|desc))?)$"})
]
