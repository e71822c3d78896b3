"""Patterns: the language of Lambda's event filters, on items in wire form.

It differs where that would not suit DynamoDB: numbers compare as decimals, `exists` and
`anything-but` look at maps and lists too, and `anything-but` on a list or set means that *no* element is one of these
(in EventBridge: that *some* element is not one of them). A value of type NULL is a missing one, except to `exists` and
`null`, which match it as in EventBridge.

It adds comparisons (`{"<": "2026-01-01"}`, `{">=": "{lessons}"}`): of two numbers or two texts, with a constant or with
another value of the item. A comparison that other forms can express is parsed to these forms: `{">": 10}` to that of
`{numeric: [">", 10]}`, and `{"=": "x"}` to that of `x`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

from projections.language.syntax import PATH, LanguageError, LanguageErrors, key_name, key_text, quote_it, suggest
from projections.language.templates import Template
from projections.language.values import Resolve, Value, number_text, wire

Scalar: TypeAlias = str | Decimal | bool | None
Fits: TypeAlias = Callable[[str, Any], bool]
"""Returns whether one element matches, given its type and its content, such as `"S", "text"`."""

_OPERATORS = ("prefix", "suffix", "exists", "anything-but", "numeric", "equals-ignore-case")
_COMPARISONS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "=": (operator.eq, "is"),
    "<": (operator.lt, "is less than"),
    "<=": (operator.le, "is at most"),
    ">": (operator.gt, "is greater than"),
    ">=": (operator.ge, "is at least"),
}
_SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "=": operator.eq,
    "!=": operator.ne,
}
"""The signs of comparisons, in the order of the canonical form."""


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


class Named(NamedTuple):
    """The other value of a comparison: an attribute or variable of the same item."""

    name: str

    def __str__(self) -> str:
        return self.name


Operand: TypeAlias = str | Decimal | Named


class Compares(NamedTuple):
    """Comparisons that must all hold for one element: those that `Equals` and `Numeric` cannot express."""

    bounds: tuple[tuple[str, Operand], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the values that it compares with."""
        return tuple(operand.name for _, operand in self.bounds if isinstance(operand, Named))

    def renamed(self, name_of: Callable[[str], str]) -> Compares:
        """Return the same comparisons with values that have other names."""
        renamed = (Named(name_of(one.name)) if isinstance(one, Named) else one for _, one in self.bounds)
        return Compares(tuple((sign, one) for (sign, _), one in zip(self.bounds, renamed, strict=True)))

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
            limits.append((_SIGNS[sign], kind, Decimal(data) if kind == "N" else data))

        def within(tag: str, data: Any) -> bool:
            element = Decimal(data) if tag == "N" else data
            return all(tag == kind and compare(element, limit) for compare, kind, limit in limits)

        return within

    def __str__(self) -> str:
        first, *rest = [_compared(sign, operand) for sign, operand in self.bounds]
        return " and ".join([first, *(text.removeprefix("is ") for text in rest)])


def _compared(sign: str, operand: Operand) -> str:
    if sign == "!=":
        words = {str: "is text other than", Decimal: "is a number other than"}.get(type(operand), "differs from")
    else:
        words = "is equal to" if sign == "=" and isinstance(operand, Named) else _COMPARISONS[sign][1]
    return f"{words} {operand if isinstance(operand, Named) else _literal(operand)}"


@dataclass(frozen=True, slots=True)
class Exists:
    exists: bool

    def __str__(self) -> str:
        return "exists" if self.exists else "is absent"


@dataclass(frozen=True, slots=True)
class AnythingBut:
    excluded: tuple[Equals | Affix, ...]

    def __str__(self) -> str:
        words = list(dict.fromkeys(str(one) for one in self.excluded))
        if not all(word.startswith("is ") for word in words):
            return f"exists and none of it {_either(words)}"
        values = [word.removeprefix("is ") for word in words]
        return "exists and is " + (f"not {values[0]}" if len(values) == 1 else f"none of {', '.join(values)}")


Alternative: TypeAlias = Equals | Affix | Numeric | Compares | Exists | AnythingBut


def compared_type(alternative: Alternative) -> str | None:
    """Return the type of the numbers or texts that an alternative puts in order, `N` or `S`; None if it does not do so."""
    if isinstance(alternative, Numeric):
        return "N"
    if isinstance(alternative, Compares):
        found = {"S" if isinstance(one, str) else "N" for _, one in alternative.bounds if not isinstance(one, Named)}
        return next(iter(found), None)
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

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, then those that it compares with, each once."""
        found = (name for one in self.alternatives if isinstance(one, Compares) for name in one.names)
        return tuple(dict.fromkeys((self.name, *found)))

    def renamed(self, name_of: Callable[[str], str]) -> Test:
        """Return the same test of an item on which values have other names."""
        alternatives = (one.renamed(name_of) if isinstance(one, Compares) else one for one in self.alternatives)
        return Test(name_of(self.name), tuple(alternatives))

    def compile(self) -> Callable[[Resolve], bool]:
        name = self.name
        if len(self.names) > 1:
            return self._compile_related()
        absent = Exists(False) in self.alternatives
        if Exists(True) in self.alternatives:
            return (lambda resolve: True) if absent else (lambda resolve: resolve(name, True) is not None)
        texts = frozenset(a.value for a in self.alternatives if isinstance(a, Equals) and isinstance(a.value, str))
        fits = [
            a.fits()
            for a in self.alternatives
            if isinstance(a, Numeric | Affix | Compares) or (isinstance(a, Equals) and not isinstance(a.value, str))
        ]
        excluded = [[one.fits() for one in a.excluded] for a in self.alternatives if isinstance(a, AnythingBut)]

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
        related = [one for one in self.alternatives if isinstance(one, Compares) and one.names]
        rest = tuple(one for one in self.alternatives if one not in related)
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
            return any(fit(*element) for fit in [one.fits(read) for one in related] for element in elements)

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

    def compile(self) -> Callable[[Resolve], bool]:
        branches = [_all(branch) for branch in self.branches]
        return lambda resolve: any(branch(resolve) for branch in branches)

    def __str__(self) -> str:
        return f"({' or '.join(_sentence(branch) for branch in self.branches)})"


Condition: TypeAlias = Test | Either


def _all(conditions: tuple[Condition, ...]) -> Callable[[Resolve], bool]:
    tests = [condition.compile() for condition in conditions]
    if len(tests) == 1:
        return tests[0]

    def every(resolve: Resolve) -> bool:
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

    def compile(self) -> Callable[[Resolve], bool]:
        return _all(self.conditions)

    @cached_property
    def matches(self) -> Callable[[Resolve], bool]:
        """Return whether the values that a resolver returns match."""
        return self.compile()

    def unmet(self, resolve: Resolve) -> list[Condition]:
        """Return the conditions that do not hold for the values that a resolver returns."""
        return [condition for condition in self.conditions if not condition.compile()(resolve)]


def _names(conditions: Iterable[Condition]) -> Iterator[str]:
    for condition in conditions:
        if isinstance(condition, Test):
            yield from condition.names
        else:
            for branch in condition.branches:
                yield from _names(branch)


def describe(pattern: Pattern) -> str:
    """Return a pattern in one line of English, such as `status is "published", and stars is at least 4`."""
    return _sentence(pattern.conditions)


# Reading

_At: TypeAlias = tuple[str | int, ...]


def _conditions(
    document: Any, prefix: str, at: _At, errors: list[LanguageError], branch: bool = False
) -> Iterator[Condition]:
    """Yield the conditions of a mapping: the whole pattern, a `branch` of `$or`, or what is below the path `prefix`."""
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
        elif found := _no_name(key, value, prefix, branch):
            errors.append(LanguageError(found, None, place))
        elif (name := key_name(key)) is None:
            errors.append(LanguageError(quote_it(key), None, place))
        else:
            for condition in _attribute(prefix + name, value, place, errors):
                if isinstance(condition, Test) and condition.name in seen:
                    message = f"{condition.name} has conditions in two places; write them as one list of alternatives"
                    errors.append(LanguageError(message, None, place))
                elif isinstance(condition, Test):
                    seen.add(condition.name)
                yield condition


def _no_name(key: str, value: Any, prefix: str, branch: bool) -> str:
    """Return why a key is probably an operator, and not the name of an attribute; empty if it is a name."""
    attribute = prefix.removesuffix(".") or "attribute"
    own = f"{attribute}.{key}" if prefix and key[0] != "$" and PATH.fullmatch(key) else f"it in quotes: \"'{key}'\""
    quoted = f"if it is an attribute, write {own}"
    word = _word(key) if key[0] not in "'\"" else ""
    if is_comparison(key):
        return f'write a comparison under an attribute: {{attribute: {{"{key}": …}}}}; {quoted}'
    if word in ("and", "or", "nor", "not") and (key[0] == "$" or _is_pattern(value)):
        how = "attributes in one mapping must all match, $or lists alternatives, and anything-but excludes values"
        return f'unknown operator "{key}"{suggest(key, ["$or"]) if word == "or" else ""}; {how}; {quoted}'
    if _is_record(key, value):
        return (
            f"`{key}` is in filters for stream records; a pattern here has the item's attributes, as {{status: [paid]}}"
        )
    if key in _OPERATORS and (branch or prefix):
        inside = f"[{{{key}: …}}]" if prefix else f"{{attribute: [{{{key}: …}}]}}"
        return f"write operators in a list: {inside}; {quoted}"
    if word in _ELSEWHERE and (key[0] == "$" or prefix or branch):
        return f'unknown operator "{key}"{_instead(word, value, attribute)}; {quoted}'
    if prefix and key in _TYPES and not isinstance(value, Mapping):
        return f"values have no types in a pattern: write {attribute}: {_shown(value)}; {quoted}"
    return ""


def canonical_key(key: str) -> str:
    """Return a key of a pattern without mistakes in its one form: in quotes only if it needs them."""
    text = key if key == "$or" else key_text(key_name(key) or "")
    reserved = text != key and (text in (*_OPERATORS, "$or", *_TYPES) or _word(text) in _WORDS or is_comparison(text))
    return key if reserved else text


_TYPES = ("S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS")
_ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("eq", "equals", "equal"), "[{}]"),
    **dict.fromkeys(("ne", "neq", "notequals", "nin", "notin"), "[{{anything-but: {}}}]"),
    "not": "[{{anything-but: {}}}]",
    "gt": '{{">": {}}}',
    **dict.fromkeys(("gte", "ge"), '{{">=": {}}}'),
    "lt": '{{"<": {}}}',
    **dict.fromkeys(("lte", "le"), '{{"<=": {}}}'),
    **dict.fromkeys(("in", "anyof", "oneof"), "{}"),
    "contains": "[{}]",
    **dict.fromkeys(("beginswith", "startswith"), "[{{prefix: {}}}]"),
    "endswith": "[{{suffix: {}}}]",
    "between": '{{">=": …, "<=": …}}',
    "exists": "[{{exists: {}}}]",
    **dict.fromkeys(("like", "regex", "regexp", "wildcard", "cidr", "all", "elemmatch", "size", "expr"), ""),
}
"""Operators of other languages, in lower case without other signs, with the form here; without one if there is none."""
_WORDS = frozenset([*_ELSEWHERE, "and", "or", "nor"])


def _word(key: str) -> str:
    return "".join(letter for letter in key.lower() if letter.isalpha())


def _instead(word: str, value: Any, attribute: str = "") -> str:
    form = _ELSEWHERE.get(word)
    if form is None:
        return ""
    if not form:
        return (
            ": the language of Lambda's filters does not have it. Text is compared as a whole, by prefix or by suffix; for "
            "more, let the application or a `compute` rule set an attribute to test"
        )
    return f": write {attribute + ': ' if attribute else ''}{form.format(_shown(value))}"


def _shown(value: Any) -> str:
    if isinstance(value, list) and all(not isinstance(one, Mapping | list) for one in value):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, str):
        return value if value.isalnum() and not value.isdecimal() else f'"{value[:40]}"'
    return "…" if isinstance(value, Mapping | list) else _what(value)


def _is_pattern(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)
    )


def _is_record(key: str, value: Any) -> bool:
    """Return whether a pattern is one for stream records, as Lambda's event filters are."""
    images = ("NewImage", "OldImage", "Keys")
    inside = isinstance(value, Mapping) and any(name in value for name in images)
    return (key == "dynamodb" and inside) or (key in images and _is_pattern(value))


def _or(value: Any, prefix: str, at: _At, errors: list[LanguageError]) -> Iterator[Either]:
    if not isinstance(value, list) or not value:
        errors.append(LanguageError(f"$or takes a list of patterns, not {_what(value)}", None, at))
        return
    if len(value) == 1:
        message = "$or has one pattern, so it has no meaning: write its attributes without $or, or add a pattern"
        errors.append(LanguageError(message, None, at))
    branches = []
    for position, branch in enumerate(value):
        if branch == {}:
            errors.append(
                LanguageError("an empty pattern always matches, and so would this $or", None, (*at, position))
            )
        branches.append(tuple(_conditions(branch, prefix, (*at, position), errors, branch=True)))
    yield Either(tuple(branches))


def _attribute(name: str, value: Any, at: _At, errors: list[LanguageError]) -> Iterator[Condition]:
    if isinstance(value, Mapping) and any(map(is_comparison, value)):
        found = _alternative(value, at, errors, name)
        yield Test(name, () if found is None else (found,))
        return
    if isinstance(value, Mapping):
        if not value:
            errors.append(LanguageError("this has no condition; remove it, or write [{exists: true}]", None, at))
        yield from _conditions(value, name + ".", at, errors)
        return
    if not isinstance(value, list):
        found = _alternative(value, at, errors, name)
        yield Test(name, () if found is None else (found,))
        return
    if not value:
        errors.append(LanguageError("an empty list never matches; list at least one alternative", None, at))
    found_all = [_alternative(each, (*at, position), errors, name) for position, each in enumerate(value)]
    yield Test(name, tuple(one for one in found_all if one is not None))


def _alternative(value: Any, at: _At, errors: list[LanguageError], attribute: str) -> Alternative | None:
    try:
        if not isinstance(value, Mapping):
            return Equals(_scalar(value, "an alternative is a text, number, boolean, null or {operator: …}"))
        if any(map(is_comparison, value)):
            found = comparison(value)
            if isinstance(found, Compares) and attribute in found.names:
                raise LanguageError(f"this compares {attribute} with itself")
            return found
        if len(value) != 1:
            raise LanguageError("an alternative has one operator; write other operators as further alternatives")
        [(name, argument)] = value.items()
        if name not in _OPERATORS:
            raise LanguageError(_unknown(name, argument))
        return _operator(name, argument)
    except LanguageError as error:
        errors.append(error.within(*at))
        return None


def _unknown(name: Any, argument: Any = None) -> str:
    known = (*_OPERATORS, *_SIGNS)
    hint = _instead(_word(str(name)), argument) or suggest(str(name), known)
    return f'unknown operator "{name}"{hint}; the operators are {", ".join(known)}'


# Comparisons


def is_comparison(key: Any) -> bool:
    """Return whether a key of a pattern is a sign of a comparison, or one that was probably meant to be one."""
    return isinstance(key, str) and key != "" and not key.strip("<>=!≤≥≠")


def comparison(document: Mapping[Any, Any]) -> Equals | Numeric | Compares:
    """Parse comparisons that must all hold, such as `{">=": 1, "<": "{most}"}`. Raises LanguageError with a path."""
    bounds: list[tuple[str, Operand]] = []
    for sign, argument in document.items():
        if not is_comparison(sign):
            message = f'comparisons cannot be combined with "{sign}" in one mapping; write it as a further alternative'
            raise LanguageError(message, None, (sign if isinstance(sign, str | int) else str(sign),))
        if sign not in _SIGNS:
            raise LanguageError(_unknown(sign), None, (sign,))
        try:
            bounds.append((sign, _operand(sign, argument)))
        except LanguageError as error:
            raise LanguageError(error.message, error.offset, (sign,)) from None
    bounds.sort(key=lambda bound: [*_SIGNS].index(bound[0]))
    constants = [(sign, operand) for sign, operand in bounds if not isinstance(operand, Named)]
    _consistent(constants)
    signs = [sign for sign, _ in bounds]
    numbers = tuple((sign, operand) for sign, operand in bounds if isinstance(operand, Decimal))
    if signs == ["="] and constants:
        return Equals(constants[0][1])
    if len(numbers) == len(bounds) and "!=" not in signs:
        return Numeric(numbers)
    return Compares(tuple(bounds))


def _operand(sign: str, argument: Any) -> Operand:
    if isinstance(argument, str):
        template = Template.parse(argument)
        if not template.fields:
            return template.literal_prefix
        if any(field.expression is not None for field in template.fields):
            raise LanguageError(
                f"{sign} compares with a constant, or with one value of the item, without a calculation; let a `compute` "
                'rule set an attribute to the result, and write "{name}" with the name of this attribute'
            )
        if template.single is None or template.fields[0].pipes or template.fields[0].star:
            raise LanguageError(
                f'{sign} compares with a constant, or with one value of the item, "{{name}}" without pipes and other text; '
                "for braces in a text write {{ and }}"
            )
        return Named(template.single)
    number = (
        None if isinstance(argument, bool) or argument is None else _scalar(argument, f"{sign} takes a number or text")
    )
    if not isinstance(number, Decimal):
        message = f"{sign} compares numbers and text, not {_what(argument)}"
        raise LanguageError(f"{message}; write the value itself as an alternative" if sign == "=" else message)
    return number


def _consistent(constants: list[tuple[str, str | Decimal]]) -> None:
    """Raise LanguageError if no value can be within these bounds, or if one of them is not needed."""
    if len({type(value) for _, value in constants}) > 1:
        raise LanguageError(
            "no value is a number and text; compare with numbers without quotes, or with text in quotes"
        )
    signs = dict(constants)
    if len(signs) > 1 and "=" in signs:
        raise LanguageError("write only =, without other comparisons with constants")
    for one, other in ((">", ">="), ("<", "<=")):
        if one in signs and other in signs:
            raise LanguageError(f"write one of {one} and {other}, or compare one of them with another value")
    least = signs.get(">", signs.get(">="))
    most = signs.get("<", signs.get("<="))
    if least is None or most is None:
        return
    if least > most or (least == most and (">" in signs or "<" in signs)):  # type: ignore[operator]
        raise LanguageError(f"no {'text' if isinstance(least, str) else 'number'} lies between these bounds")


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
            word = str(next(iter(argument), ""))
            hint = suggest(word, known) or (_instead(_word(word), None) if word in ("wildcard", "cidr") else "")
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
            raise LanguageError(f"{form}: write at most one lower bound and one upper bound", None, ("numeric",))
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
