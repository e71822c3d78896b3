"""Patterns of `where` and `match`: EventBridge's language on DynamoDB items."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from projections.language.keys import Value
from projections.testing.oracle.scope import walk
from projections.testing.oracle.values import number, wire

__all__ = ["Pattern", "pattern"]

Look: TypeAlias = Callable[[str], Value | None]
Pattern: TypeAlias = Callable[[Look], bool]
_Test: TypeAlias = Callable[[Value | None], bool]

_COMPARE = {"<": operator.lt, "<=": operator.le, "=": operator.eq, ">=": operator.ge, ">": operator.gt}


def pattern(document: Mapping[str, Any] | None) -> Pattern:
    """The test that a pattern is; None fits everything. It asks `look` for the value of each name."""
    tests = [_field(name, form) for name, form in (document or {}).items()]
    return lambda look: all(test(look) for test in tests)


def _field(name: str, form: Any) -> Pattern:
    if name == "$or":
        either = [pattern(alternative) for alternative in form]
        return lambda look: any(fits(look) for fits in either)
    if isinstance(form, Mapping):
        nested = pattern(form)
        return lambda look: _inside(nested, look(name))
    alternatives = [_alternative(one) for one in (form if isinstance(form, list) else [form])]
    return lambda look: _any(alternatives, look(name))


def _any(alternatives: list[_Test], value: Value | None) -> bool:
    return any(test(value) for test in alternatives)


def _inside(nested: Pattern, value: Value | None) -> bool:
    """A pattern below an attribute: of a list, some one map fits it whole."""
    if value is not None and "L" in value:
        return any(_inside(nested, element) for element in value["L"])
    return nested(lambda name: None if value is None else walk(value, name.split(".")))


def _leaves(value: Value | None) -> list[Value]:
    """Return the scalars of an attribute: those of a list or set, or its own; a map has none."""
    if value is None or "M" in value:
        return []
    ((kind, content),) = value.items()
    if kind == "L":
        return [leaf for element in content for leaf in _leaves(element)]
    return [{kind[0]: member} for member in content] if kind in ("SS", "NS", "BS") else [value]


def _alternative(form: Any) -> _Test:
    if not isinstance(form, Mapping):
        return lambda value: any(_equal(leaf, form) for leaf in _leaves(value))
    ((name, argument),) = form.items()
    if name == "exists":
        return lambda value: (value is not None) == argument
    if name == "anything-but":
        test = _one_of(argument)
        return lambda value: value is not None and not any(test(leaf) for leaf in _leaves(value))
    test = _numeric(argument) if name == "numeric" else _operator(name, argument)
    return lambda value: any(test(leaf) for leaf in _leaves(value))


def _equal(leaf: Value, constant: Any) -> bool:
    wanted = wire(constant)
    if "N" in leaf and "N" in wanted:
        return number(leaf) == number(wanted)
    return dict(leaf) == wanted


def _as_it_is(text: str) -> str:
    return text


def _operator(name: str, argument: Any) -> Callable[[Value], bool]:
    if isinstance(argument, list):
        each = [_operator(name, one) for one in argument]
        return lambda leaf: any(test(leaf) for test in each)
    change: Callable[[str], str] = _as_it_is
    if name == "equals-ignore-case" or isinstance(argument, Mapping):  # as in {prefix: {equals-ignore-case: x}}
        change = str.casefold
    wanted = change(argument["equals-ignore-case"] if isinstance(argument, Mapping) else argument)
    if name == "equals-ignore-case":
        return lambda leaf: "S" in leaf and change(leaf["S"]) == wanted
    if name == "prefix":
        return lambda leaf: "S" in leaf and change(leaf["S"]).startswith(wanted)
    if name == "suffix":
        return lambda leaf: "S" in leaf and change(leaf["S"]).endswith(wanted)
    raise ValueError(f"unknown operator {name}")


def _one_of(argument: Any) -> Callable[[Value], bool]:
    """What `anything-but` excludes."""
    if isinstance(argument, Mapping):
        ((name, inner),) = argument.items()
        return _operator(name, inner)
    constants = argument if isinstance(argument, list) else [argument]
    return lambda leaf: any(_equal(leaf, constant) for constant in constants)


def _numeric(bounds: list[Any]) -> Callable[[Value], bool]:
    pairs = [(_COMPARE[sign], Decimal(str(bound))) for sign, bound in zip(bounds[::2], bounds[1::2], strict=True)]
    return lambda leaf: "N" in leaf and all(holds(number(leaf), bound) for holds, bound in pairs)
