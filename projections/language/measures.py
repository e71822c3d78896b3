"""The measures of aggregates: `sum(line.qty * line.price)`, `avg(stars, 2)`, `last(title, at)`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from projections.language.arithmetic import Expression
from projections.language.patterns import Pattern
from projections.language.syntax import LanguageError, LanguageErrors, nearest, suggest

ROUNDED = ("sum", "avg")
"""Functions whose result may be rounded when it is published."""
ADDED = ("count", *ROUNDED)
"""Functions that need nothing but totals."""
EXTREMES = ("min", "max")
PICKED = ("first", "last")
"""Functions that show a value of one item, by an order."""
VALUES = ("distinct", "counts", "values")
"""Functions that need a counter for each value."""
TYPED = (*EXTREMES, *VALUES)
"""Functions that take numbers or text: each measure takes one type."""
FUNCTIONS = ("count", *ROUNDED, *EXTREMES, *PICKED, *VALUES)
"""The functions of measures. All except `count`, the first, take an expression."""
SHORT_FORMS = ("count", *(f"{name}(e, by)" if name in PICKED else f"{name}(e)" for name in FUNCTIONS[1:]))
MOST_DIGITS = 20
"""The most digits after the decimal point to which a result is rounded."""

_CALL = re.compile(r"\s*([^\s()]*)\s*(?:\((.*)\))?\s*", re.DOTALL)
_DIGITS = re.compile(r"\s*([0-9]{1,2})\s*")
_FORMS = f"{', '.join(SHORT_FORMS)}, {{count: {{where: {{…}}}}}}, or {{sum: e, where: {{…}}}}"


@dataclass(frozen=True)
class Measure:
    """One entry of an aggregate's `set`: `function` of the expression, over the contributions that match the pattern.

    `digits` is how many digits after the decimal point are published, None for all. `by` is the path that `first` and `last`
    order by; their expression is a path.
    """

    function: str
    expression: Expression | None = None
    where: Pattern | None = None
    digits: int | None = None
    by: Expression | None = None
    text: str = field(default="", compare=False)
    """Its short form as it is written; empty for a long form."""

    @classmethod
    def parse(cls, value: Any) -> Measure:
        """Parse `count`, `"sum(e)"`, `"avg(e, 2)"`, `"last(e, by)"` or a long form: `{sum: e, where: {…}}`,
        `{avg: e, round: 2}`, `{last: e, by: path}`, `{count: true, where: {…}}`, `{count: {where: {…}}}`.

        Raises LanguageErrors with every mistake; their paths begin at this value.
        """
        errors: list[LanguageError] = []
        found = _short(value, errors) if isinstance(value, str) else _long(value, errors)
        if found is None or errors:
            raise LanguageErrors(errors)
        return cls(**found, text=value if isinstance(value, str) else "")

    @property
    def names(self) -> tuple[str, ...]:
        """The variables and paths it reads, in order, each once."""
        parts = (self.expression, self.by, self.where)
        return tuple(dict.fromkeys(name for part in parts if part is not None for name in part.names))


_Found = dict[str, Any]
"""The arguments of a measure."""


def _unknown(function: object) -> str:
    return f'unknown function "{function}"{suggest(str(function), FUNCTIONS)}; a measure is {_FORMS}'


# The short form


def _short(text: str, errors: list[LanguageError]) -> _Found | None:
    call = _CALL.fullmatch(text)
    if call is None:
        function = text.partition("(")[0].strip()
        hint = ""
        if "(" in text and ")" not in text and function in FUNCTIONS:
            write = f"{text.strip()}, by)" if function in PICKED and "," not in text else f"{text.strip()})"
            hint = f"the parenthesis is not closed: write {write}; "
        errors.append(LanguageError(f"{hint}a measure is {_FORMS}", 0))
        return None
    function, inner = call[1], call[2]
    if function not in FUNCTIONS:
        attribute = function and inner is None and not nearest(function, FUNCTIONS)
        message = f"the measure lacks its function: write sum({function}), for example; a measure is {_FORMS}"
        errors.append(LanguageError(message if attribute else _unknown(function), call.start(1)))
    elif function == "count":
        if inner is None:
            return {"function": function}
        message = "count takes no expression: write count, or {count: {where: …}} to count some"
        errors.append(LanguageError(message, call.start(2)))
    elif inner is None:
        write = f"{function}(attribute, by)" if function in PICKED else f"{function}(attribute)"
        errors.append(LanguageError(f"{function} needs an attribute: write {write}", call.end(1)))
    else:
        return _called(function, list(_arguments(inner, call.start(2))), errors)
    return None


def _arguments(text: str, offset: int) -> Iterator[tuple[str, int]]:
    """Yield the arguments of a call, and where each begins: commas in parentheses and quotes do not separate them."""
    depth, quote, start = 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "()":
            depth += 1 if character == "(" else -1
        elif character == "," and not depth:
            yield text[start:position], offset + start
            start = position + 1
    yield text[start:], offset + start


def _called(function: str, arguments: list[tuple[str, int]], errors: list[LanguageError]) -> _Found | None:
    (text, offset), *more = arguments
    found: _Found = {"function": function, "expression": _expression(function, text, (), offset, errors)}
    most = 2 if function in (*ROUNDED, *PICKED) else 1
    if len(more) >= most:
        takes = {**dict.fromkeys(ROUNDED, "an expression and a number of digits"), **dict.fromkeys(PICKED, "e and by")}
        message = f"{function} takes {takes.get(function, 'one expression')}, not {len(arguments)} arguments"
        errors.append(LanguageError(message, more[most - 1][1]))
    elif function in PICKED:
        if more:
            found["by"] = _by(*more[0], (), errors)
        else:
            call = f"{function}({text.strip()}"
            message = f"{function} needs an order: write {call}, by), such as {call}, createdAt)"
            errors.append(LanguageError(message, offset + len(text)))
    elif more:
        digits, place = more[0]
        written = _DIGITS.fullmatch(digits)
        found["digits"] = _digits(function, int(written[1]) if written else digits.strip(), (), errors, place)
    return found


# The long form

_OPTIONS = {"round": ROUNDED, "by": PICKED}
"""Parts of the long form beside the function and `where`, with the functions that take them."""


def _long(value: Any, errors: list[LanguageError]) -> _Found | None:
    if not isinstance(value, Mapping):
        errors.append(LanguageError(f"a measure is {_FORMS}"))
        return None
    functions = [key for key in value if key != "where" and key not in _OPTIONS]
    for key in functions:
        if key not in FUNCTIONS:
            hint = suggest(str(key), (*FUNCTIONS, *_OPTIONS, "where"))
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
    found: _Found = {"function": function}
    wheres: list[tuple[Any, tuple[str, ...]]] = [(value["where"], ("where",))] if "where" in value else []
    if function != "count":
        if isinstance(argument, str):
            found["expression"] = _expression(function, argument, (function,), 0, errors)
        else:
            errors.append(
                LanguageError(f"{function} takes an expression, such as {{{function}: attribute}}", None, (function,))
            )
    elif isinstance(argument, Mapping):
        wheres = [*_counted(argument, errors), *wheres]
    elif argument is not True:
        message = "count takes no expression: write {count: true, where: …} or {count: {where: …}}"
        errors.append(LanguageError(message, None, ("count",)))
    for option, takers in _OPTIONS.items():
        if option in value and function not in takers:
            message = f"{function} has no `{option}`; {' and '.join(takers)} have"
            errors.append(LanguageError(message, None, (option,)))
    if function in ROUNDED and "round" in value:
        found["digits"] = _digits(function, value["round"], ("round",), errors)
    if function in PICKED:
        if isinstance(value.get("by"), str):
            found["by"] = _by(value["by"], 0, ("by",), errors)
        elif "by" in value:
            errors.append(LanguageError("`by` is a path, such as createdAt", None, ("by",)))
        else:
            message = f"{function} needs an order: add `by`, such as {{{function}: {argument}, by: createdAt}}"
            errors.append(LanguageError(message))
    if len(wheres) > 1:
        errors.append(LanguageError("this measure has two `where`; write one", None, ("where",)))
    patterns = [_where(document, path, errors) for document, path in wheres]
    return {**found, "where": patterns[0] if patterns else None}


def _counted(argument: Mapping[Any, Any], errors: list[LanguageError]) -> Iterator[tuple[Any, tuple[str, ...]]]:
    for key in argument:
        if key != "where":
            message = f'count takes only `where`, not "{key}"{suggest(str(key), ["where"])}'
            errors.append(LanguageError(message, None, ("count", str(key))))
    if "where" in argument:
        yield argument["where"], ("count", "where")
    elif not argument:
        errors.append(LanguageError("the condition is missing: to count all items, write count", None, ("count",)))


# The parts of both


def _expression(
    function: str, text: str, path: tuple[str, ...], offset: int, errors: list[LanguageError]
) -> Expression | None:
    try:
        expression = Expression.parse(text, "extreme" if function in TYPED else "number")
    except LanguageError as error:
        errors.append(LanguageError(error.message, (error.offset or 0) + offset, path))
        return None
    if function in PICKED and expression.path is None:
        message = f"{function} shows a value of an item as it is: write a path, such as {function}(title, createdAt)"
        errors.append(LanguageError(message, offset, path))
    return expression


def _by(text: str, offset: int, path: tuple[str, ...], errors: list[LanguageError]) -> Expression | None:
    offset += len(text) - len(text.lstrip())
    try:
        by = Expression.parse(text.strip())
    except LanguageError as error:
        errors.append(LanguageError(error.message, (error.offset or 0) + offset, path))
        return None
    if by.path is None:
        errors.append(LanguageError("`by` is a path, such as createdAt", offset, path))
    return by


def _digits(
    function: str, value: Any, path: tuple[str, ...], errors: list[LanguageError], offset: int | None = None
) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_DIGITS:
        return value
    message = (
        f"the digits after the decimal point are a number from 0 to {MOST_DIGITS}, such as 2 in {function}(total, 2)"
    )
    errors.append(LanguageError(message, offset, path))
    return None


def _where(document: Any, path: tuple[str, ...], errors: list[LanguageError]) -> Pattern | None:
    try:
        return Pattern.parse(document) if document != {} else None
    except LanguageErrors as found:
        errors.extend(error.within(*path) for error in found.errors)
        return None
