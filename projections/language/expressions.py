"""Measures of aggregates, such as `sum(line.qty * line.price)`: a function of an expression (`arithmetic`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from projections.language.arithmetic import Expression
from projections.language.patterns import Pattern
from projections.language.syntax import LanguageError, LanguageErrors, suggest

__all__ = ["FUNCTIONS", "SHORT_FORMS", "Measure"]

FUNCTIONS = ("count", "sum", "avg", "min", "max")
"""The functions of measures. All except `count`, the first, take an expression."""
SHORT_FORMS = ("count", *(f"{name}(e)" for name in FUNCTIONS[1:]))

_CALL = re.compile(r"\s*([^\s()]*)\s*(?:\((.*)\))?\s*", re.DOTALL)


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
        return Expression.parse(text, "extreme" if function in ("min", "max") else "number")
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
