"""Expressions and measures of aggregates, such as `sum(line.qty * line.price)`. Decimal numbers, never rounded.

The value of an expression is a number, or a string for `text(path)`, which only `min` and `max` take.
"""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

from projections.errors import BadInput
from projections.language.patterns import Pattern
from projections.language.syntax import PATH, LanguageError, LanguageErrors, suggest
from projections.language.values import EXACT, Resolver, Value, shown

__all__ = ["FUNCTIONS", "SHORT_FORMS", "Expression", "Measure"]

FUNCTIONS = ("count", "sum", "avg", "min", "max")
"""The functions of measures. All except `count`, the first, take an expression."""
SHORT_FORMS = ("count", *(f"{name}(e)" for name in FUNCTIONS[1:]))

_LITERAL = re.compile(r"-?(?:[0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?![\w.])")
_CONVERSION = re.compile(r"(number|text)\s*\(\s*")
_CALL = re.compile(r"\s*([^\s()]*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_STORED_NUMBER = re.compile(r"\s*[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?\s*")
_LIMITS = "38 significant digits and magnitudes from 1E-130 to 9.99E+125"


@dataclass(frozen=True, slots=True)
class Factor:
    """A path; with `from_text` if in `number(…)`, with `as_text` if in `text(…)`."""

    path: str
    from_text: bool = False
    as_text: bool = False


@dataclass(frozen=True)
class Expression:
    """A product of paths and numbers: `constant` times the value of each factor. Or `text(path)`, a string."""

    text: str
    factors: tuple[Factor, ...]
    constant: Decimal
    bare: bool
    """Whether it is a single path."""

    @classmethod
    def parse(cls, text: str, allow_text: bool = False) -> Expression:
        """Parse an expression. With `allow_text` (min, max) it may be `text(path)`. Raises LanguageError."""
        return _parse(text, allow_text)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The paths it reads, in order, each once."""
        return tuple(dict.fromkeys(factor.path for factor in self.factors))

    @property
    def path(self) -> str | None:
        """The path, if the expression is a single path."""
        return self.factors[0].path if self.bare else None

    @property
    def is_text(self) -> bool:
        """Whether it is `text(path)`."""
        return self.factors[0].as_text

    def as_text(self) -> Expression:
        """The same path in `text(…)`."""
        return _parse(f"text({self.text.strip()})", True)

    def compile(self) -> Callable[[Resolver], Decimal | str | None]:
        """Return the value; None if a factor is missing. Raises BadInput for a wrong type or too many digits."""
        if self.is_text:
            return self._compile_text(self.factors[0].path)
        if self.path is not None:
            return self._compile_path(self.path)
        factors = [(factor.path, factor.from_text) for factor in self.factors]
        constant, text = self.constant, self.text
        multiply = EXACT.multiply

        def evaluate(resolve: Resolver) -> Decimal | None:
            found = []
            for path, from_text in factors:  # all values first: if one is missing, a wrong one does not matter
                value = resolve(path)
                if value is None:
                    return None
                found.append((path, from_text, value))
            product = constant
            try:
                for path, from_text, value in found:
                    number = value.get("N")
                    product = multiply(
                        product, Decimal(number) if number is not None else _read(text, path, from_text, value)
                    )
            except decimal.DecimalException:
                raise BadInput(f'expression "{text}": the result does not fit a DynamoDB number ({_LIMITS})') from None
            return product

        return evaluate

    def _compile_path(self, path: str) -> Callable[[Resolver], Decimal | None]:
        text = self.text

        def evaluate(resolve: Resolver) -> Decimal | None:
            value = resolve(path)
            if value is None:
                return None
            number = value.get("N")
            return Decimal(number) if number is not None else _read(text, path, False, value)

        return evaluate

    def _compile_text(self, path: str) -> Callable[[Resolver], str | None]:
        text = self.text

        def evaluate(resolve: Resolver) -> str | None:
            value = resolve(path)
            if value is None:
                return None
            string = value.get("S")
            if string is None:
                raise BadInput(f'expression "{text}": {path} is {shown(value)}; a string is needed')
            return str(string)

        return evaluate

    @cached_property
    def evaluate(self) -> Callable[[Resolver], Decimal | str | None]:
        """The result of `compile`, cached."""
        return self.compile()


def _read(text: str, path: str, from_text: bool, value: Value) -> Decimal:
    """Return the number in a value that is not of type N. Raises BadInput."""
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


def _parse(text: str, allow_text: bool) -> Expression:
    position = _skip(text, 0)
    negative = text.startswith("-", position) and not _LITERAL.match(text, position)
    position = _skip(text, position + negative)
    factors: list[Factor] = []
    constant = Decimal(-1 if negative else 1)
    constants = negative
    while True:
        start = position
        factor, position = _factor(text, position)
        if isinstance(factor, Factor):
            factors.append(factor)
        else:
            try:
                constant = EXACT.multiply(constant, EXACT.create_decimal(factor))
            except decimal.DecimalException:
                raise LanguageError(f"this number does not fit DynamoDB's ({_LIMITS})", start) from None
            constants = True
        position = _skip(text, position)
        if position == len(text):
            break
        if text[position] != "*":
            raise _misplaced(text, position)
        position = _skip(text, position + 1)
    if not factors:
        raise LanguageError("an expression reads at least one attribute; to count, use count", 0)
    alone = len(factors) == 1 and not constants
    if any(factor.as_text for factor in factors):
        place = text.index("text")
        if not alone:
            raise LanguageError("text(path) cannot be part of a calculation", place)
        if not allow_text:
            raise LanguageError("text(path) is for min and max; for numbers stored as text write number(path)", place)
    return Expression(text, tuple(factors), constant, alone and factors[0] == Factor(factors[0].path))


def _skip(text: str, position: int) -> int:
    while text[position : position + 1].isspace():
        position += 1
    return position


def _factor(text: str, position: int) -> tuple[Factor | str, int]:
    """Return one factor, and the position after it."""
    if literal := _LITERAL.match(text, position):
        return literal[0], literal.end()
    if call := _CONVERSION.match(text, position):
        path, end = _path(text, call.end())
        end = _skip(text, end)
        if not text.startswith(")", end):
            raise LanguageError(f"{call[1]}( is not closed: write {call[1]}(path)", position)
        return Factor(path, from_text=call[1] == "number", as_text=call[1] == "text"), end + 1
    path, end = _path(text, position)
    return Factor(path), end


def _path(text: str, position: int) -> tuple[str, int]:
    """Return a path and the position after it. In quotes it may contain a dash, which is no subtraction then."""
    quote = text[position : position + 1]
    if quote in ("'", '"') and (end := text.find(quote, position + 1)) > position + 1:
        return text[position + 1 : end], end + 1
    found = PATH.match(text, position)
    if not found:
        raise _misplaced(text, position)
    if "-" in found[0]:
        message = (
            f"subtraction is not supported; if the name of an attribute has a dash, write it in quotes, '{found[0]}'"
        )
        raise LanguageError(message, position + found[0].index("-"))
    return found[0], found.end()


def _misplaced(text: str, position: int) -> LanguageError:
    found = text[position : position + 1]
    if found and found in "+-/%^":
        return LanguageError(f"{found} is not supported, only products: use one measure for each term", position)
    before = PATH.fullmatch(text[:position].split("*")[-1].strip())
    if found == "(" and before:
        hint = suggest(before[0], ["number", "text"])
        message = f'unknown function "{before[0]}" in an expression{hint}; it can use number(path) and text(path)'
        return LanguageError(message, position)
    place = f"unexpected {found!r}" if found else "the expression is incomplete"
    return LanguageError(f"{place}; an expression is path, -path, path * path or number(path)", position)


# Measures


@dataclass(frozen=True)
class Measure:
    """One entry of an aggregate's `set`: `function` of the expression, over the contributions that match the pattern."""

    name: str
    function: str
    expression: Expression | None = None
    where: Pattern | None = None

    @classmethod
    def parse(cls, name: str, value: Any) -> Measure:
        """Parse `count`, `"sum(e)"`, `{sum: e, where: {…}}`, `{count: true, where: {…}}` or `{count: {where: {…}}}`.

        Raises LanguageErrors with every mistake; their paths begin at this value.
        """
        errors: list[LanguageError] = []
        found = _short(value, errors) if isinstance(value, str) else _long(value, errors)
        if found is None or errors:
            raise LanguageErrors(errors)
        return cls(name, *found)

    @property
    def names(self) -> tuple[str, ...]:
        """The variables and paths it reads, in order, each once."""
        read = (*(self.expression.names if self.expression else ()), *(self.where.names if self.where else ()))
        return tuple(dict.fromkeys(read))

    def document(self) -> dict[str, Any]:
        """The long form, which `parse` reads back: `{"sum": "total", "where": {…}}`."""
        form: dict[str, Any] = {self.function: True if self.expression is None else self.expression.text}
        if self.where is not None:
            form["where"] = self.where.document
        return form


_Found = tuple[str, Expression | None, Pattern | None]
_FORMS = f"{', '.join(SHORT_FORMS)}, or {{sum: e, where: {{…}}}}"


def _unknown(function: object) -> str:
    return f'unknown function "{function}"{suggest(str(function), FUNCTIONS)}; a measure is {_FORMS}'


def _short(text: str, errors: list[LanguageError]) -> _Found | None:
    call = _CALL.fullmatch(text)
    if call is None:
        errors.append(LanguageError(f"a measure is {_FORMS}", 0))
        return None
    function, inner = call[1], call[2]
    if function not in FUNCTIONS:
        errors.append(LanguageError(_unknown(function), call.start(1)))
    elif function == "count":
        if inner is None:
            return function, None, None
        message = "count takes no expression: write count, or {count: {where: …}} to count some"
        errors.append(LanguageError(message, call.start(2)))
    elif inner is None:
        errors.append(LanguageError(f"{function} needs an attribute: write {function}(attribute)", call.end(1)))
    else:
        return function, _expression(function, inner, (), call.start(2), errors), None
    return None


def _expression(
    function: str, text: str, path: tuple[str, ...], offset: int, errors: list[LanguageError]
) -> Expression | None:
    try:
        return Expression.parse(text, allow_text=function in ("min", "max"))
    except LanguageError as error:
        errors.append(LanguageError(error.message, (error.offset or 0) + offset, path))
        return None


def _long(value: Any, errors: list[LanguageError]) -> _Found | None:
    if not isinstance(value, Mapping):
        errors.append(LanguageError(f"a measure is {_FORMS}"))
        return None
    functions = [key for key in value if key != "where"]
    for key in functions:
        if key not in FUNCTIONS:
            hint = suggest(str(key), (*FUNCTIONS, "where"))
            message = f'there is no "{key}" in a measure{hint}; a measure is {_FORMS}'
            errors.append(LanguageError(message, None, (str(key),)))
    known = [key for key in functions if key in FUNCTIONS]
    if len(known) > 1:
        errors.append(LanguageError(f"a measure has one function, not {' and '.join(known)}"))
    if not functions:
        errors.append(LanguageError(f"a function is missing; a measure is {_FORMS}"))
    if len(known) != 1:
        if "where" in value:
            _where(value["where"], ("where",), errors)
        return None
    [function] = known
    argument = value[function]
    expression: Expression | None = None
    wheres: list[tuple[Any, tuple[str, ...]]] = [(value["where"], ("where",))] if "where" in value else []
    if function != "count":
        if isinstance(argument, str):
            expression = _expression(function, argument, (function,), 0, errors)
        else:
            errors.append(
                LanguageError(f"{function} takes an expression, such as {{{function}: attribute}}", None, (function,))
            )
    elif isinstance(argument, Mapping):
        wheres = [*_counted(argument, errors), *wheres]
    elif argument is not True:
        message = "count takes no expression: write {count: true, where: …} or {count: {where: …}}"
        errors.append(LanguageError(message, None, ("count",)))
    if len(wheres) > 1:
        errors.append(LanguageError("this measure has two `where`; write one", None, ("where",)))
    patterns = [_where(document, path, errors) for document, path in wheres]
    return function, expression, patterns[0] if patterns else None


def _counted(argument: Mapping[Any, Any], errors: list[LanguageError]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    for key in argument:
        if key != "where":
            message = f'count takes only `where`, not "{key}"{suggest(str(key), ["where"])}'
            errors.append(LanguageError(message, None, ("count", str(key))))
    if "where" in argument:
        yield argument["where"], ("count", "where")
    elif not argument:
        errors.append(LanguageError("the condition is missing: to count all items, write count", None, ("count",)))


def _where(document: Any, path: tuple[str, ...], errors: list[LanguageError]) -> Pattern | None:
    try:
        return Pattern.parse(document)
    except LanguageErrors as found:
        errors.extend(error.within(*path) for error in found.errors)
        return None
