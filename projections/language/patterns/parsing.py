"""Reads a pattern from a document, and writes its canonical one.

It reports all mistakes: operators of other languages with the form here. Patterns that differ only in how they are written
have one canonical document: paths with dots instead of nested mappings, a scalar alone instead of a list of one, otherwise
lists in order, what Lambda's operators can express written with them, whole numbers as integers, and quotes only where
names need them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any, TypeAlias, TypeVar, assert_never

from projections.language.patterns.tree import (
    SIGNS,
    Affix,
    Alternative,
    AnythingBut,
    Compares,
    Condition,
    Either,
    Equals,
    Exists,
    Named,
    Operand,
    Scalar,
    Test,
)
from projections.language.syntax import (
    PATH,
    LanguageError,
    LanguageErrors,
    key_name,
    key_text,
    quote_it,
    quoted_step,
    suggest,
    written_path,
)
from projections.language.templates import Template
from projections.language.values import is_number_form, plain, wire

_OPERATORS = ("prefix", "suffix", "exists", "anything-but", "numeric", "equals-ignore-case")
_BOUNDS = ("=", "<", "<=", ">", ">=")

_At: TypeAlias = tuple[str | int, ...]
_T = TypeVar("_T")
_A = TypeVar("_A", bound=Alternative)


def conditions_of(document: Any) -> tuple[Condition, ...]:
    """Return the conditions of a pattern. Raises LanguageErrors with every mistake, each with its path in the document."""
    errors: list[LanguageError] = []
    conditions = tuple(_conditions(document, "", (), errors))
    if errors:
        raise LanguageErrors(errors)
    return conditions


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
        elif reason := _no_name(key, value, prefix, branch):
            errors.append(LanguageError(reason, None, place))
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
    word = _word(key) if key[0] not in "'\"" and "." not in key else ""
    if is_comparison(key):
        return f'write a comparison under an attribute: {{attribute: {{"{key}": …}}}}; {quoted}'
    if word in ("and", "or", "nor", "not") and (
        key[0] == "$" or _is_pattern(value) or (prefix and word in ("and", "or"))
    ):
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
        return f"values have no types in a pattern: write {attribute}: {_text_of(value)}; {quoted}"
    return ""


_TYPES = ("S", "N", "B", "BOOL", "NULL", "SS", "NS", "BS")
_ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("eq", "equals", "equal"), "[{}]"),
    **dict.fromkeys(("ne", "neq", "notequals", "nin", "notin"), "[{{anything-but: {}}}]"),
    "not": "[{{anything-but: {}}}]",
    **dict.fromkeys(("gt", "greaterthan"), '{{">": {}}}'),
    **dict.fromkeys(("gte", "ge"), '{{">=": {}}}'),
    **dict.fromkeys(("lt", "lessthan"), '{{"<": {}}}'),
    **dict.fromkeys(("lte", "le"), '{{"<=": {}}}'),
    **dict.fromkeys(("in", "anyof", "oneof"), "{}"),
    "contains": "[{}]",
    **dict.fromkeys(("beginswith", "startswith"), "[{{prefix: {}}}]"),
    "endswith": "[{{suffix: {}}}]",
    "between": '{{">=": …, "<=": …}}',
    "exists": "[{{exists: {}}}]",
    **dict.fromkeys(("isnull", "notnull", "isnotnull"), "[{{exists: …}}]"),
    **dict.fromkeys(("notexists", "attributeexists", "attributenotexists"), "[{{exists: …}}]"),
    **dict.fromkeys(("like", "regex", "regexp", "wildcard", "cidr", "all", "elemmatch", "size", "expr"), ""),
}
"""Operators of other languages, in lower case without other signs, with the form here; without one if there is none."""


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
    return f": write {attribute + ': ' if attribute else ''}{form.format(_text_of(value))}"


def _text_of(value: Any) -> str:
    if isinstance(value, list) and all(not isinstance(element, Mapping | list) for element in value):
        return f"[{', '.join(map(_text_of, value))}]"
    if isinstance(value, str):
        return value if value.isalnum() and not value.isdecimal() else f'"{value[:40]}"'
    return "…" if isinstance(value, Mapping | list) else _what(value)


def _is_pattern(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and all(isinstance(element, Mapping) for element in value)
    )


def _is_record(key: str, value: Any) -> bool:
    """Return whether a pattern is one for stream records, as Lambda's event filters are."""
    images = ("NewImage", "OldImage", "Keys")
    inside = isinstance(value, Mapping) and any(name in value for name in images)
    values = value if isinstance(value, list) else [value]
    return (
        (key == "dynamodb" and inside)
        or (key in images and _is_pattern(value))
        or any(key.startswith((f"dynamodb.{name}.", f"{name}.")) for name in images)
        or (key == "eventName" and all(name in ("INSERT", "MODIFY", "REMOVE") for name in values))
        or (key == "eventSource" and values == ["aws:dynamodb"])
    )


def _or(value: Any, prefix: str, at: _At, errors: list[LanguageError]) -> Iterator[Either]:
    if isinstance(value, list) and value and all(isinstance(either, list) for either in value):
        for position, either in enumerate(value):
            yield from _or(either, prefix, (*at, position), errors)
        return
    if not isinstance(value, list) or not value:
        errors.append(LanguageError(f"$or takes a list of patterns, not {_what(value)}", None, at))
        return
    branches = []
    before = len(errors)
    for position, branch in enumerate(value):
        if branch == {}:
            errors.append(
                LanguageError("an empty pattern always matches, and so would this $or", None, (*at, position))
            )
        branches.append(tuple(_conditions(branch, prefix, (*at, position), errors, branch=True)))
    if len(errors) == before and len(_branches(either := Either(tuple(branches)))) == 1:
        message = "$or has one pattern, so it has no meaning: write its attributes without $or, or add a pattern"
        errors.append(LanguageError(message, None, at))
    elif len(errors) == before:
        yield either


def _attribute(name: str, value: Any, at: _At, errors: list[LanguageError]) -> Iterator[Condition]:
    if isinstance(value, Mapping) and not any(map(is_comparison, value)) and not is_number_form(value):
        if not value:
            errors.append(LanguageError("this has no condition; remove it, or write [{exists: true}]", None, at))
        yield from _conditions(value, name + ".", at, errors)
        return
    if value == []:
        errors.append(LanguageError("an empty list never matches; list at least one alternative", None, at))
    places = [((*at, number), each) for number, each in enumerate(value)] if isinstance(value, list) else [(at, value)]
    alternatives = [_alternative(each, place, errors, name) for place, each in places]
    yield Test(name, _unique(filter(None, alternatives)), at)


def _alternative(value: Any, at: _At, errors: list[LanguageError], attribute: str) -> Alternative | None:
    try:
        if not isinstance(value, Mapping) or is_number_form(value):
            return Equals(_scalar(value, "an alternative is a text, number, boolean, null or {operator: …}"))
        if any(map(is_comparison, value)):
            compared = comparison(value)
            if isinstance(compared, Compares) and attribute in compared.names:
                raise LanguageError(f"this compares {attribute} with itself")
            return compared
        if len(value) != 1:
            raise LanguageError("an alternative has one operator; write other operators as further alternatives")
        [(name, argument)] = value.items()
        if name not in _OPERATORS:
            raise LanguageError(_unknown(name, argument))
        try:
            return _operator(name, argument)
        except LanguageError as error:
            raise error.within(name) from None
    except LanguageError as error:
        errors.append(error.within(*at))
        return None


def _unknown(name: Any, argument: Any = None) -> str:
    known = (*_OPERATORS, *SIGNS)
    hint = _instead(_word(str(name)), argument) or suggest(str(name), known)
    return f'unknown operator "{name}"{hint}; the operators are {", ".join(known)}'


# Comparisons


def is_comparison(key: Any) -> bool:
    """Return whether a key of a pattern is a sign of a comparison, or one that was probably meant to be one."""
    return isinstance(key, str) and key != "" and not key.strip("<>=!≤≥≠")


def comparison(document: Mapping[Any, Any]) -> Equals | Compares:
    """Parse comparisons that must all hold, such as `{">=": 1, "<": "{most}"}`. Raises LanguageError with a path."""
    bounds: list[tuple[str, Operand]] = []
    for sign, argument in document.items():
        if not is_comparison(sign):
            message = f'comparisons cannot be combined with "{sign}" in one mapping; write it as a further alternative'
            raise LanguageError(message, None, (sign if isinstance(sign, str | int) else str(sign),))
        if sign not in SIGNS:
            raise LanguageError(_unknown(sign), None, (sign,))
        try:
            bounds.append((sign, _operand(sign, argument)))
        except LanguageError as error:
            raise error.within(sign) from None
    _consistent([(sign, operand) for sign, operand in bounds if not isinstance(operand, Named)])
    return _comparisons(bounds)


def _comparisons(bounds: Sequence[tuple[str, Operand]]) -> Equals | Compares:
    """Return comparisons in the order of signs; a constant that a value must equal stands for itself."""
    (sign, operand), *more = bounds
    if sign == "=" and not more and not isinstance(operand, Named):
        return Equals(operand)
    return Compares(tuple(sorted(bounds, key=lambda bound: [*SIGNS].index(bound[0]))))


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


def _consistent(constants: Sequence[tuple[str, str | Decimal]]) -> None:
    """Raise LanguageError if no value can be within these bounds, or if one of them is not needed."""
    if len({type(value) for _, value in constants}) > 1:
        raise LanguageError(
            "no value is a number and text; compare with numbers without quotes, or with text in quotes"
        )
    signs = dict(constants)
    if len(signs) > 1 and "=" in signs:
        raise LanguageError("write only =, without other comparisons with constants")
    for strict, other in ((">", ">="), ("<", "<=")):
        if strict in signs and other in signs:
            raise LanguageError(f"write one of {strict} and {other}, or compare one of them with another value")
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
                raise LanguageError(f"exists takes true or false, not {_what(argument)}")
            return Exists(bool(argument))
        case "numeric":
            return _comparisons(_bounds(argument))
        case "anything-but":
            return AnythingBut(_unique(_exclusions(argument)))
    return _affix(name, argument)


def _affix(name: str, argument: Any) -> Affix:
    ignore_case = name == "equals-ignore-case"
    if not ignore_case and isinstance(argument, Mapping) and list(argument) == ["equals-ignore-case"]:
        argument, ignore_case = argument["equals-ignore-case"], True
    if not isinstance(argument, str):
        raise LanguageError(f"{name} takes text, not {_what(argument)}")
    return Affix(name, str(argument), ignore_case)


def _exclusions(argument: Any) -> Iterator[Equals | Affix]:
    if isinstance(argument, Mapping):
        known = ("prefix", "suffix", "equals-ignore-case")
        if len(argument) != 1 or next(iter(argument)) not in known:
            word = str(next(iter(argument), ""))
            hint = suggest(word, known) or (_instead(_word(word), None) if word in ("wildcard", "cidr") else "")
            message = f"anything-but takes scalars, or {{prefix: …}}, {{suffix: …}} or {{equals-ignore-case: …}}{hint}"
            raise LanguageError(message)
        [(name, texts)] = argument.items()
        for text in texts if isinstance(texts, list) and texts else [texts]:
            try:
                yield _affix(name, text)
            except LanguageError as error:
                raise error.within(name) from None
    else:
        if argument == []:
            raise LanguageError("anything-but takes at least one value")
        for value in argument if isinstance(argument, list) else [argument]:
            yield Equals(_scalar(value, "anything-but takes texts, numbers, booleans or null"))


def _bounds(argument: Any) -> tuple[tuple[str, Decimal], ...]:
    form = 'numeric takes [">=", 1] or [">=", 1, "<", 5]'
    if not isinstance(argument, list) or len(argument) not in (2, 4):
        raise LanguageError(f"{form}, not {_what(argument)}")
    bounds: list[tuple[str, Decimal]] = []
    for position in range(0, len(argument), 2):
        sign, number = argument[position : position + 2]
        if not isinstance(sign, str) or sign not in _BOUNDS:
            known = " ".join(_BOUNDS)
            raise LanguageError(f"{form}; the signs are {known}, not {_what(sign)}", None, (position,))
        exact = None if isinstance(number, bool | str) else _scalar(number, form, (position + 1,))
        if not isinstance(exact, Decimal):
            raise LanguageError(f"{form}, a number without quotes, not {_what(number)}", None, (position + 1,))
        bounds.append((str(sign), exact))
    if len(bounds) == 2:
        if {sign[0] for sign, _ in bounds} != {"<", ">"}:
            raise LanguageError(f"{form}: write at most one lower bound and one upper bound")
        _consistent(bounds)
    return tuple(bounds)


def _scalar(value: Any, expected: str, path: _At = ()) -> Scalar:
    match value:
        case None:
            return None
        case bool():
            return bool(value)
        case str():
            return str(value)
        case int() | float() | Decimal() | {"$number": str()}:
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


# The canonical document


def document_of(conditions: Iterable[Condition]) -> dict[str, Any]:
    """Return the canonical document of conditions that must all hold."""
    document: dict[str, Any] = {}
    either: list[list[dict[str, Any]]] = []
    for condition in conditions:
        match condition:
            case Test(name, alternatives):
                values = _in_order(map(_alternative_document, alternatives))
                value = values[0] if isinstance(alternatives[0], Equals) and len(values) == 1 else values
                text = key_text(name)
                document[quoted_step(text) if text == "$or" or _no_name(text, value, "", True) else text] = value
            case Either():
                either.append(_branches(condition))
            case _:
                assert_never(condition)
    if either:
        several = _in_order(either)
        document["$or"] = several[0] if len(several) == 1 else several
    return document


def _branches(either: Either) -> list[dict[str, Any]]:
    """Return the patterns of an `$or`, with those of an `$or` that is one of them."""
    documents: list[dict[str, Any]] = []
    for branch in either.branches:
        match branch:
            case (Either() as inner,):
                documents += _branches(inner)
            case _:
                documents.append(document_of(branch))
    return _in_order(documents)


def _alternative_document(alternative: Alternative) -> Any:
    match alternative:
        case Equals(value):
            return _scalar_document(value)
        case Affix(name, text, ignore_case):
            return {name: {"equals-ignore-case": text} if ignore_case and name != "equals-ignore-case" else text}
        case Compares(bounds) if alternative.is_numeric:
            return {"numeric": [part for sign, number in bounds for part in (sign, _operand_document(number))]}
        case Compares(bounds):
            return {sign: _operand_document(operand) for sign, operand in bounds}
        case Exists(exists):
            return {"exists": exists}
        case AnythingBut(excluded):
            documents = _in_order(map(_alternative_document, excluded))
            if isinstance(excluded[0], Affix):
                documents = [{name: _alone([each[name] for each in documents])} for name in documents[0]]
            return {"anything-but": _alone(documents)}
        case _:
            assert_never(alternative)


def _operand_document(operand: Operand) -> Any:
    if isinstance(operand, Named):
        return f"{{{written_path(operand.name)}}}"
    return operand.replace("{", "{{").replace("}", "}}") if isinstance(operand, str) else _scalar_document(operand)


def _scalar_document(value: Scalar) -> Any:
    return plain(wire(value))


def _alone(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values


def _in_order(documents: Iterable[_T]) -> list[_T]:
    """Return alternatives, whose order has no meaning, in one order and each once."""
    by_text = {json.dumps(each, sort_keys=True): each for each in documents}
    return [by_text[text] for text in sorted(by_text)]


def _unique(values: Iterable[_A]) -> tuple[_A, ...]:
    """Return alternatives of which each has another document: dataclasses would take `true` for 1."""
    return tuple({json.dumps(_alternative_document(value), sort_keys=True): value for value in values}.values())
