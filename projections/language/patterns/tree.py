"""The tree of a pattern: its evaluation on the values of an item, and its words.

The other evaluations are in modules beside this one. Each takes the alternatives apart with `match` and ends with
`assert_never`, so that a new kind of alternative does not type-check until every evaluation has it.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import Any, TypeAlias, assert_never

from projections.language.values import Resolve, Value, number_text, wire

Scalar: TypeAlias = str | Decimal | bool | None
Fits: TypeAlias = Callable[[str, Any], bool]
"""Returns whether one element matches, given its type and its content, such as `"S", "text"`."""

SIGNS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    ">": (operator.gt, "is greater than"),
    ">=": (operator.ge, "is at least"),
    "<": (operator.lt, "is less than"),
    "<=": (operator.le, "is at most"),
    "=": (operator.eq, "is"),
    "!=": (operator.ne, "differs from"),
}
"""The signs of comparisons with their words, in the order of the canonical form."""


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
class Named:
    """The other value of a comparison: an attribute or variable of the same item."""

    name: str

    def __str__(self) -> str:
        return self.name


Operand: TypeAlias = str | Decimal | Named


@dataclass(frozen=True, slots=True)
class Compares:
    """Comparisons that must all hold for one element, and `numeric`, which has numbers alone."""

    bounds: tuple[tuple[str, Operand], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values that it compares with."""
        return tuple(operand.name for _, operand in self.bounds if isinstance(operand, Named))

    @property
    def is_numeric(self) -> bool:
        """Whether `numeric` can express it."""
        return all(sign != "!=" and isinstance(operand, Decimal) for sign, operand in self.bounds)

    def rename(self, name_of: Callable[[str], str]) -> Compares:
        """Return the same comparisons with values that have other names."""
        renamed = (
            Named(name_of(operand.name)) if isinstance(operand, Named) else operand for _, operand in self.bounds
        )
        return Compares(tuple((sign, operand) for (sign, _), operand in zip(self.bounds, renamed, strict=True)))

    def fits(self, resolve: Resolve = lambda name, stored=False: None) -> Fits:
        """Return whether an element fits. Numbers are compared with numbers, and text with text by its code points,
        which is the order of its UTF-8 bytes.
        """
        limits: list[tuple[Callable[[Any, Any], bool], str, str | Decimal]] = []
        for sign, operand in self.bounds:
            value = resolve(operand.name) if isinstance(operand, Named) else wire(operand)
            kind, data = next(iter(value.items())) if value is not None else ("", "")
            if kind not in ("S", "N"):
                return lambda tag, data: False
            limits.append((SIGNS[sign][0], kind, Decimal(data) if kind == "N" else data))

        def within(tag: str, data: Any) -> bool:
            element = Decimal(data) if tag == "N" else data
            for compare, kind, limit in limits:  # noqa: SIM110 - a generator would take twice as long
                if tag != kind or not compare(element, limit):
                    return False
            return True

        return within

    def __str__(self) -> str:
        first, *rest = [_comparison_words(sign, operand) for sign, operand in self.bounds]
        return " and ".join([first, *(text.removeprefix("is ") for text in rest)])


def _comparison_words(sign: str, operand: Operand) -> str:
    words = SIGNS[sign][1]
    if isinstance(operand, Named):
        return f"{'is equal to' if sign == '=' else words} {operand}"
    if sign == "!=":
        words = "is text other than" if isinstance(operand, str) else "is a number other than"
    return f"{words} {_literal(operand)}"


@dataclass(frozen=True, slots=True)
class Exists:
    exists: bool

    def __str__(self) -> str:
        return "exists" if self.exists else "is absent"


@dataclass(frozen=True, slots=True)
class AnythingBut:
    excluded: tuple[Equals | Affix, ...]

    def __str__(self) -> str:
        words = list(dict.fromkeys(str(alternative) for alternative in self.excluded))
        if not all(word.startswith("is ") for word in words):
            return f"exists and none of it {_either(words)}"
        values = [word.removeprefix("is ") for word in words]
        return "exists and is " + (f"not {values[0]}" if len(values) == 1 else f"none of {', '.join(values)}")


Alternative: TypeAlias = Equals | Affix | Compares | Exists | AnythingBut


def compared_type(alternative: Alternative) -> str | None:
    """Return the type of the constants that an alternative compares with, `N` or `S`; None if they are of neither."""
    match alternative:
        case Affix() | Equals(str()):
            return "S"
        case Equals(Decimal()):
            return "N"
        case Compares(bounds):
            constants = (operand for _, operand in bounds if not isinstance(operand, Named))
            return next(("S" if isinstance(constant, str) else "N" for constant in constants), None)
    return None


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
    place: tuple[str | int, ...] = field(default=(), compare=False)
    """Its path in the document of the pattern."""

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, then those that it compares with, each once."""
        names = (
            name for alternative in self.alternatives if isinstance(alternative, Compares) for name in alternative.names
        )
        return tuple(dict.fromkeys((self.name, *names)))

    def rename(self, name_of: Callable[[str], str]) -> Test:
        """Return the same test of an item on which values have other names."""
        alternatives = (
            alternative.rename(name_of) if isinstance(alternative, Compares) else alternative
            for alternative in self.alternatives
        )
        return Test(name_of(self.name), tuple(alternatives))

    def compile(self) -> Callable[[Resolve], bool]:
        name = self.name
        if len(self.names) > 1:
            return self._compile_related()
        absent = Exists(False) in self.alternatives
        if Exists(True) in self.alternatives:
            return (lambda resolve: True) if absent else (lambda resolve: resolve(name, True) is not None)
        texts: set[str] = set()
        fits: list[Fits] = []
        excluded: list[list[Fits]] = []
        for alternative in self.alternatives:
            match alternative:
                case Equals(str() as text):
                    texts.add(text)
                case Equals() | Affix() | Compares():
                    fits.append(alternative.fits())
                case AnythingBut():
                    excluded.append([each.fits() for each in alternative.excluded])
                case Exists():
                    pass  # as `absent`
                case _:
                    assert_never(alternative)

        def matches(resolve: Resolve) -> bool:
            value = resolve(name, True)
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
            return tag != "NULL" and any(not any(fit(tag, data) for fit in these) for these in excluded)

        return matches

    def _compile_related(self) -> Callable[[Resolve], bool]:
        """Return the test if an alternative compares with other values. It reads them all, also if another one matches:
        whether a wrong value is bad input does not depend on the order of alternatives.
        """
        names = self.names
        related = [
            alternative for alternative in self.alternatives if isinstance(alternative, Compares) and alternative.names
        ]
        rest = tuple(alternative for alternative in self.alternatives if alternative not in related)
        others = Test(self.name, rest).compile() if rest else None

        def matches(resolve: Resolve) -> bool:
            values = {name: resolve(name, True) for name in names}

            def read(name: str, stored: bool = False) -> Value | None:
                return values[name]

            if others is not None and others(read):
                return True
            value = values[names[0]]
            if value is None:
                return False
            elements = list(_elements(value))
            return any(
                fit(*element) for fit in [alternative.fits(read) for alternative in related] for element in elements
            )

        return matches

    def __str__(self) -> str:
        return _either([f"{self.name} {alternative}" for alternative in self.alternatives])


_MANY = frozenset({"L", "SS", "NS", "BS"})
_NONE: set[str] = set()


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


def _any(element: tuple[str, Any], texts: set[str], fits: list[Fits]) -> bool:
    tag, data = element
    return (tag == "S" and data in texts) or any(fit(tag, data) for fit in fits)


@dataclass(frozen=True, slots=True)
class Either:
    """`$or`: at least one branch matches."""

    branches: tuple[tuple[Condition, ...], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return names_in(chain.from_iterable(self.branches))

    def compile(self) -> Callable[[Resolve], bool]:
        branches = [all_hold(branch) for branch in self.branches]
        return lambda resolve: any(branch(resolve) for branch in branches)

    def __str__(self) -> str:
        return f"({' or '.join(sentence(branch) for branch in self.branches)})"


Condition: TypeAlias = Test | Either


def all_hold(conditions: tuple[Condition, ...]) -> Callable[[Resolve], bool]:
    """Return a function that evaluates conditions, which must all hold."""
    tests = [condition.compile() for condition in conditions]
    if len(tests) == 1:
        return tests[0]

    def every(resolve: Resolve) -> bool:
        for test in tests:  # noqa: SIM110 - a generator would double the cost of a small pattern
            if not test(resolve):
                return False
        return True

    return every


def sentence(conditions: tuple[Condition, ...]) -> str:
    """Return conditions in one line of English, such as `status is "published", and stars is at least 4`."""
    return ", and ".join(map(str, conditions)) or "always"


def tests_in(conditions: Iterable[Condition]) -> Iterator[Test]:
    """Yield the tests in conditions, also those in the branches of an `$or`."""
    for condition in conditions:
        if isinstance(condition, Test):
            yield condition
        else:
            for branch in condition.branches:
                yield from tests_in(branch)


def names_in(conditions: Iterable[Condition]) -> tuple[str, ...]:
    """Return the variables and dotted paths that conditions read, in order, each once."""
    return tuple(dict.fromkeys(name for test in tests_in(conditions) for name in test.names))
