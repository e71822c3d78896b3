"""Expressions and patterns.

An expression is arithmetic over the values of a source item, evaluated from the text by precedence climbing. Patterns of
`where` and `match` are the language of Lambda's filters on items. Only `exists` and `null` see a NULL.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact
from typing import Any, TypeAlias

from projections.language.keys import Value
from projections.testing.oracle.scalar import EXACT, Missing, Scope, Unfit, number, plain, storable, wire

_QUOTED = r"""'(?:[^']|'')*'|"(?:[^"]|"")*\""""
_BARE = r"""[^\s()*/+,.'"-][^\s()*/+,.'"]*"""
_TOKEN = re.compile(
    rf"\s*((?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?![\w.])|(?:{_QUOTED}|{_BARE})(?:\.(?:{_QUOTED}|{_BARE}))*|[-+*/(),])"
)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2}
_DIVISION = Context(prec=38, rounding=ROUND_HALF_EVEN, Emin=-9999, Emax=9999)
_ROUNDING = Context(prec=1000, rounding=ROUND_HALF_EVEN, Emin=-9999, Emax=9999)

_Compute = Callable[[Scope], Value]


class _Clash(Exception):
    """A name has two values on an item: the expression is not evaluated any further."""


@dataclass(frozen=True, slots=True)
class Expression:
    """An expression; `is_text` if it is `text(…)`, or a choice among such."""

    compute: _Compute
    is_text: bool

    @classmethod
    def parse(cls, source: str) -> Expression:
        tokens = [token[1] for token in _TOKEN.finditer(source)]
        reader = _Reader(tokens)
        return cls(reader.expression(0), reader.kinds == {"text"})

    def value(self, scope: Scope) -> Value:
        """The value in wire form. Raises Missing and Unfit."""
        try:
            computed = self.compute(scope)
        except _Clash as clash:
            raise Unfit(str(clash)) from None
        if "N" not in computed:
            return computed
        result = _DIVISION.plus(Decimal(computed["N"]))
        if not storable(result):
            raise Unfit(f"beyond 38 digits: {result}")
        return {"N": plain(result)}

    def number(self, scope: Scope) -> Decimal:
        """The value as a number. Raises Missing and Unfit."""
        return number(self.value(scope))


class _Reader:
    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self.kinds: set[str] = set()
        """What has been read: text, and anything else."""

    def _next(self) -> str:
        return self._tokens.pop(0)

    def _peek(self) -> str:
        return self._tokens[0] if self._tokens else ""

    def expression(self, least: int) -> _Compute:
        left = self._one()
        while _STRENGTH.get(self._peek(), 0) > least:
            sign = self._next()
            left = _calculate(_BINARY[sign], (left, self.expression(_STRENGTH[sign])))
        return left

    def _one(self, in_choice: bool = False) -> _Compute:
        token = self._next()
        if token == "-":
            self.kinds.add("number")
            return _calculate(lambda values: EXACT.minus(values[0]), (self._one(),))
        if token == "(":
            inner = self.expression(0)
            self._next()
            return inner
        if self._peek() == "(":
            return self._function(token)
        if token[0] in "'\"":
            self.kinds.add("text" if in_choice else "any")
            return (lambda scope: {"S": token[1:-1]}) if in_choice else _path(token)
        self.kinds.add("any")
        return (lambda scope: {"N": plain(Decimal(token))}) if _NUMBER.fullmatch(token) else _path(token)

    def _function(self, name: str) -> _Compute:
        arguments: list[_Compute] = []
        self.kinds.add({"text": "text", "coalesce": "text"}.get(name, "number"))
        if name in ("number", "text"):
            _, token, _ = self._next(), self._next(), self._next()
            return _convert(name, _path(token))
        while self._next() != ")":
            if name == "coalesce" and self._peek()[:1] in ("'", '"'):
                arguments.append(self._one(in_choice=True))
            elif name == "round" and arguments:
                places = int(self._next() + (self._next() if self._peek() not in (")",) else ""))
                self._next()
                return _calculate(_round(places), arguments)
            else:
                arguments.append(self.expression(0))
        if name == "coalesce":
            return _first(arguments)
        return _calculate(_FUNCTIONS[name], arguments)


def _path(name: str) -> _Compute:
    def value(scope: Scope) -> Value:
        try:
            return scope.need(name)
        except Unfit as clash:
            raise _Clash(str(clash)) from None

    return value


def _convert(name: str, path: _Compute) -> _Compute:
    def value(scope: Scope) -> Value:
        operand = path(scope)
        if name == "text":
            if "S" not in operand:
                raise Unfit(f"not a text: {operand}")
            return operand
        if "N" in operand:
            return operand
        if "S" in operand and _NUMBER.fullmatch(operand["S"].strip()) and storable(Decimal(operand["S"].strip())):
            return {"N": plain(Decimal(operand["S"].strip()))}
        raise Unfit(f"not a number: {operand}")

    return value


def _first(choices: Sequence[_Compute]) -> _Compute:
    def value(scope: Scope) -> Value:
        for choice in choices:
            try:
                return choice(scope)
            except Missing:
                continue
        raise Missing("every one of them")

    return value


def _calculate(apply: Callable[[list[Decimal]], Decimal], operands: Sequence[_Compute]) -> _Compute:
    """A number from numbers; what is missing comes before what does not fit."""

    def value(scope: Scope) -> Value:
        values, wrong = [], []
        for operand in operands:
            try:
                values.append(number(operand(scope)))
            except Unfit as unfit:
                wrong.append(unfit)
        if wrong:
            raise wrong[0]
        try:
            return {"N": plain(apply(values))}
        except Inexact:
            raise Unfit("beyond 1000 digits") from None

    return value


def _divide(values: list[Decimal]) -> Decimal:
    if not values[1]:
        raise Missing("a quotient by zero")
    return _DIVISION.divide(values[0], values[1])


def _round(places: int) -> Callable[[list[Decimal]], Decimal]:
    def apply(values: list[Decimal]) -> Decimal:
        scaled = _ROUNDING.scaleb(values[0], places)
        return _ROUNDING.scaleb(scaled.to_integral_value(ROUND_HALF_EVEN), -places)

    return apply


_BINARY: dict[str, Callable[[list[Decimal]], Decimal]] = {
    "+": lambda values: EXACT.add(values[0], values[1]),
    "-": lambda values: EXACT.subtract(values[0], values[1]),
    "*": lambda values: EXACT.multiply(values[0], values[1]),
    "/": _divide,
}
_FUNCTIONS: dict[str, Callable[[list[Decimal]], Decimal]] = {
    "min": min,
    "max": max,
    "abs": lambda values: EXACT.abs(values[0]),
    "round": _round(0),
}


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
        if isinstance(form[0], list):
            several = [_field(name, each) for each in form]
            return lambda look, item: all(test(look, item) for test in several)
        either = [_fields(alternative) for alternative in form]
        return lambda look, item: any(fits(look, item) for fits in either)
    if isinstance(form, Mapping) and not form.keys() <= _SIGNS.keys():
        nested = _fields(form)
        return lambda look, item: nested(lambda step: look(f"{name}.{step}"), item)
    alternatives = [_alternative(choice) for choice in (form if isinstance(form, list) else [form])]
    others = [other for choice in (form if isinstance(form, list) else [form]) for other in _others(choice)]

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
    match = re.fullmatch(r"\{([^{}]+)\}", operand) if isinstance(operand, str) else None
    return None if match is None else match[1].strip()


def _compares(form: Mapping[str, Any]) -> _Test:
    """Comparisons that must all hold for one element."""

    def test(value: Value | None, item: Look) -> bool:
        wanted = []
        for sign, operand in form.items():
            name = _name(operand)
            text = operand.replace("{{", "{").replace("}}", "}") if isinstance(operand, str) else operand
            wanted.append((_SIGNS[sign], wire(text) if name is None else item(name)))
        return any(all(_compare(leaf, operand, holds) for holds, operand in wanted) for leaf in _leaves(value))

    return test


def _compare(leaf: Value, operand: Value | None, holds: Callable[[Any, Any], bool]) -> bool:
    if operand is None:
        return False
    if "N" in leaf and "N" in operand:
        return bool(holds(number(leaf), number(operand)))
    return "S" in leaf and "S" in operand and bool(holds(leaf["S"].encode(), operand["S"].encode()))


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


def _operator(name: str, argument: Any) -> Callable[[Value], bool]:
    if isinstance(argument, list):
        each = [_operator(name, alternative) for alternative in argument]
        return lambda leaf: any(test(leaf) for test in each)
    change: Callable[[str], str] = str
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
        ((name, operand),) = argument.items()
        return _operator(name, operand)
    constants = argument if isinstance(argument, list) else [argument]
    return lambda leaf: any(_equal(leaf, constant) for constant in constants)


def _numeric(bounds: list[Any]) -> Callable[[Value], bool]:
    pairs = [(_COMPARE[sign], Decimal(str(bound))) for sign, bound in zip(bounds[::2], bounds[1::2], strict=True)]
    return lambda leaf: "N" in leaf and all(holds(number(leaf), bound) for holds, bound in pairs)
