"""Patterns: the filter language of EventBridge and Lambda, on items in wire form.

It differs from EventBridge where that would not suit DynamoDB: numbers compare as decimals, `exists` and
`anything-but` look at maps and lists too, and `anything-but` on a list or set means that *no* element is one of these
(in EventBridge: that *some* element is not one of them).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import chain
from typing import Any, TypeAlias

from projections.language.syntax import LanguageError, LanguageErrors, suggest
from projections.language.values import Resolver, Value, number_text, wire

__all__ = ["Condition", "Pattern", "Test", "describe"]

Scalar: TypeAlias = str | Decimal | bool | None
Fits: TypeAlias = Callable[[str, Any], bool]
"""Returns whether one element matches, given its type and its content, such as `"S", "text"`."""

_OPERATORS = ("prefix", "suffix", "exists", "anything-but", "numeric", "equals-ignore-case")
_COMPARISONS: dict[str, tuple[Callable[[Decimal, Decimal], bool], str]] = {
    "=": (operator.eq, "is"),
    "<": (operator.lt, "is less than"),
    "<=": (operator.le, "is at most"),
    ">": (operator.gt, "is greater than"),
    ">=": (operator.ge, "is at least"),
}


# Alternatives. All but the last two concern scalars: a list or set matches if any of its elements does.


@dataclass(frozen=True, slots=True)
class Equals:
    value: Scalar

    def fits(self) -> Fits:
        value = self.value
        match value:
            case bool():
                return lambda tag, data: tag == "BOOL" and data is value
            case str():
                return lambda tag, data: tag == "S" and data == value
            case None:
                return lambda tag, data: tag == "NULL"
        return lambda tag, data: tag == "N" and Decimal(data) == value

    def __str__(self) -> str:
        return f"is {_literal(self.value)}"


@dataclass(frozen=True, slots=True)
class Affix:
    """`prefix`, `suffix` and `equals-ignore-case`. Case is ignored by Unicode's case folding."""

    operator: str
    text: str
    ignore_case: bool

    def fits(self) -> Fits:
        text = self.text.casefold() if self.ignore_case else self.text
        test: Callable[[str, str], bool] = {"prefix": str.startswith, "suffix": str.endswith}.get(
            self.operator, operator.eq
        )
        if self.ignore_case:
            return lambda tag, data: tag == "S" and test(data.casefold(), text)
        return lambda tag, data: tag == "S" and test(data, text)

    def __str__(self) -> str:
        words = {"prefix": "begins with", "suffix": "ends with"}.get(self.operator, "is")
        return f"{words} {_literal(self.text)}" + " in any case" * self.ignore_case


@dataclass(frozen=True, slots=True)
class Numeric:
    bounds: tuple[tuple[str, Decimal], ...]

    def fits(self) -> Fits:
        (compare, bound), *rest = [(_COMPARISONS[sign][0], number) for sign, number in self.bounds]
        if not rest:
            return lambda tag, data: tag == "N" and compare(Decimal(data), bound)
        [(other, limit)] = rest

        def between(tag: str, data: Any) -> bool:
            return tag == "N" and compare(number := Decimal(data), bound) and other(number, limit)

        return between

    def __str__(self) -> str:
        first, *rest = [f"{_COMPARISONS[sign][1]} {number_text(number)}" for sign, number in self.bounds]
        return " and ".join([first, *(text.removeprefix("is ") for text in rest)])


@dataclass(frozen=True, slots=True)
class Exists:
    exists: bool

    def __str__(self) -> str:
        return "exists" if self.exists else "is absent"


@dataclass(frozen=True, slots=True)
class AnythingBut:
    excluded: tuple[Equals | Affix, ...]

    def __str__(self) -> str:
        return f"exists and none of it {_either([str(one) for one in self.excluded])}"


Alternative: TypeAlias = Equals | Affix | Numeric | Exists | AnythingBut


def _literal(value: Scalar) -> str:
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case Decimal():
            return number_text(value)
    return f'"{value}"'


def _either(words: list[str]) -> str:
    return " or ".join(dict.fromkeys(words))


@dataclass(frozen=True, slots=True)
class Test:
    """An attribute or variable and the alternatives for its value."""

    name: str
    alternatives: tuple[Alternative, ...]

    def compile(self) -> Callable[[Resolver], bool]:
        name = self.name
        absent = Exists(False) in self.alternatives
        if Exists(True) in self.alternatives:
            return (lambda resolve: True) if absent else (lambda resolve: resolve(name) is not None)
        texts = frozenset(a.value for a in self.alternatives if isinstance(a, Equals) and isinstance(a.value, str))
        fits = [
            a.fits()
            for a in self.alternatives
            if isinstance(a, Numeric | Affix) or (isinstance(a, Equals) and not isinstance(a.value, str))
        ]
        excluded = [[one.fits() for one in a.excluded] for a in self.alternatives if isinstance(a, AnythingBut)]

        def matches(resolve: Resolver) -> bool:
            value = resolve(name)
            if value is None:
                return absent
            tag, data = next(iter(value.items()))
            if tag == "S" and data in texts:
                return True
            if tag in _MANY:
                elements = list(_elements(value))
                if (texts or fits) and any(_any(element, texts, fits) for element in elements):
                    return True
                return any(not any(_any(element, _NONE, these) for element in elements) for these in excluded)
            for fit in fits:
                if fit(tag, data):
                    return True
            return any(not any(fit(tag, data) for fit in these) for these in excluded)

        return matches

    def __str__(self) -> str:
        return _either([f"{self.name} {alternative}" for alternative in self.alternatives])


_MANY = frozenset({"L", "SS", "NS", "BS"})
_NONE: frozenset[str] = frozenset()


def _elements(value: Value) -> Iterator[tuple[str, Any]]:
    """Yield the elements of a list, of lists in it, or of a set."""
    tag, data = next(iter(value.items()))
    if tag == "L":
        for element in data:
            yield from _elements(element)
    elif tag in _MANY:
        for scalar in data:
            yield tag[0], scalar
    else:
        yield tag, data


def _any(element: tuple[str, Any], texts: frozenset[str], fits: list[Fits]) -> bool:
    tag, data = element
    return (tag == "S" and data in texts) or any(fit(tag, data) for fit in fits)


@dataclass(frozen=True, slots=True)
class Either:
    """`$or`: at least one branch matches."""

    branches: tuple[tuple[Condition, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(_names(chain.from_iterable(self.branches))))

    def compile(self) -> Callable[[Resolver], bool]:
        branches = [_all(branch) for branch in self.branches]
        return lambda resolve: any(branch(resolve) for branch in branches)

    def __str__(self) -> str:
        return f"({' or '.join(_sentence(branch) for branch in self.branches)})"


Condition: TypeAlias = Test | Either


def _all(conditions: tuple[Condition, ...]) -> Callable[[Resolver], bool]:
    tests = [condition.compile() for condition in conditions]
    if len(tests) == 1:
        return tests[0]

    def every(resolve: Resolver) -> bool:
        for test in tests:  # noqa: SIM110 - a generator would double the cost of a small pattern
            if not test(resolve):
                return False
        return True

    return every


def _sentence(conditions: tuple[Condition, ...]) -> str:
    return ", and ".join(map(str, conditions)) or "always"


@dataclass(frozen=True)
class Pattern:
    """Conditions that must all hold. An empty pattern matches everything."""

    conditions: tuple[Condition, ...]
    document: Mapping[str, Any]

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> Pattern:
        """Parse a pattern. Raises LanguageErrors with every mistake, each with its path in the document."""
        errors: list[LanguageError] = []
        conditions = tuple(_conditions(document, "", (), errors))
        if errors:
            raise LanguageErrors(errors)
        return cls(conditions, document)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The variables and dotted paths it reads, in order, each once."""
        return tuple(dict.fromkeys(_names(self.conditions)))

    @cached_property
    def constants(self) -> dict[str, Any]:
        """The names that must equal one scalar (outside `$or`), with that scalar; `wire` converts it to a value."""
        return {
            condition.name: condition.alternatives[0].value
            for condition in self.conditions
            if isinstance(condition, Test)
            and len(condition.alternatives) == 1
            and isinstance(condition.alternatives[0], Equals)
        }

    def compile(self) -> Callable[[Resolver], bool]:
        return _all(self.conditions)

    @cached_property
    def matches(self) -> Callable[[Resolver], bool]:
        """Return whether the values that a resolver returns match."""
        return self.compile()

    def unmet(self, resolve: Resolver) -> list[Condition]:
        """Return the conditions that do not hold for the values that a resolver returns."""
        return [condition for condition in self.conditions if not condition.compile()(resolve)]


def _names(conditions: Iterable[Condition]) -> Iterator[str]:
    for condition in conditions:
        if isinstance(condition, Test):
            yield condition.name
        else:
            for branch in condition.branches:
                yield from _names(branch)


def describe(pattern: Pattern) -> str:
    """Return a pattern in one line of English, such as `status is "published", and stars is at least 4`."""
    return _sentence(pattern.conditions)


# Reading

_At: TypeAlias = tuple[str | int, ...]


def _conditions(document: Any, prefix: str, at: _At, errors: list[LanguageError]) -> Iterator[Condition]:
    if not isinstance(document, Mapping):
        errors.append(
            LanguageError(f"a pattern is a mapping of attributes to alternatives, not {_what(document)}", None, at)
        )
        return
    seen: set[str] = set()
    for key, value in document.items():
        place = (*at, key if isinstance(key, str | int) else str(key))
        if not isinstance(key, str) or not key:
            errors.append(
                LanguageError(f"an attribute's name is text, not {_what(key)}; put it in quotes", None, place)
            )
        elif key == "$or":
            yield from _or(value, prefix, place, errors)
        elif key.startswith("$"):
            hint = suggest(key, ["$or"]) or "; attributes in one mapping must all match, and $or lists alternatives"
            errors.append(LanguageError(f'unknown operator "{key}"{hint}', None, place))
        else:
            for condition in _attribute(prefix + key, value, place, errors):
                if isinstance(condition, Test) and condition.name in seen:
                    message = f"{condition.name} has conditions in two places; write them as one list of alternatives"
                    errors.append(LanguageError(message, None, place))
                elif isinstance(condition, Test):
                    seen.add(condition.name)
                yield condition


def _or(value: Any, prefix: str, at: _At, errors: list[LanguageError]) -> Iterator[Either]:
    if not isinstance(value, list) or not value:
        errors.append(LanguageError(f"$or takes a list of patterns, not {_what(value)}", None, at))
        return
    branches = []
    for position, branch in enumerate(value):
        if branch == {}:
            errors.append(
                LanguageError("an empty pattern always matches, and so would this $or", None, (*at, position))
            )
        branches.append(tuple(_conditions(branch, prefix, (*at, position), errors)))
    yield Either(tuple(branches))


def _attribute(name: str, value: Any, at: _At, errors: list[LanguageError]) -> Iterator[Condition]:
    if isinstance(value, Mapping):
        for key in value:
            if key in _OPERATORS:
                # EventBridge would silently test an attribute of that name.
                message = f"write operators in a list: [{{{key}: …}}]; if it is an attribute, write {name}.{key}"
                errors.append(LanguageError(message, None, (*at, key)))
                return
        if not value:
            errors.append(LanguageError("this has no condition; remove it, or write [{exists: true}]", None, at))
        yield from _conditions(value, name + ".", at, errors)
        return
    if not isinstance(value, list):
        found = _alternative(value, at, errors)
        yield Test(name, () if found is None else (found,))
        return
    if not value:
        errors.append(LanguageError("an empty list never matches; list at least one alternative", None, at))
    found_all = [_alternative(each, (*at, position), errors) for position, each in enumerate(value)]
    yield Test(name, tuple(one for one in found_all if one is not None))


def _alternative(value: Any, at: _At, errors: list[LanguageError]) -> Alternative | None:
    try:
        if not isinstance(value, Mapping):
            return Equals(_scalar(value, "an alternative is a text, number, boolean, null or {operator: …}"))
        if len(value) != 1:
            raise LanguageError("an alternative has one operator; write other operators as further alternatives")
        [(name, argument)] = value.items()
        if name not in _OPERATORS:
            known = ", ".join(_OPERATORS)
            raise LanguageError(f'unknown operator "{name}"{suggest(str(name), _OPERATORS)}; the operators are {known}')
        return _operator(name, argument)
    except LanguageError as error:
        errors.append(error.within(*at))
        return None


def _operator(name: str, argument: Any) -> Alternative:
    match name:
        case "exists":
            if not isinstance(argument, bool):
                raise LanguageError(f"exists takes true or false, not {_what(argument)}", None, (name,))
            return Exists(bool(argument))
        case "numeric":
            return Numeric(_bounds(argument))
        case "anything-but":
            return AnythingBut(tuple(_excluded(argument)))
    return _affix(name, argument)


def _affix(name: str, argument: Any) -> Affix:
    ignore_case = name == "equals-ignore-case"
    if not ignore_case and isinstance(argument, Mapping) and list(argument) == ["equals-ignore-case"]:
        argument, ignore_case = argument["equals-ignore-case"], True
    if not isinstance(argument, str):
        raise LanguageError(f"{name} takes text, not {_what(argument)}", None, (name,))
    return Affix(name, str(argument), ignore_case)


def _excluded(argument: Any) -> Iterator[Equals | Affix]:
    if isinstance(argument, Mapping):
        known = ("prefix", "suffix", "equals-ignore-case")
        if len(argument) != 1 or next(iter(argument)) not in known:
            hint = suggest(str(next(iter(argument), "")), known)
            message = f"anything-but takes scalars, or {{prefix: …}}, {{suffix: …}} or {{equals-ignore-case: …}}{hint}"
            raise LanguageError(message, None, ("anything-but",))
        [(name, texts)] = argument.items()
        for text in texts if isinstance(texts, list) and texts else [texts]:
            try:
                yield _affix(name, text)
            except LanguageError as error:
                raise error.within("anything-but") from None
    else:
        if argument == []:
            raise LanguageError("anything-but takes at least one value", None, ("anything-but",))
        for value in argument if isinstance(argument, list) else [argument]:
            try:
                yield Equals(_scalar(value, "anything-but takes texts, numbers, booleans or null"))
            except LanguageError as error:
                raise error.within("anything-but") from None


def _bounds(argument: Any) -> tuple[tuple[str, Decimal], ...]:
    form = 'numeric takes [">=", 1] or [">=", 1, "<", 5]'
    if not isinstance(argument, list) or len(argument) not in (2, 4):
        raise LanguageError(f"{form}, not {_what(argument)}", None, ("numeric",))
    bounds = []
    for position in range(0, len(argument), 2):
        sign, number = argument[position : position + 2]
        if not isinstance(sign, str) or sign not in _COMPARISONS:
            known = " ".join(_COMPARISONS)
            raise LanguageError(f"{form}; the signs are {known}, not {_what(sign)}", None, ("numeric", position))
        exact = None if isinstance(number, bool | str) else _scalar(number, form, ("numeric", position + 1))
        if not isinstance(exact, Decimal):
            raise LanguageError(
                f"{form}, a number without quotes, not {_what(number)}", None, ("numeric", position + 1)
            )
        bounds.append((str(sign), exact))
    if len(bounds) == 2:
        lower = [(sign, number) for sign, number in bounds if sign in (">", ">=")]
        upper = [(sign, number) for sign, number in bounds if sign in ("<", "<=")]
        if len(lower) != 1 or len(upper) != 1:
            raise LanguageError(f"{form}: two bounds are one from below and one from above", None, ("numeric",))
        least, most = lower[0][1], upper[0][1]
        if least > most or (least == most and (lower[0][0] == ">" or upper[0][0] == "<")):
            raise LanguageError("no number lies between these bounds", None, ("numeric",))
    return tuple(bounds)


def _scalar(value: Any, expected: str, path: _At = ()) -> Scalar:
    match value:
        case None:
            return None
        case bool():
            return bool(value)
        case str():
            return str(value)
        case int() | float() | Decimal():
            try:
                return Decimal(wire(value)["N"])
            except LanguageError as error:
                raise error.within(*path) from None
    raise LanguageError(f"{expected}, not {_what(value)}", None, path)


def _what(value: Any) -> str:
    """Return a wrong part of a document as text for a message."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case str():
            return f'"{value[:40]}"'
        case Mapping():
            return "a mapping"
        case list():
            return "a list" if value else "an empty list"
    return str(value)[:40]
