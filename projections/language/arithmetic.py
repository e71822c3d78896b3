"""Expressions, such as `round(completed / lessons, 2)` or `coalesce(nickname, name)`.

    expression = term, {("+" | "-"), term}
    term       = factor, {("*" | "/"), factor}
    factor     = "-", factor | number | path | function, "(", arguments, ")" | "(", expression, ")"

All arithmetic is decimal. Sums, differences and products are exact; a quotient, and the result of an expression, are rounded
half-even to 38 digits. An expression has no value if a value that it needs is missing, even if another one is wrong, and
none if it divides by zero.

A path, which most expressions are, compiles to a function of its own, because it runs for every record.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Decimal
from functools import cached_property
from math import prod
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

from projections.errors import BadInput
from projections.language.syntax import BRACES, PATH, LanguageError, name_of, suggest, written_path
from projections.language.values import EXACT, Resolver, Value, number_text, shown

CONVERSIONS = ("number", "text")
"""Functions of one path."""
OPERATIONS = ("round", "min", "max", "abs", "coalesce")
"""Functions of expressions."""

MOST_STEPS = 100
"""The greatest number of operations, functions and parentheses of an expression: it is evaluated for every record."""
MOST_PLACES = 30

_T = TypeVar("_T")

Takes: TypeAlias = Literal["number", "extreme", "value", "attribute", "template"]
"""What may result: a number; a number or text, as `min` and `max` compare; any value, in `compute`, `attributes` or a
template."""

_LITERAL = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?![\w.])")
_FUNCTION = re.compile(r"([^\W\d]\w*)\s*\(\s*")
_PLACES = re.compile(r"-?[0-9]{1,4}(?![\w.])")
_QUOTES = re.compile(r"""'(?:[^']|'')+'|"(?:[^"]|"")+\"""")
_STORED_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?\s*")
_LIMITS = "38 significant digits and magnitudes from 1E-130 to 9.99E+125"

_STEPS = decimal.Context(
    prec=1000,
    Emin=-9999,
    Emax=9999,
    traps=[decimal.Inexact, decimal.Overflow, decimal.Subnormal, decimal.InvalidOperation],
)
_WIDE = decimal.Context(prec=1000, rounding=ROUND_HALF_EVEN, Emin=-9999, Emax=9999)
_QUOTIENT = decimal.Context(prec=38, rounding=ROUND_HALF_EVEN, Emin=-9999, Emax=9999)


class Factor(NamedTuple):
    """A path; with `from_text` if in `number(…)`, with `as_text` if in `text(…)`."""

    path: str
    from_text: bool = False
    as_text: bool = False


class Constant(NamedTuple):
    """A number, or a text in `coalesce`."""

    value: Decimal | str


class Operation(NamedTuple):
    """`+ - * /`, a function, or `negate`, of one or more expressions; `places` of `round`."""

    name: str
    inner: tuple[Node, ...]
    places: int = 0


Node: TypeAlias = "Factor | Constant | Operation"

Computed: TypeAlias = Decimal | BadInput | None
"""A number; or why there is none, which is returned and not raised, because a missing value comes before a wrong one."""


@dataclass(frozen=True)
class Expression:
    """An expression, as `text` and as a tree."""

    text: str
    node: Node

    @classmethod
    def parse(cls, text: str, takes: Takes = "number") -> Expression:
        """Parse an expression. Raises LanguageError."""
        return cls(text, _Parser(text, takes).parse())

    @cached_property
    def factors(self) -> tuple[Factor, ...]:
        """Every path, in order."""
        return tuple(_factors(self.node))

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The paths it reads, in order, each once."""
        return tuple(dict.fromkeys(factor.path for factor in self.factors))

    @property
    def path(self) -> str | None:
        """The path, if the expression is a single path without a function."""
        return self.node.path if isinstance(self.node, Factor) and self.node == Factor(self.node.path) else None

    @cached_property
    def type(self) -> Literal["N", "S"] | None:
        """The type of its value; None for paths and for `coalesce` of paths, which have that of the item's value."""
        return _type(self.node)

    @property
    def is_text(self) -> bool:
        """Whether it is `text(path)`, or a `coalesce` of texts."""
        return self.type == "S"

    @property
    def is_negative(self) -> bool:
        """Whether it is a product with a constant below zero, such as `-stock`."""
        return _sign(self.node) == -1

    @property
    def is_quotient(self) -> bool:
        """Whether its value is a quotient that is not rounded."""
        return isinstance(self.node, Operation) and self.node.name == "/"

    @cached_property
    def calculated(self) -> frozenset[str]:
        """The paths whose values must be numbers: all except those that are, or may be, the value itself."""
        whole = set(_factors(self.node, lambda operation: operation.name == "coalesce"))  # which the value may be
        return frozenset(factor.path for factor in self.factors if factor not in whole and not factor.as_text)

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """The paths without whose values it has no value: all except those in `coalesce`."""
        factors = _factors(self.node, lambda operation: operation.name != "coalesce")
        return tuple(dict.fromkeys(factor.path for factor in factors))

    @cached_property
    def suffices(self) -> tuple[str, ...] | None:
        """Paths with whose values it has a value, unless one is bad input; None if no paths ensure it."""
        paths = _sufficient(self.node)
        return None if paths is None else tuple(dict.fromkeys(paths))

    def as_text(self) -> Expression:
        """The same path in `text(…)`."""
        return Expression.parse(f"text({self.text.strip()})", "extreme")

    def compile(self) -> Callable[[Resolver], Decimal | str | None]:
        """Return the number, or the text if it `is_text`; None without a value. Raises BadInput."""
        text, node = self.text, self.node
        if self.is_text:
            compute = self.compile_value()

            def evaluate_text(resolve: Resolver) -> str | None:
                value = compute(resolve)
                return None if value is None else str(value["S"])

            return evaluate_text
        if self.path is not None:
            return _compile_path(text, self.path)
        number = _compile(text, node)

        def evaluate(resolve: Resolver) -> Decimal | None:
            result = number(resolve)
            if isinstance(result, BadInput):
                raise result
            try:
                return None if result is None else _fit(result)
            except decimal.DecimalException:
                raise _too_long(text) from None

        return evaluate

    def compile_value(self) -> Callable[[Resolver], Value | None]:
        """Return the value in wire form; None without one. A path has the item's value, of any type. Raises BadInput."""
        path = self.path
        if path is not None:
            return lambda resolve: resolve(path)
        if self.type != "N":
            compute = _compile_value(self.text, self.node)

            def evaluate_any(resolve: Resolver) -> Value | None:
                value = compute(resolve)
                if isinstance(value, BadInput):
                    raise value
                return value

            return evaluate_any
        number = self.compile()

        def evaluate(resolve: Resolver) -> Value | None:
            result = number(resolve)
            return None if result is None else {"N": number_text(result)}  # type: ignore[arg-type]

        return evaluate

    @cached_property
    def evaluate(self) -> Callable[[Resolver], Decimal | str | None]:
        """The result of `compile`, cached."""
        return self.compile()


# Trees


def _factors(node: Node, enters: Callable[[Operation], bool] = lambda operation: True) -> Iterator[Factor]:
    """Yield the paths in a tree, without those in operations that are not entered."""
    if isinstance(node, Factor):
        yield node
    elif isinstance(node, Operation) and enters(node):
        for inner in node.inner:
            yield from _factors(inner, enters)


def _sufficient(node: Node) -> list[str] | None:
    """Return paths with whose values a tree has a value: of `coalesce`, those of its last argument that has such paths."""
    if isinstance(node, Factor):
        return [node.path]
    if isinstance(node, Constant):
        return []
    inner = [_sufficient(argument) for argument in node.inner]
    if node.name == "coalesce":
        return next((paths for paths in reversed(inner) if paths is not None), None)
    if node.name == "/" and not isinstance(node.inner[1], Constant):
        return None
    return None if None in inner else [path for paths in inner if paths is not None for path in paths]


def _type(node: Node) -> Literal["N", "S"] | None:
    if isinstance(node, Factor):
        return "S" if node.as_text else "N" if node.from_text else None
    if isinstance(node, Constant):
        return "S" if isinstance(node.value, str) else "N"
    if node.name != "coalesce":
        return "N"
    types = {_type(inner) for inner in node.inner}
    return types.pop() if len(types) == 1 else None


def _has_text(node: Node) -> bool:
    """Return whether the value may be a text by its form: that of `text(path)` or of a constant."""
    if isinstance(node, Factor):
        return node.as_text
    if isinstance(node, Constant):
        return isinstance(node.value, str)
    return node.name == "coalesce" and any(map(_has_text, node.inner))


def _sign(node: Node) -> int | None:
    """Return -1 for a product with a constant below zero, 1 for another one; None if the tree is anything else."""
    if isinstance(node, Factor):
        return None if node.as_text else 1
    if isinstance(node, Constant):
        return None if isinstance(node.value, str) else -1 if node.value < 0 else 1
    signs = [_sign(argument) for argument in node.inner]
    if node.name not in ("negate", "*") or None in signs:
        return None
    return prod(sign for sign in signs if sign is not None) * (-1 if node.name == "negate" else 1)


# Evaluation


def _compile_path(text: str, path: str) -> Callable[[Resolver], Decimal | None]:
    def evaluate(resolve: Resolver) -> Decimal | None:
        value = resolve(path)
        if value is None:
            return None
        number = value.get("N")
        return Decimal(number) if number is not None else _read(text, path, False, value)

    return evaluate


def _fit(result: Decimal) -> Decimal:
    """Return the DynamoDB number of a result. Raises DecimalException if its magnitude is beyond those."""
    return EXACT.plus(_QUOTIENT.plus(result))


def _compile(text: str, node: Node) -> Callable[[Resolver], Computed]:
    """Return a function for the number of any tree."""
    if isinstance(node, Constant):
        constant = node.value
        assert isinstance(constant, Decimal)
        return lambda resolve: constant
    if isinstance(node, Factor):
        path, from_text = node.path, node.from_text

        def read(resolve: Resolver) -> Computed:
            value = resolve(path)
            if value is None:
                return None
            number = value.get("N")
            try:
                return Decimal(number) if number is not None else _read(text, path, from_text, value)
            except BadInput as bad:
                return bad

        return read
    inner = [_compile(text, argument) for argument in node.inner]
    if node.name == "coalesce":
        return _compile_first(inner)
    apply = _operator_of(node)

    def evaluate(resolve: Resolver) -> Computed:
        values: list[Any] = []
        bad: BadInput | None = None
        for argument in inner:
            value = argument(resolve)
            if value is None:
                return None
            if isinstance(value, BadInput):
                bad = bad or value
            values.append(value)
        if bad is not None:
            return bad
        try:
            return apply(values)
        except decimal.DecimalException:
            return _too_long(text)

    return evaluate


def _compile_first(inner: list[Callable[[Resolver], _T | None]]) -> Callable[[Resolver], _T | None]:
    """Return a function for the value of `coalesce`: the first that there is."""

    def first(resolve: Resolver) -> _T | None:
        for choice in inner:
            value = choice(resolve)
            if value is not None:
                return value
        return None

    return first


def _operator_of(node: Operation) -> Callable[[list[Decimal]], Decimal | None]:
    match node.name:
        case "+":
            return lambda values: _STEPS.add(values[0], values[1])
        case "-":
            return lambda values: _STEPS.subtract(values[0], values[1])
        case "*":
            return lambda values: _STEPS.multiply(values[0], values[1])
        case "/":
            return lambda values: _QUOTIENT.divide(values[0], values[1]) if values[1] else None
        case "negate":
            return lambda values: _STEPS.minus(values[0])
        case "abs":
            return lambda values: _STEPS.abs(values[0])
        case "round":
            step = Decimal(1).scaleb(-node.places)
            return lambda values: _round_to(values[0], step)
    return min if node.name == "min" else max


def _round_to(number: Decimal, step: Decimal) -> Decimal:
    if number.as_tuple().exponent >= step.as_tuple().exponent:  # type: ignore[operator]
        return number
    return _WIDE.quantize(number, step)


def _compile_value(text: str, node: Node) -> Callable[[Resolver], Value | BadInput | None]:
    """Return a function for the value of a tree that may have a value of any type."""
    if isinstance(node, Factor) and not node.from_text:
        path, as_text = node.path, node.as_text

        def read(resolve: Resolver) -> Value | BadInput | None:
            value = resolve(path)
            if as_text and value is not None and "S" not in value:
                return BadInput(f'expression "{text}": {path} is {shown(value)}; a string is needed')
            return value

        return read
    if isinstance(node, Constant) and isinstance(node.value, str):
        constant = {"S": node.value}
        return lambda resolve: constant
    if isinstance(node, Operation) and node.name == "coalesce":
        return _compile_first([_compile_value(text, argument) for argument in node.inner])
    number = _compile(text, node)

    def evaluate(resolve: Resolver) -> Value | BadInput | None:
        result = number(resolve)
        if result is None or isinstance(result, BadInput):
            return result
        try:
            return {"N": number_text(_fit(result))}
        except decimal.DecimalException:
            return _too_long(text)

    return evaluate


def _too_long(text: str) -> BadInput:
    return BadInput(f'expression "{text}": the result does not fit a DynamoDB number ({_LIMITS})')


def _read(text: str, path: str, from_text: bool, value: Value) -> Decimal:
    """Return the number in a value that is not of type N. Raises BadInput."""
    if from_text and "N" in value:
        return Decimal(value["N"])
    stored = value.get("S")
    if stored is None or not from_text:
        hint = f"; write number({path}) if it holds numbers as text" if stored is not None else ""
        raise BadInput(f'expression "{text}": {path} is {shown(value)}; a number is needed{hint}')
    if not _STORED_NUMBER.fullmatch(stored):
        raise BadInput(f'expression "{text}": {path} is {shown(value)}; digits are needed, such as 12 or -3.50')
    try:
        return EXACT.create_decimal(stored.strip())
    except decimal.DecimalException:
        raise BadInput(f'expression "{text}": {path} is {shown(value)}; DynamoDB\'s numbers have {_LIMITS}') from None


# Reading


class _Parser:
    """A recursive descent parser of one text. `position` is that of the next character."""

    def __init__(self, text: str, takes: Takes) -> None:
        self.text = text
        self.takes = takes
        self.position = 0
        self.steps = 0
        self.places: dict[int, int] = {}
        """By the identity of a node that is text: where it begins."""

    def parse(self) -> Node:
        node, takes = self._expression(), self.takes
        if self.position < len(self.text):
            raise self._misplacement()
        if next(_factors(node), None) is None:
            instead = {
                "value": "write {constant: …} for a value that never changes",
                "attribute": "a copy has constants in `values`",
                "template": f"write {self.text.strip()} without braces",
            }.get(takes, "to count, use count")
            raise LanguageError(f"an expression reads at least one attribute; {instead}", 0)
        if takes == "number" and _type(node) == "S":
            message = "text(path) is not a number here; for numbers stored as text write number(path)"
            raise LanguageError(message, self._begin(node))
        if takes in ("number", "extreme") and _has_text(node) and _type(node) != "S":
            raise LanguageError("coalesce has numbers and texts here; a measure takes one type", self._begin(node))
        return node

    def _begin(self, node: Node) -> int:
        return self.places.get(id(node), 0)

    def _go(self, position: int) -> int:
        """Go on at a position, after spaces; return where that is."""
        while self.text[position : position + 1].isspace():
            position += 1
        self.position = position
        return position

    def _count(self, at: int) -> None:
        self.steps += 1
        if self.steps > MOST_STEPS:
            raise LanguageError(f"an expression has at most {MOST_STEPS} operations and parentheses", at)

    def _expression(self) -> Node:
        node = self._term()
        while self.text.startswith(("+", "-"), self.position):
            node = self._operation(node, self._term)
        return node

    def _term(self) -> Node:
        node = self._factor()
        while self.text.startswith(("*", "/"), self.position):
            node = self._operation(node, self._factor)
        return node

    def _operation(self, left: Node, following: Callable[[], Node]) -> Node:
        at = self.position
        self._count(at)
        begin = self._go(at + 1)
        right = following()
        self._number(left, None)
        self._number(right, begin)
        if self.text[at] == "/" and isinstance(right, Constant) and not right.value:
            raise LanguageError("this divides by zero", begin)
        return Operation(self.text[at], (left, right))

    def _number(self, node: Node, at: int | None) -> None:
        """Raise LanguageError if a part of a calculation is text."""
        if _has_text(node):
            raise LanguageError("text(path) cannot be part of a calculation", self.places.get(id(node), at))

    def _factor(self) -> Node:
        at = self._go(self.position)
        if literal := _LITERAL.match(self.text, at):
            self._go(literal.end())
            try:
                return Constant(EXACT.create_decimal(literal[0]))
            except decimal.DecimalException:
                raise LanguageError(f"this number is outside the limits of DynamoDB ({_LIMITS})", at) from None
        if self.text.startswith("-", at):
            self._count(at)
            begin = self._go(at + 1)
            node = self._factor()
            self._number(node, begin)
            return Operation("negate", (node,))
        if self.text.startswith("(", at):
            self._count(at)
            self._go(at + 1)
            node = self._expression()
            self._close(at, "add )")
            return node
        if (call := _FUNCTION.match(self.text, at)) and call[1] in CONVERSIONS:
            self.position = call.end()
            path = self._path()
            self._close(at, f"write {call[1]}(path)", call[1])
            node = Factor(path, from_text=call[1] == "number", as_text=call[1] == "text")
            self.places[id(node)] = at
            return node
        if call and call[1] in OPERATIONS:
            return self._call(call[1], call.end(), at)
        return Factor(self._path())

    def _call(self, name: str, begin: int, at: int) -> Node:
        self._count(at)
        inner: list[Node] = []
        places = 0
        forms = {"round": "round(e, places)", "abs": "abs(e)"}
        form = forms.get(name, f"{name}(a, b)")
        while True:
            begin = self._go(begin)
            if name == "round" and inner:
                digits = _PLACES.match(self.text, begin)
                if not digits or abs(int(digits[0])) > MOST_PLACES:
                    message = (
                        f"round(e, places) takes a whole number of decimal places, from -{MOST_PLACES} to {MOST_PLACES}"
                    )
                    raise LanguageError(message, begin)
                places = int(digits[0])
                self._go(digits.end())
                break
            node = self._argument(name)
            if name != "coalesce":
                self._number(node, begin)
            inner.append(node)
            if not self.text.startswith(",", self.position) or name == "abs":
                break
            begin = self.position + 1
        self._close(at, f"write {form}", name)
        if name in ("min", "max", "coalesce") and len(inner) < 2:
            raise LanguageError(f"{name} in an expression takes two or more values: write {form}", at)
        found_node = Operation(name, tuple(inner), places)
        self.places[id(found_node)] = at
        return found_node

    def _argument(self, function: str) -> Node:
        """Return an argument. In `coalesce`, text in quotes is a constant."""
        quote = self.text[self.position : self.position + 1]
        if function == "coalesce" and quote in ("'", '"') and quote:
            at = self.position
            end = self.text.find(quote, at + 1)
            if end < 0:
                raise LanguageError(f"the text is not closed: write {quote}text{quote}", at)
            self._go(end + 1)
            node = Constant(self.text[at + 1 : end])
            self.places[id(node)] = at
            return node
        return self._expression()

    def _close(self, at: int, instead: str, function: str = "") -> None:
        if not self.text.startswith(")", self.position):
            if self.position < len(self.text) and not function:
                raise self._misplacement()
            ends = self.position == len(self.text) and function in OPERATIONS and self.takes != "template"
            comma = "; between { and }, YAML needs quotes around a text that contains a comma" if ends else ""
            raise LanguageError(f"{function}( is not closed: {instead}{comma}", at)
        self._go(self.position + 1)

    def _path(self) -> str:
        """Return the name of a path. A step in quotes may contain a dash, which is no subtraction then."""
        text, position = self.text, self.position
        match = PATH.match(text, position)
        if not match:
            raise self._misplacement()
        if (dash := _QUOTES.sub(lambda quoted: "_" * len(quoted[0]), match[0]).find("-")) >= 0:
            left, right = match[0][:dash], match[0][dash + 1 :]
            message = (
                f"a name may contain a dash: write spaces to subtract, {left} - {right}; "
                f"if it is the name of an attribute, write it in quotes, {written_path(name_of(match[0]), dashes=False)}"
            )
            raise LanguageError(message, position + dash)
        self._go(match.end())
        return name_of(match[0])

    def _misplacement(self) -> LanguageError:
        text, position = self.text, self.position
        character = text[position : position + 1]
        if character and character in "%^":
            return LanguageError(f"{character} is not supported; the operations are + - * /", position)
        before = re.search(r"[^\W\d]\w*\s*$", text[:position])
        if character == "(" and before:
            known = (*CONVERSIONS, *OPERATIONS)
            name = before[0].strip()
            hint = suggest(name, known)
            message = f'unknown function "{name}" in an expression{hint}; the functions are {", ".join(known)}'
            return LanguageError(message, position)
        if character and character in "'\"" and re.match(r"""'[^']*[{}]|"[^"]*[{}]""", text[position:]):
            return LanguageError(BRACES, position)
        place = f"unexpected {character!r}" if character else "the expression is incomplete"
        names = (
            ", and names with other signs in quotes, as 'unit price'"
            if character and character not in "+*/()'\""
            else ""
        )
        message = f"{place}; an expression has paths, numbers, + - * /, parentheses and functions{names}"
        return LanguageError(message, position)
