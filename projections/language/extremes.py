"""The type of what `min` and `max` compare: numbers or text, as the rule declares it or lets it be inferred.

Numbers and text have no common order that means anything, so each measure takes one type; values of the other one are bad
input.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from projections.language.binding import each_variable, key_variables
from projections.language.expressions import Expression, Measure
from projections.language.models import Projection, Rules
from projections.language.patterns import Numeric, Pattern, Test
from projections.language.shapes import key_attributes
from projections.language.templates import Template

__all__ = ["declaration", "extreme_type"]


def extreme_type(rules: Rules, rule: Projection, measure: Measure) -> Literal["N", "S"] | None:
    """The type of a `min` or `max`: `N`, `S`, or None if the rule leaves it open."""
    expression = measure.expression
    assert expression is not None
    if expression.is_text:
        return "S"
    path = expression.path
    if path is None:
        return "N"
    if path != each_variable(rule) and path in key_variables(rules.entities[rule.from_]):
        return _of_variable(rules, rule.from_, path)
    where = [rule.where, None if measure.where is None else measure.where.document]
    return "N" if any(_compared_as_number(pattern, path) for pattern in where) else None


def declaration(measure: Measure) -> str:
    """What to write where the type is open: `max(text(x)) or max(number(x))`."""
    expression = measure.expression
    assert isinstance(expression, Expression)
    written = expression.text.strip()
    number, text = (f"{measure.function}({kind}({written}))" for kind in ("number", "text"))
    return f"{number} to compare numbers, or {text} to compare text"


def _of_variable(rules: Rules, entity: str, variable: str) -> Literal["N", "S"] | None:
    """The type of a key variable: of binary keys there is none that can be compared."""
    table = rules.all_tables[rules.table_of(entity) or ""]
    types: dict[str, Literal["N", "S"]] = {"N": "N", "S": "S"}
    for attribute, kind in key_attributes(table.key):
        if variable in Template.parse(rules.entities[entity].key[attribute]).names:
            return types.get(kind)
    return None


def _compared_as_number(pattern: Mapping[str, Any] | None, path: str) -> bool:
    """Whether items fit a pattern only if `path` is a number in a range."""
    return any(
        isinstance(test, Test) and test.name == path and all(isinstance(one, Numeric) for one in test.alternatives)
        for test in Pattern.parse(pattern or {}).conditions
    )
