"""The type of the values that `min` and `max` compare: numbers or text, declared in the rule or inferred from it.

Numbers and text have no meaningful common order, so each measure takes one type. Values of the other type are bad input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from projections.language.arithmetic import Expression
from projections.language.binding import each_variable, key_variables
from projections.language.measures import Measure
from projections.language.models import Projection, Rules
from projections.language.patterns import Pattern, Test, compared_type
from projections.language.shapes import key_attributes
from projections.language.templates import Template

__all__ = ["declaration", "extreme_type"]


def extreme_type(rules: Rules, rule: Projection, measure: Measure) -> Literal["N", "S"] | None:
    """Return the type of a `min` or `max`: `N`, `S`, or None if it is unknown or not the same for all sources."""
    types = {_type_of(rules, variant, measure) for variant in rule.variants}
    return types.pop() if len(types) == 1 else None


def _type_of(rules: Rules, rule: Projection, measure: Measure) -> Literal["N", "S"] | None:
    """Return the type of a `min` or `max` of the items of one source."""
    expression = measure.expression
    assert expression is not None
    if expression.is_text:
        return "S"
    path = expression.path
    if path is None:
        return "N"
    if path != each_variable(rule) and path in key_variables(rules.entities[rule.source]):
        return _of_variable(rules, rule.source, path)
    where = [rule.where, None if measure.where is None else measure.where.document]
    return "N" if any(_compared_as_number(pattern, path) for pattern in where) else None


def declaration(measure: Measure) -> str:
    """Return what to write if the type is unknown: `max(number(x)) to compare numbers, or …`."""
    expression = measure.expression
    assert isinstance(expression, Expression)
    written = expression.text.strip()
    number, text = (f"{measure.function}({kind}({written}))" for kind in ("number", "text"))
    return f"{number} to compare numbers, or {text} to compare text"


def _of_variable(rules: Rules, entity: str, variable: str) -> Literal["N", "S"] | None:
    """Return the type of a key variable; None for binary keys, which cannot be compared."""
    table = rules.all_tables[rules.table_of(entity) or ""]
    types: dict[str, Literal["N", "S"]] = {"N": "N", "S": "S"}
    for attribute, kind in key_attributes(table.key):
        if variable in Template.parse(rules.entities[entity].key[attribute]).names:
            return types.get(kind)
    return None


def _compared_as_number(pattern: Mapping[str, Any] | None, path: str) -> bool:
    """Return whether items match a pattern only if `path` is a number that is compared with others."""
    return any(
        isinstance(test, Test) and test.name == path and all(compared_type(one) == "N" for one in test.alternatives)
        for test in Pattern.parse(pattern or {}).conditions
    )
