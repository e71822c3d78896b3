"""Patterns of `where` and `match`: the language of Lambda's filters on items. Only `exists` and `null` see a NULL."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

from projections.language.keys import Value
from projections.testing.oracle.values import number, wire

__all__ = ["Pattern", "pattern"]

Look: TypeAlias = Callable[[str], Value | None]
Pattern: TypeAlias = Callable[[Look], bool]
_Test: TypeAlias = Callable[[Value | None, Look], bool]
"""Whether a value fits. The second argument looks up other values of the item."""

_COMPARE = {"<": operator.lt, "<=": operator.le, "=": operator.eq, ">=": operator.ge, ">": operator.gt}
_SIGNS = {**_COMPARE, "!=": operator.ne}


def pattern(document: Mapping[str, Any] | None) -> Pattern:
    """The test that a pattern is; None fits everything. It asks `look` for the value of each name."""
    fits = _fields(document or {})
    return lambda look: fits(look, look)


def _fields(document: Mapping[str, Any]) -> Callable[[Look, Look], bool]:
    """A pattern below an attribute, or the whole: names are looked up there, compared values in the item.

    A list has no names, only positions: a path through one leads to one element.
    """
    tests = [_field(name, form) for name, form in document.items()]
    return lambda look, item: all(test(look, item) for test in tests)


def _field(name: str, form: Any) -> Callable[[Look, Look], bool]:
    if name == "$or":
        either = [_fields(alternative) for alternative in form]
        return lambda look, item: any(fits(look, item) for fits in either)
    if isinstance(form, Mapping) and not form.keys() <= _SIGNS.keys():
        nested = _fields(form)
        return lambda look, item: nested(lambda inner: look(f"{name}.{inner}"), item)
    alternatives = [_alternative(one) for one in (form if isinstance(form, list) else [form])]
    others = [other for one in (form if isinstance(form, list) else [form]) for other in _others(one)]

    def test(look: Look, item: Look) -> bool:
        value = look(name)
        known = {other: item(other) for other in others}
        return any(alternative(value, known.get) for alternative in alternatives)

    return test


def _others(form: Any) -> list[str]:
    """The names that a comparison compares with."""
    if not isinstance(form, Mapping) or not form.keys() <= _SIGNS.keys():
        return []
    return [name for operand in form.values() if (name := _name(operand)) is not None]


def _name(operand: Any) -> str | None:
    """The name in `{name}`; None for a constant."""
    found = re.fullmatch(r"\{([^{}]+)\}", operand) if isinstance(operand, str) else None
    return None if found is None else found[1].strip()


def _compares(form: Mapping[str, Any]) -> _Test:
    """Comparisons that must all hold for one element."""

    def test(value: Value | None, item: Look) -> bool:
        wanted = []
        for sign, operand in form.items():
            name = _name(operand)
            text = operand.replace("{{", "{").replace("}}", "}") if isinstance(operand, str) else operand
            wanted.append((_SIGNS[sign], wire(text) if name is None else item(name)))
        return any(all(_ordered(leaf, other, holds) for holds, other in wanted) for leaf in _leaves(value))

    return test


def _ordered(leaf: Value, other: Value | None, holds: Callable[[Any, Any], bool]) -> bool:
    if other is None:
        return False
    if "N" in leaf and "N" in other:
        return bool(holds(number(leaf), number(other)))
    return "S" in leaf and "S" in other and bool(holds(leaf["S"].encode(), other["S"].encode()))


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
        return lambda value, item: any(_equal(leaf, form) for leaf in _leaves(value))
    if form.keys() <= _SIGNS.keys():
        return _compares(form)
    ((name, argument),) = form.items()
    if name == "exists":
        return lambda value, item: (value is not None) == argument
    if name == "anything-but":
        test = _one_of(argument)
        return lambda value, item: (
            value is not None and "NULL" not in value and not any(test(leaf) for leaf in _leaves(value))
        )
    test = _numeric(argument) if name == "numeric" else _operator(name, argument)
    return lambda value, item: any(test(leaf) for leaf in _leaves(value))


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
