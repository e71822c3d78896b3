"""The JSON Schema of a rule file, for editors: completion, descriptions, and typical mistakes."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from projections.language.forms import closed
from projections.language.measures import FUNCTIONS, MOST_DIGITS, PICKED, ROUNDED, SHORT_FORMS, TYPED
from projections.language.models import ACTIONS, Rules

_SCALAR = {"type": ["string", "number", "boolean", "null"]}
_COMPARISON = {"enum": ["=", "<", "<=", ">", ">="]}
_TEXTS = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]}
_AFFIXES = [{"type": "string"}, {"$ref": "#/$defs/IgnoreCase"}]

_OPERATORS: dict[str, JsonSchemaValue] = {
    "exists": {"type": "boolean", "description": "Whether the attribute exists."},
    "prefix": {"description": "The text begins with this.", "anyOf": _AFFIXES},
    "suffix": {"description": "The text ends with this.", "anyOf": _AFFIXES},
    "equals-ignore-case": {"type": "string", "description": "The same text in any case."},
    "anything-but": {
        "description": "Any value except these, or text without these prefixes or suffixes.",
        "anyOf": [
            _SCALAR,
            {"type": "array", "items": _SCALAR, "minItems": 1},
            closed(dict.fromkeys(("prefix", "suffix", "equals-ignore-case"), _TEXTS), minProperties=1, maxProperties=1),
        ],
    },
    "numeric": {
        "type": "array",
        "description": 'A comparison, such as `[">=", 4]`, or a range, such as `[">", 0, "<=", 5]`.',
        "prefixItems": [_COMPARISON, {"type": "number"}, _COMPARISON, {"type": "number"}],
        "items": False,
        "minItems": 2,
        "maxItems": 4,
    },
}

_COMPARISONS: JsonSchemaValue = {
    "type": "object",
    "description": 'Comparisons that must all hold: `{">=": 1, "<": 5}`, `{"<": "2026-01-01"}`, or with another value of '
    'the item, `{">=": "{lessons}"}`.',
    "properties": {
        sign: {"type": ["string", "number"], "description": f"The value {words} this number, text, or `{{name}}`."}
        for sign, words in {
            "<": "is less than",
            "<=": "is at most",
            ">": "is greater than",
            ">=": "is at least",
            "=": "equals",
            "!=": "has the type of, and differs from,",
        }.items()
    },
    "minProperties": 1,
    "additionalProperties": False,
}

_OPERATOR = closed(_OPERATORS, minProperties=1, maxProperties=1)

_ALTERNATIVES = {
    "description": "A value, or a list of alternatives: values and operators.",
    "anyOf": [
        _SCALAR,
        {
            "type": "array",
            "items": {"anyOf": [_SCALAR, {"$ref": "#/$defs/Operator"}, {"$ref": "#/$defs/Comparisons"}]},
            "minItems": 1,
        },
        {"$ref": "#/$defs/Comparisons"},
        {
            "$ref": "#/$defs/Pattern",
            "propertyNames": {"not": {"enum": [*_OPERATORS, *_COMPARISONS["properties"]]}},
            "minProperties": 1,
        },
    ],
}

_PATTERN = {
    "type": "object",
    "description": "Attribute → alternatives (the language of Lambda's filters). An item must match all attributes.",
    "properties": {
        "$or": {
            "type": "array",
            "description": "Patterns of which at least one must match.",
            "items": {"$ref": "#/$defs/Pattern"},
            "minItems": 1,
        }
    },
    "additionalProperties": _ALTERNATIVES,
}

_EXPRESSION = {"type": "string", "minLength": 1}


def _long_form(function: str) -> JsonSchemaValue:
    """Return the schema of `{sum: total, where: {…}}`. A count has no expression, so it may contain the pattern."""
    where: JsonSchemaValue = {
        "$ref": "#/$defs/Pattern",
        "description": "Only source items that match this pattern contribute to this measure.",
    }
    if function == "count":
        inside = closed({"where": where}, required=["where"])
        count = {"description": "The number of source items.", "anyOf": [inside, {"const": True}]}
        properties: JsonSchemaValue = {"count": count, "where": where}
    else:
        properties = {
            function: {**_EXPRESSION, "description": f"{_WORDS[function]} {_forms(function)}."},
            "where": where,
        }
    required = [function]
    if function in ROUNDED:
        properties["round"] = _DIGITS
    if function in PICKED:
        properties["by"] = {**_EXPRESSION, "description": "The path of the value that orders the items."}
        required.append("by")
    return closed(properties, required=required)


_WORDS = {
    "sum": "The sum of",
    "avg": "The average of",
    "min": "The least",
    "max": "The greatest",
    "first": "Of the item with the least `by`:",
    "distinct": "The number of different values of",
    "counts": "A map from value to the number of contributions, of",
    "values": "The set of values, of",
    "last": "Of the item with the greatest `by`:",
}
_DIGITS = {
    "type": "integer",
    "minimum": 0,
    "maximum": MOST_DIGITS,
    "description": "The digits after the decimal point that are published; the ledger keeps the exact amount.",
}


def _forms(function: str) -> str:
    if function in PICKED:
        return "the value at a path, of any type"
    if function in TYPED:
        return "number(path), text(path), or a calculation such as qty * price"
    return "a path, number(path), or a calculation such as qty * price"


_MEASURE = {
    "description": f"{', '.join(f'`{form}`' for form in SHORT_FORMS)}, or a mapping with a `where` of its own.",
    "anyOf": [
        {"type": "string", "pattern": rf"^\s*(count|({'|'.join(FUNCTIONS[1:])})\s*\(.+\))\s*$"},
        *map(_long_form, FUNCTIONS),
    ],
}

_IGNORE_CASE = closed({"equals-ignore-case": {"type": "string"}}, required=["equals-ignore-case"])


class _ForFiles(GenerateJsonSchema):
    """Return a schema without null: in a file, optional parts are left out."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        if schema.get("default", {}) in (None, {}, [], ""):
            return self.generate_inner(schema["schema"])
        return super().default_schema(schema)

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of rule files."""
    schema = _referring(Rules.model_json_schema(schema_generator=_ForFiles))
    definitions = schema.pop("$defs")
    definitions |= {
        "Comparisons": _COMPARISONS,
        "IgnoreCase": _IGNORE_CASE,
        "Measure": _MEASURE,
        "Operator": _OPERATOR,
        "Pattern": _PATTERN,
    }
    del definitions["Index"]["title"]  # it is a list
    definitions["Projection"]["oneOf"] = [{"required": [kind]} for kind in ACTIONS]
    for kind, action in ACTIONS.items():
        definitions["Projection"]["properties"][kind]["description"] = definitions[action.__name__]["description"]
    schema.pop("required")  # a file may have any of the parts: others include it
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "Projections for DynamoDB",
        "not": {"required": ["table", "tables"]},
        "$defs": dict(sorted(definitions.items())),
    }


def _referring(schema: Any) -> Any:
    """Return a schema with references to our own definitions (`x-ref` in `forms`) and patterns of names."""
    if isinstance(schema, list):
        return [_referring(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    if "patternProperties" in schema:
        schema = {**schema, "additionalProperties": False}
    return {
        "$ref" if name == "x-ref" else name: f"#/$defs/{part}" if name == "x-ref" else _referring(part)
        for name, part in schema.items()
    }
