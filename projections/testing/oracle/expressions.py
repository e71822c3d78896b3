"""Expressions: arithmetic over the values of a source item, evaluated from the text by precedence climbing."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, Inexact

from projections.language.keys import Value
from projections.testing.oracle.values import EXACT, Missing, Scope, Unfit, number, plain, storable

__all__ = ["Expression"]

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
            found = self.compute(scope)
        except _Clash as clash:
            raise Unfit(str(clash)) from None
        if "N" not in found:
            return found
        result = _DIVISION.plus(Decimal(found["N"]))
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
            left = _calculated(_BINARY[sign], (left, self.expression(_STRENGTH[sign])))
        return left

    def _one(self, in_choice: bool = False) -> _Compute:
        token = self._next()
        if token == "-":
            self.kinds.add("number")
            return _calculated(lambda values: EXACT.minus(values[0]), (self._one(),))
        if token == "(":
            inner = self.expression(0)
            self._next()
            return inner
        if self._peek() == "(":
            return self._function(token)
        if token[0] in "'\"":
            self.kinds.add("text" if in_choice else "any")
            return _text(token[1:-1]) if in_choice else _path(token)
        self.kinds.add("any")
        return _constant(token) if _NUMBER.fullmatch(token) else _path(token)

    def _function(self, name: str) -> _Compute:
        arguments: list[_Compute] = []
        self.kinds.add({"text": "text", "coalesce": "text"}.get(name, "number"))
        if name in ("number", "text"):
            _, token, _ = self._next(), self._next(), self._next()
            return _converted(name, _path(token))
        while self._next() != ")":
            if name == "coalesce" and self._peek()[:1] in ("'", '"'):
                arguments.append(self._one(in_choice=True))
            elif name == "round" and arguments:
                places = int(self._next() + (self._next() if self._peek() not in (")",) else ""))
                self._next()
                return _calculated(_round(places), arguments)
            else:
                arguments.append(self.expression(0))
        if name == "coalesce":
            return _first(arguments)
        return _calculated(_FUNCTIONS[name], arguments)


def _path(name: str) -> _Compute:
    def value(scope: Scope) -> Value:
        try:
            return scope.need(name)
        except Unfit as clash:
            raise _Clash(str(clash)) from None

    return value


def _text(text: str) -> _Compute:
    return lambda scope: {"S": text}


def _constant(token: str) -> _Compute:
    return lambda scope: {"N": plain(Decimal(token))}


def _converted(name: str, path: _Compute) -> _Compute:
    def value(scope: Scope) -> Value:
        found = path(scope)
        if name == "text":
            if "S" not in found:
                raise Unfit(f"not a text: {found}")
            return found
        if "N" in found:
            return found
        if "S" in found and _NUMBER.fullmatch(found["S"].strip()) and storable(Decimal(found["S"].strip())):
            return {"N": plain(Decimal(found["S"].strip()))}
        raise Unfit(f"not a number: {found}")

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


def _calculated(apply: Callable[[list[Decimal]], Decimal], inner: Sequence[_Compute]) -> _Compute:
    """A number from numbers; what is missing comes before what does not fit."""

    def value(scope: Scope) -> Value:
        values, wrong = [], []
        for one in inner:
            try:
                values.append(number(one(scope)))
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
